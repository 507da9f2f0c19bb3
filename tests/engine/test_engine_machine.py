"""An engine against a plain dict, through everything that can happen to it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nearcast.compiled.jit import JIT
from nearcast.engine import Engine, live_messages, merging, rows, store
from nearcast.errors import DuplicateId, UnknownId
from nearcast.model import (
    Circle,
    Match,
    Message,
    Point,
    Polygon,
    Rect,
    Region,
    Subscription,
    Update,
)
from nearcast.text import words

LONGITUDES = [-180, -179, 0, 1, 2, 179, 180]
LATITUDES = [0, 1, 2]
IDS: list[str | int] = ["a", "b", "c", "1", 1, 2, 3, 4]
TOKENS = ["tea", "milk", "cake", "jam"]
EXPRESSIONS = ["tea OR milk", "tea NOT milk", "cake (tea OR jam) NOT milk", "tea milk OR jam"]
TRIANGLE = Polygon([[(0, 0), (2, 0), (0, 2)]])

longitudes, latitudes = st.sampled_from(LONGITUDES), st.sampled_from(LATITUDES)
points = st.builds(Point, longitudes, latitudes)
rects = st.builds(
    lambda west, east, south, north: Rect(west, min(south, north), east, max(south, north)),
    longitudes, longitudes, latitudes, latitudes,
)  # fmt: skip
circles = st.builds(Circle, longitudes, latitudes, st.sampled_from([50_000.0, 120_000.0]))
regions = rects | points | circles | st.just(TRIANGLE)
token_lists = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3, unique=True)
delays = st.sampled_from([0.0, 1.0, 3.0])


def spans(west: float, east: float) -> list[tuple[float, float]]:
    """Return intervals of longitude, cut at the antimeridian."""
    return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]


def place_boxes(place: Point | Rect) -> list[tuple[float, float, float, float]]:
    """Return the boxes of a message, which is on both sides if it touches the antimeridian."""
    if isinstance(place, Point):
        pieces, south, north = [(place.lon, place.lon)], place.lat, place.lat
    else:
        pieces, south, north = spans(place.west, place.east), place.south, place.north
    if any(180.0 in piece for piece in pieces):
        pieces = [*pieces, (-180.0, -180.0)]
    if any(-180.0 in piece for piece in pieces):
        pieces = [*pieces, (180.0, 180.0)]
    return [(west, south, east, north) for west, east in pieces]


def gap(value: float, low: float, high: float) -> float:
    return max(0.0, low - value, value - high)


def meets(region: Region, place: Point | Rect) -> bool:
    """Tell on the lattice (a degree is 111 km, a diagonal 157) whether a message is in a region."""
    for west, south, east, north in place_boxes(place):
        if isinstance(region, Polygon):
            if max(west, 0) + max(south, 0) <= 2 and east >= 0:
                return True
        elif isinstance(region, Circle):
            reach = 0 if region.radius_m < 100_000 else 1
            turns = (region.lon - 360, region.lon, region.lon + 360)
            away = min(gap(lon, west, east) for lon in turns)
            if away + gap(region.lat, south, north) <= reach:
                return True
        else:
            corners = place_boxes(region)[:1] if isinstance(region, Point) else []
            corners = corners or [
                (w, region.south, e, region.north)  # type: ignore[attr-defined]
                for w, e in spans(region.west, region.east)  # type: ignore[attr-defined]
            ]
            for w, s, e, n in corners:
                if w <= east and e >= west and s <= north and n >= south:
                    return True
    return False


def wants(subscription: Subscription, message: Message) -> bool:
    said = message.words(words)
    return any(
        said.issuperset(clause.positive) and said.isdisjoint(clause.negative)
        for clause in subscription.clauses(words)
    )


@dataclass
class Sent:
    """A message that was published, and when."""

    message: Message
    time: float


class EngineMachine(RuleBasedStateMachine):
    """Subscribes, moves and publishes; buffers and segments are tiny."""

    index = "trie-pyramid"

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (rows, merging):
            self.patch.setattr(module, "BUFFER_ROWS", 4)
            self.patch.setattr(module, "SMALL_ROWS", 1)
        self.patch.setattr(store, "_BULK_ROWS", 3)
        self.patch.setattr(store, "_MIN_UNUSED_TOKENS", 0)
        self.patch.setattr(live_messages, "_MIN_ROWS", 2)
        self.folder = Path(tempfile.mkdtemp()) / "engine"
        self.now = 1000.0
        self.engine = Engine(self.index, clock=self.clock)
        self.registered: dict[str | int, Subscription] = {}
        self.sent: list[Sent] = []
        self.published = 0

    def clock(self) -> float:
        return self.now

    def teardown(self) -> None:
        self.engine.close()
        self.patch.undo()
        shutil.rmtree(self.folder.parent)

    def current(self) -> dict[str | int, Subscription]:
        return {
            i: s
            for i, s in self.registered.items()
            if s.expires_at is None or float(s.expires_at) > self.now  # type: ignore[arg-type]
        }

    def draw_subscription(self, data: st.DataObject, identifier: str | int) -> Subscription:
        expires = data.draw(st.none() | st.sampled_from([0.0, 1.0, 4.0]))
        keywords = data.draw(st.none() | token_lists)
        expression = data.draw(st.none() | st.sampled_from(EXPRESSIONS))
        return Subscription(
            identifier,
            data.draw(regions),
            keywords,
            expression if keywords is None else None,
            data.draw(st.sampled_from([None, "ann", "bob"])),
            None if expires is None else self.now + expires,
        )

    @rule(data=st.data(), ids=st.lists(st.sampled_from(IDS), unique=True, max_size=6))
    def subscribe(self, data: st.DataObject, ids: list[str | int]) -> None:
        new = [self.draw_subscription(data, i) for i in ids]
        if any(i in self.current() for i in ids):
            with pytest.raises(DuplicateId):
                self.engine.subscribe(new)
        else:
            self.engine.subscribe(new)
            self.registered.update(zip(ids, new, strict=True))

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", "d", "e"]), rects, token_lists, st.booleans())
        )
    )
    def subscribe_table(self, rows: list[tuple[str, Rect, list[str], bool]]) -> None:
        edges = ("west", "south", "east", "north")
        table = pa.table(
            {
                "id": pa.array([row[0] for row in rows], pa.string()),
                "keywords": pa.array([row[2] for row in rows], pa.list_(pa.string())),
                **{e: pa.array([getattr(row[1], e) for row in rows], pa.float64()) for e in edges},
                "owner": pa.array(["" if row[3] else "eve" for row in rows], pa.string()),
            }
        )
        rejects = self.engine.subscribe_table(table)
        refused, taken = [], set(self.current())
        for number, (identifier, rect, keywords, bad) in enumerate(rows):
            if bad or identifier in taken:
                refused.append(number)
            else:
                taken.add(identifier)
                self.registered[identifier] = Subscription(identifier, rect, keywords, None, "eve")
        assert rejects.row.tolist() == refused

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=3))
    def unsubscribe(self, ids: list[str | int]) -> None:
        if all(i in self.current() for i in ids):
            self.engine.unsubscribe(ids)
            for i in set(ids):
                del self.registered[i]
        else:
            with pytest.raises(UnknownId):
                self.engine.unsubscribe(ids)

    @rule(data=st.data(), region=regions, delay=st.none() | delays)
    def move(self, data: st.DataObject, region: Region, delay: float | None) -> None:
        identifier = data.draw(st.sampled_from([*self.current()] or IDS))
        time = None if delay is None else self.now + delay
        if identifier not in self.current():
            with pytest.raises(UnknownId):
                self.engine.move(identifier, region, time)
            return
        updates = self.engine.move(identifier, region, time)
        old = self.registered[identifier]
        new = Subscription(
            identifier, region, old.keywords, old.expression, old.owner, old.expires_at
        )
        self.registered[identifier] = new
        assert updates == self.expected_updates(old, new, self.now if time is None else time)

    def expected_updates(self, old: Subscription, new: Subscription, time: float) -> list[Update]:
        updates = []
        for sent in sorted(self.sent, key=lambda s: s.time):
            if sent.time <= time < sent.time + sent.message.ttl_s and self.sees(old, sent):
                before = meets(old.region, sent.message.place)
                after = meets(new.region, sent.message.place)
                if before != after:
                    updates.append(Update(time, new.id, sent.message.id, after - before))
        return updates

    def sees(self, subscription: Subscription, sent: Sent) -> bool:
        expires: Any = subscription.expires_at
        return (expires is None or expires > sent.time) and wants(subscription, sent.message)

    def draw_message(self, data: st.DataObject) -> Message:
        self.published += 1
        delay = data.draw(st.none() | delays)
        return Message(
            self.published,
            data.draw(points | rects),
            tokens=data.draw(st.lists(st.sampled_from([*TOKENS, "rare"]), max_size=4)),
            time=None if delay is None else self.now + delay,
            ttl_s=data.draw(st.sampled_from([0.0, 2.0, 5.0])),
        )

    def expected_matches(self, messages: list[Message]) -> list[tuple[int, str]]:
        matches = []
        for message in messages:
            sent = Sent(message, self.now if message.time is None else float(message.time))  # type: ignore[arg-type]
            self.sent.append(sent)
            for s in self.current().values():
                if self.sees(s, sent) and meets(s.region, message.place):
                    matches.append((message.id, repr(s.id)))
        return sorted(matches)  # type: ignore[arg-type]

    @rule(data=st.data(), count=st.integers(1, 4))
    def publish(self, data: st.DataObject, count: int) -> None:
        messages = [self.draw_message(data) for _ in range(count)]
        matches = self.engine.publish(messages)
        assert all(type(match) is Match for match in matches)
        assert [m.message_id for m in matches] == sorted(m.message_id for m in matches)
        found = sorted((m.message_id, repr(m.subscription_id)) for m in matches)
        assert found == self.expected_matches(messages)

    @rule(data=st.data(), count=st.integers(0, 4))
    def publish_table(self, data: st.DataObject, count: int) -> None:
        messages = [self.draw_message(data) for _ in range(count)]
        edges = ("west", "south", "east", "north")
        table = pa.table(
            {
                "id": pa.array([m.id for m in messages] + [-1], pa.int64()),
                "tokens": pa.array([m.tokens for m in messages] + [None], pa.list_(pa.string())),
                "lon": pa.array([getattr(m.place, "lon", None) for m in messages] + [0.0]),
                "lat": pa.array([getattr(m.place, "lat", None) for m in messages] + [0.0]),
                **{
                    e: pa.array(
                        [getattr(m.place, e, None) for m in messages] + [None], pa.float64()
                    )
                    for e in edges
                },
                "time": pa.array([m.time for m in messages] + [None], pa.float64()),
                "ttl_s": pa.array([m.ttl_s for m in messages] + [None], pa.float64()),
            }
        )
        published = self.engine.publish_table(table)
        assert (published.messages, published.rejects.row.tolist()) == (count, [count])
        assert published.examined >= published.matches.num_rows
        assert published.matches.column("score").null_count == published.matches.num_rows
        found = published.matches.to_pydict()
        expected = [(i, s.strip("'")) for i, s in self.expected_matches(messages)]
        pairs = zip(found["message_id"], map(str, found["subscription_id"]), strict=True)
        assert sorted(pairs) == sorted(expected)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def settle(self) -> None:
        self.engine.settle()
        assert len(self.engine.stats().segments) <= 2

    @rule()
    def save_and_open(self) -> None:
        self.engine.save(self.folder)
        self.engine.close()
        self.engine = Engine.open(self.folder, clock=self.clock)

    @invariant()
    def holds_what_is_registered(self) -> None:
        current = self.current()
        assert len(self.engine) == len(current)
        assert [i for i in [*IDS, "d", "e", 1.5, None] if i in self.engine] == [
            i for i in [*IDS, "d", "e"] if i in current
        ]
        for subscription in self.engine:
            given = current.pop(subscription.id)
            assert subscription.region.boxes() == given.region.boxes()
            assert subscription.clauses(words) == given.clauses(words)
            assert (subscription.owner, subscription.expires_us) == (given.owner, given.expires_us)
        assert not current


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=60 if JIT else 2, stateful_step_count=25, deadline=None
)


class ScanMachine(EngineMachine):
    index = "scan"


TestScanMachine = ScanMachine.TestCase
TestScanMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
