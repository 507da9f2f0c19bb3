"""The events that a server's folder has: sealed segments, and the tail of the newest checkpoint.

Nothing in the folder is changed. A server may be running there: what it has matched since its last
seal and its last checkpoint is in its memory only, and cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.errors import StorageError
from nearcast.server.matching.postings import Postings
from nearcast.server.matching.segments import read_run, segment_last_seq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nearcast.server.matching.runs import Run

__all__ = ["StoredEvents", "checkpoint_seqs"]


def checkpoint_seqs(folder: Path) -> list[int]:
    """Return the numbers of the records after which a server's folder has a checkpoint."""
    paths = (folder / "checkpoint").glob("*")
    return sorted(int(path.name) for path in paths if path.name.isdigit())


class StoredEvents:
    """The postings in a server's folder, in the order of the log, those of a seq by channel.

    Parameters
    ----------
    folder
        The folder of a server.

    Attributes
    ----------
    first_seq, last_seq
        The first and the last seq whose events are there.

    Raises
    ------
    StorageError
        When there are no events, or some between others are missing.
    """

    def __init__(self, folder: Path) -> None:
        self._parts = _parts(folder)
        self.first_seq, self.last_seq = self._parts[0][0], self._parts[-1][1]
        self._loaded: tuple[Path, Postings] | None = None

    def between(self, first: int, last: int) -> Postings:
        """Return the postings of seqs from ``first`` to ``last``."""
        found = []
        for part_first, part_last, path in self._parts:
            if part_first <= last and part_last >= first:
                postings = self._load(path)
                low = postings.seq.searchsorted(max(first, part_first))
                high = postings.seq.searchsorted(min(last, part_last), side="right")
                found.append(postings.take(slice(int(low), int(high))))
        return Postings.concatenate(found)

    def _load(self, path: Path) -> Postings:
        """Return the postings of a part; the last one that was used is kept."""
        if self._loaded is None or self._loaded[0] != path:
            self._loaded = path, _postings(read_run(path, lazy=False)[2])
        return self._loaded[1]


def _parts(folder: Path) -> list[tuple[int, int, Path]]:
    """Return the first and last seq of every part that has events, and where it is."""
    parts: list[tuple[int, int, Path]] = []
    for first, last, path in _candidates(folder):
        expected = parts[-1][1] + 1 if parts else first
        if first > expected:
            raise StorageError(
                f"{folder}: the events of seqs {expected:,} to {first - 1:,} are missing; "
                "start the server, which computes them again"
            )
        if last >= expected:
            parts.append((expected, last, path))
    if not parts:
        raise StorageError(
            f"{folder}: has no sealed events and no checkpoint yet; "
            "stop the server, which writes one, or wait"
        )
    return parts


def _candidates(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield segments by first seq, and then the tail of the newest checkpoint."""
    for path in sorted((folder / "events").glob("*.post")):
        last = segment_last_seq(path)
        if last is not None:
            yield int(path.stem), last, path
    for seq in checkpoint_seqs(folder)[-1:]:
        tail = folder / "checkpoint" / f"{seq:020d}" / "tail"
        first, last, _, _ = read_run(tail, lazy=False)
        yield first, last, tail


def _postings(runs: tuple[Run, ...]) -> Postings:
    """Return runs, which are sorted by channel, in the order of the log."""
    found = []
    for run in runs:
        rows = len(run.seq)
        seq = run.seq.astype(np.int64) + run.base
        postings = Postings(
            seq,
            np.repeat(run.channels, np.diff(run.start)),
            run.handle,
            seq if run.message is None else run.message,
            np.zeros(rows, np.uint8) if run.kind is None else run.kind,
            np.full(rows, np.nan) if run.score is None else run.score,
        )
        found.append(postings.take(np.argsort(seq, kind="stable")))
    return Postings.concatenate(found)
