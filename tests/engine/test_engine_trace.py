"""How an engine tells where it found a message: segments, words of paths, and counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from nearcast import Circle, Engine, Message, Overlap, Proximity, Rect, Subscription

WORDS = ["tea", "cake", "hot", "old", "town", "iced", "milk"]


def boolean(id: int, rng: np.random.Generator) -> Subscription:
    west, south = rng.integers(-10, 10, 2).tolist()
    keywords = rng.choice(WORDS, rng.integers(1, 4), replace=False).tolist()
    return Subscription(id, Rect(west, south, west + 3, south + 3), keywords, scope="0")


def message(*words: str, lon: float = 0.5, scope: str | None = "0") -> Message:
    return Message("m", (lon, 0.5), " ".join(words), scope=scope)


@pytest.fixture(scope="module")
def engine() -> Engine:
    rng = np.random.default_rng(3)
    engine = Engine()
    engine.subscribe([boolean(id, rng) for id in range(3_000)])
    engine.settle()
    return engine


def test_it_counts_what_publishing_finds(engine: Engine) -> None:
    for words in (["tea"], ["tea", "cake", "hot"], WORDS, ["beer"]):
        for lon in (-9.5, 0.5, 40.0):
            given = message(*words, lon=lon)
            found = engine.trace(given)
            assert found.matches == len(engine.publish(given))
            assert found.tokens == tuple(words)
            table = pa.table({"id": ["m"], "text": [" ".join(words)], "lon": [lon], "lat": [0.5]})
            scoped = table.append_column("scope", pa.array(["0"]))
            assert found.examined == engine.publish_table(scoped).examined


def test_the_scope_is_not_shown_as_a_word(engine: Engine) -> None:
    found = engine.trace(message("tea", "cake"))
    [segment] = found.segments
    assert segment.nodes is not None
    paths = {word for node in segment.nodes for word in node.path}
    assert paths <= {"tea", "cake"}
    assert paths
    assert found.tokens == ("tea", "cake")
    other = engine.trace(message("tea", "cake", scope="1"))
    assert other.matches == 0


def test_a_scope_that_is_rarer_than_the_words_is_a_step_of_the_path() -> None:
    engine = Engine()
    near = Rect(0, 0, 1, 1)
    engine.subscribe([Subscription(i, near, ["tea"], scope="0") for i in range(2_000)])
    engine.subscribe([Subscription(9_000 + i, near, ["tea"], scope="9") for i in range(3)])
    engine.settle()
    found = engine.trace(message("tea", scope="9"))
    nodes = [node for s in found.segments for node in s.nodes or () if node.matched]
    assert [(node.path, node.scoped, node.matched) for node in nodes] == [((), True, 3)]


def test_every_kind_has_a_segment_of_its_own() -> None:
    engine = Engine()
    near = Proximity(delta=0.5, tau=0.1, max_distance_m=100_000)
    rng = np.random.default_rng(4)
    engine.subscribe(
        [
            *(boolean(id, rng) for id in range(1_500)),
            Subscription("near", (0.5, 0.5), ["tea"], ranking=near, scope="0"),
            Subscription("over", Rect(0, 0, 1, 1), ["tea"], ranking=Overlap(0.5, 0.1), scope="0"),
            Subscription("moved", Circle(9, 9, 1000), ["tea"], scope="0"),
        ]
    )
    engine.settle()
    engine.move("moved", Circle(0.5, 0.5, 1000))
    given = message("tea")
    found = engine.trace(given)
    kinds = {segment.kind: segment for segment in found.segments}
    assert {*kinds} == {"boolean", "proximity", "overlap", "moving"}
    assert kinds["boolean"].nodes
    for kind in ("proximity", "overlap", "moving"):
        assert (kinds[kind].nodes, kinds[kind].matches) == (None, 1)
    assert kinds["moving"].index == "twin-lists"
    assert found.matches == len(engine.publish(given))
    columns = {"id": ["m"], "text": ["tea"], "lon": [0.5], "lat": [0.5], "scope": ["0"]}
    assert found.examined == engine.publish_table(pa.table(columns)).examined
    assert sum(segment.subscriptions for segment in found.segments) == len(engine)


def test_phrases_are_shown_as_one_writes_them() -> None:
    engine = Engine()
    region = Rect(0, 0, 1, 1)
    engine.subscribe([Subscription(i, region, expression='"old town"') for i in range(1_100)])
    engine.subscribe([Subscription(5_000 + i, region, ["milk"]) for i in range(1_100)])
    engine.settle()
    found = engine.trace(message("old", "town", scope=None))
    paths = {node.path for segment in found.segments for node in segment.nodes or ()}
    assert paths == {('"old town"',)}
    assert found.matches == 1_100


def test_dead_and_expired_rows_do_not_count() -> None:
    engine = Engine()
    region = Rect(0, 0, 1, 1)
    engine.subscribe(
        [
            Subscription(i, region, ["tea"], expires_at=100.0 if i % 2 else None)
            for i in range(2_000)
        ]
    )
    engine.settle()
    engine.unsubscribe(list(range(0, 500, 2)))
    found = engine.trace(Message("m", (0.5, 0.5), "tea", time=200.0))
    assert found.matches == len(engine.publish(Message("m", (0.5, 0.5), "tea", time=200.0))) == 750


def test_new_subscriptions_are_compared_one_by_one() -> None:
    engine = Engine()
    engine.subscribe(Subscription(1, Rect(0, 0, 1, 1), ["tea"]))
    engine.subscribe(Subscription(2, Rect(5, 5, 6, 6), ["tea"]))
    [segment] = engine.trace(message("tea", scope=None)).segments
    assert (segment.index, segment.matches) == ("linear", 1)
    assert segment.nodes is not None
    [node] = segment.nodes
    assert (node.path, node.clauses, node.examined, node.matched) == ((), 2, 1, 1)
    assert [box.opened for box in node.boxes] == [True, False]
