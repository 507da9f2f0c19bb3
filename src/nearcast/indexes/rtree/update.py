"""Keep what nodes know about tokens up to date while the tree changes.

Clauses are inserted into the tree first (`balance`). Then marked nodes are rebuilt, children before
parents; a node that only gained or lost children is refreshed; and the tokens of the new clauses
are added to all other nodes above them. A deleted clause leaves its nodes at once, and nodes that
are merged because of it are rebuilt afterwards. When the root of a tree with token lists changes,
all depths change, so all lists are rebuilt.

Yu et al., TKDE 2014, section 3.1: tokens of a clause are added to the sets of all nodes above it,
and leave those in which nothing refers to them anymore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.clauses import Ordered, length_of, token_at
from nearcast.compiled.jit import Number, borrow, kernel, lowest_bit
from nearcast.compiled.token_lists import (
    ONE,
    list_capacity,
    list_count,
    list_start,
    place_list,
)
from nearcast.compiled.token_table import (
    LOW32,
    SIZE,
    START,
    Tables,
    claim_slot,
    find_slot,
    remove_slot,
    reserve_tokens,
)
from nearcast.indexes.rtree.balance import delete_item
from nearcast.indexes.rtree.nodes import (
    CONTENT_CHANGED,
    ENTRIES_CHANGED,
    RTree,
    bit,
    depth_of,
    slot_of,
)
from nearcast.indexes.rtree.tokens import (
    FIRST_TOKENS,
    INVERTED_FILES,
    NO_TOKENS,
    TOKEN_LISTS,
    GatherScratch,
    IndexArrays,
    Postings,
    append_posting,
    first_leaf_token,
    posting_of,
    rebuild_lists,
    rebuild_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Shortage(NamedTuple):
    """Where a kernel stopped, and what it lacks there.

    ``slots`` and ``postings`` are missing in the pools; ``scratch_slots`` is the size that the
    scratch table should have. All are 0 at the end.
    """

    reached: Number
    slots: Number
    scratch_slots: Number
    postings: Number


@kernel
def rebuild_nodes(
    index: IndexArrays,
    kind: Number,
    nodes: NDArray[np.int64],
    first: Number,
    scratch: GatherScratch,
) -> Shortage:
    """Rebuild what nodes know (children before parents), from the ``first`` of them on.

    A node that only gained or lost children is refreshed.
    """
    index = borrow(index)
    tree, none = index.tree, np.int64(0)
    for i in range(first, len(nodes)):
        node = nodes[i]
        if kind == TOKEN_LISTS and tree.level[node] > 0:
            slots, scratch_slots, more = rebuild_lists(index, node, scratch)
        elif tree.mark[node] == ENTRIES_CHANGED:
            slots, scratch_slots = refresh_table(index, kind, node), none
            more = none
        else:
            slots, scratch_slots = rebuild_table(index, kind, node, scratch)
            more = none
        if slots > 0 or scratch_slots > 0 or more > 0:
            return Shortage(np.int64(i), slots, scratch_slots, more)
    return Shortage(np.int64(len(nodes)), none, none, none)


@kernel
def add_clauses(index: IndexArrays, kind: Number, first: Number, last: Number) -> Shortage:
    """Add the tokens of clauses, which are in the tree, to the nodes above them."""
    index = borrow(index)
    none = np.int64(0)
    for clause in range(first, last):
        if kind == TOKEN_LISTS:
            slots, more = add_postings(index, clause)
        else:
            slots, more = add_tokens(index, kind, clause), none
        if slots > 0 or more > 0:
            return Shortage(np.int64(clause), slots, none, more)
    return Shortage(np.int64(last), none, none, none)


@kernel
def delete_clauses(
    index: IndexArrays, kind: Number, clauses: NDArray[np.int64], leaf: NDArray[np.int64]
) -> None:
    """Remove clauses from the tree and from what its nodes know; write the leaf of each."""
    index = borrow(index)
    for i in range(len(clauses)):
        clause = clauses[i]
        place = delete_item(index.tree, clause)
        leaf[i] = place[0]
        if kind == TOKEN_LISTS:
            remove_postings(index, clause, place)
        elif kind != NO_TOKENS:
            remove_tokens(index, kind, clause, place)


# Token sets and inverted files.


@kernel
def add_bit(tables: Tables, node: Number, token: Number, word: Number) -> Number:
    """Add an entry to a token of a node.

    Return 0 if the entry is new there, -1 if not, or the slots that the pool lacks.
    """
    at = find_slot(tables, node, token)
    if at >= 0:
        known = (tables.slot[at, 1] & word) != np.uint64(0)
        tables.slot[at, 1] |= word
        return np.int64(-1) if known else np.int64(0)
    shortage = reserve_tokens(tables, node, np.int64(1))
    if shortage > 0:
        return shortage
    at = claim_slot(tables, node, token)
    tables.slot[at, 1] = word
    return np.int64(0)


@kernel
def remove_bit(tables: Tables, node: Number, token: Number, word: Number) -> Number:
    """Remove an entry from a token of a node; return whether the token left the node."""
    at = find_slot(tables, node, token)
    if at < 0:
        return False
    tables.slot[at, 1] &= ~word
    if tables.slot[at, 1] != np.uint64(0):
        return False
    remove_slot(tables, node, at)
    return True


@kernel
def add_tokens(index: IndexArrays, kind: Number, clause: Number) -> Number:
    """Add the tokens of a clause to all nodes above it.

    Return the slots that the pool lacks; no token was added then.
    """
    tree, tables, ordered = index.tree, index.tables, index.ordered
    leaf = np.int64(tree.leaf_of[clause])
    last = np.int64(1) if kind == FIRST_TOKENS else length_of(ordered, clause)
    lowest = leaf if kind == INVERTED_FILES else np.int64(tree.parent[leaf])
    node = lowest
    while node >= 0:
        shortage = reserve_tokens(tables, node, last)
        if shortage > 0:
            return shortage
        node = np.int64(tree.parent[node])
    for i in range(last):
        token = token_at(ordered, clause, i)
        if kind == INVERTED_FILES:
            add_bit(tables, leaf, token, bit(slot_of(tree, leaf, clause)))
        child, node = leaf, np.int64(tree.parent[leaf])
        while node >= 0:
            known = add_bit(tables, node, token, bit(tree.place[child])) < 0
            # A token that an unmarked node knew, its ancestors know. A rebuilt node may know more.
            if known and tree.mark[node] == 0:
                break
            child, node = node, np.int64(tree.parent[node])
    return np.int64(0)


@kernel
def changed_slots(tree: RTree, node: Number) -> Number:
    """Return the slots of an inner node that are free or whose children have other content now."""
    slots, left = ~tree.used[node], tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if (tree.mark[tree.entry[node, slot]] & CONTENT_CHANGED) != 0:
            slots |= bit(slot)
    return slots


@kernel
def add_leaf(
    tree: RTree, tables: Tables, ordered: Ordered, kind: Number, node: Number, slot: Number
) -> Number:
    """Add the token set of a leaf to its parent's table; return the slots that the pool lacks."""
    leaf = tree.entry[node, slot]
    left = tree.used[leaf]
    while left != np.uint64(0):
        clause = tree.entry[leaf, lowest_bit(left)]
        left &= left - np.uint64(1)
        for i in range(1 if kind == FIRST_TOKENS else length_of(ordered, clause)):
            shortage = add_bit(tables, node, token_at(ordered, clause, i), bit(slot))
            if shortage > 0:
                return shortage
    return np.int64(0)


