"""Arrow arrays of rows and ids, made without `pyarrow.array`.

That function imports pandas where it is installed, to see whether it was given a series. It takes
longer than everything else that the first message of a process needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow.lib import StringBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["row_array", "string_array"]


def row_array(rows: NDArray[Any]) -> pa.Int64Array:
    """Return the numbers of rows, for `pyarrow.Array.take`.

    Examples
    --------
    >>> row_array(np.array([3, 1])).to_pylist()
    [3, 1]
    """
    number = np.ascontiguousarray(rows, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(number), [None, pa.py_buffer(number)])


def string_array(values: Sequence[str | None]) -> pa.StringArray:
    """Return strings, null for None.

    Examples
    --------
    >>> string_array(["ann", None]).to_pylist()
    ['ann', None]
    """
    builder = StringBuilder()
    builder.append_values(values)
    return builder.finish()
