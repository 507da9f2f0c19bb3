"""The arrays of a trie-pyramid, and the questions asked of one slot, pyramid or grid cell.

- ``slot`` uint64[s, 4] is a hash table with open addressing. A slot has a key (a token and, in the
  upper 32 bits, the node above it, 0 for the first token of a clause), a target (a pyramid, or
  a node where `IS_NODE` is set; 0 for a free slot) and a cell mask of two words.
- ``pyramid`` uint64[w] holds all pyramids. The word of an entry is its clause and, in the upper 32
  bits, its next token: `NO_TOKEN` if no token is left, the complement of the token (a
  negative number) if more tokens follow it.
- ``node`` uint64[n, 4] describes the lists that have children: a signature of the children's
  tokens; the first child and, in the upper 32 bits, the number of children; the pyramid of the
  clauses that are in no child, 0 for none; an unused word. Node 0 is not used.
- ``child`` uint64[c] holds the children of all nodes: the slot and, in the upper 32 bits, the
  token. The children of the last node come first.
- ``part_sizes`` int64[2, levels] describes the parts of pyramids: the base-2 logarithm of their
  number of entries, and the words that a part takes.
- ``header`` int64[4]: boxes per block, level of the grid, whether there are clauses without tokens,
  and the largest number of blocks and children that one message can queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_table import BITS32, MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY, TARGET, CELLS = 0, 1, 2
"""The words of a slot; the cell mask takes two."""

SIGNATURE, CHILDREN, KEPT = 0, 1, 2
"""The words of a node."""

BLOCK_SIZE, GRID_LEVEL, TOKENLESS, MAX_QUEUED = 0, 1, 2, 3
"""The fields of ``header``."""

PART_BITS, PART_WORDS = 0, 1
"""The rows of ``part_sizes``."""

IS_NODE = np.uint64(1 << 63)

BLOCK = 32
"""The maximum number of boxes in a block: one vector comparison covers 32."""

LEAF_WORDS = 2
"""Words per entry of a leaf."""

LINE_WORDS = 8
"""Words per cache line."""

PADDING = 8
"""Words after the last pyramid: a block is always read as if it had 32 boxes."""

POSITION_BITS = 36
"""Bits for the position of a pyramid; `SIZE_BITS` for its number of entries; one for `IS_NODE`."""

SIZE_BITS = 27

ROUNDING = np.int64(16)
"""Rounded coordinates drop this many low bits; a unit of them is 0.0066 degrees."""

_POSITION = np.uint64((1 << POSITION_BITS) - 1)


class TriePyramidArrays(NamedTuple):
    """The arrays of a trie-pyramid, and the columns of the clauses that matching reads.

    ``rounded_boxes`` is ``pyramid`` seen as int16.
    """

    slot: NDArray[np.uint64]
    pyramid: NDArray[np.uint64]
    node: NDArray[np.uint64]
    child: NDArray[np.uint64]
    part_sizes: NDArray[np.int64]
    header: NDArray[np.int64]
    rounded_boxes: NDArray[np.int16]
    box: NDArray[np.int32]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]


# --- slots ---------------------------------------------------------------------------------------


@kernel
def key_of(node: Number, token: Number) -> Number:
    """Return the key of a token below a node."""
    return (np.uint64(node) << BITS32) | np.uint64(token)


@inlined_kernel
def home(slot: NDArray[np.uint64], key: Number) -> Number:
    """Return the slot at which the search for a key begins."""
    return np.int64((((key * MIXER) >> BITS32) * np.uint64(len(slot))) >> BITS32)


@inlined_kernel
def find_slot(slot: NDArray[np.uint64], key: Number) -> Number:
    """Return the slot of a key, or a free slot if the key is not there."""
    at = home(slot, key)
    while slot[at, KEY] != key and slot[at, TARGET] != np.uint64(0):
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def signature_bit(token: Number) -> Number:
    """Return the bit of a token in the signature of a node."""
    return np.uint64(1) << ((np.uint64(token) * MIXER) >> np.uint64(58))


# --- pyramids ------------------------------------------------------------------------------------
#
# Up to a block of entries are a leaf. More entries are divided into parts, at most a block of them
# and all of one size but the last, and each part is a pyramid again. The block of the parts'
# bounding boxes comes first, then part after part. So position and number of entries are enough
# to find every part, without pointers.
#
# A leaf of n entries takes 2 n words: their rounded boxes, side by side (n west, n south, n east, n
# north), then one word per entry. An inner block of k parts takes k words, padded to a cache line.
# Rounded boxes are the upper 16 bits of the coordinates. If two boxes overlap, their
# rounded boxes do; if the rounded boxes share more than a side, the boxes certainly overlap.


@kernel
def pack_pyramid(position: Number, size: Number) -> Number:
    """Return position and number of entries of a pyramid as one word."""
    return np.uint64(position) | (np.uint64(size) << np.uint64(POSITION_BITS))


@kernel
def position_of(pyramid: Number) -> Number:
    """Return the position of a pyramid, in words."""
    return np.int64(pyramid & _POSITION)


@kernel
def size_of(pyramid: Number) -> Number:
    """Return the number of entries of a pyramid."""
    return np.int64(pyramid >> np.uint64(POSITION_BITS))


@kernel
def inner_words(parts: Number) -> Number:
    """Return the words of an inner block, padded to a cache line."""
    return (parts + (LINE_WORDS - 1)) & ~np.int64(LINE_WORDS - 1)


@inlined_kernel
def part_level(part_sizes: NDArray[np.int64], block: Number, size: Number) -> Number:
    """Return the column of the smallest parts such that one block of them holds all entries."""
    level = np.int64(0)
    while (block << part_sizes[PART_BITS, level]) < size:
        level += 1
    return level


@kernel
def part_count(size: Number, bits: Number) -> Number:
    """Return the number of parts of ``2**bits`` entries."""
    return (size + (np.int64(1) << bits) - 1) >> bits


@kernel
def pyramid_words(part_sizes: NDArray[np.int64], block: Number, size: Number) -> Number:
    """Return the words that a pyramid of ``size`` entries takes."""
    words = np.int64(0)
    while size > block:
        level = part_level(part_sizes, block, size)
        bits = part_sizes[PART_BITS, level]
        full = size >> bits
        words += inner_words(part_count(size, bits)) + full * part_sizes[PART_WORDS, level]
        size -= full << bits
    return words + LEAF_WORDS * size


@kernel
def push_parts(
    stack: NDArray[np.int64],
    count: Number,
    part_sizes: NDArray[np.int64],
    block: Number,
    pyramid: tuple[Number, Number, Number],
) -> Number:
    """Push the parts of a pyramid with inner blocks on a stack of pyramids; return its new height.

    A pyramid is (position, first entry, end). ``stack`` int64[STACK, 3].
    """
    position, first, last = pyramid
    level = part_level(part_sizes, block, last - first)
    bits = part_sizes[PART_BITS, level]
    parts = part_count(last - first, bits)
    for part in range(parts):
        stack[count, 0] = position + inner_words(parts) + part * part_sizes[PART_WORDS, level]
        stack[count, 1] = first + (part << bits)
        stack[count, 2] = min(last, first + ((part + 1) << bits))
        count += 1
    return count


STACK = 1024
"""Capacity of a stack of pyramids: one block per level is enough."""


@kernel
def fill_part_words(part_sizes: NDArray[np.int64], block: Number) -> None:
    """Write the words of a full part of each size, smallest first."""
    for level in range(part_sizes.shape[1]):
        size = np.int64(1) << part_sizes[PART_BITS, level]
        part_sizes[PART_WORDS, level] = pyramid_words(part_sizes, block, size)


def make_part_sizes(block: int) -> NDArray[np.int64]:
    """Return the part sizes of pyramids with ``block`` boxes per block: powers of two."""
    step = block.bit_length() - 1
    bits = np.arange(step, SIZE_BITS + step, step, dtype=np.int64)
    part_sizes = np.stack([bits, np.zeros_like(bits)])
    fill_part_words(part_sizes, block)
    return part_sizes


# --- cell masks ----------------------------------------------------------------------------------
#
# A cell mask tells roughly where boxes are. The world is a grid, covered by copies of a pattern of
# 16 by 8 cells; the mask has one bit per cell of the pattern. If the masks of a list and of a
# message have no bit in common, no box of the list overlaps the message.

GRID_COLUMNS, GRID_ROWS = 16, 8
"""The pattern; each word of a mask has half of its rows."""

MIN_GRID_LEVEL, MAX_GRID_LEVEL = 3, 7
"""A grid has ``2**level`` columns. Smaller cells would be too many for messages with boxes."""


@kernel
def column_mask(west: Number, east: Number, shift: Number) -> Number:
    """Return a bit for each column of the pattern that a box overlaps."""
    first, last = np.int64(west) >> shift, np.int64(east) >> shift
    if last - first >= GRID_COLUMNS - 1:
        return np.uint64(0xFFFF)
    bits = ((np.uint64(1) << np.uint64(last - first + 1)) - np.uint64(1)) << np.uint64(first & 15)
    return (bits | (bits >> np.uint64(GRID_COLUMNS))) & np.uint64(0xFFFF)


@kernel
def cell_mask(
    west: Number, south: Number, east: Number, north: Number, level: Number
) -> tuple[Number, Number]:
    """Return the two words of the cell mask of a box, in a grid of ``2**level`` columns."""
    shift = np.int64(32) - np.int64(level)
    columns = column_mask(west, east, shift)
    # The grid has as many rows as columns, over half as many degrees.
    first, last = np.int64(south) >> (shift - 1), np.int64(north) >> (shift - 1)
    low, high = np.uint64(0), np.uint64(0)
    for row in range(first, min(last, first + GRID_ROWS - 1) + 1):
        bits = columns << np.uint64((row & 3) << 4)
        if row & 4:
            high |= bits
        else:
            low |= bits
    return low, high


@kernel
def choose_grid_level(box: NDArray[np.int32]) -> Number:
    """Return the level of the grid whose cells are about as large as the average box."""
    total = np.float64(0)
    for i in range(len(box)):
        total += max(
            np.float64(box[i, 2]) - np.float64(box[i, 0]),
            2 * (np.float64(box[i, 3]) - np.float64(box[i, 1])),
        )
    mean = total / max(1, len(box))
    level = np.int64(MAX_GRID_LEVEL)
    while level > MIN_GRID_LEVEL and np.float64(np.int64(1) << (np.int64(32) - level)) < mean:
        level -= 1
    return level
