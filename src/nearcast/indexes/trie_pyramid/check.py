"""Check the arrays of a trie-pyramid that were read from disk.

Kernels do not check bounds. What they rely on: every pyramid lies inside its array, every
clause is in exactly one leaf, nodes form a forest in which parents have smaller numbers, and
the queues have capacity for everything below the tokens of a chunk. Boxes, tokens,
signatures and cell masks may be anything: they only decide what is read, never where.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.pyramids import (
    BLOCK,
    BLOCK_SIZE,
    CELLS,
    KEY,
    MAX_GRID_LEVEL,
    MAX_QUEUED,
    MIN_GRID_LEVEL,
    PADDING,
    POSITION_BITS,
    STACK,
    TARGET,
    make_part_sizes,
    position_of,
    push_parts,
    pyramid_words,
    size_of,
)
from nearcast.compiled.token_table import BITS32, LOW32
from nearcast.indexes.damage import require
from nearcast.indexes.trie_pyramid.layout import CHILDREN, IS_NODE, KEPT, TriePyramidArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

_require = partial(require, "trie-pyramid")


def check_arrays(index: TriePyramidArrays) -> None:
    """Raise `StorageError` unless no kernel can read or write out of bounds, or loop forever."""
    _check_header(index)
    _check_slots(index)
    _check_nodes(index)
    parts = _check_pyramids(index)
    queued = parts + len(index.child)
    _require(index.header[MAX_QUEUED] == queued, "setting", f"must have a queue size of {queued:,}")


def _check_header(index: TriePyramidArrays) -> None:
    for name, width in {"slot": 4, "node": 4, "child": None, "pyramid": None}.items():
        array = getattr(index, name)
        shape = (len(array),) if width is None else (len(array), width)
        _require(array.shape == shape, name, f"has the shape {array.shape}, expected {shape}")
    _require(index.header.shape == (4,), "setting", "must have 4 fields")
    block, level, tokenless, _ = index.header.tolist()
    _require(2 <= block <= BLOCK, "setting", f"has {block:,} boxes per block")
    _require(MIN_GRID_LEVEL <= level <= MAX_GRID_LEVEL, "setting", f"has grid level {level:,}")
    _require(tokenless in (0, 1), "setting", f"has {tokenless:,} for clauses without tokens")
    expected = make_part_sizes(block)
    _require(np.array_equal(index.part_sizes, expected), "shape", "does not fit the block size")


def _check_slots(index: TriePyramidArrays) -> None:
    slot = index.slot
    free = slot[:, TARGET] == 0
    _require(bool(free.any()), "slot", "has no free slot")
    rest = slot[:, KEY] | slot[:, CELLS] | slot[:, CELLS + 1]
    _require(not rest[free].any(), "slot", "has values in a free slot")


def _check_nodes(index: TriePyramidArrays) -> None:
    """Check that each node is below one slot, with a smaller parent, and that children fit."""
    slots, nodes = len(index.slot), len(index.node)
    _require(nodes > 0, "node", "must have a node 0")
    is_node = (index.slot[:, TARGET] & IS_NODE) != 0
    number, key = index.slot[is_node, TARGET] ^ IS_NODE, index.slot[is_node, KEY]
    once = len(number) == nodes - 1 and np.array_equal(
        np.sort(number), np.arange(1, nodes, dtype=np.uint64)
    )
    _require(once, "slot", f"must name each of {nodes - 1:,} nodes once")
    _require(
        bool(((key >> BITS32) < number).all()), "slot", "has a node whose parent is not above it"
    )

    word = index.node[:0:-1, CHILDREN]  # the children of the last node come first
    first, count = (word & LOW32).astype(np.int64), (word >> BITS32).astype(np.int64)
    end = np.cumsum(count)
    fits = np.array_equal(first, end - count) and int(count.sum()) == len(index.child)
    _require(fits, "node", "must name each child once")
    slot = (index.child & LOW32).astype(np.int64)
    _require(bool((slot < slots).all()), "child", f"leads out of {slots:,} slots")
    parent = np.repeat(np.arange(nodes - 1, 0, -1, dtype=np.uint64), count)
    own_key = (parent << BITS32) | (index.child >> BITS32)
    _require(
        np.array_equal(index.slot[slot, KEY], own_key), "child", "leads to a slot of another node"
    )
    below = (index.slot[:, KEY] >> BITS32) != 0
    _require(int(below.sum()) == len(slot), "child", "must name each slot below a node")
    below[slot] = False
    _require(not below.any(), "child", "names a slot twice")


def _check_pyramids(index: TriePyramidArrays) -> int:
    """Check each pyramid and its clauses; return the number of parts of all pyramids."""
    target, kept = index.slot[:, TARGET], index.node[1:, KEPT]
    _require(not (kept & IS_NODE).any(), "node", "keeps a node instead of a pyramid")
    target = target[(target & IS_NODE) == 0]
    pyramid = np.concatenate([target[target != 0], kept[kept != 0]])
    clauses = len(index.box)
    size = (pyramid >> np.uint64(POSITION_BITS)).astype(np.int64)
    fits = bool((size > 0).all()) and int(size.sum()) == clauses
    _require(fits, "slot", f"must lead to {clauses:,} clauses")
    end = len(index.pyramid) - PADDING
    parts = check_pyramids(index, pyramid, end, np.zeros(clauses, np.bool_))
    _require(parts >= 0, "pyramid", f"must hold each of {clauses:,} clauses once")
    return int(parts)


@kernel
def check_pyramids(
    index: TriePyramidArrays, pyramid: NDArray[np.uint64], end: Number, seen: NDArray[np.bool_]
) -> Number:
    """Return the parts of all pyramids, or -1 unless all end before ``end`` with distinct clauses.

    ``seen`` bool[clauses] is False on entry. The sizes of pyramids add up to the number of clauses.
    """
    block, part_sizes = index.header[BLOCK_SIZE], index.part_sizes
    stack = np.empty((STACK, 3), np.int64)
    parts = np.int64(0)
    for i in range(len(pyramid)):
        position, size = position_of(pyramid[i]), size_of(pyramid[i])
        if position + pyramid_words(part_sizes, block, size) > end:
            return np.int64(-1)
        stack[0, 0], stack[0, 1], stack[0, 2] = position, 0, size
        count = np.int64(1)
        while count > 0:
            count -= 1
            at, first, last = stack[count, 0], stack[count, 1], stack[count, 2]
            if last - first > block:
                before = count
                count = push_parts(stack, count, part_sizes, block, (at, first, last))
                parts += count - before
                continue
            size = last - first
            for word in index.pyramid[at + size : at + 2 * size]:
                clause = np.int64(word & LOW32)
                if clause >= len(seen) or seen[clause]:
                    return np.int64(-1)
                seen[clause] = True
    return parts
