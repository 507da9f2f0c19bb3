"""The store: segments, written by one thread at a time and read by all.

Readers see one immutable `State`, replaced by assignment. A write first does everything that can
fail, then lets rows die in the next version, notes where the new ones are and puts the new state in
place: it happens as a whole or not at all. Ids of a large write are reserved while its index is
built, so other writers do not wait for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from nearcast.columns import BOOLEAN, Ids, distinct
from nearcast.engine.directory import MOVING, NOWHERE, alike_id, duplicate_id, unknown_id
from nearcast.engine.journal import UNNOTED
from nearcast.engine.merging import SMALL_ROWS, choose_small
from nearcast.engine.moving.pairs import Pairs
from nearcast.engine.moving.updates import Updates
from nearcast.engine.rows import StoredSegment
from nearcast.engine.segment import LiveSegment, State
from nearcast.engine.upkeep import BULK_ROWS, Upkeep
from nearcast.segments import Part, has_derived, renumber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nearcast.engine.journal import Event
    from nearcast.indexes import Index
    from nearcast.model import Id

__all__ = ["Replacement", "Store"]

T = TypeVar("T")


class Replacement(NamedTuple):
    """What became of subscriptions that were to replace others.

    ``updates`` is what began and ended, ``busy`` tells which ids another call is registering,
    ``alike`` which are written like one of another type, ``unknown`` which were not registered and
    not added, ``added`` how many were.
    """

    updates: Updates
    busy: NDArray[np.bool_]
    alike: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    added: int


class _Unregistered(Exception):
    """Some subscriptions are not registered any more."""

    def __init__(self, kept: NDArray[np.bool_]) -> None:
        super().__init__()
        self.kept = kept


class Store(Upkeep):
    """A live set of subscriptions, as columns, which users change."""

    def add(
        self,
        part: Part,
        *,
        skip: bool,
        time_us: int | None = None,
        initial: bool = True,
        event: Event = UNNOTED,
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Add subscriptions, all in one version.

        Parameters
        ----------
        part
            The subscriptions, no two with the same id, and the vocabulary of their tokens.
        skip
            Whether to leave out those whose id is taken; otherwise they are an error.
        time_us
            When they come; now if left out.
        initial
            Whether they want the messages that are alive already.
        event
            Is told when this begins, and when it has happened.

        Returns
        -------
        tuple
            Which rows were left out because their id is taken, and which because it is written
            like one of another type.
        """
        self.worker.raise_failure()
        subscriptions = part.subscriptions
        with self.live.lock, self._writing:
            event.begin()
            taken = self._taken(subscriptions.ids)
            alike = self._alike(subscriptions.ids) & ~taken
            if np.count_nonzero(taken | alike):
                if not skip:
                    error, wrong = (duplicate_id, taken) if taken.any() else (alike_id, alike)
                    raise error(subscriptions.ids, wrong)
                subscriptions = subscriptions.take(np.flatnonzero(~(taken | alike)))
                part = Part(subscriptions, part.vocabulary)
            handle = self._directory.reserve(subscriptions.ids)
        segments = self.state.segments

        def enter(place: Callable[[], None], part: Part) -> None:
            when = self._leave(handle, time_us)
            place()
            self.live.entered(part, handle, when, initial=initial)
            event.happened()

        try:
            if len(handle):
                self._place_rows(part, handle, enter)
        except BaseException:
            with self._writing:
                self._directory.cancel(handle)
            raise
        self._tidy_up(segments)
        return taken, alike

    def replace_all(
        self,
        part: Part,
        *,
        upsert: bool,
        time_us: int | None = None,
        event: Event = UNNOTED,
    ) -> Replacement:
        """Put subscriptions in the place of those with the same ids, all in one version.

        Parameters
        ----------
        part
            The subscriptions, no two with the same id, and the vocabulary of their tokens.
        upsert
            Whether to add those whose id is not registered; otherwise they are left out.
        time_us
            When that happens; now if left out.
        event
            Is told when this begins, and when it has happened.
        """
        self.worker.raise_failure()
        ids = part.subscriptions.ids
        with self.live.lock, self._writing:
            event.begin()
            handle = self._found(ids)
            busy = self._directory.reserved(handle)
            known = self._registered(handle, self.live.moment(time_us))
            alike = self._alike(ids) & ~busy & ~known & upsert
            rows = np.flatnonzero(~busy & ~alike & (known | upsert))
            part = Part(part.subscriptions.take(rows), part.vocabulary)
            handle = self._directory.reserve(part.subscriptions.ids)
        segments, updates = self.state.segments, Updates.none()

        def enter(place: Callable[[], None], part: Part) -> Updates:
            with self._writing:
                registered = self._registered(handle, self.live.moment(time_us))
            if not (registered.all() or upsert):
                raise _Unregistered(registered)
            when = self.live.begin(time_us)
            ended = self._matched_by(handle)
            with self._writing:
                moved = self._moved_rows(handle)
                moving = handle[self._directory.segment_of(handle) == MOVING]
                self._directory.move(moving, NOWHERE, np.zeros(len(moving), np.int32))
            if len(moved):
                self.live.forget_movers(moved)
            self.live.since.forget(handle[~registered])
            place()
            begun = self.live.find(part, handle)
            event.happened()
            changed = self.live.difference(part.subscriptions.ids, ended, begun, when)
            return self.live.returned(changed)

        try:
            while len(handle):
                try:
                    updates = self._place_rows(part, handle, enter)
                    break
                except _Unregistered as error:  # meanwhile, while an index was built
                    with self._writing:
                        self._directory.cancel(handle[~error.kept])
                    rows, handle = rows[error.kept], handle[error.kept]
                    kept = np.flatnonzero(error.kept)
                    part = Part(part.subscriptions.take(kept), part.vocabulary)
        except BaseException:
            with self._writing:
                self._directory.cancel(handle)
            raise
        self._tidy_up(segments)
        left_out = np.ones(len(ids), np.bool_)
        left_out[rows] = False
        added = int(np.count_nonzero(~known[rows]))
        return Replacement(updates, busy, alike, left_out & ~busy & ~alike, added)

    def _place_rows(
        self, part: Part, handle: NDArray[np.int32], enter: Callable[[Callable[[], None], Part], T]
    ) -> T:
        """Let subscriptions enter under the lock of events; return what ``enter`` returns.

        Parameters
        ----------
        part, handle
            The subscriptions, and their handles, which are reserved.
        enter
            Gets what puts the rows into the next version, and the rows.
        """
        part = self._renumbered(part)
        if self._first_ranked(part):
            self._renew_weights(part)

        def place_with(index: Index | None) -> None:
            with self._writing:
                if index is None:
                    self._append(part, handle)
                else:
                    self._add_segment(part, handle, index)

        if len(handle) < BULK_ROWS:
            with self.live.lock:
                return enter(partial(place_with, None), part)
        while True:
            scorer = self.state.scorer
            index = self.builder.build(scorer.content(part.subscriptions, part.vocabulary))
            with self.live.lock:
                # Meanwhile the weights may have been counted again.
                if part.subscriptions.rankings is None or scorer is self.state.scorer:
                    return enter(partial(place_with, index), part)

    def _add_segment(self, part: Part, handle: NDArray[np.int32], index: Index) -> None:
        """Add a segment of its own."""
        segment = LiveSegment(
            part.subscriptions,
            index,
            part.vocabulary,
            self.state.scorer,
            handle=handle,
            serial=self._unused_serial(),
            indexed=True,
        )
        self._put(segment, self.state.segments, self._places(handle), handle)

    def _tidy_up(self, before: tuple[LiveSegment, ...]) -> None:
        """Merge small segments, and wake whoever merges the others."""
        if len(self.state.segments) == len(before) and self.worker.pending:
            self.worker.wake(urgent=False)  # the buffer grew: there is nothing else to merge
            return
        # Small segments are merged at once: there would soon be too many of them.
        while choose_small(self._sizes(self.state.segments, None)) and self._merge(choose_small):
            pass
        self._wake_worker()

    def _matched_by(self, handle: NDArray[np.int32]) -> Pairs:
        """Return the living messages that match subscriptions, by the position of their handle."""
        if not len(self.live.messages):
            return Pairs.none()
        with self._writing:
            places = self._places(handle)
            moved = np.flatnonzero(self._directory.segment_of(handle) == MOVING)
            moved_rows = self._directory.row_of(handle[moved])
        parts = []
        for segment, rows, positions in places:
            order = np.argsort(rows, kind="stable")
            part = Part(segment.subscriptions.take(rows[order]), segment.vocabulary)
            parts.append((part, positions[order]))
        if len(moved):
            parts.append((self.moved_part(moved_rows), moved))
        found = [(self.live.find(part, handle[at]), at) for part, at in parts]
        return Pairs.concatenate(
            [pairs._replace(position=at[pairs.position]) for pairs, at in found]
        )

    def remove(self, ids: Ids, time_us: int | None = None, event: Event = UNNOTED) -> None:
        """Remove subscriptions, all in one version; an id that is not registered is an error."""
        self._remove(lambda at_us: self._known(ids, at_us), time_us, event)

    def remove_known(
        self, ids: Ids, time_us: int | None = None, event: Event = UNNOTED
    ) -> NDArray[np.bool_]:
        """Remove those subscriptions that are registered, and return which are not."""
        unknown = np.zeros(len(ids), np.bool_)

        def known(at_us: int) -> NDArray[np.int32]:
            handle = self.handles(ids, at_us)
            unknown[:] = handle < 0
            return handle[~unknown]

        self._remove(known, time_us, event)
        return unknown

    def remove_owned(
        self, owners: Sequence[str], time_us: int | None = None, event: Event = UNNOTED
    ) -> list[int]:
        """Remove the subscriptions of owners; return how many each of them had."""
        counts: list[int] = []

        def owned(at_us: int) -> NDArray[np.int32]:
            handles = [self.owned(owner, at_us) for owner in owners]
            counts.extend(map(len, handles))
            return np.concatenate([np.empty(0, np.int32), *handles])

        self._remove(owned, time_us, event)
        return counts

    def _remove(
        self, find: Callable[[int], NDArray[np.int32]], time_us: int | None, event: Event
    ) -> None:
        """Remove the subscriptions whose handles are found at a moment, all in one version."""
        self.worker.raise_failure()
        with self.live.lock:
            event.begin()
            handle = find(self.live.moment(time_us))
            if len(handle) > 1:
                handle = distinct(handle)
            self._leave(handle, time_us)
            with self._writing:
                places = self._places(handle)
                for segment, _, _ in places:
                    segment.reserve_deaths()
                self._directory.release(handle)
                version = self.state.version + 1
                for segment, rows, _ in places:
                    segment.kill(rows, version)
                self._note_movers(version)
            event.happened()
        self._wake_worker()

    def _known(self, ids: Ids, at_us: int) -> NDArray[np.int32]:
        """Return the handles of ids, all of which must be registered at a time."""
        handle = self.handles(ids, at_us)
        if len(handle) and handle.min() < 0:
            raise unknown_id(ids, handle < 0)
        return handle

    def _leave(self, handle: NDArray[np.int32], time_us: int | None) -> int:
        """Subscriptions with these handles, if there are any, are about to go; return when.

        Those that have moved are gone then; the others still have to be killed.
        """
        when = self.live.begin(time_us)
        with self._writing:
            places, moved = self._places(handle), self._moved_rows(handle)
        for segment, rows, _ in places:
            self.live.leaving(segment, rows, when)
        if len(moved):
            gone = self.live.movers.handle(moved)
            with self._writing:
                self._directory.move(gone, NOWHERE, np.zeros(len(gone), np.int32))
            self.live.remove_movers(moved, when)
        return when

    def _note_movers(self, version: int) -> None:
        self.state = self.state._replace(version=version, moving=len(self.live.movers) > 0)

    def placed(self, handle: NDArray[np.int32]) -> tuple[NDArray[np.int32], Ids]:
        """Return those of some handles that have a subscription, and its id."""
        with self._writing:
            values: dict[int, Id] = {}
            for segment, rows, positions in self._places(handle):
                found = segment.subscriptions.ids.take(rows).tolist()
                values |= dict(zip(positions.tolist(), found, strict=True))
            moved = np.flatnonzero(self._directory.segment_of(handle) == MOVING)
            found = self.live.movers.ids(self._directory.row_of(handle[moved])).tolist()
            values |= dict(zip(moved.tolist(), found, strict=True))
            chosen = sorted(values)
            return handle[chosen], Ids.of([values[position] for position in chosen])

    def kinds_of(self, ids: Ids) -> NDArray[np.uint8]:
        """Return the kinds of subscriptions; unknown ones count as boolean."""
        if not any(segment.ranked for segment in self.state.segments):
            return np.full(len(ids), BOOLEAN, np.uint8)
        return self.kinds(self.handles(ids))

    def with_movers(self) -> State:
        """Return the present state, with a segment of the subscriptions that have moved."""
        with self.live.lock, self._writing:
            rows = self.live.movers.rows
            if not len(rows):
                return self.state
            moved = self.moved_segment(rows, self.live.movers.handle(rows))
            return self.state._replace(segments=(*self.state.segments, moved))

    def stored_movers(self) -> list[StoredSegment]:
        """Return the subscriptions that have moved as a segment to save, if there are some."""
        rows = self.live.movers.rows
        if not len(rows):
            return []
        subscriptions = renumber(self.moved_part(rows), self.vocabulary)
        indexed = len(rows) > SMALL_ROWS
        build = self.builder.build if indexed else self.builder.build_small
        alive = np.ones(len(rows), np.bool_)
        return [StoredSegment(subscriptions, build(subscriptions.clauses), alive, indexed)]

    def kinds(self, handle: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return the kinds of subscriptions; unknown ones count as boolean."""
        kind = np.full(len(handle), BOOLEAN, np.uint8)
        with self._writing:
            for segment, rows, positions in self._places(handle):
                rankings = segment.subscriptions.rankings
                if rankings is not None:
                    kind[positions] = rankings.kind[rows]
        return kind

    def by_replacing(self, handle: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which subscriptions move by being replaced.

        That are ranked ones, and those with phrases or beginnings of words: the moving index knows
        the words of living messages, not their order.
        """
        chosen: NDArray[np.bool_] = self.kinds(handle) != BOOLEAN
        if all(segment.vocabulary.derived is None for segment in self.state.segments):
            return chosen
        with self._writing:
            for segment, rows, positions in self._places(handle):
                if segment.vocabulary.derived is not None:
                    ascending, at = np.unique(rows, return_inverse=True)
                    clauses = segment.subscriptions.clauses.take(ascending)
                    chosen[positions] |= has_derived(clauses, segment.vocabulary)[at]
        return chosen

    def take_out(self, handle: NDArray[np.int32]) -> NDArray[np.int32]:
        """Let subscriptions be in the moving index; return their rows there.

        Those that are there already stay there.
        """
        with self._writing:
            places = self._places(handle)
            for segment, rows, _ in places:
                segment.reserve_deaths()
                at = np.argsort(rows, kind="stable")
                part = Part(segment.subscriptions.take(rows[at]), segment.vocabulary)
                self._directory.move(
                    segment.handle[rows[at]],
                    MOVING,
                    self.live.take_in(part, segment.handle[rows[at]]),
                )
            if places:
                version = self.state.version + 1
                for segment, rows, _ in places:
                    segment.kill(rows, version)
                self._note_movers(version)
            taken = self._directory.row_of(handle)
        if places:
            self._wake_worker()
        return taken

    def replace(self, id: Id, change: Callable[[Part], Part]) -> tuple[Part, Part]:
        """Put a changed subscription in the place of the one with this id, in one version.

        Parameters
        ----------
        id
            The id.
        change
            Returns the changed subscription.

        Returns
        -------
        tuple
            The subscription as it was, and as it is.
        """
        self.worker.raise_failure()
        with self._writing:
            handle = np.array([self._directory.find_one(id)], np.int32)
            segment, row = self._placed_at(int(handle[0]))
            before = Part(segment.subscriptions.take(np.array([row])), segment.vocabulary)
            new = self._renumbered(change(before))
            moved = self._moved_rows(handle)
            if len(moved):
                self._directory.move(handle, NOWHERE, np.zeros(1, np.int32))
                self.live.forget_movers(moved)
            self._append(new, handle)
        self._wake_worker()
        return before, new
