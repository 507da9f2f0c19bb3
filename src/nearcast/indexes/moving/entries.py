"""Subscriptions of a moving index: rows, and their clauses as kernels see them.

Each clause is an *entry*: a box and tokens. Most rows have one, and then the entry is all there is
to know. Rows with several clauses, forbidden tokens or exact shapes are *composite*: an index finds
messages that have the tokens and meet the box of an entry, and the rest is decided for the whole
row, with its clauses as they were given.

::

    row        first entry of each row        entry      next entry of the same row
    record     int32[entries, 8], half a cache line:
               west south east north | signature first key place
    pool       at `first`: how many tokens, then the tokens, ascending

``key`` and ``place`` belong to the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Clauses, GrowingArray, GrowingClauses, Shapes, distinct, gather, starts
from nearcast.compiled.clauses import ClauseColumns, clause_columns
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import mixed
from nearcast.errors import InvalidInput, UnknownId
from nearcast.indexes.moving.numbers import Numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EMPTY", "Entries", "EntryArrays", "signature_bit"]

WEST, SOUTH, EAST, NORTH, SIGNATURE, FIRST, KEY, PLACE = range(8)
"""Fields of ``record``."""

EMPTY = (2**31 - 1, 2**31 - 1, -(2**31), -(2**31))
"""The box of a clause that is nowhere: before it is inserted, or after it is deleted."""

FREE, NO_ENTRY = -2, -1
"""In ``row_first``: nobody has the row; the row has no clauses. In ``next_entry``: the last one."""

_MIN_GARBAGE = 1024
_SIGNATURE_SHIFT = np.uint64(27)


class EntryArrays(NamedTuple):
    """What kernels see of entries."""

    record: NDArray[np.int32]
    pool: NDArray[np.int32]


@kernel
def signature_bit(token: Number) -> Number:
    """Return the bit of a token in a signature of 32 bits."""
    return np.int32(np.uint32(1) << np.uint32(mixed(token) >> _SIGNATURE_SHIFT))


@kernel
def _write_entries(
    clauses: ClauseColumns,
    entries: NDArray[np.int32],
    arrays: EntryArrays,
    top: Number,
) -> None:
    """Write the records of entries, and their tokens to the pool from ``top`` on."""
    record, pool = arrays
    for i in range(len(entries)):
        entry = entries[i]
        for side in range(4):
            record[entry, side] = clauses.box[i, side]
        first, last = clauses.token_start[i], clauses.token_start[i + 1]
        signature = np.int32(0)
        pool[top] = last - first
        for j in range(first, last):
            token = clauses.token[j]
            pool[top + 1 + j - first] = token
            signature |= signature_bit(np.int64(token))
        record[entry, SIGNATURE] = signature
        record[entry, FIRST] = top
        record[entry, KEY] = -1
        record[entry, PLACE] = -1
        top += 1 + last - first


@kernel
def _compact_pool(
    record: NDArray[np.int32],
    entry_row: NDArray[np.int32],
    pool: NDArray[np.int32],
    compacted: NDArray[np.int32],
) -> Number:
    """Copy the tokens of entries that are in use; return how many words they take."""
    top = 0
    for entry in range(len(entry_row)):
        if entry_row[entry] < 0:
            continue
        first = record[entry, FIRST]
        words = 1 + pool[first]
        for i in range(words):
            compacted[top + i] = pool[first + i]
        record[entry, FIRST] = top
        top += words
    return top


class Entries:
    """The rows and entries of an index."""

    def __init__(self) -> None:
        self._rows = Numbers()
        self._entries = Numbers()
        self._row_first = GrowingArray(np.empty(0, np.int32))
        self._record = GrowingArray(np.empty((0, 8), np.int32))
        self._row = GrowingArray(np.empty(0, np.int32))
        self._next = GrowingArray(np.empty(0, np.int32))
        self._composite = GrowingArray(np.empty(0, np.int32))
        self._pool = GrowingArray(np.empty(0, np.int32))
        self._garbage = 0
        self._whole = GrowingClauses(Clauses.empty())
        self._row_of_whole = GrowingArray(np.empty(0, np.int32))
        self._dead_clauses = 0

    def __len__(self) -> int:
        """Return how many rows are in use."""
        return len(self._rows)

    @property
    def count(self) -> int:
        """How many entries are in use."""
        return len(self._entries)

    @property
    def end(self) -> int:
        """A number above all entries."""
        return self._entries.end

    @property
    def arrays(self) -> EntryArrays:
        """What kernels see; void after the next `add`."""
        return EntryArrays(self._record.writable, self._pool.writable)

    @property
    def row(self) -> NDArray[np.int32]:
        """The row of every entry; -1 for entries that nobody has."""
        return self._row.writable

    @property
    def composite(self) -> NDArray[np.int32]:
        """For every entry of a composite row the number of its clause in ``whole``; else -1."""
        return self._composite.writable

    @property
    def whole(self) -> Clauses:
        """The clauses of composite rows, as they were given."""
        return self._whole.clauses

    @property
    def row_of_whole(self) -> NDArray[np.int32]:
        """The row of every row of ``whole``."""
        return self._row_of_whole.writable

    @property
    def any_composite(self) -> bool:
        """Whether a row is composite."""
        return len(self.whole) > self._dead_clauses

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        arrays = (
            self._row_first,
            self._record,
            self._row,
            self._next,
            self._composite,
            self._pool,
            self._rows,
            self._entries,
            self._row_of_whole,
        )
        return sum(array.nbytes for array in arrays) + self.whole.nbytes

    def add(self, clauses: Clauses) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Take subscriptions; return their rows, and the entry of every clause."""
        rows = self._rows.take(clauses.subscriptions)
        _fit(self._row_first, self._rows.end, FREE)
        return rows, self.put(rows, clauses)

    def put(self, rows: NDArray[np.int32], clauses: Clauses) -> NDArray[np.int32]:
        """Give clauses to rows without entries; return the entry of every clause."""
        entries = self._entries.take(len(clauses))
        end = self._entries.end
        _fit(self._record, end, 0)
        for column in (self._row, self._next, self._composite):
            _fit(column, end, -1)
        top = len(self._pool)
        self._pool.extend(len(clauses) + len(clauses.token))
        _write_entries(clause_columns(clauses), entries, self.arrays, top)
        self._row.writable[entries] = rows[clauses.row]
        self._link(rows, clauses, entries)
        self._composite.writable[entries] = self._add_composite(rows, clauses)
        return entries

    def _link(self, rows: NDArray[np.int32], clauses: Clauses, entries: NDArray[np.int32]) -> None:
        first = np.full(len(rows), NO_ENTRY, np.int32)
        starts_row = np.diff(clauses.row, prepend=-1) != 0
        first[clauses.row[starts_row]] = entries[starts_row]
        self._row_first.writable[rows] = first
        follower = np.full(len(entries), NO_ENTRY, np.int32)
        follower[:-1] = np.where(starts_row[1:], NO_ENTRY, entries[1:])
        self._next.writable[entries] = follower

    def _add_composite(self, rows: NDArray[np.int32], clauses: Clauses) -> NDArray[np.int32]:
        """Keep the clauses of composite rows; return their numbers, -1 for all others."""
        if clauses.plain:
            return np.full(len(clauses), -1, np.int32)
        several = np.bincount(clauses.row, minlength=clauses.subscriptions) > 1
        unlike = (clauses.shape >= 0) | (np.diff(clauses.negative_start) > 0)
        several[clauses.row[unlike]] = True
        chosen = several[clauses.row]
        number = np.full(len(clauses), -1, np.int32)
        number[chosen] = np.arange(np.count_nonzero(chosen)) + len(self.whole)
        if chosen.any():
            kept = np.flatnonzero(several)
            self._whole.append(clauses.take(kept))
            self._row_of_whole.append(rows[kept])
        return number

    def entries_of(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the entries of rows, and for each the position of its row, in order."""
        first = self._row_first.view[rows]
        position = np.flatnonzero(first != NO_ENTRY)
        found, places = [first[position]], [position]
        follower = self._next.view
        while len(found[-1]):
            more = follower[found[-1]]
            has_more = more != NO_ENTRY
            found.append(more[has_more])
            places.append(places[-1][has_more])
        entries, position = np.concatenate(found), np.concatenate(places)
        if len(found) <= 2:  # every row has one
            return position, entries
        order = np.argsort(position, kind="stable")
        return position[order], entries[order]

    def present(self, rows: object) -> NDArray[np.int32]:
        """Return rows as they are, if somebody has each of them and none is there twice."""
        given = np.asarray(rows, np.int64).reshape(-1)
        if len(given) == 1 and self._has(int(given[0])):
            return given.astype(np.int32)
        known = (given >= 0) & (given < len(self._row_first))
        if known.all():
            known = self._row_first.view[given] != FREE
        if not known.all():
            raise UnknownId(f"row {given[~known][0]} is not in the index")
        if len(given) > 1:
            ascending = np.sort(given)
            twice = ascending[1:][ascending[1:] == ascending[:-1]]
            if len(twice):
                raise InvalidInput("rows", int(twice[0]), "must have each row once")
        return given.astype(np.int32)

    def _has(self, row: int) -> bool:
        return 0 <= row < len(self._row_first) and bool(self._row_first.writable[row] != FREE)

    def single(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the entries of rows that consist of a box and tokens; refuse others."""
        entries: NDArray[np.int32] = self._row_first.writable[rows]
        if len(entries) and bool(entries.min() > NO_ENTRY) and not self.any_composite:
            return entries
        wrong = entries == NO_ENTRY
        wrong |= self._composite.view[np.maximum(entries, 0)] >= 0 if len(entries) else wrong
        if wrong.any():
            problem = "has more than one clause, forbidden tokens or a shape; replace it"
            raise InvalidInput("row", int(rows[wrong][0]), problem)
        return entries

    def clauses(self, rows: NDArray[np.int32]) -> Clauses:
        """Return the clauses of rows, in the order of the rows."""
        position, entries = self.entries_of(rows)
        record, pool = self.arrays
        first = record[entries, FIRST].astype(np.int64)
        length = pool[first].astype(np.int64)
        token_start = starts(length)
        at = np.repeat(first + 1 - token_start[:-1], length) + np.arange(token_start[-1])
        number, whole = self._composite.view[entries], self.whole
        chosen = np.maximum(number, 0)
        negative_length = np.zeros(len(entries), np.int64)
        shape = np.full(len(entries), -1, np.int32)
        shapes = Shapes.empty()
        negative = np.empty(0, np.int32)
        composite = number >= 0
        if composite.any():
            start, negatives = gather(whole.negative_start, chosen[composite])
            negative_length[composite], negative = np.diff(start), whole.negative[negatives]
            shape[composite] = whole.shape[chosen[composite]]
            used, shape_number = np.unique(shape[shape >= 0], return_inverse=True)
            shape[shape >= 0], shapes = shape_number, whole.shapes.take(used)
        return Clauses(
            token_start=token_start,
            token=pool[at],
            negative_start=starts(negative_length),
            negative=negative,
            box=record[entries, :4],
            row=position.astype(np.int32),
            shape=shape,
            shapes=shapes,
            subscriptions=len(rows),
        )

    def clear(self, rows: NDArray[np.int32], entries: NDArray[np.int32]) -> None:
        """Take the entries away from rows."""
        record, pool = self.arrays
        self._garbage += len(entries) + int(pool[record[entries, FIRST]].sum())
        self._dead_clauses += int(np.count_nonzero(self._composite.view[entries] >= 0))
        self._row.writable[entries] = -1
        self._composite.writable[entries] = -1
        self._row_first.writable[rows] = NO_ENTRY
        self._entries.give_back(entries)
        if self._garbage > _MIN_GARBAGE and 2 * self._garbage > len(self._pool):
            self._compact()
        if self._dead_clauses > _MIN_GARBAGE and 2 * self._dead_clauses > len(self.whole):
            self._compact_composite()

    def release(self, rows: NDArray[np.int32]) -> None:
        """Give rows without entries to whoever comes next."""
        self._row_first.writable[rows] = FREE
        self._rows.give_back(rows)

    def _compact(self) -> None:
        record, pool = self.arrays
        compacted = np.empty(len(pool), np.int32)
        top = _compact_pool(record, self._row.writable, pool, compacted)
        self._pool = GrowingArray(compacted[:top])
        self._garbage = 0

    def _compact_composite(self) -> None:
        used = np.flatnonzero(self._composite.view >= 0)
        number = self._composite.view[used]
        whole = self.whole
        alive = np.zeros(len(whole), np.bool_)
        alive[number] = True
        kept = distinct(whole.row[alive])
        self._whole = GrowingClauses(whole.take(kept))
        self._row_of_whole = GrowingArray(self._row_of_whole.view[kept])
        self._composite.writable[used] = (np.cumsum(alive) - 1)[number]
        self._dead_clauses = 0


def _fit(column: GrowingArray, end: int, value: int) -> None:
    """Let a column have ``end`` rows; new ones get the value."""
    if len(column) < end:
        column.extend(end - len(column))[:] = value
