"""From clauses that match by tokens and box to subscriptions that match.

Every index answers the same question (which clauses have all their tokens in the message, and a
box that meets it); what is the same for all of them happens here, once: tokens that must not
occur, exact shapes, and one match per subscription however many of its clauses, or pieces of the
message, found it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.messages import MessageArrays, contains
from nearcast.compiled.shapes import ShapeArrays, box_meets_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ClauseArrays(NamedTuple):
    """What is left to check of a clause once its tokens and box match."""

    negative_start: NDArray[np.int64]
    negative: NDArray[np.int32]
    row: NDArray[np.int32]
    shape: NDArray[np.int32]


@kernel
def holds(
    clauses: ClauseArrays,
    shapes: ShapeArrays,
    messages: MessageArrays,
    piece: Number,
    clause: Number,
) -> Number:
    """Check the forbidden tokens and the exact shape of a clause."""
    tokens = messages.token[messages.token_start[piece] : messages.token_start[piece + 1]]
    for i in range(clauses.negative_start[clause], clauses.negative_start[clause + 1]):
        if contains(tokens, clauses.negative[i]):
            return False
    shape = clauses.shape[clause]
    return shape < 0 or box_meets_shape(shapes, shape, messages.box[piece])


@kernel
def keep_distinct(values: NDArray[np.int32]) -> Number:
    """Sort values and move the distinct ones to the front; return how many there are."""
    values.sort()
    count = 0
    for i in range(len(values)):
        if count == 0 or values[i] != values[count - 1]:
            values[count] = values[i]
            count += 1
    return count


@kernel
def join_pieces(
    piece_start: NDArray[np.int64],
    found_start: NDArray[np.int64],
    found: NDArray[np.int32],
    match_start: NDArray[np.int64],
) -> None:
    """Join what was found for the pieces of every message, in place, each clause once.

    For clauses with nothing left to check, each of which is a subscription of its own.
    """
    count = np.int64(0)
    for message in range(len(piece_start) - 1):
        begin = count
        first, last = piece_start[message], piece_start[message + 1]
        for i in range(found_start[first], found_start[last]):
            found[count] = found[i]
            count += 1
        if last - first > 1:
            count = begin + keep_distinct(found[begin:count])
        match_start[message + 1] = count


@kernel
def verify_clauses(
    clauses: ClauseArrays,
    shapes: ShapeArrays,
    messages: MessageArrays,
    piece_start: NDArray[np.int64],
    found_start: NDArray[np.int64],
    found: NDArray[np.int32],
    match_start: NDArray[np.int64],
) -> None:
    """Turn the clauses found for every piece into the subscription rows of every message, in place.

    Message ``m`` consists of the pieces ``piece_start[m]`` to ``piece_start[m + 1]``.
    """
    count = np.int64(0)
    for message in range(len(piece_start) - 1):
        begin = count
        for piece in range(piece_start[message], piece_start[message + 1]):
            for i in range(found_start[piece], found_start[piece + 1]):
                clause = found[i]
                if holds(clauses, shapes, messages, piece, clause):
                    found[count] = clauses.row[clause]
                    count += 1
        count = begin + keep_distinct(found[begin:count])
        match_start[message + 1] = count
