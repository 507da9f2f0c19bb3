"""Folders of arrays: what is written comes back, and no damage goes unnoticed."""

from __future__ import annotations

import json
import multiprocessing
import os
import zlib
from typing import TYPE_CHECKING, Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import InvalidInput, StorageError
from nearcast.storage import folder as folder_module
from nearcast.storage import read_arrays, write_arrays

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = ["?", "i1", "u1", "<i2", ">i4", "<u4", "<i8", ">u8", "<f4", "<f8"]
RECORD = np.dtype([("key", "<i4"), ("value", "<f8", (2,))], align=True)

arrays_of_any_shape = hnp.arrays(
    st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def write_example(where: Path, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    arrays = {
        "token": random.integers(0, 99, 50, np.int32),
        "box": random.integers(-9, 9, (7, 4), np.int32),
        "nothing": np.empty((0, 4), np.float64),
        "flag": random.random(3) < 0.5,
    }
    write_arrays(where, "example", arrays, {"seed": seed})
    return arrays


@given(st.dictionaries(st.text(), arrays_of_any_shape, max_size=4), st.booleans(), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_arrays_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    arrays: dict[str, np.ndarray[Any, Any]],
    verify: bool,
    mmap: bool,
) -> None:
    where = tmp_path_factory.mktemp("stored") / "folder"
    write_arrays(where, "any", arrays, {})
    found, _ = read_arrays(where, "any", verify=verify, mmap=mmap)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("<")
        assert not found[name].flags.writeable
        assert found[name].ctypes.data % 64 == 0 or array.size == 0 or not mmap


@given(st.dictionaries(st.text(), json_values, max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_meta_comes_back(tmp_path_factory: pytest.TempPathFactory, meta: dict[str, Any]) -> None:
    where = tmp_path_factory.mktemp("stored") / "folder"
    write_arrays(where, "any", {}, meta)
    assert read_arrays(where, "any") == ({}, meta)


def test_records_come_back_with_their_layout(tmp_path: Path) -> None:
    records = np.zeros(5, RECORD)
    records["key"] = np.arange(5)
    records["value"] = 0.5
    write_arrays(tmp_path / "r", "records", {"entry": records}, {})
    found = read_arrays(tmp_path / "r", "records")[0]["entry"]
    assert found.dtype == RECORD
    assert found.dtype.isalignedstruct
    np.testing.assert_array_equal(found, records)


def test_a_folder_is_replaced_and_old_arrays_stay_readable(tmp_path: Path) -> None:
    where = tmp_path / "a" / "folder"
    first = write_example(where, 1)
    held, _ = read_arrays(where, "example")
    second = write_example(where, 2)
    np.testing.assert_array_equal(held["token"], first["token"])
    found, meta = read_arrays(where, "example")
    np.testing.assert_array_equal(found["token"], second["token"])
    assert meta == {"seed": 2}
    assert os.listdir(where.parent) == ["folder"]


def test_replacing_works_without_an_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "_exchange", lambda one, other: False)
    write_example(tmp_path / "folder", 1)
    write_example(tmp_path / "folder", 2)
    assert read_arrays(tmp_path / "folder", "example")[1] == {"seed": 2}
    assert os.listdir(tmp_path) == ["folder"]


def test_a_failed_write_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_example(tmp_path / "folder", 1)

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "_put_in_place", fail)
    with pytest.raises(StorageError, match=r"No space left on device.*free space"):
        write_example(tmp_path / "folder", 2)
    assert read_arrays(tmp_path / "folder", "example")[1] == {"seed": 1}
    assert os.listdir(tmp_path) == ["folder"]


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_example(tmp_path / name)
    for file in ("arrays.bin", "manifest.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_other_files_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("the only copy")
    with pytest.raises(StorageError, match=r"thesis\.tex"):
        write_example(tmp_path)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match="cannot be replaced"):
        write_example(tmp_path / "file")


def test_any_flipped_byte_is_noticed(tmp_path: Path) -> None:
    write_example(tmp_path / "folder")
    for file in ("arrays.bin", "manifest.json"):
        path = tmp_path / "folder" / file
        sound = path.read_bytes()
        for position in range(len(sound)):
            changed = sound[position] ^ (1 << position % 8)
            path.write_bytes(sound[:position] + bytes([changed]) + sound[position + 1 :])
            with pytest.raises(StorageError, match=r"; (build|read|open|restore)"):
                read_arrays(tmp_path / "folder", "example")
        path.write_bytes(sound)
    read_arrays(tmp_path / "folder", "example")


@pytest.mark.parametrize("file", ["arrays.bin", "manifest.json"])
@pytest.mark.parametrize("verify", [True, False])
def test_missing_short_and_long_files_are_noticed(tmp_path: Path, file: str, verify: bool) -> None:
    write_example(tmp_path / "folder")
    path = tmp_path / "folder" / file
    sound = path.read_bytes()
    for damaged in (b"", sound[:-1], sound[: len(sound) // 2], sound + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=file.replace(".", r"\.")):
            read_arrays(tmp_path / "folder", "example", verify=verify)
    path.unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        read_arrays(tmp_path / "folder", "example", verify=verify)


def test_files_of_two_folders_do_not_mix(tmp_path: Path) -> None:
    write_example(tmp_path / "one", 1)
    write_example(tmp_path / "two", 2)
    (tmp_path / "one" / "arrays.bin").write_bytes((tmp_path / "two" / "arrays.bin").read_bytes())
    with pytest.raises(StorageError, match="does not belong"):
        read_arrays(tmp_path / "one", "example", verify=False)


def test_another_kind_and_another_version_are_refused(tmp_path: Path) -> None:
    write_example(tmp_path / "folder")
    with pytest.raises(StorageError, match="contains 'example', expected 'segment'"):
        read_arrays(tmp_path / "folder", "segment")
    path = tmp_path / "folder" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StorageError, match="version is 2, this library reads version 1"):
        read_arrays(tmp_path / "folder", "example")


def forge(path: Path, change: Any) -> None:
    """Change a manifest and make its checksum fit again."""
    body = json.loads(path.read_text())
    del body["crc32"]
    change(body)
    body["crc32"] = zlib.crc32(json.dumps(body).encode())
    path.write_text(json.dumps(body, indent=1) + "\n")


WRONG: list[Any] = [
    None,
    True,
    -1,
    1.5,
    "x",
    [],
    {},
    [[]],
    1 << 70,
    {"fields": [[1, "<i4", [], 0]]},
]


@given(
    st.sampled_from(["kind", "library", "arrays", "meta", "format", "magic"])
    | st.tuples(
        st.integers(0, 3), st.sampled_from(["name", "dtype", "shape", "offset", "bytes", "crc32"])
    ),
    st.sampled_from([*WRONG, "absent"]) | json_values,
)
@settings(max_examples=examples(150), deadline=None)
def test_wrong_types_in_a_manifest_are_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: Any, value: Any
) -> None:
    where = tmp_path_factory.mktemp("stored") / "folder"
    write_example(where)
    sound = (where / "manifest.json").read_text()

    def change(body: dict[str, Any]) -> None:
        holder, key = (
            (body, place) if isinstance(place, str) else (body["arrays"][place[0]], place[1])
        )
        holder[key] = value
        if value == "absent":
            del holder[key]

    forge(where / "manifest.json", change)
    if (where / "manifest.json").read_text() != sound:
        with pytest.raises(StorageError):
            read_arrays(where, "example")


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_garbage_is_no_manifest(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    where = tmp_path_factory.mktemp("stored")
    (where / "manifest.json").write_bytes(garbage)
    with pytest.raises(StorageError, match="not a Nearcast manifest"):
        read_arrays(where, "example")


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"arrays\['names'\].*cannot be stored"):
        write_arrays(tmp_path / "f", "any", {"names": np.array(["a", None], object)}, {})
    for value in (float("nan"), {1, 2}, b"bytes"):
        with pytest.raises(InvalidInput, match="meta: must hold JSON values"):
            write_arrays(tmp_path / "f", "any", {}, {"value": value})
    assert not os.listdir(tmp_path)


def rewrite(where: Path, times: int) -> None:
    for seed in range(times):
        write_example(where, seed)


def test_readers_see_whole_folders_while_a_writer_replaces_them(tmp_path: Path) -> None:
    where = tmp_path / "folder"
    expected = {seed: write_example(where, seed)["token"] for seed in range(30)}
    writer = multiprocessing.get_context("spawn").Process(target=rewrite, args=(where, 30))
    writer.start()
    try:
        while True:
            alive = writer.is_alive()
            arrays, meta = read_arrays(where, "example", verify=False)
            np.testing.assert_array_equal(arrays["token"], expected[meta["seed"]])
            if not alive:
                break
    finally:
        writer.join()
    assert writer.exitcode == 0
