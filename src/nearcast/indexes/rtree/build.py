"""Build an R-tree over boxes at once.

Nodes are packed level by level from entries in a spatial order. ``str`` (sort-tile-recursive:
Leutenegger et al., ICDE 1997) cuts every level into vertical slices and orders each slice from
south to north; ``hilbert`` (Kamel and Faloutsos, VLDB 1994) follows a Hilbert curve. ``insert``
inserts one item after the other (`balance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import read_only
from nearcast.compiled.jit import Number, kernel
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.options import check_whole
from nearcast.indexes.rtree.balance import insert_into_tree
from nearcast.indexes.rtree.nodes import (
    FAR,
    MAX_ENTRIES,
    Box,
    RTree,
    clear_node,
    item_box,
    node_bounds,
    put_entry,
    set_box,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LOADS", "TreeOptions", "build_tree"]

LOADS = ("str", "hilbert", "insert")
"""The ways to build a tree."""

INNER_FILL = 0.75
"""How full bulk loading makes inner nodes. Leaves are full, so the first insertions split them, and
each split needs a slot in the parent; with full parents, it would go up to the root."""

HILBERT_BITS = 16
"""Bits of a coordinate on the Hilbert curve."""


@dataclass(frozen=True)
class TreeOptions:
    """Options of the R-tree. The default node size is the one of the rt-tree papers.

    Parameters
    ----------
    least, most
        The minimum and maximum number of entries of a node. The root may have fewer.
        ``least`` is at most half of ``most``, rounded up.
    load
        How the tree is built: ``str`` or ``hilbert`` (bulk loading), or ``insert`` (one by one).
    """

    least: int = 25
    most: int = 50
    load: str = "str"

    def __post_init__(self) -> None:
        check_whole("most", self.most, 3, MAX_ENTRIES)
        half = (self.most + 1) // 2
        if isinstance(self.least, int) and self.least > half:
            problem = f"must be at most {half} if most is {self.most}; set both options"
            raise InvalidInput("least", self.least, problem)
        check_whole("least", self.least, 2, half)
        if self.load not in LOADS:
            raise UnknownName("load", self.load, LOADS)


def build_tree(box: NDArray[np.int32], key: NDArray[np.int32], options: TreeOptions) -> RTree:
    """Build a tree over items, given by their boxes and keys."""
    if options.load == "insert" or len(box) <= options.most:
        tree = _empty_tree(1, len(box), options.most)
        return insert_into_tree(tree, box, key, options.least)
    order = _spatial_order(box, 0, options)
    starts = [_node_starts(len(box), 0, options)]
    while len(starts[-1]) > 2:
        starts.append(_node_starts(len(starts[-1]) - 1, len(starts), options))
    nodes = sum(len(start) - 1 for start in starts)
    tree = _empty_tree(nodes, len(box), options.most)
    pack_leaves(tree, box, key, order, starts[0])
    below, first = 0, len(starts[0]) - 1
    for level, start in enumerate(starts[1:], 1):
        bounds = np.empty((first - below, 4), np.int32)
        write_bounds(tree, below, first, bounds)
        order = below + _spatial_order(read_only(bounds, np.int32), level, options)
        pack_nodes(tree, level, first, order, start)
        below, first = first, first + len(start) - 1
    tree.state[:3] = nodes - 1, nodes, -1
    return tree


def _empty_tree(nodes: int, items: int, most: int) -> RTree:
    """Return a tree whose root is an empty leaf, with capacity for nodes and items."""
    box = np.empty((nodes, 4, most), np.int32)
    box[:, :2], box[:, 2:] = FAR, -FAR
    return RTree(
        box=box,
        entry=np.zeros((nodes, most), np.int32),
        key=np.zeros((nodes, most), np.int32),
        used=np.zeros(nodes, np.uint64),
        level=np.zeros(nodes, np.int32),
        parent=np.full(nodes, -1, np.int32),
        place=np.zeros(nodes, np.int32),
        leaf_of=np.full(items, -1, np.int32),
        mark=np.zeros(nodes, np.uint8),
        marked=np.zeros(nodes, np.int32),
        state=np.array([0, 1, -1, 0, 0], np.int64),
    )


def _node_count(entries: int, level: int, options: TreeOptions) -> int:
    """Return the number of nodes for the entries of a level."""
    fill = options.most if level == 0 else max(2, int(INNER_FILL * options.most))
    return 1 if entries <= options.most else min(-(-entries // fill), entries // options.least)


def _slice_starts(entries: int, level: int, options: TreeOptions) -> NDArray[np.int64]:
    """Return where the vertical slices of a level begin; a Hilbert curve is one slice."""
    nodes = _node_count(entries, level, options)
    count = int(np.ceil(np.sqrt(nodes))) if options.load == "str" else 1
    return np.linspace(0, entries, count + 1).astype(np.int64)


def _node_starts(entries: int, level: int, options: TreeOptions) -> NDArray[np.int64]:
    """Return where the nodes of a level begin; the nodes of a slice are filled evenly."""
    slices = _slice_starts(entries, level, options)
    pieces = [
        np.linspace(first, last, _node_count(last - first, level, options) + 1)[:-1]
        for first, last in zip(slices[:-1].tolist(), slices[1:].tolist(), strict=True)
    ]
    return np.concatenate([*pieces, [entries]]).astype(np.int64)


def _spatial_order(box: NDArray[np.int32], level: int, options: TreeOptions) -> NDArray[np.int64]:
    """Return the order in which boxes are packed into nodes."""
    if options.load == "hilbert":
        position = np.empty(len(box), np.int64)
        hilbert_positions(box, position)
        return np.argsort(position, kind="stable")
    by_x = np.argsort(box[:, 0].astype(np.int64) + box[:, 2], kind="stable")
    y = (box[:, 1].astype(np.int64) + box[:, 3])[by_x]
    slices = _slice_starts(len(box), level, options)
    slice_of = np.repeat(np.arange(len(slices) - 1), np.diff(slices))
    order: NDArray[np.int64] = by_x[np.lexsort((y, slice_of))]
    return order


@kernel
def hilbert_positions(box: NDArray[np.int32], position: NDArray[np.int64]) -> None:
    """Write where the center of each box (int32[n, 4]) lies on a Hilbert curve over the world."""
    for i in range(len(box)):
        x = (np.int64(box[i, 0]) + np.int64(box[i, 2]) + (np.int64(1) << 32)) >> (33 - HILBERT_BITS)
        y = (np.int64(box[i, 1]) + np.int64(box[i, 3]) + (np.int64(1) << 32)) >> (33 - HILBERT_BITS)
        distance = np.int64(0)
        side = np.int64(1) << (HILBERT_BITS - 1)
        while side > 0:
            right, upper = np.int64((x & side) != 0), np.int64((y & side) != 0)
            distance += side * side * ((3 * right) ^ upper)
            if upper == 0:
                if right == 1:
                    x, y = (side - 1) - (x & (side - 1)), (side - 1) - (y & (side - 1))
                x, y = y, x
            side >>= 1
        position[i] = distance


@kernel
def pack_leaves(
    tree: RTree,
    item_boxes: NDArray[np.int32],
    item_keys: NDArray[np.int32],
    order: NDArray[np.int64],
    start: NDArray[np.int64],
) -> None:
    """Fill the leaves: leaf ``n`` gets the items ``order[start[n]:start[n + 1]]``."""
    for node in range(len(start) - 1):
        tree.level[node] = 0
        clear_node(tree, node)
        for slot in range(start[node + 1] - start[node]):
            item = order[start[node] + slot]
            put_entry(tree, node, slot, item, item_keys[item])
            set_box(tree, node, slot, item_box(item_boxes, item))


@kernel
def pack_nodes(
    tree: RTree, level: Number, first: Number, order: NDArray[np.int64], start: NDArray[np.int64]
) -> None:
    """Fill the nodes of a level, numbered from ``first`` on, with the nodes of the level below."""
    for i in range(len(start) - 1):
        node = first + i
        tree.level[node] = level
        clear_node(tree, node)
        for slot in range(start[i + 1] - start[i]):
            child = order[start[i] + slot]
            put_entry(tree, node, slot, child, -1)
            set_box(tree, node, slot, node_bounds(tree, child))


@kernel
def write_bounds(tree: RTree, first: Number, last: Number, box: NDArray[np.int32]) -> None:
    """Write the bounds of the nodes ``first`` to ``last`` (int32[last - first, 4])."""
    for node in range(first, last):
        bounds: Box = node_bounds(tree, node)
        box[node - first, 0], box[node - first, 1] = bounds.west, bounds.south
        box[node - first, 2], box[node - first, 3] = bounds.east, bounds.north
