"""The live server's threads: the committer writes, the matcher matches, checkpoints are written.

::

    submit -> committer -> log -> matcher -> state, events -> whoever listens

Publishers are acknowledged when the committer has written their messages. Whoever changes a
subscription is answered when the matcher has applied the change.
"""

from __future__ import annotations

import logging
import threading
import time as clocks
from typing import TYPE_CHECKING, NamedTuple, Protocol

from nearcast.columns import NEVER
from nearcast.errors import StorageError
from nearcast.server.log.committer import Committer, Overloaded
from nearcast.server.log.records import TICK, time_of
from nearcast.server.matching.recovery import advance, computed_again
from nearcast.server.matching.remote import RemoteEngine
from nearcast.storage.log import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.server.log import Log
    from nearcast.server.log.committer import Committed
    from nearcast.server.matching.events import Block, DamagedEvents
    from nearcast.server.matching.matcher import Processed
    from nearcast.server.matching.recovery import Recovered
    from nearcast.server.state import State
    from nearcast.storage.log import Record

__all__ = ["CheckpointPolicy", "Listener", "Pipeline"]

_log = logging.getLogger("nearcast.server")
MAX_BACKLOG = 400_000
"""How many messages and changes may wait for the matcher before publishers have to wait."""

_TURN_S = 0.5
_RETRY_S = 1.0
_MAX_WAIT_S = 60.0  # the clock of the system may be changed
_TIME_PASSES = object()  # the tag of ticks


class Listener(Protocol):
    """Hears what happens, in the threads in which it happens."""

    def committed(self, group: list[Committed]) -> None:
        """Hear that a group was written, or could not be."""

    def matched(self, processed: Processed, block: Block, records: list[Record]) -> None:
        """Hear that records were matched, and that their events can be read."""

    def failed(self, error: BaseException) -> None:
        """Hear that nothing can be written or matched any more: the process has to end."""


class CheckpointPolicy(NamedTuple):
    """When a checkpoint is made: after records of this size, or after this many changes."""

    log_bytes: int = 512 << 20
    changes: int = 1_000_000


