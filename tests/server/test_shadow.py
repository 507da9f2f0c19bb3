"""A disk that is full or read-only at the start: what can be read is served, and stays so."""

from __future__ import annotations

import errno
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.errors import NoSpace, StorageError
from nearcast.server import opening
from nearcast.server.opening import Where, open_service
from nearcast.server.shadow import Shadow, why_unwritable
from nearcast.server.state import Sqlite
from nearcast.storage.log import Log
from running import resource, running_server

if TYPE_CHECKING:
    from pathlib import Path

FULL = OSError(errno.ENOSPC, "No space left on device")
READ_ONLY = OSError(errno.EROFS, "Read-only file system")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a server with a subscription and messages, which was not stopped properly."""
    folder = tmp_path / "data"
    with running_server(folder) as server, server.client() as client:
        (tmp_path / "key").write_text(server.key)
        client.post("/v1/subscriptions", json=resource("tea")).raise_for_status()
        for number in range(5):
            body = {"id": number, "text": "tea", "lon": 13.4, "lat": 52.5}
            client.post("/v1/messages", json=body).raise_for_status()
    return folder


def unwritable(monkeypatch: pytest.MonkeyPatch, folder: Path, error: OSError, at: str) -> None:
    """Let the log or the state of a folder not be opened, and nothing of its shadow."""

    class RefusedLog(Log):
        def __init__(self, path: Path, **options: Any) -> None:
            if path == folder / "log" and at == "log":
                raise error
            super().__init__(path, **options)

    class RefusedState(Sqlite):
        def __init__(self, path: Path) -> None:
            if path == folder / "state.db" and at == "state":
                raise StorageError(f"{path}: {error}") from error
            super().__init__(path)

    monkeypatch.setattr(opening, "Log", RefusedLog)
    monkeypatch.setattr(opening, "Sqlite", RefusedState)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("error", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_what_can_be_read_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    unwritable(monkeypatch, folder, error, "log")
    before = contents(folder)
    key = (folder.parent / "key").read_text()
    with running_server(folder) as server, server.client(key) as client:
        [shown] = client.get("/v1/subscriptions").json()["subscriptions"]
        assert len(client.get("/v1/messages").json()["messages"]) == 5
        page = client.get("/v1/events?poll=1&cursor=earliest").json()
        found = [event["data"] for event in page["events"]]
        assert [data["message"]["id"] for data in found if "message" in data] == [*range(5)]
        ready = client.get("/readyz")
        assert ready.status_code == 200
        expected = "is read-only" if error is READ_ONLY else "is full"
        assert ready.text.startswith(f"ready\nread only: {folder} cannot be written: its ")
        assert expected in ready.text
        subscription = f"/v1/subscriptions/{shown['id']}"
        for method, path, body in (
            ("POST", "/v1/messages", {"text": "tea", "lon": 1, "lat": 1}),
            ("POST", "/v1/subscriptions", resource("cake")),
            ("PUT", "/v1/cursors/mine", {"cursor": "earliest"}),
            ("POST", "/v1/keys", {"roles": ["publish"]}),
            ("DELETE", subscription, None),
        ):
            answer = client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (507, "NO_SPACE"), path
        assert client.get(subscription).status_code == 200
        shadow = server.app.state.context.service.folder
        assert shadow != folder
        with pytest.raises(StorageError, match="already open"):
            Shadow(folder)
    assert not shadow.exists()
    assert contents(folder) == before
    monkeypatch.undo()
    with running_server(folder) as server, server.client(key) as client:
        assert client.get("/readyz").text == "ready\n"
        body = {"id": 5, "text": "tea", "lon": 13.4, "lat": 52.5}
        client.post("/v1/messages", json=body).raise_for_status()


def test_a_state_that_cannot_be_written_is_only_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritable(monkeypatch, folder, FULL, "state")
    service = open_service(Where(folder))
    assert service.read_only is not None
    with pytest.raises(NoSpace, match="its disk is full"):
        service.state.save_cursor(0, "ann", "mine", "now", 0)
    service.log.close()
    service.state.close()
    service._ended()


def test_other_errors_and_new_folders_are_not_hidden(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritable(monkeypatch, folder, OSError(errno.EIO, "Input/output error"), "log")
    with pytest.raises(OSError, match="Input/output error"):
        open_service(Where(folder))
    new = tmp_path / "new"
    unwritable(monkeypatch, new, FULL, "log")
    with pytest.raises(OSError, match="No space left"):
        open_service(Where(new))


def test_reasons() -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorname = "SQLITE_FULL"
    wrapped = StorageError("state.db: database or disk is full")
    wrapped.__cause__ = full
    assert why_unwritable(wrapped) == "its disk is full"
    full.sqlite_errorname = "SQLITE_READONLY_DIRECTORY"
    assert why_unwritable(wrapped) == "its file system is read-only"
    assert why_unwritable(StorageError("damaged")) is None
