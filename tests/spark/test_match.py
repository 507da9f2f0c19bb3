"""Matching on Spark: equal to the scan in every mode, with what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from generated import message_table, scanned, subscription_table
from pyspark.sql import Observation

from nearcast.errors import InvalidInput, StorageError, UnknownName, UnsupportedFile
from nearcast.intake.arrow_columns import with_column
from nearcast.spark.build import build
from nearcast.spark.match import match

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


SUBSCRIPTIONS = subscription_table(300, 3)
# Every message has a time: the moment of the job is no part of what is expected.
MESSAGES = message_table(120, 3, faulty=0.1)
MESSAGES = MESSAGES.set_column(
    MESSAGES.column_names.index("time"), "time", MESSAGES["time"].fill_null(MESSAGES["time"][0])
)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions of the same subscriptions: 1 has one shard, 2 four, 3 five and fewer rows."""
    where: Path = tmp_path_factory.mktemp("artifact")
    frame = spark.createDataFrame(SUBSCRIPTIONS)
    build(frame, where)
    build(frame, where, shards=4)
    build(spark.createDataFrame(SUBSCRIPTIONS.slice(0, 100)), where, shards=5)
    return where


def pairs(frame: DataFrame) -> list[tuple[Any, Any]]:
    assert frame.columns == ["message_id", "subscription_id", "score"]
    rows = frame.collect()
    assert all(row.score is None for row in rows)
    return sorted((row.message_id, row.subscription_id) for row in rows)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("mode", ["auto", "replicated", "sharded"])
def test_every_mode_finds_what_the_scan_finds(
    spark: SparkSession, folder: Path, version: int, mode: str
) -> None:
    expected = scanned(SUBSCRIPTIONS, MESSAGES)
    assert len(expected) > 500
    for partitions in (1, 5):
        frame = spark.createDataFrame(MESSAGES).repartition(partitions)
        observed = Observation()
        found = match(frame, folder, mode=mode, version=version, observation=observed)
        assert pairs(found) == expected
        told = observed.get
        assert told["matches"] == len(expected) <= told["examined"]
        assert told["messages"] + told["rejected"] == len(MESSAGES)
        assert told["rejected"] > 0
        assert told["examined_per_message"] == told["examined"] / told["messages"]
        assert told["matches_per_second"] > 0


def test_the_latest_version_and_those_before_it(spark: SparkSession, folder: Path) -> None:
    frame = spark.createDataFrame(MESSAGES)
    few = scanned(SUBSCRIPTIONS.slice(0, 100), MESSAGES)
    assert pairs(match(frame, folder)) == pairs(match(frame, folder, version=3)) == few
    assert pairs(match(frame, folder, mode="sharded")) == few
    assert pairs(match(frame, folder, version=1)) == scanned(SUBSCRIPTIONS, MESSAGES)
    with pytest.raises(StorageError, match=r"no version 9 \(found: 1, 2, 3\)"):
        match(frame, folder, version=9)


def test_auto_goes_by_the_size_of_the_version(spark: SparkSession, folder: Path) -> None:
    frame = spark.createDataFrame(MESSAGES)

    def shuffles(**how: Any) -> bool:
        plan = match(frame, folder, version=2, **how)._jdf.queryExecution().toString()
        return "_key" in plan

    assert not shuffles()
    assert shuffles(replicated_bytes=10)
    assert not shuffles(mode="replicated", replicated_bytes=10)
    expected = scanned(SUBSCRIPTIONS, MESSAGES)
    assert pairs(match(frame, folder, version=2, replicated_bytes=10)) == expected


def test_integer_ids_stay_integers(spark: SparkSession, tmp_path: Path) -> None:
    subscriptions, messages = subscription_table(60, ids="integer"), message_table(40)
    build(spark.createDataFrame(subscriptions), tmp_path, shards=2)
    timed = messages.drop_columns(["time"])
    expected = scanned(subscriptions, timed, now_us=2**60)
    for mode in ("replicated", "sharded"):
        found = match(spark.createDataFrame(timed), tmp_path, mode=mode)
        assert found.dtypes[:2] == [("message_id", "string"), ("subscription_id", "bigint")]
        assert pairs(found) == expected, "without a time, the moment of the job is after expiry"


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
def test_nothing_and_rejects_only(spark: SparkSession, folder: Path, mode: str) -> None:
    names = "id string, text string, lon double, lat double"
    observed = Observation()
    wrong = spark.createDataFrame([(None, "tea", 0.0, 0.0), ("a", None, 0.0, 0.0)], names)
    assert pairs(match(wrong, folder, mode=mode, version=2, observation=observed)) == []
    told = observed.get
    assert (told["messages"], told["matches"], told["rejected"]) == (0, 0, 2)
    assert told["examined_per_message"] is None
    nothing = spark.createDataFrame([], names)
    assert pairs(match(nothing, folder, mode=mode, version=2)) == []


def test_further_columns_do_not_matter(spark: SparkSession, folder: Path) -> None:
    extra = MESSAGES.append_column("note", pa.array(["x"] * len(MESSAGES)))
    expected = scanned(SUBSCRIPTIONS, MESSAGES)
    for mode in ("replicated", "sharded"):
        found = match(spark.createDataFrame(extra), folder, version=2, mode=mode)
        assert pairs(found) == expected


def test_wrong_questions_are_refused_before_any_job(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(MESSAGES)
    with pytest.raises(UnknownName, match="choose from: auto, replicated, sharded"):
        match(frame, folder, mode="best")
    with pytest.raises(UnsupportedFile, match="not a table of messages"):
        match(frame.drop("lon", "west"), folder)
    with pytest.raises(StorageError, match="contains no index"):
        match(frame, tmp_path)
    with pytest.raises(InvalidInput, match="Spark DataFrame"):
        match(MESSAGES, folder)
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path))
    with pytest.raises(InvalidInput, match="must be left out for a stream"):
        match(stream, folder, version=1)


def test_a_frame_can_be_used_in_a_chain(spark: SparkSession, folder: Path) -> None:
    frame = spark.createDataFrame(MESSAGES)
    counted = frame.transform(match, folder, version=1).groupBy("message_id").count()
    assert sum(row["count"] for row in counted.collect()) == len(scanned(SUBSCRIPTIONS, MESSAGES))


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
def test_matches_name_owners_on_request(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    owner = [None if row % 5 == 0 else f"owner {row % 7}" for row in range(len(SUBSCRIPTIONS))]
    owned = with_column(SUBSCRIPTIONS, "owner", pa.array(owner, pa.string()))
    build(spark.createDataFrame(owned), tmp_path, shards=3)
    of_id = dict(zip(owned["id"].to_pylist(), owner, strict=True))
    found = match(spark.createDataFrame(MESSAGES), tmp_path, mode=mode, owners=True)
    assert found.columns == ["message_id", "subscription_id", "score", "owner"]
    rows = found.collect()
    expected = scanned(SUBSCRIPTIONS, MESSAGES)
    assert sorted((row.message_id, row.subscription_id) for row in rows) == expected
    assert {row.owner for row in rows} > {None, "owner 1"}
    assert all(row.owner == of_id[row.subscription_id] for row in rows)
