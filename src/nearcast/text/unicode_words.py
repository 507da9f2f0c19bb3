"""What a word is: the default tokenizer, and the protocol for another one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nearcast.columns import read_only
from nearcast.model.folding import is_word_character, unicode_words
from nearcast.text.splitting import Alphabet

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Tokenizer", "UnicodeWords", "alphabet", "words"]

# Planes 4 to 13 are unassigned, 15 and 16 are for private use: no letter lies there.
_CODE_POINTS = 0x110000
_PLANES = (*range(0x40000), *range(0xE0000, 0xF0000))


class Tokenizer(Protocol):
    """Anything that makes tokens of a text: ``str -> Iterable[str]``.

    The same tokenizer must serve subscriptions and messages. Empty tokens are left out. It may also
    have a method ``split``, from a list of texts to a list of lists of tokens, which is then called
    for columns. `nearcast.text.tokenizer` finds tokenizers by their names.

    Examples
    --------
    >>> def pairs(text: str) -> list[str]:
    ...     return [text[i : i + 2] for i in range(len(text) - 1)]
    >>> tokenizer: Tokenizer = pairs
    >>> tokenizer("東京都")
    ['東京', '京都']
    """

    def __call__(self, text: str, /) -> Iterable[str]:
        """Return the tokens of the text, in order."""
        ...


class UnicodeWords:
    """The default tokenizer: folded runs of letters, marks, numbers and underscores.

    Text is brought to Unicode form NFKC, case-folded and brought to NFKC again, so that `CAFÉ`,
    `café` and `ｃａｆé` are one token.

    Examples
    --------
    >>> words = UnicodeWords()
    >>> words("Flat white @ Café_12, 5€!")
    ['flat', 'white', 'café_12', '5']
    """

    def __call__(self, text: str, /) -> list[str]:
        """Return the words of the text, in order, repeated ones too."""
        return unicode_words(text)

    def __repr__(self) -> str:
        return "UnicodeWords()"


words = UnicodeWords()
"""The default tokenizer."""


@functools.cache
def alphabet(ascii_only: bool) -> Alphabet:
    """Return what the kernels need to know of word characters (the whole of Unicode on demand)."""
    folded = np.full(256, 0x80, np.uint8)
    folded[:128] = [ord(chr(c).lower()) if is_word_character(c) else 0 for c in range(128)]
    if ascii_only:
        return Alphabet(read_only(folded, np.uint8), read_only(np.empty(0), np.uint8))
    inside = np.zeros(_CODE_POINTS, np.bool_)
    inside[list(_PLANES)] = [is_word_character(c) for c in _PLANES]
    return Alphabet(
        read_only(folded, np.uint8), read_only(np.packbits(inside, bitorder="little"), np.uint8)
    )
