"""`State`: everything the server keeps besides the log and the events.

Definitions, tenants, keys, subscribers, channels, sinks and idempotency keys come from the log
(`State.apply`). Cursors, recent sends, the progress of sinks, attempts, dead letters, uses of keys
and the server's secrets do not: those transactions are durable when their method returns.

Methods that take a tenant never return rows of another one.
"""

from __future__ import annotations

import secrets as random_bytes
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from nearcast.errors import NoSpace, StorageError, UnknownId
from nearcast.server.state.cells import Box, cell_ranges
from nearcast.server.state.changes import (
    DELETED,
    Change,
    PutDefinition,
    PutSink,
    add_counts,
    start_of_sink,
    update_progress,
    write_changes,
)
from nearcast.server.state.tables import (
    ATTEMPTS,
    CHANNELS,
    COUNTS,
    CURSORS,
    DEAD_LETTERS,
    DEFINITIONS,
    IDEMPOTENCY,
    KEY_USES,
    KEYS,
    META,
    PLACES,
    RECENT_SENDS,
    SECRETS,
    SINK_PROGRESS,
    SINKS,
    SUBSCRIBERS,
    SUPERSEDED,
    TABLES,
    TENANTS,
    Attempt,
    Channel,
    Cursor,
    DeadLetter,
    Definition,
    Idempotency,
    Key,
    KeyUse,
    Meta,
    RecentSends,
    Secret,
    Sink,
    SinkProgress,
    Subscriber,
    Table,
    Tenant,
    Value,
)
from nearcast.server.state.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nearcast.server.state.database import Database, Transaction

__all__ = ["MAX_ATTEMPTS", "State"]

Row = TypeVar("Row", bound=tuple[Any, ...])

SCHEMA_VERSION = 1
MAX_ATTEMPTS = 100
"""How many attempts of a sink are kept."""

_SEALED = "sealed"
"""The secret that tells, once a key was given, whether this one is the same."""

_BATCH = 10_000
_LOOKED_UP = 500
_LARGE_WINDOW = 1 / 16
"""Of the world: a larger window is searched in the order of handles, not by cells."""


