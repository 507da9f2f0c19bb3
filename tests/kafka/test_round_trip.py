"""Records through a broker and Spark and back, as tables and as streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from .client import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .client import Kafka, Record

TEXTS = ["snow in Oslo", "Schnee, é à ü", "雪 ❄", "", '{"a": "b"}\n']


def numbered(start: int, stop: int) -> list[Record]:
    return [(str(n), json.dumps({"id": n, "text": TEXTS[n % 5]})) for n in range(start, stop)]


def test_a_table_comes_back_as_it_was_written(kafka: Kafka) -> None:
    kafka.create("table")
    written = [*numbered(0, 50), (None, "no key"), ("no value", None)]
    kafka.produce("table", written)
    assert sorted(kafka.consume("table"), key=str) == sorted(written, key=str)


def test_records_lie_in_all_partitions(kafka: Kafka) -> None:
    kafka.create("spread")
    kafka.produce("spread", numbered(0, 50))
    rows = kafka.table("spread").select("partition").distinct().collect()
    assert {row.partition for row in rows} == set(range(PARTITIONS))


def test_a_stream_goes_from_topic_to_topic_in_several_batches(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("from", "to")
    written = numbered(0, 100)
    kafka.produce("from", written)
    query = kafka.run(kafka.stream("from", most=30).select("key", "value"), "to", tmp_path)
    assert sorted(kafka.consume("to"), key=str) == sorted(written, key=str)
    batches = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(batches) == 100
    assert len([rows for rows in batches if rows]) >= 4


def test_a_stream_goes_on_where_it_stopped(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("growing", "copied")
    frame = kafka.stream("growing").select("key", "value")
    kafka.produce("growing", numbered(0, 20))
    kafka.run(frame, "copied", tmp_path)
    kafka.produce("growing", numbered(20, 50))
    kafka.run(frame, "copied", tmp_path)
    assert sorted(kafka.consume("copied"), key=str) == sorted(numbered(0, 50), key=str)


def test_a_running_stream_sees_what_is_produced_meanwhile(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("live", "seen")
    kafka.produce("live", numbered(0, 5))
    writer = kafka.stream("live").select("key", "value").writeStream.format("kafka")
    writer = writer.options(**kafka.options, topic="seen", checkpointLocation=str(tmp_path))
    query = writer.start()
    try:
        query.processAllAvailable()
        kafka.produce("live", numbered(5, 12))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(kafka.consume("seen"), key=str) == sorted(numbered(0, 12), key=str)


def test_python_workers_read_and_write_the_records_as_arrow(kafka: Kafka, tmp_path: Path) -> None:
    # Workers cannot import this file: a function within a function travels by its code.
    def shout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = [json.loads(value)["text"] for value in batch.column("value").to_pylist()]
            loud = pa.array([text.upper() for text in texts], pa.string())
            key = batch.column("key").cast(pa.string())
            yield pa.RecordBatch.from_arrays([key, loud], names=["key", "value"])

    kafka.create("quiet", "loud")
    kafka.produce("quiet", numbered(0, 25))
    frame = kafka.stream("quiet").select("key", "value")
    kafka.run(frame.mapInArrow(shout, "key string, value string"), "loud", tmp_path)
    expected = [(str(n), TEXTS[n % 5].upper()) for n in range(25)]
    assert sorted(kafka.consume("loud"), key=str) == sorted(expected, key=str)
