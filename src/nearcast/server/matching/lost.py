"""How many events of each channel were trimmed, so that a reader who comes too late knows.

::

    events/trimmed/     for each trimmed stretch of seqs: how many events each channel had in it,
                        and how many of them at its last seq

The number of events lost after a position is exact if the position is at the last seq of a stretch;
inside a stretch it is an upper bound, because the whole stretch counts. Old stretches are joined
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

_KIND = "trimmed-event-counts"
_COLUMNS = ("channel", "events", "last_events")
_MAX_ROWS = 4_000_000


class Stretch(NamedTuple):
    """A trimmed range of seqs.

    Attributes
    ----------
    first_seq, last_seq
        The range.
    channel
        The channels that had events, ascending.
    events, last_events
        How many each had, and how many of them at the last seq.
    """

    first_seq: int
    last_seq: int
    channel: NDArray[np.uint32]
    events: NDArray[np.int64]
    last_events: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        first_seq: int,
        last_seq: int,
        runs: Sequence[Run],
        last_events: Sequence[NDArray[np.int64]],
    ) -> Stretch:
        """Add up the events of runs, and of each run those of its channels at the last seq."""
        channel = np.concatenate([np.empty(0, np.uint32), *(run.channels for run in runs)])
        channels, at = np.unique(channel, return_inverse=True)
        sums = (
            _summed(at, len(channels), one) for one in ([run.counts for run in runs], last_events)
        )
        return cls(first_seq, last_seq, channels, *sums)

    def joined(self, later: Stretch) -> Stretch:
        """Return this stretch and the next one as one."""
        channel = np.concatenate([self.channel, later.channel])
        channels, at = np.unique(channel, return_inverse=True)
        events = _summed(at, len(channels), [self.events, later.events])
        before = np.zeros_like(self.last_events)
        last_events = _summed(at, len(channels), [before, later.last_events])
        return Stretch(self.first_seq, later.last_seq, channels, events, last_events)

    def after(self, position: Position, channel: int) -> int:
        """Return how many events of a channel are after a position; see the module."""
        at = int(self.channel.searchsorted(np.uint32(channel)))
        if at == len(self.channel) or self.channel[at] != channel or position.seq > self.last_seq:
            return 0
        if position.seq < self.last_seq:
            return int(self.events[at])
        return max(0, int(self.last_events[at]) - (position.k + 1))


def _summed(
    at: NDArray[np.intp], size: int, parts: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Add numbers up by their place."""
    total = np.zeros(size, np.int64)
    np.add.at(total, at, np.concatenate([np.empty(0, np.int64), *parts]))
    return total


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
            stretch.after(after, channel)
            for stretch in self._stretches
            if stretch.last_seq < before_seq
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
            Stretch(first, last, *(arrays[name][a:b] for name in _COLUMNS))
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
        }
        for name in _COLUMNS:
            arrays[name] = np.concatenate([getattr(one, name) for one in stretches])
        write_arrays(self._path, _KIND, arrays, {})
