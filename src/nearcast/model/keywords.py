"""Keywords as people type them: what can be checked before a tokenizer has seen them.

A keyword is refused at once if no tokenizer could make anything of it: if it is empty or consists
of blanks and punctuation only. Whether the tokenizer in use finds a token in it, say in an emoji,
shows when the subscription is registered.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from nearcast.errors import InvalidInput
from nearcast.model import checks
from nearcast.model.expressions import Conjunction

if TYPE_CHECKING:
    from nearcast.model.checks import Tokenize

__all__ = ["checked", "conjunction", "literal"]

_OPERATORS = frozenset({"AND", "OR", "NOT"})

_NOTHING = "PZC"
"""The initials of the categories of punctuation, separators and control characters."""


def checked(keywords: object) -> tuple[str, ...]:
    """Return keywords as a tuple; a single string is one keyword."""
    if isinstance(keywords, str):
        if not _OPERATORS.isdisjoint(keywords.split()):
            problem = "have no AND, OR, NOT; say expression=... instead, or give a list of words"
            raise InvalidInput("keywords", keywords, problem)
        keywords = (keywords,)
    if not isinstance(keywords, (list, tuple, set, frozenset)):
        raise InvalidInput("keywords", keywords, "must be a string or a list of strings")
    if not keywords:
        problem = "must not be empty; leave it out to ask for everything in the region"
        raise InvalidInput("keywords", keywords, problem)
    for keyword in keywords:
        if not _is_something(checks.text("keywords", keyword)):
            _refuse(keyword)
    return tuple(keywords)


def conjunction(keywords: tuple[str, ...], tokenize: Tokenize) -> Conjunction:
    """Return the clause that asks for all tokens of all keywords."""
    asked: set[str] = set()
    for keyword in keywords:
        tokens = list(tokenize(keyword))
        if not tokens:
            _refuse(keyword)
        asked.update(tokens)
    return Conjunction(tuple(sorted(asked)))


def literal(word: str) -> list[str]:
    """Return a word as its own token: a tokenizer for checking expressions before there is one."""
    return [unicodedata.normalize("NFKC", word).casefold()] if _is_something(word) else []


def _is_something(keyword: str) -> bool:
    if keyword.isalnum():
        return True
    return any(c == "_" or unicodedata.category(c)[0] not in _NOTHING for c in keyword)


def _refuse(keyword: str) -> None:
    raise InvalidInput("keywords", keyword, "every keyword must have a letter or digit")
