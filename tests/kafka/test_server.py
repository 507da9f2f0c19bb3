"""The live server with Spark as its matcher: through restarts and crashes, what the scan finds."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from nearcast import Circle, Engine, Message, Polygon, Rect, Subscription
from nearcast.errors import NearcastError
from nearcast.server.kafka.topics import Topics
from nearcast.spark.build import build
from nearcast.spark.sources import open_stream
from nearcast.spark.updates import stream_updates

from .live_server import Listener, LiveServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

    from .client import Kafka

pytest.importorskip("confluent_kafka")

WORDS = ["tea", "milk", "snow", "ice", "Grün", "雪"]
SUBSCRIBERS = ["ann", "bob", "eve"]
Pairs = Counter[tuple[str, str]]
Region = Circle | Rect | Polygon


class World:
    """A server, Spark, three listeners; and an engine that scans, with the same subscriptions."""

    def __init__(self, kafka: Kafka, folder: Path, name: str) -> None:
        self.kafka, self.folder = kafka, folder
        self.topics = {kind: f"{name}-{kind}" for kind in ("messages", "changes", "matches")}
        kafka.create(*self.topics.values())
        query = "&".join(f"{kind}={topic}" for kind, topic in self.topics.items())
        self.server = LiveServer(folder / "data", f"kafka://{kafka.address}?{query}")
        self.scan = Engine("scan")
        self.expected: dict[str, Pairs] = {name: Counter() for name in SUBSCRIBERS}
        self.owner: dict[str, str] = {}
        self.listeners: dict[str, Listener] = {}
        self._draw = random.Random(name)
        self._count = 0
        self.query: StreamingQuery
        schema = "id string, keywords array<string>, lon double, lat double, radius_m double"
        build(kafka.spark.createDataFrame([], schema), folder / "index")

    def start_spark(self) -> StreamingQuery:
        def topic(kind: str) -> str:
            return self.kafka.uri(self.topics[kind])

        return stream_updates(
            open_stream(self.kafka.spark, topic("messages")),
            open_stream(self.kafka.spark, topic("changes"), rows="moves"),
            self.folder / "index",
            to=topic("matches"),
            checkpoint=self.folder / "checkpoint",
        )

    def listen(self) -> None:
        self.listeners = {name: Listener(self.server, name) for name in SUBSCRIBERS}

    def restart(self, how: signal.Signals) -> None:
        self.server.end(how)
        for listener in self.listeners.values():
            listener.join()
        self.server.start()
        for listener in self.listeners.values():
            listener.follow(self.server)

    def put(self, id: str, keywords: list[str], region: Region) -> None:
        """Define a subscription, here and there."""
        owner = self.owner.setdefault(id, SUBSCRIBERS[len(self.owner) % len(SUBSCRIBERS)])
        detail = {"subscriber": owner, "keywords": keywords, "region": shown(region)}
        self.server.put(id, detail)
        self.scan.replace(Subscription(id, region, keywords), upsert=True)

    def put_some(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            lon, lat = self._draw.randrange(-160, 160, 20), self._draw.randrange(-80, 80, 10)
            south = (lon - 20, lat - 10), (lon + 20, lat - 10)
            ring = [*south, (lon, lat + 10), south[0]]
            rect = Rect(lon - 20, -90, lon, lat)
            region: Region = (Circle(lon, lat, 2_000_000), rect, Polygon([ring]))[number % 3]
            self.put(f"s{number}", self._draw.sample(WORDS, self._draw.randint(1, 2)), region)

    def move(self, id: str, region: Rect) -> None:
        move = {"subscriptionId": id, "region": shown(region)}
        headers = {"Content-Type": "application/x-ndjson"}
        answer = self.server.call("POST", "/moves", content=json.dumps(move), headers=headers)
        assert answer["moved"] == 1, answer
        self.scan.move(id, region)

    def delete(self, id: str) -> None:
        self.server.call("DELETE", f"/subscriptions/{id}")
        self.scan.unsubscribe(id)

    def publish(self, count: int = 40) -> None:
        """Publish messages, and note whom they have to reach."""
        sent = []
        for _ in range(count):
            self._count += 1
            lon, lat = self._draw.randrange(-180, 161, 20), self._draw.randrange(-90, 81, 10)
            text = " ".join(self._draw.sample(WORDS, 4))
            sent.append({"id": f"m{self._count}", "text": text, "lon": lon, "lat": lat})
            found = self.scan.publish(Message(f"m{self._count}", (lon, lat), text))
            for match in found:
                owner = self.owner[str(match.subscription_id)]
                self.expected[owner][str(match.message_id), str(match.subscription_id)] += 1
        self.server.publish(sent)

    def wait(self) -> None:
        """Wait until everything has come."""
        for name, listener in self.listeners.items():
            listener.wait(self.expected[name].total())

    def check(self) -> None:
        """Compare what came, live and read again, with what the scan finds."""
        self.wait()
        for name, listener in self.listeners.items():
            assert pairs(listener) == self.expected[name]
            ids = [event.id for event in listener.received]
            assert len({*ids}) == len(ids)
            assert sorted(ids, key=position) == ids
            again = Listener(self.server, name)
            again.wait(self.expected[name].total())
            assert again.received == listener.received


def shown(region: Region) -> dict[str, Any]:
    """Return a region as the server takes it."""
    if isinstance(region, Circle):
        center = {"longitude": region.lon, "latitude": region.lat}
        return {"areaType": "CIRCLE", "center": center, "radius": region.radius_m}
    if isinstance(region, Rect):
        sides = {side: getattr(region, side) for side in ("west", "south", "east", "north")}
        return {"areaType": "BOX", **sides}
    return dict(region.to_geojson())


def pairs(listener: Listener) -> Pairs:
    return Counter((e.message, one) for e in listener.received for one in e.subscriptions)


def position(id: str) -> tuple[int, int]:
    seq, _, k = id.partition("-")[2].partition(".")
    return int(seq), int(k or 0)


@pytest.fixture
def worlds(kafka: Kafka, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def make(name: str) -> World:
            world = World(kafka, tmp_path, name)
            stack.enter_context(world.server)
            query = world.start_spark()
            stack.callback(query.stop)
            world.query = query
            world.listen()
            return world

        yield make


def test_topics_must_be_there(kafka: Kafka) -> None:
    kafka.create("there-messages", "there-changes")
    url = f"kafka://{kafka.address}?messages=there-messages&changes=there-changes&matches=not-there"
    with pytest.raises(NearcastError, match="has no topic not-there; create it first"):
        Topics.parse(url).check()


def test_what_the_scan_finds_arrives_once_through_restarts_and_crashes(worlds: Any) -> None:
    world = worlds("server-crashes")
    world.put_some(0, 30)
    world.publish()
    world.wait()
    world.restart(signal.SIGTERM)
    world.publish()
    world.restart(signal.SIGKILL)  # what was acknowledged is not sent to Kafka, or not received
    world.wait()
    world.put_some(20, 20)  # some are new, some are others than before
    world.delete("s3")
    world.move("s4", Rect(-180, -90, 180, 90))
    world.publish()
    world.restart(signal.SIGKILL)
    world.check()


def test_matches_that_come_again_are_dropped(worlds: Any) -> None:
    world = worlds("server-again")
    world.put_some(0, 20)
    world.publish()
    world.wait()
    world.query.stop()
    shutil.rmtree(world.folder / "checkpoint")  # it begins at the beginning again
    query = world.start_spark()
    try:
        world.publish()
        world.check()
        query.processAllAvailable()
        world.publish(5)
        world.check()
    finally:
        query.stop()
    assert len(world.kafka.consume(world.topics["matches"])) > sum(
        pairs.total() for pairs in world.expected.values()
    )
