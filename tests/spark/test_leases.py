"""A job holds its version from planning to its end, whatever is compacted meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from generated import build_locally, message_table, scanned, subscription_table
from pyspark.sql import functions as F
from stream_pipeline import PATIENCE_S, StreamPipeline
from stream_pipeline import pairs_of as counted_pairs
from stream_pipeline import scanned as scanned_pairs
from stream_pipeline import subscriptions as stream_subscriptions

from nearcast.errors import StorageError
from nearcast.spark import leases
from nearcast.spark.artifact.clock import now_ms
from nearcast.spark.artifact.leases import StreamLease, lease_version
from nearcast.spark.artifact.versions import Artifact, Version
from nearcast.spark.compact import compact
from nearcast.spark.match import match
from nearcast.spark.stream import stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SMALL = Version("scan", {}, "integer", ())
OLD, NEW = subscription_table(80, 1), subscription_table(80, 2)
MESSAGES = message_table(40, 1).drop_columns(["time"])


def pairs(frame: DataFrame) -> list[tuple[Any, Any]]:
    return sorted((row.message_id, row.subscription_id) for row in frame.collect())


def replace_and_compact(spark: SparkSession, artifact: Artifact) -> tuple[int, ...]:
    """Replace the version in force, compact, and return which older versions are still there."""
    build_locally(artifact, NEW)
    artifact.folder.remove("work")
    return compact(spark, artifact.folder.uri).kept


@pytest.mark.parametrize(("shards", "mode"), [(1, "replicated"), (2, "sharded")])
def test_a_planned_batch_survives_compacting(
    spark: SparkSession, tmp_path: Path, shards: int, mode: str
) -> None:
    artifact = Artifact(tmp_path)
    build_locally(artifact, OLD, shards)
    expected = scanned(OLD, MESSAGES, now_us=2**60)
    frame = spark.createDataFrame(MESSAGES)
    # The frame of `match` itself is gone when the job is done; Python does not know who needs it.
    derived = match(frame, tmp_path, mode=mode).where(F.length("message_id") > 0)
    assert replace_and_compact(spark, artifact) == (1,)
    assert pairs(derived) == expected
    assert replace_and_compact(spark, artifact) == (1,), "it may be evaluated again"
    assert pairs(derived) == expected
    assert pairs(match(frame, tmp_path)) == scanned(NEW, MESSAGES, now_us=2**60)


def test_a_version_goes_when_no_plan_needs_it(spark: SparkSession, tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    build_locally(artifact, OLD)
    frame = match(spark.createDataFrame(MESSAGES), tmp_path)
    frame.collect()
    assert replace_and_compact(spark, artifact) == (1,)
    del frame
    patience = time.monotonic() + PATIENCE_S
    while compact(spark, tmp_path).kept:
        assert time.monotonic() < patience, "Java has not collected the plan"
        spark.range(1).collect()  # Spark's listeners keep the last query
    assert artifact.numbers() == [2]
    assert not [lease for lease, _ in leases._held if lease.artifact.folder.uri == str(tmp_path)]


def test_a_refused_plan_holds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(Version("no-such-index", {}, "string", ()))
    with pytest.raises(Exception, match="no-such-index"):
        match(spark.createDataFrame(MESSAGES), tmp_path)
    artifact.commit(SMALL)
    assert artifact.drop(1)


def test_a_sharded_stream_survives_compacting(spark: SparkSession, tmp_path: Path) -> None:
    """Compact after one task has routed its messages, before another one has."""
    pipeline = StreamPipeline(spark, tmp_path)
    wanted = stream_subscriptions(1)
    pipeline.build(wanted, mode="sharded", shards=2)
    [table] = pipeline.put("a")
    waiting, go = tmp_path / "waiting", tmp_path / "go"

    def pause(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pathlib import Path
        from time import sleep

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == 1:
            Path(waiting).touch()
            while not Path(go).exists():
                sleep(0.01)
        yield from batches

    found: list[Any] = []
    messages = pipeline.messages()
    paused = messages.repartition(2).mapInArrow(pause, messages.schema)
    query = stream(
        paused,
        pipeline.index,
        to=lambda frame, number: found.extend(frame.collect()),
        checkpoint=tmp_path / "checkpoint",
        mode="sharded",
        available_now=True,
    )
    try:
        patience = time.monotonic() + PATIENCE_S
        while not waiting.exists() or _running_tasks(spark) != 1:
            assert query.exception() is None
            assert time.monotonic() < patience
            time.sleep(0.01)
        pipeline.build(stream_subscriptions(2), mode="sharded", shards=2)
        assert compact(spark, pipeline.index).kept == (1,)
    finally:
        go.touch()
        assert query.awaitTermination(PATIENCE_S)
    assert counted_pairs(iter(found)) == scanned_pairs(wanted, table)
    patience = time.monotonic() + PATIENCE_S
    while compact(spark, pipeline.index).kept:
        assert time.monotonic() < patience, "the stream has ended, and its lease with it"
        time.sleep(0.01)


def _running_tasks(spark: SparkSession) -> int:
    """Return how many tasks of the stage that pauses are left: one, when the other has routed."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    left = [s.numTasks - s.numCompletedTasks for s in stages if s is not None and s.numTasks == 2]
    return left[0] if len(left) == 1 else -1


