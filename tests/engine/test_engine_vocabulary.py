"""Words that nobody uses any more leave the vocabulary, and nothing else changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.engine import Engine, upkeep
from nearcast.errors import DuplicateId
from nearcast.intake import subscriptions_from
from nearcast.model import Message, Rect, Subscription, Update
from nearcast.segments import Part, trimmed
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

HERE = Rect(0, 0, 1, 1)


def word_subscriptions(first: int, count: int) -> list[Subscription]:
    return [
        Subscription(i, HERE, [f"word{i}", f"pair{i // 2}"]) for i in range(first, first + count)
    ]


def received(engine: Engine, text: str) -> set[Any]:
    return {match.subscription_id for match in engine.publish(Message("m", (0.5, 0.5), text))}


def test_words_that_came_and_went_are_dropped_by_merging() -> None:
    engine = Engine()
    engine.subscribe(Subscription("stays", HERE, ["tea"]))
    engine.subscribe(word_subscriptions(0, 4000))
    engine.unsubscribe(range(4000))
    assert engine.stats().tokens > 4000
    engine.settle()
    assert engine.stats().tokens < 1100
    engine.subscribe(word_subscriptions(4000, 3))
    assert received(engine, "tea word4001 pair2000") == {"stays", 4001}


def test_words_of_refused_subscriptions_are_dropped_by_merging() -> None:
    engine = Engine()
    engine.subscribe(Subscription("a", HERE, ["tea"]))
    for number in range(1500):
        with pytest.raises(DuplicateId):
            engine.subscribe(Subscription("a", HERE, [f"refused{number}"]))
    engine.subscribe(Subscription("b", HERE, ["milk"]))
    engine.settle()
    assert engine.stats().tokens == 2
    assert received(engine, "tea milk refused7") == {"a", "b"}


def test_segments_with_different_vocabularies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A subscription that was written under the old vocabulary matches, moves and is saved."""
    monkeypatch.setattr(upkeep, "_MIN_UNUSED_TOKENS", 0)
    engine = Engine(clock=lambda: 50.0)
    engine._store.worker.stop()  # merges happen only where this test wants them
    engine.subscribe(word_subscriptions(0, 600))
    engine.unsubscribe(range(500))
    old = engine._store.vocabulary
    engine.publish(Message("late", (5.5, 5.5), "word550 pair275", ttl_s=60))
    engine._store._buffer = None
    engine.subscribe(Subscription("buffered", HERE, ["word550"]))
    engine._store._merge(lambda sizes: (0,))
    assert engine._store.vocabulary is not old
    vocabularies = {id(segment.vocabulary) for segment in engine._store.state.segments}
    assert len(vocabularies) == 2
    assert received(engine, "word550 pair275 word3") == {550, "buffered"}
    assert engine.get("buffered").keywords == ("word550",)
    elsewhere = Rect(5, 5, 6, 6)
    assert engine.move("buffered", elsewhere) == [Update(50.0, "buffered", "late", 1)]
    assert engine.move(550, elsewhere) == [Update(50.0, 550, "late", 1)]
    engine.subscribe(Subscription("new", HERE, ["word551"]))
    assert received(engine, "word551 pair275") == {551, "new"}
    engine.save(tmp_path / "engine")
    opened = Engine.open(tmp_path / "engine", clock=lambda: 50.0)
    assert sorted(map(str, received(opened, "word551 pair275"))) == ["551", "new"]
    assert [s.keywords for s in opened if s.id == "buffered"] == [("word550",)]


@pytest.mark.parametrize("count", [3, 600])
def test_a_write_that_was_read_under_the_old_vocabulary(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Merging may replace the vocabulary while subscriptions are being read, few or many."""
    monkeypatch.setattr(upkeep, "_MIN_UNUSED_TOKENS", 0)
    engine = Engine()
    engine._store.worker.stop()
    engine.subscribe(word_subscriptions(0, 25_000))
    engine.unsubscribe(range(15_000))  # what is left is too large to be merged with a few more
    old = engine._store.vocabulary
    read = subscriptions_from(word_subscriptions(50_000, count), old)
    engine.settle()
    assert engine._store.vocabulary is not old
    engine._store.add(Part(read, old), skip=False)
    text = "word50001 pair25000 word20001 pair10000"
    assert received(engine, text) == {50_001, 20_001}


def test_a_failed_unsubscribe_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at once nor with the next write."""
    engine = Engine()
    engine.subscribe([Subscription("a", HERE, ["tea"]), Subscription("b", HERE, ["tea"])])

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(engine._store._directory, "release", fail)
        with pytest.raises(OSError, match="no space"):
            engine.unsubscribe("a")
    engine.subscribe(Subscription("c", HERE, ["tea"]))
    assert received(engine, "tea") == {"a", "b", "c"}
    engine.unsubscribe("a")
    assert received(engine, "tea") == {"b", "c"}


def test_a_vocabulary_may_grow_while_its_tokens_are_renumbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others write while segments are merged in the background."""
    vocabulary, tokens = Vocabulary(), Vocabulary.tokens
    given = [Subscription(i, Rect(0, 0, 1, 1), [f"word{i}"]) for i in range(3)]
    part = Part(subscriptions_from(given, vocabulary).take(np.arange(2)), vocabulary)

    def grown(self: Vocabulary) -> pa.LargeStringArray:
        if self is vocabulary:
            self.add(["meanwhile"])
        return tokens(self)

    monkeypatch.setattr(Vocabulary, "tokens", grown)
    assert trimmed(part).vocabulary.tokens().to_pylist() == ["word0", "word1"]
