"""Killed writers leave temporary files; the next writer to the same target removes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nearcast import Engine, Subscription, indexes
from nearcast.columns import Clauses
from nearcast.errors import StorageError
from nearcast.storage import folder as folder_module
from nearcast.storage import read_arrays, write_arrays
from nearcast.storage.folder import ARRAYS
from nearcast.storage.temporary import TemporaryFile, TemporaryFolder

# Writes a folder, and kills itself when it comes to a function. The function is called if {late}.
KILLED = """
import os, signal
import numpy as np
from nearcast.storage import folder, write_arrays

def die(*arguments, **named):
    if {late}:
        original(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

original = {function}
{function} = die
{before}
write_arrays({target!r}, "example", {{"square": np.arange(1000) ** 2}}, {{"seed": 7}})
"""

POINTS = {
    "before the first array": ("folder._write_files", False),
    "after the first array": ("folder.zlib.crc32", True),
    "before the manifest": ("folder.TemporaryFolder.sync", True),
    "after the manifest": ("folder._write_files", True),
    "after it is in place": ("folder._put_in_place", True),
}


def kill(target: Path, function: str, late: bool, before: str = "") -> None:
    """Let a process be killed while it writes the target."""
    program = KILLED.format(function=function, late=late, before=before, target=str(target))
    source = Path(folder_module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def write(target: Path, seed: int) -> None:
    write_arrays(target, "example", {"seed": np.array([seed])}, {"seed": seed})


def seed_of(target: Path) -> int:
    return int(read_arrays(target, "example")[1]["seed"])


@pytest.mark.parametrize("point", POINTS)
def test_the_next_save_removes_what_a_killed_one_left(tmp_path: Path, point: str) -> None:
    target = tmp_path / "saved"
    write(target, 1)
    kill(target, *POINTS[point])
    assert len(os.listdir(tmp_path)) == 2
    assert seed_of(target) == (7 if point == "after it is in place" else 1)
    write(target, 2)
    assert os.listdir(tmp_path) == ["saved"]
    assert seed_of(target) == 2


def test_the_only_copy_is_not_removed(tmp_path: Path) -> None:
    # Where two folders cannot be exchanged, the old one is moved away first.
    target = tmp_path / "saved"
    write(target, 1)
    kill(target, "os.rename", True, before="folder._exchange = lambda one, other: False")
    [old] = tmp_path.glob(".saved.*.old")
    assert not target.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_module, "_write_files", fail)
        with pytest.raises(StorageError, match="no disk"):
            write(target, 2)
    assert seed_of(old) == 1
    write(target, 3)
    write(target, 4)
    assert os.listdir(tmp_path) == ["saved"]


def fail(*arguments: object) -> None:
    raise OSError("no disk")


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    target = tmp_path / "saved"
    with TemporaryFolder(target, ARRAYS) as folder, TemporaryFile(target) as file:
        write(target, 1)
        assert sorted(os.listdir(tmp_path)) == sorted([folder.path.name, file.path.name, "saved"])
    assert os.listdir(tmp_path) == ["saved"]


def test_other_files_stay(tmp_path: Path) -> None:
    other = [
        ".other.0123456789ab.new",
        ".saved.0123456789ab.new.txt",
        ".saved.0123456789AB.new",
        ".saved.notes.new",
        "saved.0123456789ab.new",
    ]
    for name in other:
        (tmp_path / name).mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / ".saved.0123456789ab.old").symlink_to(tmp_path / "outside")
    write(tmp_path / "saved", 1)
    assert sorted(os.listdir(tmp_path)) == sorted(
        [*other, "saved", "outside", ".saved.0123456789ab.old"]
    )


def test_engines_and_indexes_remove_leftovers(tmp_path: Path) -> None:
    engine = Engine()
    engine.subscribe(Subscription("s1", keywords=["tea"], region=[0, 0, 1, 1]))
    index = indexes.create("scan").build(Clauses.of([[1]], [[0, 0, 5, 5]]))
    for name, save in {"engine": engine.save, "index": index.save}.items():
        target = tmp_path / name / "saved"
        kill(target, "folder._put_in_place", False)
        assert len(os.listdir(tmp_path / name)) == 1
        save(target)
        assert os.listdir(tmp_path / name) == ["saved"]


def test_a_temporary_folder_taken_for_a_leftover_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process removes the first folder before its writer has locked it.
    real = Path.mkdir
    removed: list[Path] = []

    def mkdir(path: Path) -> None:
        real(path)
        if not removed:
            removed.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with TemporaryFolder(tmp_path / "saved", ARRAYS) as folder:
        assert folder.path not in removed
        assert (folder.path / ARRAYS).exists()
    assert os.listdir(tmp_path) == []
