"""The greedy cover: again and again the token with the most clauses that have none chosen yet.

A pair (a token, or a token in a cell) is numbered by its slot in the table of counts. Cells do not
touch each other, so one greedy over all pairs is that of every cell. Pairs wait in buckets by how
many clauses they had when they were put there; who has fewer when its turn comes goes back to a
lower bucket. Every such move is paid for by a clause that was covered, so that the whole takes
time in proportion to the tokens of all clauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.token_order.kernels import (
    AHEAD,
    ANYWHERE,
    MOST,
    Columns,
    Frequencies,
    centre_cell,
    find_pair,
    fingerprint,
    prefetch_clause,
    sort_clause,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOT_CHOSEN = np.uint64(1 << 63)


class Pairs(NamedTuple):
    """The pairs of all clauses.

    - ``pair`` int32[tokens]: the pair of every token of the columns.
    - ``clause_start`` int64[pairs + 1], ``clause`` int32[tokens]: the clauses that have a pair.
    """

    pair: NDArray[np.int32]
    clause_start: NDArray[np.int64]
    clause: NDArray[np.int32]


class Cover(NamedTuple):
    """The state of the greedy.

    - ``rank`` int32[pairs]: when a pair was chosen, -1 for those that were not.
    - ``left`` int32[pairs]: how many of its clauses are not covered.
    - ``below`` int32[pairs]: the pair below it in its bucket, -1 for the last one.
    - ``top`` int32[most clauses of a pair + 1]: the first pair of every bucket.
    - ``covered`` bool[clauses].
    """

    rank: NDArray[np.int32]
    left: NDArray[np.int32]
    below: NDArray[np.int32]
    top: NDArray[np.int32]
    covered: NDArray[np.bool_]


@kernel
def number_pairs(columns: Columns, tables: Frequencies, pair: NDArray[np.int32]) -> None:
    """Find the pair of every token."""
    local = len(tables.local) > 0
    for clause in range(len(columns.box)):
        prefetch_clause(columns, clause + AHEAD, tables)
        cell = centre_cell(columns.box, clause, tables.grid) if local else ANYWHERE
        for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
            mark = fingerprint(cell, np.int64(columns.token[i]))
            pair[i] = find_pair(tables.local if local else tables.anywhere, mark)


@kernel
def list_clauses(columns: Columns, pairs: Pairs) -> None:
    """List the clauses of every pair; ``clause_start`` is all 0 before."""
    start = pairs.clause_start
    for i in range(len(pairs.pair)):
        start[pairs.pair[i]] += 1
    total = np.int64(0)
    for p in range(len(start)):
        total += start[p]
        start[p] = total
    # Filled from behind, every start moves from the end of its piece to the beginning.
    ahead = np.int64(64)
    for clause in range(len(columns.box) - 1, -1, -1):
        for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
            if i >= ahead:
                prefetch(start, pairs.pair[i - ahead])
            start[pairs.pair[i]] -= 1
            pairs.clause[start[pairs.pair[i]]] = clause


@kernel
def _choose(columns: Columns, pairs: Pairs, cover: Cover, chosen: Number) -> None:
    """Cover the clauses of a pair; the other pairs of those have one less to cover."""
    for c in range(pairs.clause_start[chosen], pairs.clause_start[chosen + 1]):
        clause = np.int64(pairs.clause[c])
        if not cover.covered[clause]:
            cover.covered[clause] = True
            for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
                cover.left[pairs.pair[i]] -= 1


@kernel
def cover_clauses(columns: Columns, pairs: Pairs, cover: Cover) -> Number:
    """Choose pairs until every clause that has tokens is covered; return how many were chosen."""
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
    columns: Columns,
    pairs: Pairs,
    rank: NDArray[np.int32],
    table: NDArray[np.uint64],
    key: NDArray[np.uint64],
    ordered: NDArray[np.int32],
) -> None:
    """Order the tokens of all clauses: as they were chosen, then the frequent ones first."""
    ahead = np.int64(64)
    for clause in range(len(columns.box)):
        first, last = columns.token_start[clause], columns.token_start[clause + 1]
        for i in range(first, last):
            if i + ahead < len(pairs.pair):
                prefetch(rank, pairs.pair[i + ahead])
            p = pairs.pair[i]
            if rank[p] >= 0:
                key[i - first] = np.uint64(rank[p])
            else:
                key[i - first] = _NOT_CHOSEN | (MOST - (table[p] & MOST))
        sort_clause(columns.token[first:last], key, ordered[first:last])
