"""Artifacts that are damaged, incomplete or of another format: the user reads what is wrong."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from generated import build_locally, message_table, scanned, subscription_table
from pyspark.errors import PySparkException

from nearcast.errors import InvalidInput, NearcastError, StorageError
from nearcast.spark.artifact.versions import Artifact, version_file
from nearcast.spark.frames import plain_errors
from nearcast.spark.match import match

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from nearcast.spark.artifact.versions import Version

MESSAGES = message_table(40).drop_columns(["time"])
SUBSCRIPTIONS = subscription_table(80)


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return build_locally(Artifact(tmp_path), SUBSCRIPTIONS, 2)


def spoil(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))


def complaint(spark: SparkSession, folder: Path, mode: str) -> str:
    """Match, and return what the user is told; Spark's own error has the same text in it."""
    frame = spark.createDataFrame(MESSAGES).coalesce(1)
    with pytest.raises(StorageError) as plain, plain_errors():
        match(frame, folder, mode=mode).collect()
    told = str(plain.value)
    assert "\n" not in told
    with pytest.raises((PySparkException, StorageError)) as raw:
        match(frame, folder, mode=mode).collect()
    assert told in str(raw.value)
    return told


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
def test_a_damaged_shard(spark: SparkSession, tmp_path: Path, version: Version, mode: str) -> None:
    good = match(spark.createDataFrame(MESSAGES), tmp_path, mode=mode).collect()
    assert len(good) == len(scanned(SUBSCRIPTIONS, MESSAGES, now_us=2**60))
    arrays = tmp_path / version.shards[1].segments[0].data.name / "arrays.bin"
    whole = arrays.read_bytes()
    spoil(arrays)
    told = complaint(spark, tmp_path, mode)
    assert told.startswith(f"{arrays}: array ")
    assert "does not match its checksum" in told
    arrays.write_bytes(whole[:-10])
    assert f"has {len(whole) - 10} bytes, expected {len(whole)}" in complaint(spark, tmp_path, mode)
    arrays.write_bytes(whole)
    again = match(spark.createDataFrame(MESSAGES), tmp_path, mode=mode).collect()
    assert sorted(again) == sorted(good), "what was restored is taken without a restart"


def test_a_damaged_manifest(spark: SparkSession, tmp_path: Path, version: Version) -> None:
    spoil(tmp_path / version.shards[0].segments[0].data.name / "manifest.json")
    assert "does not match its checksum; restore a backup" in complaint(
        spark, tmp_path, "replicated"
    )


@pytest.mark.parametrize("file", [None, "manifest.json", "arrays.bin"])
def test_a_shard_that_is_gone(
    spark: SparkSession, tmp_path: Path, version: Version, file: str | None
) -> None:
    folder = tmp_path / version.shards[0].segments[0].data.name
    if file is None:
        shutil.rmtree(folder)
    else:
        (folder / file).unlink()
    told = complaint(spark, tmp_path, "sharded")
    assert str(folder) in told
    assert "No such file or directory" in told


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
def test_a_damaged_router(spark: SparkSession, tmp_path: Path, version: Version, mode: str) -> None:
    assert version.router is not None
    spoil(tmp_path / version.router.name / "arrays.bin")
    assert "does not match its checksum" in complaint(spark, tmp_path, mode)


def test_a_damaged_version(spark: SparkSession, tmp_path: Path, version: Version) -> None:
    spoil(tmp_path / version_file(version.number))
    assert version_file(1) in complaint(spark, tmp_path, "auto")


def test_another_format(spark: SparkSession, tmp_path: Path, version: Version) -> None:
    path = tmp_path / version_file(version.number)
    body = json.loads(path.read_bytes())
    path.write_text(json.dumps({**body, "format": 2}))
    told = complaint(spark, tmp_path, "auto")
    assert "has the format 2, this library reads 1; match with the library that built it" in told


def test_a_version_that_vanishes_while_a_job_is_planned(
    spark: SparkSession, tmp_path: Path, version: Version
) -> None:
    frame = match(spark.createDataFrame(MESSAGES), tmp_path)
    (tmp_path / version_file(version.number)).unlink()
    with pytest.raises(StorageError, match="there is no version 1"), plain_errors():
        frame.collect()


def test_plain_errors_leave_others_alone() -> None:
    text = "Traceback:\nnearcast.errors.{}: what is wrong\n\nDriver stacktrace:\n\tat org"
    for name, kind in (("StorageError", StorageError), ("InvalidInput", NearcastError)):
        with pytest.raises(kind, match=r"^what is wrong$") as raised, plain_errors():
            raise PySparkException(text.format(name))
        assert not isinstance(raised.value, InvalidInput)
    with pytest.raises(PySparkException, match="of Spark"), plain_errors():
        raise PySparkException("an error of Spark")
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("a")
