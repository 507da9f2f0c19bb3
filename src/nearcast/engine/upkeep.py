"""Upkeep: segments are merged, and the weights of ranked subscriptions are counted again.

Callers write; upkeep decides what to merge at once and what to leave to its thread. Whoever
works on segments *claims* them first, so that nobody else merges them or adds to them meanwhile.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import NEVER
from nearcast.engine.buffer import small_index
from nearcast.engine.merging import Size, Worker, choose, choose_all
from nearcast.engine.rows import Rows, chosen_rows, joined_rows
from nearcast.segments import Part, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.engine.moving.live import Live
    from nearcast.engine.segment import LiveSegment, State
    from nearcast.indexes import Builder, Index
    from nearcast.segments import Scorer
    from nearcast.text import Vocabulary

__all__ = ["BULK_ROWS", "Upkeep"]

BULK_ROWS = 512
"""A write of at least this many rows gets its own segment."""

_MIN_UNUSED_TOKENS = 1024
_MIN_COUNTED = 1024


class Upkeep(Rows):
    """The rows of an engine, which are merged and weighed.

    Parameters
    ----------
    builder, vocabulary, clock_us, scorer, live
        As for `nearcast.engine.rows.Rows`.
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
        self._trims = trims
        self.merging = threading.RLock()
        self._claimed: set[LiveSegment] = set()
        self._released = threading.Condition(self._writing)
        self.worker = Worker(self.merge)

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

    def _first_ranked(self, part: Part) -> bool:
        """Whether the weights are to be counted before this part is added.

        That is so for the first ranked subscriptions, and for the first large write of them.
        """
        rankings = part.subscriptions.rankings
        if rankings is None or self.state.scorer.fixed:
            return False
        counted, more = self.state.scorer.weights.subscriptions, np.count_nonzero(rankings.kind)
        return counted == 0 or bool(counted < BULK_ROWS <= more)

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
        if not self.state.scorer.fixed:
            self.count_weights(more, build=build)

    def count_weights(self, more: Part | None = None, *, build: bool = True) -> None:
        """Do so even if weights are counted only when somebody asks for it."""
        with self.merging:
            ranked = self._claim_ranked()
            try:
                now_us = self.live.lapse_us
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
        now_us = self.live.lapse_us
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
    part.vocabulary.mark_phrase_words(used)
    return 2 * int(np.count_nonzero(used)) + _MIN_UNUSED_TOKENS < len(used)


def _deaths(
    sources: list[LiveSegment], kept: list[NDArray[np.int64]]
) -> Iterator[NDArray[np.int64]]:
    """Yield when the kept rows of each source died, now that nobody writes."""
    for source, rows in zip(sources, kept, strict=True):
        yield source.died[rows] if len(source.died) else np.full(len(rows), NEVER)
