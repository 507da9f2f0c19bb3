"""Pyramids of rounded boxes, hash tables of lists, and masks of grid cells.

A list of entries with boxes is stored as a *pyramid*, which resembles a packed R-tree: leaves of up
to 32 entries, up to 32 leaves in a part, up to 32 parts in a larger one, and so on. The boxes of a
block are compared with a message at once (`nearcast.compiled.simd_boxes`). A *slot* of a hash table
leads to the list of a token and says, by a *cell mask*, roughly where its boxes are.
`nearcast.compiled.pyramid_build` orders and writes pyramids.

Used by ``trie-pyramid`` and ``ranked-pyramid``. Kernels take the arrays of either index, a named
tuple with at least the fields of `HasPyramids`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import touching_boxes
from nearcast.compiled.token_table import BITS32, MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY, TARGET, CELLS = 0, 1, 2
"""The words of a slot; the cell mask takes two."""

BLOCK_SIZE, GRID_LEVEL, MAX_QUEUED = 0, 1, 3
"""Fields of ``header``: boxes per block, level of the grid, and the largest number of blocks (and
whatever else an index queues) that one message can queue. An index may have more fields."""

LEAVES, INNER = 0, 1
"""Fields of ``counts`` of queues: the lengths of two queues. An index may have more fields."""

PART_BITS, PART_WORDS = 0, 1
"""The rows of ``part_sizes``."""

BLOCK = 32
"""The maximum number of boxes in a block: one vector comparison covers 32."""

LEAF_WORDS = 2
"""Words per entry of a leaf."""

LINE_WORDS = 8
"""Words per cache line."""

PADDING = 8
"""Words after the last pyramid: a block is always read as if it had 32 boxes."""

POSITION_BITS = 36
"""Bits for the position of a pyramid; `SIZE_BITS` for its number of entries; one is free."""

SIZE_BITS = 27

ROUNDING = np.int64(16)
"""Rounded coordinates drop this many low bits; a unit of them is 0.0066 degrees."""

STACK = 1024
"""Capacity of a stack of pyramids: one block per level is enough."""

_POSITION = np.uint64((1 << POSITION_BITS) - 1)
_ONE = np.uint64(1)


class HasPyramids(Protocol):
    """The arrays of an index with pyramids, as far as the kernels here read them.

    - ``pyramid`` uint64[w] holds all pyramids; ``rounded_boxes`` is the same seen as int16.
    - ``part_sizes`` int64[2, levels] describes the parts of pyramids: the base-2 logarithm of their
      number of entries, and the words that a part takes.
    - ``header`` int64[any]: see `BLOCK_SIZE`.
    """

    @property
    def pyramid(self) -> NDArray[np.uint64]:
        """All pyramids."""

    @property
    def rounded_boxes(self) -> NDArray[np.int16]:
        """The same, seen as sides of rounded boxes."""

    @property
    def part_sizes(self) -> NDArray[np.int64]:
        """The sizes of parts."""

    @property
    def header(self) -> NDArray[np.int64]:
        """Numbers that hold for the whole index."""


class HasSlots(HasPyramids, Protocol):
    """The same with slots: uint64[s, 4], free where the target is 0."""

    @property
    def slot(self) -> NDArray[np.uint64]:
        """The slots."""


class BlockQueues(Protocol):
    """Queues of leaves and of pyramids with inner blocks, with capacity for all there can be.

    ``counts`` int64[any]: see `LEAVES`.
    """

    @property
    def leaf(self) -> NDArray[np.uint64]:
        """Leaves."""

    @property
    def inner(self) -> NDArray[np.uint64]:
        """Pyramids with inner blocks."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """The lengths of the queues."""


# --- slots ---------------------------------------------------------------------------------------


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


# --- opening pyramids ----------------------------------------------------------------------------


@inlined_kernel
def prefetch_block(pyramid: NDArray[np.uint64], position: Number) -> None:
    """Prefetch a block."""
    prefetch(pyramid, position)
    prefetch(pyramid, position + LINE_WORDS)
    prefetch(pyramid, position + 2 * LINE_WORDS)
    prefetch(pyramid, position + 3 * LINE_WORDS)


@inlined_kernel
def lane_mask(count: Number) -> Number:
    """Return a bit for each of the boxes of a block."""
    return (_ONE << np.uint64(count)) - _ONE


@inlined_kernel
def open_inner_blocks(index: HasPyramids, window: NDArray[np.int16], queues: BlockQueues) -> None:
    """Go down from the queued inner blocks to leaves; ``window`` is the message's rounded box."""
    pyramid, rounded_boxes, part_sizes = index.pyramid, index.rounded_boxes, index.part_sizes
    leaf, inner, block = queues.leaf, queues.inner, index.header[BLOCK_SIZE]
    leaves, inners = queues.counts[LEAVES], queues.counts[INNER]
    i = np.int64(0)
    while i < inners:
        position, size = position_of(inner[i]), size_of(inner[i])
        i += 1
        level = part_level(part_sizes, block, size)
        bits, words = part_sizes[PART_BITS, level], part_sizes[PART_WORDS, level]
        parts = part_count(size, bits)
        overlaps = touching_boxes(rounded_boxes, 4 * position, parts, window) & lane_mask(parts)
        position += inner_words(parts)
        while overlaps != np.uint64(0):
            part = lowest_bit(overlaps)
            overlaps &= overlaps - _ONE
            below = min(np.int64(1) << bits, size - (part << bits))
            place = position + part * words
            prefetch_block(pyramid, place)
            leaf[leaves] = pack_pyramid(place, below)
            inner[inners] = pack_pyramid(place, below)
            leaves += np.int64(below <= block)
            inners += np.int64(below > block)
    queues.counts[LEAVES] = leaves


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
