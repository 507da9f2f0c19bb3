"""Living messages and moving subscriptions: what happens when, and what adds up."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from nearcast.columns import Ids
from nearcast.engine import Engine
from nearcast.engine.moving.standstill import Standstill
from nearcast.errors import DuplicateId, InvalidInput, UnknownId
from nearcast.model import Circle, Message, Overlap, Point, Proximity, Rect, Subscription, Update

HERE, THERE, EVERYWHERE = Rect(0, 0, 1, 1), Rect(5, 5, 6, 6), Rect(-180, -90, 180, 90)


class Clock:
    """A clock that somebody sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def engine_at(now: float, *subscriptions: Subscription, **options: Any) -> tuple[Engine, Clock]:
    clock = Clock(now)
    engine = Engine(clock=clock, **options)
    engine.subscribe(subscriptions)
    return engine, clock


def waiting(engine: Engine, now: float | None = None) -> list[tuple[float, Any, Any, int]]:
    """Return what waits, as (time, subscription, message, sign)."""
    rows = engine.advance(now).to_pylist()
    return [(r["time"].timestamp(), r["subscription_id"], r["message_id"], r["sign"]) for r in rows]


def moves(rows: list[tuple[Any, Rect, float | None]]) -> pa.Table:
    sides = ("west", "south", "east", "north")
    return pa.table(
        {
            "subscription_id": [row[0] for row in rows],
            **{side: [getattr(row[1], side) for row in rows] for side in sides},
            "time": pa.array([row[2] for row in rows], pa.float64()),
        }
    )


def test_a_message_ends_where_the_subscription_was_when_it_expired() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"))
    assert len(engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=10.0))) == 1
    clock.now = 11.0
    assert engine.move("s", THERE) == []
    clock.now = 12.0
    assert waiting(engine) == [(10.0, "s", "m", -1)]
    assert engine.stats()[6:9] == (1, 0, 0)


def test_a_message_from_the_future_is_delivered_once() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"), Subscription("t", THERE, "tea"))
    message = Message("m", (0.5, 0.5), "tea", time=100.0, ttl_s=10.0)
    assert [m.subscription_id for m in engine.publish(message)] == ["s"]
    clock.now = 50.0
    assert engine.move("t", HERE) == [Update(50.0, "t", "m", 1)]
    clock.now = 105.0
    assert engine.move("s", THERE) == [Update(105.0, "s", "m", -1)]
    assert waiting(engine, 120.0) == []
    clock.now = 120.0
    assert waiting(engine) == [(110.0, "t", "m", -1)]


def test_an_id_names_one_message_while_it_lives() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"))
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=10.0))
    with pytest.raises(DuplicateId, match="a message with the id 'm' is alive"):
        engine.publish([Message("n", (0, 0), "tea"), Message("m", (0, 0), "tea", ttl_s=1.0)])
    with pytest.raises(DuplicateId):
        engine.publish([Message("o", (0, 0), "tea", ttl_s=1.0) for _ in range(2)])
    assert engine.stats().live_messages == 1
    columns = {"id": ["m", "k"], "text": ["tea", "tea"], "lon": [0, 0], "lat": [0, 0]}
    published = engine.publish_table(pa.table({**columns, "ttl_s": [5.0, 5.0]}))
    assert published.messages == 1
    assert published.rejects.row.tolist() == [0]
    assert "alive" in published.rejects.reason[0]
    assert len(engine.publish(Message("m", (0, 0), "tea"))) == 1  # nobody keeps this one
    clock.now = 10.0
    assert len(engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=10.0))) == 1
    assert waiting(engine) == [(5.0, "s", "k", -1), (10.0, "s", "m", -1)]


def test_an_id_is_free_in_the_middle_of_a_batch() -> None:
    engine, _ = engine_at(1e9, Subscription("s", HERE, "tea"))
    times = [("a", 0.0, 5.0), ("b", 1.0, 1.0), ("b", 3.0, 9.0), ("a", 5.0, 9.0)]
    messages = [Message(i, (0, 0), "tea", time=t, ttl_s=ttl) for i, t, ttl in times]
    assert [m.message_id for m in engine.publish(messages)] == ["a", "b", "b", "a"]
    assert waiting(engine, 5.0) == [(2.0, "s", "b", -1), (5.0, "s", "a", -1)]
    assert [u.message_id for u in engine.move("s", THERE, 6.0)] == ["b", "a"]


