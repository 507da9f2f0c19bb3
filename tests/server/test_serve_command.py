"""``nearcast serve`` and ``nearcast keys``: what they say when something is in the way."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.server.http import running

if TYPE_CHECKING:
    from pathlib import Path

NEARCAST = [sys.executable, "-m", "nearcast.cli"]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*NEARCAST, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("serve", tmp_path, "--port", str(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"nearcast: cannot listen on 127.0.0.1, port {port}: ")
    assert done.stderr.count("\n") == 1


def test_an_address_of_another_machine_is_one_line(tmp_path: Path) -> None:
    done = run("serve", tmp_path, "--host", "192.0.2.1", "--port", "0")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    made = run("keys", "create", tmp_path, "--role", "publish", "--name", "feed").stdout.strip()
    assert re.fullmatch(r"nc_[0-9a-z]{12}_[\w-]{43}", made)
    listed = run("keys", "list", tmp_path, "--json").stdout
    assert '"feed"' in listed
    assert made.split("_", 2)[2] not in listed
    assert run("keys", "revoke", made, tmp_path).returncode == 0
    assert run("keys", "revoke", "000000000000", tmp_path).returncode == 1


@pytest.mark.parametrize("role", ["root", ""])
def test_a_role_that_does_not_exist_is_refused(role: str, tmp_path: Path) -> None:
    done = run("keys", "create", tmp_path, "--role", role)
    assert done.returncode == 1
    assert "publish, subscribe, admin" in done.stderr


def test_a_wrong_address_of_tiles_is_one_line(tmp_path: Path) -> None:
    done = run("serve", tmp_path / "data", "--tiles", "https://example.com/tiles")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("nearcast: --tiles: must be an address with {z}, {x} and {y}")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.0.2.1"])
def test_it_warns_when_other_machines_can_reach_it(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listen(
        where: object, host: str, port: int, settings: object, ready: Any, _: object
    ) -> None:
        ready(running.Ready(f"http://{host}:{port}", None, "link"))

    monkeypatch.setattr(running, "serve", listen)
    done = CliRunner().invoke(app, ["serve", str(tmp_path), "--host", host])
    assert done.exit_code == 0
    if host in ("127.0.0.1", "::1", "localhost"):
        assert done.stderr == ""
    else:
        assert done.stderr.startswith(f"Warning: other machines can reach {host}, and there is no")
        assert done.stderr.count("\n") == 1
    assert "Warning" not in done.stdout


def test_it_prints_a_link_that_signs_a_browser_in_once(tmp_path: Path) -> None:
    command = [*NEARCAST, "serve", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            found = re.search(r"within 15 minutes: (http://\S+)/#code=(\S+)$", line)
        url, code = found.groups()
        answers = [httpx.post(f"{url}/v1/sign-in", json={"code": code}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 401]
        assert answers[0].json()["roles"] == ["publish", "subscribe", "admin"]
    finally:
        process.terminate()
        process.communicate(timeout=60)
