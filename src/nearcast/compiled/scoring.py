"""How a ranked subscription scores a message: text, space, and both together.

A subscription has a text share p and a threshold q. Its score is ``p * T + (1 - p) * S``; a match
has a score of at least ``q - TOLERANCE``. T compares words: W is the weight of the subscription's
tokens, I of those that the message has too, M of all distinct words of the message. S is
``max(0, 1 - distance / largest distance)``, or the share of the region that the message covers.

All indexes of ranked subscriptions compute scores with these kernels, so that a score has the same
bits whatever index, segment or shard found the match. Sums of weights go from the heaviest token to
the lightest, which does not depend on the numbers of the tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS, DISTANCES, SHARE_UNITS, SIMILARITIES
from nearcast.compiled.areas import (
    Outlines,
    boxes_meet,
    common_box_area,
    outline_area,
)
from nearcast.compiled.distances import box_distance_m, planar_distance_m
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import Output, contains
from nearcast.compiled.shapes import ShapeArrays, box_overlaps_shape
from nearcast.compiled.token_table import MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseTokens

TOLERANCE = 1.001e-9
"""A score this much below the threshold is a match. Shares and thresholds are multiples of 1e-9, so
scores exactly 1e-9 below a threshold exist; the last bit must not decide them."""

GUARD = 1e-12
"""Two correct evaluations of a score differ by less than this. Bounds allow for it."""

CONTAINMENT, OVERLAP, JACCARD, DICE, COSINE = range(len(SIMILARITIES))
GEODESIC, PLANAR = range(len(DISTANCES))

AHEAD = 16
"""How many candidates ahead the columns of a row are prefetched."""

_SHIFT = np.uint64(64)


class ScoringCodes(NamedTuple):
    """How a set of subscriptions scores: the kind of similarity and of distance, by number.

    ``proximity`` is 1 for distances and 0 for shares of regions.
    """

    similarity: Number
    distance: Number
    proximity: Number


class RankedColumns(NamedTuple):
    """Ranked subscriptions of one kind as kernels see them, one row each.

    - ``token_start`` int64[n + 1], ``token`` int32[...]: tokens, the heaviest first.
    - ``token_weight`` float64[...]: the weight of every token.
    - ``text_weight`` float64[n]: W, summed in that order; 0 without tokens.
    - ``text_share``, ``threshold`` int32[n]: p and q in `SHARE_UNITS`.
    - ``max_distance_cm`` uint32[n].
    - ``box_start`` int64[n + 1], ``box`` int32[..., 4]: the place, or the boxes of the region.
    - ``area`` float64[n]: of the region; 0 for proximity.
    - ``shape`` int32[n]: the exact shape, or -1.
    - ``shapes``, ``outlines``: exact shapes, to see whether they meet a message, and for areas.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    token_weight: NDArray[np.float64]
    text_weight: NDArray[np.float64]
    text_share: NDArray[np.int32]
    threshold: NDArray[np.int32]
    max_distance_cm: NDArray[np.uint32]
    box_start: NDArray[np.int64]
    box: NDArray[np.int32]
    area: NDArray[np.float64]
    shape: NDArray[np.int32]
    shapes: ShapeArrays
    outlines: Outlines


