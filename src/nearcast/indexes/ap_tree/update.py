"""Insert and delete clauses in place, and rebuild the nodes that no longer fit.

Wang et al., VLDB Journal 2015, section 3.3.5. A clause that comes or leaves goes down to its leaves
by its ranks and its box. Then nodes that are *stale* are rebuilt from their clauses
(`nearcast.indexes.ap_tree.build`). These are leaves that are too large, inner nodes with too few
clauses, and inner nodes whose clauses are distributed over the children in another way than when
the node was built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.ap_tree.build import (
    NEXT_CHANGE,
    SHORT_CLAUSES,
    SHORT_PATHS,
    SHORT_UNITS,
    STALE_NODES,
    TASK_BEGIN,
    TASK_END,
    TASK_LEVEL,
    TASK_LINK,
    TASK_OFFSET,
    TASK_REGION,
    TASK_WIDTH,
    TASKS,
    BuildScratch,
    build_nodes,
    set_child_task,
)
from nearcast.indexes.ap_tree.layout import (
    BOUNDS,
    BUILT_COUNT,
    CAPACITY,
    CHANGES,
    CHILDREN,
    CLAUSE,
    COUNT,
    FANOUT,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_REGION,
    LEAF_SIZE,
    MAX_LEVEL,
    OFFSET,
    PARTS,
    ROOT,
    ROOT_STALE,
    SIZE,
    SPLIT_ABOVE,
    TOTAL_CLAUSES,
    TOTAL_ENTRIES,
    UNIT,
    UNITS_FREED,
    UNITS_USED,
    RankedClauses,
    Tree,
    append_entry,
    child_region,
    copy_entry,
    find_children,
    has_units,
    leaf_units,
    max_pending,
    new_leaf,
    node_units,
    rank_at,
    rank_count,
    tail_position,
    west_position,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import HitModel, SplitScratch

CHECK_SHARE = 8
"""The divergence of a node is computed when one in this many of its clauses has changed. Earlier,
chance alone would make small nodes look different at the paper's threshold of 0.001."""

PARENT_ROW, SAME_NODE, COVERED, PATH_WIDTH = range(TASK_WIDTH, TASK_WIDTH + 4)
"""Columns of a path row after those of a task: the row it was reached from (-1 for the root); 1 if
the row before is of the same node; 1 if the node or one above it is stale."""

LEAF_ROWS, INNER_ROWS = 0, 1
"""Fields of `Paths.rows`."""


class RebuildLimits(NamedTuple):
    """A node is rebuilt above this divergence, if it has at least this share of all clauses."""

    divergence: Number
    share: Number


class Paths(NamedTuple):
    """Where a clause goes: rows int64[m, 12] of a task's columns and those above.

    - ``leaf``: its leaves, present or still to be made. ``inner``: one row for each child of an
      inner node that it goes to, with the base of the node in ``TASK_BEGIN`` and the link of the
      child in ``TASK_END``. ``stack``: nodes to visit.
    - ``stale``: nodes to rebuild. ``rows`` int64[2]: how many ``leaf`` and ``inner`` have.
    """

    leaf: NDArray[np.int64]
    stack: NDArray[np.int64]
    inner: NDArray[np.int64]
    stale: NDArray[np.int64]
    rows: NDArray[np.int64]


def empty_paths(tree: Tree, rows: int) -> Paths:
    """Return paths of at least this many rows."""
    rows = max(rows, max_pending(tree))
    leaf, stack, inner = np.empty((3, rows, PATH_WIDTH), np.int64)
    stale = np.empty((2 * rows, PATH_WIDTH), np.int64)
    return Paths(leaf, stack, inner, stale, np.zeros(2, np.int64))


@kernel
def find_paths(tree: Tree, ranked: RankedClauses, clause: Number, paths: Paths) -> Number:
    """Write where a clause goes; return False if there is no space for that."""
    arena, stack, top = tree.arena, paths.stack, np.int64(1)
    paths.rows[:] = 0
    stack[0, :] = 0
    stack[0, PARENT_ROW] = -1
    for side in range(4):
        stack[0, TASK_REGION + side] = tree.state[BOUNDS + side]
    while top > 0:
        top -= 1
        node = stack[top]
        base = UNIT * np.int64(arena[node[TASK_LINK]])
        if base == 0 or arena[base] == LEAF:
            if paths.rows[LEAF_ROWS] == len(paths.leaf):
                return False
            paths.leaf[paths.rows[LEAF_ROWS]] = node
            paths.rows[LEAF_ROWS] += 1
            continue
        link, level, offset = node[TASK_LINK], node[TASK_LEVEL], node[TASK_OFFSET]
        parent_row, parts = node[PARENT_ROW], np.int64(arena[base + PARTS])
        links = base + np.int64(arena[base + CHILDREN])
        first, across, rows, apart = find_children(arena, base, ranked, clause)
        children = across * rows
        if paths.rows[INNER_ROWS] + children > len(paths.inner) or top + children > len(stack):
            return False
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                inner = paths.inner[paths.rows[INNER_ROWS]]
                inner[TASK_LINK], inner[TASK_BEGIN], inner[TASK_END] = link, base, links + child
                inner[TASK_LEVEL], inner[TASK_OFFSET] = level, offset
                child_region(arena, base, parts, inner[TASK_REGION : TASK_REGION + 4])
                inner[PARENT_ROW] = parent_row
                inner[SAME_NODE] = np.int64(row > 0 or child > first)
                below = stack[top]
                set_child_task(arena, base, child, level, below)
                below[PARENT_ROW] = paths.rows[INNER_ROWS]
                paths.rows[INNER_ROWS] += 1
                top += 1
    return True