@kernel
def add_table(tree: RTree, tables: Tables, node: Number, slot: Number) -> Number:
    """Add the tokens of a child's table to its parent's; return the slots that the pool lacks."""
    child = tree.entry[node, slot]
    start, size = tables.table[child, START], tables.table[child, SIZE]
    for at in range(start, start + size):
        token = tables.slot[at, 0] & LOW32
        if token != np.uint64(0):
            shortage = add_bit(tables, node, np.int64(token - np.uint64(1)), bit(slot))
            if shortage > 0:
                return shortage
    return np.int64(0)


@kernel
def clear_entries(tables: Tables, node: Number, slots: Number) -> None:
    """Remove entries from all tokens of a node; tokens may be left without any."""
    start, size = tables.table[node, START], tables.table[node, SIZE]
    for at in range(start, start + size):
        tables.slot[at, 1] &= ~slots


@kernel
def refresh_table(index: IndexArrays, kind: Number, node: Number) -> Number:
    """Bring the table of an inner node up to date after some of its children changed.

    Every token that the changed children had before, one of them has now, so no token is left
    without entries. Return the slots that the pool lacks; the call can be repeated then.
    """
    tree, tables, ordered = index.tree, index.tables, index.ordered
    slots = changed_slots(tree, node)
    clear_entries(tables, node, slots)
    left = slots & tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if tree.level[node] == 1 and kind != INVERTED_FILES:
            shortage = add_leaf(tree, tables, ordered, kind, node, slot)
        else:
            shortage = add_table(tree, tables, node, slot)
        if shortage > 0:
            return shortage
    return np.int64(0)


