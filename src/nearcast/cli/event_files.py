"""Files of moves and messages, read in the order of time.

A file that is in the order of time is read as it goes; any other is read as a whole and sorted. To
know which it is, its times are read first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER
from nearcast.errors import InvalidInput
from nearcast.intake import open_table
from nearcast.intake.messages import with_lives
from nearcast.intake.rejects import RowErrors
from nearcast.intake.renaming import our_columns
from nearcast.intake.times import read_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.intake import Batch, Reading, Rejects

__all__ = ["EventFile", "Events"]

ROWS_PER_CALL = 50_000
_BEGINNING = int(np.iinfo(np.int64).min)


class Events(NamedTuple):
    """Rows of files, by time, and where each comes from: a batch, and the position in it."""

    table: pa.Table
    time_us: NDArray[np.int64]
    batches: list[Batch]
    batch: NDArray[np.int64]
    position: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time_us)

    def slice(self, first: int, last: int) -> Events:
        """Return neighbouring rows, the last excluded."""
        columns = (self.time_us, self.batch, self.position)
        time_us, batch, position = (column[first:last] for column in columns)
        return Events(self.table.slice(first, last - first), time_us, self.batches, batch, position)

    @classmethod
    def concatenate(cls, parts: list[Events]) -> Events:
        """Return the rows of all parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        first = np.cumsum([0, *(len(part.batches) for part in parts)])
        return cls(
            pa.concat_tables([part.table for part in parts], promote_options="permissive"),
            np.concatenate([part.time_us for part in parts]),
            [batch for part in parts for batch in part.batches],
            np.concatenate([part.batch + at for part, at in zip(parts, first, strict=False)]),
            np.concatenate([part.position for part in parts]),
        )

    def by_time(self) -> Events:
        """Return the rows by time, equal times as they are."""
        order = np.argsort(self.time_us, kind="stable")
        columns = (self.time_us, self.batch, self.position)
        time_us, batch, position = (column[order] for column in columns)
        return Events(self.table.take(pa.array(order)), time_us, self.batches, batch, position)

    def in_files(self, rejects: Rejects) -> Rejects:
        """Return rejects of these rows with their files, numbers and original records."""
        if not len(rejects):
            return rejects
        places = [
            (self.batches[batch], position)
            for batch, position in zip(
                self.batch[rejects.row].tolist(), self.position[rejects.row].tolist(), strict=True
            )
        ]
        return replace(
            rejects,
            row=np.array([batch.rows[position] for batch, position in places], np.int64),
            file=tuple(batch.file for batch, _ in places),
            record=tuple(batch.records([position])[0] for batch, position in places),
        )


class EventFile:
    """The rows of a file that have a time, which are taken in the order of time.

    Parameters
    ----------
    path, reading
        The file, and how it is read.
    kind
        ``messages``, which live for a while, or ``moves``.
    reject
        Is given the rows that were rejected.
    seen
        Is given every batch that was read.
    ttl_s
        How long messages live that do not say it.
    """

    def __init__(
        self,
        path: Path,
        reading: Reading,
        kind: str,
        reject: Callable[[Rejects], None],
        *,
        seen: Callable[[Batch], None],
        ttl_s: float | None = None,
    ) -> None:
        self._path, self._reading, self._kind = path, reading, kind
        self._reject, self._seen, self._ttl_s = reject, seen, ttl_s
        self._lives = kind == "messages"
        self.bytes_read = self.bytes_total = 0
        self._sorted = self._look()
        self._parts = self._without_cuts()
        self._part: Events | None = None
        self._at = 0
        self._fill()

    @property
    def next_us(self) -> int:
        """The time of the next row, `NEVER` if there is none."""
        return NEVER if self._part is None else int(self._part.time_us[self._at])

    def take(self, until_us: int) -> Events:
        """Return the next rows until a time, that time included; perhaps not all, but some.

        Rows of one time are not torn apart.
        """
        assert self._part is not None
        time_us, first = self._part.time_us, self._at
        until_us = min(until_us, int(time_us[min(first + ROWS_PER_CALL, len(time_us)) - 1]))
        self._at = int(np.searchsorted(time_us, until_us, side="right"))
        taken = self._part.slice(first, self._at)
        self._fill()
        return taken

    def _fill(self) -> None:
        """Go on to the next part if this one is done."""
        if self._part is None or self._at == len(self._part):
            self._part, self._at = next(self._parts, None), 0

    def _look(self) -> bool:
        """Return whether the rows are in the order of time; check what all of them must have."""
        in_order, latest, says_ttl = True, _BEGINNING, False
        for batch in open_table(self._path, self._reading, kind=self._kind):
            time = read_times(batch.table, "time", RowErrors(batch.table.num_rows))
            given = time.us[time.given]
            says_ttl |= "ttl_s" in batch.table.column_names
            if len(given):
                in_order &= latest <= given[0] and bool((given[1:] >= given[:-1]).all())
                latest = max(latest, int(given.max()))
            self.bytes_total = batch.bytes_total
        if self._lives and not says_ttl and self._ttl_s is None:
            problem = (
                "is missing; messages have no column ttl_s, so give the seconds that they live"
            )
            raise InvalidInput("--ttl", None, problem)
        return in_order

    def _without_cuts(self) -> Iterator[Events]:
        """Yield parts, each of which begins after the end of the one before."""
        parts = self._read()
        if not self._sorted:
            parts = iter([Events.concatenate([*parts]).by_time()])
        held: list[Events] = []
        for part in parts:
            if not len(part):
                continue
            last = int(np.searchsorted(part.time_us, part.time_us[-1]))
            if last:
                yield Events.concatenate([*held, part.slice(0, last)])
                held = []
            held.append(part.slice(last, len(part)))
        if held:
            yield Events.concatenate(held)

    def _read(self) -> Iterator[Events]:
        """Yield the rows of each batch that have a time."""
        for batch in open_table(self._path, self._reading, kind=self._kind):
            self._seen(batch)
            self._reject(batch.rejects)
            errors = RowErrors(batch.table.num_rows)
            table = our_columns(batch.table, self._kind)
            time = read_times(table, "time", errors)
            errors.add(~time.given, "time", "is missing; with --moves, every row needs a time")
            if self._lives:
                table = with_lives(table, errors, self._ttl_s, "--ttl")
            self._reject(errors.rejects(table, batch))
            kept = np.flatnonzero(errors.valid)
            self.bytes_read = batch.bytes_read
            number = np.zeros(len(kept), np.int64)
            yield Events(table.take(pa.array(kept)), time.us[kept], [batch], number, kept)
