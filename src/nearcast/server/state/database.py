"""The databases that can hold the state: a SQLite file, or PostgreSQL.

Both run the same SQL with ``?`` for parameters. A `Database` runs one writing transaction at a
time and any number of reads. A transaction is a function of a `Transaction`; it may run twice,
because PostgreSQL may lose the connection before it says whether the transaction was committed.
So every transaction must be idempotent.
"""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nearcast.errors import MissingExtra, StorageError, Unavailable
from nearcast.server.state.tables import Value, create_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import psycopg

__all__ = ["Database", "Postgres", "Sqlite", "Transaction"]

Row = tuple[Any, ...]
Result = TypeVar("Result")

_SQLITE_TYPES = {"int": "INTEGER", "float": "REAL", "str": "TEXT", "bytes": "BLOB"}
_POSTGRES_TYPES = {
    "int": "BIGINT",
    "float": "DOUBLE PRECISION",
    "str": 'TEXT COLLATE "C"',
    "bytes": "BYTEA",
}

_SCARCE = ("SQLITE_CANTOPEN", "SQLITE_NOMEM", "SQLITE_IOERR_NOMEM")
_CONNECT_S = 5
_LOOP_PATIENCE_S = 0.5
_AWAY_S = 2.5
"""How long nobody on the event loop tries to connect after somebody could not."""

_CACHE_KIB = 256 * 1024
"""Holds the indexes of a million definitions, which are written in random order."""


class Transaction(Protocol):
    """What a transaction can do."""

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run a statement and return its rows, none if it is not a query."""

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        """Run a statement for each row."""


class Database(Protocol):
    """What the state needs of a database. Thread-safe."""

    def create_statements(self) -> list[str]:
        """Return the statements that create all tables."""

    def has_tables(self) -> bool:
        """Return whether the tables were created."""

    def read(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run a query and return all its rows."""

    def write(
        self, work: Callable[[Transaction], Result], *, durable: bool, patient: bool = False
    ) -> Result:
        """Run a function as one transaction; commit, or roll back if it raises.

        A database that is away is waited for; ``patient`` until it returns, or `stop_waiting`.

        If ``durable`` is false, the last transactions may be lost when the machine fails; those
        before them are not, and the database stays consistent.
        """

    def shred(self) -> None:
        """Let nothing of what was replaced remain in the files, where the database can do that."""

    def stop_waiting(self) -> None:
        """Let nobody be patient any more: the server is shutting down."""

    def check(self) -> None:
        """Raise `StorageError` if the database finds itself damaged."""

    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""


class Sqlite:
    """A SQLite file in WAL mode: one connection for writing, others for reading.

    Parameters
    ----------
    path
        The file; created if it does not exist.
    busy_timeout_s
        How long to wait for another process that writes to the file.

    Raises
    ------
    StorageError
        When the file cannot be opened, is not a database, or is damaged.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = 30.0) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._write_lock = threading.Lock()
        self._free: list[sqlite3.Connection] = []
        self._closed = False
        with self._errors():
            self._make_private()
            self._writer = self._connect()
            try:
                self._writer.execute("PRAGMA page_size = 8192")
                self._writer.execute("PRAGMA journal_mode = WAL")
                self._writer.execute("PRAGMA journal_size_limit = 67108864")
                self._writer.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
                self._check_schema()
            except BaseException:
                self._writer.close()
                raise

    def create_statements(self) -> list[str]:
        """Return the statements that create all tables."""
        return create_statements(_SQLITE_TYPES, " WITHOUT ROWID")

    def has_tables(self) -> bool:
        """Return whether the tables were created."""
        return bool(self.read("SELECT 1 FROM sqlite_schema WHERE name = 'meta'"))

    def read(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run a query and return all its rows."""
        with self._errors(), self._reader() as connection:
            return connection.execute(sql, values).fetchall()

    def write(
        self, work: Callable[[Transaction], Result], *, durable: bool, patient: bool = False
    ) -> Result:
        """Run a function as one transaction; commit, or roll back if it raises."""
        with self._write_lock, self._errors():
            self._must_be_open()
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                result = work(_SqliteTransaction(self._writer))
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            return result

    def shred(self) -> None:
        """Write the whole file again, and empty the log of changes beside it."""
        with self._write_lock, self._errors():
            self._must_be_open()
            self._writer.execute("VACUUM")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def stop_waiting(self) -> None:
        """Do nothing: a file is not away."""

    def check(self) -> None:
        """Check every page, and that every index has the rows of its table."""
        found = [str(row[0]) for row in self.read("PRAGMA integrity_check(10)")]
        if found != ["ok"]:
            raise StorageError(f"{self.path} is damaged, restore a backup: {'; '.join(found)}")

    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""
        with self._write_lock:
            self._closed = True
            while self._free:
                self._free.pop().close()
            self._writer.close()

    def _make_private(self) -> None:
        """Make the file, which SQLite would let others read; those beside it become like it."""
        if not self.path.exists():
            with suppress(OSError):  # SQLite says better what is wrong
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA secure_delete = FAST")
        return connection

    def _check_schema(self) -> None:
        """Compare the stored schema, which has no checksum, with the one this version writes."""
        stored = {row[0] for row in self._writer.execute("SELECT sql FROM sqlite_schema")}
        stored.discard(None)
        if stored and stored != set(self.create_statements()):
            raise StorageError(
                f"{self.path} has other tables than this version of Nearcast makes: it is damaged "
                "or of another program, restore a backup"
            )

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._must_be_open()
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
        try:
            yield connection
        finally:
            if self._closed:
                connection.close()
            else:
                self._free.append(connection)

    def _must_be_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self.path} is closed")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            kind = Unavailable if _is_scarce(error) else StorageError
            raise kind(f"{self.path}: {error}") from error


