"""Ranked subscriptions as clauses: which messages may match them, and where.

A boolean clause says what a message must have. A ranked subscription matches messages that share
some of its tokens if they are near enough, so it becomes several clauses, one for each token that
can be the *first shared one*::

    tokens, heaviest first    t1            t2           t3          none of them
    most that is shared       t1 + t2 + t3  t2 + t3      t3          0
    place                     large cap     smaller cap  out of      smallest cap,
                                                         reach       without a token

If ti is the first of its tokens that a message has, then the two share at most ti and the tokens
after it. That bounds the text score, and the rest of the score bounds the distance: a match has
the token ti and lies in the cap of `reach_m` around the subscription. A region that a message
must overlap takes the place of the cap. Where words alone are enough, the place is the whole world.

So for every match there is a clause whose token the message has and whose box it meets. On Spark
the router brings both to a shard; in an engine a moving index finds the living messages that a
ranked subscription may match. Conditions are left out: they only exclude messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import (
    BOOLEAN,
    DISTANCES,
    PROXIMITY,
    WORLD,
    Clauses,
    Ranked,
    Shapes,
    gather,
    read_only,
    starts,
)
from nearcast.compiled.distances import METERS_PER_UNIT, TURN
from nearcast.compiled.scoring import PLANAR, sort_heaviest_first
from nearcast.indexes.ranked import token_weights
from nearcast.intake.places import split_meridian
from nearcast.model.circles import circle_boxes
from nearcast.segments.routing_entries import NO_TOKEN, Entries, RankedRows, write_entries
from nearcast.segments.word_clauses import word_clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.text import Vocabulary

__all__ = ["routing_clauses"]


def routing_clauses(content: Clauses | Ranked, vocabulary: Vocabulary) -> Clauses:
    """Return clauses with the same rows, of which one is true of every message that matches a row.

    Boolean rows keep their tokens and boxes, words instead of phrases (`word_clauses`). Forbidden
    tokens and exact shapes of ranked rows are left out.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> near = Ranked.of([[1, 2]], [[0, 0]], kind="proximity", p=0.5, q=0.6, max_distance_m=1000)
    >>> clauses = routing_clauses(near, Vocabulary())
    >>> clauses.row.tolist(), clauses.token.tolist(), clauses.box[:, 2].tolist()
    ([0, 0], [2, 1], [26980, 71946])
    """
    if isinstance(content, Clauses):
        return word_clauses(content, vocabulary)
    clauses, kind = content.clauses, content.rankings.kind
    clause_start = np.searchsorted(clauses.row, np.arange(len(content) + 1))
    rows = np.flatnonzero(kind != BOOLEAN)
    entries = _entries(content, rows, clause_start[rows])
    piece, box = _boxes(content, entries, clause_start)
    boolean = np.flatnonzero(kind[clauses.row] == BOOLEAN)
    boolean_start, boolean_token = gather(clauses.token_start, boolean)
    token = entries.token[piece]
    length = np.concatenate([np.diff(boolean_start), token != NO_TOKEN])
    tokens = np.concatenate([clauses.token[boolean_token], token[token != NO_TOKEN]])
    row = np.concatenate([clauses.row[boolean], entries.row[piece]])
    order = np.argsort(row, kind="stable")
    token_start, chosen = gather(starts(length), order)
    routed = Clauses(
        token_start=token_start,
        token=tokens[chosen],
        negative_start=np.zeros(len(row) + 1, np.int64),
        negative=np.empty(0, np.int32),
        box=np.concatenate([clauses.box[boolean], box])[order],
        row=row[order],
        shape=np.full(len(row), -1, np.int32),
        shapes=Shapes.empty(),
        subscriptions=len(content),
    )
    return word_clauses(routed, vocabulary)


def _entries(content: Ranked, rows: NDArray[np.int64], first_clause: NDArray[np.int64]) -> Entries:
    """Return the entries of ranked rows; all clauses of a row have the tokens of its first one."""
    token_start, at = gather(content.clauses.token_start, first_clause)
    token = content.clauses.token[at]
    weight, text_weight = token_weights(content, token), np.zeros(len(rows))
    start = read_only(token_start, np.int64)
    sort_heaviest_first(start, token, weight, text_weight)
    rankings = content.rankings
    ranked = RankedRows(
        start,
        read_only(token, np.int32),
        read_only(weight, np.float64),
        read_only(text_weight, np.float64),
        read_only(rankings.text_share[rows], np.int32),
        read_only(rankings.threshold[rows], np.int32),
        read_only(rankings.max_distance_cm[rows], np.uint32),
    )
    most = len(rows) + len(token)
    entries = Entries(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most))
    count = write_entries(ranked, content.scoring.codes[0], entries)
    row = rows[entries.row[:count]].astype(np.int32)
    return Entries(row, entries.token[:count], entries.reach_m[:count])


def _boxes(
    content: Ranked, entries: Entries, clause_start: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the boxes of entries, and the entry of each box."""
    clauses = content.clauses
    finite = np.isfinite(entries.reach_m)
    by_distance = content.rankings.kind[entries.row] == PROXIMITY
    everywhere = np.flatnonzero(~finite)
    near, region = np.flatnonzero(finite & by_distance), np.flatnonzero(finite & ~by_distance)
    place = clauses.box[clause_start[entries.row[near]], :2]
    caps = planar_boxes if content.scoring.distance == DISTANCES[PLANAR] else circle_boxes
    cap, cap_box = caps(place, entries.reach_m[near])
    piece_start, clause = gather(clause_start, entries.row[region])
    piece = np.concatenate([everywhere, near[cap], np.repeat(region, np.diff(piece_start))])
    world = np.broadcast_to(np.array(WORLD, np.int32), (len(everywhere), 4))
    return piece, np.concatenate([world, cap_box, clauses.box[clause]])


def planar_boxes(
    center: NDArray[np.int32], radius_m: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the boxes of circles on a flat map, as `circle_boxes` does on the sphere.

    Examples
    --------
    >>> circle, box = planar_boxes(np.array([[1_799_999_999, 0]], np.int32), np.array([0.0]))
    >>> circle.tolist(), box.tolist()
    ([0, 0], [[1799999997, -2, 1800000000, 2], [-1800000000, -2, -1799999999, 2]])
    """
    lon, lat = center[:, 0].astype(np.int64), center[:, 1].astype(np.int64)
    # One unit more than needed, far more than a distance loses in floating point.
    reach = np.minimum(np.ceil(radius_m / METERS_PER_UNIT) + 2, TURN).astype(np.int64)
    around = 2 * reach >= TURN
    west = np.where(around, WORLD[0], lon - reach)
    east = np.where(around, WORLD[2], lon + reach)
    west += TURN * (west < WORLD[0])
    east -= TURN * (east > WORLD[2])
    south, north = np.maximum(lat - reach, WORLD[1]), np.minimum(lat + reach, WORLD[3])
    return split_meridian(np.stack([west, south, east, north], axis=1).astype(np.int32))
