"""Changes to an MBRTrie, in place.

Yu et al. (CIKM 2015), section 3.1: a new clause goes down the path of its tokens, which is made as
far as it is missing, and the boxes and ranges on the path are brought up to date. A clause that
goes is taken out of its list; boxes and ranges above stay, unless there is nothing left below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.mbr_trie.labels import BITS, give_labels, holds_label
from nearcast.indexes.mbr_trie.lists import append_clause, drop_clause, pool_needed
from nearcast.indexes.mbr_trie.load import sort_keys
from nearcast.indexes.mbr_trie.trie import (
    ADDED,
    BELOW,
    CAPACITY,
    CHILD,
    CHILDREN,
    COUNT,
    DEPTH,
    DROPPED,
    ENTRIES,
    HIGH,
    LOW,
    NEXT_RANK,
    NO_TOKENS,
    NODE_WIDTH,
    NODES,
    PADDING,
    RANK,
    TIMES,
    TOKEN,
    TOKENS,
    Columns,
    Trie,
    clear_box,
    clear_node,
    draw_outline,
    extend_box,
    find_slot,
    first_not_below,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOW32 = np.int64(0xFFFFFFFF)


class Path(NamedTuple):
    """Room for the way of a clause: ranks with their slots, nodes, and a stack for labels.

    ``key`` and ``node`` int64[most tokens + 1], ``stack`` int64[depth of the trie + 2, 2].
    """

    key: NDArray[np.int64]
    node: NDArray[np.int64]
    stack: NDArray[np.int64]


class Missing(NamedTuple):
    """The clause for which there was no room, and how much more of which array it needs."""

    reached: Number
    slots: Number
    nodes: Number
    entries: Number


@kernel
def claim_ranks(trie: Trie, columns: Columns, clause: Number, key: NDArray[np.int64]) -> Number:
    """Write a clause's ranks, ascending, with their slots; new tokens get a rank.

    Return how many there are, or -1 if there is no room in the table.
    """
    slot, state = trie.slot, trie.state
    begin, end = columns.token_start[clause], columns.token_start[clause + 1]
    for i in range(begin, end):
        token = np.int64(columns.token[i])
        at = find_slot(slot, token)
        if slot[at, TOKEN] == 0:
            if 3 * (state[TOKENS] + 1) > 2 * len(slot):
                return np.int64(-1)
            slot[at, TOKEN], slot[at, RANK] = token + 1, token
            slot[at, CHILD], slot[at, TIMES] = 0, 0
            if state[NEXT_RANK] >= 0:
                slot[at, RANK] = state[NEXT_RANK]
                state[NEXT_RANK] -= 1
            state[TOKENS] += 1
        key[i - begin] = np.int64(slot[at, RANK]) << 32 | at
    sort_keys(key, end - begin)
    state[DEPTH] = max(state[DEPTH], end - begin)
    return end - begin


@kernel
def find_path(trie: Trie, path: Path, size: Number) -> tuple[Number, Number, Number]:
    """Write the nodes on the way of so many ranks, as far as there are.

    Return how many there are, and the labels between which that of the token set lies.
    """
    before = (path.key[0] >> 32) << BITS
    after = before + (np.int64(1) << BITS)
    if size == 0:
        return np.int64(0), before, after
    child = np.int64(trie.slot[path.key[0] & _LOW32, CHILD])
    if child == 0:
        return np.int64(0), before, after
    path.node[0] = child
    for depth in range(1, size + 1):
        at = path.node[depth - 1]
        first = np.int64(trie.node[at, CHILDREN])
        last = first + trie.node[at, COUNT]
        if depth == size:
            break
        rank = path.key[depth] >> 32
        place = first_not_below(trie.rank, first, last, rank)
        if place > first:
            before = trie.label[place - 1, HIGH]
        elif holds_label(trie, at):
            before = trie.label[at, LOW]
        if place == last or trie.rank[place] != rank:
            if place < last:
                after = trie.label[place, LOW]
            return np.int64(depth), before, after
        if place + 1 < last:
            after = trie.label[place + 1, LOW]
        path.node[depth] = place
    if first < last:
        after = trie.label[first, LOW]
    return np.int64(size), before, after


@kernel
def larger_block(capacity: Number) -> Number:
    """Return for how many children there is room where there was none left."""
    return capacity + (capacity >> 1) + 1


@kernel
def nodes_needed(trie: Trie, path: Path, known: Number, size: Number) -> Number:
    """Return how many nodes must be taken to make the rest of a path."""
    if known == size:
        return np.int64(0)
    if known == 0:
        return size
    at = path.node[known - 1]
    block = np.int64(0)
    if trie.node[at, COUNT] == trie.node[at, CAPACITY]:
        block = larger_block(np.int64(trie.node[at, CAPACITY]))
    return block + size - known - 1


@kernel
def copy_node(trie: Trie, old: Number, new: Number) -> None:
    """Copy a node to another place."""
    trie.rank[new], trie.outline[new] = trie.rank[old], trie.outline[old]
    for field in range(NODE_WIDTH):
        trie.node[new, field] = trie.node[old, field]
    trie.label[new, LOW], trie.label[new, HIGH] = trie.label[old, LOW], trie.label[old, HIGH]


@kernel
def add_child(trie: Trie, parent: Number, rank: Number) -> Number:
    """Return where among its children a node has made room for a new one."""
    first, count = np.int64(trie.node[parent, CHILDREN]), np.int64(trie.node[parent, COUNT])
    place = first_not_below(trie.rank, first, first + count, rank) - first
    start, capacity = first, np.int64(trie.node[parent, CAPACITY])
    if count == capacity:
        start, capacity = trie.state[NODES], larger_block(capacity)
        trie.state[NODES] += capacity
        for i in range(place):
            copy_node(trie, first + i, start + i)
    for i in range(count - 1, place - 1, -1):
        copy_node(trie, first + i, start + i + 1)
    trie.node[parent, CHILDREN], trie.node[parent, CAPACITY] = start, capacity
    trie.node[parent, COUNT] = count + 1
    return start + place


@kernel
def extend_path(trie: Trie, path: Path, known: Number, size: Number, label: Number) -> None:
    """Make the nodes of a path that are missing."""
    for i in range(known, size):
        rank = path.key[i] >> 32
        if i == 0:
            at = trie.state[NODES]
            trie.state[NODES] += 1
            trie.slot[path.key[0] & _LOW32, CHILD] = at
            trie.node[0, COUNT] += 1
        else:
            at = add_child(trie, path.node[i - 1], rank)
        clear_node(trie, at, rank)
        trie.label[at, LOW], trie.label[at, HIGH] = label, label
        path.node[i] = at


@kernel
def choose_label(trie: Trie, path: Path, known: Number, size: Number) -> Number:
    """Return the label of a token set, between those of its neighbours if it is new."""
    if known == size and holds_label(trie, path.node[size - 1]):
        return trie.label[path.node[size - 1], LOW]
    _, before, after = find_path(trie, path, size)
    if after - before < 2:
        give_labels(trie, path.node[0], path.stack)
        _, before, after = find_path(trie, path, size)
    return before + ((after - before) >> 1)


@kernel
def insert_clause(trie: Trie, columns: Columns, clause: Number, path: Path) -> Missing:
    """Add a clause; nothing happens if there is no room."""
    nothing, label = np.int64(0), NO_TOKENS
    size = claim_ranks(trie, columns, clause, path.key)
    if size < 0:
        return Missing(clause, np.int64(1), nothing, nothing)
    known, _, _ = find_path(trie, path, size)
    nodes = nodes_needed(trie, path, known, size)
    if trie.state[NODES] + nodes > len(trie.rank):
        return Missing(clause, nothing, nodes, nothing)
    at = path.node[size - 1] if size > 0 else nothing
    entries = pool_needed(trie, at) if known == size else nothing
    if trie.state[ENTRIES] + entries + PADDING > len(trie.entry):
        return Missing(clause, nothing, nothing, entries + PADDING)
    if size > 0:
        label = choose_label(trie, path, known, size)
        extend_path(trie, path, known, size, label)
        at = path.node[size - 1]
        trie.label[at, LOW] = label
        for i in range(size):
            above = path.node[i]
            extend_box(trie.node, above, columns.box, clause)
            draw_outline(trie, above)
            trie.node[above, BELOW] += 1
            trie.label[above, LOW] = min(trie.label[above, LOW], label)
            trie.label[above, HIGH] = max(trie.label[above, HIGH], label)
    extend_box(trie.node, 0, columns.box, clause)
    draw_outline(trie, 0)
    trie.node[0, BELOW] += 1
    append_clause(trie, at, columns, clause)
    if len(trie.clause_label) > 0:
        trie.clause_label[clause] = label
    trie.state[ADDED] += 1
    return Missing(clause + 1, nothing, nothing, nothing)


@kernel
def insert_clauses(
    trie: Trie, columns: Columns, first: Number, last: Number, path: Path
) -> Missing:
    """Add clauses from a number to another; return how far it came, and what was missing."""
    missing = Missing(np.int64(first), np.int64(0), np.int64(0), np.int64(0))
    for clause in range(first, last):
        missing = insert_clause(trie, columns, np.int64(clause), path)
        if missing.reached == clause:
            break
    return missing


@kernel
def remove_clauses(trie: Trie, columns: Columns, gone: NDArray[np.int64], path: Path) -> None:
    """Take clauses out, all of which are in the trie."""
    for g in range(len(gone)):
        size = claim_ranks(trie, columns, gone[g], path.key)
        find_path(trie, path, size)
        drop_clause(trie, path.node[size - 1] if size > 0 else np.int64(0), gone[g])
        for i in range(-1, size):
            above = path.node[i] if i >= 0 else np.int64(0)
            trie.node[above, BELOW] -= 1
            if trie.node[above, BELOW] == 0:
                clear_box(trie.node, above)
                draw_outline(trie, above)
        trie.state[DROPPED] += 1
