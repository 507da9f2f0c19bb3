"""Load an R-tree at once: nodes are packed level by level from entries in a spatial order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.rtree.nodes import (
    Box,
    RTree,
    bounds,
    clause_box,
    clear_node,
    put_box,
    put_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

HILBERT_BITS = 16


@kernel
def hilbert_keys(box: NDArray[np.int32], key: NDArray[np.int64]) -> None:
    """Write the place of each box's centre (int32[n, 4]) on a Hilbert curve over the world."""
    for i in range(len(box)):
        x = (np.int64(box[i, 0]) + np.int64(box[i, 2]) + (np.int64(1) << 32)) >> (33 - HILBERT_BITS)
        y = (np.int64(box[i, 1]) + np.int64(box[i, 3]) + (np.int64(1) << 32)) >> (33 - HILBERT_BITS)
        place = np.int64(0)
        side = np.int64(1) << (HILBERT_BITS - 1)
        while side > 0:
            right, upper = np.int64((x & side) != 0), np.int64((y & side) != 0)
            place += side * side * ((3 * right) ^ upper)
            if upper == 0:
                if right == 1:
                    x, y = (side - 1) - (x & (side - 1)), (side - 1) - (y & (side - 1))
                x, y = y, x
            side >>= 1
        key[i] = place


@kernel
def pack_leaves(
    tree: RTree,
    clause_boxes: NDArray[np.int32],
    clause_keys: NDArray[np.int32],
    order: NDArray[np.int64],
    cut: NDArray[np.int64],
) -> None:
    """Fill leaves: leaf ``n`` takes the clauses ``order[cut[n]:cut[n + 1]]``."""
    for node in range(len(cut) - 1):
        tree.level[node] = 0
        clear_node(tree, node)
        for slot in range(cut[node + 1] - cut[node]):
            clause = order[cut[node] + slot]
            put_entry(tree, node, slot, clause, clause_keys[clause])
            put_box(tree, node, slot, clause_box(clause_boxes, clause))


@kernel
def pack_nodes(
    tree: RTree, level: Number, first: Number, order: NDArray[np.int64], cut: NDArray[np.int64]
) -> None:
    """Fill the nodes of a level, from ``first`` on, with nodes of the level below in an order."""
    for i in range(len(cut) - 1):
        node = first + i
        tree.level[node] = level
        clear_node(tree, node)
        for slot in range(cut[i + 1] - cut[i]):
            child = order[cut[i] + slot]
            put_entry(tree, node, slot, child, -1)
            put_box(tree, node, slot, bounds(tree, child))


@kernel
def bound_nodes(tree: RTree, first: Number, last: Number, box: NDArray[np.int32]) -> None:
    """Write the boxes around nodes ``first`` to ``last`` (int32[last - first, 4])."""
    for node in range(first, last):
        around: Box = bounds(tree, node)
        box[node - first, 0], box[node - first, 1] = around.west, around.south
        box[node - first, 2], box[node - first, 3] = around.east, around.north