def test_a_stream_lets_versions_go_that_it_has_passed(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = StreamPipeline(spark, tmp_path)
    pipeline.build(stream_subscriptions(1))
    pipeline.put("a")
    query = pipeline.start()
    try:
        query.processAllAvailable()
        pipeline.build(stream_subscriptions(2))
        patience = time.monotonic() + PATIENCE_S
        number = 0
        while compact(spark, pipeline.index).kept:
            assert time.monotonic() < patience
            pipeline.put(f"b{number}")
            query.processAllAvailable()
            number += 1
    finally:
        query.stop()
    assert Artifact(pipeline.index).numbers() == [2]


def test_a_lease_on_a_version_that_is_gone_is_an_error(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(SMALL)
    artifact.commit(SMALL)
    assert artifact.drop(1)
    with pytest.raises(StorageError, match="there is no version 1"):
        lease_version(artifact, 1)


def test_a_stream_holds_a_version_and_all_later_ones(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path)
    lease = StreamLease(artifact)
    lease.advance(now_ms())
    for _ in range(4):
        artifact.commit(SMALL)
    assert not any(artifact.drop(number) for number in range(1, 5))
    lease.advance(artifact.read(3).created_ms)
    assert [artifact.drop(number) for number in range(1, 5)] == [True, True, False, False]
    assert artifact.folder.names("leases") == ["00000003"]
    other = StreamLease(artifact)
    lease.advance(artifact.read(4).created_ms)
    assert not artifact.drop(3)
    other.release()
    assert artifact.drop(3)
    lease.release()
    assert artifact.drop(4)
    assert artifact.folder.names("leases") == []


def test_elsewhere_a_lease_holds_nothing(tmp_path: Path) -> None:
    artifact = Artifact(f"local://{tmp_path}")
    artifact.commit(SMALL)
    lease, following = lease_version(artifact, 1), StreamLease(artifact)
    following.advance(now_ms())
    assert not lease.held
    assert not following.held
    assert artifact.drop(1)


_DRIVER = """
import sys
from nearcast.spark.artifact.leases import StreamLease, lease_version
from nearcast.spark.artifact.versions import Artifact
artifact = Artifact(sys.argv[1])
held = lease_version(artifact, 1) if sys.argv[2] == "batch" else StreamLease(artifact)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("job", ["batch", "stream"])
def test_a_lease_ends_with_its_driver(tmp_path: Path, job: str) -> None:
    artifact = Artifact(tmp_path)
    artifact.commit(SMALL)
    artifact.commit(SMALL)
    command = [sys.executable, "-c", _DRIVER, str(tmp_path), job]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        assert not artifact.drop(1)
        driver.kill()
        driver.wait()
    assert artifact.drop(1)
