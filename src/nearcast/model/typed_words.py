"""Words as people type them, in expressions and in lists of keywords.

People bring habits from other search engines: ``-milk``, ``C++``, ``fl*od``, ``title:tea``. What
we do not support is refused with a reason, and never changed silently. A ``*`` at the end is
supported: it asks for all words with this beginning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import shorten
from nearcast.model.checks import reading_stored
from nearcast.model.derived import prefix_token
from nearcast.model.folding import is_word_character, unicode_words

if TYPE_CHECKING:
    from nearcast.model.checks import Tokenize

__all__ = ["Problem", "TypedWord", "dropped_symbols", "other_search", "prefix_of", "typed_word"]

_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_OPENING = "#@$'\u2018\u2019“„«¿¡…([{<" + _INVISIBLE
_CLOSING = ".,;:!?)'\u2019”»…]}>" + _INVISIBLE
_WEIGHT = re.compile(r"[~^][0-9.]*$")
_OTHER_SEARCH = re.compile(r"\w(\?)\w|^[^\W\d]\w*(:)\w")
_REASONS = {
    "?": "? in a word is not known here; a * at the end of a word stands for any ending",
    ":": "there are no fields here; leave out what stands before the colon, or quote all of it",
}
# A separator between two digits is a part of a number: 1,000 and 24/7.
_NO_PART_OF_WORDS = re.compile(
    r"""^[^\W\d]\w*(?P<field>:)$
    | (?P<comparison>[<>=\u2260\u2264\u2265\uff1c\uff1d\uff1e])
    | (?P<bracket>[][{}])
    | (?<=[\w*]) (?P<separator>[,;/\uff0c\uff0f\uff1b\u3001]) (?! (?<=\d.)\d ) (?=.*\w)""",
    re.VERBOSE,
)
_NO_PART_REASONS = {
    "field": _REASONS[":"],
    "comparison": "{0} is no part of a word; quote the text to search for its words",
    "bracket": "{0} is no part of a word; group with ( and ), or quote the text",
    "separator": "{0} between words is not known here; write a space if all must occur, OR if one "
    "of them must, or quote them to search for them one after the other",
}
_OTHER_SYNTAX = {
    "-": "NOT {0}",
    "!": "NOT {0}",
    "+": "{0}: words side by side are all required",
}


class Problem(NamedTuple):
    """What is wrong with a word, and at which of its characters."""

    at: int
    reason: str


class TypedWord(NamedTuple):
    """A word without what surrounds it, where it begins, and whether a ``*`` followed it."""

    text: str
    at: int
    is_prefix: bool


def typed_word(word: str) -> TypedWord | Problem:
    """Return what a word without spaces and quotes means, or why it means nothing.

    Examples
    --------
    >>> typed_word("#Flood*,"), typed_word("tea")
    (TypedWord(text='Flood', at=1, is_prefix=True), TypedWord(text='tea', at=0, is_prefix=False))
    >>> typed_word("tea|milk")
    Problem(at=3, reason='| is not known here; write OR')
    """
    if word[0] in _OTHER_SYNTAX and any(is_word_character(ord(c)) for c in word):
        instead = _OTHER_SYNTAX[word[0]].format(shorten(word[1:])[1:-1])
        return Problem(0, f"{word[0]} before a word is not known here; write {instead}")
    for symbols, operator in (("||", "OR"), ("|", "OR"), ("&&", "AND")):
        if symbols in word:
            return Problem(word.index(symbols), f"{symbols} is not known here; write {operator}")
    begin = len(word) - len(word.lstrip(_OPENING))
    text = word[begin:].rstrip(_CLOSING)
    weight = _WEIGHT.search(text)
    if weight is not None:
        reason = f"{weight[0][0]} is not known here: words have no weights and no distances"
        return Problem(begin + weight.start(), f"{reason}; leave it out, or quote the word")
    is_prefix = text.endswith("*")
    text = text[:-1] if is_prefix else text
    if "*" in text or (is_prefix and not text):
        reason = "* may only stand at the end of a word; quote the word to search for * itself"
        return Problem(begin + (text + "*").index("*"), reason)
    return TypedWord(text, begin, is_prefix) if text else TypedWord(word, 0, False)


def other_search(word: str) -> Problem | None:
    """Return what a word of an expression means elsewhere, and not here.

    A joker, a field, a comparison, a range, or a list.

    Examples
    --------
    >>> other_search("title:tea").at, other_search("12:30"), other_search("flood?")
    (5, None, None)
    >>> other_search("price<100").at, other_search("tea,milk").at, other_search("1,000")
    (5, 3, None)
    >>> other_search("title:").at  # what follows is in quotes or parentheses, or stands apart
    5
    """
    found = _OTHER_SEARCH.search(word)
    if found is not None:
        group = found.lastindex or 0
        return Problem(found.start(group), _REASONS[found[group]])
    found = None if reading_stored() else _NO_PART_OF_WORDS.search(word)
    if found is None:
        return None
    kind = str(found.lastgroup)
    return Problem(found.start(kind), _NO_PART_REASONS[kind].format(found[kind]))


def prefix_of(text: str) -> str | Problem:
    r"""Return the token of all words that begin with a text, or why there is none.

    Examples
    --------
    >>> prefix_of("Flood")
    '\x1eflood'
    >>> prefix_of("wi-fi").reason
    "'wi-fi' has several words; * may only follow one"
    """
    words = unicode_words(text)
    symbols = _symbols_around(text)
    if len(words) > 1:
        return Problem(0, f"{shorten(text)} has several words; * may only follow one")
    if not words or symbols is not None:
        reason = "has no letter or digit" if not words else "has symbols that are in no word"
        return Problem(symbols or 0, f"{shorten(text)} {reason}; * must follow letters or digits")
    return prefix_token(words[0])


def dropped_symbols(text: str, tokenize: Tokenize, tokens: list[str]) -> Problem | None:
    """Return where a tokenizer drops symbols at the ends of a word, as ``++`` of ``C++``.

    Parameters
    ----------
    text
        The word, as `typed_word` returns it.
    tokenize, tokens
        The tokenizer, and what it makes of the word.

    Examples
    --------
    >>> dropped_symbols("C++", str.split, ["C++"]) is None
    True
    >>> dropped_symbols("C++", unicode_words, ["c"]).at
    1
    """
    at = _symbols_around(text)
    if at is None or not tokens:
        return None
    kept = text.strip("".join({c for c in text if not is_word_character(ord(c))}))
    if list(tokenize(kept)) != tokens:
        return None
    symbols = text[at:] if at else text[: text.index(kept)]
    found = shorten(" ".join(tokens))
    return Problem(
        at,
        f"{shorten(symbols)} would be ignored, so {shorten(text)} means {found}; write that, "
        "or use a tokenizer that keeps such words",
    )


def _symbols_around(text: str) -> int | None:
    """Return where symbols at the end of a text begin, or 0 if some are at its beginning."""
    inside = [i for i, character in enumerate(text) if is_word_character(ord(character))]
    if not inside or (inside[0] == 0 and inside[-1] == len(text) - 1):
        return None
    return inside[-1] + 1 if inside[-1] < len(text) - 1 else 0
