"""What the nodes of a ranked ``rt++-tree`` know: lists by token, and how far away they matter.

The signature of a subscription (`ranked_keys`) is spread over the path to its leaf: its i-th token
is in a list of the ancestor at depth ``i`` (the children of the root have depth 1), the rest and
the dummy in the inverted file of the leaf. A posting has the clause, the limit of the token and the
place, so a message reads a list in one go. Tokens that are enough anywhere are in lists *of the
whole index*, if the option says so: where space does not matter, no node knows it better.

Every slot has the largest limit of what is kept below it. Limits only grow when subscriptions come
and go; a node that is rebuilt gets its true limit again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.clauses import Ordered
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit
from nearcast.compiled.token_lists import (
    ONE,
    list_capacity,
    list_count,
    list_start,
    place_list,
)
from nearcast.compiled.token_table import (
    COUNT,
    LOW32,
    NO_TOKEN,
    SIZE,
    START,
    Tables,
    claim_slot,
    drop_table,
    find_slot,
    new_region,
    region_size,
    remove_slot,
    reserve_tokens,
)
from nearcast.indexes.rtree.balance import delete_item
from nearcast.indexes.rtree.nodes import CONTENT_CHANGED, RTree, bit, depth_of, slot_of
from nearcast.indexes.rtree.ranked_space import ANYWHERE, NOWHERE
from nearcast.indexes.rtree.tokens import (
    GatherScratch,
    clear_scratch,
    first_leaf_token,
    gather_clause,
    has_space,
    next_leaf,
    store_gathered,
)
from nearcast.indexes.rtree.update import Shortage, add_bit, remove_bit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.rtree.ranked_keys import Keys


class ListPool(NamedTuple):
    """The pool of the postings of all lists.

    - ``clause`` int32[m]; in lists of the whole index inverted (``~clause``) at its first token.
    - ``limit`` float32[m]: how far away the posting matters, see `ranked_space`.
    - ``place`` int32[m, 2 or 4]: the place, or the box; nothing in lists of the whole index.
    - ``top`` int64[1]: the end of the used part.
    """

    clause: NDArray[np.int32]
    limit: NDArray[np.float32]
    place: NDArray[np.int32]
    top: NDArray[np.int64]


class ListArrays(NamedTuple):
    """A tree with token lists.

    ``far_tables`` and ``far_lists`` are the lists of the whole index; ``far`` int64[2] tells
    whether there are any, and whether every clause is a row. ``limit`` float32[nodes, most] and
    ``node_limit`` float32[nodes]: the largest limit of what is kept below a slot, and in a node.
    ``row`` and ``box`` are those of clauses.
    """

    tree: RTree
    tables: Tables
    lists: ListPool
    far_tables: Tables
    far_lists: ListPool
    far: NDArray[np.int64]
    keys: Keys
    limit: NDArray[np.float32]
    node_limit: NDArray[np.float32]
    row: NDArray[np.int32]
    box: NDArray[np.int32]


def make_list_pool(postings: int, sides: int) -> ListPool:
    """Return a pool without lists; untouched memory costs nothing."""
    return ListPool(
        np.empty(postings, np.int32),
        np.empty(postings, np.float32),
        np.empty((postings, sides), np.int32),
        np.zeros(1, np.int64),
    )


def grow_lists(tables: Tables, level: NDArray[np.int32], lists: ListPool, more: int) -> ListPool:
    """Return lists in a pool with space for ``more`` postings; unused parts are dropped."""
    used = int(lists.top[0])
    larger = make_list_pool(more + used + used // 2, lists.place.shape[1])
    move_lists(tables, level, lists, larger)
    return larger


# The signature of a clause, spread over nodes.


@inlined_kernel
def far_keys(index: ListArrays, clause: Number) -> Number:
    """Return the number of keys of a clause that are in lists of the whole index."""
    keys, count = index.keys, np.int64(0)
    if index.far[0] != 0:
        at, end = keys.start[clause], keys.start[clause + 1]
        while at < end and keys.limit[at] == ANYWHERE:
            at += 1
            count += 1
    return count


@inlined_kernel
def token_keys(keys: Keys, clause: Number) -> Number:
    """Return the number of keys of a clause without the dummy."""
    count = keys.start[clause + 1] - keys.start[clause]
    return count - np.int64(keys.token[keys.start[clause + 1] - 1] == NO_TOKEN)


@inlined_kernel
def first_kept(index: ListArrays, clause: Number, depth: Number) -> Number:
    """Return the first key of a clause that a node at this depth, or a node below it, keeps."""
    above = min(first_leaf_token(depth), token_keys(index.keys, clause))
    return max(above, far_keys(index, clause))


@kernel
def kept_limit(index: ListArrays, clause: Number, depth: Number) -> Number:
    """Return the limit of what a node at this depth and the nodes below it keep of a clause."""
    at = index.keys.start[clause] + first_kept(index, clause, depth)
    return index.keys.limit[at] if at < index.keys.start[clause + 1] else NOWHERE


@kernel
def listed_key(index: ListArrays, clause: Number, depth: Number) -> Number:
    """Return the position of the key that stands in a list of an inner node, or -1."""
    if depth < 1 or depth > token_keys(index.keys, clause) or depth <= far_keys(index, clause):
        return np.int64(-1)
    return index.keys.start[clause] + depth - 1


# Lists: of a node, or of the whole index.


@kernel
def write_posting(
    tables: Tables, lists: ListPool, at: Number, code: Number, limit: Number, box: NDArray[np.int32]
) -> None:
    """Append a posting to the list of a slot, which has space for it."""
    end = list_start(tables, at) + list_count(tables, at)
    lists.clause[end], lists.limit[end] = code, limit
    for side in range(lists.place.shape[1]):
        lists.place[end, side] = box[side]
    tables.slot[at, 0] += ONE


@kernel
def copy_postings(
    lists: ListPool, start: Number, count: Number, other: ListPool, end: Number
) -> None:
    """Copy postings within a pool, or to another one."""
    for i in range(count):
        other.clause[end + i], other.limit[end + i] = (
            lists.clause[start + i],
            lists.limit[start + i],
        )
        for side in range(lists.place.shape[1]):
            other.place[end + i, side] = lists.place[start + i, side]


@kernel
def move_lists(tables: Tables, level: NDArray[np.int32], lists: ListPool, other: ListPool) -> None:
    """Copy the lists of all inner nodes, one after the other, into another pool."""
    end = np.int64(0)
    for owner in range(len(tables.table)):
        if level[owner] <= 0:
            continue
        start, size = tables.table[owner, START], tables.table[owner, SIZE]
        for at in range(start, start + size):
            if (tables.slot[at, 0] & LOW32) != np.uint64(0):
                capacity = list_capacity(tables, at)
                copy_postings(lists, list_start(tables, at), list_count(tables, at), other, end)
                place_list(tables, at, end, capacity)
                end += capacity
    other.top[0] = end


@kernel
def reserve_posting(
    tables: Tables, lists: ListPool, owner: Number, token: Number
) -> tuple[Number, Number]:
    """Make space for one more posting of a token; return the slots and postings missing."""
    none = np.int64(0)
    at = find_slot(tables, owner, token)
    if at < 0:
        slots = reserve_tokens(tables, owner, np.int64(1))
        if slots > 0:
            return slots, none
        if lists.top[0] + 2 > len(lists.clause):
            return none, np.int64(2)
        at = claim_slot(tables, owner, token)
        place_list(tables, at, lists.top[0], np.int64(2))
        lists.top[0] += 2
        return none, none
    count = list_count(tables, at)
    if count < list_capacity(tables, at):
        return none, none
    if lists.top[0] + 2 * count > len(lists.clause):
        return none, np.int64(2 * count)
    end = lists.top[0]
    copy_postings(lists, list_start(tables, at), count, lists, end)
    place_list(tables, at, end, 2 * count)
    lists.top[0] = end + 2 * count
    return none, none


@kernel
def remove_posting(
    tables: Tables, lists: ListPool, owner: Number, token: Number, code: Number
) -> None:
    """Remove a posting from a list; the last one of the list takes its place."""
    at = find_slot(tables, owner, token)
    if at < 0:
        return
    start, count = list_start(tables, at), list_count(tables, at)
    for i in range(start, start + count):
        if lists.clause[i] == code:
            copy_postings(lists, start + count - 1, np.int64(1), lists, i)
            tables.slot[at, 0] -= ONE
            if count == 1:
                remove_slot(tables, owner, at)
            return


@kernel
def place_counted(tables: Tables, lists: ListPool, owner: Number, scratch: GatherScratch) -> None:
    """Give an owner a table and empty lists for the tokens that were counted in scratch."""
    counted = scratch.tables
    new_region(tables, owner, region_size(counted.table[0, COUNT]))
    for at in range(counted.table[0, SIZE]):
        token = counted.slot[at, 0]
        if token != np.uint64(0):
            new = claim_slot(tables, owner, token - np.uint64(1))
            place_list(tables, new, lists.top[0], counted.slot[at, 1])
            lists.top[0] += np.int64(counted.slot[at, 1])


@kernel
def missing_space(
    tables: Tables, lists: ListPool, scratch: GatherScratch, postings: Number
) -> tuple[Number, Number]:
    """Return the slots and the postings that pools lack for the tokens counted in scratch."""
    size = region_size(scratch.tables.table[0, COUNT])
    if tables.top[0] + size > len(tables.slot):
        return np.int64(size), np.int64(0)
    if lists.top[0] + postings > len(lists.clause):
        return np.int64(0), np.int64(postings)
    return np.int64(0), np.int64(0)


# Building.


@kernel
def rebuild_far(index: ListArrays, scratch: GatherScratch) -> Shortage:
    """Build the lists of the whole index; ``reached`` is 1 at the end."""
    index = borrow(index)
    tables, lists, keys, none = index.far_tables, index.far_lists, index.keys, np.int64(0)
    clear_scratch(scratch, np.int64(len(keys.token)))
    postings = np.int64(0)
    for clause in range(len(index.row)):
        far = far_keys(index, clause) if index.tree.leaf_of[clause] >= 0 else none
        if not has_space(scratch, far):
            return Shortage(none, none, np.int64(2 * len(scratch.tables.slot)), none)
        for i in range(far):
            at = claim_slot(scratch.tables, 0, np.int64(keys.token[keys.start[clause] + i]))
            scratch.tables.slot[at, 1] += np.uint64(1)
        postings += far
    drop_table(tables, 0)
    slots, more = missing_space(tables, lists, scratch, postings)
    if slots > 0 or more > 0:
        return Shortage(none, slots, none, more)
    place_counted(tables, lists, np.int64(0), scratch)
    for clause in range(len(index.row)):
        far = far_keys(index, clause) if index.tree.leaf_of[clause] >= 0 else none
        for i in range(far):
            at = find_slot(tables, 0, np.int64(keys.token[keys.start[clause] + i]))
            code = ~np.int64(clause) if i == 0 else np.int64(clause)
            write_posting(tables, lists, at, code, ANYWHERE, index.box[clause])
    return Shortage(np.int64(1), none, none, none)


@kernel
def rebuild_list_nodes(
    index: ListArrays, nodes: NDArray[np.int64], first: Number, scratch: GatherScratch
) -> Shortage:
    """Rebuild what nodes know (children before parents), from the ``first`` of them on.

    A node that only gained or lost children gets new limits for its slots.
    """
    index = borrow(index)
    tree, none = index.tree, np.int64(0)
    for i in range(first, len(nodes)):
        node = nodes[i]
        if tree.level[node] == 0:
            slots, scratch_slots = rebuild_leaf(index, node, scratch)
            more = none
        else:
            slots, scratch_slots, more = none, none, none
            most = refresh_limits(index, node)
            if (tree.mark[node] & CONTENT_CHANGED) != 0:
                index.node_limit[node] = most
                slots, scratch_slots, more = rebuild_lists(index, node, scratch)
        if slots > 0 or scratch_slots > 0 or more > 0:
            return Shortage(np.int64(i), slots, scratch_slots, more)
    return Shortage(np.int64(len(nodes)), none, none, none)


@kernel
def refresh_limits(index: ListArrays, node: Number) -> Number:
    """Write the limits of the slots of an inner node; return the largest."""
    tree, most = index.tree, NOWHERE
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        limit = index.node_limit[tree.entry[node, slot]]
        index.limit[node, slot] = limit
        most = max(most, limit)
    return most


@kernel
def rebuild_leaf(index: ListArrays, leaf: Number, scratch: GatherScratch) -> tuple[Number, Number]:
    """Build the file of a leaf and the limits of its slots.

    Return the slots that the pool lacks, and the slots that the scratch should have.
    """
    tree, keys = index.tree, index.keys
    ordered, depth = Ordered(keys.start, keys.token, index.box), depth_of(tree, leaf)
    total, left = np.int64(0), tree.used[leaf]
    while left != np.uint64(0):
        clause = tree.entry[leaf, lowest_bit(left)]
        left &= left - np.uint64(1)
        total += keys.start[clause + 1] - keys.start[clause]
    clear_scratch(scratch, total)
    if not has_space(scratch, total):
        return np.int64(0), region_size(total)
    index.node_limit[leaf] = NOWHERE
    left = tree.used[leaf]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        clause = tree.entry[leaf, slot]
        first, last = first_kept(index, clause, depth), keys.start[clause + 1] - keys.start[clause]
        gather_clause(ordered, clause, first, last, bit(slot), scratch)
        limit = kept_limit(index, clause, depth)
        index.limit[leaf, slot] = limit
        index.node_limit[leaf] = max(index.node_limit[leaf], limit)
    return store_gathered(index.tables, leaf, scratch), np.int64(0)


@kernel
def rebuild_lists(
    index: ListArrays, node: Number, scratch: GatherScratch
) -> tuple[Number, Number, Number]:
    """Build the token lists of an inner node, and raise its limit to theirs.

    Return the slots that the pool lacks, the slots that the scratch should have, and the postings
    that the pool lacks.
    """
    tree, tables, lists, keys = index.tree, index.tables, index.lists, index.keys
    depth, none = depth_of(tree, node), np.int64(0)
    drop_table(tables, node)
    if depth == 0:
        return none, none, none
    # A node of level l has at most most ** (l + 1) clauses below it.
    below = np.int64(tree.entry.shape[1])
    for _ in range(tree.level[node]):
        below = min(below * tree.entry.shape[1], np.int64(len(index.row)))
    clear_scratch(scratch, below + tree.entry.shape[1])
    postings = np.int64(0)
    scratch.stack[0] = node
    leaf, top = next_leaf(tree, scratch.stack, np.int64(1))
    while leaf >= 0:
        if not has_space(scratch, np.int64(tree.entry.shape[1])):
            return none, np.int64(2 * len(scratch.tables.slot)), none
        left = tree.used[leaf]
        while left != np.uint64(0):
            key = listed_key(index, tree.entry[leaf, lowest_bit(left)], depth)
            left &= left - np.uint64(1)
            if key >= 0:
                at = claim_slot(scratch.tables, 0, np.int64(keys.token[key]))
                scratch.tables.slot[at, 1] += np.uint64(1)
                postings += 1
        leaf, top = next_leaf(tree, scratch.stack, top)
    if postings == 0:
        return none, none, none
    slots, more = missing_space(tables, lists, scratch, postings)
    if slots > 0 or more > 0:
        return slots, none, more
    place_counted(tables, lists, node, scratch)
    scratch.stack[0] = node
    leaf, top = next_leaf(tree, scratch.stack, np.int64(1))
    while leaf >= 0:
        left = tree.used[leaf]
        while left != np.uint64(0):
            add_to_list(index, node, tree.entry[leaf, lowest_bit(left)], depth)
            left &= left - np.uint64(1)
        leaf, top = next_leaf(tree, scratch.stack, top)
    return none, none, none


@kernel
def add_to_list(index: ListArrays, node: Number, clause: Number, depth: Number) -> None:
    """Append a clause to its list in a node, if it stands in any, and raise the node's limit."""
    key = listed_key(index, clause, depth)
    if key >= 0:
        limit = index.keys.limit[key]
        at = find_slot(index.tables, node, np.int64(index.keys.token[key]))
        write_posting(index.tables, index.lists, at, np.int64(clause), limit, index.box[clause])
        index.node_limit[node] = max(index.node_limit[node], limit)