@kernel
def grown_capacity(size: Number) -> Number:
    """Return the capacity that a leaf gets when its ``size`` entries fill it."""
    return size + (size >> 1) + 2


@kernel
def units_needed(tree: Tree, paths: Paths) -> Number:
    """Return the units that new leaves, and leaves that are full, need for one more entry."""
    needed = np.int64(0)
    for i in range(paths.rows[LEAF_ROWS]):
        base = UNIT * np.int64(tree.arena[paths.leaf[i, TASK_LINK]])
        if base == 0:
            needed += leaf_units(grown_capacity(np.int64(0)))
        elif tree.arena[base + SIZE] == tree.arena[base + CAPACITY]:
            needed += leaf_units(grown_capacity(np.int64(tree.arena[base + SIZE])))
    return needed


@kernel
def move_leaf(tree: Tree, link: Number, capacity: Number) -> None:
    """Move a leaf to a place with more capacity, for which the arena has space."""
    arena = tree.arena
    old = UNIT * np.int64(arena[link])
    size, old_capacity = np.int64(arena[old + SIZE]), np.int64(arena[old + CAPACITY])
    region = np.empty(4, np.int64)
    for side in range(4):
        region[side] = arena[old + LEAF_REGION + side]
    node = new_leaf(tree, capacity, region)
    base = UNIT * node
    arena[base + SIZE], arena[base + SPLIT_ABOVE] = size, arena[old + SPLIT_ABOVE]
    for i in range(size):
        copy_entry(arena, (old, old_capacity), i, (base, capacity), i)
    arena[link] = node
    tree.state[UNITS_FREED] += leaf_units(old_capacity)


@kernel
def insert_into_leaf(
    tree: Tree,
    ranked: RankedClauses,
    clause: Number,
    link: Number,
    offset: Number,
    region: NDArray[np.int64],
) -> None:
    """Append a clause to the leaf at a link, which is made if there is none.

    The arena has space for that; ``offset`` and ``region`` are those of the leaf.
    """
    arena = tree.arena
    if arena[link] == 0:
        arena[link] = new_leaf(tree, grown_capacity(np.int64(0)), region)
    base = UNIT * np.int64(arena[link])
    if arena[base + SIZE] == arena[base + CAPACITY]:
        move_leaf(tree, link, grown_capacity(np.int64(arena[base + SIZE])))
        base = UNIT * np.int64(arena[link])
    append_entry(tree, base, ranked, clause, offset)


@kernel
def find_entry(arena: NDArray[np.int32], base: Number, clause: Number) -> Number:
    """Return which entry of a leaf is that of a clause; its size if none is."""
    size = np.int64(arena[base + SIZE])
    tail = tail_position(base, np.int64(arena[base + CAPACITY]), np.int64(0)) + CLAUSE
    at = np.int64(0)
    while at < size and arena[tail + 2 * at] != clause:
        at += 1
    return at


@kernel
def delete_from_leaf(tree: Tree, clause: Number, link: Number) -> None:
    """Delete a clause from the leaf at a link; the last entry takes its place.

    A leaf without entries goes. Arrays from a crafted folder may lack the leaf or the clause.
    """
    arena = tree.arena
    base = UNIT * np.int64(arena[link])
    if base == 0:
        return
    capacity, last = np.int64(arena[base + CAPACITY]), np.int64(arena[base + SIZE]) - 1
    at = find_entry(arena, base, clause)
    if at > last:
        return
    copy_entry(arena, (base, capacity), last, (base, capacity), at)
    arena[base + SIZE] = last
    tree.state[TOTAL_ENTRIES] -= 1
    if last == 0:
        arena[link] = 0
        tree.state[UNITS_FREED] += leaf_units(capacity)


