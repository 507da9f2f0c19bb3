"""The arrays of keyword-first lists, and how they are built and changed.

- ``slot`` int32[slots, 4], open addressing by token: token, first entry, size and capacity of the
  list of clauses whose rarest token it is. A slot without capacity is free.
- ``entry`` int32[m, 6]: the pool of lists, as many rows as their capacities. A list is its boxes,
  in blocks of 16 (`nearcast.compiled.simd_boxes`; one block as long as the capacity where that is less),
  and then clause and next token of every entry, side by side: few boxes touch a message, so that
  the latter are seldom read. A list that has no room moves to the end of the pool.
- ``first`` int32[clauses]: the token in whose list a clause stands.
- ``state`` int64[3]: lists, entries of the pool that were given away, those that were given back.

The next token is the second-rarest of the clause; `NO_TOKEN` where there is none, and its complement
(a negative number) where there are more after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    PADDING,
    SIZE,
    START,
    TOKEN,
    WIDTH,
    aligned,
    box_place,
    copy_entry,
    rounded,
    stride_of,
    tail_place,
)
from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.token_table import NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray


LISTS, TOP, LEFT = 0, 1, 2
AHEAD = 16


class Lists(NamedTuple):
    """The arrays of the index."""

    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    first: NDArray[np.int32]
    state: NDArray[np.int64]


class Ordered(NamedTuple):
    """Clauses with their tokens in the order of their frequencies.

    ``base`` is the position at which ``token`` begins in the columns of all clauses.
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]
    base: Number


