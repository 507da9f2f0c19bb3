"""Lists of clauses, found by an owner and a token: what the quadtree indexes have in common.

Who an owner is, the index says: a node of a quadtree (iq-tree), or of a trie (rq-tree,
trie-quadtree). A list lies in a pool as those of `nearcast.indexes.keyword_first.lists` do: boxes in
blocks of sixteen, then clause and next token of each entry. Its *row* says where; it is a row of
``slot``, or the beginning of a row of ``node``.

- ``slot`` int32[slots, 6], open addressing: token, first entry, size and capacity of a list, the
  owner plus one (0 for a free slot), and, of a trie, the owner number of the node that it is.
- ``node`` int32[nodes, 8]: see `nearcast.indexes.quadtrees.tree`.
- ``run`` int32[owners, 3] and ``listed`` int32[m]: the tokens of each owner (start, count and
  capacity), so that a message of many tokens can ask for those of an owner of few.
- ``entry`` int32[m, 6]: the pool of lists.
- ``state`` int64[14]: what of all these is in use, and what the index itself counts.
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
    aligned,
    box_place,
    copy_entry,
    rounded,
    stride_of,
    tail_place,
)
from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_table import MIXER, NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

OWNER, BRANCH, SLOT_WIDTH = 4, 5, 6
"""In ``slot``, besides `TOKEN`, `START`, `SIZE` and `CAPACITY`."""

RUN_START, RUN_COUNT, RUN_ROOM = 0, 1, 2
"""In ``run``."""

SLOTS, NODES, OWNERS, LISTED, TOP, LEFT, LIST_SIZE, CHILD_SIZE, DEEPEST = range(9)
"""In ``state``: slots, nodes, owners and tokens of owners in use; entries of the pool given away
and given back; and settings, see `nearcast.indexes.quadtrees.tree` and `trie_quadtree`."""

HELD, REMOVED, PLANTED, BY_TOKEN, DOCUMENTS, STATES = 9, 10, 11, 12, 13, 14
"""In ``state``: how many clauses there are, were removed, and were there at the beginning; and
whether the nodes of quadtrees have a list for every token (1) or one of their own (0); and of how
many messages there are statistics (0: none)."""

M_WAYS = 5
"""In ``missing``, behind what `Needs` has."""

ALIGNMENT = 8
"""Entries that may be left free before a list, so that it begins at a cache line."""


class Quad(NamedTuple):
    """The arrays of an index."""

    slot: NDArray[np.int32]
    node: NDArray[np.int32]
    run: NDArray[np.int32]
    listed: NDArray[np.int32]
    entry: NDArray[np.int32]
    state: NDArray[np.int64]


class Needs(NamedTuple):
    """Room that a change needs: so many more of each, at most."""

    slots: Number
    nodes: Number
    owners: Number
    listed: Number
    entries: Number


class Work(NamedTuple):
    """Room for a change: nodes to go to, places found, and the way of every entry of a list.

    ``missing`` int64[6] says what there was no room for: `Needs`, and entries of ``way``.
    """

    stack: NDArray[np.int64]
    place: NDArray[np.int64]
    way: NDArray[np.uint8]
    missing: NDArray[np.int64]


@kernel
def borrow_quad(quad: Quad) -> Quad:
    """Return the same arrays without an owner, for the time of a call."""
    return Quad(
        borrow(quad.slot),
        borrow(quad.node),
        borrow(quad.run),
        borrow(quad.listed),
        borrow(quad.entry),
        borrow(quad.state),
    )


@kernel
def home(slot: NDArray[np.int32], owner: Number, token: Number) -> Number:
    """Return where the chain of an owner's token begins."""
    mixed = (np.uint64(owner) * np.uint64(0xD6E8FEB86659FD93)) ^ np.uint64(token)
    hashed = (mixed * MIXER) >> np.uint64(32)
    return np.int64((hashed * np.uint64(len(slot))) >> np.uint64(32))


