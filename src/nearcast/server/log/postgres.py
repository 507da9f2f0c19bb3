"""The log in PostgreSQL: a row for each group, in the order in which they were appended.

::

    nearcast_log          first_seq, last_seq, epoch, data: records as files have them
    nearcast_log_epochs   first_seq, epoch: which epoch began with which record

One session writes, and holds an advisory lock as long as it lives. PostgreSQL releases the lock
when the session has ended, so whoever has it knows that nothing of an earlier session is under way.
That is what makes a lost connection harmless: the log connects again, takes the lock, looks whether
the group is there, and writes it if not.

The lock belongs to a session: connect to PostgreSQL itself, or by a pool that pools sessions.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from nearcast.errors import InvalidInput, NoSpace, StorageError, Trimmed, Unavailable
from nearcast.extras import require
from nearcast.storage.log.records import encode, find_at, measure

require("postgres", "nearcast.server.log.postgres")

import psycopg  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nearcast.storage.log.records import Entry, Record

__all__ = ["MAX_GROUP_BYTES", "PostgresLog"]

_log = logging.getLogger("nearcast.server")

MAX_GROUP_BYTES = 256 << 20
"""How large a group may be: PostgreSQL has a limit of 1 GB for a value."""

_LOCK_CLASS = 0x6E636C67  # "nclg", beside the number of the table
_TABLES = """
CREATE TABLE IF NOT EXISTS nearcast_log (
    first_seq bigint PRIMARY KEY, last_seq bigint NOT NULL, epoch bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE nearcast_log ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS nearcast_log_epochs (first_seq bigint PRIMARY KEY, epoch bigint NOT NULL)
"""
_LAST = "SELECT first_seq, last_seq, data FROM nearcast_log ORDER BY first_seq DESC LIMIT 1"
_INSERT = "INSERT INTO nearcast_log (first_seq, last_seq, epoch, data) VALUES (%s, %s, %s, %s)"
_FIND = (
    "SELECT first_seq, last_seq, data FROM nearcast_log WHERE first_seq <= %s "
    "ORDER BY first_seq DESC LIMIT 1"
)
_NEXT = (
    "SELECT first_seq, last_seq, data FROM nearcast_log WHERE first_seq >= %s "
    "ORDER BY first_seq LIMIT 16"
)
_LOCK_S = 2.0
_READ_AWAY_S = 30.0
_AWAY_S = 5.0
_CACHE_BYTES = 32 << 20
_POLL_S = 0.05
_MAX_SEQ = (1 << 63) - 1

_Connection = psycopg.Connection[tuple[Any, ...]]


class _Group(NamedTuple):
    """A row: a group of records."""

    first_seq: int
    last_seq: int
    data: bytes


class _Cache:
    """The groups that were looked at last; threads share it."""

    def __init__(self) -> None:
        self._groups: OrderedDict[int, list[Record]] = OrderedDict()  # by the first number
        self._firsts: list[int] = []
        self._bytes = 0
        self._changing = threading.Lock()

    def get(self, seq: int) -> Record | None:
        """Return the record that has a number, if its group is here."""
        with self._changing:
            at = bisect_right(self._firsts, seq)
            records = self._groups[self._firsts[at - 1]] if at else []
            if not records or seq > records[-1].last_seq:
                return None
            self._groups.move_to_end(records[0].seq)
        return records[bisect_right(records, seq, key=attrgetter("seq")) - 1]

    def put(self, records: list[Record]) -> None:
        """Keep a group, and forget those that nobody has looked at for long."""
        with self._changing:
            if records[0].seq in self._groups:
                return
            self._groups[records[0].seq] = records
            insort(self._firsts, records[0].seq)
            self._bytes += _size(records)
            while self._bytes > _CACHE_BYTES and len(self._groups) > 1:
                first, oldest = self._groups.popitem(last=False)
                del self._firsts[bisect_left(self._firsts, first)]
                self._bytes -= _size(oldest)


def _size(records: list[Record]) -> int:
    return sum(200 + len(record.body) for record in records)


class PostgresLog:
    """The log in a database, opened for writing by one process at a time.

    It keeps the contract `nearcast.server.log.Log`. Disks of PostgreSQL have checksums of their
    own, so there is no repair: restore a damaged database as you restore others.

    Parameters
    ----------
    dsn
        Where the database is, such as "postgresql://nearcast@db.example.org/nearcast".
    away_s
        How long calls wait for a server that is away before they fail. By default, `append` waits
        until it returns, or `stop_waiting`, and readers wait for 30 seconds.

    Attributes
    ----------
    epoch
        The number of this opening: larger than all before, and at least the time in seconds.
    """

    def __init__(self, dsn: str, *, away_s: float | None = None) -> None:
        self._dsn = dsn
        self._name = _name(dsn)
        self._away_s = _READ_AWAY_S if away_s is None else away_s
        self._write_away_s = math.inf if away_s is None else away_s
        self._away_since: float | None = None
        self._failure: StorageError | None = None
        self._closed = self._leaving = False
        self._cache = _Cache()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._reader: _Connection | None = None
        self._writer: _Connection | None = None
        self._first_seq, self._last_seq = 1, 0
        self._epochs: list[tuple[int, int]] = []
        try:
            self._writer = self._connect()
            self._make_tables(self._writer)
            if not self._lock(self._writer, time.monotonic() + _LOCK_S):
                raise StorageError(
                    f"{self._name}: the log is already open for writing by another session; "
                    "close it there first"
                )
            self.epoch = self._begin_epoch(self._writer)
        except psycopg.Error as error:
            self.close()
            raise self._error("cannot be opened", error) from error
        except BaseException:
            self.close()
            raise

    @property
    def away(self) -> bool:
        """Whether what is being written has waited for some seconds for the server to return."""
        since = self._away_since
        return since is not None and time.monotonic() - since > _AWAY_S

    @property
    def first_seq(self) -> int:
        """The first record that is still there, or the next one if there is none."""
        return self._first_seq

    @property
    def last_seq(self) -> int:
        """The last number that is on disk, 0 if there never was one."""
        return self._last_seq

    @property
    def size_bytes(self) -> int:
        """What the log takes on the disk of the database."""
        query = "SELECT pg_total_relation_size('nearcast_log')"
        return int(self._fetch(query)[0][0])

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Ranges of numbers that repairs gave up; there are none."""
        return []

    # --- writing ---------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries as one group, and return the last number when all of them are on disk.

        Raises
        ------
        NoSpace
            If the disk of the database is full; nothing was written.
        StorageError
            If writing failed, or the server stayed away: the log takes nothing any more.
        """
        sizes = measure(entries)
        if sizes.size > MAX_GROUP_BYTES:
            raise InvalidInput("entries", sizes.size, f"must be {MAX_GROUP_BYTES:,} bytes at most")
        with self._writing:
            self._check()
            if not entries:
                return self._last_seq
            first = self._last_seq + 1
            data = encode(entries, first, self.epoch).data
            group = _Group(first, first + sizes.numbers - 1, data)
            try:
                self._write(group)
            except NoSpace:
                raise
            except StorageError as error:
                self._failure = error
                raise
            except BaseException:
                self._failure = StorageError(f"{self._name}: a write was interrupted")
                raise
            finally:
                self._away_since = None
            self._last_seq = group.last_seq
        return group.last_seq

    def _write(self, group: _Group) -> None:
        """Bring a group to the disk, once."""
        deadline: float | None = None
        while True:
            try:
                if deadline is not None and self._is_written(group, deadline):
                    return
                assert self._writer is not None
                self._writer.execute(
                    _INSERT, (group.first_seq, group.last_seq, self.epoch, group.data)
                )
            except psycopg.errors.DiskFull as error:
                raise NoSpace(f"{self._name}: {_reason(error)}") from error
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if self._away_since is None:
                    _log.warning("%s is away; publishers wait: %s", self._name, _reason(error))
                    self._away_since = time.monotonic()
                patience_s = self._away_s if self._leaving else self._write_away_s
                if time.monotonic() - self._away_since > patience_s:
                    problem = f"the server stayed away for {patience_s:g} s"
                    raise self._error(problem, error) from error
                deadline = time.monotonic() + self._away_s
                time.sleep(_POLL_S)
            except psycopg.Error as error:
                raise self._error("writing failed", error) from error
            else:
                return

    def _is_written(self, group: _Group, deadline: float) -> bool:
        """Connect again, and return whether a group is there; the other case is that it never was.

        The lock says that no earlier session of ours can write any more.
        """
        if self._writer is not None:
            self._writer.close()
        self._writer = self._connect()
        if not self._lock(self._writer, deadline):
            raise StorageError(f"{self._name}: another session has taken the log")
        (epoch,) = self._writer.execute("SELECT max(epoch) FROM nearcast_log_epochs").fetchall()[0]
        rows = self._writer.execute(_LAST, binary=True).fetchall()
        last = _Group(*rows[0]) if rows else _Group(0, 0, b"")
        if epoch == self.epoch and last == group:
            return True
        if epoch == self.epoch and last.last_seq == self._last_seq:
            return False
        raise StorageError(
            f"{self._name}: another writer was there while the connection was lost: expected "
            f"record {self._last_seq:,} of epoch {self.epoch} at the end, "
            f"found {last.last_seq:,} of {epoch}"
        )

    def trim(self, before: int) -> None:
        """Remove the groups all of whose records have smaller numbers; the last group stays."""
        with self._writing:
            self._check()
            kept = "SELECT first_seq FROM nearcast_log WHERE last_seq >= %s ORDER BY first_seq"
            rows = self._fetch(f"{kept} LIMIT 1", (min(before, self._last_seq),))
            if rows and rows[0][0] > self._first_seq:
                self._first_seq = rows[0][0]
                self._fetch(
                    "DELETE FROM nearcast_log WHERE first_seq < %s RETURNING 1", (rows[0][0],)
                )

    def stop_waiting(self) -> None:
        """Wait no longer than readers do for a server that is away."""
        self._leaving = True

    def close(self) -> None:
        """Close the log; what was appended is on disk."""
        self._closed = True
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- reading ---------------------------------------------------------------------------------

    def read(self, first: int = 1) -> Iterator[Record]:
        """Yield the records that have a number from ``first`` on, and are on disk now.

        Raises
        ------
        Trimmed
            If records are gone.
        StorageError
            If one is damaged, or the server stays away.
        """
        last, seq = self._last_seq, first
        if first < self._first_seq:
            raise self._gone(first)
        if first > last:
            return
        groups = [self._group_of(first)]
        while groups and seq <= last:
            for group in groups:
                if group.first_seq > seq:
                    raise self._gone(seq)
                for record in self._records(group):
                    if record.last_seq >= first:
                        yield record
                seq = group.last_seq + 1
                if seq > last:
                    return
            groups = [_Group(*row) for row in self._fetch(_NEXT, (seq,))]
        raise self._gone(seq)

    def find(self, seq: int) -> Record:
        """Return the record that has a number; any thread may call this at any time.

        Raises
        ------
        Trimmed
            If it is gone.
        StorageError
            If it is damaged, or the server stays away.
        InvalidInput
            If no record has the number yet.
        """
        if seq > self._last_seq:
            raise InvalidInput("seq", seq, f"must be at most {self._last_seq}, the last record")
        if seq < self._first_seq:
            raise self._gone(seq)
        record = self._cache.get(seq)
        if record is None:
            records = [*self._records(self._group_of(seq))]
            self._cache.put(records)
            record = records[bisect_right(records, seq, key=attrgetter("seq")) - 1]
        return record

    def epoch_of(self, seq: int) -> int:
        """Return the epoch that a number was, or will be, written in.

        Raises
        ------
        Trimmed
            If the record is gone, and its epoch too.
        """
        at = bisect_right(self._epochs, (seq, _MAX_SEQ))
        if not at:
            raise self._gone(seq)
        return self._epochs[at - 1][1]

    def _group_of(self, seq: int) -> _Group:
        rows = self._fetch(_FIND, (seq,))
        group = _Group(*rows[0]) if rows else None
        if group is None or group.last_seq < seq:
            raise self._gone(seq)
        return group

    def _records(self, group: _Group) -> Iterator[Record]:
        view, at, seq = memoryview(group.data), 0, group.first_seq
        while seq <= group.last_seq:
            found = find_at(view, at)
            if found is None or found.seq != seq:
                raise StorageError(
                    f"{self._name}: the row {group.first_seq} of nearcast_log is damaged at byte "
                    f"{at:,}, where record {seq:,} should be; restore the database from a backup"
                )
            yield found.record(view)
            at, seq = found.end, seq + found.count

    def _fetch(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query that may be run twice, on the connection of readers."""
        with self._reading:
            deadline: float | None = None
            while True:
                if self._closed:
                    raise StorageError(f"{self._name}: the log is closed; open it again")
                try:
                    if self._reader is None or self._reader.closed:
                        self._reader = self._connect()
                    return self._reader.execute(query, parameters, binary=True).fetchall()
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    deadline = deadline or time.monotonic() + self._away_s
                    if time.monotonic() > deadline:
                        problem = f"the server stayed away for {self._away_s:g} s"
                        raise Unavailable(str(self._error(problem, error))) from error
                    time.sleep(_POLL_S)
                except psycopg.Error as error:
                    raise self._error("reading failed", error) from error

    # --- connecting ------------------------------------------------------------------------------

    def _connect(self) -> _Connection:
        connection = psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=5,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=int(self._away_s * 1000),
        )
        try:
            connection.execute("SET synchronous_commit = on")
            connection.execute("SET client_min_messages = warning")
            # A machine that died must not keep its lock for hours.
            connection.execute("SET tcp_keepalives_idle = 10")
            connection.execute("SET tcp_keepalives_interval = 5")
            connection.execute("SET tcp_keepalives_count = 3")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: _Connection) -> None:
        with connection.transaction():  # two that create a table at a time get in each other's way
            connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK_CLASS,))
            if connection.execute("SELECT to_regclass('nearcast_log_epochs')").fetchone() == (
                None,
            ):
                connection.execute(_TABLES)

    def _lock(self, connection: _Connection, deadline: float) -> bool:
        """Take the lock; wait for a session that is just ending."""
        query = "SELECT pg_try_advisory_lock(%s, 'nearcast_log'::regclass::oid::int)"
        while connection.execute(query, (_LOCK_CLASS,)).fetchone() != (True,):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _begin_epoch(self, connection: _Connection) -> int:
        """Find the ends of the log, and begin an epoch."""
        query = "SELECT min(first_seq), max(last_seq) FROM nearcast_log"
        first, last = connection.execute(query).fetchall()[0]
        if last is not None:
            self._first_seq, self._last_seq = first, last
        query = "SELECT first_seq, epoch FROM nearcast_log_epochs ORDER BY first_seq"
        epochs = [(first, epoch) for first, epoch in connection.execute(query).fetchall()]
        epoch: int = max([int(time.time()), *(epoch + 1 for _, epoch in epochs)])
        begin = self._last_seq + 1
        connection.execute(
            "DELETE FROM nearcast_log_epochs WHERE first_seq < "
            "(SELECT max(first_seq) FROM nearcast_log_epochs WHERE first_seq <= %s)",
            (self._first_seq,),
        )
        connection.execute(
            "INSERT INTO nearcast_log_epochs VALUES (%s, %s) "
            "ON CONFLICT (first_seq) DO UPDATE SET epoch = excluded.epoch",
            (begin, epoch),
        )
        self._epochs = [*(pair for pair in epochs if pair[0] < begin), (begin, epoch)]
        return epoch

    # --- errors ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise StorageError(f"the log has failed before; open it again ({self._failure})")
        if self._closed:
            raise StorageError(f"{self._name}: the log is closed; open it again")

    def _gone(self, seq: int) -> Trimmed:
        return Trimmed(f"{self._name}: record {seq:,} is gone; the first is {self._first_seq:,}")

    def _error(self, problem: str, error: psycopg.Error) -> StorageError:
        return StorageError(f"{self._name}: {problem}: {_reason(error)}")


def _name(dsn: str) -> str:
    """Return the database as errors show it: without a password."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        problem = "must look like postgresql://user@host/database"
        raise InvalidInput("dsn", "another form", problem) from None
    return f"database {parts.get('dbname', '')} on {parts.get('host', 'this machine')}"


def _reason(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error)
