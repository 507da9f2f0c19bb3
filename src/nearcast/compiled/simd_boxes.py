"""Compare a block of boxes with a window by SIMD instructions.

A block stores the west sides of its boxes next to each other, then south, east and north. One side
of 16 boxes of int32, or of 32 boxes of int16, fills a cache line and a vector register, so that
comparing all of them costs as much as comparing one. A block is always read as if it were full:
the array must go on behind a shorter block, and the caller masks the bits of missing boxes.

Used by ap_tree, keyword_first, mbr_trie and quadtrees (int32), and by pyramids (int16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import instruction

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LINE_BITS = 512
"""Bits of a cache line."""

LANES = 16
"""Boxes in a block of int32."""

INT16_LANES = 32
"""Boxes in a block of int16."""

_CONDITIONS = [(2, "<"), (3, "<"), (0, ">"), (1, ">")]
"""A box overlaps a window if its west side is west of the window's east side, and so on."""


def _compare(builder: Any, flat: Any, place: tuple[Any, Any], window: Any, bits: int) -> list[Any]:
    """Return two masks: boxes that overlap the window, and boxes that share more than a side."""
    from llvmlite import ir

    count, i32 = LINE_BITS // bits, ir.IntType(32)
    vector = ir.VectorType(ir.IntType(bits), count)
    undefined = ir.Constant(vector, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(i32, count), [0] * count)
    masks: list[Any] = []
    for side, (other, operator) in enumerate(_CONDITIONS):
        offset = builder.mul(place[1], ir.Constant(place[1].type, side))
        address = builder.gep(flat, [builder.add(place[0], offset)])
        sides = builder.load(builder.bitcast(address, vector.as_pointer()), align=bits // 8)
        bound = builder.load(builder.gep(window, [i32(other)]), align=bits // 8)
        single = builder.insert_element(undefined, bound, i32(0))
        broadcast = builder.shuffle_vector(single, undefined, zeros)
        fits = [builder.icmp_signed(sign, sides, broadcast) for sign in (operator + "=", operator)]
        masks = [builder.and_(*pair) for pair in zip(masks, fits, strict=True)] if masks else fits
    return [builder.zext(builder.bitcast(m, ir.IntType(count)), ir.IntType(64)) for m in masks]


def _touching_boxes(typing_context: Any, flat: Any, position: Any, stride: Any, window: Any) -> Any:
    """Return a bit for each box of the block at a position of ``flat`` that overlaps the window.

    ``flat`` int32[n]; the sides of a box are ``stride`` apart. ``window`` int32[4]: west, south,
    east and north. If both are int16, the upper 32 bits of the result tell which boxes share more
    than a side with the window: of rounded boxes, those whose exact boxes certainly overlap.
    """
    from numba.core import types

    signature = types.uint64(flat, types.int64, types.int64, window)
    bits = flat.dtype.bitwidth

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.np import arrayobj

        sides = arrayobj.make_array(sig.args[0])(context, builder, arguments[0]).data
        bounds = arrayobj.make_array(sig.args[3])(context, builder, arguments[3]).data
        place = (arguments[1], arguments[2])
        overlaps, shares = _compare(builder, sides, place, bounds, bits)
        if bits == LINE_BITS // LANES:
            return overlaps
        upper = builder.shl(shares, ir.Constant(ir.IntType(64), INT16_LANES))
        return builder.or_(overlaps, upper)

    return signature, generate


def _interpreted(flat: NDArray[Any], position: Any, stride: Any, window: NDArray[Any]) -> np.uint64:
    """Do the same with NumPy."""
    count = LINE_BITS // (8 * flat.itemsize)
    west, south, east, north = (
        flat[position + side * stride : position + side * stride + count] for side in range(4)
    )
    overlaps = (west <= window[2]) & (south <= window[3]) & (east >= window[0])
    overlaps &= north >= window[1]
    if count == LANES:
        return _mask(overlaps)
    shares = (west < window[2]) & (south < window[3]) & (east > window[0]) & (north > window[1])
    return _mask(overlaps) | (_mask(shares) << np.uint64(INT16_LANES))


def _mask(lanes: NDArray[np.bool_]) -> np.uint64:
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(lanes)))


touching_boxes: Callable[[Any, Any, Any, Any], Any] = instruction(_touching_boxes, _interpreted)
