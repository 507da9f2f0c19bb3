"""Cutting text into words, and words into the tokens of rows, against plain Python."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.columns import read_only
from nearcast.text.byte_table import hash_keys
from nearcast.text.splitting import Alphabet, Texts, WordBuffers, distinct_tokens, split_words

# An alphabet of its own: ASCII words, and of the rest only these.
EXTRA = "éßжλ字𝒳"
ALPHABET_STRATEGY = st.text(st.sampled_from("aZ_09 .-\0\x7f" + EXTRA + "\xd7—€😀\U0010ffff"))


def own_alphabet() -> Alphabet:
    folded = np.full(256, 0x80, np.uint8)
    for c in range(128):
        folded[c] = ord(chr(c).lower()) if re.match(r"\w", chr(c), re.ASCII) else 0
    inside = np.zeros(0x110000, np.bool_)
    inside[[ord(c) for c in EXTRA]] = True
    bit = np.packbits(inside, bitorder="little")
    return Alphabet(read_only(folded, np.uint8), read_only(bit, np.uint8))


@settings(deadline=None)
@given(st.lists(ALPHABET_STRATEGY, max_size=8))
def test_split_words(texts: list[str]) -> None:
    encoded = [t.encode() for t in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    source = Texts(
        read_only(ends[:-1], np.int64),
        read_only(ends[1:], np.int64),
        read_only(np.frombuffer(b"".join(encoded), np.uint8), np.uint8),
    )
    room = sum((len(e) + 1) // 2 for e in encoded)
    out = WordBuffers(
        np.empty(len(texts) + 1, np.int64),
        np.empty(room + 1, np.int64),
        np.empty(ends[-1], np.uint8),
        np.empty(room, np.uint32),
    )
    count = split_words(source, own_alphabet(), out)
    expected = [re.findall(rf"[a-zA-Z0-9_{EXTRA}]+", t) for t in texts]
    lowered = [re.sub("[A-Z]", lambda m: m[0].lower(), w).encode() for ws in expected for w in ws]
    written = out.byte.tobytes()
    assert [written[out.byte_start[i] : out.byte_start[i + 1]] for i in range(count)] == lowered
    assert np.diff(out.word_start).tolist() == [len(ws) for ws in expected]
    tag = np.empty(count, np.uint32)
    hash_keys(read_only(out.byte_start[: count + 1], np.int64), read_only(out.byte, np.uint8), tag)
    assert out.tag[:count].tolist() == tag.tolist()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-1, 30), max_size=300), max_size=6))
def test_distinct_tokens(rows: list[list[int]]) -> None:
    word_start = read_only(np.cumsum([0, *map(len, rows)]), np.int64)
    number = read_only([n for row in rows for n in row], np.int32)
    token_start = np.empty(len(rows) + 1, np.int64)
    token = np.empty(len(number), np.int32)
    count = distinct_tokens(number, word_start, token_start, token)
    expected = [sorted({n for n in row if n >= 0}) for row in rows]
    got = [token[token_start[i] : token_start[i + 1]].tolist() for i in range(len(rows))]
    assert got == expected
    assert count == sum(map(len, expected))


def test_a_long_row_is_sorted() -> None:
    number = np.random.default_rng(5).permutation(5000)
    token_start, token = np.empty(2, np.int64), np.empty(5000, np.int32)
    word_start = read_only([0, 5000], np.int64)
    assert distinct_tokens(read_only(number, np.int32), word_start, token_start, token) == 5000
    assert token.tolist() == list(range(5000))
