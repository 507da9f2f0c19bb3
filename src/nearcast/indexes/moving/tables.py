"""Many small hash tables in one pool: from keys of an owner to what is stored there.

An owner (a cell, a token, a node of a tree) has a *region* of the pool. Its header row says where:
two columns, the start and ``count << 8 | class`` (the region has ``1 << class`` slots); both are
0 if the owner has no keys. A slot is a key and a value, eight bytes, so eight slots fill a cache
line. A region of up to eight slots is a plain list of keys; a larger one uses linear probing, and
at most three quarters of it are used. Regions that are given up are chained, one chain per class.

What a value means is up to the user. Here, most keys have one item, so the value is either the
number of a list (`nearcast.indexes.moving.lists`) or the complement of a single item.

As with lists, `Tables.reserve` makes enough room before a kernel runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NO_KEY",
    "NO_VALUE",
    "TableArrays",
    "Tables",
    "claim_key",
    "find_key",
    "first_slot",
    "new_region",
    "place_key",
    "region_end",
    "remove_key",
]

KEY, VALUE = 0, 1
"""Columns of ``slot``."""

TOP, KEYS = 0, 1
"""Fields of ``state``: the first slot that was never used, and how many keys there are."""

NO_KEY = np.int32(-1)
NO_VALUE = np.int32(-(1 << 31))
"""The value of a new key; it is neither a number nor the complement of one."""

CLASSES = 32
_PLAIN = 3
"""Regions up to this class are plain lists of keys."""

_NOTHING = -1
_CLASS_MASK = 255
_MIXER = np.uint64(0x9E3779B97F4A7C15)


class TableArrays(NamedTuple):
    """What kernels see of tables.

    - ``slot`` int32[slots, 2]: all regions; see `KEY`.
    - ``free`` int32[CLASSES]: the first free region of each class, or -1.
    - ``state`` int64[2]: see `TOP`.
    """

    slot: NDArray[np.int32]
    free: NDArray[np.int32]
    state: NDArray[np.int64]


@kernel
def _home(start: Number, kind: Number, key: Number) -> Number:
    """Return the slot where the search for a key starts in a region of more than eight slots."""
    hashed = (np.uint64(key) * _MIXER) >> np.uint64(64 - kind)
    return start + np.int64(hashed)


@kernel
def first_slot(header: NDArray[np.int32], owner: Number, column: Number, key: Number) -> Number:
    """Return the slot that a search for a key reads first, to be prefetched."""
    start, meta = np.int64(header[owner, column]), np.int64(header[owner, column + 1])
    kind = meta & _CLASS_MASK
    return start if kind <= _PLAIN else _home(start, kind, np.int64(key))


@kernel
def find_key(
    slot: NDArray[np.int32], header: NDArray[np.int32], owner: Number, column: Number, key: Number
) -> Number:
    """Return the slot of a key, or -1."""
    start, meta = np.int64(header[owner, column]), np.int64(header[owner, column + 1])
    kind = meta & _CLASS_MASK
    if kind <= _PLAIN:
        for there in range(start, start + (meta >> 8)):
            if slot[there, KEY] == key:
                return np.int64(there)
        return np.int64(-1)
    at = _home(start, kind, np.int64(key))
    end = start + (np.int64(1) << kind)
    while True:
        found = slot[at, KEY]
        if found == key:
            return np.int64(at)
        if found == NO_KEY:
            return np.int64(-1)
        at += 1
        if at == end:
            at = start


@kernel
def region_end(header: NDArray[np.int32], owner: Number, column: Number) -> Number:
    """Return the end of the slots that may have keys; those without one have `NO_KEY`."""
    start, meta = np.int64(header[owner, column]), np.int64(header[owner, column + 1])
    kind = meta & _CLASS_MASK
    return start + (meta >> 8) if kind <= _PLAIN else start + (np.int64(1) << kind)


@kernel
def _allocate(tables: TableArrays, kind: Number) -> Number:
    start = np.int64(tables.free[kind])
    if start != _NOTHING:
        tables.free[kind] = tables.slot[start, KEY]
    else:
        start = tables.state[TOP]
        if kind >= _PLAIN:  # at a cache line
            start = (start + 7) & ~np.int64(7)
        tables.state[TOP] = start + (np.int64(1) << kind)
    if kind > _PLAIN:
        for at in range(start, start + (np.int64(1) << kind)):
            tables.slot[at, KEY] = NO_KEY
    return start


@kernel
def _give_up(tables: TableArrays, start: Number, kind: Number) -> None:
    tables.slot[start, KEY] = tables.free[kind]
    tables.free[kind] = start


@kernel
def new_region(
    tables: TableArrays, header: NDArray[np.int32], owner: Number, column: Number, count: Number
) -> None:
    """Give an owner without keys a region in which a number of keys fit."""
    kind = np.int64(0)
    while (np.int64(1) << kind) < count or (kind > _PLAIN and 4 * count > np.int64(3) << kind):
        kind += 1
    header[owner, column] = _allocate(tables, kind)
    header[owner, column + 1] = kind


@kernel
def place_key(
    slot: NDArray[np.int32], header: NDArray[np.int32], owner: Number, column: Number, key: Number
) -> Number:
    """Give a new key a slot of a region that has room for it; return the slot.

    It is not counted among all keys.
    """
    start, meta = np.int64(header[owner, column]), np.int64(header[owner, column + 1])
    kind = meta & _CLASS_MASK
    if kind <= _PLAIN:
        at = start + (meta >> 8)
    else:
        at = _home(start, kind, np.int64(key))
        end = start + (np.int64(1) << kind)
        while slot[at, KEY] != NO_KEY:
            at += 1
            if at == end:
                at = start
    slot[at, KEY], slot[at, VALUE] = key, NO_VALUE
    header[owner, column + 1] = meta + 256
    return at


@kernel
def _grow(
    tables: TableArrays, header: NDArray[np.int32], owner: Number, column: Number, kind: Number
) -> None:
    """Move the keys of an owner to a region of twice the size."""
    slot = tables.slot
    start, end = np.int64(header[owner, column]), region_end(header, owner, column)
    header[owner, column] = _allocate(tables, kind + 1)
    header[owner, column + 1] = kind + 1
    for there in range(start, end):
        key = np.int64(slot[there, KEY])
        if key != NO_KEY:
            value = slot[there, VALUE]
            slot[place_key(slot, header, owner, column, key), VALUE] = value
    _give_up(tables, start, kind)


@kernel
def claim_key(
    tables: TableArrays, header: NDArray[np.int32], owner: Number, column: Number, key: Number
) -> Number:
    """Return the slot of a key; a new one has the value `NO_VALUE`. There is room for it."""
    at = find_key(tables.slot, header, owner, column, key)
    if at >= 0:
        return at
    meta = np.int64(header[owner, column + 1])
    count, kind = meta >> 8, meta & _CLASS_MASK
    if count == 0:
        new_region(tables, header, owner, column, np.int64(1))
    elif kind <= _PLAIN:
        if count == np.int64(1) << kind:
            _grow(tables, header, owner, column, kind)
    elif 4 * (count + 1) > np.int64(3) << kind:
        _grow(tables, header, owner, column, kind)
    tables.state[KEYS] += 1
    return place_key(tables.slot, header, owner, column, key)


@kernel
def remove_key(
    tables: TableArrays, header: NDArray[np.int32], owner: Number, column: Number, at: Number
) -> None:
    """Remove the key of a slot; keys behind it that a search would miss move up."""
    slot = tables.slot
    start, meta = np.int64(header[owner, column]), np.int64(header[owner, column + 1])
    count, kind = (meta >> 8) - 1, meta & _CLASS_MASK
    tables.state[KEYS] -= 1
    if count == 0:
        _give_up(tables, start, kind)
        header[owner, column], header[owner, column + 1] = 0, 0
        return
    header[owner, column + 1] = meta - 256
    if kind <= _PLAIN:
        slot[at, KEY], slot[at, VALUE] = slot[start + count, KEY], slot[start + count, VALUE]
        return
    size = np.int64(1) << kind
    gap, there = np.int64(at), np.int64(at)
    while True:
        there += 1
        if there == start + size:
            there = start
        if slot[there, KEY] == NO_KEY:
            break
        home = _home(start, kind, np.int64(slot[there, KEY]))
        # A key moves up if its search starts at or before the gap.
        if (there - home) & (size - 1) >= (there - gap) & (size - 1):
            slot[gap, KEY], slot[gap, VALUE] = slot[there, KEY], slot[there, VALUE]
            gap = there
    slot[gap, KEY] = NO_KEY


class Tables:
    """Hash tables in one pool."""

    def __init__(self) -> None:
        self._arrays = TableArrays(
            _slots(0), np.full(CLASSES, _NOTHING, np.int32), np.zeros(2, np.int64)
        )

    @property
    def arrays(self) -> TableArrays:
        """What kernels see; void after the next `reserve`."""
        return self._arrays

    @property
    def nbytes(self) -> int:
        """The bytes that are in use, or were."""
        return int(8 * self._arrays.state[TOP])

    def __len__(self) -> int:
        """Return how many keys there are."""
        return int(self._arrays.state[KEYS])

    def reserve(self, keys: int) -> None:
        """Make room for a number of new keys, whoever owns them.

        A region is at least three eighths full when it has just grown, and the regions that an
        owner had before are together smaller than it; some slots are lost at cache lines.
        """
        slot, _, state = self._arrays
        needed = int(state[TOP]) + 8 * (int(state[KEYS]) + keys)
        if needed > len(slot):
            larger = _slots(needed + needed // 2)
            larger[: state[TOP]] = slot[: state[TOP]]
            self._arrays = self._arrays._replace(slot=larger)


def _slots(count: int) -> NDArray[np.int32]:
    return at_cache_line(2 * count, np.int32).reshape(-1, 2)
