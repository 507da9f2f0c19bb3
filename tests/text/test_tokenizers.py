"""Tokenizers by name: what they give for columns and for single texts, and how they are stored."""

from __future__ import annotations

import pickle
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.text import (
    Tokenizer,
    Words,
    loadable_name,
    name_of,
    opened,
    stemming,
    tokenizer,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Stemmer = pytest.importorskip("Stemmer")

TEXT = st.text(st.sampled_from("abing sAB _1.,\n東京都ひカ한국é가𠀀"), max_size=20) | st.text(
    max_size=12
)


def tokens(read: Words) -> list[list[str]]:
    start, byte = read.keys.byte_start.tolist(), read.keys.byte.tobytes()
    found = [byte[a:b].decode() for a, b in pairwise(start)]
    rows = read.word_start.tolist()
    return [found[a:b] for a, b in pairwise(rows)]


@pytest.mark.parametrize("name", ["words", "cjk", "stem:english", "stem:german", "stem:turkish"])
@settings(max_examples=examples(60), deadline=None)
@given(texts=st.lists(st.none() | TEXT, max_size=6))
def test_columns_and_single_texts_agree(name: str, texts: list[str | None]) -> None:
    chosen = tokenizer(name)
    expected = [[] if text is None else list(chosen(text)) for text in texts]
    read = Words.read(pa.array(texts, pa.string()), chosen)
    assert tokens(read) == expected
    there = [text for text in texts if text is not None]
    few = Words.of_texts(there, chosen)
    assert tokens(few) == [list(chosen(text)) for text in there]
    # Hashes are those of the bytes, whatever way they came.
    plain = Words.of_texts([" ".join(row) for row in expected], str.split)
    assert read.keys.tag.tolist() == plain.keys.tag.tolist()


def test_stems_are_those_of_snowball() -> None:
    english = Stemmer.Stemmer("english")
    texts = ["Flooded streets and flooding", "universities, universal", "x" * 65 + "ing"]
    assert tokens(Words.of_texts(texts, tokenizer("stem:english"))) == [
        english.stemWords("flooded streets and flooding".split()),
        english.stemWords(["universities", "universal"]),
        ["x" * 65 + "ing"],
    ]


def test_each_distinct_word_is_stemmed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = stemming.Stems("english")
    stemmed: list[str] = []
    stem = chosen._stem

    def noted(new: Sequence[str]) -> list[str]:
        stemmed.extend(new)
        return stem(new)

    monkeypatch.setattr(chosen, "_stem", noted)
    texts = pa.array([f"word{i % 50} words" for i in range(1000)])
    for _ in range(3):
        Words.read(texts, chosen)
    assert len(stemmed) == len({*stemmed}) == 51
    monkeypatch.setattr(stemming, "MAX_WORDS", 10)
    read = Words.read(pa.array(["flooding words", "more"]), chosen)  # the table begins again
    assert tokens(read) == [["flood", "word"], ["more"]]


def test_stems_from_several_threads() -> None:
    chosen = stemming.Stems("english")
    wrong: list[Any] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            texts = [f"flood{i}ing" for i in rng.integers(0, 3000, 20).tolist()]
            if tokens(Words.of_texts(texts, chosen)) != [[t[:-3]] for t in texts]:
                wrong.append(texts)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bigrams() -> None:
    chosen = tokenizer("cjk")
    assert list(chosen("東京都 Tower東京1")) == ["東京", "京都", "tower", "東京", "1"]
    assert list(chosen("ｶﾞ猫。犬")) == ["ガ猫", "犬"]
    assert list(chosen("")) == []


class Batches:
    """Splits at spaces, all texts at once."""

    calls = 0

    def __call__(self, text: str) -> list[str]:
        return text.split()

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        self.calls += 1
        return [text.split() for text in texts]


def generated(text: str) -> Iterator[str]:
    yield from text.split()


@pytest.mark.parametrize("own", [str.split, Batches(), generated, lambda t: t.split(" ")])
def test_custom_tokenizers(own: Tokenizer) -> None:
    texts = ["Old Town", None, "", "a  b é", "  "]
    expected = [["Old", "Town"], [], [], ["a", "b", "é"], []]
    assert tokens(Words.read(pa.array(texts), own)) == expected
    some = [text for text in texts if text is not None]
    assert tokens(Words.of_texts(some, own)) == [expected[0], *expected[2:]]


def test_a_batch_is_split_at_once() -> None:
    own = Batches()
    Words.read(pa.array(["a b"] * 5000), own)
    assert own.calls == 1


def test_wrong_tokens_are_refused() -> None:
    class Short(Batches):
        def split(self, texts: Sequence[str]) -> list[list[str]]:
            return []

    with pytest.raises(InvalidInput, match="each of 1 texts, returned 0 lists"):
        Words.of_texts(["a"], Short())
    for own, problem in ((lambda t: [1], "token"), (lambda t: ["\ud800"], "surrogates")):
        with pytest.raises(InvalidInput, match=problem):
            Words.of_texts(["a"], own)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"U\+001D"):
        Words.of_texts(["a"], lambda t: ["\x1fa\x1fb"])
    # A text with such characters is no reason to stop.
    hostile = Words.of_texts(["\x1fold\x1ftown", "tea"], lambda text: text.split(" "))
    assert tokens(hostile) == [["old", "town"], ["tea"]]


