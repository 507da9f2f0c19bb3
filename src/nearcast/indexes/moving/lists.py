"""Lists of living messages: one pool for all lists of an index.

A list is a *chunk* of the pool whose capacity is a power of two, and a head: where the chunk
starts, and ``size << 8 | class`` (the capacity is ``1 << class``). Chunks that are given up are
chained by their first word, one chain per class, and used again. The postings of a chunk lie
column by column, so that a comparison takes as many at a time as fit into a register::

    x[capacity]  y[capacity]  stamp[capacity]  and, if the index wants one more, own[capacity]

Removing is lazy. A list that is full first drops its dead messages; others stay until everything is
swept (see `nearcast.indexes.moving.living`). Whoever reads a list must test every candidate for
life.

Kernels cannot enlarge an array. So `MessageLists.reserve` makes enough room for anything that a
number of appends can need before a kernel runs: room that is not touched costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.indexes.moving.living import is_alive

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ListArrays",
    "MessageLists",
    "append",
    "capacity_of",
    "drop_list",
    "new_chunk",
    "new_list",
    "resize",
    "size_of",
    "start_of",
]

START, SIZE = 0, 1
"""Columns of ``head``."""

TOP, POSTINGS, LISTS, FREE_HEAD, WIDTH = range(5)
"""Fields of ``state``: the first word of the pool that was never used; how many postings, dead ones
included, are in all lists; the first head that was never used; the first free head, or -1; and how
many columns a posting has."""

CLASSES = 32
NOTHING = -1
_CLASS_MASK = 255
_NO_CHUNK = 255
_MIN_TIDY = 8
"""Lists of at least this capacity drop their dead before they grow."""


class ListArrays(NamedTuple):
    """What kernels see of lists.

    - ``head`` int32[lists, 2]: see `START`; the start of a free head is the next free one.
    - ``pool`` int32: all chunks.
    - ``free`` int32[CLASSES]: the first free chunk of each class, or `NOTHING`.
    - ``state`` int64[5]: see `TOP`.
    """

    head: NDArray[np.int32]
    pool: NDArray[np.int32]
    free: NDArray[np.int32]
    state: NDArray[np.int64]


@inlined_kernel
def start_of(lists: ListArrays, number: Number) -> Number:
    """Return where the chunk of a list starts."""
    return np.int64(lists.head[number, START])


@inlined_kernel
def size_of(lists: ListArrays, number: Number) -> Number:
    """Return how many postings a list has, dead ones included."""
    return np.int64(lists.head[number, SIZE] >> 8)


@inlined_kernel
def capacity_of(lists: ListArrays, number: Number) -> Number:
    """Return the distance between two columns of a list; 1 if it is empty and has no chunk."""
    return np.int64(1) << ((lists.head[number, SIZE] & _CLASS_MASK) % _CLASS_MASK)


@kernel
def new_list(lists: ListArrays) -> Number:
    """Return the number of a new list without postings."""
    head, state = lists.head, lists.state
    number = state[FREE_HEAD]
    if number != NOTHING:
        state[FREE_HEAD] = head[number, START]
    else:
        number = state[LISTS]
        state[LISTS] += 1
    head[number, START] = 0
    head[number, SIZE] = _NO_CHUNK
    return number


@kernel
def drop_list(lists: ListArrays, number: Number) -> None:
    """Give up a list and its chunk."""
    head, state = lists.head, lists.state
    state[POSTINGS] -= size_of(lists, number)
    _free_chunk(lists, number)
    head[number, START] = state[FREE_HEAD]
    head[number, SIZE] = _NO_CHUNK
    state[FREE_HEAD] = number


@kernel
def _free_chunk(lists: ListArrays, number: Number) -> None:
    kind = lists.head[number, SIZE] & _CLASS_MASK
    if kind != _NO_CHUNK:
        start = lists.head[number, START]
        lists.pool[start] = lists.free[kind]
        lists.free[kind] = start


@kernel
def new_chunk(lists: ListArrays, kind: Number) -> Number:
    """Return the start of a chunk of a class."""
    start = np.int64(lists.free[kind])
    if start != NOTHING:
        lists.free[kind] = lists.pool[start]
        return start
    start = lists.state[TOP]
    lists.state[TOP] += lists.state[WIDTH] << kind
    return start


@kernel
def resize(lists: ListArrays, number: Number, kind: Number) -> None:
    """Give a list a chunk of another class, in which its postings fit."""
    pool, width = lists.pool, lists.state[WIDTH]
    start, size, capacity = (
        start_of(lists, number),
        size_of(lists, number),
        capacity_of(lists, number),
    )
    target = new_chunk(lists, kind)
    for column in range(width):
        source, goal = start + column * capacity, target + (column << kind)
        for i in range(size):
            pool[goal + i] = pool[source + i]
    _free_chunk(lists, number)
    lists.head[number, START] = target
    lists.head[number, SIZE] = (size << 8) | kind


@kernel
def _tidy(lists: ListArrays, alive: NDArray[np.uint64], number: Number) -> Number:
    """Drop the dead messages of a list; return how many postings are left."""
    pool, width = lists.pool, lists.state[WIDTH]
    start, size, capacity = (
        start_of(lists, number),
        size_of(lists, number),
        capacity_of(lists, number),
    )
    left = np.int64(0)
    for i in range(size):
        if not is_alive(alive, pool[start + 2 * capacity + i]):
            continue
        if left < i:
            for column in range(width):
                pool[start + column * capacity + left] = pool[start + column * capacity + i]
        left += 1
    lists.head[number, SIZE] = (left << 8) | (lists.head[number, SIZE] & _CLASS_MASK)
    lists.state[POSTINGS] -= size - left
    return left


@kernel
def append(
    lists: ListArrays,
    alive: NDArray[np.uint64],
    number: Number,
    x: Number,
    y: Number,
    stamp: Number,
    own: Number,
) -> None:
    """Add a message to a list; ``own`` is ignored where postings have no such column."""
    head, pool = lists.head, lists.pool
    kind, size = head[number, SIZE] & _CLASS_MASK, size_of(lists, number)
    if kind == _NO_CHUNK:
        head[number, START], head[number, SIZE] = new_chunk(lists, 0), 0
    elif size == np.int64(1) << kind:
        if size >= _MIN_TIDY:
            size = _tidy(lists, alive, number)
        if 4 * size > 3 << kind:
            resize(lists, number, kind + 1)
    start, capacity = start_of(lists, number), capacity_of(lists, number)
    pool[start + size] = x
    pool[start + capacity + size] = y
    pool[start + 2 * capacity + size] = stamp
    if lists.state[WIDTH] > 3:
        pool[start + 3 * capacity + size] = own
    head[number, SIZE] += 1 << 8
    lists.state[POSTINGS] += 1


@kernel
def _sweep(lists: ListArrays, free_head: NDArray[np.bool_], new_stamp: NDArray[np.int32]) -> None:
    """Rewrite all lists: new stamps, without the dead, in chunks that fit."""
    pool, width = lists.pool, lists.state[WIDTH]
    for number in range(lists.state[LISTS]):
        kind = lists.head[number, SIZE] & _CLASS_MASK
        if free_head[number] or kind == _NO_CHUNK:
            continue
        start, size, capacity = (
            start_of(lists, number),
            size_of(lists, number),
            capacity_of(lists, number),
        )
        left = np.int64(0)
        for i in range(size):
            stamp = new_stamp[pool[start + 2 * capacity + i]]
            if stamp < 0:
                continue
            for column in range(width):
                pool[start + column * capacity + left] = pool[start + column * capacity + i]
            pool[start + 2 * capacity + left] = stamp
            left += 1
        lists.state[POSTINGS] -= size - left
        lists.head[number, SIZE] = (left << 8) | kind
        if left == 0:
            _free_chunk(lists, number)
            lists.head[number, START], lists.head[number, SIZE] = 0, _NO_CHUNK
        elif 4 * left <= capacity:
            while kind > 0 and np.int64(1) << (kind - 1) >= left:
                kind -= 1
            resize(lists, number, kind)


class MessageLists:
    """Lists of living messages.

    Parameters
    ----------
    columns
        3 for place and stamp; 4 if the index keeps one more value with each posting.
    """

    def __init__(self, columns: int = 3) -> None:
        state = np.array([0, 0, 0, NOTHING, columns], np.int64)
        self._arrays = ListArrays(
            np.empty((0, 2), np.int32),
            np.empty(0, np.int32),
            np.full(CLASSES, NOTHING, np.int32),
            state,
        )

    @property
    def arrays(self) -> ListArrays:
        """What kernels see; void after the next `reserve`."""
        return self._arrays

    @property
    def nbytes(self) -> int:
        """The bytes that are in use, or were."""
        state = self._arrays.state
        return int(8 * state[LISTS] + 4 * state[TOP])

    @property
    def postings(self) -> int:
        """How many postings are in all lists, dead ones included."""
        return int(self._arrays.state[POSTINGS])

    def reserve(self, lists: int, postings: int) -> None:
        """Make room for so many new lists and appends, whichever lists they go to.

        The chunks that a list ever had take less than twice its capacity, which is at most twice
        what it holds. Behind the last chunk there is room for a comparison of `LANES` postings.
        """
        head, pool, _, state = self._arrays
        if state[LISTS] + lists > len(head):
            more = np.empty((2 * (state[LISTS] + lists), 2), np.int32)
            more[: state[LISTS]] = head[: state[LISTS]]
            self._arrays = self._arrays._replace(head=more)
        needed = int(state[TOP] + 4 * state[WIDTH] * (state[POSTINGS] + postings)) + LANES
        if needed > len(pool):
            larger = np.empty(needed + needed // 2, np.int32)
            larger[: state[TOP]] = pool[: state[TOP]]
            self._arrays = self._arrays._replace(pool=larger)

    def sweep(self, new_stamp: NDArray[np.int32]) -> None:
        """Give postings their new stamps, and drop the dead."""
        self.reserve(0, 0)
        head, _, _, state = self._arrays
        free_head = np.zeros(len(head), np.bool_)
        number = int(state[FREE_HEAD])
        while number != NOTHING:
            free_head[number] = True
            number = int(head[number, START])
        _sweep(self._arrays, free_head, new_stamp)
