"""Where streams come from: folders of files, and topics."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.spark.files import read_files
from nearcast.spark.prepare import prepare
from nearcast.spark.sources import Topic, open_stream, topic_of, value_rows

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
    with pytest.raises(InvalidInput, match="must be at least 1"):
        open_stream(spark, str(tmp_path), files_per_batch=0)
    with pytest.raises(InvalidInput, match="must be an existing folder"):
        open_stream(spark, str(tmp_path / "nothing"))


def test_a_session_without_the_connector_is_told_how_to_get_it(spark: SparkSession) -> None:
    if spark.conf.get("spark.jars.packages", None):
        pytest.skip("this session has packages")
    with pytest.raises(NearcastError, match=r"packages=\[nearcast.spark.connector"):
        open_stream(spark, "kafka://localhost:9/messages")


def test_files_give_our_columns_micro_batch_by_micro_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
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
    # Spark lists the files, and does not read their content.
    jvm: Any = spark.read.format("binaryFile").load(str(folder)).select("path", "length")
    assert "ReadSchema: struct<path:string,length:bigint>" in str(
        jvm._jdf.queryExecution().executedPlan().toString()
    )


ROW = {"id": "a", "text": "tea", "lon": 1.0, "lat": 2.5}
ARRIVING: dict[str, bytes] = {
    "with space é 50%.csv": b"id,text,lon,lat\na,tea,1.0,2.5\n",
    "plain.csv": b"id,text,lon,lat\na,tea,1.0,2.5\n",
    "other-order.csv": b"lat;lon;more;text;id\n2.5;1;x;tea;a\n",
    "tabs.tsv": b"id\ttext\tlon\tlat\na\ttea\t1\t2.5\n",
    "packed.csv.gz": gzip.compress(b"id,text,lon,lat\na,tea,1.0,2.5\n"),
    "marked.csv": "id,text,lon,lat\na,tea,1.0,2.5\n".encode("utf-16"),
    "lines.ndjson": json.dumps(ROW).encode(),
    "array.json": json.dumps([ROW]).encode(),
    "features.geojson": json.dumps(
        {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "id": "a",
                    "properties": {"text": "tea", "lon": 1.0, "lat": 2.5},
                    "geometry": None,
                }
            ],
        }
    ).encode(),
}


def test_a_stream_takes_files_of_all_formats_and_orders(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The folder is empty when the stream is opened."""
    folder = tmp_path / "messages"
    folder.mkdir()
    frame = open_stream(spark, str(folder))
    for name, content in ARRIVING.items():
        (folder / name).write_bytes(content)
    table = pa.Table.from_pylist(
        [{**ROW, "time": datetime(2024, 5, 6), "ttl_s": timedelta(hours=1)}]
    )
    parquet.write_table(table, folder / "table.parquet")
    rows = Sunk(frame, tmp_path / "progress").rows
    assert {row._file for row in rows} == {*ARRIVING, "table.parquet"}
    assert {(row.id, row.text, row.lon, row.lat) for row in rows} == {("a", "tea", 1.0, 2.5)}
    [timed] = [row for row in rows if row._file == "table.parquet"]
    assert (timed.time, timed.ttl_s) == (datetime(2024, 5, 6), 3600.0)


def test_nothing_of_a_stream_vanishes(spark: SparkSession, tmp_path: Path) -> None:
    """Lines that cannot be read, invalid rows, and whole files are rejected with the reason."""
    folder = tmp_path / "messages" / "deep"
    folder.mkdir(parents=True)
    lines = [
        '{"id": "a", "text": "tea", "lon": 1, "lat": 2, "time": 1700000000, "more": {}}',
        '{"id": "b", "text": "tea", "lon',
        '{"id": "c", "text": "x", "lon": "east", "lat": 1, "more": 5}',
        '{"id": 7, "tokens": ["tea", "ice"], "west": 1, "south": 1, "east": 2, "north": 2}',
    ]
    (folder / "1.json").write_text("\n".join(lines) + "\n")
    (folder / "2.csv").write_text('id,text,lon,lat\nd,"hot\ntea",1.5,2\ne,tea\n007,tea,x,2\n')
    (folder / "3.csv.gz").write_bytes(b"this is not gzip")
    (folder / "4.txt").write_text("what is this?")
    frame = open_stream(spark, str(tmp_path / "messages"))
    prepared = prepare(frame, "messages")
    clean = Sunk(prepared.rows, tmp_path / "clean").rows
    assert sorted(ids(clean)) == ["7", "a", "d"]
    assert {row.text for row in clean if row.id == "d"} == {"hot tea"}
    rejects = Sunk(prepared.rejects, tmp_path / "rejects").rows
    found = {(row.file, row.row): (row.field, row.record) for row in rejects}
    assert found == {
        ("deep/1.json", 2): ("", json.dumps(lines[1])),
        ("deep/1.json", 3): ("lon", lines[2]),
        ("deep/2.csv", 4): ("", '"e,tea"'),
        ("deep/2.csv", 5): ("lon", '{"id": "007", "text": "tea", "lon": "x", "lat": "2"}'),
        ("deep/3.csv.gz", 0): ("", ""),
        ("deep/4.txt", 0): ("", ""),
    }
    reasons = {row.file: row.reason for row in rejects}
    assert "cannot tell the format from '.txt'" in reasons["deep/4.txt"]
    assert "cannot be read as csv" in reasons["deep/3.csv.gz"]


