"""The records of a log as bytes.

::

    length  u32   of the body
    crc     u32   of everything else in the record
    seq     u64   the first number of the record
    group   u64   the first seq of the group that was written with this record
    epoch   u32   of the opening of the log that wrote the record
    kind    u16   what the body is; the log does not care
    more    u16   how many numbers the record has beyond the first
    body          padded with zeros to a multiple of 8

Numbers have no holes: a record of count n has the numbers from ``seq`` to ``seq + n - 1``, and the
next record begins at ``seq + n``.

A group is written only when the one before is on the disk. So if a record can be read, every record
of an earlier group could be read when it was written: where one cannot any more, the disk has
lost something that was acknowledged. What cannot be read at the end, with nothing of a later group
behind it, was never acknowledged.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ALIGNMENT",
    "HEADER_BYTES",
    "MARK_BYTES",
    "MAX_BODY_BYTES",
    "MAX_COUNT",
    "Entry",
    "Found",
    "Gap",
    "Group",
    "Record",
    "Sizes",
    "encode",
    "find_at",
    "measure",
    "read_at",
    "record_bytes",
    "records_after",
    "scan",
]

_HEADER = struct.Struct("<IIQQIHH")
_CHECKED = struct.Struct("<IQQIHH")
HEADER_BYTES = _HEADER.size
ALIGNMENT = 8
MAX_BODY_BYTES = (1 << 31) - 1
MAX_COUNT = 1 << 16
MARK_BYTES = 2048
"""A mark, a number and its position, is kept about once in as many bytes of records."""

_PADDING = [bytes(-length % ALIGNMENT) for length in range(ALIGNMENT)]


class Entry(NamedTuple):
    """What callers append: a kind, a body, and how many numbers it takes."""

    kind: int
    body: bytes
    count: int = 1  # type: ignore[assignment]


class Record(NamedTuple):
    """An entry of a log, with its first number."""

    seq: int
    kind: int
    body: bytes
    epoch: int = 0
    count: int = 1  # type: ignore[assignment]

    @property
    def last_seq(self) -> int:
        """The last number of the record."""
        return self.seq + self.count - 1


class Found(NamedTuple):
    """Where an intact record lies in a buffer, and what its header says."""

    at: int
    end: int
    length: int
    seq: int
    group: int
    epoch: int
    kind: int
    count: int  # type: ignore[assignment]

    def record(self, buffer: memoryview) -> Record:
        """Return the record, given the buffer."""
        begin = self.at + HEADER_BYTES
        body = bytes(buffer[begin : begin + self.length])
        return Record(self.seq, self.kind, body, self.epoch, self.count)


class Gap(NamedTuple):
    """Records that should begin at a position in a buffer and cannot be read: their numbers."""

    at: int
    first: int
    last: int


class Sizes(NamedTuple):
    """What entries take: bytes of the log, and numbers."""

    size: int
    numbers: int


class Group(NamedTuple):
    """Entries as bytes, and marks: numbers of some records, and where these begin in the bytes."""

    data: bytes
    marks: list[tuple[int, int]]


def record_bytes(body_bytes: int) -> int:
    """Return how many bytes a record takes."""
    return HEADER_BYTES + -(-body_bytes // ALIGNMENT) * ALIGNMENT


def measure(entries: Sequence[Entry]) -> Sizes:
    """Return what entries take.

    Raises
    ------
    InvalidInput
        If one has an invalid kind or count, or a body that is too long.
    """
    size = numbers = 0
    for kind, body, count in entries:
        if len(body) > MAX_BODY_BYTES or not 0 <= kind < 1 << 16:
            raise InvalidInput("entry", kind, "must have a kind of 16 bits, and at most 2 GB")
        if not 1 <= count <= MAX_COUNT:
            raise InvalidInput("count", count, f"must be from 1 to {MAX_COUNT:,}")
        size += (len(body) + 7) & -8
        numbers += count
    return Sizes(size + HEADER_BYTES * len(entries), numbers)


def encode(entries: Sequence[Entry], seq: int, epoch: int) -> Group:
    """Return entries as one group of records, numbered from ``seq`` on.

    Examples
    --------
    >>> group = encode([Entry(1, b"three messages", 3), Entry(1, b"one")], seq=8, epoch=1)
    >>> read_at(group.data, 0)
    Record(seq=8, kind=1, body=b'three messages', epoch=1, count=3)
    >>> read_at(group.data, record_bytes(14)).seq
    11
    """
    pieces: list[bytes] = []
    marks: list[tuple[int, int]] = []
    crc32, checked, header = zlib.crc32, _CHECKED.pack, _HEADER.pack
    group, at, marked = seq, 0, -MARK_BYTES
    for kind, body, count in entries:
        if at - marked >= MARK_BYTES:
            marks.append((seq, at))
            marked = at
        length = len(body)
        crc = crc32(body, crc32(checked(length, seq, group, epoch, kind, count - 1)))
        padding = _PADDING[length & 7]
        pieces += (header(length, crc, seq, group, epoch, kind, count - 1), body, padding)
        at += HEADER_BYTES + length + len(padding)
        seq += count
    return Group(b"".join(pieces), marks)


def find_at(buffer: memoryview, at: int) -> Found | None:
    """Return the place of the record at a position; None if there is none, or it is damaged."""
    begin = at + HEADER_BYTES
    if begin > len(buffer):
        return None
    length, crc, seq, group, epoch, kind, more = _HEADER.unpack_from(buffer, at)
    end = begin + ((length + 7) & -8)
    if seq == 0 or length > MAX_BODY_BYTES or end > len(buffer):
        return None
    head = zlib.crc32(_CHECKED.pack(length, seq, group, epoch, kind, more))
    if crc != zlib.crc32(buffer[begin : begin + length], head):
        return None
    return Found(at, end, length, seq, group, epoch, kind, more + 1)


def read_at(buffer: bytes | memoryview, at: int) -> Record | None:
    """Return the record at a position; None if there is none, or it is damaged."""
    view = memoryview(buffer)
    found = find_at(view, at)
    return None if found is None else found.record(view)


def records_after(buffer: bytes | memoryview, at: int) -> Iterator[Found]:
    """Yield all records that begin at this position or later, whatever lies between them."""
    view = memoryview(buffer)
    last = len(bytes(view).rstrip(b"\0"))  # nothing but zeros follows
    while at < last:
        found = find_at(view, at)
        if found is None:
            at += ALIGNMENT
        else:
            yield found
            at = found.end


def scan(
    buffer: bytes | memoryview, seq: int, *, after: int | None, acknowledged: int
) -> Iterator[Found | Gap]:
    """Yield the records of a segment in their order, and a gap where some cannot be read.

    Parameters
    ----------
    buffer, seq
        The segment, and the number that it begins with.
    after
        The first number of the next segment; None for the last segment, whose end may be torn.
    acknowledged
        A number up to which everything was on disk once. Records of the last segment that cannot
        be read and come later are no gap unless a later group can be read.
    """
    view, at = memoryview(buffer), 0
    while after is None or seq < after:
        found = find_at(view, at)
        if found is None or found.seq != seq:
            later = [later for later in records_after(view, at) if later.seq > seq]
            torn = seq > acknowledged and not any(found.group > seq for found in later)
            if after is None and torn:
                return
            stop = acknowledged + 1 if after is None else after
            found = next((one for one in later if after is None or one.seq < after), None)
            yield Gap(at, seq, (stop if found is None else found.seq) - 1)
            if found is None:
                return
        yield found
        seq, at = found.seq + found.count, found.end