def test_what_nobody_keeps_meets_movers_that_expire_before_the_next_message() -> None:
    engine, _ = engine_at(1e9, Subscription("s", THERE, "tea", expires_at=5.0))
    engine.move("s", HERE, time=1.0)
    times = [("a", 4.0, 0.0), ("b", 6.0, 9.0)]
    messages = [Message(i, (0, 0), "tea", time=t, ttl_s=ttl) for i, t, ttl in times]
    assert [m.message_id for m in engine.publish(messages)] == ["a"]


def test_time_that_stands_still_expires_nothing() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"), Subscription("t", HERE, "tea"))
    engine.publish(Message("old", (0, 0), "tea", time=0.0, ttl_s=3.0))
    clock.now = 9.0
    standstill = Standstill.of(engine)
    nobody, new = Ids.of([]), Ids.of(["new"])
    assert standstill.allows(Ids.of(["s", "unknown"]), new, 9_000_000)
    assert not standstill.allows(nobody, Ids.of(["old"]), 9_000_000)
    with standstill.held():
        matches = engine.publish(Message("new", (0, 0), "tea", time=5.0, ttl_s=2.0))
        moved = engine.move_table(moves([("s", THERE, 4.0), ("t", THERE, 8.0)])).updates
        start_us, end_us = standstill.lives(Ids.of(["new", "old"]))
    assert (start_us.tolist(), end_us.tolist()) == ([5_000_000, 0], [7_000_000, 3_000_000])
    assert [m.subscription_id for m in matches] == ["s", "t"]
    assert moved["message_id"].to_pylist() == ["old", "new"] * 2
    assert [row[0] for row in waiting(engine, 9.0)] == []
    assert engine.stats().live_messages == 0
    ranked = Subscription("r", (0, 0), "tea", ranking=Proximity(0.5, 0.5, 1000.0))
    engine.subscribe([ranked, Subscription("u", HERE, "tea", expires_at=20.0)])
    assert not standstill.allows(Ids.of(["r"]), new, 10_000_000)
    assert not standstill.allows(nobody, new, 20_000_000)
    assert standstill.allows(nobody, new, 19_000_000)


def test_messages_that_are_dead_count_as_dead() -> None:
    engine, clock = engine_at(0.0)
    engine.publish([Message(i, (0, 0), "tea", ttl_s=float(i)) for i in range(10)])
    assert engine.stats().live_messages == 9
    clock.now = 4.0
    assert engine.stats().live_messages == 5
    assert engine.publish(Message("late", (0, 0), "tea", time=1.0, ttl_s=2.0)) == []
    assert engine.stats().live_messages == 5


def test_inserts_and_deletes_begin_and_end() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"))
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=100.0))
    clock.now = 1.0
    engine.subscribe(Subscription("t", HERE, expression="tea OR milk"))
    engine.subscribe(Subscription("u", HERE, "tea"), initial=False)
    clock.now = 2.0
    engine.publish(Message("n", (0.5, 0.5), "tea", ttl_s=100.0))
    engine.unsubscribe(["s", "t", "u"])
    assert waiting(engine) == [
        (1.0, "t", "m", 1),
        (2.0, "s", "m", -1),
        (2.0, "s", "n", -1),
        (2.0, "t", "m", -1),
        (2.0, "t", "n", -1),
        (2.0, "u", "n", -1),
    ]


def test_a_mover_that_wants_only_what_follows() -> None:
    engine, _ = engine_at(0.0)
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=100.0))
    engine.subscribe(Subscription("s", THERE, "tea"), initial=False)
    engine.publish(Message("n", (0.5, 0.5), "tea", ttl_s=100.0))
    assert [(u.message_id, u.sign) for u in engine.move("s", HERE)] == [("n", 1)]
    engine.unsubscribe("s")
    assert waiting(engine) == [(0.0, "s", "n", -1)]


def test_who_never_asks_keeps_nothing() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"), report="moves")
    for number in range(100):
        clock.now = float(number)
        engine.publish(Message(number, (0.5, 0.5), "tea", ttl_s=1.0))
        engine.move("s", THERE)
        engine.move("s", HERE)
    assert engine.stats().pending == 0
    assert engine.advance().num_rows == 0
    with pytest.raises(InvalidInput, match="report"):
        Engine(report="some")


def test_a_moving_index_is_not_taken_for_another() -> None:
    with pytest.raises(InvalidInput, match="moving="):
        Engine("twin-lists")
    assert repr(Engine(moving="kk-index")).startswith("Engine('trie-pyramid'")


