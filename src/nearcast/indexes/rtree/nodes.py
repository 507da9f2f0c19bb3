"""The arrays of the R-tree, and how one node is read and written.

This module, `build` and `balance` are the tree as geometry: boxes of *items* (here: clauses, known
by their numbers) in nested nodes. What nodes know about tokens lies in arrays of its own beside the
tree (`tokens`), so another kind of index can put other knowledge beside the same tree.

A node has ``most`` slots for entries, at most 64, so a set of entries is one 64-bit word. An
unused slot holds a box that overlaps nothing. An entry keeps its slot while it is in the node, so
whatever is stored about a slot stays true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, bit_count, kernel, lowest_bit

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ENTRIES = 64
"""The largest number of entries in a node: one bit of a word for each."""

FAR = np.int32(2_147_483_647)
"""West and south of an unused slot's box; its east and north are ``-FAR``."""

ROOT, NODES, FREE, ROOT_CHANGED, MARKED = 0, 1, 2, 3, 4
"""Fields of ``state``: the root; nodes ever used; the first free node, or -1; whether another node
became the root since the marks were cleared; the number of marked nodes."""

ENTRIES_CHANGED, CONTENT_CHANGED = 1, 2
"""Marks of a node: its entries changed; the set of items below it changed."""


class RTree(NamedTuple):
    """The arrays of an R-tree of ``n`` nodes.

    - ``box`` int32[n, 4, most]: west, south, east and north of every entry.
    - ``entry`` int32[n, most]: the child, or the item in a leaf.
    - ``key`` int32[n, most]: in leaves, a value that is kept beside the item (the boolean trees
      keep the first token of the clause).
    - ``used`` uint64[n]: the slots in use. ``level`` int32[n]: 0 for leaves, -1 for free nodes.
    - ``parent`` int32[n]: -1 for the root; the next free node for free ones.
    - ``place`` int32[n]: the slot of a node in its parent.
    - ``leaf_of`` int32[items]: the leaf of every item, -1 for deleted ones.
    - ``mark`` uint8[n]: what changed since the marks were cleared; ``marked`` int32[n] lists the
      nodes that have a mark. Neither is stored.
    - ``state`` int64[5]: see `ROOT` and the other fields.
    """

    box: NDArray[np.int32]
    entry: NDArray[np.int32]
    key: NDArray[np.int32]
    used: NDArray[np.uint64]
    level: NDArray[np.int32]
    parent: NDArray[np.int32]
    place: NDArray[np.int32]
    leaf_of: NDArray[np.int32]
    mark: NDArray[np.uint8]
    marked: NDArray[np.int32]
    state: NDArray[np.int64]


class Box(NamedTuple):
    """The four sides of a box."""

    west: Number
    south: Number
    east: Number
    north: Number


@kernel
def bit(slot: Number) -> Number:
    """Return the word in which only the bit of this slot is set."""
    return np.uint64(1) << np.uint64(slot)


@kernel
def area(box: Box) -> Number:
    """Return the area of a box; one unit is added to both sides, so that segments compare too."""
    width, height = np.float64(box.east - box.west), np.float64(box.north - box.south)
    return (width + 1.0) * (height + 1.0)


@kernel
def union_of(a: Box, b: Box) -> Box:
    """Return the smallest box around two boxes."""
    return Box(
        min(a.west, b.west), min(a.south, b.south), max(a.east, b.east), max(a.north, b.north)
    )


@kernel
def item_box(box: NDArray[np.int32], item: Number) -> Box:
    """Read the box of an item (int32[items, 4])."""
    sides = box[item]
    return Box(np.int64(sides[0]), np.int64(sides[1]), np.int64(sides[2]), np.int64(sides[3]))


@kernel
def get_box(tree: RTree, node: Number, slot: Number) -> Box:
    """Read the box of an entry."""
    sides = tree.box[node]
    return Box(
        np.int64(sides[0, slot]),
        np.int64(sides[1, slot]),
        np.int64(sides[2, slot]),
        np.int64(sides[3, slot]),
    )


