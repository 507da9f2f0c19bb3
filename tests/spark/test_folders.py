"""Folders on the local disk and on other file systems, and what is stored in them."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from generated import (
    NOW_US,
    Pair,
    build_locally,
    message_table,
    pairs_of,
    scanned,
    subscription_table,
)

from nearcast.errors import StorageError
from nearcast.spark.artifact import folders
from nearcast.spark.artifact.folders import Folder, open_folder
from nearcast.spark.artifact.segments import open_segment
from nearcast.spark.artifact.states import PartitionStates
from nearcast.spark.artifact.versions import Artifact, Version
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.matching import MatchMessages
from nearcast.storage import read_arrays, write_arrays

if TYPE_CHECKING:
    from pathlib import Path

SQUARES = {"square": np.arange(1_000) ** 2}


@pytest.fixture(params=["local", "remote", "memory"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Folder:
    monkeypatch.setattr(folders, "cache_folder", lambda name: tmp_path / "cache" / name)
    if request.param == "memory":
        return open_folder(f"memory://{tmp_path.name}")
    where = tmp_path / "artifact"
    return open_folder(where if request.param == "local" else f"local://{where}")


def is_remote(folder: Folder) -> bool:
    return folder.local is None


def spoil(folder: Folder, name: str) -> None:
    """Change a byte in the middle of a file."""
    path = f"{folder.uri}/{name}"
    with fsspec.open(path, "rb") as file:
        raw = bytearray(file.read())
    raw[len(raw) // 2] ^= 1
    with fsspec.open(path, "wb") as file:
        file.write(bytes(raw))


def copies(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "stored").glob("*"))


def test_files_and_stored_folders_can_be_replaced(folder: Folder) -> None:
    for text in (b"one", b"two"):
        folder.put("some/file", text)
        assert folder.read("some/file") == text
    digests = set()
    for arrays in (SQUARES, {"square": np.arange(3)}):

        def write(path: Path, arrays: dict[str, np.ndarray[Any, Any]] = arrays) -> None:
            write_arrays(path, "squares", arrays, {})

        digest, nbytes = folder.write_with("some/stored", write)
        found, _ = read_arrays(folder.fetch("some/stored", digest), "squares")
        assert found["square"].tolist() == arrays["square"].tolist()
        assert nbytes > arrays["square"].nbytes
        digests.add(digest)
    assert len(digests) == 2
    assert folder.names("some") == ["file", "stored"]


def test_the_state_of_a_stream_may_be_anywhere(folder: Folder, tmp_path: Path) -> None:
    states = PartitionStates(folder, 7)
    assert states.last_snapshot(9) == -1
    for batch in range(4):
        states.write_log(batch, pa.table({"event": [batch]}))
        if batch % 2:
            write = partial(write_arrays, kind="squares", arrays=SQUARES, meta={})
            states.write_snapshot(batch, write, {"present_us": batch})
    assert [states.last_snapshot(batch) for batch in (0, 1, 2, 9)] == [-1, 1, 1, 3]
    where, snapshot = states.open_snapshot(3)
    assert snapshot.meta == {"present_us": 3}
    arrays, _ = read_arrays(where, "squares")
    states.close_snapshot(snapshot)
    assert arrays["square"][-1] == 999**2  # who maps it keeps it
    assert not copies(tmp_path)
    states.remove_before(3)
    assert folder.names("0007") == ["00000003", "00000003.json", "00000003.log"]
    assert [table["event"].to_pylist() for _, table in states.logs(2, 3)] == [[3]]
    with pytest.raises(StorageError, match="incomplete"):
        list(states.logs(0, 3))


def test_files_and_names(folder: Folder) -> None:
    assert folder.names() == folder.names("nowhere") == []
    folder.create("versions/2.json", b"two")
    folder.create("versions/1.json", b"one")
    folder.create("top", b"")
    assert folder.names() == ["top", "versions"]
    assert folder.names("versions") == ["1.json", "2.json"]
    assert folder.read("versions/2.json") == b"two"
    with pytest.raises(FileExistsError):
        folder.create("versions/2.json", b"again")
    assert folder.read("versions/2.json") == b"two"
    with pytest.raises(StorageError, match=r"versions/3\.json"):
        folder.read("versions/3.json")


def test_removing(folder: Folder) -> None:
    folder.create("work/a/deep", b"1")
    folder.create("work/b", b"2")
    folder.remove("work/b")
    assert folder.names("work") == ["a"]
    folder.remove("work")
    folder.remove("work")
    assert folder.names("work") == []


def test_a_folder_is_pickled_as_its_address(folder: Folder) -> None:
    folder.create("a", b"1")
    again = pickle.loads(pickle.dumps(folder))
    assert again.uri == folder.uri
    assert again.read("a") == b"1"


def test_stored_arrays_come_back(folder: Folder, tmp_path: Path) -> None:
    digest, nbytes = folder.write_arrays("data/one", "squares", SQUARES, {"made": "today"})
    assert nbytes > 8_000
    assert folder.names("data/one") == ["arrays.bin", "manifest.json"]
    for _ in range(2):
        arrays, meta = read_arrays(folder.fetch("data/one", digest), "squares")
        np.testing.assert_array_equal(arrays["square"], SQUARES["square"])
        assert meta == {"made": "today"}
    assert len(copies(tmp_path)) == is_remote(folder)


def test_what_has_another_digest_is_refused(folder: Folder, tmp_path: Path) -> None:
    digest, _ = folder.write_arrays("data/one", "squares", SQUARES, {})
    for name, wanted in (("data/one", "0" * 64), ("data/two", digest)):
        with pytest.raises(StorageError, match=f"{name}.*(missing|checksum)"):
            folder.fetch(name, wanted)
    spoil(folder, "data/one/manifest.json")
    with pytest.raises(StorageError, match="checksum"):
        folder.fetch("data/one", digest)
    assert copies(tmp_path) == [], "what is damaged is not kept as a copy"


def test_a_restored_folder_is_taken_after_it_was_missed(folder: Folder) -> None:
    digest, _ = folder.write_arrays("data/one", "squares", SQUARES, {})
    folder.remove("data/one")
    with pytest.raises(StorageError):
        folder.fetch("data/one", digest)
    folder.write_arrays("data/one", "squares", SQUARES, {})
    assert read_arrays(folder.fetch("data/one", digest), "squares")


@pytest.mark.parametrize("file", ["manifest.json", "arrays.bin"])
@pytest.mark.parametrize("way", ["gone", "changed", "cut"])
def test_damaged_copies_are_made_again(folder: Folder, tmp_path: Path, file: str, way: str) -> None:
    artifact = Artifact(folder)
    subscriptions, messages = subscription_table(60), message_table(20)
    version = build_locally(artifact, subscriptions)
    [segment] = version.shards[0].segments
    open_segment(folder, segment)
    for copy in copies(tmp_path):
        raw = (copy / file).read_bytes()
        (copy / file).unlink()
        if way == "changed":
            (copy / file).write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
        elif way == "cut":
            (copy / file).write_bytes(raw[:-1])
    assert _matched(folder, version, messages) == scanned(subscriptions, messages)


def _matched(folder: Folder, version: Version, messages: pa.Table) -> list[Pair]:
    schema = answer_schema(pa.string(), pa.string())
    matching = MatchMessages(folder.uri, version.number, NOW_US, schema)
    return pairs_of(matching(messages.to_batches()))


@pytest.mark.parametrize("shards", [1, 3])
def test_an_artifact_on_any_file_system(folder: Folder, shards: int) -> None:
    subscriptions, messages = subscription_table(100), message_table(40)
    version = build_locally(Artifact(folder), subscriptions, shards)
    assert Artifact(folder).latest() == version
    assert _matched(folder, version, messages) == scanned(subscriptions, messages)
    assert Artifact(folder).drop(version.number)
    assert Artifact(folder).numbers() == []


def test_a_damaged_original_is_an_error(folder: Folder) -> None:
    version = build_locally(Artifact(folder), subscription_table(100))
    spoil(folder, f"{version.shards[0].segments[0].data.name}/arrays.bin")
    with pytest.raises(StorageError, match="does not match its checksum"):
        open_segment(folder, version.shards[0].segments[0])


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in (tmp_path / "a", "a", f"file://{tmp_path}/a", f"file:{tmp_path}/a"):
        assert open_folder(address).local == tmp_path / "a"
    with pytest.raises(StorageError, match="nosuch://there: cannot open this file system"):
        open_folder("nosuch://there")
