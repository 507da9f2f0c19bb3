"""Put entries into the order of a pyramid: cut into parts again and again, near ones together.

Whatever is cut goes apart at the side (west, south, east or north) in which its boxes differ most.
So boxes end up beside those that are near them and as large as they are: a k-d tree of boxes as
points of four dimensions, with cuts only where a part ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.trie_pyramid.pyramid import part_row, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUTS = 128
"""Room for what is still to be cut: the smaller half is done first, so 2 log n is plenty."""


@kernel
def swap_rows(row: NDArray[np.int32], a: Number, b: Number) -> None:
    """Swap two rows."""
    for column in range(row.shape[1]):
        row[a, column], row[b, column] = row[b, column], row[a, column]


@kernel
def middle_of(first: Number, second: Number, third: Number) -> Number:
    """Return the one of three that is neither the least nor the most."""
    return max(min(first, second), min(max(first, second), third))


@kernel
def select_rows(
    row: NDArray[np.int32], first: Number, last: Number, rank: Number, side: Number
) -> None:
    """Reorder rows so that those before ``rank`` are not greater, and those behind not less."""
    last -= 1
    while first < last:
        pivot = middle_of(row[first, side], row[(first + last) >> 1, side], row[last, side])
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
    """Return the side in which boxes differ most; the world is twice as wide as high."""
    widest, most = np.int64(0), np.int64(-1)
    for side in range(4):
        least, greatest = row[first, side], row[first, side]
        for i in range(first + 1, last):
            least, greatest = min(least, row[i, side]), max(greatest, row[i, side])
        width = (np.int64(greatest) - np.int64(least)) << np.int64(side & 1)
        if width > most:
            widest, most = np.int64(side), width
    return widest


@kernel
def cut_rows(row: NDArray[np.int32], shape: NDArray[np.int64], block: Number) -> None:
    """Reorder rows (four sides first) as the parts of a pyramid want them."""
    waiting = np.empty((CUTS, 3), np.int64)
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, len(row), 62
    count = 1
    while count > 0:
        count -= 1
        first, last, bits = waiting[count, 0], waiting[count, 1], waiting[count, 2]
        if last - first <= (np.int64(1) << bits):
            if last - first <= block:
                continue
            bits = shape[0, part_row(shape, block, last - first)]
        middle = first + (((parts_of(last - first, bits) + 1) >> 1) << bits)
        select_rows(row, first, last, middle, widest_side(row, first, last))
        waiting[count, 0], waiting[count, 1], waiting[count, 2] = middle, last, bits
        waiting[count + 1, 0], waiting[count + 1, 1], waiting[count + 1, 2] = first, middle, bits
        count += 2
