"""The tables of the state: a NamedTuple per row, and what the database needs to know of it.

Every row ends with the CRC-32 of its other columns. It is checked whenever the row is read, so a
damaged file raises a `StorageError` that names the table and the row, and never gives wrong data.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

from nearcast.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ATTEMPTS",
    "CHANNELS",
    "COUNTS",
    "CURSORS",
    "DEAD_LETTERS",
    "DEFINITIONS",
    "IDEMPOTENCY",
    "KEYS",
    "KEY_USES",
    "META",
    "PLACES",
    "RECENT_SENDS",
    "SECRETS",
    "SINKS",
    "SINK_PROGRESS",
    "SUBSCRIBERS",
    "SUPERSEDED",
    "TABLES",
    "TENANTS",
    "Attempt",
    "Channel",
    "Count",
    "Cursor",
    "DeadLetter",
    "Definition",
    "Idempotency",
    "Key",
    "KeyUse",
    "Meta",
    "RecentSends",
    "Secret",
    "Sink",
    "SinkProgress",
    "Subscriber",
    "Superseded",
    "Table",
    "Tenant",
    "Value",
]

Value = int | float | str | bytes | None
"""What a column holds."""

Row = TypeVar("Row", bound=tuple[Any, ...])


class Definition(NamedTuple):
    """A subscription as it was given, with what is needed to find it."""

    handle: int
    tenant: int
    external_id: str
    subscriber: str
    sink_id: str | None
    definition: bytes
    status: str
    version: int
    """The sequence number of the last change."""
    defined_seq: int
    """The sequence number of the last change of ``definition``; status changes do not count."""
    created_us: int
    updated_us: int
    expires_us: int | None
    west: float
    south: float
    east: float
    """Less than ``west`` if the box crosses the antimeridian."""
    north: float
    kind: str
    cell: int
    """The quadtree cell of the box, see `nearcast.server.state.cells`."""
    place: bytes | None = None
    """Where it has moved since it was defined."""


class Place(NamedTuple):
    """Where a subscription moved, and in which record."""

    handle: int
    seq: int
    place: bytes


class Superseded(NamedTuple):
    """A definition that was replaced: valid from ``from_seq``, no longer at ``to_seq``."""

    handle: int
    from_seq: int
    to_seq: int
    definition: bytes


class Tenant(NamedTuple):
    """A tenant and its limits."""

    number: int
    name: str
    limits: dict[str, object]
    created_us: int


class Key(NamedTuple):
    """An API key; only the hash of its secret is kept."""

    id: str
    tenant: int
    sha256: bytes
    roles: tuple[str, ...]
    subscriber: str | None
    name: str
    created_us: int
    revoked_us: int | None = None


class KeyUse(NamedTuple):
    """When a key was last used. Apart from the key, because it does not come from the log."""

    id: str
    last_used_us: int


class Secret(NamedTuple):
    """A secret of the server itself, such as the one that signs tokens."""

    name: str
    value: bytes


class Subscriber(NamedTuple):
    """A subscriber, the channel of its events, and its delivery settings."""

    tenant: int
    name: str
    channel: int
    settings: dict[str, object]


class Channel(NamedTuple):
    """Whose events a channel holds: those of a subscriber, or of a sink if ``sink_id`` is set."""

    number: int
    tenant: int
    subscriber: str
    sink_id: str | None = None


class Sink(NamedTuple):
    """A webhook: where to send, how to sign, and the position where sending starts."""

    id: str
    tenant: int
    subscriber: str
    url: str
    secrets: tuple[str, ...]
    headers: dict[str, str]
    channel: int
    start_seq: int
    start_k: int
    created_us: int


class SinkProgress(NamedTuple):
    """How far a sink is. Apart from the sink, because it does not come from the log."""

    id: str
    seq: int
    k: int
    attempts: int = 0
    next_try_us: int = 0
    send_times_us: tuple[int, ...] = ()
    """When the last events were sent, for caps."""
    status: str = "ENABLED"
    reason: str | None = None


class Attempt(NamedTuple):
    """One try to send an event to a sink. ``number`` counts the tries of the sink."""

    sink_id: str
    number: int
    time_us: int
    event_id: str
    status: int | None
    """The HTTP status; None if there was no answer."""
    error: str | None
    duration_us: int


class DeadLetter(NamedTuple):
    """An event that was given up."""

    sink_id: str
    seq: int
    k: int
    event_id: str
    reason: str
    time_us: int


class Cursor(NamedTuple):
    """A cursor that the server keeps for a subscriber."""

    tenant: int
    subscriber: str
    name: str
    value: str
    updated_us: int


class RecentSends(NamedTuple):
    """When events were sent to the streams of a subscriber, as far as its cap needs to know.

    ``seq`` and ``k`` are the position of the last one.
    """

    channel: int
    seq: int
    k: int
    send_times_us: tuple[int, ...]


class Idempotency(NamedTuple):
    """The answer to a request with an idempotency key."""

    tenant: int
    key: str
    fingerprint: bytes
    first_seq: int
    last_seq: int
    response: bytes
    time_us: int


class Count(NamedTuple):
    """How many definitions of a tenant have a status."""

    tenant: int
    status: str
    definitions: int


class Meta(NamedTuple):
    """A number of the state itself: ``schema_version``, ``applied_seq``."""

    name: str
    value: int


_encode = msgspec.msgpack.Encoder().encode
_PLAIN = {"int": int, "float": float, "str": str, "bytes": bytes}


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A table whose rows are NamedTuples.

    Parameters
    ----------
    name
        The name in the database.
    row
        The NamedTuple. Columns that are not int, float, str or bytes are stored as JSON.
    key
        The columns of the primary key.
    indexes
        The statements that create further indexes.
    """

    name: str
    row: Callable[..., Row]
    key: tuple[str, ...]
    indexes: tuple[str, ...] = ()
    columns: tuple[str, ...] = field(init=False)
    kinds: tuple[str, ...] = field(init=False)
    """int, float, str or bytes, for each column and the checksum."""
    _json: tuple[tuple[int, msgspec.json.Decoder[Any]], ...] = field(init=False)
    _seed: int = field(init=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.row)
        written = {name: str(hint).removesuffix(" | None") for name, hint in hints.items()}
        kinds = [
            hint.__name__ if hint in _PLAIN.values() else written[name]
            for name, hint in hints.items()
        ]
        decoders = [
            (i, msgspec.json.Decoder(hint))
            for i, (hint, kind) in enumerate(zip(hints.values(), kinds, strict=True))
            if kind not in _PLAIN
        ]
        stored = [kind if kind in _PLAIN else "str" for kind in kinds]
        object.__setattr__(self, "columns", tuple(hints))
        object.__setattr__(self, "kinds", (*stored, "int"))
        object.__setattr__(self, "_json", tuple(decoders))
        object.__setattr__(self, "_seed", zlib.crc32(self.name.encode()))

    @property
    def selected(self) -> str:
        """The columns of a SELECT whose rows `unpack` reads."""
        return ", ".join((*self.columns, "crc"))

    @property
    def upsert(self) -> str:
        """The statement that inserts a packed row, or replaces the one with the same key."""
        columns = (*self.columns, "crc")
        changed = ", ".join(f"{c} = excluded.{c}" for c in columns if c not in self.key)
        return (
            f"INSERT INTO {self.name} ({', '.join(columns)}) "
            f"VALUES ({', '.join('?' * len(columns))}) "
            f"ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {changed}"
        )

    def pack(self, row: Row) -> tuple[Value, ...]:
        """Return a row as it is stored, with its checksum."""
        values: tuple[Value, ...] = row
        if self._json:
            changed = list(row)
            for i, _ in self._json:
                changed[i] = msgspec.json.encode(row[i]).decode()
            values = tuple(changed)
        return (*values, zlib.crc32(_encode(values), self._seed))

    def unpack(self, stored: Sequence[Value]) -> Row:
        """Return a stored row; raise `StorageError` if its checksum is wrong."""
        values = tuple(stored[:-1])
        try:
            right = zlib.crc32(_encode(values), self._seed) == stored[-1]
        except (TypeError, ValueError, OverflowError):
            right = False
        if not right:
            raise self.damaged(dict(zip(self.columns, values, strict=True)), "has a wrong checksum")
        if self._json:
            changed: list[object] = list(values)
            for i, decoder in self._json:
                changed[i] = decoder.decode(str(values[i]))
            return self.row(*changed)
        return self.row(*values)

    def damaged(self, values: dict[str, Value], problem: str) -> StorageError:
        """Return the error for a row, named by its key."""
        key = ", ".join(f"{name}={values[name]!r}" for name in self.key)
        return StorageError(
            f"table {self.name}: the row {key} {problem}; the database is damaged, restore a backup"
        )


