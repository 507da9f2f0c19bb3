"""The reduction: a ranked subscription becomes a few entries, each a token, a reach and conditions.

The tokens of a subscription have an order, the heaviest first. If ti is the first one that a
message has, the message shares at most ti and what follows it, which bounds T, and so says how near
it must be: its *reach*. So a subscription has an entry in the list of each token that has a reach,
and one in the list of `NO_TOKEN` if it can match without any token. An entry is accepted if its
token is the first one shared: for every match, that is exactly one of them.

Refinements, all exact (`U` bounds T by the weight that is shared):

- *needs*: if ti alone is never enough, the next shared token is one of those with which it may be.
  Up to two are hashed into the entry.
- *split*: if ti alone reaches less far than with the others and at most two tokens follow: an entry
  for "with another", and one for "alone".
- *merge*: if all tokens together reach hardly further than none, one entry that needs no token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS, EARTH_RADIUS_M, TOLERANCE_M, UNITS, WORLD
from nearcast.compiled.distances import METERS_PER_UNIT, TURN
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.scoring import (
    COSINE,
    DICE,
    GUARD,
    JACCARD,
    PLANAR,
    TOLERANCE,
    RankedColumns,
    ScoringCodes,
    feasible,
    reach_m,
    share,
    text_bound,
)
from nearcast.compiled.shapes import RADIANS
from nearcast.indexes.ranked_pyramid.layout import (
    ALONE,
    ALWAYS,
    HASHES,
    NO_POSITION,
    SPECIAL,
    WITH_OTHERS,
    pack_flags,
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
"""Tokens that may follow the token of an entry that is split."""

NOWHERE = -1.0
"""The reach of what never matches."""

# The margins of `nearcast.model.circles`.
_MARGIN_M = 1e-3
_HALF_TURN_M = math.pi * EARTH_RADIUS_M
_OPPOSITE_M = 1_000.0

_WIDE = 355.0 * UNITS
"""Flat boxes of this width count as all round the world: cut in two, they might touch twice."""


class Reduction(NamedTuple):
    """The subscriptions to reduce, and whether to refine their entries.

    ``special`` int32[rows]: -1, or the number of a subscription that does not fit a record.
    """

    codes: ScoringCodes
    rows: RankedColumns
    special: NDArray[np.int32]


class RowEntries(NamedTuple):
    """The entries of one subscription; each array has room for two per token and one more.

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


@kernel
def reach_of(reduction: Reduction, row: Number, shared: Number) -> Number:
    """Return how far a match can be if it shares at most this weight."""
    codes, rows = reduction.codes, reduction.rows
    text = text_bound(codes.similarity, shared, rows.text_weight[row])
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    if codes.proximity:
        return reach_m(p, q, np.float64(rows.max_distance_cm[row]) / CENTIMETERS, text)
    reach = reach_m(p, q, 1.0, text)
    return 1.0 if 0.0 <= reach < np.inf else reach


@kernel
def weight_limit(reduction: Reduction, row: Number, shared: Number) -> Number:
    """Return the code of the largest weight M of a message that shares at most this weight."""
    codes, rows = reduction.codes, reduction.rows
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    least = q - (TOLERANCE + GUARD) - (1.0 - p)
    own = rows.text_weight[row]
    if least <= 0.0 or p <= 0.0 or own == 0.0:
        return np.int64(HASHES - 1)
    least /= p
    if codes.similarity == JACCARD:
        limit = shared / least - own + shared
    elif codes.similarity == DICE:
        limit = 2.0 * shared / least - own
    else:
        limit = (shared / least) * (shared / least) / own
    return weight_code(limit * (1.0 + 1e-9) + 1e-9)


@kernel
def limits_weight(codes: ScoringCodes) -> Number:
    """Tell whether the score depends on the weight of all words of a message."""
    similarity = codes.similarity
    return (similarity == JACCARD) | (similarity == DICE) | (similarity == COSINE)