def test_names() -> None:
    def local(text: str) -> list[str]:
        return text.split()

    assert name_of(words) == name_of(tokenizer("words")) == "words"
    assert name_of(tokenizer("stem:english")) == "stem:english"
    assert name_of(tokenizer("cjk")) == "cjk"
    assert name_of(generated).endswith("test_tokenizers:generated")
    assert name_of(tokenizer(local)).endswith("test_names.<locals>.local")
    assert name_of(Batches()).endswith("test_tokenizers:Batches")
    for name in ("words", "cjk", "stem:german", "builtins:str.split"):
        again = pickle.loads(pickle.dumps(tokenizer(name)))
        assert name_of(again) == loadable_name(again) == loadable_name(name) == name
    for own in (local, lambda text: [text], Batches()):
        with pytest.raises(InvalidInput, match="top level of a module"):
            loadable_name(own)


def test_a_subclass_of_the_default_is_another_one() -> None:
    class Own(type(words)):  # type: ignore[misc]
        def __call__(self, text: str) -> Iterable[str]:
            return [text]

    assert name_of(Own()) != "words"


@pytest.mark.parametrize(
    ("name", "error", "problem"),
    [
        ("word", UnknownName, "stem:<language>"),
        ("", UnknownName, "cjk"),
        ("stem:", UnknownName, "stem:english"),
        ("stem:klingon", UnknownName, "stem:english"),
        (":x", UnknownName, "words"),
        ("nowhere:x", InvalidInput, "No module named 'nowhere'"),
        ("nearcast:nothing", InvalidInput, "nothing"),
        ("nearcast:__version__", InvalidInput, "must be a function"),
        ("nearcast:Engine", InvalidInput, "must be a function"),
    ],
)
def test_unknown_names(name: str, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        tokenizer(name)


def test_what_is_no_tokenizer() -> None:
    with pytest.raises(InvalidInput, match="must be the name of a tokenizer"):
        tokenizer(7)  # type: ignore[arg-type]


def test_a_missing_stemmer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "Stemmer", None)
    with pytest.raises(InvalidInput, match=r"pip install 'nearcast\[stem\]'"):
        stemming.Stems("english")


def test_opening() -> None:
    assert name_of(opened("cjk", None, "x")) == "cjk"
    assert name_of(opened("cjk", "cjk", "x")) == "cjk"
    with pytest.raises(StorageError, match="x: was created with the tokenizer 'cjk', not 'words'"):
        opened("cjk", "words", "x")
    with pytest.raises(StorageError, match="'custom', which cannot be loaded"):
        opened("custom", None, "x")
    assert opened("custom", str.split, "x") is str.split
    with pytest.raises(StorageError, match=r"nowhere:x.*open it with tokenizer="):
        opened("nowhere:x", None, "x")
