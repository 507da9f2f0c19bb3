"""What a word is: folded runs of letters, marks, numbers and underscores.

The default tokenizer splits texts like this. Expressions need it too, because the beginning of a
word (``flood*``) is folded in the same way whatever the tokenizer.
"""

from __future__ import annotations

from unicodedata import category, normalize

__all__ = ["fold", "is_word_character", "unicode_words"]


def fold(text: str) -> str:
    """Return the text without differences of case and of compatibility forms.

    Examples
    --------
    >>> fold("Ｃａｆé STRASSE straße")
    'café strasse strasse'
    """
    if text.isascii():
        return text.lower()
    return normalize("NFKC", normalize("NFKC", text).casefold())


def is_word_character(code: int) -> bool:
    """Whether a code point is a letter, a mark, a number or the underscore."""
    return category(chr(code))[0] in "LMN" or code == ord("_")


class _Separated(dict[int, int]):
    """For `str.translate`: every character that is not one of a word becomes a space."""

    def __missing__(self, code: int) -> int:
        self[code] = code if is_word_character(code) else ord(" ")
        return self[code]


_separated = _Separated()


def unicode_words(text: str) -> list[str]:
    """Return the folded words of a text, in order, repeated ones too.

    Examples
    --------
    >>> unicode_words("Flat white @ Café_12, 5€!")
    ['flat', 'white', 'café_12', '5']
    """
    return fold(text).translate(_separated).split()
