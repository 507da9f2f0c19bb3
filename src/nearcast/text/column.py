"""Whole columns of text, or of lists of keywords, to token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import read_only, starts
from nearcast.errors import InvalidInput
from nearcast.text.byte_table import Keys
from nearcast.text.keys import string_buffers, strings_as_keys
from nearcast.text.splitting import Texts, WordBuffers, distinct_tokens, split_words
from nearcast.text.tokenizer import UnicodeWords, alphabet, fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.text.tokenizer import Tokenizer
    from nearcast.text.vocabulary import Vocabulary

__all__ = ["TokenColumn", "tokenize_column"]

_ROWS = 8192  # the words of so many short messages stay in the second-level cache


class TokenColumn(NamedTuple):
    """The tokens of every row, ascending and distinct, and how many words the row had.

    ``word_count`` counts unknown and repeated words too: 0 means that there was no word at all.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    word_count: NDArray[np.int64]


class _Words(NamedTuple):
    """The words of texts; text ``i`` has those from ``word_start[i]`` on."""

    word_start: NDArray[np.int64]
    keys: Keys


def tokenize_column(
    strings: pa.Array | pa.ChunkedArray,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    *,
    add: bool,
) -> TokenColumn:
    """Return the token ids of every row of a column.

    Parameters
    ----------
    strings
        Strings, or lists of strings; a null has no words.
    tokenizer
        What makes words of a string. The default one is many times faster than any other.
    vocabulary
        Where the ids come from.
    add
        Whether unknown tokens are added to the vocabulary, in order of appearance; otherwise they
        are left out.

    Examples
    --------
    >>> from nearcast.text import Vocabulary, words
    >>> texts = pa.array(["Flat white, white CUP", None, "tea"])
    >>> column = tokenize_column(texts, words, Vocabulary(["cup", "white"]), add=False)
    >>> column.token_start.tolist(), column.token.tolist(), column.word_count.tolist()
    ([0, 2, 2, 2], [0, 1], [4, 0, 1])
    """
    parts = [_tokenize(piece, tokenizer, vocabulary, add) for piece in _pieces(strings)]
    if not parts:
        return TokenColumn(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    return TokenColumn(
        starts(np.concatenate([np.diff(part.token_start) for part in parts])),
        np.concatenate([part.token for part in parts]),
        np.concatenate([part.word_count for part in parts]),
    )


def _pieces(strings: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Cut a column into pieces that are worked on at a time."""
    for chunk in strings.chunks if isinstance(strings, pa.ChunkedArray) else [strings]:
        for first in range(0, len(chunk), _ROWS):
            yield chunk.slice(first, _ROWS)


def _tokenize(
    piece: pa.Array, tokenizer: Tokenizer, vocabulary: Vocabulary, add: bool
) -> TokenColumn:
    texts, text_start = _texts_of(piece)
    if type(tokenizer) is UnicodeWords:
        word_start, keys = _split(texts)
    else:
        word_start, keys = _call(tokenizer, texts)
    number = vocabulary.add_keys(keys) if add else vocabulary.ids_of_keys(keys)
    row_start = read_only(word_start[text_start], np.int64)
    token_start = np.empty(len(row_start), np.int64)
    token = np.empty(len(number), np.int32)
    count = distinct_tokens(read_only(number, np.int32), row_start, token_start, token)
    return TokenColumn(token_start, token[:count], np.diff(row_start))


def _texts_of(piece: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the texts of a piece as a string array, and where those of each row begin."""
    kind = piece.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.fill_null(pc.list_value_length(piece), 0)
        return _as_strings(pc.list_flatten(piece)), starts(lengths.to_numpy(zero_copy_only=False))
    return _as_strings(piece), np.arange(len(piece) + 1)


def _as_strings(texts: pa.Array) -> pa.Array:
    kind = texts.type
    if kind in (pa.string(), pa.large_string()):
        return texts
    if pa.types.is_dictionary(kind):
        return _as_strings(texts.dictionary_decode())
    if kind in (pa.string_view(), pa.null()):
        return texts.cast(pa.large_string())
    raise InvalidInput("column", str(kind), "must hold strings or lists of strings")


def _split(texts: pa.Array) -> _Words:
    """Cut texts into words with the default tokenizer."""
    start, byte = string_buffers(texts)
    begin, end = start[:-1], start[1:].copy()
    if texts.null_count:
        null = texts.is_null().to_numpy(zero_copy_only=False)
        end[null] = begin[null]
    other = ~pc.fill_null(pc.string_is_ascii(texts), True).to_numpy(zero_copy_only=False)
    if other.any():
        folded_start, folded = _folded(texts.filter(pa.array(other)))
        begin[other] = len(byte) + folded_start[:-1]
        end[other] = len(byte) + folded_start[1:]
        byte = np.concatenate([byte, folded])
    room = (len(byte) + len(begin)) // 2 + 1
    out = WordBuffers(
        np.empty(len(begin) + 1, np.int64),
        np.empty(room + 1, np.int64),
        np.empty(len(byte), np.uint8),
        np.empty(room, np.uint32),
    )
    source = Texts(read_only(begin, np.int64), read_only(end, np.int64), read_only(byte, np.uint8))
    count = split_words(source, alphabet(not other.any()), out)
    byte_start = read_only(out.byte_start[: count + 1], np.int64)
    keys = Keys(byte_start, read_only(out.byte, np.uint8), read_only(out.tag[:count], np.uint32))
    return _Words(out.word_start, keys)


def _folded(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Fold texts, all in one: no character composes with a line break or folds to one."""
    try:
        lines = [text.replace("\n", " ") for text in texts.to_pylist()]
    except UnicodeDecodeError as error:
        raise InvalidInput("text", error.object, "must be valid UTF-8") from None
    byte = np.frombuffer((fold("\n".join(lines)) + "\n").encode(), np.uint8)
    # The line breaks stay between the texts: they separate words anyway.
    return np.concatenate([[0], np.flatnonzero(byte == ord("\n")) + 1]), byte


def _call(tokenizer: Tokenizer, texts: pa.Array) -> _Words:
    """Cut texts into words with any tokenizer."""
    lists = [_tokens(tokenizer, text) for text in texts.to_pylist()]
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    return _Words(starts(counts), strings_as_keys([t for ts in lists for t in ts], "token"))


def _tokens(tokenizer: Tokenizer, text: str | None) -> list[str]:
    return [token for token in tokenizer(text) if token != ""] if text is not None else []
