"""Living messages by owner and key: hash tables whose values are messages or lists of them.

Most keys have one message; its stamp is the value then (complemented), and its place is read from
its record. Others have a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.moving.lists import (
    ListArrays,
    append,
    capacity_of,
    drop_list,
    new_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import LivingArrays, X, Y, is_alive
from nearcast.indexes.moving.tables import (
    KEY,
    KEYS,
    NO_KEY,
    NO_VALUE,
    VALUE,
    TableArrays,
    claim_key,
    find_key,
    new_region,
    place_key,
    region_end,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["put_message", "store_items", "sweep_tables"]

_AHEAD = 8


@kernel
def put_message(
    tables: TableArrays,
    header: NDArray[np.int32],
    place: tuple[Number, Number, Number],
    lists: ListArrays,
    living: LivingArrays,
    stamp: Number,
) -> None:
    """Store a message under a place, which is an owner, a column and a key; there is room."""
    owner, column, key = place
    at = claim_key(tables, header, owner, column, key)
    value = np.int64(tables.slot[at, VALUE])
    record, alive = living.record, living.alive
    if value < 0:
        if value == NO_VALUE or not is_alive(alive, ~value):
            tables.slot[at, VALUE] = ~np.int64(stamp)
            return
        number = new_list(lists)
        tables.slot[at, VALUE] = number
        append(lists, alive, number, record[~value, X], record[~value, Y], ~value, 0)
    else:
        number = value
    append(lists, alive, number, record[stamp, X], record[stamp, Y], stamp, 0)


@kernel
def store_items(
    tables: TableArrays,
    header: NDArray[np.int32],
    column: Number,
    lists: ListArrays,
    living: LivingArrays,
    item: NDArray[np.int64],
    count: Number,
) -> None:
    """Store messages under many places, whose first slots were prefetched.

    ``item`` int64[many, 4]: the stamp of a message, an owner and a key; and what is there.
    """
    for i in range(count):
        at = find_key(tables.slot, header, item[i, 1], column, item[i, 2])
        if at >= 0:
            value = np.int64(tables.slot[at, VALUE])
            if value >= 0:
                prefetch(lists.head, value)
            else:
                prefetch(living.record, ~value)
        item[i, 3] = -1 if at < 0 else np.int64(tables.slot[at, VALUE])
    for i in range(count):
        value = item[i, 3]
        if value >= 0:
            end = start_of(lists, value) + size_of(lists, value)
            for posting_column in range(3):
                prefetch(lists.pool, end + posting_column * capacity_of(lists, value))
    for i in range(count):
        place = (item[i, 1], column, item[i, 2])
        put_message(tables, header, place, lists, living, item[i, 0])


@kernel
def _new_value(lists: ListArrays, value: Number, new_stamp: NDArray[np.int32]) -> Number:
    """Return the value of a key after a sweep, `NO_VALUE` if no message is left."""
    if value < 0:
        stamp = np.int64(new_stamp[~value])
        return ~stamp if stamp >= 0 else np.int64(NO_VALUE)
    size = size_of(lists, value)
    if size > 1:
        return np.int64(value)
    kept = np.int64(NO_VALUE)
    if size == 1:
        kept = ~np.int64(lists.pool[start_of(lists, value) + 2 * capacity_of(lists, value)])
    drop_list(lists, value)
    return kept


@kernel
def sweep_tables(
    old: TableArrays,
    new: TableArrays,
    header: NDArray[np.int32],
    column: Number,
    lists: ListArrays,
    new_stamp: NDArray[np.int32],
) -> None:
    """Copy all keys that still have messages to empty tables; the lists have been swept.

    Headers of owners without keys are 0.
    """
    for owner in range(len(header)):
        if owner + _AHEAD < len(header):
            prefetch(old.slot, np.int64(header[owner + _AHEAD, column]))
        first, end = np.int64(header[owner, column]), region_end(header, owner, column)
        kept: Number = np.int64(0)
        for at in range(first, end):
            if at + _AHEAD < end and old.slot[at + _AHEAD, VALUE] >= 0:
                prefetch(lists.head, np.int64(old.slot[at + _AHEAD, VALUE]))
            if old.slot[at, KEY] != NO_KEY:
                value = _new_value(lists, np.int64(old.slot[at, VALUE]), new_stamp)
                old.slot[at, VALUE] = value
                kept += np.int64(value != NO_VALUE)
        header[owner, column], header[owner, column + 1] = 0, 0
        if kept == 0:
            continue
        new_region(new, header, owner, column, kept)
        new.state[KEYS] += kept
        for at in range(first, end):
            if old.slot[at, KEY] != NO_KEY and old.slot[at, VALUE] != NO_VALUE:
                there = place_key(new.slot, header, owner, column, np.int64(old.slot[at, KEY]))
                new.slot[there, VALUE] = old.slot[at, VALUE]
