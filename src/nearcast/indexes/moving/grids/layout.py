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
from nearcast.indexes.moving.living import LivingArrays, X, Y, is_range, tokens_of
from nearcast.indexes.moving.message_tables import store_items
from nearcast.indexes.moving.tables import TableArrays, first_slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.moving.lists import ListArrays

CLAUSE_TABLE, MESSAGE_TABLE, HEADER_WIDTH = 4, 6, 8
"""Columns of ``header``: each table has two. In the kk-index, those before are of the tokens."""

POST_ITEMS = 256
"""How many postings of messages are looked up together."""

_AHEAD = 4


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
    int64[POST_ITEMS, 3] is scratch space: stamp, owner, key. All tokens have rows.
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


@inlined_kernel
def place_of(grid: GridArrays, token: Number, cell: Number) -> tuple[Number, Number, Number]:
    """Return where the clauses of a key in a cell are; the key has a row."""
    if grid.by_cell:
        return cell, np.int64(CLAUSE_TABLE), np.int64(token)
    return find_token(grid.token, token), np.int64(CLAUSE_TABLE), np.int64(cell)


@kernel
def shift_clauses(
    grid: GridArrays,
    frame: Frame,
    entries: EntryArrays,
    entry: NDArray[np.int32],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
) -> None:
    """Take entries from the cells that only the old box touches to those of the new one only.

    Writes the new boxes to the records.
    """
    grid, record = borrow(grid), borrow(entries.record)
    for i in range(len(entry)):
        if i + _AHEAD < len(entry):
            prefetch(record, np.int64(entry[i + _AHEAD]))
        number, key = np.int64(entry[i]), np.int64(record[entry[i], KEY])
        old, new = cells_of(frame, before[i]), cells_of(frame, after[i])
        for side in range(4):
            record[number, side] = after[i, side]
        if old == new:
            continue
        for row in range(old.south, old.north + 1):
            for column in range(old.west, old.east + 1):
                if not touches(new, column, row):
                    place = place_of(grid, key, row * frame.columns + column)
                    take_clause(grid.clauses, grid.header, place, grid.clause_lists, number)
        for row in range(new.south, new.north + 1):
            for column in range(new.west, new.east + 1):
                if not touches(old, column, row):
                    place = place_of(grid, key, row * frame.columns + column)
                    put_clause(grid.clauses, grid.header, place, grid.clause_lists, record, number)
