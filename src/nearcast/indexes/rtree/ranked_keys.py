"""Which tokens of a ranked subscription nodes have to know, and how far away each one matters.

The tokens of a subscription are in the order of their weight, the heaviest first. If a message
shares the i-th token and none before it, then it shares at most that token and those behind it.
This limits T, and so the distance of a match (`ranked_space`). A token whose limit is `NOWHERE`
need not be known: neither need those behind it, since limits never grow along the order. What a
message can match without sharing any token has the token `NO_TOKEN`, the *dummy*, which every
message has; a subscription without keywords has nothing else.

Two forms, both with a clause's tokens at ``start[c]:start[c + 1]``:

- *signatures* (``rt++-tree``): the tokens that have a limit, and their limits; the dummy last.
- *prefixes* (``rt+-tree``): ``2 * token`` if a match must meet the message, and ``2 * token + 1``,
  too, if it can be anywhere. The token of the dummy is `EVERY`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import gather
from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.compiled.scoring import RankedColumns, ScoringCodes, text_bound
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.rtree.ranked_space import ANYWHERE, NOWHERE, limit_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses

EVERY = NO_TOKEN - 1
"""The token of the dummy among prefixes, which must be below `NO_TOKEN`: a prefix has one bit more
than a token. Should a subscription have this very token, it is found as a dummy."""


class Keys(NamedTuple):
    """Signatures or prefixes of clauses: ``start`` int64[n + 1], ``token``, ``limit`` float32.

    Tokens are int32 in signatures, uint32 in prefixes. Prefixes have no limits.
    """

    start: NDArray[np.int64]
    token: NDArray[Any]
    limit: NDArray[np.float32]


def signatures(codes: ScoringCodes, rows: RankedColumns, clauses: Clauses, first: int = 0) -> Keys:
    """Return the signatures of the clauses from number ``first`` on."""
    return _written(write_signatures, codes, rows, clauses, first, (1, np.int32))


def prefixes(codes: ScoringCodes, rows: RankedColumns, clauses: Clauses, first: int = 0) -> Keys:
    """Return the prefixes of the clauses from number ``first`` on."""
    keys = _written(write_prefixes, codes, rows, clauses, first, (2, np.uint32))
    return keys._replace(limit=np.empty(0, np.float32))


def _written(
    write: Number,
    codes: ScoringCodes,
    rows: RankedColumns,
    clauses: Clauses,
    first: int,
    form: tuple[int, Any],
) -> Keys:
    each, dtype = form
    count = len(clauses) - first
    most = each * (int(clauses.token_start[-1] - clauses.token_start[first]) + count)
    keys = Keys(np.zeros(count + 1, np.int64), np.empty(most, dtype), np.empty(most, np.float32))
    write(codes, rows, clauses.row[first:], keys)
    end = int(keys.start[-1])
    return keys._replace(token=keys.token[:end].copy(), limit=keys.limit[:end].copy())


def ordered_tokens(rows: RankedColumns, clauses: Clauses, first: int = 0) -> NDArray[np.int32]:
    """Return the tokens of the clauses from number ``first`` on, the heaviest of each first."""
    if len(clauses) == len(rows.text_weight):
        return rows.token[rows.token_start[first] :]
    _, position = gather(rows.token_start, clauses.row[first:])
    tokens: NDArray[np.int32] = rows.token[position]
    return tokens


@kernel
def token_limit(codes: ScoringCodes, rows: RankedColumns, row: Number, rest: Number) -> Number:
    """Return the limit of a row for messages that share tokens of weight ``rest`` at most."""
    return limit_of(codes, rows, row, text_bound(codes.similarity, rest, rows.text_weight[row]))


@kernel
def write_signatures(
    codes: ScoringCodes, rows: RankedColumns, row_of: NDArray[np.int32], keys: Keys
) -> None:
    """Write the signatures of clauses, given by their rows."""
    rows, keys = borrow(rows), borrow(keys)
    end = np.int64(0)
    for clause in range(len(row_of)):
        row = np.int64(row_of[clause])
        first, last = rows.token_start[row], rows.token_start[row + 1]
        rest = rows.text_weight[row]
        for i in range(first, last):
            limit = token_limit(codes, rows, row, rest)
            if limit == NOWHERE:
                break
            keys.token[end], keys.limit[end] = rows.token[i], limit
            end += 1
            rest -= rows.token_weight[i]
        limit = token_limit(codes, rows, row, 0.0)
        if limit != NOWHERE:
            keys.token[end], keys.limit[end] = NO_TOKEN, limit
            end += 1
        keys.start[clause + 1] = end


@kernel
def write_prefixes(
    codes: ScoringCodes, rows: RankedColumns, row_of: NDArray[np.int32], keys: Keys
) -> None:
    """Write the prefixes of clauses, given by their rows."""
    rows, keys = borrow(rows), borrow(keys)
    end = np.int64(0)
    for clause in range(len(row_of)):
        row = np.int64(row_of[clause])
        first, last = rows.token_start[row], rows.token_start[row + 1]
        rest = rows.text_weight[row]
        for i in range(first, last + 1):
            limit = token_limit(codes, rows, row, rest if i < last else 0.0)
            if limit == NOWHERE:
                break
            token = min(np.int64(rows.token[i]), EVERY) if i < last else EVERY
            keys.token[end] = 2 * token
            end += 1
            if limit == ANYWHERE:
                keys.token[end] = 2 * token + 1
                end += 1
            if i < last:
                rest -= rows.token_weight[i]
        keys.start[clause + 1] = end
