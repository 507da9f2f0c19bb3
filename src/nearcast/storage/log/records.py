"""The records of a log as bytes.

::

    length  u32   of the body
    crc     u32   of everything else in the record
    seq     u64   records are numbered one by one
    group   u64   the first seq of the group that was written with this record
    epoch   u32   how often the log had been opened for writing
    kind    u16   what the body is; the log does not care
    zero    u16
    body          padded with zeros to a multiple of 8

A group is written only when the one before is on the disk. So if a record can be read, every record
of an earlier group could be read when it was written: where one cannot any more, the disk has
lost something that was acknowledged. What cannot be read at the end, with nothing of a later group
behind it, was never acknowledged.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ALIGNMENT",
    "HEADER_BYTES",
    "MAX_BODY_BYTES",
    "Entry",
    "Found",
    "Record",
    "encode",
    "read_at",
    "record_bytes",
    "records_after",
]

_HEADER = struct.Struct("<IIQQIHH")
_CHECKED = struct.Struct("<QQIHH")
HEADER_BYTES = _HEADER.size
ALIGNMENT = 8
MAX_BODY_BYTES = (1 << 31) - 1

Entry = tuple[int, bytes]
"""What callers append: a kind, and a body."""


class Record(NamedTuple):
    """An entry of a log, with its number."""

    seq: int
    kind: int
    body: bytes
    epoch: int = 0


class Found(NamedTuple):
    """A record in a buffer, the group that it belongs to, and where the next one begins."""

    record: Record
    group: int
    end: int


def record_bytes(body_bytes: int) -> int:
    """Return how many bytes a record takes."""
    return HEADER_BYTES + -(-body_bytes // ALIGNMENT) * ALIGNMENT


def encode(entries: Sequence[Entry], seq: int, epoch: int) -> bytes:
    """Return entries as one group of records, numbered from ``seq`` on."""
    pieces = []
    for number, (kind, body) in enumerate(entries, seq):
        checked = _CHECKED.pack(number, seq, epoch, kind, 0)
        pieces += [
            struct.pack("<II", len(body), _crc(len(body), checked, body)),
            checked,
            body,
            bytes(-len(body) % ALIGNMENT),
        ]
    return b"".join(pieces)


def read_at(buffer: bytes | memoryview, at: int) -> Found | None:
    """Return the record at a position; None if there is none, or it is damaged."""
    if at + HEADER_BYTES > len(buffer):
        return None
    length, crc, seq, group, epoch, kind, _ = _HEADER.unpack_from(buffer, at)
    end = at + record_bytes(length)
    if seq == 0 or length > MAX_BODY_BYTES or end > len(buffer):
        return None
    begin = at + HEADER_BYTES
    body = bytes(buffer[begin : begin + length])
    if crc != _crc(length, bytes(buffer[at + 8 : begin]), body):
        return None
    return Found(Record(seq, kind, body, epoch), group, end)


def records_after(buffer: bytes | memoryview, at: int) -> Iterator[Found]:
    """Yield all records that begin at this position or later, whatever lies between them."""
    last = len(bytes(buffer).rstrip(b"\0"))  # nothing but zeros follows
    while at < last:
        found = read_at(buffer, at)
        if found is None:
            at += ALIGNMENT
        else:
            yield found
            at = found.end


def _crc(length: int, checked: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(checked, zlib.crc32(length.to_bytes(4, "little"))))
