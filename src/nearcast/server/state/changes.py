"""What a stretch of the log changes in the state, and how it is written.

Every change has the sequence number of its record. A change whose number is not above
``applied_seq`` was written before and is skipped: replaying a stretch gives the same state.
"""

from __future__ import annotations

from collections import Counter
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
    Sink,
    Subscriber,
    Superseded,
    Table,
    Tenant,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearcast.server.state.database import Transaction

__all__ = [
    "ACTIVE",
    "DELETED",
    "EXPIRED",
    "INACTIVE",
    "STATUSES",
    "Change",
    "PutChannel",
    "PutDefinition",
    "PutIdempotency",
    "PutKey",
    "PutSink",
    "PutSubscriber",
    "PutTenant",
    "RemoveSink",
    "RevokeKey",
    "SetStatus",
    "write_changes",
]

ACTIVE = "ACTIVE"
INACTIVE = "INACTIVE"
EXPIRED = "EXPIRED"
DELETED = "DELETED"
STATUSES = (ACTIVE, INACTIVE, EXPIRED, DELETED)

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


class RemoveSink(NamedTuple):
    """A sink is gone, with its progress, attempts and dead letters."""

    seq: int
    id: str


class PutIdempotency(NamedTuple):
    """A request with an idempotency key was answered."""

    seq: int
    row: Idempotency


Change = (
    PutDefinition
    | SetStatus
    | PutTenant
    | PutKey
    | RevokeKey
    | PutSubscriber
    | PutChannel
    | PutSink
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
    _write_definitions(
        transaction, [c for c in changes if isinstance(c, (PutDefinition, SetStatus))]
    )
    for change in changes:
        if isinstance(change, (PutDefinition, SetStatus)):
            continue
        if isinstance(change, RevokeKey):
            _revoke(transaction, change)
        elif isinstance(change, RemoveSink):
            _remove_sink(transaction, change.id)
        elif isinstance(change, PutSink):
            _put_sink(transaction, change.row)
        elif isinstance(change, PutKey):
            transaction.execute(KEYS.upsert, KEYS.pack(change.row))
    for kind, table in _TABLE_OF.items():
        rows = [row for change in changes if type(change) is kind for row in change[1:]]
        transaction.execute_many(table.upsert, map(table.pack, rows))


def _write_definitions(
    transaction: Transaction, changes: Sequence[PutDefinition | SetStatus]
) -> None:
    if not changes:
        return
    rows = _existing(transaction, {change.handle for change in changes})
    counts = Counter({(row.tenant, row.status): 0 for row in rows.values()})
    counts.subtract((row.tenant, row.status) for row in rows.values())
    superseded: list[Superseded] = []
    puts = [change for change in changes if isinstance(change, PutDefinition)]
    boxes = np.array([change.box for change in puts], np.float64)
    cells = iter(cells_of_boxes(boxes).tolist())
    for change in changes:
        before = rows.get(change.handle)
        if isinstance(change, PutDefinition):
            rows[change.handle] = _defined(change, before, next(cells))
            if before is not None:
                superseded.append(
                    Superseded(before.handle, before.defined_seq, change.seq, before.definition)
                )
        elif before is None:
            raise StorageError(
                f"the log sets the status of subscription {change.handle}, which the state does "
                "not have; rebuild the state from the log"
            )
        else:
            rows[change.handle] = before._replace(
                status=change.status, version=change.seq, updated_us=change.time_us
            )
    counts.update((row.tenant, row.status) for row in rows.values())
    # Deleted ones first: they free their external ids.
    ordered = sorted(rows.values(), key=lambda row: row.status != DELETED)
    transaction.execute_many(DEFINITIONS.upsert, map(DEFINITIONS.pack, ordered))
    transaction.execute_many(SUPERSEDED.upsert, map(SUPERSEDED.pack, superseded))
    add_counts(transaction, counts)


def _defined(change: PutDefinition, before: Definition | None, cell: int) -> Definition:
    west, south, east, north = change.box
    return Definition(
        change.handle,
        change.tenant,
        change.external_id,
        change.subscriber,
        change.sink_id,
        change.definition,
        change.status,
        change.seq,
        change.seq,
        change.time_us if before is None else before.created_us,
        change.time_us,
        change.expires_us,
        float(west),
        float(south),
        float(east),
        float(north),
        change.kind,
        cell,
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


def _remove_sink(transaction: Transaction, sink_id: str) -> None:
    transaction.execute(f"DELETE FROM {SINKS.name} WHERE id = ?", (sink_id,))
    transaction.execute(f"DELETE FROM {SINK_PROGRESS.name} WHERE id = ?", (sink_id,))
    transaction.execute(f"DELETE FROM {ATTEMPTS.name} WHERE sink_id = ?", (sink_id,))
    transaction.execute(f"DELETE FROM {DEAD_LETTERS.name} WHERE sink_id = ?", (sink_id,))
