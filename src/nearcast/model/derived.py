r"""Derived tokens: phrases, beginnings of words and scopes, as tokens that no text contains.

A clause asks for tokens. A phrase (``"old town"``) and the beginning of a word (``flood*``) are
tokens as well, written with control characters that no tokenizer may return. A vocabulary that has
some gives them to the messages of which they are true (`nearcast.text.derived`), so that nothing
else has to know about them::

    "old town"    \x1fold\x1ftown
    flood*        \x1eflood

The scope of a subscription is a token too, which all its clauses require, and which messages of
that scope have beside their words. It is no word: it has no weight, and no statistics count it::

    scope acme    \x1dacme
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_PHRASE_WORDS",
    "PHRASE",
    "PREFIX",
    "SCOPE",
    "has_markers",
    "is_derived",
    "is_scope",
    "phrase_token",
    "phrase_words",
    "prefix_token",
    "readable",
    "scope_token",
    "without_markers",
]

PHRASE = "\x1f"
"""Stands before each word of a phrase."""

PREFIX = "\x1e"
"""Stands before the beginning of a word."""

SCOPE = "\x1d"
"""Stands before the name of a scope."""

MAX_PHRASE_WORDS = 32
"""The maximum number of words of a phrase."""


_SPACES = str.maketrans({PHRASE: " ", PREFIX: " ", SCOPE: " "})


def without_markers(text: str) -> str:
    r"""Return a text with spaces instead of the control characters of derived tokens.

    Examples
    --------
    >>> without_markers("old\x1ftown")
    'old town'
    """
    return text if text.isprintable() else text.translate(_SPACES)


def has_markers(text: str) -> bool:
    r"""Whether a text has control characters of derived tokens.

    Examples
    --------
    >>> has_markers("old\x1ftown"), has_markers("old town")
    (True, False)
    """
    return not text.isprintable() and any(c in text for c in (PHRASE, PREFIX, SCOPE))


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


def scope_token(scope: str) -> str:
    r"""Return the token that all messages of a scope have.

    Examples
    --------
    >>> scope_token("acme")
    '\x1dacme'
    """
    return SCOPE + scope


def is_scope(token: str) -> bool:
    """Whether a token stands for a scope."""
    return token.startswith(SCOPE)


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
