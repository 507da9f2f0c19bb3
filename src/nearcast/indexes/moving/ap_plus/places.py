"""Node lists: for every clause, the slots of its leaves.

Wang et al., VLDB Journal 2015, section 4.2.5, keep them so that a move finds the old leaves of a
subscription without a walk. They are chains of *cells* (node, child, next cell); a record's
``place`` is its first cell. Inner nodes name the node above them, since messages may lie in the
lists above a leaf. Nodes are named by their place in the arena, so all chains are written again
after the arena was compacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.indexes.ap_tree.layout import (
    BOUNDS,
    CAPACITY,
    CHILDREN,
    CLAUSE,
    LEAF,
    PARENT,
    PARENT_CHILD,
    PARTS,
    SIZE,
    UNIT,
    Tree,
    tail_position,
)
from nearcast.indexes.moving.ap_plus.ways import (
    ABOVE,
    BASE,
    BEFORE,
    BOTH,
    CHANGED,
    CHILD,
    COVERED,
    FLAGS,
    LEVEL,
    LINK,
    NO_ROOM,
    OFFSET_BELOW,
    QUIET,
    way_region,
)
from nearcast.indexes.moving.entries import PLACE

if TYPE_CHECKING:
    from numpy.typing import NDArray

NODE, NTH, NEXT = range(3)
"""Columns of ``cell``: the number of a node (0 for the root's slot), a child of it, a cell."""

FREE_CELL, CELLS_USED, CELLS_FREE = range(3)
"""Fields of ``state``: the first free cell; cells that were ever used, and of those the free."""

NO_CELL = -1


class Places(NamedTuple):
    """The node lists of all clauses; ``cell`` is int32[0, 3] if none are kept."""

    cell: NDArray[np.int32]
    state: NDArray[np.int64]


def empty_places(cells: int) -> Places:
    """Return space for cells."""
    return Places(np.empty((cells, 3), np.int32), np.array([NO_CELL, 0, 0], np.int64))


def enlarged_places(places: Places, more: int) -> Places:
    """Return the same cells with space for more."""
    used = int(places.state[CELLS_USED])
    cell = np.empty((used + used // 2 + more, 3), np.int32)
    cell[:used] = places.cell[:used]
    return places._replace(cell=cell)


@inlined_kernel
def keeps_places(places: Places) -> Number:
    """Tell whether node lists are kept."""
    return len(places.cell) > 0


@kernel
def free_cells(places: Places) -> Number:
    """Return how many cells can be added."""
    return len(places.cell) - places.state[CELLS_USED] + places.state[CELLS_FREE]


@kernel
def add_place(
    places: Places, record: NDArray[np.int32], clause: Number, base: Number, child: Number
) -> None:
    """Put a slot on the node list of a clause; there is a free cell."""
    cell, state = places
    at = state[FREE_CELL]
    if at != NO_CELL:
        state[FREE_CELL] = cell[at, NEXT]
        state[CELLS_FREE] -= 1
    else:
        at = state[CELLS_USED]
        state[CELLS_USED] += 1
    cell[at, NODE], cell[at, NTH], cell[at, NEXT] = base // UNIT, child, record[clause, PLACE]
    record[clause, PLACE] = at


@kernel
def drop_place(
    places: Places, record: NDArray[np.int32], clause: Number, base: Number, child: Number
) -> None:
    """Take a slot from the node list of a clause."""
    cell, state = places
    before, at = np.int64(NO_CELL), np.int64(record[clause, PLACE])
    while at != NO_CELL and not (
        UNIT * np.int64(cell[at, NODE]) == base and cell[at, NTH] == child
    ):
        before, at = at, np.int64(cell[at, NEXT])
    if at == NO_CELL:
        return
    if before == NO_CELL:
        record[clause, PLACE] = cell[at, NEXT]
    else:
        cell[before, NEXT] = cell[at, NEXT]
    cell[at, NEXT] = state[FREE_CELL]
    state[FREE_CELL] = at
    state[CELLS_FREE] += 1


@kernel
def _leaf_places(
    arena: NDArray[np.int32],
    places: Places,
    record: NDArray[np.int32],
    slot: tuple[Number, Number, Number],
    sign: Number,
) -> None:
    """Put the slot of a leaf on the node lists of its clauses (1), or take it off (-1)."""
    link, base, child = slot
    leaf = UNIT * np.int64(arena[link])
    tail = tail_position(leaf, np.int64(arena[leaf + CAPACITY]), np.int64(0)) + CLAUSE
    for i in range(np.int64(arena[leaf + SIZE])):
        if sign > 0:
            add_place(places, record, arena[tail + 2 * i], base, child)
        else:
            drop_place(places, record, arena[tail + 2 * i], base, child)


@kernel
def change_places(
    tree: Tree,
    places: Places,
    record: NDArray[np.int32],
    slot: tuple[Number, Number, Number],
    stack: NDArray[np.int64],
    sign: Number,
) -> None:
    """Put all leaves at and below a slot on the node lists of their clauses (1), or take them off.

    ``slot`` is its link, the base of its node, and which child it is. Inner nodes get the name of
    the node above them.
    """
    arena, top = tree.arena, np.int64(0)
    link, base, child = slot
    if arena[link] == 0:
        return
    node = UNIT * np.int64(arena[link])
    if arena[node] == LEAF:
        _leaf_places(arena, places, record, slot, sign)
        return
    arena[node + PARENT], arena[node + PARENT_CHILD] = base // UNIT, child
    stack[0, 0] = node
    top = np.int64(1)
    while top > 0:
        top -= 1
        base = stack[top, 0]
        links = base + np.int64(arena[base + CHILDREN])
        for child in range(np.int64(arena[base + PARTS]) + 1):
            node = UNIT * np.int64(arena[links + child])
            if node == 0:
                continue
            if arena[node] == LEAF:
                _leaf_places(arena, places, record, (links + child, base, child), sign)
            else:
                arena[node + PARENT], arena[node + PARENT_CHILD] = base // UNIT, child
                stack[top, 0] = node
                top += 1


@kernel
def same_in_region(
    state: NDArray[np.int64],
    region: NDArray[np.int64],
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> Number:
    """Tell whether two boxes have the same part in a region, which is open at the tree's border."""
    before, after = boxes
    for side in range(4):
        old, new, bound = np.int64(before[side]), np.int64(after[side]), region[side]
        if bound != state[BOUNDS + side]:
            old = max(old, bound) if side < 2 else min(old, bound)
            new = max(new, bound) if side < 2 else min(new, bound)
        if old != new:
            return False
    return True


@inlined_kernel
def _find_way(ways: NDArray[np.int64], count: Number, base: Number, child: Number) -> Number:
    """Return the row of a slot, or -1."""
    for i in range(count):
        if ways[i, BASE] == base and ways[i, CHILD] == child:
            return np.int64(i)
    return np.int64(-1)


@kernel
def add_old_ways(
    tree: Tree,
    places: Places,
    record: NDArray[np.int32],
    clause: Number,
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    ways: NDArray[np.int64],
    count: Number,
    chain: NDArray[np.int64],
) -> Number:
    """Add the slots of a clause's old box, from its node list, to those of the new box.

    Return how many ways there are, or `NO_ROOM`. ``chain`` int64[levels, 2] is scratch.
    """
    arena = tree.arena
    at = np.int64(record[clause, PLACE])
    while at != NO_CELL:
        base, child = UNIT * np.int64(places.cell[at, NODE]), np.int64(places.cell[at, NTH])
        length, row = np.int64(0), _find_way(ways, count, base, child)
        while row < 0:
            chain[length, 0], chain[length, 1] = base, child
            length += 1
            child = np.int64(arena[base + PARENT_CHILD])
            base = UNIT * np.int64(arena[base + PARENT])
            row = _find_way(ways, count, base, child)
        if count + length > len(ways):
            return np.int64(NO_ROOM)
        above = row
        while above >= 0:
            ways[above, FLAGS] |= BEFORE
            above = ways[above, ABOVE]
        for i in range(length - 1, -1, -1):
            base, child = chain[i, 0], chain[i, 1]
            way = ways[count]
            way[LINK] = base + np.int64(arena[base + CHILDREN]) + child
            way[BASE], way[CHILD] = base, child
            way[LEVEL], way[OFFSET_BELOW] = ways[row, LEVEL] + 1, 0
            way[FLAGS], way[ABOVE], way[COVERED] = BEFORE, row, 0
            row = count
            count += 1
        at = np.int64(places.cell[at, NEXT])
    region = np.empty(4, np.int64)
    for i in range(count):
        ways[i, FLAGS] &= BOTH
    for i in range(1, count):
        if (ways[i, FLAGS] & BOTH) != BOTH:
            ways[ways[i, ABOVE], FLAGS] |= CHANGED
        else:
            way_region(tree, ways[i], region)
            if same_in_region(tree.state, region, boxes):
                ways[i, FLAGS] |= QUIET
    return count
