"""Which living messages a clause gains and loses when it goes from one box to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.simd_points import crossing_points
from nearcast.compiled.token_table import home
from nearcast.indexes.moving.contract import BEGINS, ENDS
from nearcast.indexes.moving.entries import KEY as ENTRY_KEY
from nearcast.indexes.moving.entries import SIGNATURE, EntryArrays
from nearcast.indexes.moving.frequencies import find_token
from nearcast.indexes.moving.grids.cells import Cells, Frame, cells_of, is_inside, touches
from nearcast.indexes.moving.grids.layout import MESSAGE_TABLE, GridArrays
from nearcast.indexes.moving.lists import capacity_of, size_of, start_of
from nearcast.indexes.moving.living import FIRST, LivingArrays, X, Y, is_alive
from nearcast.indexes.moving.living import SIGNATURE as MESSAGE_SIGNATURE
from nearcast.indexes.moving.ranges import Shifted, has_tokens
from nearcast.indexes.moving.tables import (
    KEY,
    NO_KEY,
    VALUE,
    find_key,
    first_slot,
    region_end,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

POSITION, OWNER, CELL, RESOLVED = range(4)
"""Columns of ``item``: the clause, the owner of the table and the key, or, if it is resolved,
the value that was found instead of the owner."""

STAMP, SIGN = 1, 2
"""Columns of ``candidate`` after `POSITION`."""

FOUND, CURRENT, BEFORE_CURRENT, EXAMINED, VISITED = range(5)
"""Items of ``counters``: changes so far, the clause at hand, and the changes before it; candidates
and lists."""

_ITEMS = 512
_CANDIDATES = 512
_FAR, _NEAR, _NEXT = 12, 6, 3
_ONE, _LOW = np.uint64(1), np.uint64((1 << LANES) - 1)


class ShiftScratch(NamedTuple):
    """Scratch space for clauses that move.

    - ``item`` int64[many, 4]: places to look up, by clause.
    - ``candidate`` int64[many, 3]: messages to verify, by clause.
    - ``counters`` int64[5]: see `FOUND`.
    """

    item: NDArray[np.int64]
    candidate: NDArray[np.int64]
    counters: NDArray[np.int64]


class Moved(NamedTuple):
    """Entries, and their boxes before and after."""

    entry: NDArray[np.int32]
    before: NDArray[np.int32]
    after: NDArray[np.int32]


def new_shift_scratch() -> ShiftScratch:
    """Return scratch space for clauses that move."""
    return ShiftScratch(
        np.empty((_ITEMS, 4), np.int64),
        np.empty((_CANDIDATES, 3), np.int64),
        np.zeros(5, np.int64),
    )


@kernel
def contains_point(box: NDArray[np.int32], x: Number, y: Number) -> Number:
    """Tell whether a box contains a point."""
    return (box[0] <= x) & (x <= box[2]) & (box[1] <= y) & (y <= box[3])


@kernel
def verify(
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    scratch: ShiftScratch,
    count: Number,
    output: Shifted,
) -> Number:
    """Write the candidates that have all tokens; return whether they fit."""
    candidate, counters = scratch.candidate, scratch.counters
    counters[EXAMINED] += count
    left = np.int64(0)
    for i in range(count):
        stamp = candidate[i, STAMP]
        wanted = entries.record[moved.entry[candidate[i, POSITION]], SIGNATURE]
        if (wanted & living.record[stamp, MESSAGE_SIGNATURE]) == wanted:
            prefetch(living.pool, np.int64(living.record[stamp, FIRST]))
            for column in range(3):
                candidate[left, column] = candidate[i, column]
            left += 1
    found = counters[FOUND]
    for i in range(left):
        position, stamp = candidate[i, POSITION], candidate[i, STAMP]
        if position != counters[CURRENT]:
            counters[CURRENT], counters[BEFORE_CURRENT] = position, found
        if not has_tokens(entries, moved.entry[position], living, stamp):
            continue
        if found == len(output.stamp):
            return False
        output.position[found], output.stamp[found] = position, stamp
        output.sign[found] = candidate[i, SIGN]
        found += 1
    counters[FOUND] = found
    return True


@inlined_kernel
def resolve(
    grid: GridArrays, living: LivingArrays, item: NDArray[np.int64], count: Number
) -> Number:
    """Replace owners by what is stored there; return how many items are left."""
    slot, lists, kept = grid.messages.slot, grid.message_lists, np.int64(0)
    for i in range(count):
        value = item[i, OWNER]
        if not item[i, RESOLVED]:
            at = find_key(slot, grid.header, value, MESSAGE_TABLE, item[i, CELL])
            if at < 0:
                continue
            value = np.int64(slot[at, VALUE])
        if value < 0:
            if not is_alive(living.alive, ~value):
                continue
            prefetch(living.record, ~value)
        else:
            prefetch(lists.head, value)
        item[kept, POSITION], item[kept, OWNER] = item[i, POSITION], value
        kept += 1
    for i in range(kept):
        value = item[i, OWNER]
        if value >= 0:
            prefetch(lists.pool, start_of(lists, value))
            prefetch(lists.pool, start_of(lists, value) + capacity_of(lists, value))
    return kept


@kernel
def compare_items(
    grid: GridArrays,
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    scratch: ShiftScratch,
    count: Number,
    output: Shifted,
) -> Number:
    """Write what changes in the places that were noted; return whether all fit."""
    item, candidate, lists = scratch.item, scratch.candidate, grid.message_lists
    count = resolve(grid, living, item, count)
    scratch.counters[VISITED] += count
    candidates = np.int64(0)
    for i in range(count):
        position, value = item[i, POSITION], item[i, OWNER]
        before, after = moved.before[position], moved.after[position]
        first, last = np.int64(0), np.int64(1) if value < 0 else size_of(lists, value)
        while first < last:
            if candidates + LANES > len(candidate):
                if not verify(entries, living, moved, scratch, candidates, output):
                    return False
                candidates = np.int64(0)
            if value < 0:
                x, y = living.record[~value, X], living.record[~value, Y]
                sign = np.int64(contains_point(after, x, y)) - np.int64(
                    contains_point(before, x, y)
                )
                candidate[candidates, POSITION] = position
                candidate[candidates, STAMP], candidate[candidates, SIGN] = ~value, sign
                candidates += np.int64(sign != 0)
                break
            capacity = capacity_of(lists, value)
            at = start_of(lists, value) + first
            crossing = crossing_points(lists.pool, at, capacity, before, after)
            begins = crossing & _LOW
            either = begins | (crossing >> np.uint64(LANES))
            if last - first < LANES:
                either &= (_ONE << np.uint64(last - first)) - _ONE
            while either != np.uint64(0):
                lane = lowest_bit(either)
                either &= either - _ONE
                stamp = np.int64(lists.pool[at + 2 * capacity + lane])
                if is_alive(living.alive, stamp):
                    prefetch(living.record, stamp)
                    candidate[candidates, POSITION] = position
                    candidate[candidates, STAMP] = stamp
                    new = (begins >> np.uint64(lane)) & _ONE
                    candidate[candidates, SIGN] = BEGINS if new else ENDS
                    candidates += 1
            first += LANES
    return verify(entries, living, moved, scratch, candidates, output)


@inlined_kernel
def prefetch_ahead(
    grid: GridArrays, record: NDArray[np.int32], entry: NDArray[np.int32], i: Number
) -> None:
    """Prefetch the records of entries to come, and the rows and tables of their keys."""
    if i + _FAR < len(entry):
        prefetch(record, np.int64(entry[i + _FAR]))
    if not grid.by_cell:
        if i + _NEAR < len(entry):
            key = np.int64(record[entry[i + _NEAR], ENTRY_KEY])
            prefetch(grid.token, home(key, len(grid.token)))
        if i + _NEXT < len(entry):
            row = find_token(grid.token, np.int64(record[entry[i + _NEXT], ENTRY_KEY]))
            prefetch(grid.messages.slot, np.int64(grid.header[row, MESSAGE_TABLE]))


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

    The changes before it are ``counters[BEFORE_CURRENT]``, and those of all ``counters[FOUND]``.
    """
    grid, entries, living = borrow(grid), borrow(entries), borrow(living)
    moved, scratch, output = borrow(moved), borrow(scratch), borrow(output)
    counters, item, count = scratch.counters, scratch.item, np.int64(0)
    slot, header, record = grid.messages.slot, grid.header, entries.record
    counters[CURRENT] = -1
    for i in range(begin, len(moved.entry)):
        prefetch_ahead(grid, record, moved.entry, i)
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
                cell = np.int64(slot[at, KEY])
                row, column = cell // frame.columns, cell % frame.columns
                if cell == NO_KEY or not (touches(old, column, row) or touches(new, column, row)):
                    continue
                if is_inside(old, column, row) and is_inside(new, column, row):
                    continue
                if count == len(item):
                    fits = compare_items(grid, entries, living, moved, scratch, count, output)
                    count = np.int64(0)
                    if not fits:
                        return counters[CURRENT]
                item[count, POSITION], item[count, RESOLVED] = i, 1
                item[count, OWNER] = slot[at, VALUE]
                count += 1
            continue
        last = max(old.east, new.east)
        for row in range(min(old.south, new.south), max(old.north, new.north) + 1):
            column = next_column(old, new, min(old.west, new.west), row)
            while column <= last:
                if count == len(item):
                    fits = compare_items(grid, entries, living, moved, scratch, count, output)
                    count = np.int64(0)
                    if not fits:
                        return counters[CURRENT]
                cell = row * frame.columns + column
                item[count, POSITION], item[count, RESOLVED] = i, 0
                item[count, OWNER] = cell if grid.by_cell else owner
                item[count, CELL] = key if grid.by_cell else cell
                prefetch(
                    slot, first_slot(header, item[count, OWNER], MESSAGE_TABLE, item[count, CELL])
                )
                count += 1
                column = next_column(old, new, column + 1, row)
    if not compare_items(grid, entries, living, moved, scratch, count, output):
        return counters[CURRENT]
    return len(moved.entry)
