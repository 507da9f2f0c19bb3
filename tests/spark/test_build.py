"""Builds on Spark: what is indexed, what is refused, and what a failed build leaves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from generated import subscription_table
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from nearcast.columns import Messages
from nearcast.errors import InvalidInput, StorageError, UnknownName, UnsupportedFile
from nearcast.indexes.statistics import Statistics
from nearcast.intake import read_subscriptions
from nearcast.spark.artifact.segments import open_segment
from nearcast.spark.artifact.versions import Artifact, Version
from nearcast.spark.artifact.working import remove_garbage
from nearcast.spark.build import build
from nearcast.spark.workers.building import BuildShards
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def ids_in(where: Path, version: Version) -> list[Any]:
    """Return the ids of all shards, as often as they lie in one."""
    folder = Artifact(where).folder
    return [
        one
        for shard in version.shards
        for ref in shard.segments
        for one in open_segment(folder, ref).subscriptions.ids.tolist()
    ]


def sound_ids(table: pa.Table) -> set[Any]:
    return set(read_subscriptions(table, Vocabulary())[0].ids.tolist())


@pytest.mark.parametrize(
    ("wanted", "shards"),
    [
        ({"mode": "replicated"}, 1),
        ({"mode": "auto"}, 1),
        ({"mode": "auto", "shard_size": 100}, 3),
        ({"mode": "sharded"}, 2),
        ({"mode": "sharded", "shards": 5}, 5),
        ({"shards": 1}, 1),
    ],
)
def test_modes(spark: SparkSession, tmp_path: Path, wanted: dict[str, Any], shards: int) -> None:
    table = subscription_table(250, faulty=0.1)
    built = build(spark.createDataFrame(table).repartition(3), tmp_path, **wanted)
    version = built.version
    assert Artifact(tmp_path).latest() == version
    assert len(version.shards) == shards
    assert version.mode == ("replicated" if shards == 1 else "sharded")
    assert (built.plan is None) == (shards == 1)
    assert set(ids_in(tmp_path, version)) == sound_ids(table)
    assert built.rejected == 250 - len(sound_ids(table)) > 0
    assert version.source["rejected"] == built.rejected
    assert version.ids == "string"
    assert Artifact(tmp_path).folder.names("work") == []
    if shards == 1:
        assert version.rows == 250 - built.rejected
    else:
        assert len(version.plan["shards"]) == shards


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("partitions", [1, 4])
def test_the_first_of_equal_ids_stays_and_every_row_is_accounted_for(
    spark: SparkSession, tmp_path: Path, shards: int, partitions: int
) -> None:
    table = subscription_table(120, faulty=0.1)
    twice = pa.concat_tables([table, subscription_table(50, seed=9), table.slice(0, 30)])
    built = build(spark.createDataFrame(twice).repartition(partitions), tmp_path, shards=shards)
    found = set(ids_in(tmp_path, built.version))
    assert found == sound_ids(twice)
    assert len(twice) == len(found) + built.rejected + built.duplicates
    assert built.duplicates > 40
    assert built.rejects.count() == built.rejected
    reasons = built.rejects.toArrow()
    assert reasons.column_names == ["row", "file", "field", "reason", "record"]
    assert set(reasons["field"].to_pylist()) <= {"id", "west", "expression", "keywords", "place"}


def test_which_row_stays_does_not_depend_on_the_partition_it_lies_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = subscription_table(60, seed=1)
    everything = pa.concat_tables([first, subscription_table(60, seed=2)])
    frame = spark.createDataFrame(everything)
    assert frame.rdd.getNumPartitions() > 1
    built = build(frame, tmp_path)
    assert (built.rejected, built.duplicates) == (0, 60)
    [shard] = built.version.shards
    kept = open_segment(Artifact(tmp_path).folder, shard.segments[0]).subscriptions
    wanted, _ = read_subscriptions(first, Vocabulary())
    order = {one: row for row, one in enumerate(wanted.ids.tolist())}
    rows = [order[one] for one in kept.ids.tolist()]
    assert sorted(rows) == list(range(60))
    assert kept.expires_us.tolist() == wanted.expires_us[rows].tolist()
    boxes = {
        one: wanted.clauses.box[wanted.clauses.row == row].tolist() for one, row in order.items()
    }
    for row, one in enumerate(kept.ids.tolist()):
        assert kept.clauses.box[kept.clauses.row == row].tolist() == boxes[one]


@pytest.mark.parametrize("again", [False, True])
def test_numbers_as_text_are_taken_with_and_without_equal_ids(
    spark: SparkSession, tmp_path: Path, again: bool
) -> None:
    rows = [(f"s{n}", "tea milk", "13.4", "52.5", "500") for n in range(5)]
    rows += rows[:1] if again else []
    names = "id string, keywords string, lon string, lat string, radius_m string"
    built = build(spark.createDataFrame(rows, names), tmp_path)
    assert (built.version.rows, built.rejected, built.duplicates) == (5, 0, int(again))


def test_integer_ids(spark: SparkSession, tmp_path: Path) -> None:
    table = subscription_table(40, ids="integer")
    frame = spark.createDataFrame(table).withColumn("id", F.col("id").cast("int"))
    built = build(frame, tmp_path)
    assert built.version.ids == "integer"
    assert sorted(ids_in(tmp_path, built.version)) == list(range(40))


@pytest.mark.parametrize("shards", [1, 3])
def test_no_subscriptions_and_only_refused_ones(
    spark: SparkSession, tmp_path: Path, shards: int
) -> None:
    nobody = spark.createDataFrame([], "id string, keywords array<string>, geometry string")
    built = build(nobody, tmp_path, shards=shards)
    assert (built.version.rows, built.rejected, built.duplicates) == (0, 0, 0)
    wrong = [(str(n), ["tea"], "POINT (nowhere)") for n in range(4)]
    built = build(spark.createDataFrame(wrong, nobody.schema), tmp_path, shards=shards)
    assert (built.version.rows, built.rejected, built.duplicates) == (0, 4, 0)
    assert built.version.number == 2


def test_messages_guide_the_planner(spark: SparkSession, tmp_path: Path) -> None:
    table = subscription_table(150)
    messages = spark.createDataFrame(
        [(n, "w0 w5", 13.4, 52.5) for n in range(30)], "id int, text string, lon double, lat double"
    )
    built = build(spark.createDataFrame(table), tmp_path, shards=3, messages=messages)
    assert built.plan is not None
    assert set(ids_in(tmp_path, built.version)) == sound_ids(table)


def test_wrong_questions_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "artifact"
    frame = spark.createDataFrame(subscription_table(3))
    for wanted in ({"mode": "best"}, {"index": "best"}, {"options": {"speed": 11}}):
        with pytest.raises(UnknownName, match="choose from"):
            build(frame, out, **wanted)
    for wrong in ({"shards": 0}, {"shard_size": 0}, {"mode": "replicated", "shards": 2}):
        with pytest.raises(InvalidInput, match="must be"):
            build(frame, out, **wrong)
    with pytest.raises(UnsupportedFile, match="not a table of subscriptions: it has the columns"):
        build(frame.drop("id"), out)
    with pytest.raises(UnsupportedFile, match="not a table of messages"):
        build(frame, out, shards=2, messages=frame)
    with pytest.raises(InvalidInput, match="Spark DataFrame"):
        build(subscription_table(3), out)
    counted, words = Messages.of([[0]], [[0, 0]]), Vocabulary(["tea"])
    Statistics.count(counted, words).save(tmp_path / "statistics")
    by = {"tokens": "idf", "statistics": str(tmp_path / "statistics")}
    with pytest.raises(InvalidInput, match="need one vocabulary, but every shard has its own"):
        build(frame, out, index="rt+-tree", options=by)
    assert not out.exists()


def test_a_folder_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"):
        build(spark.createDataFrame(subscription_table(3)), tmp_path / "file" / "artifact")


def _another_digest(folder: str, parts: str, *more: Any) -> BuildShards:
    """Let workers look for parts that are not those that were written."""
    return BuildShards(folder, parts.replace('", "', '", "0'), *more)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_build_that_fails_leaves_the_version_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    frame = spark.createDataFrame(subscription_table(60)).repartition(3)
    before = build(frame, tmp_path, shards=shards).version
    failing = frame.withColumn(
        "owner", F.when(F.col("id") == "s31", F.raise_error(F.lit("no owner"))).otherwise("ann")
    )
    # With several shards the planner's sample meets the row already, with one the tasks do.
    with pytest.raises(PySparkException, match="no owner"):
        build(failing, tmp_path, shards=shards)
    # The package gives the function where the module would stand.
    monkeypatch.setattr(sys.modules[build.__module__], "BuildShards", _another_digest)
    with pytest.raises(StorageError, match="does not match its checksum") as raised:
        build(frame, tmp_path, shards=shards)
    assert "Traceback" not in str(raised.value)
    assert "\n" not in str(raised.value)
    artifact = Artifact(tmp_path)
    assert artifact.latest() == before
    # A task that ran on for a moment after another one had failed may have left something.
    remove_garbage(artifact, keep_s=0)
    assert artifact.folder.names("work") == []
    assert set(ids_in(tmp_path, before)) == {f"s{n}" for n in range(60)}


def test_a_commit_that_fails_leaves_the_version_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame(subscription_table(20))
    before = build(frame, tmp_path).version

    def full(self: Artifact, version: Version, *, after: int | None = None) -> Version:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Artifact, "commit", full)
    with pytest.raises(StorageError, match="the disk is full"):
        build(frame, tmp_path)
    assert Artifact(tmp_path).latest() == before
    assert Artifact(tmp_path).folder.names("work") == []
