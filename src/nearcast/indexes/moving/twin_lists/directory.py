"""Directories: the postings of a token with many messages, in tiles.

A directory has ``g`` columns, cut at quantiles of the token's own messages, and in each column
``g`` rows, cut at quantiles of the column::

    splits of the columns    int16[32 * blocks], unused ones are 32767
    splits of the rows       the same for each column
    heads of the tiles       int32[g * g, 2], column by column

The column of a value is the number of splits up to it: one comparison for 32 of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.indexes.moving.living import LivingArrays, X, Y, is_alive
from nearcast.indexes.moving.twin_lists.lanes import LANES, splits_up_to
from nearcast.indexes.moving.twin_lists.layout import (
    BUILT,
    CLASS_MASK,
    DIRECTORY,
    FLAT,
    GRID,
    HEADER_WORDS,
    LINE,
    LIST,
    LIST_SIZE,
    NO_CHUNK,
    NOTHING,
    ORIGIN_X,
    ORIGIN_Y,
    REBUILDS,
    SHIFT_X,
    SHIFT_Y,
    TILE,
    TOTAL,
    Pool,
    TwinArrays,
    class_for,
    class_words,
    free_chunk,
    has_room,
    new_chunk,
    rounded,
)
from nearcast.indexes.moving.twin_lists.postings import (
    postings_class,
    push_posting,
    read_stamps,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPLIT_PADDING = 32767
_SAMPLES = 8
"""Values that are sorted for each split."""


@inlined_kernel
def split_words(grid: Number) -> Number:
    """Return the words of one row of splits."""
    return (np.int64(grid) + LANES - 1) // LANES * LINE


@inlined_kernel
def rows_at(directory: Number, grid: Number, column: Number) -> Number:
    """Return where the splits of the rows of a column are, in words."""
    return directory + (1 + column) * split_words(grid)


@inlined_kernel
def head_at(directory: Number, grid: Number, column: Number, row: Number) -> Number:
    """Return where the head of a tile is."""
    return directory + (1 + grid) * split_words(grid) + 2 * (column * grid + row)


@inlined_kernel
def part_of(half: NDArray[np.int16], position: Number, grid: Number, value: Number) -> Number:
    """Return how many splits, from a position in words on, are at most a value."""
    count = np.int64(0)
    for block in range(0, grid, LANES):
        count += splits_up_to(half, 2 * position + block, value)
    return count


@inlined_kernel
def tile_of(
    half: NDArray[np.int16], directory: Number, grid: Number, x: Number, y: Number
) -> Number:
    """Return where the head of the tile of a place is."""
    column = part_of(half, directory, grid, x)
    row = part_of(half, rows_at(directory, grid, column), grid, y)
    return head_at(directory, grid, column, row)


@inlined_kernel
def directory_words(grid: Number) -> Number:
    """Return the words of a directory."""
    return (1 + grid) * split_words(grid) + 2 * grid * grid


@kernel
def grid_for(count: Number, tile: Number) -> Number:
    """Return the number of columns for so many postings."""
    return max(np.int64(2), np.int64(np.ceil(np.sqrt(count / tile))))


@kernel
def words_to_build(count: Number, tile: Number) -> Number:
    """Return as many words as a list of so many postings can need, flat or with a directory."""
    grid = grid_for(count, tile)
    return class_words(class_for(directory_words(grid))) + LINE * grid * grid + 6 * count


@kernel
def write_splits(
    value: NDArray[np.int16], half: NDArray[np.int16], position: Number, grid: Number
) -> None:
    """Write quantiles of values to a row of splits, which begins at a position in words."""
    for i in range(2 * split_words(grid)):
        half[2 * position + i] = _SPLIT_PADDING
    count = len(value)
    if count == 0:
        return
    wanted = min(count, _SAMPLES * grid)
    sample = np.empty(wanted, np.int16)
    for i in range(wanted):
        sample[i] = value[i * count // wanted]
    sample.sort()
    for i in range(1, grid):
        half[2 * position + i - 1] = sample[i * wanted // grid]


@kernel
def place_in_order(
    part: NDArray[np.int32], parts: Number, order: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Write the numbers of all items, part by part; return where each part starts."""
    start = np.zeros(parts + 1, np.int32)
    for i in range(len(part)):
        start[part[i] + 1] += 1
    for i in range(parts):
        start[i + 1] += start[i]
    end = start.copy()
    for i in range(len(part)):
        order[end[part[i]]] = i
        end[part[i]] += 1
    return start


@kernel
def new_tiles(pool: Pool, heads: Number, row: NDArray[np.int32], grid: Number) -> None:
    """Give the tiles of a column, whose heads begin at a position, chunks that fit."""
    size = np.zeros(grid, np.int32)
    for i in range(len(row)):
        size[row[i]] += 1
    for i in range(grid):
        pool.word[heads + 2 * i], pool.word[heads + 2 * i + 1] = 0, NO_CHUNK
        if size[i] > 0:
            kind = postings_class(np.int64(size[i]))
            pool.word[heads + 2 * i] = new_chunk(pool, kind)
            pool.word[heads + 2 * i + 1] = kind


