"""Sixteen entries of a leaf at once: their boxes and signatures against a message.

The fields of a leaf's entries lie side by side (`nearcast.kernels.ap_tree`), so that one field of
sixteen entries is a vector register. A leaf of fewer is read as if it had sixteen: the caller
drops the bits of entries that it has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nearcast.kernels.compile import JIT
from nearcast.kernels.lanes import LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

WINDOW = 7
"""Numbers of a window: the message's east, north, west and south; the least west and south of an
entry that is reported here; and the signature bits that the message has not."""

_TESTS = [(0, 0, "<="), (1, 1, "<="), (2, 2, ">="), (3, 3, ">="), (0, 4, ">="), (1, 5, ">=")]
"""A field of entries, a number of the window, and how they must compare."""


def _fitting_entries(typing_context: Any, flat: Any, place: Any, room: Any, window: Any) -> Any:
    """Return a bit for each of the entries at a place of int32[n] that fit the window, int32[7].

    The fields of an entry are ``room`` apart.
    """
    signature = types.uint64(flat, types.int64, types.int64, window)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.np import arrayobj

        i32, lanes = ir.IntType(32), ir.VectorType(ir.IntType(32), LANES)
        fields = arrayobj.make_array(sig.args[0])(context, builder, arguments[0]).data
        wanted = arrayobj.make_array(sig.args[3])(context, builder, arguments[3]).data
        anywhere = ir.Constant(lanes, ir.Undefined)
        first = ir.Constant(lanes, [0] * LANES)

        def field(number: int) -> Any:
            further = builder.mul(arguments[2], ir.Constant(arguments[2].type, number))
            pointer = builder.gep(fields, [builder.add(arguments[1], further)])
            return builder.load(builder.bitcast(pointer, lanes.as_pointer()), align=4)

        def number(position: int) -> Any:
            value = builder.load(builder.gep(wanted, [i32(position)]), align=4)
            single = builder.insert_element(anywhere, value, i32(0))
            return builder.shuffle_vector(single, anywhere, first)

        missing = builder.and_(field(4), number(6))
        fits = builder.icmp_signed("==", missing, ir.Constant(lanes, [0] * LANES))
        loaded = [field(side) for side in range(4)]
        for side, position, operator in _TESTS:
            fits = builder.and_(
                fits, builder.icmp_signed(operator, loaded[side], number(position))
            )
        return builder.zext(builder.bitcast(fits, ir.IntType(LANES)), ir.IntType(64))

    return signature, generate


def _interpreted(
    flat: NDArray[np.int32], place: Any, room: Any, window: NDArray[np.int32]
) -> np.uint64:
    """Do the same in NumPy."""
    west, south, east, north, signature = (
        flat[place + field * room : place + field * room + LANES] for field in range(5)
    )
    fits = (west <= window[0]) & (south <= window[1]) & (east >= window[2]) & (north >= window[3])
    fits &= (west >= window[4]) & (south >= window[5]) & (signature & window[6] == 0)
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(fits)))


fitting_entries: Callable[[Any, Any, Any, Any], Any] = (
    intrinsic(_fitting_entries) if JIT else _interpreted
)