def test_a_table_of_moves_is_taken_by_time() -> None:
    engine, _ = engine_at(1e9, *(Subscription(i, HERE, "tea") for i in range(4)))
    engine.publish(Message("m", (5.5, 5.5), "tea", time=0.0, ttl_s=10.0))
    rows: list[tuple[Any, Rect, float | None]] = [
        (0, HERE, 9.0),
        (0, THERE, 5.0),
        (1, THERE, 12.0),
        (2, HERE, 7.0),
        (2, THERE, 7.0),
        (9, THERE, 1.0),
    ]
    moved = engine.move_table(moves(rows))
    found = moved.updates.select(["subscription_id", "message_id", "sign"]).to_pydict()
    assert list(zip(*found.values(), strict=True)) == [(0, "m", 1), (2, "m", 1), (0, "m", -1)]
    assert (moved.moved, moved.rejects.row.tolist()) == (5, [5])
    assert waiting(engine, 12.0) == [(10.0, 2, "m", -1)]
    assert engine.get(1).region == THERE


def test_bad_moves_are_rejected_and_the_others_move() -> None:
    engine, _ = engine_at(0.0, Subscription(1, HERE, "tea"), Subscription(2, HERE, "tea"))
    columns = {"subscription_id": [1, None, 2], "lon": [0.0, 0.0, 0.0], "lat": [0.0, 0.0, 99.0]}
    moved = engine.move_table(pa.table({**columns, "radius_m": [1000.0, 1000.0, 1000.0]}))
    assert (moved.moved, moved.rejects.row.tolist()) == (1, [1, 2])
    assert engine.get(1).region == Circle(0, 0, 1000.0)
    with pytest.raises(UnknownId):
        engine.move("nobody", HERE)


def test_regions_over_the_antimeridian_move() -> None:
    engine, _ = engine_at(0.0, Subscription("s", HERE, "tea"))
    engine.publish(Message("m", (180, 0.5), "tea", ttl_s=9.0))
    engine.publish(Message("n", (-179.5, 0.5), "tea", ttl_s=9.0))
    over = Rect(179, 0, -179, 1)
    assert [(u.message_id, u.sign) for u in engine.move("s", over)] == [("m", 1), ("n", 1)]
    assert engine.get("s").region == over
    moved = engine.move_table(moves([("s", Rect(-180, 0, -179.9, 1), None)]))
    assert moved.updates["message_id"].to_pylist() == ["n"]


def test_ranked_subscriptions_move_with_scores() -> None:
    near = Proximity(delta=0.5, tau=0.8, max_distance_m=100_000)
    engine, _ = engine_at(0.0, Subscription("s", (0, 0), ["tea"], ranking=near))
    engine.publish(Message("m", (1, 1), "tea", ttl_s=9.0))
    [begun] = engine.move("s", (1, 1))
    assert (begun.sign, begun.score) == (1, 1.0)
    table = pa.table({"subscription_id": ["s"], "lon": [0.0], "lat": [0.0]})
    moved = engine.move_table(table)
    assert moved.updates.to_pylist()[0]["sign"] == -1
    assert moved.updates["score"].null_count == 1


def test_replacing_changes_words_and_place() -> None:
    engine, _ = engine_at(3.0, Subscription("s", HERE, "tea", owner="ann"))
    engine.publish([Message(word, (0.5, 0.5), word, ttl_s=9.0) for word in ("tea", "milk")])
    updates = engine.replace(Subscription("s", EVERYWHERE, "milk"))
    assert updates == [Update(3.0, "s", "tea", -1), Update(3.0, "s", "milk", 1)]
    assert engine.get("s") == Subscription("s", EVERYWHERE, ["milk"])
    engine.move("s", HERE)
    assert engine.replace(Subscription("s", HERE, ["tea", "milk"])) == [
        Update(3.0, "s", "milk", -1)
    ]
    with pytest.raises(UnknownId):
        engine.replace(Subscription("t", HERE))


def test_saved_in_the_middle_of_it_all(tmp_path: Any) -> None:
    engine, clock = engine_at(0.0, Subscription("s", THERE, "tea"), Subscription("t", HERE, "tea"))
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=10.0))
    engine.move("s", HERE)
    engine.subscribe(Subscription("u", HERE), initial=False)
    engine.subscribe(Subscription("v", HERE))
    engine.save(tmp_path / "engine")
    opened = Engine.open(tmp_path / "engine", clock=clock)
    assert opened.stats()[7:9] == (1, 1)
    with pytest.raises(DuplicateId):
        opened.publish(Message("m", (0.5, 0.5), "tea", ttl_s=10.0))
    clock.now = 10.0
    for one in (engine, opened):
        assert sorted(waiting(one)) == [
            (0.0, "v", "m", 1),
            *((10.0, name, "m", -1) for name in ("s", "t", "v")),
        ]


