"""Match messages against the clauses in their cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import MessageArrays, Output, contains, known_tokens
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.simd_points import covered_signatures
from nearcast.compiled.token_table import NO_TOKEN, home
from nearcast.indexes.moving.entries import FIRST, SIGNATURE, EntryArrays, signature_bit
from nearcast.indexes.moving.frequencies import find_token
from nearcast.indexes.moving.grids.cells import Frame, cell_of, cells_of
from nearcast.indexes.moving.grids.layout import CLAUSE_TABLE, GridArrays
from nearcast.indexes.moving.lists import capacity_of, size_of, start_of
from nearcast.indexes.moving.tables import VALUE, find_key, first_slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

ITEM_MESSAGE, OWNER, KEY, CELL, MESSAGE_SIGNATURE, ITEM_WIDTH = range(6)
"""Columns of ``item``. The owner becomes the value that is found: an entry or a list."""

ENTRY = 1
"""In ``candidate`` the entry is where items have the owner."""

FOUND, CURRENT, EXAMINED, VISITED = range(4)
"""Items of ``counters``: matches so far, and the message at hand; candidates and lists."""

_ITEMS = 512
_CANDIDATES = 1024
_ONE = np.uint64(1)


class MatchScratch(NamedTuple):
    """Scratch space for messages.

    - ``item`` int64[many, 5]: places to look up.
    - ``candidate`` int64[many, 5]: entries to verify, by message.
    - ``counters`` int64[4]: see `FOUND`.
    """

    item: NDArray[np.int64]
    candidate: NDArray[np.int64]
    counters: NDArray[np.int64]


def new_match_scratch() -> MatchScratch:
    """Return scratch space for messages."""
    return MatchScratch(
        np.empty((_ITEMS, ITEM_WIDTH), np.int64),
        np.empty((_CANDIDATES, ITEM_WIDTH), np.int64),
        np.zeros(4, np.int64),
    )


@inlined_kernel
def note_place(grid: GridArrays, token: Number, item: NDArray[np.int64]) -> None:
    """Note that a token is looked up in the cell of an item."""
    cell = item[CELL]
    if grid.by_cell:
        item[OWNER], item[KEY] = cell, token
        prefetch(grid.clauses.slot, first_slot(grid.header, cell, CLAUSE_TABLE, token))
    else:
        item[OWNER], item[KEY] = token, cell
        prefetch(grid.token, home(token, len(grid.token)))


@inlined_kernel
def look_up(
    grid: GridArrays, record: NDArray[np.int32], item: NDArray[np.int64], count: Number
) -> Number:
    """Replace owners by what is stored there; return how many items are left."""
    slot, header, lists = grid.clauses.slot, grid.header, grid.clause_lists
    if not grid.by_cell:
        for i in range(count):
            row = find_token(grid.token, item[i, OWNER])
            item[i, OWNER] = row
            if row >= 0:
                prefetch(slot, first_slot(header, row, CLAUSE_TABLE, item[i, KEY]))
    kept = np.int64(0)
    for i in range(count):
        if item[i, OWNER] < 0:
            continue
        at = find_key(slot, header, item[i, OWNER], CLAUSE_TABLE, item[i, KEY])
        if at < 0:
            continue
        value = np.int64(slot[at, VALUE])
        if value >= 0:
            prefetch(lists.head, value)
        for column in range(ITEM_WIDTH):
            item[kept, column] = item[i, column]
        item[kept, OWNER] = value
        kept += 1
    for i in range(kept):
        value = item[i, OWNER]
        if value >= 0:
            prefetch(lists.pool, start_of(lists, value) + capacity_of(lists, value))
            prefetch(lists.pool, start_of(lists, value))
    return kept


@inlined_kernel
def add_candidate(
    record: NDArray[np.int32], item: NDArray[np.int64], entry: Number, candidate: NDArray[np.int64]
) -> None:
    """Note an entry that is to be verified."""
    prefetch(record, entry)
    for column in range(ITEM_WIDTH):
        candidate[column] = item[column]
    candidate[ENTRY] = entry


@kernel
def is_near(
    frame: Frame, place: NDArray[np.int32], candidate: NDArray[np.int64], record: NDArray[np.int32]
) -> Number:
    """Tell whether an entry may match a message: by its box, and by its signature.

    An entry that shares several cells with the box of a message is reported in the one that has
    the south-west corner of what they share.
    """
    lacking = record[SIGNATURE] & ~np.int32(candidate[MESSAGE_SIGNATURE])
    if record[0] > place[2] or record[2] < place[0] or lacking != 0:
        return False
    if record[1] > place[3] or record[3] < place[1]:
        return False
    if place[0] == place[2] and place[1] == place[3]:
        return True
    corner = cell_of(frame, max(record[0], place[0]), max(record[1], place[1]))
    return corner == candidate[CELL]


@kernel
def verify(
    frame: Frame,
    entries: EntryArrays,
    messages: MessageArrays,
    scratch: MatchScratch,
    count: Number,
    output: Output,
) -> Number:
    """Write the candidates that match; return whether they fit."""
    (record, pool), counters, candidate = entries, scratch.counters, scratch.candidate
    counters[EXAMINED] += count
    near = np.int64(0)
    for i in range(count):
        entry = candidate[i, ENTRY]
        if is_near(frame, messages.box[candidate[i, ITEM_MESSAGE]], candidate[i], record[entry]):
            prefetch(pool, np.int64(record[entry, FIRST]))
            candidate[near, ITEM_MESSAGE] = candidate[i, ITEM_MESSAGE]
            candidate[near, ENTRY] = entry
            near += 1
    found, current = counters[FOUND], counters[CURRENT]
    for i in range(near):
        message, entry = candidate[i, ITEM_MESSAGE], candidate[i, ENTRY]
        while current < message:
            current += 1
            output.start[current] = found
        first = np.int64(record[entry, FIRST])
        at, end = first + 1, first + 1 + pool[first]
        if end - at > 1:  # else its only token is the key
            tokens = messages.token[
                messages.token_start[message] : messages.token_start[message + 1]
            ]
            while at < end and contains(tokens, pool[at]):
                at += 1
            if at < end:
                continue
        if found == len(output.clause):
            counters[FOUND], counters[CURRENT] = found, current
            return False
        output.clause[found] = entry
        found += 1
    counters[FOUND], counters[CURRENT] = found, current
    return True


@kernel
def match_items(
    grid: GridArrays,
    frame: Frame,
    entries: EntryArrays,
    messages: MessageArrays,
    scratch: MatchScratch,
    count: Number,
    output: Output,
) -> Number:
    """Write what matches in the places that were noted; return whether all fit."""
    item, candidate, lists = scratch.item, scratch.candidate, grid.clause_lists
    record = entries.record
    count = look_up(grid, record, item, count)
    scratch.counters[VISITED] += count
    candidates = np.int64(0)
    for i in range(count):
        value = item[i, OWNER]
        # A block may add sixteen.
        first, last = np.int64(0), np.int64(1) if value < 0 else size_of(lists, value)
        while first < last:
            if candidates + LANES > len(candidate):
                if not verify(frame, entries, messages, scratch, candidates, output):
                    return False
                candidates = np.int64(0)
            if value < 0:
                add_candidate(record, item[i], ~value, candidate[candidates])
                candidates += 1
                break
            at = start_of(lists, value) + first
            signature = np.int32(item[i, MESSAGE_SIGNATURE])
            fits = covered_signatures(lists.pool, at + capacity_of(lists, value), signature)
            if last - first < LANES:
                fits &= (_ONE << np.uint64(last - first)) - _ONE
            while fits != np.uint64(0):
                entry = np.int64(lists.pool[at + lowest_bit(fits)])
                fits &= fits - _ONE
                add_candidate(record, item[i], entry, candidate[candidates])
                candidates += 1
            first += LANES
    return verify(frame, entries, messages, scratch, candidates, output)


@kernel
def match_messages(
    grid: GridArrays,
    frame: Frame,
    entries: EntryArrays,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    output: Output,
) -> Number:
    """Write the entries that match each message; return the first whose entries did not fit."""
    grid, entries, scratch = borrow(grid), borrow(entries), borrow(scratch)
    messages, output = borrow(messages), borrow(output)
    counters, item, count = scratch.counters, scratch.item, np.int64(0)
    counters[FOUND], counters[CURRENT] = output.start[part[0]], part[0]
    for message in range(part[0], part[1]):
        first = messages.token_start[message]
        tokens = messages.token[first : messages.token_start[message + 1]]
        known, signature = known_tokens(tokens), np.int32(0)
        for i in range(known):
            signature |= signature_bit(np.int64(tokens[i]))
        cells = cells_of(frame, messages.box[message])
        for row in range(cells.south, cells.north + 1):
            for column in range(cells.west, cells.east + 1):
                for i in range(known + 1):
                    if count == len(item):
                        fits = match_items(grid, frame, entries, messages, scratch, count, output)
                        count = np.int64(0)
                        if not fits:
                            return counters[CURRENT]
                    token = np.int64(tokens[i]) if i < known else NO_TOKEN
                    item[count, ITEM_MESSAGE] = message
                    item[count, MESSAGE_SIGNATURE] = signature
                    item[count, CELL] = row * frame.columns + column
                    note_place(grid, token, item[count])
                    count += 1
    if not match_items(grid, frame, entries, messages, scratch, count, output):
        return counters[CURRENT]
    for message in range(counters[CURRENT] + 1, part[1] + 1):
        output.start[message] = counters[FOUND]
    return part[1]
