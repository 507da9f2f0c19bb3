"""The token sets and inverted files of an R-tree's nodes: how they are made.

Li et al., KDD 2013, sections 3 and 4. See `token_updates` for what changes them.
"""

from __future__ import annotations

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_regions import make_room
from nearcast.compiled.token_table import (
    COUNT,
    LOW32,
    SIZE,
    START,
    Tables,
    claim_slot,
    drop_table,
    find_slot,
    new_region,
    region_size,
    remove_slot,
)
from nearcast.indexes.rtree.nodes import RTree, bit
from nearcast.indexes.rtree.token_tree import FILES, FIRST, LISTS, Room, depth_of, first_in_leaf


@kernel
def empty_room(room: Room, most: Number) -> None:
    """Forget what was gathered, and be ready for so many tokens or what the room has place for."""
    room.tables.top[0] = 0
    new_region(room.tables, 0, min(np.int64(len(room.tables.slot)), region_size(most)))


@kernel
def room_left(room: Room, more: Number) -> Number:
    """Tell whether the room has place for more tokens."""
    return 3 * (room.tables.table[0, COUNT] + more) <= 2 * room.tables.table[0, SIZE]


@kernel
def gather_clause(
    ordered: Ordered, clause: Number, first: Number, last: Number, word: Number, room: Room
) -> Number:
    """Gather the tokens ``first`` to ``last`` of a clause; return whether there was room."""
    if not room_left(room, last - first):
        return False
    for i in range(first, last):
        at = claim_slot(room.tables, 0, token_at(ordered, clause, i))
        room.tables.slot[at, 1] |= word
    return True


@kernel
def gather_leaf(
    tree: RTree, ordered: Ordered, kind: Number, leaf: Number, word: Number, room: Room
) -> Number:
    """Gather what a leaf's token set consists of, under one word."""
    left = tree.used[leaf]
    while left != np.uint64(0):
        clause = tree.entry[leaf, lowest_bit(left)]
        left &= left - np.uint64(1)
        last = np.int64(1) if kind == FIRST else length_of(ordered, clause)
        if not gather_clause(ordered, clause, 0, last, word, room):
            return False
    return True


@kernel
def gather_table(tables: Tables, node: Number, word: Number, room: Room) -> Number:
    """Gather all tokens of a node's table under one word."""
    start, size = tables.table[node, START], tables.table[node, SIZE]
    if not room_left(room, tables.table[node, COUNT]):
        return False
    for at in range(start, start + size):
        token = tables.slot[at, 0] & LOW32
        if token != np.uint64(0):
            new = claim_slot(room.tables, 0, token - np.uint64(1))
            room.tables.slot[new, 1] |= word
    return True


@kernel
def gather_file(tree: RTree, ordered: Ordered, kind: Number, leaf: Number, room: Room) -> Number:
    """Gather the inverted file of a leaf: the clauses of every token."""
    skip = first_in_leaf(depth_of(tree, leaf)) if kind == LISTS else np.int64(0)
    left = tree.used[leaf]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        clause = tree.entry[leaf, slot]
        if not gather_clause(ordered, clause, skip, length_of(ordered, clause), bit(slot), room):
            return False
    return True


@kernel
def gather_set(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, node: Number, room: Room
) -> Number:
    """Gather the token sets of all entries of an inner node, whose children are up to date."""
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        child = tree.entry[node, slot]
        if tree.level[child] == 0 and kind != FILES:
            fits = gather_leaf(tree, ordered, kind, child, bit(slot), room)
        else:
            fits = gather_table(tables, child, bit(slot), room)
        if not fits:
            return False
    return True


@kernel
def keep_gathered(tables: Tables, node: Number, room: Room) -> Number:
    """Write what was gathered as the table of a node; return the slots that were missing."""
    count = room.tables.table[0, COUNT]
    drop_table(tables, node)
    if count == 0:
        return np.int64(0)
    size = region_size(count)
    if tables.top[0] + size > len(tables.slot):
        return np.int64(size)
    new_region(tables, node, size)
    for at in range(room.tables.table[0, SIZE]):
        token = room.tables.slot[at, 0]
        if token != np.uint64(0):
            new = claim_slot(tables, node, token - np.uint64(1))
            tables.slot[new, 1] = room.tables.slot[at, 1]
    return np.int64(0)


@kernel
def most_tokens(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, node: Number
) -> Number:
    """Return how many tokens may be gathered for a node at most."""
    total, left = np.int64(0), tree.used[node]
    while left != np.uint64(0):
        entry = tree.entry[node, lowest_bit(left)]
        left &= left - np.uint64(1)
        if tree.level[node] == 0:
            total += length_of(ordered, entry)
        elif tree.level[entry] > 0 or kind == FILES:
            total += tables.table[entry, COUNT]
        else:
            total += most_tokens_of_leaf(tree, ordered, entry)
    return total


@kernel
def most_tokens_of_leaf(tree: RTree, ordered: Ordered, leaf: Number) -> Number:
    """Return how many tokens the clauses of a leaf have together."""
    total, left = np.int64(0), tree.used[leaf]
    while left != np.uint64(0):
        total += length_of(ordered, tree.entry[leaf, lowest_bit(left)])
        left &= left - np.uint64(1)
    return total


@kernel
def renew_set(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, node: Number, room: Room
) -> tuple[Number, Number]:
    """Make the table of a node anew; return the slots missing in the pool, and in the room."""
    empty_room(room, most_tokens(tree, tables, ordered, kind, node))
    if tree.level[node] > 0:
        fits = gather_set(tree, tables, ordered, kind, node, room)
    else:
        fits = gather_file(tree, ordered, kind, node, room)
    if not fits:
        return np.int64(0), np.int64(2 * len(room.tables.slot))
    return keep_gathered(tables, node, room), np.int64(0)


@kernel
def add_bit(tables: Tables, node: Number, token: Number, word: Number) -> Number:
    """Add an entry to a token of a node.

    Return 0 if it was new there, -1 if not, or the slots that were missing in the pool.
    """
    at = find_slot(tables, node, token)
    if at >= 0:
        known = (tables.slot[at, 1] & word) != np.uint64(0)
        tables.slot[at, 1] |= word
        return np.int64(-1) if known else np.int64(0)
    missing = make_room(tables, node, np.int64(1))
    if missing > 0:
        return missing
    at = claim_slot(tables, node, token)
    tables.slot[at, 1] = word
    return np.int64(0)


@kernel
def remove_bit(tables: Tables, node: Number, token: Number, word: Number) -> Number:
    """Take an entry from a token of a node; return whether it was the last one."""
    at = find_slot(tables, node, token)
    tables.slot[at, 1] &= ~word
    if tables.slot[at, 1] != np.uint64(0):
        return False
    remove_slot(tables, node, at)
    return True
