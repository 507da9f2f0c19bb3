"""Ranked subscriptions in an engine, against plain Python."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from effort import examples
from nearcast.compiled.jit import JIT
from nearcast.engine import Engine, merging, rows, store, upkeep
from nearcast.engine.opening import open_parts
from nearcast.errors import InvalidInput, UnknownId, UnknownName
from nearcast.intake import subscriptions_from
from nearcast.model import Match, Message, Overlap, Point, Proximity, Rect, Subscription
from nearcast.segments import Part, Scorer
from nearcast.text import Vocabulary, words

WORDS = ["tea", "milk", "cake", "jam", "hot", "rare"]
IDS = list(range(12))
METERS = math.pi * 6_371_008.8 / 180  # per degree
HERE = Rect(0, 0, 2, 1)


class Oracle:
    """Scores by their definition: a table of weights, and formulas over objects."""

    def __init__(self, similarity: str) -> None:
        self.similarity = similarity
        self.subscriptions = 0
        self.frequency: Counter[str] = Counter()

    def count(self, subscriptions: list[Subscription]) -> None:
        ranked = [s for s in subscriptions if s.ranking is not None]
        self.subscriptions = len(ranked)
        self.frequency = Counter(word for s in ranked for word in s.clauses(words)[0].positive)

    def weight(self, word: str) -> float:
        if self.similarity not in ("containment", "jaccard") or not self.subscriptions:
            return 1.0
        return math.log(1 + self.subscriptions / max(1, self.frequency[word]))

    def score(self, subscription: Subscription, message: Message) -> float:
        ranking = subscription.ranking
        assert ranking is not None
        p = ranking.text_share
        space = self.nearness if isinstance(ranking, Proximity) else self.coverage
        return p * self.text(subscription, message) + (1 - p) * space(subscription, message)

    def text(self, subscription: Subscription, message: Message) -> float:
        wanted = set(subscription.clauses(words)[0].positive)
        said = set(message.words(words))
        if not wanted:
            return 1.0
        own, both = sum(map(self.weight, wanted)), sum(map(self.weight, wanted & said))
        whole = sum(map(self.weight, said))
        if not both:
            return 0.0
        return {
            "containment": both / own,
            "overlap": both / own,
            "jaccard": both / (own + whole - both),
            "dice": 2 * both / (own + whole),
            "cosine": both / math.sqrt(own * whole),
        }[self.similarity]

    def nearness(self, subscription: Subscription, message: Message) -> float:
        """Places lie on the equator, where a degree is as long as one of latitude."""
        place, ranking = subscription.region, subscription.ranking
        assert isinstance(place, Point)
        assert isinstance(ranking, Proximity)
        west, east = ends(message.place)
        away = max(0.0, west - place.lon, place.lon - east) * METERS
        return max(0.0, 1 - away / ranking.max_distance_m)

    def coverage(self, subscription: Subscription, message: Message) -> float:
        region: Any = subscription.region
        west, east = ends(message.place)
        common = min(east, region.east) - max(west, region.west)
        if west == east:
            return float(common >= 0)
        tall = min(message.place.north, region.north) - max(message.place.south, region.south)  # type: ignore[union-attr]
        area = (region.east - region.west) * (region.north - region.south)
        return float(max(0.0, common) * max(0.0, tall) / area)


def ends(place: Point | Rect) -> tuple[float, float]:
    return (place.lon, place.lon) if isinstance(place, Point) else (place.west, place.east)


shares = st.sampled_from([0.0, 0.2, 0.5, 0.77, 1.0])
thresholds = st.sampled_from([0.0, 0.1, 0.31, 0.62, 0.9, 1.0])
keywords = st.none() | st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True)
conditions = st.sampled_from([None, None, "NOT milk", "tea OR jam NOT hot"])
longitudes = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0])
rects = st.builds(
    lambda west, width, height: Rect(west, 0, west + width, height),
    longitudes, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.5, 1.0]),
)  # fmt: skip
near = st.builds(Proximity, shares, thresholds, st.sampled_from([50_000.0, 200_000.0]))


def draw_subscription(data: st.DataObject, number: int) -> Subscription:
    kind = data.draw(st.sampled_from(["boolean", "proximity", "overlap"]))
    if kind == "boolean":
        return Subscription(number, data.draw(rects), data.draw(keywords))
    wanted, condition = data.draw(keywords), data.draw(conditions)
    if kind == "proximity":
        place: Any = Point(data.draw(longitudes), 0)
        return Subscription(number, place, wanted, condition, ranking=data.draw(near))
    ranking = Overlap(data.draw(shares), data.draw(thresholds))
    return Subscription(number, data.draw(rects), wanted, condition, ranking=ranking)


class RankedMachine(RuleBasedStateMachine):
    """Mixes kinds, merges, restarts; weights change when the rules say so, and never else."""

    similarity = "containment"

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (rows, merging):
            self.patch.setattr(module, "BUFFER_ROWS", 4)
            self.patch.setattr(module, "SMALL_ROWS", 1)
        self.patch.setattr(store, "BULK_ROWS", 3)
        self.patch.setattr(upkeep, "BULK_ROWS", 3)
        self.patch.setattr(upkeep, "_MIN_COUNTED", 1000)
        self.patch.setattr(upkeep, "_MIN_UNUSED_TOKENS", 0)
        self.folder = Path(tempfile.mkdtemp()) / "engine"
        self.engine = Engine(similarity=self.similarity)
        self.oracle = Oracle(self.similarity)
        self.registered: dict[Any, Subscription] = {}

    def teardown(self) -> None:
        self.engine.close()
        self.patch.undo()
        shutil.rmtree(self.folder.parent)

    @rule(data=st.data(), ids=st.lists(st.sampled_from(IDS), unique=True, max_size=5))
    def subscribe(self, data: st.DataObject, ids: list[int]) -> None:
        new = [draw_subscription(data, i) for i in ids if i not in self.registered]
        ranked = sum(s.ranking is not None for s in new)
        counted = self.oracle.subscriptions
        if ranked and (counted == 0 or counted < 3 <= ranked):
            self.oracle.count([*self.registered.values(), *new])
        self.engine.subscribe(new)
        self.registered.update({s.id: s for s in new})

    @rule(number=st.sampled_from(IDS))
    def unsubscribe(self, number: int) -> None:
        if number in self.registered:
            self.engine.unsubscribe(number)
            del self.registered[number]

    @rule(number=st.sampled_from(IDS), lon=longitudes, rect=rects)
    def move(self, number: int, lon: float, rect: Rect) -> None:
        if number in self.registered:
            old = self.registered[number]
            place = Point(lon, 0) if isinstance(old.ranking, Proximity) else rect
            self.engine.move(number, place)
            self.registered[number] = Subscription(
                number, place, old.keywords, old.expression, ranking=old.ranking
            )

    @rule()
    def settle(self) -> None:
        self.engine.settle()
        self.oracle.count([*self.registered.values()])

    @rule()
    def save_and_open(self) -> None:
        self.engine.save(self.folder)
        self.engine.close()
        self.engine = Engine.open(self.folder)

    @rule(
        place=st.builds(Point, longitudes, st.just(0)) | rects,
        said=st.lists(st.sampled_from([*WORDS, "never", "heard"]), max_size=6),
        data=st.data(),
    )
    def publish(self, place: Point | Rect, said: list[str], data: st.DataObject) -> None:
        message = Message("m", place, tokens=said)
        found = {m.subscription_id: m.score for m in self.engine.publish(message)}
        ranked = {i: s for i, s in self.registered.items() if s.ranking is not None}
        for number, subscription in ranked.items():
            score = self.oracle.score(subscription, message)
            allowed = condition_holds(subscription, message)
            reached = score >= subscription.ranking.threshold - 1e-9  # type: ignore[union-attr]
            assert (number in found) == (reached and allowed), (subscription, score)
            if number in found:
                assert found[number] == pytest.approx(score, abs=1e-9)
        boolean = {i for i in found if i not in ranked}
        assert all(found[i] is None for i in boolean)
        assert all(self.engine.explain(message, i).matches for i in boolean)
        if self.registered:
            chosen = data.draw(st.sampled_from([*self.registered]))
            why = self.engine.explain(message, chosen)
            assert why.matches == (chosen in found)
            if why.matches:
                assert why.score == found[chosen]
            assert self.engine.get(chosen).ranking == self.registered[chosen].ranking
            again = self.engine.preview(self.registered[chosen], message)
            assert [m.score for m in again] == [found[i] for i in found if i == chosen]
        best = self.engine.publish(message, top=3)
        ordered = sorted(
            found.items(), key=lambda pair: (pair[1] is None, -(pair[1] or 0), pair[0])
        )
        assert best == [Match("m", number, score) for number, score in ordered[:3]]


def condition_holds(subscription: Subscription, message: Message) -> bool:
    said = message.words(words)
    clauses = subscription.condition(words)
    return clauses is None or any(
        said.issuperset(c.positive) and said.isdisjoint(c.negative) for c in clauses
    )


class JaccardMachine(RankedMachine):
    similarity = "jaccard"


TestRankedMachine = RankedMachine.TestCase
TestRankedMachine.settings = settings(
    max_examples=examples(50 if JIT else 2), stateful_step_count=25, deadline=None
)
TestJaccardMachine = JaccardMachine.TestCase
TestJaccardMachine.settings = settings(
    max_examples=examples(25 if JIT else 2), stateful_step_count=25, deadline=None
)


def twins(first: int, count: int, wanted: list[str]) -> list[Subscription]:
    ranking = Proximity(0.5, 0.1, 1000)
    return [Subscription(i, (0, 0), wanted, ranking=ranking) for i in range(first, first + count)]


def scores(engine: Engine, text: str = "tea") -> dict[Any, float | None]:
    return {m.subscription_id: m.score for m in engine.publish(Message("m", (0, 0), text))}


def test_weights_are_counted_by_the_first_load_and_by_settle() -> None:
    engine = Engine()
    assert engine.stats().weights_version == 0
    engine.subscribe(Subscription("b", HERE, ["tea"]))
    assert engine.stats().weights_version == 0
    engine.subscribe([*twins(0, 3, ["tea"]), *twins(3, 1, ["tea", "cake"])])
    assert engine.stats()[4:6] == (1, 4)
    tea, cake = math.log(1 + 4 / 4), math.log(1 + 4 / 1)
    assert scores(engine)[3] == pytest.approx(0.5 + 0.5 * tea / (tea + cake))
    before = scores(engine)
    engine.subscribe(twins(10, 5, ["cake"]))
    engine.unsubscribe(0)
    after = scores(engine)
    assert [after[i] for i in (1, 2, 3)] == [before[i] for i in (1, 2, 3)]
    assert 0 not in after
    assert engine.stats().weights_version == 1
    engine.settle()
    assert engine.stats()[4:6] == (2, 8)
    tea, cake = math.log(1 + 8 / 3), math.log(1 + 8 / 6)
    assert scores(engine)[3] == pytest.approx(0.5 + 0.5 * tea / (tea + cake))
    engine.settle()
    assert engine.stats().weights_version == 2  # nothing changed


def test_the_first_large_write_counts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store, upkeep):
        monkeypatch.setattr(module, "BULK_ROWS", 20)
    engine = Engine()
    engine.subscribe(twins(0, 1, ["tea", "cake"]))
    engine.subscribe(twins(1, 30, ["tea"]))
    assert engine.stats()[4:6] == (2, 31)
    engine.subscribe(twins(100, 30, ["cake"]))
    assert engine.stats()[4:6] == (2, 31)


def test_weights_are_counted_again_when_subscriptions_have_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "_MIN_COUNTED", 8)
    engine = Engine()
    engine.subscribe([*twins(0, 3, ["tea"]), *twins(3, 1, ["tea", "cake"])])
    for i in range(4, 8):
        engine.subscribe(twins(i, 1, ["cake"]))
    engine._store.merge(quiet=False)  # what the thread in the background does
    assert engine.stats()[4:6] == (2, 8)
    tea, cake = math.log(1 + 8 / 4), math.log(1 + 8 / 5)
    assert scores(engine)[3] == pytest.approx(0.5 + 0.5 * tea / (tea + cake))


def test_merges_and_restarts_change_no_bit(tmp_path: Path) -> None:
    engine = Engine(similarity="cosine", weights="manual")
    for i in range(3000):
        wanted = [f"w{i % 7}", f"w{i % 11}", f"w{i % 13}"]
        ranking = Proximity(0.3 + i % 5 / 10, 0.2, 5000.0 + i)
        engine.subscribe(Subscription(i, (i % 50 / 5000, 0), [*set(wanted)], ranking=ranking))
    engine.count_weights()
    version = engine.stats().weights_version
    before = scores(engine, "w1 w2 w3 w12 other")
    assert len(before) > 100
    engine.save(tmp_path / "engine")
    opened = Engine.open(tmp_path / "engine")
    assert opened.stats().weights_version == version
    assert scores(opened, "w1 w2 w3 w12 other") == before
    while opened._store.merge(quiet=True):
        pass
    assert scores(opened, "w1 w2 w3 w12 other") == before
    columns = opened.publish_table(
        pa.table({"id": ["m"], "text": ["w1 w2 w3 w12 other"], "lon": [0.0], "lat": [0.0]})
    ).matches.to_pydict()
    assert dict(zip(columns["subscription_id"], columns["score"], strict=True)) == before


def test_a_message_meets_one_table_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal subscriptions score equally, however many segments they are in, at every moment."""
    monkeypatch.setattr(upkeep, "_MIN_COUNTED", 16)
    engine = Engine()
    stop, different = threading.Event(), []

    def publish() -> None:
        while not stop.is_set():
            found = scores(engine, "tea")
            equal = {score for i, score in found.items() if i % 2 == 0}
            if len(equal) > 1:
                different.append(found)

    readers = [threading.Thread(target=publish) for _ in range(2)]
    for reader in readers:
        reader.start()
    for i in range(600):
        engine.subscribe(twins(i, 1, ["tea", "cake"] if i % 2 == 0 else ["cake"]))
        if i % 150 == 0:
            engine.settle()
    stop.set()
    for reader in readers:
        reader.join()
    assert not different
    assert engine.stats().weights_version > 3
    assert len(scores(engine)) == 600