DEFINITIONS = Table(
    "definitions",
    Definition,
    ("handle",),
    (
        "CREATE INDEX definitions_tenant ON definitions (tenant, handle)",
        "CREATE INDEX definitions_subscriber ON definitions (tenant, subscriber, handle)",
        "CREATE INDEX definitions_cell ON definitions (tenant, cell)",
        "CREATE UNIQUE INDEX definitions_external_id ON definitions (tenant, external_id) "
        "WHERE status <> 'DELETED'",
        "CREATE INDEX definitions_deleted ON definitions (version) WHERE status = 'DELETED'",
    ),
)
SUPERSEDED = Table("superseded", Superseded, ("handle", "from_seq"))
PLACES = Table("places", Place, ("handle", "seq"))
TENANTS = Table("tenants", Tenant, ("number",))
KEYS = Table("api_keys", Key, ("id",))
KEY_USES = Table("key_uses", KeyUse, ("id",))
SECRETS = Table("secrets", Secret, ("name",))
SUBSCRIBERS = Table("subscribers", Subscriber, ("tenant", "name"))
CHANNELS = Table("channels", Channel, ("number",))
SINKS = Table("sinks", Sink, ("id",))
SINK_PROGRESS = Table("sink_progress", SinkProgress, ("id",))
ATTEMPTS = Table("attempts", Attempt, ("sink_id", "number"))
DEAD_LETTERS = Table("dead_letters", DeadLetter, ("sink_id", "seq", "k"))
CURSORS = Table("cursors", Cursor, ("tenant", "subscriber", "name"))
RECENT_SENDS = Table("recent_sends", RecentSends, ("channel",))
IDEMPOTENCY = Table("idempotency", Idempotency, ("tenant", "key"))
COUNTS = Table("counts", Count, ("tenant", "status"))
META = Table("meta", Meta, ("name",))

TABLES: tuple[Table[Any], ...] = (
    META,
    DEFINITIONS,
    SUPERSEDED,
    PLACES,
    COUNTS,
    TENANTS,
    KEYS,
    KEY_USES,
    SECRETS,
    SUBSCRIBERS,
    CHANNELS,
    SINKS,
    SINK_PROGRESS,
    ATTEMPTS,
    DEAD_LETTERS,
    CURSORS,
    RECENT_SENDS,
    IDEMPOTENCY,
)


def create_statements(types: dict[str, str], without_rowid: str = "") -> list[str]:
    """Return the statements that create all tables, with a database's names for the types."""
    made = []
    for table in TABLES:
        names = (*table.columns, "crc")
        columns = ", ".join(f"{n} {types[k]}" for n, k in zip(names, table.kinds, strict=True))
        suffix = "" if table is DEFINITIONS else without_rowid
        made.append(
            f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY ({', '.join(table.key)})){suffix}"
        )
        made += table.indexes
    return made
