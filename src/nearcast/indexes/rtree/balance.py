"""Insert items into an R-tree and delete them, splitting and merging nodes.

An item goes into the leaf whose box grows least (Guttman, SIGMOD 1984). A node with too many
entries is split as in the R*-tree (Beckmann et al., SIGMOD 1990): along the axis with the smallest
perimeters, where the halves overlap least. A node with too few entries is merged with the sibling
whose box grows least, and split again if the result is too large; Guttman's reinsertion would
change distant nodes and what is known about them.

Every node whose entries or content change is marked, so that what is stored about nodes elsewhere
can follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.indexes.rtree.nodes import (
    CONTENT_CHANGED,
    ENTRIES_CHANGED,
    FREE,
    NODES,
    ROOT,
    ROOT_CHANGED,
    Box,
    RTree,
    area,
    clear_node,
    clear_slot,
    entry_count,
    get_box,
    item_box,
    mark_node,
    node_bounds,
    put_entry,
    set_box,
    slot_of,
    union_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SplitScratch(NamedTuple):
    """Scratch for splitting: up to ``m = 2 * most + 1`` entries, and bounds over them.

    ``side`` int64[4, m], ``entry`` and ``key`` int64[m]: the entries. ``order`` and ``best``
    int64[m]: orders of them. ``head`` and ``tail`` int64[m, 4]: bounds of the first entries of an
    order up to each, and of the last ones from each on.
    """

    side: NDArray[np.int64]
    entry: NDArray[np.int64]
    key: NDArray[np.int64]
    order: NDArray[np.int64]
    best: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]


def make_split_scratch(most: int) -> SplitScratch:
    """Return scratch for nodes of at most ``most`` entries, two of which may be merged."""
    size = 2 * most + 1
    numbers = [np.empty(size, np.int64) for _ in range(4)]
    boxes = [np.empty((size, 4), np.int64) for _ in range(2)]
    return SplitScratch(np.empty((4, size), np.int64), *numbers, *boxes)


def insert_into_tree(
    tree: RTree, box: NDArray[np.int32], key: NDArray[np.int32], min_entries: int
) -> RTree:
    """Insert the last ``len(key)`` items; return the tree, in larger arrays where it outgrew them.

    ``box`` holds the boxes of all items, ``key`` the keys of the new ones.
    """
    first = len(box) - len(key)
    tree = tree._replace(leaf_of=with_capacity(tree.leaf_of, len(box)))
    scratch = make_split_scratch(tree.entry.shape[1])
    while True:
        first = int(insert_items(tree, box, key, (first, len(box)), min_entries, scratch))
        if first == len(box):
            return tree
        nodes = len(tree.used) + 64
        names = ("box", "entry", "key", "used", "level", "parent", "place", "mark", "marked")
        tree = tree._replace(**{name: with_capacity(getattr(tree, name), nodes) for name in names})


def with_capacity(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return an array of at least ``rows`` rows: itself, or a copy of at least twice the size."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def collect_entry(
    scratch: SplitScratch, count: Number, entry: Number, key: Number, box: Box
) -> Number:
    """Append an entry to those to be split; return their number."""
    scratch.entry[count], scratch.key[count] = entry, key
    scratch.side[0, count], scratch.side[1, count] = box.west, box.south
    scratch.side[2, count], scratch.side[3, count] = box.east, box.north
    return count + 1


@kernel
def collect_entries(tree: RTree, node: Number, scratch: SplitScratch, count: Number) -> Number:
    """Append all entries of a node to those to be split; return their number."""
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        count = collect_entry(
            scratch, count, tree.entry[node, slot], tree.key[node, slot], get_box(tree, node, slot)
        )
    return count


@kernel
def accumulate_bounds(scratch: SplitScratch, count: Number) -> None:
    """Write the bounds of all first and all last entries of the order."""
    for i in range(count):
        one = scratch.order[i]
        for k in range(4):
            scratch.head[i, k] = scratch.side[k, one]
        if i > 0:
            for k in range(2):
                scratch.head[i, k] = min(scratch.head[i, k], scratch.head[i - 1, k])
                scratch.head[i, k + 2] = max(scratch.head[i, k + 2], scratch.head[i - 1, k + 2])
    for i in range(count - 1, -1, -1):
        one = scratch.order[i]
        for k in range(4):
            scratch.tail[i, k] = scratch.side[k, one]
        if i < count - 1:
            for k in range(2):
                scratch.tail[i, k] = min(scratch.tail[i, k], scratch.tail[i + 1, k])
                scratch.tail[i, k + 2] = max(scratch.tail[i, k + 2], scratch.tail[i + 1, k + 2])


@kernel
def row_box(rows: NDArray[np.int64], i: Number) -> Box:
    """Read a box from a row of four sides."""
    return Box(rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3])


@kernel
def total_margin(scratch: SplitScratch, count: Number, min_entries: Number) -> Number:
    """Return the sum of the half perimeters of both parts over all cuts of the order."""
    total = 0.0
    for cut in range(min_entries, count - min_entries + 1):
        for box in (row_box(scratch.head, cut - 1), row_box(scratch.tail, cut)):
            total += np.float64(box.east - box.west) + np.float64(box.north - box.south)
    return total


@kernel
def best_cut(
    scratch: SplitScratch, count: Number, min_entries: Number
) -> tuple[Number, Number, Number]:
    """Return the cut at which the parts overlap least, the overlap, and the area of both."""
    chosen, overlap, size = np.int64(min_entries), np.inf, np.inf
    for cut in range(min_entries, count - min_entries + 1):
        a, b = row_box(scratch.head, cut - 1), row_box(scratch.tail, cut)
        width = np.float64(min(a.east, b.east) - max(a.west, b.west))
        height = np.float64(min(a.north, b.north) - max(a.south, b.south))
        common = (width + 1.0) * (height + 1.0) if width >= 0 and height >= 0 else 0.0
        both = area(a) + area(b)
        if common < overlap or (common == overlap and both < size):
            chosen, overlap, size = np.int64(cut), common, both
    return chosen, overlap, size


@kernel
def choose_split(scratch: SplitScratch, count: Number, min_entries: Number) -> Number:
    """Write the best order of the entries into ``best``; return where it is cut."""
    axis, smallest = 0, np.inf
    for side in range(4):
        scratch.order[:count] = np.argsort(scratch.side[side, :count], kind="mergesort")
        accumulate_bounds(scratch, count)
        total = total_margin(scratch, count, min_entries)
        if total < smallest:
            axis, smallest = side & 1, total
    chosen, overlap, size = np.int64(min_entries), np.inf, np.inf
    for side in (axis, axis + 2):
        scratch.order[:count] = np.argsort(scratch.side[side, :count], kind="mergesort")
        accumulate_bounds(scratch, count)
        cut, common, both = best_cut(scratch, count, min_entries)
        if common < overlap or (common == overlap and both < size):
            chosen, overlap, size = cut, common, both
            scratch.best[:count] = scratch.order[:count]
    return chosen


@kernel
def take_node(tree: RTree, level: Number) -> Number:
    """Return an empty node: the first free one, or the next that was never used."""
    node = tree.state[FREE]
    if node >= 0:
        tree.state[FREE] = tree.parent[node]
    else:
        node = tree.state[NODES]
        tree.state[NODES] = node + 1
        tree.mark[node] = 0
    clear_node(tree, node)
    tree.level[node], tree.parent[node] = level, -1
    mark_node(tree, node, ENTRIES_CHANGED | CONTENT_CHANGED)
    return node


@kernel
def free_node(tree: RTree, node: Number) -> None:
    """Put a node on the list of free nodes."""
    clear_node(tree, node)
    tree.level[node], tree.parent[node] = -1, tree.state[FREE]
    mark_node(tree, node, ENTRIES_CHANGED | CONTENT_CHANGED)
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
    """Return the slot whose box grows least, the smallest box among equals."""
    chosen, least_growth, smallest = np.int64(-1), np.inf, np.inf
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        candidate = get_box(tree, node, slot)
        size = area(candidate)
        growth = area(union_of(candidate, box)) - size
        if growth < least_growth or (growth == least_growth and size < smallest):
            chosen, least_growth, smallest = slot, growth, size
    return chosen


@kernel
def fill_node(
    tree: RTree, node: Number, scratch: SplitScratch, first: Number, last: Number
) -> None:
    """Replace the entries of a node by the entries ``first`` to ``last`` of the best order."""
    clear_node(tree, node)
    for i in range(first, last):
        one = scratch.best[i]
        put_entry(tree, node, i - first, scratch.entry[one], scratch.key[one])
        for k in range(4):
            tree.box[node, k, i - first] = scratch.side[k, one]
    mark_node(tree, node, ENTRIES_CHANGED | CONTENT_CHANGED)


@kernel
def add_root(tree: RTree, node: Number, other: Number) -> None:
    """Put a new root above the two halves of the old one."""
    root = take_node(tree, tree.level[node] + 1)
    put_entry(tree, root, 0, node, -1)
    set_box(tree, root, 0, node_bounds(tree, node))
    put_entry(tree, root, 1, other, -1)
    set_box(tree, root, 1, node_bounds(tree, other))
    tree.state[ROOT], tree.state[ROOT_CHANGED] = root, 1


@kernel
def insert_entry(
    tree: RTree,
    node: Number,
    entry: Number,
    key: Number,
    box: Box,
    min_entries: Number,
    scratch: SplitScratch,
) -> None:
    """Put an entry into a node; split the node and its ancestors where they are full."""
    while True:
        slot = free_slot(tree, node)
        if slot >= 0:
            put_entry(tree, node, slot, entry, key)
            set_box(tree, node, slot, box)
            if tree.level[node] > 0:
                mark_node(tree, node, ENTRIES_CHANGED)
            return
        count = collect_entry(scratch, collect_entries(tree, node, scratch, 0), entry, key, box)
        cut = choose_split(scratch, count, min_entries)
        other = take_node(tree, tree.level[node])
        fill_node(tree, node, scratch, 0, cut)
        fill_node(tree, other, scratch, cut, count)
        parent = tree.parent[node]
        if parent < 0:
            add_root(tree, node, other)
            return
        mark_node(tree, parent, ENTRIES_CHANGED)
        set_box(tree, parent, tree.place[node], node_bounds(tree, node))
        node, entry, key, box = parent, other, np.int64(-1), node_bounds(tree, other)


@kernel
def insert_items(
    tree: RTree,
    item_boxes: NDArray[np.int32],
    item_keys: NDArray[np.int32],
    numbers: tuple[Number, Number],
    min_entries: Number,
    scratch: SplitScratch,
) -> Number:
    """Insert the items ``numbers[0]`` to ``numbers[1]``; return the first that did not fit.

    ``item_keys`` holds the keys of the last items, up to ``numbers[1]``.
    """
    base = np.int64(numbers[1]) - len(item_keys)
    for item in range(numbers[0], numbers[1]):
        node = np.int64(tree.state[ROOT])
        if tree.state[NODES] + tree.level[node] + 2 > len(tree.used):
            return np.int64(item)
        box = item_box(item_boxes, item)
        while tree.level[node] > 0:
            slot = choose_child(tree, node, box)
            set_box(tree, node, slot, union_of(get_box(tree, node, slot), box))
            node = np.int64(tree.entry[node, slot])
        insert_entry(
            tree, node, np.int64(item), np.int64(item_keys[item - base]), box, min_entries, scratch
        )
    return np.int64(numbers[1])


@kernel
def shrink_boxes(tree: RTree, node: Number) -> None:
    """Shrink the boxes of a node and its ancestors to their entries."""
    while tree.parent[node] >= 0:
        parent = np.int64(tree.parent[node])
        slot = tree.place[node]
        before, now = get_box(tree, parent, slot), node_bounds(tree, node)
        if (
            before.west == now.west
            and before.south == now.south
            and before.east == now.east
            and before.north == now.north
        ):
            return
        set_box(tree, parent, slot, now)
        node = parent


@kernel
def delete_item(tree: RTree, item: Number) -> tuple[Number, Number]:
    """Remove an item from its leaf; return the leaf and the slot that it had."""
    leaf = np.int64(tree.leaf_of[item])
    slot = slot_of(tree, leaf, item)
    clear_slot(tree, leaf, slot)
    tree.leaf_of[item] = -1
    shrink_boxes(tree, leaf)
    return leaf, slot


@kernel
def choose_sibling(tree: RTree, parent: Number, node: Number) -> Number:
    """Return the sibling whose box grows least by taking a node in, or -1 if there is none."""
    here = get_box(tree, parent, tree.place[node])
    chosen, smallest = np.int64(-1), np.inf
    left = tree.used[parent]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        there = get_box(tree, parent, slot)
        size = area(union_of(here, there)) - area(there)
        if tree.entry[parent, slot] != node and size < smallest:
            chosen, smallest = np.int64(tree.entry[parent, slot]), size
    return chosen


@kernel
def remove_child(tree: RTree, parent: Number, node: Number) -> None:
    """Remove a node from its parent and free it."""
    clear_slot(tree, parent, tree.place[node])
    mark_node(tree, parent, ENTRIES_CHANGED)
    free_node(tree, node)
    shrink_boxes(tree, parent)


@kernel
def merge_node(tree: RTree, node: Number, min_entries: Number, scratch: SplitScratch) -> Number:
    """Merge a node that has too few entries with a sibling; return whether there was one."""
    parent = np.int64(tree.parent[node])
    if entry_count(tree, node) == 0:
        remove_child(tree, parent, node)
        return True
    other = choose_sibling(tree, parent, node)
    if other < 0:
        return False
    count = collect_entries(tree, other, scratch, 0)
    count = collect_entries(tree, node, scratch, count)
    if count <= tree.entry.shape[1]:
        scratch.best[:count] = np.arange(count)
        fill_node(tree, other, scratch, 0, count)
        set_box(tree, parent, tree.place[other], node_bounds(tree, other))
        remove_child(tree, parent, node)
        return True
    cut = choose_split(scratch, count, min_entries)
    fill_node(tree, node, scratch, 0, cut)
    fill_node(tree, other, scratch, cut, count)
    set_box(tree, parent, tree.place[node], node_bounds(tree, node))
    set_box(tree, parent, tree.place[other], node_bounds(tree, other))
    mark_node(tree, parent, ENTRIES_CHANGED)
    return True


@kernel
def remove_idle_roots(tree: RTree) -> None:
    """Remove roots that have a single child; a root without any becomes a leaf."""
    while True:
        root = np.int64(tree.state[ROOT])
        if tree.level[root] == 0 or entry_count(tree, root) > 1:
            return
        tree.state[ROOT_CHANGED] = 1
        if entry_count(tree, root) == 0:
            tree.level[root] = 0
            mark_node(tree, root, ENTRIES_CHANGED | CONTENT_CHANGED)
            return
        child = np.int64(tree.entry[root, lowest_bit(tree.used[root])])
        free_node(tree, root)
        tree.parent[child] = -1
        tree.state[ROOT] = child


@kernel
def condense(
    tree: RTree, leaves: NDArray[np.int64], min_entries: Number, scratch: SplitScratch
) -> None:
    """Merge all nodes that have too few entries, beginning with leaves that lost some.

    Parents follow their children. A node without a sibling gets one once its parent is merged, so
    it is looked at again then.
    """
    waiting = leaves.copy()
    while len(waiting) > 0:
        parents = np.empty(2 * len(waiting), np.int64)
        count = 0
        for i in range(len(waiting)):
            node = waiting[i]
            if (
                tree.level[node] < 0
                or tree.parent[node] < 0
                or entry_count(tree, node) >= min_entries
            ):
                continue
            parent = np.int64(tree.parent[node])
            merged = merge_node(tree, node, min_entries, scratch)
            parents[count] = parent
            count += 1
            if not merged:
                parents[count] = node
                count += 1
        remove_idle_roots(tree)
        waiting = parents[:count]
