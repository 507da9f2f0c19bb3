"""Cells of a quadtree over the world, and the cost model that chooses the cells of a clause.

The cell of level 0 is all of int32 across and half of that up, a little more than the world. A cell
of level ``l`` is ``2**(32 - l)`` units wide and half as high. It includes its west and south
borders but not the others, so a point is in one cell of each level.

A clause in a set of cells costs the sum of ``share of the cell * hit of the clause + update cost``
(AP-Tree paper, VLDB Journal 2015, section 5.1.1). ``share`` is the probability that a message hits
a cell, ``hit`` the probability that a message has the rarest token of a clause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import read_only
from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.token_order.kernels import ANYWHERE, fingerprint, times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseTokens
    from nearcast.indexes.statistics import Statistics

MAX_DEPTH = 20
"""The level of the smallest cells that any quadtree may have: about 30 m high."""

MAX_PARTS = 64

SHARE_LEVELS = 7
"""The last level whose shares are counted: cells of 2.8 by 1.4 degrees."""

SHARE_CELLS = ((1 << (2 * SHARE_LEVELS + 2)) - 1) // 3
"""The number of cells of levels 0 to `SHARE_LEVELS`."""

WEST_END, SOUTH_END = np.int64(-(1 << 31)), np.int64(-(1 << 30))
"""The corner of the cell of level 0."""

_POINTS = 4
"""A cell of statistics counts as this many points across, and up."""


class Costs(NamedTuple):
    """The parameters of the cost model.

    - ``share`` float32[cells of levels 0 to ``levels``], level by level, row by row. Within a cell
      of the last level, messages are assumed to be spread evenly.
    - ``hit`` float32[clauses].
    - ``update``: the cost of a clause in a cell, in verifications per message.
    - ``depth``: the last level of cells. ``fine``: a box is cut into cells of at least ``2**-fine``
      of its size.
    """

    share: NDArray[np.float32]
    hit: NDArray[np.float32]
    update: float
    levels: int
    depth: int
    fine: int


class Sides(NamedTuple):
    """A box as numbers."""

    west: Number
    south: Number
    east: Number
    north: Number


class Placement(NamedTuple):
    """What decides the cells of a clause: its box, its hit probability, and its last level."""

    box: Sides
    hit: Number
    last_level: Number


class Cell(NamedTuple):
    """A cell: its level and its south-west corner."""

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
def touched_children(cell: Cell, box: Sides) -> Number:
    """Return a bit for each child (south-west, south-east, ...) that a box in the cell touches."""
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
    """Tell whether a cell lies within a box."""
    east = cell.west + (np.int64(1) << (32 - cell.level)) - 1
    north = cell.south + (np.int64(1) << (31 - cell.level)) - 1
    across = box.west <= cell.west and box.east >= east
    return across and box.south <= cell.south and box.north >= north


# The cost model.


@kernel
def share_number(levels: Number, cell: Cell) -> Number:
    """Return the number of a cell in ``share``, or of the smallest cell around it that has one."""
    level = min(np.int64(cell.level), np.int64(levels))
    column = (cell.west - WEST_END) >> (32 - level)
    row = (cell.south - SOUTH_END) >> (31 - level)
    return ((np.int64(1) << (2 * level)) - 1) // 3 + (row << level) + column


@kernel
def share_of(costs: Costs, cell: Cell) -> Number:
    """Return the probability that a message hits a cell."""
    share = np.float64(costs.share[share_number(costs.levels, cell)])
    below = cell.level - costs.levels
    return share / np.float64(np.int64(1) << (2 * below)) if below > 0 else share


@kernel
def placement_of(costs: Costs, box: NDArray[np.int32], clause: Number) -> Placement:
    """Return what decides the cells of a clause."""
    return placement_in(costs, sides_of(box, clause), clause)


@kernel
def placement_in(costs: Costs, sides: Sides, clause: Number) -> Placement:
    """Return what would decide the cells of a clause if it had another box."""
    wide = max(sides.east - sides.west, 2 * (sides.north - sides.south)) + 1
    level = np.int64(0)
    while level < costs.depth and (np.int64(1) << (31 - level)) >= wide:
        level += 1
    last = min(level + costs.fine, np.int64(costs.depth))
    return Placement(sides, np.float64(costs.hit[clause]), last)


@kernel
def cell_costs(costs: Costs, cell: Cell, placement: Placement) -> tuple[Number, Number]:
    """Return the cost of a clause that stays in a cell, and the least cost if it moves down.

    The latter is infinite if the clause cannot move, and not exact if it is the larger one. It
    looks ahead to the last level: a small box across the middle of a cell gains nothing from
    the children, but much from theirs.
    """
    expected = share_of(costs, cell) * placement.hit
    stay, divided = expected + costs.update, 0.0
    if (
        expected <= costs.update
        or cell.level >= placement.last_level
        or is_within(cell, placement.box)
    ):
        return stay, np.inf
    touched = touched_children(cell, placement.box)
    for child in range(4):
        if (touched >> child) & 1 and divided < stay:
            child_stay, child_divided = cell_costs(costs, child_cell(cell, child), placement)
            divided += min(child_stay, child_divided)
    return stay, divided


@kernel
def children_to_enter(costs: Costs, cell: Cell, placement: Placement) -> Number:
    """Return a bit for each child that a clause moves to, or 0 if it stays in the cell."""
    expected = share_of(costs, cell) * placement.hit
    if (
        expected <= costs.update
        or cell.level >= placement.last_level
        or is_within(cell, placement.box)
    ):
        return np.int64(0)
    # Most often the children are better even if the clause stays in them: no need to look further.
    touched, in_children = touched_children(cell, placement.box), 0.0
    for child in range(4):
        if (touched >> child) & 1:
            in_children += share_of(costs, child_cell(cell, child)) * placement.hit + costs.update
    if in_children < expected + costs.update:
        return touched
    stay, divided = cell_costs(costs, cell, placement)
    return touched if divided < stay else np.int64(0)


# Where messages come from, and which tokens they have.


@kernel
def count_centers(box: NDArray[np.int32], levels: Number, share: NDArray[np.float32]) -> None:
    """Count the centers of boxes in the cells of the last level."""
    for i in range(len(box)):
        sides = sides_of(box, i)
        west, south = (sides.west + sides.east) >> 1, (sides.south + sides.north) >> 1
        share[share_number(levels, Cell(np.int64(levels), west, south))] += np.float32(1)


@kernel
def sum_shares(share: NDArray[np.float32], levels: Number, total: Number) -> None:
    """Turn the counts of the last level into probabilities, and sum them up for the other levels.

    One more message, spread over the whole world, is added to the ``total``.
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


