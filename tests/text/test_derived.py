"""Phrases and beginnings of words against plain Python."""

from __future__ import annotations

import pickle
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.compiled.jit import JIT
from nearcast.model.derived import phrase_token, prefix_token, readable
from nearcast.testing.expressions import WORDS, draw_text, draw_texts, is_true
from nearcast.text import Vocabulary, Words

seeds = st.integers(0, 1 << 32)
EXAMPLES = 150 if JIT else 15


def draw_tokens(rng: Random, most: int = 12) -> list[str]:
    tokens = []
    for _ in range(rng.randint(1, most)):
        kind = rng.randrange(3)
        if kind == 0:
            tokens.append(phrase_token(rng.choices(WORDS, k=rng.randint(1, 4))))
        else:
            tokens.append(prefix_token(rng.choice(WORDS)) if kind == 1 else rng.choice(WORDS))
    return tokens


def meaning(token: str) -> tuple[str, str | list[str]]:
    if token.startswith("\x1e"):
        return "prefix", token[1:]
    return ("phrase", token[1:].split("\x1f")) if token.startswith("\x1f") else ("word", token)


def found(words: Words, vocabulary: Vocabulary) -> list[set[str]]:
    column = words.number(vocabulary)
    rows = np.split(column.token, column.token_start[1:-1])
    for row in rows:
        assert row.tolist() == sorted({*row.tolist()})
    return [{vocabulary.token(token) for token in row.tolist()} for row in rows]


def expected(texts: list[list[list[str]]], vocabulary: Vocabulary) -> list[set[str]]:
    tokens = vocabulary.tokens().to_pylist()
    return [{t for t in tokens if is_true(meaning(t), message)} for message in texts]


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(seed=seeds)
def test_messages_have_the_tokens_that_are_true_of_them(seed: int) -> None:
    rng = Random(seed)
    vocabulary = Vocabulary(draw_tokens(rng))
    drawn = [draw_text(rng) for _ in range(5)]
    texts = [text for text, _ in drawn]
    truth = expected([[words] for _, words in drawn], vocabulary)
    assert found(Words.of_texts(texts), vocabulary) == truth
    assert found(Words.read(pa.array(texts)), vocabulary) == truth
    assert found(Words.of_texts(texts).take(np.array([3, 0])), vocabulary) == [truth[3], truth[0]]


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(seed=seeds)
def test_no_phrase_goes_across_texts(seed: int) -> None:
    rng = Random(seed)
    vocabulary = Vocabulary(draw_tokens(rng))
    drawn = [draw_texts(rng) for _ in range(5)]
    lists = [texts for texts, _ in drawn]
    truth = expected([words for _, words in drawn], vocabulary)
    column = Words.read(pa.array(lists, pa.list_(pa.string())))
    assert found(column, vocabulary) == truth
    start = np.cumsum([0, *map(len, lists)])
    grouped = Words.of_texts([text for texts in lists for text in texts]).group(start)
    assert found(grouped, vocabulary) == truth
    both = Words.concatenate([Words.of_texts(["a ab"]), grouped])
    assert found(both, vocabulary) == [*expected([[["a", "ab"]]], vocabulary), *truth]
    assert found(both.take(np.array([2, 0])), vocabulary)[0] == truth[1]
    # Living messages keep the order of their words as numbers of another vocabulary.
    other = Vocabulary()
    both.number(other, add=True)
    again = Words.of_sequences(both.sequence(other), other)
    assert found(again, vocabulary) == found(both, vocabulary)


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(seed=seeds)
def test_a_vocabulary_that_grows_is_pickled_and_loaded(seed: int) -> None:
    rng = Random(seed)
    drawn = [draw_text(rng) for _ in range(4)]
    texts, words = [text for text, _ in drawn], [[words] for _, words in drawn]
    vocabulary = Vocabulary()
    for _ in range(4):
        tokens = draw_tokens(rng)
        if rng.random() < 0.5:
            assert vocabulary.add_few(tokens) == vocabulary.ids_of(tokens).tolist()
        else:
            assert vocabulary.add(tokens).tolist() == vocabulary.ids_of(tokens).tolist()
        for one in (vocabulary, pickle.loads(pickle.dumps(vocabulary))):
            assert found(Words.of_texts(texts), one) == expected(words, one)
        stored = {name: array.copy() for name, array in vocabulary.arrays().items()}
        loaded = Vocabulary.from_arrays(stored)
        loaded.add(draw_tokens(rng))
        assert found(Words.of_texts(texts), loaded) == expected(words, loaded)


def test_subscriptions_get_no_derived_tokens() -> None:
    vocabulary = Vocabulary(["\x1fold\x1ftown", "\x1eo"])
    column = Words.of_texts(["old town"]).number(vocabulary, add=True)
    assert [vocabulary.token(t) for t in column.token.tolist()] == ["old", "town"]


def test_more_derived_tokens_than_words() -> None:
    words = [f"w{i}" for i in range(32)]
    phrases = [phrase_token(words[i : j + 1]) for i in range(32) for j in range(i + 1, 32)]
    prefixes = [prefix_token("x" * n) for n in range(1, 200)]
    vocabulary = Vocabulary([*phrases, *prefixes])
    message = " ".join([*words, "x" * 150])
    assert found(Words.of_texts([message]), vocabulary) == [
        {*words, *phrases, *(prefix_token("x" * n) for n in range(1, 151))}
    ]


def test_memory_is_counted() -> None:
    plain, phrases = Vocabulary(), Vocabulary()
    pairs = [(f"a{i}", f"b{i}") for i in range(2000)]
    plain.add([word for pair in pairs for word in pair])
    phrases.add([word for pair in pairs for word in pair])
    phrases.add([phrase_token(pair) for pair in pairs])
    assert plain.derived is None
    assert phrases.nbytes > plain.nbytes + 2000 * 12


def test_words_that_are_no_words_of_a_phrase() -> None:
    # Damaged folders: a phrase without words must not match an empty message, or crash.
    for token in ("\x1f", "\x1f\x1f", "\x1fa\x1f", "\x1e"):
        vocabulary = Vocabulary([token, "a"])
        assert found(Words.of_texts(["a", "", "a a"]), vocabulary)[1] == set()


@pytest.mark.parametrize("size", [62, 63, 64, 65, 300])
def test_long_beginnings(size: int) -> None:
    vocabulary = Vocabulary([prefix_token("é" * size), prefix_token("x" * size)])
    texts = ["é" * size, "é" * (size - 1), "x" * size + "y", "x" * (size - 1) + "y"]
    assert [len(tokens) for tokens in found(Words.of_texts(texts), vocabulary)] == [1, 0, 1, 0]


def test_readable() -> None:
    assert [readable(t) for t in ("\x1fold\x1ftown", "\x1eflo", "x")] == ['"old town"', "flo*", "x"]