@kernel
def set_box(tree: RTree, node: Number, slot: Number, box: Box) -> None:
    """Write the box of an entry."""
    tree.box[node, 0, slot], tree.box[node, 1, slot] = box.west, box.south
    tree.box[node, 2, slot], tree.box[node, 3, slot] = box.east, box.north


@kernel
def node_bounds(tree: RTree, node: Number) -> Box:
    """Return the smallest box around all entries of a node."""
    sides = tree.box[node]
    west, south = np.int64(FAR), np.int64(FAR)
    east, north = -np.int64(FAR), -np.int64(FAR)
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        west, south = min(west, np.int64(sides[0, slot])), min(south, np.int64(sides[1, slot]))
        east, north = max(east, np.int64(sides[2, slot])), max(north, np.int64(sides[3, slot]))
    return Box(west, south, east, north)


@kernel
def overlapping_slots(box: NDArray[np.int32], node: Number, window: Box) -> Number:
    """Return the slots of a node whose boxes overlap the window."""
    slots = np.uint64(0)
    sides = box[node]
    for slot in range(sides.shape[1]):
        overlaps = (
            (sides[0, slot] <= window.east)
            & (sides[1, slot] <= window.north)
            & (sides[2, slot] >= window.west)
            & (sides[3, slot] >= window.south)
        )
        slots |= np.uint64(overlaps) << np.uint64(slot)
    return slots


@kernel
def depth_of(tree: RTree, node: Number) -> Number:
    """Return the number of levels between the root and a node."""
    return np.int64(tree.level[tree.state[ROOT]]) - np.int64(tree.level[node])


@kernel
def entry_count(tree: RTree, node: Number) -> Number:
    """Return the number of entries of a node."""
    return bit_count(tree.used[node])


@kernel
def slot_end(tree: RTree, node: Number) -> Number:
    """Return the end of the slots of a node that are in use."""
    used, end = tree.used[node], np.int64(tree.entry.shape[1])
    while end > 0 and (used >> np.uint64(end - 1)) & np.uint64(1) == np.uint64(0):
        end -= 1
    return end


@kernel
def slot_of(tree: RTree, leaf: Number, item: Number) -> Number:
    """Return the slot of an item in its leaf."""
    left = tree.used[leaf]
    while tree.entry[leaf, lowest_bit(left)] != item:
        left &= left - np.uint64(1)
    return lowest_bit(left)


@kernel
def mark_node(tree: RTree, node: Number, mark: Number) -> None:
    """Add a mark to a node."""
    if tree.mark[node] == 0:
        tree.marked[tree.state[MARKED]] = node
        tree.state[MARKED] += 1
    tree.mark[node] |= mark


@kernel
def put_entry(tree: RTree, node: Number, slot: Number, entry: Number, key: Number) -> None:
    """Write an entry, all but its box, into a free slot; note the node as its leaf or parent."""
    tree.entry[node, slot], tree.key[node, slot] = entry, key
    tree.used[node] |= bit(slot)
    if tree.level[node] == 0:
        tree.leaf_of[entry] = node
    else:
        tree.parent[entry], tree.place[entry] = node, slot


@kernel
def clear_slot(tree: RTree, node: Number, slot: Number) -> None:
    """Free a slot."""
    set_box(tree, node, slot, Box(np.int64(FAR), np.int64(FAR), -np.int64(FAR), -np.int64(FAR)))
    tree.used[node] &= ~bit(slot)


@kernel
def clear_node(tree: RTree, node: Number) -> None:
    """Free all slots of a node."""
    for slot in range(tree.entry.shape[1]):
        set_box(tree, node, slot, Box(np.int64(FAR), np.int64(FAR), -np.int64(FAR), -np.int64(FAR)))
    tree.used[node] = np.uint64(0)
