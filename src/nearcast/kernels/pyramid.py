"""Grid coordinates, levels and cells of a pyramid of grids, and boxes packed into one word.

Grid coordinates are the int32 units moved to 0 .. 2**32: x is the longitude, y twice the latitude,
so that the world fills a square and a cell is twice as wide (in degrees) as high. Level ``l`` of
the pyramid has ``2**l`` cells a side. A box belongs to the deepest level whose cells are not
smaller than the box, and touches at most two by two of them there.

Inside a *frame* (a cell, or the bounds of a short list) a box is packed into one 64-bit word of
four 15-bit lanes: west, south, and the complements of east and north, counted in quanta of the
frame, 1 .. 16,384; 0 says that the box goes on beyond that side of the frame. With a message packed
the other way round, one subtraction compares all four sides: `TOP` stays set in every lane where
they may touch, and where no lane is equal, they surely do.
"""

from __future__ import annotations

import numpy as np

from nearcast.kernels.compile import Number, kernel

LEVELS = 19
"""Levels 0 to 18; a cell of the last one is 0.0016 degrees (180 m at the equator) wide."""

QUANTA_BITS = 14
FAR = np.int64(0x7FFF)
TOP = np.uint64(0x8000800080008000)
ONES = np.uint64(0x0001000100010001)


@kernel
def grid_x(longitude: Number) -> Number:
    """Return the grid coordinate of a longitude in units."""
    return np.int64(longitude) + np.int64(1 << 31)


@kernel
def grid_y(latitude: Number) -> Number:
    """Return the grid coordinate of a latitude in units."""
    return (np.int64(latitude) + np.int64(1 << 30)) << np.int64(1)


@kernel
def level_of(width: Number, height: Number) -> Number:
    """Return the deepest level whose cells are not smaller than a box of this size."""
    size = max(width, height)
    level = np.int64(LEVELS - 1)
    while level > 0 and (np.int64(1) << (np.int64(32) - level)) < size:
        level -= 1
    return level


@kernel
def cell_code(level: Number, column: Number, row: Number) -> Number:
    """Return the number of a cell among those of all levels: a one, then row and column."""
    return (np.int64(1) << (2 * level)) | (row << level) | column


@kernel
def cell_key(node: Number, code: Number) -> Number:
    """Return a key that tells the cells of all nodes apart (27 bits of node, 37 of code)."""
    return (np.uint64(node) << np.uint64(37)) | np.uint64(code)


@kernel
def frame_shift(extent: Number) -> Number:
    """Return the shift that brings an extent below 2**14 quanta."""
    shift = np.int64(0)
    while (extent >> shift) >= (1 << QUANTA_BITS):
        shift += 1
    return shift


@kernel
def quantum(coordinate: Number, origin: Number, shift: Number) -> Number:
    """Return the quantum of a coordinate in a frame: 0 below it, `FAR` above it."""
    if coordinate < origin:
        return np.int64(0)
    offset = (coordinate - origin) >> shift
    if offset >= (1 << QUANTA_BITS):
        return FAR
    return offset + 1


@kernel
def pack(first: Number, second: Number, third: Number, fourth: Number) -> Number:
    """Put four lanes into one word."""
    return np.uint64(first | (second << 16) | (third << 32)) | (np.uint64(fourth) << np.uint64(48))


@kernel
def pack_box(
    x0: Number,
    y0: Number,
    x1: Number,
    y1: Number,
    origin_x: Number,
    origin_y: Number,
    shift: Number,
) -> Number:
    """Pack the box of an entry in a frame."""
    return pack(
        quantum(x0, origin_x, shift),
        quantum(y0, origin_y, shift),
        FAR - quantum(x1, origin_x, shift),
        FAR - quantum(y1, origin_y, shift),
    )


@kernel
def pack_probe(
    x0: Number,
    y0: Number,
    x1: Number,
    y1: Number,
    origin_x: Number,
    origin_y: Number,
    shift: Number,
) -> Number:
    """Pack the box of a message in a frame, `TOP` set, so that ``probe - box`` compares them."""
    return TOP | pack(
        quantum(x1, origin_x, shift),
        quantum(y1, origin_y, shift),
        FAR - quantum(x0, origin_x, shift),
        FAR - quantum(y0, origin_y, shift),
    )
