"""The arrays of the grids, and how messages and clauses are put into them.

Lookups come in runs: each step of a run is done for all of its items before the next one, and
prefetches what the next one reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.token_table import NO_TOKEN, home
from nearcast.indexes.moving.clause_lists import put_clause, take_clause
from nearcast.indexes.moving.entries import KEY, EntryArrays
from nearcast.indexes.moving.frequencies import find_token
from nearcast.indexes.moving.grids.cells import Frame, cell_of, cells_of, touches
from nearcast.indexes.moving.lists import capacity_of, size_of, start_of
from nearcast.indexes.moving.living import LivingArrays, X, Y, is_range, tokens_of
from nearcast.indexes.moving.message_tables import store_items
from nearcast.indexes.moving.tables import VALUE, TableArrays, find_key, first_slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.moving.lists import ListArrays

CLAUSE_TABLE, MESSAGE_TABLE, HEADER_WIDTH = 4, 6, 8
"""Columns of ``header``: each table has two. In the kk-index, those before are of the tokens."""

ITEMS, ITEM_WIDTH = 256, 5
"""How many places are looked up together, and the numbers of each."""

_FAR, _NEAR, _NEXT = 12, 6, 3


class GridArrays(NamedTuple):
    """What kernels see of a grid.

    - ``token`` int32[slots, 3 or 8]: see `nearcast.indexes.moving.frequencies`.
    - ``header`` int32[owners, 8]: a row for each cell; in the kk-index, the same array as
      ``token``.
    - ``by_cell``: whether owners are cells.
    """

    token: NDArray[np.int32]
    header: NDArray[np.int32]
    clauses: TableArrays
    clause_lists: ListArrays
    messages: TableArrays
    message_lists: ListArrays
    by_cell: bool


@inlined_kernel
def note_post(grid: GridArrays, token: Number, cell: Number, item: NDArray[np.int64]) -> None:
    """Note that a message is to be stored under a token in a cell."""
    if grid.by_cell:
        item[1], item[2] = cell, token
        prefetch(grid.messages.slot, first_slot(grid.header, cell, MESSAGE_TABLE, token))
    else:
        item[1], item[2] = token, cell
        prefetch(grid.token, home(np.int64(token), len(grid.token)))


@kernel
def _store(grid: GridArrays, living: LivingArrays, item: NDArray[np.int64], count: Number) -> None:
    """Store the messages that were noted."""
    if not grid.by_cell:
        slot = grid.messages.slot
        for i in range(count):
            item[i, 1] = find_token(grid.token, item[i, 1])
            prefetch(slot, first_slot(grid.header, item[i, 1], MESSAGE_TABLE, item[i, 2]))
    column = np.int64(MESSAGE_TABLE)
    store_items(grid.messages, grid.header, column, grid.message_lists, living, item, count)


@kernel
def post_messages(
    grid: GridArrays,
    frame: Frame,
    living: LivingArrays,
    stamps: tuple[Number, Number],
    kinds: tuple[bool, bool],
    item: NDArray[np.int64],
) -> Number:
    """Store messages in their cells; return how many postings there are.

    ``kinds``: whether they are stored under their tokens, and whether under `NO_TOKEN`. ``item``
    int64[many, 3 or more] is scratch space: stamp, owner, key. All tokens have rows.
    """
    grid, living = borrow(grid), borrow(living)
    by_token, under_all = kinds
    count, total = np.int64(0), np.int64(0)
    for stamp in range(stamps[0], stamps[1]):
        if is_range(living.record, stamp):
            continue
        cell = cell_of(frame, living.record[stamp, X], living.record[stamp, Y])
        tokens = tokens_of(living, stamp)
        known = np.int64(len(tokens)) if by_token else np.int64(0)
        for i in range(known + np.int64(under_all)):
            token = np.int64(tokens[i]) if i < known else NO_TOKEN
            if count == len(item):
                _store(grid, living, item, count)
                count = np.int64(0)
            item[count, 0] = stamp
            note_post(grid, token, cell, item[count])
            count += 1
            total += 1
    _store(grid, living, item, count)
    return total


@kernel
def apply_changes(
    grid: GridArrays, record: NDArray[np.int32], item: NDArray[np.int64], count: Number
) -> None:
    """Put entries into cells and take them from cells, as was noted."""
    tables, header, lists = grid.clauses, grid.header, grid.clause_lists
    column = np.int64(CLAUSE_TABLE)
    for i in range(count):
        at = find_key(tables.slot, header, item[i, 1], column, item[i, 2])
        value = np.int64(-1) if at < 0 else np.int64(tables.slot[at, VALUE])
        item[i, 4] = value
        if value >= 0:
            prefetch(lists.head, value)
    for i in range(count):
        value = item[i, 4]
        if value >= 0:
            start = start_of(lists, value)
            prefetch(lists.pool, start)
            prefetch(lists.pool, start + size_of(lists, value))
            prefetch(lists.pool, start + capacity_of(lists, value) + size_of(lists, value))
    for i in range(count):
        place = (item[i, 1], column, item[i, 2])
        if item[i, 3]:
            put_clause(tables, header, place, lists, record, item[i, 0])
        else:
            take_clause(tables, header, place, lists, item[i, 0])


@inlined_kernel
def prefetch_keys(
    grid: GridArrays, record: NDArray[np.int32], entry: NDArray[np.int32], i: Number, column: Number
) -> None:
    """Prefetch the records of entries to come, and the rows and tables of their keys."""
    if i + _FAR < len(entry):
        prefetch(record, np.int64(entry[i + _FAR]))
    if not grid.by_cell:
        if i + _NEAR < len(entry):
            key = np.int64(record[entry[i + _NEAR], KEY])
            prefetch(grid.token, home(key, len(grid.token)))
        if i + _NEXT < len(entry):
            row = find_token(grid.token, np.int64(record[entry[i + _NEXT], KEY]))
            slot = grid.clauses.slot if column == CLAUSE_TABLE else grid.messages.slot
            prefetch(slot, np.int64(grid.header[row, column]))


@kernel
def shift_clauses(
    grid: GridArrays,
    frame: Frame,
    entries: EntryArrays,
    entry: NDArray[np.int32],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    item: NDArray[np.int64],
) -> None:
    """Take entries from the cells that only the old box touches to those of the new one only.

    Writes the new boxes to the records. ``item`` int64[many, 5] is scratch space: entry, owner and
    key of the table, 1 to put or 0 to take, and what is there.
    """
    grid, record, item = borrow(grid), borrow(entries.record), borrow(item)
    slot, header, count = grid.clauses.slot, grid.header, np.int64(0)
    for i in range(len(entry)):
        prefetch_keys(grid, record, entry, i, CLAUSE_TABLE)
        number, key = np.int64(entry[i]), np.int64(record[entry[i], KEY])
        old, new = cells_of(frame, before[i]), cells_of(frame, after[i])
        for side in range(4):
            record[number, side] = after[i, side]
        if old == new:
            continue
        row_of_key = np.int64(0) if grid.by_cell else find_token(grid.token, key)
        for put in range(2):
            here, there = (new, old) if put else (old, new)
            for row in range(here.south, here.north + 1):
                for column in range(here.west, here.east + 1):
                    if touches(there, column, row):
                        continue
                    if count == len(item):
                        apply_changes(grid, record, item, count)
                        count = np.int64(0)
                    cell = row * frame.columns + column
                    owner = cell if grid.by_cell else row_of_key
                    wanted = key if grid.by_cell else cell
                    prefetch(slot, first_slot(header, owner, CLAUSE_TABLE, wanted))
                    item[count, 0], item[count, 1], item[count, 2] = number, owner, wanted
                    item[count, 3] = put
                    count += 1
    apply_changes(grid, record, item, count)
