"""Lists of clauses that store no boxes, in the pool of `nearcast.indexes.moving.lists`.

A list has two columns: the entries, and their signatures. A message compares sixteen signatures at
a time; what is left is verified by the records of the entries. Since no box is stored, a move
changes only the lists that it enters or leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.simd_points import equal_numbers
from nearcast.indexes.moving.entries import SIGNATURE
from nearcast.indexes.moving.lists import (
    POSTINGS,
    SIZE,
    START,
    ListArrays,
    capacity_of,
    drop_list,
    new_chunk,
    new_list,
    resize,
    size_of,
    start_of,
)
from nearcast.indexes.moving.tables import (
    NO_VALUE,
    VALUE,
    TableArrays,
    claim_key,
    find_key,
    remove_key,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CLAUSE_COLUMNS", "put_clause", "take_clause"]

CLAUSE_COLUMNS = 2
_ONE = np.uint64(1)


@kernel
def _append(lists: ListArrays, number: Number, entry: Number, signature: Number) -> None:
    size = size_of(lists, number)
    if size == capacity_of(lists, number):
        resize(lists, number, (lists.head[number, SIZE] & 255) + 1)
    at = start_of(lists, number) + size
    lists.pool[at] = entry
    lists.pool[at + capacity_of(lists, number)] = signature
    lists.head[number, SIZE] += 1 << 8
    lists.state[POSTINGS] += 1


@kernel
def _find(lists: ListArrays, number: Number, entry: Number) -> Number:
    """Return the position of an entry in the pool; the list has it."""
    at = start_of(lists, number)
    while True:
        equal = equal_numbers(lists.pool, at, np.int32(entry))
        if equal != np.uint64(0):
            return at + lowest_bit(equal)
        at += LANES


@kernel
def put_clause(
    tables: TableArrays,
    header: NDArray[np.int32],
    place: tuple[Number, Number, Number],
    lists: ListArrays,
    record: NDArray[np.int32],
    entry: Number,
) -> None:
    """Store an entry under a place, which is an owner, a column and a key; space is reserved."""
    owner, column, key = place
    at = claim_key(tables, header, owner, column, key)
    value = np.int64(tables.slot[at, VALUE])
    if value == NO_VALUE:
        tables.slot[at, VALUE] = ~np.int64(entry)
        return
    if value < 0:
        number = new_list(lists)
        lists.head[number, START], lists.head[number, SIZE] = new_chunk(lists, 1), 1
        _append(lists, number, ~value, record[~value, SIGNATURE])
        tables.slot[at, VALUE] = number
    else:
        number = value
    _append(lists, number, entry, record[entry, SIGNATURE])


@kernel
def take_clause(
    tables: TableArrays,
    header: NDArray[np.int32],
    place: tuple[Number, Number, Number],
    lists: ListArrays,
    entry: Number,
) -> None:
    """Remove an entry from a place, where it is."""
    owner, column, key = place
    at = find_key(tables.slot, header, owner, column, key)
    number = np.int64(tables.slot[at, VALUE])
    if number < 0:
        remove_key(tables, header, owner, column, at)
        return
    here, capacity = _find(lists, number, entry), capacity_of(lists, number)
    lists.head[number, SIZE] -= 1 << 8
    lists.state[POSTINGS] -= 1
    last = start_of(lists, number) + size_of(lists, number)
    lists.pool[here] = lists.pool[last]
    lists.pool[here + capacity] = lists.pool[last + capacity]
    if size_of(lists, number) == 1:
        tables.slot[at, VALUE] = ~np.int64(lists.pool[start_of(lists, number)])
        drop_list(lists, number)
