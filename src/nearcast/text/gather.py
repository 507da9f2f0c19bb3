"""Look up the ids of many rows in a column that is larger than any cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids, read_only
from nearcast.compiled.jit import borrow, kernel, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["gather_ids"]

_MAX_BYTES = np.iinfo(np.int32).max
_PREFETCH_DISTANCE = 16  # rows
_FEW_ROWS = 4


def gather_ids(ids: Ids, rows: NDArray[Any]) -> Ids:
    """Return the ids of these rows, in any order, as `Ids.take` does, but faster for strings.

    Examples
    --------
    >>> gather_ids(Ids.of(["a", "bc", "def"]), np.array([2, 0, 2])).tolist()
    ['def', 'a', 'def']
    """
    if len(rows) <= _FEW_ROWS or ids.text is None or ids.text.null_count:
        return ids.take(rows)
    text = _gather(ids.text, read_only(rows, np.int32))
    # Where all ids are strings, their numbers have no meaning.
    return ids.take(rows) if text is None else Ids(np.zeros(len(rows), np.int64), text)


def _gather(strings: pa.StringArray, rows: NDArray[np.int32]) -> pa.StringArray | None:
    """Return the strings of these rows, None if they are too long for one array."""
    _, offsets, content = strings.buffers()
    start = np.frombuffer(offsets, np.int32)[strings.offset :]
    byte = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    begin = np.empty(len(rows), np.int32)
    out_start = np.empty(len(rows) + 1, np.int64)
    _measure_strings(read_only(start, np.int32), rows, begin, out_start)
    if out_start[-1] > _MAX_BYTES:
        return None
    out = np.empty(out_start[-1], np.uint8)
    _copy_strings(
        read_only(byte, np.uint8), read_only(begin, np.int32), read_only(out_start, np.int64), out
    )
    offset = pa.py_buffer(out_start.astype(np.int32))
    return pa.StringArray.from_buffers(len(rows), offset, pa.py_buffer(out))


@kernel
def _measure_strings(
    start: NDArray[np.int32],
    row: NDArray[np.int32],
    begin: NDArray[np.int32],
    out_start: NDArray[np.int64],
) -> None:
    """Find the strings of some rows, and their offsets in the output.

    ``start`` int32[strings + 1] has the offsets of the column, ``row`` int32[rows] the chosen rows.
    Fills ``begin`` int32[rows], where the strings begin, and ``out_start`` int64[rows + 1].
    """
    offset, chosen = borrow(start), borrow(row)
    count = len(chosen)
    total = np.int64(0)
    out_start[0] = 0
    for i in range(count):
        if i + _PREFETCH_DISTANCE < count:
            prefetch(offset, chosen[i + _PREFETCH_DISTANCE])
        at = chosen[i]
        begin[i] = offset[at]
        total += offset[at + 1] - offset[at]
        out_start[i + 1] = total


@kernel
def _copy_strings(
    byte: NDArray[np.uint8],
    begin: NDArray[np.int32],
    out_start: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy the strings that `_measure_strings` found to ``out`` uint8[bytes]."""
    source, at = borrow(byte), borrow(begin)
    count = len(at)
    for i in range(count):
        if i + _PREFETCH_DISTANCE < count:
            prefetch(source, at[i + _PREFETCH_DISTANCE])
        first, last = out_start[i], out_start[i + 1]
        shift = at[i] - first
        for j in range(first, last):
            out[j] = source[j + shift]