# Changing.


@kernel
def add_far(index: ListArrays, first: Number, last: Number) -> Shortage:
    """Add clauses to the lists of the whole index."""
    index = borrow(index)
    tables, lists, keys, none = index.far_tables, index.far_lists, index.keys, np.int64(0)
    for clause in range(first, last):
        far = far_keys(index, clause)
        for reserved in (False, True):
            for i in range(far):
                token = np.int64(keys.token[keys.start[clause] + i])
                if not reserved:
                    slots, more = reserve_posting(tables, lists, np.int64(0), token)
                    if slots > 0 or more > 0:
                        return Shortage(np.int64(clause), slots, none, more)
                else:
                    at = find_slot(tables, 0, token)
                    code = ~np.int64(clause) if i == 0 else np.int64(clause)
                    write_posting(tables, lists, at, code, ANYWHERE, index.box[clause])
    return Shortage(np.int64(last), none, none, none)


@kernel
def add_to_nodes(index: ListArrays, first: Number, last: Number) -> Shortage:
    """Add clauses, which are in the tree, to the files and lists of the nodes above them."""
    index = borrow(index)
    none = np.int64(0)
    for clause in range(first, last):
        slots, more = add_clause(index, clause)
        if slots > 0 or more > 0:
            return Shortage(np.int64(clause), slots, none, more)
    return Shortage(np.int64(last), none, none, none)


