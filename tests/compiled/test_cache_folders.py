"""Where the cache is: in folders that only this user can write to, else in temporary ones."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nearcast.compiled import cache as cache_module
from nearcast.compiled.cache import (
    ModuleFolder,
    UnsafeFolder,
    cache_folder,
    note_use,
    private_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER_USER = 12_345


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a path seem to have another owner, group or mode."""

    def change(
        path: Path, *, user: int | None = None, group: int | None = None, mode: int | None = None
    ) -> None:
        below = os.lstat

        def lstat(other: Path) -> os.stat_result:
            found = below(other)
            if Path(other) != path:
                return found
            fields = list(found)
            fields[0] = found.st_mode if mode is None else found.st_mode & ~0o7777 | mode
            fields[4] = found.st_uid if user is None else user
            fields[5] = found.st_gid if group is None else group
            return os.stat_result(fields)

        monkeypatch.setattr(os, "lstat", lstat)

    return change


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process not have warned yet."""
    monkeypatch.setattr(cache_module, "_warned", False)


def test_a_missing_folder_is_created_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert folder == (tmp_path / "a" / "b").resolve()
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o722, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(UnsafeFolder, match="can be written to by other users"):
        private_folder(tmp_path / "cache")


@pytest.mark.parametrize(("mode", "safe"), [(0o755, True), (0o777, False), (0o1777, True)])
def test_a_parent_that_others_can_write_to_is_refused_unless_sticky(
    tmp_path: Path, mode: int, safe: bool
) -> None:
    (tmp_path / "parent" / "cache").mkdir(mode=0o700, parents=True)
    (tmp_path / "parent").chmod(mode)
    if safe:
        private_folder(tmp_path / "parent" / "cache")
    else:
        with pytest.raises(UnsafeFolder, match="parent can be written to by other users"):
            private_folder(tmp_path / "parent" / "cache")


def test_a_group_with_other_members_can_write(
    tmp_path: Path, pretend: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    pretend(tmp_path, group=0, mode=0o775)
    with pytest.raises(UnsafeFolder):
        private_folder(tmp_path / "cache")
    monkeypatch.setattr(cache_module, "_is_own_group", lambda group: True)
    private_folder(tmp_path / "cache")


def test_folders_of_other_users_are_refused(tmp_path: Path, pretend: Callable[..., None]) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    private_folder(tmp_path / "cache")
    pretend(tmp_path / "cache", user=OTHER_USER)
    with pytest.raises(UnsafeFolder, match=f"cache belongs to another user .uid {OTHER_USER}"):
        private_folder(tmp_path / "cache")
    # A parent as well: its owner could put another folder in place of the cache.
    with pytest.raises(UnsafeFolder, match=f"belongs to another user .uid {OTHER_USER}"):
        private_folder(tmp_path / "cache" / "deeper")


def test_a_folder_of_root_is_not_one_s_own(
    tmp_path: Path, pretend: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    for path in [tmp_path, *tmp_path.parents]:
        pretend(path, user=0)
    with pytest.raises(UnsafeFolder, match=r"belongs to another user .uid 0"):
        private_folder(tmp_path)


def test_links_are_resolved_before_checking(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "cache").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "cache")
    with pytest.raises(UnsafeFolder, match="open can be written to"):
        private_folder(tmp_path / "link")
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "good").symlink_to(tmp_path / "private")
    assert private_folder(tmp_path / "good") == (tmp_path / "private").resolve()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        private_folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("variable", "below"),
    [("NEARCAST_CACHE_DIR", ""), ("XDG_CACHE_HOME", "nearcast"), ("HOME", ".cache/nearcast")],
)
def test_the_environment_says_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str, quiet: None
) -> None:
    for name in ("NEARCAST_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "given"))
    assert cache_folder("stored") == (tmp_path / "given" / below / "stored").resolve()
    (tmp_path / "given").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="given can be written to by other users") as caught:
        folders = {cache_folder("stored") for _ in range(2)}
    [folder] = folders
    assert len(caught) == 1
    assert not folder.is_relative_to(tmp_path / "given")
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700


# Without what the package imports by itself, which takes longer than all the rest.
FALL_BACK = f"""
import os, sys, types, warnings
warnings.simplefilter("ignore")
sys.modules["nearcast"] = types.ModuleType("nearcast")
sys.modules["nearcast"].__path__ = [{str(cache_module.PACKAGE)!r}]
from nearcast.compiled.cache import cache_folder
print(cache_folder("stored"), flush=True)
open(cache_folder("stored") / "copy", "w").close()
"""


def fall_back(tmp_path: Path, last: str) -> Path:
    """Run a process without a usable cache; return the temporary folder that it used."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "NUMBA_DISABLE_JIT": "1"}
    environment["NEARCAST_CACHE_DIR"] = str(tmp_path / "file" / "cache")
    done = subprocess.run(
        [sys.executable, "-c", FALL_BACK + last],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Path(done.stdout.splitlines()[0]).parent


def test_a_temporary_folder_is_removed_at_exit(tmp_path: Path) -> None:
    used = fall_back(tmp_path, "")
    assert used.parent == tmp_path / "tmp"
    assert str(os.getuid()) not in used.name.split("-")
    assert os.listdir(tmp_path / "tmp") == []


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    kill = "import signal; os.kill(os.getpid(), signal.SIGKILL)"
    dead, live = fall_back(tmp_path, kill), fall_back(tmp_path, kill)
    # The second process removed what the first one had left.
    assert not dead.exists()
    assert live.exists()
    with open(live / "lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        third = fall_back(tmp_path, kill)
        assert live.exists()
    fall_back(tmp_path, "")
    assert not live.exists()
    assert not third.exists()
    assert os.listdir(tmp_path / "tmp") == []


def test_a_forked_process_does_not_remove_the_folder_of_its_parent(tmp_path: Path) -> None:
    fork = f"""
own = cache_folder("stored")
if os.fork() == 0:
    # Its own one, which does not go away with the parent's.
    print(cache_folder("stored") == own, file=open({str(tmp_path / "same")!r}, "w"))
    sys.exit(0)
os.wait()
print(os.path.exists(own / "copy"), file=open({str(tmp_path / "exists")!r}, "w"))
"""
    fall_back(tmp_path, fork)
    assert (tmp_path / "same").read_text() == "False\n"
    assert (tmp_path / "exists").read_text() == "True\n"
    assert os.listdir(tmp_path / "tmp") == []


def test_files_that_nobody_uses_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARCAST_CACHE_DIR", str(tmp_path))
    module = ModuleFolder("nearcast.compiled.shapes")
    folder = module.open()
    now = folder.stat().st_mtime
    ages = {
        "lock": 99,
        "unused.nbc": 31,
        "killed.nbc.1234.part": 31,
        "used.nbc": 29,
        "loaded.nbc": 31,
    }
    for name, days in ages.items():
        (folder / name).touch()
        os.utime(folder / name, (now - days * 86_400, now - days * 86_400))
    note_use(folder / "loaded.nbc")
    module.tidy()
    assert {path.name for path in folder.iterdir()} == {"lock", "used.nbc", "loaded.nbc"}
