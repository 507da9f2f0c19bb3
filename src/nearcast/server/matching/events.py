"""The events of every channel, which the matcher appends and any thread reads.

::

    events/
      first_seq                       the first seq that is kept
      trimmed/                        how many events were trimmed; see `lost`
      00000000000000000001.post/      sealed segments, named after their first seq
      00000000000004000001.post/

The newest postings, the tail, are in memory. A segment ends with the first seq at which it has
``seal_postings`` postings or ``seal_seqs`` seqs, however the postings were batched; so the same log
gives the same files. They are written in the background. None of them is needed to be safe: a
checkpoint has the tail, and what a crash took is rebuilt from the log.
"""

from __future__ import annotations

import re
import shutil
import threading
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from nearcast.errors import InvalidInput, StorageError
from nearcast.server.matching.lost import Stretch, Trimmings
from nearcast.server.matching.postings import ALL, MATCH, EventRef, Position, Postings
from nearcast.server.matching.runs import Published, Run
from nearcast.server.matching.segments import (
    DamagedEvents,
    Segment,
    read_run,
    segment_last_seq,
    segment_path,
    unpacked_reach,
    write_run,
)
from nearcast.storage.temporary import TemporaryFile, remove_leftovers

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.server.matching.postings import JoinedEvent
    from nearcast.server.matching.runs import ChosenChannels, EventLists

__all__ = ["Block", "DamagedEvents", "EventStore", "Tail"]

SEAL_POSTINGS = 4_000_000
SEAL_SEQS = 4_000_000

_FIRST_SEQ = "first_seq"
_NAME = re.compile(r"(\d{20})\.post")
_FANOUT_BITS = 3  # eight runs of a size are merged to one
_MAX_LEVEL = 6  # runs of 2**18 postings and more are not merged before they are sealed
_LISTED = 1 << 16  # blocks up to this size are converted to lists at once
_MIN_REACH = 1 << 12


class Block:
    """The postings of one append, by channel; for streams that have read all before it.

    Attributes
    ----------
    channels
        The channels that have events, ascending.
    last_seq
        The last seq that the block covers, which may have no posting.
    """

    def __init__(self, run: Run | None, last_seq: int) -> None:
        self._run = run
        self._lists: tuple[EventLists, dict[int, tuple[int, int]]] | None = None
        self.channels = np.empty(0, np.uint32) if run is None else run.channels
        self.last_seq = last_seq

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of events of each channel."""
        run = self._run
        return np.empty(0, np.int64) if run is None else run.counts

    def events(self, channel: int) -> list[EventRef]:
        """Return the events of a channel in order."""
        run = self._run
        if run is None:
            return []
        if run.rows > _LISTED:
            return run.read(channel, Position(0), run.rows, None)
        if self._lists is None:
            lists, first = run.lists()
            ranges = pairwise(first)
            self._lists = lists, dict(zip(run.channels.tolist(), ranges, strict=True))
        lists, where = self._lists
        return lists.refs(*where.get(channel, (0, 0)))

    def joined_events(self, chosen: ChosenChannels) -> list[JoinedEvent]:
        """Return the events of all chosen channels in order."""
        run = self._run
        return [] if run is None else run.read_joined(chosen, Position(0), run.rows, None)


class _View(NamedTuple):
    """What readers see; replaced as a whole.

    Attributes
    ----------
    segments
        The sealed segments, each starting where the one before ended.
    start
        The first seq of the tail.
    runs
        The postings of the tail, in the order of seqs.
    reach
        The reach of each seq from ``start``; longer than needed.
    last_seq
        The last seq that was appended.
    """

    segments: tuple[Segment, ...]
    start: int
    runs: tuple[Run, ...]
    reach: NDArray[np.uint32]
    last_seq: int

    def runs_between(self, after: Position, until: int | None = None) -> Iterator[Run]:
        """Yield the runs that may have events after a position, up to the seq ``until``."""
        seq = after.seq + 1 if after.k >= ALL else after.seq
        first = bisect_left(self.segments, seq, key=_last_seq)
        for segment in self.segments[first:]:
            if until is not None and segment.first_seq > until:
                return
            yield from segment.runs()
        yield from self.runs

    def counts(self, channels: NDArray[np.uint32], after: Sequence[Position]) -> NDArray[np.int64]:
        """Return the number of events of channels, each after a position.

        A run is looked at one by one only for those whose position is inside of it.
        """
        found = np.zeros(len(channels), np.int64)
        if not len(channels):
            return found
        seq = np.array([position.seq for position in after], np.int64)
        before = -1
        for run in self.runs_between(min(after)):
            at = np.minimum(run.channels.searchsorted(channels), len(run.channels) - 1)
            has = (run.channels[at] == channels) & (seq <= run.last_seq)
            whole = has & (seq < max(run.base, before + 1))
            found[whole] += run.counts[at[whole]]
            for row in np.flatnonzero(has & ~whole).tolist():
                found[row] += run.count(int(channels[row]), after[row])
            before = run.last_seq
        return found


class Tail:
    """The part of a store that is in no sealed segment, as of one moment; see `EventStore.tail`."""

    def __init__(self, store: EventStore, view: _View) -> None:
        self._store = store
        self._view = view

    @property
    def last_seq(self) -> int:
        """The last seq of the store at that moment."""
        return self._view.last_seq

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the tail to a folder, when all segments before it are on disk."""
        self._store.flush()
        view = self._view
        reach = view.reach[: view.last_seq - view.start + 1]
        write_run(Path(folder), view.start, view.last_seq, view.runs, reach)


