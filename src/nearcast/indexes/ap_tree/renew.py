"""Which nodes of an adaptive partition tree are due to be made anew, and how.

Wang et al., VLDB Journal 2015, section 3.3.5. A leaf that has become too large is parted, an inner
node that has too few clauses becomes a leaf, and an inner node whose children have shares of its
clauses that differ too much from those when it was built is built anew, with all below it. All
three are made anew of their clauses (`nearcast.indexes.ap_tree.grow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.grow import (
    BEGIN,
    BOX,
    DUE,
    END,
    M_CLAUSES,
    M_PLACES,
    SLOT,
    STEP_WIDTH,
    STEPS,
    Work,
    grow_nodes,
)
from nearcast.indexes.ap_tree.tree import (
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
    HELD,
    KEYWORDS,
    LEAF,
    LEAF_SIZE,
    PARTS,
    ROOM,
    ROOT,
    RULE,
    SIZE,
    TOP,
    UNIT,
    WORN,
    Ranked,
    Tree,
    node_units,
    side_place,
    tail_place,
)
from nearcast.indexes.ap_tree.ways import AGAIN, COVERED, FROM, LEAVES, PASSED, Ways, widen_cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import Draft, Hits

LOOK = 8
"""An inner node is looked at when one in so many of its clauses came or left since the last time:
before that, chance alone would let small nodes seem changed."""


class Limits(NamedTuple):
    """When a node is built anew: its divergence, and its share of all clauses."""

    divergence: Number
    share: Number


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
    for i in range(ways.number[PASSED]):
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
    for i in range(ways.number[LEAVES]):
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
                place = side_place(base, room, i)
                here = first_west or arena[place] >= west
                if here and (first_south or arena[place + room] >= south):
                    if count < len(clause):
                        clause[count] = arena[tail_place(base, room, i) + CLAUSE]
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
