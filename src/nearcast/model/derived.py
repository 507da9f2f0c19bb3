r"""Derived tokens: phrases and beginnings of words, as tokens that no text contains.

A clause asks for tokens. A phrase (``"old town"``) and the beginning of a word (``flood*``) are
tokens as well, written with control characters that no tokenizer may return. A vocabulary that has
some gives them to the messages of which they are true (`nearcast.text.derived`), so that nothing
else has to know about them::

    "old town"    \x1fold\x1ftown
    flood*        \x1eflood
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_PHRASE_WORDS",
    "PHRASE",
    "PREFIX",
    "is_derived",
    "phrase_token",
    "phrase_words",
    "prefix_token",
    "readable",
    "without_markers",
]

PHRASE = "\x1f"
"""Stands before each word of a phrase."""

PREFIX = "\x1e"
"""Stands before the beginning of a word."""

MAX_PHRASE_WORDS = 32
"""The maximum number of words of a phrase."""


_SPACES = str.maketrans({PHRASE: " ", PREFIX: " "})


def without_markers(text: str) -> str:
    r"""Return a text with spaces instead of the control characters of derived tokens.

    Examples
    --------
    >>> without_markers("old\x1ftown")
    'old town'
    """
    return text if text.isprintable() else text.translate(_SPACES)


def phrase_token(words: Sequence[str]) -> str:
    r"""Return the token of a phrase; a phrase of one word is that word.

    Examples
    --------
    >>> phrase_token(["old", "town"]), phrase_token(["town"])
    ('\x1fold\x1ftown', 'town')
    """
    return words[0] if len(words) == 1 else PHRASE + PHRASE.join(words)


def phrase_words(token: str) -> list[str]:
    r"""Return the words of a phrase.

    Examples
    --------
    >>> phrase_words("\x1fold\x1ftown")
    ['old', 'town']
    """
    return token[1:].split(PHRASE)


def prefix_token(beginning: str) -> str:
    r"""Return the token that all words with this beginning have.

    Examples
    --------
    >>> prefix_token("flood")
    '\x1eflood'
    """
    return PREFIX + beginning


def is_derived(token: str) -> bool:
    """Whether a token stands for a phrase or the beginning of a word."""
    return token.startswith((PHRASE, PREFIX))


def readable(token: str) -> str:
    r"""Return a token as a person would write it.

    Examples
    --------
    >>> readable("\x1fold\x1ftown"), readable("\x1eflood"), readable("tea")
    ('"old town"', 'flood*', 'tea')
    """
    if token.startswith(PREFIX):
        return f"{token[1:]}*"
    return f'"{" ".join(phrase_words(token))}"' if token.startswith(PHRASE) else token
