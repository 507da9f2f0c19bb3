"""Read pyramids: go down where boxes touch the message, verify the entries that are left.

Boxes of a block are compared at once, by their upper halves. Entries that touch become candidates,
and what is needed to decide them is asked for. Then their lower halves decide where the upper ones
do not, and their next token; clauses of more tokens are put aside and verified at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, kernel, lowest_bit, prefetch
from nearcast.kernels.lanes import touching_boxes
from nearcast.kernels.pyramid import (
    BLOCK,
    HALF,
    head_words,
    pack_pyramid,
    part_row,
    parts_of,
    position_of,
    size_of,
)
from nearcast.kernels.trie_pyramid import BLOCK_SIZE, LOW32, TriePyramidArrays
from nearcast.kernels.trie_pyramid_tokens import occurs
from nearcast.kernels.trie_pyramid_walk import HEADS, LEAVES, Asked, Queues, enqueue

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ONE = np.uint64(1)

CANDIDATES = 1024

LANE_BITS = np.int64(6)
_LANE = np.int64(63)
UNSURE = np.int64(1 << 62)
"""A candidate is the position of its leaf, size, lane, and whether it may not touch after all."""


class Room(NamedTuple):
    """Room for candidates, int64[CANDIDATES], and clauses put aside, int32[CANDIDATES]."""

    candidate: NDArray[np.int64]
    aside: NDArray[np.int32]


@kernel
def lanes_of(count: Number) -> Number:
    """Return a bit for each of the boxes that a block has."""
    return (_ONE << np.uint64(count)) - _ONE


@kernel
def open_heads(index: TriePyramidArrays, asked: Asked, queues: Queues) -> None:
    """Go down from the blocks in the queue of heads, to leaves."""
    block, shape = index.setting[BLOCK_SIZE], index.shape
    i = np.int64(0)
    while i < queues.count[HEADS]:
        head = queues.item[HEADS, i]
        position, size = position_of(head), size_of(head)
        row = part_row(shape, block, size)
        bits, words = shape[0, row], shape[1, row]
        parts = parts_of(size, bits)
        touches = touching_boxes(index.half, 4 * position, parts, asked.outer) & lanes_of(parts)
        position += head_words(parts)
        while touches != np.uint64(0):
            part = lowest_bit(touches)
            touches &= touches - _ONE
            below = min(np.int64(1) << bits, size - (part << bits))
            enqueue(index, queues, pack_pyramid(position + part * words, below), np.int64(1))
        i += 1


@kernel
def meets(
    index: TriePyramidArrays, box: NDArray[np.int32], position: Number, size: Number, lane: Number
) -> Number:
    """Compare the whole box of an entry with that of the message."""
    upper, lower = 4 * position + lane, index.pool[position + 2 * size + lane]
    for side in range(4):
        rest = np.int64((lower >> np.uint64(16 * side)) & np.uint64(0xFFFF))
        bound = (np.int64(index.half[upper + side * size]) << HALF) | rest
        other = np.int64(box[(side + 2) & 3])
        if (side < 2 and bound > other) or (side >= 2 and bound < other):
            return False
    return True


@kernel
def scan_leaf(
    index: TriePyramidArrays,
    asked: Asked,
    leaf: Number,
    candidate: NDArray[np.int64],
    count: Number,
) -> Number:
    """Add the entries of a leaf that may touch the message to the candidates; return how many."""
    position, size = position_of(leaf), size_of(leaf)
    touches = touching_boxes(index.half, 4 * position, size, asked.outer) & lanes_of(size)
    if touches == np.uint64(0):
        return count
    surely = touching_boxes(index.half, 4 * position, size, asked.inner)
    place = ((position << LANE_BITS) | size) << LANE_BITS
    while touches != np.uint64(0):
        lane = lowest_bit(touches)
        touches &= touches - _ONE
        prefetch(index.pool, position + size + lane)
        candidate[count] = place | lane
        if (surely >> np.uint64(lane)) & _ONE == np.uint64(0):
            prefetch(index.pool, position + 2 * size + lane)
            candidate[count] |= UNSURE
        count += 1
    return count


@kernel
def has_tokens(index: TriePyramidArrays, asked: Asked, clause: Number) -> Number:
    """Tell whether all tokens of a clause occur."""
    for i in range(index.token_start[clause], index.token_start[clause + 1]):
        if not occurs(asked.table, asked.bits[0], np.int64(index.token[i])):
            return False
    return True


@kernel
def take_candidates(
    index: TriePyramidArrays, asked: Asked, room: Room, count: Number, match: NDArray[np.int32]
) -> Number:
    """Write those of the candidates that match; there is room for all. Return how many."""
    found, asides = np.int64(0), np.int64(0)
    for i in range(count):
        place = room.candidate[i] & ~UNSURE
        lane, size = place & _LANE, (place >> LANE_BITS) & _LANE
        position = place >> (2 * LANE_BITS)
        if room.candidate[i] & UNSURE and not meets(index, asked.box, position, size, lane):
            continue
        word = index.pool[position + size + lane]
        clause, token = np.int64(word & LOW32), np.int64(word) >> np.int64(32)
        if token >= 0:
            match[found] = clause
            found += np.int64(occurs(asked.table, asked.bits[0], token))
        elif occurs(asked.table, asked.bits[0], ~token):
            prefetch(index.token_start, clause)
            room.aside[asides] = clause
            asides += 1
    for i in range(asides):
        prefetch(index.token, index.token_start[room.aside[i]])
    for i in range(asides):
        match[found] = room.aside[i]
        found += np.int64(has_tokens(index, asked, np.int64(room.aside[i])))
    return found


@kernel
def scan_pyramids(
    index: TriePyramidArrays, asked: Asked, queues: Queues, room: Room, match: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Write the matches of all pyramids in the queues; return how many (-1: no room), and examined."""
    open_heads(index, asked, queues)
    found, count, examined = np.int64(0), np.int64(0), np.int64(0)
    for i in range(queues.count[LEAVES]):
        leaf = queues.item[LEAVES, i]
        examined += size_of(leaf)
        count = scan_leaf(index, asked, leaf, room.candidate, count)
        if count + BLOCK > len(room.candidate) or i + 1 == queues.count[LEAVES]:
            if found + count > len(match):
                return np.int64(-1), examined
            found += take_candidates(index, asked, room, count, match[found:])
            count = np.int64(0)
    return found, examined
