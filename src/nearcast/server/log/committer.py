"""The committer: one thread that writes what everybody else wants to have written.

It takes everything that waits, writes it as one group with one sync, and then acknowledges all of
it. Inside a group, changes come before messages: they were made at the same time, so any order is
right, and matching has to switch between them only once.
"""

from __future__ import annotations

import threading
import time as clocks
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import NearcastError, NoSpace, StorageError, Unavailable
from nearcast.server.log.clocks import LogClock
from nearcast.server.log.records import CLOCK, MESSAGES, clock_body, timed
from nearcast.storage.log import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.server.log import Log
    from nearcast.storage.log import Entry

__all__ = ["Committed", "Committer", "Overloaded", "Written"]

MAX_WAITING_BYTES = 256 << 20
_MAX_GROUP_BYTES = 16 << 20
_CLOCK_TAG = object()  # of the records that the committer adds itself


class Overloaded(NearcastError):
    """More waits to be written than memory should hold."""


class Committed(NamedTuple):
    """What became of an entry: its record, or the error."""

    tag: object
    record: Record | None
    error: StorageError | None = None


class Written:
    """A tag for which a thread can wait."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._outcome: Committed | None = None

    def hear(self, outcome: Committed) -> None:
        """Hear what became of the entry."""
        self._outcome = outcome
        self._done.set()

    def wait(self) -> Committed:
        """Wait until the entry was written, or could not be."""
        self._done.wait()
        assert self._outcome is not None
        return self._outcome


class Committer:
    """Writes entries in groups.

    Parameters
    ----------
    log
        The log.
    deliver
        Gets the outcome of every group, in the thread of the committer; it may wait, and then
        publishers wait too.
    failed
        Is called when the log has failed for good.
    last_us, lead_us
        The time of the last record so far, and the lead over the clock that the log has told last.
    clock_us
        The current time, in microseconds since 1970.
    has_space
        Whether there is space for what follows from records: the state, events and checkpoints.
    """

    def __init__(
        self,
        log: Log,
        deliver: Callable[[list[Committed]], None],
        failed: Callable[[StorageError], None],
        *,
        last_us: int = 0,
        lead_us: int = 0,
        clock_us: Callable[[], int] = lambda: clocks.time_ns() // 1000,
        has_space: Callable[[], bool] = lambda: True,
    ) -> None:
        self._log = log
        self._deliver = deliver
        self._failed = failed
        self._clock = LogClock(clock_us, last_us, lead_us)
        self._has_space = has_space
        self._changed = threading.Condition()
        self._waiting: list[tuple[object, Entry]] = []
        self._bytes = 0
        self._closing = False
        self._failure: StorageError | None = None
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    @property
    def lead_us(self) -> int:
        """By how much the last record is ahead of the clock of the machine."""
        return self._clock.lead_us

    def step_back(self, tag: object) -> None:
        """Let the time of records be that of the clock again; the outcome carries the tag."""
        self.submit(tag, clock_body(0, 0))

    def submit(self, tag: object, entry: Entry) -> None:
        """Let an entry wait; its outcome carries the tag.

        Raises
        ------
        Overloaded
            If too much waits already, or the server is shutting down.
        Unavailable
            If the database of the log is away.
        StorageError
            If the log has failed.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._bytes > MAX_WAITING_BYTES:
                raise Overloaded("too much waits to be written; try again in a second")
            if self._log.away:
                raise Unavailable("the database is away; what is sent now is not stored")
            if self._closing:
                raise Overloaded("the server is shutting down; try again in a few seconds")
            self._waiting.append((tag, entry))
            self._bytes += len(entry.body)
            if len(self._waiting) == 1:
                self._changed.notify()

    def close(self) -> None:
        """Write everything that waits, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _take(self) -> list[tuple[object, Entry]]:
        """Return what waits, changes first; wait for something."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            taken, size = 0, 0
            while taken < len(self._waiting) and size < _MAX_GROUP_BYTES:
                size += len(self._waiting[taken][1].body)
                taken += 1
            group, self._waiting = self._waiting[:taken], self._waiting[taken:]
            self._bytes -= size
        group.sort(key=lambda item: item[1].kind == MESSAGES)
        return group

    def _run(self) -> None:
        try:
            while group := self._take():
                self._write(group)
        except BaseException as error:
            self._fail(error)

    def _write(self, group: list[tuple[object, Entry]]) -> None:
        """Append a group to the log, and hand over the outcomes."""
        steps = [item for item in group if item[1].kind == CLOCK]
        stamp = self._clock.stamp(step=bool(steps))
        if steps or stamp.lead_us != self._clock.stored_us:
            told = (_CLOCK_TAG, clock_body(stamp.lead_us, stamp.back_us))
            again = [(tag, clock_body(stamp.lead_us, 0)) for tag, _ in steps]
            others = [item for item in group if item[1].kind != CLOCK]
            group = [told, *again, *others]
        entries = [timed(entry, stamp.time_us) for _, entry in group]
        try:
            if not self._has_space():
                raise NoSpace("the disk has no space for what would follow, or cannot be written")
            last = self._log.append(entries)
        except (NoSpace, Unavailable) as error:  # nothing was written
            self._deliver([Committed(tag, None, error) for tag, _ in group])
            return
        except BaseException as error:
            failure = _storage_error(error)
            self._deliver([Committed(tag, None, failure) for tag, _ in group])
            raise
        self._clock.keep(stamp)
        seq = last - sum(entry.count for entry in entries) + 1
        outcomes = []
        for (tag, _), entry in zip(group, entries, strict=True):
            record = Record(seq, entry.kind, entry.body, self._log.epoch, entry.count)
            outcomes.append(Committed(tag, record))
            seq += entry.count
        self._deliver(outcomes)

    def _fail(self, error: BaseException) -> None:
        """Refuse everything that waits, and everything that comes."""
        failure = _storage_error(error)
        with self._changed:
            self._failure = failure
            waiting, self._waiting = self._waiting, []
        self._deliver([Committed(tag, None, failure) for tag, _ in waiting])
        self._failed(failure)


def _storage_error(error: BaseException) -> StorageError:
    return error if isinstance(error, StorageError) else StorageError(f"writing failed: {error!r}")
