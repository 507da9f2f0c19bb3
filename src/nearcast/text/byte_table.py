"""An open-addressing hash table over byte strings, itself three flat arrays.

A key has a number, and ``span[number]`` says where its bytes lie. A slot is one 8-byte word: the
32-bit tag of a key in its upper half, the number of the key plus one in its lower half, 0 where
it is free. A key's home is ``tag * slots / 2**32``, so that the slots lie (but for collisions) in
the order of their tags: a table of any size can be refilled from another in one sequential pass,
without reading a key. Collisions go to the next free slot; a removal closes the gap behind it.

One writer may add to a table while others read it. Nobody sees a wrong number, because a number
counts only once the bytes of its key have been compared; a key that is just being added may be
reported as unknown. Tables do not grow: their owner makes a larger one and leaves the old one to
those who still read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import kernel, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LENGTH_BITS",
    "MAX_KEY_BYTES",
    "ByteTable",
    "Keys",
    "add_keys",
    "find_keys",
    "hash_keys",
    "move_keys",
    "move_slots",
    "remove_keys",
]

LENGTH_BITS = 24
"""The lower bits of a span, which hold the length of the key; the others hold its start."""

MAX_KEY_BYTES = (1 << LENGTH_BITS) - 1
"""The longest key that a table can hold."""

_BLOCK = 64
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(LENGTH_BITS)
_LENGTH = np.uint64(MAX_KEY_BYTES)
_FREE = np.uint64(0)

HASH_SEED = np.uint64(0xCBF29CE484222325)
_HASH_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


class ByteTable(NamedTuple):
    """The table: slots, spans (``start << LENGTH_BITS | length``) by number, bytes of all keys."""

    slot: NDArray[np.uint64]
    span: NDArray[np.uint64]
    key: NDArray[np.uint8]


class Keys(NamedTuple):
    """A batch of byte strings; string ``i`` is ``byte[byte_start[i]:byte_start[i + 1]]``."""

    byte_start: NDArray[np.int64]
    byte: NDArray[np.uint8]
    tag: NDArray[np.uint32]


@kernel
def hash_byte(state: np.uint64, byte: np.uint8) -> np.uint64:
    """Take one more byte into the state of a hash (FNV-1a), which begins as `HASH_SEED`."""
    return (state ^ np.uint64(byte)) * _HASH_PRIME


@kernel
def hash_end(state: np.uint64) -> np.uint32:
    """Return the tag of the bytes that went into the state."""
    mixed = (state ^ (state >> _HALF)) * _MIX
    return np.uint32((mixed ^ (mixed >> _HALF)) & _LOW)


@kernel
def hash_keys(
    byte_start: NDArray[np.int64], byte: NDArray[np.uint8], tag: NDArray[np.uint32]
) -> None:
    """Fill in the tag of every byte string of a batch."""
    for i in range(len(tag)):
        state = HASH_SEED
        for b in range(byte_start[i], byte_start[i + 1]):
            state = hash_byte(state, byte[b])
        tag[i] = hash_end(state)


@kernel
def _start(span: np.uint64) -> int:
    return np.int64(span >> _SHIFT)  # type: ignore[return-value]


@kernel
def _length(span: np.uint64) -> int:
    return np.int64(span & _LENGTH)  # type: ignore[return-value]


@kernel
def _number(slot: np.uint64) -> int:
    return np.int64(slot & _LOW) - 1  # type: ignore[return-value]


@kernel
def _home(tag: np.uint64, slots: int) -> int:
    """Return the slot where the search for a tag begins."""
    return np.int64((np.uint64(tag) * np.uint64(slots)) >> _HALF)  # type: ignore[return-value]


@kernel
def _next(position: int, slots: int) -> int:
    return position + 1 if position + 1 < slots else 0


@kernel
def _same(table: ByteTable, number: int, keys: Keys, i: int) -> bool:
    """Whether the key of this number has the bytes of string ``i``."""
    begin = keys.byte_start[i]
    length = keys.byte_start[i + 1] - begin
    span = table.span[number]
    if _length(span) != length:
        return False
    start = _start(span)
    for b in range(length):
        if table.key[start + b] != keys.byte[begin + b]:
            return False
    return True


@kernel
def _candidate(table: ByteTable, tag: np.uint32) -> int:
    """Return the first number with this tag, or -1."""
    slots = len(table.slot)
    wanted = np.uint64(tag)
    position = _home(wanted, slots)
    slot = table.slot[position]
    while slot != _FREE:
        if slot >> _HALF == wanted:
            return _number(slot)
        position = _next(position, slots)
        slot = table.slot[position]
    return -1


@kernel
def _find(table: ByteTable, keys: Keys, i: int) -> int:
    """Return the number of string ``i``; where there is none, ``-1 - position`` of a free slot."""
    slots = len(table.slot)
    wanted = np.uint64(keys.tag[i])
    position = _home(wanted, slots)
    slot = table.slot[position]
    while slot != _FREE:
        if slot >> _HALF == wanted:
            number = _number(slot)
            if _same(table, number, keys, i):
                return number
        position = _next(position, slots)
        slot = table.slot[position]
    return -1 - position


@kernel
def find_keys(table: ByteTable, keys: Keys, number: NDArray[np.int32]) -> None:
    """Fill in the number of every string, -1 where it is unknown.

    Each block is walked once per array of the table, so that a cache miss is waited for by a
    whole block together and not by one string after the other.
    """
    count = len(keys.tag)
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        for i in range(first, last):
            prefetch(table.slot, _home(np.uint64(keys.tag[i]), len(table.slot)))
        for i in range(first, last):
            number[i] = _candidate(table, keys.tag[i])
            if number[i] >= 0:
                prefetch(table.span, number[i])
        for i in range(first, last):
            if number[i] >= 0:
                prefetch(table.key, _start(table.span[number[i]]))
        for i in range(first, last):
            if number[i] >= 0 and not _same(table, number[i], keys, i):
                number[i] = max(_find(table, keys, i), -1)


@kernel
def add_keys(
    table: ByteTable,
    used: int,
    keys: Keys,
    fresh: NDArray[np.int32],
    number: NDArray[np.int32],
) -> tuple[int, int]:
    """Give every string whose ``number`` is negative its number, taking new ones from ``fresh``.

    ``used`` is where the bytes of new keys go. The table has room for all of them. Returns how
    many of ``fresh`` were taken, and the new ``used``.
    """
    taken = 0
    count = len(keys.tag)
    for i in range(count):
        if i + _BLOCK < count:
            prefetch(table.slot, _home(np.uint64(keys.tag[i + _BLOCK]), len(table.slot)))
        if number[i] >= 0:
            continue
        found = _find(table, keys, i)
        if found < 0:
            position = -1 - found
            found = fresh[taken]
            taken += 1
            begin = keys.byte_start[i]
            length = keys.byte_start[i + 1] - begin
            for b in range(length):
                table.key[used + b] = keys.byte[begin + b]
            table.span[found] = (np.uint64(used) << _SHIFT) | np.uint64(length)
            table.slot[position] = (np.uint64(keys.tag[i]) << _HALF) | np.uint64(found + 1)
            used += length
        number[i] = found
    return taken, used


@kernel
def _tag_of(table: ByteTable, number: int) -> np.uint32:
    span = table.span[number]
    start = _start(span)
    state = HASH_SEED
    for b in range(start, start + _length(span)):
        state = hash_byte(state, table.key[b])
    return hash_end(state)


@kernel
def _close_gap(slot: NDArray[np.uint64], gap: int) -> None:
    """Free a slot; what collisions pushed beyond it moves up, so that no search ends early."""
    slots = len(slot)
    position = _next(gap, slots)
    while slot[position] != _FREE:
        home = _home(slot[position] >> _HALF, slots)
        if (position - home) % slots >= (position - gap) % slots:
            slot[gap] = slot[position]
            gap = position
        position = _next(position, slots)
    slot[gap] = _FREE


@kernel
def remove_keys(table: ByteTable, number: NDArray[np.int32], freed: NDArray[np.int32]) -> int:
    """Remove the keys of these numbers; fill in those that were in use and return how many."""
    slots = len(table.slot)
    count = 0
    for i in range(len(number)):
        if table.span[number[i]] == _FREE:
            continue
        tag = np.uint64(_tag_of(table, number[i]))
        wanted = (tag << _HALF) | np.uint64(np.int64(number[i]) + 1)
        position = _home(tag, slots)
        while table.slot[position] != wanted:
            position = _next(position, slots)
        _close_gap(table.slot, position)
        table.span[number[i]] = _FREE
        freed[count] = number[i]
        count += 1
    return count


@kernel
def move_slots(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> None:
    """Enter all keys of one slot array into another one, which is free and large enough."""
    slots = len(new)
    for i in range(len(old)):
        if old[i] != _FREE:
            position = _home(old[i] >> _HALF, slots)
            while new[position] != _FREE:
                position = _next(position, slots)
            new[position] = old[i]


@kernel
def move_keys(old: ByteTable, new: ByteTable) -> int:
    """Lay the bytes of all keys in use end to end in another table; return how many bytes."""
    used = 0
    for number in range(min(len(old.span), len(new.span))):
        span = old.span[number]
        if span != _FREE:
            start = _start(span)
            length = _length(span)
            for b in range(length):
                new.key[used + b] = old.key[start + b]
            new.span[number] = (np.uint64(used) << _SHIFT) | np.uint64(length)
            used += length
    return used
