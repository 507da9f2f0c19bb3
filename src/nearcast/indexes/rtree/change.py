"""Insert into an R-tree and delete from it, one clause at a time.

A clause goes to the leaf whose box grows least (Guttman 1984). A node that has too many entries is
split (`rtree_split`). A node that has too few is united with a neighbour, and split again if
that makes too many. Nodes whose entries or content were changed are marked, so that what is known
of them can be brought up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.indexes.rtree.nodes import (
    CONTENT,
    ENTRIES,
    FREE,
    MOVED,
    ROOT,
    TOP,
    Box,
    RTree,
    bounds,
    clause_box,
    clear_node,
    clear_slot,
    entries_of,
    get_box,
    mark_node,
    put_box,
    put_entry,
    slot_of,
)
from nearcast.indexes.rtree.split import (
    SplitScratch,
    area,
    choose_split,
    collect_entries,
    collect_entry,
    united,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def take_node(tree: RTree, level: Number) -> Number:
    """Return an empty node: a free one, or the next that was never used."""
    node = tree.state[FREE]
    if node >= 0:
        tree.state[FREE] = tree.parent[node]
    else:
        node = tree.state[TOP]
        tree.state[TOP] = node + 1
        tree.mark[node] = 0
    clear_node(tree, node)
    tree.level[node], tree.parent[node] = level, -1
    mark_node(tree, node, ENTRIES | CONTENT)
    return node


@kernel
def free_node(tree: RTree, node: Number) -> None:
    """Give a node back."""
    clear_node(tree, node)
    tree.level[node], tree.parent[node] = -1, tree.state[FREE]
    mark_node(tree, node, ENTRIES | CONTENT)
    tree.state[FREE] = node


@kernel
def free_slot(tree: RTree, node: Number) -> Number:
    """Return a free slot of a node, or -1."""
    free = ~tree.used[node]
    if free == np.uint64(0):
        return np.int64(-1)
    slot = lowest_bit(free)
    return slot if slot < tree.entry.shape[1] else np.int64(-1)


@kernel
def choose_child(tree: RTree, node: Number, box: Box) -> Number:
    """Return the slot whose box grows least, the smallest one of several."""
    chosen, least, smallest = np.int64(-1), np.inf, np.inf
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        there = get_box(tree, node, slot)
        size = area(there)
        growth = area(united(there, box)) - size
        if growth < least or (growth == least and size < smallest):
            chosen, least, smallest = slot, growth, size
    return chosen


@kernel
def fill_node(
    tree: RTree, node: Number, scratch: SplitScratch, first: Number, last: Number
) -> None:
    """Give a node the entries ``first`` to ``last`` of the best order, instead of its own."""
    clear_node(tree, node)
    for i in range(first, last):
        one = scratch.best[i]
        put_entry(tree, node, i - first, scratch.entry[one], scratch.key[one])
        for k in range(4):
            tree.box[node, k, i - first] = scratch.side[k, one]
    mark_node(tree, node, ENTRIES | CONTENT)


@kernel
def grow_root(tree: RTree, node: Number, other: Number) -> None:
    """Put a new root above the old one and its other half."""
    root = take_node(tree, tree.level[node] + 1)
    put_entry(tree, root, 0, node, -1)
    put_box(tree, root, 0, bounds(tree, node))
    put_entry(tree, root, 1, other, -1)
    put_box(tree, root, 1, bounds(tree, other))
    tree.state[ROOT], tree.state[MOVED] = root, 1


@kernel
def place_entry(
    tree: RTree,
    node: Number,
    entry: Number,
    key: Number,
    box: Box,
    least: Number,
    scratch: SplitScratch,
) -> None:
    """Put an entry into a node, splitting it and those above it where they are full."""
    while True:
        slot = free_slot(tree, node)
        if slot >= 0:
            put_entry(tree, node, slot, entry, key)
            put_box(tree, node, slot, box)
            if tree.level[node] > 0:
                mark_node(tree, node, ENTRIES)
            return
        count = collect_entry(scratch, collect_entries(tree, node, scratch, 0), entry, key, box)
        cut = choose_split(scratch, count, least)
        other = take_node(tree, tree.level[node])
        fill_node(tree, node, scratch, 0, cut)
        fill_node(tree, other, scratch, cut, count)
        parent = tree.parent[node]
        if parent < 0:
            grow_root(tree, node, other)
            return
        mark_node(tree, parent, ENTRIES)
        put_box(tree, parent, tree.place[node], bounds(tree, node))
        node, entry, key, box = parent, other, np.int64(-1), bounds(tree, other)


@kernel
def insert_clauses(
    tree: RTree,
    clause_boxes: NDArray[np.int32],
    clause_keys: NDArray[np.int32],
    numbers: tuple[Number, Number],
    least: Number,
    scratch: SplitScratch,
) -> Number:
    """Insert clauses from the first to the last number; return the one that had no room.

    ``clause_keys`` has the keys of the last clauses: it ends with that of the last one.
    """
    base = np.int64(numbers[1]) - len(clause_keys)
    for clause in range(numbers[0], numbers[1]):
        node = np.int64(tree.state[ROOT])
        if tree.state[TOP] + tree.level[node] + 2 > len(tree.used):
            return np.int64(clause)
        box = clause_box(clause_boxes, clause)
        while tree.level[node] > 0:
            slot = choose_child(tree, node, box)
            put_box(tree, node, slot, united(get_box(tree, node, slot), box))
            node = np.int64(tree.entry[node, slot])
        place_entry(
            tree, node, np.int64(clause), np.int64(clause_keys[clause - base]), box, least, scratch
        )
    return np.int64(numbers[1])


@kernel
def shrink_boxes(tree: RTree, node: Number) -> None:
    """Make the boxes of a node and of those above it as small as what is in them."""
    while tree.parent[node] >= 0:
        parent = np.int64(tree.parent[node])
        slot = tree.place[node]
        before, now = get_box(tree, parent, slot), bounds(tree, node)
        if (
            before.west == now.west
            and before.south == now.south
            and before.east == now.east
            and before.north == now.north
        ):
            return
        put_box(tree, parent, slot, now)
        node = parent


@kernel
def erase_clause(tree: RTree, clause: Number) -> tuple[Number, Number]:
    """Take a clause out of its leaf; return the leaf and the slot."""
    leaf = np.int64(tree.leaf_of[clause])
    slot = slot_of(tree, leaf, clause)
    clear_slot(tree, leaf, slot)
    tree.leaf_of[clause] = -1
    shrink_boxes(tree, leaf)
    return leaf, slot


@kernel
def choose_neighbour(tree: RTree, parent: Number, node: Number) -> Number:
    """Return the child of the parent with which a node makes the smallest box, or -1."""
    here = get_box(tree, parent, tree.place[node])
    chosen, smallest = np.int64(-1), np.inf
    left = tree.used[parent]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        there = get_box(tree, parent, slot)
        size = area(united(here, there)) - area(there)
        if tree.entry[parent, slot] != node and size < smallest:
            chosen, smallest = np.int64(tree.entry[parent, slot]), size
    return chosen


@kernel
def remove_child(tree: RTree, parent: Number, node: Number) -> None:
    """Take a node out of its parent and give it back."""
    clear_slot(tree, parent, tree.place[node])
    mark_node(tree, parent, ENTRIES)
    free_node(tree, node)
    shrink_boxes(tree, parent)


@kernel
def unite_node(tree: RTree, node: Number, least: Number, scratch: SplitScratch) -> Number:
    """Unite a node that has too few entries with a neighbour; return whether there was one."""
    parent = np.int64(tree.parent[node])
    if entries_of(tree, node) == 0:
        remove_child(tree, parent, node)
        return True
    other = choose_neighbour(tree, parent, node)
    if other < 0:
        return False
    count = collect_entries(tree, other, scratch, 0)
    count = collect_entries(tree, node, scratch, count)
    if count <= tree.entry.shape[1]:
        scratch.best[:count] = np.arange(count)
        fill_node(tree, other, scratch, 0, count)
        put_box(tree, parent, tree.place[other], bounds(tree, other))
        remove_child(tree, parent, node)
        return True
    cut = choose_split(scratch, count, least)
    fill_node(tree, node, scratch, 0, cut)
    fill_node(tree, other, scratch, cut, count)
    put_box(tree, parent, tree.place[node], bounds(tree, node))
    put_box(tree, parent, tree.place[other], bounds(tree, other))
    mark_node(tree, parent, ENTRIES)
    return True


@kernel
def lower_root(tree: RTree) -> None:
    """Take roots away that have one child, or none."""
    while True:
        root = np.int64(tree.state[ROOT])
        if tree.level[root] == 0 or entries_of(tree, root) > 1:
            return
        tree.state[MOVED] = 1
        if entries_of(tree, root) == 0:
            tree.level[root] = 0
            mark_node(tree, root, ENTRIES | CONTENT)
            return
        child = np.int64(tree.entry[root, lowest_bit(tree.used[root])])
        free_node(tree, root)
        tree.parent[child] = -1
        tree.state[ROOT] = child


@kernel
def condense(tree: RTree, suspect: NDArray[np.int64], least: Number, scratch: SplitScratch) -> None:
    """Unite all nodes that have too few entries, beginning with leaves that lost some.

    The parents follow their children: a node without a neighbour gets one when its parent has been
    united, and is looked at again.
    """
    waiting = suspect.copy()
    while len(waiting) > 0:
        parents = np.empty(2 * len(waiting), np.int64)
        count = 0
        for i in range(len(waiting)):
            node = waiting[i]
            if tree.level[node] < 0 or tree.parent[node] < 0 or entries_of(tree, node) >= least:
                continue
            parent = np.int64(tree.parent[node])
            done = unite_node(tree, node, least, scratch)
            parents[count] = parent
            count += 1
            if not done:
                parents[count] = node
                count += 1
        lower_root(tree)
        waiting = parents[:count]
