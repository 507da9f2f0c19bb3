"""Choose the keys of clauses, and put them into lists and out of them.

The key of a clause is its token with the fewest messages, and of those the one that the fewest
clauses have. That is best for both sides: a clause is compared, and a move reads postings, as often
as messages have the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.indexes.moving.entries import FIRST, KEY, EntryArrays
from nearcast.indexes.moving.twin_lists.layout import (
    CLASS,
    CLAUSES,
    EVERY,
    FREE_TOKEN,
    HEADERS,
    LEAF_BITS,
    REKEYED,
    SIZE,
    TOKEN,
    TOTAL,
    WANTED,
    Pool,
    TwinArrays,
    add_header,
    find_header,
    lacks_headers,
    new_chunk,
)
from nearcast.indexes.moving.twin_lists.leaves import (
    append_clause,
    can_append,
    class_for_clauses,
    locate,
    prepare_chunk,
    remove_clause,
    sort_list,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MUCH = 8
"""A key with so many times the messages of another token of its clause is given up."""


@kernel
def best_key(arrays: TwinArrays, entries: EntryArrays, entry: Number) -> Number:
    """Return the header of the best key of an entry; all its tokens have headers."""
    header, pool = arrays.header, entries.pool
    first = np.int64(entries.record[entry, FIRST])
    best = np.int64(EVERY)
    for i in range(first + 1, first + 1 + pool[first]):
        number = find_header(arrays.table, pool[i])
        if best != EVERY:
            more = header[number, TOTAL] - header[best, TOTAL]
            if more > 0 or (more == 0 and header[number, WANTED] >= header[best, WANTED]):
                continue
        best = number
    return best


@kernel
def count_tokens(arrays: TwinArrays, entries: EntryArrays, entry: Number, step: Number) -> None:
    """Count the clauses that have each token of an entry; new tokens get a header."""
    pool, first = entries.pool, np.int64(entries.record[entry, FIRST])
    for i in range(first + 1, first + 1 + pool[first]):
        arrays.header[add_header(arrays, pool[i]), WANTED] += step


@kernel
def count_all(
    arrays: TwinArrays, entries: EntryArrays, entry: NDArray[np.int32], begin: Number
) -> Number:
    """Count the tokens of entries that appear; return the first without room for headers."""
    arrays, entries = borrow(arrays), borrow(entries)
    for i in range(begin, len(entry)):
        if lacks_headers(arrays, np.int64(entries.pool[entries.record[entry[i], FIRST]])):
            return i
        count_tokens(arrays, entries, entry[i], 1)
    return len(entry)


@kernel
def place_entries(
    arrays: TwinArrays, entries: EntryArrays, entry: NDArray[np.int32], begin: Number
) -> Number:
    """Put counted entries into the lists of their keys; return the first without room."""
    arrays, entries = borrow(arrays), borrow(entries)
    for i in range(begin, len(entry)):
        if not append_clause(arrays, entries, best_key(arrays, entries, entry[i]), entry[i]):
            return i
    return len(entry)


@kernel
def remove_entries(arrays: TwinArrays, entries: EntryArrays, entry: NDArray[np.int32]) -> None:
    """Take entries out of their lists."""
    arrays, entries = borrow(arrays), borrow(entries)
    for i in range(len(entry)):
        remove_clause(arrays, entries, entry[i])
        count_tokens(arrays, entries, entry[i], -1)


@kernel
def rekey_entries(
    arrays: TwinArrays, entries: EntryArrays, entry: NDArray[np.int32], begin: Number
) -> Number:
    """Give entries better keys where these are much better; return the first without room."""
    arrays, entries = borrow(arrays), borrow(entries)
    header, record = arrays.header, entries.record
    for i in range(begin, len(entry)):
        own = entry[i]
        if record[own, KEY] < 0:
            continue
        number, best = np.int64(record[own, KEY] >> 1), best_key(arrays, entries, own)
        if header[number, TOTAL] <= MUCH * (np.int64(header[best, TOTAL]) + 1):
            continue
        if not can_append(arrays, best):
            return i
        remove_clause(arrays, entries, own)
        append_clause(arrays, entries, best, own)
        arrays.state[REKEYED] += 1
    return len(entry)


# --- rewriting -----------------------------------------------------------------------------------


@kernel
def rewrite_clauses(arrays: TwinArrays, entries: EntryArrays, target: Pool) -> None:
    """Copy all lists of clauses to another pool, in chunks that fit, and sort them.

    Boxes are rounded again. ``target`` is at least as long as the pool.
    """
    header, leaf_bits = arrays.header, arrays.option[LEAF_BITS]
    replaced = TwinArrays(
        header,
        arrays.header_word,
        arrays.table,
        target,
        arrays.messages,
        arrays.state,
        arrays.option,
    )
    for number in range(arrays.state[HEADERS]):
        size = np.int64(header[number, SIZE])
        if header[number, TOKEN] == FREE_TOKEN or size == 0:
            continue
        word = np.empty((size, 2), np.int32)
        for place in range(size):
            leaf, stride, lane, _ = locate(header, number, place, leaf_bits)
            for i in range(2):
                word[place, i] = arrays.clauses.word[leaf + 2 * stride + 2 * lane + i]
        kind = class_for_clauses(size, leaf_bits)
        header[number, CLAUSES], header[number, CLASS] = new_chunk(target, kind), kind
        prepare_chunk(target, header[number, CLAUSES], kind, 0)
        for place in range(size):
            leaf, stride, lane, _ = locate(header, number, place, leaf_bits)
            for i in range(2):
                target.word[leaf + 2 * stride + 2 * lane + i] = word[place, i]
        sort_list(replaced, entries, number)
