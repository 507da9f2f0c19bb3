"""Read files in workers, by the rules of `nearcast.intake`: valid rows and rejects, as batches.

Every job reads files in this way, and so does ``nearcast match``: a row is accepted or rejected for
the same reason everywhere. Valid rows have one type in each column, whatever the formats of the
files: numbers are doubles, times are timestamps, durations are seconds, lists are lists. A row that
was rejected has only nulls in these columns, so that every job counts it as rejected, and what is
known of it in the column `REJECTED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import UnsupportedFile
from nearcast.intake import Rejects, open_file
from nearcast.intake.arrow_columns import with_column
from nearcast.intake.files import naming
from nearcast.intake.rejects import RowErrors
from nearcast.spark.workers.cleaning import COLUMNS, REJECTED, invalid_rows, typed_columns
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.intake import Batch, Reading
    from nearcast.spark.workers.cleaning import Cleaning

__all__ = [
    "Chain",
    "Piece",
    "ReadArriving",
    "ReadFiles",
    "ReadRows",
    "counted_batches",
    "frame_batches",
    "local_path",
    "read_batch",
    "read_piece",
    "reject_batches",
]

_MAX_ROWS = 50_000
_MAX_TOKENS = 1_000_000
_ORDER_BITS = 33


class Piece(NamedTuple):
    """A file, or some row groups of a Parquet file.

    ``name`` is what rejects and made ids call the file.
    """

    path: str
    name: str
    size: int
    groups: tuple[int, int] | None = None


class ReadRows(NamedTuple):
    """Rows that were read: the valid ones with their lines, and the others as rejects.

    ``records`` has the whole records of the valid rows, if they were asked for.
    """

    table: pa.Table
    line: NDArray[np.int64]
    rejects: Rejects
    file: str
    records: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ReadFiles:
    """Reads files and yields batches.

    Parameters
    ----------
    reading
        How files are read.
    cleaning
        The kind and the columns of the rows.
    tasks
        The pieces that each task reads. A batch says which tasks by their numbers.
    output
        Makes batches of what was read: `frame_batches`, `counted_batches` or `reject_batches`.
    """

    reading: Reading
    cleaning: Cleaning
    tasks: tuple[tuple[Piece, ...], ...]
    output: Callable[[Iterator[ReadRows], Cleaning, int], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files of the tasks with these numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                read = (
                    rows
                    for piece in self.tasks[number]
                    for rows in read_piece(piece, self.reading, self.cleaning)
                )
                yield from self.output(read, self.cleaning, number << _ORDER_BITS)


@dataclass(frozen=True)
class ReadArriving:
    """Reads the files of a micro-batch, whose paths and sizes a batch has.

    A file that cannot be read at all is one reject: it must not stop the stream.

    Parameters
    ----------
    reading, cleaning
        As for `ReadFiles`.
    folder
        The folder of the stream: rejects call a file by its path in there.
    """

    reading: Reading
    cleaning: Cleaning
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read these files."""
        for batch in batches:
            for path in map(local_path, batch.column("path").to_pylist()):
                name = path.removeprefix(self.folder).lstrip("/") or path.rpartition("/")[2]
                yield from frame_batches(self._read(Piece(path, name, 0)), self.cleaning, 0)

    def _read(self, piece: Piece) -> Iterator[ReadRows]:
        try:
            yield from read_piece(piece, self.reading, self.cleaning)
        except UnsupportedFile as error:
            reason = str(error).removeprefix(f"{piece.path}: ")
            rejects = Rejects.of([(0, "", f"the file {reason}", "")], piece.name)
            nothing = self.cleaning.schema.empty_table()
            yield ReadRows(nothing, np.empty(0, np.int64), rejects, piece.name)


