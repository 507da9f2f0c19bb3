"""Compare sixteen points, or sixteen signatures, at a time by SIMD instructions.

Lists of messages store the longitudes of their points next to each other, then the latitudes; lists
of clauses store signatures next to each other. Sixteen numbers are always read: the array must go
on behind a shorter list, and the caller masks the bits of missing items.

Used by the moving indexes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import instruction
from nearcast.compiled.simd_boxes import LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "LANES",
    "covered_signatures",
    "crossing_points",
    "equal_numbers",
    "points_inside",
    "with_bits",
]


def _load(builder: Any, flat: Any, position: Any) -> Any:
    """Generate code that loads sixteen numbers."""
    from llvmlite import ir

    vector = ir.VectorType(ir.IntType(32), LANES)
    address = builder.gep(flat, [position])
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=4)


def _broadcast(builder: Any, number: Any) -> Any:
    """Generate code for a vector that has one number in all lanes."""
    from llvmlite import ir

    vector, i32 = ir.VectorType(ir.IntType(32), LANES), ir.IntType(32)
    undefined = ir.Constant(vector, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(i32, LANES), [0] * LANES)
    single = builder.insert_element(undefined, number, i32(0))
    return builder.shuffle_vector(single, undefined, zeros)


def _as_mask(builder: Any, lanes: Any) -> Any:
    from llvmlite import ir

    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), ir.IntType(64))


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    from numba.np import arrayobj

    return arrayobj.make_array(kind)(context, builder, array).data


def _crossing_points(
    typing_context: Any, flat: Any, position: Any, stride: Any, before: Any, after: Any
) -> Any:
    """Return which of sixteen points are in one of two boxes only.

    ``flat`` int32[n]; the longitudes start at the position, the latitudes are ``stride`` further.
    ``before`` and ``after`` int32[4]: west, south, east and north. The lower 16 bits of the result
    are points that only the box ``after`` has, the next 16 those that only ``before`` has.
    """
    from numba.core import types

    signature = types.uint64(flat, types.int64, types.int64, before, after)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        points = _data(context, builder, sig.args[0], arguments[0])
        x = _load(builder, points, arguments[1])
        y = _load(builder, points, builder.add(arguments[1], arguments[2]))
        masks = []
        for which in (3, 4):
            box = _data(context, builder, sig.args[which], arguments[which])
            inside = None
            for side, (values, sign) in enumerate([(x, ">="), (y, ">="), (x, "<="), (y, "<=")]):
                bound = builder.load(builder.gep(box, [ir.IntType(32)(side)]), align=4)
                fits = builder.icmp_signed(sign, values, _broadcast(builder, bound))
                inside = fits if inside is None else builder.and_(inside, fits)
            masks.append(_as_mask(builder, inside))
        only_after = builder.and_(masks[1], builder.not_(masks[0]))
        only_before = builder.and_(masks[0], builder.not_(masks[1]))
        upper = builder.shl(only_before, ir.Constant(ir.IntType(64), LANES))
        return builder.or_(only_after, upper)

    return signature, generate


def _interpreted_crossing(
    flat: NDArray[Any], position: Any, stride: Any, before: NDArray[Any], after: NDArray[Any]
) -> np.uint64:
    """Do the same with NumPy."""
    x, y = (flat[start : start + LANES] for start in (position, position + stride))
    old, new = (
        (x >= box[0]) & (y >= box[1]) & (x <= box[2]) & (y <= box[3]) for box in (before, after)
    )
    return _bits(new & ~old) | (_bits(old & ~new) << np.uint64(LANES))


def _covered_signatures(typing_context: Any, flat: Any, position: Any, signature: Any) -> Any:
    """Return which of sixteen signatures have no bit that a signature lacks."""
    from numba.core import types

    types_of = types.uint64(flat, types.int64, types.int32)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        wanted = _load(builder, _data(context, builder, sig.args[0], arguments[0]), arguments[1])
        lacking = builder.and_(wanted, _broadcast(builder, builder.not_(arguments[2])))
        nothing = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return _as_mask(builder, builder.icmp_signed("==", lacking, nothing))

    return types_of, generate


def _interpreted_covered(flat: NDArray[Any], position: Any, signature: Any) -> np.uint64:
    """Do the same with NumPy."""
    return _bits((flat[position : position + LANES] & ~np.int32(signature)) == 0)


def _equal_numbers(typing_context: Any, flat: Any, position: Any, number: Any) -> Any:
    """Return which of sixteen numbers are equal to one."""
    from numba.core import types

    types_of = types.uint64(flat, types.int64, types.int32)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        numbers = _load(builder, _data(context, builder, sig.args[0], arguments[0]), arguments[1])
        return _as_mask(
            builder, builder.icmp_signed("==", numbers, _broadcast(builder, arguments[2]))
        )

    return types_of, generate


def _interpreted_equal(flat: NDArray[Any], position: Any, number: Any) -> np.uint64:
    """Do the same with NumPy."""
    return _bits(flat[position : position + LANES] == number)


def _points_inside(typing_context: Any, flat: Any, position: Any, stride: Any, box: Any) -> Any:
    """Return a bit for each of sixteen points that lies in a box, borders included.

    ``flat`` int32[n] has the x of the points from ``position`` on, and their y ``stride`` further.
    ``box`` int32[4]: west, south, east and north; no point lies in a box whose west is above its
    east.
    """
    from numba.core import types

    signature = types.uint64(flat, types.int64, types.int64, box)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        values = _data(context, builder, sig.args[0], arguments[0])
        sides = _data(context, builder, sig.args[3], arguments[3])
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
    from numba.core import types

    signature = types.uint64(flat, types.int64, types.int32)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        values = _data(context, builder, sig.args[0], arguments[0])
        bits = _broadcast(builder, arguments[2])
        lanes = builder.and_(_load(builder, values, arguments[1]), bits)
        return _as_mask(builder, builder.icmp_signed("==", lanes, bits))

    return signature, generate


def _interpreted_inside(
    flat: NDArray[np.int32], position: Any, stride: Any, box: NDArray[np.int32]
) -> np.uint64:
    x = flat[position : position + LANES]
    y = flat[position + stride : position + stride + LANES]
    return _bits((x >= box[0]) & (y >= box[1]) & (x <= box[2]) & (y <= box[3]))


def _interpreted_bits(flat: NDArray[np.int32], position: Any, wanted: Any) -> np.uint64:
    return _bits((flat[position : position + LANES] & wanted) == wanted)


def _bits(lanes: NDArray[np.bool_]) -> np.uint64:
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(lanes)))


crossing_points: Callable[[Any, Any, Any, Any, Any], Any] = instruction(
    _crossing_points, _interpreted_crossing
)
covered_signatures: Callable[[Any, Any, Any], Any] = instruction(
    _covered_signatures, _interpreted_covered
)
equal_numbers: Callable[[Any, Any, Any], Any] = instruction(_equal_numbers, _interpreted_equal)
points_inside: Callable[[Any, Any, Any, Any], Any] = instruction(
    _points_inside, _interpreted_inside
)
with_bits: Callable[[Any, Any, Any], Any] = instruction(_with_bits, _interpreted_bits)