@kernel
def add_clause(index: ListArrays, clause: Number) -> tuple[Number, Number]:
    """Add a clause to the file of its leaf and to the lists of the nodes above.

    Nodes with changed content were rebuilt with the clause: only limits above them may be too
    small. Return the slots and the postings that the pools lack; the call can be repeated then,
    since nothing was appended to a list.
    """
    tree, tables, lists, keys = index.tree, index.tables, index.lists, index.keys
    leaf = np.int64(tree.leaf_of[clause])
    leaf_depth = depth_of(tree, leaf)
    for reserved in (False, True):
        node, depth = np.int64(tree.parent[leaf]), leaf_depth - 1
        while depth >= 1:
            key = listed_key(index, clause, depth)
            if key >= 0 and (tree.mark[node] & CONTENT_CHANGED) == 0:
                if reserved:
                    add_to_list(index, node, clause, depth)
                else:
                    token = np.int64(keys.token[key])
                    slots, more = reserve_posting(tables, lists, node, token)
                    if slots > 0 or more > 0:
                        return slots, more
            node, depth = np.int64(tree.parent[node]), depth - 1
        if not reserved:
            slot = slot_of(tree, leaf, clause)
            for at in range(
                keys.start[clause] + first_kept(index, clause, leaf_depth), keys.start[clause + 1]
            ):
                slots = add_bit(tables, leaf, np.int64(keys.token[at]), bit(slot))
                if slots > 0:
                    return slots, np.int64(0)
            index.limit[leaf, slot] = kept_limit(index, clause, leaf_depth)
    raise_limits(index, clause, leaf, leaf_depth)
    return np.int64(0), np.int64(0)