class EventStore:
    """Events of all channels: one thread appends, any thread reads.

    Parameters
    ----------
    folder
        Where the sealed segments are; created if it is missing. `open` opens one that exists.
    first_seq
        The first seq that will be appended.
    seal_postings, seal_seqs
        How long a segment is.

    Raises
    ------
    StorageError
        When the folder has segments already.

    Examples
    --------
    >>> import tempfile
    >>> store = EventStore(tempfile.mkdtemp())
    >>> one, seven = np.array([1]), np.array([7], np.uint32)
    >>> score = np.array([np.nan])
    >>> block = store.append(Postings(one, seven, seven, one, np.zeros(1, np.uint8), score), 1)
    >>> block.events(7) == store.read(7, Position(0), 10)
    True
    >>> store.reach(1), store.count(7, Position(1))
    (1, 0)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        first_seq: int = 1,
        *,
        seal_postings: int = SEAL_POSTINGS,
        seal_seqs: int = SEAL_SEQS,
        _view: _View | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._seal_postings = seal_postings
        self._seal_seqs = seal_seqs
        self._lock = threading.Lock()  # held while the view is replaced
        self._writer = ThreadPoolExecutor(1, "nearcast-events")
        if _view is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            if _segment_paths(self._folder):
                raise StorageError(f"{folder}: has segments of events; use EventStore.open")
            _write_first_seq(self._folder, first_seq)
            _view = _View((), first_seq, (), np.zeros(_MIN_REACH, np.uint32), first_seq - 1)
        self._view = _view
        self._trimmings = Trimmings(self._folder)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        tail_folder: str | os.PathLike[str] | None,
        last_seq: int,
        *,
        first_seq: int = 1,
        seal_postings: int = SEAL_POSTINGS,
        seal_seqs: int = SEAL_SEQS,
    ) -> EventStore:
        """Open a store as it was at a checkpoint.

        Segments that reach beyond the checkpoint are removed, because replaying the log writes them
        again. Without a tail the store ends with its last segment: append what follows the
        property ``last_seq``.

        Parameters
        ----------
        folder
            The folder of the store; created if it is missing.
        tail_folder
            What `Tail.save` wrote; None if there is no checkpoint.
        last_seq
            The last seq of the checkpoint.
        first_seq
            The first seq that will be appended, if the folder is new.
        seal_postings, seal_seqs
            The same as before.

        Raises
        ------
        DamagedEvents
            When a segment before the checkpoint is missing; to rebuild it and all that follows,
            open with ``tail_folder=None, last_seq=error.first_seq - 1``. `read`, `count` and
            `reach` raise the same when they find a damaged segment.
        StorageError
            When the tail cannot be read or is of another seq.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        view = _stored_view(path, tail_folder, last_seq, first_seq)
        return cls(path, seal_postings=seal_postings, seal_seqs=seal_seqs, _view=view)

    @property
    def first_seq(self) -> int:
        """The first seq whose events are kept."""
        view = self._view
        return view.segments[0].first_seq if view.segments else view.start

    @property
    def last_seq(self) -> int:
        """The last seq that was appended."""
        return self._view.last_seq

    def append(self, postings: Postings, last_seq: int) -> Block:
        """Append the postings of the next records; one thread may do so.

        Parameters
        ----------
        postings
            In the order of the log: all postings of the seqs after the property ``last_seq``.
        last_seq
            The last seq that they cover; it need not have a posting.
        """
        before = self._view.last_seq
        _check_order(postings, before, last_seq)
        rest, run = postings, None
        while (end := self._end_of_segment(rest)) <= last_seq:
            rows = int(rest.seq.searchsorted(end, side="right"))
            self._extend(rest.take(slice(rows)), end)
            self._seal()
            rest = rest.take(slice(rows, None))
        run = self._extend(rest, last_seq)
        if rest is not postings and postings.rows:
            run = Run.of(postings, before)
        return Block(run, last_seq)

    def read(
        self, channel: int, after: Position, limit: int, until: int | None = None
    ) -> list[EventRef]:
        """Return the first events of a channel after a position.

        Parameters
        ----------
        channel
            The channel; one that is unknown has no events.
        after
            Where to start.
        limit
            The maximum number of events.
        until
            The last seq of interest; by default everything that was appended.
        """
        found: list[EventRef] = []
        for run in self._view.runs_between(after, until):
            found += run.read(channel, after, limit - len(found), until)
            if len(found) >= limit:
                break
        return found

    def read_joined(
        self, chosen: ChosenChannels, after: Position, limit: int, until: int | None = None
    ) -> list[JoinedEvent]:
        """Return the first events of all chosen channels after a position; otherwise as `read`."""
        found: list[JoinedEvent] = []
        for run in self._view.runs_between(after, until):
            found += run.read_joined(chosen, after, limit - len(found), until)
            if len(found) >= limit:
                break
        return found

    def count(self, channel: int, after: Position) -> int:
        """Return the number of events of a channel after a position."""
        return sum(run.count(channel, after) for run in self._view.runs_between(after))

    def counts(
        self, channels: NDArray[np.uint32], after: Sequence[Position], until: int
    ) -> NDArray[np.int64]:
        """Return the number of events of channels, each after a position, up to the seq ``until``.

        It is negative for a position after ``until``: the number of events between the two.
        """
        view = self._view
        found = view.counts(channels, after)
        if view.last_seq > until:
            found -= view.counts(channels, [Position(until)] * len(channels))
        return found

    def reach(self, seq: int) -> int:
        """Return how many subscriptions the message ``seq`` matched when it was published.

        It is 0 for a seq that is not kept.
        """
        view = self._view
        if view.start <= seq <= view.last_seq:
            return int(view.reach[seq - view.start])
        at = bisect_left(view.segments, seq, key=_last_seq)
        if at == len(view.segments) or seq < view.segments[at].first_seq:
            return 0
        return view.segments[at].reach(seq)

    def published(self, seqs: NDArray[np.int64]) -> Published:
        """Return whom messages, at least one and in their order, matched when they came."""
        first, last = int(seqs[0]), int(seqs[-1])
        parts = [
            run.published(seqs)
            for run in self._view.runs_between(Position(first - 1), last)
            if run.last_seq >= first
        ]
        none = Published(np.empty(0, np.int64), np.empty(0, np.uint32))
        return Published(*map(np.concatenate, zip(none, *parts, strict=True)))

    def lost(self, channel: int, after: Position, before_seq: int | None = None) -> int:
        """Return how many events of a channel after a position were trimmed.

        It is exact if nothing of the position's segment was trimmed, or if the position is at its
        last seq; otherwise it is an upper bound.

        Parameters
        ----------
        channel, after
            As for `read`.
        before_seq
            Events that are still there, but before this seq, count too.
        """
        trimmed = self._trimmings.count(channel, after, self.first_seq)
        if before_seq is None or after >= Position(before_seq - 1):
            return trimmed
        return trimmed + self.count(channel, after) - self.count(channel, Position(before_seq - 1))

    def discard(self, damaged: DamagedEvents) -> None:
        """Remove a damaged segment from the disk: opening the store finds that it is missing."""
        shutil.rmtree(segment_path(self._folder, damaged.first_seq), ignore_errors=True)

    def replace(self, damaged: DamagedEvents, postings: Postings) -> None:
        """Let postings that were computed again take the place of a damaged segment.

        Readers have them when this returns; they are written in the background. A segment that was
        trimmed meanwhile stays away.
        """
        first_seq, last_seq = damaged.first_seq, damaged.last_seq
        runs = (Run.of(postings, first_seq),) if postings.rows else ()
        reach = np.zeros(last_seq - first_seq + 1, np.uint32)
        reach = _with_reach(reach, first_seq, last_seq, postings)
        fresh = Segment(self._folder, first_seq, last_seq, runs, reach)
        with self._lock:
            segments = self._view.segments
            at = bisect_left(segments, last_seq, key=_last_seq)
            if at == len(segments) or segments[at].first_seq != first_seq:
                return
            self._view = self._view._replace(segments=(*segments[:at], fresh, *segments[at + 1 :]))
        self._writer.submit(self._write_again, fresh, damaged)

    def _write_again(self, segment: Segment, damaged: DamagedEvents) -> None:
        self.discard(damaged)
        self._write_sealed()

    def trim(self, before_seq: int) -> None:
        """Remove the sealed segments that end before a seq. Readers keep what they have mapped."""
        gone = [one for one in self._view.segments if one.last_seq < before_seq]
        if not gone:
            return
        self._trimmings.add([_counted(segment) for segment in gone])
        with self._lock:
            segments = self._view.segments
            stop = bisect_left(segments, before_seq, key=_last_seq)
            self._view = self._view._replace(segments=segments[stop:])
        self._writer.submit(self._remove, segments[:stop])

    def tail(self) -> Tail:
        """Return what a checkpoint needs, as of now; the appending thread calls this."""
        return Tail(self, self._view)

    def save_tail(self, folder: str | os.PathLike[str]) -> None:
        """Write what `open` needs beside the segments: the tail as of now."""
        self.tail().save(folder)

    def flush(self) -> None:
        """Wait until all sealed segments are on disk.

        Raises
        ------
        StorageError
            When one cannot be written. It stays in memory; the next seal or flush tries again.
        """
        self._writer.submit(self._write_sealed).result()

    def close(self) -> None:
        """Finish what is written or removed in the background."""
        self._writer.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _end_of_segment(self, postings: Postings) -> int:
        """Return the last seq of the current segment; too large if it does not end with these."""
        view = self._view
        end = max(view.start + self._seal_seqs - 1, view.last_seq + 1)
        missing = max(self._seal_postings - sum(run.rows for run in view.runs), 1)
        return end if missing > postings.rows else min(end, int(postings.seq[missing - 1]))

    def _extend(self, postings: Postings, last_seq: int) -> Run | None:
        """Add postings to the tail, which has them all in its current segment."""
        view = self._view
        run = Run.of(postings, view.start) if postings.rows else None
        runs = view.runs if run is None else _merged((*view.runs, run))
        reach = _with_reach(view.reach, view.start, last_seq, postings)
        with self._lock:
            self._view = self._view._replace(runs=runs, reach=reach, last_seq=last_seq)
        return run

    def _seal(self) -> None:
        """Turn the tail into a segment, to be written in the background."""
        with self._lock:
            segments, start, runs, reach, last_seq = self._view
            reach = reach[: last_seq - start + 1]
            segment = Segment(self._folder, start, last_seq, runs, reach)
            empty = np.zeros(_MIN_REACH, np.uint32)
            self._view = _View((*segments, segment), last_seq + 1, (), empty, last_seq)
        self._writer.submit(self._write_sealed)

    def _write_sealed(self) -> None:
        for segment in self._view.segments:
            segment.write()

    def _remove(self, segments: tuple[Segment, ...]) -> None:
        _write_first_seq(self._folder, segments[-1].last_seq + 1)
        for segment in segments:
            segment.remove()


