"""What the server keeps in a database: definitions, tenants, keys, cursors, sinks.

The log is the truth for most of it: `State.apply` writes what a stretch of the log changed, and
``State.applied_seq`` says from where to go on after a crash.
"""

from nearcast.server.state.cells import Box
from nearcast.server.state.changes import (
    ACTIVE,
    DELETED,
    EXPIRED,
    INACTIVE,
    STATUSES,
    Change,
    DisableSink,
    PutChannel,
    PutDefinition,
    PutIdempotency,
    PutKey,
    PutPlace,
    PutSink,
    PutSubscriber,
    PutTenant,
    RemoveSink,
    RevokeKey,
    SetStatus,
)
from nearcast.server.state.database import Database, Postgres, Sqlite, Transaction
from nearcast.server.state.state import MAX_ATTEMPTS, State
from nearcast.server.state.tables import (
    Attempt,
    Channel,
    Cursor,
    DeadLetter,
    Definition,
    Idempotency,
    Key,
    RecentSends,
    Sink,
    SinkProgress,
    Subscriber,
    Tenant,
)

__all__ = [
    "ACTIVE",
    "DELETED",
    "EXPIRED",
    "INACTIVE",
    "MAX_ATTEMPTS",
    "STATUSES",
    "Attempt",
    "Box",
    "Change",
    "Channel",
    "Cursor",
    "Database",
    "DeadLetter",
    "Definition",
    "DisableSink",
    "Idempotency",
    "Key",
    "Postgres",
    "PutChannel",
    "PutDefinition",
    "PutIdempotency",
    "PutKey",
    "PutPlace",
    "PutSink",
    "PutSubscriber",
    "PutTenant",
    "RecentSends",
    "RemoveSink",
    "RevokeKey",
    "SetStatus",
    "Sink",
    "SinkProgress",
    "Sqlite",
    "State",
    "Subscriber",
    "Tenant",
    "Transaction",
]
