"""Read pyramids: go down where boxes touch the message, verify the entries that are left.

Boxes of a block are compared at once, by their upper halves. Entries that touch become candidates,
and what is needed to decide them is asked for. Then their lower halves decide where the upper ones
do not, and their next token; clauses of more tokens are put aside and verified at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.kernels.lanes import touching_boxes
from nearcast.kernels.pyramid import (
    BLOCK,
    HALF,
    LINE_WORDS,
    head_words,
    pack_pyramid,
    parts_of,
    position_of,
    size_of,
)
from nearcast.kernels.token_filter import LOW_BITS, set_filter
from nearcast.kernels.token_table import EVERY
from nearcast.kernels.trie_pyramid import BLOCK_SIZE, LOW32, TriePyramidArrays
from nearcast.kernels.trie_pyramid_tokens import occurs, put_tokens
from nearcast.kernels.trie_pyramid_walk import HEADS, LEAVES, Queues

if TYPE_CHECKING:
    from numpy.typing import NDArray

CANDIDATES = 1024

LANE_BITS = np.int64(6)
UNSURE = np.int64(1 << 62)
"""A candidate is the position of its leaf, size, lane, and whether it may not touch after all."""

_ONE = np.uint64(1)
_LANE = np.int64(63)


class Asked(NamedTuple):
    """A message: what is asked of all entries.

    ``box`` int32[4]. ``outer`` int16[4], its upper halves: what does not touch them does not touch
    the message; ``inner`` int16[4]: what touches them surely touches the message. ``token_filter``
    has a bit for each of its tokens, ``table`` int32[...] the tokens, ``bits`` int64[1] the
    logarithm of its size.
    """

    box: NDArray[np.int32]
    outer: NDArray[np.int16]
    inner: NDArray[np.int16]
    token_filter: NDArray[np.uint64]
    table: NDArray[np.int32]
    bits: NDArray[np.int64]


class Room(NamedTuple):
    """Room for candidates, int64[CANDIDATES], and words put aside, uint64[CANDIDATES]."""

    candidate: NDArray[np.int64]
    aside: NDArray[np.uint64]


@inlined_kernel
def ask(tokens: NDArray[np.int32], box: NDArray[np.int32], asked: Asked) -> None:
    """Prepare a message."""
    asked.bits[0] = put_tokens(asked.table, tokens)
    set_filter(asked.token_filter, tokens)
    for side in range(4):
        asked.box[side] = box[side]
        asked.outer[side] = box[side] >> HALF
        asked.inner[side] = (box[side] >> HALF) + (1 if side < 2 else -1)


@kernel
def lanes_of(count: Number) -> Number:
    """Return a bit for each of the boxes that a block has."""
    return (_ONE << np.uint64(count)) - _ONE


@inlined_kernel
def open_heads(index: TriePyramidArrays, outer: NDArray[np.int16], queues: Queues) -> None:
    """Go down from the blocks in the queue of heads, to leaves."""
    pool, half, shape = index.pool, index.half, index.shape
    leaf, head, block = queues.leaf, queues.head, index.setting[BLOCK_SIZE]
    leaves, heads = queues.counts[LEAVES], queues.counts[HEADS]
    i = np.int64(0)
    while i < heads:
        position, size = position_of(head[i]), size_of(head[i])
        row = np.int64(0)
        while (block << shape[0, row]) < size:
            row += 1
        bits, words = shape[0, row], shape[1, row]
        parts = parts_of(size, bits)
        touches = touching_boxes(half, 4 * position, parts, outer) & lanes_of(parts)
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
        i += 1
    queues.counts[LEAVES], queues.counts[HEADS] = leaves, heads


@inlined_kernel
def scan_leaves(
    index: TriePyramidArrays, asked: Asked, queues: Queues, first: Number, room: Room
) -> tuple[Number, Number, Number]:
    """Collect the entries of leaves from the first one on that may touch the message.

    Return the leaf for which there was no room, the candidates and the entries seen.
    """
    pool, half, leaf, candidate = index.pool, index.half, queues.leaf, room.candidate
    outer, inner = asked.outer, asked.inner
    count, seen, last = np.int64(0), np.int64(0), queues.counts[LEAVES]
    while first < last and count + BLOCK <= len(candidate):
        position, size = position_of(leaf[first]), size_of(leaf[first])
        first += 1
        seen += size
        touches = touching_boxes(half, 4 * position, size, outer) & lanes_of(size)
        surely = touching_boxes(half, 4 * position, size, inner) & touches
        unsure = touches ^ surely
        place = ((position << LANE_BITS) | size) << LANE_BITS
        while surely != np.uint64(0):
            lane = lowest_bit(surely)
            surely &= surely - _ONE
            prefetch(pool, position + size + lane)
            candidate[count] = place | lane
            count += 1
        while unsure != np.uint64(0):
            lane = lowest_bit(unsure)
            unsure &= unsure - _ONE
            prefetch(pool, position + size + lane)
            prefetch(pool, position + 2 * size + lane)
            candidate[count] = place | lane | UNSURE
            count += 1
    return first, count, seen


@inlined_kernel
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


@inlined_kernel
def has_tokens(
    index: TriePyramidArrays, asked: Asked, tokens: NDArray[np.int32], clause: Number
) -> Number:
    """Tell whether all tokens of a clause occur."""
    for i in range(index.token_start[clause], index.token_start[clause + 1]):
        if not occurs(asked.table, asked.bits[0], tokens, np.int64(index.token[i])):
            return False
    return True


@inlined_kernel
def sift_candidates(
    index: TriePyramidArrays, asked: Asked, room: Room, count: Number, match: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Write the candidates that match without a look at tokens, put others aside that may match.

    Return how many of each. There are no branches that depend on tokens: half of them would be
    guessed wrong.
    """
    pool, candidate, aside = index.pool, room.candidate, room.aside
    token_filter = asked.token_filter
    found, asides = np.int64(0), np.int64(0)
    for i in range(count):
        place = candidate[i] & ~UNSURE
        lane, size = place & _LANE, (place >> LANE_BITS) & _LANE
        position = place >> (2 * LANE_BITS)
        if candidate[i] & UNSURE and not meets(index, asked.box, position, size, lane):
            continue
        word = pool[position + size + lane]
        token = np.int64(word) >> np.int64(32)
        bit = np.uint64(token ^ (token >> np.int64(63))) & LOW_BITS
        may = (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE
        done = np.int64(token == EVERY)
        match[found] = np.int32(word & LOW32)
        found += done
        aside[asides] = word
        asides += np.int64(may) & ~done
    return found, asides


@inlined_kernel
def take_candidates(
    index: TriePyramidArrays,
    asked: Asked,
    tokens: NDArray[np.int32],
    room: Room,
    count: Number,
    match: NDArray[np.int32],
) -> Number:
    """Write those of the candidates that match; there is room for all. Return how many."""
    found, asides = sift_candidates(index, asked, room, count, match)
    aside, more = room.aside, np.int64(0)
    for i in range(asides):
        clause, token = np.int64(aside[i] & LOW32), np.int64(aside[i]) >> np.int64(32)
        if token >= 0:
            match[found] = clause
            found += np.int64(occurs(asked.table, asked.bits[0], tokens, token))
        else:
            prefetch(index.token_start, clause)
            aside[more] = np.uint64(clause)
            more += 1
    for i in range(more):
        prefetch(index.token, index.token_start[aside[i]])
    for i in range(more):
        match[found] = aside[i]
        found += np.int64(has_tokens(index, asked, tokens, np.int64(aside[i])))
    return found


@inlined_kernel
def scan_pyramids(
    index: TriePyramidArrays,
    asked: Asked,
    tokens: NDArray[np.int32],
    queues: Queues,
    room: Room,
    match: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Write the matches of all pyramids in the queues; return how many (-1: no room), and seen."""
    open_heads(index, asked.outer, queues)
    found, seen, leaf = np.int64(0), np.int64(0), np.int64(0)
    while leaf < queues.counts[LEAVES]:
        leaf, count, more = scan_leaves(index, asked, queues, leaf, room)
        seen += more
        if found + count > len(match):
            return np.int64(-1), seen
        found += take_candidates(index, asked, tokens, room, count, match[found:])
    return found, seen