@kernel
def build_directory(
    pool: Pool, x: NDArray[np.int16], y: NDArray[np.int16], stamp: NDArray[np.int32], grid: Number
) -> Number:
    """Build a directory with all postings; return where it is."""
    count = len(stamp)
    directory = new_chunk(pool, class_for(directory_words(grid)))
    write_splits(x, pool.half, directory, grid)
    column, order = np.empty(count, np.int32), np.empty(count, np.int32)
    for i in range(count):
        column[i] = part_of(pool.half, directory, grid, np.int64(x[i]))
    start = place_in_order(column, grid, order)
    values, row = np.empty(count, np.int16), np.empty(count, np.int32)
    for i in range(count):
        values[i] = y[order[i]]
    for nth in range(grid):
        splits = rows_at(directory, grid, nth)
        first, last = start[nth], start[nth + 1]
        write_splits(values[first:last], pool.half, splits, grid)
        for i in range(first, last):
            row[i] = part_of(pool.half, splits, grid, np.int64(values[i]))
        heads = head_at(directory, grid, nth, 0)
        new_tiles(pool, heads, row[first:last], grid)
        for i in range(first, last):
            chosen = order[i]
            at = heads + 2 * np.int64(row[i])
            push_posting(pool, pool.word, at, x[chosen], y[chosen], stamp[chosen])
    return directory


@kernel
def free_list(pool: Pool, first: Number, second: Number) -> None:
    """Give back the chunk of a list, given by the words of its head."""
    kind = np.int64(second & CLASS_MASK)
    if kind != NO_CHUNK:
        free_chunk(pool, np.int64(first), kind)


@kernel
def drop_messages(arrays: TwinArrays, number: Number) -> None:
    """Give back all lists of a header, and its directory."""
    header, pool = arrays.header, arrays.messages
    directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
    if directory != NOTHING:
        heads = head_at(directory, grid, 0, 0)
        for tile in range(grid * grid):
            free_list(pool, pool.word[heads + 2 * tile], pool.word[heads + 2 * tile + 1])
        free_chunk(pool, directory, class_for(directory_words(grid)))
        arrays.state[REBUILDS] += 1
    else:
        free_list(pool, header[number, LIST], header[number, LIST_SIZE])
    header[number, DIRECTORY] = NOTHING
    header[number, LIST], header[number, LIST_SIZE] = 0, NO_CHUNK
    header[number, TOTAL] = 0


@kernel
def gather_stamps(arrays: TwinArrays, number: Number) -> NDArray[np.int32]:
    """Return the stamps of all postings of a header, dead ones included."""
    header, pool = arrays.header, arrays.messages
    stamp = np.empty(header[number, TOTAL], np.int32)
    directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
    if directory == NOTHING:
        read_stamps(pool, header[number, LIST], header[number, LIST_SIZE], stamp, 0)
        return stamp
    heads, count = head_at(directory, grid, 0, 0), np.int64(0)
    for tile in range(grid * grid):
        at = heads + 2 * tile
        count = read_stamps(pool, pool.word[at], pool.word[at + 1], stamp, count)
    return stamp


@kernel
def build_messages(
    arrays: TwinArrays, number: Number, living: LivingArrays, stamp: NDArray[np.int32]
) -> None:
    """Give a header without lists these messages; the caller has asked for `words_to_build`."""
    header, pool, state = arrays.header, arrays.messages, arrays.state
    count = np.int64(len(stamp))
    header[number, TOTAL] = count
    header[number, BUILT] = count
    if count == 0:
        return
    x, y = np.empty(count, np.int16), np.empty(count, np.int16)
    for i in range(count):
        x[i] = rounded(living.record[stamp[i], X], state[ORIGIN_X], state[SHIFT_X])
        y[i] = rounded(living.record[stamp[i], Y], state[ORIGIN_Y], state[SHIFT_Y])
    if 2 * count > arrays.option[FLAT]:
        grid = grid_for(count, arrays.option[TILE])
        header[number, GRID] = grid
        header[number, DIRECTORY] = build_directory(pool, x, y, stamp, grid)
        state[REBUILDS] += 1
        return
    kind = postings_class(count)
    header[number, LIST] = new_chunk(pool, kind)
    header[number, LIST_SIZE] = kind
    at = np.int64(number) * HEADER_WORDS + LIST
    for i in range(count):
        push_posting(pool, arrays.header_word, at, x[i], y[i], stamp[i])


@kernel
def rebuild_messages(arrays: TwinArrays, number: Number, living: LivingArrays) -> Number:
    """Build the lists of a header again, without dead messages; return 0 if there is no room."""
    from_all = np.int64(arrays.header[number, TOTAL])
    if not has_room(arrays.messages, words_to_build(from_all, arrays.option[TILE])):
        return False
    stamp, left = gather_stamps(arrays, number), 0
    for i in range(len(stamp)):
        if is_alive(living.alive, stamp[i]):
            stamp[left] = stamp[i]
            left += 1
    drop_messages(arrays, number)
    build_messages(arrays, number, living, stamp[:left])
    return True
