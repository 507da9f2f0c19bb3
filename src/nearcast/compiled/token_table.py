"""Hash tables from tokens to words: many small tables in one pool of slots.

Each owner, usually a node of a tree, has a *region* of the pool. A slot is two words: the token
(its id plus one, 0 in a free slot) with 32 bits for the owner's use above it, and a word for the
owner's use. Open addressing with linear probing; a region may have any size. A table that outgrows
its region moves to the end of the pool. The space that it leaves is reclaimed when the pool grows
(`move_tables`).

The R-trees and ``pt-quadtree`` keep their token tables in such pools. `home` and `MIXER`, the hash,
and `NO_TOKEN` are used by nearly all indexes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_TOKEN = np.int64(0x7FFFFFFF)
"""The token of a clause without tokens. Every message counts as having it."""

START, SIZE, COUNT = 0, 1, 2
"""Columns of ``table``: the first slot of a region, the number of its slots and of its tokens."""

LOW32 = np.uint64(0xFFFFFFFF)
BITS32 = np.uint64(32)
MIXER = np.uint64(0x9E3779B97F4A7C15)


class Tables(NamedTuple):
    """The arrays of a pool of tables.

    - ``slot`` uint64[m, 2]: the slots of all tables.
    - ``table`` int64[owners, 3]: start, size and count of each region; all 0 without a table.
    - ``top`` int64[1]: the end of the part of the pool that is in use.
    """

    slot: NDArray[np.uint64]
    table: NDArray[np.int64]
    top: NDArray[np.int64]


@kernel
def mixed(token: Number) -> Number:
    """Return a hash of 32 bits of a token."""
    return ((np.uint64(token) + np.uint64(1)) * MIXER) >> BITS32


@kernel
def home(token: Number, size: Number) -> Number:
    """Return the position in a region of this size where the search for a token begins."""
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
    """Return the slot of a token; a new token gets a slot, with the owner's bits and word 0.

    The region must have a free slot to spare: see `reserve_tokens`.
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
    """Remove the token of a slot; tokens behind it that a search would miss move up."""
    start, size = tables.table[owner, START], tables.table[owner, SIZE]
    gap, there = at, at
    while True:
        there += 1
        if there == start + size:
            there = start
        word = tables.slot[there, 0] & LOW32
        if word == np.uint64(0):
            break
        first = start + home(word - np.uint64(1), size)
        # Move the token into the gap unless its search begins behind the gap.
        if (there - first) % size >= (there - gap) % size:
            tables.slot[gap, 0], tables.slot[gap, 1] = tables.slot[there, 0], tables.slot[there, 1]
            gap = there
    tables.slot[gap, 0], tables.slot[gap, 1] = np.uint64(0), np.uint64(0)
    tables.table[owner, COUNT] -= 1


@kernel
def region_size(count: Number) -> Number:
    """Return the size of a new region for this number of tokens."""
    return count + (count >> 1) + 3


@kernel
def slots_needed(tables: Tables, owner: Number, more: Number) -> Number:
    """Return the size of the region that a table needs to take more tokens, or 0 if they fit."""
    count, size = tables.table[owner, COUNT] + more, tables.table[owner, SIZE]
    if count + (count >> 3) < size:
        return np.int64(0)
    return region_size(count + (count >> 2))


@kernel
def new_region(tables: Tables, owner: Number, size: Number) -> None:
    """Give an owner an empty region at the end of the pool, which must be large enough."""
    start = tables.top[0]
    for at in range(start, start + size):
        tables.slot[at, 0] = np.uint64(0)
    tables.table[owner, START], tables.table[owner, SIZE] = start, size
    tables.table[owner, COUNT] = 0
    tables.top[0] = start + size


@kernel
def move_table(tables: Tables, owner: Number, size: Number) -> None:
    """Move a table to a larger region at the end of the pool, which must be large enough."""
    start, end = tables.table[owner, START], tables.table[owner, START] + tables.table[owner, SIZE]
    new_region(tables, owner, size)
    for at in range(start, end):
        word = tables.slot[at, 0]
        if word != np.uint64(0):
            new = claim_slot(tables, owner, (word & LOW32) - np.uint64(1))
            tables.slot[new, 0], tables.slot[new, 1] = word, tables.slot[at, 1]


@kernel
def reserve_tokens(tables: Tables, owner: Number, more: Number) -> Number:
    """Make sure that a table can take more tokens; return the slots that the pool lacks, or 0."""
    size = slots_needed(tables, owner, more)
    if size > 0:
        if tables.top[0] + size > len(tables.slot):
            return np.int64(size)
        move_table(tables, owner, size)
    return np.int64(0)


@kernel
def drop_table(tables: Tables, owner: Number) -> None:
    """Remove the table of an owner."""
    tables.table[owner, START], tables.table[owner, SIZE] = 0, 0
    tables.table[owner, COUNT] = 0


@kernel
def move_tables(tables: Tables, slot: NDArray[np.uint64]) -> None:
    """Copy all regions, one after the other, into another pool."""
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
