"""A log: records in the order in which they were appended, on disk when `append` returns.

::

    LOCK                          held by the one process that writes
    epoch                         how often the log has been opened for writing
    00000000000000000001.log      a segment: zeros at first, named after its first record
    00000000000000104857.log
    spare                         the next segment, which has its place on the disk already

Several threads may append at a time. One of them writes for all that wait, with one write and one
sync; the others return when it is done. A segment has its place on the disk before anything is
written to it, and `reserve` makes sure that a record will have one. So a full disk is an error
before something happens, and never after.

After a crash the end of the last segment may be torn, because disks write in any order. What
cannot be read there was never acknowledged, and is cut off; see `nearcast.storage.log.records`.
Damage anywhere else is an error that names the place.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nearcast.errors import InvalidInput, StorageError
from nearcast.locks import LOCKS, lock_file, unlock_file
from nearcast.storage.log.disk import Disk
from nearcast.storage.log.records import (
    MAX_BODY_BYTES,
    encode,
    read_at,
    record_bytes,
    records_after,
)
from nearcast.storage.temporary import TemporaryFile, sync_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from nearcast.storage.log.records import Entry, Record

__all__ = ["Log", "Ticket"]

SEGMENT_BYTES = 64 << 20
_SUFFIX = ".log"
_SPARE = "spare"


class Ticket:
    """Entries that wait to be written; ``last_seq`` is the number of the last one."""

    def __init__(self, log: Log, entries: Sequence[Entry], last_seq: int) -> None:
        self._log = log
        self.entries = entries
        self.last_seq = last_seq
        self.error: StorageError | None = None

    @property
    def done(self) -> bool:
        """Whether the entries are on disk, or never will be."""
        return self.last_seq <= self._log.last_seq or self.error is not None

    def wait(self) -> int:
        """Return the number of the last entry when all of them are on disk."""
        return self._log.commit(self)


class Log:
    """The log in a folder, opened for writing by one process at a time.

    Parameters
    ----------
    folder
        Where it is; it is made if it is not there.
    segment_bytes
        How large segments are.
    disk
        Writes and syncs files.

    Examples
    --------
    >>> import tempfile
    >>> with Log(tempfile.mkdtemp()) as log:
    ...     log.append([(1, b"first"), (1, b"second")]), log.append([(2, b"third")])
    (2, 3)
    >>> with Log(log.folder) as log:
    ...     [record.body for record in log.read(2)]
    [b'second', b'third']
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._segment_bytes = segment_bytes
        self._disk = disk or Disk()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be created ({error.strerror}); choose another folder"
            raise StorageError(f"{self.folder}: {problem}") from error
        self._lock = open(self.folder / "LOCK", "ab")
        if LOCKS and not lock_file(self._lock):
            self._lock.close()
            raise StorageError(
                f"{self.folder}: is already open for writing, in this process or another; "
                "close it there first"
            )
        self._changed = threading.Condition()
        self._waiting: list[Ticket] = []
        self._promised = 0
        self._writing = False
        self._failure: OSError | None = None
        self._spare_bytes = 0
        self._file = -1
        self._firsts: list[int] = []
        self._last_seq = self._enqueued = 0
        self._end = self._end_after = self._capacity = 0
        try:
            self.epoch = self._next_epoch()
            self._open_last()
        except BaseException:
            self.close()
            raise

    @property
    def first_seq(self) -> int:
        """The first record that is still there, or the next one if there is none."""
        return self._firsts[0]

    @property
    def last_seq(self) -> int:
        """The last record that is on disk, 0 if there never was one."""
        return self._last_seq

    @property
    def enqueued_seq(self) -> int:
        """The last record that is on disk or waits to be written."""
        return self._enqueued

    # --- writing ---------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries, and return the number of the last one when all of them are on disk."""
        self.reserve(sum(record_bytes(len(body)) for _, body in entries))
        return self.enqueue(entries).wait()

    def reserve(self, size: int) -> None:
        """Make sure that records with this many bytes have a place on the disk.

        Every reservation is used by one `enqueue`, or given back by `release`.

        Raises
        ------
        StorageError
            If there is no place, or the log has failed.
        """
        with self._changed:
            self._check()
            wanted = self._promised + size
            if wanted > max(self._capacity - self._end, self._spare_bytes):
                try:
                    self._make_spare(max(wanted, self._segment_bytes))
                except OSError as error:
                    problem = f"{self.folder}: no space for {size:,} bytes: {error.strerror}"
                    raise StorageError(problem) from error
            self._promised += size

    def release(self, size: int) -> None:
        """Give back a reservation."""
        with self._changed:
            self._promised -= size

    def enqueue(self, entries: Sequence[Entry]) -> Ticket:
        """Let entries, for which there is a reservation, wait in the order of these calls."""
        for kind, body in entries:
            if len(body) > MAX_BODY_BYTES or not 0 <= kind < 1 << 16:
                raise InvalidInput("entry", kind, "must have a kind of 16 bits, and at most 2 GB")
        with self._changed:
            self._check()
            self._enqueued += len(entries)
            ticket = Ticket(self, entries, self._enqueued)
            self._waiting.append(ticket)
        return ticket

    def commit(self, ticket: Ticket) -> int:
        """Return when a ticket is on disk; whoever comes first writes for all that wait."""
        with self._changed:
            while not ticket.done:
                if self._writing:
                    self._changed.wait()
                    continue
                group, self._waiting, self._writing = self._waiting, [], True
                failure: OSError | None = InterruptedError(errno.EINTR, "interrupted")
                self._changed.release()
                try:
                    failure = self._write(group)
                finally:
                    self._changed.acquire()
                    self._finish(group, failure)
                    self._writing = False
                    self._changed.notify_all()
        if ticket.error is not None:
            raise ticket.error
        return ticket.last_seq

    def _finish(self, group: list[Ticket], failure: OSError | None) -> None:
        if failure is not None:
            self._failure = failure
        for ticket in group:
            self._promised -= sum(record_bytes(len(body)) for _, body in ticket.entries)
        if failure is None:
            self._last_seq, self._end = group[-1].last_seq, self._end_after
            return
        for ticket in (*group, *self._waiting):
            ticket.error = self._failed()
        self._waiting = []

    def _write(self, group: list[Ticket]) -> OSError | None:
        """Write the entries of a group and sync them; return what went wrong."""
        entries = [entry for ticket in group for entry in ticket.entries]
        data = encode(entries, self._last_seq + 1, self.epoch)
        try:
            if self._end + len(data) > self._capacity:
                with self._changed:  # others may be making a spare
                    self._begin_segment(len(data))
            self._disk.write(self._file, data, self._end)
            self._disk.sync(self._file)
        except OSError as error:
            return error
        self._end_after = self._end + len(data)
        return None

    def _begin_segment(self, size: int) -> None:
        """Let the spare be the segment that is written to."""
        if self._spare_bytes < size:
            self._make_spare(max(size, self._segment_bytes))
        first = self._last_seq + 1
        path = self._path(first)
        self._disk.rename(self.folder / _SPARE, path)
        if self._file >= 0:
            self._disk.close(self._file)
        self._file, self._end, self._capacity = self._disk.open(path), 0, self._spare_bytes
        self._spare_bytes = 0
        self._firsts.append(first)

    def _make_spare(self, size: int) -> None:
        path = self.folder / _SPARE
        if path.exists():
            self._disk.remove(path)
        self._spare_bytes = 0
        self._disk.close(self._disk.create(path, size))
        self._spare_bytes = size

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failed()
        if self._file < 0 and not self._firsts:
            raise StorageError(f"{self.folder}: the log is closed; open it again")

    def _failed(self) -> StorageError:
        problem = self._failure.strerror if self._failure else "it failed"
        return StorageError(
            f"{self.folder}: writing failed ({problem}); what is on disk is unknown until the log "
            "is opened again"
        )

    # --- reading ---------------------------------------------------------------------------------

    def read(self, first: int = 1) -> Iterator[Record]:
        """Yield the records from a number on that are on disk now.

        Raises
        ------
        StorageError
            If records are gone, or a segment is damaged.
        """
        with self._changed:
            firsts, last, end = list(self._firsts), self._last_seq, self._end
        if first < firsts[0]:
            raise StorageError(
                f"{self.folder}: record {first:,} is gone; the first is {firsts[0]:,}"
            )
        for number, seq in enumerate(firsts):
            is_last = number + 1 == len(firsts)
            after = last + 1 if is_last else firsts[number + 1]
            if after <= first:
                continue
            buffer = self._content(seq, end if is_last else None)
            at = 0
            while seq < after:
                found = read_at(buffer, at)
                if found is None or found.record.seq != seq:
                    raise self._damage(firsts[number], at, seq)
                if seq >= first:
                    yield found.record
                at, seq = found.end, seq + 1

    def trim(self, before: int) -> None:
        """Remove the segments all of whose records have smaller numbers."""
        while len(self._firsts) > 1 and self._firsts[1] <= before:
            self._disk.remove(self._path(self._firsts[0]))
            with self._changed:
                del self._firsts[0]

    def close(self) -> None:
        """Close the log; what was appended is on disk."""
        with self._changed:
            if self._file >= 0:
                self._disk.close(self._file)
            self._file, self._firsts = -1, []
        if not self._lock.closed:
            unlock_file(self._lock)
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- opening ---------------------------------------------------------------------------------

    def _next_epoch(self) -> int:
        path = self.folder / "epoch"
        epoch = int(path.read_text()) + 1 if path.exists() else 1
        with TemporaryFile(path) as temporary:
            temporary.path.write_text(f"{epoch}\n")
            temporary.publish()
        sync_folder(self.folder)
        return epoch

    def _open_last(self) -> None:
        """Find the end of the log, and cut off what was never acknowledged."""
        names = sorted(self.folder.glob(f"*{_SUFFIX}"))
        self._firsts = [int(path.stem) for path in names]
        spare = self.folder / _SPARE
        if spare.exists():
            self._disk.remove(spare)
        if not names:
            self._make_spare(self._segment_bytes)
            self._begin_segment(0)
            return
        first = self._firsts[-1]
        self._file = self._disk.open(names[-1])
        buffer = self._content(first, None)
        seq, end = first, 0
        while (found := read_at(buffer, end)) is not None and found.record.seq == seq:
            seq, end = seq + 1, found.end
        torn = len(buffer.rstrip(b"\0")) > end
        if any(found.group > seq for found in records_after(buffer, end)):
            raise self._damage(first, end, seq)
        self._capacity = max(len(buffer), self._segment_bytes)
        if torn or len(buffer) < self._capacity:
            self._disk.cut(self._file, end, self._capacity)
        self._last_seq = self._enqueued = seq - 1
        self._end = self._end_after = end

    def _content(self, first: int, end: int | None) -> bytes:
        file = self._disk.open(self._path(first))
        try:
            return self._disk.read(file, self._disk.size(file) if end is None else end, 0)
        finally:
            self._disk.close(file)

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:020d}{_SUFFIX}"

    def _damage(self, first: int, at: int, seq: int) -> StorageError:
        return StorageError(
            f"{self._path(first)}: damaged at byte {at:,}, where record {seq:,} should be; "
            "restore the file from a backup"
        )
