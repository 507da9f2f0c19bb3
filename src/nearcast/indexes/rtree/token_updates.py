"""Changes to the token sets and inverted files of an R-tree's nodes, in place.

Yu et al., TKDE 2014, section 3.1: the tokens of a clause are added to the sets of all nodes above
it, and leave those in which nothing refers to them any more.
"""

from __future__ import annotations

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_regions import make_room
from nearcast.compiled.token_table import LOW32, SIZE, START, Tables
from nearcast.indexes.rtree.nodes import CONTENT, RTree, bit, slot_of
from nearcast.indexes.rtree.token_sets import add_bit, remove_bit
from nearcast.indexes.rtree.token_tree import FILES, FIRST


@kernel
def add_tokens(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, clause: Number
) -> Number:
    """Add the tokens of a clause to all nodes above it.

    Return the slots that were missing in the pool; then nothing was added but room.
    """
    leaf = np.int64(tree.leaf_of[clause])
    last = np.int64(1) if kind == FIRST else length_of(ordered, clause)
    lowest = leaf if kind == FILES else np.int64(tree.parent[leaf])
    node = lowest
    while node >= 0:
        missing = make_room(tables, node, last)
        if missing > 0:
            return missing
        node = np.int64(tree.parent[node])
    for i in range(last):
        token = token_at(ordered, clause, i)
        if kind == FILES:
            add_bit(tables, leaf, token, bit(slot_of(tree, leaf, clause)))
        child, node = leaf, np.int64(tree.parent[leaf])
        while node >= 0:
            known = add_bit(tables, node, token, bit(tree.place[child])) < 0
            # What a node knew before, those above it know; one made anew may know more than they.
            if known and tree.mark[node] == 0:
                break
            child, node = node, np.int64(tree.parent[node])
    return np.int64(0)


@kernel
def changed_slots(tree: RTree, node: Number) -> Number:
    """Return the slots of an inner node whose children have other content than before, or left."""
    slots, left = ~tree.used[node], tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if (tree.mark[tree.entry[node, slot]] & CONTENT) != 0:
            slots |= bit(slot)
    return slots


@kernel
def put_leaf(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, node: Number, slot: Number
) -> Number:
    """Add a leaf's token set to its parent's; return the slots that were missing in the pool."""
    leaf = tree.entry[node, slot]
    left = tree.used[leaf]
    while left != np.uint64(0):
        clause = tree.entry[leaf, lowest_bit(left)]
        left &= left - np.uint64(1)
        for i in range(1 if kind == FIRST else length_of(ordered, clause)):
            missing = add_bit(tables, node, token_at(ordered, clause, i), bit(slot))
            if missing > 0:
                return missing
    return np.int64(0)


@kernel
def put_table(tree: RTree, tables: Tables, node: Number, slot: Number) -> Number:
    """Add a child's table to its parent's; return the slots that were missing in the pool."""
    child = tree.entry[node, slot]
    start, size = tables.table[child, START], tables.table[child, SIZE]
    for at in range(start, start + size):
        token = tables.slot[at, 0] & LOW32
        if token != np.uint64(0):
            missing = add_bit(tables, node, np.int64(token - np.uint64(1)), bit(slot))
            if missing > 0:
                return missing
    return np.int64(0)


@kernel
def clear_slots(tables: Tables, node: Number, slots: Number) -> None:
    """Take entries from all tokens of a node, which may be left with none."""
    start, size = tables.table[node, START], tables.table[node, SIZE]
    for at in range(start, start + size):
        tables.slot[at, 1] &= ~slots


@kernel
def refresh_set(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, node: Number
) -> Number:
    """Bring the table of a node up to date whose children, not all of them, were changed.

    All tokens of the changed children before are tokens of one of them now. Return the slots that
    were missing in the pool; to do it once more does no harm.
    """
    slots = changed_slots(tree, node)
    clear_slots(tables, node, slots)
    left = slots & tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if tree.level[node] == 1 and kind != FILES:
            missing = put_leaf(tree, tables, ordered, kind, node, slot)
        else:
            missing = put_table(tree, tables, node, slot)
        if missing > 0:
            return missing
    return np.int64(0)


@kernel
def leaf_has(tree: RTree, ordered: Ordered, kind: Number, leaf: Number, token: Number) -> Number:
    """Tell whether a clause of a leaf still refers to a token."""
    left = tree.used[leaf]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if tree.key[leaf, slot] == token:
            return True
        if kind != FIRST:
            clause = tree.entry[leaf, slot]
            for i in range(1, length_of(ordered, clause)):
                if token_at(ordered, clause, i) == token:
                    return True
    return False


@kernel
def remove_tokens(
    tree: RTree,
    tables: Tables,
    ordered: Ordered,
    kind: Number,
    clause: Number,
    place: tuple[Number, Number],
) -> None:
    """Take the tokens of a clause, erased from a place (leaf, slot), from all nodes above."""
    leaf = np.int64(place[0])
    last = np.int64(1) if kind == FIRST else length_of(ordered, clause)
    for i in range(last):
        token = token_at(ordered, clause, i)
        if kind == FILES:
            gone = remove_bit(tables, leaf, token, bit(place[1]))
        else:
            gone = not leaf_has(tree, ordered, kind, leaf, token)
        child, node = leaf, np.int64(tree.parent[leaf])
        while gone and node >= 0:
            gone = remove_bit(tables, node, token, bit(tree.place[child]))
            child, node = node, np.int64(tree.parent[node])