class Recorder:
    """Threads that use an engine, and all that it told them."""

    def __init__(self, seconds: float) -> None:
        self.engine = Engine()
        self.until = time.monotonic() + seconds
        self.sums: Counter[tuple[int, int]] = Counter()
        self.regions: dict[int, Rect] = {}
        self.messages: dict[int, tuple[float, float]] = {}
        self.lock = threading.Lock()
        self.errors: list[BaseException] = []
        self.next_message = iter(range(10**9))

    def add(self, pairs: list[tuple[int, int, int]]) -> None:
        with self.lock:
            for subscription, message, sign in pairs:
                self.sums[subscription, message] += sign

    def run(self, *workers: Any) -> None:
        def loop(work: Any, number: int) -> None:
            rng = random.Random(number)
            try:
                while time.monotonic() < self.until:
                    work(rng, number)
            except BaseException as error:
                self.errors.append(error)

        threads = [threading.Thread(target=loop, args=(work, n)) for n, work in enumerate(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.errors, self.errors[0]

    def publish(self, rng: random.Random, number: int) -> None:
        with self.lock:
            ids = [next(self.next_message) for _ in range(3)]
        began, ttl_s = time.time(), rng.choice([0.1, 0.5, 60.0])
        places = [rng.randrange(8) + 0.5 for _ in ids]
        matches = self.engine.publish(
            Message(i, (place, 0.5), "tea", time=began, ttl_s=ttl_s)
            for i, place in zip(ids, places, strict=True)
        )
        if time.time() < began + ttl_s:  # otherwise they may have been dead on arrival
            end_us = round(began * 1e6) + round(ttl_s * 1e6)
            self.messages |= {i: (place, end_us) for i, place in zip(ids, places, strict=True)}
        self.add([(int(m.subscription_id), int(m.message_id), 1) for m in matches])

    def move(self, rng: random.Random, number: int) -> None:
        """Move subscriptions of which nobody else knows."""
        identifier = 100 * number + rng.randrange(20)
        region = _strip(rng)
        if identifier not in self.regions:
            self.regions[identifier] = region
            self.engine.subscribe(Subscription(identifier, region, "tea"))
            return
        self.regions[identifier] = region
        updates = self.engine.move(identifier, region)
        self.add([(int(u.subscription_id), int(u.message_id), u.sign) for u in updates])

    def come_and_go(self, rng: random.Random, number: int) -> None:
        identifier = 100 * number + rng.randrange(20)
        if identifier in self.regions:
            self.engine.unsubscribe(identifier)
            del self.regions[identifier]
        else:
            self.regions[identifier] = _strip(rng)
            self.engine.subscribe(Subscription(identifier, self.regions[identifier], "tea"))

    def advance(self, rng: random.Random, number: int) -> None:
        time.sleep(0.01)
        table = self.engine.advance()
        names = ("subscription_id", "message_id", "sign")
        self.add([*zip(*(table[name].to_pylist() for name in names), strict=True)])


def _strip(rng: random.Random) -> Rect:
    west = rng.randrange(8)
    return Rect(west, 0, west + rng.randrange(1, 4), 1)


def test_everything_adds_up_from_many_threads() -> None:
    recorder = Recorder(seconds=3.0)
    publish, move, come_and_go = recorder.publish, recorder.move, recorder.come_and_go
    recorder.run(publish, publish, publish, move, move, come_and_go, recorder.advance)
    recorder.advance(random.Random(0), 0)
    engine: Any = recorder.engine
    present = engine._live.present_us
    expected = {
        (subscription, message)
        for subscription, region in recorder.regions.items()
        for message, (place, end_us) in recorder.messages.items()
        if end_us > present and region.west <= place <= region.east
    }
    sums = {pair: total for pair, total in recorder.sums.items() if pair[1] in recorder.messages}
    assert {*sums.values()} <= {0, 1}
    assert {pair for pair, total in sums.items() if total} == expected
    assert len(recorder.messages) > 100
    assert len(expected) > 10


def test_a_clock_that_goes_back_brings_nobody_back() -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea", expires_at=5.0))
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=100.0))
    clock.now = 6.0
    assert waiting(engine) == [(5.0, "s", "m", -1)]
    clock.now = 4.0
    assert "s" not in engine
    with pytest.raises(UnknownId):
        engine.move("s", THERE)
    assert engine.publish(Message("n", (0.5, 0.5), "tea", ttl_s=100.0)) == []
    clock.now = 200.0
    assert waiting(engine) == []


