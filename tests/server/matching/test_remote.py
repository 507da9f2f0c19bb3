"""A server whose messages another system matches: here a scan, which repeats and delays matches."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from nearcast import Engine, Polygon
from nearcast.server.kafka.intake import Intake, Value
from nearcast.server.kafka.rows import message_rows
from nearcast.server.log.committer import Written
from nearcast.server.log.records import MESSAGES, Change, Definition
from nearcast.server.matching.pipeline import CheckpointPolicy
from nearcast.server.matching.postings import Position
from nearcast.server.matching.registry import Channel
from nearcast.server.matching.remote import RemoteEngine
from nearcast.server.service import Service
from nearcast.server.state import Sqlite, State
from nearcast.storage.log import Log

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["tea", "milk", "snow"]
Pairs = Counter[tuple[int, str]]


class FakeSpark:
    """Matches rows of messages and changes by a scan; the matches wait until they are taken."""

    def __init__(self) -> None:
        self.engine = Engine("scan", clock=lambda: 0.0)
        self.sent_message = self.sent_change = 0
        self.values: list[Value] = []

    def take(self, service: Service) -> None:
        """Take what the server has to send, in the order of the log."""
        engine = service.engine
        assert isinstance(engine, RemoteEngine)
        changes = [row for row in engine.waiting() if row.number > self.sent_change]
        for record in service.log.read(self.sent_message + 1):
            while changes and changes[0].after < record.seq:
                self._change(changes.pop(0))
            if record.kind == MESSAGES:
                for row in message_rows(record):
                    self._publish(row)
            self.sent_message = record.seq + record.count - 1
        for change in changes:
            self._change(change)
        engine.sent(self.sent_change)

    def _change(self, change: Any) -> None:
        row = msgspec.json.decode(change.value)
        op = row.pop("op")
        del row["time"]
        if op == "delete":
            self.engine.unsubscribe(row["id"])
        elif op == "insert":
            assert not len(self.engine.subscribe_table(pa.Table.from_pylist([row])))
        else:
            moves = pa.Table.from_pylist([{**row, "subscription_id": row.pop("id"), "time": 0.0}])
            assert not len(self.engine.move_table(moves).rejects)
        self.sent_change = change.number

    def _publish(self, value: bytes) -> None:
        row = msgspec.json.decode(value)
        del row["time"]
        for match in self.engine.publish_table(pa.Table.from_pylist([row])).matches.to_pylist():
            self.values.append(Value(0, len(self.values), msgspec.json.encode(match)))


class World:
    """A server that is opened and closed again, and a scan with the same subscriptions."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.spark, self.scan = FakeSpark(), Engine("scan", clock=lambda: 0.0)
        self.expected: Pairs = Counter()
        self.messages = 0

    def open(self) -> None:
        log, state = Log(self.folder / "log"), State(Sqlite(self.folder / "state.db"))
        policy = CheckpointPolicy(changes=15)
        self.service = Service(self.folder, log, state, policy, remote=True)
        self.service.start()
        engine = self.service.engine
        assert isinstance(engine, RemoteEngine)
        self.intake = Intake(log, self.service.registry, self.service.events, engine.offsets)

    async def receive(self) -> None:
        """Receive some of the matches; now and then one that came before."""
        begin = max(self.intake.offsets.get(0, 0) - self.draw.randrange(3), 0)
        values = self.spark.values[begin : begin + self.draw.randrange(1, 20)]
        await self.take_in(values)

    async def take_in(self, values: list[Value]) -> None:
        entry, pairs, offsets = self.intake.entry(values)
        if len(pairs):
            tag = Written()
            self.service.pipeline.submit(tag, entry)
            assert (await asyncio.to_thread(tag.wait)).record is not None
        self.intake.written(pairs, {0: max(offsets.get(0, 0), self.intake.offsets.get(0, 0))})

    async def put(self, number: int) -> None:
        lon = self.draw.randrange(0, 40, 10)
        row: dict[str, Any] = {"keywords": self.draw.sample(WORDS, self.draw.randint(1, 2))}
        if self.draw.random() < 0.5:
            row |= {"west": lon, "south": 0, "east": lon + 20, "north": 10}
        else:
            triangle = [(lon, 0), (lon + 20, 0), (lon + self.draw.randrange(20), 10)]
            row["geometry"] = Polygon([triangle]).to_wkb()
        definition = Definition("ann", row, (lon, 0, lon + 20, 10), "boolean", {})
        [outcome] = await self.service.change(0, [Change(f"s{number}", definition)])
        assert not outcome.code, outcome
        mine = pa.Table.from_pylist([{"id": f"s{number}", **row}])
        assert not len(self.scan.replace_table(mine, upsert=True).rejects)

    async def delete(self, number: int) -> None:
        if f"s{number}" in self.scan:
            await self.service.change(0, [Change(f"s{number}", None)])
            self.scan.unsubscribe(f"s{number}")

    async def move(self, number: int) -> None:
        if f"s{number}" in self.scan:
            place = {"west": 0, "south": 0, "east": self.draw.randrange(10, 60, 10), "north": 10}
            [outcome] = await self.service.move(0, [(f"s{number}", place)])
            assert not outcome.code, outcome
            moves = pa.Table.from_pylist([{"subscription_id": f"s{number}", "time": 0.0, **place}])
            assert not len(self.scan.move_table(moves).rejects)

    async def publish(self) -> None:
        rows = [
            {"text": " ".join(self.draw.sample(WORDS, 2)), "lon": self.draw.randrange(60), "lat": 5}
            for _ in range(self.draw.randint(1, 4))
        ]
        blobs = [msgspec.json.encode(row) for row in rows]
        stretch = (await self.service.publish(0, blobs, b"", None, b"")).stretch
        assert stretch is not None
        named = [{**row, "id": seq} for seq, row in enumerate(rows, stretch.first_seq)]
        for match in self.scan.publish_table(pa.Table.from_pylist(named)).matches.to_pylist():
            self.expected[match["message_id"], match["subscription_id"]] += 1

    async def settle(self) -> None:
        """Send and receive everything; wait until it is matched."""
        await self.service.administer({"op": "tenant", "name": "default", "limits": {}})
        self.spark.take(self.service)
        begin = self.intake.offsets.get(0, 0)
        await self.take_in(self.spark.values[begin:])
        await self.service.administer({"op": "tenant", "name": "default", "limits": {}})

    def received(self) -> Pairs:
        channel = self.service.registry.channel_of(Channel(0, "ann"))
        events = self.service.events.read(channel, Position(0), 1_000_000)
        positions = [event.position for event in events]
        assert positions == sorted({*positions})
        return Counter(
            (event.message, self.service.registry.id_of(handle))
            for event in events
            if event.message
            for handle, _, _ in event.matches
        )


