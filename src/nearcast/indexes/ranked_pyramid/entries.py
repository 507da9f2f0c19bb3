"""The reduction: a ranked subscription becomes a few entries, each a token, a reach and conditions.

The tokens of a subscription have an order, the heaviest first. If ti is the first one that a
message has, the message shares at most ti and what follows it, which bounds T, and so says how near
it must be: its *reach*. So a subscription has an entry in the list of each token that has a reach,
and one in the list of `NO_TOKEN` if it can match without any token. An entry is accepted if its
token is the first one shared: for every match, that is exactly one of them.

Refinements, all exact:

- *needs*: if ti alone is never enough, the next shared token is one of those with which it may be.
  Up to two are hashed into the entry.
- *split*: if ti alone reaches less far than with the others and at most two tokens follow: an entry
  for "with another", and one for "alone".
- *merge*: if all tokens together reach hardly further than none, one entry that needs no token.
- *limits*: where T falls as messages grow, an entry notes the largest weight of a message with
  which it may match. An entry of a region notes the least area of a message that can cover enough
  of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS, EARTH_RADIUS_M, TOLERANCE_M, UNITS, WORLD
from nearcast.compiled.distances import METERS_PER_UNIT, TURN
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.scoring import (
    DICE,
    GUARD,
    JACCARD,
    PLANAR,
    TOLERANCE,
    RankedColumns,
    ScoringCodes,
    feasible,
    need,
    reach_m,
    share,
    text_bound,
)
from nearcast.compiled.shapes import RADIANS
from nearcast.indexes.ranked_pyramid.layout import (
    ALONE,
    ALWAYS,
    BY_AREA,
    BY_WEIGHT,
    HASHES,
    NO_POSITION,
    SPECIAL,
    WITH_OTHERS,
    area_code,
    pack_flags,
    sift_mode,
    token_hash,
    weight_code,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MERGE = 1.3
"""Entries are merged if all tokens together reach at most this many times as far as none."""

SPLIT = 0.8
"""An entry is split if its token alone reaches less than this share of the whole reach."""

MAX_FOLLOWING = 2
"""Tokens that may follow the token of an entry that is split, and tokens that are hashed."""

# The margins of `nearcast.model.circles`.
_MARGIN_M = 1e-3
_HALF_TURN_M = math.pi * EARTH_RADIUS_M
_OPPOSITE_M = 1_000.0

_WIDE = 355.0 * UNITS
"""Flat boxes of this width count as all round the world: cut in two, they might touch twice."""

_SHORT_M, _SHORT_LON, _SHORT_LAT = 1_000_000.0, 140 * UNITS, 70 * UNITS
"""A cap of up to this radius, this near to the equator, extends over less than 40 degrees."""


class Reduction(NamedTuple):
    """The subscriptions to reduce.

    ``special`` int32[rows]: -1, or the number of a subscription that does not fit a record.
    """

    codes: ScoringCodes
    rows: RankedColumns
    special: NDArray[np.int32]


class Thresholds(NamedTuple):
    """What the entries of one subscription depend on.

    ``mode`` is that of `sift_mode`, ``own`` the weight of its tokens, ``area`` that of its region.
    """

    similarity: Number
    mode: Number
    proximity: Number
    p: Number
    q: Number
    max_distance_m: Number
    own: Number
    area: Number


class RowEntries(NamedTuple):
    """The entries of one subscription; each array has room for two per token and two more.

    - ``position`` int64[any]: of the token among those of the subscription; -1 for none.
    - ``reach`` float64[any]: in meters; infinite for anywhere. For overlap, 1 is the region.
    - ``upper`` uint64[any]: the upper half of the word of the entry.
    - ``suffix`` float64[any]: the weight of each token and all after it.
    """

    position: NDArray[np.int64]
    reach: NDArray[np.float64]
    upper: NDArray[np.uint64]
    suffix: NDArray[np.float64]


def new_row_entries(tokens: int) -> RowEntries:
    """Return room for the entries of subscriptions of at most ``tokens`` tokens."""
    size = 2 * tokens + 2
    return RowEntries(
        np.empty(size, np.int64), np.empty(size), np.empty(size, np.uint64), np.empty(size)
    )


@inlined_kernel
def thresholds_of(reduction: Reduction, row: Number) -> Thresholds:
    """Return what the entries of a subscription depend on."""
    codes, rows = reduction.codes, reduction.rows
    distance_m = np.float64(rows.max_distance_cm[row]) / CENTIMETERS
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    own, area = rows.text_weight[row], rows.area[row]
    similarity, mode = codes.similarity, sift_mode(codes)
    return Thresholds(similarity, mode, codes.proximity, p, q, distance_m, own, area)


@kernel
def reach_of(one: Thresholds, shared: Number) -> Number:
    """Return how far a match can be if it shares at most this weight."""
    text = text_bound(one.similarity, shared, one.own)
    if one.proximity:
        return reach_m(one.p, one.q, one.max_distance_m, text)
    reach = reach_m(one.p, one.q, 1.0, text)
    return 1.0 if 0.0 <= reach < np.inf else reach


@kernel
def weight_limit(one: Thresholds, shared: Number) -> Number:
    """Return the code of the largest weight M of a message that shares at most this weight."""
    least = one.q - (TOLERANCE + GUARD) - (1.0 - one.p)
    if least <= 0.0 or one.p <= 0.0 or one.own == 0.0 or shared <= 0.0:
        return np.int64(HASHES - 1)
    least /= one.p
    if one.similarity == JACCARD:
        limit = shared / least - one.own + shared
    elif one.similarity == DICE:
        limit = 2.0 * shared / least - one.own
    else:
        limit = (shared / least) * (shared / least) / one.own
    return weight_code(limit * (1.0 + 1e-9) + 1e-9)


@kernel
def least_area(one: Thresholds, shared: Number) -> Number:
    """Return the code of the least area of a message that shares at most this weight."""
    needed = need(one.p, one.q, text_bound(one.similarity, shared, one.own))
    if needed <= 0.0 or one.p >= 1.0:
        return np.int64(0)
    return area_code(one.area * (needed / (1.0 - one.p)) * (1.0 - 1e-9))


@kernel
def upper_half(
    one: Thresholds, entry: tuple[Number, Number, Number], next_token: Number, second: Number
) -> Number:
    """Return the upper half of a word, from position, flags and shared weight of the entry.

    ``next_token`` and ``second`` are the tokens one of which must occur, -1 for none.
    """
    position, flags, shared = entry
    first_hash = second_hash = np.uint64(0)
    mark = np.int64(0)
    if next_token >= 0:
        first_hash = second_hash = token_hash(next_token)
    if second >= 0:
        second_hash = token_hash(second)
    if one.mode == BY_WEIGHT:
        if second >= 0:
            first_hash = np.uint64(0)
        second_hash = np.uint64(weight_limit(one, shared))
    elif one.mode == BY_AREA:
        if second >= 0:
            mark = np.int64(1)
        else:
            second_hash = np.uint64(0 if flags == SPECIAL else least_area(one, shared))
    return pack_flags(position, mark, flags, first_hash, second_hash)


@inlined_kernel
def reduce_row(reduction: Reduction, row: Number, entries: RowEntries) -> Number:
    """Write the entries of a subscription; return how many there are."""
    rows, suffix = reduction.rows, entries.suffix
    token, weight, begin = rows.token, rows.token_weight, rows.token_start[row]
    tokens = rows.token_start[row + 1] - begin
    one, special = thresholds_of(reduction, row), reduction.special[row] >= 0
    count = np.int64(0)
    total: Number = 0.0
    for i in range(tokens - 1, -1, -1):
        total += weight[begin + i]
        suffix[i] = total
    without, together = reach_of(one, 0.0), reach_of(one, total)
    merged = tokens == 0 or (without >= 0.0 and together <= MERGE * without)
    if merged:
        flags = SPECIAL if special else ALWAYS
        shared = 0.0 if special else total
        entries.position[count], entries.reach[count] = -1, together
        entries.upper[count] = upper_half(one, (NO_POSITION, flags, shared), -1, -1)
        count += 1
    whole = together
    for i in range(0 if merged else tokens):
        own, after = weight[begin + i], tokens - 1 - i
        alone = reach_of(one, own)
        flags, shared, needed = WITH_OTHERS | ALONE, suffix[i], np.int64(0)
        is_split = False
        if special:
            flags, shared = SPECIAL, 0.0
        elif after > 0 and alone < 0.0:
            # The next shared token is one with which this one may be enough.
            flags = WITH_OTHERS
            while needed < after:
                text = text_bound(one.similarity, own + suffix[i + 1 + needed], one.own)
                if not feasible(one.p, one.q, text, 1.0):
                    break
                needed += 1
        elif 0 < after <= MAX_FOLLOWING and alone < SPLIT * whole:
            flags, needed, is_split = WITH_OTHERS, after, True
        next_token = second = np.int64(-1)
        if 0 < needed <= MAX_FOLLOWING:
            next_token = np.int64(token[begin + i + 1])
            if needed == MAX_FOLLOWING:
                second = np.int64(token[begin + i + 2])
        position = NO_POSITION if special else i
        entries.position[count], entries.reach[count] = i, whole
        entries.upper[count] = upper_half(one, (position, flags, shared), next_token, second)
        count += 1
        if is_split:
            entries.position[count], entries.reach[count] = i, alone
            entries.upper[count] = upper_half(one, (position, ALONE, own), -1, -1)
            count += 1
        if after > 0:
            whole = reach_of(one, suffix[i + 1])
            if whole < 0.0:
                break
    if without >= 0.0 and not merged:
        flags = SPECIAL if special else ALONE
        entries.position[count], entries.reach[count] = -1, without
        entries.upper[count] = upper_half(one, (NO_POSITION, flags, 0.0), -1, -1)
        count += 1
    return count


@inlined_kernel
def is_sole(reduction: Reduction, row: Number, count: Number, entries: RowEntries) -> Number:
    """Tell whether the one entry of a subscription is a sure match wherever the message is."""
    rows = reduction.rows
    if count != 1 or entries.position[0] != 0 or entries.reach[0] < np.inf:
        return False
    if sift_mode(reduction.codes) == BY_WEIGHT or reduction.special[row] >= 0:
        return False
    one = rows.token_start[row + 1] - rows.token_start[row] == 1
    return one and share(rows.text_share[row]) >= share(rows.threshold[row]) - TOLERANCE


# --- boxes ---------------------------------------------------------------------------------------


@kernel
def wrap_box(
    west: Number, south: Number, east: Number, north: Number, box: NDArray[np.int32]
) -> Number:
    """Write a box, in two pieces if it runs past the antimeridian; return how many."""
    for i in range(2):
        box[i, 1], box[i, 3] = np.int32(south), np.int32(north)
    box[0, 0], box[0, 2] = np.int32(max(west, WORLD[0])), np.int32(min(east, WORLD[2]))
    if west >= WORLD[0] and east <= WORLD[2]:
        return np.int64(1)
    box[1, 0], box[1, 2] = np.int32(WORLD[0]), np.int32(east)
    if west < WORLD[0]:
        box[0, 0] = np.int32(west + TURN)
    else:
        box[1, 2] = np.int32(east - TURN)
    box[0, 2] = np.int32(WORLD[2])
    return np.int64(2)


@kernel
def cap_box(
    planar: Number, lon: Number, lat: Number, reach: Number, box: NDArray[np.int32]
) -> Number:
    """Write one or two boxes that contain all places within a reach; return how many.

    0 if that may be the whole world. ``box`` int32[2, 4]. See `nearcast.model.circles.cap_boxes`.
    """
    if reach == np.inf:
        return np.int64(0)
    reach += TOLERANCE_M + _MARGIN_M
    units = reach / METERS_PER_UNIT
    south = max(math.floor(lat - units), float(WORLD[1]))
    north = min(math.ceil(lat + units), float(WORLD[3]))
    around = False
    spread = units
    if planar:
        around = 2.0 * units >= _WIDE
    else:
        if reach >= _HALF_TURN_M - _OPPOSITE_M:
            return np.int64(0)
        angle = reach / EARTH_RADIUS_M
        pole_gap = (WORLD[3] - abs(lat)) * RADIANS - angle
        around = pole_gap <= 0.0
        if not around:
            along = math.sqrt(math.sin(pole_gap) * math.sin(pole_gap + 2.0 * angle))
            spread = math.atan2(math.sin(angle), along) / RADIANS
    if not around:
        west, east = np.int64(math.floor(lon - spread)), np.int64(math.ceil(lon + spread))
        return wrap_box(west, np.int64(south), east, np.int64(north), box)
    if south == WORLD[1] and north == WORLD[3]:
        return np.int64(0)
    return wrap_box(np.int64(WORLD[0]), np.int64(south), np.int64(WORLD[2]), np.int64(north), box)


@inlined_kernel
def entry_boxes(reduction: Reduction, row: Number, reach: Number, box: NDArray[np.int32]) -> Number:
    """Write the boxes of an entry; return how many, 0 if it has none.

    ``box`` int32[any, 4] has room for two boxes, and for all of any region.
    """
    if reach == np.inf:
        return np.int64(0)
    rows = reduction.rows
    begin = rows.box_start[row]
    if reduction.codes.proximity:
        lon, lat = np.float64(rows.box[begin, 0]), np.float64(rows.box[begin, 1])
        return cap_box(reduction.codes.distance == PLANAR, lon, lat, reach, box)
    count = rows.box_start[row + 1] - begin
    for i in range(count):
        for side in range(4):
            box[i, side] = rows.box[begin + i, side]
    return count


@inlined_kernel
def count_boxes(reduction: Reduction, row: Number, reach: Number, box: NDArray[np.int32]) -> Number:
    """Return the number of boxes of an entry: without sines, if it is far from the antimeridian."""
    if reduction.codes.proximity and reach < _SHORT_M:
        begin = reduction.rows.box_start[row]
        lon, lat = reduction.rows.box[begin, 0], reduction.rows.box[begin, 1]
        if abs(lon) < _SHORT_LON and abs(lat) < _SHORT_LAT:
            return np.int64(1)
    return entry_boxes(reduction, row, reach, box)


@inlined_kernel
def sole_box(reduction: Reduction, row: Number, box: NDArray[np.int32]) -> None:
    """Write a box outside of which a sole entry has no nearness: S is 0."""
    rows = reduction.rows
    reach = 1.0
    if reduction.codes.proximity:
        reach = np.float64(rows.max_distance_cm[row]) / CENTIMETERS
    count = entry_boxes(reduction, row, reach, box)
    if count != 1:
        box[0, 0], box[0, 2] = WORLD[0], WORLD[2]
    if count == 0:
        box[0, 1], box[0, 3] = WORLD[1], WORLD[3]
