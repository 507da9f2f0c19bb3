"""Count how often tokens occur, anywhere and by cell, and order the tokens of clauses by it.

A table of counts is uint64[slots], open addressing, 8 bytes a pair of a cell and a token: a bit
that the slot is in use, a fingerprint of 35 bits, and a count of 28. Within a cell the fingerprint
is one to one; pairs of different cells share one so seldom that it does not matter, since an order
is never right or wrong. Where a chain begins follows from the fingerprint alone, in its order:
a table is moved to one of another size in two sequential sweeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import WORLD
from nearcast.compiled.jit import Number, kernel, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANYWHERE = np.int64(-1)
"""The cell of counts that are not local."""

MOST = np.uint64((1 << 28) - 1)
"""Counts end here; higher ones stay."""

AHEAD = 12
"""How many clauses ahead memory is asked for."""

_USED = np.uint64(1 << 63)
_COUNT_BITS = np.uint64(28)
_WIDE = np.uint64((1 << 35) - 1)
_WEST, _SOUTH = np.int64(WORLD[0]), np.int64(WORLD[1])
_WIDTH, _HEIGHT = np.int64(WORLD[2] - WORLD[0]), np.int64(WORLD[3] - WORLD[1])


class Columns(NamedTuple):
    """What is seen of clauses."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]


class Frequencies(NamedTuple):
    """Tables of counts, and how many slots are in use.

    - ``anywhere`` and ``local`` uint64[slots]: the latter has no slots where cells do not count.
    - ``used`` int64[2]: the slots in use of either.
    - ``grid`` int64[2]: the cells across and up.
    """

    anywhere: NDArray[np.uint64]
    local: NDArray[np.uint64]
    used: NDArray[np.int64]
    grid: NDArray[np.int64]


