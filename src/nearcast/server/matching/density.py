"""How many subscriptions there are where: counts per cell of a grid, from the registry's arrays.

A map cannot draw a million subscriptions. It draws counts until few enough are in view. A pass
over flat arrays takes 30 to 100 ms for a million, in a thread of its own; rows of the state would
take seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import UNITS
from nearcast.server.matching.registry import ACTIVE, PAUSED, Channel
from nearcast.server.state.cells import Box

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.server.matching.registry import Registry

__all__ = ["MAX_ROWS", "Cell", "Density", "count_subscriptions"]

MAX_ROWS = 512
"""A grid has no more rows than this, however narrow its cells would have to be."""


class Cell(NamedTuple):
    """A cell of the grid, and how many subscriptions have their center in it."""

    box: Box
    subscriptions: int


class Density(NamedTuple):
    """How many subscriptions overlap a window, and the cells that have some, from the southwest."""

    total: int
    cells: list[Cell]


class _Grid(NamedTuple):
    """A grid over a window; ``width`` and ``height`` are the sides of the window in degrees."""

    window: Box
    width: float
    height: float
    columns: int
    rows: int

    @classmethod
    def over(cls, window: Box, columns: int) -> _Grid:
        """Return the grid whose cells are about as high as they are wide, in degrees."""
        width = window.east - window.west + (360 if window.east < window.west else 0)
        height = window.north - window.south
        columns = columns if width else 1
        wanted = columns * height / width if width else columns  # tiny widths: it may be infinite
        return cls(window, width, height, columns, max(round(min(wanted, MAX_ROWS)), 1))

    def cell(self, number: int) -> Box:
        """Return a cell; cells are numbered row by row, from the southwest."""
        row, column = divmod(number, self.columns)
        west, east = (self._longitude(column + step) for step in (0, 1))
        south, north = (
            self.window.south + self.height * (row + step) / self.rows for step in (0, 1)
        )
        return Box(west, south, east, min(north, self.window.north))

    def _longitude(self, column: int) -> float:
        if column == self.columns:
            return self.window.east
        longitude = self.window.west + self.width * column / self.columns
        return longitude - 360 if longitude > 180 else longitude


def count_subscriptions(
    registry: Registry, tenant: int, subscriber: str | None, window: Box, columns: int
) -> Density:
    """Count the subscriptions of a tenant, or of one of its subscribers, in the cells of a grid.

    Subscriptions count where they are now, also those that are paused, until they end. One counts
    in the cell that has the center of its bounding box, if that is in the window. Cells have their
    southern and western sides; the last ones have all sides.

    Parameters
    ----------
    registry
        The subscriptions. Another thread may change it meanwhile: then each change counts or not.
    tenant, subscriber
        Whose subscriptions.
    window
        What the grid covers; it may cross the antimeridian.
    columns
        How many columns the grid has; it gets as many rows as make its cells about square.
    """
    boxes = registry.boxes  # of every handle that the rows have: see `Registry.add`
    rows = registry.rows[: len(boxes)]
    status = rows["status"]
    chosen = (rows["tenant"] == tenant) & ((status == ACTIVE) | (status == PAUSED))
    if subscriber is not None:
        chosen &= rows["channel"] == registry.channel_of(Channel(tenant, subscriber))
    west, south, east, north = boxes[: len(rows)][chosen].T / UNITS
    overlap = _overlapping(west, south, east, north, window)
    west, south, east, north = (side[overlap] for side in (west, south, east, north))
    x = (west + east) / 2 + np.where(east < west, 180.0, 0.0)
    grid = _Grid.over(window, columns)
    counts = _counted(grid, x, (south + north) / 2)
    filled = np.flatnonzero(counts)
    cells = [Cell(grid.cell(int(number)), int(counts[number])) for number in filled]
    return Density(len(west), cells)


def _overlapping(
    west: NDArray[np.float64],
    south: NDArray[np.float64],
    east: NDArray[np.float64],
    north: NDArray[np.float64],
    window: Box,
) -> NDArray[np.intp]:
    """Return the rows of boxes that overlap a window, as the list of subscriptions finds them."""
    crosses = east < west
    found = np.zeros(len(west), np.bool_)
    for part in window.parts():
        begins, ends = west <= part.east, east >= part.west
        found |= np.where(crosses, begins | ends, begins & ends)
    found &= (south <= window.north) & (north >= window.south)
    return np.flatnonzero(found)


def _counted(grid: _Grid, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.intp]:
    """Count centers by the number of their cell; those outside of the window do not count."""
    east_of = (x - grid.window.west) % 360
    # A center on the eastern side of a window of 360 degrees is on its western side as well.
    inside = (east_of <= grid.width) & (y >= grid.window.south) & (y <= grid.window.north)
    column = np.minimum(
        (east_of[inside] * grid.columns / (grid.width or 1.0)).astype(np.int64), grid.columns - 1
    )
    row = np.minimum(
        ((y[inside] - grid.window.south) * grid.rows / (grid.height or 1.0)).astype(np.int64),
        grid.rows - 1,
    )
    return np.bincount(row * grid.columns + column, minlength=grid.columns * grid.rows)