@kernel
def home(slot: NDArray[np.int32], token: Number) -> Number:
    """Return where the chain of a token begins."""
    hashed = (np.uint64(token) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return np.int64((hashed * np.uint64(len(slot))) >> np.uint64(32))


@kernel
def find_list(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot of a token, or the free one where it belongs."""
    at = home(slot, token)
    while slot[at, CAPACITY] != 0 and slot[at, TOKEN] != token:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def first_token(clauses: Ordered, clause: Number) -> Number:
    """Return the token in whose list a clause belongs."""
    begin, end = clauses.token_start[clause], clauses.token_start[clause + 1]
    return np.int64(clauses.token[begin - clauses.base]) if begin < end else NO_TOKEN


@kernel
def next_token(clauses: Ordered, clause: Number) -> Number:
    """Return what an entry says of the other tokens of its clause."""
    begin, end = clauses.token_start[clause], clauses.token_start[clause + 1]
    if end - begin < 2:
        return NO_TOKEN
    token = np.int64(clauses.token[begin - clauses.base + 1])
    return token if end - begin == 2 else ~token


@kernel
def append_entry(lists: Lists, at: Number, clauses: Ordered, clause: Number) -> None:
    """Put a clause at the end of a list that has room."""
    start, capacity = lists.slot[at, START], lists.slot[at, CAPACITY]
    size = np.int64(lists.slot[at, SIZE])
    flat = lists.entry.reshape(-1)
    place = box_place(start, size)
    for side in range(4):
        flat[place + side * stride_of(capacity)] = clauses.box[clause, side]
    place = tail_place(start, capacity, size)
    flat[place], flat[place + 1] = clause, next_token(clauses, clause)
    lists.slot[at, SIZE] += 1


@kernel
def move_list(lists: Lists, at: Number, start: Number, capacity: Number) -> None:
    """Move a list to another place, which does not overlap the old one."""
    flat = lists.entry.reshape(-1)
    old = lists.slot[at].copy()
    new = lists.slot[at]
    new[START], new[CAPACITY] = start, capacity
    for number in range(old[SIZE]):
        copy_entry(flat, old, number, new, number)


@kernel
def count_lists(clauses: Ordered, lists: Lists) -> None:
    """Count the clauses of every list, into a table with room for all of them."""
    count = len(clauses.box)
    for clause in range(count):
        if clause + AHEAD < count:
            prefetch(lists.slot, home(lists.slot, first_token(clauses, clause + AHEAD)))
        token = first_token(clauses, clause)
        lists.first[clause] = token
        at = find_list(lists.slot, token)
        if lists.slot[at, CAPACITY] == 0:
            lists.slot[at, TOKEN] = token
            lists.state[LISTS] += 1
        lists.slot[at, CAPACITY] += 1


@kernel
def lay_out(lists: Lists) -> None:
    """Give every list its place, just large enough, in the order of the table."""
    top = np.int64(0)
    for at in range(len(lists.slot)):
        if lists.slot[at, CAPACITY] != 0:
            capacity = rounded(np.int64(lists.slot[at, CAPACITY]))
            start = aligned(top, capacity)
            lists.slot[at, START], lists.slot[at, CAPACITY] = start, capacity
            top = start + capacity
    lists.state[TOP] = top


@kernel
def fill_lists(clauses: Ordered, lists: Lists) -> None:
    """Put all clauses into their lists."""
    count = len(clauses.box)
    for clause in range(count):
        if clause + 2 * AHEAD < count:
            prefetch(lists.slot, home(lists.slot, np.int64(lists.first[clause + 2 * AHEAD])))
        if clause + AHEAD < count:
            at = find_list(lists.slot, np.int64(lists.first[clause + AHEAD]))
            start, capacity = lists.slot[at, START], lists.slot[at, CAPACITY]
            size = np.int64(lists.slot[at, SIZE])
            prefetch(lists.entry, box_place(start, size) // WIDTH)
            prefetch(lists.entry, tail_place(start, capacity, size) // WIDTH)
        at = find_list(lists.slot, np.int64(lists.first[clause]))
        append_entry(lists, at, clauses, clause)


@kernel
def move_slots(old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    """Put the lists of one table into another, which is empty and large enough."""
    for i in range(len(old)):
        if old[i, CAPACITY] != 0:
            new[find_list(new, np.int64(old[i, TOKEN]))] = old[i]


@kernel
def insert_clauses(clauses: Ordered, number: Number, lists: Lists) -> Number:
    """Add clauses from a number on; return the one for which the table or the pool has no room."""
    for clause in range(number, len(clauses.box)):
        if clause + AHEAD < len(clauses.box):
            prefetch(lists.slot, home(lists.slot, first_token(clauses, clause + AHEAD)))
        token = first_token(clauses, clause)
        at = find_list(lists.slot, token)
        size, capacity = np.int64(lists.slot[at, SIZE]), np.int64(lists.slot[at, CAPACITY])
        if capacity == 0 and 5 * (lists.state[LISTS] + 1) > 3 * len(lists.slot):
            return clause
        if size == capacity:
            larger = rounded(capacity + max(capacity >> 2, np.int64(2)))
            start = aligned(lists.state[TOP], larger)
            if start + larger + PADDING > len(lists.entry):
                return clause
            lists.state[TOP] = start + larger
            if capacity == 0:
                lists.slot[at, TOKEN] = token
                lists.state[LISTS] += 1
            lists.state[LEFT] += capacity
            move_list(lists, at, start, larger)
        lists.first[clause] = token
        append_entry(lists, at, clauses, clause)
    return len(clauses.box)


@kernel
def remove_clauses(gone: NDArray[np.int64], lists: Lists) -> None:
    """Take clauses out of their lists; the last entry of the list takes the place."""
    flat = lists.entry.reshape(-1)
    for g in range(len(gone)):
        if g + AHEAD < len(gone):
            prefetch(lists.slot, home(lists.slot, np.int64(lists.first[gone[g + AHEAD]])))
        at = find_list(lists.slot, np.int64(lists.first[gone[g]]))
        slot = lists.slot[at]
        place = tail_place(slot[START], slot[CAPACITY], np.int64(0))
        slot[SIZE] -= 1
        number = np.int64(0)
        while number < slot[SIZE] and flat[place + 2 * number] != gone[g]:
            number += 1
        copy_entry(flat, slot, slot[SIZE], slot, number)


@kernel
def move_lists(lists: Lists, entry: NDArray[np.int32]) -> None:
    """Copy all lists, one behind the other, into another pool; none is left behind."""
    old, new = lists.entry.reshape(-1), entry.reshape(-1)
    top = np.int64(0)
    for at in range(len(lists.slot)):
        capacity = np.int64(lists.slot[at, CAPACITY])
        if capacity != 0:
            start = aligned(top, capacity)
            there = WIDTH * np.int64(lists.slot[at, START])
            for i in range(WIDTH * capacity):
                new[WIDTH * start + i] = old[there + i]
            lists.slot[at, START] = start
            top = start + capacity
    lists.state[TOP], lists.state[LEFT] = top, 0
