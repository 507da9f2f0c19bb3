"""The store: segments, written by one thread at a time and read by all.

Readers see one immutable `State`, replaced by assignment. A write first does everything that can
fail, then lets rows die in the next version, notes where the new ones are and puts the new state in
place: it happens as a whole or not at all. Ids of a large write are reserved while its index is
built, so other writers do not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import BOOLEAN, PROXIMITY, Ids, distinct
from nearcast.engine.directory import MOVING, NOWHERE, duplicate_id, unknown_id
from nearcast.engine.merging import SMALL_ROWS, choose_small
from nearcast.engine.rows import StoredSegment
from nearcast.engine.segment import LiveSegment, State
from nearcast.engine.upkeep import BULK_ROWS, Upkeep
from nearcast.segments import Part, has_derived, renumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.model import Id

__all__ = ["Store"]


class Store(Upkeep):
    """A live set of subscriptions, as columns, which users change."""

    def add(
        self, part: Part, *, skip: bool, time_us: int | None = None, initial: bool = True
    ) -> NDArray[np.bool_]:
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

        Returns
        -------
        ndarray
            Which rows were left out.
        """
        self.worker.raise_failure()
        subscriptions = part.subscriptions
        with self.live.lock, self._writing:
            taken = self._taken(subscriptions.ids)
            if np.count_nonzero(taken):
                if not skip:
                    raise duplicate_id(subscriptions.ids, taken)
                subscriptions = subscriptions.take(np.flatnonzero(~taken))
                part = Part(subscriptions, part.vocabulary)
            handle = self._directory.reserve(subscriptions.ids)
        segments = self.state.segments
        try:
            part = self._renumbered(part)
            if self._first_ranked(part):
                self._renew_weights(part)
            if len(subscriptions) >= BULK_ROWS:
                self._add_segment(part, handle, time_us, initial=initial)
            elif len(subscriptions):
                with self.live.lock:
                    when = self._leave(handle, time_us)
                    with self._writing:
                        self._append(part, handle)
                    self.live.entered(part, handle, when, initial=initial)
        except BaseException:
            with self._writing:
                self._directory.cancel(handle)
            raise
        if len(self.state.segments) == len(segments) and self.worker.pending:
            self.worker.wake(urgent=False)  # the buffer grew: there is nothing else to merge
            return taken
        # Small segments are merged at once: there would soon be too many of them.
        while choose_small(self._sizes(self.state.segments, None)) and self._merge(choose_small):
            pass
        self._wake_worker()
        return taken

    def remove(self, ids: Ids, time_us: int | None = None) -> None:
        """Remove subscriptions, all in one version; an id that is not registered is an error."""
        self.worker.raise_failure()
        with self.live.lock:
            handle = self._known(ids, self.live.moment(time_us))
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

    def by_distance(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which subscriptions are ranked by distance."""
        if not any(segment.ranked for segment in self.state.segments):
            return np.zeros(len(ids), np.bool_)
        near: NDArray[np.bool_] = self.kinds(self.handles(ids)) == PROXIMITY
        return near

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

    def _add_segment(
        self, part: Part, handle: NDArray[np.int32], time_us: int | None, *, initial: bool
    ) -> None:
        """Build an index, and add a segment of its own."""
        while True:
            scorer = self.state.scorer
            index = self.builder.build(scorer.content(part.subscriptions, part.vocabulary))
            with self.live.lock:
                # Meanwhile the weights may have been counted again.
                if part.subscriptions.rankings is not None and scorer is not self.state.scorer:
                    continue
                when = self._leave(handle, time_us)
                with self._writing:
                    old = self._places(handle)
                    segment = LiveSegment(
                        part.subscriptions,
                        index,
                        part.vocabulary,
                        self.state.scorer,
                        handle=handle,
                        serial=self._unused_serial(),
                        indexed=True,
                    )
                    self._put(segment, self.state.segments, old, handle)
                self.live.entered(part, handle, when, initial=initial)
                return