@kernel
def widen_cut(
    tree: Tree, ranked: RankedClauses, clause: Number, base: Number, link: Number
) -> None:
    """Extend the cut of a keyword node to the rank of a clause that goes to it."""
    arena, parts = tree.arena, np.int64(tree.arena[base + PARTS])
    child = link - base - np.int64(arena[base + CHILDREN])
    offset = np.int64(arena[base + OFFSET])
    if child == parts or rank_count(ranked, clause) <= offset:
        return
    rank, highest = rank_at(ranked, clause, offset), base + HEADER + child
    arena[highest] = max(np.int64(arena[highest]), rank)
    arena[highest + parts] = min(np.int64(arena[highest + parts]), rank)


@kernel
def divergence(arena: NDArray[np.int32], base: Number) -> Number:
    """Return the Kullback-Leibler divergence of the children's shares from those when built.

    One is added to the clauses of every child, so that no share is 0.
    """
    children = np.int64(arena[base + PARTS]) + 1
    now = base + np.int64(arena[base + CHILDREN]) + children
    built = now + children
    all_now, all_built = np.float64(children), np.float64(children)
    for i in range(children):
        all_now += arena[now + i]
        all_built += arena[built + i]
    total = 0.0
    for i in range(children):
        share = (arena[built + i] + 1.0) / all_built
        total += share * np.log(share / ((arena[now + i] + 1.0) / all_now))
    return total


@kernel
def has_diverged(tree: Tree, base: Number, limits: RebuildLimits) -> Number:
    """Tell whether the clauses of an inner node have become so different that it is stale."""
    arena = tree.arena
    if CHECK_SHARE * np.int64(arena[base + CHANGES]) <= arena[base + BUILT_COUNT]:
        return False
    if arena[base + COUNT] < limits.share * tree.state[TOTAL_CLAUSES]:
        return False
    arena[base + CHANGES] = 0
    return divergence(arena, base) > limits.divergence


@kernel
def update_inner(
    tree: Tree,
    ranked: RankedClauses,
    clause: Number,
    paths: Paths,
    sign: Number,
    limits: RebuildLimits,
) -> Number:
    """Count a clause that came (1) or left (-1) in its inner nodes; return how many are stale.

    Nodes below a stale one are not stale themselves. If the root has diverged, the whole tree is to
    be rebuilt: the order of tokens may have changed too.
    """
    arena, state, stale = tree.arena, tree.state, np.int64(0)
    for i in range(paths.rows[INNER_ROWS]):
        row = paths.inner[i]
        base, link = row[TASK_BEGIN], row[TASK_END]
        if sign > 0 and arena[base] == KEYWORDS:
            widen_cut(tree, ranked, clause, base, link)
        arena[link + arena[base + PARTS] + 1] += sign
        if row[SAME_NODE] == 1:
            row[COVERED] = paths.inner[i - 1, COVERED]
            continue
        arena[base + COUNT] += sign
        arena[base + CHANGES] += 1
        row[COVERED] = paths.inner[row[PARENT_ROW], COVERED] if row[PARENT_ROW] >= 0 else 0
        if row[COVERED] == 1:
            continue
        too_few = sign < 0 and arena[base + COUNT] < state[LEAF_SIZE]
        if too_few or has_diverged(tree, base, limits):
            row[COVERED] = 1
            if row[TASK_LINK] == ROOT and not too_few:
                state[ROOT_STALE] = 1
            else:
                paths.stale[stale] = row
                stale += 1
    return stale


@kernel
def add_large_leaves(tree: Tree, paths: Paths, stale: Number) -> Number:
    """Add the leaves that are too large to the stale nodes; return how many these are then."""
    for i in range(paths.rows[LEAF_ROWS]):
        row = paths.leaf[i]
        base = UNIT * np.int64(tree.arena[row[TASK_LINK]])
        if tree.arena[base + SIZE] <= tree.arena[base + SPLIT_ABOVE]:
            continue
        if row[PARENT_ROW] < 0 or paths.inner[row[PARENT_ROW], COVERED] == 0:
            paths.stale[stale] = row
            stale += 1
    return stale


@kernel
def push_children(
    arena: NDArray[np.int32], base: Number, stack: NDArray[np.int64], top: Number
) -> Number:
    """Push the bases of the children of an inner node; return the top of the stack."""
    links = base + np.int64(arena[base + CHILDREN])
    for child in range(np.int64(arena[base + PARTS]) + 1):
        stack[top, 0] = UNIT * np.int64(arena[links + child])
        top += np.int64(arena[links + child] != 0)
    return top


