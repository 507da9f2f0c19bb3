"""Messages that stay alive after they were published, for subscriptions that move.

Their vocabulary has all their words, including those that no subscription asked for when they were
published: somebody may ask for them before they expire.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Ids, Messages, chain
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch

__all__ = ["LiveBatch", "LiveMessages", "LiveSnapshot", "joined"]

_MIN_ROWS = 1024


class LiveBatch(NamedTuple):
    """Messages and their ids."""

    ids: Ids
    messages: Messages

    def take(self, rows: NDArray[np.int64]) -> LiveBatch:
        """Return the messages of these rows."""
        return LiveBatch(self.ids.take(rows), self.messages.take(rows))


class LiveSnapshot(NamedTuple):
    """Messages in the order of publication, and the vocabulary of their tokens."""

    batches: tuple[LiveBatch, ...]
    vocabulary: Vocabulary


class LiveMessages:
    """Messages in the order of publication, without those that have expired.

    Callers hold ``lock``. Time is what the messages say, unless that lies in
    the future: a recording can be replayed years later, and a message from the future does not
    make all others expire.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.vocabulary: Vocabulary = Vocabulary()
        self._batches: list[LiveBatch] = []
        self._latest_us = np.iinfo(np.int64).min
        self._tidy_at = _MIN_ROWS

    def __len__(self) -> int:
        return sum(len(batch.ids) for batch in self._batches)

    @property
    def nbytes(self) -> int:
        """The bytes of the messages in memory."""
        batches = (batch.ids.nbytes + batch.messages.nbytes for batch in self._batches)
        return self.vocabulary.nbytes + sum(batches)

    def snapshot(self) -> LiveSnapshot:
        """Return the messages as they are now; later changes do not affect it."""
        return LiveSnapshot(tuple(self._batches), self.vocabulary)

    def tick(self, time_us: int) -> None:
        """Advance the time."""
        self._latest_us = max(self._latest_us, time_us)

    def add(self, batch: MessageBatch, now_us: int) -> None:
        """Keep messages, and add all their words to ``vocabulary``."""
        self.tick(int(batch.time_us.max(initial=self._latest_us)))
        self._batches.append(LiveBatch(batch.ids, batch.number(self.vocabulary, add=True)))
        # As in a binary counter: every message is copied a few times, and there are few batches.
        while len(self._batches) > 1 and len(self._batches[-2].ids) <= len(self._batches[-1].ids):
            self._batches[-2:] = [joined(self._batches[-2:])]
        if len(self) >= self._tidy_at:
            self._tidy(min(now_us, self._latest_us))

    def install(self, batch: LiveBatch, vocabulary: Vocabulary) -> None:
        """Start with stored messages and their vocabulary."""
        self.vocabulary.add(vocabulary.tokens().to_pylist())
        self._batches = [batch] if len(batch.ids) else []
        self.tick(int(batch.messages.time_us.max(initial=self._latest_us)))
        self._tidy_at = max(_MIN_ROWS, 2 * len(batch.ids))

    def _tidy(self, now_us: int) -> None:
        """Drop expired messages and unused tokens."""
        everything = joined(self._batches)
        messages = everything.messages
        left = everything.take(np.flatnonzero(messages.time_us + messages.ttl_us > now_us))
        used = np.unique(left.messages.token)
        if 2 * len(used) + _MIN_ROWS < len(self.vocabulary):
            vocabulary = Vocabulary(self.vocabulary.tokens().take(used).to_pylist())
            token = np.searchsorted(used, left.messages.token).astype(np.int32)
            left = LiveBatch(left.ids, replace(left.messages, token=token))
            self.vocabulary = vocabulary
        self._batches = [left] if len(left.ids) else []
        self._tidy_at = max(_MIN_ROWS, 2 * len(left.ids))


def joined(batches: Sequence[LiveBatch]) -> LiveBatch:
    """Return all messages as one batch."""
    if not batches:
        return LiveBatch(Ids.of([]), Messages.of([], np.empty((0, 4))))
    parts = [batch.messages for batch in batches]
    messages = Messages(
        chain([part.token_start for part in parts]),
        np.concatenate([part.token for part in parts]),
        np.concatenate([part.box for part in parts]),
        np.concatenate([part.time_us for part in parts]),
        np.concatenate([part.ttl_us for part in parts]),
    )
    return LiveBatch(Ids.concatenate([batch.ids for batch in batches]), messages)
