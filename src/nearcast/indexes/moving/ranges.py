"""Living messages that are not points: kept by token, whatever the index.

The papers speak of points. A message with a box (or one on the 180th meridian, which lies on both
sides of it) would stand in many cells of a tree, so those few are kept apart: in a list for each of
their tokens, and in the list of all. A clause reads the shortest list of its tokens. Nothing
here depends on where a clause is, so moves change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import WORLD, GrowingArray
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.messages import contains
from nearcast.indexes.moving.entries import FIRST, SIGNATURE, EntryArrays
from nearcast.indexes.moving.lists import (
    ListArrays,
    MessageLists,
    append,
    capacity_of,
    new_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import SIGNATURE as MESSAGE_SIGNATURE
from nearcast.indexes.moving.living import (
    LivingArrays,
    X,
    is_alive,
    is_range,
    tokens_of,
)
from nearcast.indexes.moving.numbers import Numbers
from nearcast.indexes.moving.tables import (
    NO_VALUE,
    VALUE,
    TableArrays,
    Tables,
    claim_key,
    find_key,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Messages

__all__ = ["RangeMessages", "Shifted", "has_tokens"]

_ALL = 0
"""The list of all messages that are not points."""

NO_LIST = -1
_WEST_END, _EAST_END = WORLD[0], WORLD[2]


class Shifted(NamedTuple):
    """What changes when clauses shift: which of the clauses, the stamp of the message, the sign.

    ``position`` int64, ascending; ``stamp`` int32; ``sign`` int8.
    """

    position: NDArray[np.int64]
    stamp: NDArray[np.int32]
    sign: NDArray[np.int8]

    @classmethod
    def none(cls) -> Shifted:
        """Return no changes."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int8))

    @classmethod
    def with_capacity(cls, count: int) -> Shifted:
        """Return space for this many changes."""
        return cls(np.empty(count, np.int64), np.empty(count, np.int32), np.empty(count, np.int8))

    def first(self, count: int) -> Shifted:
        """Return the first of the changes."""
        return Shifted(self.position[:count], self.stamp[:count], self.sign[:count])

    def doubled(self) -> Shifted:
        """Return the same with as much space again."""
        return Shifted.concatenate([self, Shifted.with_capacity(len(self.stamp))])

    @classmethod
    def merged(cls, parts: list[Shifted]) -> Shifted:
        """Return the changes of all parts, by position."""
        parts = [part for part in parts if len(part.position)]
        if not parts:
            return cls.none()
        if len(parts) == 1:
            return parts[0]
        joined = cls.concatenate(parts)
        order = np.argsort(joined.position, kind="stable")
        return cls(joined.position[order], joined.stamp[order], joined.sign[order])

    @classmethod
    def concatenate(cls, parts: list[Shifted]) -> Shifted:
        """Return the changes of all parts, one after another."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@kernel
def has_tokens(entries: EntryArrays, entry: Number, living: LivingArrays, stamp: Number) -> Number:
    """Tell whether a message has all tokens of a clause."""
    wanted = entries.record[entry, SIGNATURE]
    if (wanted & living.record[stamp, MESSAGE_SIGNATURE]) != wanted:
        return False
    first = entries.record[entry, FIRST]
    tokens = tokens_of(living, stamp)
    for i in range(first + 1, first + 1 + entries.pool[first]):
        if not contains(tokens, entries.pool[i]):
            return False
    return True


@kernel
def _meets(box: NDArray[np.int32], place: NDArray[np.int32]) -> Number:
    """Tell whether a clause's box meets the box of a message, which may cross the antimeridian."""
    if box[1] > place[3] or box[3] < place[1] or box[0] > box[2]:
        return False
    if place[0] <= place[2]:
        return box[0] <= place[2] and box[2] >= place[0]
    return (box[0] <= _EAST_END and box[2] >= place[0]) or (
        box[0] <= place[2] and box[2] >= _WEST_END
    )


@kernel
def _shortest(
    entries: EntryArrays,
    entry: Number,
    lists: ListArrays,
    tables: TableArrays,
    header: NDArray[np.int32],
) -> Number:
    """Return the shortest list of a clause's tokens; `NO_LIST` if a token has none."""
    first = entries.record[entry, FIRST]
    best = np.int64(_ALL)
    for i in range(first + 1, first + 1 + entries.pool[first]):
        at = find_key(tables.slot, header, 0, 0, np.int64(entries.pool[i]))
        if at < 0:
            return np.int64(NO_LIST)
        number = np.int64(tables.slot[at, VALUE])
        if best == _ALL or size_of(lists, number) < size_of(lists, best):
            best = number
    return best