class State:
    """The server's state in a database. All methods may be called from any thread.

    Parameters
    ----------
    database
        `Sqlite` or `Postgres`. The state closes it.
    vault
        Seals the secrets that must be read back; without it they are stored as they are.

    Raises
    ------
    StorageError
        By every method, when the database is damaged or cannot be reached; at first also when its
        secrets are sealed, and the vault cannot open them.
    """

    def __init__(self, database: Database, vault: Vault | None = None) -> None:
        self._database = database
        self.vault = vault or Vault()
        if not database.has_tables():
            database.write(self._create, durable=True)
        version = self._meta("schema_version")
        if version != SCHEMA_VERSION:
            raise StorageError(
                f"the state has schema version {version}, this version of Nearcast reads "
                f"{SCHEMA_VERSION}; use the version that wrote it"
            )
        self._open_vault()

    def freeze(self, why: str) -> None:
        """Refuse to write anything from now on; ``why`` is for the errors, which are `NoSpace`."""
        self._database = _Frozen(self._database, why)

    def stop_waiting(self) -> None:
        """Wait no longer than others do for a database that is away: the server ends."""
        self._database.stop_waiting()

    def close(self) -> None:
        """Close the database. Closing twice is harmless."""
        self._database.close()

    def check(self) -> None:
        """Check every row and every index; takes seconds for a million definitions.

        Reads check the rows that they find. Only this finds that rows are missing.
        """
        self._database.check()
        for table in TABLES:
            rows = self._all_definitions() if table is DEFINITIONS else self._each(table)
            for _ in rows:
                pass

    # ---- what comes from the log ----

    @property
    def applied_seq(self) -> int:
        """The sequence number up to which the log was applied; 0 at first."""
        return self._meta("applied_seq")

    def apply(self, changes: Sequence[Change], applied_seq: int, *, durable: bool = False) -> None:
        """Write what the log says up to and including a sequence number, in one transaction.

        Changes that were applied before are skipped.

        Parameters
        ----------
        changes
            In the order of the log. They include all changes above the previous ``applied_seq``.
        applied_seq
            The last sequence number of the stretch, at least that of every change.
        durable
            Whether everything that was applied so far is on disk when this returns.
        """

        def work(transaction: Transaction) -> None:
            done = _stored_meta(transaction, "applied_seq")
            if applied_seq > done or durable:
                new = [self._sealed(change) for change in changes if change.seq > done]
                write_changes(transaction, new)
                row = META.pack(Meta("applied_seq", max(applied_seq, done)))
                transaction.execute(META.upsert, row)

        if changes and changes[-1].seq > applied_seq:
            raise ValueError(f"a change has seq {changes[-1].seq}, above {applied_seq=}")
        self._database.write(work, durable=durable, patient=True)

    def forget_before(self, seq: int) -> None:
        """Remove definitions that were superseded or deleted before a sequence number."""

        def work(transaction: Transaction) -> None:
            transaction.execute("DELETE FROM superseded WHERE to_seq <= ?", (seq,))
            transaction.execute(
                "DELETE FROM places WHERE seq < ? AND EXISTS (SELECT 1 FROM places later WHERE "
                "later.handle = places.handle AND later.seq > places.seq AND later.seq <= ?)",
                (seq, seq),
            )
            gone = transaction.execute(
                "SELECT tenant, COUNT(*) FROM definitions "
                "WHERE status = 'DELETED' AND version < ? GROUP BY tenant",
                (seq,),
            )
            transaction.execute(
                "DELETE FROM definitions WHERE status = 'DELETED' AND version < ?", (seq,)
            )
            add_counts(transaction, Counter({(t, DELETED): -count for t, count in gone}))

        self._database.write(work, durable=False)

    def forget_idempotency(self, before_us: int) -> None:
        """Remove answers to requests that are older than a time."""
        self._write("DELETE FROM idempotency WHERE time_us < ?", (before_us,), durable=False)

    # ---- definitions ----

    def definition(self, tenant: int, external_id: str) -> Definition | None:
        """Return a subscription that is not deleted."""
        found = self._one(
            DEFINITIONS,
            "tenant = ? AND external_id = ? AND status <> 'DELETED'",
            {"tenant": tenant, "external_id": external_id},
        )
        if found is not None and found.status == DELETED:
            raise DEFINITIONS.damaged(found._asdict(), "is deleted, but its index has it")
        if found is not None and found.sink_id is not None and self.vault.has_key:
            return found._replace(definition=self.vault.open_definition(found.definition))
        return found

    def definition_of(self, handle: int) -> Definition | None:
        """Return a subscription by its handle, deleted ones too."""
        return self._one(DEFINITIONS, "handle = ?", {"handle": handle})

    def definition_at(self, handle: int, seq: int) -> tuple[bytes, bytes | None] | None:
        """Return the definition of a subscription as it was when ``seq`` was matched.

        The second value is where it had moved by then, if it had.
        """
        current = self.definition_of(handle)
        if current is not None and current.defined_seq <= seq:
            return current.definition, self._place_at(handle, current.defined_seq, seq)
        found = self._rows(
            SUPERSEDED, "handle = ? AND from_seq <= ? AND to_seq > ?", (handle, seq, seq)
        )
        for row in found:
            if row.handle == handle and row.from_seq <= seq < row.to_seq:
                return row.definition, self._place_at(handle, row.from_seq, seq)
        return None

    def _place_at(self, handle: int, after: int, seq: int) -> bytes | None:
        """Return the last place of a subscription after one record, up to another."""
        where = "handle = ? AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
        found = self._rows(PLACES, where, (handle, after, seq))
        return found[0].place if found else None

    def external_ids(self, tenant: int, handles: Sequence[int]) -> dict[int, str]:
        """Return the external ids of a tenant's handles, deleted ones too."""
        found: dict[int, str] = {}
        for start in range(0, len(handles), _LOOKED_UP):
            part = handles[start : start + _LOOKED_UP]
            marks = ", ".join("?" * len(part))
            for row in self._rows(DEFINITIONS, f"handle IN ({marks})", part):
                if row.tenant == tenant:
                    found[row.handle] = row.external_id
        return found

    def definitions(
        self,
        tenant: int,
        *,
        subscriber: str | None = None,
        after: int = -1,
        limit: int = 100,
        bbox: Box | None = None,
        status: str | None = None,
    ) -> list[Definition]:
        """Return subscriptions of a tenant in the order of their handles.

        Parameters
        ----------
        tenant
            The tenant's number.
        subscriber
            Only those of a subscriber.
        after
            Only those with a higher handle.
        limit
            The maximum number of rows.
        bbox
            Only those whose bounding box overlaps this one.
        status
            Only those with a status; all but deleted ones if None.
        """
        where = ["d.tenant = ?", "d.handle > ?"]
        values: list[Value] = [tenant, after]
        if subscriber is not None:
            where.append("d.subscriber = ?")
            values.append(subscriber)
        where.append("d.status <> 'DELETED'" if status is None else "d.status = ?")
        values += [] if status is None else [status]
        source = "definitions d"
        if bbox is not None:
            source, condition, numbers = _overlapping(bbox)
            if source != "definitions d":
                where[1] = "+d.handle > ?"  # SQLite looks up the cells, not the handles.
            where.append(condition)
            values += numbers
        columns = ", ".join(f"d.{name}" for name in (*DEFINITIONS.columns, "crc"))
        found = self._database.read(
            f"SELECT {columns} FROM {source} WHERE {' AND '.join(where)} ORDER BY d.handle LIMIT ?",
            (*values, limit),
        )
        wanted: dict[str, Value] = {"tenant": tenant, "subscriber": subscriber, "status": status}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        rows = [DEFINITIONS.unpack(stored) for stored in found]
        for row in rows:
            self._must_fit(DEFINITIONS, row, wanted)
            if row.handle <= after or (status is None and row.status == DELETED):
                raise DEFINITIONS.damaged(row._asdict(), "was found, but an index has it wrong")
            after = row.handle
        return rows

    def counts(self) -> dict[int, dict[str, int]]:
        """Return how many definitions each tenant has, by status."""
        found = sorted(self._rows(COUNTS))
        return {
            tenant: {row.status: row.definitions for row in rows if row.definitions}
            for tenant, rows in groupby(found, lambda row: row.tenant)
        }

    def each_definition(self) -> Iterator[Definition]:
        """Return all definitions, deleted ones too, by handle; read in batches.

        Changes meanwhile may be seen or not. The database is checked first and the rows are
        counted, so that none is missing.
        """
        self._database.check()
        return self._all_definitions()

    # ---- tenants, keys, subscribers, channels ----

    def tenants(self) -> list[Tenant]:
        """Return all tenants by number."""
        return sorted(self._rows(TENANTS), key=lambda row: row.number)

    def keys(self, tenant: int | None = None) -> list[Key]:
        """Return all API keys, or those of a tenant, revoked ones too."""
        rows = sorted(self._rows(KEYS), key=lambda row: (row.created_us, row.id))
        return [row for row in rows if tenant is None or row.tenant == tenant]

    def key(self, key_id: str) -> Key | None:
        """Return an API key."""
        return self._one(KEYS, "id = ?", {"id": key_id})

    def note_key_uses(self, last_used_us: dict[str, int]) -> None:
        """Save when keys were last used."""
        self._put(KEY_USES, [KeyUse(*item) for item in last_used_us.items()])

    def key_uses(self) -> dict[str, int]:
        """Return when each key was last used."""
        return {row.id: row.last_used_us for row in self._rows(KEY_USES)}

    def secret(self, name: str) -> bytes:
        """Return a secret of the server: 32 random bytes, made when first asked for."""

        def work(transaction: Transaction) -> None:
            if not transaction.execute("SELECT 1 FROM secrets WHERE name = ?", (name,)):
                value = self.vault.seal_bytes(random_bytes.token_bytes(32))
                transaction.execute(SECRETS.upsert, SECRETS.pack(Secret(name, value)))

        found = self._one(SECRETS, "name = ?", {"name": name})
        if found is None:
            self._database.write(work, durable=True)
            found = self._one(SECRETS, "name = ?", {"name": name})
        if found is None:
            raise StorageError(f"the secret {name!r} was written and is not there")
        return self.vault.open_bytes(found.value)

    def forget_secret(self, name: str) -> None:
        """Remove a secret of the server; another one is made when it is needed again."""
        self._write("DELETE FROM secrets WHERE name = ?", (name,), durable=True)

    def subscriber(self, tenant: int, name: str) -> Subscriber | None:
        """Return a subscriber."""
        return self._one(SUBSCRIBERS, "tenant = ? AND name = ?", {"tenant": tenant, "name": name})

    def subscribers(self, tenant: int | None = None) -> list[Subscriber]:
        """Return all subscribers, or those of a tenant, by channel."""
        where, values = ("", ()) if tenant is None else ("tenant = ?", (tenant,))
        return sorted(self._rows(SUBSCRIBERS, where, values), key=lambda row: row.channel)

    def channels(self) -> list[Channel]:
        """Return all channels by number."""
        return sorted(self._rows(CHANNELS), key=lambda row: row.number)

    def idempotent(self, tenant: int, key: str) -> Idempotency | None:
        """Return the answer to an earlier request with an idempotency key."""
        return self._one(IDEMPOTENCY, "tenant = ? AND key = ?", {"tenant": tenant, "key": key})

    # ---- cursors ----

    def save_cursor(
        self, tenant: int, subscriber: str, name: str, value: str, time_us: int
    ) -> None:
        """Save a named cursor of a subscriber."""
        self._put(CURSORS, [Cursor(tenant, subscriber, name, value, time_us)])

    def cursor(self, tenant: int, subscriber: str, name: str) -> Cursor | None:
        """Return a named cursor of a subscriber."""
        return self._one(
            CURSORS,
            "tenant = ? AND subscriber = ? AND name = ?",
            {"tenant": tenant, "subscriber": subscriber, "name": name},
        )

    def cursor_names(self, tenant: int, subscriber: str) -> set[str]:
        """Return the names of the cursors of a subscriber."""
        values: dict[str, Value] = {"tenant": tenant, "subscriber": subscriber}
        rows = self._rows(CURSORS, "tenant = ? AND subscriber = ?", tuple(values.values()), values)
        return {row.name for row in rows}

    def cursors(self) -> list[Cursor]:
        """Return all named cursors."""
        return self._rows(CURSORS)

    def save_sends(self, sends: Sequence[RecentSends]) -> None:
        """Save when events were sent to subscribers, in one transaction."""
        self._put(RECENT_SENDS, sends)

    def sends(self, channel: int) -> RecentSends | None:
        """Return when events were sent to a subscriber."""
        return self._one(RECENT_SENDS, "channel = ?", {"channel": channel})

    # ---- sinks ----

    def sinks(self, tenant: int | None = None) -> list[Sink]:
        """Return all sinks, or those of a tenant, by channel."""
        rows = sorted(self._rows(SINKS), key=lambda row: row.channel)
        return [self._opened(row) for row in rows if tenant is None or row.tenant == tenant]

    def sink(self, tenant: int, sink_id: str) -> Sink | None:
        """Return a sink of a tenant."""
        found = self.sink_of(sink_id)
        return found if found is not None and found.tenant == tenant else None

    def sink_of(self, sink_id: str) -> Sink | None:
        """Return a sink of any tenant."""
        found = self._one(SINKS, "id = ?", {"id": sink_id})
        return None if found is None else self._opened(found)

    def progress(self, sink: Sink) -> SinkProgress:
        """Return how far a sink is; its start if nothing was saved."""
        found = self._one(SINK_PROGRESS, "id = ?", {"id": sink.id})
        return found or start_of_sink(sink)

    def sinks_with_work(self, now_us: int) -> list[tuple[Sink, SinkProgress]]:
        """Return the enabled sinks whose next try is due, with how far they are."""
        saved = {row.id: row for row in self._rows(SINK_PROGRESS)}
        pairs = [(sink, saved.get(sink.id) or start_of_sink(sink)) for sink in self.sinks()]
        return [p for p in pairs if p[1].status == "ENABLED" and p[1].next_try_us <= now_us]

    def save_position(
        self,
        sink_id: str,
        position: tuple[int, int],
        attempts: int = 0,
        next_try_us: int = 0,
        send_times_us: tuple[int, ...] = (),
    ) -> None:
        """Save a sink's position and when to try next; whether it is enabled stays."""
        seq, k = position
        self._update_progress(
            sink_id,
            lambda row: row._replace(
                seq=seq,
                k=k,
                attempts=attempts,
                next_try_us=next_try_us,
                send_times_us=send_times_us,
            ),
        )

    def disable(self, sink_id: str, reason: str) -> None:
        """Stop sending to a sink; its position stays."""
        self._update_progress(sink_id, lambda row: row._replace(status="DISABLED", reason=reason))

    def enable(self, sink_id: str) -> None:
        """Send to a sink again, from its position, at once."""
        self._update_progress(
            sink_id,
            lambda row: row._replace(status="ENABLED", reason=None, attempts=0, next_try_us=0),
        )

    def note_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Save attempts in one transaction; the last `MAX_ATTEMPTS` of each sink are kept."""

        def work(transaction: Transaction) -> None:
            transaction.execute_many(ATTEMPTS.upsert, map(ATTEMPTS.pack, attempts))
            for sink_id in {attempt.sink_id for attempt in attempts}:
                transaction.execute(
                    "DELETE FROM attempts WHERE sink_id = ? AND number <= "
                    "(SELECT MAX(number) FROM attempts WHERE sink_id = ?) - ?",
                    (sink_id, sink_id, MAX_ATTEMPTS),
                )

        self._database.write(work, durable=True)

    def attempts(self, tenant: int, sink_id: str) -> list[Attempt]:
        """Return the last attempts of a tenant's sink, the newest first."""
        if self.sink(tenant, sink_id) is None:
            return []
        found = self._rows(ATTEMPTS, "sink_id = ?", (sink_id,), {"sink_id": sink_id})
        return sorted(found, key=lambda row: -row.number)

    def add_dead(self, letters: Sequence[DeadLetter]) -> None:
        """Save events that were given up."""
        self._put(DEAD_LETTERS, letters)

    def dead(
        self, tenant: int, sink_id: str, *, after: tuple[int, int] = (-1, -1), limit: int = 100
    ) -> list[DeadLetter]:
        """Return the dead letters of a tenant's sink after a position, in order."""
        if self.sink(tenant, sink_id) is None:
            return []
        return self._rows(
            DEAD_LETTERS,
            "sink_id = ? AND (seq, k) > (?, ?) ORDER BY seq, k LIMIT ?",
            (sink_id, *after, limit),
            {"sink_id": sink_id},
        )

    def remove_dead(self, sink_id: str, positions: Iterable[tuple[int, int]]) -> None:
        """Remove dead letters, which were sent after all."""
        rows = [(sink_id, *position) for position in positions]
        self._database.write(
            lambda transaction: transaction.execute_many(
                "DELETE FROM dead_letters WHERE sink_id = ? AND seq = ? AND k = ?", rows
            ),
            durable=True,
        )

    # ---- secrets ----

    def _open_vault(self) -> None:
        """Check that the vault has the key that was used before; with a first key, seal all."""
        known = self._one(SECRETS, "name = ?", {"name": _SEALED})
        if known is not None:
            self.vault.open_bytes(known.value)
        elif self.vault.has_key:
            self._database.write(self._seal_all, durable=True)
            self._database.shred()

    def _seal_all(self, transaction: Transaction) -> None:
        """Seal what was written without a key."""
        vault = self.vault
        if transaction.execute("SELECT 1 FROM secrets WHERE name = ?", (_SEALED,)):
            return
        for secret in _all_rows(transaction, SECRETS):
            row = secret._replace(value=vault.seal_bytes(secret.value))
            transaction.execute(SECRETS.upsert, SECRETS.pack(row))
        for sink in _all_rows(transaction, SINKS):
            transaction.execute(SINKS.upsert, SINKS.pack(self._sealed_sink(sink)))
        for definition in _all_rows(transaction, DEFINITIONS, "sink_id IS NOT NULL"):
            packed = vault.seal_definition(definition.definition)
            changed = definition._replace(definition=packed)
            transaction.execute(DEFINITIONS.upsert, DEFINITIONS.pack(changed))
        for old in _all_rows(transaction, SUPERSEDED):
            before = old._replace(definition=vault.seal_definition(old.definition))
            transaction.execute(SUPERSEDED.upsert, SUPERSEDED.pack(before))
        mark = Secret(_SEALED, vault.seal_bytes(_SEALED.encode()))
        transaction.execute(SECRETS.upsert, SECRETS.pack(mark))

    def _sealed(self, change: Change) -> Change:
        """Return a change without open secrets; a log from before the key was given has them."""
        if not self.vault.has_key:
            return change
        if isinstance(change, PutSink):
            return change._replace(row=self._sealed_sink(change.row))
        if isinstance(change, PutDefinition) and change.sink_id is not None:
            return change._replace(definition=self.vault.seal_definition(change.definition))
        return change

    def _sealed_sink(self, row: Sink) -> Sink:
        seal = self.vault.seal
        headers = {name: seal(value) for name, value in row.headers.items()}
        return row._replace(secrets=tuple(map(seal, row.secrets)), headers=headers)

    def _opened(self, row: Sink) -> Sink:
        opened = self.vault.open
        headers = {name: opened(value) for name, value in row.headers.items()}
        return row._replace(secrets=tuple(map(opened, row.secrets)), headers=headers)

    # ---- rows ----

    def _create(self, transaction: Transaction) -> None:
        for statement in self._database.create_statements():
            transaction.execute(statement)
        for row in (Meta("schema_version", SCHEMA_VERSION), Meta("applied_seq", 0)):
            transaction.execute(META.upsert, META.pack(row))

    def _update_progress(
        self, sink_id: str, update: Callable[[SinkProgress], SinkProgress]
    ) -> None:
        """Read, change and write the progress of a sink in one transaction."""

        def work(transaction: Transaction) -> None:
            if not update_progress(transaction, sink_id, update):
                raise UnknownId(f"there is no sink {sink_id!r}")

        self._database.write(work, durable=True)

    def _meta(self, name: str) -> int:
        found = self._one(META, "name = ?", {"name": name})
        if found is None:
            raise StorageError(f"the state has no {name}; it is damaged, restore a backup")
        return found.value

    def _all_definitions(self) -> Iterator[Definition]:
        expected = sum(row.definitions for row in self._rows(COUNTS))
        count = 0
        for row in self._each(DEFINITIONS):
            count += 1
            yield row
        if count < expected:
            raise StorageError(
                f"table definitions: found {count} rows, expected {expected}; the database is "
                "damaged, restore a backup"
            )

    def _each(self, table: Table[Row]) -> Iterator[Row]:
        """Return all rows of a table in the order of its key, read in batches."""
        names = ", ".join(table.key)
        order = f"ORDER BY {names} LIMIT {_BATCH}"
        rows = self._rows(table, f"1 = 1 {order}")
        while rows:
            yield from rows
            last = dict(zip(table.columns, rows[-1], strict=True))
            after = f"({names}) > ({', '.join('?' * len(table.key))})"
            rows = self._rows(table, f"{after} {order}", [last[name] for name in table.key])

    def _rows(
        self,
        table: Table[Row],
        where: str = "",
        values: Sequence[Value] = (),
        fits: dict[str, Value] | None = None,
    ) -> list[Row]:
        """Return the rows that fit a condition, checked."""
        condition = f" WHERE {where}" if where else ""
        found = self._database.read(f"SELECT {table.selected} FROM {table.name}{condition}", values)
        rows = [table.unpack(stored) for stored in found]
        for row in rows:
            self._must_fit(table, row, fits or {})
        return rows

    def _one(self, table: Table[Row], where: str, values: dict[str, Value]) -> Row | None:
        """Return the row that fits a condition, compared with what was looked up."""
        rows = self._rows(table, where, tuple(values.values()), values)
        return rows[0] if rows else None

    @staticmethod
    def _must_fit(table: Table[Row], row: Row, values: dict[str, Value]) -> None:
        """Raise an error if an index found a row with other values: the index is damaged."""
        if values:
            stored = dict(zip(table.columns, row, strict=True))
            for name, value in values.items():
                if stored[name] != value:
                    raise table.damaged(stored, f"was found by {name}={value!r}")

    def _put(self, table: Table[Row], rows: Sequence[Row]) -> None:
        packed = [table.pack(row) for row in rows]
        self._database.write(
            lambda transaction: transaction.execute_many(table.upsert, packed), durable=True
        )

    def _write(self, sql: str, values: Sequence[Value], *, durable: bool) -> None:
        self._database.write(lambda transaction: transaction.execute(sql, values), durable=durable)