@kernel
def find_row(slot: NDArray[np.int32], owner: Number, token: Number) -> Number:
    """Return the slot of an owner's token, or the free one where it belongs."""
    at = home(slot, owner, token)
    while slot[at, OWNER] != 0 and (slot[at, TOKEN] != token or slot[at, OWNER] != owner + 1):
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def has_room(quad: Quad, needs: Needs, missing: NDArray[np.int64]) -> Number:
    """Tell whether there is room for a change; else note what is missing."""
    state = quad.state
    fits = True
    if 5 * (state[SLOTS] + needs.slots) > 3 * len(quad.slot):
        missing[0], fits = needs.slots, False
    if state[NODES] + needs.nodes > len(quad.node):
        missing[1], fits = needs.nodes, False
    if state[OWNERS] + needs.owners > len(quad.run):
        missing[2], fits = needs.owners, False
    if state[LISTED] + needs.listed > len(quad.listed):
        missing[3], fits = needs.listed, False
    if state[TOP] + needs.entries + PADDING > len(quad.entry):
        missing[4], fits = needs.entries, False
    return fits


@kernel
def claim_row(quad: Quad, owner: Number, token: Number) -> Number:
    """Return the slot of an owner's token, which is put there with no list if it is new."""
    at = find_row(quad.slot, owner, token)
    if quad.slot[at, OWNER] == 0:
        quad.slot[at, TOKEN], quad.slot[at, OWNER] = token, owner + 1
        quad.slot[at, SIZE], quad.slot[at, CAPACITY], quad.slot[at, BRANCH] = 0, 0, 0
        quad.state[SLOTS] += 1
    return at


@kernel
def remove_row(quad: Quad, at: Number) -> None:
    """Take a row away; those behind it that would not be found any more move up."""
    slot = quad.slot
    quad.state[LEFT] += max(slot[at, CAPACITY], 0)
    quad.state[SLOTS] -= 1
    gap, there, size = np.int64(at), np.int64(at), np.int64(len(slot))
    while True:
        there = there + 1 if there + 1 < size else np.int64(0)
        if slot[there, OWNER] == 0:
            break
        wish = home(slot, np.int64(slot[there, OWNER]) - 1, np.int64(slot[there, TOKEN]))
        # How far the row stands behind its wish, and how far behind the gap.
        if (there - wish) % size >= (there - gap) % size:
            slot[gap] = slot[there]
            gap = there
    slot[gap, OWNER] = 0


@kernel
def list_token(quad: Quad, owner: Number, token: Number) -> None:
    """Add a token to those of an owner, which has it not yet."""
    run = quad.run[owner]
    if run[RUN_COUNT] == run[RUN_ROOM]:
        larger, start = 2 * np.int64(run[RUN_ROOM]) + 2, quad.state[LISTED]
        for i in range(run[RUN_COUNT]):
            quad.listed[start + i] = quad.listed[run[RUN_START] + i]
        run[RUN_START], run[RUN_ROOM] = start, larger
        quad.state[LISTED] += larger
    quad.listed[run[RUN_START] + run[RUN_COUNT]] = token
    run[RUN_COUNT] += 1


@kernel
def room_to_list(quad: Quad, owner: Number) -> Number:
    """Return how many places `list_token` would take."""
    full = quad.run[owner, RUN_COUNT] == quad.run[owner, RUN_ROOM]
    return 2 * np.int64(quad.run[owner, RUN_ROOM]) + 2 if full else np.int64(0)


@kernel
def larger_capacity(capacity: Number) -> Number:
    """Return the capacity of a list that must grow."""
    return rounded(np.int64(capacity) + max(np.int64(capacity) >> 2, np.int64(2)))


@kernel
def room_to_append(row: NDArray[np.int32]) -> Number:
    """Return how many entries of the pool one more entry of a list would take at most."""
    if row[SIZE] < row[CAPACITY]:
        return np.int64(0)
    return larger_capacity(row[CAPACITY]) + ALIGNMENT


@kernel
def move_list(quad: Quad, row: NDArray[np.int32], capacity: Number) -> None:
    """Move a list to the end of the pool, which has room, with another capacity."""
    flat = quad.entry.reshape(-1)
    old = row.copy()
    start = aligned(quad.state[TOP], capacity)
    row[START], row[CAPACITY] = start, capacity
    quad.state[TOP] = start + capacity
    quad.state[LEFT] += old[CAPACITY]
    for number in range(old[SIZE]):
        copy_entry(flat, old, number, row, number)


