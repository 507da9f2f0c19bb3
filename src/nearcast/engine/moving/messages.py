"""Messages that stay alive after they were published, for subscriptions that come, go and move.

The moving index has their words and places, under a vocabulary of their own with all words,
including those that no subscription asked for when they were published: somebody may ask for them
before they expire. Here is what the index does not know: ids, times, and the order of the words,
which decides about phrases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import NEVER, Ids, frozen
from nearcast.engine.moving.numbered import NumberedIds, NumberedLists, NumberedValues
from nearcast.engine.moving.schedule import Schedule
from nearcast.intake import MessageBatch
from nearcast.text import IdTable, Sequences, Vocabulary, Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Messages
    from nearcast.indexes.moving import Changes, MovingIndex

__all__ = ["LiveMessages"]

_NO_MESSAGE = -1


class LiveMessages:
    """The living messages of an index: ids, times and the order of publication, by number.

    Parameters
    ----------
    index
        Has the words and places.
    """

    def __init__(self, index: MovingIndex) -> None:
        self.index = index
        self.vocabulary = Vocabulary()
        self.next_order = 0
        self._table = IdTable()
        self._number_of = NumberedValues(np.int32, _NO_MESSAGE)
        self._handle = NumberedValues(np.int32, -1)
        self._ids = NumberedIds()
        self._order = NumberedValues(np.int64, -1)
        self._start_us = NumberedValues(np.int64, 0)
        self._end_us = NumberedValues(np.int64, 0)
        self._words = NumberedLists()
        self._typed: NumberedLists | None = None
        self._schedule = Schedule()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """The bytes of ids, times and vocabulary, without the index."""
        parts = (
            self.vocabulary,
            self._table,
            self._number_of,
            self._handle,
            self._ids,
            self._order,
            self._start_us,
            self._end_us,
            self._words,
            *(() if self._typed is None else (self._typed,)),
            self._schedule,
        )
        return sum(part.nbytes for part in parts)

    @property
    def first_end_us(self) -> int:
        """When the first message expires."""
        return self._schedule.first_us

    @property
    def numbers(self) -> NDArray[np.int32]:
        """The numbers of all messages, in the order of publication."""
        numbers = np.flatnonzero(self._handle.all >= 0).astype(np.int32)
        return numbers[np.argsort(self._order.of(numbers), kind="stable")]

    def find(self, ids: Ids) -> NDArray[np.int32]:
        """Return the numbers of the living messages with these ids, -1 where there is none."""
        handle = self._table.find(ids)
        if not len(self._table):
            return np.full(len(ids), _NO_MESSAGE, np.int32)
        return np.where(handle < 0, _NO_MESSAGE, self._number_of.of(handle)).astype(np.int32)

    def add(
        self, batch: MessageBatch, start_us: NDArray[np.int64], end_us: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], Changes]:
        """Keep messages, none of whose ids is alive; return their numbers and what they match."""
        numbers, changes = self.index.publish(batch.number(self.vocabulary, add=True))
        words = batch.words.sequence(self.vocabulary)
        self.note(batch.ids, numbers, words, start_us, end_us)
        return numbers, changes

    def note(
        self,
        ids: Ids,
        numbers: NDArray[np.int32],
        words: Sequences,
        start_us: NDArray[np.int64],
        end_us: NDArray[np.int64],
        order: NDArray[np.int64] | None = None,
    ) -> None:
        """Note what the index does not know of messages that it has taken, as published."""
        if len(words.typed) and self._typed is None:  # older folders have stems only
            self._typed, before = NumberedLists(), self.numbers
            start, word = self._words.of(before)
            self._typed.put(before, start, np.where(word < 0, -2 - word, word))
        if order is None:
            order = np.arange(self.next_order, self.next_order + len(numbers))
            self.next_order += len(numbers)
        handle = self._table.add(ids)
        self._number_of.put(handle, numbers)
        self._handle.put(numbers, handle)
        self._ids.put(numbers, ids)
        self._order.put(numbers, order)
        self._start_us.put(numbers, start_us)
        self._end_us.put(numbers, end_us)
        self._words.put(numbers, words.word_start, words.word)
        if self._typed is not None:
            self._typed.put(numbers, words.word_start, words.typed)
        self._schedule.add(end_us, numbers)

    def drop(self, numbers: NDArray[np.int32]) -> None:
        """Forget messages that the index has dropped."""
        self._table.remove(self._handle.of(numbers))
        self._handle.put(numbers, -1)
        self._ids.drop(numbers)
        self._words.drop(numbers)
        if self._typed is not None:
            self._typed.drop(numbers)

    def due(self, until_us: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return which messages expire until a time, and when, by time."""
        return self._schedule.due(until_us)

    def ids(self, numbers: NDArray[np.int32]) -> Ids:
        """Return the ids of messages."""
        return self._ids.of(numbers)

    def order(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return when messages were published, as running numbers."""
        return self._order.of(numbers)

    def start_us(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return from when on messages are alive."""
        return self._start_us.of(numbers)

    def end_us(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return when messages expire."""
        return self._end_us.of(numbers)

    def words(self, numbers: NDArray[np.int32]) -> Sequences:
        """Return the words of messages in their order, numbered by the vocabulary."""
        words = Sequences(*self._words.of(numbers))
        return words if self._typed is None else words._replace(typed=self._typed.of(numbers)[1])

    def first_order(self) -> int:
        """Return the order of the oldest message, or of the next one if there is none."""
        alive = self._handle.all >= 0
        return int(self._order.all[alive].min(initial=self.next_order))

    def batch(self, numbers: NDArray[np.int32], time_us: NDArray[np.int64]) -> MessageBatch:
        """Return messages as they were read, with other times."""
        return MessageBatch(
            self.ids(numbers),
            Words.of_sequences(self.words(numbers), self.vocabulary),
            self.index.messages(numbers).box,
            frozen(time_us),
            frozen(np.full(len(numbers), NEVER)),
        )

    def renewed(
        self, index: MovingIndex, columns: Messages, used: NDArray[np.int32]
    ) -> LiveMessages:
        """Return the same messages in another index, with a vocabulary of some of the words.

        Parameters
        ----------
        index
            The other index, without messages.
        columns
            All messages in the order of publication, with their new tokens.
        used
            The old numbers of the new tokens.
        """
        numbers = self.numbers
        renewed = type(self)(index)
        renewed.vocabulary.add_keys(self.vocabulary.keys(used))
        renewed.next_order = self.next_order
        new, _ = index.publish(columns)
        times = self.start_us(numbers), self.end_us(numbers)
        words = self.words(numbers).renumbered(used)
        renewed.note(self.ids(numbers), new, words, *times, self.order(numbers))
        return renewed
