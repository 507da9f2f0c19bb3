"""Insert clauses into an mbr-trie and remove them, in place.

Yu et al. (CIKM 2015), section 3.1. A new clause follows the path of its tokens; missing nodes are
created, and the boxes and label ranges on the path are extended. A removed clause is marked dead in
its list; boxes and ranges above it stay as they are unless nothing is left below.

A kernel first checks that the arrays have enough space for a clause. If not, it changes nothing and
returns what is short, and the caller enlarges the arrays and calls again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.sorting import sort_short
from nearcast.indexes.mbr_trie.build import assign_labels
from nearcast.indexes.mbr_trie.layout import (
    ADDED,
    CHILD_CAPACITY,
    CHILD_COUNT,
    CLAUSES_BELOW,
    DEAD_CLAUSE,
    DEPTH,
    DROPPED,
    ENTRIES,
    FIRST_CHILD,
    FREQUENCY,
    HIGH,
    LABEL_BITS,
    LIST,
    LIST_CAPACITY,
    LIST_DEAD,
    LIST_SIZE,
    LOW,
    LOW32,
    NEXT_RANK,
    NO_TOKENS,
    NODE_WIDTH,
    NODES,
    NOWHERE,
    PADDING,
    RANK,
    ROOT_CHILD,
    TOKEN,
    TOKENS,
    ListPlace,
    Trie,
    align_list,
    box_at,
    clause_at,
    clause_box,
    clear_box,
    clear_node,
    extend_box,
    find_slot,
    has_label,
    list_place,
    lower_bound,
    round_capacity,
    table_is_full,
    update_outline,
    write_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseColumns

MIN_CAPACITY = 4
"""The capacity of a list when it gets its second clause."""


class PathScratch(NamedTuple):
    """Scratch for the path of one clause.

    ``key`` int64[max tokens + 1]: ranks, each with its slot in the lower half; ``node``
    int64[max tokens + 1]: the nodes of the path; ``stack`` int64[depth + 2, 2], for labels.
    """

    key: NDArray[np.int64]
    node: NDArray[np.int64]
    stack: NDArray[np.int64]


class Shortage(NamedTuple):
    """The clause that did not fit (or the end), and how much more of each array it needs."""

    reached: Number
    slots: Number
    nodes: Number
    entries: Number


@kernel
def insert_clauses(
    trie: Trie, columns: ClauseColumns, first: Number, last: Number, path: PathScratch
) -> Shortage:
    """Insert the clauses ``first:last``; stop at the first that does not fit."""
    shortage = Shortage(np.int64(first), np.int64(0), np.int64(0), np.int64(0))
    for clause in range(first, last):
        shortage = insert_clause(trie, columns, np.int64(clause), path)
        if shortage.reached == clause:
            break
    return shortage


@kernel
def insert_clause(
    trie: Trie, columns: ClauseColumns, clause: Number, path: PathScratch
) -> Shortage:
    """Insert a clause, or do nothing if it does not fit."""
    nothing, label = np.int64(0), NO_TOKENS
    size = rank_tokens(trie, columns, clause, path.key)
    if size < 0:
        return Shortage(clause, np.int64(1), nothing, nothing)
    known, _, _ = find_path(trie, path, size)
    nodes = nodes_needed(trie, path, known, size)
    if trie.state[NODES] + nodes > len(trie.rank):
        return Shortage(clause, nothing, nodes, nothing)
    at = path.node[size - 1] if size > 0 else nothing
    entries = entries_needed(trie, at) if known == size else nothing
    if trie.state[ENTRIES] + entries + PADDING > len(trie.entry):
        return Shortage(clause, nothing, nothing, entries + PADDING)
    if size > 0:
        label = choose_label(trie, path, known, size)
        create_nodes(trie, path, known, size, label)
        at = path.node[size - 1]
        trie.label[at, LOW] = label
        for i in range(size):
            above = path.node[i]
            extend_box(trie.node, above, columns.box, clause)
            update_outline(trie, above)
            trie.node[above, CLAUSES_BELOW] += 1
            trie.label[above, LOW] = min(trie.label[above, LOW], label)
            trie.label[above, HIGH] = max(trie.label[above, HIGH], label)
    extend_box(trie.node, 0, columns.box, clause)
    update_outline(trie, 0)
    trie.node[0, CLAUSES_BELOW] += 1
    append_to_list(trie, at, columns, clause)
    if len(trie.clause_label) > 0:
        trie.clause_label[clause] = label
    trie.state[ADDED] += 1
    return Shortage(clause + 1, nothing, nothing, nothing)


@kernel
def remove_clauses(
    trie: Trie, columns: ClauseColumns, removed: NDArray[np.int64], path: PathScratch
) -> None:
    """Remove clauses, all of which are in the trie."""
    for i in range(len(removed)):
        size = rank_tokens(trie, columns, removed[i], path.key)
        find_path(trie, path, size)
        remove_from_list(trie, path.node[size - 1] if size > 0 else np.int64(0), removed[i])
        for depth in range(-1, size):
            above = path.node[depth] if depth >= 0 else np.int64(0)
            trie.node[above, CLAUSES_BELOW] -= 1
            if trie.node[above, CLAUSES_BELOW] == 0:
                clear_box(trie.node, above)
                update_outline(trie, above)
        trie.state[DROPPED] += 1


@kernel
def rank_tokens(
    trie: Trie, columns: ClauseColumns, clause: Number, key: NDArray[np.int64]
) -> Number:
    """Write the ascending ranks of a clause with their slots; new tokens get a rank.

    Return how many there are, or -1 if the table is full.
    """
    slot, state = trie.slot, trie.state
    begin, end = columns.token_start[clause], columns.token_start[clause + 1]
    for i in range(begin, end):
        token = np.int64(columns.token[i])
        at = find_slot(slot, token)
        if slot[at, TOKEN] == 0:
            if table_is_full(slot, state):
                return np.int64(-1)
            slot[at, TOKEN], slot[at, RANK] = token + 1, token
            slot[at, ROOT_CHILD], slot[at, FREQUENCY] = 0, 0
            if state[NEXT_RANK] >= 0:
                slot[at, RANK] = state[NEXT_RANK]
                state[NEXT_RANK] -= 1
            state[TOKENS] += 1
        key[i - begin] = np.int64(slot[at, RANK]) << 32 | at
    sort_short(key[: end - begin])
    state[DEPTH] = max(state[DEPTH], end - begin)
    return end - begin


@kernel
def find_path(trie: Trie, path: PathScratch, size: Number) -> tuple[Number, Number, Number]:
    """Write the nodes on the path of ``size`` ranks, as far as they exist.

    Return how many exist, and the two labels between which the token set's own lies.
    """
    before = (path.key[0] >> 32) << LABEL_BITS
    after = before + (np.int64(1) << LABEL_BITS)
    if size == 0:
        return np.int64(0), before, after
    child = np.int64(trie.slot[path.key[0] & LOW32, ROOT_CHILD])
    if child == 0:
        return np.int64(0), before, after
    path.node[0] = child
    for depth in range(1, size + 1):
        at = path.node[depth - 1]
        first = np.int64(trie.node[at, FIRST_CHILD])
        last = first + trie.node[at, CHILD_COUNT]
        if depth == size:
            break
        rank = path.key[depth] >> 32
        found = lower_bound(trie.rank, first, last, rank)
        if found > first:
            before = trie.label[found - 1, HIGH]
        elif has_label(trie, at):
            before = trie.label[at, LOW]
        if found == last or trie.rank[found] != rank:
            if found < last:
                after = trie.label[found, LOW]
            return np.int64(depth), before, after
        if found + 1 < last:
            after = trie.label[found + 1, LOW]
        path.node[depth] = found
    if first < last:
        after = trie.label[first, LOW]
    return np.int64(size), before, after


@kernel
def choose_label(trie: Trie, path: PathScratch, known: Number, size: Number) -> Number:
    """Return the label of a token set, between those of its neighbors if it is new."""
    if known == size and has_label(trie, path.node[size - 1]):
        return trie.label[path.node[size - 1], LOW]
    _, before, after = find_path(trie, path, size)
    if after - before < 2:
        assign_labels(trie, path.node[0], path.stack)
        _, before, after = find_path(trie, path, size)
    return before + ((after - before) >> 1)


@kernel
def larger_block(capacity: Number) -> Number:
    """Return the next capacity of a node whose block of children is full."""
    return capacity + (capacity >> 1) + 1


@kernel
def nodes_needed(trie: Trie, path: PathScratch, known: Number, size: Number) -> Number:
    """Return how many nodes it takes to create the rest of a path."""
    if known == size:
        return np.int64(0)
    if known == 0:
        return size
    at = path.node[known - 1]
    block = np.int64(0)
    if trie.node[at, CHILD_COUNT] == trie.node[at, CHILD_CAPACITY]:
        block = larger_block(np.int64(trie.node[at, CHILD_CAPACITY]))
    return block + size - known - 1


@kernel
def create_nodes(trie: Trie, path: PathScratch, known: Number, size: Number, label: Number) -> None:
    """Create the nodes of a path that do not exist yet."""
    for i in range(known, size):
        rank = path.key[i] >> 32
        if i == 0:
            at = trie.state[NODES]
            trie.state[NODES] += 1
            trie.slot[path.key[0] & LOW32, ROOT_CHILD] = at
            trie.node[0, CHILD_COUNT] += 1
        else:
            at = insert_child(trie, path.node[i - 1], rank)
        clear_node(trie, at, rank)
        trie.label[at, LOW], trie.label[at, HIGH] = label, label
        path.node[i] = at


@kernel
def insert_child(trie: Trie, parent: Number, rank: Number) -> Number:
    """Open a gap for a new child of a node, in the order of ranks; return its position.

    A block of children that is full moves to the end of the nodes.
    """
    first = np.int64(trie.node[parent, FIRST_CHILD])
    count = np.int64(trie.node[parent, CHILD_COUNT])
    position = lower_bound(trie.rank, first, first + count, rank) - first
    start, capacity = first, np.int64(trie.node[parent, CHILD_CAPACITY])
    if count == capacity:
        start, capacity = trie.state[NODES], larger_block(capacity)
        trie.state[NODES] += capacity
        for i in range(position):
            copy_node(trie, first + i, start + i)
    for i in range(count - 1, position - 1, -1):
        copy_node(trie, first + i, start + i + 1)
    trie.node[parent, FIRST_CHILD], trie.node[parent, CHILD_CAPACITY] = start, capacity
    trie.node[parent, CHILD_COUNT] = count + 1
    return start + position


@kernel
def copy_node(trie: Trie, old: Number, new: Number) -> None:
    """Copy a node to another position."""
    trie.rank[new], trie.outline[new] = trie.rank[old], trie.outline[old]
    for field in range(NODE_WIDTH):
        trie.node[new, field] = trie.node[old, field]
    trie.label[new, LOW], trie.label[new, HIGH] = trie.label[old, LOW], trie.label[old, HIGH]


@kernel
def larger_list(capacity: Number) -> Number:
    """Return the next capacity of a list that is full."""
    return round_capacity(np.int64(max(capacity + (capacity >> 1), MIN_CAPACITY)))


@kernel
def entries_needed(trie: Trie, at: Number) -> Number:
    """Return how much of the pool it takes to append one clause to a node's list."""
    size, capacity = np.int64(trie.node[at, LIST_SIZE]), np.int64(trie.node[at, LIST_CAPACITY])
    if size == 0 or size < capacity:
        return np.int64(0)
    return LANES + 5 * larger_list(capacity)


