"""The segments of an engine, and the state that readers see."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import BOOLEAN
from nearcast.segments import Segment

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

    All segments score with ``scorer``.
    """

    version: int
    segments: tuple[LiveSegment, ...]
    scorer: Scorer
