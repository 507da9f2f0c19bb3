"""Score accepted candidates, many at a time, with the operations of `nearcast.compiled.scoring`.

Distances to a message that is a point are computed in loops without calls and branches, which
become vector instructions. Scores have the same bits as those of a single pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import EARTH_RADIUS_M
from nearcast.compiled.distances import (
    METERS_PER_UNIT,
    arc,
    box_distance_m,
    haversine,
    place_distance_m,
    planar_distance_m,
    short_way,
)
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.scoring import (
    CONTAINMENT,
    OVERLAP,
    PLANAR,
    RankedMessages,
    ScoringCodes,
    combined,
    nearness,
    share,
    text_score,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CANDIDATES = 1024
"""Candidates that are collected and scored at a time."""

CENTIMETER_MASK = np.int64(0xFFFFFFFF)


class Pending(NamedTuple):
    """Candidates to score, side by side; each array has `2 * CANDIDATES` values.

    - ``west``, ``south``, ``east``, ``north`` int32: the region; for proximity, the first three are
      longitude, latitude and largest distance.
    - ``share``, ``threshold``, ``row`` int32; ``target`` int64: where the score goes.
    - ``shared``, ``own`` float64: the weights I and W.
    - ``space``, ``score`` float64: S and the score.
    """

    west: NDArray[np.int32]
    south: NDArray[np.int32]
    east: NDArray[np.int32]
    north: NDArray[np.int32]
    share: NDArray[np.int32]
    threshold: NDArray[np.int32]
    row: NDArray[np.int32]
    target: NDArray[np.int64]
    shared: NDArray[np.float64]
    own: NDArray[np.float64]
    space: NDArray[np.float64]
    score: NDArray[np.float64]


def new_pending() -> Pending:
    """Return room for candidates."""
    size = 2 * CANDIDATES
    return Pending(
        west=np.empty(size, np.int32),
        south=np.empty(size, np.int32),
        east=np.empty(size, np.int32),
        north=np.empty(size, np.int32),
        share=np.empty(size, np.int32),
        threshold=np.empty(size, np.int32),
        row=np.empty(size, np.int32),
        target=np.empty(size, np.int64),
        shared=np.empty(size),
        own=np.empty(size),
        space=np.empty(size),
        score=np.empty(size),
    )


@kernel
def score_space_of_point(
    planar: Number, lon: Number, lat: Number, pending: Pending, count: Number
) -> None:
    """Write S of the first candidates for a message that is a point."""
    lons, lats, distance = pending.west, pending.south, pending.east
    space = pending.space
    if planar:
        for i in range(count):
            along = abs(np.float64(lats[i]) - lat)
            across = short_way(lon - np.float64(lons[i]))
            meters = np.sqrt(across * across + along * along) * METERS_PER_UNIT
            space[i] = nearness(meters, np.int64(distance[i]) & CENTIMETER_MASK)
        return
    for i in range(count):
        space[i] = haversine(np.float64(lons[i]), np.float64(lats[i]), lon, lat)
    opposite = np.int64(0)
    for i in range(count):
        opposite += np.int64(space[i] > 0.5)
    if opposite > 0:
        for i in range(count):
            meters = place_distance_m(np.float64(lons[i]), np.float64(lats[i]), lon, lat)
            space[i] = nearness(meters, np.int64(distance[i]) & CENTIMETER_MASK)
        return
    for i in range(count):
        meters = (2.0 * EARTH_RADIUS_M) * arc(space[i])
        space[i] = nearness(meters, np.int64(distance[i]) & CENTIMETER_MASK)


@kernel
def score_space_of_box(
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    pending: Pending,
    count: Number,
) -> None:
    """Write S of the first candidates for a message of any form."""
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    lons, lats, distance = pending.west, pending.south, pending.east
    for i in range(count):
        lon, lat, nearest = np.float64(lons[i]), np.float64(lats[i]), np.inf
        for piece in range(begin, end):
            if codes.distance == PLANAR:
                nearest = min(nearest, planar_distance_m(lon, lat, messages.box[piece]))
            else:
                nearest = min(nearest, box_distance_m(lon, lat, messages.box[piece]))
        pending.space[i] = nearness(nearest, np.int64(distance[i]) & CENTIMETER_MASK)


@kernel
def score_coverage(
    messages: RankedMessages, message: Number, pending: Pending, count: Number
) -> None:
    """Write the share of the region of the first candidates that a message covers."""
    box = messages.box
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    has_area = messages.area[message] != 0.0
    for i in range(count):
        west, south = np.int64(pending.west[i]), np.int64(pending.south[i])
        east, north = np.int64(pending.east[i]), np.int64(pending.north[i])
        area = (east - west) * (north - south)
        common, meets = np.int64(0), np.int64(0)
        for piece in range(begin, end):
            width = min(east, np.int64(box[piece, 2])) - max(west, np.int64(box[piece, 0]))
            height = min(north, np.int64(box[piece, 3])) - max(south, np.int64(box[piece, 1]))
            meets |= np.int64((width >= 0) & (height >= 0))
            common += max(width, np.int64(0)) * max(height, np.int64(0))
        covered = min(1.0, np.float64(common) / np.float64(max(area, np.int64(1))))
        pending.space[i] = covered if has_area and area != 0 else np.float64(meets)


@kernel
def score_space(
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    pending: Pending,
    count: Number,
) -> None:
    """Write S of the first candidates."""
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    box = messages.box[begin]
    if not codes.proximity:
        score_coverage(messages, message, pending, count)
    elif end - begin == 1 and box[0] == box[2] and box[1] == box[3]:
        lon, lat = np.float64(box[0]), np.float64(box[1])
        score_space_of_point(codes.distance == PLANAR, lon, lat, pending, count)
    else:
        score_space_of_box(codes, messages, message, pending, count)


@kernel
def score_text(
    similarity: Number, weight: Number, pending: Pending, first: Number, last: Number
) -> None:
    """Write T of a range of candidates to ``pending.score``."""
    shared, own, score = pending.shared, pending.own, pending.score
    if similarity == CONTAINMENT or similarity == OVERLAP:
        for i in range(np.uint64(first), np.uint64(last)):
            score[i] = 1.0 if own[i] == 0.0 else shared[i] / own[i]
        return
    for i in range(np.uint64(first), np.uint64(last)):
        score[i] = text_score(similarity, shared[i], own[i], weight)


@kernel
def score_with_space(similarity: Number, weight: Number, pending: Pending, count: Number) -> None:
    """Write the scores of the first candidates, whose S is known."""
    score_text(similarity, weight, pending, np.int64(0), count)
    score, space, units = pending.score, pending.space, pending.share
    for i in range(np.uint64(count)):
        score[i] = combined(share(units[i]), score[i], space[i])


@kernel
def score_without_space(similarity: Number, weight: Number, pending: Pending, last: Number) -> None:
    """Write the scores of candidates from `CANDIDATES` on, whose S is 0."""
    score_text(similarity, weight, pending, np.int64(CANDIDATES), last)
    score, units = pending.score, pending.share
    for i in range(np.uint64(CANDIDATES), np.uint64(last)):
        score[i] = combined(share(units[i]), score[i], 0.0)
