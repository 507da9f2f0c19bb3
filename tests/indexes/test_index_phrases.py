"""Phrases and beginnings of words on every index, against plain Python.

Derived tokens are tokens like others, so an index needs nothing for them. This makes sure of that.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import Scoring
from nearcast.compiled.jit import JIT
from nearcast.errors import ExpressionError
from nearcast.intake import messages_from, subscriptions_from
from nearcast.model import Message, Overlap, Point, Proximity, Rect, Subscription
from nearcast.segments import Part, Scorer, Segment, deliver, unite
from nearcast.testing.expressions import WORDS, draw_expression, draw_text, is_true, write
from nearcast.text import Vocabulary, words

HERE = Rect(0, 0, 9, 9)
ROUNDS = 6 if JIT else 1

Drawn = list[tuple[Any, Subscription]]


def draw_subscriptions(rng: Random, count: int, **more: Any) -> Drawn:
    """Return expressions as trees, and subscriptions with them."""
    drawn: Drawn = []
    while len(drawn) < count:
        tree = draw_expression(rng)
        west, south = rng.randint(0, 4), rng.randint(0, 4)
        region = Rect(west, south, west + rng.randint(1, 5), south + rng.randint(1, 5))
        given = {"region": region, **more}
        try:
            one = Subscription(len(drawn), expression=write(tree), **given)
            one.condition(words) if one.ranking else one.clauses(words)
        except ExpressionError as error:
            if "only excludes" in error.problem or "never be true" in error.problem:
                continue
            raise
        drawn.append((tree, one))
    return drawn


def draw_messages(rng: Random, count: int) -> tuple[list[list[list[str]]], list[Message]]:
    texts, messages = [], []
    for number in range(count):
        text, said = draw_text(rng)
        texts.append([said])
        messages.append(Message(number, Point(rng.randint(0, 9), rng.randint(0, 9)), text))
    return texts, messages


def inside(region: Any, place: Any) -> bool:
    return bool(
        region.west <= place.lon <= region.east and region.south <= place.lat <= region.north
    )


def found(segments: list[Segment], messages: list[Message]) -> dict[tuple[int, int], float]:
    delivered = deliver(segments, messages_from(messages, now_us=0))
    pairs = zip(delivered.message.tolist(), delivered.subscription.tolist(), strict=True)
    return dict(zip(pairs, delivered.scores(), strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", indexes.names("boolean"))
def test_boolean(name: str) -> None:
    matched = 0
    for seed in range(ROUNDS):
        rng = Random(seed)
        drawn = draw_subscriptions(rng, 120)
        texts, messages = draw_messages(rng, 60)
        vocabulary = Vocabulary()
        columns = subscriptions_from([one for _, one in drawn], vocabulary)
        segment = Segment.build(columns, indexes.create(name), vocabulary)
        expected = {
            (m, s)
            for s, (tree, one) in enumerate(drawn)
            for m, message in enumerate(messages)
            if inside(one.region, message.place) and is_true(tree, texts[m])
        }
        assert {*found([segment], messages)} == expected
        matched += len(expected)
    assert matched > 100 * ROUNDS


@pytest.mark.parametrize("similarity", ["containment", "jaccard"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for kind in ("proximity", "overlap") for name in indexes.names(kind)],
)
def test_conditions_of_ranked_subscriptions(name: str, kind: str, similarity: str) -> None:
    """Derived tokens decide about conditions, and change no bit of a score."""
    rng = Random(7)
    by_distance = kind == "proximity"
    more = {
        "region": Point(4, 4) if by_distance else HERE,
        "keywords": ["a", "bab"],
        "ranking": Proximity(0.7, 0.3, 2_000_000) if by_distance else Overlap(0.3, 0.3),
    }
    drawn = draw_subscriptions(rng, 60, **more)
    texts, messages = draw_messages(rng, 60)
    without = [
        Subscription(one.id, one.region, one.keywords, ranking=one.ranking) for _, one in drawn
    ]
    scores = []
    for given in ([one for _, one in drawn], without):
        vocabulary = Vocabulary()
        columns = subscriptions_from(given, vocabulary)
        scorer = Scorer.counted(Part(columns, vocabulary), Scoring(similarity, "geodesic"))
        segment = Segment.build(columns, indexes.create(name), vocabulary, scorer)
        scores.append(found([segment], messages))
    expected = {
        (m, s): score for (m, s), score in scores[1].items() if is_true(drawn[s][0], texts[m])
    }
    assert scores[0] == expected
    assert 0 < len(expected) < len(scores[1])


def test_parts_with_other_numbers() -> None:
    """Joining parts renumbers tokens; the words of phrases come along."""
    rng = Random(3)
    drawn = draw_subscriptions(rng, 80)
    texts, messages = draw_messages(rng, 60)
    parts = []
    for first in range(0, 80, 20):
        vocabulary = Vocabulary(rng.sample(WORDS, 3))
        some = [one for _, one in drawn[first : first + 20]]
        parts.append(Part(subscriptions_from(some, vocabulary), vocabulary))
    part = unite(parts)
    segment = Segment.build(part.subscriptions, indexes.create(), part.vocabulary)
    assert {*found([segment], messages)} == {
        (m, s)
        for s, (tree, one) in enumerate(drawn)
        for m, message in enumerate(messages)
        if inside(one.region, message.place) and is_true(tree, texts[m])
    }
    used = np.unique(part.subscriptions.clauses.token)
    assert part.vocabulary.is_derived(used).any()
