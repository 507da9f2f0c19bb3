"""The cells of a quadtree over the world, and whether a clause is worth moving to smaller ones.

Chen, Cong and Cao, SIGMOD 2013, as the AP-Tree paper (VLDB Journal 2015, sections 3.1 and 5.1.1)
tells it: a clause stands in one or several cells, chosen by a cost model that balances matching and
updating. A clause in a cell is verified by every message that hits the cell and has the clause's
key token; each cell that it stands in costs an update. So the best cells make
``sum of (share of the cell * hit of the clause + update cost)`` least.

The cell of level 0 is all of int32 across and half of that up, which the world fills but for its
margins; a cell of level ``l`` is ``2**(32 - l)`` units wide and half as high. It has its west and
south borders, not those of its neighbours: a point lies in one cell of each level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.token_order.kernels import ANYWHERE, fingerprint, times

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEST_END, SOUTH_END = np.int64(-(1 << 31)), np.int64(-(1 << 30))
"""The corner of the cell of level 0."""

CONTAINED = np.int64(15)


class Costs(NamedTuple):
    """What the cost model knows.

    - ``share`` float32[cells of levels 0 to ``levels``], row by row: how probably a message hits
      each of them. Within a cell of the last level, messages are taken to be anywhere.
    - ``hit`` float32[clauses]: how probably a message has the key token of each.
    - ``update``: what a cell costs, in verifications a message.
    - ``depth``: the last level of cells; ``fine``: boxes are cut into cells as small as
      ``2**-fine`` of them, but no smaller ones.
    """

    share: NDArray[np.float32]
    hit: NDArray[np.float32]
    update: float
    levels: int
    depth: int
    fine: int


class Sides(NamedTuple):
    """A box, as numbers."""

    west: Number
    south: Number
    east: Number
    north: Number


class Wish(NamedTuple):
    """What decides where a clause stands: its box, its hit probability, and its last level."""

    box: Sides
    hit: Number
    deepest: Number


class Cell(NamedTuple):
    """A cell: its level and its corner."""

    level: Number
    west: Number
    south: Number


@kernel
def sides_of(box: NDArray[np.int32], row: Number) -> Sides:
    """Return a box as numbers."""
    return Sides(
        np.int64(box[row, 0]), np.int64(box[row, 1]), np.int64(box[row, 2]), np.int64(box[row, 3])
    )


@kernel
def cell_number(levels: Number, cell: Cell) -> Number:
    """Return where the share of the cell, or of the last one around it that has one, stands."""
    level = min(np.int64(cell.level), np.int64(levels))
    column = (cell.west - WEST_END) >> (32 - level)
    row = (cell.south - SOUTH_END) >> (31 - level)
    return ((np.int64(1) << (2 * level)) - 1) // 3 + (row << level) + column


@kernel
def share_of(costs: Costs, cell: Cell) -> Number:
    """Return how probably a message hits a cell."""
    share = np.float64(costs.share[cell_number(costs.levels, cell)])
    below = cell.level - costs.levels
    return share / np.float64(np.int64(1) << (2 * below)) if below > 0 else share


@kernel
def touched_children(cell: Cell, box: Sides) -> Number:
    """Return a bit for every child (south-west, south-east, ...) that a box in the cell touches."""
    x = cell.west + (np.int64(1) << (31 - cell.level))
    y = cell.south + (np.int64(1) << (30 - cell.level))
    across, touched = np.int64(0), np.int64(0)
    if box.west < x:
        across |= np.int64(1)
    if box.east >= x:
        across |= np.int64(2)
    if box.south < y:
        touched |= across
    if box.north >= y:
        touched |= across << 2
    return touched


@kernel
def child_cell(cell: Cell, child: Number) -> Cell:
    """Return a child of a cell, by its number from 0 to 3."""
    level = np.int64(cell.level) + 1
    west = cell.west + (np.int64(child & 1) << (32 - level))
    return Cell(level, west, cell.south + (np.int64(child >> 1) << (31 - level)))


@kernel
def is_within(cell: Cell, box: Sides) -> Number:
    """Tell whether a cell lies in a box."""
    east = cell.west + (np.int64(1) << (32 - cell.level)) - 1
    north = cell.south + (np.int64(1) << (31 - cell.level)) - 1
    across = box.west <= cell.west and box.east >= east
    return across and box.south <= cell.south and box.north >= north


@kernel
def wish_of(costs: Costs, box: NDArray[np.int32], clause: Number) -> Wish:
    """Return what decides where a clause stands."""
    sides = sides_of(box, clause)
    wide = max(sides.east - sides.west, 2 * (sides.north - sides.south)) + 1
    level = np.int64(0)
    while level < costs.depth and (np.int64(1) << (31 - level)) >= wide:
        level += 1
    return Wish(
        sides, np.float64(costs.hit[clause]), min(level + costs.fine, np.int64(costs.depth))
    )


@kernel
def least_cost(costs: Costs, cell: Cell, wish: Wish) -> Number:
    """Return the least cost of a clause within a cell that its box touches."""
    expected = share_of(costs, cell) * wish.hit
    stay = expected + costs.update
    if expected <= costs.update or cell.level >= wish.deepest or is_within(cell, wish.box):
        return stay
    touched, below = touched_children(cell, wish.box), 0.0
    for child in range(4):
        if (touched >> child) & 1 and below < stay:
            below += least_cost(costs, child_cell(cell, child), wish)
    return min(stay, below)


@kernel
def way_down(costs: Costs, cell: Cell, wish: Wish) -> Number:
    """Return a bit for every child to which a clause moves, or 0 if it stays in the cell.

    It looks ahead as far as cells may go: a small box across the middle of a cell gains nothing
    by its children, but much by theirs.
    """
    expected = share_of(costs, cell) * wish.hit
    stay = expected + costs.update
    if expected <= costs.update or cell.level >= wish.deepest or is_within(cell, wish.box):
        return np.int64(0)
    touched, below = touched_children(cell, wish.box), 0.0
    for child in range(4):
        if (touched >> child) & 1 and below < stay:
            below += least_cost(costs, child_cell(cell, child), wish)
    return touched if below < stay else np.int64(0)


@kernel
def count_centres(box: NDArray[np.int32], levels: Number, share: NDArray[np.float32]) -> None:
    """Count the centres of boxes in the cells of the last level."""
    for i in range(len(box)):
        sides = sides_of(box, i)
        west, south = (sides.west + sides.east) >> 1, (sides.south + sides.north) >> 1
        share[cell_number(levels, Cell(np.int64(levels), west, south))] += np.float32(1)


@kernel
def sum_shares(share: NDArray[np.float32], levels: Number, total: Number) -> None:
    """Make probabilities of the counts of the last level, and add them up for those above.

    It is as if one more message had come, from anywhere.
    """
    start = ((np.int64(1) << (2 * levels)) - 1) // 3
    last = np.int64(1) << (2 * levels)
    for i in range(start, start + last):
        share[i] = np.float32((np.float64(share[i]) + 1.0 / np.float64(last)) / (total + 1.0))
    for level in range(levels - 1, -1, -1):
        side, above = np.int64(1) << level, ((np.int64(1) << (2 * level)) - 1) // 3
        for row in range(side):
            for column in range(side):
                first = start + 4 * row * side + 2 * column
                south = share[first] + share[first + 1]
                north = share[first + 2 * side] + share[first + 2 * side + 1]
                share[above + row * side + column] = south + north
        start = above


@kernel
def rate_clauses(
    start: NDArray[np.int64],
    token: NDArray[np.int32],
    frequency: NDArray[np.uint64],
    documents: Number,
    hit: NDArray[np.float32],
    first: Number,
) -> None:
    """Set how probably a message has the rarest token of each clause from ``first`` on.

    ``frequency`` counts in how many documents tokens occur. A clause without tokens is always hit.
    """
    for clause in range(first, len(hit)):
        least: Number = np.float64(documents)
        for i in range(start[clause], start[clause + 1]):
            counted = times(frequency, fingerprint(ANYWHERE, np.int64(token[i])))
            least = min(least, max(np.float64(counted), 1.0))
        hit[clause] = np.float32(least / documents)
