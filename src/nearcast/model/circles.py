"""Circles on the sphere: the boxes that contain them, and an outline to draw.

A cap of angular radius d around latitude p that leaves out the poles reaches asin(sin d / cos p) in
longitude to either side of its centre; one that contains a pole reaches all around.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import EARTH_RADIUS_M, TOLERANCE_M, UNITS, WORLD

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "HALF_TURN_M",
    "MARGIN_M",
    "OPPOSITE_M",
    "TURN",
    "Box",
    "cap_boxes",
    "outline",
    "reaches_poles",
]

Box = tuple[int, int, int, int]
"""West, south, east and north, in units; west <= east."""

HALF_TURN_M = math.pi * EARTH_RADIUS_M
TURN = 360 * UNITS

# Distances computed in floating point are wrong by far less than this, except for places that are
# nearly opposite to the centre: a circle that reaches those is given the whole world.
MARGIN_M = 1e-3
OPPOSITE_M = 1_000.0


def cap_boxes(lon: int, lat: int, radius_m: float) -> list[Box]:
    """Return one or two boxes with every place of a circle; centre and boxes in units.

    Examples
    --------
    >>> cap_boxes(0, 0, 1000.0)
    [(-89933, -89933, 89933, 89933)]
    """
    if radius_m >= HALF_TURN_M - OPPOSITE_M:
        return [WORLD]
    angle = (radius_m + TOLERANCE_M + MARGIN_M) / EARTH_RADIUS_M
    reach = math.degrees(angle) * UNITS
    south = max(math.floor(lat - reach), WORLD[1])
    north = min(math.ceil(lat + reach), WORLD[3])
    pole_gap = math.radians((WORLD[3] - abs(lat)) / UNITS) - angle
    if pole_gap <= 0.0:
        return [(WORLD[0], south, WORLD[2], north)]
    # cos(p)^2 - sin(d)^2 = cos(p + d) cos(p - d), which keeps its precision close to a pole.
    along = math.sqrt(math.sin(pole_gap) * math.sin(pole_gap + 2.0 * angle))
    spread = math.degrees(math.atan2(math.sin(angle), along)) * UNITS
    return wrapped(math.floor(lon - spread), south, math.ceil(lon + spread), north)


def wrapped(west: int, south: int, east: int, north: int) -> list[Box]:
    """Return the box, cut in two where it runs past the antimeridian on one side."""
    if west < WORLD[0]:
        return [(west + TURN, south, WORLD[2], north), (WORLD[0], south, east, north)]
    if east > WORLD[2]:
        return [(west, south, WORLD[2], north), (WORLD[0], south, east - TURN, north)]
    return [(west, south, east, north)]


def reaches_poles(lat: float, radius_m: float) -> tuple[bool, bool]:
    """Return whether a circle contains the south pole and whether it contains the north pole."""
    angle = math.degrees(radius_m / EARTH_RADIUS_M)
    return lat + 90.0 < angle, 90.0 - lat < angle


def outline(lon: float, lat: float, radius_m: float, corners: int) -> NDArray[np.float64]:
    """Return a closed ring of lon, lat in degrees around a circle that contains one pole at most.

    Longitudes may run past 180. A ring around a pole runs once around the world, then along the
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
    """Return places at this distance from the centre, in the order of their bearings."""
    angle, phi = radius_m / EARTH_RADIUS_M, math.radians(lat)
    bearing = -np.arange(corners) * (2.0 * np.pi / corners)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * np.cos(bearing)
    sine = np.clip(sine, -1.0, 1.0)
    turn = np.arctan2(
        np.sin(bearing) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sine
    )
    return np.column_stack([lon + np.degrees(turn), np.degrees(np.arcsin(sine))])
