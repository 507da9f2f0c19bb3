"""The shape of a pyramid of boxes, and where its blocks stand.

A pyramid holds entries with boxes, near ones side by side. Up to `BLOCK` of them are a leaf. More
are cut into that many parts at most, all of one size but for the last, and each part is a pyramid
again: a block of the boxes around the parts comes first, then part behind part. So position and
number of entries are all that is needed to go down, and one vector comparison
(`nearcast.compiled.simd_boxes`) tells which parts of a block touch a message.

Pyramids stand in a pool of 8-byte words, with the *upper halves* of boxes, what a shift by 16 bits
leaves of a coordinate, as int16, by side:

- A leaf of ``n`` entries has ``2 n`` words: the upper halves of their boxes, then a word an entry
  that is the owner's. Where boxes are exactly, the owner knows.
- A block of ``k`` boxes around parts has ``k`` words, and is filled up to a cache line.

A quantum is 0.0066 degrees. A box that touches a message does so when both are rounded, and if they
then share more than a side, it touches surely.

The sizes that parts may have are powers of two; the logarithms of them and the words that a part
of each takes are a table that an index keeps, ``shape`` int64[2, sizes].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 32
"""How many boxes a block has at most; one vector comparison takes so many."""

LEAF_WORDS = 2
"""Words of an entry in a leaf."""

LINE_WORDS = 8
"""Words of a cache line."""

PLACE_BITS = 36
"""Bits for the position of a pyramid in the pool, beside those for its number of entries."""

_PLACE = np.uint64((1 << PLACE_BITS) - 1)

HALF = np.int64(16)


@kernel
def pack_pyramid(position: Number, size: Number) -> Number:
    """Return a word that says where a pyramid stands and how many entries it has."""
    return np.uint64(position) | (np.uint64(size) << np.uint64(PLACE_BITS))


@kernel
def position_of(pyramid: Number) -> Number:
    """Return where a pyramid stands, in words."""
    return np.int64(pyramid & _PLACE)


@kernel
def size_of(pyramid: Number) -> Number:
    """Return how many entries a pyramid has."""
    return np.int64(pyramid >> np.uint64(PLACE_BITS))


@kernel
def head_words(parts: Number) -> Number:
    """Return the words that the boxes around so many parts take."""
    return (parts + (LINE_WORDS - 1)) & ~np.int64(LINE_WORDS - 1)


@kernel
def part_row(shape: NDArray[np.int64], block: Number, size: Number) -> Number:
    """Return the row of the smallest parts of which a block is enough for so many entries."""
    row = np.int64(0)
    while (block << shape[0, row]) < size:
        row += 1
    return row


@kernel
def parts_of(size: Number, bits: Number) -> Number:
    """Return how many parts of ``2**bits`` entries there are."""
    return (size + (np.int64(1) << bits) - 1) >> bits


@kernel
def pyramid_words(shape: NDArray[np.int64], block: Number, size: Number) -> Number:
    """Return the words that a pyramid of so many entries takes."""
    words = np.int64(0)
    while size > block:
        row = part_row(shape, block, size)
        full = size >> shape[0, row]
        words += head_words(parts_of(size, shape[0, row])) + full * shape[1, row]
        size -= full << shape[0, row]
    return words + LEAF_WORDS * size


@kernel
def fill_words(shape: NDArray[np.int64], block: Number) -> None:
    """Write the words that a full part of each size takes, smallest first."""
    for row in range(shape.shape[1]):
        shape[1, row] = pyramid_words(shape, block, np.int64(1) << shape[0, row])
