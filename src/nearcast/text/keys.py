"""Batches of keys, and byte tables of a given capacity, for the vocabulary and the id table."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import frozen, read_only
from nearcast.errors import InvalidInput
from nearcast.text.byte_table import (
    MAX_KEY_BYTES,
    ByteTable,
    Keys,
    find_keys,
    hash_keys,
    move_keys,
    move_slots,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "check_length",
    "check_lengths",
    "empty_table",
    "encode_key",
    "keys_of",
    "numbers_of",
    "read_only_table",
    "string_buffers",
    "strings_as_keys",
    "table_for",
]


def keys_of(byte_start: NDArray[Any], byte: NDArray[Any]) -> Keys:
    """Return a batch of keys; key ``i`` is ``byte[byte_start[i]:byte_start[i + 1]]``."""
    start = read_only(byte_start, np.int64)
    content = read_only(byte, np.uint8)
    tag = np.empty(len(start) - 1, np.uint32)
    hash_keys(start, content, tag)
    return Keys(start, content, frozen(tag))


def strings_as_keys(strings: Sequence[str], field: str) -> Keys:
    """Return the UTF-8 bytes of strings as a batch of keys; errors call a string ``field``."""
    try:
        encoded = [string.encode() for string in strings]
    except (AttributeError, UnicodeEncodeError):
        for string in strings:
            encode_key(string, field)
        raise
    start = np.array([0, *accumulate(map(len, encoded))], np.int64)
    return keys_of(start, np.frombuffer(b"".join(encoded), np.uint8))


def encode_key(string: str, field: str) -> NDArray[np.uint8]:
    """Return the UTF-8 bytes of one string; errors call it ``field``."""
    try:
        return np.frombuffer(string.encode(), np.uint8)
    except (AttributeError, UnicodeEncodeError):
        problem = "must be a string without lone surrogates"
        raise InvalidInput(field, string, problem) from None


def string_buffers(strings: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets (one more than strings) and the bytes of a string array.

    The bytes are those of this slice only. A null may have bytes as well.
    """
    _, offsets, content = strings.buffers()
    wide = pa.types.is_large_string(strings.type)
    if len(strings) == 0 or offsets is None:
        return np.zeros(len(strings) + 1, np.int64), np.empty(0, np.uint8)
    start = np.frombuffer(offsets, np.int64 if wide else np.int32)
    start = start[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    byte = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return start - start[0], byte[start[0] : start[-1]]


def numbers_of(table: ByteTable, keys: Keys) -> NDArray[np.int32]:
    """Return the number of every key in a read-only table, -1 if it is unknown."""
    number = np.empty(len(keys.tag), np.int32)
    find_keys(table, keys, number)
    return number


def check_lengths(keys: Keys, field: str) -> None:
    """Raise `InvalidInput` for a key that is empty or too long for a table."""
    length = np.diff(keys.byte_start)
    for wrong in np.flatnonzero((length == 0) | (length > MAX_KEY_BYTES))[:1]:
        begin, end = keys.byte_start[wrong], keys.byte_start[wrong + 1]
        check_length(keys.byte[begin:end], field)


def check_length(key: NDArray[np.uint8], field: str) -> None:
    """Raise `InvalidInput` if a key is empty or too long for a table."""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        shown = key[:80].tobytes().decode(errors="replace")
        problem = f"must have 1 to {MAX_KEY_BYTES} bytes, has {len(key)}"
        raise InvalidInput(field, shown, problem)


def table_for(slots: int, numbers: int, key_bytes: int, old: ByteTable) -> tuple[ByteTable, int]:
    """Return a table of this capacity with the keys of another one, and its bytes in use.

    Keys keep their numbers. The bytes of removed keys are not copied.
    """
    # Zeros, because readers must not take a span that is not written yet for a key.
    table = ByteTable(
        np.zeros(slots, np.uint64), np.zeros(numbers, np.uint64), np.zeros(key_bytes, np.uint8)
    )
    source = read_only_table(old)
    move_slots(source.slot, table.slot)
    return table, move_keys(source, table)


def empty_table() -> ByteTable:
    """Return a table without keys and without capacity."""
    return ByteTable(np.zeros(1, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.uint8))


def read_only_table(table: ByteTable) -> ByteTable:
    """Return read-only views of the arrays of a table."""
    return ByteTable(
        read_only(table.slot, np.uint64),
        read_only(table.span, np.uint64),
        read_only(table.key, np.uint8),
    )
