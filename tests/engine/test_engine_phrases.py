"""Phrases, beginnings of words and tokenizers in an engine: written, merged, saved and moved."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast import Engine, Message, Overlap, Rect, Subscription
from nearcast.errors import ExpressionError, ExpressionWarning, InvalidInput
from nearcast.model.checks import stored_before
from nearcast.testing.expressions import draw_expression, draw_text, is_true, write

if TYPE_CHECKING:
    from pathlib import Path

HERE = Rect(0, 0, 1, 1)


def matched(engine: Engine, *texts: str) -> list[set[Any]]:
    messages = [Message(number, (0, 0), text) for number, text in enumerate(texts)]
    found: list[set[Any]] = [set() for _ in texts]
    for match in engine.publish(messages):
        found[match.message_id].add(match.subscription_id)  # type: ignore[index]
    return found


def engine_with(*expressions: str, **more: Any) -> Engine:
    engine = Engine(**more)
    engine.subscribe([Subscription(e, HERE, expression=e) for e in expressions])
    return engine


def test_what_main_changed_silently() -> None:
    engine = engine_with('"old town"', "flood*", "tea NOT flood*", "wi-fi")
    assert matched(engine, "Old town!", "town, old", "FLOODED", "tea", "tea floods", "fi wi") == [
        {'"old town"'},
        set(),
        {"flood*"},
        {"tea NOT flood*"},
        {"flood*"},
        set(),
    ]
    with pytest.raises(ExpressionError, match="would be ignored"):
        engine.subscribe(Subscription("c", HERE, expression="C++"))
    with pytest.raises(InvalidInput, match="would be ignored"):
        engine.subscribe(Subscription("c", HERE, ["C#"]))
    ranked = Subscription("r", HERE, ["flood*"], ranking=Overlap(0.5, 0.5))
    with pytest.raises(InvalidInput, match="score whole words"):
        engine.subscribe(ranked)


@pytest.mark.parametrize("saves", [False, True])
def test_merges_churn_and_restarts(saves: bool, tmp_path: Path) -> None:
    """Thousands of subscriptions in small writes; most die, so the vocabulary is replaced."""
    rng = Random(11)
    engine, trees = Engine(), {}
    for number in range(4000):
        tree = draw_expression(rng, 1)
        # Phrases that nobody else has, so that there is something to forget.
        tree = ("or", [tree, ("phrase", [f"x{number}", f"y{number}"])])
        try:
            engine.subscribe(Subscription(number, HERE, expression=write(tree)))
        except ExpressionError as error:
            if "only excludes" not in error.problem:
                raise
            continue
        trees[number] = tree
    dead = [number for number in trees if number % 10]
    before = engine.stats().tokens
    engine.unsubscribe(dead)
    for number in dead:
        del trees[number]
    engine.settle()
    assert engine.stats().tokens < before / 2
    if saves:
        engine.save(tmp_path / "a")
        engine = Engine.open(tmp_path / "a")
    drawn = [draw_text(rng) for _ in range(60)]
    drawn += [(f"x{n} y{n}", [f"x{n}", f"y{n}"]) for n in (0, 1, 10, 20)]
    drawn += [("y10 x10", ["y10", "x10"])]
    expected = [{n for n, tree in trees.items() if is_true(tree, [said])} for _, said in drawn]
    assert matched(engine, *(text for text, _ in drawn)) == expected
    assert {s.id for s in engine} == {*trees}
    # What comes back means the same.
    again = Engine()
    again.subscribe(engine)
    assert matched(again, *(text for text, _ in drawn)) == expected


def test_restored_subscriptions() -> None:
    engine = engine_with('"old town" flood*', "tea OR NOT (x OR NOT wi-fi)", '"AND"')
    assert [s.expression for s in engine][:2] == [
        'flood* AND "old town"',
        '"wi fi" NOT x OR tea',
    ]
    engine.subscribe(Subscription("k", HERE, ["flood*", "tea"]))
    assert (engine.get("k").keywords, engine.get("k").expression) == (None, "flood* AND tea")


def test_explanations() -> None:
    engine = engine_with('"old town" flood* NOT "dry day"')
    [subscription] = engine
    told = engine.explain(Message(1, (0, 0), "Old town, flooded"), subscription.id)
    assert told.matches
    assert [w.word for w in told.shared] == ["flood*", '"old town"']
    told = engine.explain(Message(1, (0, 0), "Town, old: dry day"), subscription.id)
    assert [w.word for w in told.missing] == ["flood*", '"old town"']
    assert told.forbidden == ('"dry day"',)
    assert 'It lacks required words: flood*, "old town".' in told.reasons
    assert 'It has excluded words: "dry day".' in told.reasons


def test_living_messages_meet_later_phrases() -> None:
    engine = Engine(clock=lambda: 100.0)
    texts = ["the old town floods", "town old", "old", "floor"]
    engine.publish([Message(n, (0, 0), text, ttl_s=50) for n, text in enumerate(texts)])
    engine.publish(Message(9, (0, 0), tokens=["old", "town"], ttl_s=50))
    later = [Subscription(e, HERE, expression=e) for e in ('"old town"', "flo*", 'old NOT "old t"')]
    engine.subscribe(later)
    begun = engine.advance(100).select(["subscription_id", "message_id", "sign"]).to_pylist()
    assert {(u["subscription_id"], u["message_id"], u["sign"]) for u in begun} == {
        ('"old town"', 0, 1),
        ("flo*", 0, 1),
        ("flo*", 3, 1),
        *(('old NOT "old t"', n, 1) for n in (0, 1, 2, 9)),
    }
    ended = engine.move('"old town"', Rect(5, 5, 6, 6))
    assert [(u.message_id, u.sign) for u in ended] == [(0, -1)]
    moves = pa.table(
        {
            "subscription_id": ['"old town"', "flo*"],
            "time": pa.array([100.0, 100.0]),
            **{name: pa.array([0, 0]) for name in ("west", "south")},
            **{name: pa.array([1, 1]) for name in ("east", "north")},
        }
    )
    moved = engine.move_table(moves).updates.to_pylist()
    assert [(u["subscription_id"], u["message_id"], u["sign"]) for u in moved] == [
        ('"old town"', 0, 1)
    ]


@pytest.mark.parametrize("name", ["stem:english", "cjk", "builtins:str.split"])
def test_named_tokenizers_are_saved(name: str, tmp_path: Path) -> None:
    engine = engine_with("flooding", '"Old towns"', "東京都", tokenizer=name)
    texts = ["flooded", "an old town", "東京都の", "flooding", "Old towns", "京都東京"]
    expected = {
        "stem:english": [{"flooding"}, {'"Old towns"'}, set(), {"flooding"}, {'"Old towns"'}],
        "cjk": [set(), set(), {"東京都"}, {"flooding"}, {'"Old towns"'}],
        "builtins:str.split": [set(), set(), set(), {"flooding"}, {'"Old towns"'}],
    }
    engine.save(tmp_path / "a")
    for opened in (
        engine,
        Engine.open(tmp_path / "a"),
        Engine.open(tmp_path / "a", tokenizer=name),
    ):
        assert matched(opened, *texts) == [*expected[name], set()]


def test_operators_in_lower_case_give_a_warning(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path / "j", journal=True)
    asked = Subscription("a", HERE, expression="tea or milk")
    with pytest.warns(ExpressionWarning, match="'tea or milk': or is a word here") as caught:
        engine.subscribe(asked)
    assert caught[0].filename == __file__
    with pytest.warns(ExpressionWarning, match="or is a word here"):
        engine.replace(asked)
    table = {"id": ["b", "c"], "expression": ["tea and milk", "x not y"]}
    place = {"lon": [0.0] * 2, "lat": [0.0] * 2, "radius_m": [9.0] * 2}
    with pytest.warns(ExpressionWarning, match="and is a word here") as caught:
        engine.subscribe_table(pa.table({**table, **place}))
    assert [one.filename for one in caught] == [__file__]
    engine.close()
    engine = Engine.open(tmp_path / "j", journal=True)  # no warning: nobody wrote it now
    assert matched(engine, "tea milk", "tea or milk") == [set(), {"a"}]
    engine.close()


def test_a_journal_keeps_expressions_that_are_refused_now(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [2], "expression": ["tea,milk"], "lon": [0.0], "lat": [0.0], "radius_m": [9.0]}
    )
    engine = Engine.open(tmp_path / "j", journal=True)
    with stored_before():  # as an older version did
        engine.subscribe(Subscription(1, HERE, expression="tea/milk"))
        assert not len(engine.subscribe_table(table))
    engine.close()
    engine = Engine.open(tmp_path / "j", journal=True)
    assert matched(engine, "tea milk", "milk tea") == [{1, 2}, set()]
    [reason] = engine.subscribe_table(table.set_column(0, "id", pa.array([3]))).reason
    assert ", between words" in reason
    engine.checkpoint()
    engine.close()
    engine = Engine.open(tmp_path / "j", journal=True)
    assert matched(engine, "tea milk", "milk tea") == [{1, 2}, set()]
    engine.close()


STEMMED = [
    ("stem:german", "Überschw*", "Die überschwemmten Keller", "Über Schweden"),
    ("stem:german", "Häuser*", "drei HÄUSERN", "ein Haus"),
    ("stem:english", "running*", "still running", "a runner"),
    ("stem:spanish", "niño*", "los NIÑOS", "la nina"),
]


@pytest.mark.parametrize(("name", "expression", "found", "other"), STEMMED)
def test_beginnings_of_words_that_are_stemmed(
    name: str, expression: str, found: str, other: str, tmp_path: Path
) -> None:
    """A beginning is compared with the words of a message, not with their stems."""
    asked = [
        Subscription("plain", HERE, expression=expression),
        Subscription("not", HERE, expression=f"{found} NOT {expression}"),
        Subscription("listed", HERE, [expression]),
        Subscription("scoped", HERE, expression=expression, scope="a"),
        Subscription("ranked", HERE, found, ranking=Overlap(0.5, 0.1), expression=expression),
    ]
    engine = Engine(tokenizer=name, clock=lambda: 100.0)
    engine.subscribe(asked)
    engine.save(tmp_path / "a")
    wanted = {"plain", "listed", "ranked"}
    for one in (engine, Engine.open(tmp_path / "a", clock=lambda: 100.0)):
        assert matched(one, found, other) == [wanted, set()]
        scoped = [Message(n, (0, 0), t, scope="a") for n, t in enumerate([found, other])]
        pairs = {(m.message_id, m.subscription_id) for m in one.publish(scoped)}
        assert pairs == {(0, id) for id in (*wanted, "scoped")}
        texts = pa.table({"id": [0, 1], "text": [found, other], "lon": [0.0, 0], "lat": [0.0, 0]})
        assert set(one.publish_table(texts).matches["subscription_id"].to_pylist()) == wanted
        lists = texts.drop_columns("text").add_column(
            0, "tokens", pa.array([[other, found], [other]])
        )
        assert set(one.publish_table(lists).matches["subscription_id"].to_pylist()) == wanted
        assert one.explain(Message(0, (0, 0), found), "plain").matches
        assert one.explain(Message(0, (0, 0), found), "not").forbidden


@pytest.mark.parametrize(("name", "expression", "found", "other"), STEMMED)
def test_living_messages_keep_words_that_are_stemmed(
    name: str, expression: str, found: str, other: str, tmp_path: Path
) -> None:
    engine = Engine(tokenizer=name, clock=lambda: 100.0)
    texts = [found, other, f"{other} {found}"]
    engine.publish([Message(n, (0, 0), text, ttl_s=50) for n, text in enumerate(texts)])
    engine.publish(Message(3, (0, 0), tokens=[other, found], ttl_s=50, scope="a"))
    engine.save(tmp_path / "a")
    for one in (engine, Engine.open(tmp_path / "a", clock=lambda: 100.0)):
        one.subscribe(Subscription("later", HERE, expression=expression))
        begun = one.advance(100)["message_id"].to_pylist()
        assert sorted(begun) == [0, 2, 3]
        ended = one.move("later", Rect(5, 5, 6, 6))
        assert sorted(u.message_id for u in ended) == [0, 2, 3]
        one._live._renew_vocabulary()
        back = one.move("later", HERE)
        assert sorted(u.message_id for u in back) == [0, 2, 3]


def test_phrases_while_others_publish() -> None:
    """Readers see a phrase from the moment that its subscription is registered."""
    engine, wrong = Engine(), []
    registered = -1

    def publish() -> None:
        while registered < 3000:
            known = registered
            text = " . ".join(f"a{n} b{n} pre{n}x" for n in range(max(0, known - 20), known + 1))
            [found] = matched(engine, text)
            ids = {m for m in found if isinstance(m, int)}
            if not ids.issuperset(range(max(0, known - 20), known + 1)):
                wrong.append((known, ids))

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(3001):
        expression = f'"a{number} b{number}"' if number % 2 else f"pre{number}*"
        engine.subscribe(Subscription(number, HERE, expression=expression))
        registered = number
    for thread in threads:
        thread.join()
    assert not wrong
