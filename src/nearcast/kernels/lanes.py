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

from nearcast.kernels.compile import JIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LINE_BITS = 512
"""The bits of a cache line."""

LANES = 16
"""How many boxes a block of int32 has."""

HALF_LANES = 32
"""How many boxes a block of int16 has."""


def _touching_boxes(typing_context: Any, flat: Any, position: Any, stride: Any, window: Any) -> Any:
    """Return a bit for each of the boxes at a position of int32[n] that touch the window.

    The sides of a box are ``stride`` apart. The window is int32[4]: west, south, east and north.
    Both may be int16 instead.
    """
    signature = types.uint64(flat, types.int64, types.int64, window)
    bits = flat.dtype.bitwidth
    count = LINE_BITS // bits

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.np import arrayobj

        i32, lanes = ir.IntType(32), ir.VectorType(ir.IntType(bits), count)
        sides = arrayobj.make_array(sig.args[0])(context, builder, arguments[0]).data
        wanted = arrayobj.make_array(sig.args[3])(context, builder, arguments[3]).data
        anywhere = ir.Constant(lanes, ir.Undefined)
        first = ir.Constant(ir.VectorType(i32, count), [0] * count)
        touches = None
        # A box touches the window if its west side lies west of the window's east side, and so on.
        for side, (other, operator) in enumerate([(2, "<="), (3, "<="), (0, ">="), (1, ">=")]):
            further = builder.mul(arguments[2], ir.Constant(arguments[2].type, side))
            offset = builder.add(arguments[1], further)
            line = builder.bitcast(builder.gep(sides, [offset]), lanes.as_pointer())
            bound = builder.load(builder.gep(wanted, [i32(other)]), align=bits // 8)
            single = builder.insert_element(anywhere, bound, i32(0))
            spread = builder.shuffle_vector(single, anywhere, first)
            fits = builder.icmp_signed(operator, builder.load(line, align=bits // 8), spread)
            touches = fits if touches is None else builder.and_(touches, fits)
        return builder.zext(builder.bitcast(touches, ir.IntType(count)), ir.IntType(64))

    return signature, generate


def _interpreted(flat: NDArray[Any], position: Any, stride: Any, window: NDArray[Any]) -> np.uint64:
    """Do the same in NumPy."""
    count = LINE_BITS // (8 * flat.itemsize)
    west, south, east, north = (
        flat[position + side * stride : position + side * stride + count] for side in range(4)
    )
    touches = (west <= window[2]) & (south <= window[3]) & (east >= window[0])
    touches &= north >= window[1]
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(touches)))


touching_boxes: Callable[[Any, Any, Any, Any], Any] = (
    intrinsic(_touching_boxes) if JIT else _interpreted
)
