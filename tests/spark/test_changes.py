"""Changes on Spark: from end to end, and what stops them before or on the way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from generated import (
    SUBSCRIPTION_FIELDS,
    build_locally,
    message_table,
    scanned,
    subscription_table,
)

from nearcast.errors import InvalidInput, StorageError, UnsupportedFile
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.changes import changes
from nearcast.spark.match import match

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BOX = {"west": 0.0, "south": 0.0, "east": 60.0, "north": 30.0}
NOTHING = {"insert": 0, "delete": 0, "move": 0}


def changes_frame(
    spark: SparkSession, rows: list[dict[str, Any]], ids: str = "string"
) -> DataFrame:
    kind = pa.int64() if ids == "integer" else pa.string()
    fields = {"op": pa.string(), "id": kind, "time": pa.timestamp("us", "UTC"), "note": pa.string()}
    schema = pa.schema([*fields.items(), *SUBSCRIPTION_FIELDS.items()])
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


def matched(spark: SparkSession, where: Path, messages: pa.Table, mode: str) -> list[Any]:
    found = match(spark.createDataFrame(messages), where, mode=mode).toArrow()
    names = ("message_id", "subscription_id")
    return sorted(zip(*(found[name].to_pylist() for name in names), strict=True))


def works(where: Path) -> list[str]:
    """Return the folders of work, without that of the build, which was none of Spark."""
    return [name for name in Artifact(where).folder.names("work") if name != "test"]


def timed_messages(seed: int) -> pa.Table:
    """Return messages that all have a time: the moment of the match decides nothing then."""
    table = message_table(60, seed)
    moments = [moment or 1_700_000_000_000_000 for moment in table["time"].to_pylist()]
    place = table.column_names.index("time")
    return table.set_column(place, table.field("time"), pa.array(moments, table.field("time").type))


@pytest.mark.parametrize("shards", [1, 3])
def test_what_comes_goes_and_moves_is_seen_by_the_next_match(
    spark: SparkSession, tmp_path: Path, shards: int
) -> None:
    table, messages = subscription_table(120, 2), timed_messages(2)
    build_locally(Artifact(tmp_path), table, shards)
    new = subscription_table(10, 3, first=900).to_pylist()
    rows = [
        *({"op": "insert", **row, "note": "not looked at"} for row in new),
        *({"op": "delete", "id": f"s{n}"} for n in range(10)),
        {"op": "move", "id": "s20", "time": 20, **BOX},
        {"op": "move", "id": "s20", "time": 10, "geometry": "POLYGON ((0 0, 1 0, 1 1, 0 0))"},
        {"op": "move", "id": "s21", "geometry": "POINT (1 1)"},
        {"op": "insert", **new[0], "id": "s30"},
        {"op": "delete", "id": "ghost"},
    ]
    done = changes(changes_frame(spark, rows).repartition(1), tmp_path)
    assert (done.version.number, done.rejected) == (2, 3)
    assert done.taken == {"insert": 10, "delete": 10, "move": 2}
    assert done.version.source == {"by": "changes", **done.taken}
    assert sorted(row.reason[:15] for row in done.rejects.collect()) == [
        "is a single pla",
        "is not register",
        "is registered a",
    ]
    known = {row["id"]: row for row in table.to_pylist()} | {row["id"]: row for row in new}
    for n in range(10):
        del known[f"s{n}"]
    known["s20"] |= dict.fromkeys(("lon", "lat", "radius_m", "geometry")) | BOX
    after = pa.Table.from_pylist(list(known.values()), table.schema)
    expected = scanned(after, messages)
    assert expected != scanned(table, messages)
    assert matched(spark, tmp_path, messages, "replicated") == expected
    if shards > 1:
        assert matched(spark, tmp_path, messages, "sharded") == expected
    assert works(tmp_path) == []


def test_changes_of_which_none_can_be_taken_leave_the_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, subscription_table(20, ids="integer"))
    files = {path for path in tmp_path.rglob("*") if "work" not in path.parts}
    rows: list[dict[str, Any]] = [
        {"op": "delete", "id": 99},
        {"op": "delete"},
        {"op": "what", "id": 1},
    ]
    done = changes(changes_frame(spark, rows, "integer"), tmp_path)
    assert (done.version, done.taken, done.rejected) == (first, NOTHING, 3)
    assert {row.reason for row in done.rejects.collect()} == {
        "is not registered",
        "is missing",
        "must be one of insert, delete, move",
    }
    done = changes(changes_frame(spark, [{"op": "delete"}], "integer"), tmp_path)
    assert (done.version, done.rejected) == (first, 1)
    done = changes(changes_frame(spark, [], "integer"), tmp_path)
    assert (done.version, done.taken, done.rejected) == (first, NOTHING, 0)
    assert done.rejects.collect() == []
    assert {path for path in tmp_path.rglob("*") if "work" not in path.parts} == files


def test_a_file_of_moves_is_one_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    build_locally(Artifact(tmp_path), subscription_table(20))
    moves = spark.createDataFrame(
        [("s1", "2024-05-01T10:00:00Z", "13.4", "52.5", "100")],
        "subscription_id string, time string, lon string, lat string, radius_m string",
    )
    assert changes(moves, tmp_path).taken == {"insert": 0, "delete": 0, "move": 1}


@pytest.mark.parametrize(
    "fields", ["id string, west double", "op string, name string", "subscription_id string"]
)
def test_columns_that_are_no_changes_are_an_error_before_any_job(
    spark: SparkSession, tmp_path: Path, fields: str
) -> None:
    with pytest.raises(UnsupportedFile, match="not a table of changes: it has the columns"):
        changes(spark.createDataFrame([], fields), tmp_path)


def test_frames_that_do_not_fit_the_index_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    deletes = changes_frame(spark, [{"op": "delete", "id": 7}], "integer")
    with pytest.raises(StorageError, match="contains no index"):
        changes(deletes, tmp_path)
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, subscription_table(5))
    with pytest.raises(InvalidInput, match="must be string like those of the index"):
        changes(deletes, tmp_path)
    stream = spark.readStream.format("rate").load().selectExpr("'delete' op", "'a' id")
    with pytest.raises(InvalidInput, match="call changes in foreachBatch"):
        changes(stream, tmp_path)
    assert artifact.latest() == first


def test_inserts_without_places_are_an_error_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, subscription_table(5))
    frame = spark.createDataFrame([("insert", "new")], "op string, id string")
    with pytest.raises(UnsupportedFile, match="not a table of subscriptions") as raised:
        changes(frame, tmp_path)
    assert "Traceback" not in str(raised.value)
    assert artifact.latest() == first
    assert works(tmp_path) == []


def test_changes_that_were_overtaken_change_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact(tmp_path)
    first = build_locally(artifact, subscription_table(20))
    module = import_module("nearcast.spark.changes")
    remake = module.rewrite_shards

    def remake_and_wait(*given: Any) -> Any:
        artifact.commit(first)
        return remake(*given)

    monkeypatch.setattr(module, "rewrite_shards", remake_and_wait)
    with pytest.raises(StorageError, match="version 2 was committed while changes"):
        changes(changes_frame(spark, [{"op": "delete", "id": "s1"}]), tmp_path)
    assert artifact.numbers() == [1, 2]
    assert artifact.latest().shards == first.shards
    assert works(tmp_path) == []
