"""Kernels that match messages: open regions, read lists, score candidates.

Algorithms 1 and 2 of the paper. A message goes through the entries of each of its tokens, in three
steps that never wait for memory that was not prefetched: entries become runs of postings, postings
become candidates, candidates are scored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS, EARTH_RADIUS_M, UNITS
from nearcast.compiled.distances import METERS_PER_UNIT, place_distance_m, short_way
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.scoring import (
    PLANAR,
    TOLERANCE,
    RankedMessages,
    ScoredOutput,
    ScoringCodes,
    combined,
    message_distance_m,
    share,
    text_score,
)
from nearcast.compiled.shapes import RADIANS
from nearcast.indexes.stamp.bounds import INSIDE, measure_regions
from nearcast.indexes.stamp.layout import (
    DISTANCE,
    DUMMY,
    ELSEWHERE,
    FARTHEST,
    LAT,
    LON,
    MARKED,
    NEXT,
    NO_MORE,
    OWN_SET,
    POSTING_LAT,
    POSTING_LON,
    POSTING_REACH,
    POSTING_RECORD,
    REACH,
    RECORD_TOKENS,
    REGION,
    ROW,
    SHARE,
    SLOT_COUNT,
    SLOT_START,
    SLOT_TOKEN,
    THRESHOLD,
    TOKEN,
    Filters,
    StampArrays,
    find_token,
    own_weight,
    reach_of,
    token_home,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

EPOCH, RUNS, CANDIDATES, EXAMINED, VISITED, ACCESSED, LEAVES, SETS_USED, SHORT = range(9)
TALLY_WIDTH = 9
"""Positions in ``tally``: a number that no earlier message had; runs and candidates that wait;
what was counted for the message; and whether `nearcast.indexes.stamp.sets` had no room left."""

AHEAD = 16
"""How many records ahead are prefetched."""

NO_ROOM = -1

_AT_ONCE = 5
"""Tokens of a record that are looked up without branches."""

_SMALL_TURN = 19.0 * UNITS
_SMALL_ARC_M = _SMALL_TURN * METERS_PER_UNIT


class Weights(NamedTuple):
    """What tokens weigh: ``weight[t]``, or ``unknown`` from its end on; 1 unless ``weighs``."""

    weight: NDArray[np.float64]
    unknown: Number
    weighs: Number


class Index(NamedTuple):
    """All that kernels read of an index."""

    stamp: StampArrays
    codes: ScoringCodes
    filters: Filters
    weights: Weights


class MatchScratch(NamedTuple):
    """Scratch space of one thread.

    - ``token_set`` int32[a power of two], ``set_weight`` float64[same]: the tokens of a message,
      -1 where free, and their weights.
    - ``gap`` float64[regions]: the distance from the message, see `region_gap_m`.
    - ``opened`` int64[regions]: the last epoch in which each region was opened.
    - ``slots`` int64[tokens + 1]: the slots of the message's tokens and of the dummy, or -1.
    - ``run`` int64[any, 3]: an entry, later the first and last posting, and the token; ``run_gap``
      float64[any].
    - ``candidate`` int32[any, 2]: record and token; ``distance`` float64[any]: in meters, or -1.
    - ``tally`` int64[TALLY_WIDTH].
    """

    token_set: NDArray[np.int32]
    set_weight: NDArray[np.float64]
    gap: NDArray[np.float64]
    opened: NDArray[np.int64]
    slots: NDArray[np.int64]
    run: NDArray[np.int64]
    run_gap: NDArray[np.float64]
    candidate: NDArray[np.int32]
    distance: NDArray[np.float64]
    tally: NDArray[np.int64]


class Trace(NamedTuple):
    """What was counted for each message; empty if nobody wants to know.

    ``tally`` int64[messages, TALLY_WIDTH]; ``cost`` float64[messages, 2]: what verifying, and
    what using the second signature set, was expected to cost in all leaves.
    """

    tally: NDArray[np.int64]
    cost: NDArray[np.float64]


class Place(NamedTuple):
    """Where a message is: whether distances are those to a point, the point, and latitudes.

    ``narrow``: the square of a meter per unit of longitude, at the least, within every finite
    reach; 0 if unknown.
    """

    is_point: Number
    lon: Number
    lat: Number
    south: Number
    north: Number
    narrow: Number


# --- the message ---------------------------------------------------------------------------------


@kernel
def place_of(
    codes: ScoringCodes, messages: RankedMessages, message: Number, radius_m: Number
) -> Place:
    """Return where a message is; no finite reach is longer than the radius."""
    first = messages.piece_start[message]
    box = messages.box[first]
    single = messages.piece_start[message + 1] - first == 1 and codes.distance != PLANAR
    is_point = single and box[0] == box[2] and box[1] == box[3]
    south, narrow = np.float64(box[1]), 0.0
    if is_point:
        to_pole = math.pi / 2.0 - abs(south) * RADIANS
        beyond = max(0.0, to_pole - radius_m / EARTH_RADIUS_M)
        narrow = math.sin(to_pole) * math.sin(beyond) * METERS_PER_UNIT**2
    return Place(is_point, np.float64(box[0]), south, south, np.float64(box[3]), narrow)


@kernel
def token_weight(weights: Weights, token: Number) -> Number:
    """Return the weight of a token."""
    if not weights.weighs:
        return 1.0
    return weights.weight[token] if token < len(weights.weight) else np.float64(weights.unknown)


@kernel
def fill_tokens(weights: Weights, tokens: NDArray[np.int32], scratch: MatchScratch) -> None:
    """Put the tokens of a message and their weights into the empty set."""
    token_set = scratch.token_set
    for i in range(len(tokens)):
        at = token_home(tokens[i], len(token_set))
        while token_set[at] >= 0:
            at = (at + 1) & (len(token_set) - 1)
        token_set[at] = tokens[i]
        scratch.set_weight[at] = token_weight(weights, tokens[i])


@kernel
def clear_tokens(tokens: NDArray[np.int32], token_set: NDArray[np.int32]) -> None:
    """Empty the set of a message's tokens."""
    if 8 * len(tokens) > len(token_set):
        token_set[:] = -1
        return
    for i in range(len(tokens)):
        at = token_home(tokens[i], len(token_set))
        while token_set[at] >= 0:
            token_set[at] = -1
            at = (at + 1) & (len(token_set) - 1)