@kernel
def raise_limits(index: ListArrays, clause: Number, node: Number, depth: Number) -> None:
    """Raise the limits of a leaf and of the slots above it to that of a clause."""
    tree = index.tree
    while node >= 0:
        limit = max(index.node_limit[node], kept_limit(index, clause, depth))
        index.node_limit[node] = limit
        parent = np.int64(tree.parent[node])
        if parent >= 0:
            index.limit[parent, tree.place[node]] = max(
                index.limit[parent, tree.place[node]], limit
            )
        node, depth = parent, depth - 1


@kernel
def delete_from_lists(
    index: ListArrays, clauses: NDArray[np.int64], leaf_of: NDArray[np.int64]
) -> None:
    """Remove clauses from the tree, its lists and files; write the leaf of each."""
    index = borrow(index)
    tree, tables, lists, keys = index.tree, index.tables, index.lists, index.keys
    for i in range(len(clauses)):
        clause = clauses[i]
        leaf, slot = delete_item(tree, clause)
        leaf_of[i] = leaf
        depth = depth_of(tree, leaf)
        begin = keys.start[clause]
        for at in range(begin + first_kept(index, clause, depth), keys.start[clause + 1]):
            remove_bit(tables, leaf, np.int64(keys.token[at]), bit(slot))
        node, depth = np.int64(tree.parent[leaf]), depth - 1
        while depth >= 1:
            key = listed_key(index, clause, depth)
            if key >= 0:
                remove_posting(tables, lists, node, np.int64(keys.token[key]), clause)
            node, depth = np.int64(tree.parent[node]), depth - 1
        for k in range(far_keys(index, clause)):
            code = ~np.int64(clause) if k == 0 else np.int64(clause)
            token = np.int64(keys.token[begin + k])
            remove_posting(index.far_tables, index.far_lists, np.int64(0), token, code)
