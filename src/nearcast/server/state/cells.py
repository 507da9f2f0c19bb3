"""Which boxes overlap a window: quadtree cells in an ordinary index, in any database.

A box belongs to the smallest cell of a quadtree over the world that is at least as large as the
box and contains its southwest corner. So the box lies within the cell doubled to the north and
east. The number of a cell sorts before the numbers of the cells inside it, which are contiguous: a
window becomes a few ranges of numbers. This is XZ-ordering: Böhm, Klump and Kriegel,
"XZ-Ordering: A Space-Filling Curve for Objects with Spatial Extension", SSD 1999, section 4.

Boxes that cross the antimeridian belong to the cell of the whole world, which is in every window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Box", "cell_ranges", "cells_of_boxes"]

LEVELS = 15
_LEVEL_BITS = 4
_MAX_OPEN = 48
_SLACK = 1e-9
"""Of the world's width: more than what floats lose, less than any cell."""


class Box(NamedTuple):
    """A box in degrees. It crosses the antimeridian if ``west`` is greater than ``east``."""

    west: float
    south: float
    east: float
    north: float

    def parts(self) -> list[Box]:
        """Return the box, cut at the antimeridian if it crosses it."""
        if self.west <= self.east:
            return [self]
        return [self._replace(east=180.0), self._replace(west=-180.0)]


def cells_of_boxes(boxes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the cell of each box, a row of (west, south, east, north)."""
    west, south, east, north = boxes.reshape(-1, 4).T
    size = np.maximum((east - west) / 360, (north - south) / 180) + _SLACK
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.clip(np.floor(-np.log2(np.abs(size))), 0, LEVELS).astype(np.int64)
    levels[east < west] = 0
    scale = 1 << levels
    columns = np.clip(np.floor((west + 180) / 360 * scale), 0, scale - 1).astype(np.int64)
    rows = np.clip(np.floor((south + 90) / 180 * scale), 0, scale - 1).astype(np.int64)
    morton = _spread(columns) | (_spread(rows) << 1)
    return ((morton << (2 * (LEVELS - levels))) << _LEVEL_BITS) | levels


def cell_ranges(window: Box) -> list[tuple[int, int]]:
    """Return ranges of cells, both ends included, that hold every box that overlaps a window.

    They hold other boxes too. The window may cross the antimeridian.
    """
    ranges: list[tuple[int, int]] = []
    for part in window.parts():
        ranges += _ranges(part)
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _ranges(window: Box) -> list[tuple[int, int]]:
    west, east = (window.west + 180) / 360 - _SLACK, (window.east + 180) / 360 + _SLACK
    south, north = (window.south + 90) / 180 - _SLACK, (window.north + 90) / 180 + _SLACK
    found: list[tuple[int, int]] = []
    level, cells = 0, [(0, 0, 0)]
    while cells:
        size = 0.5**level
        inside = []
        for column, row, morton in cells:
            x, y = column * size, row * size
            if x > east or y > north or x + 2 * size < west or y + 2 * size < south:
                continue
            inside.append((column, row, morton))
        within = 2 * (LEVELS - level)
        if level == LEVELS or len(inside) > _MAX_OPEN:
            return found + [_subtree(morton, level, within) for _, _, morton in inside]
        cells = []
        for column, row, morton in inside:
            x, y = column * size, row * size
            if west <= x and south <= y and x + size <= east and y + size <= north:
                # Every box whose corner is in the cell begins inside the window.
                found.append(_subtree(morton, level, within))
                continue
            own = ((morton << within) << _LEVEL_BITS) | level
            found.append((own, own))
            cells += [(2 * column + (i & 1), 2 * row + (i >> 1), 4 * morton + i) for i in range(4)]
        level += 1
    return found


def _subtree(morton: int, level: int, within: int) -> tuple[int, int]:
    first = (morton << within) << _LEVEL_BITS
    return first | level, (((morton + 1) << within) << _LEVEL_BITS) - 1


def _spread(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Put a zero bit before each of the lower 16 bits."""
    values = (values | (values << 8)) & 0x00FF00FF
    values = (values | (values << 4)) & 0x0F0F0F0F
    values = (values | (values << 2)) & 0x33333333
    return (values | (values << 1)) & 0x55555555
