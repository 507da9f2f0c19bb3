"""Roughly where the clauses of a list are: 128 bits, one for each cell of a pattern.

The world is a grid; a pattern of 16 by 8 cells is repeated all over it. A list has the bits of
all cells that its boxes touch, a message those of the cells that it touches itself. Where they have
none in common, the list need not be read: most lists of rare tokens are elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS, ROWS = 16, 8
"""The pattern; half of its rows are one word."""

FINEST = 7
"""Cells are not smaller than 360 / 2**7 degrees, so that messages with boxes touch few."""


@kernel
def column_bits(west: Number, east: Number, shift: Number) -> Number:
    """Return a bit for each column of the pattern that a box touches."""
    first, last = np.int64(west) >> shift, np.int64(east) >> shift
    if last - first >= COLUMNS - 1:
        return np.uint64(0xFFFF)
    bits = ((np.uint64(1) << np.uint64(last - first + 1)) - np.uint64(1)) << np.uint64(first & 15)
    return (bits | (bits >> np.uint64(COLUMNS))) & np.uint64(0xFFFF)


@kernel
def touched_places(
    west: Number, south: Number, east: Number, north: Number, level: Number
) -> tuple[Number, Number]:
    """Return the two words of cells that a box touches in a grid of 2**level columns."""
    shift = np.int64(32) - np.int64(level)
    columns = column_bits(west, east, shift)
    # Rows are as many as columns, in half the degrees.
    first, last = np.int64(south) >> (shift - 1), np.int64(north) >> (shift - 1)
    low, high = np.uint64(0), np.uint64(0)
    for row in range(first, min(last, first + ROWS - 1) + 1):
        bits = columns << np.uint64((row & 3) << 4)
        if row & 4:
            high |= bits
        else:
            low |= bits
    return low, high


@kernel
def place_level(box: NDArray[np.int32]) -> Number:
    """Return the level of the grid whose cells are about as large as boxes are on average."""
    total = np.float64(0)
    for i in range(len(box)):
        total += max(
            np.float64(box[i, 2]) - np.float64(box[i, 0]),
            2 * (np.float64(box[i, 3]) - np.float64(box[i, 1])),
        )
    mean = total / max(1, len(box))
    level = np.int64(FINEST)
    while level > 3 and np.float64(np.int64(1) << (np.int64(32) - level)) < mean:
        level -= 1
    return level
