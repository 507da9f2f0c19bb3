"""The arrays of the quadtree indexes, and the operations on one row, list or node of them.

A *row* describes a list of the pool (`nearcast.compiled.box_lists`); it is a row of ``slot`` or of
``node``. An *owner* has lists by token: node ``n`` of an iq-tree is owner ``n + 1``, a node of a
trie is an owner once it has children. Owner 0 is what a message looks up first: the directory of
an iq-tree, or the root of a trie.

- ``slot`` int32[slots, 6]: a hash table by owner and token, open addressing with linear probing. A
  row has the token, start, size and capacity of a list, the owner plus one (0 if the slot is
  free), and, in a trie, the owner that is the node itself (0 if it has no children). In a trie, the
  capacity `TREE` says that the list is a quadtree; its start is the root then. In the directory,
  the start is a bit for each level at which the token has lists.
- ``node`` int32[nodes, 8]: quadtree nodes. Token (unused), start, size and capacity of the list of
  the node; in an iq-tree, whose nodes are owners, only the size, which is that of all its lists.
  Then the first of four children, or, of a leaf, the complement of its maximum size; and the cell.
- ``run`` int32[owners, 3] and ``listed`` int32[m]: the tokens of each owner but 0, as start, count
  and capacity.
- ``entry`` int32[m, 6]: the pool of lists.
- ``state`` int64[14]: counters and header fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import at_cache_line, read_only
from nearcast.compiled.box_lists import (
    ALIGNMENT,
    CAPACITY,
    ENTRY_WIDTH,
    PADDING,
    SIZE,
    TOKEN,
    aligned_start,
    append_entry,
    larger_capacity,
    move_list,
    new_pool,
    pack_lists,
)
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_table import MIXER
from nearcast.indexes.array_tuples import map_arrays
from nearcast.indexes.quadtrees.cells import SOUTH_END, WEST_END, Cell

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import Ordered

OWNER, BRANCH, SLOT_WIDTH = 4, 5, 6
"""Columns of ``slot`` after `TOKEN`, `START`, `SIZE` and `CAPACITY`."""

CHILD, WEST, SOUTH, LEVEL, NODE_WIDTH = 4, 5, 6, 7, 8
"""Columns of ``node`` after the same four."""

RUN_START, RUN_COUNT, RUN_CAPACITY, RUN_WIDTH = 0, 1, 2, 3
"""Columns of ``run``."""

SLOTS, NODES, OWNERS, LISTED, TOP, FREED = range(6)
"""Items of ``state``: slots, nodes, owners, items of ``listed`` and entries of the pool in use, and
the entries that lists left behind when they moved."""

LIST_SIZE, CHILD_SIZE, TRIE_LEVELS, BY_TOKEN = 6, 7, 8, 12
"""Items of ``state``, header fields: the size at which a leaf is split and a list of a trie becomes
a quadtree; the size at which a trie node gets children; the last level of the trie; and whether
quadtree nodes have a list per token (1, iq-tree) or one list (0)."""

CLAUSES, REMOVED, BUILT, DOCUMENTS, STATES = 9, 10, 11, 13, 14
"""Items of ``state``: the clauses in the index, those removed since it was last built, and those it
was built from; and the number of messages that the statistics have seen (0: no statistics)."""

TOP_OWNER = np.int64(0)
"""The owner that a message looks up first."""

TREE = np.int32(-1)
"""The capacity of a list that is a quadtree."""

UNLIMITED = np.int64(0x7FFFFFFF)
"""The maximum size of a leaf that is never split."""

_SLOT_LOAD = 0.5


class QuadArrays(NamedTuple):
    """The arrays of an index."""

    slot: NDArray[np.int32]
    node: NDArray[np.int32]
    run: NDArray[np.int32]
    listed: NDArray[np.int32]
    entry: NDArray[np.int32]
    state: NDArray[np.int64]


class Demand(NamedTuple):
    """How many more items of each array a change needs at most."""

    slots: Number
    nodes: Number
    owners: Number
    listed: Number
    entries: Number


@kernel
def has_capacity(quad: QuadArrays, demand: Demand, shortage: NDArray[np.int64]) -> Number:
    """Tell whether a change fits; if not, note in ``shortage`` what runs out."""
    state = quad.state
    fits = True
    if 5 * (state[SLOTS] + demand.slots) > 3 * len(quad.slot):
        shortage[0], fits = demand.slots, False
    if state[NODES] + demand.nodes > len(quad.node):
        shortage[1], fits = demand.nodes, False
    if state[OWNERS] + demand.owners > len(quad.run):
        shortage[2], fits = demand.owners, False
    if state[LISTED] + demand.listed > len(quad.listed):
        shortage[3], fits = demand.listed, False
    if state[TOP] + demand.entries + PADDING > len(quad.entry):
        shortage[4], fits = demand.entries, False
    return fits


# The hash table.


@kernel
def home(slot: NDArray[np.int32], owner: Number, token: Number) -> Number:
    """Return the slot where the search for a token of an owner starts."""
    mixed = (np.uint64(owner) * np.uint64(0xD6E8FEB86659FD93)) ^ np.uint64(token)
    hashed = (mixed * MIXER) >> np.uint64(32)
    return np.int64((hashed * np.uint64(len(slot))) >> np.uint64(32))


@kernel
def find_row(slot: NDArray[np.int32], owner: Number, token: Number) -> Number:
    """Return the slot of a token of an owner, or the free slot where it belongs."""
    at = home(slot, owner, token)
    while slot[at, OWNER] != 0 and (slot[at, TOKEN] != token or slot[at, OWNER] != owner + 1):
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def find_or_add_row(quad: QuadArrays, owner: Number, token: Number) -> Number:
    """Return the slot of a token of an owner; if it is new, its list is empty."""
    at = find_row(quad.slot, owner, token)
    if quad.slot[at, OWNER] == 0:
        quad.slot[at] = 0
        quad.slot[at, TOKEN], quad.slot[at, OWNER] = token, owner + 1
        quad.state[SLOTS] += 1
    return at


@kernel
def remove_row(quad: QuadArrays, at: Number) -> None:
    """Free a slot; rows after it that could not be found any more move up."""
    slot = quad.slot
    quad.state[FREED] += max(slot[at, CAPACITY], 0)
    quad.state[SLOTS] -= 1
    gap, there, size = np.int64(at), np.int64(at), np.int64(len(slot))
    while True:
        there = there + 1 if there + 1 < size else np.int64(0)
        if slot[there, OWNER] == 0:
            break
        start = home(slot, np.int64(slot[there, OWNER]) - 1, np.int64(slot[there, TOKEN]))
        # A row moves up if its search starts at or before the gap.
        if (there - start) % size >= (there - gap) % size:
            slot[gap] = slot[there]
            gap = there
    slot[gap] = 0


@kernel
def move_slots(old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    """Copy the rows of one table to another, which is empty and large enough."""
    for i in range(len(old)):
        if old[i, OWNER] != 0:
            at = find_row(new, np.int64(old[i, OWNER]) - 1, np.int64(old[i, TOKEN]))
            new[at] = old[i]


# The tokens of owners.


@kernel
def add_owner(quad: QuadArrays, tokens: Number) -> Number:
    """Add an owner with capacity for ``tokens`` tokens; there is space for it."""
    owner = quad.state[OWNERS]
    quad.state[OWNERS] += 1
    quad.run[owner, RUN_START], quad.run[owner, RUN_COUNT] = quad.state[LISTED], 0
    quad.run[owner, RUN_CAPACITY] = tokens
    quad.state[LISTED] += tokens
    return owner


@kernel
def add_token(quad: QuadArrays, owner: Number, token: Number) -> None:
    """Add a new token to those of an owner; there is space for it."""
    run = quad.run[owner]
    if run[RUN_COUNT] == run[RUN_CAPACITY]:
        larger, start = 2 * np.int64(run[RUN_CAPACITY]) + 2, quad.state[LISTED]
        for i in range(run[RUN_COUNT]):
            quad.listed[start + i] = quad.listed[run[RUN_START] + i]
        run[RUN_START], run[RUN_CAPACITY] = start, larger
        quad.state[LISTED] += larger
    quad.listed[run[RUN_START] + run[RUN_COUNT]] = token
    run[RUN_COUNT] += 1


@kernel
def token_demand(quad: QuadArrays, owner: Number) -> Number:
    """Return how many items of ``listed`` `add_token` needs."""
    full = quad.run[owner, RUN_COUNT] == quad.run[owner, RUN_CAPACITY]
    return 2 * np.int64(quad.run[owner, RUN_CAPACITY]) + 2 if full else np.int64(0)


@kernel
def pack_runs(quad: QuadArrays, tight: Number, listed: NDArray[np.int32]) -> Number:
    """Copy the tokens of all owners, one after the other, to another array; return the end."""
    top = np.int64(0)
    for owner in range(quad.state[OWNERS]):
        run = quad.run[owner]
        for i in range(run[RUN_COUNT]):
            listed[top + i] = quad.listed[run[RUN_START] + i]
        run[RUN_START] = top
        if tight:
            run[RUN_CAPACITY] = run[RUN_COUNT]
        top += run[RUN_CAPACITY]
    return top


# Lists.


@kernel
def append_demand(row: NDArray[np.int32]) -> Number:
    """Return how many entries of the pool one more entry of a list needs at most."""
    if row[SIZE] < row[CAPACITY]:
        return np.int64(0)
    return larger_capacity(row[CAPACITY]) + ALIGNMENT


@kernel
def move_to_end(quad: QuadArrays, row: NDArray[np.int32], capacity: Number) -> None:
    """Move a list to the end of the pool with another capacity; there is space for it."""
    start = aligned_start(quad.state[TOP], capacity)
    quad.state[TOP] = start + capacity
    quad.state[FREED] += row[CAPACITY]
    move_list(quad.entry.reshape(-1), row, start, capacity)


@kernel
def append_clause(
    quad: QuadArrays, row: NDArray[np.int32], ordered: Ordered, clause: Number, known: Number
) -> None:
    """Append a clause to a list, which grows if it is full; there is space for that."""
    if row[SIZE] == row[CAPACITY]:
        move_to_end(quad, row, larger_capacity(row[CAPACITY]))
    append_entry(quad.entry.reshape(-1), row, ordered, clause, clause, known)


# Quadtree nodes.


@inlined_kernel
def cell_of(quad: QuadArrays, node: Number) -> Cell:
    """Return the cell of a node."""
    row = quad.node[node]
    return Cell(np.int64(row[LEVEL]), np.int64(row[WEST]), np.int64(row[SOUTH]))


@inlined_kernel
def is_leaf(quad: QuadArrays, node: Number) -> Number:
    """Tell whether a node has no children."""
    return quad.node[node, CHILD] < 0


@inlined_kernel
def is_full(quad: QuadArrays, node: Number) -> Number:
    """Tell whether a node is a leaf that must be split before it takes another clause."""
    return quad.node[node, CHILD] < 0 and quad.node[node, SIZE] >= ~quad.node[node, CHILD]


@kernel
def add_node(quad: QuadArrays, cell: Cell, depth: Number) -> Number:
    """Add an empty leaf, which is never split at the last level; there is space for it."""
    at = quad.state[NODES]
    quad.state[NODES] += 1
    row = quad.node[at]
    row[:CHILD] = 0
    row[CHILD] = ~(quad.state[LIST_SIZE] if cell.level < depth else UNLIMITED)
    row[WEST], row[SOUTH], row[LEVEL] = cell.west, cell.south, cell.level
    return at


@kernel
def add_root(quad: QuadArrays, depth: Number) -> Number:
    """Add the root of a quadtree."""
    return add_node(quad, Cell(np.int64(0), WEST_END, SOUTH_END), depth)


# Allocation.


def new_arrays(clauses: int) -> QuadArrays:
    """Return empty arrays with ample capacity: memory that is not touched costs nothing."""
    return QuadArrays(
        _new_slots(clauses),
        _new_nodes(64 + clauses // 8),
        np.zeros((64 + clauses // 8, RUN_WIDTH), np.int32),
        np.empty(64 + clauses, np.int32),
        new_pool(64 + 4 * clauses),
        np.zeros(STATES, np.int64),
    )


def used_arrays(quad: QuadArrays) -> QuadArrays:
    """Return the arrays without spare capacity at their ends."""
    state = quad.state
    return QuadArrays(
        quad.slot,
        quad.node[: state[NODES]],
        quad.run[: state[OWNERS]],
        quad.listed[: state[LISTED]],
        quad.entry[: state[TOP] + PADDING],
        state,
    )


def read_only_arrays(quad: QuadArrays) -> QuadArrays:
    """Return read-only views: one type for kernels, whether arrays are new or memory-mapped."""
    state = read_only(quad.state, np.int64)
    return map_arrays(quad, lambda array: read_only(array, np.int32))._replace(state=state)


def writable_copy(quad: QuadArrays) -> QuadArrays:
    """Return a writable copy, in which free slots are zero."""
    quad = map_arrays(quad, np.copy)
    quad.slot[quad.slot[:, OWNER] == 0] = 0
    return quad


def enlarge(quad: QuadArrays, demand: Demand) -> QuadArrays:
    """Return the arrays with capacity for what a change needs."""
    if demand.slots:
        quad = _with_slots(quad, 2 * (int(quad.state[SLOTS]) + demand.slots))
    if demand.nodes:
        node = _new_nodes(demand.nodes + 2 * len(quad.node))
        node[: len(quad.node)] = quad.node
        quad = quad._replace(node=node)
    if demand.owners:
        run = np.zeros((demand.owners + 2 * len(quad.run), RUN_WIDTH), np.int32)
        run[: len(quad.run)] = quad.run
        quad = quad._replace(run=run)
    if demand.listed:
        listed = np.empty(2 * int(quad.state[LISTED]) + demand.listed, np.int32)
        quad.state[LISTED] = pack_runs(quad, False, listed)
        quad = quad._replace(listed=listed)
    if demand.entries:
        quad = _pack(quad, demand.entries)
    return quad


def trim(quad: QuadArrays) -> QuadArrays:
    """Return the arrays without spare capacity anywhere."""
    quad = _pack(_with_slots(quad, int(quad.state[SLOTS])), 0)
    listed = np.empty(int(quad.state[LISTED]), np.int32)
    quad.state[LISTED] = pack_runs(quad, True, listed)
    return used_arrays(quad._replace(listed=listed))


def _pack(quad: QuadArrays, more: int) -> QuadArrays:
    """Return the arrays with a pool without gaps that has capacity for ``more`` entries.

    If ``more`` is 0, the lists have no spare capacity either.
    """
    tight, tables = more == 0, (quad.slot, quad.node[: quad.state[NODES]])
    top, nowhere = 0, np.empty((0, ENTRY_WIDTH), np.int32)
    for rows in tables:
        top = int(pack_lists(rows, quad.entry, tight, top, nowhere))
    entry = new_pool(top if tight else top + more + top // 2)
    top = 0
    for rows in tables:
        top = int(pack_lists(rows, quad.entry, tight, top, entry))
    quad.state[TOP], quad.state[FREED] = top, 0
    return quad._replace(entry=entry)


def _with_slots(quad: QuadArrays, count: int) -> QuadArrays:
    """Return the arrays with a table for ``count`` rows."""
    slot = _new_slots(count)
    move_slots(quad.slot, slot)
    return quad._replace(slot=slot)


def _new_slots(rows: int) -> NDArray[np.int32]:
    return np.zeros((16 + int(rows / _SLOT_LOAD), SLOT_WIDTH), np.int32)


def _new_nodes(count: int) -> NDArray[np.int32]:
    return at_cache_line(NODE_WIDTH * count, np.int32).reshape(-1, NODE_WIDTH)
