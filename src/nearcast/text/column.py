"""From text to words, and from words to token ids.

Reading text is the expensive step and happens once: `Words` holds the words of every row as hashed
UTF-8 keys. Numbering them with a vocabulary is cheap, and can be done with any number of
vocabularies.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import chain, frozen, gather, read_only, starts
from nearcast.errors import InvalidInput
from nearcast.model.folding import fold
from nearcast.text.byte_table import MAX_KEY_BYTES, Keys
from nearcast.text.calling import call_tokenizer
from nearcast.text.derived import RowWords, number_derived, number_derived_texts
from nearcast.text.keys import string_buffers
from nearcast.text.scopes import Scopes, append_scopes, insert_scopes
from nearcast.text.splitting import (
    Texts,
    WordBuffers,
    distinct_tokens,
    max_words,
    number_texts,
    number_words,
    split_words,
)
from nearcast.text.unicode_words import UnicodeWords, alphabet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.text.derived import DerivedArrays
    from nearcast.text.unicode_words import Tokenizer
    from nearcast.text.vocabulary import Vocabulary

__all__ = ["Sequences", "TokenColumn", "Words", "tokenize_column"]

_ROWS = 8192  # the words of this many short texts fit in the L2 cache
_FOLDED_AT_ONCE_BYTES = 1 << 16
"""Python folds that much without letting other threads run."""

_ROWS_ARE_TEXTS = frozen(np.empty(0, np.uint8))
_NOT_STEMMED = frozen(np.empty(0, np.int32))


class TokenColumn(NamedTuple):
    """The tokens of every row, ascending and distinct, and where the words of the row began."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    word_start: NDArray[np.int64]

    @property
    def word_count(self) -> NDArray[np.int64]:
        """How many words each row had, unknown and repeated ones too."""
        return np.diff(self.word_start)


class Sequences(NamedTuple):
    """The words of every row in order, as numbers of a vocabulary.

    ``word`` has the number of each, or ``-2 - number`` where a text begins within a row, or where
    a word before it could not be numbered: no phrase goes across. ``typed`` has the numbers of the
    words before they were stemmed; it is empty if they were not.
    """

    word_start: NDArray[np.int64]
    word: NDArray[np.int32]
    typed: NDArray[np.int32] = _NOT_STEMMED

    def renumbered(self, used: NDArray[np.int32]) -> Sequences:
        """Return the same with other numbers: ``used`` has the old ones, ascending."""
        begins = self.word < 0
        number = np.searchsorted(used, np.where(begins, -2 - self.word, self.word))
        return Sequences(
            self.word_start,
            np.where(begins, -2 - number, number).astype(np.int32),
            np.searchsorted(used, self.typed).astype(np.int32),
        )


class _FewTexts(NamedTuple):
    """Texts that were not split yet, folded unless they are ASCII."""

    texts: Texts
    ascii_only: bool


class _Scoped(NamedTuple):
    """The words of rows, and scopes that were not put among them yet."""

    words: Words
    scopes: Scopes


