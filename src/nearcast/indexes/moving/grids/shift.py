"""Which living messages a clause gains and loses when it goes from one box to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.indexes.moving.comparing import (
    BOTH_SIGNS,
    CURRENT,
    POSITION,
    SIGNS,
    UNRESOLVED,
    VALUE,
    Moved,
    ShiftScratch,
    compare_items,
    resolve_items,
)
from nearcast.indexes.moving.comparing import ITEM_KEY as TABLE_KEY
from nearcast.indexes.moving.entries import KEY as ENTRY_KEY
from nearcast.indexes.moving.entries import EntryArrays
from nearcast.indexes.moving.frequencies import find_token
from nearcast.indexes.moving.grids.cells import Cells, Frame, cells_of, is_inside, touches
from nearcast.indexes.moving.grids.layout import MESSAGE_TABLE, GridArrays, prefetch_keys
from nearcast.indexes.moving.tables import KEY, NO_KEY, first_slot, region_end
from nearcast.indexes.moving.tables import VALUE as SLOT_VALUE

if TYPE_CHECKING:
    from nearcast.indexes.moving.living import LivingArrays
    from nearcast.indexes.moving.ranges import Shifted


@kernel
def compare_places(
    grid: GridArrays,
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    scratch: ShiftScratch,
    count: Number,
    output: Shifted,
) -> Number:
    """Write what changes in the places that were noted; return whether all fit."""
    column = np.int64(MESSAGE_TABLE)
    kept = resolve_items(grid.messages.slot, grid.header, column, scratch.item, count)
    return compare_items(grid.message_lists, entries, living, moved, scratch, kept, output)


@inlined_kernel
def next_column(old: Cells, new: Cells, column: Number, row: Number) -> Number:
    """Return the first column from one on, of a row, in which points may have changed sides.

    That is a cell which a box touches but for those inside of both; a column after the last if
    there is none.
    """
    in_old = (old.south <= row) & (row <= old.north)
    in_new = (new.south <= row) & (row <= new.north)
    if is_inside(old, column, row) and is_inside(new, column, row):
        column = min(old.east, new.east)
    if not touches(old, column, row) and not touches(new, column, row):
        # Before a box, between two, or behind both.
        after = np.int64(1) << 40
        if in_old and column < old.west:
            after = old.west
        if in_new and column < new.west:
            after = min(after, new.west)
        column = after
    return column


@kernel
def shift_entries(
    grid: GridArrays,
    frame: Frame,
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    begin: Number,
    scratch: ShiftScratch,
    output: Shifted,
) -> Number:
    """Write what changes for entries from ``begin`` on; return the first whose changes did not fit.

    See `nearcast.indexes.moving.comparing.collect_changes`.
    """
    grid, entries, living = borrow(grid), borrow(entries), borrow(living)
    moved, scratch, output = borrow(moved), borrow(scratch), borrow(output)
    counters, item, count = scratch.counters, scratch.item, np.int64(0)
    slot, header, record = grid.messages.slot, grid.header, entries.record
    for i in range(begin, len(moved.entry)):
        prefetch_keys(grid, record, moved.entry, i, MESSAGE_TABLE)
        key = np.int64(record[moved.entry[i], ENTRY_KEY])
        old, new = cells_of(frame, moved.before[i]), cells_of(frame, moved.after[i])
        owner, start, end = np.int64(0), np.int64(0), np.int64(1) << 40
        if not grid.by_cell:
            owner = find_token(grid.token, key)
            start = np.int64(header[owner, MESSAGE_TABLE])
            end = region_end(header, owner, MESSAGE_TABLE)
        around = (new.east - new.west + 2) * (new.north - new.south + 2)
        around = max(around, (old.east - old.west + 2) * (old.north - old.south + 2))
        if end - start <= around:  # all cells of the token
            for at in range(start, end):
                cell: Number = np.int64(slot[at, KEY])
                row, column = cell // frame.columns, cell % frame.columns
                if cell == NO_KEY or not (touches(old, column, row) or touches(new, column, row)):
                    continue
                if is_inside(old, column, row) and is_inside(new, column, row):
                    continue
                if count == len(item):
                    fits = compare_places(grid, entries, living, moved, scratch, count, output)
                    count = np.int64(0)
                    if not fits:
                        return counters[CURRENT]
                item[count, POSITION], item[count, SIGNS] = i, BOTH_SIGNS
                item[count, VALUE] = slot[at, SLOT_VALUE]
                count += 1
            continue
        last = max(old.east, new.east)
        for row in range(min(old.south, new.south), max(old.north, new.north) + 1):
            column = next_column(old, new, min(old.west, new.west), row)
            while column <= last:
                if count == len(item):
                    fits = compare_places(grid, entries, living, moved, scratch, count, output)
                    count = np.int64(0)
                    if not fits:
                        return counters[CURRENT]
                cell = row * frame.columns + column
                item[count, POSITION], item[count, SIGNS] = i, BOTH_SIGNS | UNRESOLVED
                item[count, VALUE] = cell if grid.by_cell else owner
                item[count, TABLE_KEY] = key if grid.by_cell else cell
                table, wanted = item[count, VALUE], item[count, TABLE_KEY]
                prefetch(slot, first_slot(header, table, MESSAGE_TABLE, wanted))
                count += 1
                column = next_column(old, new, column + 1, row)
    if not compare_places(grid, entries, living, moved, scratch, count, output):
        return counters[CURRENT]
    return len(moved.entry)
