"""The audit of a server's folder: the exhaustive scan against the events that the server has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import InvalidInput, StorageError
from nearcast.server.audit.comparing import as_columns, count_events, first_disagreement
from nearcast.server.audit.explaining import Difference, explain
from nearcast.server.audit.start import start_at
from nearcast.server.audit.stored import StoredEvents
from nearcast.server.log.records import MESSAGES, time_of
from nearcast.storage.log import LogReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nearcast.server.audit.replay import Replay
    from nearcast.storage.log import Record

__all__ = ["Report", "audit"]

_COMPARED_MESSAGES = 2_000


class Report(NamedTuple):
    """What an audit found.

    Attributes
    ----------
    first_seq, last_seq
        What was audited. ``last_seq`` is that of the difference, if there is one.
    messages, events
        How many messages were matched again, and how many events were compared.
    difference
        The first one; None if all events agree.
    notes
        What the result depends on, in sentences.
    """

    first_seq: int
    last_seq: int
    messages: int
    events: int
    difference: Difference | None
    notes: tuple[str, ...]


def audit(
    folder: Path,
    first: str | None = None,
    last: str | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> Report:
    """Match a stretch of the log again, by the exhaustive scan, and compare the events.

    Nothing in the folder is changed. The server may be running.

    Parameters
    ----------
    folder
        The folder of a server.
    first, last
        Where the stretch begins and ends: an event id, a seq, or a time (RFC 3339). By default
        everything that the folder has.
    progress
        Is called with the number of records that were processed, and how many there are.

    Raises
    ------
    StorageError
        If the log or the events cannot be read.
    InvalidInput
        If ``first`` or ``last`` is no such place, or not in the folder.
    """
    if not (folder / "log").is_dir():
        raise StorageError(f"{folder}: is not the folder of a server; it has no folder 'log'")
    if (folder / "kafka").is_dir():
        raise StorageError(
            f"{folder}: the messages of this server are matched by Spark (--matches), so its log "
            "does not say which events there must be; compare with nearcast spark match"
        )
    events = StoredEvents(folder)
    with LogReader(folder / "log") as log:
        replay, begin, notes = start_at(folder, log)
        stretch = _Stretch(
            max(events.first_seq, begin), min(log.last_seq, events.last_seq), log, [*notes]
        )
        stretch.choose(first, last)
        return _Audit(log, events, replay, stretch, progress).run(begin)


@dataclass
class _Stretch:
    """Which seqs are audited."""

    first: int
    last: int
    log: LogReader
    notes: list[str]

    def choose(self, first: str | None, last: str | None) -> None:
        """Take the places that were given."""
        if last is None and self.last < self.log.last_seq:
            self.notes.append(
                f"The log goes on to seq {self.log.last_seq:,}; the events after {self.last:,} are "
                "only in the memory of the server."
            )
        begin, end = self.first, self.last
        if first is not None:
            begin = self._seq("--from", first, before=False)
        if last is not None:
            end = self._seq("--to", last, before=True)
        self.first, self.last = begin, end

    def _seq(self, option: str, text: str, *, before: bool) -> int:
        """Return the seq of a place: of a time, the last before it or the first after it."""
        epoch, dash, rest = text.partition("-")
        number = rest.partition(".")[0] if dash else epoch
        if epoch.isdecimal() and number.isdecimal():
            seq = int(number)
            if not self.first <= seq <= self.last:
                problem = f"must be from {self.first:,} to {self.last:,}, which the folder has"
                raise InvalidInput(option, text, problem)
            if dash and self.log.epoch_of(seq) != int(epoch):
                raise InvalidInput(option, text, "is not an event of this log")
            return seq
        time_us = _time_us(option, text)
        if before:
            return min(self.last, self._first_at(time_us + 1) - 1)
        return max(self.first, self._first_at(time_us))

    def _first_at(self, time_us: int) -> int:
        """Return the first seq that is not before a time."""
        low, high = self.first, self.last + 1
        while low < high:
            record = self.log.find((low + high) // 2)
            if time_of(record) < time_us:
                low = record.last_seq + 1
            else:
                high = record.seq
        return low


class _Audit:
    """One audit."""

    def __init__(
        self,
        log: LogReader,
        events: StoredEvents,
        replay: Replay,
        stretch: _Stretch,
        progress: Callable[[float, float], None] | None,
    ) -> None:
        self._log, self._events, self._replay = log, events, replay
        self._stretch, self._progress = stretch, progress
        self._compared = stretch.first - 1
        self._messages = self._count = 0

    def run(self, begin: int) -> Report:
        """Process all records from a number on to the end of the stretch."""
        replay, stretch = self._replay, self._stretch
        difference, waiting, processed = None, 0, begin - 1
        for record in self._log.read(begin):
            if record.seq > stretch.last:
                break
            # What changes a subscription is compared on its own: then it is explained as it was.
            if record.kind != MESSAGES or waiting >= _COMPARED_MESSAGES:
                difference, waiting = self._compare(processed), 0
                if difference is not None:
                    break
            replay.matching = record.last_seq >= stretch.first
            replay.process(record)
            processed = record.last_seq
            if record.kind == MESSAGES:
                waiting += record.count
                self._messages += self._inside(record)
            else:
                waiting = _COMPARED_MESSAGES
            if self._progress is not None:
                self._progress(processed - begin + 1, stretch.last - begin + 1)
        if difference is None:
            difference = self._compare(processed)
        last = stretch.last if difference is None else difference.seq
        notes = tuple(stretch.notes)
        return Report(stretch.first, last, self._messages, self._count, difference, notes)

    def _inside(self, record: Record) -> int:
        """Return how many numbers of a record are in the stretch."""
        first, last = self._stretch.first, self._stretch.last
        return max(0, min(record.last_seq, last) - max(record.seq, first) + 1)

    def _compare(self, until: int) -> Difference | None:
        """Compare everything up to a number that was not compared yet."""
        first, last = self._compared + 1, min(until, self._stretch.last)
        posted = self._replay.take()
        if last < first:
            return None
        scan = as_columns([posting for posting in posted if first <= posting.seq <= last])
        server = self._events.between(first, last)
        self._compared = last
        found = first_disagreement(server, scan)
        if found is not None:
            return explain(found, self._replay, self._log)
        self._count += count_events(scan)
        return None


def _time_us(option: str, text: str) -> int:
    from nearcast.model import time_us

    try:
        return time_us(option, text)
    except InvalidInput:
        problem = "must be the id of an event, a seq, or a time such as 2026-01-31T12:00:00Z"
        raise InvalidInput(option, text, problem) from None
