"""Which columns the files of a set have, and of which types: before all of them are read alike.

The header of a CSV file and the schema of a Parquet file say it. Lines of JSON need not agree with
each other, so files of JSON are read as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from nearcast.errors import UnsupportedFile
from nearcast.intake import open_file
from nearcast.intake.files import naming
from nearcast.intake.reading import format_of
from nearcast.model.close_names import COLUMNS
from nearcast.spark.workers.cleaning import Cleaning, require_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nearcast.intake import Reading
    from nearcast.spark.workers.reading import Piece

__all__ = ["SURVEYED", "Survey", "SurveyFiles", "is_described", "survey_file"]

SURVEYED = pa.schema(
    [
        ("columns", pa.list_(pa.string())),
        ("ids", pa.list_(pa.string())),
        ("geometries", pa.list_(pa.string())),
        ("taken", pa.list_(pa.string())),
        ("unused", pa.list_(pa.string())),
        ("free", pa.bool_()),
    ]
)
"""A survey as a row for the driver."""

_HEADER_BYTES = 1 << 16
_INTEGER, _TEXT, _BINARY = "integer", "text", "binary"


class Survey(NamedTuple):
    """What is known of the columns of files; all parts are without duplicates and in order.

    Parameters
    ----------
    columns
        Those of ours that the files have.
    ids, geometries
        The types of ids (``integer``, ``text``) and geometries (``binary``, ``text``).
    taken
        Columns that were recognized by a similar name, as ``ours=theirs``.
    unused
        Columns that nobody uses.
    free
        Whether rows need not have the same columns, as in JSON.
    """

    columns: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    geometries: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    free: bool = False

    def __add__(self, other: object) -> Survey:
        """Return what is known of the files of both."""
        if not isinstance(other, Survey):
            return NotImplemented
        lists = zip(self[:-1], other[:-1], strict=True)
        joined = [tuple(dict.fromkeys((*one, *more))) for one, more in lists]
        return Survey.of(*joined, self.free or other.free)

    @classmethod
    def of(cls, *parts: Any) -> Survey:
        """Return a survey of its parts; of a row for the driver too."""
        *lists, free = parts
        columns, ids, geometries, taken, unused = (tuple(one) for one in lists)
        return cls(columns, ids, geometries, taken, unused, bool(free))

    def cleaning(self, kind: str, *, tidy: bool = False) -> Cleaning:
        """Return how to read all of the files alike.

        Ids are integers if all are, otherwise text; geometries are WKB if all are.

        Raises
        ------
        UnsupportedFile
            When a required column is missing.
        """
        names: tuple[str, ...] = self.columns
        try:
            check_kind(kind, (*self.columns, *self.unused))
        except UnsupportedFile:
            if not self.free:
                raise
            names = COLUMNS[kind]  # every row is rejected for what it lacks
        return Cleaning.of(
            kind,
            names,
            integer_ids=self.ids == (_INTEGER,),
            binary_geometry=self.geometries == (_BINARY,),
            tidy=tidy,
        )


@dataclass(frozen=True)
class SurveyFiles:
    """Surveys the files of a task; the parameters are those of `ReadFiles`."""

    reading: Reading
    kind: str
    tasks: tuple[tuple[Piece, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Survey the files of the tasks with these numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                pieces = self.tasks[number]
                found = (survey_file(piece, self.reading, self.kind) for piece in pieces)
                whole = reduce(Survey.__add__, found, Survey())
                yield pa.RecordBatch.from_pylist([whole._asdict()], SURVEYED)


def check_kind(kind: str, names: Iterable[str]) -> None:
    """Raise `UnsupportedFile` unless a table with these columns can have rows of a kind."""
    if kind != "changes":
        require_columns(kind, [*dict.fromkeys(names)])
        return
    there = {*names}
    moves = "subscription_id" in there and "time" in there
    if not ({"op", "id"} <= there or {"op", "subscription_id"} <= there or moves):
        raise UnsupportedFile(
            f"not a table of changes: it has the columns {', '.join(names) or 'none'}; "
            "expected op (insert, delete or move), id, and the columns of subscriptions"
        )


def survey_file(piece: Piece, reading: Reading, kind: str) -> Survey:
    """Return what is known of the columns of a file.

    Raises
    ------
    UnsupportedFile
        When the file cannot be read, or lacks a required column, and this is known beforehand.
    """
    free = not is_described(piece.path, reading)
    found = Survey(free=free)
    little: dict[str, Any] = {} if free else {"batch_rows": 1, "block_bytes": _HEADER_BYTES}
    for batch in open_file(piece.path, reading, kind=kind, name=piece.name, **little):
        ours = [name for name in COLUMNS[kind] if name in batch.table.column_names]
        given = [name for name in ours if not free or _has_values(batch.table[name])]
        found += Survey(
            tuple(given),
            _types(batch.table, ("id", "subscription_id"), given, _is_integer, _INTEGER),
            _types(batch.table, ("geometry",), given, _is_binary, _BINARY),
            tuple(f"{ours}={theirs}" for ours, theirs in batch.taken.items()),
            tuple(batch.unused),
            free,
        )
        if not free:
            with naming(piece.path):
                check_kind(kind, (*found.columns, *found.unused))
            break
    return found


def is_described(path: str, reading: Reading) -> bool:
    """Whether the beginning of a file says which columns it has."""
    return format_of(path, reading) in {"parquet", "csv"}


def _has_values(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count < len(column))


def _types(
    table: pa.Table,
    names: Sequence[str],
    given: Sequence[str],
    is_one: Callable[[pa.DataType], bool],
    one: str,
) -> tuple[str, ...]:
    """Return the types of some columns, of two that there may be."""
    found = (table.schema.field(name).type for name in names if name in given)
    kinds = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in found)
    return tuple(dict.fromkeys(one if is_one(kind) else _TEXT for kind in kinds))


def _is_integer(kind: pa.DataType) -> bool:
    """Whether ids of a type are integers; those of decimals are, if they are valid."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_binary(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind))
