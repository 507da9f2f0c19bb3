"""Ids of rows all over a large set: what every match has to be given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids, read_only
from nearcast.text.strings import copy_strings, measure_strings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["gather_ids"]

_MAX_BYTES = np.iinfo(np.int32).max


def gather_ids(ids: Ids, rows: NDArray[Any]) -> Ids:
    """Return the ids of these rows, in any order; the same as `Ids.take`, and faster for text.

    Examples
    --------
    >>> gather_ids(Ids.of(["a", "bc", "def"]), np.array([2, 0, 2])).tolist()
    ['def', 'a', 'def']
    """
    if ids.text is None or ids.text.null_count or not len(rows):
        return ids.take(rows)
    text = _gather(ids.text, read_only(rows, np.int32))
    # Where all ids are text, their numbers mean nothing.
    return ids.take(rows) if text is None else Ids(np.zeros(len(rows), np.int64), text)


def _gather(strings: pa.StringArray, rows: NDArray[np.int32]) -> pa.StringArray | None:
    """Return the strings of rows, None where they are too many for one array."""
    _, offsets, content = strings.buffers()
    start = np.frombuffer(offsets, np.int32)[strings.offset :]
    byte = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    begin = np.empty(len(rows), np.int32)
    out_start = np.empty(len(rows) + 1, np.int64)
    measure_strings(read_only(start, np.int32), rows, begin, out_start)
    if out_start[-1] > _MAX_BYTES:
        return None
    out = np.empty(out_start[-1], np.uint8)
    copy_strings(
        read_only(byte, np.uint8), read_only(begin, np.int32), read_only(out_start, np.int64), out
    )
    offset = pa.py_buffer(out_start.astype(np.int32))
    return pa.StringArray.from_buffers(len(rows), offset, pa.py_buffer(out))
