"""Polygons across the antimeridian, exact to the unit.

A polygon that crosses the antimeridian keeps its rings uncut: it begins between -180 and 180
degrees and its longitudes run past 180. Cutting it would make corners at fractions of a unit, and
rounding those would move the border by up to 1.5 cm.

Messages lie between -180 and 180, so a polygon is matched by two copies of each ring::

       -214.7  -180                                        180  214.7
          |      |                                          |     |
          | E====|E==E                                  W==W|==W  |      E = W moved by -360
          |______|__________________________________________|_____|

Copy W is right for places up to 180, copy E for places from -180 on. What lies outside of -180 to
180 is never looked at, so longitudes that do not fit into 32 bits (beyond 214.7 degrees) are
clamped there. That would bend an edge that reaches from beyond 214.7 degrees to below 180. Such
edges, longer than 34.7 degrees, get additional corners when the polygon is made (`split_edges`):
corners at whole units inside the polygon, such that no place changes sides.

All coordinates here are in units; rings are closed arrays of lon, lat.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.model.circles import Box

__all__ = ["copies", "crosses", "moved_into_range", "piece_boxes", "split_edges", "without_copies"]

_HALF_TURN = 180 * UNITS
_TURN = 360 * UNITS
_MAX = 2**31 - 1

_Step = tuple[int, int]


def moved_into_range(rings: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Return the rings of a part, outer ring first, moved so that they begin in [-180, 180)."""
    turns = (int(rings[0][:, 0].min()) + _HALF_TURN) // _TURN
    return [ring - np.array([turns * _TURN, 0]) for ring in rings] if turns else rings


def crosses(ring: NDArray[np.int64]) -> bool:
    """Whether an outer ring that begins in [-180, 180) crosses the antimeridian."""
    return bool(ring[:, 0].max() > _HALF_TURN)