@kernel
def begin_message(
    index: Index, messages: RankedMessages, message: Number, scratch: MatchScratch
) -> Number:
    """Prepare for a message: its tokens, their slots, and how far away regions are.

    Return the number of its tokens that a subscription can have.
    """
    stamp, codes, filters, weights = index
    tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
    known = known_tokens(tokens)
    fill_tokens(weights, tokens[:known], scratch)
    for i in range(known):
        prefetch(stamp.slot, token_home(tokens[i], len(stamp.slot)))
    if filters.regions:
        radius_m = reach_of(stamp.state[FARTHEST])
        measure_regions(codes, stamp, messages, message, radius_m, scratch.gap)
    else:
        scratch.gap[:] = INSIDE
    slot, slots, entry = stamp.slot, scratch.slots, stamp.entry
    for i in range(known + 1):
        slots[i] = find_token(slot, tokens[i] if i < known else DUMMY)
        if slots[i] >= 0:
            prefetch(entry, slot[slots[i], SLOT_START])
    tally = scratch.tally
    tally[EPOCH] += 1
    for i in range(1, TALLY_WIDTH):
        tally[i] = 0
    return known


@inlined_kernel
def distance_from(
    codes: ScoringCodes,
    place: Place,
    messages: RankedMessages,
    message: Number,
    lon: Number,
    lat: Number,
) -> Number:
    """Return the distance from a place (float64, units) to a message, in meters."""
    distance = 0.0
    if place.is_point:
        distance = place_distance_m(lon, lat, place.lon, place.lat)
    else:
        distance = message_distance_m(codes, lon, lat, messages, message)
    return distance


