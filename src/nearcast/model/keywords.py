"""Keywords as people type them: what can be validated before a tokenizer has seen them.

A keyword is refused at once if no tokenizer could find a token in it: if it is empty, or all
spaces and punctuation. Whether the tokenizer in use finds a token in it, say in an emoji, is only
known when the subscription is registered.
"""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, NoReturn

from nearcast.errors import InvalidInput
from nearcast.model import checks
from nearcast.model.expressions import Conjunction
from nearcast.model.syntax import OPERATORS

if TYPE_CHECKING:
    from nearcast.model.checks import Tokenize

__all__ = ["checked", "conjunction", "literal", "split_list"]

# The first letters of the Unicode categories of punctuation, separators and control characters.
_WITHOUT_MEANING = "PZC"


def checked(keywords: object) -> tuple[str, ...]:
    """Return valid keywords as a tuple; a single string is one keyword."""
    if isinstance(keywords, str):
        if not OPERATORS.isdisjoint(keywords.split()):
            problem = "have no AND, OR, NOT; say expression=... instead, or give a list of words"
            raise InvalidInput("keywords", keywords, problem)
        keywords = (keywords,)
    if not isinstance(keywords, (list, tuple, set, frozenset)):
        raise InvalidInput("keywords", keywords, "must be a string or a list of strings")
    if not keywords:
        problem = "must not be empty; leave it out to ask for everything in the region"
        raise InvalidInput("keywords", keywords, problem)
    for keyword in keywords:
        if not _has_meaning(checks.text("keywords", keyword)):
            _refuse(keyword)
    return tuple(keywords)


def conjunction(keywords: tuple[str, ...], tokenize: Tokenize) -> Conjunction:
    """Return the clause that requires all tokens of all keywords."""
    required: set[str] = set()
    for keyword in keywords:
        tokens = list(tokenize(keyword))
        if not tokens:
            _refuse(keyword)
        required.update(tokens)
    return Conjunction(tuple(sorted(required)))


def literal(word: str) -> list[str]:
    """Return a word as its only token: a tokenizer to validate expressions without a real one."""
    return [unicodedata.normalize("NFKC", word).casefold()] if _has_meaning(word) else []


def split_list(field: str, text: str) -> list[str | None]:
    """Return the list that a text without outer spaces means: a JSON array, or words and spaces.

    Examples
    --------
    >>> split_list("keywords", '["flat white", "cake"]'), split_list("keywords", "flat white")
    (['flat white', 'cake'], ['flat', 'white'])
    """
    if not text.startswith("["):
        return [*text.split()] or [""]
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(e, str | None) for e in found):
        raise InvalidInput(field, text, "must be a JSON array of texts, or words between spaces")
    return found


def _has_meaning(keyword: str) -> bool:
    if keyword.isalnum():
        return True
    return any(c == "_" or unicodedata.category(c)[0] not in _WITHOUT_MEANING for c in keyword)


def _refuse(keyword: str) -> NoReturn:
    raise InvalidInput("keywords", keyword, "every keyword must have a letter or digit")
