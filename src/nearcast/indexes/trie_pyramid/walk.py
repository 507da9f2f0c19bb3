"""Find the pyramids of a message's tokens, and ask for their first blocks before they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import contains
from nearcast.compiled.token_table import MIXER, NO_TOKEN
from nearcast.indexes.trie_pyramid.arrays import (
    BITS32,
    BLOCK_SIZE,
    CHILDREN,
    FOUND,
    KEPT,
    KEY,
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
from nearcast.indexes.trie_pyramid.places import touched_places
from nearcast.indexes.trie_pyramid.pyramid import LINE_WORDS, position_of, size_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

WALK_SHARE = 4
"""Children are walked unless they are this many times more than the message has tokens."""

LEAVES, HEADS, NODES, DONE = 0, 1, 2, 3
"""The fields of ``counts``."""


class Queues(NamedTuple):
    """What is to be read of a chunk: pyramids of one leaf, those with parts, nodes.

    Each has room for all that there are below the tokens of a chunk; nothing is found twice.
    ``counts`` int64[4] says how many they are, and how many leaves were read already.
    """

    leaf: NDArray[np.uint64]
    head: NDArray[np.uint64]
    node: NDArray[np.uint64]
    counts: NDArray[np.int64]


@inlined_kernel
def look_up(
    index: TriePyramidArrays,
    tokens: NDArray[np.int32],
    first: Number,
    last: Number,
    box: NDArray[np.int32],
    queues: Queues,
) -> None:
    """Put what there is for tokens ``first`` to ``last`` of a message into the queues.

    Lists whose places are all elsewhere are left out. The token behind the last one is `NO_TOKEN`.
    """
    slot, pool, block = index.slot, index.pyramid, index.setting[BLOCK_SIZE]
    leaf, head, node = queues.leaf, queues.head, queues.node
    leaves, heads, nodes = np.int64(0), np.int64(0), np.int64(0)
    low, high = touched_places(box[0], box[1], box[2], box[3], index.setting[PLACE_LEVEL])
    slots = np.uint64(len(slot))
    for i in range(first, last):
        key = np.uint64(tokens[i]) if i < len(tokens) else np.uint64(NO_TOKEN)
        at = np.int64((((key * MIXER) >> BITS32) * slots) >> BITS32)
        while slot[at, KEY] != key and slot[at, FOUND] != np.uint64(0):
            at += 1
            if at == len(slot):
                at = np.int64(0)
        if ((slot[at, PLACES] & low) | (slot[at, PLACES + 1] & high)) == np.uint64(0):
            continue
        found = slot[at, FOUND]
        if found & NODE:
            node[nodes] = found ^ NODE
            nodes += 1
            continue
        position, size = position_of(found), size_of(found)
        leaf[leaves] = found
        head[heads] = found
        leaves += np.int64(size <= block)
        heads += np.int64(size > block)
        prefetch(pool, position)
        prefetch(pool, position + LINE_WORDS)
        prefetch(pool, position + 2 * LINE_WORDS)
        prefetch(pool, position + 3 * LINE_WORDS)
    queues.counts[LEAVES], queues.counts[HEADS], queues.counts[NODES] = leaves, heads, nodes
    queues.counts[DONE] = 0


@kernel
def add_found(index: TriePyramidArrays, queues: Queues, found: Number) -> None:
    """Add a pyramid or a node to its queue."""
    if found & NODE:
        queues.node[queues.counts[NODES]] = found ^ NODE
        queues.counts[NODES] += 1
    elif size_of(found) > index.setting[BLOCK_SIZE]:
        queues.head[queues.counts[HEADS]] = found
        queues.counts[HEADS] += 1
    elif found != np.uint64(0):
        queues.leaf[queues.counts[LEAVES]] = found
        queues.counts[LEAVES] += 1


@kernel
def open_nodes(index: TriePyramidArrays, tokens: NDArray[np.int32], queues: Queues) -> None:
    """Go down from the nodes in their queue: add what they keep, and children of the tokens."""
    signature = np.uint64(0)
    for i in range(len(tokens)):
        signature |= signature_bit(tokens[i])
    opened = np.int64(0)
    while opened < queues.counts[NODES]:
        at = np.int64(queues.node[opened])
        opened += 1
        add_found(index, queues, index.node[at, KEPT])
        if (index.node[at, SIGNATURE] & signature) == np.uint64(0):
            continue
        first = np.int64(index.node[at, CHILDREN] & LOW32)
        count = np.int64(index.node[at, CHILDREN] >> BITS32)
        if count <= WALK_SHARE * len(tokens):
            for i in range(first, first + count):
                if contains(tokens, np.int64(index.child[i] >> BITS32)):
                    child = np.int64(index.child[i] & LOW32)
                    add_found(index, queues, index.slot[child, FOUND])
            continue
        for i in range(len(tokens)):
            if index.node[at, SIGNATURE] & signature_bit(tokens[i]):
                child = find_slot(index.slot, key_of(at, tokens[i]))
                add_found(index, queues, index.slot[child, FOUND])
