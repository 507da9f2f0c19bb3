"""Chinese, Japanese and Korean texts, which do not separate words by spaces: character bigrams.

A run of such characters becomes its pairs of neighbors, a single one stays as it is, and other
words are those of the default tokenizer. A word of several characters in an expression is then a
phrase of its pairs, which is true where the characters follow each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import frozen, read_only
from nearcast.compiled.jit import kernel
from nearcast.model.folding import unicode_words
from nearcast.text.byte_table import HASH_SEED, Keys, hash_byte, hash_end
from nearcast.text.splitting import WordBuffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CjkBigrams"]

RANGES = (
    (0x1100, 0x11FF),  # Hangul letters
    (0x3005, 0x3007),  # iteration mark, zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),  # Chinese characters
    (0xAC00, 0xD7A3),  # Hangul syllables
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""The code points that are cut into pairs; all are encoded in three or four bytes."""

_FIRST_LEAD = 0xE1
_FIRST = frozen(np.array([first for first, _ in RANGES], np.int64))
_LAST = frozen(np.array([last for _, last in RANGES], np.int64))


class CjkBigrams:
    """A tokenizer: pairs of Chinese, Japanese and Korean characters, and words of other scripts.

    Examples
    --------
    >>> CjkBigrams()("東京都の天気 Tokyo")
    ['東京', '京都', '都の', 'の天', '天気', 'tokyo']
    """

    name = "cjk"

    def __call__(self, text: str, /) -> list[str]:
        """Return the pairs and words of a text, in order."""
        return [token for word in unicode_words(text) for token in _cut(word)]

    def __repr__(self) -> str:
        return "CjkBigrams()"

    def refine(self, word_start: NDArray[np.int64], words: Keys) -> tuple[NDArray[np.int64], Keys]:
        """Cut words that the default tokenizer found."""
        if int(words.byte.max(initial=0)) < _FIRST_LEAD:
            return word_start, words
        size = len(words.byte)
        out = WordBuffers(
            np.empty(len(word_start), np.int64),
            np.empty(size + 1, np.int64),
            np.empty(2 * size, np.uint8),
            np.empty(size, np.uint32),
        )
        count = cut_words(words, read_only(word_start, np.int64), _FIRST, _LAST, out)
        start = frozen(out.byte_start[: count + 1])
        keys = Keys(start, frozen(out.byte[: int(start[-1])]), frozen(out.tag[:count]))
        return frozen(out.word_start), keys


def _cut(word: str) -> list[str]:
    runs: list[str] = []
    before = None
    for character in word:
        inside = any(first <= ord(character) <= last for first, last in RANGES)
        if inside == before:
            runs[-1] += character
        else:
            runs.append(character)
        before = inside
    tokens = []
    for run in runs:
        inside = any(first <= ord(run[0]) <= last for first, last in RANGES)
        tokens += [run[i : i + 2] for i in range(len(run) - 1)] if inside and run[1:] else [run]
    return tokens


@kernel
def _size_and_kind(
    byte: NDArray[np.uint8], at: int, first: NDArray[np.int64], last: NDArray[np.int64]
) -> tuple[int, bool]:
    """Return the bytes of the character at a position, and whether it is cut into pairs."""
    lead = np.int64(byte[at])
    if lead < 0x80:
        return 1, False
    if lead < 0xE0:
        return 2, False
    size = 3 if lead < 0xF0 else 4
    code = lead & (0x7F >> size)
    for b in range(at + 1, at + size):
        code = (code << 6) | (np.int64(byte[b]) & 0x3F)
    for i in range(len(first)):
        if first[i] <= code <= last[i]:
            return size, True
    return size, False


@kernel
def _put(byte: NDArray[np.uint8], begin: int, end: int, out: WordBuffers, word: int) -> int:
    """Write bytes as a word; return the number of words."""
    state = HASH_SEED
    written = out.byte_start[word]
    for b in range(begin, end):
        out.byte[written] = byte[b]
        state = hash_byte(state, byte[b])
        written += 1
    out.tag[word] = hash_end(state)
    out.byte_start[word + 1] = written
    return word + 1


@kernel
def cut_words(
    words: Keys,
    word_start: NDArray[np.int64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    out: WordBuffers,
) -> int:
    """Cut runs of characters between ``first`` and ``last`` into pairs; return how many words.

    ``out`` must have the capacity for twice the bytes, and for as many words as bytes.
    """
    byte = words.byte
    count = 0
    out.byte_start[0] = 0
    for row in range(len(word_start) - 1):
        out.word_start[row] = count
        for i in range(word_start[row], word_start[row + 1]):
            at, end = words.byte_start[i], words.byte_start[i + 1]
            while at < end:
                begin = at
                size, inside = _size_and_kind(byte, at, first, last)
                before = begin
                at += size
                characters = 1
                while at < end:
                    size, same = _size_and_kind(byte, at, first, last)
                    if same != inside:
                        break
                    if inside:
                        count = _put(byte, before, at + size, out, count)
                    before = at
                    at += size
                    characters += 1
                if not inside or characters == 1:
                    count = _put(byte, begin, at, out, count)
    out.word_start[len(word_start) - 1] = count
    return count
