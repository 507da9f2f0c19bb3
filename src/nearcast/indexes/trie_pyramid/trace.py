"""How a trie-pyramid finds the clauses of a message, as a walk over its arrays in plain Python.

It does what `search` and `match` do, one message at a time and a thousand times slower, and notes
what it sees: the lists that tokens lead to, and the boxes in their pyramids. Nothing here is used
for matching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.pyramids import (
    BLOCK_SIZE,
    CELLS,
    GRID_LEVEL,
    KEY,
    PART_BITS,
    PART_WORDS,
    ROUNDING,
    TARGET,
    cell_mask,
    inner_words,
    part_count,
    part_level,
    position_of,
    size_of,
)
from nearcast.compiled.token_table import BITS32, LOW32, MIXER, NO_TOKEN
from nearcast.indexes.tracing import TracedBox, TracedNode
from nearcast.indexes.trie_pyramid.layout import CHILDREN, IS_NODE, KEPT, TOKENLESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.indexes.trie_pyramid.layout import TriePyramidArrays

__all__ = ["trace_message"]

_WORD = (1 << 64) - 1
_CLAUSE = (1 << 31) - 1
_ROUNDED = (1 << int(ROUNDING)) - 1

Box = tuple[int, int, int, int]


class _Pyramid(NamedTuple):
    """A pyramid, or a part of one: where it begins, and how many entries it has."""

    position: int
    size: int


def trace_message(
    index: TriePyramidArrays, tokens: NDArray[np.int32], box: NDArray[np.int32]
) -> Iterator[TracedNode]:
    """Yield the lists that a message leads to, in the order of its tokens.

    Parameters
    ----------
    index
        The arrays of the index.
    tokens, box
        Those of the message: ascending tokens, and int32[4] that does not cross the antimeridian.
    """
    window: Box = tuple(box.tolist())
    known = [token for token in tokens.tolist() if token != NO_TOKEN]
    looked_up = [*known, int(NO_TOKEN)] if index.header[TOKENLESS] else known
    west, south, east, north = box
    mask = [int(word) for word in cell_mask(west, south, east, north, index.header[GRID_LEVEL])]
    for token in looked_up:
        slot = _find_slot(index, token)
        if slot is None or not any(
            int(index.slot[slot, CELLS + i]) & word for i, word in enumerate(mask)
        ):
            continue
        path = () if token == NO_TOKEN else (token,)
        yield from _target(index, int(index.slot[slot, TARGET]), path, set(known), window)


def _find_slot(index: TriePyramidArrays, key: int) -> int | None:
    """Return the slot of a token of which no node is above; None if there is none."""
    slots = len(index.slot)
    at = ((((key * int(MIXER)) & _WORD) >> 32) * slots) >> 32
    while index.slot[at, TARGET]:
        if index.slot[at, KEY] == key:
            return at
        at = (at + 1) % slots
    return None


def _target(
    index: TriePyramidArrays, target: int, path: tuple[int, ...], tokens: set[int], window: Box
) -> Iterator[TracedNode]:
    """Yield what a slot leads to: a list or, for a node, what it keeps and the children below."""
    if not target & int(IS_NODE):
        yield _list(index, target, path, tokens, window)
        return
    node = index.node[target ^ int(IS_NODE)]
    if node[KEPT]:
        yield _list(index, int(node[KEPT]), path, tokens, window)
    first, count = int(node[CHILDREN] & LOW32), int(node[CHILDREN] >> BITS32)
    for child in index.child[first : first + count].tolist():
        token = child >> 32
        if token in tokens:
            below = int(index.slot[child & int(LOW32), TARGET])
            yield from _target(index, below, (*path, token), tokens, window)


def _list(
    index: TriePyramidArrays, target: int, path: tuple[int, ...], tokens: set[int], window: Box
) -> TracedNode:
    """Return what happens in the pyramid of a list."""
    whole = _Pyramid(int(position_of(np.uint64(target))), int(size_of(np.uint64(target))))
    block = int(index.header[BLOCK_SIZE])
    boxes: list[TracedBox] = []
    found: list[int] = []
    examined = 0
    waiting = [whole]
    while waiting:
        pyramid = waiting.pop(0)
        if pyramid.size > block:
            waiting += _open_inner_block(index, pyramid, window, boxes)
            continue
        examined += pyramid.size
        for clause, touches in _entries(index, pyramid, window):
            own: Box = tuple(index.box[clause].tolist())
            boxes.append(TracedBox(own, 0, touches))
            first, last = index.token_start[clause], index.token_start[clause + 1]
            if _overlap(own, window) and tokens.issuperset(index.token[first:last].tolist()):
                found.append(clause)
    return TracedNode(path, whole.size, tuple(boxes), examined, tuple(found))


def _open_inner_block(
    index: TriePyramidArrays, pyramid: _Pyramid, window: Box, boxes: list[TracedBox]
) -> list[_Pyramid]:
    """Note the boxes of the parts of a pyramid; return the parts that are opened."""
    block, sizes = int(index.header[BLOCK_SIZE]), index.part_sizes
    level = int(part_level(sizes, np.int64(block), np.int64(pyramid.size)))
    bits, words = int(sizes[PART_BITS, level]), int(sizes[PART_WORDS, level])
    parts = int(part_count(np.int64(pyramid.size), np.int64(bits)))
    first = pyramid.position + int(inner_words(np.int64(parts)))
    opened = []
    for part, rounded in enumerate(_rounded_boxes(index, pyramid.position, parts)):
        touches = _overlap(rounded, _rounded(window))
        boxes.append(TracedBox(_outer(rounded), level + 1, touches))
        if touches:
            size = min(1 << bits, pyramid.size - (part << bits))
            opened.append(_Pyramid(first + part * words, size))
    return opened


def _entries(index: TriePyramidArrays, leaf: _Pyramid, window: Box) -> Iterator[tuple[int, bool]]:
    """Yield the clauses of a leaf, and whether their rounded boxes overlap the message."""
    words = index.pyramid[leaf.position + leaf.size : leaf.position + 2 * leaf.size].tolist()
    boxes = _rounded_boxes(index, leaf.position, leaf.size)
    for word, rounded in zip(words, boxes, strict=True):
        yield word & _CLAUSE, _overlap(rounded, _rounded(window))


def _rounded_boxes(index: TriePyramidArrays, position: int, count: int) -> list[Box]:
    """Return the rounded boxes of a block, which are stored by side."""
    sides = index.rounded_boxes[4 * position : 4 * (position + count)].reshape(4, count)
    return [(west, south, east, north) for west, south, east, north in sides.T.tolist()]


def _rounded(box: Box) -> Box:
    west, south, east, north = (side >> int(ROUNDING) for side in box)
    return west, south, east, north


def _outer(rounded: Box) -> Box:
    """Return the box of all coordinates that are rounded like this."""
    west, south, east, north = (side << int(ROUNDING) for side in rounded)
    return west, south, east | _ROUNDED, north | _ROUNDED


def _overlap(a: Box, b: Box) -> bool:
    return a[0] <= b[2] and a[1] <= b[3] and a[2] >= b[0] and a[3] >= b[1]