@kernel
def leaf_has(tree: RTree, ordered: Ordered, kind: Number, leaf: Number, token: Number) -> Number:
    """Tell whether a clause of a leaf refers to a token."""
    left = tree.used[leaf]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if tree.key[leaf, slot] == token:
            return True
        if kind != FIRST_TOKENS:
            clause = tree.entry[leaf, slot]
            for i in range(1, length_of(ordered, clause)):
                if token_at(ordered, clause, i) == token:
                    return True
    return False


@kernel
def remove_tokens(
    index: IndexArrays, kind: Number, clause: Number, place: tuple[Number, Number]
) -> None:
    """Remove the tokens of a clause, deleted from a place (leaf, slot), from all nodes above."""
    tree, tables, ordered = index.tree, index.tables, index.ordered
    leaf = np.int64(place[0])
    last = np.int64(1) if kind == FIRST_TOKENS else length_of(ordered, clause)
    for i in range(last):
        token = token_at(ordered, clause, i)
        if kind == INVERTED_FILES:
            gone = remove_bit(tables, leaf, token, bit(place[1]))
        else:
            gone = not leaf_has(tree, ordered, kind, leaf, token)
        child, node = leaf, np.int64(tree.parent[leaf])
        while gone and node >= 0:
            gone = remove_bit(tables, node, token, bit(tree.place[child]))
            child, node = node, np.int64(tree.parent[node])


# Token lists.


@kernel
def reserve_posting(
    tables: Tables, postings: Postings, node: Number, token: Number
) -> tuple[Number, Number]:
    """Make space for one more clause of a token; return the slots and postings that are missing."""
    at = find_slot(tables, node, token)
    if at < 0:
        slots = reserve_tokens(tables, node, np.int64(1))
        if slots > 0:
            return slots, np.int64(0)
        if postings.top[0] + 2 > len(postings.posting):
            return np.int64(0), np.int64(2)
        at = claim_slot(tables, node, token)
        place_list(tables, at, postings.top[0], np.int64(2))
        postings.top[0] += 2
        return np.int64(0), np.int64(0)
    count = list_count(tables, at)
    if count < list_capacity(tables, at):
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
def add_postings(index: IndexArrays, clause: Number) -> tuple[Number, Number]:
    """Add a clause to the file of its leaf and to the lists of the nodes above.

    Nodes with changed content were rebuilt with the clause and are skipped. Return the slots and
    the postings that the pools lack; the call can be repeated then, since nothing was appended to a
    list.
    """
    tree, tables, postings, ordered = index
    leaf, length = np.int64(tree.leaf_of[clause]), length_of(ordered, clause)
    for reserved in (False, True):
        node, depth = np.int64(tree.parent[leaf]), depth_of(tree, leaf) - 1
        while depth >= 1:
            if depth <= length and (tree.mark[node] & CONTENT_CHANGED) == 0:
                if reserved:
                    append_posting(index, node, clause, depth)
                else:
                    token = token_at(ordered, clause, depth - 1)
                    slots, more = reserve_posting(tables, postings, node, token)
                    if slots > 0 or more > 0:
                        return slots, more
            node, depth = np.int64(tree.parent[node]), depth - 1
        if not reserved:
            word = bit(slot_of(tree, leaf, clause))
            for i in range(first_leaf_token(depth_of(tree, leaf)), length):
                slots = add_bit(tables, leaf, token_at(ordered, clause, i), word)
                if slots > 0:
                    return slots, np.int64(0)
    return np.int64(0), np.int64(0)


@kernel
def remove_posting(
    tables: Tables, postings: Postings, node: Number, token: Number, posting: Number
) -> None:
    """Remove a clause from a list; the last one of the list takes its place."""
    at = find_slot(tables, node, token)
    if at < 0:
        return
    start, count = list_start(tables, at), list_count(tables, at)
    for i in range(start, start + count):
        if postings.posting[i] == posting:
            postings.posting[i] = postings.posting[start + count - 1]
            tables.slot[at, 0] -= ONE
            if count == 1:
                remove_slot(tables, node, at)
            return


@kernel
def remove_postings(index: IndexArrays, clause: Number, place: tuple[Number, Number]) -> None:
    """Remove a clause, deleted from a place (leaf, slot), from all lists above it."""
    tree, tables, postings, ordered = index
    leaf, length = np.int64(place[0]), length_of(ordered, clause)
    depth = depth_of(tree, leaf)
    for i in range(first_leaf_token(depth), length):
        remove_bit(tables, leaf, token_at(ordered, clause, i), bit(place[1]))
    node, depth = np.int64(tree.parent[leaf]), depth - 1
    while depth >= 1:
        if depth <= length:
            posting = posting_of(ordered, clause, depth)
            remove_posting(tables, postings, node, token_at(ordered, clause, depth - 1), posting)
        node, depth = np.int64(tree.parent[node]), depth - 1
