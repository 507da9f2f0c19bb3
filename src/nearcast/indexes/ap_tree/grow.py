"""How an adaptive partition tree grows: nodes are made of clauses, top-down.

Wang et al., VLDB Journal 2015, algorithm 4. What is to be done stands on a stack of steps, each
with the clauses of a node that is to be made; a tree is built by putting its root there with all
clauses. The clauses of all steps lie end to end, those of the topmost step last. Nothing is
changed before there is room for it: where there is none, a kernel says what is missing, and goes
on when it is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.cuts import choose_partition
from nearcast.indexes.ap_tree.tree import (
    BOUNDS,
    BUILT,
    CHANGED,
    CHILD,
    COLUMNS,
    COUNT,
    DEPTH,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_SIZE,
    LENGTH,
    OFFSET,
    PARTS,
    REGION,
    ROOT,
    RULE,
    TOP,
    UNIT,
    Ranked,
    Tree,
    cell_region,
    contains_region,
    cut_of,
    has_room,
    leaf_units,
    length_of,
    new_leaf,
    put_entry,
    rank_at,
    take_units,
    touched_cells,
    units,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import Draft, Hits

SLOT, BEGIN, END, LEVEL, SKIP, BOX, STEP_WIDTH = 0, 1, 2, 3, 4, 5, 9
"""A step: where in the arena the node's name is to stand, its clauses, its depth, the offset of
the ranks that come next, and its region."""

M_UNITS, M_STEPS, M_CLAUSES, M_DRAFT, M_PLACES = range(5)
"""In ``missing``: units of the arena, steps, clauses of the work and of the draft, places."""

STEPS, NEXT, DUE = range(3)
"""In the state of the work: steps on the stack, the clause that is to be changed next, and nodes
that are due to be made anew."""

MAX_DEPTH = 100
"""Nodes so deep are leaves."""


class Work(NamedTuple):
    """What is still to be done.

    - ``step`` int64[many, 9], ``clause`` int32[m]: see above.
    - ``start`` int64[fanout + 3]: room to part clauses.
    - ``state`` int64[3], ``missing`` int64[5].
    """

    step: NDArray[np.int64]
    clause: NDArray[np.int32]
    start: NDArray[np.int64]
    state: NDArray[np.int64]
    missing: NDArray[np.int64]


@kernel
def make_leaf(
    tree: Tree, ranked: Ranked, step: NDArray[np.int64], clauses: NDArray[np.int32]
) -> None:
    """Make a leaf of clauses, for which there is room."""
    node = new_leaf(tree, np.int64(len(clauses)), step[BOX : BOX + 4])
    base = UNIT * node
    for i in range(len(clauses)):
        put_entry(tree, base, ranked, clauses[i], step[SKIP])
    if len(clauses) > tree.state[LEAF_SIZE]:
        # Parting it is not worth while; when it has twice the clauses, it may be.
        tree.arena[base + RULE] = 2 * len(clauses)
    tree.arena[step[SLOT]] = node


@kernel
def make_inner(
    tree: Tree, step: NDArray[np.int64], chosen: tuple[Number, Number, Number], draft: Draft
) -> Number:
    """Make an inner node without children, for which there is room; return where it begins."""
    kind, columns, rows = chosen
    parts = columns * rows
    splits = 2 * parts if kind == KEYWORDS else columns + rows - 2
    length = HEADER + splits + 3 * (parts + 1)
    node = take_units(tree, units(length))
    arena, base = tree.arena, UNIT * node
    arena[step[SLOT]] = node
    arena[base], arena[base + PARTS], arena[base + OFFSET] = kind, parts, step[SKIP]
    arena[base + COLUMNS] = 0 if kind == KEYWORDS else columns
    arena[base + COUNT], arena[base + BUILT] = step[END] - step[BEGIN], step[END] - step[BEGIN]
    arena[base + CHANGED], arena[base + CHILD] = 0, HEADER + splits
    arena[base + LENGTH] = length
    for side in range(4):
        arena[base + REGION + side] = step[BOX + side]
    for i in range(length - HEADER - splits):
        arena[base + HEADER + splits + i] = 0
    place = base + HEADER
    if kind == KEYWORDS:
        for i in range(parts):
            arena[place + i] = draft.value[draft.cut[i + 1] - 1]
            arena[place + parts + i] = draft.value[draft.cut[i]]
        return base
    for i in range(columns - 1):
        arena[place + i] = draft.best[0, i]
    for i in range(rows - 1):
        arena[place + columns - 1 + i] = draft.best[1, i]
    return base


@kernel
def first_child(
    tree: Tree, base: Number, ranked: Ranked, clause: Number, region: NDArray[np.int64]
) -> tuple[Number, Number, Number, Number]:
    """Return the first child that a clause goes to, how many in a row, and in how many rows.

    The last is how far apart rows are. A rank between two cuts belongs to the next one, if there
    is one.
    """
    arena = tree.arena
    parts = np.int64(arena[base + PARTS])
    one = np.int64(1)
    if arena[base] == KEYWORDS:
        offset = np.int64(arena[base + OFFSET])
        if length_of(ranked, clause) <= offset:
            return parts, one, one, one
        cut = cut_of(arena, base, 0, rank_at(ranked, clause, offset))
        return min(cut, parts - 1), one, one, one
    box = ranked.box[clause]
    if contains_region(box, region):
        return parts, one, one, one
    columns = np.int64(arena[base + COLUMNS])
    west, east, south, north = touched_cells(arena, base, box)
    return south * columns + west, east - west + 1, north - south + 1, columns


@kernel
def count_parts(
    tree: Tree, base: Number, ranked: Ranked, step: NDArray[np.int64], work: Work
) -> Number:
    """Write where the clauses of each child would begin, behind those of the step."""
    parts = np.int64(tree.arena[base + PARTS])
    start, region = work.start[: parts + 2], step[BOX : BOX + 4]
    start[:] = 0
    for i in range(step[BEGIN], step[END]):
        first, across, rows, apart = first_child(tree, base, ranked, work.clause[i], region)
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                start[child + 1] += 1
    for child in range(parts + 1):
        start[child + 1] += start[child]
    return start[parts + 1]


@kernel
def share_out(
    tree: Tree, base: Number, ranked: Ranked, step: NDArray[np.int64], work: Work
) -> None:
    """Replace the step of a node that was made by those of its children.

    The clauses of the children are written behind those of the node, and then moved to their
    place. There is room for them and for the steps.
    """
    arena, clause, start = tree.arena, work.clause, work.start
    parts = np.int64(arena[base + PARTS])
    begin, end, region = step[BEGIN], step[END], step[BOX : BOX + 4].copy()
    level, skip = step[LEVEL] + 1, step[SKIP]
    total = start[parts + 1]
    for i in range(begin, end):
        first, across, rows, apart = first_child(tree, base, ranked, clause[i], region)
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                clause[end + start[child]] = clause[i]
                start[child] += 1
    for i in range(total):
        clause[begin + i] = clause[end + i]
    keywords = arena[base] == KEYWORDS
    names = base + np.int64(arena[base + CHILD])
    steps, first_clause = work.state[STEPS] - 1, np.int64(0)
    for child in range(parts + 1):
        count = start[child] - first_clause
        arena[names + parts + 1 + child] = count
        arena[names + 2 * (parts + 1) + child] = count
        if count > 0:
            below = work.step[steps]
            below[SLOT], below[LEVEL] = names + child, level
            below[BEGIN], below[END] = begin + first_clause, begin + start[child]
            below[SKIP] = skip + np.int64(keywords and child < parts)
            if keywords:
                below[BOX : BOX + 4] = region
            else:
                cell_region(arena, base, child, below[BOX : BOX + 4])
            steps += 1
        first_clause = start[child]
    work.state[STEPS] = steps


@kernel
def set_bounds(tree: Tree, ranked: Ranked, clauses: NDArray[np.int32]) -> None:
    """Let the whole region be what lies around all clauses."""
    for side in range(4):
        tree.state[BOUNDS + side] = ranked.box[clauses[0], side]
    for i in range(len(clauses)):
        for side in range(2):
            low, high = ranked.box[clauses[i], side], ranked.box[clauses[i], side + 2]
            tree.state[BOUNDS + side] = min(tree.state[BOUNDS + side], np.int64(low))
            tree.state[BOUNDS + 2 + side] = max(tree.state[BOUNDS + 2 + side], np.int64(high))


@kernel
def grow_node(tree: Tree, ranked: Ranked, work: Work, hits: Hits, draft: Draft) -> Number:
    """Do the step on top of the stack; return whether there was room."""
    step, missing = work.step[work.state[STEPS] - 1], work.missing
    clauses = work.clause[step[BEGIN] : step[END]]
    count = np.int64(len(clauses))
    if count > len(draft.key):
        missing[M_DRAFT] = count
        return False
    if step[SLOT] == ROOT and count > 0:
        set_bounds(tree, ranked, clauses)
        for side in range(4):
            step[BOX + side] = tree.state[BOUNDS + side]
    chosen = np.int64(LEAF), np.int64(0), np.int64(0)
    if count > tree.state[LEAF_SIZE] and step[LEVEL] < MAX_DEPTH:
        place = step[SKIP], step[BOX : BOX + 4]
        chosen = choose_partition(tree.state, ranked, clauses, place, hits, draft)
    if chosen[0] == LEAF:
        if not has_room(tree, leaf_units(count)):
            missing[M_UNITS] = leaf_units(count)
            return False
        if count > 0:
            make_leaf(tree, ranked, step, clauses)
        work.state[STEPS] -= 1
        tree.state[DEPTH] = max(tree.state[DEPTH], step[LEVEL])
        return True
    parts = chosen[1] * chosen[2]
    if not has_room(tree, units(HEADER + 5 * (parts + 1))):
        missing[M_UNITS] = units(HEADER + 5 * (parts + 1))
        return False
    if work.state[STEPS] + parts + 1 > len(work.step):
        missing[M_STEPS] = parts + 1
        return False
    top = tree.state[TOP]
    base = make_inner(tree, step, chosen, draft)
    total = count_parts(tree, base, ranked, step, work)
    if step[END] + total > len(work.clause):
        tree.state[TOP], tree.arena[step[SLOT]] = top, 0
        missing[M_CLAUSES] = step[END] + total
        return False
    share_out(tree, base, ranked, step.copy(), work)
    return True


@kernel
def grow_nodes(tree: Tree, ranked: Ranked, work: Work, hits: Hits, draft: Draft) -> Number:
    """Do all steps on the stack; return whether there was room."""
    while work.state[STEPS] > 0:
        if not grow_node(tree, ranked, work, hits, draft):
            return False
    return True
