"""The frozen table of weights."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import StorageError
from nearcast.text import Vocabulary, Weights, Words

WORDS = ["tea", "cake", "milk", "jam", "hot", "Über", "a" * 40]
texts = st.lists(st.sampled_from([*WORDS, "never", "heard", "straße"]), max_size=12).map(" ".join)


def table(tokens: list[str], frequency: list[int], subscriptions: int) -> Weights:
    return Weights(Vocabulary(tokens), frequency, subscriptions=subscriptions, version=1)


def by_hand(text: str, counts: dict[str, int], subscriptions: int) -> float:
    said = {word.casefold() for word in text.split()}
    return sum(math.log(1 + subscriptions / max(1, counts.get(word, 0))) for word in said)


@given(said=st.lists(texts, max_size=5), counts=st.lists(st.integers(0, 9), min_size=5, max_size=5))
def test_texts_weigh_what_their_distinct_words_weigh(said: list[str], counts: list[int]) -> None:
    names = ["tea", "cake", "milk", "jam", "über"]
    found = table(names, counts, 10).weigh(Words.of_texts(said), by_rarity=True)
    frequency = dict(zip(names, counts, strict=True))
    assert found.tolist() == pytest.approx([by_hand(text, frequency, 10) for text in said])
    number = table(names, counts, 10).weigh(Words.of_texts(said), by_rarity=False)
    assert number.tolist() == [len({w.casefold() for w in text.split()}) for text in said]


@given(said=texts, order=st.permutations(list(range(7))), later=st.booleans())
def test_numbers_of_tokens_change_no_bit(said: str, order: list[int], later: bool) -> None:
    names, counts = [w.casefold() for w in WORDS], [1, 2, 3, 4, 5, 6, 7]
    one = table(names, counts, 9)
    other = table([names[i] for i in order], [counts[i] for i in order], 9)
    if later:  # words that are known to the vocabulary, but not to the table
        other.vocabulary.add(["never", "heard"])
    words = Words.of_texts([said])
    assert one.weigh(words, by_rarity=True) == other.weigh(words, by_rarity=True)


def test_an_empty_table_gives_every_token_the_weight_one() -> None:
    empty = Weights.empty()
    assert (empty.version, empty.unknown) == (0, 1.0)
    assert empty.of(Vocabulary(["tea"])).tolist() == [1.0]
    assert empty.weigh(Words.of_texts(["tea tea cake"]), by_rarity=True).tolist() == [2.0]


def test_other_vocabularies_are_looked_up_as_they_grow() -> None:
    weights, vocabulary = table(["tea", "cake"], [4, 1], 4), Vocabulary(["cake"])
    assert weights.of(vocabulary).tolist() == [math.log(5)]
    vocabulary.add(["milk", "tea"])
    assert weights.of(vocabulary).tolist() == pytest.approx([math.log(5), math.log(5), math.log(2)])
    assert weights.of(weights.vocabulary).tolist() == pytest.approx([math.log(2), math.log(5)])


def test_counts_made_apart_are_one_table_in_any_order() -> None:
    parts = [
        (Vocabulary(["tea", "cake"]), np.array([2, 1]), 2),
        (Vocabulary(["milk", "tea", "unused"]), np.array([1, 3, 0]), 4),
    ]
    one, other = Weights.combine(parts, version=3), Weights.combine(parts[::-1], version=3)
    assert one.vocabulary.tokens().to_pylist() == ["cake", "milk", "tea"]
    assert one.frequency.tolist() == [1, 1, 5]
    assert one.subscriptions == 6
    assert one.arrays()["weight"].tobytes() == other.arrays()["weight"].tobytes()


def test_round_trips_keep_every_bit() -> None:
    weights = table(["tea", "cake"], [3, 1], 7)
    copies = [
        Weights.from_arrays(weights.vocabulary, weights.arrays()),
        pickle.loads(pickle.dumps(weights)),
    ]
    for copy in copies:
        assert copy.of(Vocabulary(["tea"])).tobytes() == weights.of(Vocabulary(["tea"])).tobytes()
        assert (copy.version, copy.subscriptions) == (1, 7)


def test_arrays_that_do_not_fit_are_refused() -> None:
    weights = table(["tea", "cake"], [3, 1], 7)
    for name, wrong in (("weight", np.array([1.0])), ("weight", np.array([1.0, -1.0]))):
        with pytest.raises(StorageError, match="do not belong together"):
            Weights.from_arrays(weights.vocabulary, {**weights.arrays(), name: wrong})
    with pytest.raises(StorageError, match="do not belong together"):
        Weights.from_arrays(Vocabulary(["tea"]), weights.arrays())
