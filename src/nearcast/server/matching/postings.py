"""Postings, which are matches by channel, and the events that they form.

A posting says that a subscription (``handle``) of a channel has something to tell about the record
``seq`` of the log. All postings of one channel, seq and message form one event; a posting without a
message is a lifecycle event of its own. The events of one channel and seq are numbered 0, 1, ... in
the order of their first postings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "ALL",
    "ENDED_DELETED",
    "ENDED_EXPIRED",
    "ENDED_MAX_EVENTS",
    "ENDED_SINK_GONE",
    "MATCH",
    "STARTED",
    "UNMATCH",
    "UPDATED",
    "EventRef",
    "JoinedEvent",
    "Position",
    "Postings",
]

MATCH: Final = 0
UNMATCH: Final = 1
STARTED: Final = 2
UPDATED: Final = 3
ENDED_DELETED: Final = 4
ENDED_EXPIRED: Final = 5
ENDED_MAX_EVENTS: Final = 6
ENDED_SINK_GONE: Final = 7

ALL: Final = 2**31 - 1
"""The ``k`` of a position after all events of its seq."""


class Position(NamedTuple):
    """A place in the events of a channel: after event ``k`` of ``seq``.

    Positions compare as tuples. The default is after everything of ``seq``.

    Examples
    --------
    >>> Position(7, 0) < Position(7) < Position(8, 0)
    True
    """

    seq: int
    k: int = ALL


class EventRef(NamedTuple):
    """An event of a channel: its number and which subscriptions it is about.

    Attributes
    ----------
    seq, k
        The record of the log, and the number of the event within the record and channel.
    message
        The seq of the message; 0 for a lifecycle event.
    matches
        ``(handle, kind, score)`` of each posting; the score is NaN if there is no ranking.
    """

    seq: int
    k: int
    message: int
    matches: list[tuple[int, int, float]]

    @property
    def position(self) -> Position:
        """The position after this event."""
        return Position(self.seq, self.k)


class JoinedEvent(NamedTuple):
    """An event of several channels: what they tell about one message, or one lifecycle event.

    Attributes
    ----------
    seq, k
        The record of the log, and the number of the event within the record. Events of a record
        are numbered in the order of channels and, within a channel, of its own numbers.
    message
        The seq of the message; 0 for a lifecycle event.
    matches, channels
        As in `EventRef`, and the channel of each.
    """

    seq: int
    k: int
    message: int
    matches: list[tuple[int, int, float]]
    channels: list[int]

    @property
    def position(self) -> Position:
        """The position after this event."""
        return Position(self.seq, self.k)


class Postings(NamedTuple):
    """Columns of postings, in the order of the log.

    Attributes
    ----------
    seq
        The record of the log that caused the posting (int64, ascending).
    channel
        The subscriber or sink that it is for (uint32).
    handle
        The subscription (uint32).
    message
        The seq of the message that matches; 0 for a lifecycle event (int64).
    kind
        ``MATCH``, ``UNMATCH``, ``STARTED``, ``UPDATED`` or one of ``ENDED_...`` (uint8).
    score
        The score of a ranked match, NaN otherwise (float64).

    Examples
    --------
    >>> empty = Postings.empty()
    >>> len(empty.seq), empty.channel.dtype.name
    (0, 'uint32')
    """

    seq: NDArray[np.int64]
    channel: NDArray[np.uint32]
    handle: NDArray[np.uint32]
    message: NDArray[np.int64]
    kind: NDArray[np.uint8]
    score: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """The number of postings."""
        return len(self.seq)

    @classmethod
    def empty(cls) -> Postings:
        """Return columns without rows."""
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.uint32),
            np.empty(0, np.uint32),
            np.empty(0, np.int64),
            np.empty(0, np.uint8),
            np.empty(0, np.float64),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Postings]) -> Postings:
        """Return the rows of all parts, one part after the other."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def take(self, rows: NDArray[np.intp] | slice) -> Postings:
        """Return some of the rows, in the order given."""
        columns: tuple[NDArray[Any], ...] = self
        return Postings(*(column[rows] for column in columns))