class _Frozen:
    """A database that is only read."""

    def __init__(self, database: Database, why: str) -> None:
        self._why = why
        self.create_statements, self.has_tables = database.create_statements, database.has_tables
        self.read, self.check, self.close = database.read, database.check, database.close
        self.stop_waiting = database.stop_waiting

    def shred(self) -> None:
        """Do nothing: nothing is replaced."""

    def write(
        self, work: Callable[[Transaction], Any], *, durable: bool, patient: bool = False
    ) -> Any:
        """Refuse."""
        raise NoSpace(self._why)


def _all_rows(transaction: Transaction, table: Table[Row], where: str = "1 = 1") -> list[Row]:
    found = transaction.execute(f"SELECT {table.selected} FROM {table.name} WHERE {where}")
    return [table.unpack(stored) for stored in found]


def _stored_meta(transaction: Transaction, name: str) -> int:
    (stored,) = transaction.execute(f"SELECT {META.selected} FROM meta WHERE name = ?", (name,))
    return META.unpack(stored).value


def _overlapping(bbox: Box) -> tuple[str, str, list[float]]:
    """Return FROM, WHERE and its parameters for the definitions whose boxes overlap a box.

    A small box is looked up by ranges of cells. The ranges are disjoint: each row comes once.
    """
    condition, values = _overlaps(bbox)
    share = sum((p.east - p.west) / 360 * (p.north - p.south) / 180 for p in bbox.parts())
    if share > _LARGE_WINDOW:
        return "definitions d", condition, values
    ranges = ", ".join(f"({low}, {high})" for low, high in cell_ranges(bbox))
    # SQLite reads the tables of a CROSS JOIN in the order as written.
    source = (
        f"(WITH wanted (low, high) AS (VALUES {ranges}) SELECT low, high FROM wanted) AS w "
        "CROSS JOIN definitions d"
    )
    return source, f"d.cell BETWEEN w.low AND w.high AND {condition}", values


def _overlaps(bbox: Box) -> tuple[str, list[float]]:
    """Return the condition that a definition's box overlaps a box, and its parameters."""
    conditions, values = [], []
    for part in bbox.parts():
        conditions.append(
            "(d.south <= ? AND d.north >= ? AND CASE WHEN d.west <= d.east "
            "THEN d.west <= ? AND d.east >= ? ELSE d.west <= ? OR d.east >= ? END)"
        )
        values += [part.north, part.south, part.east, part.west, part.east, part.west]
    return f"({' OR '.join(conditions)})", [float(value) for value in values]
