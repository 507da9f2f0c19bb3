"""Folders of work: removed at the end, left by the dead, and found as rubbish then."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from generated import build_locally, subscription_table

from nearcast.errors import StorageError
from nearcast.spark.artifact import working as working_module
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.artifact.working import remove_garbage, working
from nearcast.spark.compact import _drop_versions
from nearcast.spark.workers.building import data_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WORKER = """
import sys
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.artifact.working import working
artifact = Artifact(sys.argv[1])
with working(artifact) as work:
    artifact.folder.create(work + "/part", b"half")
    artifact.folder.create("data/unfinished/part", b"half")
    print(work, flush=True)
    sys.stdin.read()
"""

_READER = """
import sys
from nearcast.spark.artifact.versions import Artifact
artifact = Artifact(sys.argv[1])
with artifact.reading(artifact.read(1)):
    print("reading", flush=True)
    sys.stdin.read()
"""


@contextmanager
def process(script: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a script until it has said something; it goes on until its input ends, or it dies."""
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        yield running, running.stdout.readline().strip()


def stored_folders(artifact: Artifact) -> set[str]:
    return {f"data/{name}" for name in artifact.folder.names("data")}


def named(artifact: Artifact, *numbers: int) -> set[str]:
    return {stored.name for number in numbers for stored in artifact.read(number).stored()}


def test_work_has_a_folder_that_is_gone_at_the_end(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    with working(artifact) as one, working(artifact) as other:
        assert one != other
        artifact.folder.create(f"{one}/part", b"")
        assert sorted([one, other]) == [f"work/{name}" for name in artifact.folder.names("work")]
        assert remove_garbage(artifact, 0.0) == []
    assert artifact.folder.names("work") == []
    with pytest.raises(ZeroDivisionError), working(artifact):
        raise ZeroDivisionError
    assert artifact.folder.names("work") == []


def test_a_place_where_nobody_can_work_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "work").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be written"), working(Artifact(tmp_path)):
        pass


def test_dead_work_is_rubbish_and_running_work_is_not(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    build_locally(artifact, subscription_table(10))
    artifact.folder.remove("work")
    keeps = stored_folders(artifact)
    with process(_WORKER, tmp_path) as (worker, work):
        assert remove_garbage(artifact, 0.0) == []
        assert artifact.folder.names(work) == ["lock", "part"]
        assert stored_folders(artifact) == {*keeps, "data/unfinished"}
        worker.kill()
        worker.wait()
        assert artifact.folder.names(work) == ["lock", "part"]
    with working(artifact) as alive:
        assert remove_garbage(artifact, 0.0) == [work]
        assert [f"work/{name}" for name in artifact.folder.names("work")] == [alive]
        assert "data/unfinished" in stored_folders(artifact), "it may belong to whoever works"
    assert remove_garbage(artifact, 0.0) == ["data/unfinished"]
    assert stored_folders(artifact) == keeps
    assert remove_garbage(artifact, 0.0) == []


def test_work_without_a_lock_is_dead(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    artifact.folder.create("work/abc/part", b"")
    assert remove_garbage(artifact, 1e9) == ["work/abc"]


def test_half_a_version_is_rubbish_and_foreign_files_are_not(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    build_locally(artifact, subscription_table(5))
    artifact.folder.remove("work")
    halves = [".00000002.json.0123456789ab", "00000002.json.0123456789ab.part"]
    for name in (*halves, "README", ".nfs000001"):
        (tmp_path / "versions" / name).write_bytes(b"half")
    assert remove_garbage(artifact, 0.0) == [f"versions/{name}" for name in halves]
    assert artifact.folder.names("versions") == [".nfs000001", "00000001.json", "README"]


def test_work_that_was_taken_for_dead_at_its_beginning_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact(tmp_path)
    begin, begun = working_module._begin, []

    def begin_and_lose(artifact: Artifact) -> str:
        begun.append(begin(artifact))
        if len(begun) < 3:
            assert remove_garbage(artifact, 0.0) == [begun[-1]]
        return begun[-1]

    monkeypatch.setattr(working_module, "_begin", begin_and_lose)
    with working(artifact) as work:
        assert work == begun[2]
        assert remove_garbage(artifact, 0.0) == []


def test_what_is_committed_while_rubbish_is_sought_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, subscription_table(5))
    artifact.folder.remove("work")
    names = artifact.folder.names

    def names_and_work(name: str = "") -> list[str]:
        found = names(name)
        if name == "work":  # as if somebody began right after nobody was seen to work
            artifact.folder.create("data/new/part", b"")
        return found

    monkeypatch.setattr(artifact.folder, "names", names_and_work)
    assert remove_garbage(artifact, 0.0) == []
    assert stored_folders(artifact) == {"data/new", *(s.name for s in first.stored())}


def test_elsewhere_only_time_tells_whether_work_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact(f"local://{tmp_path}")
    assert artifact.folder.local is None
    with working(artifact) as work:
        artifact.folder.create("data/new/part", b"")
        assert remove_garbage(artifact, 60.0) == []
        later = time.time() + 61.0
        monkeypatch.setattr(time, "time", lambda: later)
        assert remove_garbage(artifact, 60.0) == [work, "data/new"]


def test_versions_are_dropped_when_nobody_reads_them(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    for seed in range(3):
        build_locally(artifact, subscription_table(5, seed), 2)
    artifact.folder.remove("work")
    with process(_READER, tmp_path) as (reader, _):
        assert _drop_versions(artifact, 3, 0.0) == ([2], [1])
        gone = remove_garbage(artifact, 0.0)
        assert stored_folders(artifact) == named(artifact, 1, 3)
        assert len(gone) == 3, "two shards and a router"
        reader.kill()
        reader.wait()
    assert _drop_versions(artifact, 3, 3600.0) == ([], [1]), "not yet"
    assert _drop_versions(artifact, 3, 0.0) == ([1], [])
    assert _drop_versions(artifact, 3, 0.0) == ([], [])
    remove_garbage(artifact, 0.0)
    assert artifact.numbers() == [3]
    assert stored_folders(artifact) == named(artifact, 3)


def test_what_several_versions_share_stays_with_the_last_of_them(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, subscription_table(5))
    artifact.folder.remove("work")
    artifact.commit(replace(first, source={"by": "changes"}), after=1)
    artifact.folder.create(f"{data_name()}/part", b"")
    assert _drop_versions(artifact, 2, 0.0) == ([1], [])
    assert len(remove_garbage(artifact, 0.0)) == 1
    assert stored_folders(artifact) == {stored.name for stored in first.stored()}
