"""A segment of a log: a file, and marks that say where some of its records begin.

A record is found by the last mark before it, and a few steps from there. The marks of a complete
segment are in a file beside it; without that file it is scanned. Files are opened for each look: a
log may have thousands of segments.
"""

from __future__ import annotations

import threading
import zlib
from array import array
from bisect import bisect_left, bisect_right
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from nearcast.errors import StorageError, Trimmed, Unavailable
from nearcast.storage.log.records import MARK_BYTES, Gap, find_at, scan
from nearcast.storage.scarce import is_scarce

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from nearcast.storage.log.disk import Disk
    from nearcast.storage.log.records import Found, Record

__all__ = ["Marks", "Segment"]


class Marks:
    """Numbers of records and where they begin, about one in `MARK_BYTES`; and where all end.

    There is a mark behind every gap. One thread adds marks while others look at them.

    Attributes
    ----------
    end
        Where the last record ends.
    gaps
        What could not be read when the segment was scanned.
    after, epoch
        The number after the last record, and its epoch, when the segment was scanned.
    """

    def __init__(self) -> None:
        self._seqs = array("q")
        self._offsets = array("q")
        self.end = 0
        self.gaps: list[Gap] = []
        self.after = self.epoch = 0

    @classmethod
    def of(cls, scanned: Iterable[Found | Gap]) -> Marks:
        """Return the marks of a segment that is scanned."""
        marks = cls()
        after_gap = False
        for one in scanned:
            if isinstance(one, Gap):
                marks.gaps.append(one)
                marks.after, after_gap = one.last + 1, True
            else:
                marks.add(one.seq, one.at, always=after_gap)
                marks.end, after_gap = one.end, False
                marks.after, marks.epoch = one.seq + one.count, one.epoch
        return marks

    def add(self, seq: int, at: int, *, always: bool = False) -> None:
        """Add the mark of a record if the last mark is far enough."""
        if always or not self._offsets or at - self._offsets[-1] >= MARK_BYTES:
            self._offsets.append(at)
            self._seqs.append(seq)  # whoever sees the number finds its offset

    def to_bytes(self, first: int, after: int) -> bytes:
        """Return the marks of a complete segment as bytes, with a checksum."""
        content = array("q", [first, after, self.end, *self._seqs, *self._offsets]).tobytes()
        return _checksum(content) + content

    @classmethod
    def from_bytes(cls, content: bytes, first: int, after: int) -> Marks | None:
        """Return the marks of a segment; None if the bytes are damaged, or of another one."""
        numbers = array("q")
        if len(content) < 8 or len(content) % 16 or content[:8] != _checksum(content[8:]):
            return None
        numbers.frombytes(content[8:])
        if numbers[0] != first or numbers[1] != after:
            return None
        marks, half = cls(), (len(numbers) - 3) // 2
        marks.end, marks.after = numbers[2], after
        marks._seqs, marks._offsets = numbers[3 : 3 + half], numbers[3 + half :]
        return marks

    def before(self, seq: int) -> tuple[int, int]:
        """Return the last mark that is not after a number: its number, and its offset."""
        at = bisect_right(self._seqs, seq) - 1
        return self._seqs[at], self._offsets[at]

    def stop(self, at: int, size: int = 1) -> int:
        """Return the first offset of a mark, or the end, that is ``size`` bytes behind ``at``."""
        end = self.end
        following = bisect_left(self._offsets, at + size)
        return self._offsets[following] if following < len(self._offsets) else end


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(8, "little")


class Segment:
    """A file of records, which threads read while one appends.

    Parameters
    ----------
    disk, path
        The file.
    first
        The number that it begins with.
    size
        How large the file is, in bytes.

    Attributes
    ----------
    after
        The number that the next segment begins with; None for the last one.
    trimmed
        Whether the file is gone, or about to be.
    """

    def __init__(self, disk: Disk, path: Path, first: int, size: int) -> None:
        self._disk = disk
        self.path = path
        self.first = first
        self.size = size
        self.after: int | None = None
        self.trimmed = False
        self._marks: Marks | None = None
        self._marking = threading.Lock()

    @property
    def marks(self) -> Marks:
        """The marks; the file is scanned if nobody has needed them yet."""
        if self._marks is None:
            with self._marking:
                if self._marks is None:
                    self._marks = self._scan()
        return self._marks

    @marks.setter
    def marks(self, marks: Marks) -> None:
        self._marks = marks

    def records(self, first: int, stop: int, size: int = 1) -> Iterator[Record]:
        """Yield the records that have a number in a range, and in which there is no gap.

        ``size`` bytes or more are read at a time.

        Raises
        ------
        Trimmed
            If the segment is gone.
        StorageError
            If one is damaged.
        """
        marks = self.marks
        self.check_gaps(first)
        seq, at = marks.before(first)
        with self._file() as file:
            while seq < stop:
                begin, view = at, memoryview(self._disk.read(file, marks.stop(at, size) - at, at))
                while seq < stop and (at == begin or at - begin < len(view)):
                    found = find_at(view, at - begin)
                    if found is None or found.seq != seq:
                        raise self.damage(at, seq)
                    seq, at = seq + found.count, begin + found.end
                    if seq > first:
                        yield found.record(view)

    def check_gaps(self, seq: int) -> None:
        """Raise an error if a number is in a gap."""
        for gap in self.marks.gaps:
            if gap.first <= seq <= gap.last:
                raise self.damage(gap.at, gap.first)

    def damage(self, at: int, seq: int) -> StorageError:
        """Return the error that names a damaged place."""
        return StorageError(
            f"{self.path}: damaged at byte {at:,}, where record {seq:,} should be; "
            "restore the file from a backup, or open the log with repair to give it up"
        )

    def content(self) -> bytes:
        """Return the whole file."""
        with self._file() as file:
            return self._disk.read(file, self._disk.size(file), 0)

    def save_marks(self) -> None:
        """Write the marks of a complete segment beside it, so that it need not be scanned again.

        They are not synced: damaged ones are not used.
        """
        if self._marks is not None and not self._marks.gaps and self.after is not None:
            with suppress(OSError):
                self.marks_path.write_bytes(self._marks.to_bytes(self.first, self.after))

    @property
    def marks_path(self) -> Path:
        """Where the marks are."""
        return self.path.with_suffix(".marks")

    def _scan(self) -> Marks:
        """Return the marks of a segment that is not the last."""
        assert self.after is not None
        with suppress(OSError):
            marks = Marks.from_bytes(self.marks_path.read_bytes(), self.first, self.after)
            if marks is not None:
                return marks
        content = self.content()
        return Marks.of(scan(content, self.first, after=self.after, acknowledged=self.after - 1))

    @contextmanager
    def _file(self) -> Iterator[int]:
        file = -1
        try:
            file = self._disk.open(self.path)
            yield file
        except StorageError:
            raise
        except OSError as error:
            if self.trimmed:
                raise Trimmed(f"{self.path}: is gone; the log was trimmed") from None
            kind = Unavailable if is_scarce(error) else StorageError
            raise kind(f"{self.path}: cannot be read: {error.strerror}") from error
        finally:
            if file >= 0:
                self._disk.close(file)
