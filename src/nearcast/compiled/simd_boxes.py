"""Many boxes at once: a block has their west sides side by side, then south, east and north.

One side of sixteen boxes of 32 bits, or of thirty-two of 16 bits, is a cache line and a vector
register; comparing them costs what comparing one does. A block of fewer boxes is read as if it were
full: what stands behind it must be memory of the same array, and the caller drops the bits of
boxes that it has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nearcast.compiled.jit import JIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LINE_BITS = 512
"""The bits of a cache line."""

LANES = 16
"""How many boxes a block of int32 has."""

HALF_LANES = 32
"""How many boxes a block of int16 has."""


_CONDITIONS = [(2, "<"), (3, "<"), (0, ">"), (1, ">")]
"""A box touches a window if its west side lies west of the window's east side, and so on."""


def _compare(builder: Any, flat: Any, place: tuple[Any, Any], window: Any, bits: int) -> list[Any]:
    """Return two masks: which boxes touch the window, and which share more than a side with it."""
    from llvmlite import ir

    count, i32 = LINE_BITS // bits, ir.IntType(32)
    lanes = ir.VectorType(ir.IntType(bits), count)
    anywhere = ir.Constant(lanes, ir.Undefined)
    first = ir.Constant(ir.VectorType(i32, count), [0] * count)
    masks: list[Any] = []
    for side, (other, operator) in enumerate(_CONDITIONS):
        further = builder.mul(place[1], ir.Constant(place[1].type, side))
        address = builder.gep(flat, [builder.add(place[0], further)])
        sides = builder.load(builder.bitcast(address, lanes.as_pointer()), align=bits // 8)
        bound = builder.load(builder.gep(window, [i32(other)]), align=bits // 8)
        single = builder.insert_element(anywhere, bound, i32(0))
        spread = builder.shuffle_vector(single, anywhere, first)
        fits = [builder.icmp_signed(sign, sides, spread) for sign in (operator + "=", operator)]
        masks = [builder.and_(*pair) for pair in zip(masks, fits, strict=True)] if masks else fits
    return [builder.zext(builder.bitcast(m, ir.IntType(count)), ir.IntType(64)) for m in masks]


def _touching_boxes(typing_context: Any, flat: Any, position: Any, stride: Any, window: Any) -> Any:
    """Return a bit for each of the boxes at a position of int32[n] that touch the window.

    The sides of a box are ``stride`` apart. The window is int32[4]: west, south, east and north.
    Both may be int16 instead; then there is a second bit, in the upper half of the answer, for a
    box that shares more than a side with the window: what touches when rounded, and what surely.
    """
    signature = types.uint64(flat, types.int64, types.int64, window)
    bits = flat.dtype.bitwidth

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.np import arrayobj

        sides = arrayobj.make_array(sig.args[0])(context, builder, arguments[0]).data
        wanted = arrayobj.make_array(sig.args[3])(context, builder, arguments[3]).data
        place = (arguments[1], arguments[2])
        touches, shares = _compare(builder, sides, place, wanted, bits)
        if bits == LINE_BITS // LANES:
            return touches
        upper = builder.shl(shares, ir.Constant(ir.IntType(64), HALF_LANES))
        return builder.or_(touches, upper)

    return signature, generate


def _interpreted(flat: NDArray[Any], position: Any, stride: Any, window: NDArray[Any]) -> np.uint64:
    """Do the same in NumPy."""
    count = LINE_BITS // (8 * flat.itemsize)
    west, south, east, north = (
        flat[position + side * stride : position + side * stride + count] for side in range(4)
    )
    touches = (west <= window[2]) & (south <= window[3]) & (east >= window[0])
    touches &= north >= window[1]
    if count == LANES:
        return _mask(touches)
    shares = (west < window[2]) & (south < window[3]) & (east > window[0]) & (north > window[1])
    return _mask(touches) | (_mask(shares) << np.uint64(HALF_LANES))


def _mask(lanes: NDArray[np.bool_]) -> np.uint64:
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(lanes)))


touching_boxes: Callable[[Any, Any, Any, Any], Any] = (
    intrinsic(_touching_boxes) if JIT else _interpreted
)
