"""Reading a log without opening it for writing: another process may be writing to it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nearcast.errors import StorageError
from nearcast.storage.log.disk import Disk
from nearcast.storage.log.history import History
from nearcast.storage.log.log import Log
from nearcast.storage.log.records import scan
from nearcast.storage.log.segment import Marks, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.storage.log.log import AnyEntry, Ticket

__all__ = ["LogReader"]

_ATTEMPTS = 5


class LogReader(Log):
    """The log in a folder, as it is at the moment of opening, to be read only.

    Nothing in the folder is made, locked, cut or removed.

    Parameters
    ----------
    folder
        Where the log is.

    Raises
    ------
    StorageError
        If there is no log, or its end is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from nearcast.storage.log import Entry
    >>> with Log(tempfile.mkdtemp()) as log:
    ...     _ = log.append([Entry(1, b"first")])
    ...     [record.body for record in LogReader(log.folder).read()]
    [b'first']
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._disk = _ReadOnlyDisk()
        self._spare_bytes = 0
        try:
            self._history = History(self.folder / "epoch")
            paths = sorted(self.folder.glob("[0-9]" * 20 + ".log"))
            self._segments = [self._segment(int(p.stem), p.stat().st_size) for p in paths]
            for segment, following in pairwise(self._segments):
                segment.after = following.first
            if not self._segments:
                raise StorageError(f"{self.folder}: has no log; give the folder of a log")
            self._read_end(self._segments[-1])
        except StorageError:
            raise
        except OSError as error:
            raise self._storage_error(error, "cannot be read") from error
        self.epoch = self._history.epoch

    def _read_end(self, last: Segment) -> None:
        """Find the last record that is whole; another one may be written at this moment."""
        acknowledged = self._history.acknowledged
        for _ in range(_ATTEMPTS):  # what was being written is no gap the next time
            content = last.content()
            marks = Marks.of(scan(content, last.first, after=None, acknowledged=acknowledged))
            gaps = [gap for gap in marks.gaps if not self._history.lost_range(gap.first)]
            if not gaps:
                last.marks, self._last_seq = marks, max(marks.after, last.first) - 1
                return
        raise last.damage(gaps[0].at, gaps[0].first)

    def reserve(self, size: int) -> NoReturn:
        """Refuse to write."""
        raise self._read_only()

    def enqueue(self, entries: Sequence[AnyEntry]) -> Ticket:
        """Refuse to write."""
        raise self._read_only()

    def trim(self, before: int) -> None:
        """Refuse to remove something."""
        raise self._read_only()

    def close(self) -> None:
        """Let go of the log."""
        self._segments = []

    def _read_only(self) -> StorageError:
        return StorageError(f"{self.folder}: is open for reading only; open it with Log")


class _ReadOnlyDisk(Disk):
    """Files that cannot be written."""

    def open(self, path: Path) -> int:
        """Open a file to read."""
        return os.open(path, os.O_RDONLY)
