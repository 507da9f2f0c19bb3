"""Secrets on disk: with a key outside of the folder, nothing in the folder gives them away."""

from __future__ import annotations

import base64
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from nearcast.errors import InvalidInput, StorageError
from nearcast.server.log.records import Change, SinkDefinition
from nearcast.server.opening import Where, open_service
from nearcast.server.state import Sqlite, State
from nearcast.server.state.vault import KEY_VARIABLE, Vault, new_key_file, read_key
from test_service import definition, run

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.server.service import Service

NEARCAST = [sys.executable, "-m", "nearcast.cli"]
SECRET = "whsec_" + base64.b64encode(b"a secret of the receiver").decode()
TOKEN = "Bearer of-the-receiver"
SINK = SinkDefinition("https://example.com/hook", (SECRET,), {"authorization": TOKEN})


def key_file(tmp_path: Path, name: str = "key") -> Path:
    path = tmp_path / name
    new_key_file(path)
    return path


async def subscribe(service: Service, id: str) -> None:
    service.start()
    try:
        [outcome] = await service.change(0, [Change(id, definition(sink=SINK))])
        assert not outcome.code
    finally:
        await service.close()


def holding(folder: Path, *needles: bytes) -> list[str]:
    """The files that have one of some bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(n in path.read_bytes() for n in needles)]


def clear_texts(token_secret: bytes) -> tuple[bytes, ...]:
    return SECRET.encode(), TOKEN.encode(), token_secret, token_secret.hex().encode()


def test_nothing_in_the_folder_has_a_secret_that_was_given_a_key(tmp_path: Path) -> None:
    folder, key = tmp_path / "data", key_file(tmp_path)
    service = open_service(Where(folder, secrets_key=key))
    token_secret = service.state.secret("tokens")
    run(subscribe(service, "one"))
    assert holding(folder, *clear_texts(token_secret)) == []
    again = open_service(Where(folder, secrets_key=key))
    assert again.state.secret("tokens") == token_secret
    [sink] = again.state.sinks()
    assert (sink.secrets, sink.headers) == ((SECRET,), {"authorization": TOKEN})
    row = again.state.definition(0, "one")
    assert row is not None
    assert SECRET.encode() in row.definition
    again.log.close()
    again.state.close()


def test_a_state_of_before_is_sealed_when_a_key_is_given(tmp_path: Path) -> None:
    folder, key = tmp_path / "data", key_file(tmp_path)
    service = open_service(Where(folder))
    token_secret = service.state.secret("tokens")
    run(subscribe(service, "one"))
    run(subscribe(open_service(Where(folder)), "one"))  # supersedes the first
    needles = clear_texts(token_secret)
    assert "state.db" in holding(folder, *needles)
    service = open_service(Where(folder, secrets_key=key))
    assert service.state.secret("tokens") == token_secret
    assert [sink.secrets for sink in service.state.sinks()] == [(SECRET,)]
    service.state.check()
    service.log.close()
    service.state.close()
    found = holding(folder, *needles)
    assert not [name for name in found if name.startswith("state.db")], found


def test_a_log_of_before_is_sealed_on_its_way_to_the_state(tmp_path: Path) -> None:
    """A crash before the state was written: the log has secrets from before the key."""
    folder, key = tmp_path / "data", key_file(tmp_path)
    run(subscribe(open_service(Where(folder)), "one"))
    for path in folder.glob("state.db*"):
        path.unlink()
    for path in (folder / "checkpoint").rglob("*"):
        if path.is_file():
            path.unlink()
    service = open_service(Where(folder, secrets_key=key))
    assert [sink.secrets for sink in service.state.sinks()] == [(SECRET,)]
    service.log.close()
    service.state.close()
    assert not [n for n in holding(folder, SECRET.encode()) if n.startswith("state.db")]


def test_a_key_that_is_missing_later_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    run(subscribe(open_service(Where(folder, secrets_key=key_file(tmp_path))), "one"))
    with pytest.raises(StorageError, match=f"no key was given.*{KEY_VARIABLE}"):
        open_service(Where(folder))
    with pytest.raises(StorageError, match="encrypted with another key"):
        open_service(Where(folder, secrets_key=key_file(tmp_path, "other")))
    open_once = open_service(Where(folder, secrets_key=tmp_path / "key"))
    open_once.log.close()
    open_once.state.close()


def test_the_environment_names_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, key = tmp_path / "data", key_file(tmp_path)
    monkeypatch.setenv(KEY_VARIABLE, str(key))
    run(subscribe(open_service(Where(folder)), "one"))
    assert holding(folder, SECRET.encode()) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [("", "32 random bytes"), ("c2hvcnQ=", "32 random bytes"), ("???", "32 random bytes")],
)
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=problem):
        read_key(path, tmp_path / "data")


def test_a_key_in_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be outside of"):
        read_key(key_file(tmp_path), tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_key(tmp_path / "nothing", tmp_path / "data")


def test_a_new_key_replaces_none(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(InvalidInput, match="cannot be made"):
        new_key_file(path)
    assert read_key(path, tmp_path / "data") != read_key(key_file(tmp_path, "b"), tmp_path / "data")


def test_what_was_sealed_differs_every_time_and_stays_sealed() -> None:
    vault = Vault(bytes(32))
    first, second = vault.seal(SECRET), vault.seal(SECRET)
    assert first != second
    assert vault.seal(first) == first
    assert vault.open(first) == vault.open(second) == SECRET
    assert vault.open(SECRET) == SECRET
    with pytest.raises(StorageError, match="another key, or are damaged"):
        vault.open(first[:-8] + "AAAAAAA=")


def test_ended_tokens_have_another_secret(tmp_path: Path) -> None:
    with closing(State(Sqlite(tmp_path / "state.db"))) as state:
        before = state.secret("tokens")
    command = [*NEARCAST, "keys", "end-tokens", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with closing(State(Sqlite(tmp_path / "state.db"))) as state:
        assert state.secret("tokens") != before
