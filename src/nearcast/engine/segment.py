"""The segments of an engine, and the state that readers see."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import BOOLEAN, NEVER
from nearcast.segments import LATEST, Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns import Subscriptions
    from nearcast.indexes import Index
    from nearcast.segments import Scorer
    from nearcast.text import Vocabulary

__all__ = ["LiveSegment", "State"]


class LiveSegment(Segment):
    """A segment of an engine; ``handle`` names each of its rows in the directory.

    Parameters
    ----------
    subscriptions, index, vocabulary, scorer, first_expiry_us
        As for `nearcast.segments.Segment`.
    handle
        The handle of every row.
    serial
        The number of the segment in the directory.
    indexed
        Whether it has a real index, not the small form that costs nothing to build.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        index: Index | Callable[[], Index],
        vocabulary: Vocabulary,
        scorer: Scorer,
        *,
        handle: NDArray[np.int32],
        serial: int,
        indexed: bool,
        first_expiry_us: int | None = None,
    ) -> None:
        super().__init__(subscriptions, index, vocabulary, scorer, first_expiry_us=first_expiry_us)
        self.handle = handle
        self.serial = serial
        self.indexed = indexed

    @cached_property
    def _by_expiry(self) -> NDArray[np.int64]:
        """The rows that expire, by time."""
        expires_us = self.subscriptions.expires_us
        rows = np.flatnonzero(expires_us < NEVER)
        return rows[np.argsort(expires_us[rows], kind="stable")]

    def expiring(self, after_us: int, until_us: int) -> NDArray[np.int64]:
        """Return the rows that are alive and expire after one time, until another."""
        rows = self._by_expiry
        times = self.subscriptions.expires_us[rows]
        first, last = np.searchsorted(times, [after_us, until_us], side="right")
        chosen = rows[first:last]
        return chosen if not len(self.died) else chosen[self.died[chosen] > LATEST]

    def next_expiry_us(self, after_us: int) -> int:
        """Return when a row expires next after a time."""
        times = self.subscriptions.expires_us[self._by_expiry]
        at = int(np.searchsorted(times, after_us, side="right"))
        return int(times[at]) if at < len(times) else NEVER

    def count_ranked(self) -> int:
        """Return how many rows are ranked and alive."""
        rankings = self.subscriptions.rankings
        if rankings is None:
            return 0
        return int(np.count_nonzero(self.alive() & (rankings.kind != BOOLEAN)))

    def rescored(self, scorer: Scorer, index: Index | Callable[[], Index]) -> LiveSegment:
        """Return the same rows, which go on dying together, with other weights of tokens."""
        segment = LiveSegment(
            self.subscriptions,
            index,
            self.vocabulary,
            scorer,
            handle=self.handle,
            serial=self.serial,
            indexed=self.indexed,
            first_expiry_us=self.first_expiry_us,
        )
        segment.share_deaths_of(self)
        return segment

    @property
    def nbytes(self) -> int:
        """The bytes of subscriptions, index, deaths and handles."""
        return super().nbytes + int(self.handle.nbytes)


class State(NamedTuple):
    """What readers see: a version, and the segments that make it up. It never changes.

    All segments score with ``scorer``. If some subscriptions are ``moving``, they are in none of
    the segments.
    """

    version: int
    segments: tuple[LiveSegment, ...]
    scorer: Scorer
    moving: bool = False
