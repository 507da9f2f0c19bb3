"""Take entries from one box to another, and say which messages that changes.

Entries are taken in chunks. Each stage goes over a queue of the chunk, writes the next queue and
prefetches what the next stage reads::

    records -> headers -> leaves, columns -> rows -> tiles -> postings -> messages -> tokens

All queues are in the order of the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    NO_CHUNK,
    NOTHING,
    VISITED,
    TwinArrays,
    window_of,
)
from nearcast.indexes.moving.twin_lists.leaves import locate, widen, write_box
from nearcast.indexes.moving.twin_lists.match import has_all, longer

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 64
"""Entries that are staged together."""

QUEUE = 1024


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


@kernel
def shift_entries(
    arrays: TwinArrays,
    entries: EntryArrays,
    living: LivingArrays,
    moved: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    output: Shifted,
) -> tuple[Number, Shifted]:
    """Give entries, which are in lists, other boxes; return how many changes, and the changes.

    ``moved`` are the entries, and their boxes before and after.
    """
    arrays, entries, living = borrow(arrays), borrow(entries), borrow(living)
    entry, before, after = borrow(moved)
    header, state, record = arrays.header, arrays.state, entries.record
    word, half = arrays.messages.word, arrays.messages.half
    clause_word, clause_half = arrays.clauses.word, arrays.clauses.half
    message, leaf_bits = living.record, arrays.option[LEAF_BITS]
    windows = np.empty((CHUNK, 2), np.int64)
    columns = np.empty((CHUNK, 4), np.int64)
    tiles, lines = np.empty((QUEUE, 3), np.int64), np.empty((QUEUE, 3), np.int64)
    candidates = np.empty((QUEUE, 2), np.int64)
    total, count = np.int64(0), np.int64(len(entry))
    for i in range(min(np.int64(CHUNK), count)):
        prefetch(record, entry[i])
    for begin in range(0, count, CHUNK):
        end = min(np.int64(begin + CHUNK), count)

        # Records: write the exact box.
        for i in range(begin, end):
            own = entry[i]
            for side in range(4):
                record[own, side] = after[i, side]
            old, new = window_of(state, before[i]), window_of(state, after[i])
            windows[i - begin, 0], windows[i - begin, 1] = old, new
            state[CLAMPED] += is_outside(new)
            prefetch(header, record[own, KEY] >> 1)
        state[ARRIVED] += end - begin
        for i in range(end, min(end + CHUNK, count)):
            prefetch(record, entry[i])

        # Headers: leaves, and flat lists or the splits of columns.
        for i in range(begin, end):
            number = np.int64(record[entry[i], KEY] >> 1)
            leaf, stride, lane, bound = locate(header, number, record[entry[i], PLACE], leaf_bits)
            at = leaf + (lane >> 1)
            prefetch(clause_word, at)
            if stride > 4:
                prefetch(clause_word, at + (stride >> 1))
                prefetch(clause_word, at + stride)
                prefetch(clause_word, at + stride + (stride >> 1))
            if bound != NOTHING:
                for side in range(4):
                    prefetch(clause_half, bound + side * 32)
            directory = np.int64(header[number, DIRECTORY])
            if directory != NOTHING:
                prefetch(word, directory)
            else:
                start = np.int64(header[number, LIST])
                for line in range(((header[number, LIST_SIZE] >> 8) + 7) >> 3):
                    prefetch(word, start + line * LINE)

        # Leaves: write the rounded box. Columns of each window, which may be empty.
        for i in range(begin, end):
            old, new = windows[i - begin, 0], windows[i - begin, 1]
            number = np.int64(record[entry[i], KEY] >> 1)
            leaf, stride, lane, bound = locate(header, number, record[entry[i], PLACE], leaf_bits)
            write_box(clause_half, leaf, stride, lane, new)
            if bound != NOTHING and new != EMPTY_WINDOW:
                widen(clause_half, bound, new)
            directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
            if directory == NOTHING:
                continue
            for j in range(2):
                window = windows[i - begin, j]
                low, high = grid, np.int64(-1)
                if window != EMPTY_WINDOW:
                    low = part_of(half, directory, grid, window_side(window, 0))
                    high = part_of(half, directory, grid, window_side(window, 2))
                columns[i - begin, 2 * j], columns[i - begin, 2 * j + 1] = low, high
            low = min(columns[i - begin, 0], columns[i - begin, 2])
            high = max(columns[i - begin, 1], columns[i - begin, 3])
            for column in range(low, high + 1):
                prefetch(word, rows_at(directory, grid, column))

        # Rows: queue (entry, head of a tile, -1) or (entry, start, size and class) of flat lists.
        tile_count = np.int64(0)
        for i in range(begin, end):
            number = np.int64(record[entry[i], KEY] >> 1)
            directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
            if directory == NOTHING:
                if tile_count == len(tiles):
                    tiles = longer(tiles, tile_count)
                tiles[tile_count, 0], tiles[tile_count, 1] = i, header[number, LIST]
                tiles[tile_count, 2] = header[number, LIST_SIZE]
                tile_count += 1
                continue
            old, new = windows[i - begin, 0], windows[i - begin, 1]
            old_low, old_high = columns[i - begin, 0], columns[i - begin, 1]
            new_low, new_high = columns[i - begin, 2], columns[i - begin, 3]
            for column in range(min(old_low, new_low), max(old_high, new_high) + 1):
                splits = rows_at(directory, grid, column)
                south, north, new_south, new_north = grid, np.int64(-1), grid, np.int64(-1)
                if old_low <= column <= old_high:
                    south = part_of(half, splits, grid, window_side(old, 1))
                    north = part_of(half, splits, grid, window_side(old, 3))
                if new_low <= column <= new_high:
                    new_south = part_of(half, splits, grid, window_side(new, 1))
                    new_north = part_of(half, splits, grid, window_side(new, 3))
                # Rows strictly between these are inside of both windows: nothing changes there.
                inner_low, inner_high = max(south, new_south), min(north, new_north)
                if not (old_low < column < old_high and new_low < column < new_high):
                    inner_high = inner_low
                if tile_count + grid > len(tiles):
                    tiles = longer(tiles, tile_count + grid)
                for row in range(min(south, new_south), max(north, new_north) + 1):
                    if inner_low < row < inner_high:
                        continue
                    if not (south <= row <= north or new_south <= row <= new_north):
                        continue
                    at = head_at(directory, grid, column, row)
                    prefetch(word, at)
                    tiles[tile_count, 0], tiles[tile_count, 1] = i, at
                    tiles[tile_count, 2] = NOTHING
                    tile_count += 1
        state[VISITED] += tile_count

        # Tiles: queue (entry, position of a line, bits of its postings; negative for half a line).
        line_count = np.int64(0)
        for i in range(tile_count):
            start, tail = tiles[i, 1], tiles[i, 2]
            if tail == NOTHING:
                tail = np.int64(word[start + 1])
                start = np.int64(word[start])
            size, kind = tail >> 8, tail & CLASS_MASK
            if kind == NO_CHUNK or size == 0:
                continue
            size_lines = (size + 7) >> 3
            if line_count + size_lines > len(lines):
                lines = longer(lines, line_count + size_lines)
            for line in range(size_lines):
                position = start + line * LINE
                prefetch(word, position)
                lines[line_count, 0], lines[line_count, 1] = tiles[i, 0], position
                rest = min(size - line * 8, np.int64(8))
                lines[line_count, 2] = (np.int64(1) << rest) - 1 if kind > 0 else -rest
                line_count += 1

        # Postings: queue (entry, stamp) of those that may be in one box only.
        candidate_count = np.int64(0)
        for i in range(line_count):
            at, position, bits = lines[i, 0], lines[i, 1], lines[i, 2]
            old, new = windows[at - begin, 0], windows[at - begin, 1]
            stamps = position + 8
            if bits > 0:
                mask = changed_postings(half, 2 * position, old, new) & np.uint64(bits)
            else:
                mask = changed_postings_4(half, 2 * position, old, new)
                mask &= (np.uint64(1) << np.uint64(-bits)) - np.uint64(1)
                stamps = position + 4
            if candidate_count + 8 > len(candidates):
                candidates = longer(candidates, candidate_count + 8)
            while mask != np.uint64(0):
                stamp = np.int64(word[stamps + lowest_bit(mask)])
                mask &= mask - np.uint64(1)
                if is_alive(living.alive, stamp):
                    prefetch(message, stamp)
                    candidates[candidate_count, 0] = at
                    candidates[candidate_count, 1] = stamp
                    candidate_count += 1
        state[EXAMINED] += candidate_count

        # Messages: signature and exact place; what is left is queued in the same place.
        left = np.int64(0)
        for i in range(candidate_count):
            at, stamp = candidates[i, 0], candidates[i, 1]
            own = entry[at]
            if record[own, SIGNATURE] & ~message[stamp, MESSAGE_SIGNATURE]:
                continue
            x, y = message[stamp, X], message[stamp, Y]
            was = (before[at, 0] <= x) & (x <= before[at, 2])
            was &= (before[at, 1] <= y) & (y <= before[at, 3])
            now = (after[at, 0] <= x) & (x <= after[at, 2])
            now &= (after[at, 1] <= y) & (y <= after[at, 3])
            if was == now:
                continue
            if not record[own, KEY] & 1:
                prefetch(entries.pool, record[own, FIRST])
                prefetch(living.pool, message[stamp, MESSAGE_FIRST])
            candidates[left, 0] = at
            candidates[left, 1] = stamp << 1 | np.int64(now)
            left += 1

        # Tokens.
        if total + left > len(output.stamp):
            output = with_space(output, total + left)
        for i in range(left):
            at, stamp, now = candidates[i, 0], candidates[i, 1] >> 1, candidates[i, 1] & 1
            own = entry[at]
            if not record[own, KEY] & 1:
                first = np.int64(message[stamp, MESSAGE_FIRST])
                last = first + message[stamp, LENGTH]
                wanted = np.int64(record[own, FIRST])
                if not has_all(entries.pool, wanted, living.pool, first, last):
                    continue
            output.position[total] = at
            output.stamp[total] = stamp
            output.sign[total] = 2 * now - 1
            total += 1
    return total, output
