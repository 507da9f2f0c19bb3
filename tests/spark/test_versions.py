"""Versions of an artifact: commits, races, readers, damaged files."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import StorageError
from nearcast.spark.artifact.versions import (
    Artifact,
    SegmentRef,
    ShardRef,
    Stored,
    Version,
    version_file,
)

if TYPE_CHECKING:
    from pathlib import Path

DATA = Stored("data/aa", "d1" * 32, 1_000)
DEAD = Stored("data/bb", "d2" * 32, 20)
ROUTER = Stored("data/cc", "d3" * 32, 300)
FULL = Version(
    "trie-pyramid",
    {"list_size": 32},
    "string",
    (
        ShardRef((SegmentRef(DATA, 10, DEAD, 3), SegmentRef(DATA, 5))),
        ShardRef((SegmentRef(DATA, 7),)),
    ),
    ROUTER,
    plan={"shards": [1, 2]},
    source={"by": "build", "note": "Zürich"},
    number=7,
    created_ms=1_700_000_000_000,
)
SMALL = Version("scan", {}, "integer", (ShardRef((SegmentRef(DATA, 4),)),))


def test_a_version_is_read_as_it_was_written() -> None:
    assert Version.parse(FULL.render(), "here") == FULL
    assert ShardRef.from_json(FULL.shards[0].to_json()) == FULL.shards[0]


def test_what_a_version_says_of_itself() -> None:
    assert (FULL.mode, SMALL.mode) == ("sharded", "replicated")
    assert FULL.rows == 10 - 3 + 5 + 7
    assert FULL.nbytes == 3 * 1_000 + 20 + 300
    assert (FULL.deltas, SMALL.deltas) == (1, 0)


@given(st.integers(0, len(FULL.render()) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed(position: int, change: int) -> None:
    raw = bytearray(FULL.render())
    raw[position] ^= change
    with pytest.raises(StorageError):
        Version.parse(bytes(raw), "here")


@given(st.integers(0, len(FULL.render()) - 1))
def test_a_file_that_was_cut_off_is_noticed(length: int) -> None:
    with pytest.raises(StorageError):
        Version.parse(FULL.render()[:length], "here")


@given(st.binary(max_size=50) | st.sampled_from([b"[]", b"{}", b"7", b"null", b'{"magic": 1}']))
def test_other_files_are_no_versions(raw: bytes) -> None:
    with pytest.raises(StorageError, match="here: "):
        Version.parse(raw, "here")


def test_another_format_is_refused_by_its_number() -> None:
    body = json.loads(FULL.render())
    body["format"] = 99
    with pytest.raises(StorageError, match="has the format 99, this library reads 1"):
        Version.parse(json.dumps(body).encode(), "here")


def test_commits_are_numbered_and_the_last_is_in_force(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path / "new" / "artifact")
    assert artifact.numbers() == []
    assert [artifact.commit(SMALL).number for _ in range(3)] == [1, 2, 3]
    assert artifact.latest().number == 3
    assert artifact.read(2) == replace(SMALL, number=2, created_ms=artifact.read(2).created_ms)


def test_an_overtaken_change_is_refused(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(SMALL)
    assert artifact.commit(SMALL, after=1).number == 2
    with pytest.raises(StorageError, match="version 2 was committed while changes"):
        artifact.commit(SMALL, after=1)
    assert artifact.numbers() == [1, 2]


def test_foreign_files_among_the_versions_are_passed_over(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(SMALL)
    (tmp_path / "versions" / ".00000002.json.1f2e").write_bytes(b"half")
    (tmp_path / "versions" / "00000003.json.part").write_bytes(b"half")
    assert artifact.numbers() == [1]


def test_versions_that_are_not_there(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    for ask in (artifact.latest, lambda: artifact.at(0)):
        with pytest.raises(StorageError, match="contains no index; build one with: nearcast spark"):
            ask()
    artifact.commit(SMALL)
    with pytest.raises(StorageError, match=r"no version 5 \(found: 1\)"):
        artifact.read(5)
    (tmp_path / "versions" / "00000001.json").rename(tmp_path / version_file(4))
    with pytest.raises(StorageError, match="contains version 1"):
        artifact.latest()


def test_an_artifact_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="Not a directory"):
        Artifact(tmp_path / "file").commit(SMALL)


def test_the_version_of_a_moment(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    for number, created_ms in ((2, 100), (3, 200), (5, 200), (6, 300)):
        made = replace(SMALL, number=number, created_ms=created_ms)
        artifact.folder.create(version_file(number), made.render())
    moments = (0, 99, 100, 199, 200, 299, 300, 10**15)
    assert [artifact.at(ms).number for ms in moments] == [2, 2, 2, 2, 5, 5, 6, 6]


def _commit_often(folder: str, after: int | None) -> list[int]:
    """Commit again and again, each change after the version that was read, or whatever comes."""
    artifact = Artifact(folder)
    made: list[int] = []
    while len(made) < 20:
        last = max(artifact.numbers(), default=0) if after is not None else None
        with contextlib.suppress(StorageError):  # the other one was faster
            made.append(artifact.commit(SMALL, after=last).number)
    return made


@pytest.mark.parametrize("after", [None, 0])
def test_racing_processes_each_get_their_own_numbers(tmp_path: Path, after: int | None) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        racing = [pool.submit(_commit_often, str(tmp_path), after) for _ in range(2)]
        one, other = (future.result(timeout=100) for future in racing)
    assert sorted(one + other) == list(range(1, 41)) == Artifact(tmp_path).numbers()
    assert all(Artifact(tmp_path).read(number).index == "scan" for number in range(1, 41))
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == [
        f"{number:08d}.json" for number in range(1, 41)
    ]


def test_a_version_that_is_read_stays(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    first = artifact.commit(SMALL)
    with artifact.reading(first), artifact.reading(first):
        assert not artifact.drop(1)
        assert artifact.read(1) == first
    assert artifact.drop(1)
    assert artifact.drop(1), "it is gone: there is nothing left to do"
    assert artifact.numbers() == []
    with artifact.reading(first):
        pass


_READER = """
import sys
from nearcast.spark.artifact.versions import Artifact
artifact = Artifact(sys.argv[1])
with artifact.reading(artifact.latest()):
    print("reading", flush=True)
    sys.stdin.read()
"""


def test_a_reader_in_another_process_keeps_its_version_until_it_dies(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(SMALL)
    command = [sys.executable, "-c", _READER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        assert not artifact.drop(1)
        reader.kill()
        reader.wait()
    assert artifact.drop(1)
