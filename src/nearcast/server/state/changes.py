"""What a stretch of the log changes in the state, and how it is written.

Every change has the sequence number of its record. A change whose number is not above
``applied_seq`` was written before and is skipped: replaying a stretch gives the same state.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.errors import StorageError
from nearcast.server.state.cells import Box, cells_of_boxes
from nearcast.server.state.tables import (
    ATTEMPTS,
    CHANNELS,
    COUNTS,
    DEAD_LETTERS,
    DEFINITIONS,
    IDEMPOTENCY,
    KEYS,
    PLACES,
    SINK_PROGRESS,
    SINKS,
    SUBSCRIBERS,
    SUPERSEDED,
    TENANTS,
    Channel,
    Count,
    Definition,
    Idempotency,
    Key,
    Place,
    Sink,
    SinkProgress,
    Subscriber,
    Superseded,
    Table,
    Tenant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nearcast.server.state.database import Transaction

__all__ = [
    "ACTIVE",
    "DELETED",
    "EXPIRED",
    "INACTIVE",
    "STATUSES",
    "Change",
    "DisableSink",
    "PutChannel",
    "PutDefinition",
    "PutIdempotency",
    "PutKey",
    "PutPlace",
    "PutSink",
    "PutSubscriber",
    "PutTenant",
    "RemoveSink",
    "RevokeKey",
    "SetStatus",
    "start_of_sink",
    "update_progress",
    "write_changes",
]

ACTIVE = "ACTIVE"
INACTIVE = "INACTIVE"
EXPIRED = "EXPIRED"
DELETED = "DELETED"
STATUSES = (ACTIVE, INACTIVE, EXPIRED, DELETED)

_BATCH = 20_000
_LOOKED_UP = 500
"""How many rows one query looks up by key."""


class PutDefinition(NamedTuple):
    """A subscription was created or changed."""

    seq: int
    handle: int
    tenant: int
    external_id: str
    subscriber: str
    sink_id: str | None
    definition: bytes
    status: str
    time_us: int
    expires_us: int | None
    box: Box
    kind: str


class SetStatus(NamedTuple):
    """A subscription was paused, resumed, expired or deleted."""

    seq: int
    handle: int
    status: str
    time_us: int


class PutPlace(NamedTuple):
    """A subscription moved; ``box`` is that of its new place."""

    seq: int
    handle: int
    place: bytes
    time_us: int
    box: Box


class PutTenant(NamedTuple):
    """A tenant was created, or its name or limits changed."""

    seq: int
    row: Tenant


class PutKey(NamedTuple):
    """An API key was made."""

    seq: int
    row: Key


class RevokeKey(NamedTuple):
    """An API key is no longer valid. Revoking an unknown key changes nothing."""

    seq: int
    id: str
    revoked_us: int


class PutSubscriber(NamedTuple):
    """A subscriber was seen for the first time, or its delivery settings changed."""

    seq: int
    row: Subscriber


class PutChannel(NamedTuple):
    """A channel got its number."""

    seq: int
    row: Channel


class PutSink(NamedTuple):
    """A sink was created or changed; its start, its progress and when it was created stay."""

    seq: int
    row: Sink


class DisableSink(NamedTuple):
    """The receiver of a sink wants nothing any more."""

    seq: int
    id: str
    reason: str


class RemoveSink(NamedTuple):
    """A sink is removed, with its progress, attempts and dead letters."""

    seq: int
    id: str


class PutIdempotency(NamedTuple):
    """A request with an idempotency key was answered."""

    seq: int
    row: Idempotency


Change = (
    PutDefinition
    | SetStatus
    | PutPlace
    | PutTenant
    | PutKey
    | RevokeKey
    | PutSubscriber
    | PutChannel
    | PutSink
    | DisableSink
    | RemoveSink
    | PutIdempotency
)

_TABLE_OF: dict[type[Any], Table[Any]] = {
    PutTenant: TENANTS,
    PutSubscriber: SUBSCRIBERS,
    PutChannel: CHANNELS,
    PutIdempotency: IDEMPOTENCY,
}


def write_changes(transaction: Transaction, changes: Sequence[Change]) -> None:
    """Write changes that come in the order of the log."""
    definitions = [c for c in changes if isinstance(c, (PutDefinition, SetStatus, PutPlace))]
    with _indexes_rebuilt(transaction, len(definitions)):
        for start in range(0, len(definitions), _BATCH):
            _write_definitions(transaction, definitions[start : start + _BATCH])
    for change in changes:
        if isinstance(change, (PutDefinition, SetStatus, PutPlace)):
            continue
        if isinstance(change, RevokeKey):
            _revoke(transaction, change)
        elif isinstance(change, DisableSink):
            _disable_sink(transaction, change)
        elif isinstance(change, RemoveSink):
            _remove_sink(transaction, change.id)
        elif isinstance(change, PutSink):
            _put_sink(transaction, change.row)
        elif isinstance(change, PutKey):
            transaction.execute(KEYS.upsert, KEYS.pack(change.row))
    for kind, table in _TABLE_OF.items():
        rows = [row for change in changes if type(change) is kind for row in change[1:]]
        transaction.execute_many(table.upsert, map(table.pack, rows))


@contextmanager
def _indexes_rebuilt(transaction: Transaction, rows: int) -> Iterator[None]:
    """Write definitions without indexes and build these at the end, if that is faster."""
    if rows < _BATCH or rows < 2 * transaction.execute("SELECT COUNT(*) FROM definitions")[0][0]:
        yield
        return
    for statement in DEFINITIONS.indexes:
        transaction.execute(f"DROP INDEX {statement.partition(' ON ')[0].split()[-1]}")
    yield
    for statement in DEFINITIONS.indexes:
        transaction.execute(statement)


def _write_definitions(
    transaction: Transaction, changes: Sequence[PutDefinition | SetStatus | PutPlace]
) -> None:
    puts = [change for change in changes if isinstance(change, PutDefinition)]
    moved = [change for change in changes if isinstance(change, PutPlace)]
    defined = _defined(puts)
    handles = {change.handle for change in changes}
    before = _existing(transaction, handles)
    if not before and len(handles) == len(puts) == len(changes):
        # Nothing but new ones, as an import has them: no row is kept in memory.
        transaction.execute_many(DEFINITIONS.upsert, map(DEFINITIONS.pack, defined))
        add_counts(transaction, Counter((put.tenant, put.status) for put in puts))
        return
    after, superseded = _changed(changes, before, defined)
    # Deleted ones first: they free their external ids.
    ordered = sorted(after.values(), key=lambda row: row.status != DELETED)
    transaction.execute_many(DEFINITIONS.upsert, map(DEFINITIONS.pack, ordered))
    transaction.execute_many(SUPERSEDED.upsert, map(SUPERSEDED.pack, superseded))
    places = [Place(change.handle, change.seq, change.place) for change in moved]
    transaction.execute_many(PLACES.upsert, map(PLACES.pack, places))
    counts = Counter((row.tenant, row.status) for row in after.values())
    counts.subtract((row.tenant, row.status) for row in before.values())
    add_counts(transaction, counts)


def _changed(
    changes: Sequence[PutDefinition | SetStatus | PutPlace],
    stored: dict[int, Definition],
    defined: Iterator[Definition],
) -> tuple[dict[int, Definition], list[Superseded]]:
    """Return the rows after the changes, and the definitions that they replaced."""
    rows = dict(stored)
    superseded = []
    for change in changes:
        old = rows.get(change.handle)
        if isinstance(change, PutDefinition):
            new = next(defined)
            if old is not None:
                new = new._replace(created_us=old.created_us)
                superseded.append(
                    Superseded(old.handle, old.defined_seq, change.seq, old.definition)
                )
        elif old is None:
            raise StorageError(
                f"the log changes subscription {change.handle}, which the state does not have; "
                "rebuild the state from the log"
            )
        elif isinstance(change, PutPlace):
            new = _moved(change, old)
        else:
            new = old._replace(status=change.status, version=change.seq, updated_us=change.time_us)
        rows[change.handle] = new
    return rows, superseded


def _defined(puts: Sequence[PutDefinition]) -> Iterator[Definition]:
    """Return the row of each new definition."""
    boxes = np.array([put.box for put in puts], np.float64).reshape(-1, 4)
    cells = cells_of_boxes(boxes).tolist()
    for put, box, cell in zip(puts, boxes.tolist(), cells, strict=True):
        west, south, east, north = box
        yield Definition(
            put.handle,
            put.tenant,
            put.external_id,
            put.subscriber,
            put.sink_id,
            put.definition,
            put.status,
            put.seq,
            put.seq,
            put.time_us,
            put.time_us,
            put.expires_us,
            west,
            south,
            east,
            north,
            put.kind,
            cell,
        )


def _moved(change: PutPlace, before: Definition) -> Definition:
    west, south, east, north = map(float, change.box)
    [cell] = cells_of_boxes(np.array([change.box], np.float64)).tolist()
    return before._replace(
        updated_us=change.time_us,
        west=west,
        south=south,
        east=east,
        north=north,
        cell=cell,
        place=change.place,
    )


def _existing(transaction: Transaction, handles: Iterable[int]) -> dict[int, Definition]:
    """Return the stored rows of handles. Handles ascend, so new ones need no lookup."""
    ((highest,),) = transaction.execute("SELECT MAX(handle) FROM definitions")
    wanted = sorted(handle for handle in handles if highest is not None and handle <= highest)
    found: dict[int, Definition] = {}
    for start in range(0, len(wanted), _LOOKED_UP):
        part = wanted[start : start + _LOOKED_UP]
        marks = ", ".join("?" * len(part))
        for stored in transaction.execute(
            f"SELECT {DEFINITIONS.selected} FROM definitions WHERE handle IN ({marks})", part
        ):
            row = DEFINITIONS.unpack(stored)
            found[row.handle] = row
    return found


def add_counts(transaction: Transaction, changes: Counter[tuple[int, str]]) -> None:
    """Add to the numbers of definitions by tenant and status."""
    for (tenant, status), difference in sorted(changes.items()):
        if difference:
            stored = transaction.execute(
                f"SELECT {COUNTS.selected} FROM counts WHERE tenant = ? AND status = ?",
                (tenant, status),
            )
            before = COUNTS.unpack(stored[0]).definitions if stored else 0
            row = Count(tenant, status, before + difference)
            transaction.execute(COUNTS.upsert, COUNTS.pack(row))


def _revoke(transaction: Transaction, change: RevokeKey) -> None:
    for stored in transaction.execute(
        f"SELECT {KEYS.selected} FROM api_keys WHERE id = ?", (change.id,)
    ):
        row = KEYS.unpack(stored)._replace(revoked_us=change.revoked_us)
        transaction.execute(KEYS.upsert, KEYS.pack(row))


def _put_sink(transaction: Transaction, row: Sink) -> None:
    """Write a sink; the events of its first subscription must not be skipped."""
    for stored in transaction.execute(
        f"SELECT {SINKS.selected} FROM {SINKS.name} WHERE id = ?", (row.id,)
    ):
        before = SINKS.unpack(stored)
        row = row._replace(
            start_seq=before.start_seq, start_k=before.start_k, created_us=before.created_us
        )
    transaction.execute(SINKS.upsert, SINKS.pack(row))


def start_of_sink(sink: Sink) -> SinkProgress:
    """Return how far a sink is that was never sent anything."""
    return SinkProgress(sink.id, sink.start_seq, sink.start_k)


def update_progress(
    transaction: Transaction, sink_id: str, update: Callable[[SinkProgress], SinkProgress]
) -> bool:
    """Change the progress of a sink; return whether there is such a sink."""
    sinks = transaction.execute(f"SELECT {SINKS.selected} FROM sinks WHERE id = ?", [sink_id])
    if not sinks:
        return False
    stored = transaction.execute(
        f"SELECT {SINK_PROGRESS.selected} FROM sink_progress WHERE id = ?", [sink_id]
    )
    before = SINK_PROGRESS.unpack(stored[0]) if stored else start_of_sink(SINKS.unpack(sinks[0]))
    transaction.execute(SINK_PROGRESS.upsert, SINK_PROGRESS.pack(update(before)))
    return True


def _disable_sink(transaction: Transaction, change: DisableSink) -> None:
    update_progress(
        transaction,
        change.id,
        lambda row: row._replace(status="DISABLED", reason=change.reason),
    )


def _remove_sink(transaction: Transaction, sink_id: str) -> None:
    transaction.execute(f"DELETE FROM {SINKS.name} WHERE id = ?", (sink_id,))
    transaction.execute(f"DELETE FROM {SINK_PROGRESS.name} WHERE id = ?", (sink_id,))
    transaction.execute(f"DELETE FROM {ATTEMPTS.name} WHERE sink_id = ?", (sink_id,))
    transaction.execute(f"DELETE FROM {DEAD_LETTERS.name} WHERE sink_id = ?", (sink_id,))