def _counted(segment: Segment) -> Stretch:
    """Count the events of a segment; what is damaged has none."""
    first_seq, last_seq = segment.first_seq, segment.last_seq
    try:
        runs = segment.runs()
    except DamagedEvents:
        return Stretch.of(first_seq, last_seq, (), ())
    try:
        last_events = [run.counts_at(last_seq) for run in runs]
    except DamagedEvents:
        last_events = [np.zeros_like(run.counts) for run in runs]
    return Stretch.of(first_seq, last_seq, runs, last_events)


def _last_seq(segment: Segment) -> int:
    return segment.last_seq


def _check_order(postings: Postings, before: int, last_seq: int) -> None:
    seq = postings.seq
    if last_seq < before:
        raise InvalidInput("last_seq", last_seq, f"expected at least {before}, the last one before")
    if not len(seq):
        return
    if seq[0] <= before or seq[-1] > last_seq:
        problem = f"expected seqs from {before + 1} to {last_seq}"
        raise InvalidInput("postings.seq", f"{seq[0]} to {seq[-1]}", problem)
    if (seq[1:] < seq[:-1]).any():
        raise InvalidInput("postings.seq", "unordered seqs", "expected the order of the log")


def _merged(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Merge the last eight runs if they are about the same size, so that there are few."""
    fanout = 1 << _FANOUT_BITS
    while len(runs) >= fanout:
        level = _level(runs[-1])
        if level >= _MAX_LEVEL or any(_level(run) > level for run in runs[-fanout:]):
            break
        runs = (*runs[:-fanout], Run.merge(runs[-fanout:]))
    return runs


def _level(run: Run) -> int:
    return (run.rows.bit_length() - 1) // _FANOUT_BITS


def _with_reach(
    reach: NDArray[np.uint32], start: int, last_seq: int, postings: Postings
) -> NDArray[np.uint32]:
    """Count the matches of each message; in place, where no reader looks yet, if there is space."""
    size = last_seq - start + 1
    if size > len(reach):
        larger = np.zeros(max(size, 2 * len(reach)), np.uint32)
        larger[: len(reach)] = reach
        reach = larger
    published = (postings.message == postings.seq) & (postings.kind == MATCH)
    seq = postings.seq[published]
    if len(seq):
        first = int(seq[0])
        counts = np.bincount(seq - first).astype(np.uint32)
        reach[first - start : first - start + len(counts)] += counts
    return reach


def _segment_paths(folder: Path) -> dict[int, Path]:
    """Return the segments in a folder by first seq, ascending."""
    names = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
    return {int(name[:20]): folder / name for name in names}


def _write_first_seq(folder: Path, first_seq: int) -> None:
    remove_leftovers(folder / _FIRST_SEQ)
    with TemporaryFile(folder / _FIRST_SEQ) as temporary:
        temporary.path.write_text(f"{first_seq}\n")
        temporary.publish()


def _read_first_seq(folder: Path, default: int) -> int:
    path = folder / _FIRST_SEQ
    if not path.exists():
        _write_first_seq(folder, default)
    text = path.read_text()
    if not text.strip().isdecimal():
        raise StorageError(f"{path}: expected a number, got {text[:20]!r}; restore a backup")
    return int(text)


def _stored_view(
    folder: Path, tail_folder: str | os.PathLike[str] | None, last_seq: int, first_seq: int
) -> _View:
    """Return what a folder has up to a checkpoint, and remove what it has beyond."""
    tail = None if tail_folder is None else _stored_tail(Path(tail_folder), last_seq)
    end = last_seq if tail is None else tail.start - 1
    next_seq = _read_first_seq(folder, first_seq)
    segments, removed = [], []
    for first, path in _segment_paths(folder).items():
        last = segment_last_seq(path)
        if first < next_seq or last is None or last > end:
            removed.append(path)
            continue
        if first > next_seq:
            raise DamagedEvents(next_seq, first - 1, "no such file")
        segments.append(Segment(folder, first, last))
        next_seq = last + 1
    if tail is not None and next_seq < tail.start:
        raise DamagedEvents(next_seq, end, "no such file")
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    if tail is not None:
        return tail._replace(segments=tuple(segments))
    reach = np.zeros(_MIN_REACH, np.uint32)
    return _View(tuple(segments), next_seq, (), reach, next_seq - 1)


def _stored_tail(folder: Path, last_seq: int) -> _View:
    start, found, runs, arrays = read_run(folder, lazy=False)
    if found != last_seq:
        raise StorageError(
            f"{folder}: has events up to seq {found}, expected {last_seq}; "
            "open the tail and the seq of one checkpoint"
        )
    reach = np.zeros(max(found - start + 1, _MIN_REACH), np.uint32)
    reach[: found - start + 1] = unpacked_reach(arrays, found - start + 1)
    return _View((), start, runs, reach, found)