def test_a_move_of_a_ranked_subscription_is_seen_in_living_messages() -> None:
    engine = Engine()
    engine.subscribe(twins(0, 1, ["tea"]))
    engine.subscribe(Subscription("part", HERE, ["tea"], ranking=Overlap(1.0, 0.5)))
    engine.publish(Message("m", (5, 0), "cake", time=100.0, ttl_s=60.0))
    [update] = engine.move(0, (5, 0), time=110.0)
    assert (update.message_id, update.sign) == ("m", 1)
    [update] = engine.move(0, Point(0, 0), time=120.0)
    assert update.sign == -1
    [update] = engine.move("part", Rect(4, -1, 6, 1), time=120.0)
    assert (update.subscription_id, update.sign) == ("part", 1)
    with pytest.raises(InvalidInput, match="must be a Point"):
        engine.move(0, Rect(4, -1, 6, 1))


def test_explanations_add_up() -> None:
    engine = Engine()
    engine.subscribe([*twins(0, 2, ["tea", "cake"]), *twins(2, 2, ["tea"])])
    why = engine.explain(Message("m", (0, 0.001), "Hot tea"), 0)
    assert [w.word for w in why.shared] == ["tea"]
    assert [w.word for w in why.missing] == ["cake"]
    assert why.shared[0].share + why.missing[0].share == pytest.approx(1)
    assert why.text == pytest.approx(why.shared[0].share)
    assert why.distance_m == pytest.approx(0.001 * METERS)
    assert why.space == pytest.approx(1 - 0.001 * METERS / 1000)
    assert why.text_part == why.text * 0.5  # type: ignore[operator]
    assert why.score == pytest.approx(why.text_part + why.space_part)  # type: ignore[operator]
    assert why.margin == pytest.approx(why.score - 0.1)  # type: ignore[operator]
    assert why.weights_version == 1
    assert why.to_dict()["shared"][0]["word"] == "tea"
    with pytest.raises(UnknownId):
        engine.explain(Message("m", (0, 0), "tea"), "nobody")


