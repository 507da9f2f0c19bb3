"""The records of the server's log: what a body holds, and how it is read.

::

    body      time_us i64, then, by kind:
    MESSAGES  length u32, head (msgpack: tenant, idempotency), n u32, n lengths u32, n texts of JSON
    CHANGES   msgpack: tenant, list of changes of subscriptions
    MOVES     msgpack: tenant, list of (subscription id, place)
    ADMIN     msgpack: one change of a tenant, a key, the settings of a subscriber or a sink
    TICK      nothing: time passes
    MATCHES   msgpack: matches that another system found, and how far its output was read
    CLOCK     msgpack: by how much the time of records is ahead of the machine's clock from here on

The time is that of the group in which the record was committed, and the only one that matching
knows. It never decreases, except after a CLOCK that says so; see `nearcast.server.log.clocks`.
Every message, change and move has a number (seq) of its own.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from nearcast.storage.log import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.storage.log import Record

__all__ = [
    "ADMIN",
    "CHANGES",
    "CLOCK",
    "MATCHES",
    "MAX_COUNT",
    "MESSAGES",
    "MOVES",
    "TICK",
    "Change",
    "ClockBody",
    "Definition",
    "Idempotency",
    "MatchesBody",
    "MessagesBody",
    "SinkDefinition",
    "admin_body",
    "changes_body",
    "clock_body",
    "matches_body",
    "message_at",
    "message_starts",
    "messages_body",
    "moves_body",
    "read_admin",
    "read_changes",
    "read_clock",
    "read_matches",
    "read_messages_body",
    "read_moves_body",
    "time_of",
    "timed",
]

MESSAGES, CHANGES, MOVES, ADMIN, TICK, MATCHES, CLOCK = range(1, 8)
MAX_COUNT = 65_536
"""The maximum number of messages, changes or moves of a record."""

_TIME = struct.Struct("<q")
_LENGTH = struct.Struct("<I")


class Idempotency(NamedTuple):
    """An idempotency key, a digest of the request, and the answer that was given to it."""

    key: str
    digest: bytes
    answer: bytes


class MessagesBody(NamedTuple):
    """Messages of one tenant; each is an object of JSON, in its canonical form."""

    time_us: int
    tenant: int
    messages: list[bytes]
    idempotency: Idempotency | None = None


class SinkDefinition(msgspec.Struct, frozen=True, gc=False):
    """Where the events of a subscription are sent: a URL, secrets to sign with, more headers."""

    url: str
    secrets: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class Definition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A subscription, as the log has it.

    Attributes
    ----------
    subscriber
        Whose it is.
    row
        The columns of a file of subscriptions, without id, owner, scope and expiry.
    box
        West, south, east and north of its region, in degrees; across the antimeridian, west > east.
    kind
        ``boolean``, ``proximity`` or ``overlap``.
    given
        The resource as the client gave it.
    sink, types
        Where events are sent to; the types of events that are wanted, None for all of them.
    expires_us, max_events
        When it ends, if ever.
    initial
        Whether messages that are alive already count.
    dwell_us
        How long a change must last that a move causes.
    active
        Whether it is matched at all; otherwise it is paused.
    """

    subscriber: str
    row: dict[str, Any]
    box: tuple[float, float, float, float]
    kind: str
    given: dict[str, Any]
    sink: SinkDefinition | None = None
    types: tuple[str, ...] | None = None
    expires_us: int | None = None
    max_events: int = 0
    initial: bool = False
    dwell_us: int = 0
    active: bool = True


class Change(NamedTuple):
    """A change of a subscription.

    Attributes
    ----------
    id
        The id of the subscription; None if the server chooses one.
    definition
        What it is from now on; None deletes it.
    expected
        Which version it must have; 0 if it must not exist, None if that does not matter.
    must_exist
        Whether the change is refused if there is no such subscription.
    """

    id: str | None
    definition: Definition | None
    expected: int | None = None
    must_exist: bool = False


class ChangesBody(NamedTuple):
    """Changes of subscriptions of one tenant."""

    time_us: int
    tenant: int
    changes: list[Change]


class MovesBody(NamedTuple):
    """Moves of subscriptions of one tenant: ids, and places as columns of a file of moves."""

    time_us: int
    tenant: int
    moves: list[tuple[str, dict[str, Any]]]


class AdminBody(NamedTuple):
    """A change of a tenant, a key, a subscriber or a sink: ``change["op"]`` says which."""

    time_us: int
    change: dict[str, Any]


class ClockBody(NamedTuple):
    """By how much records are ahead of the clock, and by how much their time has gone back."""

    time_us: int
    lead_us: int
    back_us: int


class MatchesBody(NamedTuple):
    """Matches that another system found.

    Attributes
    ----------
    time_us
        The time of the record.
    offsets
        How far the output of that system was read, with these matches: the next offset by number of
        partition.
    message, handle, score
        The number of the message, the subscription, and the score (NaN if there is no ranking).
    version
        Which version of the subscription matched; see `nearcast.server.matching.remote`.
    """

    time_us: int
    offsets: dict[int, int]
    message: NDArray[np.int64]
    handle: NDArray[np.int64]
    version: NDArray[np.int64]
    score: NDArray[np.float64]


