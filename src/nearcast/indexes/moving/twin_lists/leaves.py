"""The clauses of a token: leaves of rounded boxes, and bounds of leaves.

Up to 32 clauses are one leaf, with room for 4, 8, 16 or 32 (its *stride*). More are leaves of 32,
behind groups of 32 bounds, one of each leaf::

    leaf    west[stride] south[stride] east[stride] north[stride] (int16)
            entry signature | entry signature | ...               (int32)
    list    bounds[32] bounds[32] ... leaf leaf leaf ...

Places that are not used have a box that nothing touches. A clause that moves stays in its leaf,
whose bounds only grow; `sort_list` makes them tight again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.indexes.moving.entries import FIRST, KEY, PLACE, SIGNATURE, EntryArrays
from nearcast.indexes.moving.twin_lists.lanes import LANES, window_side
from nearcast.indexes.moving.twin_lists.layout import (
    CLASS,
    CLAUSES,
    DEBT,
    EMPTY_HIGH,
    EMPTY_LOW,
    ENTRY_MASK,
    LEAF_BITS,
    LINE,
    NO_CHUNK,
    NOTHING,
    SINGLE,
    SIZE,
    SORTED,
    Pool,
    TwinArrays,
    class_words,
    free_chunk,
    has_room,
    new_chunk,
    window_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF_WORDS = 4 * LANES
GROUP_WORDS = 2 * LANES
_GROUP_LINES = (LANES * LEAF_WORDS + GROUP_WORDS) // LINE
"""Cache lines of 32 leaves and their bounds."""

_FIRST_OF_MANY = 9
"""The class of the smallest chunk for more than one leaf: 24 lines."""


@inlined_kernel
def is_one_leaf(kind: Number) -> Number:
    """Tell whether a list of this class is a single leaf."""
    return kind < _FIRST_OF_MANY


@inlined_kernel
def stride_of(kind: Number) -> Number:
    """Return the stride of a single leaf."""
    return class_words(kind) >> 2


@inlined_kernel
def groups_of(kind: Number) -> Number:
    """Return the number of groups of bounds that a chunk has room for."""
    lines = class_words(kind) // LINE
    return (lines + _GROUP_LINES - 1) // _GROUP_LINES


@inlined_kernel
def leaf_at(start: Number, groups: Number, leaf: Number) -> Number:
    """Return the position of a leaf."""
    return start + groups * GROUP_WORDS + leaf * LEAF_WORDS


@inlined_kernel
def used_leaves(size: Number, leaf_bits: Number) -> Number:
    """Return how many leaves a list of several has."""
    return (size + (np.int64(1) << leaf_bits) - 1) >> leaf_bits


@kernel
def capacity_of(kind: Number, leaf_bits: Number) -> Number:
    """Return how many clauses a chunk can take."""
    if kind == NO_CHUNK:
        return np.int64(0)
    if is_one_leaf(kind):
        return min(stride_of(kind), np.int64(1) << leaf_bits)
    groups = groups_of(kind)
    leaves = (class_words(kind) - groups * GROUP_WORDS) // LEAF_WORDS
    return leaves << leaf_bits


@kernel
def class_above(size: Number, kind: Number, leaf_bits: Number) -> Number:
    """Return the class of a list that outgrows its chunk."""
    if kind == NO_CHUNK:
        return np.int64(1)
    if is_one_leaf(kind):
        larger = np.int64(kind) + (1 if kind == 1 else 2)
        if size < np.int64(1) << leaf_bits and larger < _FIRST_OF_MANY:
            return larger
        return np.int64(_FIRST_OF_MANY)
    return np.int64(kind) + 1


@kernel
def class_for_clauses(size: Number, leaf_bits: Number) -> Number:
    """Return the class of the smallest chunk for so many clauses."""
    kind = np.int64(NO_CHUNK)
    while capacity_of(kind, leaf_bits) < size:
        kind = class_above(size - 1, kind, leaf_bits)
    return kind


@kernel
def can_append(arrays: TwinArrays, number: Number) -> Number:
    """Tell whether the pool has room for one more clause in a list."""
    header, leaf_bits = arrays.header, arrays.option[LEAF_BITS]
    larger = class_above(np.int64(header[number, SIZE]), np.int64(header[number, CLASS]), leaf_bits)
    return has_room(arrays.clauses, class_words(larger))


@inlined_kernel
def locate(header: NDArray[np.int32], number: Number, place: Number, leaf_bits: Number) -> Number:
    """Return where the leaf of a place is, its stride, the lane, and the leaf's bound.

    The bound is the position of a west side in int16 units, `NOTHING` for a single leaf.
    """
    start, kind = np.int64(header[number, CLAUSES]), np.int64(header[number, CLASS])
    leaf, stride, lane, bound = start, np.int64(LANES), np.int64(place), np.int64(NOTHING)
    if is_one_leaf(kind):
        stride = stride_of(kind)
    else:
        nth = np.int64(place) >> leaf_bits
        lane = np.int64(place) & ((np.int64(1) << leaf_bits) - 1)
        leaf = leaf_at(start, groups_of(kind), nth)
        bound = 2 * (start + (nth >> 5) * GROUP_WORDS) + (nth & 31)
    return leaf, stride, lane, bound


@inlined_kernel
def write_box(
    half: NDArray[np.int16], leaf: Number, stride: Number, lane: Number, window: Number
) -> None:
    """Write a rounded box to a leaf."""
    at = 2 * leaf + lane
    half[at] = window_side(window, 0)
    half[at + stride] = window_side(window, 1)
    half[at + 2 * stride] = window_side(window, 2)
    half[at + 3 * stride] = window_side(window, 3)


@inlined_kernel
def widen(half: NDArray[np.int16], bound: Number, window: Number) -> None:
    """Let the bound of a leaf include a box."""
    half[bound] = min(np.int64(half[bound]), window_side(window, 0))
    half[bound + LANES] = min(np.int64(half[bound + LANES]), window_side(window, 1))
    half[bound + 2 * LANES] = max(np.int64(half[bound + 2 * LANES]), window_side(window, 2))
    half[bound + 3 * LANES] = max(np.int64(half[bound + 3 * LANES]), window_side(window, 3))


@kernel
def clear_boxes(half: NDArray[np.int16], position: Number, stride: Number) -> None:
    """Let all boxes of a leaf, or a group of bounds, be empty."""
    for i in range(2 * stride):
        half[position + i] = EMPTY_LOW
        half[position + 2 * stride + i] = EMPTY_HIGH


@kernel
def prepare_chunk(pool: Pool, start: Number, kind: Number, first: Number) -> None:
    """Clear a chunk for a list; leaves before ``first`` are left as they are."""
    if is_one_leaf(kind):
        clear_boxes(pool.half, 2 * start, stride_of(kind))
        return
    groups = groups_of(kind)
    for group in range(groups):
        clear_boxes(pool.half, 2 * (start + group * GROUP_WORDS), LANES)
    leaves = (class_words(kind) - groups * GROUP_WORDS) // LEAF_WORDS
    for leaf in range(first, leaves):
        clear_boxes(pool.half, 2 * leaf_at(start, groups, leaf), LANES)


@kernel
def resize_list(arrays: TwinArrays, number: Number, larger: Number) -> Number:
    """Give a list a chunk of another class; return 0 if the pool has no room for it."""
    header, pool, leaf_bits = arrays.header, arrays.clauses, arrays.option[LEAF_BITS]
    size, kind = np.int64(header[number, SIZE]), np.int64(header[number, CLASS])
    if not has_room(pool, class_words(larger)):
        return False
    old_start, old_kind = np.int64(header[number, CLAUSES]), kind
    start = new_chunk(pool, larger)
    prepare_chunk(pool, start, larger, 0)
    old_bounds = NOTHING
    for place in range(size):
        header[number, CLAUSES], header[number, CLASS] = old_start, old_kind
        leaf, stride, lane, old_bounds = locate(header, number, place, leaf_bits)
        header[number, CLAUSES], header[number, CLASS] = start, larger
        to, to_stride, to_lane, bound = locate(header, number, place, leaf_bits)
        for side in range(4):
            value = pool.half[2 * leaf + side * stride + lane]
            pool.half[2 * to + side * to_stride + to_lane] = value
            if bound != NOTHING and old_bounds == NOTHING:
                merge_side(pool.half, bound, side, value)
            elif bound != NOTHING and to_lane == 0:
                pool.half[bound + side * LANES] = pool.half[old_bounds + side * LANES]
        for word in range(2):
            value = pool.word[leaf + 2 * stride + 2 * lane + word]
            pool.word[to + 2 * to_stride + 2 * to_lane + word] = value
    if old_kind != NO_CHUNK:
        free_chunk(pool, old_start, old_kind)
    header[number, CLAUSES], header[number, CLASS] = start, larger
    return True


@inlined_kernel
def merge_side(half: NDArray[np.int16], bound: Number, side: Number, value: Number) -> None:
    """Let one side of a bound include a value."""
    at = bound + side * LANES
    if side < 2:
        half[at] = min(half[at], value)
    else:
        half[at] = max(half[at], value)


@kernel
def append_clause(
    arrays: TwinArrays, entries: EntryArrays, number: Number, entry: Number
) -> Number:
    """Add an entry with its box to the list of a header; return 0 if the pool has no room."""
    header, pool, leaf_bits = arrays.header, arrays.clauses, arrays.option[LEAF_BITS]
    size, kind = np.int64(header[number, SIZE]), np.int64(header[number, CLASS])
    if size == capacity_of(kind, leaf_bits) and not resize_list(
        arrays, number, class_above(size, kind, leaf_bits)
    ):
        return False
    record = entries.record
    single = entries.pool[record[entry, FIRST]] <= 1
    leaf, stride, lane, bound = locate(header, number, size, leaf_bits)
    window = window_of(arrays.state, record[entry])
    write_box(pool.half, leaf, stride, lane, window)
    if bound != NOTHING:
        widen(pool.half, bound, window)
    pool.word[leaf + 2 * stride + 2 * lane] = entry | SINGLE if single else entry
    pool.word[leaf + 2 * stride + 2 * lane + 1] = record[entry, SIGNATURE]
    header[number, SIZE] = size + 1
    record[entry, KEY] = 2 * number + single
    record[entry, PLACE] = size
    return True


@kernel
def remove_clause(arrays: TwinArrays, entries: EntryArrays, entry: Number) -> None:
    """Take an entry out of its list; the last one takes its place."""
    header, pool, leaf_bits = arrays.header, arrays.clauses, arrays.option[LEAF_BITS]
    number, place = np.int64(entries.record[entry, KEY] >> 1), entries.record[entry, PLACE]
    size = np.int64(header[number, SIZE]) - 1
    leaf, stride, lane, bound = locate(header, number, place, leaf_bits)
    last, last_stride, last_lane, _ = locate(header, number, size, leaf_bits)
    for side in range(4):
        value = pool.half[2 * last + side * last_stride + last_lane]
        pool.half[2 * leaf + side * stride + lane] = value
        if bound != NOTHING:
            merge_side(pool.half, bound, side, value)
    for word in range(2):
        value = pool.word[last + 2 * stride + 2 * last_lane + word]
        pool.word[leaf + 2 * stride + 2 * lane + word] = value
    moved = np.int64(pool.word[leaf + 2 * stride + 2 * lane]) & ENTRY_MASK
    entries.record[moved, PLACE] = place
    for side in range(4):
        pool.half[2 * last + side * last_stride + last_lane] = EMPTY_LOW if side < 2 else EMPTY_HIGH
    header[number, SIZE] = size
    entries.record[entry, KEY] = NOTHING
    entries.record[entry, PLACE] = NOTHING
    if size == 0:
        free_chunk(pool, header[number, CLAUSES], np.int64(header[number, CLASS]))
        header[number, CLAUSES], header[number, CLASS] = NOTHING, NO_CHUNK
        return
    kind = np.int64(header[number, CLASS])
    if kind > 1 and 4 * size <= capacity_of(kind, leaf_bits):
        resize_list(arrays, number, class_for_clauses(2 * size, leaf_bits))


@kernel
def order_boxes(box: NDArray[np.int64], leaf: Number) -> NDArray[np.int64]:
    """Return an order in which boxes that follow each other are close: slices by x, then y.

    ``box`` int64[n, 2]: twice the centers.
    """
    count = len(box)
    leaves = (count + leaf - 1) // leaf
    slice_size = leaf * np.int64(np.ceil(np.sqrt(leaves)))
    key = np.empty(count, np.int64)
    for i in range(count):
        key[i] = (box[i, 0] + 65536) << 32 | i
    key.sort()
    for begin in range(0, count, slice_size):
        end = min(begin + slice_size, count)
        for i in range(begin, end):
            at = key[i] & 0xFFFFFFFF
            key[i] = (box[at, 1] + 65536) << 32 | at
        key[begin:end].sort()
    for i in range(count):
        key[i] &= 0xFFFFFFFF
    return key


@kernel
def sort_list(arrays: TwinArrays, entries: EntryArrays, number: Number) -> None:
    """Sort the clauses of a list and make all bounds tight, from the boxes of the records."""
    header, pool, leaf_bits = arrays.header, arrays.clauses, arrays.option[LEAF_BITS]
    size, kind = np.int64(header[number, SIZE]), np.int64(header[number, CLASS])
    header[number, DEBT] = 0
    arrays.state[SORTED] += size
    if size == 0:
        return
    word = np.empty((size, 2), np.int32)
    window, center = np.empty(size, np.int64), np.empty((size, 2), np.int64)
    for place in range(size):
        leaf, stride, lane, _ = locate(header, number, place, leaf_bits)
        for i in range(2):
            word[place, i] = pool.word[leaf + 2 * stride + 2 * lane + i]
        entry = np.int64(word[place, 0]) & ENTRY_MASK
        window[place] = window_of(arrays.state, entries.record[entry])
        for axis in range(2):
            low, high = window_side(window[place], axis), window_side(window[place], axis + 2)
            center[place, axis] = low + high
    order = order_boxes(center, np.int64(1) << leaf_bits)
    prepare_chunk(pool, header[number, CLAUSES], kind, size >> leaf_bits)
    for place in range(size):
        leaf, stride, lane, bound = locate(header, number, place, leaf_bits)
        chosen = order[place]
        write_box(pool.half, leaf, stride, lane, window[chosen])
        if bound != NOTHING:
            widen(pool.half, bound, window[chosen])
        for i in range(2):
            pool.word[leaf + 2 * stride + 2 * lane + i] = word[chosen, i]
        entries.record[np.int64(word[chosen, 0]) & ENTRY_MASK, PLACE] = place
