"""Build pyramids of rounded boxes: order the entries of a list, and write them block by block.

The entries of a list are divided in two until they fit the parts of a pyramid, each time at the
side (west, south, east or north) in which the boxes differ most. This is a k-d tree over boxes as
points of four dimensions: close boxes of similar size end up in one block.

Used by ``trie-pyramid`` and ``ranked-pyramid``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.pyramids import (
    BLOCK_SIZE,
    CELLS,
    GRID_LEVEL,
    LINE_WORDS,
    MAX_QUEUED,
    PART_BITS,
    ROUNDING,
    STACK,
    HasPyramids,
    HasSlots,
    cell_mask,
    part_count,
    part_level,
    push_parts,
)
from nearcast.compiled.token_table import BITS32

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOW, HIGH, WIDTH = 4, 5, 6
"""Columns of a row to be written, after the sides of its box: the halves of its word."""

MAX_CUTS = 128
"""Capacity for ranges still to be cut: the smaller half is cut first, so 2 log n is enough."""


@kernel
def swap_rows(row: NDArray[np.int32], a: Number, b: Number) -> None:
    """Swap two rows."""
    for column in range(row.shape[1]):
        row[a, column], row[b, column] = row[b, column], row[a, column]


@kernel
def median_of_three(first: Number, second: Number, third: Number) -> Number:
    """Return the median of three numbers."""
    return max(min(first, second), min(max(first, second), third))


@kernel
def select_rows(
    row: NDArray[np.int32], first: Number, last: Number, rank: Number, side: Number
) -> None:
    """Reorder rows so that none before ``rank`` is greater, and none after it smaller."""
    last -= 1
    while first < last:
        pivot = median_of_three(row[first, side], row[(first + last) >> 1, side], row[last, side])
        low, high = first, last
        while low <= high:
            while row[low, side] < pivot:
                low += 1
            while row[high, side] > pivot:
                high -= 1
            if low <= high:
                swap_rows(row, low, high)
                low += 1
                high -= 1
        if rank <= high:
            last = high
        elif rank >= low:
            first = low
        else:
            return


@kernel
def widest_side(row: NDArray[np.int32], first: Number, last: Number) -> Number:
    """Return the side in which boxes differ most; latitudes count twice, as the world is wide."""
    widest, widest_range = np.int64(0), np.int64(-1)
    for side in range(4):
        low, high = row[first, side], row[first, side]
        for i in range(first + 1, last):
            low, high = min(low, row[i, side]), max(high, row[i, side])
        side_range = (np.int64(high) - np.int64(low)) << np.int64(side & 1)
        if side_range > widest_range:
            widest, widest_range = np.int64(side), side_range
    return widest


@kernel
def order_rows(row: NDArray[np.int32], part_sizes: NDArray[np.int64], block: Number) -> None:
    """Reorder rows into the parts of a pyramid, by cuts that lie where parts end."""
    cuts = np.empty((MAX_CUTS, 3), np.int64)
    cuts[0, 0], cuts[0, 1], cuts[0, 2] = 0, len(row), 62
    count = 1
    while count > 0:
        count -= 1
        first, last, bits = cuts[count, 0], cuts[count, 1], cuts[count, 2]
        if last - first <= (np.int64(1) << bits):
            if last - first <= block:
                continue
            bits = part_sizes[PART_BITS, part_level(part_sizes, block, last - first)]
        middle = first + (((part_count(last - first, bits) + 1) >> 1) << bits)
        select_rows(row, first, last, middle, widest_side(row, first, last))
        cuts[count, 0], cuts[count, 1], cuts[count, 2] = middle, last, bits
        cuts[count + 1, 0], cuts[count + 1, 1], cuts[count + 1, 2] = first, middle, bits
        count += 2


@kernel
def align(position: Number, size: Number, block: Number) -> Number:
    """Return the position of the next pyramid: pyramids of a full block begin at a cache line."""
    if size < block:
        return position
    return (position + (LINE_WORDS - 1)) & ~np.int64(LINE_WORDS - 1)


@kernel
def write_leaf(row: NDArray[np.int32], index: HasPyramids, position: Number) -> None:
    """Write rows as a leaf."""
    size = len(row)
    for i in range(size):
        for side in range(4):
            index.rounded_boxes[4 * position + side * size + i] = row[i, side] >> ROUNDING
        word = np.uint64(row[i, LOW]) | (np.uint64(row[i, HIGH]) << BITS32)
        index.pyramid[position + size + i] = word


@kernel
def bound_of(row: NDArray[np.int32], side: Number) -> Number:
    """Return one side of the bounding box of rows."""
    bound = row[0, side]
    for i in range(1, len(row)):
        bound = min(bound, row[i, side]) if side < 2 else max(bound, row[i, side])
    return bound


@kernel
def write_inner_block(
    row: NDArray[np.int32], index: HasPyramids, position: Number, bits: Number
) -> Number:
    """Write the bounding boxes of the parts of rows; return the number of parts."""
    parts = part_count(len(row), bits)
    for part in range(parts):
        some = row[part << bits : min(np.int64(len(row)), (part + 1) << bits)]
        for side in range(4):
            bound = bound_of(some, side) >> ROUNDING
            index.rounded_boxes[4 * position + side * parts + part] = bound
    return parts


@kernel
def write_pyramid(row: NDArray[np.int32], index: HasPyramids, position: Number) -> None:
    """Write rows, which must be in the order of `order_rows`, as a pyramid."""
    block, part_sizes = index.header[BLOCK_SIZE], index.part_sizes
    stack = np.empty((STACK, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = position, 0, len(row)
    count = np.int64(1)
    while count > 0:
        count -= 1
        at, first, last = stack[count, 0], stack[count, 1], stack[count, 2]
        if last - first <= block:
            write_leaf(row[first:last], index, at)
            continue
        bits = part_sizes[PART_BITS, part_level(part_sizes, block, last - first)]
        index.header[MAX_QUEUED] += write_inner_block(row[first:last], index, at, bits)
        count = push_parts(stack, count, part_sizes, block, (at, first, last))


@kernel
def add_cells(row: NDArray[np.int32], index: HasSlots, at: Number) -> None:
    """Add the cells of rows to the mask of a slot."""
    level = index.header[GRID_LEVEL]
    for i in range(len(row)):
        low, high = cell_mask(row[i, 0], row[i, 1], row[i, 2], row[i, 3], level)
        index.slot[at, CELLS] |= low
        index.slot[at, CELLS + 1] |= high
