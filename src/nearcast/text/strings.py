"""Strings by row: gathered from a column that is larger than any cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import borrow, kernel, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["copy_strings", "measure_strings"]

_AHEAD = 16


@kernel
def measure_strings(
    start: NDArray[np.int32],
    row: NDArray[np.int32],
    begin: NDArray[np.int32],
    out_start: NDArray[np.int64],
) -> None:
    """Tell where the strings of some rows begin, and where they will begin one after the other.

    ``start`` int32[strings + 1] are the offsets of the column, ``row`` int32[rows] the chosen ones;
    ``begin`` int32[rows] and ``out_start`` int64[rows + 1] are filled.
    """
    offset, chosen = borrow(start), borrow(row)
    count = len(chosen)
    total = np.int64(0)
    out_start[0] = 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(offset, chosen[i + _AHEAD])
        at = chosen[i]
        begin[i] = offset[at]
        total += offset[at + 1] - offset[at]
        out_start[i + 1] = total


@kernel
def copy_strings(
    byte: NDArray[np.uint8],
    begin: NDArray[np.int32],
    out_start: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy the strings that `measure_strings` has measured; ``out`` uint8[bytes] is filled."""
    source, at = borrow(byte), borrow(begin)
    count = len(at)
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(source, at[i + _AHEAD])
        first, last = out_start[i], out_start[i + 1]
        shift = at[i] - first
        for j in range(first, last):
            out[j] = source[j + shift]
