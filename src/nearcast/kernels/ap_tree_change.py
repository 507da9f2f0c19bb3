"""How an adaptive partition tree changes: clauses come to their leaves, and leave them.

Wang et al., VLDB Journal 2015, section 3.3.5. A leaf that has become too large is parted, an inner
node that has too few clauses becomes a leaf, and an inner node whose children have shares of its
clauses that differ too much from those when it was built is built anew, with all below it: all
three are due nodes, which are made anew of their clauses (`nearcast.kernels.ap_tree_grow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.ap_tree import (
    BOUNDS,
    BUILT,
    CHANGED,
    CHILD,
    CLAUSE,
    CORNER,
    COUNT,
    DEAD,
    DEPTH,
    ENTRIES,
    FANOUT,
    HEADER,
    HELD,
    KEYWORDS,
    LEAF,
    LEAF_HEADER,
    LEAF_SIZE,
    OFFSET,
    PARTS,
    ROOM,
    ROOT,
    RULE,
    SIZE,
    TOP,
    UNIT,
    WIDTH,
    WORN,
    Ranked,
    Tree,
    cell_region,
    entry_place,
    has_room,
    leaf_units,
    length_of,
    new_leaf,
    node_units,
    put_entry,
    rank_at,
)
from nearcast.kernels.ap_tree_cuts import Draft, Hits
from nearcast.kernels.ap_tree_grow import (
    BEGIN,
    BOX,
    DUE,
    END,
    LEVEL,
    M_CLAUSES,
    M_PLACES,
    M_UNITS,
    NEXT,
    SKIP,
    SLOT,
    STEP_WIDTH,
    STEPS,
    Work,
    first_child,
    grow_nodes,
)
from nearcast.kernels.compile import Number, kernel, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOK = 8
"""An inner node is looked at when one in so many of its clauses came or left since the last time:
before that, chance alone would let small nodes seem changed."""

LEAVES, PASSED = 0, 1
"""In the counts of `Ways`."""

FROM, AGAIN, COVERED, WAY_WIDTH = STEP_WIDTH, STEP_WIDTH + 1, STEP_WIDTH + 2, STEP_WIDTH + 3
"""Behind a step: see `Ways`."""


class Ways(NamedTuple):
    """Where a clause goes: the leaves it comes to, and the inner nodes on its way.

    - ``leaf``, ``stack`` and ``inner`` int64[many, 12], as steps: the latter is a row for every
      child of an inner node that the clause goes to, with the place of the node in ``BEGIN`` and
      of the child's name in ``END``. Behind a step: the row from which it was come to (-1: none),
      whether the row before has the same node, and whether this node or one above it is due.
    - ``due`` int64[many, 12]: as steps, nodes that are to be made anew. ``count`` int64[2].
    """

    leaf: NDArray[np.int64]
    stack: NDArray[np.int64]
    inner: NDArray[np.int64]
    due: NDArray[np.int64]
    count: NDArray[np.int64]


class Limits(NamedTuple):
    """When a node is built anew: its divergence, and its share of all clauses."""

    divergence: Number
    share: Number


@kernel
def find_ways(tree: Tree, ranked: Ranked, clause: Number, ways: Ways) -> Number:
    """Write where a clause goes; return whether there was room."""
    arena, stack, top = tree.arena, ways.stack, np.int64(1)
    ways.count[:] = 0
    stack[0, :] = 0
    stack[0, FROM] = -1
    for side in range(4):
        stack[0, BOX + side] = tree.state[BOUNDS + side]
    while top > 0:
        top -= 1
        at = stack[top]
        base = UNIT * np.int64(arena[at[SLOT]])
        if base == 0 or arena[base] == LEAF:
            if ways.count[LEAVES] == len(ways.leaf):
                return False
            ways.leaf[ways.count[LEAVES]] = at
            ways.count[LEAVES] += 1
            continue
        slot, level, skip, way = at[SLOT], at[LEVEL], at[SKIP], at[FROM]
        parts, keywords = np.int64(arena[base + PARTS]), arena[base] == KEYWORDS
        names = base + np.int64(arena[base + CHILD])
        first, across, rows, apart = first_child(tree, base, ranked, clause, at[BOX : BOX + 4])
        passes = across * rows
        if ways.count[PASSED] + passes > len(ways.inner) or top + passes > len(stack):
            return False
        region = at[BOX : BOX + 4].copy()
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                passed = ways.inner[ways.count[PASSED]]
                passed[SLOT], passed[BEGIN], passed[END] = slot, base, names + child
                passed[LEVEL], passed[SKIP] = level, skip
                passed[BOX : BOX + 4] = region
                passed[FROM], passed[AGAIN] = way, np.int64(row > 0 or child > first)
                below = stack[top]
                below[SLOT], below[LEVEL] = names + child, level + 1
                below[FROM] = ways.count[PASSED]
                ways.count[PASSED] += 1
                below[SKIP] = skip + np.int64(keywords and child < parts)
                if keywords:
                    below[BOX : BOX + 4] = region
                else:
                    cell_region(arena, base, child, below[BOX : BOX + 4])
                top += 1
    return True


@kernel
def larger_room(size: Number) -> Number:
    """Return for how many entries a leaf gets room that has so many and no more room."""
    return size + (size >> 1) + 2


@kernel
def units_for(tree: Tree, ways: Ways) -> Number:
    """Return the units that leaves need which have no room, or are not there yet."""
    needed = np.int64(0)
    for i in range(ways.count[LEAVES]):
        base = UNIT * np.int64(tree.arena[ways.leaf[i, SLOT]])
        if base == 0:
            needed += leaf_units(larger_room(np.int64(0)))
        elif tree.arena[base + SIZE] == tree.arena[base + ROOM]:
            needed += leaf_units(larger_room(np.int64(tree.arena[base + SIZE])))
    return needed


@kernel
def move_leaf(tree: Tree, slot: Number, room: Number) -> None:
    """Move a leaf to where it has more room, which there is."""
    arena = tree.arena
    old = UNIT * np.int64(arena[slot])
    size, old_room = np.int64(arena[old + SIZE]), np.int64(arena[old + ROOM])
    region = np.empty(4, np.int64)
    for side in range(4):
        region[side] = arena[old + CORNER + side]
    node = new_leaf(tree, room, region)
    base = UNIT * node
    arena[base + SIZE], arena[base + RULE] = size, arena[old + RULE]
    for i in range(size):
        arena[base + LEAF_HEADER + i] = arena[old + LEAF_HEADER + i]
    here, there = entry_place(base, room, 0), entry_place(old, old_room, 0)
    for i in range(WIDTH * size):
        arena[here + i] = arena[there + i]
    arena[slot] = node
    tree.state[DEAD] += leaf_units(old_room)


@kernel
def put_in_leaves(tree: Tree, ranked: Ranked, clause: Number, ways: Ways) -> None:
    """Put a clause into its leaves, for which there is room; leaves that are too large are due."""
    arena = tree.arena
    for i in range(ways.count[LEAVES]):
        slot = ways.leaf[i, SLOT]
        if arena[slot] == 0:
            region = ways.leaf[i, BOX : BOX + 4]
            arena[slot] = new_leaf(tree, larger_room(np.int64(0)), region)
        base = UNIT * np.int64(arena[slot])
        if arena[base + SIZE] == arena[base + ROOM]:
            move_leaf(tree, slot, larger_room(np.int64(arena[base + SIZE])))
            base = UNIT * np.int64(arena[slot])
        put_entry(tree, base, ranked, clause)


@kernel
def widen_cut(tree: Tree, ranked: Ranked, clause: Number, base: Number, name: Number) -> None:
    """Let the cut of a keyword node have the rank of a clause that goes to it."""
    arena, parts = tree.arena, np.int64(tree.arena[base + PARTS])
    child = name - base - np.int64(arena[base + CHILD])
    offset = np.int64(arena[base + OFFSET])
    if child == parts or length_of(ranked, clause) <= offset:
        return
    rank, place = rank_at(ranked, clause, offset), base + HEADER + child
    arena[place] = max(np.int64(arena[place]), rank)
    arena[place + parts] = min(np.int64(arena[place + parts]), rank)


@kernel
def divergence(arena: NDArray[np.int32], base: Number) -> Number:
    """Return the Kullback-Leibler divergence of the children's shares from those when built.

    One is added to all numbers of clauses: there are no shares of 0.
    """
    children = np.int64(arena[base + PARTS]) + 1
    now = base + np.int64(arena[base + CHILD]) + children
    old = now + children
    all_now, all_old = np.float64(children), np.float64(children)
    for i in range(children):
        all_now += arena[now + i]
        all_old += arena[old + i]
    sum_ = 0.0
    for i in range(children):
        share = (arena[old + i] + 1.0) / all_old
        sum_ += share * np.log(share / ((arena[now + i] + 1.0) / all_now))
    return sum_


@kernel
def has_diverged(tree: Tree, base: Number, limits: Limits) -> Number:
    """Tell whether an inner node is to be built anew because its clauses are others now."""
    arena = tree.arena
    if LOOK * np.int64(arena[base + CHANGED]) <= arena[base + BUILT]:
        return False
    if arena[base + COUNT] < limits.share * tree.state[HELD]:
        return False
    arena[base + CHANGED] = 0
    return divergence(arena, base) > limits.divergence


@kernel
def mark_inner(
    tree: Tree, ranked: Ranked, clause: Number, ways: Ways, more: Number, limits: Limits
) -> Number:
    """Count a clause that comes (1) or leaves (-1) in all inner nodes; return how many are due.

    Below one that is due, none is. Where the root has diverged, the tree is worn: even the order of
    tokens may be another today.
    """
    arena, state, due = tree.arena, tree.state, np.int64(0)
    for i in range(ways.count[PASSED]):
        way = ways.inner[i]
        base, name = way[BEGIN], way[END]
        if more > 0 and arena[base] == KEYWORDS:
            widen_cut(tree, ranked, clause, base, name)
        arena[name + arena[base + PARTS] + 1] += more
        if way[AGAIN] == 1:
            way[COVERED] = ways.inner[i - 1, COVERED]
            continue
        arena[base + COUNT] += more
        arena[base + CHANGED] += 1
        way[COVERED] = ways.inner[way[FROM], COVERED] if way[FROM] >= 0 else 0
        if way[COVERED] == 1:
            continue
        few = more < 0 and arena[base + COUNT] < state[LEAF_SIZE]
        if few or has_diverged(tree, base, limits):
            way[COVERED] = 1
            if way[SLOT] == ROOT and not few:
                state[WORN] = 1
            else:
                ways.due[due] = way
                due += 1
    return due


@kernel
def mark_leaves(tree: Tree, ways: Ways, due: Number) -> Number:
    """Add the leaves that are too large to the due nodes; return how many these are then."""
    for i in range(ways.count[LEAVES]):
        way = ways.leaf[i]
        base = UNIT * np.int64(tree.arena[way[SLOT]])
        if tree.arena[base + SIZE] <= tree.arena[base + RULE]:
            continue
        if way[FROM] < 0 or ways.inner[way[FROM], COVERED] == 0:
            ways.due[due] = way
            due += 1
    return due


@kernel
def collect_clauses(
    tree: Tree, step: NDArray[np.int64], stack: NDArray[np.int64], clause: NDArray[np.int32]
) -> Number:
    """Write the clauses at and below a node, each once; return how many there are.

    They are written as long as there is room. A clause counts in the leaf that has the south-west
    corner of what it has in common with the node's region.
    """
    arena, count, top = tree.arena, np.int64(0), np.int64(1)
    stack[0, 0] = UNIT * np.int64(arena[step[SLOT]])
    while top > 0:
        top -= 1
        base = stack[top, 0]
        if base == 0:
            continue
        if arena[base] == LEAF:
            room = np.int64(arena[base + ROOM])
            west, south = np.int64(arena[base + CORNER]), np.int64(arena[base + CORNER + 1])
            first_west, first_south = step[BOX] >= west, step[BOX + 1] >= south
            for i in range(arena[base + SIZE]):
                place = entry_place(base, room, i)
                here = first_west or arena[place] >= west
                if here and (first_south or arena[place + 1] >= south):
                    if count < len(clause):
                        clause[count] = arena[place + CLAUSE]
                    count += 1
            continue
        names = base + np.int64(arena[base + CHILD])
        for child in range(np.int64(arena[base + PARTS]) + 1):
            stack[top, 0] = UNIT * np.int64(arena[names + child])
            top += np.int64(arena[names + child] != 0)
    return count


@kernel
def drop_nodes(tree: Tree, slot: Number, stack: NDArray[np.int64]) -> None:
    """Give a node and all below it back."""
    arena, top = tree.arena, np.int64(1)
    stack[0, 0] = UNIT * np.int64(arena[slot])
    arena[slot] = 0
    while top > 0:
        top -= 1
        base = stack[top, 0]
        if base == 0:
            continue
        tree.state[DEAD] += node_units(arena, base)
        if arena[base] == LEAF:
            tree.state[ENTRIES] -= np.int64(arena[base + SIZE])
            continue
        names = base + np.int64(arena[base + CHILD])
        for child in range(np.int64(arena[base + PARTS]) + 1):
            stack[top, 0] = UNIT * np.int64(arena[names + child])
            top += np.int64(arena[names + child] != 0)


@kernel
def renew_nodes(
    tree: Tree, ranked: Ranked, work: Work, ways: Ways, hits: Hits, draft: Draft
) -> Number:
    """Make all due nodes anew; return whether there was room."""
    while True:
        if not grow_nodes(tree, ranked, work, hits, draft):
            return False
        if work.state[DUE] == 0:
            return True
        if (tree.state[DEPTH] + 3) * (tree.state[FANOUT] + 2) > len(ways.stack):
            work.missing[M_PLACES] = 1
            return False
        due = ways.due[work.state[DUE] - 1]
        count = collect_clauses(tree, due, ways.stack, work.clause)
        if count > len(work.clause):
            work.missing[M_CLAUSES] = count
            return False
        drop_nodes(tree, due[SLOT], ways.stack)
        work.state[DUE] -= 1
        if count > 0:
            work.step[0] = due[:STEP_WIDTH]
            work.step[0, BEGIN], work.step[0, END] = 0, count
            work.state[STEPS] = 1


@kernel
def worn_out(tree: Tree) -> Number:
    """Tell whether the tree is to be built anew, or half of the arena was given back."""
    state = tree.state
    return state[WORN] != 0 or 2 * state[DEAD] > state[TOP] + (1 << 16)


@kernel
def insert_clauses(
    tree: Tree,
    ranked: Ranked,
    last: Number,
    work: Work,
    ways: Ways,
    limits: Limits,
    partition: tuple[Hits, Draft],
) -> Number:
    """Add clauses from the next one to ``last``; return whether it came to the end.

    If not, something is missing, or the tree is worn out.
    """
    while True:
        if not renew_nodes(tree, ranked, work, ways, partition[0], partition[1]):
            return False
        clause = work.state[NEXT]
        if worn_out(tree):
            return False
        if clause == last:
            return True
        if not find_ways(tree, ranked, clause, ways):
            work.missing[M_PLACES] = 1
            return False
        needed = units_for(tree, ways)
        if not has_room(tree, needed):
            work.missing[M_UNITS] = needed
            return False
        put_in_leaves(tree, ranked, clause, ways)
        tree.state[HELD] += 1
        due = mark_inner(tree, ranked, clause, ways, np.int64(1), limits)
        due = mark_leaves(tree, ways, due)
        work.state[DUE], work.state[NEXT] = due, clause + 1


@kernel
def take_from_leaves(tree: Tree, clause: Number, ways: Ways) -> None:
    """Take a clause out of its leaves; the last entry takes its place."""
    arena = tree.arena
    for i in range(ways.count[LEAVES]):
        slot = ways.leaf[i, SLOT]
        base = UNIT * np.int64(arena[slot])
        room, size = np.int64(arena[base + ROOM]), np.int64(arena[base + SIZE]) - 1
        at = np.int64(0)
        while arena[entry_place(base, room, at) + CLAUSE] != clause:
            at += 1
        arena[base + LEAF_HEADER + at] = arena[base + LEAF_HEADER + size]
        here, there = entry_place(base, room, at), entry_place(base, room, size)
        for i in range(WIDTH):
            arena[here + i] = arena[there + i]
        arena[base + SIZE] = size
        tree.state[ENTRIES] -= 1
        if size == 0:
            arena[slot] = 0
            tree.state[DEAD] += leaf_units(room)


@kernel
def remove_clauses(
    tree: Tree,
    ranked: Ranked,
    gone: NDArray[np.int64],
    work: Work,
    ways: Ways,
    limits: Limits,
    partition: tuple[Hits, Draft],
) -> Number:
    """Take clauses out, from the next one on; return whether it came to the end.

    If not, something is missing, or the tree is worn out.
    """
    while True:
        if not renew_nodes(tree, ranked, work, ways, partition[0], partition[1]):
            return False
        number = work.state[NEXT]
        if worn_out(tree):
            return False
        if number == len(gone):
            return True
        if number + 1 < len(gone):
            prefetch(ranked.start, gone[number + 1])
            prefetch(ranked.box, gone[number + 1])
        if not find_ways(tree, ranked, gone[number], ways):
            work.missing[M_PLACES] = 1
            return False
        take_from_leaves(tree, gone[number], ways)
        tree.state[HELD] -= 1
        due = mark_inner(tree, ranked, gone[number], ways, np.int64(-1), limits)
        work.state[DUE], work.state[NEXT] = due, number + 1


@kernel
def move_nodes(tree: Tree, arena: NDArray[np.int32], stack: NDArray[np.int64]) -> None:
    """Copy all nodes, each before those below it, into another arena with room for them.

    ``stack`` int64[many, 9] gets places in the new arena where names of the old one stand.
    """
    old, end, top = tree.arena, np.int64(1), np.int64(1)
    arena[ROOT] = old[ROOT]
    stack[0, 0] = ROOT
    while top > 0:
        top -= 1
        slot = stack[top, 0]
        base = UNIT * np.int64(arena[slot])
        if base == 0:
            continue
        length = node_units(old, base)
        here = UNIT * end
        for i in range(UNIT * length):
            arena[here + i] = old[base + i]
        arena[slot] = end
        end += length
        if arena[here] == LEAF:
            continue
        names = here + np.int64(arena[here + CHILD])
        for child in range(np.int64(arena[here + PARTS]), -1, -1):
            stack[top, 0] = names + child
            top += np.int64(arena[names + child] != 0)
    tree.state[TOP], tree.state[DEAD] = end, 0
