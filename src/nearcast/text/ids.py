"""A table that numbers ids: from the strings and integers of users to small integers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import Ids, frozen, read_only, starts
from nearcast.errors import InvalidInput
from nearcast.text.byte_table import (
    MAX_KEY_BYTES,
    Keys,
    add_key,
    add_keys,
    find_key,
    remove_keys,
)
from nearcast.text.keys import (
    check_length,
    check_lengths,
    empty_table,
    keys_of,
    numbers_of,
    read_only_table,
    string_buffers,
    table_for,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IdTable", "hash_ids"]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INTEGER_BYTES = 9
_INTEGERS, _TEXTS = 1, 2
_SLOTS_PER_KEY = 5 / 4
_SLACK = 9 / 8


class IdTable:
    """Maps ids, strings or integers, to handles: int32 numbers from 0 on.

    An id keeps its handle until it is removed; then the handle is used again. The table is meant
    for tens of millions of ids: each takes about 20 bytes and the bytes of its key (9 for an
    integer). It has no lock: nobody may read while it changes.

    Examples
    --------
    >>> from nearcast.columns import Ids
    >>> table = IdTable()
    >>> table.add(Ids.of(["a", 7])).tolist()
    [0, 1]
    >>> table.remove(table.find(Ids.of(["a"])))
    >>> table.find(Ids.of([7, "a", "7"])).tolist(), len(table)
    ([1, -1, -1], 1)
    >>> table.add(Ids.of(["b"])).tolist()
    [0]
    """

    def __init__(self) -> None:
        self._table = empty_table()
        self._view = read_only_table(self._table)
        self._types = 0  # _INTEGERS, _TEXTS or both
        self._used = 0
        self._handles = 0
        self._free = np.empty(0, np.int32)
        self._free_count = 0

    def __len__(self) -> int:
        return self._handles - self._free_count

    def __repr__(self) -> str:
        return f"IdTable({len(self)} ids)"

    @property
    def nbytes(self) -> int:
        """The size of the table in bytes."""
        return sum(array.nbytes for array in self._table) + self._free.nbytes

    @property
    def handles(self) -> int:
        """One more than the highest handle that was ever used."""
        return self._handles

    def find(self, ids: Ids) -> NDArray[np.int32]:
        """Return the handle of every id, -1 if it is unknown."""
        return numbers_of(self._view, _keys_of_ids(ids))

    def add(self, ids: Ids) -> NDArray[np.int32]:
        """Return the handles of ids, and add those that are new; free handles are used first."""
        keys = _keys_of_ids(ids)
        check_lengths(keys, "id")
        self._types |= _types_of(ids)
        count = len(keys.tag)
        self._reserve(count, int(keys.byte_start[-1]))
        recycled = min(count, self._free_count)
        fresh = np.empty(count, np.int32)
        fresh[:recycled] = self._free[self._free_count - recycled : self._free_count][::-1]
        fresh[recycled:] = np.arange(self._handles, self._handles + count - recycled)
        handle = np.full(count, -1, np.int32)
        taken, self._used = add_keys(self._table, self._used, keys, frozen(fresh), handle)
        self._free_count -= min(taken, recycled)
        self._handles += max(taken - recycled, 0)
        return handle

    def may_have_alike(self, ids: Ids) -> bool:
        """Whether ids of both types are, or ever were, in the table or among these."""
        return self._types | _types_of(ids) == _INTEGERS | _TEXTS

    def find_alike(self, ids: Ids) -> NDArray[np.int32]:
        """Return the handle of the id of the other type that is written alike: 7 and "7"; or -1."""
        handle = np.full(len(ids), -1, np.int32)
        if self.may_have_alike(ids):
            given = enumerate(map(_other_type, ids.tolist()))
            other = {row: id for row, id in given if id is not None}
            if other:
                handle[[*other]] = self.find(Ids.of([*other.values()]))
        return handle

    def find_one(self, id: str | int) -> int:
        """Return the handle of an id, -1 if it is unknown."""
        return find_key(self._view, _key_of(id))

    def add_one(self, id: str | int) -> int:
        """Return the handle of an id, and add it if it is new."""
        key = _key_of(id)
        handle = find_key(self._view, key)
        if handle >= 0:
            return handle
        check_length(key, "id")
        self._types |= _INTEGERS if isinstance(id, int) else _TEXTS
        self._reserve(1, len(key))
        recycled = self._free_count > 0
        handle = int(self._free[self._free_count - 1]) if recycled else self._handles
        self._used = add_key(self._table, self._used, key, handle)
        if recycled:
            self._free_count -= 1
        else:
            self._handles += 1
        return handle

    def remove(self, handles: NDArray[Any]) -> None:
        """Remove the ids of these handles, and make the handles available.

        A handle that is not in use raises `InvalidInput`; the others are removed nevertheless.
        """
        chosen = read_only(handles, np.int32)
        if not _all_below(chosen, self._handles):
            raise InvalidInput("handles", chosen, f"must be from 0 to {self._handles - 1}")
        needed = self._free_count + len(chosen)
        if needed > len(self._free):
            grown = np.empty(min(needed * 2, self._handles + len(chosen)), np.int32)
            grown[: self._free_count] = self._free[: self._free_count]
            self._free = grown
        removed = remove_keys(self._table, chosen, self._free[self._free_count :])
        self._free_count += removed
        if removed < len(chosen):
            raise InvalidInput(
                "handles", chosen, f"must be in use and distinct, only {removed} are"
            )

    def _reserve(self, keys: int, key_bytes: int) -> None:
        """Reserve capacity for more keys; growing drops the bytes of removed keys."""
        live = len(self) + keys
        handles = self._handles + max(keys - self._free_count, 0)
        slot, span, key = (len(array) for array in self._table)
        if live * _SLOTS_PER_KEY < slot and handles <= span and self._used + key_bytes <= key:
            return
        live_bytes = int((self._table.span & np.uint64(MAX_KEY_BYTES)).sum()) + key_bytes
        self._table, self._used = table_for(
            int(live * _SLOTS_PER_KEY * _SLACK) + 8,
            int(handles * _SLACK) + 8,
            int(live_bytes * _SLACK) + 64,
            self._table,
        )
        self._view = read_only_table(self._table)
        self._free = self._free[: self._free_count].copy()


def hash_ids(ids: Ids) -> NDArray[np.uint32]:
    """Return a hash of every id, the same in all processes and versions of this library.

    Examples
    --------
    >>> from nearcast.columns import Ids
    >>> hash_ids(Ids.of(["a", 7])).tolist() == hash_ids(Ids.of(["a", 7, "b"])).tolist()[:2]
    True
    """
    return _keys_of_ids(ids).tag


def _types_of(ids: Ids) -> int:
    if not ids.has_text:
        return _INTEGERS if len(ids) else 0
    return _TEXTS | _INTEGERS if ids.is_mixed else _TEXTS


def _other_type(id: str | int) -> str | int | None:
    """Return the id of the other type that is written alike, if there is one."""
    if isinstance(id, int):
        return str(id)
    return int(id) if _INTEGER.fullmatch(id) and -(2**63) <= int(id) < 2**63 else None


def _all_below(handles: NDArray[np.int32], limit: int) -> bool:
    if len(handles) == 1:
        return 0 <= int(handles[0]) < limit
    return not len(handles) or bool(0 <= handles.min() <= handles.max() < limit)


def _key_of(id: str | int) -> NDArray[np.uint8]:
    """Return the bytes of an id, as `_keys_of_ids` does."""
    if isinstance(id, str):
        return np.frombuffer(id.encode(), np.uint8)
    return np.frombuffer(b"\0" + id.to_bytes(8, "little", signed=True), np.uint8)


def _keys_of_ids(ids: Ids) -> Keys:
    """Return UTF-8 for strings, NUL and eight bytes for integers; no string contains a NUL."""
    if ids.text is None:
        return keys_of(np.arange(len(ids) + 1) * _INTEGER_BYTES, _integer_bytes(ids.number))
    text_start, text = string_buffers(ids.text)
    if not ids.text.null_count:
        return keys_of(text_start, text)
    is_number = ids.text.is_null().to_numpy(zero_copy_only=False)
    length = np.diff(text_start)
    start = starts(np.where(is_number, _INTEGER_BYTES, length))
    byte = np.empty(start[-1], np.uint8)
    of_number = np.repeat(is_number, np.diff(start))
    byte[of_number] = _integer_bytes(ids.number[is_number])
    byte[~of_number] = text[np.repeat(~is_number, length)]
    return keys_of(start, byte)


def _integer_bytes(number: NDArray[np.int64]) -> NDArray[np.uint8]:
    byte = np.zeros((len(number), _INTEGER_BYTES), np.uint8)
    byte[:, 1:] = number.astype("<i8").view(np.uint8).reshape(-1, 8)
    return byte.reshape(-1)
