"""Texts through a tokenizer of the user's: the cost of its calls, and little more."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import frozen, starts
from nearcast.compiled.jit import Number, kernel
from nearcast.errors import InvalidInput
from nearcast.model.derived import PHRASE, PREFIX, SCOPE, without_markers
from nearcast.text.byte_table import HASH_SEED, Keys, hash_byte, hash_end
from nearcast.text.keys import strings_as_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.text.unicode_words import Tokenizer

__all__ = ["call_tokenizer"]

_BORDER = ord(PHRASE)
_PREFIX, _SCOPE = ord(PREFIX), ord(SCOPE)


def call_tokenizer(
    tokenizer: Tokenizer, texts: Sequence[str | None]
) -> tuple[NDArray[np.int64], Keys]:
    """Return where the tokens of each text begin, and all tokens; a null has none.

    Empty tokens are left out. Texts are given to ``tokenizer.split`` all at once if it has that.

    Raises
    ------
    InvalidInput
        If a token is no string, or has a control character that begins derived tokens.
    """
    found = _tokens(tokenizer, texts)
    if found is None:
        found = _tokens(tokenizer, [None if t is None else without_markers(t) for t in texts])
    if found is None:
        problem = "must not return tokens with the control characters U+001D to U+001F"
        raise InvalidInput("tokenizer", tokenizer, problem)
    return found


def _tokens(
    tokenizer: Tokenizer, texts: Sequence[str | None]
) -> tuple[NDArray[np.int64], Keys] | None:
    """Return the tokens of each text; None if one of them has a control character."""
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
    count = np.array(counts, np.int64)
    keys = _keys(lists, int(count.sum()))
    if keys is not None and (keys.byte_start[1:] == keys.byte_start[:-1]).any():
        lists = [[token for token in tokens if token != ""] for tokens in lists]
        count = np.array(list(map(len, lists)), np.int64)
        keys = _keys(lists, int(count.sum()))
    if keys is None:
        return None
    if len(given) < len(texts):
        some = np.fromiter((text is not None for text in texts), np.bool_, len(texts))
        every = np.zeros(len(texts), np.int64)
        every[some] = count
        count = every
    return frozen(starts(count)), keys


def _keys(lists: list[Any], count: int) -> Keys | None:
    """Return all tokens as keys; None if one of them has a control character.

    They are joined by one, and encoded at once: a call for each would cost more than the rest.
    """
    try:
        byte = np.frombuffer(PHRASE.join(chain.from_iterable(lists)).encode(), np.uint8)
    except (TypeError, UnicodeEncodeError):
        return strings_as_keys([token for tokens in lists for token in tokens], "token")
    start, tag = np.zeros(count + 1, np.int64), np.empty(count, np.uint32)
    content = np.empty(len(byte), np.uint8)
    size = split_joined(byte, start, content, tag)
    if size < 0:
        return None
    return Keys(frozen(start), frozen(content[:size]), frozen(tag))


@kernel
def split_joined(
    byte: NDArray[np.uint8],
    start: NDArray[np.int64],
    content: NDArray[np.uint8],
    tag: NDArray[np.uint32],
) -> Number:
    """Split tokens that were joined by a control character, and hash them.

    Writes where each token begins to ``start`` int64[tokens + 1], the bytes of all to ``content``
    and their tags to ``tag`` uint32[tokens]. Returns the number of bytes, -1 if a token has a
    control character of its own.
    """
    token, size = 0, 0
    state = HASH_SEED
    for i in range(len(byte)):
        if byte[i] == _BORDER:
            if token + 1 >= len(tag):
                return -1
            tag[token] = hash_end(state)
            token += 1
            start[token] = size
            state = HASH_SEED
        elif byte[i] == _PREFIX or byte[i] == _SCOPE:
            return -1
        else:
            content[size] = byte[i]
            state = hash_byte(state, byte[i])
            size += 1
    if len(tag) == 0:
        return 0 if size == 0 else -1
    if token + 1 < len(tag):
        return -1
    tag[token] = hash_end(state)
    start[token + 1] = size
    return size
