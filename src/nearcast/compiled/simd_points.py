"""Compare sixteen points of a list with a box, or sixteen signatures with a signature, at once.

A list stores coordinates and signatures column by column, so that sixteen values of int32 fill a
vector register. A block is always read as if it were full: the array must go on behind a shorter
one, and the caller masks the bits of missing points.

Used by the ap+-trees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nearcast.compiled.jit import JIT
from nearcast.compiled.simd_boxes import LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["LANES", "points_inside", "with_bits"]


def _load(builder: Any, flat: Any, position: Any) -> Any:
    from llvmlite import ir

    vector = ir.VectorType(ir.IntType(32), LANES)
    address = builder.gep(flat, [position])
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=4)


def _broadcast(builder: Any, value: Any) -> Any:
    from llvmlite import ir

    i32 = ir.IntType(32)
    vector = ir.VectorType(i32, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(undefined, value, i32(0))
    zeros = ir.Constant(ir.VectorType(i32, LANES), [0] * LANES)
    return builder.shuffle_vector(single, undefined, zeros)


def _as_mask(builder: Any, lanes: Any) -> Any:
    from llvmlite import ir

    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), ir.IntType(64))


def _points_inside(typing_context: Any, flat: Any, position: Any, stride: Any, box: Any) -> Any:
    """Return a bit for each of sixteen points that lies in a box, borders included.

    ``flat`` int32[n] has the x of the points from ``position`` on, and their y ``stride`` further.
    ``box`` int32[4]: west, south, east and north; no point lies in a box whose west is above its
    east.
    """
    signature = types.uint64(flat, types.int64, types.int64, box)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.np import arrayobj

        values = arrayobj.make_array(sig.args[0])(context, builder, arguments[0]).data
        sides = arrayobj.make_array(sig.args[3])(context, builder, arguments[3]).data
        i32 = ir.IntType(32)
        inside = None
        for axis in range(2):
            place = arguments[1] if axis == 0 else builder.add(arguments[1], arguments[2])
            lanes = _load(builder, values, place)
            for side, operator in ((axis, ">="), (axis + 2, "<=")):
                bound = builder.load(builder.gep(sides, [i32(side)]), align=4)
                fits = builder.icmp_signed(operator, lanes, _broadcast(builder, bound))
                inside = fits if inside is None else builder.and_(inside, fits)
        return _as_mask(builder, inside)

    return signature, generate


def _with_bits(typing_context: Any, flat: Any, position: Any, wanted: Any) -> Any:
    """Return a bit for each of sixteen values that has all bits of an int32."""
    signature = types.uint64(flat, types.int64, types.int32)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from numba.np import arrayobj

        values = arrayobj.make_array(sig.args[0])(context, builder, arguments[0]).data
        bits = _broadcast(builder, arguments[2])
        lanes = builder.and_(_load(builder, values, arguments[1]), bits)
        return _as_mask(builder, builder.icmp_signed("==", lanes, bits))

    return signature, generate


def _mask(lanes: NDArray[np.bool_]) -> np.uint64:
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(lanes)))


def _interpreted_inside(
    flat: NDArray[np.int32], position: Any, stride: Any, box: NDArray[np.int32]
) -> np.uint64:
    x = flat[position : position + LANES]
    y = flat[position + stride : position + stride + LANES]
    return _mask((x >= box[0]) & (y >= box[1]) & (x <= box[2]) & (y <= box[3]))


def _interpreted_bits(flat: NDArray[np.int32], position: Any, wanted: Any) -> np.uint64:
    return _mask((flat[position : position + LANES] & wanted) == wanted)


points_inside: Callable[[Any, Any, Any, Any], Any] = (
    intrinsic(_points_inside) if JIT else _interpreted_inside
)
with_bits: Callable[[Any, Any, Any], Any] = intrinsic(_with_bits) if JIT else _interpreted_bits
