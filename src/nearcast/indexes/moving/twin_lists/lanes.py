"""SIMD comparisons of rounded places: postings, leaves of boxes, and the splits of directories.

A *window* is a box of four int16 in one word (`pack_window`), so that the compiler keeps it in a
register. An empty window has west > east and south > north: nothing touches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, instruction

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LANES = 32
"""Boxes of a full leaf, and splits that one comparison covers."""

_LOW16 = np.int64(0xFFFF)

EMPTY_WINDOW = np.int64(0x7FFF | 0x7FFF << 16 | 0x8000 << 32) | np.int64(-0x8000) << np.int64(48)
"""The window of a clause that is nowhere."""


@inlined_kernel
def pack_window(west: Number, south: Number, east: Number, north: Number) -> Number:
    """Return a window of four numbers of 16 bits as one word."""
    low = (west & _LOW16) | (south & _LOW16) << np.int64(16)
    return low | (east & _LOW16) << np.int64(32) | north << np.int64(48)


@inlined_kernel
def window_side(window: Number, side: Number) -> Number:
    """Return west (0), south, east or north (3) of a window."""
    return (window << np.int64(48 - 16 * side)) >> np.int64(48)


# --- generated code ------------------------------------------------------------------------------


def _sides(builder: Any, window: Any) -> list[Any]:
    from llvmlite import ir

    half, word = ir.IntType(16), ir.IntType(64)
    return [builder.trunc(builder.lshr(window, word(16 * i)), half) for i in range(4)]


def _spread(builder: Any, value: Any, lanes: int) -> Any:
    from llvmlite import ir

    i32 = ir.IntType(32)
    vector = ir.VectorType(ir.IntType(16), lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(undefined, value, i32(0))
    zeros = ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)
    return builder.shuffle_vector(single, undefined, zeros)


def _load(builder: Any, data: Any, position: Any, lanes: int) -> Any:
    from llvmlite import ir

    vector = ir.VectorType(ir.IntType(16), lanes)
    address = builder.bitcast(builder.gep(data, [position]), vector.as_pointer())
    return builder.load(address, align=2)


def _bits(builder: Any, lanes: Any, count: int) -> Any:
    from llvmlite import ir

    return builder.zext(builder.bitcast(lanes, ir.IntType(count)), ir.IntType(64))


def _all(builder: Any, lanes: list[Any]) -> Any:
    result = lanes[0]
    for other in lanes[1:]:
        result = builder.and_(result, other)
    return result


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    from numba.np import arrayobj

    return arrayobj.make_array(kind)(context, builder, array).data


def _changed_postings(lanes: int) -> Any:
    def changed(typing_context: Any, halves: Any, position: Any, before: Any, after: Any) -> Any:
        from numba.core import types

        signature = types.uint64(halves, types.int64, types.int64, types.int64)

        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            from llvmlite import ir

            data = _data(context, builder, sig.args[0], arguments[0])
            x = _load(builder, data, arguments[1], lanes)
            y_at = builder.add(arguments[1], ir.Constant(ir.IntType(64), lanes))
            y = _load(builder, data, y_at, lanes)
            touches, insides = [], []
            for window in arguments[2:]:
                west, south, east, north = (
                    _spread(builder, side, lanes) for side in _sides(builder, window)
                )
                pairs = [(x, west, ">"), (x, east, "<"), (y, south, ">"), (y, north, "<")]
                touches.append(
                    _all(builder, [builder.icmp_signed(o + "=", a, b) for a, b, o in pairs])
                )
                insides.append(_all(builder, [builder.icmp_signed(o, a, b) for a, b, o in pairs]))
            either, both = builder.or_(*touches), builder.and_(*insides)
            return _bits(builder, builder.and_(either, builder.not_(both)), lanes)

        return signature, generate

    return changed


def _touching_boxes(lanes: int) -> Any:
    def touching(typing_context: Any, halves: Any, position: Any, stride: Any, window: Any) -> Any:
        from numba.core import types

        signature = types.uint64(halves, types.int64, types.int64, types.int64)

        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            from llvmlite import ir

            word = ir.IntType(64)
            data = _data(context, builder, sig.args[0], arguments[0])
            bounds = _sides(builder, arguments[3])
            touches, insides = [], []
            for side, (other, sign) in enumerate([(2, "<"), (3, "<"), (0, ">"), (1, ">")]):
                at = builder.add(arguments[1], builder.mul(arguments[2], word(side)))
                sides = _load(builder, data, at, lanes)
                bound = _spread(builder, bounds[other], lanes)
                touches.append(builder.icmp_signed(sign + "=", sides, bound))
                insides.append(builder.icmp_signed(sign, sides, bound))
            low, high = (_bits(builder, _all(builder, m), lanes) for m in (touches, insides))
            return builder.or_(low, builder.shl(high, word(32)))

        return signature, generate

    return touching


def _splits_up_to(typing_context: Any, halves: Any, position: Any, value: Any) -> Any:
    from numba.core import types

    signature = types.int64(halves, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        data = _data(context, builder, sig.args[0], arguments[0])
        splits = _load(builder, data, arguments[1], LANES)
        bound = _spread(builder, builder.trunc(arguments[2], ir.IntType(16)), LANES)
        below = builder.icmp_signed("<=", splits, bound)
        return builder.ctpop(_bits(builder, below, LANES))

    return signature, generate


# --- the same with NumPy -------------------------------------------------------------------------


def _mask(lanes: NDArray[np.bool_]) -> np.uint64:
    return np.uint64(sum(1 << int(lane) for lane in np.flatnonzero(lanes)))


def _interpreted_postings(lanes: int) -> Any:
    def changed(halves: NDArray[np.int16], position: Any, before: Any, after: Any) -> np.uint64:
        x, y = halves[position : position + 2 * lanes].reshape(2, lanes)
        touches, insides = [], []
        for window in (before, after):
            west, south, east, north = (window_side(np.int64(window), i) for i in range(4))
            touches.append((x >= west) & (x <= east) & (y >= south) & (y <= north))
            insides.append((x > west) & (x < east) & (y > south) & (y < north))
        return _mask((touches[0] | touches[1]) & ~(insides[0] & insides[1]))

    return changed


def _interpreted_boxes(lanes: int) -> Any:
    def touching(halves: NDArray[np.int16], position: Any, stride: Any, window: Any) -> np.uint64:
        sides = [halves[position + i * stride : position + i * stride + lanes] for i in range(4)]
        west, south, east, north = (window_side(np.int64(window), i) for i in range(4))
        touches = (sides[0] <= east) & (sides[1] <= north) & (sides[2] >= west)
        touches &= sides[3] >= south
        insides = (sides[0] < east) & (sides[1] < north) & (sides[2] > west) & (sides[3] > south)
        return _mask(touches) | _mask(insides) << np.uint64(32)

    return touching


def _interpreted_splits(halves: NDArray[np.int16], position: Any, value: Any) -> int:
    return int(np.count_nonzero(halves[position : position + LANES] <= value))


changed_postings: Callable[[Any, Any, Any, Any], Any] = instruction(
    _changed_postings(8), _interpreted_postings(8)
)
"""``(halves, position, before, after)``: a bit for each of eight postings (x[8] y[8]) that may be
in one of two windows only: it touches one, and is not strictly inside both."""

changed_postings_4: Callable[[Any, Any, Any, Any], Any] = instruction(
    _changed_postings(4), _interpreted_postings(4)
)
"""The same for four postings (x[4] y[4])."""

touching_boxes: Callable[[Any, Any, Any, Any], Any] = instruction(
    _touching_boxes(LANES), _interpreted_boxes(LANES)
)
"""``(halves, position, stride, window)``: a bit for each of 32 boxes that touches a window; the
upper 32 bits tell which share more than a side with it: the exact boxes certainly overlap."""

touching_boxes_8: Callable[[Any, Any, Any, Any], Any] = instruction(
    _touching_boxes(8), _interpreted_boxes(8)
)
"""The same for eight boxes."""

splits_up_to: Callable[[Any, Any, Any], Any] = instruction(_splits_up_to, _interpreted_splits)
"""``(halves, position, value)``: how many of 32 splits are at most a value."""
