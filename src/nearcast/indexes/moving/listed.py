"""What all moving indexes but the scan share.

An index of this kind has four things to say about clauses that are a box and tokens (*entries*) and
messages that are points: which entries match a message (`_match_part`), where a message is stored
(`_post`), which stored messages an entry gains and loses when it goes from one box to another
(`_shift`), and how its lists are rewritten after a sweep (`_sweep`). An entry that is inserted
comes from nowhere, one that is deleted goes there: an empty box. The rest is here: rows and
numbers, composite rows, messages that are not points, the growing output.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import distinct
from nearcast.compiled.messages import MessageArrays, Output
from nearcast.errors import InvalidInput
from nearcast.indexes.boolean import message_arrays, shape_arrays
from nearcast.indexes.moving.contract import BEGINS, ENDS, Changes, MovingIndex, positions_among
from nearcast.indexes.moving.entries import EMPTY, Entries
from nearcast.indexes.moving.living import IS_RANGE, LENGTH, MIN_STAMPS, Living, X
from nearcast.indexes.moving.ranges import RangeMessages, Shifted
from nearcast.indexes.verification import ClauseArrays, verify_clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Messages

__all__ = ["ListedIndex"]

_MESSAGES_AT_A_TIME = 4096
_ROWS_AT_A_TIME = 16_384


class ListedIndex(MovingIndex):
    """An index of entries and lists of messages.

    ``entries`` and ``living`` have all subscriptions and messages; `_shift` and `_post` add to
    them what finds them. ``unique`` says whether `_match_part` finds an entry once for a message
    that is a point.
    """

    unique = True

    def __init__(self, options: Any, *, min_stamps: int = MIN_STAMPS) -> None:
        self.options = options
        self.entries = Entries()
        self.living = Living(min_stamps)
        self.ranges = RangeMessages()
        self.examined = self.visited = self.copies = 0

    @classmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Build the index over subscriptions; no message lives."""
        index = cls(options)
        index._prepare(clauses)
        index.insert(clauses)
        return index

    # --- what an index says ----------------------------------------------------------------------

    def _prepare(self, clauses: Clauses) -> None:
        """Look at the subscriptions with which the index begins, before they are inserted."""

    @abstractmethod
    def _match_part(self, messages: MessageArrays, part: tuple[int, int], output: Output) -> int:
        """Write the entries that match each message: all tokens, and a box that overlaps it.

        Parameters
        ----------
        messages
            Points or boxes; none crosses the antimeridian. Tokens may be unknown ones.
        part
            The first message to look at, and the end.
        output
            As for `nearcast.indexes.boolean.BooleanIndex.find_part`.

        Returns
        -------
        int
            The first message whose entries did not fit; the end if all did.
        """

    @abstractmethod
    def _post(self, first: int, last: int) -> None:
        """Store the messages with these stamps, but for those that are not points."""

    @abstractmethod
    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        """Take entries from one box to another; return what that changes.

        Of the living messages that have all tokens of an entry, those that only the new box meets
        begin, those that only the old one meets end. A box may be `EMPTY`: then the
        entry is inserted or removed. Records of entries get their new boxes here.
        """

    @abstractmethod
    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        """Rewrite all lists with new stamps, without dead messages, whose new stamp is -1."""

    def _drop(self, stamps: NDArray[np.int32]) -> None:
        """Messages are about to die; they still are alive."""

    @property
    @abstractmethod
    def _own_nbytes(self) -> int:
        """The bytes of what is not in ``entries``, ``living`` and ``ranges``."""

    # --- messages --------------------------------------------------------------------------------

    def publish(self, messages: Messages) -> tuple[NDArray[np.int32], Changes]:
        """Take messages; return their numbers and all matches."""
        if self.living.lacks_room(len(messages)):
            new_stamp = self.living.sweep(len(messages))
            self.ranges.sweep(new_stamp)
            self._sweep(new_stamp)
        range_number = self.ranges.admit(messages)
        numbers, first = self.living.admit(messages, range_number)
        stamps = (first, first + len(messages))
        if range_number.max(initial=-1) >= 0:
            self.ranges.post(self.living.arrays, stamps, messages)
        message, row = self._rows_of(messages)
        self._post(*stamps)
        return numbers, Changes.of(row, numbers[message], BEGINS)

    def expire(self, numbers: NDArray[Any]) -> Changes:
        """Drop messages; what matches them now, ends."""
        stamps = self.living.stamps(numbers)
        messages = self.living.messages(stamps, self.ranges.box)
        message, row = self._rows_of(messages)
        ended = Changes.of(row, self.living.numbers(stamps[message]), ENDS)
        record = self.living.arrays.record[stamps]
        ranges = record[:, LENGTH] & IS_RANGE != 0
        self._drop(stamps)
        self.ranges.drop(record[ranges, X])
        self.living.drop(stamps)
        return ended

    def match(self, messages: Messages) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return what matches messages that nobody keeps."""
        if not len(messages) or not self.entries.count:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        return self._rows_of(messages)

    def messages(self, numbers: NDArray[Any]) -> Messages:
        """Return living messages as columns."""
        return self.living.messages(self.living.stamps(numbers), self.ranges.box)

    def _rows_of(self, messages: Messages) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return which rows match messages, as pairs by message."""
        pieces, message_of = messages, None
        if messages.any_wraps:
            pieces, message_of = messages.cut()
        found = self._entries_of(message_arrays(pieces))
        piece = np.repeat(np.arange(len(pieces)), np.diff(found.start))
        points = self.unique and message_of is None and _all_points(messages)
        message = piece if message_of is None else message_of[piece]
        if not self.entries.any_composite:
            row = self.entries.row[found.clause]
            return (message, row) if points else _distinct(message, row)
        return self._decide(message, found.clause, messages)

    def _entries_of(self, messages: MessageArrays) -> Output:
        """Return the entries that match each message; the output grows whenever it is full."""
        count = len(messages.box)
        start = np.zeros(count + 1, np.int64)
        output = Output(start, np.empty(1024 + 16 * count, np.int32))
        done = 0
        while done < count:
            done = self._match_part(messages, (done, count), output)
            if done < count:
                more = np.empty_like(output.clause)
                output = Output(start, np.concatenate([output.clause, more]))
        return Output(start, output.clause[: start[-1]])

    # --- subscriptions ---------------------------------------------------------------------------

    def insert(self, clauses: Clauses) -> tuple[NDArray[np.int32], Changes]:
        """Add subscriptions; return their rows, and the living messages that they match."""
        rows, entries = self.entries.add(clauses)
        return rows, self._in_order(rows, self._appear(entries), BEGINS)

    def delete(self, rows: NDArray[Any]) -> Changes:
        """Drop subscriptions, whose rows are free then."""
        gone = self.entries.present(rows)
        ended = self._in_order(gone, self._vanish(gone), ENDS)
        self.entries.release(gone)
        return ended

    def replace(self, rows: NDArray[Any], clauses: Clauses) -> Changes:
        """Give subscriptions other clauses."""
        changed = self.entries.present(rows)
        if len(changed) != clauses.subscriptions:
            problem = f"must have one subscription per row, {len(changed)}"
            raise InvalidInput("clauses", clauses.subscriptions, problem)
        before = self._vanish(changed)
        after = self._appear(self.entries.put(changed, clauses))
        return self._difference(changed, before, after)

    def move(self, rows: NDArray[Any], box: NDArray[np.int32]) -> Changes:
        """Give subscriptions of one clause other boxes."""
        moved = self.entries.present(rows)
        entry = self.entries.single(moved)
        after = np.ascontiguousarray(box, np.int32).reshape(-1, 4)
        if len(after) != len(entry) or bool((after[:, 0] > after[:, 2]).any()):
            raise InvalidInput("box", len(after), f"must be {len(entry)} boxes, west before east")
        before = self.entries.arrays.record[entry, :4]
        shifted = self._shift_all(entry, before, after)
        number = self.living.numbers(shifted.stamp)
        return Changes(moved[shifted.position], number, shifted.sign)

    def find(self, clauses: Clauses) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the living messages that match subscriptions which are not in the index."""
        found_row: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        found_number: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
        for first in range(0, clauses.subscriptions, _ROWS_AT_A_TIME):
            last = min(first + _ROWS_AT_A_TIME, clauses.subscriptions)
            some = clauses if last - first == clauses.subscriptions else None
            some = clauses.take(np.arange(first, last)) if some is None else some
            rows, begun = self.insert(some)
            found_row.append(first + positions_among(rows, begun.row))
            found_number.append(begun.message)
            self.delete(rows)
        return np.concatenate(found_row), np.concatenate(found_number)

    def clauses(self, rows: NDArray[Any]) -> Clauses:
        """Return subscriptions as they are now."""
        return self.entries.clauses(self.entries.present(rows))

    def _appear(self, entries: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Let entries come from nowhere; return the pairs of row and stamp that match then."""
        after = self.entries.arrays.record[entries, :4]
        shifted = self._shift_all(entries, _nowhere(len(entries)), after)
        return self._pairs(entries[shifted.position], shifted.stamp)

    def _vanish(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Take the entries away from rows; return the pairs that matched before."""
        _, entries = self.entries.entries_of(rows)
        before = self.entries.arrays.record[entries, :4]
        shifted = self._shift_all(entries, before, _nowhere(len(entries)))
        pairs = self._pairs(entries[shifted.position], shifted.stamp)
        self.entries.clear(rows, entries)
        return pairs

    def _shift_all(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        """Take entries to other boxes; return what that changes, among all living messages."""
        apart = self.ranges.shift(self.entries.arrays, self.living.arrays, entry, before, after)
        return Shifted.merged([self._shift(entry, before, after), apart])

    def _pairs(
        self, entry: NDArray[np.int32], stamp: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the rows and the numbers of entries and stamps; composite rows are decided."""
        if not self.entries.any_composite:
            return self.entries.row[entry], self.living.numbers(stamp)
        distinct, message = np.unique(stamp, return_inverse=True)
        order = np.argsort(message, kind="stable")
        messages = self.living.messages(distinct.astype(np.int32), self.ranges.box)
        at, row = self._decide(message[order], entry[order], messages)
        return row, self.living.numbers(distinct[at])

    def _decide(
        self, message: NDArray[np.int64], entry: NDArray[np.int32], messages: Messages
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Turn entries that match messages into rows that match them, each once.

        What is left to decide is forbidden tokens and exact shapes.

        Parameters
        ----------
        message, entry
            Pairs, by message.
        messages
            The messages.
        """
        clause = self.entries.composite[entry]
        plain = clause < 0
        plain_pairs = message[plain], self.entries.row[entry[plain]]
        pieces, piece_start = messages, np.arange(len(messages) + 1)
        message, clause = message[~plain], clause[~plain]
        if messages.any_wraps:
            pieces, message_of = messages.cut()
            piece_start = np.searchsorted(message_of, piece_start)
            count = np.diff(piece_start)[message]
            nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            piece = np.repeat(piece_start[message], count) + nth
            order = np.argsort(piece, kind="stable")
            piece, clause = piece[order], np.repeat(clause, count)[order]
        else:
            piece = message
        whole = self.entries.whole
        start = np.zeros(len(messages) + 1, np.int64)
        found = Output(
            np.searchsorted(piece, np.arange(len(pieces) + 1)), np.ascontiguousarray(clause)
        )
        verify_clauses(
            ClauseArrays(whole.negative_start, whole.negative, whole.row, whole.shape),
            shape_arrays(whole),
            message_arrays(pieces),
            piece_start,
            found,
            start,
        )
        decided = np.repeat(np.arange(len(messages)), np.diff(start))
        row = self.entries.row_of_whole[found.clause[: start[-1]]]
        return _distinct(
            np.concatenate([plain_pairs[0], decided]), np.concatenate([plain_pairs[1], row])
        )

    def _in_order(
        self, rows: NDArray[np.int32], pairs: tuple[NDArray[np.int32], NDArray[np.int32]], sign: int
    ) -> Changes:
        """Return pairs as changes, in the order of the rows."""
        row, number = pairs
        if self.entries.any_composite and len(row) > 1:
            order = np.argsort(positions_among(rows, row), kind="stable")
            row, number = row[order], number[order]
        return Changes.of(row, number, sign)

    def _difference(
        self,
        rows: NDArray[np.int32],
        before: tuple[NDArray[np.int32], NDArray[np.int32]],
        after: tuple[NDArray[np.int32], NDArray[np.int32]],
    ) -> Changes:
        """Return what is only before (ends) or only after (begins), in the order of the rows."""
        old, new = (positions_among(rows, row) << 32 | number for row, number in (before, after))
        ended, begun = np.setdiff1d(old, new), np.setdiff1d(new, old)
        key = np.concatenate([ended, begun])
        sign = np.repeat(np.array([ENDS, BEGINS], np.int8), [len(ended), len(begun)])
        order = np.argsort(key >> 32, kind="stable")
        key = key[order]
        return Changes.of(rows[key >> 32], key & 0xFFFFFFFF, sign[order])

    # --- sizes -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def live_messages(self) -> int:
        """How many messages are alive."""
        return len(self.living)

    @property
    def nbytes(self) -> int:
        """The bytes of subscriptions, messages and everything that finds them."""
        shared = self.entries.nbytes + self.living.nbytes + self.ranges.nbytes
        return shared + self._own_nbytes


def _nowhere(count: int) -> NDArray[np.int32]:
    return np.full((count, 4), EMPTY, np.int32)


def _all_points(messages: Messages) -> bool:
    box = messages.box
    return bool((box[:, 0] == box[:, 2]).all() and (box[:, 1] == box[:, 3]).all())


def _distinct(
    message: NDArray[np.int64], row: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return each pair once, by message."""
    key = distinct(message << 32 | row)
    return key >> 32, (key & 0xFFFFFFFF).astype(np.int32)
