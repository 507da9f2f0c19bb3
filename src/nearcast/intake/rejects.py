"""Rows that could not be taken: which, why, and what they said.

While a table is read, `Faults` collects the first problem of each row; at the end it becomes
`Rejects`, which can be put end to end and written as a table.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.errors import ExpressionError, InvalidInput, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Faults", "Rejects", "cell", "reason_of", "record_of"]


@dataclass(frozen=True, eq=False)
class Rejects:
    """Rows that were refused.

    ``row`` numbers them as their source does (the position in a table, the line in a text file),
    ``field`` names the column at fault (empty where it is the line as a whole), ``reason`` says
    what is wrong with it, and ``record`` is the row as it came, as JSON.

    Examples
    --------
    >>> rejects = Rejects.of([(7, "id", "is missing", '{"text": "hello"}')])
    >>> len(rejects), rejects.to_table().column("reason").to_pylist()
    (1, ['is missing'])
    """

    row: NDArray[np.int64]
    field: tuple[str, ...]
    reason: tuple[str, ...]
    record: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, faults: Sequence[tuple[int, str, str, str]]) -> Self:
        """Make rejects from (row, field, reason, record)."""
        row, field, reason, record = zip(*faults, strict=True) if faults else ((), (), (), ())
        return cls(np.array(row, np.int64), field, reason, record)

    @classmethod
    def empty(cls) -> Self:
        """Return no rejects."""
        return cls.of([])

    @classmethod
    def concatenate(cls, parts: Sequence[Rejects]) -> Self:
        """Return the rejects of all parts end to end."""
        return cls(
            np.concatenate([np.empty(0, np.int64), *(part.row for part in parts)]),
            tuple(f for part in parts for f in part.field),
            tuple(r for part in parts for r in part.reason),
            tuple(r for part in parts for r in part.record),
        )

    def in_order(self) -> Self:
        """Return the rejects in the order of their rows."""
        order = np.argsort(self.row, kind="stable")
        columns = (self.field, self.reason, self.record)
        chosen = (tuple(column[i] for i in order.tolist()) for column in columns)
        return type(self)(self.row[order], *chosen)

    def to_table(self) -> pa.Table:
        """Return the columns ``row``, ``field``, ``reason`` and ``record``."""
        texts = {"field": self.field, "reason": self.reason, "record": self.record}
        columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
        return pa.table({"row": pa.array(self.row, pa.int64()), **columns})


class Faults:
    """What is wrong with the rows of a table; the first fault of a row counts.

    ``sound`` tells which rows are without fault so far.
    """

    def __init__(self, count: int) -> None:
        self.sound = np.ones(count, np.bool_)
        self._found: dict[int, tuple[str, str]] = {}

    def add(self, wrong: NDArray[np.bool_], field: str, reason: str) -> None:
        """Refuse the rows of this mask, all for the same reason."""
        for row in self._fresh(wrong):
            self._found[row] = (field, reason)

    def refuse(self, row: int, error: InvalidInput, field: str | None = None) -> None:
        """Refuse one row for the reason that an error gives; the field is its own by default."""
        if self.sound[row]:
            self.sound[row] = False
            self._found[row] = (field or error.field, reason_of(error))

    def explain(
        self, wrong: NDArray[np.bool_], field: str, take: Callable[[int], object], reason: str
    ) -> None:
        """Refuse the rows of this mask, each for the reason with which ``take`` refuses it.

        ``take`` is given the row, and should raise `InvalidInput`; ``reason`` is for rows that it
        would have taken.
        """
        for row in self._fresh(wrong):
            self._found[row] = (field, reason)
            try:
                take(row)
            except InvalidInput as error:
                self._found[row] = (error.field, reason_of(error))

    def rejects(self, table: pa.Table, numbers: NDArray[np.int64] | None = None) -> Rejects:
        """Return the refused rows of the table, numbered by position or by these numbers."""
        rows = np.array(sorted(self._found), np.int64)
        if not len(rows):
            return Rejects.empty()
        chosen = table.take(pa.array(rows))
        records = tuple(record_of(_record(chosen, row)) for row in range(len(rows)))
        field, reason = zip(*(self._found[row] for row in rows.tolist()), strict=True)
        return Rejects(rows if numbers is None else numbers[rows], field, reason, records)

    def _fresh(self, wrong: NDArray[np.bool_]) -> list[int]:
        rows: list[int] = np.flatnonzero(wrong & self.sound).tolist()
        self.sound[rows] = False
        return rows


def reason_of(error: InvalidInput) -> str:
    """Return what an error says, without the name of the field.

    Examples
    --------
    >>> reason_of(InvalidInput("lat", 91, "must be at most 90"))
    'must be at most 90 (got 91)'
    """
    if isinstance(error, ExpressionError):
        return f"{error.problem} (at character {error.position} of {shorten(error.value)})"
    return f"{error.problem} (got {shorten(error.value)})"


def record_of(record: dict[str, Any]) -> str:
    """Return a row as JSON: nulls left out, bytes in base64, what JSON does not know as text.

    Examples
    --------
    >>> record_of({"id": 7, "owner": None, "geometry": b"01"})
    '{"id": 7, "geometry": "MDE="}'
    """
    given = {name: value for name, value in record.items() if value is not None}
    try:
        return json.dumps(given, default=_as_text, allow_nan=False)
    except ValueError:  # NaN or infinity, which JSON does not have
        return json.dumps({name: _finite(value) for name, value in given.items()}, default=_as_text)


def _record(table: pa.Table, row: int) -> dict[str, Any]:
    return {name: cell(table, name, row) for name in table.column_names}


def cell(table: pa.Table, name: str, row: int) -> Any:
    """Return one cell as a Python value; what Python cannot hold comes as bytes or as its type."""
    scalar = table.column(name)[row]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # bad UTF-8, nanoseconds, years beyond 9999
        kind = scalar.type
        raw = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return scalar.cast(pa.binary()).as_py() if raw else f"unreadable {kind}"


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _as_text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