_pack = msgspec.msgpack.Encoder().encode
_read_matches = msgspec.msgpack.Decoder(tuple[dict[int, int], bytes, bytes, bytes, bytes]).decode
_read_head = msgspec.msgpack.Decoder(tuple[int, Idempotency | None]).decode
_read_changes = msgspec.msgpack.Decoder(tuple[int, list[Change]]).decode
_read_moves = msgspec.msgpack.Decoder(tuple[int, list[tuple[str, dict[str, Any]]]]).decode
_read_clock = msgspec.msgpack.Decoder(tuple[int, int]).decode
_read_admin = msgspec.msgpack.Decoder(dict[str, Any]).decode


def messages_body(
    tenant: int, messages: Sequence[bytes], idempotency: Idempotency | None = None
) -> Entry:
    """Return messages as an entry without its time."""
    head = _pack((tenant, idempotency))
    lengths = np.fromiter(map(len, messages), "<u4", len(messages)).tobytes()
    body = b"".join(
        [_LENGTH.pack(len(head)), head, _LENGTH.pack(len(messages)), lengths, *messages]
    )
    return Entry(MESSAGES, body, len(messages))


def changes_body(tenant: int, changes: Sequence[Change]) -> Entry:
    """Return changes of subscriptions as an entry without its time."""
    return Entry(CHANGES, _pack((tenant, changes)), len(changes))


def moves_body(tenant: int, moves: Sequence[tuple[str, dict[str, Any]]]) -> Entry:
    """Return moves as an entry without its time."""
    return Entry(MOVES, _pack((tenant, moves)), len(moves))


def admin_body(change: dict[str, Any]) -> Entry:
    """Return a change of a tenant, a key or a subscriber as an entry without its time."""
    return Entry(ADMIN, _pack(change), 1)


def matches_body(
    offsets: dict[int, int],
    message: NDArray[np.int64],
    handle: NDArray[np.int64],
    version: NDArray[np.int64],
    score: NDArray[np.float64],
) -> Entry:
    """Return matches as an entry without its time; see `MatchesBody`."""
    columns = (message, handle, version, score)
    return Entry(MATCHES, _pack((offsets, *(column.tobytes() for column in columns))), 1)


def clock_body(lead_us: int, back_us: int) -> Entry:
    """Return what a log says of its clock as an entry without its time; see `ClockBody`."""
    return Entry(CLOCK, _pack((lead_us, back_us)), 1)


def timed(entry: Entry, time_us: int) -> Entry:
    """Return an entry with its time."""
    return Entry(entry.kind, _TIME.pack(time_us) + entry.body, entry.count)


def time_of(record: Record) -> int:
    """Return the time of a record, in microseconds since 1970."""
    return int(_TIME.unpack_from(record.body)[0])


def _messages_layout(body: bytes) -> tuple[int, Idempotency | None, np.ndarray[Any, Any], int]:
    """Return tenant, idempotency, the lengths of the messages, and where the first one begins."""
    head_end = _TIME.size + _LENGTH.size + _LENGTH.unpack_from(body, _TIME.size)[0]
    tenant, idempotency = _read_head(body[_TIME.size + _LENGTH.size : head_end])
    count = _LENGTH.unpack_from(body, head_end)[0]
    lengths = np.frombuffer(body, "<u4", count, head_end + _LENGTH.size)
    return tenant, idempotency, lengths, head_end + _LENGTH.size + 4 * count


def read_messages_body(record: Record) -> MessagesBody:
    """Return the messages of a record."""
    body = record.body
    tenant, idempotency, lengths, begin = _messages_layout(body)
    ends = (begin + np.cumsum(lengths, dtype=np.int64)).tolist()
    starts = [begin, *ends[:-1]]
    messages = [body[a:b] for a, b in zip(starts, ends, strict=True)]
    return MessagesBody(time_of(record), tenant, messages, idempotency)


def message_at(record: Record, seq: int) -> tuple[int, bytes]:
    """Return the tenant and the JSON of one message of a record."""
    tenant, _, lengths, begin = _messages_layout(record.body)
    number = seq - record.seq
    at = begin + int(lengths[:number].sum(dtype=np.int64))
    return tenant, record.body[at : at + int(lengths[number])]


def message_starts(record: Record) -> list[int]:
    """Return where each message of a record begins in its body, and where the last one ends."""
    _, _, lengths, begin = _messages_layout(record.body)
    starts: list[int] = (begin + np.cumsum(lengths, dtype=np.int64)).tolist()
    return [begin, *starts]


def read_changes(record: Record) -> ChangesBody:
    """Return the changes of a record."""
    return ChangesBody(time_of(record), *_read_changes(record.body[_TIME.size :]))


def read_moves_body(record: Record) -> MovesBody:
    """Return the moves of a record."""
    return MovesBody(time_of(record), *_read_moves(record.body[_TIME.size :]))


def read_admin(record: Record) -> AdminBody:
    """Return the change of a tenant, a key or a subscriber of a record."""
    return AdminBody(time_of(record), _read_admin(record.body[_TIME.size :]))


def read_clock(record: Record) -> ClockBody:
    """Return what a record says of the clock."""
    return ClockBody(time_of(record), *_read_clock(record.body[_TIME.size :]))


def read_matches(record: Record) -> MatchesBody:
    """Return the matches of a record."""
    offsets, message, handle, version, score = _read_matches(record.body[_TIME.size :])
    return MatchesBody(
        time_of(record),
        offsets,
        np.frombuffer(message, np.int64),
        np.frombuffer(handle, np.int64),
        np.frombuffer(version, np.int64),
        np.frombuffer(score, np.float64),
    )