def test_who_only_wants_what_follows_is_told_of_nothing_else() -> None:
    engine, clock = engine_at(0.0)
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=10.0))
    engine.subscribe(Subscription("s", HERE, "tea", expires_at=12.0), initial=False)
    clock.now = 20.0
    assert waiting(engine) == []


def test_weights_that_are_counted_again_begin_and_end_matches() -> None:
    near = Proximity(delta=1.0, tau=0.6, max_distance_m=1000)
    engine, _ = engine_at(0.0, Subscription("s", (0, 0), ["tea", "milk"], ranking=near))
    engine.publish(Message("m", (0, 0), "tea", ttl_s=10.0))
    engine.subscribe(Subscription("late", (0, 0), ["tea"], ranking=near), initial=False)
    others = [Subscription(i, (50, 50), ["milk"], ranking=near) for i in range(50)]
    engine.subscribe(others)
    assert waiting(engine) == []
    engine.settle()
    assert waiting(engine) == [(0.0, "s", "m", 1)]
    assert [u.sign for u in engine.move("s", (1, 1))] == []
    engine.unsubscribe("s")
    assert waiting(engine) == [(0.0, "s", "m", -1)]


def test_movers_that_expire_are_let_go_without_messages() -> None:
    engine, clock = engine_at(0.0, *(Subscription(i, HERE, expires_at=5.0) for i in range(9)))
    for i in range(9):
        engine.move(i, THERE)
    assert engine.stats().moving == 9
    clock.now = 5.0
    engine.subscribe(Subscription("new", HERE))
    assert (engine.stats().moving, len(engine)) == (0, 1)
    engine.subscribe([Subscription(i, HERE) for i in range(9)])
    assert len(engine.publish(Message("m", (0.5, 0.5), "tea"))) == 10


def test_segments_are_let_go_when_all_of_them_have_moved() -> None:
    engine = Engine()
    count = 2000
    engine.subscribe(Subscription(i, HERE, f"tea{i}") for i in range(count))
    engine.move_table(moves([(i, THERE, None) for i in range(count)]))
    until = time.monotonic() + 30
    while engine.stats().segments and time.monotonic() < until:
        time.sleep(0.05)
    assert engine.stats().segments == ()
    assert len(engine) == engine.stats().moving == count


def crowd(count: int) -> Engine:
    """Return an engine with many living messages and one subscription that has moved."""
    engine = Engine(report="moves")
    engine.subscribe(Subscription("s", HERE, "tea"))
    spread = [180.0 * i / count for i in range(count)]
    texts = ["tea" if i % 100 == 0 else f"word{i % 977}" for i in range(count)]
    columns = {"id": range(count), "lon": spread, "lat": [0.5] * count, "text": texts}
    engine.publish_table(pa.table({**columns, "ttl_s": [3600.0] * count}))
    engine.move("s", THERE)
    return engine


def test_a_move_does_not_look_at_all_living_messages() -> None:
    few, many = crowd(2_000), crowd(250_000)

    def seconds(engine: Engine) -> float:
        took = []
        for i in range(101):
            began = time.thread_time()  # of this thread, whatever else the machine does
            engine.move("s", Rect(i / 50, 0, i / 50 + 0.01, 1))
            took.append(time.thread_time() - began)
        return sorted(took)[50]

    rounds = [(seconds(few), seconds(many)) for _ in range(5)]
    # Looking at all of them took 125 times as long, 10 ms.
    assert min(after / before for before, after in rounds) < 5
    assert min(after for _, after in rounds) < 0.002


def test_memory_is_flat_over_a_hundred_lifetimes() -> None:
    engine, clock = engine_at(0.0, *(Subscription(i, HERE, f"tea{i}") for i in range(10)))
    engine.publish(Message("for ever", (0.5, 0.5), "tea1", ttl_s=1e9))
    sizes = []
    for life in range(100):
        clock.now = 10.0 * life
        texts = [f"tea{i % 10} once{life}x{i}" for i in range(100)]
        engine.publish(
            Message(f"{life}-{i}", (i / 50, 0.5), text, ttl_s=10.0) for i, text in enumerate(texts)
        )
        for i in range(10):
            engine.move(i, Rect(life % 3, 0, life % 3 + 1, 1))
        engine.replace(Subscription(life % 10, HERE, f"once{life}x1"))
        engine.replace(Subscription(life % 10, HERE, f"tea{life % 10}"))
        engine.advance()
        assert engine.stats().live_messages == 101
        sizes.append(engine._live.nbytes)
    assert max(sizes[50:]) <= max(sizes[20:50])


WORDS = ["tea", "milk", "cake", "jam", "rare"]


