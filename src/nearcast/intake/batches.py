"""Batches: pieces of a file as tables, with what is needed to tell which record a row was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from nearcast.intake.rejects import table_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from nearcast.intake.rejects import Rejects

__all__ = ["Batch", "RawRecords"]


@dataclass(frozen=True, eq=False)
class RawRecords:
    """The text of records: parts of bytes, each from its begin to its end."""

    content: bytes
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    def __getitem__(self, row: int) -> str:
        return self.content[self.begin[row] : self.end[row]].decode(errors="replace").strip()


@dataclass(frozen=True, eq=False)
class Batch:
    """A piece of a file: a table, the numbers of its rows, and the rows that could not be read.

    Parameters
    ----------
    table
        The rows, with our names for the columns that are ours.
    rows
        The number of each row in the file: from 0 in Parquet files, from 1 in GeoJSON documents;
        in other text files it is the line, counted from 1.
    rejects
        Records that could not be read.
    bytes_read, bytes_total
        The progress.
    file
        What the file is called in rejects.
    taken
        Columns that were recognized by a similar name: our names, and those of the file.
    unused
        Columns that are none of ours.
    original
        The rows as they were in the file: a table with its own names, or the texts of the records.
    empty_is_null
        Whether an empty cell cannot be told from one that is missing, as in CSV.
    """

    table: pa.Table
    rows: NDArray[np.int64]
    rejects: Rejects
    bytes_read: int
    bytes_total: int
    file: str = ""
    taken: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    original: pa.Table | RawRecords | list[str] | None = None
    empty_is_null: bool = False

    def records(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Return whole records of the file as JSON, by their positions in the table."""
        source = self.table if self.original is None else self.original
        if not isinstance(source, pa.Table):
            return tuple(source[position] for position in positions)
        return table_records(source, positions)