@kernel
def collect_clauses(
    tree: Tree, task: NDArray[np.int64], stack: NDArray[np.int64], clause: NDArray[np.int32]
) -> Number:
    """Write the clauses at and below a node, each once, while they fit; return how many there are.

    A clause counts in the leaf that holds the south-west corner of the intersection of its box and
    the node's region.
    """
    arena, count, top = tree.arena, np.int64(0), np.int64(1)
    stack[0, 0] = UNIT * np.int64(arena[task[TASK_LINK]])
    while top > 0:
        top -= 1
        base = stack[top, 0]
        if base == 0:
            continue
        if arena[base] != LEAF:
            top = push_children(arena, base, stack, top)
            continue
        capacity = np.int64(arena[base + CAPACITY])
        west, south = np.int64(arena[base + LEAF_REGION]), np.int64(arena[base + LEAF_REGION + 1])
        first_west, first_south = task[TASK_REGION] >= west, task[TASK_REGION + 1] >= south
        for i in range(arena[base + SIZE]):
            side = west_position(base, capacity, i)
            here = first_west or arena[side] >= west
            if here and (first_south or arena[side + capacity] >= south):
                if count < len(clause):
                    clause[count] = arena[tail_position(base, capacity, i) + CLAUSE]
                count += 1
    return count


@kernel
def free_nodes(tree: Tree, link: Number, stack: NDArray[np.int64]) -> None:
    """Free a node and all below it."""
    arena, top = tree.arena, np.int64(1)
    stack[0, 0] = UNIT * np.int64(arena[link])
    arena[link] = 0
    while top > 0:
        top -= 1
        base = stack[top, 0]
        if base == 0:
            continue
        tree.state[UNITS_FREED] += node_units(arena, base)
        if arena[base] == LEAF:
            tree.state[TOTAL_ENTRIES] -= np.int64(arena[base + SIZE])
        else:
            top = push_children(arena, base, stack, top)


@kernel
def rebuild_nodes(
    tree: Tree,
    ranked: RankedClauses,
    scratch: BuildScratch,
    paths: Paths,
    model: HitModel,
    split: SplitScratch,
) -> Number:
    """Rebuild all stale nodes; return False on a shortage."""
    while True:
        if not build_nodes(tree, ranked, scratch, model, split):
            return False
        if scratch.progress[STALE_NODES] == 0:
            return True
        if (tree.state[MAX_LEVEL] + 3) * (tree.state[FANOUT] + 2) > len(paths.stack):
            scratch.shortage[SHORT_PATHS] = 1
            return False
        stale = paths.stale[scratch.progress[STALE_NODES] - 1]
        count = collect_clauses(tree, stale, paths.stack, scratch.clause)
        if count > len(scratch.clause):
            scratch.shortage[SHORT_CLAUSES] = count
            return False
        free_nodes(tree, stale[TASK_LINK], paths.stack)
        scratch.progress[STALE_NODES] -= 1
        if count > 0:
            scratch.task[0] = stale[:TASK_WIDTH]
            scratch.task[0, TASK_BEGIN], scratch.task[0, TASK_END] = 0, count
            scratch.progress[TASKS] = 1


@kernel
def change_clauses(
    tree: Tree,
    ranked: RankedClauses,
    changed: tuple[NDArray[np.int64], Number],
    scratch: BuildScratch,
    paths: Paths,
    limits: RebuildLimits,
    partition: tuple[HitModel, SplitScratch],
) -> Number:
    """Insert (sign 1) or delete (-1) the clauses of ``changed``, from ``NEXT_CHANGE`` on.

    Return False on a shortage, if the whole tree is to be rebuilt, or (neither of these) if half of
    the arena is free.
    """
    clauses, sign = changed
    state, progress = tree.state, scratch.progress
    while True:
        if not rebuild_nodes(tree, ranked, scratch, paths, partition[0], partition[1]):
            return False
        if state[ROOT_STALE] != 0 or 2 * state[UNITS_FREED] > state[UNITS_USED] + (1 << 16):
            return False
        number = progress[NEXT_CHANGE]
        if number == len(clauses):
            return True
        clause = clauses[number]
        if number + 1 < len(clauses):
            prefetch(ranked.start, clauses[number + 1])
            prefetch(ranked.box, clauses[number + 1])
        if not find_paths(tree, ranked, clause, paths):
            scratch.shortage[SHORT_PATHS] = 1
            return False
        if sign > 0:
            needed = units_needed(tree, paths)
            if not has_units(tree, needed):
                scratch.shortage[SHORT_UNITS] = needed
                return False
            for i in range(paths.rows[LEAF_ROWS]):
                row = paths.leaf[i]
                region = row[TASK_REGION : TASK_REGION + 4]
                insert_into_leaf(tree, ranked, clause, row[TASK_LINK], row[TASK_OFFSET], region)
        else:
            for i in range(paths.rows[LEAF_ROWS]):
                delete_from_leaf(tree, clause, paths.leaf[i, TASK_LINK])
        state[TOTAL_CLAUSES] += sign
        stale = update_inner(tree, ranked, clause, paths, sign, limits)
        if sign > 0:
            stale = add_large_leaves(tree, paths, stale)
        progress[STALE_NODES], progress[NEXT_CHANGE] = stale, number + 1
