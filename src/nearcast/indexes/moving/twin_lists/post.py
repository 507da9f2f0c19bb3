"""Post messages under all their tokens, and rewrite all lists after a sweep.

Messages are taken in chunks. Each stage goes over all postings of a chunk and prefetches what the
next one reads. Only the last stage changes lists. It may build a directory, even twice at the same
address, so tiles that an earlier stage found count only if none was built since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.indexes.moving.living import (
    FIRST,
    LENGTH,
    LENGTH_MASK,
    LivingArrays,
    X,
    Y,
    is_range,
)
from nearcast.indexes.moving.twin_lists.directory import (
    build_messages,
    directory_words,
    gather_stamps,
    head_at,
    part_of,
    rebuild_messages,
    rows_at,
    tile_of,
    words_to_build,
)
from nearcast.indexes.moving.twin_lists.layout import (
    ARRIVED,
    BUILT,
    CLAMPED,
    COPIES,
    DIRECTORY,
    EVERY,
    EVERY_POSTED,
    FLAT,
    FREE_TOKEN,
    GRID,
    HALF_MAX,
    HEADER_WORDS,
    HEADERS,
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
    TOKEN,
    TOTAL,
    Pool,
    TwinArrays,
    add_header,
    class_for,
    home_of,
    lacks_headers,
    new_chunk,
    rounded,
)
from nearcast.indexes.moving.twin_lists.postings import (
    copy_list,
    is_full,
    make_space,
    push_posting,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 16
"""Messages that are staged together."""

_GROWTH = 3
"""A directory is built again when it has so many times the postings for which it was built."""

_AHEAD = 4
"""How many lists ahead postings are prefetched when all are copied."""

LACKS_HEADERS, LACKS_WORDS = 1, 2
"""Why `post_messages` stopped."""


class PostScratch(NamedTuple):
    """One row per posting of a chunk: header, stamp, x, y; and the head of its tile."""

    item: NDArray[np.int64]
    head: NDArray[np.int64]


@kernel
def postings_of(living: LivingArrays, first: Number, last: Number, every: Number) -> Number:
    """Return how many postings messages have."""
    count = np.int64(0)
    for stamp in range(first, last):
        if not is_range(living.record, stamp):
            count += (living.record[stamp, LENGTH] & LENGTH_MASK) + every
    return count


@inlined_kernel
def list_messages(
    arrays: TwinArrays, living: LivingArrays, first: Number, last: Number, item: NDArray[np.int64]
) -> Number:
    """Write the postings of messages, add headers of new tokens; return how many postings."""
    state, record, count = arrays.state, living.record, np.int64(0)
    every = state[EVERY_POSTED]
    for stamp in range(first, last):
        if is_range(record, stamp):
            continue
        x = rounded(record[stamp, X], state[ORIGIN_X], state[SHIFT_X])
        y = rounded(record[stamp, Y], state[ORIGIN_Y], state[SHIFT_Y])
        begin = np.int64(record[stamp, FIRST])
        length = np.int64(record[stamp, LENGTH] & LENGTH_MASK)
        for i in range(length + every):
            number = np.int64(EVERY)
            if i < length:
                number = add_header(arrays, living.pool[begin + i])
            item[count, 0], item[count, 1] = number, stamp
            item[count, 2], item[count, 3] = x, y
            prefetch(arrays.header, number)
            count += 1
        state[ARRIVED] += 1
        if max(abs(x), abs(y)) == HALF_MAX:
            state[CLAMPED] += 1
    return count


@inlined_kernel
def prefetch_lists(arrays: TwinArrays, scratch: PostScratch, count: Number) -> None:
    """Prefetch the end of each flat list, or the splits of the columns."""
    header, pool, item = arrays.header, arrays.messages, scratch.item
    for i in range(count):
        number = item[i, 0]
        directory = np.int64(header[number, DIRECTORY])
        scratch.head[i] = NOTHING
        if directory != NOTHING:
            scratch.head[i] = directory
            prefetch(pool.word, directory)
        else:
            size = np.int64(header[number, LIST_SIZE] >> 8)
            prefetch(pool.word, np.int64(header[number, LIST]) + (size >> 3) * LINE)


@inlined_kernel
def find_columns(arrays: TwinArrays, scratch: PostScratch, count: Number) -> None:
    """Replace directories by where the splits of rows are, which are prefetched."""
    header, half, item = arrays.header, arrays.messages.half, scratch.item
    for i in range(count):
        directory = scratch.head[i]
        if directory != NOTHING:
            grid = np.int64(header[item[i, 0], GRID])
            column = part_of(half, directory, grid, item[i, 2])
            scratch.head[i] = column
            prefetch(arrays.messages.word, rows_at(directory, grid, column))


@inlined_kernel
def find_rows(arrays: TwinArrays, scratch: PostScratch, count: Number) -> None:
    """Replace columns by where the heads of the tiles are, which are prefetched."""
    header, half, item = arrays.header, arrays.messages.half, scratch.item
    for i in range(count):
        column = scratch.head[i]
        if column != NOTHING:
            number = item[i, 0]
            directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
            row = part_of(half, rows_at(directory, grid, column), grid, item[i, 3])
            scratch.head[i] = head_at(directory, grid, column, row)
            prefetch(arrays.messages.word, scratch.head[i])


@inlined_kernel
def prefetch_tiles(arrays: TwinArrays, scratch: PostScratch, count: Number) -> None:
    """Prefetch the end of each tile."""
    word = arrays.messages.word
    for i in range(count):
        at = scratch.head[i]
        if at != NOTHING:
            prefetch(word, np.int64(word[at]) + np.int64(word[at + 1] >> 11) * LINE)


@kernel
def make_space_for(
    arrays: TwinArrays, living: LivingArrays, number: Number, x: Number, y: Number
) -> Number:
    """Let the list of a place have space for one more; return 0 if the pool has no room."""
    header, pool = arrays.header, arrays.messages
    directory, dead = np.int64(header[number, DIRECTORY]), np.int64(0)
    if directory == NOTHING:
        at = number * HEADER_WORDS + LIST
        if is_full(arrays.header_word, at):
            dead = make_space(pool, arrays.header_word, at, living.alive)
    else:
        at = tile_of(pool.half, directory, np.int64(header[number, GRID]), x, y)
        if is_full(pool.word, at):
            dead = make_space(pool, pool.word, at, living.alive)
    header[number, TOTAL] -= max(dead, np.int64(0))
    return dead >= 0


@inlined_kernel
def append_posting(
    arrays: TwinArrays, living: LivingArrays, scratch: PostScratch, nth: Number, valid: Number
) -> Number:
    """Append one posting of a chunk to its list; return 0 if the pool has no room.

    ``valid``: no directory was built since the tiles of the chunk were found.
    """
    header, pool, item = arrays.header, arrays.messages, scratch.item
    number, stamp, x, y = item[nth, 0], item[nth, 1], item[nth, 2], item[nth, 3]
    limit, fits = arrays.option[FLAT], True
    if header[number, DIRECTORY] != NOTHING:
        limit = max(limit, _GROWTH * np.int64(header[number, BUILT]))
    if header[number, TOTAL] >= limit:
        fits = rebuild_messages(arrays, number, living)
        valid = False
    is_flat = header[number, DIRECTORY] == NOTHING
    at = scratch.head[nth]
    if fits and not is_flat and not valid:
        directory = np.int64(header[number, DIRECTORY])
        at = tile_of(pool.half, directory, np.int64(header[number, GRID]), x, y)
    if is_flat:
        at = number * HEADER_WORDS + LIST
    if fits:
        full = is_full(arrays.header_word, at) if is_flat else is_full(pool.word, at)
        if full:
            fits = make_space_for(arrays, living, number, x, y)
    if fits:
        if is_flat:
            push_posting(pool, arrays.header_word, at, x, y, stamp)
        else:
            push_posting(pool, pool.word, at, x, y, stamp)
        header[number, TOTAL] += 1
    return fits


@inlined_kernel
def prefetch_table(
    arrays: TwinArrays, living: LivingArrays, first: Number, last: Number, end: Number
) -> None:
    """Prefetch the slots of the tokens of messages from ``first`` to ``last``, below ``end``."""
    for stamp in range(min(first, end), min(last, end)):
        begin = np.int64(living.record[stamp, FIRST])
        length = np.int64(living.record[stamp, LENGTH] & LENGTH_MASK)
        for i in range(begin, begin + length):
            prefetch(arrays.table, home_of(arrays.table, living.pool[i]))


@kernel
def post_messages(
    arrays: TwinArrays,
    living: LivingArrays,
    scratch: PostScratch,
    stamps: tuple[Number, Number],
    done: Number,
) -> tuple[Number, Number, Number]:
    """Post messages; ``done`` postings of the first chunk are already there.

    Return the first message of the chunk that was not finished (or the end), how many of its
    postings were, and what was lacking. The scratch must have room for the postings of a chunk.
    """
    arrays, living, scratch = borrow(arrays), borrow(living), borrow(scratch)
    state, begin = arrays.state, np.int64(stamps[0])
    done = np.int64(done)
    while begin < stamps[1]:
        end = min(begin + CHUNK, np.int64(stamps[1]))
        if done == 0 and lacks_headers(arrays, len(scratch.head)):
            return begin, done, np.int64(LACKS_HEADERS)
        prefetch_table(arrays, living, end, end + CHUNK, np.int64(stamps[1]))
        count = list_messages(arrays, living, begin, end, scratch.item)
        prefetch_lists(arrays, scratch, count)
        find_columns(arrays, scratch, count)
        find_rows(arrays, scratch, count)
        prefetch_tiles(arrays, scratch, count)
        rebuilds = state[REBUILDS]
        for i in range(done, count):
            if not append_posting(arrays, living, scratch, i, state[REBUILDS] == rebuilds):
                return begin, np.int64(i), np.int64(LACKS_WORDS)
            state[COPIES] += 1
        begin, done = end, np.int64(0)
    return begin, done, np.int64(0)


# --- rewriting -----------------------------------------------------------------------------------


@inlined_kernel
def prefetch_postings(pool: Pool, first: Number, second: Number) -> None:
    """Prefetch a list, given by the words of its head."""
    for line in range((np.int64(second) + (7 << 8)) >> 11):
        prefetch(pool.word, np.int64(first) + line * LINE)


@kernel
def copy_directory(
    arrays: TwinArrays,
    number: Number,
    target: Pool,
    new_stamp: NDArray[np.int32],
    left: NDArray[np.int32],
) -> None:
    """Copy the directory of a header to another pool, with new stamps and without the dead."""
    header, source = arrays.header, arrays.messages
    directory, grid = np.int64(header[number, DIRECTORY]), np.int64(header[number, GRID])
    to = new_chunk(target, class_for(directory_words(grid)))
    old, new, total = head_at(directory, grid, 0, 0), head_at(to, grid, 0, 0), np.int64(0)
    for word in range(old - directory):
        target.word[to + word] = source.word[directory + word]
    for tile in range(grid * grid):
        if tile + _AHEAD < grid * grid:
            ahead = old + 2 * (tile + _AHEAD)
            prefetch_postings(source, source.word[ahead], source.word[ahead + 1])
        head = source.word[old + 2 * tile], source.word[old + 2 * tile + 1]
        total += copy_list(source, head, target, target.word, new + 2 * tile, new_stamp, left)
    header[number, DIRECTORY] = to
    header[number, TOTAL] = header[number, BUILT] = total


@kernel
def rebuild_with(
    arrays: TwinArrays,
    number: Number,
    target: TwinArrays,
    living: LivingArrays,
    new_stamp: NDArray[np.int32],
) -> None:
    """Build the lists of a header in another pool, with new stamps and without the dead."""
    stamp, left = gather_stamps(arrays, number), 0
    for i in range(len(stamp)):
        if new_stamp[stamp[i]] >= 0:
            stamp[left] = new_stamp[stamp[i]]
            left += 1
    header = arrays.header
    header[number, DIRECTORY] = NOTHING
    header[number, LIST], header[number, LIST_SIZE] = 0, NO_CHUNK
    build_messages(target, number, living, stamp[:left])


@kernel
def words_to_rewrite(arrays: TwinArrays) -> Number:
    """Return as many words as `rewrite_messages` can need."""
    words = np.int64(0)
    for number in range(arrays.state[HEADERS]):
        words += 2 * words_to_build(np.int64(arrays.header[number, TOTAL]), arrays.option[TILE])
    return words


@kernel
def rewrite_messages(
    arrays: TwinArrays,
    living: LivingArrays,
    target: Pool,
    new_stamp: NDArray[np.int32],
    again: Number,
) -> None:
    """Copy all lists to another pool, with new stamps and without the dead.

    ``living`` are the messages by their new stamps. Directories that have become much too large are
    built again; all lists are if ``again`` is set, since then the frame is another one. ``target``
    has room for that.
    """
    header, source, state = arrays.header, arrays.messages, arrays.state
    replaced = TwinArrays(
        header,
        arrays.header_word,
        arrays.table,
        arrays.clauses,
        target,
        state,
        arrays.option,
    )
    longest = arrays.header[: state[HEADERS], TOTAL].max()
    left = np.empty((longest, 2), np.int32)
    for number in range(state[HEADERS]):
        if header[number, TOKEN] == FREE_TOKEN:
            continue
        if again:
            rebuild_with(arrays, number, replaced, living, new_stamp)
            continue
        if number + _AHEAD < state[HEADERS] and header[number + _AHEAD, DIRECTORY] == NOTHING:
            ahead = number + _AHEAD
            prefetch_postings(source, header[ahead, LIST], header[ahead, LIST_SIZE])
        if header[number, DIRECTORY] == NOTHING:
            head = header[number, LIST], header[number, LIST_SIZE]
            at = number * HEADER_WORDS + LIST
            count = copy_list(source, head, target, arrays.header_word, at, new_stamp, left)
            header[number, TOTAL] = header[number, BUILT] = count
            continue
        grid = np.int64(header[number, GRID])
        copy_directory(arrays, number, target, new_stamp, left)
        total = np.int64(header[number, TOTAL])
        if 2 * total <= arrays.option[FLAT] or 3 * total < grid * grid * arrays.option[TILE]:
            rebuild_messages(replaced, number, living)
    state[REBUILDS] += 1
