"""The folder of a server is closed to other users of the machine, from its first moment."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from nearcast.errors import StorageError
from nearcast.server.opening import Where, open_service
from nearcast.server.private import close_to_others, private_files
from nearcast.server.state import Sqlite, State

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes mean nothing there")
NEARCAST = [sys.executable, "-m", "nearcast.cli"]


def open_paths(folder: Path) -> list[str]:
    """What other users could read, by its mode alone."""
    paths = [folder, *folder.rglob("*")]
    return [str(path) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_a_new_folder_is_private_although_the_umask_is_open(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    before = os.umask(0o022)
    try:
        with private_files():
            service = open_service(Where(folder))
            service.log.close()
            service.state.close()
    finally:
        os.umask(before)
    assert (folder / "state.db").exists()
    assert open_paths(folder) == []


def test_what_the_command_makes_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    command = [*NEARCAST, "keys", "create", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, umask=0o022)
    assert done.returncode == 0, done.stderr
    assert len([*folder.rglob("*")]) > 5
    assert open_paths(folder) == []


def test_the_state_is_private_before_anything_is_in_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with closing(State(Sqlite(tmp_path / "state.db"))) as state:
            state.secret("tokens")
            assert open_paths(tmp_path) == []
    finally:
        os.umask(before)


def test_an_open_folder_is_mended_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    (folder / "log").mkdir(parents=True)
    (folder / "state.db").touch()
    for path, mode in ((folder, 0o755), (folder / "log", 0o777), (folder / "state.db", 0o644)):
        path.chmod(mode)
    logging.getLogger("nearcast").propagate = True
    with caplog.at_level("WARNING", "nearcast.server"):
        close_to_others(folder)
    assert open_paths(folder) == []
    [line] = caplog.messages
    assert f"{folder} was open to other users of this machine (mode 0755)" in line
    assert "nearcast keys end-tokens" in line
    caplog.clear()
    close_to_others(folder)
    assert caplog.messages == []


def test_a_folder_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "thesis.tex").touch()
    with pytest.raises(StorageError, match=r"thesis\.tex.*choose a new or an empty folder"):
        close_to_others(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_folder_that_cannot_be_closed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o770)
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(StorageError, match=r"closed to other users \(Operation not permitted\)"):
        close_to_others(folder)


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o700)
    (folder / "link").symlink_to(outside)
    close_to_others(folder)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
