"""Split text into words, and turn the words of a row into ascending distinct tokens.

Text is UTF-8. ASCII letters are folded to lower case here. Text with other characters must be
folded already; it is decoded only to find out which characters belong to words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import inlined_kernel, kernel
from nearcast.text.byte_table import HASH_SEED, Keys, find_keys, hash_byte, hash_end

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.text.byte_table import ByteTable

__all__ = [
    "Alphabet",
    "Texts",
    "WordBuffers",
    "distinct_tokens",
    "max_words",
    "number_texts",
    "number_words",
    "sort_distinct",
    "split_texts",
    "split_words",
]

_ENCODED = 0x80


class Alphabet(NamedTuple):
    """The characters that words consist of.

    ``folded`` uint8[256] has the lower-case form of an ASCII byte, 0 if it separates words, and
    0x80 for the bytes of other characters. ``bit`` has one bit per code point for those.
    """

    folded: NDArray[np.uint8]
    bit: NDArray[np.uint8]


class Texts(NamedTuple):
    """A batch of texts; text ``i`` is ``byte[begin[i]:end[i]]``."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    byte: NDArray[np.uint8]


class WordBuffers(NamedTuple):
    """The output of `split_words`: the words of each text, and the bytes and tag of each word."""

    word_start: NDArray[np.int64]
    byte_start: NDArray[np.int64]
    byte: NDArray[np.uint8]
    tag: NDArray[np.uint32]


@kernel
def _character_bytes(lead: int) -> int:
    """Return the length in bytes of a character whose first byte is 0x80 or more."""
    if lead < 0xE0:
        return 2
    return 3 if lead < 0xF0 else 4


@kernel
def _is_word_character(bit: NDArray[np.uint8], byte: NDArray[np.uint8], at: int, size: int) -> bool:
    """Return whether the character of ``size`` bytes at this position belongs to words."""
    code = np.int64(byte[at]) & (0x7F >> size)
    for b in range(at + 1, at + size):
        code = (code << 6) | (np.int64(byte[b]) & 0x3F)
    return (np.int64(bit[code >> 3]) >> (code & 7)) & 1 == 1  # type: ignore[no-any-return]


@kernel
def max_words(size: int, texts: int) -> int:
    """Return how many words texts of ``size`` bytes in total can have at most."""
    return (size + texts) // 2 + 1


@kernel
def split_words(texts: Texts, alphabet: Alphabet, out: WordBuffers) -> int:
    """Split texts into folded words and hash them; return the number of words.

    ``out`` must have the capacity for all bytes of the texts and for `max_words`.
    """
    word = 0
    written = 0
    out.byte_start[0] = 0
    for i in range(len(texts.begin)):
        out.word_start[i] = word
        at = texts.begin[i]
        end = texts.end[i]
        state = HASH_SEED
        while at < end:
            folded = alphabet.folded[texts.byte[at]]
            size = 1
            inside = folded != 0
            if folded == _ENCODED:
                size = _character_bytes(np.int64(texts.byte[at]))  # type: ignore[arg-type]
                inside = _is_word_character(alphabet.bit, texts.byte, at, size)
            if not inside:
                if written > out.byte_start[word]:
                    out.tag[word] = hash_end(state)
                    word += 1
                    out.byte_start[word] = written
                    state = HASH_SEED
                at += size
            elif size == 1:
                out.byte[written] = folded
                state = hash_byte(state, folded)
                written += 1
                at += 1
            else:
                for b in range(at, at + size):
                    out.byte[written] = texts.byte[b]
                    state = hash_byte(state, texts.byte[b])
                    written += 1
                at += size
        if written > out.byte_start[word]:
            out.tag[word] = hash_end(state)
            word += 1
            out.byte_start[word] = written
    out.word_start[len(texts.begin)] = word
    return word


@kernel
def _sort(values: NDArray[np.int32], begin: int, end: int) -> None:
    """Sort a slice in place (Shellsort, which is insertion sort for short slices)."""
    gap = 1
    while gap * 9 < end - begin:
        gap = gap * 9 // 4 + 1
    while gap > 0:
        for i in range(begin + gap, end):
            value = values[i]
            at = i
            while at >= begin + gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap = gap * 4 // 9


@inlined_kernel
def sort_distinct(token: NDArray[np.int32], first: int, last: int) -> int:
    """Sort a slice in place, and drop repeated values; return where it ends now."""
    _sort(token, first, last)
    kept = first
    for i in range(first, last):
        if kept == first or token[i] != token[kept - 1]:
            token[kept] = token[i]
            kept += 1
    return kept


@kernel
def distinct_tokens(
    number: NDArray[np.int32],
    word_start: NDArray[np.int64],
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
) -> int:
    """Sort the numbers of each row's words, and drop repeated and negative ones.

    Row ``i`` has the words ``word_start[i]:word_start[i + 1]``. Returns the number of tokens.
    ``token`` may be the same array as ``number``.
    """
    count = 0
    for row in range(len(word_start) - 1):
        first = count
        token_start[row] = first
        for i in range(word_start[row], word_start[row + 1]):
            if number[i] >= 0:
                token[count] = number[i]
                count += 1
        if count - first > 1:
            count = sort_distinct(token, first, count)
    token_start[len(word_start) - 1] = count
    return count


@kernel
def number_words(
    table: ByteTable,
    words: Keys,
    word_start: NDArray[np.int64],
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
) -> int:
    """Write the tokens of each row, ascending and distinct; return how many they are.

    Row ``i`` has the words ``word_start[i]:word_start[i + 1]``. A word that is not in the table has
    no token. ``token`` int32[words] must have the capacity for all words.
    """
    find_keys(table, words, token)
    return distinct_tokens(token, word_start, token_start, token)


@kernel
def number_texts(
    texts: Texts,
    alphabet: Alphabet,
    table: ByteTable,
    word_start: NDArray[np.int64],
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
) -> int:
    """Split texts, and write the tokens of each as `number_words` does."""
    words = split_texts(texts, alphabet, word_start)
    return number_words(table, words, word_start, token_start, token[: len(words.tag)])


@kernel
def split_texts(texts: Texts, alphabet: Alphabet, word_start: NDArray[np.int64]) -> Keys:
    """Split a few texts; return their words, and write where those of each text begin."""
    size = len(texts.byte)
    capacity = max_words(size, len(texts.begin))
    byte_start = np.empty(capacity + 1, np.int64)
    byte = np.empty(size, np.uint8)
    tag = np.empty(capacity, np.uint32)
    count = split_words(texts, alphabet, WordBuffers(word_start, byte_start, byte, tag))
    return Keys(byte_start[: count + 1], byte, tag[:count])
