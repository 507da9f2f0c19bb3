"""How far a message is from the boxes of a node, as a lower bound that is cheap to compute.

The *gap* between a message and a box never exceeds that between the message and any place in the
box. Its unit depends on the scoring, so that no root or arc is needed: the haversine (the square of
the sine of half the angle) on the sphere, square units on a flat map, and for overlap 0 where they
meet and 1 where they do not. A reach in meters becomes a *limit* in the same unit: a match is at
most that far away. It is `ANYWHERE` if distance does not matter and `NOWHERE` if no distance is
small enough.

On the sphere, with ``a`` and ``b`` the gaps between latitudes and between longitudes, and the
smallest cosines of latitude on both sides, ``sin(a/2)^2 + cos * cos * sin(b/2)^2`` is a lower
bound. Sines are the first terms of their series, which are below the sine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import EARTH_RADIUS_M, UNITS
from nearcast.compiled.distances import METERS_PER_UNIT, TURN
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.scoring import (
    PLANAR,
    RankedColumns,
    RankedMessages,
    ScoringCodes,
    reach_m,
    share,
)
from nearcast.compiled.shapes import RADIANS

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANYWHERE, NOWHERE = np.float32(np.inf), np.float32(-1.0)

ROUND_UP, ROUND_DOWN = 1.0 + 4e-7, 1.0 - 4e-7
"""Factors that make up for rounding to float32, and for the last bits of a gap."""

_QUARTER = 90.0 * UNITS


@inlined_kernel
def sine_below(angle: Number) -> Number:
    """Return a number that is at most the sine of an angle from 0 to a quarter turn, and near."""
    z = angle * angle
    return angle * (1.0 - z / 6.0 * (1.0 - z / 20.0 * (1.0 - z / 42.0)))


@inlined_kernel
def latitude_gap(south: Number, north: Number, box_south: Number, box_north: Number) -> Number:
    """Return the units between two ranges of latitudes; 0 if they meet."""
    return max(0.0, max(box_south - north, south - box_north))


@inlined_kernel
def longitude_gap(west: Number, east: Number, box_west: Number, box_east: Number) -> Number:
    """Return the units between two ranges of longitudes by the short way; 0 if they meet."""
    direct = max(box_west - east, west - box_east)
    round_the_world = np.float64(TURN) - (max(east, box_east) - min(west, box_west))
    return max(0.0, min(direct, round_the_world))


@inlined_kernel
def cosine_below(south: Number, north: Number) -> Number:
    """Return a number that is at most the cosine of every latitude of a range."""
    return sine_below((_QUARTER - max(abs(south), abs(north))) * RADIANS)


@inlined_kernel
def sphere_gap(along: Number, across: Number, cosines: Number) -> Number:
    """Return the gap of latitudes and longitudes that are these units apart."""
    a, b = sine_below(along * (0.5 * RADIANS)), sine_below(across * (0.5 * RADIANS))
    return a * a + cosines * (b * b)


@kernel
def write_gaps(
    codes: ScoringCodes,
    box: NDArray[np.int32],
    messages: RankedMessages,
    message: Number,
    most: Number,
    gap: NDArray[np.float64],
) -> None:
    """Write the gaps between a message and the first ``most`` slots of a node (int32[4, ...]).

    The boxes of unused slots have gaps without meaning.
    """
    for slot in range(most):
        gap[slot] = np.inf
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        west, south = np.float64(messages.box[piece, 0]), np.float64(messages.box[piece, 1])
        east, north = np.float64(messages.box[piece, 2]), np.float64(messages.box[piece, 3])
        if codes.proximity == 0:
            for slot in range(most):
                meets = (
                    (box[0, slot] <= east)
                    & (box[1, slot] <= north)
                    & (box[2, slot] >= west)
                    & (box[3, slot] >= south)
                )
                gap[slot] = min(gap[slot], 1.0 - np.float64(meets))
        elif codes.distance == PLANAR:
            for slot in range(most):
                along = latitude_gap(
                    south, north, np.float64(box[1, slot]), np.float64(box[3, slot])
                )
                across = longitude_gap(
                    west, east, np.float64(box[0, slot]), np.float64(box[2, slot])
                )
                gap[slot] = min(gap[slot], along * along + across * across)
        else:
            cosine = cosine_below(south, north)
            for slot in range(most):
                lowest, highest = np.float64(box[1, slot]), np.float64(box[3, slot])
                along = latitude_gap(south, north, lowest, highest)
                across = longitude_gap(
                    west, east, np.float64(box[0, slot]), np.float64(box[2, slot])
                )
                cosines = cosine * cosine_below(lowest, highest)
                gap[slot] = min(gap[slot], sphere_gap(along, across, cosines))


@kernel
def place_gap(
    codes: ScoringCodes, place: NDArray[np.int32], messages: RankedMessages, message: Number
) -> Number:
    """Return the gap between a message and a place: int32[2] for proximity, else a box."""
    gap = np.inf
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        west, south = np.float64(messages.box[piece, 0]), np.float64(messages.box[piece, 1])
        east, north = np.float64(messages.box[piece, 2]), np.float64(messages.box[piece, 3])
        if codes.proximity == 0:
            if place[0] <= east and place[1] <= north and place[2] >= west and place[3] >= south:
                return 0.0
            gap = 1.0
            continue
        lon, lat = np.float64(place[0]), np.float64(place[1])
        along = latitude_gap(south, north, lat, lat)
        across = longitude_gap(west, east, lon, lon)
        if codes.distance == PLANAR:
            gap = min(gap, along * along + across * across)
        else:
            cosines = cosine_below(south, north) * cosine_below(lat, lat)
            gap = min(gap, sphere_gap(along, across, cosines))
    return gap


@kernel
def near_slots(gap: NDArray[np.float64], limit: NDArray[np.float32], most: Number) -> Number:
    """Return the slots, of the first ``most``, whose gap is within their limit (float32[...])."""
    slots = np.uint64(0)
    for slot in range(most):
        slots |= np.uint64(gap[slot] <= np.float64(limit[slot])) << np.uint64(slot)
    return slots


@inlined_kernel
def gap_distance_m(codes: ScoringCodes, gap: Number) -> Number:
    """Return a distance in meters that is at most that of a gap; not for overlap.

    The first terms of the series of the arc sine are below it.
    """
    root = math.sqrt(gap)
    z = gap if codes.distance != PLANAR else 0.0
    factor = 2.0 * EARTH_RADIUS_M if codes.distance != PLANAR else METERS_PER_UNIT
    series = 1.0 + z * (1.0 / 6.0 + z * (3.0 / 40.0 + z * (15.0 / 336.0)))
    return factor * root * series * ROUND_DOWN


@kernel
def write_spaces(
    codes: ScoringCodes,
    box: NDArray[np.int32],
    size: NDArray[np.float32],
    messages: RankedMessages,
    message: Number,
    most: Number,
    space: NDArray[np.float64],
) -> None:
    """Write a bound of S for the first ``most`` slots of a node.

    ``size`` float32[...] has the largest distance (meters) or the smallest area of a slot.
    """
    if codes.proximity == 0:
        write_coverage(box, size, messages, message, most, space)
        return
    write_gaps(codes, box, messages, message, most, space)
    for slot in range(most):
        distance_m = gap_distance_m(codes, space[slot])
        space[slot] = max(0.0, 1.0 - distance_m / np.float64(size[slot]))


@kernel
def write_coverage(
    box: NDArray[np.int32],
    size: NDArray[np.float32],
    messages: RankedMessages,
    message: Number,
    most: Number,
    space: NDArray[np.float64],
) -> None:
    """Write a bound of the share of a region that a message covers, for slots of a node."""
    is_point = messages.area[message] == 0.0
    for slot in range(most):
        space[slot] = 0.0
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        west, south = np.float64(messages.box[piece, 0]), np.float64(messages.box[piece, 1])
        east, north = np.float64(messages.box[piece, 2]), np.float64(messages.box[piece, 3])
        for slot in range(most):
            width = min(east, np.float64(box[2, slot])) - max(west, np.float64(box[0, slot]))
            height = min(north, np.float64(box[3, slot])) - max(south, np.float64(box[1, slot]))
            meets = (width >= 0.0) & (height >= 0.0)
            least = np.float64(size[slot])
            whole = is_point | (least == 0.0)
            common = 1.0 if whole else width * height / least
            space[slot] += common if meets else 0.0
    for slot in range(most):
        space[slot] = min(1.0, space[slot])


@kernel
def limit_of(codes: ScoringCodes, rows: RankedColumns, row: Number, text: Number) -> Number:
    """Return the limit of a row for messages whose T is at most ``text``, rounded up."""
    max_distance_m = np.float64(rows.max_distance_cm[row]) / 100.0
    reach = reach_m(share(rows.text_share[row]), share(rows.threshold[row]), max_distance_m, text)
    if reach < 0.0:
        return NOWHERE
    if reach == np.inf:
        return ANYWHERE
    if codes.proximity == 0:
        return np.float32(0.0)
    if codes.distance == PLANAR:
        units = reach / METERS_PER_UNIT
        return np.float32(units * units * ROUND_UP)
    angle = reach / (2.0 * EARTH_RADIUS_M)
    if angle >= 0.5 * math.pi:
        return ANYWHERE
    root = math.sin(angle)
    return np.float32(root * root * ROUND_UP)
