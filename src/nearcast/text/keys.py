"""Batches of keys for byte tables, and room for them: what vocabulary and id table share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import read_only, starts
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
    "frozen_table",
    "keys_of",
    "numbers_of",
    "string_buffers",
    "strings_as_keys",
    "table_for",
]


def keys_of(byte_start: NDArray[Any], byte: NDArray[Any]) -> Keys:
    """Return a batch of byte strings laid end to end, hashed."""
    start = read_only(byte_start, np.int64)
    content = read_only(byte, np.uint8)
    tag = np.empty(len(start) - 1, np.uint32)
    hash_keys(start, content, tag)
    return Keys(start, content, read_only(tag, np.uint32))


def strings_as_keys(strings: Sequence[str], field: str) -> Keys:
    """Return the UTF-8 bytes of strings as a batch; ``field`` is how an error calls one."""
    try:
        encoded = [string.encode() for string in strings]
    except (AttributeError, UnicodeEncodeError):
        wrong = next(s for s in strings if not _encodable(s))
        raise InvalidInput(field, wrong, "must be a string without lone surrogates") from None
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return keys_of(starts(lengths), np.frombuffer(b"".join(encoded), np.uint8))


def _encodable(string: object) -> bool:
    try:
        return isinstance(string, str) and string.encode() is not None
    except UnicodeEncodeError:
        return False


def string_buffers(strings: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where the values of a string array begin in its bytes (one more at the end).

    The bytes are those of this slice only; those of a null stay between its neighbours.
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
    """Return the number of every key, -1 where the table has none; the table is read-only."""
    number = np.empty(len(keys.tag), np.int32)
    find_keys(table, keys, number)
    return number


def check_lengths(keys: Keys, field: str) -> None:
    """Refuse keys that a table cannot hold."""
    length = np.diff(keys.byte_start)
    for wrong in np.flatnonzero((length == 0) | (length > MAX_KEY_BYTES))[:1]:
        begin = keys.byte_start[wrong]
        shown = keys.byte[begin : begin + min(length[wrong], 80)].tobytes().decode(errors="replace")
        problem = f"must have 1 to {MAX_KEY_BYTES} bytes, has {length[wrong]}"
        raise InvalidInput(field, shown, problem)


def table_for(slots: int, numbers: int, key_bytes: int, old: ByteTable) -> tuple[ByteTable, int]:
    """Return a table with that much room and the keys of another one, and its bytes in use.

    Numbers stay; what removed keys left behind is not taken over.
    """
    # Zeros matter: to a reader, a span that is not yet written must not look like a key.
    table = ByteTable(
        np.zeros(slots, np.uint64), np.zeros(numbers, np.uint64), np.zeros(key_bytes, np.uint8)
    )
    source = frozen_table(old)
    move_slots(source.slot, table.slot)
    return table, move_keys(source, table)


def empty_table() -> ByteTable:
    """Return a table without keys and without room for any."""
    return ByteTable(np.zeros(1, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.uint8))


def frozen_table(table: ByteTable) -> ByteTable:
    """Return the table for readers: the same memory, read-only."""
    return ByteTable(
        read_only(table.slot, np.uint64),
        read_only(table.span, np.uint64),
        read_only(table.key, np.uint8),
    )
