"""Find the entries of a trie-pyramid that may match a message.

`look_up` finds the lists of a message's tokens, `open_nodes` the children below them,
`open_inner_blocks` (of `nearcast.compiled.pyramids`) the leaves whose bounding boxes overlap the
message, and `scan_leaves` the entries whose rounded boxes do. Each step prefetches what the next
one reads: four cache lines of each block. Prefetching only the lines that a block has was not
faster: the next line is the first leaf, which is often needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import contains
from nearcast.compiled.pyramids import (
    BLOCK,
    BLOCK_SIZE,
    CELLS,
    GRID_LEVEL,
    INNER,
    LEAVES,
    TARGET,
    cell_mask,
    find_slot,
    lane_mask,
    position_of,
    prefetch_block,
    size_of,
)
from nearcast.compiled.simd_boxes import INT16_LANES, touching_boxes
from nearcast.compiled.token_table import BITS32, LOW32, NO_TOKEN
from nearcast.indexes.trie_pyramid.layout import (
    CHILDREN,
    IS_NODE,
    KEPT,
    SIGNATURE,
    TriePyramidArrays,
    key_of,
    signature_bit,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CANDIDATES = 1024
"""Candidates that are collected at a time."""

CHECK_BOX = np.int64(1 << 62)
"""A candidate is the position of its entry's word; with this flag, its exact box is undecided."""

CHILDREN_PER_TOKEN = 4
"""A node with more children than this per token of the message is searched token by token."""

NODES, SCANNED = 2, 3
"""Fields of ``Queues.counts`` after `LEAVES` and `INNER`."""

_ONE = np.uint64(1)


class Queues(NamedTuple):
    """What to read for a chunk of tokens: leaves, pyramids with inner blocks, and nodes.

    Each queue has capacity for all that the lists of a chunk can contain; nothing is queued twice.
    ``counts`` int64[4]: the length of each queue, and the number of leaves already scanned.
    """

    leaf: NDArray[np.uint64]
    inner: NDArray[np.uint64]
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
    """Queue the lists of tokens ``first`` to ``last`` of a message.

    Lists without a cell in common are skipped. After the last token comes `NO_TOKEN`.
    """
    slot, pyramid, block = index.slot, index.pyramid, index.header[BLOCK_SIZE]
    leaf, inner, node = queues.leaf, queues.inner, queues.node
    leaves, inners, nodes = np.int64(0), np.int64(0), np.int64(0)
    low, high = cell_mask(box[0], box[1], box[2], box[3], index.header[GRID_LEVEL])
    for i in range(first, last):
        key = np.uint64(tokens[i]) if i < len(tokens) else np.uint64(NO_TOKEN)
        at = find_slot(slot, key)
        if ((slot[at, CELLS] & low) | (slot[at, CELLS + 1] & high)) == np.uint64(0):
            continue
        target = slot[at, TARGET]
        if target & IS_NODE:
            node[nodes] = target ^ IS_NODE
            nodes += 1
            continue
        # Both queues are written and one of them grows: a branch would often be mispredicted.
        size = size_of(target)
        leaf[leaves] = target
        inner[inners] = target
        leaves += np.int64(size <= block)
        inners += np.int64(size > block)
        prefetch_block(pyramid, position_of(target))
    queues.counts[LEAVES], queues.counts[INNER], queues.counts[NODES] = leaves, inners, nodes
    queues.counts[SCANNED] = 0


@kernel
def enqueue(index: TriePyramidArrays, queues: Queues, target: Number) -> None:
    """Add the target of a slot to its queue."""
    if target & IS_NODE:
        queues.node[queues.counts[NODES]] = target ^ IS_NODE
        queues.counts[NODES] += 1
    elif size_of(target) > index.header[BLOCK_SIZE]:
        queues.inner[queues.counts[INNER]] = target
        queues.counts[INNER] += 1
    elif target != np.uint64(0):
        queues.leaf[queues.counts[LEAVES]] = target
        queues.counts[LEAVES] += 1


@kernel
def open_nodes(index: TriePyramidArrays, tokens: NDArray[np.int32], queues: Queues) -> None:
    """Queue what the queued nodes keep, and those of their children whose tokens occur."""
    signature = np.uint64(0)
    for i in range(len(tokens)):
        signature |= signature_bit(tokens[i])
    opened = np.int64(0)
    while opened < queues.counts[NODES]:
        at = np.int64(queues.node[opened])
        opened += 1
        enqueue(index, queues, index.node[at, KEPT])
        if (index.node[at, SIGNATURE] & signature) == np.uint64(0):
            continue
        first = np.int64(index.node[at, CHILDREN] & LOW32)
        count = np.int64(index.node[at, CHILDREN] >> BITS32)
        if count <= CHILDREN_PER_TOKEN * len(tokens):
            for i in range(first, first + count):
                if contains(tokens, np.int64(index.child[i] >> BITS32)):
                    child = np.int64(index.child[i] & LOW32)
                    enqueue(index, queues, index.slot[child, TARGET])
            continue
        for i in range(len(tokens)):
            if index.node[at, SIGNATURE] & signature_bit(tokens[i]):
                child = find_slot(index.slot, key_of(at, tokens[i]))
                enqueue(index, queues, index.slot[child, TARGET])


@inlined_kernel
def scan_leaves(
    index: TriePyramidArrays,
    window: NDArray[np.int16],
    queues: Queues,
    candidate: NDArray[np.int64],
) -> tuple[Number, Number]:
    """Write the entries of queued leaves whose rounded boxes overlap the window, until it is full.

    ``candidate`` int64[MAX_CANDIDATES]. Return the number of candidates and of entries compared.
    """
    pyramid, rounded_boxes, leaf = index.pyramid, index.rounded_boxes, queues.leaf
    count, compared = np.int64(0), np.int64(0)
    at, last = queues.counts[SCANNED], queues.counts[LEAVES]
    while at < last and count + BLOCK <= MAX_CANDIDATES:
        position, size = position_of(leaf[at]), size_of(leaf[at])
        at += 1
        compared += size
        both = touching_boxes(rounded_boxes, 4 * position, size, window)
        overlaps, certain = both & lane_mask(size), both >> np.uint64(INT16_LANES)
        position += size
        while overlaps != np.uint64(0):
            lane = lowest_bit(overlaps)
            overlaps &= overlaps - _ONE
            prefetch(pyramid, position + lane)
            is_certain = np.int64((certain >> np.uint64(lane)) & _ONE)
            candidate[count] = (position + lane) | (CHECK_BOX & (is_certain - 1))
            count += 1
    queues.counts[SCANNED] = at
    return count, compared
