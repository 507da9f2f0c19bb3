"""Count tokens, over all clauses and by grid cell, and order the tokens of clauses by the counts.

A table of counts is uint64[slots] with open addressing and 8 bytes for each pair of a cell and a
token: one bit that the slot is in use, a fingerprint of 35 bits, and a count of 28 bits. Within a
cell, fingerprints are unique. Pairs of different cells may share one; that is rare and does no
harm, since any order is correct. The position of a fingerprint grows with the fingerprint, so a
table is copied to one of another size by a sequential sweep over both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseColumns

ANYWHERE = np.int64(-1)
"""The cell of counts over all clauses."""

MAX_COUNT = np.uint64((1 << 28) - 1)
"""Counts stop here."""

AHEAD = 12
"""How many clauses ahead the tables are prefetched."""

_USED = np.uint64(1 << 63)
_COUNT_BITS = np.uint64(28)
_MASK35 = np.uint64((1 << 35) - 1)


class Frequencies(NamedTuple):
    """Tables of counts.

    - ``anywhere`` uint64[slots]: counts over all clauses.
    - ``local`` uint64[slots]: counts by cell; without slots if the order is not local.
    - ``used`` int64[2]: the number of slots in use, in either table.
    - ``grid`` int64[6]: the number of cells across and up, and the box of the grid.
    """

    anywhere: NDArray[np.uint64]
    local: NDArray[np.uint64]
    used: NDArray[np.int64]
    grid: NDArray[np.int64]


class CountedPairs(NamedTuple):
    """Pairs of a cell and a token, and how often each occurs."""

    cell: NDArray[np.int64]
    token: NDArray[np.int32]
    frequency: NDArray[np.int64]


class OrderedTokens(NamedTuple):
    """The output of ordering: each token of a clause at its position in the columns minus ``base``.

    ``key`` uint64[longest clause] is scratch for the keys of one clause.
    """

    token: NDArray[np.int32]
    key: NDArray[np.uint64]
    base: Number


@kernel
def center_cell(box: NDArray[np.int32], clause: Number, grid: NDArray[np.int64]) -> Number:
    """Return the cell of the center of a clause's box; the nearest one if that is outside."""
    x = ((np.int64(box[clause, 0]) + np.int64(box[clause, 2])) >> 1) - grid[2]
    y = ((np.int64(box[clause, 1]) + np.int64(box[clause, 3])) >> 1) - grid[3]
    column = min(max(x, 0) * grid[0] // max(grid[4] - grid[2], 1), grid[0] - 1)
    return min(max(y, 0) * grid[1] // max(grid[5] - grid[3], 1), grid[1] - 1) * grid[0] + column


@kernel
def fingerprint(cell: Number, token: Number) -> Number:
    """Return a fingerprint of 35 bits for a token in a cell, unique within the cell."""
    salt = np.uint64(cell + 1) * np.uint64(0x9E3779B97F4A7C15)
    bits = (np.uint64(token) ^ (salt >> np.uint64(13))) & _MASK35
    bits ^= bits >> np.uint64(17)
    bits = (bits * np.uint64(0x5851F42D4C957F2D)) & _MASK35
    bits ^= bits >> np.uint64(16)
    bits = (bits * np.uint64(0x14057B7EF767814F)) & _MASK35
    return bits ^ (bits >> np.uint64(18))


@kernel
def home(table: NDArray[np.uint64], digest: Number) -> Number:
    """Return the position where the search for a fingerprint begins."""
    return ((digest >> np.uint64(3)) * np.uint64(len(table))) >> np.uint64(32)


@kernel
def find_pair(table: NDArray[np.uint64], digest: Number) -> Number:
    """Return the slot of a fingerprint, or the free slot where it would go."""
    place = home(table, digest)
    wanted = (_USED >> _COUNT_BITS) | digest
    while table[place] != np.uint64(0) and (table[place] >> _COUNT_BITS) != wanted:
        place += np.uint64(1)
        if place == np.uint64(len(table)):
            place = np.uint64(0)
    return place


@kernel
def times(table: NDArray[np.uint64], digest: Number) -> Number:
    """Return the count of a pair."""
    return table[find_pair(table, digest)] & MAX_COUNT


@kernel
def add_count(table: NDArray[np.uint64], digest: Number, more: Number) -> Number:
    """Add ``more`` to the count of a pair; return 1 if the pair is new to the table, else 0."""
    place = find_pair(table, digest)
    before = table[place] & MAX_COUNT
    new = np.int64(table[place] == np.uint64(0))
    after = min(before + np.uint64(more), MAX_COUNT)
    table[place] = _USED | (digest << _COUNT_BITS) | after
    return new


@kernel
def subtract_one(table: NDArray[np.uint64], digest: Number) -> None:
    """Subtract one from the count of a pair, unless it is 0."""
    place = find_pair(table, digest)
    if table[place] & MAX_COUNT:
        table[place] -= np.uint64(1)


@kernel
def prefetch_clause(columns: ClauseColumns, clause: Number, tables: Frequencies) -> None:
    """Prefetch the slots of a clause's tokens; does nothing past the last clause."""
    if clause >= len(columns.box):
        return
    local = len(tables.local) > 0
    cell = center_cell(columns.box, clause, tables.grid) if local else ANYWHERE
    for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
        token = np.int64(columns.token[i])
        prefetch(tables.anywhere, home(tables.anywhere, fingerprint(ANYWHERE, token)))
        if local:
            prefetch(tables.local, home(tables.local, fingerprint(cell, token)))


@kernel
def fits(columns: ClauseColumns, clause: Number, tables: Frequencies) -> Number:
    """Tell whether the tables stay at most two thirds full with the tokens of a clause."""
    need = columns.token_start[clause + 1] - columns.token_start[clause]
    enough = 3 * (tables.used[0] + need) <= 2 * len(tables.anywhere)
    if len(tables.local):
        enough &= 3 * (tables.used[1] + need) <= 2 * len(tables.local)
    return enough


@kernel
def _count_clause(columns: ClauseColumns, clause: Number, tables: Frequencies) -> None:
    local = len(tables.local) > 0
    cell = center_cell(columns.box, clause, tables.grid) if local else ANYWHERE
    for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
        token = np.int64(columns.token[i])
        tables.used[0] += add_count(tables.anywhere, fingerprint(ANYWHERE, token), np.int64(1))
        if local:
            tables.used[1] += add_count(tables.local, fingerprint(cell, token), np.int64(1))


@kernel
def count_clauses(columns: ClauseColumns, first: Number, tables: Frequencies) -> Number:
    """Count the tokens of clauses from ``first`` on; return the first clause that did not fit."""
    for clause in range(first, len(columns.box)):
        if not fits(columns, clause, tables):
            return clause
        prefetch_clause(columns, clause + AHEAD, tables)
        _count_clause(columns, clause, tables)
    return len(columns.box)


@kernel
def uncount_clauses(columns: ClauseColumns, gone: NDArray[np.int64], tables: Frequencies) -> None:
    """Subtract the tokens of these clauses from the counts."""
    local = len(tables.local) > 0
    for g in range(len(gone)):
        if g + AHEAD < len(gone):
            prefetch_clause(columns, gone[g + AHEAD], tables)
        clause = gone[g]
        cell = center_cell(columns.box, clause, tables.grid) if local else ANYWHERE
        for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
            token = np.int64(columns.token[i])
            subtract_one(tables.anywhere, fingerprint(ANYWHERE, token))
            if local:
                subtract_one(tables.local, fingerprint(cell, token))


@kernel
def fill_table(table: NDArray[np.uint64], pairs: CountedPairs) -> Number:
    """Add frequencies of pairs to a table that is large enough; return how many pairs are new."""
    new = np.int64(0)
    for i in range(len(pairs.token)):
        digest = fingerprint(pairs.cell[i], np.int64(pairs.token[i]))
        new += add_count(table, digest, pairs.frequency[i])
    return new


@kernel
def move_table(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> Number:
    """Copy all pairs that have a count into an empty table of another size; return their number."""
    moved = np.int64(0)
    for i in range(len(old)):
        if old[i] & MAX_COUNT:
            new[find_pair(new, (old[i] ^ _USED) >> _COUNT_BITS)] = old[i]
            moved += 1
    return moved


@kernel
def sort_clause(columns: ClauseColumns, clause: Number, result: OrderedTokens) -> None:
    """Write the tokens of a clause in ascending order of their keys; the sort is stable."""
    first, last = columns.token_start[clause], columns.token_start[clause + 1]
    tokens, key = columns.token[first:last], result.key
    ordered = result.token[first - result.base : last - result.base]
    if len(tokens) > 32:
        order = np.argsort(key[: len(tokens)], kind="mergesort")
        for i in range(len(tokens)):
            ordered[i] = tokens[order[i]]
        return
    for i in range(len(tokens)):
        wanted = key[i]
        at = i
        while at > 0 and key[at - 1] > wanted:
            key[at] = key[at - 1]
            ordered[at] = ordered[at - 1]
            at -= 1
        key[at] = wanted
        ordered[at] = tokens[i]


@kernel
def _order_clause(
    columns: ClauseColumns,
    clause: Number,
    tables: Frequencies,
    descending: Number,
    result: OrderedTokens,
) -> None:
    """Order a clause by the counts in its cell, then over all clauses."""
    first, last, key = columns.token_start[clause], columns.token_start[clause + 1], result.key
    local = len(tables.local) > 0
    cell = center_cell(columns.box, clause, tables.grid) if local else ANYWHERE
    for i in range(first, last):
        token = np.int64(columns.token[i])
        key[i - first] = times(tables.anywhere, fingerprint(ANYWHERE, token))
        if local:
            here = times(tables.local, fingerprint(cell, token))
            key[i - first] |= here << _COUNT_BITS
        if descending:
            key[i - first] = ~key[i - first]
    sort_clause(columns, clause, result)


@kernel
def order_clauses(
    columns: ClauseColumns, tables: Frequencies, descending: Number, result: OrderedTokens
) -> None:
    """Order the tokens of all clauses by the counts."""
    for clause in range(len(columns.box)):
        prefetch_clause(columns, clause + AHEAD, tables)
        _order_clause(columns, clause, tables, descending, result)


@kernel
def insert_clauses(
    columns: ClauseColumns,
    first: Number,
    tables: Frequencies,
    descending: Number,
    result: OrderedTokens,
) -> Number:
    """Order each clause from ``first`` on by the counts so far, then count it.

    Return the first clause that did not fit into the tables.
    """
    for clause in range(first, len(columns.box)):
        if not fits(columns, clause, tables):
            return clause
        prefetch_clause(columns, clause + AHEAD, tables)
        _order_clause(columns, clause, tables, descending, result)
        _count_clause(columns, clause, tables)
    return len(columns.box)


@kernel
def _mix(bits: Number) -> Number:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel
def shuffle_clauses(
    columns: ClauseColumns, first: Number, seed: Number, result: OrderedTokens
) -> None:
    """Write the tokens of every clause from ``first`` on in an order that depends on a hash."""
    key = result.key
    for clause in range(first, len(columns.box)):
        begin, end = columns.token_start[clause], columns.token_start[clause + 1]
        salt = _mix(np.uint64(seed))
        for i in range(begin, end):
            salt = _mix(salt ^ np.uint64(columns.token[i]))
        for i in range(begin, end):
            key[i - begin] = _mix(salt + np.uint64(columns.token[i]))
        sort_clause(columns, clause, result)
