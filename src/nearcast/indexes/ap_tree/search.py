"""Binary search without branches: where half of these would be foreseen wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nearcast.compiled.jit import JIT, Number, inlined_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def _choose(typing_context: Any, condition: Any, this: Any, other: Any) -> Any:
    """Return ``this`` where a condition holds, or else ``other``, without a branch."""
    signature = types.int64(types.boolean, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        bit = builder.trunc(arguments[0], ir.IntType(1))
        chosen = builder.select(bit, arguments[1], arguments[2])
        # Without this mark, the compiler may think better of it and make a branch again.
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return signature, generate


choose: Callable[[Any, Any, Any], Any] = (
    intrinsic(_choose) if JIT else lambda condition, this, other: this if condition else other
)


@inlined_kernel
def first_not_below(
    numbers: NDArray[np.int32], begin: Number, end: Number, wanted: Number
) -> Number:
    """Return the first position of ascending numbers that is not below a wanted one.

    What stands at the end is read, and may be anything.
    """
    low, count = np.int64(begin), np.int64(end - begin)
    while count > 1:
        half = count >> 1
        # A position that may be below 0 would be looked at twice.
        low = choose(numbers[np.uint64(low + half - 1)] < wanted, low + half, low)
        count -= half
    return choose((count > 0) & (numbers[np.uint64(low)] < wanted), low + 1, low)