def ranked_at(identifier: int, rng: random.Random) -> Subscription:
    keywords = rng.sample(WORDS, rng.randrange(1, 4))
    if identifier % 3 == 0:
        return Subscription(identifier, _strip(rng), keywords)
    lon, lat = rng.uniform(-2, 9), rng.uniform(-1, 2)
    delta, threshold = rng.choice([0.0, 0.3, 0.7, 1.0]), rng.choice([0.05, 0.4, 0.8])
    if identifier % 3 == 1:
        reach_m = rng.choice([50_000.0, 300_000.0])
        near = Proximity(delta=delta, tau=threshold, max_distance_m=reach_m)
        return Subscription(identifier, (lon, lat), keywords, ranking=near)
    return Subscription(identifier, _strip(rng), keywords, ranking=Overlap(delta, threshold))


@pytest.mark.parametrize("moving", ["twin-lists", "ap+-tree"])
@pytest.mark.parametrize("similarity", ["overlap", "cosine"])
@pytest.mark.parametrize("seed", range(3))
def test_updates_of_ranked_movers_add_up(moving: str, similarity: str, seed: int) -> None:
    rng = random.Random(seed)
    registered = {i: ranked_at(i, rng) for i in range(12)}
    engine, clock = engine_at(0.0, *registered.values(), moving=moving, similarity=similarity)
    living: dict[int, tuple[Message, float]] = {}
    sums: Counter[tuple[int, int]] = Counter()
    engine.settle()
    for step in range(120):
        clock.now = float(step)
        told: list[tuple[Any, Any, int]] = []
        choice = rng.randrange(4)
        if choice == 0:
            text, place = rng.sample(WORDS, rng.randrange(4)), (rng.uniform(-2, 9), 0.5)
            message = Message(step, place, tokens=text, ttl_s=rng.choice([5.0, 60.0]))
            living[step] = message, clock.now + message.ttl_s
            told = [(m.subscription_id, step, 1) for m in engine.publish(message)]
        elif choice == 1:
            chosen = ranked_at(rng.randrange(12), rng)
            registered[int(chosen.id)] = chosen
            updates = engine.replace(chosen)
            told = [(u.subscription_id, u.message_id, u.sign) for u in updates]
        else:
            i = rng.randrange(12)
            place_of = ranked_at(i, rng)
            registered[i] = dataclasses.replace(registered[i], region=place_of.region)
            updates = engine.move(i, place_of.region)
            told = [(u.subscription_id, u.message_id, u.sign) for u in updates]
            begun = [u for u in updates if u.sign > 0]
            assert all((u.score is None) == (i % 3 == 0) for u in begun)
        told += [(s, m, sign) for _, s, m, sign in waiting(engine)]
        for subscription, number, sign in told:
            sums[subscription, number] += sign
        living = {i: one for i, one in living.items() if one[1] > clock.now}
        messages = [message for message, _ in living.values()]
        expected = {
            (one.id, match.message_id)
            for one in registered.values()
            for match in engine.preview(one, messages)
        }
        assert {*sums.values()} <= {0, 1}
        assert {pair for pair, total in sums.items() if total} == expected
    assert len(sums) > 20


class Near:
    """The set of pairs that match, from all that an engine returns and in the order it does."""

    def __init__(self) -> None:
        self.pairs: set[tuple[Any, Any]] = set()

    def add(self, updates: list[tuple[Any, Any, int]]) -> None:
        for subscription, message, sign in updates:
            pair = subscription, message
            assert (pair in self.pairs) == (sign < 0), (pair, sign)
            (self.pairs.add if sign > 0 else self.pairs.remove)(pair)

    def add_objects(self, updates: list[Update]) -> None:
        self.add([(u.subscription_id, u.message_id, u.sign) for u in updates])

    def add_table(self, table: pa.Table) -> None:
        names = ("subscription_id", "message_id", "sign")
        self.add([*zip(*(table[name].to_pylist() for name in names), strict=True)])


def with_a_waiting_match(**options: Any) -> tuple[Engine, Clock]:
    """Return an engine in which the + of "s" and "m" waits, and that of "s" and "other"."""
    engine, clock = engine_at(0.0, **options)
    engine.publish([Message(i, (0.5, 0.5), "tea", ttl_s=100.0) for i in ("m", "other")])
    clock.now = 1.0
    engine.subscribe(Subscription("s", HERE, "tea"))
    clock.now = 2.0
    return engine, clock


