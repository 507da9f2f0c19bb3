"""Find the pyramids of a message's tokens, and ask for their first blocks before they are read.

The tokens of messages go through in chunks: while the pyramids of one chunk are read
(`nearcast.kernels.trie_pyramid_scan`), those of the next are on their way into the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, kernel, prefetch
from nearcast.kernels.pyramid import HALF, LINE_WORDS, position_of, size_of
from nearcast.kernels.token_table import EVERY
from nearcast.kernels.trie_pyramid import (
    BITS32,
    BLOCK_SIZE,
    CHILDREN,
    FOUND,
    KEPT,
    LOW32,
    NODE,
    PLACE_LEVEL,
    PLACES,
    SIGNATURE,
    TriePyramidArrays,
    find_slot,
    key_of,
    signature_bit,
)
from nearcast.kernels.trie_pyramid_places import touched_places
from nearcast.kernels.trie_pyramid_tokens import occurs, put_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 32
"""How many tokens go together."""

LEAVES, HEADS = 0, 1
"""Two queues: pyramids that are one leaf, and those that have parts."""


class Asked(NamedTuple):
    """A message: what is asked of all pyramids.

    ``box`` int32[4]; ``outer`` int16[4], its upper halves: what does not touch them does not touch the
    message. ``inner`` int16[4]: what touches them surely touches the message. ``table`` has its
    tokens; ``word`` uint64[3]: its places, and a bit for each of its tokens; ``tokens`` int32[...],
    ascending; ``bits`` int64[1], of the size of the table.
    """

    box: NDArray[np.int32]
    outer: NDArray[np.int16]
    inner: NDArray[np.int16]
    table: NDArray[np.int32]
    word: NDArray[np.uint64]
    bits: NDArray[np.int64]


class Queues(NamedTuple):
    """What is to be read: ``item`` uint64[2, ...], leaves and heads; ``count`` int64[2]."""

    item: NDArray[np.uint64]
    count: NDArray[np.int64]


@kernel
def ask(
    index: TriePyramidArrays, tokens: NDArray[np.int32], box: NDArray[np.int32], asked: Asked
) -> None:
    """Prepare a message."""
    asked.bits[0] = put_tokens(asked.table, tokens)
    for side in range(4):
        asked.box[side] = box[side]
        asked.outer[side] = box[side] >> HALF
        asked.inner[side] = (box[side] >> HALF) + (1 if side < 2 else -1)
    low, high = touched_places(box[0], box[1], box[2], box[3], index.setting[PLACE_LEVEL])
    asked.word[0], asked.word[1] = low, high
    asked.word[2] = np.uint64(0)
    if len(index.node) > 1:
        for i in range(len(tokens)):
            asked.word[2] |= signature_bit(tokens[i])


@kernel
def enqueue(index: TriePyramidArrays, queues: Queues, pyramid: Number, wanted: Number) -> None:
    """Add a pyramid to its queue if it is wanted, and ask for its first block."""
    position, size = position_of(pyramid), size_of(pyramid)
    kind = np.int64(size > index.setting[BLOCK_SIZE])
    queues.item[kind, queues.count[kind]] = pyramid
    queues.count[kind] += wanted
    if wanted:
        prefetch(index.pool, position)
        if size > LINE_WORDS:
            for line in range(1, 4):
                prefetch(index.pool, position + LINE_WORDS * line)


@kernel
def open_slot(
    index: TriePyramidArrays,
    asked: Asked,
    at: Number,
    queues: Queues,
    stack: NDArray[np.int64],
    top: Number,
) -> Number:
    """Add what a slot leads to, unless its places are elsewhere; return the top of the stack."""
    slot = index.slot
    near = (slot[at, PLACES] & asked.word[0]) | (slot[at, PLACES + 1] & asked.word[1])
    found = slot[at, FOUND]
    if found & NODE:
        stack[top] = np.int64(found ^ NODE)
        return top + np.int64(near != np.uint64(0))
    enqueue(index, queues, found, np.int64(near != np.uint64(0)))
    return top


@kernel
def open_node(
    index: TriePyramidArrays,
    tokens: NDArray[np.int32],
    asked: Asked,
    at: Number,
    queues: Queues,
    stack: NDArray[np.int64],
    top: Number,
) -> Number:
    """Add what a node keeps and those of its children whose token the message has."""
    node = index.node[at]
    if node[KEPT] != np.uint64(0):
        enqueue(index, queues, node[KEPT], np.int64(1))
    if (node[SIGNATURE] & asked.word[2]) == np.uint64(0):
        return top
    first, count = np.int64(node[CHILDREN] & LOW32), np.int64(node[CHILDREN] >> BITS32)
    if count <= 4 * len(tokens):
        for i in range(first, first + count):
            if occurs(asked.table, asked.bits[0], np.int64(index.child[i] >> BITS32)):
                child = np.int64(index.child[i] & LOW32)
                top = open_slot(index, asked, child, queues, stack, top)
        return top
    for i in range(len(tokens)):
        if node[SIGNATURE] & signature_bit(tokens[i]):
            key = key_of(at, tokens[i])
            child = find_slot(index.slot, key)
            if index.slot[child, FOUND] != np.uint64(0):
                top = open_slot(index, asked, child, queues, stack, top)
    return top


@kernel
def collect_pyramids(
    index: TriePyramidArrays,
    tokens: NDArray[np.int32],
    first: Number,
    last: Number,
    asked: Asked,
    queues: Queues,
    stack: NDArray[np.int64],
) -> Number:
    """Put the pyramids of tokens ``first`` to ``last`` of a message into the queues.

    The token behind the last stands for `EVERY`. Return how many nodes were opened.
    """
    queues.count[0] = queues.count[1] = 0
    top, opened = np.int64(0), np.int64(0)
    for i in range(first, last):
        token = np.int64(tokens[i]) if i < len(tokens) else EVERY
        at = find_slot(index.slot, np.uint64(token))
        if index.slot[at, FOUND] != np.uint64(0):
            top = open_slot(index, asked, at, queues, stack, top)
    while top > 0:
        top = open_node(index, tokens, asked, stack[top - 1], queues, stack, top - 1)
        opened += 1
    return opened
