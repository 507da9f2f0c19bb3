"""A segment: subscriptions that never change, their index, their vocabulary, and their deaths.

The engine, ``nearcast match`` and the workers of Spark all match against segments. A segment is
complete in itself: messages are numbered with its vocabulary, matched by its index, and matches
with rows that have died or expired are dropped.

Deaths have versions, because every write to an engine makes a new *version* of it. A row notes the
version in which it died, so a reader of an older version still sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import NEVER, read_only
from nearcast.indexes import Index
from nearcast.segments.parts import Part
from nearcast.segments.scorer import Scorer
from nearcast.segments.visible import LifeArrays, MatchArrays, visible_matches

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from numpy.typing import NDArray

    from nearcast.columns import Matches, Messages, Subscriptions
    from nearcast.indexes import Builder
    from nearcast.text import Vocabulary

__all__ = ["LATEST", "Segment"]

LATEST = NEVER - 1
"""The version in which all deaths so far are visible."""

_NO_ROWS = read_only(np.empty(0), np.int64)


class Segment:
    """Subscriptions with their index and vocabulary, and the rows that have died.

    Parameters
    ----------
    subscriptions
        The subscriptions.
    index
        An index over them, or a function that makes it at the first match.
    vocabulary
        Numbers the tokens of the clauses.
    scorer
        What the scores of ranked subscriptions depend on; None if all of them are boolean.
    first_expiry_us
        When the first of them expires, if that is known already.

    Examples
    --------
    >>> from nearcast import indexes
    >>> from nearcast.intake import messages_from, subscriptions_from
    >>> from nearcast.model import Message, Rect, Subscription
    >>> from nearcast.text import Vocabulary
    >>> vocabulary = Vocabulary()
    >>> tea = subscriptions_from([Subscription("s1", Rect(0, 0, 1, 1), ["tea"])], vocabulary)
    >>> segment = Segment.build(tea, indexes.create(), vocabulary)
    >>> batch = messages_from([Message("m1", (0.5, 0.5), "Hot tea")], now_us=0)
    >>> segment.match(batch.number(segment.vocabulary)).pairs()
    {(0, 0)}
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        index: Index | Callable[[], Index],
        vocabulary: Vocabulary,
        scorer: Scorer | None = None,
        *,
        first_expiry_us: int | None = None,
    ) -> None:
        self.subscriptions = subscriptions
        self._index = index
        self.vocabulary = vocabulary
        self.scorer = scorer
        self.tombstones = 0
        self.died = _NO_ROWS
        self._died: NDArray[np.int64] | None = None
        if first_expiry_us is None:
            first_expiry_us = int(subscriptions.expires_us.min(initial=NEVER))
        self.first_expiry_us = first_expiry_us
        self._expires_us = _NO_ROWS
        if self.first_expiry_us < NEVER:
            self._expires_us = read_only(subscriptions.expires_us, np.int64)

    @classmethod
    def build(
        cls,
        subscriptions: Subscriptions,
        builder: Builder,
        vocabulary: Vocabulary,
        scorer: Scorer | None = None,
    ) -> Self:
        """Build the index of subscriptions, and return the segment of both.

        Without a scorer, the weights are those of the subscriptions themselves.
        """
        if scorer is None and subscriptions.rankings is not None:
            scorer = Scorer.counted(Part(subscriptions, vocabulary))
        if scorer is None:
            return cls(subscriptions, builder.build(subscriptions.clauses), vocabulary)
        content = scorer.content(subscriptions, vocabulary)
        return cls(subscriptions, builder.build(content), vocabulary, scorer)

    @property
    def index(self) -> Index:
        """The index over the subscriptions."""
        if not isinstance(self._index, Index):
            self._index = self._index()
        return self._index

    @property
    def ranked(self) -> bool:
        """Whether some of the subscriptions are ranked."""
        return self.subscriptions.rankings is not None

    def __len__(self) -> int:
        return len(self.subscriptions)

    @property
    def nbytes(self) -> int:
        """The bytes of subscriptions, index and deaths, without the vocabulary."""
        return self.subscriptions.nbytes + self.index.nbytes + int(self.died.nbytes)

    def reserve_deaths(self) -> None:
        """Allocate what `kill` needs, so that it cannot fail."""
        if self._died is None:
            self._died = np.full(len(self), NEVER, np.int64)

    def share_deaths(self, died: NDArray[np.int64], tombstones: int) -> None:
        """Keep deaths in an array of the caller's, in which ``tombstones`` rows have died."""
        self._died = died
        self.tombstones = tombstones
        self.died = read_only(died, np.int64) if tombstones else _NO_ROWS

    def share_deaths_of(self, other: Segment) -> None:
        """Keep deaths in the array of another segment with the same rows."""
        other.reserve_deaths()
        assert other._died is not None
        self.share_deaths(other._died, other.tombstones)

    def kill(self, rows: NDArray[Any], version: int | NDArray[np.int64] = 0) -> None:
        """Let rows die in a version that nobody reads yet, or each in its own."""
        self.reserve_deaths()
        assert self._died is not None
        if len(rows) == 1 and isinstance(version, int):
            self._died[int(rows[0])] = version
        else:
            self._died[rows] = version
        self.tombstones += len(rows)
        self.died = read_only(self._died, np.int64)

    def alive(self, version: int = LATEST) -> NDArray[np.bool_]:
        """Return which rows had not died in a version."""
        if not len(self.died):
            return np.ones(len(self), np.bool_)
        return self.died > version

    def unexpired(self, now_us: int) -> NDArray[np.bool_]:
        """Return which rows have not expired."""
        if now_us < self.first_expiry_us:
            return np.ones(len(self), np.bool_)
        return self.subscriptions.expires_us > now_us

    def match(self, messages: Messages, *, version: int = LATEST, threads: int = 1) -> Matches:
        """Return the rows that match each message and were alive in a version.

        A row that expires at the time of a message, or before, does not match it.
        """
        matches = self.index.match(messages, threads=threads)
        life = LifeArrays(self.died, self._expires_us)
        if not len(matches) or not (len(life.died) or len(life.expires_us)):
            return matches
        start = np.empty(len(matches.start), np.int64)
        position = np.empty(len(matches), np.int64)
        found = MatchArrays(
            read_only(matches.start, np.int64),
            read_only(matches.subscription, np.int32),
            messages.time_us,
        )
        visible_matches(found, life, version, start, position)
        return matches if start[-1] == len(matches) else matches.keep(start, position[: start[-1]])
