"""The store: segments, written by one at a time, read by anyone, merged in the background.

What readers see is one immutable `State`, replaced by assignment. A write prepares everything that
can fail, then lets rows die in the version to come, notes where the new ones lie and puts the new
state in place. Ids of a large write are reserved while its index is built, so that nobody waits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import NEVER, Subscriptions
from nearcast.engine.directory import NOWHERE, Directory, duplicate_id, unknown_id
from nearcast.engine.merging import (
    BUFFER_ROWS,
    SMALL_ROWS,
    Size,
    choose,
    choose_all,
    choose_small,
)
from nearcast.engine.segment import Segment, State
from nearcast.errors import StorageError
from nearcast.indexes.boolean import Linear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Ids
    from nearcast.indexes import Builder, Index

__all__ = ["Store", "StoredSegment"]

_BULK_ROWS = 512


@dataclass(frozen=True, eq=False)
class StoredSegment:
    """A segment as it is saved."""

    columns: Subscriptions
    index: Index
    alive: NDArray[np.bool_]


class Store:
    """A live set of subscriptions, as columns.

    Parameters
    ----------
    builder
        The index that large segments get.
    clock_us
        The present, in microseconds since 1970.
    """

    def __init__(self, builder: Builder, clock_us: Callable[[], int]) -> None:
        self.state = State(0, ())
        self.builder = builder
        self._clock_us = clock_us
        self._directory = Directory()
        self._buffer: Segment | None = None
        self._writing = threading.Lock()
        self._merging = threading.Lock()
        self._claimed: set[Segment] = set()

    def __len__(self) -> int:
        """Return how many subscriptions are registered and have not expired."""
        with self._writing:
            now_us = self._clock_us()
            return sum(size.alive for size in self._sizes(self.state.segments, now_us))

    @property
    def nbytes(self) -> int:
        """The bytes of segments and directory."""
        with self._writing:
            return self._directory.nbytes + sum(s.nbytes for s in self.state.segments)

    def find(self, ids: Ids) -> tuple[Segment, int] | None:
        """Return where the one subscription with this id lies; None if it is not registered."""
        with self._writing:
            handle = self._directory.find(ids)
            if not self._registered(handle)[0]:
                return None
            [(segment, rows, _)] = self._places(handle)
            return segment, int(rows[0])

    def add(self, columns: Subscriptions, *, skip: bool) -> NDArray[np.bool_]:
        """Add subscriptions, all in one version.

        Parameters
        ----------
        columns
            The subscriptions; no two have the same id.
        skip
            Whether to leave out those whose id is taken; otherwise they are an error.

        Returns
        -------
        ndarray
            Which rows were left out.
        """
        with self._writing:
            taken = self._taken(columns.ids)
            if taken.any():
                if not skip:
                    raise duplicate_id(columns.ids, taken)
                columns = columns.take(np.flatnonzero(~taken))
            handle = self._directory.reserve(columns.ids)
        try:
            if len(columns) >= _BULK_ROWS:
                index = self.builder.build(columns.clauses)
                with self._writing:
                    self._install(columns, index, handle)
            elif len(columns):
                with self._writing:
                    self._append(columns, handle)
        except BaseException:
            with self._writing:
                self._directory.cancel(handle)
            raise
        return taken

    def remove(self, ids: Ids) -> None:
        """Remove subscriptions, all in one version; an id that is not registered is an error."""
        with self._writing:
            handle = self._directory.find(ids)
            registered = self._registered(handle)
            if not registered.all():
                raise unknown_id(ids, ~registered)
            handle = np.unique(handle)
            version = self.state.version + 1
            self._kill(self._places(handle), version)
            self._directory.release(handle)
            self.state = State(version, self.state.segments)

    def replace(
        self, ids: Ids, change: Callable[[Subscriptions], Subscriptions]
    ) -> tuple[Subscriptions, Subscriptions]:
        """Put a changed subscription in the place of the one with this id, in one version.

        Returns
        -------
        tuple
            The subscription as it was, and as it is.
        """
        with self._writing:
            handle = self._directory.find(ids)
            if not self._registered(handle)[0]:
                raise unknown_id(ids, np.ones(1, np.bool_))
            [(segment, rows, _)] = self._places(handle)
            old = segment.columns.take(rows)
            new = change(old)
            self._append(new, handle)
            return old, new

    def sizes(self) -> list[Size]:
        """Return the sizes of all segments; the expired count as dead."""
        with self._writing:
            return self._sizes(self.state.segments, self._clock_us())

    def work_ahead(self) -> tuple[bool, bool]:
        """Return whether there is something to merge at once, and whether there is anything."""
        state, now_us = self.state, self._clock_us()
        sizes = self._sizes(state.segments, None)
        expiring = any(segment.first_expiry_us <= now_us for segment in state.segments)
        return bool(choose(sizes, quiet=False)), expiring or bool(choose(sizes, quiet=True))

    def merge(self, quiet: bool) -> bool:
        """Merge segments once, if the policy says so; return whether it did."""
        with self._merging:
            return self._merge(lambda sizes: choose(sizes, quiet=quiet))

    def merge_all(self) -> None:
        """Make all segments one."""
        with self._merging:
            self._merge(choose_all)

    def merge_small(self) -> None:
        """Merge small segments, as writers do at once: there would soon be too many of them."""
        while self._merge(choose_small):
            pass

    def restore(self, segments: Iterable[StoredSegment]) -> None:
        """Take in segments that were saved; the store must be empty."""
        made = []
        for serial, stored in enumerate(segments):
            columns, rows = stored.columns, np.flatnonzero(stored.alive)
            handle = np.zeros(len(columns), np.int32)
            if self._directory.find(columns.ids.take(rows)).max(initial=-1) >= 0:
                raise StorageError("two stored segments have the same id; restore a copy")
            handle[rows] = self._directory.reserve(columns.ids.take(rows))
            self._directory.place(handle[rows], serial, rows)
            segment = Segment(columns, stored.index, handle, serial)
            if len(rows) < len(segment):
                segment.kill(np.flatnonzero(~stored.alive), 0)
            made.append(segment)
        if len(self._directory) != sum(len(s) - s.tombstones for s in made):
            raise StorageError("a stored segment has the same id twice; restore a copy")
        self.state = State(0, tuple(made))

    def _taken(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which ids cannot be registered; an expired registration is no obstacle."""
        handle = self._directory.find(ids)
        return self._registered(handle) | self._directory.reserved(handle)

    def _registered(self, handle: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which handles belong to subscriptions that have not expired."""
        registered: NDArray[np.bool_] = self._directory.segment_of(handle) != NOWHERE
        now_us = self._clock_us()
        for segment, rows, positions in self._places(handle):
            if segment.first_expiry_us <= now_us:
                registered[positions] = segment.columns.expires_us[rows] > now_us
        return registered

    def _places(
        self, handle: NDArray[np.int32]
    ) -> list[tuple[Segment, NDArray[np.int32], NDArray[np.int64]]]:
        """Return segment by segment the rows of handles, and their positions among the handles."""
        serial = self._directory.segment_of(handle)
        if len(serial) == 0 or serial.max() == NOWHERE:
            return []
        of_segment = [(s, np.flatnonzero(serial == s.serial)) for s in self.state.segments]
        row_of = self._directory.row_of
        return [(s, row_of(handle[chosen]), chosen) for s, chosen in of_segment if len(chosen)]

    def _install(self, columns: Subscriptions, index: Index, handle: NDArray[np.int32]) -> None:
        """Add a segment of its own."""
        old = self._places(handle)
        segment = Segment(columns, index, handle, self._fresh_serial())
        self._put(segment, self.state.segments, old, handle)

    def _append(self, columns: Subscriptions, handle: NDArray[np.int32]) -> None:
        """Add to the buffer, which becomes a segment with an index when it is full."""
        old, fresh = self._places(handle), handle
        buffer = self._buffer
        serial = self._fresh_serial()
        if buffer is not None:
            serial = buffer.serial
            left = buffer.alive(self.state.version)
            for segment, rows, _ in old:
                if segment is buffer:
                    left[rows] = False
            columns, handle = _joined([(buffer, np.flatnonzero(left))], (columns, handle))
        full = len(columns) > BUFFER_ROWS
        index = self.builder.build(columns.clauses) if full else Linear.build(columns.clauses)
        segment = Segment(columns, index, handle, serial)
        others = tuple(s for s in self.state.segments if s is not buffer)
        self._put(segment, others, [place for place in old if place[0] is not buffer], fresh)
        self._buffer = None if full else segment

    def _put(
        self,
        segment: Segment,
        others: tuple[Segment, ...],
        old: Sequence[tuple[Segment, NDArray[Any], NDArray[Any]]],
        fresh: NDArray[np.int32],
    ) -> None:
        """Put a new version in place: a segment and others, in which old rows die.

        The last rows of the segment are ``fresh``. The others only move: if one of them has
        expired, somebody may have reserved its id.
        """
        version = self.state.version + 1
        self._kill(old, version)
        rows = np.arange(len(segment))
        moved = len(segment) - len(fresh)
        self._directory.move(segment.handle[:moved], segment.serial, rows[:moved])
        self._directory.place(fresh, segment.serial, rows[moved:])
        self.state = State(version, (*others, segment))

    def _kill(
        self, places: Sequence[tuple[Segment, NDArray[Any], NDArray[Any]]], version: int
    ) -> None:
        for segment, _, _ in places:
            segment.prepare_to_kill()
        for segment, rows, _ in places:
            segment.kill(rows, version)

    def _fresh_serial(self) -> int:
        used = {segment.serial for segment in self.state.segments}
        return next(serial for serial in count() if serial not in used)

    def _sizes(self, segments: Iterable[Segment], now_us: int | None) -> list[Size]:
        return [
            Size(len(s), _dead(s, now_us), s is self._buffer, not isinstance(s.index, Linear))
            for s in segments
        ]

    def _merge(self, policy: Callable[[Sequence[Size]], tuple[int, ...]]) -> bool:
        """Merge what a policy chooses among the segments that nobody else is merging."""
        now_us = self._clock_us()
        sources = self._claim(policy, now_us)
        try:
            if sources:
                self._replace(sources, self.state.version, now_us)
        finally:
            self._claimed.difference_update(sources)
        return bool(sources)

    def _claim(
        self, policy: Callable[[Sequence[Size]], tuple[int, ...]], now_us: int
    ) -> list[Segment]:
        """Choose what to merge; if the buffer is part of it, no write adds to it any more."""
        while True:
            free = [s for s in self.state.segments if s not in self._claimed]
            sources = [free[number] for number in policy(self._sizes(free, now_us))]
            with self._writing:
                if self._claimed.isdisjoint(sources) and set(sources) <= {*self.state.segments}:
                    self._claimed.update(sources)
                    if self._buffer in sources:
                        self._buffer = None
                    return sources

    def _replace(self, sources: list[Segment], version: int, now_us: int) -> None:
        """Put one segment in the place of several, without the dead and the expired."""
        alive = [source.alive(version) for source in sources]
        fresh = [source.unexpired(now_us) for source in sources]
        kept = [np.flatnonzero(a & f) for a, f in zip(alive, fresh, strict=True)]
        expired = [np.flatnonzero(a & ~f) for a, f in zip(alive, fresh, strict=True)]
        columns, handle = _joined(list(zip(sources, kept, strict=True)))
        small = len(columns) <= SMALL_ROWS
        build = Linear.build if small else self.builder.build
        index = build(columns.clauses)
        with self._writing:
            segment = Segment(columns, index, handle, self._fresh_serial())
            others = tuple(s for s in self.state.segments if s not in sources)
            died = np.concatenate(list(_deaths(sources, kept)))
            living, gone = np.flatnonzero(died == NEVER), np.flatnonzero(died < NEVER)
            if len(gone):
                segment.kill(gone, died[gone])
            self._directory.move(handle[living], segment.serial, living)
            for source, rows in zip(sources, expired, strict=True):
                lapsed = rows[source.alive(NEVER - 1)[rows]]
                self._directory.release(source.handle[lapsed])
            self.state = State(self.state.version, (*others, segment) if len(segment) else others)


def _joined(
    parts: Sequence[tuple[Segment, NDArray[np.int64]]],
    *others: tuple[Subscriptions, NDArray[np.int32]],
) -> tuple[Subscriptions, NDArray[np.int32]]:
    """Return the columns and handles of these rows of segments, then of the others, as one."""
    every = [(_rows(segment, rows), segment.handle[rows]) for segment, rows in parts]
    every += others
    columns = [column for column, _ in every if len(column)] or [every[0][0]]
    joined = columns[0] if len(columns) == 1 else Subscriptions.concatenate(columns)
    return joined, np.concatenate([handle for _, handle in every])


def _rows(segment: Segment, rows: NDArray[np.int64]) -> Subscriptions:
    return segment.columns if len(rows) == len(segment) else segment.columns.take(rows)


def _deaths(sources: list[Segment], kept: list[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Yield when the kept rows of each source died, now that nobody writes."""
    for source, rows in zip(sources, kept, strict=True):
        yield source.died[rows] if len(source.died) else np.full(len(rows), NEVER)


def _dead(segment: Segment, now_us: int | None) -> int:
    """Count the dead, and unless there is no time for that the expired too."""
    if now_us is None or now_us < segment.first_expiry_us:
        return segment.tombstones
    return int(np.count_nonzero(~segment.unexpired(now_us) | ~segment.alive(NEVER - 1)))
