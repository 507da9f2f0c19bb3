"""The arrays of keyword-first: how they are built, changed and checked.

- ``slot`` int32[slots, 4]: a hash table by token, open addressing with linear probing. A slot is
  the row of a list (`nearcast.compiled.box_lists`); a slot without capacity is free. Lists are
  never removed from the table.
- ``entry`` int32[m, 6]: the pool of lists.
- ``first`` int32[clauses]: the token in whose list each clause is.
- ``state`` int64[3]: the number of lists, the entries of the pool in use, and how many of these
  were left behind by lists that moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    ENTRY_WIDTH,
    PADDING,
    SIZE,
    START,
    TOKEN,
    aligned_start,
    append_entry,
    box_position,
    capacity_for,
    drop_clause,
    find_damaged_list,
    larger_capacity,
    move_list,
    tail_position,
)
from nearcast.compiled.clauses import Ordered, token_at
from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.token_table import MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

LISTS, TOP, FREED = 0, 1, 2
"""Items of ``state``."""

SLOT_WIDTH = 4

_AHEAD = 16


class Lists(NamedTuple):
    """The arrays of the index."""

    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    first: NDArray[np.int32]
    state: NDArray[np.int64]


# The table.


@kernel
def home(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot where the search for a token starts."""
    hashed = (np.uint64(token) * MIXER) >> np.uint64(32)
    return np.int64((hashed * np.uint64(len(slot))) >> np.uint64(32))