@pytest.mark.parametrize("seed", range(3))
def test_matches_of_another_system_become_events_once(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path, seed)

    async def run() -> None:
        world.open()
        for _ in range(80):
            match world.draw.randrange(12):
                case 0 | 1 | 2:
                    await world.put(world.draw.randrange(12))
                case 3:
                    await world.settle()  # one that was deleted gets nothing more
                    await world.delete(world.draw.randrange(12))
                case 4:
                    await world.move(world.draw.randrange(12))
                case 5:
                    await world.service.close()
                    world.open()
                case 6 | 7:
                    world.spark.take(world.service)
                    await world.receive()
                case _:
                    await world.publish()
        await world.settle()
        assert world.received() == world.expected
        repeated = world.spark.values
        await world.take_in(repeated)
        world.intake.seen.since = 10**9  # as if it had forgotten them: the events are asked
        await world.take_in(repeated)
        await world.settle()
        assert world.received() == world.expected
        await world.service.close()

    asyncio.run(run())
    assert world.expected


def test_a_match_counts_for_the_definition_that_was_in_force() -> None:
    engine = RemoteEngine()

    def publish(seq: int) -> None:
        engine.publish_table(pa.table({"id": pa.array([seq], pa.int64())}))

    def put(handle: int) -> int:
        engine.replace_table(pa.table({"id": [handle], "keywords": [["tea"]]}))
        return engine.waiting()[-1].number

    publish(5)
    first = put(0)
    publish(7)
    second = put(0)
    publish(9)
    cases = [
        (5, 0, first, True),  # of a definition that is gone; who knows what was before it
        (7, 0, first, True),  # it was in force
        (9, 0, first, False),  # the change came too late to the other system
        (5, 0, second, False),
        (7, 0, second, False),  # it was not there yet
        (9, 0, second, True),
        (9, 99, second, False),  # nobody has this handle
    ]
    message, handle, version, counts = (np.array(column) for column in zip(*cases, strict=True))
    assert engine.count_for(message, handle, version).tolist() == counts.tolist()
    ops = [msgspec.json.decode(row.value) for row in engine.waiting()]
    ids = [f"0.{first}", f"0.{first}", f"0.{second}"]
    assert [(row["op"], row["id"]) for row in ops] == [
        *zip(["insert", "delete", "insert"], ids, strict=True)
    ]
    opened = RemoteEngine.from_arrays(engine.arrays())
    assert opened.waiting() == engine.waiting()
    assert opened.count_for(message, handle, version).tolist() == counts.tolist()
