"""Too many open files, or too little memory: requests get 503, and all works again afterwards."""

from __future__ import annotations

import errno
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.errors import StorageError, Unavailable
from nearcast.server.http.problems import problem_of
from nearcast.server.log.committer import Committer, Written
from nearcast.server.log.records import TICK
from nearcast.server.matching import segments
from nearcast.server.matching.postings import Position
from nearcast.server.service import Service
from nearcast.server.state import Sqlite, State
from nearcast.storage.log import Entry, Log
from nearcast.storage.log.disk import Disk
from running import running_server
from test_service import SEAL, matched, name_of, publish, run, subscribe, take

if TYPE_CHECKING:
    from pathlib import Path

FULL_TABLE = OSError(errno.EMFILE, "Too many open files")


class ScarceDisk(Disk):
    """A disk on which no file can be made while ``error`` is set."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def create(self, path: Path, size: int) -> int:
        if self.error is not None:
            raise self.error
        return super().create(path, size)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_log_that_cannot_make_a_file_goes_on_later(tmp_path: Path, number: int) -> None:
    disk = ScarceDisk()
    with Log(tmp_path, segment_bytes=4096, disk=disk) as log:
        log.append([Entry(TICK, bytes(3000))])
        disk.error = OSError(number, "not now")
        for _ in range(2):
            with pytest.raises(Unavailable, match="no file could be made: not now"):
                log.append([Entry(TICK, bytes(3000))])
        disk.error = None
        assert log.append([Entry(TICK, bytes(3000))]) == 2


def test_publishers_try_again_and_the_server_goes_on(tmp_path: Path) -> None:
    disk = ScarceDisk()

    async def work() -> None:
        service = Service.open(tmp_path, seal=SEAL, segment_bytes=4096, disk=disk)
        service.start()
        failures: list[BaseException] = []
        service.on_failure = failures.append
        try:
            await subscribe(service)
            disk.error = FULL_TABLE
            stored, refused = 0, None
            while refused is None and stored < 100:
                try:
                    await publish(service, f"{stored}")
                    stored += 1
                except Unavailable as error:
                    refused = error
            assert refused is not None
            assert problem_of(refused).status == 503
            disk.error = None
            await publish(service, f"{stored}")
            feed = await service.feed(0, "ann", Position(0))
            names = [name_of(event) for event in await take(feed, stored + 1)]
            assert names == [str(number) for number in range(stored + 1)]
            feed.close()
            assert not failures
        finally:
            await service.close()

    run(work())


def test_a_segment_that_cannot_be_opened_now_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write() -> None:
        service = Service.open(tmp_path, seal=SEAL, segment_bytes=4096)
        service.start()
        await subscribe(service)
        for number in range(100):
            await publish(service, str(number))
        await matched(service)
        await service.close()

    async def read() -> None:
        service = Service.open(tmp_path, seal=SEAL, segment_bytes=4096)
        service.start()

        def refuse(*given: Any, **options: Any) -> Any:
            raise StorageError("arrays.bin: cannot be read") from FULL_TABLE

        try:
            with monkeypatch.context() as patched:
                patched.setattr(segments, "read_arrays", refuse)
                with pytest.raises(Unavailable):
                    service.events.read(1, Position(0), 10)
            assert len(service.events.read(1, Position(0), 10)) == 10
        finally:
            await service.close()

    run(write())
    run(read())


def test_a_state_that_cannot_be_opened_now_is_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(Sqlite(tmp_path / "state.db"))
    state.secret("tokens")
    database: Any = state._database

    def refuse() -> sqlite3.Connection:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorname = "SQLITE_CANTOPEN"
        raise error

    with monkeypatch.context() as patched:
        database._free.clear()
        patched.setattr(database, "_connect", refuse)
        with pytest.raises(Unavailable, match="unable to open database file"):
            state.secret("tokens")
    assert len(state.secret("tokens")) == 32
    state.close()


@pytest.mark.parametrize(
    "error", [MemoryError(), FULL_TABLE, RuntimeError("can't start new thread")], ids=repr
)
def test_requests_get_503_and_work_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with running_server(tmp_path / "data") as server:
        state = server.app.state.context.service.state

        def refuse(*_: object) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(state, "tenants", refuse)
            with server.client() as client:
                answer = client.get("/v1/tenants")
            assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
            assert answer.headers["retry-after"] == "5"
            with server.client() as client:
                assert client.get("/healthz").text == "ok\n"
        with server.client() as client:
            assert client.get("/v1/tenants").status_code == 200


def test_what_comes_while_the_database_is_away_is_refused(tmp_path: Path) -> None:
    class Away(Log):
        @property
        def away(self) -> bool:
            return True

    with Away(tmp_path) as log:
        committer = Committer(log, lambda group: None, lambda error: None)
        with pytest.raises(Unavailable, match="the database is away"):
            committer.submit(Written(), Entry(TICK, b""))
        committer.close()
        assert log.last_seq == 0
