"""An open-addressing hash table over byte strings, itself three flat arrays.

Every key has a number, and ``span[number]`` has the start and the length of its bytes. A slot is
one 64-bit word: the 32-bit tag (hash) of a key in the upper half, the key's number plus one in the
lower half, 0 if the slot is free. The search for a key begins at slot ``tag * slots / 2**32`` and
goes on to the next slots (linear probing). Slots are therefore nearly sorted by tag, and a table of
another size is filled in one sequential pass, without reading a key. Removing a key closes the gap.

One writer may add keys while others read. Readers never get a wrong number, because they compare
the bytes of the key; they may not find a key that is just being added. Tables do not grow: their
owner fills a larger one and leaves the old one to its readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import kernel, prefetch, short_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LENGTH_BITS",
    "MAX_KEY_BYTES",
    "ByteTable",
    "Keys",
    "add_key",
    "add_keys",
    "find_key",
    "find_keys",
    "hash_keys",
    "move_keys",
    "move_slots",
    "remove_keys",
]

LENGTH_BITS = 24
"""The number of low bits of a span that hold the length of a key; the others hold its start."""

MAX_KEY_BYTES = (1 << LENGTH_BITS) - 1
"""The length of the longest key that a table can hold."""

_BLOCK = 64  # keys whose cache misses overlap
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(LENGTH_BITS)
_LENGTH = np.uint64(MAX_KEY_BYTES)
_FREE = np.uint64(0)

HASH_SEED = np.uint64(0xCBF29CE484222325)
_HASH_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


class ByteTable(NamedTuple):
    """The arrays of a table.

    ``slot`` uint64[slots]; ``span`` uint64[numbers], each ``start << LENGTH_BITS | length``, 0 if
    the number is not in use; ``key`` uint8[bytes], the bytes of all keys.
    """

    slot: NDArray[np.uint64]
    span: NDArray[np.uint64]
    key: NDArray[np.uint8]


class Keys(NamedTuple):
    """A batch of keys and their tags; key ``i`` is ``byte[byte_start[i]:byte_start[i + 1]]``."""

    byte_start: NDArray[np.int64]
    byte: NDArray[np.uint8]
    tag: NDArray[np.uint32]


@kernel
def hash_byte(state: np.uint64, byte: np.uint8) -> np.uint64:
    """Add one byte to the state of a hash (FNV-1a), which starts as `HASH_SEED`."""
    return (state ^ np.uint64(byte)) * _HASH_PRIME


@kernel
def hash_end(state: np.uint64) -> np.uint32:
    """Return the tag for the state of a hash."""
    mixed = (state ^ (state >> _HALF)) * _MIX
    return np.uint32((mixed ^ (mixed >> _HALF)) & _LOW)


@kernel
def hash_keys(
    byte_start: NDArray[np.int64], byte: NDArray[np.uint8], tag: NDArray[np.uint32]
) -> None:
    """Write the tag of every key of a batch to ``tag`` uint32[keys]."""
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
    """Return the slot at which the search for a tag begins."""
    return np.int64((np.uint64(tag) * np.uint64(slots)) >> _HALF)  # type: ignore[return-value]


@kernel
def _next(position: int, slots: int) -> int:
    return position + 1 if position + 1 < slots else 0


@kernel
def _same(table: ByteTable, number: int, keys: Keys, i: int) -> bool:
    """Return whether the key with this number has the bytes of key ``i`` of a batch."""
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
    """Return the number of the first key with this tag, -1 if there is none."""
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
    """Return the number of key ``i`` of a batch, or ``-1 - slot`` of the free slot to put it in."""
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
    """Write the number of every key to ``number`` int32[keys], -1 if it is unknown.

    Each block of keys is processed once per array of the table, so that the cache misses of a
    block overlap.
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
    """Write the numbers of those keys whose ``number`` is negative; add the keys that are new.

    New keys take the next numbers of ``fresh`` int32[...], and their bytes go to ``table.key`` from
    ``used`` on. The table must have the capacity for them. Returns how many numbers were taken,
    and the new ``used``.
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
def _single_key(byte: NDArray[np.uint8]) -> Keys:
    """Return a batch of one key."""
    start = np.zeros(2, np.int64)
    start[1] = len(byte)
    tag = np.empty(1, np.uint32)
    hash_keys(start, byte, tag)
    return Keys(start, byte, tag)


@short_kernel
def find_key(table: ByteTable, byte: NDArray[np.uint8]) -> int:
    """Return the number of one key, -1 if it is unknown."""
    return max(_find(table, _single_key(byte), 0), -1)


@short_kernel
def add_key(table: ByteTable, used: int, byte: NDArray[np.uint8], fresh: int) -> int:
    """Add one key, which must be new, with the number ``fresh``; return the new ``used``.

    The table must have the capacity for it, as for `add_keys`.
    """
    number = np.full(1, -1, np.int32)
    return add_keys(table, used, _single_key(byte), np.full(1, fresh, np.int32), number)[1]


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
    """Free a slot and move up the slots behind it that collisions displaced."""
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
    """Remove the keys with these numbers.

    Writes the numbers that were in use to ``freed`` int32[numbers] and returns how many they are.
    """
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
    """Insert all slots of a table into an empty slot array that is large enough."""
    slots = len(new)
    for i in range(len(old)):
        if old[i] != _FREE:
            position = _home(old[i] >> _HALF, slots)
            while new[position] != _FREE:
                position = _next(position, slots)
            new[position] = old[i]


@kernel
def move_keys(old: ByteTable, new: ByteTable) -> int:
    """Copy the bytes of all keys in use to another table, without gaps; return how many bytes."""
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
