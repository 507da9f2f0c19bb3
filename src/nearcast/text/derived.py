"""Phrases and beginnings of words: which of them are true of a message.

A vocabulary may have derived tokens (`nearcast.model.derived`). The words of its phrases form a
trie, whose edges are one hash table over pairs of a node and a word::

    "old town", "old town hall"        0 -old-> 1 -town-> 2 -hall-> 3
                                                          |         |
                                       token              2's       3's

At every word of a message a walk begins at the root; the tokens on its way are those of phrases
that the message has. Beginnings of words are a second hash table, over their bytes: a word, as it
was before stemming, is looked up once for each length that a beginning has.

Tables are those of `nearcast.text.byte_table`: one writer adds while others read, and larger tables
replace them. Arrays are filled so that an entry that is being written is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import read_only
from nearcast.compiled.jit import Number, kernel
from nearcast.text.byte_table import (
    HASH_SEED,
    LENGTH_BITS,
    MAX_KEY_BYTES,
    find_keys,
    hash_byte,
    hash_end,
)
from nearcast.text.splitting import sort_distinct, split_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.text.byte_table import ByteTable, Keys
    from nearcast.text.splitting import Alphabet, Texts

__all__ = [
    "DerivedArrays",
    "DerivedTokens",
    "RowWords",
    "mark_phrase_words",
    "number_derived",
    "number_derived_texts",
]

PHRASE_BYTE = 0x1F
PREFIX_BYTE = 0x1E

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_FREE = np.uint64(0)
_ONE = np.uint64(1)
_SHIFT = np.uint64(LENGTH_BITS)
_LENGTH = np.uint64(MAX_KEY_BYTES)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_LONG = 63
_FILTER_BITS = 1 << 15
_FILTER_MASK = np.uint64(_FILTER_BITS - 1)


class DerivedArrays(NamedTuple):
    """The trie of phrases and the table of beginnings.

    ``slot`` uint64[slots] has the edges: a tag in the upper half, the node they lead to plus one in
    the lower half. ``parent``, ``word`` and ``token`` int32[nodes] are those of each node (-1 where
    no phrase ends). ``first`` uint8[`_FILTER_BITS` / 8] has a bit for each word that may begin a
    phrase. ``prefix_slot`` uint64[slots] has the tag and the token plus one of each beginning, and
    ``lengths`` uint64[1] a bit for each of their lengths in bytes, the last for all from 63 on.
    """

    slot: NDArray[np.uint64]
    parent: NDArray[np.int32]
    word: NDArray[np.int32]
    token: NDArray[np.int32]
    first: NDArray[np.uint8]
    prefix_slot: NDArray[np.uint64]
    lengths: NDArray[np.uint64]


class RowWords(NamedTuple):
    """The words of rows: keys, and where each row begins.

    ``typed`` has the words before they were stemmed, which decide about beginnings of words.
    ``begins`` uint8[words] marks words that begin a text within a row; it is empty if each row is
    one text. No phrase goes beyond the end of a text.
    """

    keys: Keys
    typed: Keys
    word_start: NDArray[np.int64]
    begins: NDArray[np.uint8]


class NumberedWords(NamedTuple):
    """The words of rows as they were typed, with the numbers of their tokens, -1 if unknown."""

    typed: Keys
    number: NDArray[np.int32]
    word_start: NDArray[np.int64]
    begins: NDArray[np.uint8]


class DerivedTokens:
    """The derived tokens of a vocabulary, which adds to them under its lock."""

    def __init__(self) -> None:
        self._nodes, self._prefixes = 1, 0
        self._install(_new_arrays(2, 2))

    def _install(self, arrays: DerivedArrays) -> None:
        self._arrays = arrays
        types = (np.uint64, np.int32, np.int32, np.int32, np.uint8, np.uint64, np.uint64)
        pairs = zip(arrays, types, strict=True)
        self.view = DerivedArrays(*(read_only(array, dtype) for array, dtype in pairs))

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays)

    def add_phrases(
        self, word_start: NDArray[np.int64], word: NDArray[np.int32], token: NDArray[np.int32]
    ) -> None:
        """Add phrases; phrase ``i`` has the words from ``word_start[i]`` on, and a token."""
        self._reserve(len(word), 0)
        self._nodes = add_phrases(
            self._arrays,
            self._nodes,
            read_only(word_start, np.int64),
            read_only(word, np.int32),
            read_only(token, np.int32),
        )

    def add_prefixes(self, table: ByteTable, token: NDArray[np.int32]) -> None:
        """Add beginnings of words, given their tokens in the table of the vocabulary."""
        self._reserve(0, len(token))
        add_prefixes(self._arrays, table, read_only(token, np.int32))
        self._prefixes += len(token)

    def _reserve(self, nodes: int, prefixes: int) -> None:
        """Reserve space; tables that readers may hold are not changed."""
        nodes, prefixes = self._nodes + nodes, self._prefixes + prefixes
        old = self._arrays
        if nodes <= len(old.parent) and 2 * prefixes <= len(old.prefix_slot):
            return
        capacity = nodes + nodes // 2 if nodes > len(old.parent) else len(old.parent)
        slots = max(2 * prefixes, len(old.prefix_slot))
        new = _new_arrays(capacity, 1 << (slots - 1).bit_length())
        move_derived(old, self._nodes, new)
        self._install(new)


def _new_arrays(nodes: int, prefix_slots: int) -> DerivedArrays:
    return DerivedArrays(
        np.zeros(1 << (2 * nodes - 1).bit_length(), np.uint64),
        np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(_FILTER_BITS // 8, np.uint8),
        np.zeros(prefix_slots, np.uint64),
        np.zeros(1, np.uint64),
    )


@kernel
def _edge_tag(parent: Number, word: Number) -> np.uint64:
    """Return the 32-bit tag of an edge."""
    pair = (np.uint64(parent) << _HALF) | np.uint64(word)
    mixed = (pair ^ (pair >> np.uint64(29))) * _MIX
    return (mixed ^ (mixed >> _HALF)) & _LOW


@kernel
def _find_edge(derived: DerivedArrays, parent: Number, word: Number) -> Number:
    """Return the node that an edge leads to, or ``-1 - slot`` of the free slot to put it in."""
    mask = np.uint64(len(derived.slot) - 1)
    tag = _edge_tag(parent, word)
    at = tag & mask
    slot = derived.slot[at]
    while slot != _FREE:
        if slot >> _HALF == tag:
            node = np.int64(slot & _LOW) - 1
            if derived.parent[node] == parent and derived.word[node] == word:
                return node
        at = (at + _ONE) & mask
        slot = derived.slot[at]
    return -1 - np.int64(at)


@kernel
def _filter_bit(word: Number) -> np.uint64:
    return ((np.uint64(word) * _MIX) >> _HALF) & _FILTER_MASK


@kernel
def _may_begin(first: NDArray[np.uint8], word: Number) -> Number:
    """Return whether a phrase may begin with a word."""
    bit = _filter_bit(word)
    return (first[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & 1 == 1


@kernel
def _put_edge(
    derived: DerivedArrays, at: Number, parent: Number, word: Number, node: Number
) -> None:
    derived.parent[node] = parent
    derived.word[node] = word
    if parent == 0:
        bit = _filter_bit(word)
        derived.first[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
    derived.slot[at] = (_edge_tag(parent, word) << _HALF) | np.uint64(node + 1)


@kernel
def add_phrases(
    derived: DerivedArrays,
    nodes: Number,
    word_start: NDArray[np.int64],
    word: NDArray[np.int32],
    token: NDArray[np.int32],
) -> Number:
    """Add phrases to a trie that has the capacity for them; return the number of nodes."""
    for i in range(len(token)):
        node = np.int64(0)
        for w in range(word_start[i], word_start[i + 1]):
            found = _find_edge(derived, node, word[w])
            if found < 0:
                _put_edge(derived, -1 - found, node, word[w], nodes)
                found = nodes
                nodes += 1
            node = found
        derived.token[node] = token[i]
    return nodes


@kernel
def _put_prefix(slot: NDArray[np.uint64], entry: np.uint64) -> None:
    mask = np.uint64(len(slot) - 1)
    at = (entry >> _HALF) & mask
    while slot[at] != _FREE:
        at = (at + _ONE) & mask
    slot[at] = entry


@kernel
def add_prefixes(derived: DerivedArrays, table: ByteTable, token: NDArray[np.int32]) -> None:
    """Add beginnings of words, which are new, to a table that has the capacity for them."""
    for i in range(len(token)):
        span = table.span[token[i]]
        start, length = np.int64(span >> _SHIFT), np.int64(span & _LENGTH)
        state = HASH_SEED
        for b in range(start, start + length):
            state = hash_byte(state, table.key[b])
        derived.lengths[0] |= _ONE << np.uint64(_LONG if length > _LONG else length - 1)
        entry = (np.uint64(hash_end(state)) << _HALF) | np.uint64(np.int64(token[i]) + 1)
        _put_prefix(derived.prefix_slot, entry)


@kernel
def move_derived(old: DerivedArrays, nodes: Number, new: DerivedArrays) -> None:
    """Copy all entries to empty arrays with more capacity."""
    for node in range(1, nodes):
        parent, word = np.int64(old.parent[node]), np.int64(old.word[node])
        _put_edge(new, -1 - _find_edge(new, parent, word), parent, word, node)
        new.token[node] = old.token[node]
    for i in range(len(old.prefix_slot)):
        if old.prefix_slot[i] != _FREE:
            _put_prefix(new.prefix_slot, old.prefix_slot[i])
    new.lengths[0] = old.lengths[0]


@kernel
def mark_phrase_words(derived: DerivedArrays, used: NDArray[np.bool_]) -> None:
    """Mark the words of all phrases whose tokens are marked in ``used`` bool[tokens]."""
    for last in range(1, len(derived.token)):
        token = derived.token[last]
        if 0 <= token < len(used) and used[token]:
            node = np.int64(last)
            while node > 0:
                if derived.word[node] < len(used):
                    used[derived.word[node]] = True
                node = np.int64(derived.parent[node])


@kernel
def _find_prefix(
    derived: DerivedArrays, table: ByteTable, tag: np.uint64, words: Keys, i: Number, length: Number
) -> Number:
    """Return the token of the first ``length`` bytes of a word, -1 if there is none."""
    slots = derived.prefix_slot
    mask = np.uint64(len(slots) - 1)
    at = tag & mask
    begin = words.byte_start[i]
    while slots[at] != _FREE:
        if slots[at] >> _HALF == tag:
            token = np.int64(slots[at] & _LOW) - 1
            if token >= len(table.span):  # added since the table was taken
                return -1
            span = table.span[token]
            start = np.int64(span >> _SHIFT) + 1
            same = np.int64(span & _LENGTH) == length + 1
            for b in range(length if same else 0):
                same = same and table.key[start + b] == words.byte[begin + b]
            if same:
                return token
        at = (at + _ONE) & mask
    return -1


@kernel
def find_derived(
    derived: DerivedArrays,
    table: ByteTable,
    words: NumberedWords,
    row: Number,
    found_start: NDArray[np.int64],
    found: NDArray[np.int32],
) -> Number:
    """Write the derived tokens that are true of each row from ``row`` on.

    Row ``i`` gets those from ``found_start[i]`` int64[rows + 1] on, some of them several times.
    Returns the first row whose tokens do not fit into ``found``, or the number of rows.
    """
    typed, number, word_start, begins = words
    lengths = derived.lengths[0]
    while row < len(word_start) - 1:
        count = found_start[row]
        end = word_start[row + 1]
        for i in range(word_start[row], end):
            if lengths != _FREE:
                state = hash_byte(HASH_SEED, np.uint8(PREFIX_BYTE))
                begin = typed.byte_start[i]
                for b in range(typed.byte_start[i + 1] - begin):
                    left = lengths >> np.uint64(min(b + 1, _LONG))
                    if left == _FREE:
                        break
                    state = hash_byte(state, typed.byte[begin + b])
                    if left & _ONE:
                        tag = np.uint64(hash_end(state))
                        token = _find_prefix(derived, table, tag, typed, i, b + 1)
                        if token >= 0:
                            if count < len(found):
                                found[count] = token
                            count += 1
            if number[i] < 0 or not _may_begin(derived.first, number[i]):
                continue
            node = np.int64(0)
            for at in range(i, end):
                if number[at] < 0 or (at > i and len(begins) > 0 and begins[at] != 0):
                    break
                node = np.int64(_find_edge(derived, node, number[at]))
                if node < 0:
                    break
                if derived.token[node] >= 0:
                    if count < len(found):
                        found[count] = derived.token[node]
                    count += 1
        if count > len(found):
            return row
        row += 1
        found_start[row] = count
    return row


@kernel
def number_derived(
    derived: DerivedArrays, table: ByteTable, words: RowWords, token_start: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the tokens of all rows, ascending and distinct in each, derived ones too.

    Those of row ``i`` begin at ``token_start[i]`` int64[rows + 1], which is written.
    """
    keys, typed, word_start, begins = words
    number = np.empty(len(keys.tag), np.int32)
    find_keys(table, keys, number)
    numbered = NumberedWords(typed, number, word_start, begins)
    rows = len(word_start) - 1
    found_start = np.zeros(rows + 1, np.int64)
    found = np.empty(len(number) + 64, np.int32)
    done = find_derived(derived, table, numbered, 0, found_start, found)
    while done < rows:
        larger = np.empty(2 * len(found), np.int32)
        larger[: found_start[done]] = found[: found_start[done]]
        found = larger
        done = find_derived(derived, table, numbered, done, found_start, found)
    token = np.empty(len(number) + found_start[rows], np.int32)
    count = 0
    for row in range(rows):
        first = count
        token_start[row] = first
        for i in range(word_start[row], word_start[row + 1]):
            if number[i] >= 0:
                token[count] = number[i]
                count += 1
        for i in range(found_start[row], found_start[row + 1]):
            token[count] = found[i]
            count += 1
        count = sort_distinct(token, first, count)
    token_start[rows] = count
    return token[:count]


@kernel
def number_derived_texts(
    derived: DerivedArrays,
    table: ByteTable,
    texts: Texts,
    alphabet: Alphabet,
    word_start: NDArray[np.int64],
    token_start: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Split texts, and return the tokens of each as `number_derived` does."""
    keys = split_texts(texts, alphabet, word_start)
    words = RowWords(keys, keys, word_start, np.empty(0, np.uint8))
    return number_derived(derived, table, words, token_start)