@inlined_kernel
def latitude_gap_m(place: Place, lat: Number) -> Number:
    """Return the part of the distance to a message that is due to latitudes."""
    return max(0.0, place.south - lat, lat - place.north) * METERS_PER_UNIT


@inlined_kernel
def is_beyond(place: Place, lon: Number, lat: Number, reach: Number) -> Number:
    """Tell whether a place is clearly farther away than a reach; cheaper than a distance.

    4 R^2 sin^2(x / 2 R) is at least 0.99 x^2 up to 19 degrees.
    """
    along = latitude_gap_m(place, lat)
    across = min(short_way(lon - place.lon), _SMALL_TURN)
    square = min(along, _SMALL_ARC_M) ** 2 + across * across * place.narrow
    return along > reach or 0.99 * square > reach * reach


# --- scoring -------------------------------------------------------------------------------------


@inlined_kernel
def weight_of_shared(
    token_set: NDArray[np.int32], set_weight: NDArray[np.float64], token: Number
) -> Number:
    """Return the weight of a token of the message, or -1."""
    at = token_home(token, len(token_set))
    while token_set[at] >= 0 and token_set[at] != token:
        at = (at + 1) & (len(token_set) - 1)
    return set_weight[at] if token_set[at] >= 0 else -1.0


@kernel
def shared_one_by_one(
    tokens: NDArray[np.int32],
    token_set: NDArray[np.int32],
    set_weight: NDArray[np.float64],
    wanted: Number,
) -> Number:
    """Return the weight of the tokens that are in the set, or -1 if the wanted one is not first.

    `DUMMY` is wanted where none may be shared, -1 where any may be the first.
    """
    shared, is_first = 0.0, True
    for i in range(len(tokens)):
        if tokens[i] < 0:
            break
        weight = weight_of_shared(token_set, set_weight, tokens[i])
        if weight >= 0.0:
            if is_first and wanted >= 0 and tokens[i] != wanted:
                return -1.0
            is_first = False
            shared += weight
    return shared


@inlined_kernel
def shared_at_once(
    record: NDArray[np.int32],
    at: Number,
    token_set: NDArray[np.int32],
    set_weight: NDArray[np.float64],
    wanted: Number,
) -> Number:
    """Return the same for the first tokens of a record, without branches; -2 if that is too few.

    Which tokens are shared is hard to predict. Where two tokens of the message meet in one slot,
    or there are more tokens, the answer is -2.
    """
    met, refused = np.int64(wanted < 0), np.int64(0)
    shared: Number = 0.0
    unclear = np.int64(record[at, TOKEN + _AT_ONCE] != NO_MORE)
    unclear |= np.int64(record[at, TOKEN + RECORD_TOKENS - 1] != NO_MORE)
    for i in range(TOKEN, TOKEN + _AT_ONCE):
        token = record[at, i]
        slot = token_home(max(token, 0), len(token_set))
        there = token_set[slot]
        is_token = np.int64(token >= 0)
        hit = np.int64(there == token) & is_token
        unclear |= np.int64(there >= 0) & np.int64(there != token) & is_token
        met |= np.int64(token == wanted)
        refused |= hit & (np.int64(1) - met)
        shared += set_weight[slot] if hit else 0.0
    if refused:
        shared = -1.0
    if unclear:
        shared = -2.0
    return shared


