"""Circles on the sphere: their bounding boxes, one by one or by the array, and outlines to draw.

A circle of angular radius d around latitude p that contains no pole reaches asin(sin d / cos p) in
longitude to both sides of its center; one that contains a pole has all longitudes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import EARTH_RADIUS_M, TOLERANCE_M, UNITS, WORLD

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "TURN",
    "Box",
    "cap_boxes",
    "circle_boxes",
    "outline",
    "reaches_poles",
]

Box = tuple[int, int, int, int]
"""West, south, east and north, in units; west <= east."""

TURN = 360 * UNITS

_HALF_TURN_M = math.pi * EARTH_RADIUS_M

# The error of a distance in floating point is far less than this margin, except for places nearly
# opposite to the center. A circle that reaches those gets the whole world as its box.
_MARGIN_M = 1e-3
_OPPOSITE_M = 1_000.0


def cap_boxes(lon: int, lat: int, radius_m: float) -> list[Box]:
    """Return one or two boxes that contain a circle; center and boxes are in units.

    Examples
    --------
    >>> cap_boxes(0, 0, 1000.0)
    [(-89933, -89933, 89933, 89933)]
    """
    if radius_m >= _HALF_TURN_M - _OPPOSITE_M:
        return [WORLD]
    angle = (radius_m + TOLERANCE_M + _MARGIN_M) / EARTH_RADIUS_M
    reach = math.degrees(angle) * UNITS
    south = max(math.floor(lat - reach), WORLD[1])
    north = min(math.ceil(lat + reach), WORLD[3])
    pole_gap = math.radians((WORLD[3] - abs(lat)) / UNITS) - angle
    if pole_gap <= 0.0:
        return [(WORLD[0], south, WORLD[2], north)]
    # cos(p)^2 - sin(d)^2 = cos(p + d) cos(p - d), which keeps its precision close to a pole.
    along = math.sqrt(math.sin(pole_gap) * math.sin(pole_gap + 2.0 * angle))
    spread = math.degrees(math.atan2(math.sin(angle), along)) * UNITS
    return _wrapped(math.floor(lon - spread), south, math.ceil(lon + spread), north)


def _wrapped(west: int, south: int, east: int, north: int) -> list[Box]:
    """Return a box, cut in two if it runs past the antimeridian on one side."""
    if west < WORLD[0]:
        return [(west + TURN, south, WORLD[2], north), (WORLD[0], south, east, north)]
    if east > WORLD[2]:
        return [(west, south, WORLD[2], north), (WORLD[0], south, east - TURN, north)]
    return [(west, south, east, north)]


def circle_boxes(
    center: NDArray[np.int32], radius_m: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the boxes of many circles, as `cap_boxes` does for one, and the circle of each box.

    ``center`` is (n, 2), lon and lat in units. The two boxes of a circle that crosses the
    antimeridian follow each other.

    Examples
    --------
    >>> circle, box = circle_boxes(np.array([[0, 0]], np.int32), np.array([1000.0]))
    >>> circle.tolist(), box.tolist()
    ([0], [[-89933, -89933, 89933, 89933]])
    """
    lon, lat = center[:, 0].astype(np.int64), center[:, 1].astype(np.int64)
    angle = (np.minimum(radius_m, _HALF_TURN_M) + TOLERANCE_M + _MARGIN_M) / EARTH_RADIUS_M
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
    box[radius_m >= _HALF_TURN_M - _OPPOSITE_M] = WORLD
    return _all_wrapped(box)


def _all_wrapped(box: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Cut boxes in two that run past the antimeridian on one side."""
    over = (box[:, 0] < WORLD[0]) | (box[:, 2] > WORLD[2])
    number = np.repeat(np.arange(len(box)), 1 + over)
    pieces = box[number]
    second = np.diff(number, prepend=-1) == 0
    first = np.diff(number, append=-1) == 0
    pieces[first & (pieces[:, 0] < WORLD[0]), 0] += TURN
    pieces[first, 2] = WORLD[2]
    pieces[second & (pieces[:, 2] > WORLD[2]), 2] -= TURN
    pieces[second, 0] = WORLD[0]
    return number, pieces.astype(np.int32)


def reaches_poles(lat: float, radius_m: float) -> tuple[bool, bool]:
    """Return whether a circle contains the south pole and whether it contains the north pole."""
    angle = math.degrees(radius_m / EARTH_RADIUS_M)
    return lat + 90.0 < angle, 90.0 - lat < angle


def outline(lon: float, lat: float, radius_m: float, corners: int) -> NDArray[np.float64]:
    """Return a closed ring of lon, lat in degrees on a circle that contains at most one pole.

    Longitudes may run past 180. A ring around a pole goes once around the world, then along the
    pole and back.
    """
    ring = _corners(lon, lat, radius_m, corners)
    south, north = reaches_poles(lat, radius_m)
    if not (south or north):
        return np.vstack([ring, ring[:1]])
    ring = ring[np.argsort(ring[:, 0], kind="stable")]
    west, east = lon - 180.0, lon + 180.0
    seam = float(np.interp(west, ring[:, 0], ring[:, 1], period=360.0))
    pole = 90.0 if north else -90.0
    start = [(west, pole), (west, seam)]
    return np.vstack([start, ring, [(east, seam), (east, pole), (west, pole)]])


def _corners(lon: float, lat: float, radius_m: float, corners: int) -> NDArray[np.float64]:
    """Return places at this distance from the center, ordered by bearing."""
    angle, phi = radius_m / EARTH_RADIUS_M, math.radians(lat)
    bearing = -np.arange(corners) * (2.0 * np.pi / corners)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * np.cos(bearing)
    sine = np.clip(sine, -1.0, 1.0)
    turn = np.arctan2(
        np.sin(bearing) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sine
    )
    return np.column_stack([lon + np.degrees(turn), np.degrees(np.arcsin(sine))])