class Words:
    """The words of every row as hashed keys, which no vocabulary has numbered yet.

    Row ``i`` has the keys from ``word_start[i]`` to ``word_start[i + 1]``, in the order of the
    text, repeated ones included. Where rows consist of several texts, ``begins`` uint8[words] marks
    the first word of each, so that no phrase is found across two of them. ``typed`` has the words
    before they were stemmed, which decide about beginnings of words; None if they were not.

    Examples
    --------
    >>> from nearcast.text import Vocabulary
    >>> read = Words.read(pa.array(["Flat white, white CUP", None, "tea"]))
    >>> read.number(Vocabulary(["cup", "white"])).token.tolist()
    [0, 1]
    >>> read.number(Vocabulary(["tea"])).token_start.tolist()
    [0, 0, 0, 1]
    """

    _texts: _FewTexts | None = None
    _scoped: _Scoped | None = None
    begins: NDArray[np.uint8] = _ROWS_ARE_TEXTS

    def __init__(
        self,
        word_start: NDArray[np.int64],
        keys: Keys,
        begins: NDArray[np.uint8] = _ROWS_ARE_TEXTS,
        typed: Keys | None = None,
    ) -> None:
        vars(self).update(word_start=word_start, keys=keys, begins=begins, typed=typed)

    def __len__(self) -> int:
        return len(self.word_start) - 1

    @cached_property
    def word_start(self) -> NDArray[np.int64]:
        """Where the words of each row begin, and the end."""
        return self._made()[0]

    @cached_property
    def keys(self) -> Keys:
        """All words."""
        return self._made()[1]

    @cached_property
    def typed(self) -> Keys | None:
        """All words before they were stemmed; None if they were not."""
        typed = None if self._scoped is None else self._scoped.words.typed
        if self._scoped is None or typed is None:
            return None
        plain, scopes = self._scoped
        return self._append_scopes(type(self)(plain.word_start, typed), scopes)[1]

    def _made(self) -> tuple[NDArray[np.int64], Keys]:
        """Split the texts, or put the scopes among the words."""
        if self._scoped is not None:
            made = self._append_scopes(*self._scoped)
        else:
            assert self._texts is not None
            texts, ascii_only = self._texts
            made = _split(texts.begin, texts.end, texts.byte, ascii_only)
        vars(self).update(word_start=made[0], keys=made[1])
        return made

    @classmethod
    def read(cls, strings: pa.Array | pa.ChunkedArray, tokenizer: Tokenizer | None = None) -> Self:
        """Read a column of strings, or of lists of strings; a null has no words."""
        chunks = strings.chunks if isinstance(strings, pa.ChunkedArray) else [strings]
        return cls.concatenate([cls._read_chunk(chunk, tokenizer) for chunk in chunks])

    @classmethod
    def of_texts(cls, texts: Sequence[str], tokenizer: Tokenizer | None = None) -> Self:
        """Read a list of texts: for a few of them quicker than a column.

        They are split when somebody asks for their words, or when they are numbered.

        Examples
        --------
        >>> Words.of_texts(["Flat white", ""]).word_start.tolist()
        [0, 2, 2]
        """
        if tokenizer is not None and not _is_default(tokenizer):
            refine = getattr(tokenizer, "refine", None)
            if refine is None:
                return cls(*call_tokenizer(tokenizer, texts))
            found = cls.of_texts(texts)
            return cls._refined(tokenizer, found.word_start, found.keys)
        plain = all(map(str.isascii, texts))
        encoded = [text.encode() for text in (texts if plain else map(fold, texts))]
        start = frozen(np.array([0, *accumulate(map(len, encoded))], np.int64))
        byte = np.frombuffer(b"".join(encoded), np.uint8)
        words = cls.__new__(cls)
        words._texts = _FewTexts(Texts(start[:-1], start[1:], byte), plain)
        return words

    @classmethod
    def _read_chunk(cls, chunk: pa.Array, tokenizer: Tokenizer | None) -> Self:
        texts, text_start = _texts_of(chunk)
        refine = getattr(tokenizer, "refine", None)
        if tokenizer is None or _is_default(tokenizer):
            read = cls(*_split_strings(texts))
        elif refine is not None:
            read = cls._refined(tokenizer, *_split_strings(texts))
        else:
            read = cls(*call_tokenizer(tokenizer, texts.to_pylist()))
        return read if text_start is None else read.group(text_start)

    @classmethod
    def _refined(cls, tokenizer: Any, word_start: NDArray[np.int64], typed: Keys) -> Self:
        """Give words that the default tokenizer found to one that goes on from there."""
        start, keys = tokenizer.refine(word_start, typed)
        stems = getattr(tokenizer, "stems", False)
        return cls(start, keys, typed=typed if stems else None)

    def group(self, start: NDArray[np.int64]) -> Self:
        """Return the words of groups of rows: group ``i`` has the rows from ``start[i]`` on."""
        return type(self)(self.word_start[start], self.keys, self._first_words(), self.typed)

    def with_scopes(self, names: pa.Array | Sequence[str | None]) -> Self:
        r"""Return the words of each row, and the token of its scope after them.

        Examples
        --------
        >>> from nearcast.text import Vocabulary
        >>> words = Words.of_texts(["hot tea", "tea"]).with_scopes(["acme", None])
        >>> words.number(Vocabulary(["tea", "\x1dacme"])).token.tolist()
        [0, 1, 0]
        """
        words = type(self).__new__(type(self))
        words._scoped = _Scoped(self, Scopes.of(names))
        if len(self.begins):
            given = words._scoped.scopes.code >= 0
            words.begins = frozen(np.insert(self.begins, self.word_start[1:][given], 1))
        return words

    def _append_scopes(self, plain: Words, scopes: Scopes) -> tuple[NDArray[np.int64], Keys]:
        keys, count = plain.keys, len(plain.keys.tag) + int(np.count_nonzero(scopes.code >= 0))
        size = len(keys.byte) + int(np.diff(scopes.keys.byte_start)[scopes.code].sum())
        out = WordBuffers(
            np.empty(len(scopes.code) + 1, np.int64),
            np.empty(count + 1, np.int64),
            np.empty(size, np.uint8),
            np.empty(count, np.uint32),
        )
        append_scopes(read_only(plain.word_start, np.int64), keys, scopes, out)
        byte = frozen(out.byte[: int(out.byte_start[-1])])
        return frozen(out.word_start), Keys(frozen(out.byte_start), byte, frozen(out.tag))

    def _first_words(self) -> NDArray[np.uint8]:
        """Mark the first word of every row, and of every text within a row."""
        begins = np.zeros(len(self.keys.tag) + 1, np.uint8)
        begins[self.word_start] = 1
        begins[: len(self.begins)] |= self.begins
        return frozen(begins[:-1])

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the words of these rows."""
        word_start, word = gather(self.word_start, rows)
        begins = frozen(self.begins[word]) if len(self.begins) else self.begins
        typed = None if self.typed is None else _taken(self.typed, word)
        return type(self)(word_start, _taken(self.keys, word), begins, typed)

    @classmethod
    def concatenate(cls, parts: Sequence[Words]) -> Self:
        """Return the words of all parts, row after row."""
        if len(parts) == 1:
            return cls(parts[0].word_start, parts[0].keys, parts[0].begins, parts[0].typed)
        keys, typed = _chained([part.keys for part in parts]), None
        if any(part.typed is not None for part in parts):
            typed = _chained([part.typed or part.keys for part in parts])
        begins = _ROWS_ARE_TEXTS
        if any(len(part.begins) for part in parts):
            begins = frozen(_joined([part._first_words() for part in parts]))
        return cls(chain([part.word_start for part in parts]), keys, begins, typed)

    def number(self, vocabulary: Vocabulary, *, add: bool = False) -> TokenColumn:
        """Return the token ids of every row.

        Parameters
        ----------
        vocabulary
            Where the ids come from.
        add
            Whether unknown words are added to the vocabulary, in order of appearance. Otherwise
            they are left out, and the phrases and beginnings of words of the vocabulary that are
            true of a row are among its tokens.
        """
        if self._scoped is not None and not add:
            return self._number_scoped(*self._scoped, vocabulary)
        derived = None if add else vocabulary.derived
        if derived is not None:
            return self._number_derived(vocabulary, derived)
        if self._texts is not None and not add:
            return self._number_texts(self._texts, vocabulary)
        word_start = read_only(self.word_start, np.int64)
        token_start = np.empty(len(word_start), np.int64)
        token = np.empty(len(self.keys.tag), np.int32)
        if add:
            number = read_only(self._added(vocabulary), np.int32)
            count = distinct_tokens(number, word_start, token_start, token)
        else:
            table = vocabulary.snapshot()
            count = number_words(table, self.keys, word_start, token_start, token)
        return TokenColumn(frozen(token_start), frozen(token[:count]), word_start)

    def _number_scoped(self, plain: Words, scopes: Scopes, vocabulary: Vocabulary) -> TokenColumn:
        """Return the token ids of every row, that of its scope among them."""
        token_start, token, word_start = plain.number(vocabulary)
        number = vocabulary.ids_of_keys(scopes.keys)
        start, out = (
            np.empty(len(token_start), np.int64),
            np.empty(len(token) + len(scopes.code), np.int32),
        )
        count = insert_scopes(
            token_start, token, read_only(number, np.int32), scopes.code, start, out
        )
        return TokenColumn(frozen(start), frozen(out[:count]), word_start)

    def sequence(self, vocabulary: Vocabulary) -> Sequences:
        """Return the words of every row in order; the vocabulary must have them.

        The words before stemming are added to it.

        Examples
        --------
        >>> from nearcast.text import Vocabulary
        >>> Words.of_texts(["tea hot tea"]).sequence(Vocabulary(["tea", "hot"])).word.tolist()
        [0, 1, 0]
        """
        number = vocabulary.ids_of_keys(self.keys)
        known, typed = number >= 0, _NOT_STEMMED
        if self.typed is not None:
            typed = vocabulary.add_keys(_taken(self.typed, np.flatnonzero(known)))
        if not len(self.begins) and known.all():
            return Sequences(self.word_start, number, typed)
        begins = self._first_words().astype(np.bool_)
        begins[1:] |= ~known[:-1]
        begins[: len(number)][self.word_start[:-1][np.diff(self.word_start) > 0]] = False
        word = np.where(begins, -2 - number, number)[known].astype(np.int32)
        return Sequences(starts(known.astype(np.int64))[self.word_start], word, typed)

    @classmethod
    def of_sequences(cls, sequences: Sequences, vocabulary: Vocabulary) -> Self:
        """Return the words of rows that `sequence` returned."""
        begins = sequences.word < 0
        number = np.where(begins, -2 - sequences.word, sequences.word).astype(np.int32)
        marks = frozen(begins.astype(np.uint8)) if begins.any() else _ROWS_ARE_TEXTS
        typed = vocabulary.keys(sequences.typed) if len(sequences.typed) else None
        return cls(sequences.word_start, vocabulary.keys(number), marks, typed)

    def _number_derived(self, vocabulary: Vocabulary, derived: DerivedArrays) -> TokenColumn:
        """Return the token ids of every row, those of phrases and beginnings of words too."""
        table = vocabulary.snapshot()
        if self._texts is None:
            word_start = read_only(self.word_start, np.int64)
            words = RowWords(self.keys, self.typed or self.keys, word_start, self.begins)
            token_start = np.empty(len(self) + 1, np.int64)
            token = number_derived(derived, table, words, token_start)
            return TokenColumn(frozen(token_start), frozen(token), word_start)
        texts, ascii_only = self._texts
        word_start = np.empty(len(texts.begin) + 1, np.int64)
        token_start = np.empty(len(texts.begin) + 1, np.int64)
        letters = alphabet(ascii_only)
        token = number_derived_texts(derived, table, texts, letters, word_start, token_start)
        return TokenColumn(frozen(token_start), frozen(token), frozen(word_start))

    def _number_texts(self, few: _FewTexts, vocabulary: Vocabulary) -> TokenColumn:
        """Split and number texts in one step: for a message, each step costs more than its work."""
        texts, ascii_only = few
        word_start = np.empty(len(texts.begin) + 1, np.int64)
        token_start = np.empty(len(texts.begin) + 1, np.int64)
        token = np.empty(max_words(len(texts.byte), len(texts.begin)), np.int32)
        table = vocabulary.snapshot()
        count = number_texts(texts, alphabet(ascii_only), table, word_start, token_start, token)
        return TokenColumn(frozen(token_start), frozen(token[:count]), frozen(word_start))

    def _added(self, vocabulary: Vocabulary) -> NDArray[np.int32]:
        """Add all words that a vocabulary can hold; the others get no number."""
        fits = np.diff(self.keys.byte_start) <= MAX_KEY_BYTES
        if fits.all():
            return vocabulary.add_keys(self.keys)
        number = np.full(len(fits), -1, np.int32)
        number[fits] = vocabulary.add_keys(_taken(self.keys, np.flatnonzero(fits)))
        return number


def tokenize_column(
    strings: pa.Array | pa.ChunkedArray,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    *,
    add: bool,
) -> TokenColumn:
    """Return the token ids of every row of a column: reads and numbers it piece by piece.

    Parameters
    ----------
    strings
        Strings, or lists of strings; a null has no words.
    tokenizer
        Splits a string into words. The default one is many times faster than any other.
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
    parts = [Words.read(piece, tokenizer).number(vocabulary, add=add) for piece in _pieces(strings)]
    if not parts:
        return TokenColumn(np.zeros(1, np.int64), np.empty(0, np.int32), np.zeros(1, np.int64))
    return TokenColumn(
        chain([part.token_start for part in parts]),
        np.concatenate([part.token for part in parts]),
        chain([part.word_start for part in parts]),
    )