def test_explanations_of_boolean_subscriptions() -> None:
    engine = Engine()
    engine.subscribe(Subscription("b", HERE, expression="tea cake OR jam NOT milk"))
    inside, outside = Message(1, (1, 0.5), "jam and milk"), Message(2, (9, 9), "tea, cake")
    why = engine.explain(inside, "b")
    assert (why.matches, why.inside, why.forbidden) == (False, True, ("milk",))
    why = engine.explain(outside, "b")
    assert (why.matches, why.inside, [w.word for w in why.shared]) == (
        False,
        False,
        ["cake", "tea"],
    )
    assert why.score is None
    assert engine.explain(Message(3, (1, 1), "jam"), "b").matches


def test_an_expired_subscription_does_not_match() -> None:
    now = [100.0]
    engine = Engine(clock=lambda: now[0])
    near = Proximity(0.5, 0.1, 1000)
    engine.subscribe(Subscription("s", (0, 0), ["tea"], ranking=near, expires_at=200.0))
    assert not engine.explain(Message("m", (0, 0), "tea", time=200.0), "s").matches
    assert engine.publish(Message("m", (0, 0), "tea", time=200.0)) == []


@pytest.mark.parametrize("top", [0, -1, 1.5, True, "3"])
def test_top_is_a_whole_number(top: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        Engine().publish(Message("m", (0, 0), "tea"), top=top)


def test_the_best_of_each_message_in_a_table() -> None:
    engine = Engine()
    engine.subscribe([*twins(0, 3, ["tea"]), *twins(3, 3, ["tea", "cake"])])
    engine.subscribe(Subscription("plain", HERE, ["tea"]))
    table = pa.table({"id": [1, 2], "text": ["tea", "cake"], "lon": [0.0, 0.0], "lat": [0.0, 0.0]})
    found = engine.publish_table(table, top=2).matches.to_pydict()
    assert found["message_id"] == [1, 1, 2, 2]
    assert found["subscription_id"] == ["0", "1", "3", "4"]


def test_unknown_similarities_and_distances_name_the_choices() -> None:
    with pytest.raises(UnknownName, match="containment, cosine, dice, jaccard, overlap"):
        Engine(similarity="tfidf")
    with pytest.raises(UnknownName, match="geodesic, planar"):
        Engine(distance="euclid")


def test_preview_of_a_table_registers_nothing() -> None:
    engine = Engine()
    near = Proximity(0.5, 0.4, 1000)
    table = pa.table({"id": ["a", "b"], "text": ["tea", "jam"], "lon": [0, 0], "lat": [0, 9]})
    found = engine.preview(Subscription("s", (0, 0), ["tea"], ranking=near), table)
    assert [(m.message_id, m.score) for m in found] == [("a", 1.0)]
    assert len(engine) == 0
    assert engine.stats().tokens == 0


def test_fixed_weights_are_never_counted_again(tmp_path: Path) -> None:
    def ranked(id: str, *keywords: str) -> Subscription:
        return Subscription(id, HERE, keywords, ranking=Overlap(0.5, 0.1))

    vocabulary = Vocabulary()
    given = [ranked("a", "tea", "rare"), ranked("b", "rare")]
    part = Part(subscriptions_from(given, vocabulary), vocabulary)
    scorer = Scorer.counted(part)
    engine = open_parts(Engine, [part], scorer)
    message = Message("m", HERE, "tea milk")
    before = {match.subscription_id: match.score for match in engine.publish(message)}
    engine.subscribe([ranked(f"n{number}", "tea") for number in range(1_500)])
    engine.settle()
    engine.save(tmp_path / "saved")
    for one in (engine, Engine.open(tmp_path / "saved")):
        one.subscribe(ranked("new", "milk"))
        one.settle()
        assert one.stats().weighed_subscriptions == 2
        found = {match.subscription_id: match.score for match in one.publish(message)}
        assert found["a"] == before["a"]
        assert len(found) == 1_503


def test_weights_that_are_counted_by_hand_are_not_counted_by_the_engine(tmp_path: Path) -> None:
    def ranked(first: int, count: int) -> list[Subscription]:
        numbers = range(first, first + count)
        return [Subscription(n, HERE, ["tea"], ranking=Overlap(0.5, 0.1)) for n in numbers]

    engine = Engine(weights="manual")
    engine.subscribe(ranked(0, 2))
    for counted in (2, 2_002):
        engine.count_weights()
        engine.subscribe(ranked(counted, 2_000))
        engine.settle()
        assert engine.stats().weighed_subscriptions == counted
        engine.save(tmp_path / str(counted))
        engine.close()
        engine = Engine.open(tmp_path / str(counted))
        engine.settle()
        assert engine.stats().weighed_subscriptions == counted
    engine.close()