class Pipeline:
    """Runs the threads.

    Parameters
    ----------
    log, state
        What was opened.
    recovered
        Matching at the end of the log.
    listener
        Hears what happens.
    policy
        When checkpoints are made.
    clock_us
        The current time, in microseconds since 1970.
    """

    def __init__(
        self,
        log: Log,
        state: State,
        recovered: Recovered,
        listener: Listener,
        policy: CheckpointPolicy | None = None,
        clock_us: Callable[[], int] = lambda: clocks.time_ns() // 1000,
    ) -> None:
        self.log, self.state = log, state
        self.matcher, self.events = recovered.matcher, recovered.events
        self.checkpoints = recovered.checkpoints
        self._listener = listener
        self._policy = policy or CheckpointPolicy()
        self._clock_us = clock_us
        self._seq, self._time_us = recovered.seq, recovered.time_us
        self._changed = threading.Condition()
        self._queue: list[Record] = []
        self._backlog = 0
        self._closing = self._stopped = False
        self._ticking = False
        self._tick_at = 0.0
        self._matching = threading.Lock()
        self._writing = threading.Lock()
        self._bytes = self._changes = 0
        self._checkpointing = threading.Thread()
        self._committer = Committer(
            log,
            self._committed,
            self._fail,
            last_us=recovered.time_us,
            lead_us=recovered.matcher.clocks.lead_us,
            clock_us=clock_us,
            has_space=recovered.checkpoints.has_space,
        )
        self._thread = threading.Thread(target=self._run, name="matcher", daemon=True)
        self._thread.start()

    @property
    def matched_seq(self) -> int:
        """The last record that was matched."""
        return self._seq

    @property
    def backlog(self) -> int:
        """How many messages and changes wait for the matcher."""
        return self._backlog

    @property
    def lead_us(self) -> int:
        """By how much the last record is ahead of the clock of the machine."""
        return self._committer.lead_us

    def step_back(self, tag: object) -> None:
        """Let the time of records be that of the clock again; the listener hears of the tag."""
        self._committer.step_back(tag)

    def submit(self, tag: object, entry: Entry) -> None:
        """Let an entry be written; the listener hears of it by its tag."""
        self._committer.submit(tag, entry)

    def close(self) -> None:
        """Write and match everything that waits, make a checkpoint, and end."""
        self.log.stop_waiting()
        self.state.stop_waiting()
        self._committer.close()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._checkpointing.is_alive():
            self._checkpointing.join()
        if not self._stopped:
            self._write_checkpoint()
        self.events.close()
        self.matcher.engine.close()

    def rebuild(self, damaged: DamagedEvents) -> None:
        """Compute the events of a damaged segment again, from the log; any thread may call this.

        Raises
        ------
        StorageError
            If that is not possible, or the server is shutting down.
        """
        remote = isinstance(self.matcher.engine, RemoteEngine)
        with self._writing:  # no checkpoint is removed meanwhile
            postings = computed_again(
                self.checkpoints,
                self.log,
                damaged.first_seq,
                damaged.last_seq,
                remote=remote,
                stopped=lambda: self._closing or self._stopped,
            )
            self.events.replace(damaged, postings)

    def checkpoint(self) -> None:
        """Write a checkpoint of this moment; older ones that nobody needs are removed."""
        with self._writing:
            self._checkpoint()
            self.checkpoints.keep(self.log.first_seq)

    def _checkpoint(self) -> None:
        write = None
        while write is None:
            # Matching must not wait until segments are merged. But it may have to count weights,
            # which waits for merging as well: then it comes first.
            with self.matcher.engine._store.merging:
                if not self._matching.acquire(timeout=_TURN_S):
                    continue
                try:
                    self._bytes = self._changes = 0
                    seq = self._seq
                    write = self.checkpoints.take(self.matcher, self.events, seq, self._time_us)
                finally:
                    self._matching.release()
        self.state.apply([], seq, durable=True)  # the state is never behind a checkpoint
        write()

    # --- the committer's thread ------------------------------------------------------------------

    def _committed(self, group: list[Committed]) -> None:
        self._listener.committed(group)  # before it can hear that they were matched
        records = [outcome.record for outcome in group if outcome.record is not None]
        with self._changed:
            for tag, _, error in group:
                if tag is _TIME_PASSES:
                    self._ticking = False
                    self._tick_at = clocks.monotonic() + _RETRY_S if error is not None else 0.0
            self._queue += records
            self._backlog += sum(record.count for record in records)
            self._changed.notify_all()
            while self._backlog > MAX_BACKLOG and not self._stopped:
                self._changed.wait()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._listener.failed(error)

    # --- the matcher's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while records := self._take():
                self._match(records)
                self._checkpoint_later()
        except BaseException as error:
            _log.exception("matching failed")
            self._fail(error)

    def _take(self) -> list[Record]:
        """Return what was committed meanwhile; wait for something, and let time pass."""
        with self._changed:
            while not self._queue:
                if self._closing or self._stopped:
                    return []
                wait_s = self._until_tick_s()
                if wait_s <= 0:
                    self._tick()
                else:
                    self._changed.wait(min(wait_s, _MAX_WAIT_S))
            records, self._queue = self._queue, []
            return records

    def _until_tick_s(self) -> float:
        """Return how long nothing happens by itself."""
        if self._ticking or self.matcher.next_us == NEVER:
            return _MAX_WAIT_S
        due_s = (self.matcher.next_us - self._clock_us()) / 1e6
        return max(due_s, self._tick_at - clocks.monotonic())

    def _tick(self) -> None:
        """Let a record be written that says that time has passed."""
        try:
            self._committer.submit(_TIME_PASSES, Entry(TICK, b"", 1))
            self._ticking = True
        except (Overloaded, StorageError):  # time passes with what is committed next
            self._tick_at = clocks.monotonic() + _RETRY_S

    def _match(self, records: list[Record]) -> None:
        with self._matching:
            processed, block = advance(self.matcher, self.events, self.state, records)
            last = records[-1]
            self._seq, self._time_us = processed.last_seq, time_of(last)
        self._bytes += sum(len(record.body) for record in records)
        self._changes += sum(map(len, processed.outcomes.values()))
        with self._changed:
            self._backlog -= sum(record.count for record in records)
            self._changed.notify_all()
        assert block is not None
        self._listener.matched(processed, block, records)

    def _checkpoint_later(self) -> None:
        due = self._bytes > self._policy.log_bytes or self._changes > self._policy.changes
        if due and not self._checkpointing.is_alive():
            self._checkpointing = threading.Thread(
                target=self._write_checkpoint, name="checkpoint", daemon=True
            )
            self._checkpointing.start()

    def _write_checkpoint(self) -> None:
        if self.checkpoints.read_only:
            return
        try:
            self.checkpoint()
        except OSError as error:  # the next one may succeed: the log has everything
            _log.warning("a checkpoint could not be written: %s", error)
