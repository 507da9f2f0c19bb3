"""Compacting on Spark: changes folded in, old versions dropped, the remains of the dead removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from generated import build_locally, message_table, pairs_of, scanned, subscription_table

from nearcast.errors import InvalidInput, StorageError
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.artifact.working import working
from nearcast.spark.changes import changes
from nearcast.spark.compact import compact
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.matching import MatchMessages

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from nearcast.spark.artifact.versions import Version

PATIENCE_S = 120.0

_BUILD = """
import sys
from pyspark.sql import functions as F
from nearcast.spark.build import build
from nearcast.spark.session import session
spark = session(
    "local[1]",
    spark__driver__memory="512m",
    spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    spark__sql__shuffle__partitions="2",
)
box = [F.lit(0.0).alias(side) for side in ("west", "south", "east", "north")]
id = F.col("id").cast("string")
numbers = spark.range(0, 50_000, 1, 25)
frame = numbers.select(id, F.array(F.concat(F.lit("word"), id)).alias("keywords"), *box)
build(frame, sys.argv[1], mode="replicated")
"""


def matched(artifact: Artifact, version: Version, messages: pa.Table) -> list[tuple[str, str]]:
    schema = answer_schema(pa.string(), pa.string())
    matching = MatchMessages(artifact.folder.uri, version.number, 1_700_000_000_000_000, schema)
    return pairs_of(matching(messages.to_batches()))


def delete(spark: SparkSession, where: Path, *ids: str) -> Version:
    frame = spark.createDataFrame([("delete", one) for one in ids], "op string, id string")
    return changes(frame, where).version


def stored_folders(artifact: Artifact) -> set[str]:
    return {f"data/{name}" for name in artifact.folder.names("data")}


def named(*versions: Version) -> set[str]:
    return {stored.name for version in versions for stored in version.stored()}


@pytest.mark.parametrize("shards", [1, 3])
def test_changes_are_folded_in_and_old_versions_go(
    spark: SparkSession, tmp_path: Path, shards: int
) -> None:
    table, messages = subscription_table(120, 4), message_table(60, 4)
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, table, shards)
    second = delete(spark, tmp_path, "s0", "s1", "s2")
    assert second.deltas > 0
    kept = table.filter(pa.array([n not in ("s0", "s1", "s2") for n in table["id"].to_pylist()]))
    expected = scanned(kept, messages)
    with artifact.reading(first):
        done = compact(spark, tmp_path)
        assert (done.version.number, done.dropped, done.kept) == (3, (2,), (1,))
        assert (done.folded, done.version.deltas) == (second.deltas, 0)
        assert done.version.source == {"by": "compact", "folded": second.deltas}
        assert done.removed > 0
        assert stored_folders(artifact) == named(first, done.version)
        assert matched(artifact, first, messages) == scanned(table, messages)
    assert matched(artifact, done.version, messages) == expected
    assert all(ref.rows == shard.rows for shard in done.version.shards for ref in shard.segments)
    last = compact(spark, tmp_path)
    assert (last.version, last.folded, last.dropped, last.kept) == (done.version, 0, (1,), ())
    assert artifact.numbers() == [3]
    assert stored_folders(artifact) == named(last.version)
    assert artifact.folder.names("work") == []
    assert matched(artifact, last.version, messages) == expected
    nothing = compact(spark, tmp_path)
    assert (nothing.dropped, nothing.removed) == ((), 0)


def test_versions_are_kept_as_long_as_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    for seed in range(3):
        build_locally(artifact, subscription_table(5, seed))
    with pytest.raises(InvalidInput, match="must be 0 or more seconds"):
        compact(spark, tmp_path, keep_s=-1.0)
    done = compact(spark, tmp_path, keep_s=3600.0)
    assert (done.dropped, done.kept) == ((), (1, 2))
    assert artifact.numbers() == [1, 2, 3]
    assert compact(spark, f"local://{tmp_path}").kept == (1, 2), "a day, where nothing tells"
    assert compact(spark, tmp_path).dropped == (1, 2)


def test_nothing_to_compact_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="contains no index"):
        compact(spark, tmp_path)


def test_whoever_works_meanwhile_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    build_locally(artifact, subscription_table(5))
    artifact.folder.remove("work")
    with working(artifact) as work:
        artifact.folder.create(f"{work}/part", b"")
        artifact.folder.create("data/unfinished/part", b"")
        assert compact(spark, tmp_path).removed == 0
        assert artifact.folder.names(work) == ["lock", "part"]
    assert compact(spark, tmp_path).removed == 1
    assert stored_folders(artifact) == named(artifact.latest())


def test_a_change_that_comes_while_it_is_folded_wins(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact(tmp_path)
    build_locally(artifact, subscription_table(40))
    delete(spark, tmp_path, "s1")
    module = import_module("nearcast.spark.compact")
    remake = module.rewrite_shards

    def remake_and_change(*given: object) -> object:
        monkeypatch.undo()
        delete(spark, tmp_path, "s2")
        return remake(*given)

    monkeypatch.setattr(module, "rewrite_shards", remake_and_change)
    with pytest.raises(StorageError, match="version 3 was committed while changes"):
        compact(spark, tmp_path)
    assert artifact.latest().rows == 38
    done = compact(spark, tmp_path)
    assert (done.version.number, done.version.rows) == (4, 38)
    assert stored_folders(artifact) == named(done.version)


def _parts(folder: Path) -> int:
    """How many parts the job has written; `walk` passes over folders that are renamed meanwhile."""
    return sum("manifest.json" in files for _, _, files in os.walk(folder / "work"))


def test_a_build_that_is_killed_leaves_the_old_version_and_no_rubbish(
    spark: SparkSession, tmp_path: Path
) -> None:
    artifact = Artifact(tmp_path)
    table, messages = subscription_table(30, 5), message_table(30, 5)
    first = build_locally(artifact, table)
    artifact.folder.remove("work")
    job = subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(tmp_path)],
        start_new_session=True,  # so that Java and the workers die at the same moment
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = time.monotonic() + PATIENCE_S
    try:
        while job.poll() is None and _parts(tmp_path) < 3 and time.monotonic() < patience:
            time.sleep(0.001)
        assert job.poll() is None, "it was done before it could be killed"
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        _, said = job.communicate()
    assert _parts(tmp_path) >= 3, said
    assert artifact.latest() == first
    assert matched(artifact, first, messages) == scanned(table, messages)
    done = compact(spark, tmp_path)
    assert (done.version, done.removed) == (first, 1)
    assert artifact.folder.names("work") == []
    assert stored_folders(artifact) == named(first)
    assert matched(artifact, first, messages) == scanned(table, messages)