@kernel
def find_list(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot of a token, or the free slot where it belongs."""
    at = home(slot, token)
    while slot[at, CAPACITY] != 0 and slot[at, TOKEN] != token:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def move_slots(old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    """Copy the lists of one table to another, which is empty and large enough."""
    for i in range(len(old)):
        if old[i, CAPACITY] != 0:
            new[find_list(new, np.int64(old[i, TOKEN]))] = old[i]


@kernel
def is_crowded(lists: Lists) -> Number:
    """Tell whether another list would fill more than three fifths of the table."""
    return 5 * (lists.state[LISTS] + 1) > 3 * len(lists.slot)


# Building: count the clauses of each list, lay out the pool, fill the lists.


@kernel
def count_lists(ordered: Ordered, lists: Lists) -> None:
    """Count the clauses of every list in `CAPACITY`; the table is large enough for all lists."""
    count = len(ordered.box)
    for clause in range(count):
        if clause + _AHEAD < count:
            prefetch(lists.slot, home(lists.slot, token_at(ordered, clause + _AHEAD, 0)))
        token = token_at(ordered, clause, 0)
        lists.first[clause] = token
        at = find_list(lists.slot, token)
        if lists.slot[at, CAPACITY] == 0:
            lists.slot[at, TOKEN] = token
            lists.state[LISTS] += 1
        lists.slot[at, CAPACITY] += 1


@kernel
def lay_out(lists: Lists) -> None:
    """Give every list a span of the pool, just large enough, in the order of the table."""
    top = np.int64(0)
    for at in range(len(lists.slot)):
        if lists.slot[at, CAPACITY] != 0:
            capacity = capacity_for(np.int64(lists.slot[at, CAPACITY]))
            start = aligned_start(top, capacity)
            lists.slot[at, START], lists.slot[at, CAPACITY] = start, capacity
            top = start + capacity
    lists.state[TOP] = top


@kernel
def fill_lists(ordered: Ordered, lists: Lists) -> None:
    """Append all clauses to their lists."""
    count, flat = len(ordered.box), lists.entry.reshape(-1)
    for clause in range(count):
        if clause + 2 * _AHEAD < count:
            prefetch(lists.slot, home(lists.slot, np.int64(lists.first[clause + 2 * _AHEAD])))
        if clause + _AHEAD < count:
            at = find_list(lists.slot, np.int64(lists.first[clause + _AHEAD]))
            start, capacity = lists.slot[at, START], lists.slot[at, CAPACITY]
            size = np.int64(lists.slot[at, SIZE])
            prefetch(lists.entry, box_position(start, size) // ENTRY_WIDTH)
            prefetch(lists.entry, tail_position(start, capacity, size) // ENTRY_WIDTH)
        at = find_list(lists.slot, np.int64(lists.first[clause]))
        append_entry(flat, lists.slot[at], ordered, clause, clause, 1)


# Changing in place.


@kernel
def insert_clauses(ordered: Ordered, at: Number, base: Number, lists: Lists) -> Number:
    """Add the clauses of ``ordered`` from ``at`` on; clause ``i`` has the number ``base + i``.

    Returns the first clause that the table or the pool has no space for, or the number of clauses.
    """
    count, flat, state = len(ordered.box), lists.entry.reshape(-1), lists.state
    for i in range(at, count):
        if i + _AHEAD < count:
            prefetch(lists.slot, home(lists.slot, token_at(ordered, i + _AHEAD, 0)))
        token = token_at(ordered, i, 0)
        row = lists.slot[find_list(lists.slot, token)]
        capacity = np.int64(row[CAPACITY])
        if capacity == 0 and is_crowded(lists):
            return i
        if row[SIZE] == capacity:
            larger = larger_capacity(capacity)
            start = aligned_start(state[TOP], larger)
            if start + larger + PADDING > len(lists.entry):
                return i
            if capacity == 0:
                row[TOKEN] = token
                state[LISTS] += 1
            state[TOP] = start + larger
            state[FREED] += capacity
            move_list(flat, row, start, larger)
        lists.first[base + i] = token
        append_entry(flat, row, ordered, i, base + i, 1)
    return count


@kernel
def remove_clauses(gone: NDArray[np.int64], lists: Lists) -> None:
    """Remove clauses from their lists."""
    flat = lists.entry.reshape(-1)
    for g in range(len(gone)):
        if g + _AHEAD < len(gone):
            prefetch(lists.slot, home(lists.slot, np.int64(lists.first[gone[g + _AHEAD]])))
        at = find_list(lists.slot, np.int64(lists.first[gone[g]]))
        drop_clause(flat, lists.slot[at], gone[g])


# Checking arrays that were read from disk.


@kernel
def find_misplaced(slot: NDArray[np.int32]) -> Number:
    """Return the first slot whose token is not found there, or -1; some slot is free."""
    for at in range(len(slot)):
        if slot[at, CAPACITY] != 0 and find_list(slot, np.int64(slot[at, TOKEN])) != at:
            return at
    return np.int64(-1)


def find_damage(lists: Lists, clauses: int) -> str | None:
    """Return what is wrong with the arrays, or nothing: then all kernels stay within them."""
    slot, entry, first, state = lists
    if slot.ndim != 2 or slot.shape[1] != SLOT_WIDTH or entry.shape[1:] != (ENTRY_WIDTH,):
        return "slot or entry has the wrong width"
    if first.shape != (clauses,) or state.shape != (3,):
        return "first or state has the wrong length"
    used, capacity = slot[:, CAPACITY] != 0, slot[:, CAPACITY]
    if state[LISTS] != np.count_nonzero(used) or state[LISTS] >= len(slot):
        return "slot does not have as many lists as state counts, or is full"
    if capacity.min() < 0 or slot[~used, SIZE].any():
        return "slot has a list of negative capacity, or a free slot with entries"
    if not 0 <= state[TOP] <= len(entry) - PADDING:
        return "state counts more entries than entry has"
    if not 0 <= state[FREED] <= state[TOP] - capacity.sum(dtype=np.int64):
        return "state counts entries as free that lists use"
    if find_misplaced(slot) >= 0:
        return "slot has a token that cannot be found"
    taken = np.zeros(int(state[TOP]), np.bool_)
    at = find_damaged_list(slot, used, entry, clauses, taken)
    if at >= 0:
        return f"the list of slot {at} leads out of entry, or has a clause that does not exist"
    return None
