"""The default tokenizer against its definition, spelt out with unicodedata and groupby."""

from __future__ import annotations

import sys
import unicodedata
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.folding import fold
from nearcast.text import UnicodeWords, words
from nearcast.text.unicode_words import alphabet


def definition(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    runs = groupby(folded, lambda c: c == "_" or unicodedata.category(c)[0] in {"L", "M", "N"})
    return ["".join(run) for inside, run in runs if inside]


@given(st.text(st.characters()))
def test_any_text(text: str) -> None:
    assert words(text) == definition(text)


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_any_ascii_text(text: str) -> None:
    assert words(text) == definition(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" .,;-!\n\t\0", []),
        ("Coffee, LATTE & mocha", ["coffee", "latte", "mocha"]),
        ("don't e-mail", ["don", "t", "e", "mail"]),
        ("snake_case_1 _", ["snake_case_1", "_"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("ﬁne \uff23\uff2f\uff26\uff26\uff25\uff25", ["fine", "coffee"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("ΟΔΟΣ οδος οδός", ["οδοσ", "οδοσ", "οδόσ"]),
        ("İ", ["i\u0307"]),
        ("\u0390 \u01f0", ["\u0390", "\u01f0"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("x² ½ Ⅻ", ["x2", "1", "2", "xii"]),
        ("東京、大阪", ["東京", "大阪"]),
        ("a😀b", ["a", "b"]),
        ("\ud800lone", ["lone"]),
    ],
)
def test_examples(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text())
def test_tokens_are_words_of_themselves(text: str) -> None:
    tokens = words(text)
    assert [w for t in tokens for w in words(t)] == tokens


def test_every_code_point_has_its_bit() -> None:
    bits = np.unpackbits(alphabet(False).bit, bitorder="little")
    category = unicodedata.category
    expected = [category(chr(c))[0] in "LMN" for c in range(sys.maxunicode + 1)]
    expected[ord("_")] = True
    assert np.array_equal(bits, expected)


def test_folding_makes_no_capitals_and_no_line_breaks() -> None:
    # The column tokenizer lower-cases ASCII after folding and folds many texts in one.
    every = [chr(c) for c in range(sys.maxunicode + 1) if c != ord("\n") and c not in SURROGATES]
    folded = fold("\n".join(every))
    assert folded.count("\n") == len(every) - 1
    assert not any("A" <= c <= "Z" for c in set(folded))
    assert folded.split("\n") == [fold(c) for c in every]


SURROGATES = range(0xD800, 0xE000)


def test_every_code_point() -> None:
    every = "\n".join(map(chr, range(sys.maxunicode + 1)))
    assert words(every) == definition(every)


def test_all_default_tokenizers_are_alike() -> None:
    assert repr(UnicodeWords()) == repr(words) == "UnicodeWords()"
    assert UnicodeWords()("A b") == words("a B") == ["a", "b"]
