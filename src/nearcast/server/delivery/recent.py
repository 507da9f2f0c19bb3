"""Records of the log that were matched or read a moment ago, so that they are not read again.

Events of one record are often rendered for many subscribers at the same time, and a subscriber
that catches up needs the same record many times.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from nearcast.server.log.records import MESSAGES, message_starts, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nearcast.storage.log import Record

__all__ = ["OpenRecord", "RecentRecords"]

MAX_BYTES = 64 << 20
MAX_RECORDS = 4_096


class OpenRecord:
    """A record whose messages can be found quickly.

    Attributes
    ----------
    record
        The record.
    time_us
        Its time.
    """

    __slots__ = ("_starts", "record", "time_us")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.time_us = time_of(record)
        self._starts: list[int] | None = None

    def message(self, seq: int) -> bytes:
        """Return the JSON of a message; nothing if the record has no messages."""
        record = self.record
        if record.kind != MESSAGES:
            return b""
        starts = self._starts
        if starts is None:
            starts = self._starts = message_starts(record)
        at = seq - record.seq
        return record.body[starts[at] : starts[at + 1]]


class RecentRecords:
    """Some records, by number; those that were added first are forgotten first. Thread-safe.

    Parameters
    ----------
    max_bytes, max_records
        How much is kept; always the last one.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_records: int = MAX_RECORDS) -> None:
        self._max_bytes, self._max_records = max_bytes, max_records
        self._lock = threading.Lock()
        self._of_first: dict[int, OpenRecord] = {}
        self._firsts: list[int] = []
        self._bytes = 0

    def add(self, records: Iterable[Record]) -> None:
        """Keep records."""
        for record in records:
            self.add_one(record)

    def add_one(self, record: Record) -> OpenRecord:
        """Keep a record, and return it."""
        opened = OpenRecord(record)
        with self._lock:
            if record.seq not in self._of_first:
                self._of_first[record.seq] = opened
                insort(self._firsts, record.seq)
                self._bytes += len(record.body)
            while len(self._firsts) > 1 and (
                self._bytes > self._max_bytes or len(self._firsts) > self._max_records
            ):
                self._forget_first()
        return opened

    def find(self, seq: int) -> OpenRecord | None:
        """Return the record that has a number, if it is kept."""
        with self._lock:
            at = bisect_right(self._firsts, seq) - 1
            if at < 0:
                return None
            found = self._of_first[self._firsts[at]]
            return found if seq <= found.record.last_seq else None

    def _forget_first(self) -> None:
        first = next(iter(self._of_first))
        self._bytes -= len(self._of_first.pop(first).record.body)
        del self._firsts[bisect_left(self._firsts, first)]
