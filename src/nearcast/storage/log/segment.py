"""A segment of a log: a file, and marks that say where some of its records begin."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from nearcast.storage.log.records import MARK_BYTES, Gap

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nearcast.storage.log.records import Found

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

    def before(self, seq: int) -> tuple[int, int]:
        """Return the last mark that is not after a number: its number, and its offset."""
        at = bisect_right(self._seqs, seq) - 1
        return self._seqs[at], self._offsets[at]

    def stop(self, at: int, size: int = 1) -> int:
        """Return the first offset of a mark, or the end, that is ``size`` bytes behind ``at``."""
        end = self.end
        following = bisect_left(self._offsets, at + size)
        return self._offsets[following] if following < len(self._offsets) else end


class Segment:
    """A file of records.

    Parameters
    ----------
    path, first
        The file, and the number that it begins with.
    size
        How large the file is, in bytes.
    after
        The number that the next segment begins with; None for the last one.
    """

    def __init__(self, path: Path, first: int, size: int, after: int | None = None) -> None:
        self.path = path
        self.first = first
        self.size = size
        self.after = after
        self.marks: Marks | None = None
        self.marking = threading.Lock()