def _is_scarce(error: Exception) -> bool:
    """Return whether a file that is there could not be opened, or there was no memory."""
    return getattr(error, "sqlite_errorname", "") in _SCARCE


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        self._connection.executemany(sql, rows)


class Postgres:
    """A schema of a PostgreSQL database.

    Parameters
    ----------
    dsn
        The connection string, such as ``postgresql://user@host/database``.
    schema
        The schema of the tables; created if it does not exist.
    patience_s
        For how long to try to connect again after the connection was lost.

    Raises
    ------
    MissingExtra
        When psycopg is not installed.
    StorageError
        When there is no connection, or the server refuses a statement.
    """

    def __init__(self, dsn: str, *, schema: str = "nearcast", patience_s: float = 60.0) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("The state in PostgreSQL", "psycopg", "postgres") from None
        self._psycopg = psycopg
        self._dsn = dsn
        self._schema = schema
        self._patience_s = patience_s
        self._write_lock = threading.Lock()
        self._free: list[psycopg.Connection[Row]] = []
        self._closed = self._leaving = False
        self._away_until = 0.0

        def create_schema(connection: psycopg.Connection[Row]) -> None:
            name = psycopg.sql.Identifier(schema)
            connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))

        self._run(create_schema)

    def create_statements(self) -> list[str]:
        """Return the statements that create all tables."""
        return create_statements(_POSTGRES_TYPES)

    def has_tables(self) -> bool:
        """Return whether the tables were created."""
        found = self.read(
            "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'meta'", [self._schema]
        )
        return bool(found)

    def read(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run a query and return all its rows."""
        translated = _translated(sql)
        return self._run(lambda connection: connection.execute(translated, values).fetchall())

    def write(
        self, work: Callable[[Transaction], Result], *, durable: bool, patient: bool = False
    ) -> Result:
        """Run a function as one transaction; again if the connection was lost meanwhile.

        Always durable: PostgreSQL may fail while this process goes on, and a transaction that it
        lost would never be replayed.
        """

        def transact(connection: psycopg.Connection[Row]) -> Result:
            with connection.transaction():
                return work(_PostgresTransaction(connection))

        with self._write_lock:
            return self._run(transact, math.inf if patient else self._patience_s)

    def shred(self) -> None:
        """Do nothing: VACUUM and backups of PostgreSQL are its operator's."""

    def stop_waiting(self) -> None:
        """Let nobody be patient any more: the server is shutting down."""
        self._leaving = True

    def check(self) -> None:
        """Do nothing: PostgreSQL has checksums of its own."""

    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def _run(
        self, work: Callable[[psycopg.Connection[Row]], Result], patience_s: float | None = None
    ) -> Result:
        """Run a function with a connection; again, with another one, if the connection is lost."""
        now = time.monotonic()
        leave = now + self._patience_s
        give_up = leave if patience_s is None else now + patience_s
        if _on_event_loop():  # it must not stand still: whoever waits is in another thread
            if now < self._away_until:
                raise Unavailable("PostgreSQL is away")
            give_up = min(give_up, now + _LOOP_PATIENCE_S)
        pause_s = 0.05
        while True:
            if self._closed:
                raise StorageError("the connection to PostgreSQL is closed")
            lost = True
            try:
                with self._connected() as connection:
                    try:
                        result = work(connection)
                    finally:
                        lost = connection.broken
                self._away_until = 0.0
                return result
            except self._psycopg.Error as error:
                if not lost:
                    raise StorageError(f"PostgreSQL: {error}") from error
                if time.monotonic() + pause_s > (leave if self._leaving else give_up):
                    self._away_until = time.monotonic() + _AWAY_S
                    raise Unavailable(f"PostgreSQL: {error}") from error
            self._away_until = time.monotonic() + _AWAY_S
            self._drop_free()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Row]]:
        """Lend a connection; it is closed if it is not idle afterwards."""
        connection = self._connection()
        try:
            yield connection
        finally:
            idle = connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE
            if idle and not self._closed:
                self._free.append(connection)
            else:
                connection.close()

    def _connection(self) -> psycopg.Connection[Row]:
        with suppress(IndexError):
            return self._free.pop()
        return self._psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=_CONNECT_S,
            options=f"-c search_path={self._schema}",
        )

    def _drop_free(self) -> None:
        """Close the waiting connections, which were most likely lost with the one that failed."""
        while self._free:
            with suppress(IndexError):
                self._free.pop().close()


class _PostgresTransaction:
    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        cursor = self._connection.execute(_translated(sql), values)
        return cursor.fetchall() if cursor.description else []

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_translated(sql), rows)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _translated(sql: str) -> bytes:
    """Return a statement with the parameters of psycopg. No statement of ours quotes a ``?``."""
    return sql.replace("%", "%%").replace("?", "%s").encode()
