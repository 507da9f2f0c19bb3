"""Turn clauses that match by tokens and box into subscriptions that match.

Every boolean index finds the clauses whose tokens all occur in a message and whose box overlaps it.
The rest is the same for all of them and done here: forbidden tokens, exact shapes, and one match
per subscription, even if several of its clauses or several pieces of the message match.

Used by `nearcast.indexes.boolean`, and so by all index families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.messages import MessageArrays, Output, contains
from nearcast.compiled.shapes import ShapeArrays, box_overlaps_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ClauseArrays(NamedTuple):
    """The columns of clauses that are checked after tokens and box."""

    negative_start: NDArray[np.int64]
    negative: NDArray[np.int32]
    row: NDArray[np.int32]
    shape: NDArray[np.int32]


@kernel
def is_match(
    clauses: ClauseArrays,
    shapes: ShapeArrays,
    messages: MessageArrays,
    piece: Number,
    clause: Number,
) -> Number:
    """Tell whether a clause matches by its forbidden tokens and its exact shape."""
    tokens = messages.token[messages.token_start[piece] : messages.token_start[piece + 1]]
    for i in range(clauses.negative_start[clause], clauses.negative_start[clause + 1]):
        if contains(tokens, clauses.negative[i]):
            return False
    shape = clauses.shape[clause]
    return shape < 0 or box_overlaps_shape(shapes, shape, messages.box[piece])


@kernel
def keep_distinct(values: NDArray[np.int32]) -> Number:
    """Sort values and move the distinct ones to the front; return their number."""
    values.sort()
    count = 0
    for i in range(len(values)):
        if count == 0 or values[i] != values[count - 1]:
            values[count] = values[i]
            count += 1
    return count


@kernel
def join_pieces(
    piece_start: NDArray[np.int64], output: Output, match_start: NDArray[np.int64]
) -> None:
    """Join the clauses found for the pieces of every message, in place, each clause once.

    For clauses with nothing left to check, where each clause is its own subscription.
    """
    found_start, found = output
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
    output: Output,
    match_start: NDArray[np.int64],
) -> None:
    """Turn the clauses found for every piece into the subscription rows of every message, in place.

    Message ``m`` consists of the pieces ``piece_start[m]`` to ``piece_start[m + 1]``.
    """
    found_start, found = output
    count = np.int64(0)
    for message in range(len(piece_start) - 1):
        begin = count
        for piece in range(piece_start[message], piece_start[message + 1]):
            for i in range(found_start[piece], found_start[piece + 1]):
                clause = found[i]
                if is_match(clauses, shapes, messages, piece, clause):
                    found[count] = clauses.row[clause]
                    count += 1
        count = begin + keep_distinct(found[begin:count])
        match_start[message + 1] = count
