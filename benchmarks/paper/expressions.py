"""Subscriptions with general boolean expressions, drawn as in the ap-tree paper, section 5.1.1.

The keywords of a subscription, in any order, are cut into two parts, which are joined by AND or OR;
the keywords of a part are joined by AND or OR likewise: ``(a OR b) AND (c AND d)``. In disjunctive
normal form such an expression has a few clauses, each made of at most one run of keywords from
either part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Clauses, Shapes, starts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Expressions", "draw_expressions", "to_clauses"]


class Expressions(NamedTuple):
    """Expressions over runs of tokens: those of number ``e`` begin at ``token_start[e]``.

    The first ``left[e]`` tokens are the one part, the others the other; ``left_or``, ``right_or``
    and ``join_or`` say what is joined by OR. A part may be empty where there is only one token.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    left: NDArray[np.int64]
    left_or: NDArray[np.bool_]
    right_or: NDArray[np.bool_]
    join_or: NDArray[np.bool_]


class _Part(NamedTuple):
    """One part of some expressions: how many alternatives it is, and where they lie.

    Joined by OR every token is an alternative; joined by AND all of them are one.
    """

    first: NDArray[np.int64]
    alternatives: NDArray[np.int64]
    tokens_each: NDArray[np.int64]

    @classmethod
    def of(
        cls, first: NDArray[np.int64], tokens: NDArray[np.int64], joined_or: NDArray[np.bool_]
    ) -> _Part:
        """Return the part with this number of tokens."""
        one = np.minimum(tokens, 1)
        return cls(first, np.where(joined_or, tokens, one), np.where(joined_or, one, tokens))

    def runs(
        self, row: NDArray[np.int64], alternative: NDArray[np.int64], taken: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the tokens of alternatives begin, and how many: none if not taken."""
        each = self.tokens_each[row]
        return self.first[row] + alternative * each, np.where(taken, each, 0)


def draw_expressions(rng: np.random.Generator, clauses: Clauses) -> Expressions:
    """Make an expression of the tokens of every clause."""
    length = np.diff(clauses.token_start)
    owner = np.repeat(np.arange(len(length)), length)
    shuffled = clauses.token[np.lexsort((rng.random(len(owner)), owner))]
    # From 1 to one less than there are; where there is one token, it is the left part.
    left = np.minimum(1 + (rng.random(len(length)) * (length - 1)).astype(np.int64), length)
    joined_or = rng.random((3, len(length))) < 0.5
    return Expressions(clauses.token_start, shuffled, left, *joined_or)


def to_clauses(plain: Clauses, drawn: Expressions) -> Clauses:
    """Return the clauses of expressions; expression ``e`` takes the box of clause ``e``."""
    first, length = drawn.token_start[:-1], np.diff(drawn.token_start)
    left = _Part.of(first, drawn.left, drawn.left_or)
    right = _Part.of(first + drawn.left, length - drawn.left, drawn.right_or)
    apart = drawn.join_or | (right.alternatives == 0)
    count = np.where(
        apart,
        left.alternatives + right.alternatives,
        left.alternatives * right.alternatives,
    )
    row = np.repeat(np.arange(len(count), dtype=np.int64), count)
    number = np.arange(len(row)) - starts(count)[row]
    # Apart: first the alternatives of the left, then those of the right. Together: all pairs.
    of_left, of_right = np.divmod(number, np.maximum(right.alternatives, 1)[row])
    later = number - left.alternatives[row]
    apart = apart[row]
    runs = [
        left.runs(row, np.where(apart, number, of_left), ~apart | (later < 0)),
        right.runs(row, np.where(apart, later, of_right), ~apart | (later >= 0)),
    ]
    token_start, token = _tokens(drawn.token, runs)
    return Clauses(
        token_start=token_start,
        token=token,
        negative_start=np.zeros(len(row) + 1, np.int64),
        negative=np.empty(0, np.int32),
        box=plain.box[row],
        row=row.astype(np.int32),
        shape=np.full(len(row), -1, np.int32),
        shapes=Shapes.empty(),
        subscriptions=len(count),
    )


def _tokens(
    token: NDArray[np.int32], runs: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Put the runs of every clause together, its tokens ascending."""
    keys = []
    for begin, length in runs:
        clause = np.repeat(np.arange(len(length)), length)
        at = begin[clause] + np.arange(len(clause)) - starts(length)[clause]
        keys.append((clause << 32) | token[at])
    key = np.sort(np.concatenate(keys))
    total = np.sum([length for _, length in runs], axis=0)
    return starts(total), (key & 0xFFFFFFFF).astype(np.int32)
