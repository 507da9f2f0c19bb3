"""Write tables to files, batch by batch: Parquet, CSV or JSON lines, by the file's extension.

A file is written under a temporary name in the same folder and renamed when it is complete. An
error leaves the old file, if there was one, and no temporary file.
"""

import json
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from nearcast.errors import UnsupportedFile
from nearcast.storage.temporary import TemporaryFile, remove_leftovers

__all__ = ["FORMATS", "TableWriter", "open_writer", "write_atomically"]


class TableWriter(ABC):
    """Writes tables of one schema, one after the other, to a file.

    Use it as a context manager: the file appears when the block ends without an error.
    """

    _temporary: TemporaryFile

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path)
        self._temporary = TemporaryFile(self.path)
        try:
            self._open()
        except BaseException:
            self._temporary.discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._temporary:
            if kind is None:
                self._close()
                self._temporary.publish()
            else:
                with suppress(Exception):  # the first error is raised
                    self._close()

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Append a table."""

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class _ParquetFile(TableWriter):
    """Parquet; a column of integers becomes a column of strings when the first string occurs."""

    def _open(self) -> None:
        self._sink = open(self._temporary.path, "wb")
        self._file = parquet.ParquetWriter(self._sink, self.schema, compression="zstd")

    def _close(self) -> None:
        try:
            self._file.close()
            self._sink.close()
        finally:
            # After an error, PyArrow would close the file again, and fail again, on deletion.
            self._file.is_open = False

    def write(self, table: pa.Table) -> None:
        if self._wider(table.schema) != self.schema:
            self._widen(table.schema)
        self._file.write_table(table.cast(self.schema))

    def _wider(self, other: pa.Schema) -> pa.Schema:
        """Return the schema that can represent the rows of both."""
        fields = [
            field.with_type(pa.string())
            if pa.types.is_integer(field.type) and pa.types.is_string(other.field(i).type)
            else field
            for i, field in enumerate(self.schema)
        ]
        return pa.schema(fields)

    def _widen(self, other: pa.Schema) -> None:
        """Start a new file in the wider schema and copy the rows written so far."""
        self._close()
        with self._temporary as narrow:
            self._temporary = TemporaryFile(self.path)
            self.schema = self._wider(other)
            self._open()
            with parquet.ParquetFile(narrow.path) as source:
                for batch in source.iter_batches():
                    self._file.write_table(pa.Table.from_batches([batch]).cast(self.schema))


class _LinesFile(TableWriter):
    """The base of the formats that are made of lines."""

    _file: BinaryIO

    def _open(self) -> None:
        self._file = open(self._temporary.path, "wb")

    def _close(self) -> None:
        self._file.close()


class _CsvFile(_LinesFile):
    """CSV with a header; the items of a list are separated by spaces."""

    def _open(self) -> None:
        super()._open()
        header = ",".join(f'"{name}"' for name in self.schema.names) + "\n"
        self._file.write(header.encode())

    def write(self, table: pa.Table) -> None:
        columns = [_csv_column(table.column(i)) for i in range(table.num_columns)]
        flat = pa.table(columns, names=table.column_names)
        csv.write_csv(flat, self._file, csv.WriteOptions(include_header=False))


class _JsonLinesFile(_LinesFile):
    """One JSON object per line."""

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=50_000):
            lines = [json.dumps(row, default=_as_json) + "\n" for row in batch.to_pylist()]
            self._file.write("".join(lines).encode())


FORMATS: dict[str, type[TableWriter]] = {
    ".parquet": _ParquetFile,
    ".csv": _CsvFile,
    ".ndjson": _JsonLinesFile,
    ".jsonl": _JsonLinesFile,
    ".json": _JsonLinesFile,
}
"""The writer for each extension of a file name."""


def open_writer(path: str | Path, schema: pa.Schema) -> TableWriter:
    """Return the writer for a file, chosen by its extension.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "matches.csv"
    >>> table = pa.table({"message_id": ["m1"], "score": pa.array([None], pa.float64())})
    >>> with open_writer(path, table.schema) as writer:
    ...     writer.write(table)
    >>> path.read_text().splitlines()
    ['"message_id","score"', '"m1",']
    """
    where = Path(path)
    if where.suffix.lower() not in FORMATS:
        found = where.suffix or "no extension"
        raise UnsupportedFile(
            f"{where}: cannot tell the format from {found!r}; use one of {', '.join(FORMATS)}"
        )
    return FORMATS[where.suffix.lower()](where, schema)


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a small file atomically."""
    where = Path(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(where)
    with TemporaryFile(where) as temporary:
        temporary.path.write_bytes(content)
        temporary.publish()


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_list(kind):
        return pc.binary_join(column, " ")
    if pa.types.is_timestamp(kind):
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    return column


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