@kernel
def score_candidates(
    index: Index,
    messages: RankedMessages,
    message: Number,
    place: Place,
    scratch: MatchScratch,
    output: ScoredOutput,
    count: Number,
) -> Number:
    """Score the candidates that wait, and write those that match from position ``count`` on.

    A candidate that was found by a token is refused unless it is the first that it shares.
    Return the end of what was written, or `NO_ROOM`.
    """
    # Attributes of tuples are counted references, too costly for a loop.
    codes, record, long_token = index.codes, index.stamp.record, index.stamp.long_token
    token_set, set_weight = scratch.token_set, scratch.set_weight
    candidate, distances = scratch.candidate, scratch.distance
    found, scores, similarity = output.row, output.score, codes.similarity
    waiting = scratch.tally[CANDIDATES]
    if count + waiting > len(output.row):
        return np.int64(NO_ROOM)
    weight = messages.text_weight[message]
    for i in range(min(AHEAD, waiting)):
        prefetch(record, candidate[i, 0])
    for i in range(waiting):
        if i + AHEAD < waiting:
            prefetch(record, candidate[i + AHEAD, 0])
        at, wanted = np.int64(candidate[i, 0]), np.int64(candidate[i, 1])
        shared = shared_at_once(record, at, token_set, set_weight, wanted)
        if shared == -2.0:
            tokens = record[at, TOKEN:]
            if tokens[RECORD_TOKENS - 1] == ELSEWHERE:
                tokens = long_token[tokens[0] : np.int64(tokens[0]) + tokens[1]]
            shared = shared_one_by_one(tokens, token_set, set_weight, wanted)
        if shared < 0.0:
            continue
        text = text_score(similarity, shared, own_weight(record, at), weight)
        largest_cm = np.int32(record[at, DISTANCE]).view(np.uint32)
        largest_m = np.float64(largest_cm) / np.float64(CENTIMETERS)
        lat, distance = np.float64(record[at, LAT]), distances[i]
        space = 0.0
        if distance >= 0.0 or latitude_gap_m(place, lat) * (1.0 - 1e-12) <= largest_m:
            if distance < 0.0:
                lon = np.float64(record[at, LON])
                distance = distance_from(codes, place, messages, message, lon, lat)
            space = max(0.0, 1.0 - distance / largest_m)
        score = combined(share(record[at, SHARE]), text, space)
        found[count], scores[count] = record[at, ROW], score
        count += np.int64(score >= share(record[at, THRESHOLD]) - TOLERANCE)
    scratch.tally[EXAMINED] += waiting
    scratch.tally[CANDIDATES] = 0
    return np.int64(count)


# --- lists ---------------------------------------------------------------------------------------


@kernel
def find_runs(stamp: StampArrays, scratch: MatchScratch) -> None:
    """Replace the entries that wait by the runs of postings to read."""
    entry, lists, posting = stamp.entry, stamp.list, stamp.posting
    run, run_gap, opened, tally = scratch.run, scratch.run_gap, scratch.opened, scratch.tally
    waiting, epoch, visited = tally[RUNS], tally[EPOCH], 0
    for i in range(waiting):
        if i + AHEAD < waiting:
            prefetch(lists, run[i + AHEAD, 0])
        at, inside = run[i, 0], run_gap[i] < 0.0
        region, first = np.int64(entry[at, REGION]), np.int64(lists[at, NEXT])
        prefetch(posting, first)
        run[i, 0] = first
        run[i, 1] = first + (lists[at, OWN_SET] if inside else lists[at, MARKED])
        visited += opened[region] != epoch
        opened[region] = epoch
    tally[VISITED] += visited


@kernel
def read_runs(
    index: Index,
    messages: RankedMessages,
    message: Number,
    place: Place,
    scratch: MatchScratch,
    output: ScoredOutput,
    count: Number,
) -> Number:
    """Read the lists that wait; postings that reach the message become candidates.

    Return as `score_candidates` does, which is called whenever there is no room for more.
    """
    find_runs(index.stamp, scratch)
    codes, posting = index.codes, index.stamp.posting
    tally, candidate, distances = scratch.tally, scratch.candidate, scratch.distance
    run, run_gap = scratch.run, scratch.run_gap
    waiting, accessed = tally[CANDIDATES], 0
    for i in range(tally[RUNS]):
        first, last, token, gap = run[i, 0], run[i, 1], run[i, 2], run_gap[i]
        for j in range(first, last):
            reach = reach_of(posting[j, POSTING_REACH])
            if reach < gap:
                break
            accessed += 1
            distance = -1.0
            if reach < np.inf:
                lon = np.float64(posting[j, POSTING_LON])
                lat = np.float64(posting[j, POSTING_LAT])
                if is_beyond(place, lon, lat, reach):
                    continue
                distance = distance_from(codes, place, messages, message, lon, lat)
                if distance > reach:
                    continue
            if waiting == len(candidate):
                tally[CANDIDATES] = waiting
                count = score_candidates(index, messages, message, place, scratch, output, count)
                if count == NO_ROOM:
                    return count
                waiting = 0
            candidate[waiting, 0], candidate[waiting, 1] = posting[j, POSTING_RECORD], token
            distances[waiting] = distance
            waiting += 1
    tally[CANDIDATES], tally[RUNS] = waiting, 0
    tally[ACCESSED] += accessed
    return np.int64(count)


