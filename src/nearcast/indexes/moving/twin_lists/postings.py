"""Lists of postings: rounded places and stamps of messages, eight to a cache line.

A list is a chunk of the pool and a *head*, two words: where the chunk starts, and
``size << 8 | class``. The head of a flat list is in the header of its token, those of tiles are in
directories::

    up to four postings   x[4] y[4] (int16) stamp[4] (int32)      half a line
    more, each line       x[8] y[8] (int16) stamp[8] (int32)

Removing is lazy: a list that is full first drops its dead messages; the others stay until the next
sweep. Whoever reads a posting must test it for life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.indexes.moving.living import is_alive
from nearcast.indexes.moving.twin_lists.layout import (
    CLASS_MASK,
    LINE,
    NO_CHUNK,
    Pool,
    class_for,
    class_words,
    free_chunk,
    has_room,
    new_chunk,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@inlined_kernel
def x_at(start: Number, kind: Number, nth: Number) -> Number:
    """Return where the x of a posting is, in int16 units."""
    at = 2 * start + nth
    if kind > 0:
        at = 2 * (start + (nth >> 3) * LINE) + (nth & 7)
    return at


@inlined_kernel
def y_distance(kind: Number) -> Number:
    """Return how far the y of a posting is from its x, in int16 units."""
    return 8 if kind > 0 else 4


@inlined_kernel
def stamp_at(start: Number, kind: Number, nth: Number) -> Number:
    """Return where the stamp of a posting is, in words."""
    at = start + 4 + nth
    if kind > 0:
        at = start + (nth >> 3) * LINE + 8 + (nth & 7)
    return at


@inlined_kernel
def write_posting(
    pool: Pool, start: Number, kind: Number, nth: Number, x: Number, y: Number, stamp: Number
) -> None:
    """Write a posting to a chunk."""
    at = x_at(start, kind, nth)
    pool.half[at] = x
    pool.half[at + y_distance(kind)] = y
    pool.word[stamp_at(start, kind, nth)] = stamp


@kernel
def postings_class(count: Number) -> Number:
    """Return the class of a chunk for so many postings, and half as many that come later."""
    return class_for(3 * count)


@kernel
def tidy(pool: Pool, head: NDArray[np.int32], at: Number, alive: NDArray[np.uint64]) -> Number:
    """Drop the dead messages of a list; the last ones take their places. Return how many died."""
    start, kind = np.int64(head[at]), np.int64(head[at + 1] & CLASS_MASK)
    size = np.int64(head[at + 1] >> 8)
    nth, left, y = np.int64(0), size, y_distance(kind)
    while nth < left:
        if is_alive(alive, pool.word[stamp_at(start, kind, nth)]):
            nth += 1
            continue
        left -= 1
        to, last = x_at(start, kind, nth), x_at(start, kind, left)
        pool.half[to], pool.half[to + y] = pool.half[last], pool.half[last + y]
        pool.word[stamp_at(start, kind, nth)] = pool.word[stamp_at(start, kind, left)]
    head[at + 1] = (left << 8) | kind
    return size - left


@kernel
def enlarge(pool: Pool, head: NDArray[np.int32], at: Number) -> None:
    """Give a list that is full a chunk of the next class; the caller has asked `has_room`."""
    start, kind = np.int64(head[at]), np.int64(head[at + 1] & CLASS_MASK)
    size = np.int64(head[at + 1] >> 8)
    larger = kind + 1
    target = new_chunk(pool, larger)
    if kind == 0:
        for nth in range(size):
            from_x, to_x = x_at(start, kind, nth), x_at(target, larger, nth)
            pool.half[to_x] = pool.half[from_x]
            pool.half[to_x + 8] = pool.half[from_x + 4]
            pool.word[stamp_at(target, larger, nth)] = pool.word[stamp_at(start, kind, nth)]
    else:
        for word in range(class_words(kind)):
            pool.word[target + word] = pool.word[start + word]
    free_chunk(pool, start, kind)
    head[at] = target
    head[at + 1] = (size << 8) | larger


@kernel
def make_space(
    pool: Pool, head: NDArray[np.int32], at: Number, alive: NDArray[np.uint64]
) -> Number:
    """Let a full list have space for one more; return dead postings, or -1 without room."""
    kind = np.int64(head[at + 1] & CLASS_MASK)
    dead = np.int64(0)
    if kind == NO_CHUNK:
        if not has_room(pool, LINE):
            return np.int64(-1)
        head[at], head[at + 1] = new_chunk(pool, 0), 0
        return dead
    if not has_room(pool, class_words(kind + 1)):
        return np.int64(-1)
    if kind > 0:
        dead = tidy(pool, head, at, alive)
    capacity = class_words(kind) >> 1
    if 8 * dead <= capacity:
        enlarge(pool, head, at)
    return dead


@inlined_kernel
def is_full(head: NDArray[np.int32], at: Number) -> Number:
    """Tell whether a list has no space for one more."""
    kind = np.int64(head[at + 1] & CLASS_MASK)
    return kind == NO_CHUNK or np.int64(head[at + 1] >> 8) == class_words(kind) >> 1


@inlined_kernel
def push_posting(
    pool: Pool, head: NDArray[np.int32], at: Number, x: Number, y: Number, stamp: Number
) -> None:
    """Append a posting to a list that is not full."""
    size, kind = np.int64(head[at + 1] >> 8), np.int64(head[at + 1] & CLASS_MASK)
    write_posting(pool, np.int64(head[at]), kind, size, x, y, stamp)
    head[at + 1] += 1 << 8


@kernel
def copy_list(
    source: Pool,
    head: tuple[Number, Number],
    target: Pool,
    goal: NDArray[np.int32],
    at: Number,
    new_stamp: NDArray[np.int32],
    left: NDArray[np.int32],
) -> Number:
    """Copy a list to another pool with new stamps, without the dead; return how many are left.

    ``head`` are the two words of the list's head; the new one is written to ``goal[at:]``. ``left``
    int32[any, 2] is scratch with room for all postings.
    """
    start, size = np.int64(head[0]), np.int64(head[1] >> 8)
    kind = np.int64(head[1] & CLASS_MASK)
    count = np.int64(0)
    for nth in range(size):
        stamp = new_stamp[source.word[stamp_at(start, kind, nth)]]
        left[count, 0], left[count, 1] = nth, stamp
        if stamp >= 0:
            count += 1
    goal[at], goal[at + 1] = 0, NO_CHUNK
    if count == 0:
        return count
    new_kind = postings_class(count)
    new_start = new_chunk(target, new_kind)
    goal[at], goal[at + 1] = new_start, (count << 8) | new_kind
    for i in range(count):
        x = x_at(start, kind, np.int64(left[i, 0]))
        y = source.half[x + y_distance(kind)]
        write_posting(target, new_start, new_kind, i, source.half[x], y, left[i, 1])
    return count


@kernel
def read_stamps(
    pool: Pool, first: Number, second: Number, stamp: NDArray[np.int32], count: Number
) -> Number:
    """Append the stamps of a list, given by the words of its head; return the new count."""
    start, size, kind = np.int64(first), np.int64(second >> 8), np.int64(second & CLASS_MASK)
    for nth in range(size):
        stamp[count + nth] = pool.word[stamp_at(start, kind, nth)]
    return count + size
