"""An engine against a plain dict, through everything that can happen to it."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from effort import examples
from nearcast.compiled.jit import JIT
from nearcast.engine import Engine, merging, rows, store, upkeep
from nearcast.engine.moving import live
from nearcast.errors import DuplicateId, UnknownId
from nearcast.indexes import moving
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LONGITUDES = [-180, -179, 0, 1, 2, 179, 180]
LATITUDES = [0, 1, 2]
IDS: list[str | int] = ["a", "b", "c", "1", 2, 3, 4]
TOKENS = ["tea", "milk", "cake", "jam"]
EXPRESSIONS = ["tea OR milk", "tea NOT milk", "cake (tea OR jam) NOT milk", "tea milk OR jam"]
TEXTS = [*TOKENS, "rare", "tea cake", "Milk, jam", "jam tea cake", "teapot", "cake tea"]


def follows(first: str, second: str, message: Message) -> bool:
    """Tell whether two words follow each other in one of the texts of a message."""
    return any(f" {first} {second} " in f" {plain(text)} " for text in texts_of(message))


def begins(start: str, message: Message) -> bool:
    return any(word.startswith(start) for text in texts_of(message) for word in plain(text).split())


def texts_of(message: Message) -> tuple[str, ...]:
    return (message.text,) if message.text is not None else message.tokens or ()


def plain(text: str) -> str:
    return text.lower().replace(",", "")


PHRASES: dict[str, Callable[[Message], bool]] = {
    '"tea cake"': lambda m: follows("tea", "cake", m),
    "te*": lambda m: begins("te", m),
    '"milk jam" OR milk NOT "tea cake"': lambda m: (
        follows("milk", "jam", m) or (begins("milk", m) and not follows("tea", "cake", m))
    ),
    "jam NOT teap*": lambda m: begins("jam", m) and not begins("teap", m),
}
"""Expressions with phrases and beginnings of words, and their meaning in plain Python."""

TRIANGLE = Polygon([[(0, 0), (2, 0), (0, 2)]])

longitudes, latitudes = st.sampled_from(LONGITUDES), st.sampled_from(LATITUDES)
points = st.builds(Point, longitudes, latitudes)
rects = st.builds(
    lambda west, east, south, north: Rect(west, min(south, north), east, max(south, north)),
    longitudes, longitudes, latitudes, latitudes,
)  # fmt: skip
circles = st.builds(Circle, longitudes, latitudes, st.sampled_from([50_000.0, 120_000.0]))
places = st.builds(Circle, longitudes, latitudes, st.just(0.0))
regions = rects | places | circles | st.just(TRIANGLE)
token_lists = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3, unique=True)
delays = st.sampled_from([0.0, 1.0, 3.0])
moments = st.none() | st.sampled_from([-2.0, -1.0, 0.0, 3.0])


def expiry(subscription: Subscription) -> float:
    expires: Any = subscription.expires_at
    return math.inf if expires is None else float(expires)


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
    if subscription.expression in PHRASES:
        return PHRASES[subscription.expression](message)
    said = message.words(words)
    return any(
        said.issuperset(clause.positive) and said.isdisjoint(clause.negative)
        for clause in subscription.clauses(words)
    )


@dataclass
class Living:
    """A message that is alive, until when, and how many were kept before it."""

    message: Message
    end: float
    order: int


class EngineMachine(RuleBasedStateMachine):
    """Subscribes, moves and publishes; buffers and segments are tiny.

    All updates, and the matches of messages that stay alive, are applied to a set, as they come:
    it must be what matches at present, registered subscriptions and living messages. A pair that is
    in the set never begins, and one that is not never ends.
    """

    index = "trie-pyramid"
    moving = "twin-lists"
    moving_options: ClassVar[dict[str, Any]] = {
        **dict.fromkeys(("leaf", "flat"), 4),
        "tile": 1,
        "regret": 0,
        "rekey_interval": 1,
        "min_stamps": 16,
    }

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (rows, merging):
            self.patch.setattr(module, "BUFFER_ROWS", 4)
            self.patch.setattr(module, "SMALL_ROWS", 1)
        self.patch.setattr(store, "SMALL_ROWS", 1)
        self.patch.setattr(store, "BULK_ROWS", 3)
        self.patch.setattr(upkeep, "BULK_ROWS", 3)
        self.patch.setattr(upkeep, "_MIN_UNUSED_TOKENS", 0)
        self.patch.setattr(live, "MIN_WORDS", 2)
        self.folder = Path(tempfile.mkdtemp()) / "engine"
        self.now = 1000.0
        self.engine = Engine(
            self.index, moving=self.moving, moving_options=self.moving_options, clock=self.clock
        )
        self.registered: dict[str | int, Subscription] = {}
        self.since: dict[str | int, int] = {}
        self.living: dict[int, Living] = {}
        self.near: set[tuple[str, int]] = set()
        self.present = -math.inf
        self.published = self.kept = 0

    def clock(self) -> float:
        return self.now

    def teardown(self) -> None:
        self.engine.close()
        self.patch.undo()
        shutil.rmtree(self.folder.parent)

    def current(self) -> dict[str | int, Subscription]:
        return {i: s for i, s in self.registered.items() if expiry(s) > self.now}

    def lapsed_since(self, ids: Iterable[str | int], times: Iterable[float | None]) -> bool:
        """Return whether a subscription has expired since the time of a late event.

        Merging may have dropped it or not, so it may be known to the event or not.
        """
        when = [max(self.present, self.now if t is None else min(t, self.now)) for t in times]
        expires = [expiry(self.registered[i]) if i in self.registered else None for i in ids]
        pairs = zip(when, expires, strict=True)
        return any(end is not None and at < end <= self.now for at, end in pairs)

    def begin(self, time: float | None) -> float:
        """Return when an event happens; messages expire until then."""
        when = max(self.present, self.now if time is None else min(time, self.now))
        if time is not None or self.living:
            self.advance_to(when)
        return when

    def advance_to(self, when: float) -> None:
        self.present = max(self.present, when)
        self.living = {i: one for i, one in self.living.items() if one.end > self.present}

    def matching(self, subscription: Subscription) -> set[int]:
        """Return the living messages that match a subscription which is registered."""
        return {
            number
            for number, one in self.living.items()
            if one.order >= self.since.get(subscription.id, 0)
            and wants(subscription, one.message)
            and meets(subscription.region, one.message.place)
        }

    @invariant()
    def updates_add_up(self) -> None:
        if self.present > -math.inf:
            self.check_sum(self.engine.advance(self.present))

    def update_near(self, subscription: str | int, message: str | int, sign: int) -> None:
        """Apply an update that the engine returned to the set."""
        pair = str(subscription), int(message)
        assert (pair in self.near) == (sign < 0), (pair, sign)
        (self.near.add if sign > 0 else self.near.remove)(pair)

    def check_sum(self, waiting: pa.Table) -> None:
        """Apply what waited to the set, and compare that with what matches at present."""
        times = waiting["time"].to_pylist()
        assert times == sorted(times)
        names = ("subscription_id", "message_id", "sign")
        for update in zip(*(waiting[name].to_pylist() for name in names), strict=True):
            self.update_near(*update)
        expected = {
            (str(s.id), number)
            for s in self.registered.values()
            if expiry(s) > self.present
            for number in self.matching(s)
        }
        assert (self.near - expected, expected - self.near) == (set(), set())

    def draw_subscription(self, data: st.DataObject, identifier: str | int) -> Subscription:
        expires = data.draw(st.none() | st.sampled_from([0.0, 1.0, 4.0]))
        keywords = data.draw(st.none() | token_lists)
        expression = data.draw(st.none() | st.sampled_from([*EXPRESSIONS, *PHRASES]))
        return Subscription(
            identifier,
            data.draw(regions),
            keywords,
            expression if keywords is None else None,
            data.draw(st.sampled_from([None, "ann", "bob"])),
            None if expires is None else self.now + expires,
        )

    @rule(
        data=st.data(),
        ids=st.lists(st.sampled_from(IDS), unique=True, max_size=6),
        initial=st.booleans(),
    )
    def subscribe(self, data: st.DataObject, ids: list[str | int], initial: bool) -> None:
        new = [self.draw_subscription(data, i) for i in ids]
        if any(i in self.current() for i in ids):
            with pytest.raises(DuplicateId):
                self.engine.subscribe(new, initial=initial)
            return
        self.engine.subscribe(new, initial=initial)
        if ids:
            self.begin(None)
        self.registered.update(zip(ids, new, strict=True))
        self.since.update(dict.fromkeys(ids, 0 if initial else self.kept))

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
                self.since[identifier] = 0
        if len(refused) < len(rows):
            self.begin(None)
        assert rejects.row.tolist() == refused

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=3))
    def unsubscribe(self, ids: list[str | int]) -> None:
        if all(i in self.current() for i in ids):
            self.engine.unsubscribe(ids)
            self.begin(None)
            for i in set(ids):
                del self.registered[i]
        else:
            with pytest.raises(UnknownId):
                self.engine.unsubscribe(ids)

    @rule(data=st.data(), region=regions, delay=moments)
    def move(self, data: st.DataObject, region: Region, delay: float | None) -> None:
        identifier = data.draw(st.sampled_from([*self.current()] or IDS))
        time = None if delay is None else self.now + delay
        if self.lapsed_since([identifier], [time]):
            return
        if identifier not in self.current():
            with pytest.raises(UnknownId):
                self.engine.move(identifier, region, time)
            return
        updates = self.engine.move(identifier, region, time)
        self.changed(self.registered[identifier], region, time, updates)

    def changed(
        self, new: Subscription, region: Region, time: float | None, updates: list[Update]
    ) -> None:
        """Compare what a move or a replacement returned with what it changes."""
        when = self.begin(time)
        moved = Subscription(
            new.id, region, new.keywords, new.expression, new.owner, new.expires_at
        )
        expected = [(when, new.id, *change) for change in self.apply(moved)]
        self.check_updates(
            [(u.time, u.subscription_id, u.message_id, u.sign) for u in updates], expected
        )

    def check_updates(self, updates: list[Any], expected: list[Any]) -> None:
        """Apply what a call returned to the set: what it changes, after what waited of the same."""
        for _, *update in updates:
            self.update_near(*update)
        assert [update[0] for update in updates] == sorted(update[0] for update in updates)
        assert {update[1:3] for update in updates} == {update[1:3] for update in expected}
        returned = iter(updates)
        assert all(update in returned for update in expected), (updates, expected)

    def apply(self, new: Subscription) -> list[tuple[int, int]]:
        """Put a subscription in the place of another; return what that changes."""
        before = self.matching(self.registered[new.id])
        self.registered[new.id] = new
        after = self.matching(new)
        return sorted([(n, -1) for n in before - after] + [(n, 1) for n in after - before])

    @rule(data=st.data(), delay=moments)
    def replace(self, data: st.DataObject, delay: float | None) -> None:
        identifier = data.draw(st.sampled_from([*self.current()] or IDS))
        time = None if delay is None else self.now + delay
        new = self.draw_subscription(data, identifier)
        if self.lapsed_since([identifier], [time]):
            return
        if identifier not in self.current():
            with pytest.raises(UnknownId):
                self.engine.replace(new, time)
            return
        if expiry(new) <= self.now:
            return
        self.changed(new, new.region, time, self.engine.replace(new, time))

    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from([*map(str, IDS), "nobody"]), rects, moments), max_size=6
        )
    )
    def move_table(self, rows: list[tuple[str, Rect, float | None]]) -> None:
        edges = ("west", "south", "east", "north")
        times = [None if delay is None else self.now + delay for _, _, delay in rows]
        if self.lapsed_since([row[0] for row in rows], times):
            return
        table = pa.table(
            {
                "subscription_id": pa.array([row[0] for row in rows], pa.string()),
                **{e: pa.array([getattr(row[1], e) for row in rows], pa.float64()) for e in edges},
                "time": pa.array(times, pa.float64()),
            }
        )
        moved = self.engine.move_table(table)
        when = [max(self.present, self.now if t is None else min(t, self.now)) for t in times]
        given = [math.inf if time is None else time for time in times]
        by_time = sorted(range(len(rows)), key=given.__getitem__)
        last = {(rows[i][0], when[i]): i for i in by_time}
        expected, unknown = [], []
        for i in sorted(last.values(), key=lambda i: (when[i], i)):
            identifier = rows[i][0]
            self.begin(when[i])
            old = self.current().get(identifier)
            if old is None:
                unknown.append(i)
                continue
            new = Subscription(
                identifier, rows[i][1], old.keywords, old.expression, old.owner, old.expires_at
            )
            expected += [(when[i], identifier, *change) for change in self.apply(new)]
        updates = zip(
            [time.timestamp() for time in moved.updates["time"].to_pylist()],
            *(moved.updates[n].to_pylist() for n in ("subscription_id", "message_id", "sign")),
            strict=True,
        )
        self.check_updates([*updates], expected)
        stands_for = [last[row[0], time] for row, time in zip(rows, when, strict=True)]
        assert moved.rejects.row.tolist() == [
            i for i, other in enumerate(stands_for) if other in unknown
        ]

    def draw_message(self, data: st.DataObject) -> Message:
        self.published += 1
        delay = data.draw(st.none() | delays)
        return Message(
            self.published,
            data.draw(points | rects),
            tokens=data.draw(st.lists(st.sampled_from(TEXTS), max_size=4)),
            time=None if delay is None else self.now + delay,
            ttl_s=data.draw(st.sampled_from([0.0, 2.0, 5.0])),
        )

    def expected_matches(self, messages: list[Message]) -> list[tuple[int, str]]:
        matches = []
        for message in messages:
            time = self.now if message.time is None else float(message.time)  # type: ignore[arg-type]
            end = time + message.ttl_s
            stays = message.ttl_s > 0
            when = max(self.present, min(time, self.now)) if stays else time
            kept = stays and end > when
            if stays:
                self.advance_to(when)
            for s in self.registered.values():
                hears = expiry(s) > when and wants(s, message)
                if not hears or not meets(s.region, message.place):
                    continue
                matches.append((message.id, repr(s.id)))
                if kept:
                    self.update_near(s.id, message.id, 1)
            if kept:
                self.living[message.id] = Living(message, end, self.kept)  # type: ignore[index]
                self.kept += 1
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


WIDE = Rect(-180, 0, 180, 2)
FAR = Circle(179, 2, 0.0)


class WaitingMachine(EngineMachine):
    """Asks rarely for what waits, so that other calls come between; nearly everything matches."""

    def draw_subscription(self, data: st.DataObject, identifier: str | int) -> Subscription:
        words = data.draw(st.sampled_from(["tea", "tea OR milk", '"tea cake"', "te*"]))
        expires = data.draw(st.sampled_from([None, 4.0]))
        region = data.draw(st.sampled_from([WIDE, TRIANGLE]))
        expires_at = None if expires is None else self.now + expires
        return Subscription(identifier, region, expression=words, expires_at=expires_at)

    def draw_message(self, data: st.DataObject) -> Message:
        drawn = super().draw_message(data)
        ttl_s = data.draw(st.sampled_from([2.0, 50.0]))
        return replace(drawn, place=Point(1, 1), tokens=("tea cake",), ttl_s=ttl_s)

    @rule(data=st.data(), region=st.sampled_from([WIDE, TRIANGLE, FAR]))
    def hop(self, data: st.DataObject, region: Region) -> None:
        if self.current():
            identifier = data.draw(st.sampled_from([*self.current()]))
            updates = self.engine.move(identifier, region)
            self.changed(self.registered[identifier], region, None, updates)

    @rule(data=st.data(), leaves=st.booleans())
    def come(self, data: st.DataObject, leaves: bool) -> None:
        """Register one subscription; it may have to leave first, or else is registered already."""
        new = self.draw_subscription(data, data.draw(st.sampled_from(IDS)))
        if leaves and new.id in self.current():
            self.engine.unsubscribe(new.id)
        elif new.id in self.current():
            return
        self.engine.subscribe(new)
        self.begin(None)
        self.registered[new.id], self.since[new.id] = new, 0

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        new = self.draw_subscription(data, data.draw(st.sampled_from(IDS)))
        updates = self.engine.replace(new, upsert=True)
        if new.id not in self.current():
            self.begin(None)
            self.since[new.id] = 0
            self.registered[new.id] = replace(new, region=FAR)
        self.changed(new, new.region, None, updates)

    @invariant()
    def updates_add_up(self) -> None:
        pass

    @rule()
    def advance(self) -> None:
        super().updates_add_up()

    def teardown(self) -> None:
        super().updates_add_up()
        super().teardown()


class ScanMachine(EngineMachine):
    """Everything by scans."""

    index = "scan"
    moving = "moving-scan"
    moving_options: ClassVar[dict[str, Any]] = {}


TREE: dict[str, Any] = {"fanout": 4, "leaf": 2, "kl": 0.0, "share": 0.0}
OTHERS: dict[str, dict[str, Any]] = {
    "ap+-tree": {**TREE, "copies": 2},
    "ap+k-tree": TREE,
    "ap+s-tree": TREE,
    "iq+-tree": {"list_size": 2, "update_cost": 1e-9},
    "rq+-tree": {"list_size": 2, "update_cost": 1e-9},
    "ss-index": {"size": 3},
    "kk-index": {"size": 3},
}
"""The other moving indexes, with options so small that everything splits."""


@pytest.mark.parametrize("name", OTHERS)
def test_updates_add_up_on_every_index(name: str) -> None:
    machine = type(
        "OtherMachine", (EngineMachine,), {"moving": name, "moving_options": OTHERS[name]}
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(12 if JIT else 2), stateful_step_count=20, deadline=None
        ),
    )


def test_no_index_is_left_out() -> None:
    assert {*OTHERS, EngineMachine.moving, ScanMachine.moving} == {*moving.names()}


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=examples(60 if JIT else 2), stateful_step_count=25, deadline=None
)


TestWaitingMachine = WaitingMachine.TestCase
TestWaitingMachine.settings = settings(
    max_examples=examples(60 if JIT else 2), stateful_step_count=25, deadline=None
)


TestScanMachine = ScanMachine.TestCase
TestScanMachine.settings = settings(
    max_examples=examples(15), stateful_step_count=20, deadline=None
)
