"""Keywords as people type them: which tokens they require, and what is refused.

A keyword of several words requires all of them, and a ``*`` after a word all words with that
beginning. A keyword is refused at once if no tokenizer could find a token in it: if it is empty, or
all spaces and punctuation. Whether the tokenizer in use finds a token in it, say in an emoji, and
whether it would ignore a part, as in ``C++``, is only known when the subscription is registered.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, NoReturn

from nearcast.errors import InvalidInput
from nearcast.model import checks
from nearcast.model.derived import has_markers, without_markers
from nearcast.model.expressions import Conjunction
from nearcast.model.folding import is_word_character
from nearcast.model.syntax import OPERATORS
from nearcast.model.typed_words import Problem, TypedWord, dropped_symbols, prefix_of, typed_word

if TYPE_CHECKING:
    from nearcast.model.checks import Tokenize

__all__ = ["checked", "conjunction", "keyword_tokens", "literal", "split_list"]

# The first letters of the Unicode categories of punctuation, separators and control characters.
_WITHOUT_MEANING = "PZC"
_PLAIN = re.compile(r"[\w\s]*")


def checked(keywords: object) -> tuple[str, ...]:
    """Return valid keywords as a tuple; a single string is one keyword."""
    if isinstance(keywords, str):
        if not OPERATORS.isdisjoint(keywords.split()):
            problem = (
                "cannot contain AND, OR, NOT; use expression=... instead, or give a list of words"
            )
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
        _typed_words(keyword)
    return tuple(keywords)


def conjunction(
    keywords: tuple[str, ...], tokenize: Tokenize, *, scored: bool = False
) -> Conjunction:
    """Return the clause that requires all tokens of all keywords.

    Keywords that are ``scored`` may not have beginnings of words.
    """
    required: set[str] = set()
    for keyword in keywords:
        required.update(keyword_tokens(keyword, tokenize, scored=scored))
    return Conjunction(tuple(sorted(required)))


def keyword_tokens(keyword: str, tokenize: Tokenize, *, scored: bool = False) -> list[str]:
    r"""Return the tokens that a keyword requires.

    Parameters
    ----------
    keyword, tokenize
        The keyword, and the tokenizer of the messages.
    scored
        Whether it is a keyword of a ranked subscription.

    Raises
    ------
    InvalidInput
        If it has no token, or symbols that would be ignored.

    Examples
    --------
    >>> keyword_tokens("old flood*", str.split)
    ['old', '\x1eflood']
    """
    keyword = without_markers(keyword)
    typed = _typed_words(keyword)
    beginnings = [word.text for word in typed if word.is_prefix]
    if beginnings and scored:
        problem = "ranked keywords score whole words; put flood* into the expression instead"
        raise InvalidInput("keywords", keyword, problem)
    for word in typed:
        if not word.is_prefix:
            ignored = dropped_symbols(word.text, tokenize, list(tokenize(word.text)))
            if ignored is not None:
                raise InvalidInput("keywords", keyword, ignored.reason)
    rest = keyword
    if beginnings:
        rest = " ".join(piece for piece in keyword.split() if "*" not in piece)
    tokens = list(tokenize(rest))
    if any(map(has_markers, tokens)):
        problem = "its tokens must not contain the control characters U+001D to U+001F"
        raise InvalidInput("keywords", keyword, problem)
    tokens += [str(prefix_of(text)) for text in beginnings]
    if not tokens:
        _refuse(keyword)
    return tokens


def _typed_words(keyword: str) -> list[TypedWord]:
    """Return the words of a keyword that have symbols; raise if they are of another syntax."""
    if _PLAIN.fullmatch(keyword):
        return []
    typed = []
    for piece in keyword.split():
        if "*" not in piece and not any(is_word_character(ord(c)) for c in piece):
            continue  # as in rock & roll
        if '"' in piece:
            problem = "a keyword cannot have quotes; put the phrase into the expression instead"
            raise InvalidInput("keywords", keyword, problem)
        word = typed_word(piece)
        beginning = prefix_of(word.text) if isinstance(word, TypedWord) and word.is_prefix else ""
        for wrong in (word, beginning):
            if isinstance(wrong, Problem):
                raise InvalidInput("keywords", keyword, wrong.reason)
        assert isinstance(word, TypedWord)
        typed.append(word)
    return typed


def literal(word: str) -> list[str]:
    """Return a word as its only token: a tokenizer to validate expressions without a real one."""
    folded = unicodedata.normalize("NFKC", without_markers(word)).casefold()
    return [folded] if _has_meaning(word) else []


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
        raise InvalidInput(
            field, text, "must be a JSON array of strings, or words separated by spaces"
        )
    return found


def _has_meaning(keyword: str) -> bool:
    if keyword.isalnum():
        return True
    return any(c == "_" or unicodedata.category(c)[0] not in _WITHOUT_MEANING for c in keyword)


def _refuse(keyword: str) -> NoReturn:
    raise InvalidInput("keywords", keyword, "every keyword must have a letter or digit")
