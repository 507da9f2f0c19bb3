"""The ways of a clause down the tree, before and after a move.

A *slot* is where a tree names a child: the link of the root, and every child of an inner node. From
the root to the leaves, a clause with a box has one slot at a keyword node, and those of all cells
that it touches (or the dummy) at a space node. A clause that moves has two sets of slots, which are
found in one walk, from the top down: each row of ``ways`` is a slot that the old box reaches, the
new one, or both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.indexes.ap_tree.layout import (
    BOUNDS,
    CHILDREN,
    COLUMNS,
    HEADER,
    KEYWORDS,
    LEAF,
    OFFSET,
    PARTS,
    REGION,
    ROOT,
    ROOT_LIST,
    UNIT,
    RankedClauses,
    Tree,
    child_region,
    covers_region,
    rank_at,
    rank_count,
)
from nearcast.indexes.ap_tree.walk import first_not_below

if TYPE_CHECKING:
    from numpy.typing import NDArray

LINK, BASE, CHILD, LEVEL, OFFSET_BELOW, FLAGS, ABOVE, COVERED, WAY_WIDTH = range(9)
"""Columns of a way: the link; the base of the node that has the slot (0 for the root's), and which
of its children it is; the level and the offset of what is below; see `BEFORE`; the row of the slot
above (-1 for the root's); 1 if the slot or one above is to be rebuilt."""

BEFORE, AFTER, QUIET, CHANGED = 1, 2, 4, 8
"""Flags: the old box reaches the slot; the new one does; both have the same points in its region;
of an inner node, the boxes reach other children."""

BOTH = BEFORE | AFTER
NO_ROOM = -1
_FAR_WEST, _FAR_EAST = np.int64(-(2**40)), np.int64(2**40)


@inlined_kernel
def list_position(arena: NDArray[np.int32], base: Number, link: Number) -> Number:
    """Return where the message list of a slot is named."""
    beyond = 3 * (np.int64(arena[base + PARTS]) + 1)
    return np.int64(ROOT_LIST) if base == 0 else link + beyond


@inlined_kernel
def is_end(arena: NDArray[np.int32], link: Number) -> Number:
    """Tell whether there is a leaf below a slot, or nothing."""
    return arena[link] == 0 or arena[UNIT * np.int64(arena[link])] == LEAF


@kernel
def way_region(tree: Tree, way: NDArray[np.int64], region: NDArray[np.int64]) -> None:
    """Write the region of what is below a slot."""
    if way[BASE] == 0:
        for side in range(4):
            region[side] = tree.state[BOUNDS + side]
    else:
        child_region(tree.arena, way[BASE], way[CHILD], region)


@inlined_kernel
def _add_way(
    ways: NDArray[np.int64],
    count: Number,
    above: Number,
    node: tuple[Number, Number, Number],
    child: Number,
    flags: Number,
) -> None:
    """Write the row of a child; ``node`` is its base, where its links begin, and the offset."""
    way = ways[count]
    way[LINK], way[BASE], way[CHILD] = node[1] + child, node[0], child
    way[LEVEL], way[OFFSET_BELOW] = ways[above, LEVEL] + 1, node[2]
    way[FLAGS], way[ABOVE], way[COVERED] = flags, above, 0
    if (flags & BOTH) != BOTH:
        ways[above, FLAGS] |= CHANGED


@inlined_kernel
def _touched(
    arena: NDArray[np.int32], begin: Number, end: Number, low: Number, high: Number
) -> tuple[Number, Number]:
    """Return the first and the last column (or row) that an interval touches."""
    first = first_not_below(arena, begin, end, np.int64(low) + 1)
    last = first_not_below(arena, first, end, np.int64(high) + 1)
    return first - begin, last - begin


@inlined_kernel
def _same_within(
    arena: NDArray[np.int32],
    begin: Number,
    end: Number,
    at: Number,
    before: tuple[Number, Number],
    after: tuple[Number, Number],
) -> Number:
    """Tell whether two intervals have the same part in a column (or row)."""
    low = np.int64(arena[begin + at - 1]) if at > 0 else _FAR_WEST
    high = np.int64(arena[begin + at]) - 1 if begin + at < end else _FAR_EAST
    west = max(np.int64(before[0]), low) == max(np.int64(after[0]), low)
    return west & (min(np.int64(before[1]), high) == min(np.int64(after[1]), high))


@kernel
def _covered_alike(
    tree: Tree, base: Number, before: NDArray[np.int32], after: NDArray[np.int32]
) -> Number:
    """Tell whether two boxes that contain a node's region have the same points of its slots.

    At the border of the whole tree, slots have messages beyond the region.
    """
    for side in range(4):
        at_border = np.int64(tree.arena[base + REGION + side]) == tree.state[BOUNDS + side]
        if at_border and before[side] != after[side]:
            return False
    return True


@kernel
def _open_cells(
    tree: Tree,
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    ways: NDArray[np.int64],
    above: Number,
    count: Number,
) -> Number:
    """Add the children of a space node; return how many ways there are, or `NO_ROOM`."""
    arena = tree.arena
    before, after = boxes
    base = UNIT * np.int64(arena[ways[above, LINK]])
    parts, columns = np.int64(arena[base + PARTS]), np.int64(arena[base + COLUMNS])
    node = base, base + np.int64(arena[base + CHILDREN]), ways[above, OFFSET_BELOW]
    flags, quiet = ways[above, FLAGS] & BOTH, ways[above, FLAGS] & QUIET
    whole = np.int64(0)
    if flags & BEFORE and covers_region(before, arena, base + REGION):
        whole |= BEFORE
    if flags & AFTER and covers_region(after, arena, base + REGION):
        whole |= AFTER
    in_cells = flags & ~whole
    begin, middle, end = base + HEADER, base + HEADER + columns - 1, node[1]
    none = np.int64(0), np.int64(-1)
    across0, up0, across1, up1 = none, none, none, none
    if in_cells & BEFORE:
        across0 = _touched(arena, begin, middle, before[0], before[2])
        up0 = _touched(arena, middle, end, before[1], before[3])
    if in_cells & AFTER:
        across1 = _touched(arena, begin, middle, after[0], after[2])
        up1 = _touched(arena, middle, end, after[1], after[3])
    cells = (across0[1] - across0[0] + 1) * (up0[1] - up0[0] + 1)
    cells += (across1[1] - across1[0] + 1) * (up1[1] - up1[0] + 1)
    if count + cells + 1 > len(ways):
        return np.int64(NO_ROOM)
    if whole != 0:
        if whole == BOTH and quiet == 0 and _covered_alike(tree, base, before, after):
            quiet = np.int64(QUIET)
        _add_way(ways, count, above, node, parts, whole | quiet)
        count += 1
    x0, x1 = (before[0], before[2]), (after[0], after[2])
    y0, y1 = (before[1], before[3]), (after[1], after[3])
    for row in range(up0[0], up0[1] + 1):
        shared_row = up1[0] <= row <= up1[1]
        same_row = shared_row and _same_within(arena, middle, end, row, y0, y1)
        for column in range(across0[0], across0[1] + 1):
            found = np.int64(BEFORE)
            if shared_row and across1[0] <= column <= across1[1]:
                found = np.int64(BOTH) | quiet
                if same_row and _same_within(arena, begin, middle, column, x0, x1):
                    found |= QUIET
            _add_way(ways, count, above, node, row * columns + column, found)
            count += 1
    for row in range(up1[0], up1[1] + 1):
        shared_row = up0[0] <= row <= up0[1]
        for column in range(across1[0], across1[1] + 1):
            if not (shared_row and across0[0] <= column <= across0[1]):
                _add_way(ways, count, above, node, row * columns + column, np.int64(AFTER))
                count += 1
    return count


@inlined_kernel
def cut_of(arena: NDArray[np.int32], base: Number, rank: Number) -> Number:
    """Return the cut of a keyword node that takes a rank, whether or not a clause has it.

    Cuts tile all ranks: each takes those above the cut before it, the last all that are higher.
    """
    highest, parts = base + HEADER, np.int64(arena[base + PARTS])
    return first_not_below(arena, highest, highest + parts - 1, rank) - highest


@kernel
def find_ways(
    tree: Tree,
    ranked: RankedClauses,
    clause: Number,
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    flags: Number,
    ways: NDArray[np.int64],
) -> Number:
    """Write the slots that a clause reaches with its old box, the new one or both (``flags``).

    Return how many there are, those above before those below, or `NO_ROOM`.
    """
    arena = tree.arena
    way = ways[0]
    way[LINK], way[BASE], way[CHILD], way[LEVEL], way[OFFSET_BELOW] = ROOT, 0, 0, 0, 0
    way[FLAGS], way[ABOVE], way[COVERED] = flags, -1, 0
    count, at = np.int64(1), np.int64(0)
    while at < count:
        if not is_end(arena, ways[at, LINK]):
            base = UNIT * np.int64(arena[ways[at, LINK]])
            if arena[base] == KEYWORDS:
                if count == len(ways):
                    return np.int64(NO_ROOM)
                offset, child = np.int64(arena[base + OFFSET]), np.int64(arena[base + PARTS])
                if rank_count(ranked, clause) > offset:
                    child = cut_of(arena, base, rank_at(ranked, clause, offset))
                    offset += 1
                node = base, base + np.int64(arena[base + CHILDREN]), offset
                _add_way(ways, count, at, node, child, ways[at, FLAGS] & (BOTH | QUIET))
                count += 1
            else:
                count = _open_cells(tree, boxes, ways, at, count)
                if count == NO_ROOM:
                    return count
        at += 1
    return count