def test_ids_of_another_type_are_rejected_row_by_row(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    row = {"id": 1, "text": "tea", "lon": 1.0, "lat": 2.0}
    parquet.write_table(pa.Table.from_pylist([row]), folder / "a.parquet")
    frame = open_stream(spark, str(folder))
    (folder / "b.csv").write_text("id,text,lon,lat\n2,tea,1,2\nthree,tea,1,2\n")
    rows = Sunk(frame, tmp_path / "progress").rows
    assert ids([row for row in rows if row.id is not None]) == [1]
    assert {(row._file, row._line, row._rejected.reason) for row in rows if row.id is None} == {
        ("b.csv", line, "must be an integer, as the ids of the first files are") for line in (2, 3)
    }


def test_moves_have_columns_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "moves"
    folder.mkdir()
    frame = open_stream(spark, str(folder), rows="moves")
    (folder / "1.csv").write_text("subscription_id,time,lon,lat\ns1,5,1,2\n,5,1,2\n")
    (folder / "2.json").write_text('{"op": "delete", "id": "s2"}\n{"id": "s3", "lon": 1, "lat": 1}')
    rows = Sunk(frame, tmp_path / "progress").rows
    assert sorted((row.op, row.id) for row in rows if row.id) == [
        ("delete", "s2"),
        ("move", "s1"),
        ("move", "s3"),
    ]
    [rejected] = [row for row in rows if row.id is None]
    assert (rejected._rejected.field, rejected._line) == ("subscription_id", 3)
    with pytest.raises(UnknownName, match="unknown kind of rows 'stars'"):
        open_stream(spark, str(tmp_path), rows="stars")


def test_values_of_a_topic_are_read_as_lines_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """The same objects as values and as lines give the same rows and the same rejects."""
    values: list[bytes | None] = [
        b'{"id": "a", "text": "tea", "lon": "1.5", "lat": 2, "time": "2024-05-06", "ttl_s": 5}',
        b'{"id": 7, "tokens": ["tea"], "lon": 1, "lat": 2}',
        b'{"id": true, "text": "tea", "lon": 1, "lat": 2}',
        b'{"id": "b", "text": 5, "lon": 1, "lat": 2}',
        b'{"id": "c", "text": "tea", "lon": 1}',
        b'{"id": "d", "text": "tea", "lng": 1, "Lat": 2}',
        b'{"id": "e", "body": "tea", "lon": 1, "lat": 2}',
        b'{"id": "f"}{"id": "g"}',
        b"[1]",
        b'{"id": "\xff", "text": "tea", "lon": 1, "lat": 2}',
        b'{"type": "FeatureCollection", "features": []}',
        b'{"id": "h", "text": "tea", "lon": 200, "lat": 2}',
    ]
    path = tmp_path / "values.json"
    first = b'{"id": "z", "text": "first", "lon": 1, "lat": 2}'
    path.write_bytes(b"\n".join([first, *(value for value in values if value)]))
    several = b'{"id": "i",\n "text": "tea", "lon": 1, "lat": 2}'
    records = [
        (value, "topic", 3, 40 + at) for at, value in enumerate([first, *values, several, None])
    ]
    schema = "value binary, topic string, partition int, offset bigint"
    found = value_rows(spark.createDataFrame(records, schema))
    lines = read_files(spark, path)
    columns = [name for name in lines.columns if not name.startswith("_")]
    own = found.where("_line < 53")
    assert sorted(own.select(*columns).collect(), key=str) == sorted(
        lines.select(*columns).collect(), key=str
    )
    why = ["_rejected.field", "_rejected.reason", "_rejected.record"]
    shifted = lines.selectExpr("_line + 39 as line", *why).where("field is not null")
    assert sorted(own.selectExpr("_line as line", *why).where("field is not null").collect()) == (
        sorted(shifted.collect())
    )
    [whole, nothing] = sorted(found.where("_line >= 53").collect(), key=lambda row: row._line)
    assert (whole.id, whole._file, nothing._rejected.reason) == (
        "i",
        "topic/3",
        "is not a JSON object",
    )
