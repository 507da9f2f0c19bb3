"""Subscriptions with boolean expressions, drawn as in the ap-tree paper, section 5.1.1.

The keywords of a subscription are shuffled and split into two parts, which are joined by AND or OR.
The keywords of a part are also joined by AND or OR: ``(a OR b) AND (c AND d)``. In disjunctive
normal form such an expression has a few clauses, each with at most one run of keywords from each
part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Clauses, Shapes, starts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Expressions", "draw_expressions", "to_clauses"]


class Expressions(NamedTuple):
    """Expressions; the tokens of expression ``e`` start at ``token_start[e]``.

    The first ``left[e]`` tokens are the left part, the others the right part. ``left_or``,
    ``right_or`` and ``join_or`` tell which are joined by OR. With only one token, the right part is
    empty.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    left: NDArray[np.int64]
    left_or: NDArray[np.bool_]
    right_or: NDArray[np.bool_]
    join_or: NDArray[np.bool_]


class _Part(NamedTuple):
    """One part of each expression: the number and the positions of its alternatives.

    If joined by OR, each token is an alternative; if joined by AND, all tokens are one alternative.
    """

    first: NDArray[np.int64]
    alternatives: NDArray[np.int64]
    tokens_each: NDArray[np.int64]

    @classmethod
    def of(
        cls, first: NDArray[np.int64], tokens: NDArray[np.int64], joined_or: NDArray[np.bool_]
    ) -> _Part:
        """Return the parts with these numbers of tokens."""
        one = np.minimum(tokens, 1)
        return cls(first, np.where(joined_or, tokens, one), np.where(joined_or, one, tokens))

    def runs(
        self, row: NDArray[np.int64], alternative: NDArray[np.int64], used: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first token and the number of tokens of alternatives, 0 if not ``used``."""
        each = self.tokens_each[row]
        return self.first[row] + alternative * each, np.where(used, each, 0)


def draw_expressions(rng: np.random.Generator, clauses: Clauses) -> Expressions:
    """Draw an expression over the tokens of each clause."""
    length = np.diff(clauses.token_start)
    owner = np.repeat(np.arange(len(length)), length)
    shuffled = clauses.token[np.lexsort((rng.random(len(owner)), owner))]
    # From 1 to one less than the number of tokens; a single token is the left part.
    left = np.minimum(1 + (rng.random(len(length)) * (length - 1)).astype(np.int64), length)
    joined_or = rng.random((3, len(length))) < 0.5
    return Expressions(clauses.token_start, shuffled, left, *joined_or)


def to_clauses(base: Clauses, drawn: Expressions) -> Clauses:
    """Return the clauses of expressions; expression ``e`` has the box of clause ``e``."""
    first, length = drawn.token_start[:-1], np.diff(drawn.token_start)
    left = _Part.of(first, drawn.left, drawn.left_or)
    right = _Part.of(first + drawn.left, length - drawn.left, drawn.right_or)
    separate = drawn.join_or | (right.alternatives == 0)
    count = np.where(
        separate,
        left.alternatives + right.alternatives,
        left.alternatives * right.alternatives,
    )
    row = np.repeat(np.arange(len(count), dtype=np.int64), count)
    number = np.arange(len(row)) - starts(count)[row]
    # Separate: the alternatives of the left part, then those of the right. Otherwise: all pairs.
    of_left, of_right = np.divmod(number, np.maximum(right.alternatives, 1)[row])
    later = number - left.alternatives[row]
    separate = separate[row]
    runs = [
        left.runs(row, np.where(separate, number, of_left), ~separate | (later < 0)),
        right.runs(row, np.where(separate, later, of_right), ~separate | (later >= 0)),
    ]
    token_start, token = _tokens(drawn.token, runs)
    return Clauses(
        token_start=token_start,
        token=token,
        negative_start=np.zeros(len(row) + 1, np.int64),
        negative=np.empty(0, np.int32),
        box=base.box[row],
        row=row.astype(np.int32),
        shape=np.full(len(row), -1, np.int32),
        shapes=Shapes.empty(),
        subscriptions=len(count),
    )


def _tokens(
    token: NDArray[np.int32], runs: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Merge the runs of each clause, with tokens in ascending order."""
    keys = []
    for begin, length in runs:
        clause = np.repeat(np.arange(len(length)), length)
        position = begin[clause] + np.arange(len(clause)) - starts(length)[clause]
        keys.append((clause << 32) | token[position])
    key = np.sort(np.concatenate(keys))
    total = np.sum([length for _, length in runs], axis=0)
    return starts(total), (key & 0xFFFFFFFF).astype(np.int32)
