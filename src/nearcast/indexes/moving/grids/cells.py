"""The cells of a grid: which cell a place is in, and which cells a box touches.

All that matters is that the column of a place never falls when its longitude grows, and likewise
for rows. Then a box touches the cells from that of its south-west corner to that of its north-east
corner, and all points of the cells strictly between those are inside of it, wherever the
borders of cells are. The outer cells take everything that is outside of the extent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import WORLD
from nearcast.compiled.jit import Number, inlined_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cells", "Frame", "cell_of", "cells_of", "count_entered", "frame_of"]


class Frame(NamedTuple):
    """The extent of a grid: its south-west corner, cells per unit, and columns and rows."""

    west: float
    south: float
    x_scale: float
    y_scale: float
    columns: int
    rows: int


class Cells(NamedTuple):
    """The cells that a box touches, from column ``west`` to ``east``, row ``south`` to ``north``.

    An empty box touches none: west is east of east, and south is north of north.
    """

    west: Number
    south: Number
    east: Number
    north: Number


def frame_of(box: NDArray[np.int32], size: int) -> Frame:
    """Return a grid of ``size`` by ``size`` cells around boxes; around the world without any."""
    if len(box):
        west, south = (int(side) for side in box[:, :2].min(axis=0))
        east, north = (int(side) for side in box[:, 2:].max(axis=0))
    else:
        west, south, east, north = WORLD
    x_scale, y_scale = size / (east - west + 1), size / (north - south + 1)
    return Frame(float(west), float(south), x_scale, y_scale, size, size)


@inlined_kernel
def _line(place: Number, start: Number, scale: Number, count: Number) -> Number:
    at = np.int64((np.float64(place) - start) * scale)
    return min(max(at, np.int64(0)), count - np.int64(1))


@inlined_kernel
def cell_of(frame: Frame, x: Number, y: Number) -> Number:
    """Return the cell of a place."""
    column = _line(x, frame.west, frame.x_scale, frame.columns)
    return _line(y, frame.south, frame.y_scale, frame.rows) * frame.columns + column


@kernel
def cells_of(frame: Frame, box: NDArray[np.int32]) -> Cells:
    """Return the cells that a box touches."""
    if box[0] > box[2]:
        return Cells(np.int64(1), np.int64(1), np.int64(0), np.int64(0))
    return Cells(
        _line(box[0], frame.west, frame.x_scale, frame.columns),
        _line(box[1], frame.south, frame.y_scale, frame.rows),
        _line(box[2], frame.west, frame.x_scale, frame.columns),
        _line(box[3], frame.south, frame.y_scale, frame.rows),
    )


@inlined_kernel
def touches(cells: Cells, column: Number, row: Number) -> Number:
    """Tell whether a cell is one of those that a box touches."""
    across = (cells.west <= column) & (column <= cells.east)
    return across & (cells.south <= row) & (row <= cells.north)


@inlined_kernel
def is_inside(cells: Cells, column: Number, row: Number) -> Number:
    """Tell whether all of a cell is inside of the box that touches these cells."""
    across = (cells.west < column) & (column < cells.east)
    return across & (cells.south < row) & (row < cells.north)


@kernel
def count_entered(frame: Frame, before: NDArray[np.int32], after: NDArray[np.int32]) -> Number:
    """Return how many cells boxes enter, in all."""
    total = np.int64(0)
    for i in range(len(after)):
        old, new = cells_of(frame, before[i]), cells_of(frame, after[i])
        both = max(min(old.east, new.east) - max(old.west, new.west) + 1, 0) * max(
            min(old.north, new.north) - max(old.south, new.south) + 1, 0
        )
        total += (new.east - new.west + 1) * (new.north - new.south + 1) - both
    return total