@kernel
def append_to_list(trie: Trie, at: Number, columns: ClauseColumns, clause: Number) -> None:
    """Append a clause to the list of a node; the pool has space (`entries_needed`)."""
    size, old = np.int64(trie.node[at, LIST_SIZE]), list_place(trie, at)
    if size == 0 and old.capacity == 0:
        trie.node[at, LIST], trie.node[at, LIST_SIZE] = clause, 1
        return
    if size >= old.capacity:
        capacity = larger_list(old.capacity)
        start = align_list(trie.state[ENTRIES], capacity)
        trie.state[ENTRIES] = start + 5 * capacity
        trie.node[at, LIST], trie.node[at, LIST_CAPACITY] = start, capacity
        if old.capacity == 0:
            write_entry(trie, at, 0, old.start, clause_box(columns, old.start))
        else:
            compact_list(trie, at, old)
    write_entry(trie, at, trie.node[at, LIST_SIZE], clause, clause_box(columns, clause))
    trie.node[at, LIST_SIZE] += 1


@kernel
def remove_from_list(trie: Trie, at: Number, clause: Number) -> None:
    """Remove a clause from the list of a node; it is in that list."""
    place = list_place(trie, at)
    if place.capacity == 0:
        trie.node[at, LIST], trie.node[at, LIST_SIZE] = 0, 0
        return
    number = np.int64(0)
    while clause_at(trie, place, number) != clause:
        number += 1
    write_entry(trie, at, number, DEAD_CLAUSE, NOWHERE)
    trie.node[at, LIST_DEAD] += 1
    if 2 * trie.node[at, LIST_DEAD] >= trie.node[at, LIST_SIZE]:
        compact_list(trie, at, place)
        if trie.node[at, CHILD_COUNT] == 0:
            shrink_box(trie, at)


@kernel
def compact_list(trie: Trie, at: Number, old: ListPlace) -> None:
    """Copy the live entries of a list from its old place to the front of its current one."""
    alive = np.int64(0)
    for number in range(trie.node[at, LIST_SIZE]):
        clause = clause_at(trie, old, np.int64(number))
        if clause != DEAD_CLAUSE:
            write_entry(trie, at, alive, clause, box_at(trie, old, np.int64(number)))
            alive += 1
    trie.node[at, LIST_SIZE], trie.node[at, LIST_DEAD] = alive, 0


@kernel
def shrink_box(trie: Trie, at: Number) -> None:
    """Shrink the box of a node without children to its list, which has no dead entries."""
    node, place = trie.node, list_place(trie, at)
    clear_box(node, at)
    for number in range(node[at, LIST_SIZE]):
        west, south, east, north = box_at(trie, place, np.int64(number))
        node[at, 0], node[at, 1] = min(node[at, 0], west), min(node[at, 1], south)
        node[at, 2], node[at, 3] = max(node[at, 2], east), max(node[at, 3], north)
    update_outline(trie, at)
