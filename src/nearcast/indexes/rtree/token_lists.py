"""The token lists of an R-tree's inner nodes: made anew, added to, taken from.

Li et al., KDD 2013, section 5: a clause stands once in every level, in the list of its ``d``-th
token in the node at depth ``d`` above it; its leaf keeps the rest. The children of the root are at
depth 1 (the root itself has no lists). A posting is the number of a clause, inverted where that
token is its last one.

The slot of a token has the number of its clauses in the upper half of its first word; its second
word is where the list begins and, in the lowest 28 bits, how many clauses have room there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_regions import (
    ONE,
    list_count,
    list_room,
    list_start,
    make_room,
    place_list,
)
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
from nearcast.indexes.rtree.nodes import CONTENT, RTree, bit, slot_of
from nearcast.indexes.rtree.token_sets import add_bit, empty_room, remove_bit, room_left
from nearcast.indexes.rtree.token_tree import Postings, Room, depth_of, first_in_leaf

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def posting_of(ordered: Ordered, clause: Number, depth: Number) -> Number:
    """Return how a clause stands in the lists at a depth."""
    return ~np.int64(clause) if length_of(ordered, clause) == depth else np.int64(clause)


@kernel
def next_leaf(tree: RTree, stack: NDArray[np.int64], top: Number) -> tuple[Number, Number]:
    """Go down to the next leaf below what is on the stack; return it, or -1, and the new top."""
    while top > 0:
        top -= 1
        node = stack[top]
        if tree.level[node] == 0:
            return node, top
        left = tree.used[node]
        while left != np.uint64(0):
            stack[top] = tree.entry[node, lowest_bit(left)]
            top += 1
            left &= left - np.uint64(1)
    return np.int64(-1), np.int64(0)


@kernel
def count_postings(
    tree: RTree, ordered: Ordered, node: Number, room: Room
) -> tuple[Number, Number]:
    """Count, in the room, the clauses below a node by the token of its depth.

    Return how many there are, and whether there was room.
    """
    depth, total = depth_of(tree, node), np.int64(0)
    room.stack[0] = node
    leaf, top = next_leaf(tree, room.stack, np.int64(1))
    while leaf >= 0:
        if not room_left(room, tree.entry.shape[1]):
            return total, False
        left = tree.used[leaf]
        while left != np.uint64(0):
            clause = tree.entry[leaf, lowest_bit(left)]
            left &= left - np.uint64(1)
            if length_of(ordered, clause) >= depth:
                at = claim_slot(room.tables, 0, token_at(ordered, clause, depth - 1))
                room.tables.slot[at, 1] += np.uint64(1)
                total += 1
        leaf, top = next_leaf(tree, room.stack, top)
    return total, True


@kernel
def write_postings(
    tree: RTree, tables: Tables, postings: Postings, ordered: Ordered, node: Number, room: Room
) -> None:
    """Write the clauses below a node into its lists, which have a place each."""
    depth = depth_of(tree, node)
    room.stack[0] = node
    leaf, top = next_leaf(tree, room.stack, np.int64(1))
    while leaf >= 0:
        left = tree.used[leaf]
        while left != np.uint64(0):
            clause = tree.entry[leaf, lowest_bit(left)]
            left &= left - np.uint64(1)
            if length_of(ordered, clause) >= depth:
                at = find_slot(tables, node, token_at(ordered, clause, depth - 1))
                end = list_start(tables, at) + list_count(tables, at)
                postings.posting[end] = posting_of(ordered, clause, depth)
                tables.slot[at, 0] += ONE
        leaf, top = next_leaf(tree, room.stack, top)


@kernel
def renew_lists(
    tree: RTree, tables: Tables, postings: Postings, ordered: Ordered, node: Number, room: Room
) -> tuple[Number, Number, Number]:
    """Make the lists of an inner node anew.

    Return the slots missing in the pool and in the room, and the postings missing.
    """
    # A node of level l has at most most ** (l + 1) clauses below it.
    below = np.int64(tree.entry.shape[1])
    for _ in range(tree.level[node]):
        below = min(below * tree.entry.shape[1], np.int64(len(ordered.start)))
    empty_room(room, below + tree.entry.shape[1])
    total, fits = count_postings(tree, ordered, node, room)
    if not fits:
        return np.int64(0), np.int64(2 * len(room.tables.slot)), np.int64(0)
    drop_table(tables, node)
    count = room.tables.table[0, COUNT]
    size = region_size(count)
    if tables.top[0] + size > len(tables.slot):
        return np.int64(size), np.int64(0), np.int64(0)
    if postings.top[0] + total > len(postings.posting):
        return np.int64(0), np.int64(0), np.int64(total)
    if count == 0:
        return np.int64(0), np.int64(0), np.int64(0)
    new_region(tables, node, size)
    for at in range(room.tables.table[0, SIZE]):
        token = room.tables.slot[at, 0]
        if token != np.uint64(0):
            new = claim_slot(tables, node, token - np.uint64(1))
            place_list(tables, new, postings.top[0], room.tables.slot[at, 1])
            postings.top[0] += np.int64(room.tables.slot[at, 1])
    write_postings(tree, tables, postings, ordered, node, room)
    return np.int64(0), np.int64(0), np.int64(0)


@kernel
def room_for_posting(
    tables: Tables, postings: Postings, node: Number, token: Number
) -> tuple[Number, Number]:
    """Make room for one more clause of a token; return the slots and the postings missing."""
    at = find_slot(tables, node, token)
    if at < 0:
        slots = make_room(tables, node, np.int64(1))
        if slots > 0:
            return slots, np.int64(0)
        if postings.top[0] + 2 > len(postings.posting):
            return np.int64(0), np.int64(2)
        at = claim_slot(tables, node, token)
        place_list(tables, at, postings.top[0], np.int64(2))
        postings.top[0] += 2
        return np.int64(0), np.int64(0)
    count = list_count(tables, at)
    if count < list_room(tables, at):
        return np.int64(0), np.int64(0)
    if postings.top[0] + 2 * count > len(postings.posting):
        return np.int64(0), np.int64(2 * count)
    start, end = list_start(tables, at), postings.top[0]
    for i in range(count):
        postings.posting[end + i] = postings.posting[start + i]
    place_list(tables, at, end, 2 * count)
    postings.top[0] = end + 2 * count
    return np.int64(0), np.int64(0)


@kernel
def add_postings(
    tree: RTree, tables: Tables, postings: Postings, ordered: Ordered, clause: Number
) -> tuple[Number, Number]:
    """Add a clause to its leaf's file and to the lists of the nodes above that are up to date.

    Return the slots and the postings that were missing; then nothing was added but room. Nodes
    whose content is marked have been made anew since the clause came.
    """
    leaf, length = np.int64(tree.leaf_of[clause]), length_of(ordered, clause)
    for last in (False, True):
        node, depth = np.int64(tree.parent[leaf]), depth_of(tree, leaf) - 1
        while depth >= 1:
            if depth <= length and (tree.mark[node] & CONTENT) == 0:
                token = token_at(ordered, clause, depth - 1)
                if last:
                    at = find_slot(tables, node, token)
                    end = list_start(tables, at) + list_count(tables, at)
                    postings.posting[end] = posting_of(ordered, clause, depth)
                    tables.slot[at, 0] += ONE
                else:
                    slots, more = room_for_posting(tables, postings, node, token)
                    if slots > 0 or more > 0:
                        return slots, more
            node, depth = np.int64(tree.parent[node]), depth - 1
        if not last:
            word = bit(slot_of(tree, leaf, clause))
            for i in range(first_in_leaf(depth_of(tree, leaf)), length):
                slots = add_bit(tables, leaf, token_at(ordered, clause, i), word)
                if slots > 0:
                    return slots, np.int64(0)
    return np.int64(0), np.int64(0)


@kernel
def remove_posting(
    tables: Tables, postings: Postings, node: Number, token: Number, posting: Number
) -> None:
    """Take a clause out of a list; the last one takes its place."""
    at = find_slot(tables, node, token)
    start, count = list_start(tables, at), list_count(tables, at)
    i = start
    while postings.posting[i] != posting:
        i += 1
    postings.posting[i] = postings.posting[start + count - 1]
    tables.slot[at, 0] -= ONE
    if count == 1:
        remove_slot(tables, node, at)


@kernel
def remove_postings(
    tree: RTree,
    tables: Tables,
    postings: Postings,
    ordered: Ordered,
    clause: Number,
    place: tuple[Number, Number],
) -> None:
    """Take a clause that was erased from a place (leaf, slot) out of all lists above it."""
    leaf, length = np.int64(place[0]), length_of(ordered, clause)
    depth = depth_of(tree, leaf)
    for i in range(first_in_leaf(depth), length):
        remove_bit(tables, leaf, token_at(ordered, clause, i), bit(place[1]))
    node, depth = np.int64(tree.parent[leaf]), depth - 1
    while depth >= 1:
        if depth <= length:
            posting = posting_of(ordered, clause, depth)
            remove_posting(tables, postings, node, token_at(ordered, clause, depth - 1), posting)
        node, depth = np.int64(tree.parent[node]), depth - 1


@kernel
def move_postings(
    tree: RTree, tables: Tables, postings: Postings, posting: NDArray[np.int32]
) -> None:
    """Copy all lists, one behind the other, into another pool."""
    end = np.int64(0)
    for node in range(len(tables.table)):
        if tree.level[node] <= 0:
            continue
        start, size = tables.table[node, START], tables.table[node, SIZE]
        for at in range(start, start + size):
            if (tables.slot[at, 0] & LOW32) != np.uint64(0):
                first, room = list_start(tables, at), list_room(tables, at)
                for i in range(list_count(tables, at)):
                    posting[end + i] = postings.posting[first + i]
                place_list(tables, at, end, room)
                end += room
    postings.top[0] = end