@kernel
def match_messages(
    index: Index,
    messages: RankedMessages,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    trace: Trace,
    output: ScoredOutput,
) -> tuple[Number, Number, Number]:
    """Match a part of the messages by the first signature sets alone.

    Return the message at which the output was full, or the end, and what was examined and
    visited.
    """
    index, messages, scratch = borrow(index), borrow(messages), borrow(scratch)
    output = borrow(output)
    stamp, tally = index.stamp, scratch.tally
    examined, visited = 0, 0
    for message in range(part[0], part[1]):
        known = begin_message(index, messages, message, scratch)
        begin = messages.token_start[message]
        tokens = messages.token[begin : begin + known]
        place = place_of(index.codes, messages, message, reach_of(stamp.state[FARTHEST]))
        count = np.int64(output.start[message])
        count = open_regions(index, messages, message, place, scratch, output, (known, count))
        if count != NO_ROOM:
            count = read_runs(index, messages, message, place, scratch, output, count)
        if count != NO_ROOM:
            count = score_candidates(index, messages, message, place, scratch, output, count)
        clear_tokens(tokens, scratch.token_set)
        if count == NO_ROOM:
            return message, examined, visited
        output.start[message + 1] = count
        examined += tally[EXAMINED]
        visited += tally[VISITED]
        if len(trace.tally) > 0:
            trace.tally[message] = tally
    return part[1], examined, visited


@kernel
def open_regions(
    index: Index,
    messages: RankedMessages,
    message: Number,
    place: Place,
    scratch: MatchScratch,
    output: ScoredOutput,
    limits: tuple[Number, Number],
) -> Number:
    """Go through the entries of all tokens; the lists of leaves that are open become runs.

    ``limits``: the number of tokens, and the end of what was written. Return as
    `score_candidates` does.
    """
    stamp, tally, gaps = index.stamp, scratch.tally, scratch.gap
    slot, entry, lists, opened = stamp.slot, stamp.entry, stamp.list, scratch.opened
    run, run_gap, slots = scratch.run, scratch.run_gap, scratch.slots
    epoch, visited, runs = tally[EPOCH], np.int64(0), np.int64(0)
    count = np.int64(limits[1])
    for t in range(limits[0] + 1):
        if slots[t] < 0:
            continue
        token = np.int64(slot[slots[t], SLOT_TOKEN])
        i = np.int64(slot[slots[t], SLOT_START])
        end = i + slot[slots[t], SLOT_COUNT]
        while i < end:
            region, reach = np.int64(entry[i, REGION]), reach_of(entry[i, REACH])
            gap = gaps[max(region, ~region)]
            is_open = np.int64(gap < 0.0) | np.int64(reach >= gap)
            if region < 0:
                visited += is_open & np.int64(opened[~region] != epoch)
                opened[~region] = epoch if is_open else opened[~region]
                i += 1 if is_open else lists[i, NEXT]
                continue
            # Whether a leaf is open is hard to predict: written in any case, kept if it is.
            run[runs, 0], run[runs, 2], run_gap[runs] = i, token, gap
            runs += is_open
            i += 1
            if runs == len(run):
                tally[RUNS] = runs
                count = read_runs(index, messages, message, place, scratch, output, count)
                if count == NO_ROOM:
                    return count
                runs = np.int64(0)
    tally[RUNS] = runs
    tally[VISITED] += visited
    return count
