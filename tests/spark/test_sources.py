"""Where streams come from: folders of Parquet, JSON and CSV files, and addresses of topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.spark.prepare import prepare
from nearcast.spark.sources import Topic, open_stream, topic_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import Row

PATIENCE_S = 300


class Sunk:
    """The rows of a stream, micro-batch by micro-batch."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.batches: list[list[Row]] = []
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
        query = writer.foreachBatch(self._take).trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_S)

    def _take(self, rows: DataFrame, number: int) -> None:
        assert number == len(self.batches)
        self.batches.append(rows.collect())

    @property
    def rows(self) -> list[Row]:
        return sorted((row for batch in self.batches for row in batch), key=str)


def ids(rows: list[Row]) -> list[Any]:
    return [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("address", "topic"),
    [
        ("kafka://localhost:9092/messages", Topic("localhost:9092", "messages")),
        ("kafka://a:1,b:2/some.topic-1", Topic("a:1,b:2", "some.topic-1")),
        ("data/messages", None),
        ("s3://bucket/kafka://a/b", None),
        ("", None),
    ],
)
def test_addresses_name_topics(address: str, topic: Topic | None) -> None:
    assert topic_of(address) == topic


@pytest.mark.parametrize("address", ["kafka://", "kafka://a:1", "kafka:///t", "kafka://a:1/t/u"])
def test_addresses_without_servers_or_topic_are_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="must be kafka://HOST:PORT/TOPIC"):
        topic_of(address)


@given(st.text(max_size=20))
def test_any_address_is_a_topic_or_none_or_refused(text: str) -> None:
    try:
        topic = topic_of(f"kafka://{text}")
    except InvalidInput:
        return
    assert topic is not None
    assert "/".join(topic) == text


def test_what_cannot_be_opened_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="csv, json, parquet"):
        open_stream(spark, str(tmp_path), kind="orc")
    with pytest.raises(InvalidInput, match="must be at least 1"):
        open_stream(spark, str(tmp_path), files_per_batch=0)
    for kind in ("parquet", "json", "csv"):
        with pytest.raises(InvalidInput, match="must be an existing folder"):
            open_stream(spark, str(tmp_path / "nothing"), kind=kind)


def test_a_session_without_the_connector_is_told_how_to_get_it(spark: SparkSession) -> None:
    if spark.conf.get("spark.jars.packages", None):
        pytest.skip("this session has packages")
    with pytest.raises(NearcastError, match=r"packages=\[nearcast.spark.connector"):
        open_stream(spark, "kafka://localhost:9/messages")


def test_parquet_files_give_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    for number in range(3):
        rows = [{"id": number, "tokens": ["tea"], "lon": 1.0, "lat": float(number), "other": "x"}]
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")
    frame = open_stream(spark, str(folder), files_per_batch=2)
    assert frame.isStreaming
    assert dict(frame.dtypes)["id"] == "bigint"
    assert dict(frame.dtypes)["tokens"] == "array<string>"
    sunk = Sunk(frame, tmp_path / "progress")
    assert [len(batch) for batch in sunk.batches] == [2, 1]
    assert ids(sunk.rows) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_an_empty_folder_waits_for_messages_as_files_have_them(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    frame = open_stream(spark, str(folder), kind=kind).select("id", "text", "lon", "lat", "time")
    row = {"id": "a", "text": "tea", "lon": 1.0, "lat": 2.5, "time": None}
    path = folder / f"a.{kind}"
    if kind == "parquet":
        schema = pa.schema(
            [
                ("id", pa.string()),
                ("text", pa.string()),
                ("lon", pa.float64()),
                ("lat", pa.float64()),
                ("time", pa.timestamp("us", "UTC")),
            ]
        )
        parquet.write_table(pa.Table.from_pylist([row], schema), path)
    elif kind == "json":
        path.write_text(json.dumps(row) + "\n")
    else:
        path.write_text("id,text,lon,lat,time\na,tea,1.0,2.5,\n")
    [found] = Sunk(frame, tmp_path / "progress").rows
    assert (found.id, found.text, float(found.lon), float(found.lat)) == ("a", "tea", 1.0, 2.5)
    assert found.time is None


def test_json_lines_that_are_no_messages_do_not_vanish(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    damaged = ['{"id": "b", "text": "tea", "lon', "[1, 2", '{"id": "c", "lon": "east", "lat": 1}']
    good = [
        '{"id": "a", "text": "tea", "lon": 1, "lat": 2, "time": 1700000000, "more": {}}',
        '{"id": 7, "tokens": ["tea", "ice"], "west": 1, "south": 1, "east": 2, "north": 2}',
    ]
    (folder / "1.json").write_text("\n".join([good[0], *damaged, good[1]]) + "\n")
    frame = open_stream(spark, str(folder), kind="json")
    rows = Sunk(frame, tmp_path / "progress").rows
    assert sorted(str(value) for value in ids(rows)) == ["7", "None", "None", "None", "a"]
    assert sorted(row["_corrupt_record"] for row in rows if row.id is None) == sorted(damaged)
    prepared = prepare(frame, "messages")
    clean = Sunk(prepared.rows, tmp_path / "clean").rows
    assert sorted(ids(clean)) == ["7", "a"]
    rejects = Sunk(prepared.rejects, tmp_path / "rejects").rows
    assert {row.reason for row in rejects} == {"cannot be read as a record"}
    assert len(rejects) == 3


def test_csv_cells_are_text_and_ragged_lines_do_not_vanish(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    lines = ["id,text,lon,lat", 'a,"tea, ice",1.5,2', "b,tea", "c,tea,1,2,3", "007,tea,x,2"]
    (folder / "1.csv").write_text("\n".join(lines) + "\n")
    frame = open_stream(spark, str(folder), kind="csv")
    assert {kind for _, kind in frame.dtypes} == {"string"}
    rows = Sunk(frame, tmp_path / "progress").rows
    assert sorted(str(value) for value in ids(rows)) == ["007", "None", "None", "a"]
    assert {row["_corrupt_record"] for row in rows if row.id is None} == {"b,tea", "c,tea,1,2,3"}
    clean = Sunk(prepare(frame, "messages").rows, tmp_path / "clean").rows
    assert [(row.id, row.text, row.lon) for row in clean] == [("a", "tea, ice", 1.5)]


def test_a_csv_file_with_other_columns_is_not_taken_for_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    (folder / "1.csv").write_text("id,text,lon,lat\na,tea,1,2\n")
    frame = open_stream(spark, str(folder), kind="csv")
    (folder / "2.csv").write_text("id,text,lat,lon\nb,tea,1,2\n")
    with pytest.raises(PySparkException, match=r"2\.csv"):
        Sunk(frame.select("id", F.col("lon").cast("double")), tmp_path / "progress")


def test_moves_have_columns_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    for kind in ("parquet", "csv", "json"):
        frame = open_stream(spark, str(tmp_path), kind=kind, rows="moves")
        assert {"time", "west", "north"} <= {*frame.columns}
        assert ("op" in frame.columns) == (kind == "json")
        assert ({"id", "subscription_id"} & {*frame.columns}) == {
            "id" if kind == "json" else "subscription_id"
        }
    with pytest.raises(UnknownName, match="unknown kind of rows 'stars'"):
        open_stream(spark, str(tmp_path), rows="stars")
