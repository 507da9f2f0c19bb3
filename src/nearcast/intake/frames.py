"""Frames of pandas, Polars and others as Arrow tables, without importing any of these."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from nearcast.errors import InvalidInput

__all__ = ["is_table", "table_from"]

_PROBLEM = (
    "must be a PyArrow table, or a data frame of pandas, Polars or another library with Arrow"
)


def table_from(value: Any) -> pa.Table:
    """Return a table, a record batch or a frame as an Arrow table.

    Frames of pandas are taken without their index, all others by the Arrow PyCapsule interface.

    Parameters
    ----------
    value
        The table, record batch or frame.

    Raises
    ------
    InvalidInput
        When it is none of these, or has columns that Arrow does not know.

    Examples
    --------
    >>> import pandas as pd
    >>> table_from(pd.DataFrame({"id": [1, 2]}, index=["a", "b"])).to_pydict()
    {'id': [1, 2]}
    """
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    try:
        if _is_pandas(value):
            return pa.Table.from_pandas(value, preserve_index=False)
        if hasattr(value, "__arrow_c_stream__"):
            return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = f"cannot be converted to an Arrow table: {' '.join(str(error).split())}"
        raise InvalidInput("table", type(value).__name__, problem) from None
    raise InvalidInput("table", value, _PROBLEM)


def is_table(value: Any) -> bool:
    """Return whether `table_from` may take a value for a table.

    Parameters
    ----------
    value
        Anything.

    Examples
    --------
    >>> is_table(pa.table({"id": [1]})), is_table([1])
    (True, False)
    """
    arrow = isinstance(value, pa.Table | pa.RecordBatch) or hasattr(value, "__arrow_c_stream__")
    return arrow or _is_pandas(value)


def _is_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")
