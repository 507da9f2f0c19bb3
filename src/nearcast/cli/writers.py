"""Tables to files, batch by batch: Parquet, CSV or JSON lines by the name of the file.

A file is written under another name in the same folder and renamed when it is complete: what
stands under the final name is always whole, and what stood there before stays until then.
"""

import json
import os
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

__all__ = ["FORMATS", "TableWriter", "open_writer", "write_whole"]


class TableWriter(ABC):
    """Writes tables of one schema one after the other into a file.

    Used as a context: the file appears when it is left without an error.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self._part = _part_of(path)

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._close()
            if kind is None:
                _sync(self._part)
                os.replace(self._part, self.path)
        finally:
            self._part.unlink(missing_ok=True)

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Append a table."""

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class _ParquetFile(TableWriter):
    """Parquet; a column of integers becomes one of strings when strings come."""

    def _open(self) -> None:
        self._file = parquet.ParquetWriter(self._part, self.schema, compression="zstd")

    def _close(self) -> None:
        self._file.close()

    def write(self, table: pa.Table) -> None:
        if self._wider(table.schema) != self.schema:
            self._widen(table.schema)
        self._file.write_table(table.cast(self.schema))

    def _wider(self, other: pa.Schema) -> pa.Schema:
        """Return the schema in which both kinds of rows can be written."""
        fields = [
            field.with_type(pa.string())
            if pa.types.is_integer(field.type) and pa.types.is_string(other.field(i).type)
            else field
            for i, field in enumerate(self.schema)
        ]
        return pa.schema(fields)

    def _widen(self, other: pa.Schema) -> None:
        """Begin again with what is written already, in the wider schema."""
        self._file.close()
        old = self._part.with_suffix(".narrow")
        os.replace(self._part, old)
        self.schema = self._wider(other)
        self._open()
        try:
            with parquet.ParquetFile(old) as source:
                for batch in source.iter_batches():
                    self._file.write_table(pa.Table.from_batches([batch]).cast(self.schema))
        finally:
            old.unlink()


class _LinesFile(TableWriter):
    """What the formats made of lines have in common."""

    _file: BinaryIO

    def _open(self) -> None:
        self._file = open(self._part, "wb")

    def _close(self) -> None:
        self._file.close()


class _CsvFile(_LinesFile):
    """CSV with a header; lists are separated by spaces."""

    def _open(self) -> None:
        super()._open()
        header = ",".join(f'"{name}"' for name in self.schema.names) + "\n"
        self._file.write(header.encode())

    def write(self, table: pa.Table) -> None:
        columns = [_csv_column(table.column(i)) for i in range(table.num_columns)]
        flat = pa.table(columns, names=table.column_names)
        csv.write_csv(flat, self._file, csv.WriteOptions(include_header=False))


class _JsonLinesFile(_LinesFile):
    """One JSON object a line."""

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
"""How the name of a file may end that can be written."""


def open_writer(path: str | Path, schema: pa.Schema) -> TableWriter:
    """Return the writer for a file, by how its name ends.

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
        ending = where.suffix or "no extension"
        raise UnsupportedFile(
            f"{where}: cannot tell the format from {ending!r}; name it one of {', '.join(FORMATS)}"
        )
    return FORMATS[where.suffix.lower()](where, schema)


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a small file at once: it is there as a whole or not at all."""
    where = Path(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(where)
    try:
        part.write_bytes(content)
        _sync(part)
        os.replace(part, where)
    finally:
        part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _sync(path: Path) -> None:
    with suppress(OSError), open(path, "rb") as file:
        os.fsync(file.fileno())


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
