"""The store: segments, written by one thread at a time, read by all, merged in the background.

Readers see one immutable `State`, replaced by assignment. A write first does everything that can
fail, then lets rows die in the next version, notes where the new ones are and puts the new state in
place: it happens as a whole or not at all. Ids of a large write are reserved while its index is
built, so other writers do not wait for it. Merging is the store's business alone: callers write,
and the store decides what to merge at once and what to leave to its thread. It also decides when
the weights of ranked subscriptions are counted again.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import BOOLEAN, NEVER, PROXIMITY, Ids
from nearcast.engine.buffer import small_index
from nearcast.engine.directory import MOVING, NOWHERE, duplicate_id, unknown_id
from nearcast.engine.merging import (
    SMALL_ROWS,
    Size,
    Worker,
    choose,
    choose_all,
    choose_small,
)
from nearcast.engine.rows import Rows, StoredSegment, chosen_rows, joined_rows
from nearcast.engine.segment import LiveSegment, State
from nearcast.segments import Part, renumber, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.engine.live import Live
    from nearcast.indexes import Builder, Index
    from nearcast.model import Id
    from nearcast.segments import Scorer
    from nearcast.text import Vocabulary

__all__ = ["Store"]

_BULK_ROWS = 512
_MIN_UNUSED_TOKENS = 1024
_MIN_COUNTED = 1024


class Store(Rows):
    """A live set of subscriptions, as columns.

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
        Living messages, and subscriptions that have moved.
    trims
        Whether merging may replace the vocabulary by one without the tokens that nobody uses.

    Attributes
    ----------
    merging
        The lock of whoever merges or counts weights; taken before that of ``live``.
    """

    def __init__(
        self,
        builder: Builder,
        vocabulary: Vocabulary,
        clock_us: Callable[[], int],
        *,
        scorer: Scorer,
        live: Live,
        trims: bool = True,
    ) -> None:
        super().__init__(builder, vocabulary, clock_us, scorer, live)
        live.handles = self.known_handles
        live.released, live.relocated = self._release_movers, self._relocate_movers
        self._trims = trims
        self.merging = threading.RLock()
        self._claimed: set[LiveSegment] = set()
        self._released = threading.Condition(self._writing)
        self.worker = Worker(self.merge)

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
            if len(subscriptions) >= _BULK_ROWS:
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
                handle = np.unique(handle)
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

    def _release_movers(self, handle: NDArray[np.int32]) -> None:
        """Forget the ids of subscriptions that have moved and expired."""
        with self._writing:
            self._directory.release(handle)

    def _relocate_movers(self, handle: NDArray[np.int32], rows: NDArray[np.int32]) -> None:
        """Note the new rows of subscriptions that have moved."""
        with self._writing:
            self._directory.move(handle, MOVING, rows)

    def _note_movers(self, version: int) -> None:
        self.state = self.state._replace(version=version, moving=len(self.live.movers) > 0)

    def known_handles(self, ids: Ids) -> NDArray[np.int32]:
        """Return the handles of ids, of expired subscriptions too."""
        with self._writing:
            return self._directory.find(ids)

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
            return self._directory.row_of(handle)

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

    def merge(self, quiet: bool) -> bool:
        """Merge segments once, if the policy says so; return whether it did.

        Weights that were counted over half of the ranked subscriptions, or fewer, are counted
        first.
        """
        with self.merging:
            if self._outgrew_weights():
                self._renew_weights()
            return self._merge(lambda sizes: choose(sizes, quiet=quiet))

    def merge_all(self) -> None:
        """Make all segments one, with a vocabulary of which most is used, and count weights."""
        self.worker.raise_failure()
        with self.merging:
            self._renew_weights(build=len(self.state.segments) == 1)
            if self._merge(choose_all):
                return
            parts = [Part(s.subscriptions, s.vocabulary) for s in self.state.segments]
            if self._trims and any(map(_mostly_unused, parts)):
                self._merge(lambda sizes: tuple(range(len(sizes))))

    def merge_vocabularies(self) -> State:
        """Merge until all segments share the latest vocabulary; return that state."""
        with self.merging:
            while True:
                state = self.state
                if all(segment.vocabulary is self.vocabulary for segment in state.segments):
                    return state
                self._merge(lambda sizes: tuple(range(len(sizes))))

    def close(self) -> None:
        """Stop merging in the background."""
        self.worker.stop()
        self.worker.join()

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

    def _first_ranked(self, part: Part) -> bool:
        """Whether the weights are to be counted before this part is added.

        That is so for the first ranked subscriptions, and for the first large write of them.
        """
        rankings = part.subscriptions.rankings
        if rankings is None or self.state.scorer.fixed:
            return False
        counted, more = self.state.scorer.weights.subscriptions, np.count_nonzero(rankings.kind)
        return counted == 0 or bool(counted < _BULK_ROWS <= more)

    def _outgrew_weights(self) -> bool:
        """Whether there are twice as many ranked subscriptions as when weights were counted."""
        if self.state.scorer.fixed:
            return False
        enough = max(2 * self.state.scorer.weights.subscriptions, _MIN_COUNTED)
        ranked = [s for s in self.state.segments if s.ranked]
        if sum(map(len, ranked)) < enough:
            return False
        return sum(segment.count_ranked() for segment in ranked) >= enough

    def _renew_weights(self, more: Part | None = None, *, build: bool = True) -> None:
        """Count weights over all ranked subscriptions, and score with them from one version on.

        Parameters
        ----------
        more
            Subscriptions that are about to be added.
        build
            Whether large segments get their new indexes here; otherwise the caller merges all of
            them at once.
        """
        if self.state.scorer.fixed:
            return
        with self.merging:
            ranked = self._claim_ranked()
            try:
                now_us = self._clock_us()
                living = [(s, np.flatnonzero(s.alive() & s.unexpired(now_us))) for s in ranked]
                parts = [Part(chosen_rows(s, rows), s.vocabulary) for s, rows in living]
                parts += [] if more is None else [more]
                scorer = self.state.scorer.recounted(parts, self.vocabulary)
                if scorer is not self.state.scorer:
                    self._rescore(scorer, ranked, build)
            finally:
                with self._released:
                    self._claimed.difference_update(ranked)
                    self._released.notify_all()

    def _claim_ranked(self) -> list[LiveSegment]:
        """Claim all segments with ranked subscriptions; nobody merges or extends them."""
        with self._released:
            while True:
                ranked = [s for s in self.state.segments if s.ranked]
                if self._claimed.isdisjoint(ranked):
                    break
                self._released.wait()
            self._claimed.update(ranked)
            if self._buffer is not None and self._buffer.segment in ranked:
                self._buffer = None
            return ranked

    def _rescore(self, scorer: Scorer, claimed: list[LiveSegment], build: bool) -> None:
        """Give all ranked segments indexes with other weights, in one version."""
        built: dict[LiveSegment, Index] = {}
        ranked = claimed
        while True:
            for segment in ranked:
                if build and segment.indexed and segment not in built:
                    content = scorer.content(segment.subscriptions, segment.vocabulary)
                    built[segment] = self.builder.rebuild_ranked(segment.index, content)
            with self.live.lock:
                before = self.state
                with self._released:
                    # Meanwhile others may have written: small segments are quickly done.
                    ranked = [s for s in self.state.segments if s.ranked]
                    if not (self._claimed - {*claimed}).isdisjoint(ranked):
                        self._released.wait()
                    elif not any(build and s.indexed and s not in built for s in ranked):
                        before = self.state
                        changed = {s: self._rescored(s, scorer, built.get(s)) for s in ranked}
                        segments = tuple(changed.get(s, s) for s in before.segments)
                        self.state = before._replace(
                            version=before.version + 1, segments=segments, scorer=scorer
                        )
                        self._buffer = None
                if self.state.scorer is scorer:
                    self.live.rescored(before)
                    return

    def _rescored(self, segment: LiveSegment, scorer: Scorer, index: Index | None) -> LiveSegment:
        part = Part(segment.subscriptions, segment.vocabulary)
        made = partial(small_index, self.builder, scorer, part)
        if segment.indexed and index is None:  # it is about to be merged
            content = scorer.content(*part)
            made = partial(self.builder.rebuild_ranked, segment.index, content)
        return segment.rescored(scorer, made if index is None else index)

    def _wake_worker(self) -> None:
        """Tell the thread if something is worth merging, at once or when nobody writes."""
        segments = self.state.segments
        sizes = self._sizes(segments, None)
        urgent = bool(choose(sizes, quiet=False))
        if self.worker.pending:  # it will look at everything when nobody writes
            self.worker.wake(urgent=urgent)
            return
        now_us = self._clock_us()
        expiring = any(segment.first_expiry_us <= now_us for segment in segments)
        outgrown = self._outgrew_weights()
        if urgent or outgrown or expiring or choose(sizes, quiet=True):
            self.worker.wake(urgent=urgent or outgrown)

    def _merge(self, policy: Callable[[Sequence[Size]], tuple[int, ...]]) -> bool:
        """Merge what a policy chooses among the segments that nobody else is merging."""
        now_us = self.live.lapse_us
        sources = self._claim(policy, now_us)
        try:
            if sources:
                self._replace(sources, self.state.version, now_us)
        finally:
            with self._released:
                self._claimed.difference_update(sources)
                self._released.notify_all()
        return bool(sources)

    def _claim(
        self, policy: Callable[[Sequence[Size]], tuple[int, ...]], now_us: int
    ) -> list[LiveSegment]:
        """Choose what to merge; if the buffer is part of it, no write adds to it any more."""
        while True:
            free = [s for s in self.state.segments if s not in self._claimed]
            sources = [free[number] for number in policy(self._sizes(free, now_us))]
            with self._writing:
                if self._claimed.isdisjoint(sources) and set(sources) <= {*self.state.segments}:
                    self._claimed.update(sources)
                    if self._buffer is not None and self._buffer.segment in sources:
                        self._buffer = None
                    return sources

    def _replace(self, sources: list[LiveSegment], version: int, now_us: int) -> None:
        """Put one segment in the place of several, without the dead and the expired."""
        alive = [source.alive(version) for source in sources]
        fresh = [source.unexpired(now_us) for source in sources]
        kept = [np.flatnonzero(a & f) for a, f in zip(alive, fresh, strict=True)]
        expired = [np.flatnonzero(a & ~f) for a, f in zip(alive, fresh, strict=True)]
        part, handle = joined_rows(list(zip(sources, kept, strict=True)), self.vocabulary)
        part = self._without_unused_tokens(part, sources)
        built = self._built(part, handle, 0)
        with self._writing:
            built.serial = self._unused_serial()
            others = tuple(s for s in self.state.segments if s not in sources)
            died = np.concatenate(list(_deaths(sources, kept)))
            living, gone = np.flatnonzero(died == NEVER), np.flatnonzero(died < NEVER)
            if len(gone):
                built.kill(gone, died[gone])
            for source, rows in zip(sources, expired, strict=True):
                lapsed = rows[source.alive()[rows]]
                self._directory.release(source.handle[lapsed])
            self._directory.move(handle[living], built.serial, living)
            self.state = self.state._replace(segments=(*others, built) if len(built) else others)
            if part.vocabulary is not self.vocabulary and self._trims:
                self.vocabulary = part.vocabulary

    def _without_unused_tokens(self, part: Part, sources: list[LiveSegment]) -> Part:
        """Return a part with a vocabulary of its own, if most of the present one is unused.

        Only the largest segment is looked at: other segments keep their vocabulary until they are
        merged with it.
        """
        others = [segment for segment in self.state.segments if segment not in sources]
        elsewhere = sum(len(segment) - segment.tombstones for segment in others)
        if not self._trims or len(part.subscriptions) < elsewhere:
            return part
        return trimmed(part) if _mostly_unused(part) else part


def _mostly_unused(part: Part) -> bool:
    """Whether more than half of a vocabulary, and not just a few tokens, are in no clause."""
    clauses = part.subscriptions.clauses
    used = np.zeros(len(part.vocabulary), np.bool_)
    used[clauses.token] = True
    used[clauses.negative] = True
    rankings = part.subscriptions.rankings
    if rankings is not None and rankings.condition is not None:
        used[rankings.condition.token] = True
        used[rankings.condition.negative] = True
    return 2 * int(np.count_nonzero(used)) + _MIN_UNUSED_TOKENS < len(used)


def _deaths(
    sources: list[LiveSegment], kept: list[NDArray[np.int64]]
) -> Iterator[NDArray[np.int64]]:
    """Yield when the kept rows of each source died, now that nobody writes."""
    for source, rows in zip(sources, kept, strict=True):
        yield source.died[rows] if len(source.died) else np.full(len(rows), NEVER)