def shares_from_boxes(box: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the shares of cells if messages come from the centers of the clauses' boxes."""
    share = np.zeros(SHARE_CELLS, np.float32)
    count_centers(read_only(box, np.int32, 4), SHARE_LEVELS, share)
    sum_shares(share, SHARE_LEVELS, len(box))
    return share


def shares_from_statistics(statistics: Statistics) -> NDArray[np.float32]:
    """Return the shares of cells if messages come from where those of the statistics did.

    The grid of the statistics is another one: each of its cells counts as a square of points.
    """
    across, up = _POINTS * statistics.grid.across, _POINTS * statistics.grid.up
    west, south, east, north = statistics.grid.box
    lon = west + (np.arange(across) + 0.5) * ((east - west) / across)
    lat = south + (np.arange(up) + 0.5) * ((north - south) / up)
    column = (lon.astype(np.int64) - int(WEST_END)) >> (32 - SHARE_LEVELS)
    row = (lat.astype(np.int64) - int(SOUTH_END)) >> (31 - SHARE_LEVELS)
    density = statistics.density.reshape(statistics.grid.up, -1) / _POINTS**2
    weight = density.repeat(_POINTS, axis=0).repeat(_POINTS, axis=1)
    cell = np.add.outer(row << SHARE_LEVELS, column).ravel()
    last = 1 << (2 * SHARE_LEVELS)
    share = np.zeros(SHARE_CELLS, np.float32)
    share[-last:] = np.bincount(cell, weight.ravel(), last)
    sum_shares(share, SHARE_LEVELS, weight.sum())
    return share


@kernel
def rate_clauses(
    clauses: ClauseTokens,
    frequency: NDArray[np.uint64],
    documents: Number,
    hit: NDArray[np.float32],
    first: Number,
) -> None:
    """Set the hit probability of each clause from ``first`` on.

    ``frequency`` counts the documents that each token occurs in. A clause without tokens is always
    hit.
    """
    start, token = clauses
    for clause in range(first, len(hit)):
        least: Number = np.float64(documents)
        for i in range(start[clause], start[clause + 1]):
            counted = times(frequency, fingerprint(ANYWHERE, np.int64(token[i])))
            least = min(least, max(np.float64(counted), 1.0))
        hit[clause] = np.float32(least / documents)
