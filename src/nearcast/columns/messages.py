"""A batch of messages, and what it matches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns.arrays import WORLD, Arrays, chain, freeze, gather, read_only, starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["NO_WEIGHTS", "Matches", "Messages", "join_scores"]

_TYPES = {
    "token_start": np.int64,
    "token": np.int32,
    "time_us": np.int64,
    "ttl_us": np.int64,
    "text_weight": np.float64,
}

NO_WEIGHTS = read_only(np.empty(0), np.float64)
"""The ``text_weight`` of messages of which nobody asked for it."""


@dataclass(frozen=True, eq=False)
class Messages(Arrays):
    """A batch of messages: token ids (ascending, distinct per message), boxes, times.

    A point has ``west == east`` and ``south == north``. A box with ``west > east`` crosses the
    antimeridian. ``time_us`` is in microseconds since 1970; ``ttl_us`` is 0 for a message that
    nobody keeps. ``text_weight`` is the weight of all distinct words of a message, unknown ones
    included, for ranked subscriptions whose similarity needs it; otherwise it is empty.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]
    time_us: NDArray[np.int64]
    ttl_us: NDArray[np.int64]
    text_weight: NDArray[np.float64] = field(default_factory=lambda: NO_WEIGHTS)

    def __post_init__(self) -> None:
        freeze(self, _TYPES)
        object.__setattr__(self, "box", read_only(self.box, np.int32, 4))

    def __len__(self) -> int:
        return len(self.box)

    @classmethod
    def of_frozen(cls, **fields: Any) -> Self:
        """Take read-only arrays of the right types as they are."""
        messages = object.__new__(cls)
        vars(messages).update(fields)
        return messages

    @classmethod
    def of(
        cls,
        tokens: Sequence[Iterable[int]],
        box: Any,
        *,
        time_us: Any = 0,
        text_weight: Any = NO_WEIGHTS,
    ) -> Self:
        """Make messages from lists of token ids and points (lon, lat) or boxes, in units.

        Examples
        --------
        >>> Messages.of([[2, 1, 2]], [[7, 8]]).box.tolist()
        [[7, 8, 7, 8]]
        """
        ordered = [sorted(set(t)) for t in tokens]
        boxes = np.asarray(box, np.int32)
        if boxes.ndim == 2 and boxes.shape[1] == 2:
            boxes = np.concatenate([boxes, boxes], axis=1)
        return cls(
            starts(np.array([len(t) for t in ordered], np.int64)),
            np.array([t for ts in ordered for t in ts], np.int32),
            boxes,
            np.broadcast_to(np.asarray(time_us, np.int64), len(ordered)),
            np.zeros(len(ordered), np.int64),
            text_weight,
        )

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the messages of these rows."""
        token_start, token = gather(self.token_start, rows)
        return type(self)(
            token_start,
            self.token[token],
            self.box[rows],
            self.time_us[rows],
            self.ttl_us[rows],
            self.text_weight[rows] if len(self.text_weight) else self.text_weight,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Messages]) -> Self:
        """Return the messages of all parts end to end."""
        names = ("token", "box", "time_us", "ttl_us", "text_weight")
        columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        return cls(chain([p.token_start for p in parts]), **columns)

    @cached_property
    def wraps(self) -> NDArray[np.bool_]:
        """Which messages cross the antimeridian."""
        return self.box[:, 0] > self.box[:, 2]

    @property
    def any_wraps(self) -> bool:
        """Whether a message crosses the antimeridian."""
        if len(self.box) == 1:
            west, _, east, _ = self.box[0].tolist()
            return bool(west > east)
        return bool(self.wraps.any())

    def max_tokens(self, first: int, last: int) -> int:
        """Return the number of tokens of the longest of these messages."""
        start = self.token_start
        if last - first == 1:
            return int(start[last]) - int(start[first])
        return int((start[first + 1 : last + 1] - start[first:last]).max(initial=0))

    def cut(self) -> tuple[Self, NDArray[np.int64]]:
        """Cut messages at the antimeridian; return the pieces and the message row of each."""
        piece_of = np.repeat(np.arange(len(self)), 1 + self.wraps)
        pieces = self.take(piece_of)
        box = pieces.box.copy()
        second = np.diff(piece_of, prepend=-1) == 0
        first = np.diff(piece_of, append=-1) == 0
        box[first, 2] = WORLD[2]
        box[second, 0] = WORLD[0]
        return replace(pieces, box=box), piece_of


@dataclass(frozen=True, eq=False)
class Matches:
    """The answer to a batch: subscription rows, message by message, and what it cost to find them.

    The matches of message ``m`` are ``subscription[start[m]:start[m + 1]]``, in no particular
    order, each once. ``examined`` counts the candidates that had to be verified, ``visited`` the
    nodes that had to be opened, where the index is a tree.
    """

    start: NDArray[np.int64]
    subscription: NDArray[np.int32]
    examined: int
    score: NDArray[np.float64] | None = None
    visited: int = 0

    def __len__(self) -> int:
        return len(self.subscription)

    @cached_property
    def message(self) -> NDArray[np.int64]:
        """The message row of every match."""
        if len(self.start) == 2:
            return np.zeros(len(self.subscription), np.int64)
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def pairs(self) -> set[tuple[int, int]]:
        """Return the matches as a set of (message row, subscription row)."""
        return set(zip(self.message.tolist(), self.subscription.tolist(), strict=True))

    @classmethod
    def empty(cls, messages: int) -> Self:
        """Return the answer to messages that match nothing."""
        return cls(np.zeros(messages + 1, np.int64), np.empty(0, np.int32), 0)

    def keep(self, start: NDArray[np.int64], position: NDArray[np.int64]) -> Self:
        """Return the matches at these positions; message ``m`` has those from ``start[m]`` on.

        What finding them cost stays. All code that drops matches goes through here.
        """
        score = None if self.score is None else self.score[position]
        return replace(self, start=start, subscription=self.subscription[position], score=score)

    @classmethod
    def concatenate(cls, parts: Sequence[Matches]) -> Self:
        """Return the answers to consecutive batches as the answer to all of them."""
        return cls(
            chain([p.start for p in parts]),
            np.concatenate([p.subscription for p in parts]),
            sum(p.examined for p in parts),
            join_scores([p.score for p in parts], [len(p) for p in parts]),
            sum(p.visited for p in parts),
        )


def join_scores(
    scores: Sequence[NDArray[np.float64] | None], lengths: Sequence[int]
) -> NDArray[np.float64] | None:
    """Return scores end to end: NaN for boolean matches, None where all of them are boolean."""
    if all(score is None for score in scores):
        return None
    pairs = zip(scores, lengths, strict=True)
    return np.concatenate([np.full(n, np.nan) if score is None else score for score, n in pairs])
