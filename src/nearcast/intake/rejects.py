"""Rejected rows: their numbers, the reasons and their content.

While a table is read, `RowErrors` collects the first error of each row. At the end it returns
`Rejects`, which can be concatenated and written as a table.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.errors import ExpressionError, InvalidInput, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from nearcast.intake.batches import Batch

__all__ = [
    "Rejects",
    "RowErrors",
    "cell_value",
    "cell_values",
    "reason_of",
    "record_json",
    "table_records",
]


@dataclass(frozen=True, eq=False)
class Rejects:
    """Rejected rows. All columns have the same length.

    Attributes
    ----------
    row
        The position in a table, or the line in a text file.
    file
        The file; empty if it is a table.
    field
        The column with the error; empty if it is the whole line.
    reason
        What is wrong.
    record
        The whole original record as JSON.

    Examples
    --------
    >>> rejects = Rejects.of([(7, "id", "is missing", '{"text": "hello"}')])
    >>> len(rejects), rejects.to_table().column("reason").to_pylist()
    (1, ['is missing'])
    """

    row: NDArray[np.int64]
    file: tuple[str, ...]
    field: tuple[str, ...]
    reason: tuple[str, ...]
    record: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, str, str, str]], file: str = "") -> Self:
        """Make rejects of one file from (row, field, reason, record)."""
        row, field, reason, record = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(np.array(row, np.int64), (file,) * len(rows), field, reason, record)

    @classmethod
    def empty(cls) -> Self:
        """Return no rejects."""
        return cls.of([])

    @classmethod
    def concatenate(cls, parts: Sequence[Rejects]) -> Self:
        """Return the rejects of all parts, one after the other."""
        return cls(
            np.concatenate([np.empty(0, np.int64), *(part.row for part in parts)]),
            tuple(f for part in parts for f in part.file),
            tuple(f for part in parts for f in part.field),
            tuple(r for part in parts for r in part.reason),
            tuple(r for part in parts for r in part.record),
        )

    def in_order(self) -> Self:
        """Return the rejects sorted by row."""
        order = np.argsort(self.row, kind="stable")
        columns = (self.file, self.field, self.reason, self.record)
        chosen = (tuple(column[i] for i in order.tolist()) for column in columns)
        return type(self)(self.row[order], *chosen)

    def to_table(self) -> pa.Table:
        """Return the columns ``row``, ``file``, ``field``, ``reason`` and ``record``."""
        names = ("file", "field", "reason", "record")
        texts = {name: getattr(self, name) for name in names}
        columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
        return pa.table({"row": pa.array(self.row, pa.int64()), **columns})


class RowErrors:
    """The errors of the rows of a table: the first of each row.

    ``valid`` is a mask of the rows that have no error so far.
    """

    def __init__(self, count: int) -> None:
        self.valid = np.ones(count, np.bool_)
        self._found: dict[int, tuple[str, str]] = {}

    def add(self, wrong: NDArray[np.bool_], field: str, reason: str) -> None:
        """Reject the rows of a mask, all for the same reason."""
        for row in self._new(wrong):
            self._found[row] = (field, reason)

    def add_error(self, row: int, error: InvalidInput, field: str | None = None) -> None:
        """Reject one row for the reason of an error; ``field`` replaces the field of the error."""
        if self.valid[row]:
            self.valid[row] = False
            self._found[row] = (field or error.field, reason_of(error))

    def add_checked(
        self, wrong: NDArray[np.bool_], field: str, check: Callable[[int], object], reason: str
    ) -> None:
        """Reject the rows of a mask, each for the reason of the error that ``check`` raises.

        ``check`` gets the row and should raise `InvalidInput`; otherwise ``reason`` is used.
        """
        for row in self._new(wrong):
            self._found[row] = (field, reason)
            try:
                check(row)
            except InvalidInput as error:
                self._found[row] = (error.field, reason_of(error))

    def rejects(self, table: pa.Table, source: Batch | None = None) -> Rejects:
        """Return the rejected rows of a table.

        ``source`` is what the table was read from: rejects then have its file, its numbers of rows
        and its original records; otherwise they have the positions in the table.
        """
        rows = sorted(self._found)
        if not rows:
            return Rejects.empty()
        field, reason = zip(*(self._found[row] for row in rows), strict=True)
        number = np.array(rows, np.int64)
        if source is None:
            files = ("",) * len(rows)
            return Rejects(number, files, field, reason, table_records(table, rows))
        files = (source.file,) * len(rows)
        return Rejects(source.rows[number], files, field, reason, source.records(rows))

    def _new(self, wrong: NDArray[np.bool_]) -> list[int]:
        rows: list[int] = np.flatnonzero(wrong & self.valid).tolist()
        self.valid[rows] = False
        return rows


def reason_of(error: InvalidInput) -> str:
    """Return the message of an error without the name of the field.

    Examples
    --------
    >>> reason_of(InvalidInput("lat", 91, "must be at most 90"))
    'must be at most 90 (got 91)'
    """
    if isinstance(error, ExpressionError):
        return f"{error.problem} (at character {error.position + 1} of {shorten(error.value)})"
    return f"{error.problem}{error.got()}"


def record_json(record: dict[str, Any]) -> str:
    """Return a row as JSON: without nulls, bytes in base64, other types as text.

    Examples
    --------
    >>> record_json({"id": 7, "owner": None, "geometry": b"01"})
    '{"id": 7, "geometry": "MDE="}'
    """
    given = {name: value for name, value in record.items() if value is not None}
    try:
        return json.dumps(given, default=_as_text, allow_nan=False)
    except ValueError:  # NaN or infinity, which JSON does not have
        return json.dumps({name: _finite(value) for name, value in given.items()}, default=_as_text)


def table_records(table: pa.Table, rows: Iterable[int]) -> tuple[str, ...]:
    """Return rows of a table as JSON."""
    chosen = list(rows)
    names = table.column_names
    columns = [cell_values(table, i, chosen) for i in range(len(names))]
    return tuple(
        record_json(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)
    )


def cell_values(table: pa.Table, column: int, rows: list[int]) -> list[Any]:
    """Return cells of a column as Python values, all at once if their type allows it."""
    kind = table.schema.field(column).type
    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        try:
            values: list[Any] = table.column(column).take(pa.array(rows, pa.int64())).to_pylist()
            return values
        except ValueError:  # invalid UTF-8
            pass
    return [cell_value(table, column, row) for row in rows]


def cell_value(table: pa.Table, name: str | int, row: int) -> Any:
    """Return a cell as a Python value; as text or bytes if Python has no such value."""
    scalar = table.column(name)[row]
    kind = scalar.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and scalar.is_valid:
        return _nanoseconds_text(scalar.value, kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns" and scalar.is_valid:
        return timedelta(microseconds=scalar.value // 1000)
    try:
        return scalar.as_py()
    except (ValueError, ArithmeticError, LookupError):  # UTF-8, years beyond 9999, time zones
        is_text = kind in (pa.string(), pa.large_string(), pa.string_view())
        return scalar.cast(pa.binary()).as_py() if is_text else f"unreadable {kind}"


def _nanoseconds_text(ns: int, zone: str | None) -> str:
    """Return nanoseconds since 1970 as ISO 8601 text: with nine digits if there is a remainder."""
    us, rest = divmod(ns, 1000)
    moment = datetime(1970, 1, 1, tzinfo=None if zone is None else UTC) + timedelta(microseconds=us)
    text = moment.isoformat()
    if not rest:
        return text
    date, _, offset = text.partition("+")
    digits = date if "." in date else f"{date}.000000"
    return f"{digits}{rest:03d}" + (f"+{offset}" if offset else "")


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _as_text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
