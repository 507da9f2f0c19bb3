"""Events of a micro-batch, read and put in order.

At equal times deletes come before inserts, then moves, then messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.intake.arrow_columns import column_array, not_null
from nearcast.intake.ids import read_ids
from nearcast.intake.rejects import RowErrors
from nearcast.intake.times import read_durations, read_times
from nearcast.spark.workers.cleaning import DAMAGED
from nearcast.spark.workers.effects import OPERATIONS
from nearcast.spark.workers.events import own_columns
from nearcast.spark.workers.resolving import read_operations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "DELETE",
    "INSERT",
    "MOVE",
    "PUBLISH",
    "EventRows",
    "GivenRows",
    "Ordered",
    "pieces_of",
    "read_changes",
    "read_living_messages",
    "with_column",
]

DELETE, INSERT, MOVE, PUBLISH = range(4)
"""The steps of a moment, in this order."""

_ROWS_PER_CALL = 50_000
_STEP = np.array([{"delete": DELETE, "insert": INSERT, "move": MOVE}[o] for o in OPERATIONS])
_NO_TTL = "is missing; give it, or ttl_s for all messages without it"


class EventRows(NamedTuple):
    """The valid rows of one kind: as given, with their numbers, times and steps."""

    table: pa.Table
    row: NDArray[np.int64]
    time_us: NDArray[np.int64]
    step: NDArray[np.int64]


class Ordered(NamedTuple):
    """Events in the order in which they happen: their steps, rows and times."""

    changes: EventRows
    messages: EventRows
    step: NDArray[np.int64]
    own: NDArray[np.int64]
    when_us: NDArray[np.int64]

    def slice(self, first: int, end: int) -> Ordered:
        """Return some of the events."""
        part = slice(first, end)
        return self._replace(step=self.step[part], own=self.own[part], when_us=self.when_us[part])

    def windows(self) -> Iterator[Ordered]:
        """Yield the events in pieces: with moves and messages only, or without them."""
        other = self.step < MOVE
        cuts = [*(np.flatnonzero(other[1:] != other[:-1]) + 1).tolist(), len(self.step)]
        first = 0
        for cut in cuts:
            while first < cut:
                end = min(cut, first + _ROWS_PER_CALL)
                yield self.slice(first, end)
                first = end

    def runs(self) -> list[tuple[int, int]]:
        """Return where runs of one step begin and end.

        Moves and messages have times of their own; deletes and inserts of a run happen at one time.
        """
        cut = self.step[1:] != self.step[:-1]
        cut |= (self.step[1:] < MOVE) & (self.when_us[1:] != self.when_us[:-1])
        ends = [*(np.flatnonzero(cut) + 1).tolist(), len(self.step)]
        return [*zip([0, *ends[:-1]], ends, strict=True)] if len(self.step) else []


class GivenRows:
    """The rows of one kind in the order of their numbers, as they were given.

    Attributes
    ----------
    kind, table, row, time_us
        The rows, their numbers and times; the times of invalid ones mean nothing.
    errors
        What is wrong with them so far.
    """

    def __init__(self, events: pa.Table, kind: int) -> None:
        chosen = np.flatnonzero(events["_kind"].to_numpy() == kind)
        chosen = chosen[np.argsort(events["_row"].to_numpy()[chosen], kind="stable")]
        events = events.take(pa.array(chosen))
        self.kind, self.table = kind, own_columns(events, kind)
        self.row: NDArray[np.int64] = events["_row"].to_numpy()
        self.time_us: NDArray[np.int64] = pc.fill_null(events["_time"], 0).to_numpy()
        self.errors = RowErrors(len(chosen))
        damaged = column_array(self.table, DAMAGED)
        if damaged is not None:
            self.errors.add(not_null(damaged), "", "cannot be read as a record")
        read_times(self.table, "time", self.errors)


def read_changes(given: GivenRows) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return changes and their steps; those without an operation or an id are errors."""
    read_ids(given.table, "id", given.errors)
    return given.table, _STEP[read_operations(given.table, given.errors)]


def read_living_messages(
    given: GivenRows, ttl_s: float | None
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return messages that all say how long they live, and their step."""
    ttl = read_durations(given.table, "ttl_s", given.errors)
    if ttl_s is None:
        given.errors.add(~ttl.given, "ttl_s", _NO_TTL)
    seconds = np.where(ttl.given, ttl.us / 1_000_000, ttl_s or 0.0)
    table = with_column(given.table, "ttl_s", pa.array(seconds))
    return table, np.full(len(given.row), PUBLISH)


def pieces_of(
    rows: EventRows, chosen: NDArray[np.int64], *, distinct: bool
) -> Iterator[tuple[int, int]]:
    """Yield where pieces for one call begin and end; if ``distinct``, none has an id twice."""
    seen: set[str | int] = set()
    ids = rows.table["id"].take(pa.array(chosen)).to_pylist() if distinct else []
    first = 0
    for position in range(1, len(chosen)):
        if distinct:
            seen.add(ids[position - 1])
        if position - first == _ROWS_PER_CALL or (distinct and ids[position] in seen):
            yield first, position
            first, seen = position, set()
    yield first, len(chosen)


def with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """Return a table with a column, in the place of one that it has."""
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)
