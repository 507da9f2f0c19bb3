"""Take entries from one box to another, and say which messages that changes.

Entries are taken in chunks. Each stage goes over a queue of the chunk, writes the next queue and
prefetches what the next stage reads::

    records -> headers -> leaves, columns -> rows -> tiles -> postings -> messages -> tokens

All queues are in the order of the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.indexes.moving.entries import FIRST, KEY, PLACE, SIGNATURE, EntryArrays
from nearcast.indexes.moving.living import FIRST as MESSAGE_FIRST
from nearcast.indexes.moving.living import LENGTH, LivingArrays, X, Y, is_alive
from nearcast.indexes.moving.living import SIGNATURE as MESSAGE_SIGNATURE
from nearcast.indexes.moving.ranges import Shifted
from nearcast.indexes.moving.twin_lists.directory import head_at, part_of, rows_at
from nearcast.indexes.moving.twin_lists.lanes import (
    EMPTY_WINDOW,
    LANES,
    changed_postings,
    changed_postings_4,
    window_side,
)
from nearcast.indexes.moving.twin_lists.layout import (
    ARRIVED,
    CLAMPED,
    CLASS_MASK,
    DIRECTORY,
    EXAMINED,
    GRID,
    HALF_MAX,
    LEAF_BITS,
    LINE,
    LIST,
    LIST_SIZE,
    NOTHING,
    VISITED,
    TwinArrays,
    window_of,
)
from nearcast.indexes.moving.twin_lists.leaves import locate, widen, write_box
from nearcast.indexes.moving.twin_lists.match import TOO_SHORT, has_all, longer

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 64
"""Entries that are staged together."""

QUEUE = 1024
_NONE, _ONE = np.uint64(0), np.uint64(1)


@inlined_kernel
def is_outside(window: Number) -> Number:
    """Tell whether a window was clamped to one side of the frame."""
    west, south = window_side(window, 0), window_side(window, 1)
    east, north = window_side(window, 2), window_side(window, 3)
    beyond = west >= HALF_MAX or south >= HALF_MAX
    return (beyond or east <= -HALF_MAX or north <= -HALF_MAX) and west <= east


@kernel
def with_space(output: Shifted, count: Number) -> Shifted:
    """Return the same changes with space for at least ``count``."""
    size = 2 * count + QUEUE
    position, stamp = np.empty(size, np.int64), np.empty(size, np.int32)
    sign = np.empty(size, np.int8)
    old = len(output.stamp)
    position[:old], stamp[:old], sign[:old] = output.position, output.stamp, output.sign
    return Shifted(position, stamp, sign)


class Moved(NamedTuple):
    """Entries that move, int32[n], and their boxes before and after, int32[n, 4]."""

    entry: NDArray[np.int32]
    before: NDArray[np.int32]
    after: NDArray[np.int32]


class ChunkScratch(NamedTuple):
    """Of each entry of a chunk: its two windows, and the columns that each of them touches.

    ``window`` int64[CHUNK, 2]; ``column`` int64[CHUNK, 4]: first and last of the old window, then
    of the new one; the last is before the first for an empty window.
    """

    window: NDArray[np.int64]
    column: NDArray[np.int64]


@inlined_kernel
def write_records(
    arrays: TwinArrays,
    record: NDArray[np.int32],
    moved: Moved,
    part: tuple[Number, Number],
    scratch: ChunkScratch,
) -> None:
    """Write the exact boxes, round them, and prefetch headers."""
    state, clamped = arrays.state, np.int64(0)
    for i in range(part[0], part[1]):
        own = moved.entry[i]
        for side in range(4):
            record[own, side] = moved.after[i, side]
        new = window_of(state, moved.after[i])
        scratch.window[i - part[0], 0] = window_of(state, moved.before[i])
        scratch.window[i - part[0], 1] = new
        clamped += is_outside(new)
        prefetch(arrays.header, record[own, KEY] >> 1)
    state[ARRIVED] += part[1] - part[0]
    state[CLAMPED] += clamped


@inlined_kernel
def open_headers(
    arrays: TwinArrays, record: NDArray[np.int32], moved: Moved, part: tuple[Number, Number]
) -> None:
    """Prefetch the leaves of entries, and flat lists or the splits of columns."""
    header, word, leaf_bits = arrays.header, arrays.messages.word, arrays.option[LEAF_BITS]
    clause_half = arrays.clauses.half
    for i in range(part[0], part[1]):
        own = moved.entry[i]
        number = np.int64(record[own, KEY] >> 1)
        leaf, stride, lane, bound = locate(header, number, record[own, PLACE], leaf_bits)
        prefetch(clause_half, 2 * leaf + lane)
        if stride > 4:
            for side in range(1, 4):
                prefetch(clause_half, 2 * leaf + lane + side * stride)
        if bound != NOTHING:
            for side in range(4):
                prefetch(clause_half, bound + side * LANES)
        directory, start = np.int64(header[number, DIRECTORY]), np.int64(header[number, LIST])
        if directory != NOTHING:
            prefetch(word, directory)
        else:
            for line in range(((header[number, LIST_SIZE] >> 8) + 7) >> 3):
                prefetch(word, start + line * LINE)


@inlined_kernel
def write_leaves(
    arrays: TwinArrays,
    record: NDArray[np.int32],
    moved: Moved,
    part: tuple[Number, Number],
    scratch: ChunkScratch,
) -> None:
    """Write the rounded boxes, and find the columns of directories."""
    header, leaf_bits = arrays.header, arrays.option[LEAF_BITS]
    word, half = arrays.messages.word, arrays.messages.half
    for i in range(part[0], part[1]):
        own, at = moved.entry[i], i - part[0]
        new = scratch.window[at, 1]
        number = np.int64(record[own, KEY] >> 1)
        leaf, stride, lane, bound = locate(header, number, record[own, PLACE], leaf_bits)
        write_box(arrays.clauses.half, leaf, stride, lane, new)
        if bound != NOTHING and new != EMPTY_WINDOW:
            widen(arrays.clauses.half, bound, new)
        directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
        if directory == NOTHING:
            continue
        for j in range(2):
            window = scratch.window[at, j]
            low, high = grid, np.int64(-1)
            if window != EMPTY_WINDOW:
                low = part_of(half, directory, grid, window_side(window, 0))
                high = part_of(half, directory, grid, window_side(window, 2))
            scratch.column[at, 2 * j], scratch.column[at, 2 * j + 1] = low, high
        low = min(scratch.column[at, 0], scratch.column[at, 2])
        high = max(scratch.column[at, 1], scratch.column[at, 3])
        for column in range(low, high + 1):
            prefetch(word, rows_at(directory, grid, column))


@inlined_kernel
def rows_of(
    half: NDArray[np.int16], splits: Number, grid: Number, window: Number, touches: Number
) -> tuple[Number, Number]:
    """Return the first and last row that a window touches in a column, if it touches that."""
    south, north = grid, np.int64(-1)
    if touches:
        south = part_of(half, splits, grid, window_side(window, 1))
        north = part_of(half, splits, grid, window_side(window, 3))
    return south, north


@inlined_kernel
def find_tiles(
    arrays: TwinArrays,
    record: NDArray[np.int32],
    moved: Moved,
    part: tuple[Number, Number],
    scratch: ChunkScratch,
    tiles: NDArray[np.int64],
) -> Number:
    """Queue (entry, head of a tile, -1), and (entry, start, size and class) of flat lists.

    Tiles that are strictly inside of both windows are left out: nothing changes there.
    """
    header, word, half = arrays.header, arrays.messages.word, arrays.messages.half
    queued = np.int64(0)
    for i in range(part[0], part[1]):
        number, at = np.int64(record[moved.entry[i], KEY] >> 1), i - part[0]
        directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
        if directory == NOTHING:
            if queued == len(tiles):
                queued = np.int64(TOO_SHORT)
                break
            tiles[queued, 0], tiles[queued, 1] = i, header[number, LIST]
            tiles[queued, 2] = header[number, LIST_SIZE]
            queued += 1
            continue
        old, new, column_of = scratch.window[at, 0], scratch.window[at, 1], scratch.column[at]
        low, high = min(column_of[0], column_of[2]), max(column_of[1], column_of[3])
        for column in range(low, high + 1):
            splits = rows_at(directory, grid, column)
            in_old = column_of[0] <= column <= column_of[1]
            in_new = column_of[2] <= column <= column_of[3]
            south, north = rows_of(half, splits, grid, old, in_old)
            new_south, new_north = rows_of(half, splits, grid, new, in_new)
            inner_low, inner_high = max(south, new_south), min(north, new_north)
            in_old = column_of[0] < column < column_of[1]
            if not (in_old and column_of[2] < column < column_of[3]):
                inner_high = inner_low
            if queued + grid > len(tiles):
                queued = np.int64(TOO_SHORT)
                break
            for row in range(min(south, new_south), max(north, new_north) + 1):
                touched = south <= row <= north or new_south <= row <= new_north
                if touched and not inner_low < row < inner_high:
                    head = head_at(directory, grid, column, row)
                    prefetch(word, head)
                    tiles[queued, 0], tiles[queued, 1], tiles[queued, 2] = i, head, NOTHING
                    queued += 1
        if queued == TOO_SHORT:
            break
    return queued


@inlined_kernel
def open_tiles(word: NDArray[np.int32], tiles: NDArray[np.int64], count: Number) -> None:
    """Replace the heads of tiles in the queue by what they say, and prefetch their postings."""
    for i in range(count):
        if tiles[i, 2] == NOTHING:
            head = tiles[i, 1]
            tiles[i, 1], tiles[i, 2] = word[head], word[head + 1]
            for line in range((tiles[i, 2] + (7 << 8)) >> 11):
                prefetch(word, tiles[i, 1] + line * LINE)


@inlined_kernel
def scan_tiles(
    arrays: TwinArrays,
    living: LivingArrays,
    begin: Number,
    scratch: ChunkScratch,
    tiles: NDArray[np.int64],
    count: Number,
    candidates: NDArray[np.int64],
) -> Number:
    """Queue (entry, stamp) of living messages that may be in one box only."""
    word, half, queued = arrays.messages.word, arrays.messages.half, np.int64(0)
    for i in range(count):
        at, start, size = tiles[i, 0], tiles[i, 1], tiles[i, 2] >> 8
        old, new = scratch.window[at - begin, 0], scratch.window[at - begin, 1]
        if queued + size + 8 > len(candidates):
            queued = np.int64(TOO_SHORT)
            break
        if tiles[i, 2] & CLASS_MASK == 0:
            mask = changed_postings_4(half, 2 * start, old, new)
            mask &= (_ONE << np.uint64(size)) - _ONE
            while mask != _NONE:
                stamp = np.int64(word[start + 4 + lowest_bit(mask)])
                mask &= mask - _ONE
                prefetch(living.record, stamp)
                candidates[queued, 0], candidates[queued, 1] = at, stamp
                queued += np.int64(is_alive(living.alive, stamp))
            continue
        for first in range(0, size, 8):
            position = start + 2 * first
            mask = changed_postings(half, 2 * position, old, new)
            mask &= (_ONE << np.uint64(min(size - first, 8))) - _ONE
            while mask != _NONE:
                stamp = np.int64(word[position + 8 + lowest_bit(mask)])
                mask &= mask - _ONE
                prefetch(living.record, stamp)
                candidates[queued, 0], candidates[queued, 1] = at, stamp
                queued += np.int64(is_alive(living.alive, stamp))
    return queued


@inlined_kernel
def compare_messages(
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    candidates: NDArray[np.int64],
    count: Number,
) -> Number:
    """Keep (entry, stamp and whether it begins) of what is in one box only; return how many."""
    record, message, left = entries.record, living.record, np.int64(0)
    before, after = moved.before, moved.after
    for i in range(count):
        at, stamp = candidates[i, 0], candidates[i, 1]
        own = moved.entry[at]
        x, y = message[stamp, X], message[stamp, Y]
        was = (before[at, 0] <= x) & (x <= before[at, 2])
        was &= (before[at, 1] <= y) & (y <= before[at, 3])
        now = (after[at, 0] <= x) & (x <= after[at, 2])
        now &= (after[at, 1] <= y) & (y <= after[at, 3])
        missing = record[own, SIGNATURE] & ~message[stamp, MESSAGE_SIGNATURE]
        if was == now or missing != 0:
            continue
        if not record[own, KEY] & 1:
            prefetch(entries.pool, record[own, FIRST])
            prefetch(living.pool, message[stamp, MESSAGE_FIRST])
        candidates[left, 0], candidates[left, 1] = at, stamp << 1 | np.int64(now)
        left += 1
    return left


@inlined_kernel
def compare_tokens(
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    candidates: NDArray[np.int64],
    count: Number,
    output: Shifted,
    total: Number,
) -> Number:
    """Append the candidates that have all tokens to the output; return its new length."""
    record, message = entries.record, living.record
    for i in range(count):
        at, stamp, now = candidates[i, 0], candidates[i, 1] >> 1, candidates[i, 1] & 1
        own = moved.entry[at]
        if not record[own, KEY] & 1:
            first = np.int64(message[stamp, MESSAGE_FIRST])
            last = first + message[stamp, LENGTH]
            wanted = np.int64(record[own, FIRST])
            if not has_all(entries.pool, wanted, living.pool, first, last):
                continue
        output.position[total], output.stamp[total] = at, stamp
        output.sign[total] = 2 * now - 1
        total += 1
    return total


@kernel
def shift_entries(
    arrays: TwinArrays,
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    output: Shifted,
) -> tuple[Number, Shifted]:
    """Give entries, which are in lists, other boxes; return how many changes, and the changes."""
    arrays, entries, living = borrow(arrays), borrow(entries), borrow(living)
    moved, record = borrow(moved), borrow(entries).record
    scratch = ChunkScratch(np.empty((CHUNK, 2), np.int64), np.empty((CHUNK, 4), np.int64))
    tiles, candidates = np.empty((QUEUE, 3), np.int64), np.empty((QUEUE, 2), np.int64)
    total, last = np.int64(0), np.int64(len(moved.entry))
    for i in range(min(np.int64(CHUNK), last)):
        prefetch(record, moved.entry[i])
    for begin in range(0, last, CHUNK):
        part = begin, min(np.int64(begin + CHUNK), last)
        for i in range(part[1], min(part[1] + CHUNK, last)):
            prefetch(record, moved.entry[i])
        write_records(arrays, record, moved, part, scratch)
        open_headers(arrays, record, moved, part)
        write_leaves(arrays, record, moved, part, scratch)
        tile_count = find_tiles(arrays, record, moved, part, scratch, tiles)
        while tile_count == TOO_SHORT:
            tiles = longer(tiles, len(tiles))
            tile_count = find_tiles(arrays, record, moved, part, scratch, tiles)
        arrays.state[VISITED] += tile_count
        open_tiles(arrays.messages.word, tiles, tile_count)
        count = scan_tiles(arrays, living, begin, scratch, tiles, tile_count, candidates)
        while count == TOO_SHORT:
            candidates = longer(candidates, len(candidates))
            count = scan_tiles(arrays, living, begin, scratch, tiles, tile_count, candidates)
        arrays.state[EXAMINED] += count
        count = compare_messages(entries, living, moved, candidates, count)
        if total + count > len(output.stamp):
            output = with_space(output, total + count)
        total = compare_tokens(entries, living, moved, candidates, count, output, total)
    return total, output
