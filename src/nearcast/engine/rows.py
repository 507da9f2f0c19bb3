"""The rows of an engine: segments, the buffer of the newest rows, and the directory of ids.

`Rows` knows where every subscription is, and puts rows in. `nearcast.engine.upkeep.Upkeep` extends
it by merging and the weights of ranked subscriptions, `nearcast.engine.store.Store` by the writes
that users make.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import KINDS, Ids, Subscriptions
from nearcast.engine.buffer import BUFFER_ROWS, Buffer
from nearcast.engine.directory import MOVING, NOWHERE, Directory, unknown_id
from nearcast.engine.merging import SMALL_ROWS, Size
from nearcast.engine.segment import LiveSegment, State
from nearcast.errors import StorageError
from nearcast.segments import Part, renumber, unite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from nearcast.engine.moving.live import Live
    from nearcast.indexes import Builder, Index
    from nearcast.model import Id
    from nearcast.segments import Scorer
    from nearcast.text import Vocabulary

__all__ = ["Rows", "StoredSegment", "chosen_rows", "joined_rows"]

_FIRST = np.zeros(1, np.int64)


@dataclass(frozen=True, eq=False)
class StoredSegment:
    """A segment as it is saved; ``indexed`` as in `LiveSegment`."""

    subscriptions: Subscriptions
    index: Index
    alive: NDArray[np.bool_]
    indexed: bool


class Rows:
    """The rows of an engine, as segments that readers see and a directory for writers.

    Parameters
    ----------
    builder
        The index that large segments get.
    vocabulary
        Numbers the tokens of what is written first.
    clock_us
        The current time, in microseconds since 1970.
    scorer
        What scores depend on at first.
    live
        Has the subscriptions that have moved. Its lock is taken before that of the rows.
    """

    def __init__(
        self,
        builder: Builder,
        vocabulary: Vocabulary,
        clock_us: Callable[[], int],
        scorer: Scorer,
        live: Live,
    ) -> None:
        self.state = State(0, (), scorer)
        self.live = live
        self.builder = builder
        self.vocabulary = vocabulary
        self._clock = clock_us
        self._directory = Directory()
        self._buffer: Buffer | None = None
        self._writing = threading.Lock()
        live.handles = self.known_handles
        live.released, live.relocated = self._release_movers, self._relocate_movers

    def _clock_us(self) -> int:
        """Return the current time; it never goes back behind the present, as clocks do."""
        return max(self._clock(), self.live.present_us)

    def __len__(self) -> int:
        """Return how many subscriptions are registered and have not expired."""
        with self.live.lock, self._writing:
            now_us = self._clock_us()
            moved = np.count_nonzero(self.live.movers.expires_us(self.live.movers.rows) > now_us)
            return int(moved) + sum(s.alive for s in self._sizes(self.state.segments, now_us))

    @property
    def nbytes(self) -> int:
        """The bytes of segments, directory and vocabularies."""
        with self._writing:
            segments = self.state.segments
            vocabularies = {self.vocabulary, *(segment.vocabulary for segment in segments)}
            return (
                self._directory.nbytes
                + sum(segment.nbytes for segment in segments)
                + sum(vocabulary.nbytes for vocabulary in vocabularies)
            )

    def find(self, id: Id) -> tuple[LiveSegment, int] | None:
        """Return where the subscription with this id is; None if it is not registered.

        A subscription that has moved comes in a segment of its own.
        """
        with self.live.lock, self._writing:
            return self._place(self._directory.find_one(id))

    def handles(self, ids: Ids, at_us: int | None = None) -> NDArray[np.int32]:
        """Return the handles of ids that are registered at a time (now), -1 for others."""
        with self.live.lock, self._writing:
            handle = self._found(ids)
            return np.where(self._registered(handle, at_us), handle, -1).astype(np.int32)

    def known_handles(self, ids: Ids) -> NDArray[np.int32]:
        """Return the handles of ids, of expired subscriptions too."""
        with self._writing:
            return self._directory.find(ids)

    def handle_at(self, id: Id, at_us: int) -> int:
        """Return the handle of an id that is registered at a time; refuse others."""
        with self.live.lock, self._writing:
            handle = self._directory.find_one(id)
            if not self._is_registered(handle, max(at_us, self.live.lapse_us)):
                raise unknown_id(Ids.of([id]), np.ones(1, np.bool_))
            return handle

    def owned(self, owner: str, at_us: int | None = None) -> NDArray[np.int32]:
        """Return the handles of an owner's subscriptions that are registered at a time (now)."""
        with self.live.lock, self._writing:
            movers = self.live.movers
            found = [s.handle[s.owned_by(owner)] for s in self.state.segments]
            handle = np.concatenate([*found, movers.handle(movers.owned_by(owner))])
            return handle[self._registered(handle, at_us)].astype(np.int32)

    def owners(self, ids: Ids) -> pa.StringArray:
        """Return the owners of subscriptions, null where nobody is named, or the id is unknown."""
        with self.live.lock, self._writing:
            handle = self._found(ids)
            owner: list[str | None] = [None] * len(ids)
            for segment, rows, positions in self._places(handle):
                if segment.subscriptions.owner is not None:
                    named = segment.subscriptions.owner.take(pa.array(rows)).to_pylist()
                    for position, name in zip(positions.tolist(), named, strict=True):
                        owner[position] = name
            moved = np.flatnonzero(self._directory.segment_of(handle) == MOVING)
            named = self.live.movers.owners(self._directory.row_of(handle[moved]))
            for position, name in zip(moved.tolist(), named, strict=True):
                owner[position] = name
            return pa.array(owner, pa.string())

    def found_owned(self, owner: str) -> list[tuple[LiveSegment, int]]:
        """Return where the subscriptions of an owner are.

        Those that have moved come in segments of their own.
        """
        with self.live.lock:
            handle = self.owned(owner)
            with self._writing:
                return [self._placed_at(one) for one in handle.tolist()]

    def moved_part(self, rows: NDArray[np.int32]) -> Part:
        """Return subscriptions that have moved as they are now."""
        live = self.live
        return Part(live.movers.subscriptions(rows, live.messages.index), live.messages.vocabulary)

    def sizes(self) -> list[Size]:
        """Return the sizes of all segments; the expired count as dead."""
        with self._writing:
            return self._sizes(self.state.segments, self._clock_us())

    def indexes(self) -> dict[str, str]:
        """Return the index of each kind of subscriptions."""
        segments = [one for one in self.state.segments if len(one.subscriptions)]
        present = {kind for one in segments for kind in one.subscriptions.kinds}
        return self.builder.index_names(kind for kind in KINDS if kind in present)

    def restore(self, segments: Iterable[StoredSegment]) -> None:
        """Take in segments that were saved; the store must be empty."""
        made = []
        for serial, stored in enumerate(segments):
            subscriptions, rows = stored.subscriptions, np.flatnonzero(stored.alive)
            handle = np.zeros(len(subscriptions), np.int32)
            if self._directory.find(subscriptions.ids.take(rows)).max(initial=-1) >= 0:
                raise StorageError("two stored segments have the same id; restore a backup")
            handle[rows] = self._directory.reserve(subscriptions.ids.take(rows))
            self._directory.place(handle[rows], serial, rows)
            segment = LiveSegment(
                subscriptions,
                stored.index,
                self.vocabulary,
                self.state.scorer,
                handle=handle,
                serial=serial,
                indexed=stored.indexed,
            )
            if len(rows) < len(segment):
                segment.kill(np.flatnonzero(~stored.alive))
            made.append(segment)
        if len(self._directory) != sum(len(s) - s.tombstones for s in made):
            raise StorageError("a stored segment has the same id twice; restore a backup")
        self.state = self.state._replace(segments=tuple(made))

    def allow_alike(self, allows: bool) -> None:
        """Say whether ids of different types may be written alike."""
        self._directory.allows_alike = allows

    def _found(self, ids: Ids) -> NDArray[np.int32]:
        if len(ids) == 1:
            return np.array([self._directory.find_one(ids.tolist()[0])], np.int32)
        return self._directory.find(ids)

    def _taken(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which ids cannot be registered; an expired registration is no obstacle."""
        if len(ids) == 1:
            one = self._directory.find_one(ids.tolist()[0])
            return np.array([self._place(one) is not None or self._directory.is_reserved(one)])
        return self._taken_handles(self._directory.find(ids))

    def _taken_handles(self, handle: NDArray[np.int32]) -> NDArray[np.bool_]:
        return self._registered(handle) | self._directory.reserved(handle)

    def _alike(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which ids are written like one of another type that is registered."""
        return self._directory.alike(ids, self._taken_handles)

    def _registered(self, handle: NDArray[np.int32], at_us: int | None = None) -> NDArray[np.bool_]:
        """Return which handles belong to subscriptions that have not expired at a time (now)."""
        now_us = self._clock_us() if at_us is None else max(at_us, self.live.lapse_us)
        if len(handle) == 1:
            return np.array([self._is_registered(int(handle[0]), now_us)])
        serial = self._directory.segment_of(handle)
        registered: NDArray[np.bool_] = serial != NOWHERE
        moved = np.flatnonzero(serial == MOVING)
        if len(moved):
            rows = self._directory.row_of(handle[moved])
            registered[moved] = self.live.movers.expires_us(rows) > now_us
        for segment, rows, positions in self._places(handle):
            if segment.first_expiry_us <= now_us:
                registered[positions] = segment.subscriptions.expires_us[rows] > now_us
        return registered

    def _place(self, handle: int) -> tuple[LiveSegment, int] | None:
        """Return the segment and row of one handle; None if it has none, or has expired."""
        registered = self._is_registered(handle, self._clock_us())
        return self._placed_at(handle) if registered else None

    def _is_registered(self, handle: int, at_us: int) -> bool:
        """Return whether a handle belongs to a subscription that has not expired at a time."""
        if self._directory.segment_at(handle) == MOVING:
            return self.live.movers.expiry_us(self._directory.row_at(handle)) > at_us
        segment = self._segment_of(handle)
        if segment is None or segment.first_expiry_us > at_us:
            return segment is not None
        return bool(segment.subscriptions.expires_us[self._directory.row_at(handle)] > at_us)

    def _placed_at(self, handle: int) -> tuple[LiveSegment, int]:
        """Return the segment and row of a handle that has one, expired or not."""
        row = self._directory.row_at(handle)
        segment = self._segment_of(handle)
        if segment is not None:
            return segment, row
        moved = self.moved_segment(np.array([row], np.int32), np.array([handle], np.int32))
        return moved, 0

    def moved_segment(self, rows: NDArray[np.int32], handle: NDArray[np.int32]) -> LiveSegment:
        """Return subscriptions that have moved as a segment of their own."""
        part = self.moved_part(rows)
        return LiveSegment(
            part.subscriptions,
            partial(self.builder.build_small, part.subscriptions.clauses),
            part.vocabulary,
            self.state.scorer,
            handle=handle,
            serial=MOVING,
            indexed=False,
        )

    def _segment_of(self, handle: int) -> LiveSegment | None:
        serial = self._directory.segment_at(handle)
        if serial >= 0:
            for segment in self.state.segments:
                if segment.serial == serial:
                    return segment
        return None

    def _places(
        self, handle: NDArray[np.int32]
    ) -> list[tuple[LiveSegment, NDArray[np.int32], NDArray[np.int64]]]:
        """Return segment by segment the rows of handles, and their positions among the handles."""
        if len(handle) == 1:
            one = int(handle[0])
            segment = self._segment_of(one)
            if segment is None:
                return []
            return [(segment, np.array([self._directory.row_at(one)], np.int32), _FIRST)]
        serial = self._directory.segment_of(handle)
        if len(serial) == 0 or serial.max() < 0:
            return []
        of_segment = [(s, np.flatnonzero(serial == s.serial)) for s in self.state.segments]
        row_of = self._directory.row_of
        return [(s, row_of(handle[chosen]), chosen) for s, chosen in of_segment if len(chosen)]

    def _release_movers(self, handle: NDArray[np.int32]) -> None:
        """Forget the ids of subscriptions that have moved and expired."""
        with self._writing:
            self._directory.release(handle)

    def _relocate_movers(self, handle: NDArray[np.int32], rows: NDArray[np.int32]) -> None:
        """Note the new rows of subscriptions that have moved."""
        with self._writing:
            self._directory.move(handle, MOVING, rows)

    def _renumbered(self, part: Part) -> Part:
        """Return a part under the latest vocabulary, which may have replaced its own."""
        latest = self.vocabulary
        return part if part.vocabulary is latest else Part(renumber(part, latest), latest)

    def _moved_rows(self, handle: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the rows of those handles whose subscriptions have moved."""
        moved = self._directory.segment_of(handle) == MOVING
        return self._directory.row_of(handle[moved])

    def _append(self, part: Part, handle: NDArray[np.int32]) -> None:
        """Add to the buffer, or to a new one when it is full."""
        old = self._places(handle)
        buffer = self._buffer
        if buffer is not None and len(buffer) + len(handle) > BUFFER_ROWS:
            self._close_buffer(buffer.segment)
            buffer = None
            old = self._places(handle)
        if buffer is not None and (
            buffer.vocabulary is not part.vocabulary or buffer.scorer is not self.state.scorer
        ):
            buffer = None
        if buffer is None:
            self._buffer = None
            serial = self._unused_serial()
            buffer = Buffer(self.builder, self.state.scorer, part, handle, serial)
            before, segment = None, buffer.segment
        else:
            before = buffer.segment
            try:
                segment = buffer.append(part.subscriptions, handle)
            except BaseException:
                self._buffer = None  # its columns may be of different lengths now
                raise
            # Deaths so far are those of the segment before; what dies now dies in the new one.
            old = [(segment if s is before else s, rows, at) for s, rows, at in old]
        others = tuple(s for s in self.state.segments if s is not before)
        self._put(segment, others, old, handle)
        self._buffer = buffer

    def _close_buffer(self, segment: LiveSegment) -> None:
        """Replace the full buffer by a segment of its living rows, with an index."""
        rows = np.flatnonzero(segment.alive())
        part, handle = joined_rows([(segment, rows)])
        closed = self._built(part, handle, segment.serial)
        self._directory.move(handle, closed.serial, np.arange(len(handle)))
        self._buffer = None
        others = tuple(s for s in self.state.segments if s is not segment)
        self.state = self.state._replace(segments=(*others, closed) if len(closed) else others)

    def _built(self, part: Part, handle: NDArray[np.int32], serial: int) -> LiveSegment:
        """Return a segment with an index, or with the small form where that is as fast."""
        scorer = self.state.scorer
        content = scorer.content(part.subscriptions, part.vocabulary)
        indexed = len(part.subscriptions) > SMALL_ROWS
        index = self.builder.build(content) if indexed else self.builder.build_small(content)
        return LiveSegment(
            part.subscriptions,
            index,
            part.vocabulary,
            scorer,
            handle=handle,
            serial=serial,
            indexed=indexed,
        )

    def _put(
        self,
        segment: LiveSegment,
        others: tuple[LiveSegment, ...],
        old: Sequence[tuple[LiveSegment, NDArray[Any], NDArray[Any]]],
        handle: NDArray[np.int32],
    ) -> None:
        """Put a new version in place: a segment and others, in which old rows die.

        The last rows of the segment are those of ``handle``; the others are where they were.
        """
        for dying, _, _ in old:
            dying.reserve_deaths()
        version = self.state.version + 1
        for dying, rows, _ in old:
            dying.kill(rows, version)
        rows = np.arange(len(segment) - len(handle), len(segment))
        self._directory.place(handle, segment.serial, rows)
        self.state = self.state._replace(
            version=version, segments=(*others, segment), moving=len(self.live.movers) > 0
        )

    def _unused_serial(self) -> int:
        used = {segment.serial for segment in self.state.segments}
        return next(serial for serial in count() if serial not in used)

    def _sizes(self, segments: Iterable[LiveSegment], now_us: int | None) -> list[Size]:
        buffer = None if self._buffer is None else self._buffer.segment
        return [Size(len(s), _dead(s, now_us), s is buffer, s.indexed) for s in segments]


def joined_rows(
    sources: Sequence[tuple[LiveSegment, NDArray[np.int64]]], vocabulary: Vocabulary | None = None
) -> tuple[Part, NDArray[np.int32]]:
    """Return these rows of segments as one part, and their handles.

    Where their vocabularies differ, tokens are numbered by the given one.
    """
    parts = [Part(chosen_rows(segment, rows), segment.vocabulary) for segment, rows in sources]
    handle = np.concatenate([segment.handle[rows] for segment, rows in sources])
    parts = [part for part in parts if len(part.subscriptions)] or parts[:1]
    return unite(parts, vocabulary), handle


def chosen_rows(segment: LiveSegment, rows: NDArray[np.int64]) -> Subscriptions:
    """Return the subscriptions of these rows of a segment."""
    whole = len(rows) == len(segment)
    return segment.subscriptions if whole else segment.subscriptions.take(rows)


def _dead(segment: LiveSegment, now_us: int | None) -> int:
    """Count the dead rows and, given a time, the expired ones too."""
    if now_us is None or now_us < segment.first_expiry_us:
        return segment.tombstones
    return int(np.count_nonzero(~segment.unexpired(now_us) | ~segment.alive()))
