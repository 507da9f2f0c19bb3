"""Read pyramids: go down where boxes touch the message, and collect the entries that may touch it.

Boxes of a block are compared at once, by their upper halves. What will be read next is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import HALF_LANES, touching_boxes
from nearcast.indexes.trie_pyramid.arrays import BLOCK_SIZE, TriePyramidArrays
from nearcast.indexes.trie_pyramid.pyramid import (
    BLOCK,
    LINE_WORDS,
    head_words,
    pack_pyramid,
    parts_of,
    position_of,
    size_of,
)
from nearcast.indexes.trie_pyramid.walk import DONE, HEADS, LEAVES, Queues

if TYPE_CHECKING:
    from numpy.typing import NDArray

CANDIDATES = 1024
"""Room for candidates."""

UNSURE = np.int64(1 << 62)
"""A candidate is the position of its word, and whether it may not touch after all."""

_ONE = np.uint64(1)


@inlined_kernel
def lanes_of(count: Number) -> Number:
    """Return a bit for each of the boxes that a block has."""
    return (_ONE << np.uint64(count)) - _ONE


@inlined_kernel
def open_heads(index: TriePyramidArrays, window: NDArray[np.int16], queues: Queues) -> None:
    """Go down from the blocks in the queue of heads, to leaves."""
    pool, half, shape = index.pyramid, index.half, index.shape
    leaf, head, block = queues.leaf, queues.head, index.setting[BLOCK_SIZE]
    leaves, heads = queues.counts[LEAVES], queues.counts[HEADS]
    i = np.int64(0)
    while i < heads:
        position, size = position_of(head[i]), size_of(head[i])
        i += 1
        row = np.int64(0)
        while (block << shape[0, row]) < size:
            row += 1
        bits, words = shape[0, row], shape[1, row]
        parts = parts_of(size, bits)
        touches = touching_boxes(half, 4 * position, parts, window) & lanes_of(parts)
        position += head_words(parts)
        while touches != np.uint64(0):
            part = lowest_bit(touches)
            touches &= touches - _ONE
            below = min(np.int64(1) << bits, size - (part << bits))
            place = position + part * words
            prefetch(pool, place)
            prefetch(pool, place + LINE_WORDS)
            prefetch(pool, place + 2 * LINE_WORDS)
            prefetch(pool, place + 3 * LINE_WORDS)
            leaf[leaves] = pack_pyramid(place, below)
            head[heads] = pack_pyramid(place, below)
            leaves += np.int64(below <= block)
            heads += np.int64(below > block)
    queues.counts[LEAVES] = leaves


@inlined_kernel
def scan_leaves(
    index: TriePyramidArrays,
    window: NDArray[np.int16],
    queues: Queues,
    candidate: NDArray[np.int64],
) -> tuple[Number, Number]:
    """Collect the entries of leaves that may touch the message, as long as there is room for them.

    Return how many, and the entries seen.
    """
    pool, half, leaf = index.pyramid, index.half, queues.leaf
    count, seen = np.int64(0), np.int64(0)
    at, last = queues.counts[DONE], queues.counts[LEAVES]
    while at < last and count + BLOCK <= CANDIDATES:
        position, size = position_of(leaf[at]), size_of(leaf[at])
        at += 1
        seen += size
        both = touching_boxes(half, 4 * position, size, window)
        touches, surely = both & lanes_of(size), both >> np.uint64(HALF_LANES)
        position += size
        while touches != np.uint64(0):
            lane = lowest_bit(touches)
            touches &= touches - _ONE
            prefetch(pool, position + lane)
            sure = np.int64((surely >> np.uint64(lane)) & _ONE)
            candidate[count] = (position + lane) | (UNSURE & (sure - 1))
            count += 1
    queues.counts[DONE] = at
    return count, seen
