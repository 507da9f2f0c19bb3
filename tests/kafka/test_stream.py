"""Messages from a topic through the index to a topic or a folder: the pairs that the scan finds."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from nearcast import Engine, Rect
from nearcast.spark.build import build
from nearcast.spark.changes import changes
from nearcast.spark.frames import plain_errors
from nearcast.spark.sources import open_stream
from nearcast.spark.stream import rates, stream, stream_rejects

from .client import PARTITIONS, RUN_S, Value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from .client import Kafka

Pairs = Counter[tuple[Any, Any]]
Told = list[dict[str, Any]]

WORDS = ["tea", "milk", "snow", "ice", "Grün", "雪"]
EXPIRY_S = 1_700_000_000
SHARDED = {"mode": "sharded", "shards": 3}

DAMAGED: list[Value] = [
    "no JSON",
    "",
    "[1, 2]",
    "null",
    '{"id": "cut", "text": "tea", "lon": 0, "l',
    None,
    '{"id": "one", "text": "tea", "lon": 0, "lat": 0}{"id": "two", "text": "tea"}',
    '{"id": "one", "text": "tea", "lon": 0, "lat": 0}, {"id": "two", "text": "tea"}',
    b'{"id": "latin \xe9", "text": "tea", "lon": 0, "lat": 0}',
]
REFUSED: list[Value] = [
    '{"id": "text", "text": "tea", "lon": "east", "lat": 0}',
    '{"id": "far", "text": "tea", "lon": 200, "lat": 0}',
    '{"id": "nowhere", "text": "tea"}',
    '{"text": "tea", "lon": 0, "lat": 0}',
]
BAD = [*DAMAGED, *REFUSED]


def wanted(count: int = 40) -> pa.Table:
    """Draw subscriptions, of which every fourth has an end."""
    draw = random.Random(count)
    rows = []
    for number in range(count):
        west, south = draw.randrange(-180, 120, 20), draw.randrange(-90, 50, 20)
        rows.append(
            {
                "id": number,
                "keywords": draw.sample(WORDS, draw.randint(1, 2)),
                **box(west, south, west + draw.choice([20, 60]), south + 40),
                "expires_at": EXPIRY_S if number % 4 == 0 else None,
            }
        )
    return pa.Table.from_pylist(rows)


def box(west: float, south: float, east: float, north: float) -> dict[str, float]:
    sides = {"west": west, "south": south, "east": east, "north": north}
    return {name: float(value) for name, value in sides.items()}


def messages(name: str, count: int = 40) -> Told:
    """Draw messages, points and boxes, with words or tokens, before and after the end of some."""
    draw = random.Random(name)
    told: Told = []
    for number in range(count):
        lon, lat = draw.randrange(-180, 161, 20), draw.randrange(-90, 81, 10)
        words = draw.sample(WORDS, 4)
        told.append(
            {
                "id": f"{name}-{number}",
                **({"text": ", ".join(words)} if number % 3 else {"tokens": words}),
                **({"lon": lon, "lat": lat} if number % 5 else box(lon, lat, lon + 20, lat + 5)),
                "time": draw.choice(
                    [EXPIRY_S - 1, EXPIRY_S, "2023-11-14T22:13:19.999Z", "2023-11-14T22:13:20Z"]
                ),
            }
        )
    return told


@dataclass(frozen=True)
class KafkaPipeline:
    """A broker, an index, and an engine with the same subscriptions, which scans."""

    kafka: Kafka
    folder: Path
    engine: Engine

    @property
    def index(self) -> Path:
        return self.folder / "index"

    def build(self, **how: Any) -> None:
        table = wanted()
        assert not len(self.engine.subscribe_table(table))
        build(self.kafka.spark.createDataFrame(table), self.index, **how)

    def change(self) -> None:
        """Remove a subscription, move one and add one, here and there."""
        new = {"id": 100, "keywords": ["tea"], **box(-180, -90, 180, 90)}
        rows: Told = [
            {"op": "delete", "id": 1},
            {"op": "move", "id": 2, **box(-180, -90, 180, 90)},
            {"op": "insert", **new},
        ]
        names = ["op", *new]
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
        assert changes(self.kafka.spark.createDataFrame(table), self.index).rejected == 0
        self.engine.unsubscribe(1)
        self.engine.move(2, Rect(-180, -90, 180, 90))
        self.engine.subscribe_table(pa.Table.from_pylist([new]))

    def produce(self, topic: str, name: str, bad: Sequence[Value] = ()) -> Pairs:
        """Send messages, bad ones among them, and return what they match now."""
        told = messages(name)
        sent = [(row["id"], json.dumps(row)) for row in told]
        self.kafka.produce(topic, [*sent[:20], *((None, each) for each in bad), *sent[20:]])
        published: Pairs = Counter()
        for row in told:
            table = pa.Table.from_pylist([row])
            matches = self.engine.publish_table(table).matches.to_pylist()
            published.update((row["id"], match["subscription_id"]) for match in matches)
        assert published
        return published

    def messages(self, topic: str) -> DataFrame:
        return open_stream(self.kafka.spark, self.kafka.uri(topic))

    def start(self, topic: str, to: str, **how: Any) -> StreamingQuery:
        given = {"to": to, "checkpoint": self.folder / "checkpoint", **how}
        return stream(self.messages(topic), self.index, **given)

    def run(self, topic: str, to: str, **how: Any) -> Told:
        """Match what is in the topic, and return what every micro-batch did."""
        return finished(self.start(topic, to, available_now=True, **how))

    def consume(self, topic: str) -> Pairs:
        pairs: Pairs = Counter()
        for key, value in self.kafka.consume(topic):
            assert value is not None
            match = json.loads(value)
            assert match == {**match, "score": None}
            assert key == str(match["subscription_id"])
            pairs[match["message_id"], match["subscription_id"]] += 1
        return pairs


def finished(query: StreamingQuery) -> Told:
    with plain_errors():
        assert query.awaitTermination(RUN_S), f"the stream did not end within {RUN_S} s"
    return [rate for progress in query.recentProgress if (rate := rates(progress)) is not None]


@pytest.fixture
def pipeline(kafka: Kafka, tmp_path: Path) -> KafkaPipeline:
    return KafkaPipeline(kafka, tmp_path, Engine("scan", clock=lambda: EXPIRY_S - 1000.0))


@pytest.mark.parametrize("how", [{}, SHARDED], ids=["replicated", "sharded"])
def test_a_topic_of_messages_becomes_a_topic_of_matches(
    pipeline: KafkaPipeline, how: dict[str, Any]
) -> None:
    name = how.get("mode", "replicated")
    told, found = f"{name}-messages", f"{name}-matches"
    pipeline.kafka.create(told, found)
    pipeline.build(**how)
    expected = pipeline.produce(told, "a", BAD)
    batches = pipeline.run(told, pipeline.kafka.uri(found), mode=name)
    assert pipeline.consume(found) == expected
    assert [batch["messages"] for batch in batches] == [40]
    assert [batch["rejected"] for batch in batches] == [len(BAD)]
    assert [batch["matches"] for batch in batches] == [expected.total()]


def test_a_restart_goes_on_with_the_messages_and_subscriptions_that_came_since(
    pipeline: KafkaPipeline,
) -> None:
    pipeline.kafka.create("restarted", "restarted-matches")
    to = pipeline.kafka.uri("restarted-matches")
    pipeline.build()
    expected = pipeline.produce("restarted", "a", BAD[:2])
    pipeline.run("restarted", to)
    pipeline.change()
    assert pipeline.run("restarted", to) == []
    assert pipeline.consume("restarted-matches") == expected
    expected += pipeline.produce("restarted", "b", BAD[2:5])
    [batch] = pipeline.run("restarted", to)
    assert (batch["batch"], batch["messages"], batch["rejected"]) == (1, 40, 3)
    assert pipeline.consume("restarted-matches") == expected
    assert {100, 2} <= {subscription for _, subscription in expected}


def test_a_running_stream_takes_up_changed_subscriptions(pipeline: KafkaPipeline) -> None:
    pipeline.kafka.create("live-messages", "live-matches")
    pipeline.build()
    expected = pipeline.produce("live-messages", "a")
    query = pipeline.start("live-messages", pipeline.kafka.uri("live-matches"))
    try:
        query.processAllAvailable()
        pipeline.change()
        expected += pipeline.produce("live-messages", "b")
        query.processAllAvailable()
    finally:
        query.stop()
    assert pipeline.consume("live-matches") == expected


def test_a_batch_that_comes_again_has_the_matches_that_it_had(pipeline: KafkaPipeline) -> None:
    pipeline.kafka.create("again", "again-matches")
    to = pipeline.kafka.uri("again-matches")
    pipeline.build()
    expected = pipeline.produce("again", "a")
    pipeline.run("again", to)
    pipeline.change()
    # As if the process had been killed behind its last record, before it noted that.
    for noted in (pipeline.folder / "checkpoint" / "commits").iterdir():
        noted.unlink()
    [batch] = pipeline.run("again", to)
    assert (batch["batch"], batch["messages"]) == (0, 40)
    assert pipeline.consume("again-matches") == expected + expected


def test_a_topic_of_messages_becomes_files_of_matches_and_of_rejects(
    pipeline: KafkaPipeline,
) -> None:
    pipeline.kafka.create("to-files")
    pipeline.build()
    out, rejects = pipeline.folder / "out", pipeline.folder / "rejects"
    expected = pipeline.produce("to-files", "a", BAD)
    pipeline.run("to-files", str(out))
    expected += pipeline.produce("to-files", "b")
    pipeline.run("to-files", str(out))
    rows = [row for path in out.glob("*.parquet") for row in parquet.read_table(path).to_pylist()]
    assert Counter((row["message_id"], row["subscription_id"]) for row in rows) == expected
    finished(
        stream_rejects(
            pipeline.messages("to-files"),
            to=rejects,
            checkpoint=pipeline.folder / "rejects-checkpoint",
            available_now=True,
        )
    )
    texts = [path.read_text(encoding="utf-8") for path in rejects.glob("*.json")]
    refused = [json.loads(line) for line in "".join(texts).splitlines()]
    assert len(refused) == len(BAD)
    # The topic, the partition and the offset, which the producer and the broker choose.
    assert {row["file"] for row in refused} <= {f"to-files/{part}" for part in range(PARTITIONS)}
    assert len({(row["file"], row["row"]) for row in refused}) == len(BAD)
    # A value that is not an object has no field that is wrong; null is one of these.
    unreadable = [row for row in refused if not row["field"]]
    assert len(unreadable) == len(DAMAGED)
    assert {row["field"] for row in refused if row["field"]} == {"id", "lon", "place"}