def test_a_move_returns_first_what_waits_of_its_pairs() -> None:
    engine, _ = with_a_waiting_match()
    right = Rect(0.5, 0.5, 0.5, 0.5)
    assert engine.move("s", right) == []
    assert engine.move("s", THERE) == [
        Update(1.0, "s", "m", 1),
        Update(1.0, "s", "other", 1),
        Update(2.0, "s", "m", -1),
        Update(2.0, "s", "other", -1),
    ]
    assert waiting(engine) == []
    assert engine.stats().pending == 0


def test_what_a_move_does_not_change_goes_on_waiting() -> None:
    engine, clock = engine_at(0.0)
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=100.0))
    engine.publish(Message("right", (0.9, 0.5), "tea", ttl_s=100.0))
    engine.subscribe([Subscription(i, HERE, "tea") for i in ("s", "t")])
    clock.now = 2.0
    updates = engine.move("s", Rect(0.8, 0, 1, 1))
    assert [(u.time, u.message_id, u.sign) for u in updates] == [(0.0, "m", 1), (2.0, "m", -1)]
    assert engine.stats().pending == 3
    assert waiting(engine) == [(0.0, "s", "right", 1), (0.0, "t", "m", 1), (0.0, "t", "right", 1)]


@pytest.mark.parametrize("call", ["move_table", "replace", "replace_table", "upsert", "ranked"])
def test_every_call_returns_first_what_waits_of_its_pairs(call: str) -> None:
    engine, clock = with_a_waiting_match()
    near = Near()
    away = pa.table({"id": ["s"], "lon": [5.0], "lat": [5.0], "radius_m": [9.0]})
    if call == "move_table":
        near.add_table(engine.move_table(moves([("s", THERE, 2.0), ("s", HERE, 2.0)])).updates)
        near.add_table(engine.move_table(moves([("s", THERE, 2.0)])).updates)
    elif call == "replace":
        near.add_objects(engine.replace(Subscription("s", HERE, "milk")))
    elif call == "replace_table":
        near.add_table(engine.replace_table(away).updates)
    elif call == "upsert":
        engine.unsubscribe("s")
        near.add_objects(engine.replace(Subscription("s", HERE, "tea"), upsert=True))
        assert near.pairs == {("s", "m"), ("s", "other")}
    else:
        close = Proximity(delta=0.5, tau=0.8, max_distance_m=10_000)
        engine.subscribe(Subscription("r", (0.5, 0.5), ["tea"], ranking=close))
        near.add_objects(engine.move("r", (5, 5)))
    near.add_table(engine.advance())
    clock.now = 200.0
    near.add_table(engine.advance())
    assert near.pairs == set()


def test_a_table_of_moves_leaves_what_ends_after_them() -> None:
    engine, clock = with_a_waiting_match()
    near = Near()
    clock.now = 300.0
    rows: list[tuple[Any, Rect, float | None]] = [("s", THERE, 3.0), ("s", HERE, 4.0)]
    moved = engine.move_table(moves([*rows, ("s", THERE, 200.0)])).updates
    assert [time.timestamp() for time in moved["time"].to_pylist()] == [1, 1, 3, 3, 4, 4]
    near.add_table(moved)
    assert waiting(engine) == [(100.0, "s", "m", -1), (100.0, "s", "other", -1)]


def test_what_waits_is_found_among_much_else() -> None:
    engine, clock = engine_at(0.0)
    near = Near()
    count = 300
    engine.publish([Message(i, (i % 7, 0.5), "tea", ttl_s=50.0 + i) for i in range(count)])
    engine.subscribe([Subscription(f"s{i}", EVERYWHERE, "tea") for i in range(20)])
    rng = random.Random(1)
    for step in range(200):
        clock.now = float(step)
        near.add_objects(engine.move(f"s{rng.randrange(20)}", _strip(rng)))
        if step == 100:
            engine.subscribe([Subscription(f"t{i}", EVERYWHERE, "tea") for i in range(20)])
    near.add_table(engine.advance())
    assert len(near.pairs) > 1000
    clock.now = 1000.0
    near.add_table(engine.advance())
    assert near.pairs == set()


def test_what_waits_comes_in_order_after_a_restart(tmp_path: Any) -> None:
    engine, clock = with_a_waiting_match()
    engine.move("s", Rect(0.5, 0.5, 9, 9))
    engine.save(tmp_path / "engine")
    opened = Engine.open(tmp_path / "engine", clock=clock)
    for one in (engine, opened):
        assert [(u.time, u.sign) for u in one.move("s", THERE)] == [
            (1, 1),
            (1, 1),
            (2, -1),
            (2, -1),
        ]
        assert waiting(one) == []