class RankedMessages(NamedTuple):
    """A batch of messages for ranked subscriptions; places are cut at the antimeridian.

    - ``token_start`` int64[n + 1], ``token`` int32[...]: ascending tokens of every message.
    - ``piece_start`` int64[n + 1], ``box`` int32[..., 4]: the one or two boxes of every message.
    - ``text_weight`` float64[n]: M, the weight of all distinct words; 0 where nobody needs it.
    - ``area`` float64[n]: of all pieces of a message together.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    piece_start: NDArray[np.int64]
    box: NDArray[np.int32]
    text_weight: NDArray[np.float64]
    area: NDArray[np.float64]


class ScoredOutput(NamedTuple):
    """Matches that kernels write: those of message ``m`` are from ``start[m]`` on.

    ``start`` int64[messages + 1]: that of the first message is given. ``row`` int32[any], ``score``
    float64[any].
    """

    start: NDArray[np.int64]
    row: NDArray[np.int32]
    score: NDArray[np.float64]


class Conditions(NamedTuple):
    """The conditions of ranked subscriptions: clauses, those of row ``r`` from ``clause_start[r]``.

    A clause asks for all its ``wanted`` tokens and for none of its ``unwanted`` ones.
    """

    clause_start: NDArray[np.int64]
    wanted: ClauseTokens
    unwanted: ClauseTokens


# --- text ----------------------------------------------------------------------------------------


@kernel
def text_score(similarity: Number, shared: Number, own: Number, message: Number) -> Number:
    """Return T: shared weight I, own weight W (0 for no keywords), and weight M of the message."""
    if own == 0.0:
        return 1.0
    if shared == 0.0:
        return 0.0
    if similarity == JACCARD:
        return min(1.0, shared / (own + message - shared))
    if similarity == DICE:
        return min(1.0, 2.0 * shared / (own + message))
    if similarity == COSINE:
        return min(1.0, shared / math.sqrt(own * message))
    return shared / own


@kernel
def text_bound(similarity: Number, shared: Number, own: Number) -> Number:
    """Return U: the largest T of any message that shares at most this weight."""
    if own == 0.0:
        return 1.0
    if shared <= 0.0:
        return 0.0
    if similarity == DICE:
        return min(1.0, 2.0 * shared / (own + shared))
    if similarity == COSINE:
        return min(1.0, math.sqrt(shared / own))
    return min(1.0, shared / own)


@kernel
def node_text_bound(similarity: Number, shared: Number, least: Number, message: Number) -> Number:
    """Return a bound of T for subscriptions whose own weight is at least ``least``.

    ``shared`` bounds the weight that any of them shares; ``message`` is M.
    """
    if least == 0.0:
        return 1.0
    if shared <= 0.0:
        return 0.0
    if similarity == JACCARD:
        return min(1.0, shared / max(least, message))
    if similarity == DICE:
        return min(1.0, 2.0 * shared / (least + message))
    if similarity == COSINE:
        return min(1.0, shared / math.sqrt(least * message))
    return min(1.0, shared / least)


# --- both together -------------------------------------------------------------------------------


@inlined_kernel
def share(units: Number) -> Number:
    """Return a text share or threshold as a number from 0 to 1."""
    return np.float64(units) / np.float64(SHARE_UNITS)


@inlined_kernel
def combined(p: Number, text: Number, space: Number) -> Number:
    """Return the score of a text share, T and S."""
    return min(1.0, p * text + (1.0 - p) * space)


@inlined_kernel
def nearness(distance_m: Number, max_distance_cm: Number) -> Number:
    """Return S of a distance."""
    return max(0.0, 1.0 - distance_m / (np.float64(max_distance_cm) / np.float64(CENTIMETERS)))


@kernel
def need(p: Number, q: Number, text: Number) -> Number:
    """Return what ``(1 - p) * S`` must reach if T is at most ``text``; a safe lower bound."""
    return q - (TOLERANCE + GUARD) - p * text


@kernel
def feasible(p: Number, q: Number, text: Number, space: Number) -> Number:
    """Tell whether a subscription can match if T and S are at most these; never wrongly no."""
    return p * text + (1.0 - p) * space >= q - (TOLERANCE + GUARD)


@kernel
def reach_m(p: Number, q: Number, max_distance_m: Number, text: Number) -> Number:
    """Return how far away a match can be if T is at most ``text``: infinite for anywhere.

    -1 if no place is near enough.
    """
    needed = need(p, q, text)
    if needed <= 0.0:
        return np.inf
    if needed > 1.0 - p:
        return -1.0
    # The division loses less than GUARD, and a distance less than its last bits.
    return max_distance_m * (1.0 - needed / (1.0 - p)) * (1.0 + 4e-15) + 1e-9


# --- one pair ------------------------------------------------------------------------------------


@inlined_kernel
def message_distance_m(
    codes: ScoringCodes, lon: Number, lat: Number, messages: RankedMessages, message: Number
) -> Number:
    """Return the distance from a place to the nearest piece of a message."""
    nearest = np.inf
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        box = messages.box[piece]
        if codes.distance == PLANAR:
            nearest = min(nearest, planar_distance_m(lon, lat, box))
        else:
            nearest = min(nearest, box_distance_m(lon, lat, box))
    return nearest


@inlined_kernel
def region_meets(
    rows: RankedColumns, row: Number, messages: RankedMessages, message: Number
) -> Number:
    """Tell whether the region of a row and a message have a place in common."""
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        for i in range(rows.box_start[row], rows.box_start[row + 1]):
            if boxes_meet(rows.box[i], messages.box[piece]):
                shape = rows.shape[row]
                if shape < 0 or box_overlaps_shape(rows.shapes, shape, messages.box[piece]):
                    return True
    return False


@inlined_kernel
def covered_share(
    rows: RankedColumns, row: Number, messages: RankedMessages, message: Number
) -> Number:
    """Return the share of a region that a message covers; all or nothing without an area."""
    if rows.area[row] == 0.0 or messages.area[message] == 0.0:
        return 1.0 if region_meets(rows, row, messages, message) else 0.0
    shape, exact, common = rows.shape[row], np.int64(0), 0.0
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        if shape >= 0:
            common += outline_area(rows.outlines, shape, messages.box[piece])
        else:
            for i in range(rows.box_start[row], rows.box_start[row + 1]):
                exact += common_box_area(rows.box[i], messages.box[piece])
    if shape < 0:
        common = np.float64(exact)
    return min(1.0, common / rows.area[row])


@inlined_kernel
def space_score(
    codes: ScoringCodes, rows: RankedColumns, row: Number, messages: RankedMessages, message: Number
) -> Number:
    """Return S of a row and a message."""
    if not codes.proximity:
        return covered_share(rows, row, messages, message)
    at = rows.box_start[row]
    lon, lat = np.float64(rows.box[at, 0]), np.float64(rows.box[at, 1])
    distance = message_distance_m(codes, lon, lat, messages, message)
    return nearness(distance, rows.max_distance_cm[row])


# --- the tokens of a message ---------------------------------------------------------------------


@kernel
def fill_token_set(token_set: NDArray[np.int32], tokens: NDArray[np.int32]) -> None:
    """Put tokens into an empty set: int32[a power of two], -1 where free, at most half full."""
    shift = _SHIFT - np.uint64(set_bits(len(token_set)))
    for i in range(len(tokens)):
        at = (np.uint64(tokens[i]) * MIXER) >> shift
        while token_set[at] >= 0:
            at = (at + np.uint64(1)) & np.uint64(len(token_set) - 1)
        token_set[at] = tokens[i]


@kernel
def set_bits(size: Number) -> Number:
    """Return the logarithm of the size of a token set."""
    bits = np.int64(0)
    while (np.int64(1) << bits) < size:
        bits += 1
    return bits


@kernel
def clear_token_set(token_set: NDArray[np.int32], tokens: NDArray[np.int32]) -> None:
    """Empty a set that holds these tokens."""
    shift = _SHIFT - np.uint64(set_bits(len(token_set)))
    if 8 * len(tokens) > len(token_set):
        token_set[:] = -1
        return
    for i in range(len(tokens)):
        at = (np.uint64(tokens[i]) * MIXER) >> shift
        while token_set[at] >= 0:
            token_set[at] = -1
            at = (at + np.uint64(1)) & np.uint64(len(token_set) - 1)


@kernel
def in_token_set(token_set: NDArray[np.int32], shift: Number, token: Number) -> Number:
    """Tell whether a token is in a set; ``shift`` is 64 minus the logarithm of its size."""
    at = (np.uint64(token) * MIXER) >> shift
    while token_set[at] >= 0:
        if token_set[at] == token:
            return True
        at = (at + np.uint64(1)) & np.uint64(len(token_set) - 1)
    return False


@inlined_kernel
def shared_weight(rows: RankedColumns, row: Number, token_set: NDArray[np.int32]) -> Number:
    """Return I: the weight of the tokens of a row that are in the set."""
    shift = _SHIFT - np.uint64(set_bits(len(token_set)))
    shared = 0.0
    for i in range(rows.token_start[row], rows.token_start[row + 1]):
        if in_token_set(token_set, shift, rows.token[i]):
            shared += rows.token_weight[i]
    return shared


@kernel
def condition_holds(conditions: Conditions, row: Number, tokens: NDArray[np.int32]) -> Number:
    """Tell whether one of the clauses of a row's condition is true of ascending tokens."""
    wanted, unwanted = conditions.wanted, conditions.unwanted
    for clause in range(conditions.clause_start[row], conditions.clause_start[row + 1]):
        holds = True
        for i in range(wanted.token_start[clause], wanted.token_start[clause + 1]):
            holds = holds and contains(tokens, wanted.token[i])
        for i in range(unwanted.token_start[clause], unwanted.token_start[clause + 1]):
            holds = holds and not contains(tokens, unwanted.token[i])
        if holds:
            return True
    return False


