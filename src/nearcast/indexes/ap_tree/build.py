"""Build nodes from clauses, from the top down.

Wang et al., VLDB Journal 2015, algorithm 4. A stack of tasks says which nodes are to be built; a
whole tree is one task with all clauses, and a change that rebuilds a node uses the same stack. The
clauses of all tasks lie end to end, those of the task on top of the stack last.

A kernel changes nothing before it has the space it needs. If it has not, it notes the shortage and
returns; the caller enlarges what was too small and calls again, and the kernel continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.indexes.ap_tree.cost import choose_partition
from nearcast.indexes.ap_tree.layout import (
    BOUNDS,
    BUILT_COUNT,
    CHANGES,
    CHILDREN,
    COLUMNS,
    COUNT,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_SIZE,
    LENGTH,
    MAX_LEVEL,
    OFFSET,
    PARTS,
    REGION,
    ROOT,
    SPLIT_ABOVE,
    UNIT,
    UNITS_USED,
    RankedClauses,
    Tree,
    append_entry,
    child_columns,
    child_region,
    find_children,
    has_units,
    leaf_units,
    new_leaf,
    take_units,
    units_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import HitModel, SplitScratch

TASK_LINK, TASK_BEGIN, TASK_END, TASK_LEVEL, TASK_OFFSET, TASK_REGION = range(6)
TASK_WIDTH = TASK_REGION + 4
"""Columns of a task: the link that gets the node's number; its clauses; its level; how many ranks
of a clause the keyword nodes above it use; its region (four sides)."""

SHORT_UNITS, SHORT_TASKS, SHORT_CLAUSES, SHORT_SPLIT, SHORT_PATHS = range(5)
"""Fields of ``shortage``: units of the arena, tasks, clauses of tasks, clauses of the scratch that
splits nodes, rows of the paths of a clause."""

TASKS, NEXT_CHANGE, STALE_NODES = range(3)
"""Fields of ``progress``: tasks on the stack, the next clause to insert or delete, and nodes that
are still to be rebuilt."""

MAX_DEPTH = 100
"""A node at this level is a leaf."""


class BuildScratch(NamedTuple):
    """What is left to do.

    - ``task`` int64[m, 9] and ``clause`` int32[m]: the stack.
    - ``child_start`` int64[fanout + 3]: where the clauses of each child begin.
    - ``progress`` int64[3], ``shortage`` int64[5]: see above.
    """

    task: NDArray[np.int64]
    clause: NDArray[np.int32]
    child_start: NDArray[np.int64]
    progress: NDArray[np.int64]
    shortage: NDArray[np.int64]


def build_scratch(clauses: int, fanout: int) -> BuildScratch:
    """Return scratch without tasks, for this many clauses."""
    return BuildScratch(
        task=np.empty((2 * fanout + 64, TASK_WIDTH), np.int64),
        clause=np.empty(clauses, np.int32),
        child_start=np.empty(fanout + 3, np.int64),
        progress=np.zeros(3, np.int64),
        shortage=np.zeros(5, np.int64),
    )


@inlined_kernel
def set_child_task(
    arena: NDArray[np.int32], base: Number, child: Number, level: Number, task: NDArray[np.int64]
) -> None:
    """Write the link, level, offset and region of a child of a node at ``level`` into a task."""
    uses_rank = arena[base] == KEYWORDS and child < arena[base + PARTS]
    task[TASK_LINK] = base + np.int64(arena[base + CHILDREN]) + child
    task[TASK_LEVEL] = level + 1
    task[TASK_OFFSET] = np.int64(arena[base + OFFSET]) + np.int64(uses_rank)
    child_region(arena, base, child, task[TASK_REGION : TASK_REGION + 4])


@kernel
def build_leaf(
    tree: Tree, ranked: RankedClauses, task: NDArray[np.int64], clauses: NDArray[np.int32]
) -> None:
    """Build a leaf; the arena has space for it."""
    node = new_leaf(tree, np.int64(len(clauses)), task[TASK_REGION : TASK_REGION + 4])
    base = UNIT * node
    for i in range(len(clauses)):
        append_entry(tree, base, ranked, clauses[i], task[TASK_OFFSET])
    if len(clauses) > tree.state[LEAF_SIZE]:
        # Splitting does not pay now. It may when the leaf has twice the clauses.
        tree.arena[base + SPLIT_ABOVE] = 2 * len(clauses)
    tree.arena[task[TASK_LINK]] = node


@kernel
def build_inner(
    tree: Tree,
    task: NDArray[np.int64],
    partition: tuple[Number, Number, Number],
    split: SplitScratch,
) -> Number:
    """Build an inner node without children and return its base; the arena has space for it."""
    kind, columns, rows = partition
    parts = columns * rows
    splits = 2 * parts if kind == KEYWORDS else columns + rows - 2
    length = HEADER + splits + child_columns(tree.state) * (parts + 1)
    count = task[TASK_END] - task[TASK_BEGIN]
    node = take_units(tree, units_of(length))
    arena, base = tree.arena, UNIT * node
    arena[task[TASK_LINK]] = node
    arena[base], arena[base + PARTS], arena[base + OFFSET] = kind, parts, task[TASK_OFFSET]
    arena[base + COLUMNS] = 0 if kind == KEYWORDS else columns
    arena[base + COUNT], arena[base + BUILT_COUNT] = count, count
    arena[base + CHANGES], arena[base + CHILDREN] = 0, HEADER + splits
    arena[base + LENGTH] = length
    for side in range(4):
        arena[base + REGION + side] = task[TASK_REGION + side]
    for i in range(HEADER + splits, length):
        arena[base + i] = 0
    first = base + HEADER
    if kind == KEYWORDS:
        for i in range(parts):
            arena[first + i] = split.distinct[split.cut[i + 1] - 1]
            arena[first + parts + i] = split.distinct[split.cut[i]]
        return base
    for i in range(columns - 1):
        arena[first + i] = split.best[0, i]
    for i in range(rows - 1):
        arena[first + columns - 1 + i] = split.best[1, i]
    return base


@kernel
def count_children(
    tree: Tree, base: Number, ranked: RankedClauses, task: NDArray[np.int64], scratch: BuildScratch
) -> Number:
    """Write where the clauses of each child would begin; return how many there are in total."""
    parts = np.int64(tree.arena[base + PARTS])
    start = scratch.child_start[: parts + 2]
    start[:] = 0
    for i in range(task[TASK_BEGIN], task[TASK_END]):
        first, across, rows, apart = find_children(tree.arena, base, ranked, scratch.clause[i])
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                start[child + 1] += 1
    for child in range(parts + 1):
        start[child + 1] += start[child]
    return start[parts + 1]


@kernel
def distribute_clauses(
    tree: Tree, base: Number, ranked: RankedClauses, task: NDArray[np.int64], scratch: BuildScratch
) -> None:
    """Replace the task of a node that was built by the tasks of its children.

    The clauses of the children are written after those of the node and then moved over them. There
    is space for them and for the tasks.
    """
    arena, clause, start = tree.arena, scratch.clause, scratch.child_start
    parts = np.int64(arena[base + PARTS])
    begin, end, level = task[TASK_BEGIN], task[TASK_END], task[TASK_LEVEL]
    total = start[parts + 1]
    for i in range(begin, end):
        first, across, rows, apart = find_children(arena, base, ranked, clause[i])
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                clause[end + start[child]] = clause[i]
                start[child] += 1
    for i in range(total):
        clause[begin + i] = clause[end + i]
    counts = base + np.int64(arena[base + CHILDREN]) + parts + 1
    tasks, first_clause = scratch.progress[TASKS] - 1, np.int64(0)
    for child in range(parts + 1):
        count = start[child] - first_clause
        arena[counts + child] = count
        arena[counts + parts + 1 + child] = count
        if count > 0:
            below = scratch.task[tasks]
            set_child_task(arena, base, child, level, below)
            below[TASK_BEGIN], below[TASK_END] = begin + first_clause, begin + start[child]
            tasks += 1
        first_clause = start[child]
    scratch.progress[TASKS] = tasks


@kernel
def set_bounds(tree: Tree, ranked: RankedClauses, clauses: NDArray[np.int32]) -> None:
    """Set the region of the root to the smallest one around all clauses."""
    for side in range(4):
        tree.state[BOUNDS + side] = ranked.box[clauses[0], side]
    for i in range(len(clauses)):
        for side in range(2):
            low, high = ranked.box[clauses[i], side], ranked.box[clauses[i], side + 2]
            tree.state[BOUNDS + side] = min(tree.state[BOUNDS + side], np.int64(low))
            tree.state[BOUNDS + 2 + side] = max(tree.state[BOUNDS + 2 + side], np.int64(high))


@kernel
def build_node(
    tree: Tree, ranked: RankedClauses, scratch: BuildScratch, model: HitModel, split: SplitScratch
) -> Number:
    """Do the task on top of the stack; return False on a shortage."""
    task, shortage = scratch.task[scratch.progress[TASKS] - 1], scratch.shortage
    clauses = scratch.clause[task[TASK_BEGIN] : task[TASK_END]]
    count = np.int64(len(clauses))
    if count > len(split.rank):
        shortage[SHORT_SPLIT] = count
        return False
    if task[TASK_LINK] == ROOT and count > 0:
        set_bounds(tree, ranked, clauses)
        for side in range(4):
            task[TASK_REGION + side] = tree.state[BOUNDS + side]
    partition = np.int64(LEAF), np.int64(0), np.int64(0)
    if count > tree.state[LEAF_SIZE] and task[TASK_LEVEL] < MAX_DEPTH:
        node = task[TASK_OFFSET], task[TASK_REGION : TASK_REGION + 4], task[TASK_LEVEL]
        partition = choose_partition(tree.state, ranked, clauses, node, model, split)
    if partition[0] == LEAF:
        if not has_units(tree, leaf_units(count)):
            shortage[SHORT_UNITS] = leaf_units(count)
            return False
        if count > 0:
            build_leaf(tree, ranked, task, clauses)
        scratch.progress[TASKS] -= 1
        tree.state[MAX_LEVEL] = max(tree.state[MAX_LEVEL], task[TASK_LEVEL])
        return True
    parts = partition[1] * partition[2]
    max_units = units_of(HEADER + (2 + child_columns(tree.state)) * (parts + 1))
    if not has_units(tree, max_units):
        shortage[SHORT_UNITS] = max_units
        return False
    if scratch.progress[TASKS] + parts + 1 > len(scratch.task):
        shortage[SHORT_TASKS] = parts + 1
        return False
    used = tree.state[UNITS_USED]
    base = build_inner(tree, task, partition, split)
    total = count_children(tree, base, ranked, task, scratch)
    if task[TASK_END] + total > len(scratch.clause):
        tree.state[UNITS_USED], tree.arena[task[TASK_LINK]] = used, 0
        shortage[SHORT_CLAUSES] = task[TASK_END] + total
        return False
    distribute_clauses(tree, base, ranked, task, scratch)
    return True


@kernel
def build_nodes(
    tree: Tree, ranked: RankedClauses, scratch: BuildScratch, model: HitModel, split: SplitScratch
) -> Number:
    """Do all tasks; return False on a shortage."""
    while scratch.progress[TASKS] > 0:
        if not build_node(tree, ranked, scratch, model, split):
            return False
    return True
