"""Messages that live on after they were published, for subscriptions that move.

They have a vocabulary of their own that knows all their tokens, those too for which nobody asked
when they were published: somebody may ask for them before they expire.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import Ids, Messages, starts
from nearcast.intake import MessageBatch
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.text.byte_table import Keys

__all__ = ["LiveMessages"]

_MIN_ROWS = 1024


class WholeVocabulary(Vocabulary):
    """A vocabulary that takes up every token that it is asked for."""

    def ids_of_keys(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of every token; unknown ones get new ids."""
        return self.add_keys(keys)


class LiveMessages:
    """Messages in the order in which they were published, without those that have expired.

    Whoever calls its methods holds ``lock``. Time is what the messages say, unless that lies in
    the future: a recording can be replayed years later, and a message from the future does not
    make all others expire.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.vocabulary: Vocabulary = WholeVocabulary()
        self._batches: list[MessageBatch] = []
        self._latest_us = np.iinfo(np.int64).min
        self._tidy_at = _MIN_ROWS

    def __len__(self) -> int:
        return sum(len(batch) for batch in self._batches)

    @property
    def nbytes(self) -> int:
        """The bytes that the messages take in memory."""
        batches = (batch.ids.nbytes + batch.messages.nbytes for batch in self._batches)
        return self.vocabulary.nbytes + sum(batches)

    def batches(self) -> tuple[MessageBatch, ...]:
        """Return the messages; the newest come last."""
        return tuple(self._batches)

    def tick(self, time_us: int) -> None:
        """Note that this time has come."""
        self._latest_us = max(self._latest_us, time_us)

    def add(self, batch: MessageBatch, now_us: int) -> None:
        """Keep messages whose tokens have the numbers of ``vocabulary``."""
        self.tick(int(batch.messages.time_us.max(initial=self._latest_us)))
        self._batches.append(batch)
        # As in a binary counter: every message is copied a few times, and there are few batches.
        while len(self._batches) > 1 and len(self._batches[-2]) <= len(self._batches[-1]):
            self._batches[-2:] = [joined(self._batches[-2:])]
        if len(self) >= self._tidy_at:
            self._tidy(min(now_us, self._latest_us))

    def install(self, batch: MessageBatch, vocabulary: Vocabulary) -> None:
        """Begin with messages that were stored, and their vocabulary."""
        self.vocabulary.add(vocabulary.tokens().to_pylist())
        self._batches = [batch] if len(batch) else []
        self.tick(int(batch.messages.time_us.max(initial=self._latest_us)))
        self._tidy_at = max(_MIN_ROWS, 2 * len(batch))

    def _tidy(self, now_us: int) -> None:
        """Drop what has expired, and the tokens that nobody uses any more."""
        everything = joined(self._batches)
        messages = everything.messages
        left = taken(everything, np.flatnonzero(messages.time_us + messages.ttl_us > now_us))
        used = np.unique(left.messages.token)
        if 2 * len(used) + _MIN_ROWS < len(self.vocabulary):
            vocabulary = WholeVocabulary(self.vocabulary.tokens().take(used).to_pylist())
            token = np.searchsorted(used, left.messages.token).astype(np.int32)
            left = MessageBatch(left.ids, replace(left.messages, token=token))
            self.vocabulary = vocabulary
        self._batches = [left] if len(left) else []
        self._tidy_at = max(_MIN_ROWS, 2 * len(left))


def taken(batch: MessageBatch, rows: NDArray[np.int64]) -> MessageBatch:
    """Return the messages of these rows."""
    return MessageBatch(batch.ids.take(rows), batch.messages.take(rows))


def joined(batches: Sequence[MessageBatch]) -> MessageBatch:
    """Return messages end to end."""
    if not batches:
        return MessageBatch(Ids.of([]), Messages.of([], np.empty((0, 4))))
    parts = [batch.messages for batch in batches]
    messages = Messages(
        starts(np.concatenate([np.diff(part.token_start) for part in parts])),
        np.concatenate([part.token for part in parts]),
        np.concatenate([part.box for part in parts]),
        np.concatenate([part.time_us for part in parts]),
        np.concatenate([part.ttl_us for part in parts]),
    )
    return MessageBatch(Ids.concatenate([batch.ids for batch in batches]), messages)