@kernel
def put_entry(
    reduction: Reduction,
    row: Number,
    entries: RowEntries,
    count: Number,
    entry: tuple[Number, Number, Number, Number, Number],
) -> Number:
    """Write an entry: position, reach, flags, shared weight and how many next tokens it needs."""
    position, reach, flags, shared, needed = entry
    entries.position[count], entries.reach[count] = position, reach
    begin = reduction.rows.token_start[row] + position + 1
    first = second = np.uint64(0)
    if needed == 1 or needed == MAX_FOLLOWING:
        first = second = token_hash(reduction.rows.token[begin])
    if needed == MAX_FOLLOWING:
        second = token_hash(reduction.rows.token[begin + 1])
    if limits_weight(reduction.codes):
        if needed == MAX_FOLLOWING:
            first = np.uint64(0)
        second = np.uint64(weight_limit(reduction, row, shared) if shared > 0.0 else HASHES - 1)
    if reduction.special[row] >= 0:
        flags, first, second = SPECIAL, np.uint64(0), np.uint64(0)
        if limits_weight(reduction.codes):
            second = np.uint64(HASHES - 1)
    where = position if 0 <= position < NO_POSITION else NO_POSITION
    entries.upper[count] = pack_flags(where, flags, first, second)
    return count + 1


@kernel
def needed_tokens(
    reduction: Reduction, row: Number, suffix: NDArray[np.float64], i: Number
) -> Number:
    """Return how many of the tokens after token ``i`` may be the next shared one."""
    codes, rows = reduction.codes, reduction.rows
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    begin, end = rows.token_start[row], rows.token_start[row + 1]
    count = np.int64(0)
    for j in range(i + 1, end - begin):
        shared = rows.token_weight[begin + i] + suffix[j]
        if not feasible(p, q, text_bound(codes.similarity, shared, rows.text_weight[row]), 1.0):
            break
        count += 1
    return count


@kernel
def reduce_row(reduction: Reduction, row: Number, entries: RowEntries) -> Number:
    """Write the entries of a subscription; return how many there are."""
    rows, suffix = reduction.rows, entries.suffix
    begin, end = rows.token_start[row], rows.token_start[row + 1]
    tokens = end - begin
    total: Number = 0.0
    for i in range(tokens - 1, -1, -1):
        total += rows.token_weight[begin + i]
        suffix[i] = total
    count = np.int64(0)
    without = reach_of(reduction, row, 0.0)
    if tokens == 0:
        return put_entry(reduction, row, entries, count, (-1, without, ALWAYS, 0.0, 0))
    if without >= 0.0 and reach_of(reduction, row, total) <= MERGE * without:
        reach = reach_of(reduction, row, total)
        return put_entry(reduction, row, entries, count, (-1, reach, ALWAYS, total, 0))
    for i in range(tokens):
        whole = reach_of(reduction, row, suffix[i])
        if whole < 0.0:
            break
        own, after = rows.token_weight[begin + i], tokens - 1 - i
        alone = reach_of(reduction, row, own)
        both = WITH_OTHERS | ALONE
        if reduction.special[row] >= 0 or after == 0:
            count = put_entry(reduction, row, entries, count, (i, whole, both, suffix[i], 0))
        elif alone < 0.0:
            needed = needed_tokens(reduction, row, suffix, i)
            entry = (i, whole, WITH_OTHERS, suffix[i], needed)
            count = put_entry(reduction, row, entries, count, entry)
        elif after <= MAX_FOLLOWING and alone < SPLIT * whole:
            entry = (i, whole, WITH_OTHERS, suffix[i], after)
            count = put_entry(reduction, row, entries, count, entry)
            count = put_entry(reduction, row, entries, count, (i, alone, ALONE, own, 0))
        else:
            count = put_entry(reduction, row, entries, count, (i, whole, both, suffix[i], 0))
    if without >= 0.0:
        count = put_entry(reduction, row, entries, count, (-1, without, ALONE, 0.0, 0))
    return count


@kernel
def is_sole(reduction: Reduction, row: Number, count: Number, entries: RowEntries) -> Number:
    """Tell whether the one entry of a subscription is a sure match wherever the message is."""
    codes, rows = reduction.codes, reduction.rows
    if count != 1 or entries.position[0] != 0 or entries.reach[0] < np.inf:
        return False
    if limits_weight(codes) or reduction.special[row] >= 0:
        return False
    one = rows.token_start[row + 1] - rows.token_start[row] == 1
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    return one and p >= q - TOLERANCE


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


@kernel
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


@kernel
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
