"""The vocabulary: tokens and their numbers, and how many subscriptions use each.

A vocabulary may have phrases and beginnings of words (`nearcast.model.derived`). The words of a
phrase are in it as well, so that a message is found to have the phrase by the numbers of its words.
"""

from __future__ import annotations

import threading
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from nearcast.columns import frozen, read_only, starts
from nearcast.errors import InvalidInput, StorageError
from nearcast.model.derived import phrase_words
from nearcast.text.byte_table import (
    LENGTH_BITS,
    MAX_KEY_BYTES,
    ByteTable,
    Keys,
    add_key,
    add_keys,
    find_key,
)
from nearcast.text.derived import (
    PHRASE_BYTE,
    PREFIX_BYTE,
    DerivedArrays,
    DerivedTokens,
    mark_phrase_words,
)
from nearcast.text.keys import (
    check_length,
    check_lengths,
    empty_table,
    encode_key,
    keys_of,
    numbers_of,
    read_only_table,
    strings_as_keys,
    table_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Vocabulary"]

_BATCH = 1 << 16
_FEW_KEYS = 64


class Vocabulary:
    """Tokens, numbered from 0 in order of arrival; none is ever removed.

    Any number of threads may look up tokens while one adds some. A vocabulary can be pickled.

    Parameters
    ----------
    tokens
        The first tokens.

    Examples
    --------
    >>> vocabulary = Vocabulary(["coffee", "latte"])
    >>> vocabulary.add(["mocha", "coffee"]).tolist()
    [2, 0]
    >>> vocabulary.ids_of(["latte", "tea"]).tolist()
    [1, -1]
    >>> vocabulary.token(2), len(vocabulary)
    ('mocha', 3)
    """

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self._writing = threading.Lock()
        self._install(empty_table(), 0, 0)
        self._frequency = np.zeros(0, np.int64)
        self._derived: DerivedTokens | None = None
        self.add(list(tokens))

    def _install(self, table: ByteTable, count: int, used: int) -> None:
        self._table = table
        self._view = read_only_table(table)
        self._count = count
        self._used = used

    def __len__(self) -> int:
        return self._count

    def __contains__(self, token: str) -> bool:
        return self.id_of(token) >= 0

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"

    @property
    def nbytes(self) -> int:
        """The bytes of the vocabulary in memory."""
        derived = 0 if self._derived is None else self._derived.nbytes
        return sum(array.nbytes for array in self._table) + self._frequency.nbytes + derived

    @property
    def derived(self) -> DerivedArrays | None:
        """The phrases and beginnings of words for kernels, None if there are none.

        Take it before `snapshot`, which then has all their words.
        """
        return None if self._derived is None else self._derived.view

    def is_derived(self, numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        r"""Return which ids are those of phrases or beginnings of words.

        Examples
        --------
        >>> Vocabulary(["tea", "\x1eflood"]).is_derived(np.array([0, 1])).tolist()
        [False, True]
        """
        if self._derived is None:
            return np.zeros(len(numbers), np.bool_)
        table = self._view
        first = table.key[table.span[numbers] >> np.uint64(LENGTH_BITS)]
        derived: NDArray[np.bool_] = (first == PHRASE_BYTE) | (first == PREFIX_BYTE)
        return derived

    def mark_phrase_words(self, used: NDArray[np.bool_]) -> None:
        r"""Mark the words of all phrases that are marked, by id.

        Examples
        --------
        >>> used = np.array([False, True, False])
        >>> Vocabulary(["town", "\x1fold\x1ftown"]).mark_phrase_words(used)
        >>> used.tolist()
        [True, True, True]
        """
        if self._derived is not None:
            mark_phrase_words(self._derived.view, used)

    def word_ids(self, number: int) -> list[int]:
        r"""Return the ids of the words that a token requires: itself, or those of a phrase.

        The beginning of a word requires none.

        Examples
        --------
        >>> vocabulary = Vocabulary(["town", "\x1fold\x1ftown", "\x1eflood"])
        >>> [vocabulary.word_ids(number) for number in range(3)]
        [[0], [3, 0], []]
        """
        token = self.token(number)
        if token[0] == chr(PREFIX_BYTE):
            return []
        if token[0] != chr(PHRASE_BYTE):
            return [number]
        ids: list[int] = self.ids_of(phrase_words(token)).tolist()
        return ids

    def snapshot(self) -> ByteTable:
        """Return the table for kernels; it stays valid while tokens are added.

        A token that is added later may be found in it or not.
        """
        return self._view

    def id_of(self, token: str) -> int:
        """Return the id of a token, -1 where it is unknown."""
        return int(self.ids_of([token])[0])

    def ids_of(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """Return the id of every token, -1 where it is unknown."""
        return self.ids_of_keys(strings_as_keys(tokens, "token"))

    def ids_of_keys(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of every token of a batch of UTF-8 bytes, -1 where it is unknown."""
        return numbers_of(self.snapshot(), keys)

    def add(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """Return the id of every token; unknown ones get new ids, in order of appearance."""
        keys = strings_as_keys(tokens, "token")
        number = self.ids_of_keys(keys)
        return number if number.min(initial=0) >= 0 else self.add_keys(keys)

    def add_few(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of a few tokens as `add` does, but faster."""
        table = self.snapshot()
        keys = [encode_key(token, "token") for token in tokens]
        number = [find_key(table, key) for key in keys]
        if min(number, default=0) >= 0:
            return number
        for key in keys:
            check_length(key, "token")
        with self._writing:
            return [self._add_one(key) for key in keys]

    def _add_one(self, key: NDArray[np.uint8]) -> int:
        number = find_key(self._view, key)
        if number < 0:
            self._reserve(1, len(key))
            number = self._count
            self._used = add_key(self._table, self._used, key, number)
            self._count += 1
            if int(key[0]) in (PHRASE_BYTE, PREFIX_BYTE):
                self._derive(number)
        return number

    def add_keys(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of every token of a batch of UTF-8 bytes; unknown ones get new ids."""
        check_lengths(keys, "token")
        count = len(keys.tag)
        if count <= _BATCH:
            with self._writing:
                return self._add_batch(keys)
        number = np.empty(count, np.int32)
        with self._writing:
            for first in range(0, count, _BATCH):
                last = min(first + _BATCH, count)
                start, tag = keys.byte_start[first : last + 1], keys.tag[first:last]
                number[first:last] = self._add_batch(Keys(start, keys.byte, tag))
        return number

    def _add_batch(self, keys: Keys) -> NDArray[np.int32]:
        count = len(keys.tag)
        if count <= _FEW_KEYS:  # reserving a little too much costs less than counting
            number = np.full(count, -1, np.int32)
            new, new_bytes = count, int(keys.byte_start[-1]) - int(keys.byte_start[0])
        else:
            number = numbers_of(self._view, keys)
            unknown = number < 0
            new, new_bytes = int(unknown.sum()), int(np.diff(keys.byte_start)[unknown].sum())
        if new:
            self._reserve(new, new_bytes)
            fresh = frozen(np.arange(self._count, self._count + new, dtype=np.int32))
            before = self._count
            taken, self._used = add_keys(self._table, self._used, keys, fresh, number)
            self._count += taken
            if taken:
                self._derive(before)
        return number

    def _derive(self, first: int) -> None:
        """Take up the phrases and beginnings of words among the tokens from an id on."""
        begin = self._view.span[first : self._count] >> np.uint64(LENGTH_BITS)
        marker = self._view.key[begin]
        chosen = np.flatnonzero((marker == PHRASE_BYTE) | (marker == PREFIX_BYTE))
        if not len(chosen):
            return
        derived = DerivedTokens() if self._derived is None else self._derived
        number = (chosen + first).astype(np.int32)
        is_phrase = marker[chosen] == PHRASE_BYTE
        phrases, prefixes = number[is_phrase], number[~is_phrase]
        if len(phrases):
            kept, word_start, words = _words_of(self.keys(phrases))
            derived.add_phrases(word_start, self._add_batch(words), phrases[kept])
        if len(prefixes):
            derived.add_prefixes(self._view, prefixes)
        self._derived = derived

    def _reserve(self, keys: int, key_bytes: int) -> None:
        """Reserve space for more keys; a table that readers may hold is not changed."""
        count, used = self._count + keys, self._used + key_bytes
        slot, span, key = (len(array) for array in self._table)
        if count * 2 <= slot and count <= span and used <= key:
            return
        slots = max(1 << (2 * count - 1).bit_length(), slot)
        numbers = span if count <= span else count + count // 2
        key_bytes = key if used <= key else used + used // 2
        table, moved = table_for(slots, numbers, key_bytes, self._table)
        frequency = np.zeros(numbers, np.int64)
        frequency[: self._count] = self._frequency[: self._count]
        self._frequency = frequency
        self._install(table, self._count, moved)

    def token(self, number: int) -> str:
        """Return the token of an id."""
        if not 0 <= number < self._count:
            raise InvalidInput("number", number, f"must be a token id below {self._count}")
        table = self._view
        start, length = divmod(int(table.span[number]), 1 << LENGTH_BITS)
        return table.key[start : start + length].tobytes().decode()

    def tokens(self) -> pa.LargeStringArray:
        """Return all tokens in the order of their ids.

        Examples
        --------
        >>> Vocabulary(["latte", "mocha"]).tokens().to_pylist()
        ['latte', 'mocha']
        """
        with self._writing:
            table, count, used = self._view, self._count, self._used
        start = np.append(table.span[:count] >> np.uint64(LENGTH_BITS), np.uint64(used))
        buffers = [pa.py_buffer(start.astype(np.int64)), pa.py_buffer(table.key[:used])]
        return pa.LargeStringArray.from_buffers(count, *buffers)

    def keys(self, numbers: NDArray[np.int32]) -> Keys:
        """Return the tokens of these ids as hashed keys, whatever the size of the vocabulary.

        Examples
        --------
        >>> Vocabulary(["latte", "mocha"]).keys(np.array([1, 0])).byte.tobytes()
        b'mochalatte'
        """
        table = self._view
        span = table.span[numbers]
        begin = (span >> np.uint64(LENGTH_BITS)).astype(np.int64)
        start = starts((span & np.uint64(MAX_KEY_BYTES)).astype(np.int64))
        at = np.repeat(begin - start[:-1], np.diff(start)) + np.arange(start[-1])
        return keys_of(start, table.key[at])

    @property
    def frequency(self) -> NDArray[np.int64]:
        """How often each token was counted, by id: its document frequency."""
        return read_only(self._frequency[: self._count], np.int64)

    def count(self, ids: NDArray[Any] | Sequence[int], times: int = 1) -> None:
        """Add to the frequency of tokens: once (or ``times``) for each time that an id occurs.

        Examples
        --------
        >>> vocabulary = Vocabulary(["latte", "mocha"])
        >>> vocabulary.count([1, 0, 1])
        >>> vocabulary.count([0], times=-1)
        >>> vocabulary.frequency.tolist()
        [0, 2]
        """
        chosen = np.asarray(ids, np.int64)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < self._count:
            raise InvalidInput("ids", chosen, f"must be token ids from 0 to {self._count - 1}")
        with self._writing:
            np.add.at(self._frequency, chosen, times)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is as named arrays, to be stored; `from_arrays` takes them back.

        What is added later does not change them.
        """
        with self._writing:
            return {
                "slot": self._view.slot.copy(),
                "span": self._view.span[: self._count],
                "key": self._view.key[: self._used],
                "frequency": self.frequency.copy(),
            }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Take a vocabulary from its arrays, as they are (they may be memory-mapped).

        Examples
        --------
        >>> stored = Vocabulary(["latte", "mocha"]).arrays()
        >>> Vocabulary.from_arrays(stored).id_of("mocha")
        1
        """
        missing = {"slot", "span", "key", "frequency"} - arrays.keys()
        if missing:
            raise StorageError(f"vocabulary: array {min(missing)!r} is missing; store it again")
        table = ByteTable(arrays["slot"], arrays["span"], arrays["key"])
        _check_arrays(table, arrays["frequency"])
        vocabulary = cls()
        vocabulary._install(table, len(table.span), len(table.key))
        vocabulary._frequency = arrays["frequency"].copy()
        vocabulary._derive(0)
        return vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_arrays, (self.arrays(),)


def _words_of(phrases: Keys) -> tuple[NDArray[np.bool_], NDArray[np.int64], Keys]:
    """Return which phrases have only words, where the words of each begin, and all words.

    A phrase with an empty word, which no message has, comes from a damaged folder.
    """
    start, byte = phrases.byte_start.tolist(), phrases.byte.tobytes()
    lists = [byte[a + 1 : b].split(b"\x1f") for a, b in pairwise(start)]
    kept = np.array([all(words) for words in lists], np.bool_)
    whole = [words for words in lists if all(words)]
    words = [word for words in whole for word in words]
    byte_start = np.array([0, *accumulate(map(len, words))], np.int64)
    keys = keys_of(byte_start, np.frombuffer(b"".join(words), np.uint8))
    return kept, starts(np.array([len(words) for words in whole], np.int64)), keys


def _check_arrays(table: ByteTable, frequency: NDArray[Any]) -> None:
    """Refuse arrays that do not belong together, before a kernel reads beyond them."""
    count = len(table.span)
    length = table.span & np.uint64(MAX_KEY_BYTES)
    start = table.span >> np.uint64(LENGTH_BITS)
    number = table.slot[table.slot != 0] & np.uint64(0xFFFFFFFF)
    end = np.append(start, np.uint64(len(table.key)))
    sound = (
        len(frequency) == len(number) == count < len(table.slot)
        and bool((start + length == end[1:]).all())
        and int(end[0]) == 0
        and bool((np.sort(number) == np.arange(1, count + 1)).all())
    )
    if not sound:
        raise StorageError(
            f"vocabulary: {count} spans, {len(number)} slots in use, {len(frequency)} frequencies "
            f"and {len(table.key)} bytes do not belong together; store it again"
        )
