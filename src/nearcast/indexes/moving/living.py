"""The messages that are alive, as kernels see them.

A message has a *number*, which its index gives out and which is free again when the message
expires, and a *stamp*, which says where its record is. Lists of messages hold stamps. A stamp is
not used again while a list may still have it: a dead message only loses its bit in ``alive``, and
lists drop it when they like. When all stamps have been used, everything is *swept*: the living get
new stamps from 0 on, in the order of publication, and every list is rewritten without the dead.

::

    record     int32[stamps, 8], half a cache line:
               x y number stamp | signature first length own
    pool       the tokens of a message, ascending, from `first` on
    alive      a bit for each stamp

A message that is not a point has the number of its box (see `nearcast.indexes.moving.ranges`) as
``x``, and the flag `IS_RANGE` in ``length``. ``own`` belongs to the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import GrowingArray, Messages, at_cache_line, distinct, starts
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.messages import MessageArrays, known_tokens
from nearcast.errors import UnknownId
from nearcast.indexes.moving.entries import signature_bit
from nearcast.indexes.moving.numbers import Numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IS_RANGE", "Living", "LivingArrays", "is_alive", "is_range", "tokens_of"]

X, Y, NUMBER, STAMP, SIGNATURE, FIRST, LENGTH, OWN = range(8)
"""Fields of ``record``."""

IS_RANGE = 1 << 30
"""In ``length``: the message is not a point."""

LENGTH_MASK = IS_RANGE - 1
DEAD = -1

MIN_STAMPS = 1024
_SIX, _ONE, _LOW = np.uint64(6), np.uint64(1), np.uint64(63)


class LivingArrays(NamedTuple):
    """What kernels see of living messages."""

    record: NDArray[np.int32]
    pool: NDArray[np.int32]
    alive: NDArray[np.uint64]


@inlined_kernel
def is_alive(alive: NDArray[np.uint64], stamp: Number) -> Number:
    """Return 1 if the message with a stamp is alive, else 0."""
    at = np.uint64(stamp)
    return (alive[at >> _SIX] >> (at & _LOW)) & _ONE


@inlined_kernel
def is_range(record: NDArray[np.int32], stamp: Number) -> Number:
    """Tell whether a message is not a point."""
    return (record[stamp, LENGTH] & IS_RANGE) != 0


@inlined_kernel
def tokens_of(living: LivingArrays, stamp: Number) -> NDArray[np.int32]:
    """Return the tokens of a message."""
    first = living.record[stamp, FIRST]
    return living.pool[first : first + (living.record[stamp, LENGTH] & LENGTH_MASK)]


@kernel
def _write_messages(
    messages: MessageArrays,
    numbers: NDArray[np.int32],
    range_number: NDArray[np.int32],
    living: LivingArrays,
    stamp: Number,
    top: Number,
) -> Number:
    """Write records from a stamp on and tokens from ``top`` on; return the end of the tokens."""
    record, pool, alive = living
    for i in range(len(numbers)):
        first, last = messages.token_start[i], messages.token_start[i + 1]
        length = known_tokens(messages.token[first:last])
        signature = np.int32(0)
        for j in range(length):
            token = messages.token[first + j]
            pool[top + j] = token
            signature |= signature_bit(np.int64(token))
        point = range_number[i] < 0
        record[stamp, X] = messages.box[i, 0] if point else range_number[i]
        record[stamp, Y] = messages.box[i, 1]
        record[stamp, NUMBER] = numbers[i]
        record[stamp, STAMP] = stamp
        record[stamp, SIGNATURE] = signature
        record[stamp, FIRST] = top
        record[stamp, LENGTH] = length if point else length | IS_RANGE
        record[stamp, OWN] = 0
        at = np.uint64(stamp)
        alive[at >> _SIX] |= _ONE << (at & _LOW)
        stamp += 1
        top += length
    return top


@kernel
def _clear_bits(alive: NDArray[np.uint64], stamps: NDArray[np.int32]) -> None:
    for stamp in stamps:
        at = np.uint64(stamp)
        alive[at >> _SIX] &= ~(_ONE << (at & _LOW))


@kernel
def _copy_living(
    living: LivingArrays, used: Number, target: LivingArrays, new_stamp: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Copy living messages; return how many there are, and how many tokens they have."""
    count, top = 0, 0
    for stamp in range(used):
        new_stamp[stamp] = DEAD
        if not is_alive(living.alive, stamp):
            continue
        for field in range(8):
            target.record[count, field] = living.record[stamp, field]
        first = living.record[stamp, FIRST]
        length = living.record[stamp, LENGTH] & LENGTH_MASK
        for i in range(length):
            target.pool[top + i] = living.pool[first + i]
        target.record[count, STAMP] = count
        target.record[count, FIRST] = top
        at = np.uint64(count)
        target.alive[at >> _SIX] |= _ONE << (at & _LOW)
        new_stamp[stamp] = count
        count += 1
        top += length
    return count, top


