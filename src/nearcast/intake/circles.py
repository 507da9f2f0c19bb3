"""The boxes of many circles at once, as `nearcast.model.circles.cap_boxes` gives them for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import EARTH_RADIUS_M, TOLERANCE_M, UNITS, WORLD
from nearcast.model.circles import HALF_TURN_M, MARGIN_M, OPPOSITE_M, TURN

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["circle_boxes"]


def circle_boxes(
    centre: NDArray[np.int32], radius_m: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return boxes that contain every place of the circles, and the circle of each box.

    Centres (lon, lat) and boxes are in units; the boxes of one circle (two where it crosses the
    antimeridian) are neighbours.

    Examples
    --------
    >>> circle, box = circle_boxes(np.array([[0, 0]], np.int32), np.array([1000.0]))
    >>> circle.tolist(), box.tolist()
    ([0], [[-89933, -89933, 89933, 89933]])
    """
    lon, lat = centre[:, 0].astype(np.int64), centre[:, 1].astype(np.int64)
    angle = (np.minimum(radius_m, HALF_TURN_M) + TOLERANCE_M + MARGIN_M) / EARTH_RADIUS_M
    reach = np.degrees(angle) * UNITS
    south = np.maximum(np.floor(lat - reach), WORLD[1]).astype(np.int64)
    north = np.minimum(np.ceil(lat + reach), WORLD[3]).astype(np.int64)
    pole_gap = np.radians((WORLD[3] - np.abs(lat)) / UNITS) - angle
    around = pole_gap <= 0.0
    gap = np.maximum(pole_gap, 0.0)
    along = np.sqrt(np.maximum(np.sin(gap) * np.sin(gap + 2.0 * angle), 0.0))
    spread = np.degrees(np.arctan2(np.sin(angle), along)) * UNITS
    west = np.where(around, WORLD[0], np.floor(lon - spread)).astype(np.int64)
    east = np.where(around, WORLD[2], np.ceil(lon + spread)).astype(np.int64)
    box = np.stack([west, south, east, north], axis=1)
    box[radius_m >= HALF_TURN_M - OPPOSITE_M] = WORLD
    return _cut(box)


def _cut(box: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Cut boxes that run past the antimeridian on one side."""
    over = (box[:, 0] < WORLD[0]) | (box[:, 2] > WORLD[2])
    number = np.repeat(np.arange(len(box)), 1 + over)
    pieces = box[number]
    second = np.concatenate([[False], number[1:] == number[:-1]])
    first = np.concatenate([second[1:], [False]])
    pieces[first & (pieces[:, 0] < WORLD[0]), 0] += TURN
    pieces[first, 2] = WORLD[2]
    pieces[second & (pieces[:, 2] > WORLD[2]), 2] -= TURN
    pieces[second, 0] = WORLD[0]
    return number, pieces.astype(np.int32)
