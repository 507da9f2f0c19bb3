"""The log in PostgreSQL when the server crashes, connections break, or somebody else writes."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

import nearcast.server.log.postgres
from nearcast.errors import NoSpace, StorageError, Unavailable
from nearcast.server.log import Entry
from nearcast.server.log.postgres import PostgresLog
from nearcast.server.state import Postgres as StatePostgres
from nearcast.server.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postgres import Postgres


class Proxy:
    """Passes bytes between clients and a server, until a connection is to be cut.

    Attributes
    ----------
    cut
        "request": the next request never arrives; "reply": it does, and its reply never arrives.
        Both happen once. None: pass everything on.
    cuts
        How often a connection was cut.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut: str | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            for source, sink, what in ((client, server, "request"), (server, client, "reply")):
                arguments = (source, sink, what)
                threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, what: str) -> None:
        try:
            while data := source.recv(1 << 16):
                if self.cut == what:
                    self.cut = None
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    made = Proxy(postgres.port)
    yield made
    made.close()


def bodies(log: PostgresLog) -> list[bytes]:
    return [record.body for record in log.read(log.first_seq)]


def test_crashes_of_the_server_while_threads_append(postgres: Postgres, database: str) -> None:
    """Every entry is there once; those of a thread in its order, with the number it was given."""
    rng = random.Random(3)
    given: dict[int, bytes] = {}
    failed: list[BaseException] = []
    done = threading.Event()
    appended = threading.Semaphore(0)

    def work(number: int) -> None:
        i = 0
        try:
            while not done.is_set():
                body = b"%d %d " % (number, i) + bytes(rng.randrange(3000))
                given[log.append([Entry(number, body, 1 + i % 3)])] = body
                appended.release()
                i += 1
        except BaseException as error:
            failed.append(error)

    with PostgresLog(database) as log:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                for _ in range(rng.randrange(5, 60)):
                    assert appended.acquire(timeout=60)
                postgres.kill()
                postgres.start()
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not failed
        found = [*log.read(1)]
    with PostgresLog(database) as log:
        assert [*log.read(1)] == found
    assert {record.last_seq: record.body for record in found} == given
    assert len(found) == len(given) > 25
    for number in range(3):
        order = [int(record.body.split()[1]) for record in found if record.kind == number]
        assert order == [*range(len(order))]


def test_a_connection_that_breaks_before_or_after_the_commit(database: str, proxy: Proxy) -> None:
    rng = random.Random(5)
    through = psycopg.conninfo.make_conninfo(database, port=proxy.port)
    expected = []
    with PostgresLog(through) as log:
        for i in range(40):
            proxy.cut = rng.choice([None, "request", "reply"])
            expected.append(b"%d" % i)
            assert log.append([Entry(1, expected[-1])]) == i + 1
            proxy.cut = rng.choice([None, "request", "reply"])
            assert log.find(i + 1).body == expected[-1]
        proxy.cut = None
        assert bodies(log) == expected
    assert proxy.cuts > 30
    with PostgresLog(database) as log:
        assert bodies(log) == expected


def end_session_of(database: str) -> None:
    """End the session that has the lock, as an administrator would."""
    with psycopg.connect(database, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
            "AND objid = 'nearcast_log'::regclass"
        ).fetchall()
    assert ended == [(True,)]


def test_a_session_that_was_ended_takes_the_lock_again(database: str) -> None:
    with PostgresLog(database) as log:
        log.append([Entry(1, b"first")])
        end_session_of(database)
        assert log.append([Entry(1, b"second")]) == 2
        with pytest.raises(StorageError, match="already open for writing"):
            PostgresLog(database)
        assert bodies(log) == [b"first", b"second"]


def test_who_lost_the_log_to_another_writes_no_more(database: str) -> None:
    with PostgresLog(database, away_s=0.5) as log:
        log.append([Entry(1, b"first")])
        end_session_of(database)
        with PostgresLog(database) as other:
            with pytest.raises(StorageError, match="another session has taken the log"):
                log.append([Entry(1, b"second")])
            assert other.append([Entry(1, b"of the other")]) == 2
        with pytest.raises(StorageError, match="failed before"):
            log.append([Entry(1, b"second")])


