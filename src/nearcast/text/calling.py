"""Texts through a tokenizer of the user's: the cost of its calls, and little more."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.columns import frozen, starts
from nearcast.errors import InvalidInput
from nearcast.model.derived import PREFIX, without_markers
from nearcast.text.keys import keys_of, string_buffers, strings_as_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.text.byte_table import Keys
    from nearcast.text.unicode_words import Tokenizer

__all__ = ["call_tokenizer"]


def call_tokenizer(
    tokenizer: Tokenizer, texts: Sequence[str | None]
) -> tuple[NDArray[np.int64], Keys]:
    """Return where the tokens of each text begin, and all tokens; a null has none.

    Empty tokens are left out. Texts are given to ``tokenizer.split`` all at once if it has that.

    Raises
    ------
    InvalidInput
        If a token is no string, or has a control character that stands for phrases.
    """
    found = _tokens(tokenizer, texts)
    if _has_markers(found[1]):
        found = _tokens(tokenizer, [None if t is None else without_markers(t) for t in texts])
        if _has_markers(found[1]):
            problem = "must not return tokens with the control characters U+001E and U+001F"
            raise InvalidInput("tokenizer", tokenizer, problem)
    return found


def _tokens(tokenizer: Tokenizer, texts: Sequence[str | None]) -> tuple[NDArray[np.int64], Keys]:
    given = [text for text in texts if text is not None] if None in texts else texts
    split = getattr(tokenizer, "split", None)
    lists: list[Any] = list(map(tokenizer, given) if split is None else split(given))  # type: ignore[arg-type]
    if len(lists) != len(given):
        problem = f"must return tokens for each of {len(given)} texts, returned {len(lists)} lists"
        raise InvalidInput("tokenizer.split", tokenizer, problem)
    try:
        counts = list(map(len, lists))
    except TypeError:  # generators
        lists = list(map(list, lists))
        counts = list(map(len, lists))
    keys = _keys(list(chain.from_iterable(lists)))
    count = np.array(counts, np.int64)
    if (keys.byte_start[1:] == keys.byte_start[:-1]).any():
        kept = [[token for token in tokens if token != ""] for tokens in lists]
        keys = _keys([token for tokens in kept for token in tokens])
        count = np.array([len(tokens) for tokens in kept], np.int64)
    if len(given) < len(texts):
        some = np.fromiter((text is not None for text in texts), np.bool_, len(texts))
        every = np.zeros(len(texts), np.int64)
        every[some] = count
        count = every
    return frozen(starts(count)), keys


def _keys(tokens: list[str]) -> Keys:
    try:
        return keys_of(*string_buffers(pa.array(tokens, pa.large_string())))
    except (pa.ArrowException, TypeError, ValueError, UnicodeError):
        return strings_as_keys(tokens, "token")  # says which


def _has_markers(keys: Keys) -> bool:
    return bool(((keys.byte & 0xFE) == ord(PREFIX)).any())