@kernel
def next_token(ordered: Ordered, clause: Number, known: Number) -> Number:
    """Return what an entry says of the tokens of its clause behind the first ``known`` ones.

    The next of them; `NO_TOKEN` where there is none, the complement where there are more after it.
    """
    left = length_of(ordered, clause) - known
    if left <= 0:
        return NO_TOKEN
    token = token_at(ordered, clause, known)
    return token if left == 1 else ~token


@kernel
def append_clause(
    quad: Quad, row: NDArray[np.int32], ordered: Ordered, clause: Number, known: Number
) -> None:
    """Put a clause at the end of a list, which grows if it must; there is room for that."""
    if row[SIZE] == row[CAPACITY]:
        move_list(quad, row, larger_capacity(row[CAPACITY]))
    flat, number = quad.entry.reshape(-1), np.int64(row[SIZE])
    place, stride = box_place(row[START], number), stride_of(row[CAPACITY])
    for side in range(4):
        flat[place + side * stride] = ordered.box[clause, side]
    place = tail_place(row[START], row[CAPACITY], number)
    flat[place], flat[place + 1] = clause, next_token(ordered, clause, known)
    row[SIZE] += 1


@kernel
def clause_at(quad: Quad, row: NDArray[np.int32], number: Number) -> Number:
    """Return the clause of an entry."""
    place = tail_place(row[START], row[CAPACITY], np.int64(number))
    return np.int64(quad.entry.reshape(-1)[place])


@kernel
def drop_entry(quad: Quad, row: NDArray[np.int32], number: Number) -> None:
    """Take an entry out of a list; the last one takes its place."""
    row[SIZE] -= 1
    if row[SIZE] != number:
        copy_entry(quad.entry.reshape(-1), row, np.int64(row[SIZE]), row, np.int64(number))


@kernel
def drop_clause(quad: Quad, row: NDArray[np.int32], clause: Number) -> None:
    """Take a clause out of a list, which has it."""
    number = np.int64(0)
    while clause_at(quad, row, number) != clause:
        number += 1
    drop_entry(quad, row, number)


@kernel
def move_slots(old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    """Put the rows of one table into another, which is empty and large enough."""
    for i in range(len(old)):
        if old[i, OWNER] != 0:
            at = find_row(new, np.int64(old[i, OWNER]) - 1, np.int64(old[i, TOKEN]))
            new[at] = old[i]


@kernel
def pack_lists(
    quad: Quad, rows: NDArray[np.int32], tight: Number, top: Number, entry: NDArray[np.int32]
) -> Number:
    """Copy the lists of rows, one behind the other, into another pool; return where it ends.

    Tight lists keep just the room they need; ``entry`` may have no rows, to see how much that is.
    """
    old, new = quad.entry.reshape(-1), entry.reshape(-1)
    for at in range(len(rows)):
        row = rows[at]
        if row[CAPACITY] <= 0:
            continue
        capacity = np.int64(row[CAPACITY])
        if tight:
            capacity = rounded(np.int64(row[SIZE]))
        start = aligned(top, capacity)
        top = start + capacity
        if len(new):
            copy_list(old, row, new, start, capacity)
            row[START], row[CAPACITY] = start, capacity
    return top


@kernel
def copy_list(
    old: NDArray[np.int32],
    row: NDArray[np.int32],
    new: NDArray[np.int32],
    start: Number,
    capacity: Number,
) -> None:
    """Copy a list to a place of another pool."""
    for number in range(row[SIZE]):
        here, there = box_place(start, number), box_place(row[START], number)
        for side in range(4):
            new[here + side * stride_of(capacity)] = old[there + side * stride_of(row[CAPACITY])]
        here = tail_place(start, capacity, number)
        there = tail_place(row[START], row[CAPACITY], number)
        new[here], new[here + 1] = old[there], old[there + 1]


@kernel
def pack_runs(quad: Quad, tight: Number, listed: NDArray[np.int32]) -> Number:
    """Copy the tokens of all owners, one behind the other, into another pool; return its end."""
    top = np.int64(0)
    for owner in range(quad.state[OWNERS]):
        run = quad.run[owner]
        for i in range(run[RUN_COUNT]):
            listed[top + i] = quad.listed[run[RUN_START] + i]
        run[RUN_START] = top
        if tight:
            run[RUN_ROOM] = run[RUN_COUNT]
        top += run[RUN_ROOM]
    return top