@kernel
def centre_cell(box: NDArray[np.int32], clause: Number, grid: NDArray[np.int64]) -> Number:
    """Return the cell in which the centre of a clause's box lies."""
    x = ((np.int64(box[clause, 0]) + np.int64(box[clause, 2])) >> 1) - _WEST
    y = ((np.int64(box[clause, 1]) + np.int64(box[clause, 3])) >> 1) - _SOUTH
    column = min(x * grid[0] // _WIDTH, grid[0] - 1)
    return min(y * grid[1] // _HEIGHT, grid[1] - 1) * grid[0] + column


@kernel
def fingerprint(cell: Number, token: Number) -> Number:
    """Return 35 bits for a token in a cell; two tokens of one cell never have the same."""
    salt = np.uint64(cell + 1) * np.uint64(0x9E3779B97F4A7C15)
    bits = (np.uint64(token) ^ (salt >> np.uint64(13))) & _WIDE
    bits ^= bits >> np.uint64(17)
    bits = (bits * np.uint64(0x5851F42D4C957F2D)) & _WIDE
    bits ^= bits >> np.uint64(16)
    bits = (bits * np.uint64(0x14057B7EF767814F)) & _WIDE
    return bits ^ (bits >> np.uint64(18))


@kernel
def home(table: NDArray[np.uint64], mark: Number) -> Number:
    """Return where the chain of a fingerprint begins."""
    return ((mark >> np.uint64(3)) * np.uint64(len(table))) >> np.uint64(32)


@kernel
def find_pair(table: NDArray[np.uint64], mark: Number) -> Number:
    """Return the slot of a fingerprint, or the free one where it belongs."""
    place = home(table, mark)
    wanted = (_USED >> _COUNT_BITS) | mark
    while table[place] != np.uint64(0) and (table[place] >> _COUNT_BITS) != wanted:
        place += np.uint64(1)
        if place == np.uint64(len(table)):
            place = np.uint64(0)
    return place


@kernel
def times(table: NDArray[np.uint64], mark: Number) -> Number:
    """Return how often a pair was counted."""
    return table[find_pair(table, mark)] & MOST


@kernel
def add_times(table: NDArray[np.uint64], mark: Number, more: Number) -> Number:
    """Count a pair so many times; return 1 where it is new to the table."""
    place = find_pair(table, mark)
    before = table[place] & MOST
    new = np.int64(table[place] == np.uint64(0))
    after = min(before + np.uint64(more), MOST)
    table[place] = _USED | (mark << _COUNT_BITS) | after
    return new


@kernel
def drop_time(table: NDArray[np.uint64], mark: Number) -> None:
    """Count a pair once less; what was never counted stays so."""
    place = find_pair(table, mark)
    if table[place] & MOST:
        table[place] -= np.uint64(1)


@kernel
def prefetch_clause(columns: Columns, clause: Number, tables: Frequencies) -> None:
    """Ask for what will be read of the tables for a clause, where there is one."""
    if clause >= len(columns.box):
        return
    local = len(tables.local) > 0
    cell = centre_cell(columns.box, clause, tables.grid) if local else ANYWHERE
    for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
        token = np.int64(columns.token[i])
        prefetch(tables.anywhere, home(tables.anywhere, fingerprint(ANYWHERE, token)))
        if local:
            prefetch(tables.local, home(tables.local, fingerprint(cell, token)))


@kernel
def has_room(columns: Columns, clause: Number, tables: Frequencies) -> Number:
    """Tell whether the tables can take a clause and are still at most two thirds full."""
    need = columns.token_start[clause + 1] - columns.token_start[clause]
    fits = 3 * (tables.used[0] + need) <= 2 * len(tables.anywhere)
    if len(tables.local):
        fits &= 3 * (tables.used[1] + need) <= 2 * len(tables.local)
    return fits


@kernel
def _count_clause(columns: Columns, clause: Number, tables: Frequencies) -> None:
    local = len(tables.local) > 0
    cell = centre_cell(columns.box, clause, tables.grid) if local else ANYWHERE
    for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
        token = np.int64(columns.token[i])
        tables.used[0] += add_times(tables.anywhere, fingerprint(ANYWHERE, token), np.int64(1))
        if local:
            tables.used[1] += add_times(tables.local, fingerprint(cell, token), np.int64(1))


@kernel
def count_clauses(columns: Columns, first: Number, tables: Frequencies) -> Number:
    """Count the tokens of clauses from ``first`` on; return the one for which there was no room."""
    for clause in range(first, len(columns.box)):
        if not has_room(columns, clause, tables):
            return clause
        prefetch_clause(columns, clause + AHEAD, tables)
        _count_clause(columns, clause, tables)
    return len(columns.box)


@kernel
def uncount_clauses(columns: Columns, gone: NDArray[np.int64], tables: Frequencies) -> None:
    """Count the tokens of these clauses once less."""
    local = len(tables.local) > 0
    for g in range(len(gone)):
        if g + AHEAD < len(gone):
            prefetch_clause(columns, gone[g + AHEAD], tables)
        clause = gone[g]
        cell = centre_cell(columns.box, clause, tables.grid) if local else ANYWHERE
        for i in range(columns.token_start[clause], columns.token_start[clause + 1]):
            token = np.int64(columns.token[i])
            drop_time(tables.anywhere, fingerprint(ANYWHERE, token))
            if local:
                drop_time(tables.local, fingerprint(cell, token))


@kernel
def fill_table(
    table: NDArray[np.uint64],
    cell: NDArray[np.int64],
    token: NDArray[np.int32],
    frequency: NDArray[np.int64],
) -> Number:
    """Put pairs with their frequencies into a table with room; return how many are new to it."""
    new = np.int64(0)
    for i in range(len(token)):
        new += add_times(table, fingerprint(cell[i], np.int64(token[i])), frequency[i])
    return new


@kernel
def move_table(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> Number:
    """Put what was counted into an empty table of another size; return how many pairs it is."""
    moved = np.int64(0)
    for i in range(len(old)):
        if old[i] & MOST:
            new[find_pair(new, (old[i] ^ _USED) >> _COUNT_BITS)] = old[i]
            moved += 1
    return moved


@kernel
def sort_clause(
    tokens: NDArray[np.int32], key: NDArray[np.uint64], ordered: NDArray[np.int32]
) -> None:
    """Write the tokens of a clause in the order of their keys, equal ones as they stand."""
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
    columns: Columns,
    clause: Number,
    tables: Frequencies,
    falling: Number,
    key: NDArray[np.uint64],
    ordered: NDArray[np.int32],
) -> None:
    """Order a clause by counts in its cell, then anywhere; ``falling`` puts frequent ones first."""
    first, last = columns.token_start[clause], columns.token_start[clause + 1]
    local = len(tables.local) > 0
    cell = centre_cell(columns.box, clause, tables.grid) if local else ANYWHERE
    for i in range(first, last):
        token = np.int64(columns.token[i])
        key[i - first] = times(tables.anywhere, fingerprint(ANYWHERE, token))
        if local:
            here = times(tables.local, fingerprint(cell, token))
            key[i - first] |= here << _COUNT_BITS
        if falling:
            key[i - first] = ~key[i - first]
    sort_clause(columns.token[first:last], key, ordered)


@kernel
def order_clauses(
    columns: Columns,
    tables: Frequencies,
    falling: Number,
    key: NDArray[np.uint64],
    ordered: NDArray[np.int32],
) -> None:
    """Order the tokens of all clauses by what was counted; ``key`` has room for one clause."""
    for clause in range(len(columns.box)):
        prefetch_clause(columns, clause + AHEAD, tables)
        begin, end = columns.token_start[clause], columns.token_start[clause + 1]
        _order_clause(columns, clause, tables, falling, key, ordered[begin:end])


@kernel
def insert_clauses(
    columns: Columns,
    first: Number,
    base: Number,
    tables: Frequencies,
    falling: Number,
    key: NDArray[np.uint64],
    ordered: NDArray[np.int32],
) -> Number:
    """Order every clause from ``first`` on by what was counted before it, then count it.

    Tokens go to where they stand in the columns, ``base`` less. Returns the clause for which
    there was no room in the tables.
    """
    for clause in range(first, len(columns.box)):
        if not has_room(columns, clause, tables):
            return clause
        prefetch_clause(columns, clause + AHEAD, tables)
        begin, end = columns.token_start[clause] - base, columns.token_start[clause + 1] - base
        _order_clause(columns, clause, tables, falling, key, ordered[begin:end])
        _count_clause(columns, clause, tables)
    return len(columns.box)


@kernel
def _stir(bits: Number) -> Number:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel
def shuffle_clauses(
    columns: Columns,
    first: Number,
    seed: Number,
    key: NDArray[np.uint64],
    ordered: NDArray[np.int32],
) -> None:
    """Put the tokens of every clause from ``first`` on in an order that follows from a hash."""
    base = columns.token_start[first]
    for clause in range(first, len(columns.box)):
        begin, end = columns.token_start[clause], columns.token_start[clause + 1]
        salt = _stir(np.uint64(seed))
        for i in range(begin, end):
            salt = _stir(salt ^ np.uint64(columns.token[i]))
        for i in range(begin, end):
            key[i - begin] = _stir(salt + np.uint64(columns.token[i]))
        sort_clause(columns.token[begin:end], key, ordered[begin - base : end - base])
