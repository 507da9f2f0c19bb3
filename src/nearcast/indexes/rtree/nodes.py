"""The R-tree under all tree indexes: its arrays, and the questions that are asked of one node.

A node has ``most`` slots for entries, at most 64, so that a set of entries is one word. A slot that
is not in use holds a box that nothing meets. Entries keep their slot as long as they are in the
node: whatever is said of a slot (see `nearcast.indexes.rtree.token_sets`) stays true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, bit_count, kernel, lowest_bit

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ENTRIES = 64
"""The entries of a node that one word can tell apart."""

FAR = np.int32(2_147_483_647)
"""The west of a box that nothing meets, and minus its east."""

ROOT, TOP, FREE, MOVED, CHANGED = 0, 1, 2, 3, 4
"""In ``state``: the root; nodes ever used; the first free node or -1; whether the root became
another node; how many nodes are marked."""

ENTRIES, CONTENT = 1, 2
"""Marks of a node: its entries were changed; the set of clauses below it was changed."""


class RTree(NamedTuple):
    """The arrays of an R-tree.

    - ``box`` int32[n, 4, most]: west, south, east and north of every entry.
    - ``entry`` int32[n, most]: the child, or the clause in a leaf; ``key`` its first token there.
    - ``used`` uint64[n]: the slots in use. ``level`` int32[n]: 0 for leaves, -1 for free nodes.
    - ``parent`` int32[n]: -1 for the root; the next free node for free ones.
    - ``place`` int32[n]: the slot of a node in its parent.
    - ``leaf_of`` int32[clauses]: the leaf of every clause, -1 for those that are gone.
    - ``mark`` uint8[n]: what was changed since the marks were cleared; ``marked`` int32[n] lists
      the nodes that have a mark.
    - ``state`` int64[5].
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
    """Four sides."""

    west: Number
    south: Number
    east: Number
    north: Number


@kernel
def bit(slot: Number) -> Number:
    """Return the word in which only this slot is set."""
    return np.uint64(1) << np.uint64(slot)


@kernel
def mark_node(tree: RTree, node: Number, what: Number) -> None:
    """Note that a node was changed."""
    if tree.mark[node] == 0:
        tree.marked[tree.state[CHANGED]] = node
        tree.state[CHANGED] += 1
    tree.mark[node] |= what


@kernel
def meeting(box: NDArray[np.int32], node: Number, window: Box) -> Number:
    """Return the slots of a node whose boxes meet the window."""
    met = np.uint64(0)
    sides = box[node]
    for slot in range(sides.shape[1]):
        meets = (
            (sides[0, slot] <= window.east)
            & (sides[1, slot] <= window.north)
            & (sides[2, slot] >= window.west)
            & (sides[3, slot] >= window.south)
        )
        met |= np.uint64(meets) << np.uint64(slot)
    return met


@kernel
def bounds(tree: RTree, node: Number) -> Box:
    """Return the box around all entries of a node."""
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
def put_box(tree: RTree, node: Number, slot: Number, box: Box) -> None:
    """Write the box of an entry."""
    tree.box[node, 0, slot], tree.box[node, 1, slot] = box.west, box.south
    tree.box[node, 2, slot], tree.box[node, 3, slot] = box.east, box.north


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
def clause_box(box: NDArray[np.int32], clause: Number) -> Box:
    """Read the box of a clause."""
    sides = box[clause]
    return Box(np.int64(sides[0]), np.int64(sides[1]), np.int64(sides[2]), np.int64(sides[3]))


@kernel
def slot_of(tree: RTree, leaf: Number, clause: Number) -> Number:
    """Return the slot of a clause in its leaf."""
    left = tree.used[leaf]
    while tree.entry[leaf, lowest_bit(left)] != clause:
        left &= left - np.uint64(1)
    return lowest_bit(left)


@kernel
def entries_of(tree: RTree, node: Number) -> Number:
    """Return how many entries a node has."""
    return bit_count(tree.used[node])


@kernel
def put_entry(tree: RTree, node: Number, slot: Number, entry: Number, key: Number) -> None:
    """Write an entry into a free slot, but for its box; the entry learns where it is."""
    tree.entry[node, slot], tree.key[node, slot] = entry, key
    tree.used[node] |= bit(slot)
    if tree.level[node] == 0:
        tree.leaf_of[entry] = node
    else:
        tree.parent[entry], tree.place[entry] = node, slot


@kernel
def clear_slot(tree: RTree, node: Number, slot: Number) -> None:
    """Free a slot."""
    put_box(tree, node, slot, Box(np.int64(FAR), np.int64(FAR), -np.int64(FAR), -np.int64(FAR)))
    tree.used[node] &= ~bit(slot)


@kernel
def clear_node(tree: RTree, node: Number) -> None:
    """Free all slots of a node."""
    for slot in range(tree.entry.shape[1]):
        put_box(tree, node, slot, Box(np.int64(FAR), np.int64(FAR), -np.int64(FAR), -np.int64(FAR)))
    tree.used[node] = np.uint64(0)
