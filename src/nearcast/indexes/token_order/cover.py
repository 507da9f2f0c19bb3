"""The greedy cover: choose, again and again, the token that covers the most uncovered clauses.

A pair (a token, or a token in a cell) is numbered by its slot in the table of counts. Clauses of
different cells share no pair, so one greedy run over all pairs does the work for every cell. Pairs
wait in buckets by the number of clauses that they covered when they were put there. A pair that
covers fewer when its turn comes moves to a lower bucket. Each clause that becomes covered causes at
most one move per token, so the whole takes time in proportion to the tokens of all clauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.token_order.kernels import (
    AHEAD,
    ANYWHERE,
    MAX_COUNT,
    Frequencies,
    OrderedTokens,
    center_cell,
    find_pair,
    fingerprint,
    prefetch_clause,
    sort_clause,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseColumns

_NOT_CHOSEN = np.uint64(1 << 63)


class Pairs(NamedTuple):
    """The pairs of all clauses.

    - ``pair`` int32[tokens]: the pair of every token of the columns.
    - ``clause_start`` int64[pairs + 1], ``clause`` int32[tokens]: the clauses of every pair.
    """

    pair: NDArray[np.int32]
    clause_start: NDArray[np.int64]
    clause: NDArray[np.int32]


class Cover(NamedTuple):
    """The state of the greedy algorithm.

    - ``rank`` int32[pairs]: the position at which a pair was chosen, -1 if it was not.
    - ``left`` int32[pairs]: the number of its uncovered clauses.
    - ``below`` int32[pairs]: the next pair of its bucket, -1 for the last one.
    - ``top`` int32[buckets]: the first pair of every bucket. A pair with ``n`` clauses begins in
      bucket ``n``.
    - ``covered`` bool[clauses].
    """

    rank: NDArray[np.int32]
    left: NDArray[np.int32]
    below: NDArray[np.int32]
    top: NDArray[np.int32]
    covered: NDArray[np.bool_]


@kernel
def number_pairs(columns: ClauseColumns, tables: Frequencies, pair: NDArray[np.int32]) -> None:
    """Find the pair of every token."""
    local = len(tables.local) > 0
    for clause in range(len(columns.box)):
        prefetch_clause(columns, clause + AHEAD, tables)
        cell = center_cell(columns.box, clause, tables.grid) if local else ANYWHERE
        for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
            digest = fingerprint(cell, np.int64(columns.token[i]))
            pair[i] = find_pair(tables.local if local else tables.anywhere, digest)


@kernel
def list_clauses(columns: ClauseColumns, pairs: Pairs) -> None:
    """List the clauses of every pair; ``clause_start`` must be all 0."""
    start = pairs.clause_start
    for i in range(len(pairs.pair)):
        start[pairs.pair[i]] += 1
    total = np.int64(0)
    for p in range(len(start)):
        total += start[p]
        start[p] = total
    # Filling from the back moves every start from the end of its piece to the beginning.
    ahead = np.int64(64)
    for clause in range(len(columns.box) - 1, -1, -1):
        for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
            if i >= ahead:
                prefetch(start, pairs.pair[i - ahead])
            start[pairs.pair[i]] -= 1
            pairs.clause[start[pairs.pair[i]]] = clause


@kernel
def _choose(columns: ClauseColumns, pairs: Pairs, cover: Cover, chosen: Number) -> None:
    """Cover the clauses of a pair, and count them as covered for their other pairs."""
    for c in range(pairs.clause_start[chosen], pairs.clause_start[chosen + 1]):
        clause = np.int64(pairs.clause[c])
        if not cover.covered[clause]:
            cover.covered[clause] = True
            for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
                cover.left[pairs.pair[i]] -= 1


@kernel
def cover_clauses(columns: ClauseColumns, pairs: Pairs, cover: Cover) -> Number:
    """Choose pairs until every clause that has tokens is covered; return their number."""
    for pair in range(len(cover.left) - 1, -1, -1):
        if cover.left[pair] > 0:
            cover.below[pair] = cover.top[cover.left[pair]]
            cover.top[cover.left[pair]] = pair
    chosen = np.int64(0)
    for size in range(len(cover.top) - 1, 0, -1):
        while cover.top[size] >= 0:
            p = np.int64(cover.top[size])
            cover.top[size] = cover.below[p]
            left = cover.left[p]
            if left == size:
                cover.rank[p] = chosen
                chosen += 1
                _choose(columns, pairs, cover, p)
            elif left > 0:
                cover.below[p] = cover.top[left]
                cover.top[left] = p
    return chosen


@kernel
def order_by_cover(
    columns: ClauseColumns,
    pairs: Pairs,
    rank: NDArray[np.int32],
    table: NDArray[np.uint64],
    result: OrderedTokens,
) -> None:
    """Order tokens as their pairs were chosen; tokens that were not follow, frequent ones first."""
    ahead, key = np.int64(64), result.key
    for clause in range(len(columns.box)):
        first, last = columns.token_start[clause], columns.token_start[clause + 1]
        for i in range(first, last):
            if i + ahead < len(pairs.pair):
                prefetch(rank, pairs.pair[i + ahead])
            p = pairs.pair[i]
            if rank[p] >= 0:
                key[i - first] = np.uint64(rank[p])
            else:
                key[i - first] = _NOT_CHOSEN | (MAX_COUNT - (table[p] & MAX_COUNT))
        sort_clause(columns, clause, result)