def _pieces(strings: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Cut a column into pieces whose words fit in the cache."""
    for chunk in strings.chunks if isinstance(strings, pa.ChunkedArray) else [strings]:
        for first in range(0, len(chunk), _ROWS):
            yield chunk.slice(first, _ROWS)


def _is_default(tokenizer: Tokenizer) -> bool:
    return type(tokenizer) is UnicodeWords


def _taken(keys: Keys, chosen: NDArray[Any]) -> Keys:
    """Return some of the keys."""
    byte_start, byte = gather(keys.byte_start, chosen)
    tag = read_only(keys.tag[chosen], np.uint32)
    return Keys(read_only(byte_start, np.int64), read_only(keys.byte[byte], np.uint8), tag)


def _chained(parts: list[Keys]) -> Keys:
    """Return all keys, part after part."""
    return Keys(
        read_only(chain([part.byte_start for part in parts]), np.int64),
        read_only(_joined([part.byte for part in parts]), np.uint8),
        read_only(_joined([part.tag for part in parts]), np.uint32),
    )


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def _texts_of(piece: pa.Array) -> tuple[pa.Array, NDArray[np.int64] | None]:
    """Return the texts of a piece as a string array, and where those of each list begin."""
    kind = piece.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.fill_null(pc.list_value_length(piece), 0)
        return _as_strings(pc.list_flatten(piece)), starts(lengths.to_numpy(zero_copy_only=False))
    return _as_strings(piece), None


def _as_strings(texts: pa.Array) -> pa.Array:
    kind = texts.type
    if kind in (pa.string(), pa.large_string()):
        return texts
    if pa.types.is_dictionary(kind):
        return _as_strings(texts.dictionary_decode())
    if kind in (pa.string_view(), pa.null()):
        return texts.cast(pa.large_string())
    raise InvalidInput("column", str(kind), "must hold strings or lists of strings")


def _split_strings(texts: pa.Array) -> tuple[NDArray[np.int64], Keys]:
    """Split the strings of an Arrow array with the default tokenizer."""
    start, byte = string_buffers(texts)
    begin, end = start[:-1], start[1:].copy()
    if texts.null_count:
        null = texts.is_null().to_numpy(zero_copy_only=False)
        end[null] = begin[null]
    other = ~pc.fill_null(pc.string_is_ascii(texts), True).to_numpy(zero_copy_only=False)
    if not other.any():
        return _split(begin, end, byte, True)
    folded_start, folded = _folded(texts.filter(pa.array(other)))
    begin[other] = len(byte) + folded_start[:-1]
    end[other] = len(byte) + folded_start[1:]
    return _split(begin, end, np.concatenate([byte, folded]), False)


def _split(
    begin: NDArray[np.int64], end: NDArray[np.int64], byte: NDArray[np.uint8], ascii_only: bool
) -> tuple[NDArray[np.int64], Keys]:
    """Split texts, text ``i`` in ``byte[begin[i]:end[i]]``; non-ASCII ones are folded already."""
    words = max_words(len(byte), len(begin))
    out = WordBuffers(
        np.empty(len(begin) + 1, np.int64),
        np.empty(words + 1, np.int64),
        np.empty(len(byte), np.uint8),
        np.empty(words, np.uint32),
    )
    source = Texts(read_only(begin, np.int64), read_only(end, np.int64), read_only(byte, np.uint8))
    count = split_words(source, alphabet(ascii_only), out)
    byte_start = frozen(out.byte_start[: count + 1])
    used = frozen(out.byte[: int(byte_start[-1])])
    return frozen(out.word_start), Keys(byte_start, used, frozen(out.tag[:count]))


def _folded(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Fold texts, many at once: no character composes with a line break or folds to one."""
    byte = _joined([_folded_lines(some) for some in _groups(texts)])
    # The line breaks stay between the texts: they separate words anyway.
    return np.concatenate([[0], np.flatnonzero(byte == ord("\n")) + 1]), byte


def _folded_lines(texts: pa.Array) -> NDArray[np.uint8]:
    """Fold texts, and end each with a line break."""
    try:
        lines = [text.replace("\n", " ") for text in texts.to_pylist()]
    except UnicodeDecodeError as error:
        raise InvalidInput("text", error.object, "must be valid UTF-8") from None
    return np.frombuffer((fold("\n".join(lines)) + "\n").encode(), np.uint8)


def _groups(texts: pa.Array) -> Iterator[pa.Array]:
    """Yield texts in groups of bounded length; a longer text has a group of its own."""
    start, _ = string_buffers(texts)
    begin = 0
    while begin < len(texts):
        most = start[begin] + _FOLDED_AT_ONCE_BYTES
        end = max(begin + 1, int(start.searchsorted(most, "right")) - 1)
        yield texts.slice(begin, end - begin)
        begin = end