@kernel
def keep_conditions(
    conditions: Conditions,
    messages: RankedMessages,
    part: tuple[Number, Number],
    output: ScoredOutput,
) -> None:
    """Drop the matches of a part of the messages whose conditions do not hold, in place."""
    first, last = part
    count = read = output.start[first]
    for message in range(first, last):
        tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
        end = output.start[message + 1]
        while read < end:
            if condition_holds(conditions, output.row[read], tokens):
                output.row[count], output.score[count] = output.row[read], output.score[read]
                count += 1
            read += 1
        output.start[message + 1] = count


@kernel
def score_rows(
    codes: ScoringCodes,
    rows: RankedColumns,
    messages: RankedMessages,
    part: tuple[Number, Number],
    candidates: Output,
    token_set: NDArray[np.int32],
    output: ScoredOutput,
) -> Number:
    """Score the candidates of a part of the messages, and write those that match, each row once.

    The candidates of message ``m`` are ``candidates.clause[start[m]:start[m + 1]]``. Equal ones
    must lie side by side. ``token_set`` is empty. Return the message at which the output was
    full, or the end.
    """
    # Rows are many arrays: counting references to them in every call takes longer than scoring.
    rows, messages, candidates = borrow(rows), borrow(messages), borrow(candidates)
    token_set = borrow(token_set)
    start, found, scores = borrow(output)
    for message in range(part[0], part[1]):
        tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
        begin, end = candidates.start[message], candidates.start[message + 1]
        count = start[message]
        if count + end - begin > len(found):
            return message
        fill_token_set(token_set, tokens)
        for i in range(begin, end):
            if i + AHEAD < end:
                prefetch_row(rows, candidates.clause[i + AHEAD])
            if i + AHEAD // 2 < end:
                at = rows.token_start[candidates.clause[i + AHEAD // 2]]
                prefetch(rows.token, at)
                prefetch(rows.token_weight, at)
            row = candidates.clause[i]
            if i > begin and row == candidates.clause[i - 1]:
                continue
            score = score_pair(codes, rows, row, messages, message, token_set)
            found[count], scores[count] = row, score
            count += np.int64(score >= share(rows.threshold[row]) - TOLERANCE)
        clear_token_set(token_set, tokens)
        start[message + 1] = count
    return part[1]


@inlined_kernel
def prefetch_row(rows: RankedColumns, row: Number) -> None:
    """Prefetch what is read of a row, but for its tokens; boxes as if every row had one."""
    prefetch(rows.token_start, row)
    prefetch(rows.text_weight, row)
    prefetch(rows.text_share, row)
    prefetch(rows.threshold, row)
    prefetch(rows.max_distance_cm, row)
    prefetch(rows.box_start, row)
    prefetch(rows.box, row)
    prefetch(rows.area, row)


@inlined_kernel
def score_pair(
    codes: ScoringCodes,
    rows: RankedColumns,
    row: Number,
    messages: RankedMessages,
    message: Number,
    token_set: NDArray[np.int32],
) -> Number:
    """Return the score of a row and a message, whose tokens are in the set."""
    shared = shared_weight(rows, row, token_set)
    weight = messages.text_weight[message]
    text = text_score(codes.similarity, shared, rows.text_weight[row], weight)
    space = space_score(codes, rows, row, messages, message)
    return combined(share(rows.text_share[row]), text, space)


@kernel
def sort_heaviest_first(
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
    token_weight: NDArray[np.float64],
    text_weight: NDArray[np.float64],
) -> None:
    """Sort the tokens of every row by weight, the heaviest first, ties by number; write W."""
    for row in range(len(token_start) - 1):
        first, last = token_start[row], token_start[row + 1]
        for i in range(first + 1, last):
            moving, weight = token[i], token_weight[i]
            j = i
            while j > first and (
                token_weight[j - 1] < weight
                or (token_weight[j - 1] == weight and token[j - 1] > moving)
            ):
                token[j], token_weight[j] = token[j - 1], token_weight[j - 1]
                j -= 1
            token[j], token_weight[j] = moving, weight
        total = 0.0
        for i in range(first, last):
            total += token_weight[i]
        text_weight[row] = total
