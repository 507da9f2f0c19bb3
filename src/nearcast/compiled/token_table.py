"""Many small tables from tokens to words, in one pool: each owner (a node) has a region of slots.

A slot is two words, side by side: the token (its number plus one, 0 for a free slot) with 32 bits
that are the owner's, and a word that is the owner's. Open addressing with linear probing; a region
may have any size. A table that must grow moves to the end of the pool; what it leaves behind is
given back when the pool grows (`move_tables`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_TOKEN = np.int64(0x7FFFFFFF)
"""Stands for the token of a clause without tokens: every message has it."""

START, SIZE, COUNT = 0, 1, 2
"""In ``table``: the first slot of a region, its slots, and the tokens in it."""

LOW32 = np.uint64(0xFFFFFFFF)
BITS32 = np.uint64(32)
MIXER = np.uint64(0x9E3779B97F4A7C15)


class Tables(NamedTuple):
    """The arrays of a pool of tables.

    - ``slot`` uint64[m, 2]. ``table`` int64[owners, 3]: start, size and count.
    - ``top`` int64[1]: the slots of the pool that were given away.
    """

    slot: NDArray[np.uint64]
    table: NDArray[np.int64]
    top: NDArray[np.int64]


@kernel
def mixed(token: Number) -> Number:
    """Return 32 well-mixed bits of a token."""
    return ((np.uint64(token) + np.uint64(1)) * MIXER) >> BITS32


@kernel
def home(token: Number, size: Number) -> Number:
    """Return where in a region of this size a token would like to stand."""
    return np.int64((mixed(token) * np.uint64(size)) >> BITS32)


@kernel
def find_slot(tables: Tables, owner: Number, token: Number) -> Number:
    """Return the slot of a token, or -1."""
    start, size = tables.table[owner, START], tables.table[owner, SIZE]
    if size == 0:
        return np.int64(-1)
    wanted = np.uint64(token) + np.uint64(1)
    at = start + home(token, size)
    while True:
        there = tables.slot[at, 0] & LOW32
        if there == wanted:
            return at
        if there == np.uint64(0):
            return np.int64(-1)
        at += 1
        if at == start + size:
            at = start


@kernel
def claim_slot(tables: Tables, owner: Number, token: Number) -> Number:
    """Return the slot of a token, which is put there (its words 0) if it is new.

    The region must have room: see `slots_needed`.
    """
    start, size = tables.table[owner, START], tables.table[owner, SIZE]
    wanted = np.uint64(token) + np.uint64(1)
    at = start + home(token, size)
    while True:
        there = tables.slot[at, 0] & LOW32
        if there == wanted:
            return at
        if there == np.uint64(0):
            tables.slot[at, 0], tables.slot[at, 1] = wanted, np.uint64(0)
            tables.table[owner, COUNT] += 1
            return at
        at += 1
        if at == start + size:
            at = start


@kernel
def remove_slot(tables: Tables, owner: Number, at: Number) -> None:
    """Take the token of a slot out; those behind it that would not be found any more move up."""
    start, size = tables.table[owner, START], tables.table[owner, SIZE]
    gap, there = at, at
    while True:
        there += 1
        if there == start + size:
            there = start
        word = tables.slot[there, 0] & LOW32
        if word == np.uint64(0):
            break
        wish = start + home(word - np.uint64(1), size)
        # How far the token stands behind its wish, and how far behind the gap.
        if (there - wish) % size >= (there - gap) % size:
            tables.slot[gap, 0], tables.slot[gap, 1] = tables.slot[there, 0], tables.slot[there, 1]
            gap = there
    tables.slot[gap, 0], tables.slot[gap, 1] = np.uint64(0), np.uint64(0)
    tables.table[owner, COUNT] -= 1


@kernel
def region_size(count: Number) -> Number:
    """Return how many slots a new table for so many tokens gets."""
    return count + (count >> 1) + 3


@kernel
def slots_needed(tables: Tables, owner: Number, more: Number) -> Number:
    """Return the slots that a table needs at the end of the pool to take more tokens; 0 if none."""
    count, size = tables.table[owner, COUNT] + more, tables.table[owner, SIZE]
    if count + (count >> 3) < size:
        return np.int64(0)
    return region_size(count + (count >> 2))


@kernel
def new_region(tables: Tables, owner: Number, size: Number) -> None:
    """Give an owner an empty region at the end of the pool, which must have room."""
    start = tables.top[0]
    for at in range(start, start + size):
        tables.slot[at, 0] = np.uint64(0)
    tables.table[owner, START], tables.table[owner, SIZE] = start, size
    tables.table[owner, COUNT] = 0
    tables.top[0] = start + size


@kernel
def move_table(tables: Tables, owner: Number, size: Number) -> None:
    """Move a table to a larger region at the end of the pool, which must have room."""
    start, end = tables.table[owner, START], tables.table[owner, START] + tables.table[owner, SIZE]
    new_region(tables, owner, size)
    for at in range(start, end):
        word = tables.slot[at, 0]
        if word != np.uint64(0):
            new = claim_slot(tables, owner, (word & LOW32) - np.uint64(1))
            tables.slot[new, 0], tables.slot[new, 1] = word, tables.slot[at, 1]


@kernel
def drop_table(tables: Tables, owner: Number) -> None:
    """Take an owner's table away."""
    tables.table[owner, START], tables.table[owner, SIZE] = 0, 0
    tables.table[owner, COUNT] = 0


@kernel
def move_tables(tables: Tables, slot: NDArray[np.uint64]) -> None:
    """Copy all regions, one behind the other, into another pool."""
    end = np.int64(0)
    for owner in range(len(tables.table)):
        start, size = tables.table[owner, START], tables.table[owner, SIZE]
        for i in range(size):
            slot[end + i, 0], slot[end + i, 1] = (
                tables.slot[start + i, 0],
                tables.slot[start + i, 1],
            )
        tables.table[owner, START] = end
        end += size
    tables.top[0] = end
