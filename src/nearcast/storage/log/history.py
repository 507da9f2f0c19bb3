"""What a log remembers beside its records: epochs, lost records, and where it was closed.

::

    epoch 1795000000 1        this epoch began with record 1
    epoch 1795003600 812
    lost 40 41                a repair gave up these records
    end 900                   the last record when the log was closed
    crc 6f0d38c1              of the lines before

An epoch that wrote nothing is not kept. Logs of older versions have nothing but a number here.
"""

from __future__ import annotations

import time
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.storage.temporary import TemporaryFile, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["History"]

_MAX = 1 << 63


class History:
    """The file ``epoch`` of a log.

    Parameters
    ----------
    path
        Where the file is; it need not exist.
    repair
        Whether to start afresh if it is damaged.

    Attributes
    ----------
    epoch
        The last epoch, 0 if there was none.
    lost
        The ranges of numbers, first and last, that a repair gave up.
    end
        The last record when the log was closed; 0 if it never was, or is open.
    """

    def __init__(self, path: Path, *, repair: bool = False) -> None:
        self._path = path
        self.epoch = 0
        self.lost: list[tuple[int, int]] = []
        self.end = 0
        self._epochs: list[tuple[int, int]] = []
        if path.exists():
            try:
                self._parse(path.read_bytes())
            except ValueError:
                if not repair:
                    raise StorageError(
                        f"{path}: damaged; restore the file from a backup, or repair the log"
                    ) from None
                self.lost, self.end, self._epochs = [], 0, []

    @property
    def acknowledged(self) -> int:
        """A record that was on disk once, as were all before it."""
        return max(self.end, self._epochs[-1][0] - 1 if self._epochs else 0)

    def begin_epoch(self, seq: int, *, first: int, previous: int) -> int:
        """Return a new epoch, which begins with a number; it is on disk, as are lost ranges.

        Epochs are not smaller than the time in seconds, so that logs that were copied from one log
        have different ones.

        Parameters
        ----------
        seq
            The number that comes next.
        first
            The first record that is still there: what was before is forgotten.
        previous
            The epoch of the last record, in case the file was damaged.
        """
        self.epoch = max(self.epoch + 1, previous + 1, int(time.time()))
        before = [pair for pair in self._epochs if pair[0] < seq]
        self._epochs = [
            *before[max(bisect_right(before, (first, _MAX)) - 1, 0) :],
            (seq, self.epoch),
        ]
        self.lost = [lost for lost in self.lost if lost[1] >= first]
        self.end = 0
        self.save()
        return self.epoch

    def epoch_of(self, seq: int) -> int | None:
        """Return the epoch that a number belongs to; None if only the record knows."""
        at = bisect_right(self._epochs, (seq, _MAX))
        return self._epochs[at - 1][1] if at else None

    def lost_range(self, seq: int) -> tuple[int, int] | None:
        """Return the lost range that a number lies in."""
        at = bisect_right(self.lost, (seq, _MAX))
        return self.lost[at - 1] if at and seq <= self.lost[at - 1][1] else None

    def add_lost(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add ranges of numbers that are lost; `begin_epoch` brings them to the disk."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted({*self.lost, *ranges}):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self.lost = merged

    def save(self) -> None:
        """Bring the history to the disk."""
        lines = [f"epoch {epoch} {first}\n" for first, epoch in self._epochs]
        lines += [f"lost {first} {last}\n" for first, last in self.lost]
        text = "".join([*lines, f"end {self.end}\n"])
        with TemporaryFile(self._path) as temporary:
            temporary.path.write_text(f"{text}crc {zlib.crc32(text.encode()):08x}\n")
            temporary.publish()
        sync_folder(self._path.parent)

    def _parse(self, data: bytes) -> None:
        text = data.decode("ascii")
        if text.strip().isdigit():  # of an older version
            self.epoch = int(text)
            return
        text, _, crc = text.partition("crc ")
        if crc != f"{zlib.crc32(text.encode()):08x}\n":
            raise ValueError("wrong checksum")
        for name, *numbers in (line.split() for line in text.splitlines()):
            if name == "end":
                self.end = int(numbers[0])
            elif name == "lost":
                self.lost.append((int(numbers[0]), int(numbers[1])))
            else:
                self._epochs.append((int(numbers[1]), int(numbers[0])))
        self.epoch = self._epochs[-1][1] if self._epochs else 0