@pytest.mark.parametrize("writes", [True, False])
def test_who_was_away_while_another_wrote_writes_no_more(database: str, writes: bool) -> None:
    with PostgresLog(database) as log:
        log.append([Entry(1, b"first")])
        end_session_of(database)
        with PostgresLog(database) as other:
            if writes:
                other.append([Entry(1, b"second")])
        with pytest.raises(StorageError, match="another writer was there"):
            log.append([Entry(1, b"second")])
    with PostgresLog(database) as log:
        assert bodies(log) == [b"first", b"second"][: 1 + writes]


def test_a_server_that_stays_away(postgres: Postgres, database: str) -> None:
    with PostgresLog(database, away_s=0.5) as log:
        log.append([Entry(1, b"first")])
        postgres.kill()
        try:
            with pytest.raises(StorageError, match=r"stayed away for 0\.5 s"):
                log.find(1)
            with pytest.raises(StorageError, match=r"stayed away for 0\.5 s"):
                log.append([Entry(1, b"second")])
        finally:
            postgres.start()
        with pytest.raises(StorageError, match="failed before"):
            log.append([Entry(1, b"second")])
        assert log.find(1).body == b"first"
    with PostgresLog(database) as log:
        assert bodies(log) == [b"first"]


def test_publishers_wait_until_the_server_returns(
    postgres: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: nothing ends the log, and what waited is there once."""
    monkeypatch.setattr(nearcast.server.log.postgres, "_AWAY_S", 0.0)
    monkeypatch.setattr(nearcast.server.log.postgres, "_READ_AWAY_S", 0.1)
    with PostgresLog(database) as log:
        log.append([Entry(1, b"first")])
        assert not log.away
        postgres.kill()
        appended: list[int] = []
        thread = threading.Thread(target=lambda: appended.append(log.append([Entry(1, b"second")])))
        try:
            thread.start()
            while not log.away:  # each look waits for a tenth of a second
                with pytest.raises(Unavailable, match=r"stayed away for 0\.1 s"):
                    log.find(1)
            assert not appended
        finally:
            postgres.start()
        thread.join(60)
        assert appended == [2]
        assert not log.away
        assert bodies(log) == [b"first", b"second"]


def test_the_event_loop_does_not_wait_for_the_state(postgres: Postgres, database: str) -> None:
    """Keys are looked up there. It waited for a minute, and answered nobody meanwhile."""
    state = State(StatePostgres(database, schema="loop"))

    async def look() -> None:
        for _ in range(100):  # the second one is refused at once
            with pytest.raises(Unavailable):
                state.key("4f6k0a9d2mxq")

    postgres.kill()
    tried: list[None] = []
    connect = state._database._connection  # type: ignore[attr-defined]
    state._database._connection = lambda: tried.append(None) or connect()  # type: ignore
    try:
        asyncio.run(look())
    finally:
        postgres.start()
    assert len(tried) < 50
    assert state.tenants() == []  # in another thread, which tries
    asyncio.run(asyncio.to_thread(state.key, "4f6k0a9d2mxq"))
    state.close()


def test_who_shuts_down_waits_no_longer(
    postgres: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearcast.server.log.postgres, "_READ_AWAY_S", 0.1)
    with PostgresLog(database) as log:
        postgres.kill()
        log.stop_waiting()
        try:
            with pytest.raises(StorageError, match=r"stayed away for 0\.1 s"):
                log.append([Entry(1, b"first")])
        finally:
            postgres.start()


def test_a_patient_transaction_waits_until_the_server_returns(
    postgres: Postgres, database: str
) -> None:
    state = State(StatePostgres(database, schema="patient", patience_s=0.1))
    state.apply([], 1)
    postgres.kill()
    thread = threading.Thread(target=state.apply, args=([], 2))
    try:
        thread.start()
        with pytest.raises(Unavailable):
            state.tenants()
        assert thread.is_alive()
    finally:
        postgres.start()
    thread.join(60)
    assert not thread.is_alive()
    assert state.applied_seq == 2
    state.close()


def test_a_full_disk_is_an_error_after_which_writing_works(database: str) -> None:
    """A trigger raises what PostgreSQL does when the disk is full."""
    with PostgresLog(database) as log:
        log.append([Entry(1, b"first")])
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
            )
            connection.execute(
                "CREATE TRIGGER no_space BEFORE INSERT ON nearcast_log EXECUTE FUNCTION full_disk()"
            )
            with pytest.raises(NoSpace, match="could not extend file"):
                log.append([Entry(1, b"second")])
            connection.execute("DROP TRIGGER no_space ON nearcast_log")
        assert log.append([Entry(1, b"third")]) == 2
        assert bodies(log) == [b"first", b"third"]
