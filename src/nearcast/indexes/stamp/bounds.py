"""How far away a match can be: reaches of postings, distances to regions and to their borders.

Every bound is on the safe side: a reach is never too short, a distance never too long. Sections
III-B, IV and V-A of the paper, with what `nearcast.indexes.stamp` says about its print.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS, EARTH_RADIUS_M, UNITS
from nearcast.compiled.distances import (
    METERS_PER_UNIT,
    arc,
    box_distance_m,
    meridian_distance_m,
    short_way,
    sine,
)
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.scoring import (
    PLANAR,
    RankedColumns,
    RankedMessages,
    ScoringCodes,
    reach_m,
    share,
    text_bound,
)
from nearcast.compiled.shapes import RADIANS
from nearcast.indexes.stamp.layout import (
    DUMMY,
    LAST_SHIFT,
    MAX_REMAINING,
    PARENT,
    REGIONS,
    REMAINING_SHIFT,
    SETS,
    StampArrays,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

INSIDE, FAR = -1.0, 3.0e38
"""Gaps of regions that a message meets, and that are beyond every finite reach."""

_ROUNDING = 1.0 + 1.5e-7
"""More than float32 can lose of a number."""


class Plan(NamedTuple):
    """The postings of one subscription, as arrays with room for its tokens and the dummy.

    ``token`` int32, ``reach`` float32 (rounded up), ``alone`` float32: the same if no later token
    is shared; ``info`` int32: set, last set and remaining tokens. ``suffix`` float64: the weight
    of every token and those behind it.
    """

    token: NDArray[np.int32]
    reach: NDArray[np.float32]
    alone: NDArray[np.float32]
    info: NDArray[np.int32]
    suffix: NDArray[np.float64]


def make_plan(tokens: int) -> Plan:
    """Return room for the postings of subscriptions with at most this number of tokens."""
    return Plan(
        np.empty(tokens + 1, np.int32),
        np.empty(tokens + 1, np.float32),
        np.empty(tokens + 1, np.float32),
        np.empty(tokens + 1, np.int32),
        np.empty(tokens + 2, np.float64),
    )


@kernel
def rounded_up(reach: Number) -> Number:
    """Return a reach as float32, not smaller than it was."""
    return np.float32(reach * _ROUNDING) if reach > 0.0 else np.float32(reach)


@kernel
def plan_postings(
    codes: ScoringCodes, rows: RankedColumns, row: Number, sets: Number, plan: Plan
) -> Number:
    """Write the postings of a row, the heaviest token first, the dummy last; return their number.

    Without ``sets``, only those of the first signature set.
    """
    token, reach, alone, info, suffix = plan
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    largest_m = np.float64(rows.max_distance_cm[row]) / np.float64(CENTIMETERS)
    own, first = rows.text_weight[row], rows.token_start[row]
    tokens = rows.token_start[row + 1] - first
    suffix[tokens] = 0.0
    for i in range(tokens - 1, -1, -1):
        suffix[i] = suffix[i + 1] + rows.token_weight[first + i]
    current, count = 0, 0
    heaviest: Number = np.float64(0.0)
    while count < tokens:
        weight = rows.token_weight[first + count]
        text = text_bound(codes.similarity, heaviest + suffix[count], own)
        far = reach_m(p, q, largest_m, text)
        if far < 0.0 and (not sets or count == 0):
            break
        if far < 0.0 and current < min(SETS, tokens) - 1:
            # This set ends before the token: a match shares one token more than it says.
            heaviest += rows.token_weight[first + current]
            current += 1
            continue
        token[count], reach[count] = rows.token[first + count], rounded_up(max(far, 0.0))
        text = text_bound(codes.similarity, heaviest + weight, own)
        alone[count] = rounded_up(reach_m(p, q, largest_m, text))
        remaining = min(tokens - 1 - count, MAX_REMAINING)
        info[count] = np.int32(current | (remaining << REMAINING_SHIFT))
        count += 1
    for i in range(count):
        info[i] |= np.int32(current << LAST_SHIFT)
    far = reach_m(p, q, largest_m, text_bound(codes.similarity, 0.0, own))
    if far >= 0.0:
        token[count], reach[count], alone[count] = DUMMY, rounded_up(far), np.float32(np.inf)
        info[count] = 0
        count += 1
    return count


# --- regions -------------------------------------------------------------------------------------


@kernel
def border_distance_m(
    codes: ScoringCodes, lon: Number, lat: Number, box: NDArray[np.int32]
) -> Number:
    """Return at most the distance from a place in a box to what is outside the box.

    For meridians, that to the whole great circle, which is never more than that to a side.
    """
    along = min(lat - np.float64(box[1]), np.float64(box[3]) - lat)
    across = min(lon - np.float64(box[0]), np.float64(box[2]) - lon)
    if codes.distance == PLANAR:
        return max(0.0, min(along, across)) * METERS_PER_UNIT
    nearest = along * METERS_PER_UNIT
    if across < 90.0 * UNITS:
        # Beyond a quarter turn the way out leads over a pole, behind the parallel.
        out = sine(across * RADIANS) * sine((90.0 * UNITS - abs(lat)) * RADIANS)
        nearest = min(nearest, EARTH_RADIUS_M * arc(min(out * out, 0.5)))
    return max(0.0, nearest * (1.0 - 1e-12) - 1e-6)


@kernel
def box_gap_m(piece: NDArray[np.int32], box: NDArray[np.int32]) -> Number:
    """Return the distance between two boxes of different longitudes on the sphere.

    Meridians come closer towards the poles, so one end of one of the two sides is nearest.
    """
    nearest = np.inf
    south, north = np.float64(box[1]), np.float64(box[3])
    low, high = np.float64(piece[1]), np.float64(piece[3])
    for side in range(0, 4, 2):
        ours, theirs = np.float64(piece[side]), np.float64(box[2 - side])
        nearest = min(
            nearest,
            meridian_distance_m(ours, low, theirs, south, north),
            meridian_distance_m(ours, high, theirs, south, north),
            meridian_distance_m(theirs, south, ours, low, high),
            meridian_distance_m(theirs, north, ours, low, high),
        )
    return nearest


@kernel
def turn_within(radius_m: Number, latitude: Number) -> Number:
    """Return the largest difference of longitudes, in units, within a radius of a latitude."""
    radius = radius_m / EARTH_RADIUS_M
    to_pole = math.pi / 2.0 - abs(latitude) * RADIANS
    if radius >= to_pole - 1e-9:
        return 180.0 * UNITS
    return math.asin(min(1.0, math.sin(radius) / math.sin(to_pole))) / RADIANS * (1.0 + 1e-9) + 2.0


@kernel
def region_gap_m(
    codes: ScoringCodes,
    piece: NDArray[np.int32],
    box: NDArray[np.int32],
    radius_m: Number,
    turn: Number,
) -> Number:
    """Return at most the distance from a piece of a message to a region.

    `INSIDE` if they meet, `FAR` beyond ``radius_m`` (``turn``, as longitude).
    """
    west, south = np.float64(box[0]), np.float64(box[1])
    east, north = np.float64(box[2]), np.float64(box[3])
    left, low = np.float64(piece[0]), np.float64(piece[1])
    right, high = np.float64(piece[2]), np.float64(piece[3])
    along = max(0.0, south - high, low - north)
    across = 0.0
    if left > east or right < west:
        across = min(short_way(west - right), short_way(left - east))
    if along * METERS_PER_UNIT > radius_m or across > turn:
        return FAR
    if along == 0.0 and across == 0.0:
        return INSIDE
    if codes.distance == PLANAR:
        distance = math.sqrt(across * across + along * along) * METERS_PER_UNIT
    elif left == right and low == high:
        distance = box_distance_m(left, low, box)
    elif across == 0.0:
        distance = along * METERS_PER_UNIT
    else:
        distance = box_gap_m(piece, box)
    return max(0.0, distance * (1.0 - 1e-9) - 1e-6)


@kernel
def measure_regions(
    codes: ScoringCodes,
    stamp: StampArrays,
    messages: RankedMessages,
    message: Number,
    radius_m: Number,
    gap: NDArray[np.float64],
) -> None:
    """Write the distance from a message to every region; see `region_gap_m`."""
    box, region = stamp.box, stamp.region
    count = stamp.state[REGIONS]
    gap[0] = INSIDE
    for r in range(1, count):
        gap[r] = FAR
    for i in range(messages.piece_start[message], messages.piece_start[message + 1]):
        piece = messages.box[i]
        turn = radius_m / METERS_PER_UNIT + 2.0
        if codes.distance != PLANAR:
            turn = turn_within(radius_m, np.float64(max(abs(piece[1]), abs(piece[3]))))
        for r in range(1, count):
            if gap[region[r, PARENT]] < FAR:
                gap[r] = min(gap[r], region_gap_m(codes, piece, box[r], radius_m, turn))