class Living:
    """The messages of an index that are alive.

    Parameters
    ----------
    min_stamps
        How many stamps there are at least; few make it sweep often.
    """

    def __init__(self, min_stamps: int = MIN_STAMPS) -> None:
        self._numbers = Numbers()
        self._stamp_of = GrowingArray(np.empty(0, np.int32))
        self._min_stamps = min_stamps
        self._arrays = _room(min_stamps, 0)
        self._used = 0
        self._top = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def arrays(self) -> LivingArrays:
        """What kernels see; void after the next `admit` or `sweep`."""
        return self._arrays

    @property
    def used(self) -> int:
        """How many stamps have been used since the last sweep."""
        return self._used

    @property
    def capacity(self) -> int:
        """How many stamps there are."""
        return len(self._arrays.record)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(a.nbytes for a in (*self._arrays, self._stamp_of, self._numbers))

    def lacks_room(self, count: int) -> bool:
        """Whether a sweep must come before this number of messages is admitted."""
        return self._used + count > self.capacity

    def admit(
        self, messages: Messages, range_number: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], int]:
        """Take messages; return their numbers, and the first of their stamps, which follow it.

        Parameters
        ----------
        messages
            The messages; there are enough stamps for them.
        range_number
            For messages that are not points the number of their box; -1 for points.
        """
        numbers = self._numbers.take(len(messages))
        missing = self._numbers.end - len(self._stamp_of)
        if missing > 0:
            self._stamp_of.extend(missing)[:] = DEAD
        self._make_room_for_tokens(len(messages.token))
        first = self._used
        columns = MessageArrays(messages.token_start, messages.token, messages.box)
        self._top = _write_messages(columns, numbers, range_number, self._arrays, first, self._top)
        self._used += len(messages)
        self._stamp_of.writable[numbers] = np.arange(first, self._used)
        return numbers, first

    def stamps(self, numbers: object) -> NDArray[np.int32]:
        """Return the stamps of messages; refuse numbers that no message has, or that come twice."""
        given = np.asarray(numbers, np.int64).reshape(-1)
        known = (given >= 0) & (given < len(self._stamp_of))
        if known.all():
            known = self._stamp_of.view[given] != DEAD
        if not known.all():
            raise UnknownId(f"message {given[~known][0]} is not in the index")
        if len(given) > 1 and len(distinct(given)) < len(given):
            raise UnknownId("a message is given twice; it is not in the index the second time")
        stamps: NDArray[np.int32] = self._stamp_of.view[given]
        return stamps

    def drop(self, stamps: NDArray[np.int32]) -> None:
        """Let messages die; their numbers are free."""
        _clear_bits(self._arrays.alive, stamps)
        numbers = self._arrays.record[stamps, NUMBER]
        self._stamp_of.writable[numbers] = DEAD
        self._numbers.give_back(numbers)

    def messages(self, stamps: NDArray[np.int32], box: NDArray[np.int32]) -> Messages:
        """Return messages as columns; ``box`` has the boxes of all that are not points."""
        record, pool, _ = self._arrays
        chosen = record[stamps]
        length = (chosen[:, LENGTH] & LENGTH_MASK).astype(np.int64)
        token_start = starts(length)
        at = np.repeat(chosen[:, FIRST] - token_start[:-1], length) + np.arange(token_start[-1])
        places = chosen[:, [X, Y, X, Y]]
        ranges = (chosen[:, LENGTH] & IS_RANGE) != 0
        if ranges.any():
            places[ranges] = box[chosen[ranges, X]]
        nothing = np.zeros(len(stamps), np.int64)
        return Messages(token_start, pool[at], places, nothing, nothing)

    def numbers(self, stamps: NDArray[Any]) -> NDArray[np.int32]:
        """Return the numbers of messages."""
        numbers: NDArray[np.int32] = self._arrays.record[stamps, NUMBER]
        return numbers

    def sweep(self, count: int) -> NDArray[np.int32]:
        """Give new stamps to all messages, and have stamps for more of them.

        Returns
        -------
        int32[used stamps]
            The new stamp of every old one; `DEAD` where the message is dead.
        """
        capacity = max(self._min_stamps, 2 * (len(self) + count))
        target = _room(capacity, max(self._top, 1))
        new_stamp = np.empty(self._used, np.int32)
        self._used, self._top = _copy_living(self._arrays, self._used, target, new_stamp)
        self._arrays = target._replace(pool=target.pool[: self._top].copy())
        self._stamp_of.writable[self._arrays.record[: self._used, NUMBER]] = np.arange(self._used)
        return new_stamp

    def _make_room_for_tokens(self, count: int) -> None:
        pool = self._arrays.pool
        if self._top + count > len(pool):
            more = np.empty(max(2 * len(pool), self._top + count), np.int32)
            more[: self._top] = pool[: self._top]
            self._arrays = self._arrays._replace(pool=more)


def _room(stamps: int, tokens: int) -> LivingArrays:
    return LivingArrays(
        at_cache_line(8 * stamps, np.int32).reshape(-1, 8),
        np.empty(tokens, np.int32),
        np.zeros((stamps + 63) // 64, np.uint64),
    )
