"""The journal of an engine: every call that changes it is on disk before the call returns.

::

    LOCK, log/               the log of all calls since the checkpoint; see `nearcast.storage.log`
    checkpoint-00000000000000001200/    an engine as `Engine.save` writes it, after record 1,200
    CURRENT                  which checkpoint counts

A record says which method was called, with what, and what the clock showed. Opening reads the
checkpoint and makes the calls that came after it once more, with the clock of then.

A call notes its record under the lock that orders events, after it has done everything that can
fail, and waits for the disk when it has left the lock. So records are in the order of what
happened, and calls of several threads share one sync.
"""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from nearcast.errors import StorageError
from nearcast.storage.log import Entry, Log
from nearcast.storage.log.records import record_bytes
from nearcast.storage.temporary import TemporaryFile, sync_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from nearcast.engine.clock import EngineClock
    from nearcast.storage.log import Ticket

__all__ = ["UNNOTED", "Call", "Event", "Journal", "has_journal"]

_CURRENT, _LOG, _CHECKPOINT = "CURRENT", "log", "checkpoint-"
_CALL = 1
_NUMBER, _TIME = 4, 8
CHECKPOINT_BYTES = 64 << 20
"""A checkpoint is made when the log since the last one is that long."""


class Call(NamedTuple):
    """A call of a method: its name, arguments that JSON can say, and a table."""

    method: str
    arguments: dict[str, Any]
    table: pa.Table | None = None

    def to_bytes(self) -> bytes:
        """Return the call as bytes."""
        head = json.dumps([self.method, self.arguments]).encode()
        body = b"" if self.table is None else _table_bytes(self.table)
        return len(head).to_bytes(_NUMBER, "little") + head + body

    @classmethod
    def from_bytes(cls, body: bytes) -> Call:
        """Return the call of some bytes."""
        end = _NUMBER + int.from_bytes(body[:_NUMBER], "little")
        method, arguments = json.loads(body[_NUMBER:end])
        table = pa.ipc.open_stream(body[end:]).read_all() if len(body) > end else None
        return cls(method, arguments, table)


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


class Event:
    """A call that changes an engine; without a journal nobody notes it."""

    def begin(self) -> None:
        """Begin: from now on the call sees one time. Callers hold the lock that orders events."""

    def happened(self) -> None:
        """Note that the call has happened. Callers still hold the lock."""


UNNOTED = Event()
"""The event of an engine without a journal."""


class Noted(Event):
    """A call that gets a record."""

    def __init__(self, log: Log, clock: EngineClock, body: bytes) -> None:
        self._log, self._clock, self._body = log, clock, body
        self._now_us: int | None = None
        self.ticket: Ticket | None = None

    def begin(self) -> None:
        if self._now_us is None:
            self._now_us = self._clock.stop()

    def happened(self) -> None:
        assert self._now_us is not None
        now = self._now_us.to_bytes(_TIME, "little", signed=True)
        self.ticket = self._log.enqueue([Entry(_CALL, now + self._body)])


class Journal:
    """The journal in a folder, opened by one process at a time.

    Parameters
    ----------
    folder
        Where it is; it is made if it is not there.

    Attributes
    ----------
    clock
        The clock of the engine.
    """

    clock: EngineClock

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.log = Log(self.folder / _LOG)
        self._checkpointing = threading.Lock()
        try:
            self._at = self._read_current()
            self._remove_others()
        except BaseException:
            self.log.close()
            raise
        self._bytes = 0

    @property
    def checkpoint(self) -> Path | None:
        """The engine that counts, without the calls that came after it; None for a new one."""
        return None if self._at is None else self._path(self._at)

    def calls(self) -> Iterator[tuple[int, int, Call]]:
        """Yield the calls since the checkpoint: the number of the record, the clock, the call."""
        for record in self.log.read(1 if self._at is None else self._at + 1):
            self._bytes += record_bytes(len(record.body))
            now_us = int.from_bytes(record.body[:_TIME], "little", signed=True)
            yield record.seq, now_us, Call.from_bytes(record.body[_TIME:])

    @contextmanager
    def noting(self, call: Call) -> Iterator[Noted]:
        """Note a call that happens inside of the context; wait for the disk at its end.

        There is a place for it on the disk when the context is entered, or an error.
        """
        body = call.to_bytes()
        size = record_bytes(_TIME + len(body))
        self.log.reserve(size)
        noted = Noted(self.log, self.clock, body)
        try:
            yield noted
        finally:
            self.clock.go_on()
            if noted.ticket is None:
                self.log.release(size)
        if noted.ticket is not None:
            noted.ticket.wait()
            self._bytes += size

    @property
    def wants_checkpoint(self) -> bool:
        """Whether there is much in the log that opening would have to do again."""
        return self._bytes > CHECKPOINT_BYTES

    def make_checkpoint(self, take: Callable[[], tuple[int, Callable[[Path], None]]]) -> None:
        """Write the engine as it is now, and forget the calls before.

        Parameters
        ----------
        take
            Returns the last record that has happened, and what writes the engine as it was then.
        """
        with self._checkpointing:
            seq, write = take()
            if seq == self._at:
                return
            target = self._path(seq)
            write(target)
            while self.log.last_seq < seq:  # nothing counts before its record is on disk
                self.log.append([])
            with TemporaryFile(self.folder / _CURRENT) as temporary:
                temporary.path.write_text(f"{seq}\n")
                temporary.publish()
            sync_folder(self.folder)
            self._at, self._bytes = seq, 0
            self._remove_others()
            self.log.trim(seq + 1)

    def close(self) -> None:
        """Close the log."""
        self.log.close()

    def _read_current(self) -> int | None:
        path = self.folder / _CURRENT
        if not path.exists():
            return None
        try:
            return int(path.read_text())
        except ValueError:
            raise StorageError(f"{path}: does not name a checkpoint; restore a backup") from None

    def _remove_others(self) -> None:
        """Remove checkpoints that do not count: older ones, and what killed writers left.

        Nobody else writes here: the log is locked.
        """
        for path in (*self.folder.glob(f"{_CHECKPOINT}*"), *self.folder.glob(f".{_CHECKPOINT}*")):
            if self._at is None or path != self._path(self._at):
                shutil.rmtree(path)
        for path in self.folder.glob(f".{_CURRENT}.*"):
            path.unlink()

    def _path(self, seq: int) -> Path:
        return self.folder / f"{_CHECKPOINT}{seq:020d}"


def has_journal(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder belongs to an engine with a journal."""
    return (Path(folder) / _LOG).is_dir()
