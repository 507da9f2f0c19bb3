"""Ids for records that have none: from the row, or from a hash of the record."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.intake.rejects import cell_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["hash_id", "hash_ids", "row_id", "row_ids"]

_DIGEST_BYTES = 16


def row_id(file: str, row: int) -> str:
    """Return the id of a row of a file.

    Examples
    --------
    >>> row_id("places.csv", 7)
    'places.csv:7'
    """
    return f"{file}:{row}"


def row_ids(file: str, rows: NDArray[np.int64]) -> pa.Array:
    """Return the ids of rows of a file.

    Examples
    --------
    >>> import numpy as np
    >>> row_ids("places.csv", np.array([7, 8])).to_pylist()
    ['places.csv:7', 'places.csv:8']
    """
    return pc.binary_join_element_wise(file, pa.array(rows).cast(pa.string()), ":")


def hash_id(record: Mapping[str, Any]) -> str:
    """Return the id of a record by its content: names and values as text, without nulls.

    Numbers and the texts of these numbers are the same, so that the formats of a file agree.

    Examples
    --------
    >>> hash_id({"lon": 13.5, "n": None}) == hash_id({"lon": "13.5"})
    True
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name in sorted(record):
        value = record[name]
        if value is not None:
            for part in (name, _as_text(value)):
                raw = part.encode(errors="surrogatepass")
                digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def hash_ids(table: pa.Table) -> pa.Array:
    """Return the ids of the rows of a table by their content."""
    names = table.column_names
    rows = list(range(table.num_rows))
    columns = [cell_values(table, i, rows) for i in range(len(names))]
    records = (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))
    return pa.array([hash_id(record) for record in records], pa.string())


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool | list | dict):
        return json.dumps(value, sort_keys=True, default=str, separators=(",", ":"))
    return str(value)