def copies(ring: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the two copies of a ring by which places are matched, west and east.

    Examples
    --------
    >>> ring = np.array([(170, 0), (190, 0), (180, 5), (170, 0)]) * UNITS
    >>> [copy[:, 0].tolist() for copy in copies(ring)]
    [[1700000000, 1900000000, 1800000000, 1700000000],
     [-1900000000, -1700000000, -1800000000, -1900000000]]
    """
    west, east = ring.copy(), ring - np.array([_TURN, 0])
    west[:, 0] = np.minimum(west[:, 0], _MAX)
    east[:, 0] = np.maximum(east[:, 0], -_MAX)
    return west.astype(np.int32), east.astype(np.int32)


def without_copies(parts: list[list[NDArray[Any]]]) -> list[list[NDArray[Any]]]:
    """Return the original parts of parts in which those of western copies come before eastern."""
    originals: list[list[NDArray[Any]]] = []
    following = iter(parts)
    for rings in following:
        if crosses(rings[0]):
            copied = zip(rings, next(following, rings), strict=False)
            originals.append([_original(west, east) for west, east in copied])
        else:
            originals.append(rings)
    return originals


def _original(west: NDArray[np.int32], east: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the ring with these copies: a corner is clamped in one of them at most."""
    ring = west.astype(np.int64)
    clamped = ring[:, 0] == _MAX
    ring[clamped, 0] = east[clamped, 0].astype(np.int64) + _TURN
    return ring


def piece_boxes(ring: NDArray[np.int64]) -> list[Box]:
    """Return the boxes of an outer ring that crosses the antimeridian, to the west and east of it.

    Examples
    --------
    >>> piece_boxes(np.array([(170, 0), (190, 0), (190, 5), (170, 0)]) * UNITS)
    [(1700000000, 0, 1800000000, 25000000), (-1800000000, 0, -1700000000, 50000000)]
    """
    low, high = _crossings(ring)
    western, eastern = ring[:, 0] <= _HALF_TURN, ring[:, 0] >= _HALF_TURN
    boxes: list[Box] = []
    for side, west, east in (
        (western, int(ring[:, 0].min()), _HALF_TURN),
        (eastern, -_HALF_TURN, int(ring[:, 0].max()) - _TURN),
    ):
        lat = np.concatenate([ring[side, 1], low, high])
        boxes.append((west, int(lat.min()), east, int(lat.max())))
    return boxes


def _crossings(ring: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the latitudes where edges cross the antimeridian, rounded down and rounded up."""
    first, last = ring[:-1], ring[1:]
    backward = first[:, 0] > last[:, 0]
    west = np.where(backward[:, None], last, first)
    east = np.where(backward[:, None], first, last)
    across = (west[:, 0] < _HALF_TURN) & (east[:, 0] > _HALF_TURN)
    west, run = west[across], (east - west)[across]
    rise = run[:, 1] * (_HALF_TURN - west[:, 0])
    return west[:, 1] + rise // run[:, 0], west[:, 1] - (-rise // run[:, 0])


def split_edges(ring: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a ring without edges that clamping would bend.

    ``ring`` is an outer ring against the clock or a hole with the clock, so that the polygon is to
    the left of every edge. The new corners are the convex hull of the places to the left of an
    edge: each place stays on its side of the border.
    """
    west = np.minimum(ring[:-1, 0], ring[1:, 0])
    east = np.maximum(ring[:-1, 0], ring[1:, 0])
    bent = (west < _HALF_TURN) & (east > _HALF_TURN) & (ring[:-1, 1] != ring[1:, 1])
    bent &= (east > _MAX) | (west - _TURN < -_MAX)
    if not bent.any():
        return ring
    corners: list[NDArray[np.int64]] = []
    begin = 0
    for edge in np.flatnonzero(bent).tolist():
        between = _corners_left_of(ring[edge].tolist(), ring[edge + 1].tolist())
        corners += [ring[begin : edge + 1], np.array(between, np.int64).reshape(-1, 2)]
        begin = edge + 1
    return np.concatenate([*corners, ring[begin:]])


def _corners_left_of(first: list[int], last: list[int]) -> list[tuple[int, int]]:
    """Return the corners between the ends of an edge, among them one on the antimeridian."""
    if first[0] > last[0]:  # turn the plane around the place (180, 0)
        turned = _corners_left_of(*([_TURN - lon, -lat] for lon, lat in (first, last)))
        return [(_TURN - lon, -lat) for lon, lat in turned]
    (x0, y0), (x1, y1) = first, last
    rise, run = y1 - y0, x1 - x0
    # Places above the edge are those below it, mirrored; from the other end, turned around.
    before = [(x0 + x, y0 - y) for x, y in _hull_below(-rise, run, _HALF_TURN - x0)]
    after = [(x1 - x, y1 - y) for x, y in _hull_below(rise, run, x1 - _HALF_TURN)]
    return before + after[-2::-1]


def _hull_below(rise: int, run: int, width: int) -> list[_Step]:
    """Return the corners of the convex hull of the places on or below a line, from (0, 0) on.

    The line goes through (0, 0) with the slope ``rise / run``; the corners reach to ``width``. As
    the hull is convex, each step goes in the steepest direction that stays below the line.
    """
    x = y = 0
    corners = []
    while x < width:
        dx, dy = _steepest_below(rise, run, width - x)
        times = (width - x) // dx
        x, y = x + times * dx, y + times * dy
        corners.append((x, y))
    return corners


def _steepest_below(rise: int, run: int, widest: int) -> _Step:
    """Return the largest fraction up to ``rise / run`` with a denominator up to ``widest``.

    It comes as (denominator, numerator). This is how `fractions.Fraction.limit_denominator` finds
    the neighbors of a number: by its continued fraction.
    """
    shared = gcd(rise, run)
    rise, run = rise // shared, run // shared
    if run <= widest:
        return run, rise
    (p0, q0), (p1, q1) = (0, 1), (1, 0)
    left, right = rise, run
    while True:
        whole = left // right
        if q0 + whole * q1 > widest:
            break
        (p0, q0), (p1, q1) = (p1, q1), (p0 + whole * p1, q0 + whole * q1)
        left, right = right, left - whole * right
    times = (widest - q0) // q1
    p0, q0 = p0 + times * p1, q0 + times * q1
    return (q0, p0) if p0 * run <= rise * q0 else (q1, p1)
