"""Columns of text against a tokenizer and a dict written out in plain Python."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import InvalidInput
from nearcast.model.folding import fold
from nearcast.text import TokenColumn, UnicodeWords, Vocabulary, tokenize_column, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TEXT = st.one_of(
    st.text(st.sampled_from("abAB _1.,\n\0é̃ß字가ﬁ😀Σ"), max_size=12),
    st.text(max_size=20),
)
ROWS = st.lists(st.none() | TEXT, max_size=12)
LISTS = st.lists(st.none() | st.lists(st.none() | TEXT, max_size=4), max_size=8)


def plain_words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    spaced = [c if unicodedata.category(c)[0] in "LMN" or c == "_" else " " for c in folded]
    return re.findall("[^ ]+", "".join(spaced))


def plain_column(
    rows: Sequence[Sequence[str | None]], known: dict[str, int], *, add: bool
) -> tuple[list[list[int]], list[int]]:
    tokens, counts = [], []
    for row in rows:
        found = [w for text in row if text is not None for w in plain_words(text)]
        if add:
            for word in found:
                known.setdefault(word, len(known))
        tokens.append(sorted({known[w] for w in found if w in known}))
        counts.append(len(found))
    return tokens, counts


def unpacked(column: TokenColumn) -> tuple[list[list[int]], list[int]]:
    start = column.token_start.tolist()
    token = column.token.tolist()
    rows = [token[a:b] for a, b in pairwise(start)]
    assert start[-1] == len(token)
    return rows, column.word_count.tolist()


TOKENIZERS = pytest.mark.parametrize("tokenizer", [words, lambda text: words(text)])


@TOKENIZERS
@pytest.mark.parametrize("add", [True, False])
@settings(deadline=None)
@given(rows=ROWS, before=st.lists(TEXT, max_size=3))
def test_strings(
    tokenizer: Callable[[str], list[str]], add: bool, rows: list[str | None], before: list[str]
) -> None:
    first = list(dict.fromkeys(w for text in before for w in plain_words(text)))
    known = {w: i for i, w in enumerate(first)}
    vocabulary = Vocabulary(first)
    column = tokenize_column(pa.array(rows, pa.string()), tokenizer, vocabulary, add=add)
    assert unpacked(column) == plain_column([[r] for r in rows], known, add=add)
    assert vocabulary.tokens().to_pylist() == list(known)


@TOKENIZERS
@settings(deadline=None)
@given(rows=LISTS)
def test_lists(tokenizer: Callable[[str], list[str]], rows: list[list[str | None] | None]) -> None:
    known: dict[str, int] = {}
    expected = plain_column([row or [] for row in rows], known, add=True)
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string())):
        vocabulary = Vocabulary()
        column = tokenize_column(pa.array(rows, kind), tokenizer, vocabulary, add=True)
        assert unpacked(column) == expected
        assert vocabulary.tokens().to_pylist() == list(known)


@settings(deadline=None)
@given(ROWS, st.integers(0, 5), st.integers(0, 5))
def test_slices_chunks_and_other_types(rows: list[str | None], first: int, cut: int) -> None:
    known: dict[str, int] = {}
    expected = plain_column([[r] for r in rows[first:]], known, add=True)
    whole = pa.array(rows, pa.string())
    chunks = pa.chunked_array([whole[first:][:cut], whole[first:][cut:]])
    for strings in (
        whole.slice(first),
        chunks,
        whole.cast(pa.large_string()).slice(first),
        whole.dictionary_encode().slice(first),
        whole.cast(pa.string_view()).slice(first),
        pa.FixedSizeListArray.from_arrays(whole, 1).slice(first),
        pa.array([None if r is None else [r] for r in rows], pa.list_(pa.string(), 1))[first:],
    ):
        assert unpacked(tokenize_column(strings, words, Vocabulary(), add=True)) == expected


def test_bytes_below_a_null_are_not_read() -> None:
    offsets, content = (
        pa.array([0, 3, 9], pa.int32()).buffers()[1],
        pa.py_buffer(b"abc\xff\xff def"),
    )
    for validity, expected in ((b"\x01", [1, 0]), (b"\x00", [0, 0])):
        buffers = [pa.py_buffer(validity), offsets, content]
        strings = pa.Array.from_buffers(pa.string(), 2, buffers)
        column = tokenize_column(strings, words, Vocabulary(["abc", "def"]), add=False)
        assert column.word_count.tolist() == expected


def test_text_that_is_not_utf8_is_refused() -> None:
    offsets = pa.array([0, 3], pa.int32()).buffers()[1]
    strings = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"ab\xff")])
    with pytest.raises(InvalidInput, match="text: must be valid UTF-8"):
        tokenize_column(strings, words, Vocabulary(), add=False)


def test_many_rows_are_one_column() -> None:
    texts = [f"Word{i % 977} é{i % 13} common" if i % 3 else f"w{i % 50}" for i in range(20_000)]
    known: dict[str, int] = {}
    expected = plain_column([[t] for t in texts], known, add=True)
    vocabulary = Vocabulary()
    assert unpacked(tokenize_column(pa.array(texts), words, vocabulary, add=True)) == expected
    assert unpacked(tokenize_column(pa.array(texts), words, vocabulary, add=False)) == expected


@pytest.mark.parametrize(
    "strings",
    [pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.array([], pa.null())],
)
def test_no_rows(strings: pa.Array) -> None:
    column = tokenize_column(strings, words, Vocabulary(), add=True)
    assert unpacked(column) == ([], [])


def test_nothing_but_nulls() -> None:
    column = tokenize_column(pa.nulls(3), words, Vocabulary(["a"]), add=True)
    assert unpacked(column) == ([[], [], []], [0, 0, 0])


@pytest.mark.parametrize("kind", [pa.int64(), pa.binary(), pa.list_(pa.int32())])
def test_other_columns_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match="column: must hold strings or lists of strings"):
        tokenize_column(pa.nulls(1, kind), words, Vocabulary(), add=False)


def test_any_callable_is_a_tokenizer() -> None:
    class Capitals(UnicodeWords):
        def __call__(self, text: str, /) -> list[str]:
            return ["", *re.findall("[A-Z]", text)]

    vocabulary = Vocabulary()
    column = tokenize_column(pa.array(["aBcB D", "x", None]), Capitals(), vocabulary, add=True)
    assert unpacked(column) == ([[0, 1], [], []], [3, 0, 0])
    assert vocabulary.tokens().to_pylist() == ["B", "D"]


def test_a_tokenizer_that_gives_no_strings_is_refused() -> None:
    def numbers(text: str) -> list[str]:
        return [len(text)]  # type: ignore[list-item]

    with pytest.raises(InvalidInput, match="token: must be a string"):
        tokenize_column(pa.array(["ab"]), numbers, Vocabulary(), add=False)


def test_texts_are_folded_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def noted(text: str) -> str:
        sizes.append(len(text.encode()))
        return fold(text)

    monkeypatch.setattr("nearcast.text.column.fold", noted)
    long = "Straße 字\n" * 9_000
    rows = ["É à", long, None, "", "é", *["Ünder a\nBRIDGE"] * 9_000, long, "ascii"]
    known: dict[str, int] = {}
    expected = plain_column([[row] for row in rows], known, add=True)
    column = tokenize_column(pa.array(rows), words, Vocabulary(), add=True)
    assert unpacked(column) == expected
    assert len(sizes) > 4
    assert max(sizes) <= len(long.encode())  # no other text is folded with it
    assert sorted(sizes)[-3] < 2 << 16
