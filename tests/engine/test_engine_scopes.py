"""Scopes in an engine: what matches without them, and then only within the same scope."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast.columns import SIMILARITIES
from nearcast.engine import Engine
from nearcast.engine.restore import table_of_subscriptions
from nearcast.errors import InvalidInput
from nearcast.indexes.statistics import Grid
from nearcast.intake import read_messages, read_subscriptions
from nearcast.model import Message, Overlap, Proximity, Rect, Subscription
from nearcast.spark.workers.counting import count_batches
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["tea", "milk", "old", "town", "flood", "flooded"]
SCOPES = [None, "a", "b", "tea", "ü b", "\x1fold\x1ftown", "\x1d", "\x1da"]
EXPRESSIONS = [
    '"old town" OR tea',
    "flood* NOT milk",
    "tea NOT old OR milk NOT town",
    '(tea OR milk) AND "old town"',
]
CONDITIONS = [None, "NOT milk", '"old town" OR NOT tea', "flood* OR tea"]
HERE = Rect(0, 0, 2, 2)

Pairs = set[tuple[Any, Any, float | None]]


def place(rng: random.Random) -> Rect:
    west, south = rng.randrange(3) / 2, rng.randrange(3) / 2
    return Rect(west, south, west + rng.choice([0.0, 0.5, 1.0]) + 0.25, south + 0.75)


def subscription(rng: random.Random, id: int) -> Subscription:
    scope = rng.choice(SCOPES)
    keywords = rng.sample(WORDS, rng.randrange(1, 3))
    kind = rng.randrange(5)
    if kind == 0:
        return Subscription(id, place(rng), scope=scope)
    if kind == 1:
        return Subscription(id, place(rng), keywords, scope=scope)
    if kind == 2:
        return Subscription(id, place(rng), expression=rng.choice(EXPRESSIONS), scope=scope)
    condition = rng.choice(CONDITIONS)
    if kind == 3:
        near = Proximity(0.5, rng.choice([0.2, 0.5]), max_distance_m=100_000)
        where = rng.random() * 2, rng.random() * 2
        return Subscription(id, where, keywords, condition, ranking=near, scope=scope)
    overlap = Overlap(0.5, rng.choice([0.1, 0.4]))
    return Subscription(id, place(rng), keywords, condition, ranking=overlap, scope=scope)


def message(rng: random.Random, id: int, **fields: Any) -> Message:
    text = " ".join(rng.choices(WORDS, k=rng.randrange(6)))
    where = rng.random() * 2, rng.random() * 2
    as_tokens = rng.random() < 0.3
    words = {"tokens": text.split()} if as_tokens else {"text": text}
    return Message(id, where, **words, scope=rng.choice([*SCOPES, "none has it"]), **fields)


def unscoped(one: Any) -> Any:
    fields = one.to_dict()
    fields.pop("scope", None)
    return type(one).from_dict(fields)


@dataclass
class Both:
    """An engine, and one whose subscriptions and messages have no scopes."""

    engine: Engine
    plain: Engine

    @classmethod
    def of(cls, subscriptions: list[Subscription], **options: Any) -> Both:
        engine, plain = Engine(**options), Engine(**options)
        engine.subscribe(subscriptions)
        plain.subscribe([unscoped(one) for one in subscriptions])
        return cls(engine, plain)


def found(engine: Engine, messages: list[Message]) -> Pairs:
    return {(m.message_id, m.subscription_id, m.score) for m in engine.publish(messages)}


def within_scopes(
    pairs: Pairs, subscriptions: list[Subscription], messages: list[Message]
) -> Pairs:
    wanted = {one.id: one.scope for one in subscriptions}
    given = {one.id: one.scope for one in messages}
    return {pair for pair in pairs if wanted[pair[1]] in (None, given[pair[0]])}


def message_table(messages: list[Message]) -> pa.Table:
    rows = [one.to_dict() for one in messages]
    names = {name for row in rows for name in row}
    return pa.table({name: [row.get(name) for row in rows] for name in sorted(names)})


@pytest.mark.parametrize("index", ["trie-pyramid", "scan"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_only_messages_of_the_same_scope_match_with_the_same_scores(
    similarity: str, index: str
) -> None:
    rng = random.Random(similarity)
    subscriptions = [subscription(rng, id) for id in range(300)]
    messages = [message(rng, id) for id in range(200)]
    both = Both.of(subscriptions, index=index, similarity=similarity)
    expected = within_scopes(found(both.plain, messages), subscriptions, messages)
    assert len(expected) > 100
    assert found(both.engine, messages) == expected
    for size in (3, len(messages)):  # few rows are read by way of the model
        pairs: Pairs = set()
        for first in range(0, len(messages), size):
            table = message_table(messages[first : first + size])
            matches = both.engine.publish_table(table).matches.to_pydict()
            columns = ("message_id", "subscription_id", "score")
            pairs |= {*zip(*(matches[name] for name in columns), strict=True)}
        assert pairs == expected


def test_subscriptions_come_back_with_their_scopes(tmp_path: Path) -> None:
    rng = random.Random(1)
    subscriptions = [subscription(rng, id) for id in range(200)]
    both = Both.of(subscriptions[:100])
    engine, plain = both.engine, both.plain
    engine.subscribe_table(table_of_subscriptions(subscriptions[100:]))
    plain.subscribe([unscoped(one) for one in subscriptions[100:]])
    engine.save(tmp_path / "saved")
    for one in (engine, Engine.open(tmp_path / "saved")):
        assert {s.id: s.scope for s in one} == {s.id: s.scope for s in subscriptions}
        for given in subscriptions:
            back = one.get(given.id)
            assert back.scope == given.scope
            again = Subscription.from_dict(back.to_dict())
            assert again.clauses(str.split) == back.clauses(str.split)
            assert again.condition(str.split) == back.condition(str.split)
        table = one.get_table(pa.table({"id": [7, 3]})).subscriptions
        scopes = table.to_pydict().get("scope", [None, None])
        assert {*zip(table["id"].to_pylist(), scopes, strict=True)} == {
            (id, subscriptions[id].scope) for id in (3, 7)
        }
        messages = [message(rng, id) for id in range(50)]
        assert found(one, messages) == within_scopes(
            found(plain, messages), subscriptions, messages
        )


def test_living_messages_meet_moving_and_changed_subscriptions_of_their_scope() -> None:
    rng = random.Random(2)
    subscriptions = [subscription(rng, id) for id in range(120)]
    clock = count(1)
    both = Both.of(subscriptions, clock=lambda: 0.0)
    messages = [message(rng, id, time=0.0, ttl_s=1e6) for id in range(80)]
    expected = within_scopes(found(both.plain, messages), subscriptions, messages)
    assert found(both.engine, messages) == expected
    given = {one.id: one.scope for one in messages}
    updates = 0
    for step in range(150):
        one = rng.choice(subscriptions)
        time = next(clock)
        if step % 3 == 2:
            new = subscription(rng, int(one.id))
            both.engine.replace(new, time=time)
            both.plain.replace(unscoped(new), time=time)
            subscriptions[int(one.id)] = new
            continue
        by_distance = isinstance(one.ranking, Proximity)
        where = (rng.random() * 2, rng.random() * 2) if by_distance else place(rng)
        moved = both.engine.move(one.id, where, time)
        wanted = [
            update
            for update in both.plain.move(one.id, where, time)
            if one.scope in (None, given[update.message_id])
        ]
        assert sorted(moved, key=str) == sorted(wanted, key=str)
        updates += len(moved)
    assert updates > 50
    later = [message(rng, id, time=1000.0, ttl_s=1e6) for id in range(100, 140)]
    expected = within_scopes(found(both.plain, later), subscriptions, later)
    assert found(both.engine, later) == expected


def test_previews_and_living_messages_respect_scopes() -> None:
    rng = random.Random(3)
    subscriptions = [subscription(rng, id) for id in range(100)]
    messages = [message(rng, id, time=0.0, ttl_s=60) for id in range(60)]
    both = Both.of([], clock=lambda: 0.0)
    for engine in (both.engine, both.plain):
        engine.publish(messages)
    for one in subscriptions:
        seen = {
            (m.message_id, one.id, m.score) for m in both.plain.preview(unscoped(one), messages)
        }
        found = {(m.message_id, one.id, m.score) for m in both.engine.preview(one, messages)}
        assert found == within_scopes(seen, [one], messages)
    both.engine.subscribe(subscriptions)
    both.plain.subscribe([unscoped(one) for one in subscriptions])
    begun = within_scopes(updates(both.plain), subscriptions, messages)
    assert len(begun) > 100
    assert updates(both.engine) == begun


def updates(engine: Engine) -> Pairs:
    rows = engine.advance().to_pylist()
    assert {row["sign"] for row in rows} <= {1}
    return {(row["message_id"], row["subscription_id"], row["score"]) for row in rows}


def test_a_journal_replays_scopes(tmp_path: Path) -> None:
    rng = random.Random(4)
    subscriptions = [subscription(rng, id) for id in range(60)]
    messages = [message(rng, id, time=0.0, ttl_s=1e9) for id in range(40)]
    with Engine.open(tmp_path / "own", journal=True, clock=lambda: 0.0) as engine:
        engine.publish(messages[:20])
        engine.publish_table(message_table(messages[20:]))
        engine.subscribe(subscriptions[:30])
        engine.subscribe_table(table_of_subscriptions(subscriptions[30:]))
    plain = Engine(clock=lambda: 0.0)
    plain.publish(messages)
    for part in (subscriptions[:30], subscriptions[30:]):
        plain.subscribe([unscoped(one) for one in part])
    with Engine.open(tmp_path / "own", journal=True, clock=lambda: 0.0) as again:
        assert {s.id: s.scope for s in again} == {s.id: s.scope for s in subscriptions}
        begun = within_scopes(updates(plain), subscriptions, messages)
        assert len(begun) > 50
        assert updates(again) == begun


def test_no_text_of_a_user_is_a_scope() -> None:
    engine = Engine()
    engine.subscribe(
        [
            Subscription("a", HERE, scope="a"),
            Subscription("tea", HERE, ["tea"], scope="a"),
            Subscription("all", HERE),
        ]
    )
    for text in ("\x1da", "a", "\x1da tea", "tea\x1da", "\x1d a", "\x1e\x1da", "\x1f\x1da"):
        for fields in ({"text": text}, {"tokens": [text, "\x1da"]}):
            one = Message(1, (1, 1), **fields)
            assert found(engine, [one]) == {(1, "all", None)}
            several = [Message(id, (1, 1), **fields) for id in range(40)]
            table = message_table(several)
            assert {*engine.publish_table(table).matches["subscription_id"].to_pylist()} == {"all"}
    keyword = Subscription("k", HERE, ["\x1da"])
    assert keyword.clauses(str.split)[0].positive == ("a",)
    quoted = Subscription("q", HERE, expression='"\x1da" OR tea')
    engine.subscribe([keyword, quoted])
    assert found(engine, [Message(2, (1, 1), "none", scope="a")]) == {
        (2, "a", None),
        (2, "all", None),
    }
    assert engine.get("k").scope is None
    assert engine.get("q").scope is None


def test_tokens_of_a_tokenizer_are_no_scopes() -> None:
    def unescaped(text: str) -> list[str]:
        return text.replace("&#29;", "\x1d").split(" ")

    engine = Engine(tokenizer=unescaped)
    with pytest.raises(InvalidInput, match="U\\+001D"):
        engine.subscribe(Subscription("a", HERE, ["&#29;a"]))
    with pytest.raises(InvalidInput, match="U\\+001D"):
        engine.subscribe(Subscription("a", HERE, expression='"&#29;a"'))
    table = pa.table({"id": [1], "keywords": [["&#29;a"]], "geometry": ["POINT (1 1)"]})
    engine.subscribe_table(table)
    with pytest.raises(InvalidInput, match="U\\+001D"):
        engine.publish(Message(1, (1, 1), "&#29;a"))
    assert len(engine) == 0


def test_scopes_do_not_count_as_words() -> None:
    table = pa.table({"id": [1], "text": ["tea"], "lon": [0], "lat": [0], "scope": ["acme"]})
    rows = pa.Table.from_batches(count_batches(table.to_batches(), kind="messages", grid=Grid()))
    assert {*rows["token"].drop_null().to_pylist()} == {"tea"}
    subscriptions = pa.table({"id": [1], "geometry": ["POINT (0 0)"], "scope": ["acme"]})
    counted = count_batches(subscriptions.to_batches(), kind="subscriptions", grid=Grid())
    assert not pa.Table.from_batches(counted)["token"].drop_null().to_pylist()


def test_an_explanation_tells_of_another_scope() -> None:
    engine = Engine()
    near = Proximity(0.5, 0.1, max_distance_m=1000)
    engine.subscribe(
        [
            Subscription("boolean", HERE, expression="tea NOT milk OR jam", scope="a"),
            Subscription("everything", HERE, scope="a"),
            Subscription("ranked", (1, 1), ["tea"], ranking=near, scope="a"),
            Subscription("condition", (1, 1), ["tea"], "NOT milk", ranking=near, scope="a"),
            Subscription("any", HERE, ["tea"]),
        ]
    )
    for scope in ("a", "b", None):
        one = Message(1, (1, 1), "Tea", scope=scope)
        matching = {pair[1] for pair in found(engine, [one])}
        for id in ("boolean", "everything", "ranked", "condition", "any"):
            why = engine.explain(one, id)
            assert why.matches == (id in matching) == (scope == "a" or id == "any")
            assert why.scope is (None if id == "any" else scope == "a")
            said = "The message is of another scope." in why.reasons
            assert said == (why.scope is False)
            assert "\x1d" not in str(why)
            assert "\x1d" not in str(why.to_dict())
    why = engine.explain(Message(1, (1, 1), "Tea", scope="b"), "boolean")
    assert why.reasons == (
        "The message is inside the region.",
        "It has all required words (the closest of 2 clauses): tea.",
        "The message is of another scope.",
    )


def test_scopes_of_tables_may_be_integers_and_must_be_names() -> None:
    square = "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))"
    table = pa.table({"id": [1, 2, 3], "geometry": [square] * 3, "scope": ["7", "", "b"]})
    subscriptions, rejects = read_subscriptions(table, vocabulary := Vocabulary())
    assert subscriptions.ids.tolist() == [1, 3]
    assert rejects.field == ("scope",)
    assert vocabulary.tokens().to_pylist() == ["\x1d7", "\x1db"]
    for rows in (2, 40):
        columns = {
            "id": range(rows),
            "text": ["x"] * rows,
            "lon": [1.0] * rows,
            "lat": [1.0] * rows,
        }
        numbers = pa.table({**columns, "scope": pa.array([7, None] * (rows // 2), pa.int64())})
        batch, rejects = read_messages(numbers, now_us=0)
        assert not len(rejects)
        assert batch.number(vocabulary).token.tolist() == [0] * (rows // 2)
        wrong = pa.table({**columns, "scope": ["", "a"] * (rows // 2)})
        batch, rejects = read_messages(wrong, now_us=0)
        assert {*rejects.field} == {"scope"}
        assert len(batch) == rows // 2


@pytest.mark.parametrize("scope", ["", "\0", 7, "\ud800"])
def test_a_scope_is_a_name(scope: Any) -> None:
    with pytest.raises(InvalidInput, match="scope"):
        Subscription("a", HERE, scope=scope)
    with pytest.raises(InvalidInput, match="scope"):
        Message("a", (0, 0), "", scope=scope)


@pytest.mark.parametrize(
    "kind", [pa.null(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
@pytest.mark.parametrize("rows", [0, 4, 40])
def test_scopes_in_columns_of_other_types(kind: pa.DataType, rows: int) -> None:
    names = [None] * rows if kind == pa.null() else ["a", None] * (rows // 2)
    scopes = pa.nulls(rows) if kind == pa.null() else pa.array(names, pa.string()).cast(kind)
    columns = {"id": pa.array(range(rows), pa.int64()), "scope": scopes}
    places = {"lon": pa.array([1.0] * rows), "lat": pa.array([1.0] * rows)}
    table = pa.table({**columns, **places, "text": pa.array(["tea"] * rows, pa.string())})
    engine = Engine()
    wanted = table.append_column("radius_m", pa.array([1.0] * rows))
    engine.subscribe_table(wanted.drop_columns("text"))
    assert [engine.get(id).scope for id in range(rows)] == names
    published = engine.publish_table(table)
    assert (published.messages, len(published.rejects)) == (rows, 0)
    pairs = zip(*published.matches.select([0, 1]).to_pydict().values(), strict=True)
    every = {(m, s) for m in range(rows) for s in range(rows)}
    assert {*pairs} == {(m, s) for m, s in every if names[s] in (None, names[m])}
