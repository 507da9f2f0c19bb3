"""A log: records in the order in which they were appended, on disk when `append` returns.

::

    LOCK                          held by the one process that writes
    epoch                         which epoch began with which record; see `history`
    00000000000000000001.log      a segment: zeros at first, named after its first record
    00000000000000104857.log
    spare                         the next segment, which has its place on the disk already

Several threads may append at a time. One of them writes for all that wait, with one write and one
sync; the others return when it is done. A segment has its place on the disk before anything is
written to it, and `reserve` makes sure that a record will have one. So a full disk is an error
before something happens, and never after.

After a crash the end of the last segment may be torn, because disks write in any order. What
cannot be read there was never acknowledged, and is cut off; see `nearcast.storage.log.records`.
Damage anywhere else is an error that names the place; ``repair`` gives up what cannot be read.

An opening reads the last segment. Marks of the others, which `find` and `read` need, are made when
somebody first reads there.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_right
from contextlib import suppress
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nearcast.errors import InvalidInput, NoSpace, StorageError, Trimmed, Unavailable
from nearcast.locks import LOCKS, lock_file, unlock_file
from nearcast.storage.log.disk import Disk
from nearcast.storage.log.history import History
from nearcast.storage.log.records import Entry, encode, measure, scan
from nearcast.storage.log.segment import Marks, Segment
from nearcast.storage.scarce import is_scarce

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from nearcast.storage.log.records import Group, Record, Sizes

__all__ = ["Log", "Ticket"]

SEGMENT_BYTES = 64 << 20
_SUFFIX = ".log"
_SPARE = "spare"
_READ_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_first = attrgetter("first")

AnyEntry = Entry | tuple[int, bytes]


class Ticket:
    """Entries that wait to be written; ``last_seq`` is the number of the last one."""

    def __init__(self, log: Log, entries: Sequence[Entry], size: int, last_seq: int) -> None:
        self._log = log
        self.entries = entries
        self.size = size
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
    repair
        Whether to give up records that are damaged, for good. Opening reads all segments then.

    Attributes
    ----------
    epoch
        The number of this opening: larger than all before, and at least the time in seconds.

    Examples
    --------
    >>> import tempfile
    >>> with Log(tempfile.mkdtemp()) as log:
    ...     log.append([Entry(1, b"first"), Entry(1, b"two to four", count=3)])
    ...     log.append([Entry(2, b"fifth")])
    4
    5
    >>> with Log(log.folder) as log:
    ...     [(record.seq, record.body) for record in log.read(3)]
    ...     log.find(4).body
    [(2, b'two to four'), (5, b'fifth')]
    b'two to four'
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk | None = None,
        repair: bool = False,
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
        self._segments: list[Segment] = []  # replaced, never changed: readers keep theirs
        self._last_seq = self._enqueued = 0
        self._end = self._capacity = 0
        self._opened = False
        try:
            self._history = History(self.folder / "epoch", repair=repair)
            self._open(repair)
            self._opened = True
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise self._storage_error(error, "cannot be opened") from error
            raise

    @property
    def away(self) -> bool:
        """Whether the disk is away: never, as it fails instead; logs in databases may wait."""
        return False

    @property
    def first_seq(self) -> int:
        """The first record that is still there, or the next one if there is none."""
        return self._current()[0].first

    @property
    def last_seq(self) -> int:
        """The last record that is on disk, 0 if there never was one."""
        return self._last_seq

    @property
    def enqueued_seq(self) -> int:
        """The last record that is on disk or waits to be written."""
        return self._enqueued

    @property
    def size_bytes(self) -> int:
        """What the segments take on the disk."""
        return sum(segment.size for segment in self._segments) + self._spare_bytes

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The ranges of numbers, first and last, that repairs gave up."""
        return list(self._history.lost)

    # --- writing ---------------------------------------------------------------------------------

    def append(self, entries: Sequence[AnyEntry]) -> int:
        """Write entries, and return the last number when all of them are on disk.

        Raises
        ------
        NoSpace
            If the disk is full; nothing was written.
        StorageError
            If writing failed. What is on disk is unknown, and the log takes nothing any more.
        """
        complete = _complete(entries)
        sizes = measure(complete)
        self.reserve(sizes.size)
        try:
            ticket = self._enqueue(complete, sizes)
        except StorageError:
            self.release(sizes.size)
            raise
        return ticket.wait()

    def reserve(self, size: int) -> None:
        """Make sure that records with this many bytes have a place on the disk.

        Every reservation is used by one `enqueue`, or given back by `release`.

        Raises
        ------
        NoSpace
            If there is no place.
        Unavailable
            If there are too many open files, or there is too little memory; the log goes on.
        StorageError
            If the log has failed.
        """
        with self._changed:
            self._check()
            wanted = self._promised + size
            if wanted > max(self._capacity - self._end, self._spare_bytes):
                try:
                    self._make_spare(max(wanted, self._segment_bytes))
                except OSError as error:
                    if is_scarce(error):  # nothing was written, and it passes
                        problem = f"{self.folder}: no file could be made: {error.strerror}"
                        raise Unavailable(problem) from error
                    if error.errno not in _FULL:
                        self._failure = error
                        raise self._failed() from error
                    problem = f"{self.folder}: no space for {size:,} bytes: {error.strerror}"
                    raise NoSpace(problem) from error
            self._promised += size

    def release(self, size: int) -> None:
        """Give back a reservation."""
        with self._changed:
            self._promised -= size

    def enqueue(self, entries: Sequence[AnyEntry]) -> Ticket:
        """Let entries, for which there is a reservation, wait in the order of these calls."""
        complete = _complete(entries)
        return self._enqueue(complete, measure(complete))

    def _enqueue(self, entries: Sequence[Entry], sizes: Sizes) -> Ticket:
        with self._changed:
            self._check()
            self._enqueued += sizes.numbers
            ticket = Ticket(self, entries, sizes.size, self._enqueued)
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
                written: Group | OSError = InterruptedError(errno.EINTR, "interrupted")
                self._changed.release()
                try:
                    written = self._write(group)
                finally:
                    self._changed.acquire()
                    self._finish(group, written)
                    self._writing = False
                    self._changed.notify_all()
        if ticket.error is not None:
            raise ticket.error
        return ticket.last_seq

    def _finish(self, group: list[Ticket], written: Group | OSError) -> None:
        self._promised -= sum(ticket.size for ticket in group)
        if isinstance(written, OSError):
            self._failure = written
            for ticket in (*group, *self._waiting):
                ticket.error = self._failed()
            self._waiting = []
            return
        marks = self._segments[-1].marks
        for seq, at in written.marks:
            marks.add(seq, self._end + at)
        self._end += len(written.data)
        marks.end = self._end
        self._last_seq = group[-1].last_seq  # last, for readers do not lock

    def _write(self, group: list[Ticket]) -> Group | OSError:
        """Write the entries of a group and sync them; return what went wrong, if something did."""
        entries = [entry for ticket in group for entry in ticket.entries]
        encoded = encode(entries, self._last_seq + 1, self.epoch)
        try:
            if self._end + len(encoded.data) > self._capacity:
                with self._changed:  # others may be making a spare
                    self._begin_segment(len(encoded.data))
            self._disk.write(self._file, encoded.data, self._end)
            self._disk.sync(self._file)
        except OSError as error:
            return error
        return encoded

    def _begin_segment(self, size: int) -> None:
        """Let the spare be the segment that is written to."""
        if self._spare_bytes < size:
            self._make_spare(max(size, self._segment_bytes))
        segment = self._segment(self._last_seq + 1, self._spare_bytes)
        segment.marks = Marks()
        self._disk.rename(self.folder / _SPARE, segment.path)
        if self._file >= 0:
            self._disk.close(self._file)
        self._file = self._disk.open(segment.path)
        self._end, self._capacity, self._spare_bytes = 0, segment.size, 0
        if self._segments:
            self._segments[-1].after = segment.first
            self._segments[-1].save_marks()
        self._segments = [*self._segments, segment]

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
        self._current()

    def _current(self) -> list[Segment]:
        if not self._segments:
            raise StorageError(f"{self.folder}: the log is closed; open it again")
        return self._segments

    def _failed(self) -> StorageError:
        problem = self._failure.strerror if self._failure else "it failed"
        return StorageError(
            f"{self.folder}: writing failed ({problem}); what is on disk is unknown until the log "
            "is opened again"
        )

    def _storage_error(self, error: OSError, problem: str) -> StorageError:
        kind = NoSpace if error.errno in _FULL else StorageError
        return kind(f"{self.folder}: {problem}: {error.strerror}")

    # --- reading ---------------------------------------------------------------------------------

    def read(self, first: int = 1) -> Iterator[Record]:
        """Yield the records that have a number from ``first`` on, and are on disk now.

        Lost ranges are skipped.

        Raises
        ------
        Trimmed
            If records are gone.
        StorageError
            If one is damaged.
        """
        after, segments = self._last_seq + 1, self._current()
        if first < segments[0].first:
            raise self._gone(first)
        for segment in segments:
            end = after if segment.after is None else min(segment.after, after)
            if first < end:
                yield from self._read_segment(segment, max(first, segment.first), end)

    def find(self, seq: int) -> Record:
        """Return the record that has a number; any thread may call this at any time.

        Raises
        ------
        Trimmed
            If it is gone: trimmed, or lost.
        StorageError
            If it is damaged.
        InvalidInput
            If no record has the number yet.
        """
        last, segments = self._last_seq, self._current()
        if seq > last:
            raise InvalidInput("seq", seq, f"must be at most {last}, the last record")
        if seq < segments[0].first or self._history.lost_range(seq):
            raise self._gone(seq)
        segment = segments[bisect_right(segments, seq, key=_first) - 1]
        return next(segment.records(seq, seq + 1))

    def epoch_of(self, seq: int) -> int:
        """Return the epoch that a number was, or will be, written in.

        Raises
        ------
        Trimmed, StorageError
            As `find` does, if the log is of an older version that kept no list of epochs.
        """
        epoch = self._history.epoch_of(seq)
        return self.find(seq).epoch if epoch is None else epoch

    def trim(self, before: int) -> None:
        """Remove the segments all of whose records have smaller numbers."""
        while True:
            with self._changed:
                segments = self._current()
                if len(segments) < 2 or segments[1].first > before:
                    return
                segments[0].trimmed = True
                self._segments = segments[1:]
            try:
                segments[0].marks_path.unlink(missing_ok=True)
                self._disk.remove(segments[0].path)
            except OSError as error:
                raise self._storage_error(error, "cannot be trimmed") from error

    def stop_waiting(self) -> None:
        """Do nothing: a disk is not waited for."""

    def close(self) -> None:
        """Close the log; what was appended is on disk."""
        with self._changed:
            if self._file >= 0:
                self._disk.close(self._file)
            self._file, self._segments = -1, []
        if self._opened and self._failure is None:
            self._history.end = self._last_seq
            with suppress(OSError):  # it is good to know, no more
                self._history.save()
        self._opened = False
        if not self._lock.closed:
            unlock_file(self._lock)
            self._lock.close()

    def _read_segment(self, segment: Segment, seq: int, after: int) -> Iterator[Record]:
        """Yield the records of a segment with numbers in a range; skip what is lost."""
        gaps = [gap.first for gap in segment.marks.gaps]
        breaks = sorted([first for first, _ in self._history.lost] + gaps)
        while seq < after:
            lost = self._history.lost_range(seq)
            if lost is not None:
                seq = lost[1] + 1
                continue
            following = bisect_right(breaks, seq)
            stop = min(after, breaks[following]) if following < len(breaks) else after
            yield from segment.records(seq, stop, _READ_BYTES)
            seq = stop

    def _gone(self, seq: int) -> StorageError:
        lost = self._history.lost_range(seq)
        if lost is not None:
            return Trimmed(f"{self.folder}: record {seq:,} was damaged, and given up by a repair")
        first = self._current()[0].first
        return Trimmed(f"{self.folder}: record {seq:,} is gone; the first is {first:,}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- opening ---------------------------------------------------------------------------------

    def _open(self, repair: bool) -> None:
        """Find the end of the log, cut off what was never acknowledged, and begin an epoch."""
        spare = self.folder / _SPARE
        if spare.exists():
            self._disk.remove(spare)
        names = sorted(self.folder.glob(f"{'[0-9]' * 20}{_SUFFIX}"))
        self._segments = [self._segment(int(path.stem), path.stat().st_size) for path in names]
        for segment, following in pairwise(self._segments):
            segment.after = following.first
        if repair:  # every segment is scanned, to find out what is damaged
            for segment in self._segments:
                segment.marks_path.unlink(missing_ok=True)
        previous = 0
        if self._segments:
            previous = self._open_last(repair)
        else:
            self._begin_first(repair)
        self._enqueued = self._last_seq
        first = self._segments[0].first
        self.epoch = self._history.begin_epoch(self._last_seq + 1, first=first, previous=previous)

    def _begin_first(self, repair: bool) -> None:
        self._last_seq = self._history.acknowledged
        if self._last_seq and not repair:
            raise StorageError(
                f"{self.folder}: has no segment, but had {self._last_seq:,} records; "
                "restore it from a backup, or open the log with repair to give them up"
            )
        self._make_spare(self._segment_bytes)
        self._begin_segment(0)

    def _open_last(self, repair: bool) -> int:
        """Open the last segment for writing; return the epoch of its last record."""
        last = self._segments[-1]
        self._file = self._disk.open(last.path)
        content = self._disk.read(self._file, last.size, 0)
        acknowledged = self._history.acknowledged
        marks = Marks.of(scan(content, last.first, after=None, acknowledged=acknowledged))
        last.marks = marks
        if repair:
            gaps = [gap for segment in self._segments for gap in segment.marks.gaps]
            self._history.add_lost((gap.first, gap.last) for gap in gaps)
        for gap in marks.gaps:
            lost = self._history.lost_range(gap.first)
            if lost is None or lost[1] < gap.last:
                raise last.damage(gap.at, gap.first)
        self._end, self._last_seq = marks.end, max(marks.after, last.first) - 1
        self._capacity = max(last.size, self._segment_bytes)
        if len(content.rstrip(b"\0")) > self._end or last.size < self._capacity:
            self._disk.cut(self._file, self._end, self._capacity)
            last.size = self._capacity
        else:
            self._disk.sync(self._file)  # a killed process may have written without a sync
        return marks.epoch

    def _segment(self, first: int, size: int) -> Segment:
        return Segment(self._disk, self.folder / f"{first:020d}{_SUFFIX}", first, size)


def _complete(entries: Sequence[AnyEntry]) -> list[Entry]:
    return [entry if isinstance(entry, Entry) else Entry(*entry) for entry in entries]