@kernel
def _post(
    living: LivingArrays,
    stamps: tuple[Number, Number],
    lists: ListArrays,
    tables: TableArrays,
    header: NDArray[np.int32],
) -> None:
    for stamp in range(stamps[0], stamps[1]):
        if not is_range(living.record, stamp):
            continue
        append(lists, living.alive, _ALL, 0, 0, stamp, 0)
        for token in tokens_of(living, stamp):
            at = claim_key(tables, header, 0, 0, np.int64(token))
            if tables.slot[at, VALUE] == NO_VALUE:
                tables.slot[at, VALUE] = new_list(lists)
            append(lists, living.alive, np.int64(tables.slot[at, VALUE]), 0, 0, stamp, 0)


@kernel
def _shift(
    entries: EntryArrays,
    living: LivingArrays,
    lists: ListArrays,
    tables: TableArrays,
    header: NDArray[np.int32],
    place: NDArray[np.int32],
    moved: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    begin: Number,
    output: Shifted,
    count: Number,
) -> tuple[Number, Number]:
    """Write the changes of clauses from ``begin`` on; return the next clause, and how many."""
    entry, before, after = moved
    for i in range(begin, len(entry)):
        number = _shortest(entries, entry[i], lists, tables, header)
        if number == NO_LIST:
            continue
        size = size_of(lists, number)
        if count + size > len(output.stamp):
            return i, count
        start = start_of(lists, number) + 2 * capacity_of(lists, number)
        for at in range(start, start + size):
            stamp = lists.pool[at]
            if not is_alive(living.alive, stamp):
                continue
            box = place[living.record[stamp, X]]
            sign = np.int64(_meets(after[i], box)) - np.int64(_meets(before[i], box))
            if sign != 0 and has_tokens(entries, entry[i], living, stamp):
                output.position[count] = i
                output.stamp[count] = stamp
                output.sign[count] = sign
                count += 1
    return len(entry), count


class RangeMessages:
    """The living messages that are not points."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._box = GrowingArray(np.empty((0, 4), np.int32))
        self._lists = MessageLists()
        self._tables, self._header = Tables(), np.zeros((1, 2), np.int32)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def box(self) -> NDArray[np.int32]:
        """The boxes by number."""
        return self._box.writable

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        parts = (self._numbers, self._box, self._lists, self._tables)
        return sum(part.nbytes for part in parts)

    def admit(self, messages: Messages) -> NDArray[np.int32]:
        """Keep the boxes of messages that are not points; return their numbers, -1 for points."""
        box = messages.box
        chosen = (box[:, 0] != box[:, 2]) | (box[:, 1] != box[:, 3])
        number = np.full(len(messages), -1, np.int32)
        count = int(np.count_nonzero(chosen))
        if count:
            number[chosen] = self._numbers.take(count)
            missing = self._numbers.end - len(self._box)
            if missing > 0:
                self._box.extend(missing)
            self._box.writable[number[chosen]] = box[chosen]
        return number

    def post(self, living: LivingArrays, stamps: tuple[int, int], messages: Messages) -> None:
        """Put the messages of these stamps that are not points into their lists."""
        tokens = len(messages.token)
        first = len(self._lists.arrays.head) == 0
        self._tables.reserve(tokens)
        self._lists.reserve(tokens + 1, tokens + len(messages))
        if first:
            new_list(self._lists.arrays)
        _post(living, stamps, self._lists.arrays, self._tables.arrays, self._header)

    def shift(
        self,
        entries: EntryArrays,
        living: LivingArrays,
        entry: NDArray[np.int32],
        before: NDArray[np.int32],
        after: NDArray[np.int32],
    ) -> Shifted:
        """Return what changes for clauses that go from one box to another."""
        if not len(self):
            return Shifted.none()
        output, begin, count = Shifted.with_capacity(1024), 0, 0
        while True:
            begin, count = _shift(
                entries,
                living,
                self._lists.arrays,
                self._tables.arrays,
                self._header,
                self._box.writable,
                (entry, before, after),
                begin,
                output,
                count,
            )
            if begin == len(entry):
                return output.first(count)
            output = output.doubled()

    def drop(self, numbers: NDArray[np.int32]) -> None:
        """Forget the boxes of messages that expired."""
        self._numbers.give_back(numbers)

    def sweep(self, new_stamp: NDArray[np.int32]) -> None:
        """Give all messages their new stamps."""
        if len(self._lists.arrays.head):
            self._lists.sweep(new_stamp)
