"""How many events of each channel were trimmed, so that a reader who comes too late knows.

::

    events/trimmed/     for each trimmed stretch of seqs: how many events each channel had in it

The number of events lost after a position is exact if the position is at the end of a stretch;
inside a stretch it is an upper bound, because the whole stretch counts. (The events of the last seq
of a stretch do not count for positions in the middle of that seq.) Old stretches are joined
when they would take too much memory, so the bound is less tight for positions long ago.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.errors import StorageError
from nearcast.storage import read_arrays, write_arrays

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.server.matching.postings import Position
    from nearcast.server.matching.runs import Run

__all__ = ["Stretch", "Trimmings"]

_KIND = "trimmed-events"
_MAX_ROWS = 4_000_000


class Stretch(NamedTuple):
    """A trimmed range of seqs: the channels that had events, ascending, and how many."""

    first_seq: int
    last_seq: int
    channel: NDArray[np.uint32]
    events: NDArray[np.int64]

    @classmethod
    def of(cls, first_seq: int, last_seq: int, runs: Sequence[Run]) -> Stretch:
        """Count the events of runs."""
        channel = np.concatenate([np.empty(0, np.uint32), *(run.channels for run in runs)])
        events = [np.diff(run.event_start).astype(np.int64) for run in runs]
        return cls(first_seq, last_seq, *_summed(channel, events))

    def joined(self, later: Stretch) -> Stretch:
        """Return this stretch and the next one as one."""
        channel = np.concatenate([self.channel, later.channel])
        summed = _summed(channel, [self.events, later.events])
        return Stretch(self.first_seq, later.last_seq, *summed)


def _summed(
    channel: NDArray[np.uint32], events: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    channels, at = np.unique(channel, return_inverse=True)
    total = np.zeros(len(channels), np.int64)
    np.add.at(total, at, np.concatenate([np.empty(0, np.int64), *events]))
    return channels, total


class Trimmings:
    """The trimmed stretches of an event store. One thread adds, any thread counts.

    Parameters
    ----------
    folder
        The folder of the event store.
    max_rows
        How many channels all stretches may have in total before the oldest ones are joined.
    """

    def __init__(self, folder: Path, max_rows: int = _MAX_ROWS) -> None:
        self._path = folder / "trimmed"
        self._max_rows = max_rows
        self._stretches = self._read()

    def add(self, stretches: Sequence[Stretch]) -> None:
        """Note stretches, on disk when this returns; those that are known already are skipped."""
        known = list(self._stretches)
        for stretch in stretches:
            if not known or stretch.first_seq > known[-1].last_seq:
                known.append(stretch)
        while len(known) > 1 and sum(len(one.channel) for one in known) > self._max_rows:
            known[:2] = [known[0].joined(known[1])]
        self._write(known)
        self._stretches = tuple(known)

    def count(self, channel: int, after: Position, before_seq: int) -> int:
        """Return how many events of a channel were trimmed after a position; see the module.

        Parameters
        ----------
        channel
            The channel.
        after
            The position.
        before_seq
            Stretches from this seq on do not count: they are still there.
        """
        return sum(
            _of_channel(stretch, channel)
            for stretch in self._stretches
            if after.seq < stretch.last_seq < before_seq
        )

    def _read(self) -> tuple[Stretch, ...]:
        if not self._path.exists():
            return ()
        try:
            arrays, _ = read_arrays(self._path, _KIND, mmap=False)
        except StorageError:  # it only makes counts smaller
            shutil.rmtree(self._path)
            return ()
        start = arrays["start"].tolist()
        return tuple(
            Stretch(first, last, arrays["channel"][a:b], arrays["events"][a:b])
            for first, last, a, b in zip(
                arrays["first_seq"].tolist(),
                arrays["last_seq"].tolist(),
                start[:-1],
                start[1:],
                strict=True,
            )
        )

    def _write(self, stretches: Sequence[Stretch]) -> None:
        if not stretches:
            return
        arrays: dict[str, NDArray[Any]] = {
            "first_seq": np.array([one.first_seq for one in stretches], np.int64),
            "last_seq": np.array([one.last_seq for one in stretches], np.int64),
            "start": np.cumsum([0, *(len(one.channel) for one in stretches)], dtype=np.int64),
            "channel": np.concatenate([one.channel for one in stretches]),
            "events": np.concatenate([one.events for one in stretches]),
        }
        write_arrays(self._path, _KIND, arrays, {})


def _of_channel(stretch: Stretch, channel: int) -> int:
    at = int(stretch.channel.searchsorted(np.uint32(channel)))
    found = at < len(stretch.channel) and stretch.channel[at] == channel
    return int(stretch.events[at]) if found else 0