@pytest.mark.parametrize("now", [100.0, 0.5], ids=["late", "future"])
def test_of_several_moves_that_happen_at_once_the_latest_time_counts(now: float) -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea"), Subscription("t", HERE, "tea"))
    clock.now = now
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=1000.0))
    far = Rect(7, 7, 8, 8)
    rows: list[tuple[Any, Rect, float | None]] = [
        ("s", THERE, 5.0),
        ("s", HERE, 3.0),
        ("t", HERE, 7.0),
        ("t", far, 7.0),
        ("t", THERE, 6.0),
    ]
    moved = engine.move_table(moves(rows))
    assert (moved.moved, moved.updates["sign"].to_pylist()) == (5, [-1, -1])
    assert (engine.get("s").region, engine.get("t").region) == (THERE, far)


def test_updates_of_a_table_come_in_the_order_of_its_rows() -> None:
    engine, _ = engine_at(
        0.0, Subscription("plain", HERE, "tea"), Subscription("phrase", HERE, expression="te*")
    )
    engine.publish(Message("m", (0.5, 0.5), "tea", ttl_s=9.0))
    moved = engine.move_table(moves([("plain", THERE, None), ("phrase", THERE, None)]))
    assert moved.updates["subscription_id"].to_pylist() == ["plain", "phrase"]


def test_a_boolean_subscription_does_not_move_to_a_point() -> None:
    engine, _ = engine_at(0.0, Subscription("s", HERE, "tea"), Subscription("p", HERE, "tea*"))
    engine.subscribe(Subscription("o", HERE, "tea", ranking=Overlap(0.5, 0.5)))
    near = Proximity(delta=0.5, tau=0.5, max_distance_m=10.0)
    engine.subscribe(Subscription("n", (0, 0), "tea", ranking=near))
    for id in ("s", "p"):
        with pytest.raises(InvalidInput, match="is a single place"):
            engine.move(id, Point(5, 5))
    for id in ("o", "n"):
        engine.move(id, Point(5, 5))
        assert engine.get(id).region == Point(5, 5)
    moved = engine.move_table(
        pa.table({"subscription_id": ["s", "o", "n", "p"], "geometry": ["POINT (6 6)"] * 4})
    )
    assert (moved.moved, moved.rejects.row.tolist()) == (2, [0, 3])
    assert "is a single place" in moved.rejects.reason[0]
    assert [engine.get(id).region for id in "so"] == [HERE, Point(6, 6)]


@pytest.mark.parametrize("ttl_s", [0.0, 30.0])
def test_an_earlier_message_of_a_table_meets_what_expires_before_the_last(ttl_s: float) -> None:
    engine, clock = engine_at(0.0, Subscription("s", HERE, "tea", expires_at=5.0))
    clock.now = 10.0
    table = pa.table(
        {
            "id": ["early", "late"],
            "text": ["tea"] * 2,
            "lon": [0.5] * 2,
            "lat": [0.5] * 2,
            "time": [1.0, 10.0],
            "ttl_s": [ttl_s] * 2,
        }
    )
    matches = engine.publish_table(table).matches
    assert matches["message_id"].to_pylist() == ["early"]
    engine.settle()
    assert engine.publish(Message("again", (0.5, 0.5), "tea", time=1.0)) == []


def test_an_id_may_be_used_again_unless_its_message_is_alive(tmp_path: Any) -> None:
    clock = Clock(100.0)
    engine = Engine.open(tmp_path / "e", journal=True, clock=clock)
    engine.subscribe(Subscription("s", HERE, "tea"))
    times, lives = [1.0, 3.0, 20.0, 21.0, 22.0], [10.0, 10.0, 5.0, 0.0, 5.0]
    columns = {"id": [7] * 5, "text": ["tea"] * 5, "lon": [0.5] * 5, "lat": [0.5] * 5}
    table = pa.table({**columns, "time": times, "ttl_s": lives})
    published = engine.publish_table(table)
    assert published.rejects.row.tolist() == [1, 4]
    assert "is the id of a message that is alive" in published.rejects.reason[0]
    assert (published.messages, published.matches.num_rows) == (3, 3)
    other = Engine(clock=clock)
    other.subscribe(Subscription("s", HERE, "tea"))
    found = 0
    for row in table.to_pylist():
        place = row.pop("lon"), row.pop("lat")
        try:
            found += len(other.publish(Message(place=place, **row)))
        except DuplicateId:
            found += 10
    assert found == 23
    assert engine.stats()[1:] == other.stats()[1:]
    engine.close()
    with Engine.open(tmp_path / "e", journal=True, clock=clock) as again:
        assert again.stats()[1:] == other.stats()[1:]