@dataclass(frozen=True)
class Chain:
    """Two workers, one after the other, in one process: rows need not go through Java."""

    first: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    columns: tuple[str, ...]
    second: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the second worker these columns of what the first one yields."""
        return self.second(batch.select(list(self.columns)) for batch in self.first(batches))


def local_path(path: str) -> str:
    """Return a path of Spark as Python opens it.

    Examples
    --------
    >>> local_path("file:/data/a b.csv"), local_path("s3://bucket/a.csv")
    ('/data/a b.csv', 's3://bucket/a.csv')
    """
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path


def read_piece(piece: Piece, reading: Reading, cleaning: Cleaning) -> Iterator[ReadRows]:
    """Yield the rows of a file or of a part of it.

    Raises
    ------
    UnsupportedFile
        When the file cannot be read, or a required column is missing.
    """
    vocabulary = Vocabulary()
    for batch in open_file(
        piece.path, reading, kind=cleaning.kind, name=piece.name, piece=piece.groups
    ):
        if len(vocabulary) > _MAX_TOKENS:
            vocabulary = Vocabulary()
        with naming(piece.path):
            rows = read_batch(batch, cleaning, vocabulary)
        yield rows


def read_batch(batch: Batch, cleaning: Cleaning, vocabulary: Vocabulary) -> ReadRows:
    """Return the rows of a batch in the schema of a cleaning."""
    table, line = batch.table, batch.rows
    if cleaning.kind == "changes":
        table = _with_one_id(table)
    errors = RowErrors(table.num_rows)
    rejects = Rejects.empty()
    if cleaning.kind in COLUMNS:
        rejects = invalid_rows(
            cleaning.kind, table, vocabulary, batch, tokenizer=cleaning.tokenizer
        )
        errors.valid[np.searchsorted(line, rejects.row)] = False
    typed = pa.table(typed_columns(table, cleaning, errors), schema=cleaning.schema)
    every = Rejects.concatenate([batch.rejects, rejects, errors.rejects(table, batch)])
    valid = np.flatnonzero(errors.valid)
    records = batch.records(valid.tolist()) if cleaning.kind not in COLUMNS else None
    if len(valid) < len(line):
        typed, line = typed.take(pa.array(valid)), line[valid]
    return ReadRows(typed, line, every, batch.file, records)


def _with_one_id(table: pa.Table) -> pa.Table:
    """Return changes whose id is in one column; in moves, it may be called ``subscription_id``."""
    if not {"id", "subscription_id"} <= {*table.column_names}:
        return table
    ids = [table[name] for name in ("id", "subscription_id")]
    if ids[0].type != ids[1].type:
        ids = [column.cast(pa.string()) for column in ids]
    return with_column(table.drop_columns("subscription_id"), "id", pc.coalesce(*ids))


def frame_batches(
    read: Iterator[ReadRows], cleaning: Cleaning, first: int
) -> Iterator[pa.RecordBatch]:
    """Yield all rows, also rejected ones, in the ``frame_schema`` of the cleaning."""
    schema = cleaning.frame_schema
    why = schema.field(REJECTED).type
    for rows in read:
        count, rejects = rows.table.num_rows, rows.rejects
        reasons = [
            pa.array(texts, pa.string())
            for texts in (rejects.field, rejects.reason, rejects.record)
        ]
        rejected = pa.StructArray.from_arrays(reasons, fields=[*why])
        records = [] if rows.records is None else [pa.array(rows.records, pa.string())]
        columns = [
            *(_followed(column, len(rejects)) for column in (*rows.table.columns, *records)),
            pa.concat_arrays([pa.nulls(count, why), rejected]),
            pa.repeat(rows.file, count + len(rejects)),
            pa.array(np.concatenate([rows.line, rejects.row])),
        ]
        yield from pa.table(columns, schema=schema).to_batches(_MAX_ROWS)


def counted_batches(
    read: Iterator[ReadRows], cleaning: Cleaning, first: int
) -> Iterator[pa.RecordBatch]:
    """Yield valid rows and counts, as `nearcast.spark.workers.cleaning.clean_rows` does.

    ``first`` is the number of the first row.
    """
    for rows in read:
        count, rejected = rows.table.num_rows, len(rows.rejects)
        for begin in range(0, max(count, 1), _MAX_ROWS):
            columns = [_followed(c, 0) for c in rows.table.slice(begin, _MAX_ROWS).columns]
            part = len(columns[0])
            numbers = np.arange(first, first + part)
            yield cleaning.counted(columns, numbers, part + rejected, rejected)
            first, rejected = first + part, 0


def reject_batches(
    read: Iterator[ReadRows], cleaning: Cleaning, first: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rejected rows."""
    for rows in read:
        if len(rows.rejects):
            yield from rows.rejects.in_order().to_table().combine_chunks().to_batches(_MAX_ROWS)


def _followed(column: pa.ChunkedArray | pa.Array, nulls: int) -> pa.Array:
    """Return a column followed by nulls."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays([whole, pa.nulls(nulls, whole.type)]) if nulls else whole
