"""Several trees in the arrays of one: all share nodes and items, and each has a root.

``ir-tree-100`` keeps subscriptions of different shares and thresholds in trees of their own. The
kernels of `balance` see one tree at a time: the root of the tree that changes is put where they
look for it, and taken from there afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import read_only
from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.indexes.rtree.balance import (
    SplitScratch,
    condense,
    insert_items,
    make_split_scratch,
    with_capacity,
)
from nearcast.indexes.rtree.build import TreeOptions, build_tree
from nearcast.indexes.rtree.nodes import NODES, ROOT, RTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["build_forest", "condense_forest", "insert_into_forest"]

_BY_NODE = ("box", "entry", "key", "used", "level", "parent", "place", "mark", "marked")


def build_forest(
    box: NDArray[np.int32],
    key: NDArray[np.int32],
    tree_of: NDArray[np.int64],
    trees: int,
    options: TreeOptions,
) -> tuple[RTree, NDArray[np.int64]]:
    """Build trees over items, given by their boxes, keys and trees; return them and their roots."""
    items = [np.flatnonzero(tree_of == number) for number in range(trees)]
    parts = [build_tree(read_only(box[some], np.int32), key[some], options) for some in items]
    counts = [int(part.state[NODES]) for part in parts]
    bases = np.cumsum([0, *counts])
    leaf_of = np.full(len(box), -1, np.int32)
    for some, part, base in zip(items, parts, bases.tolist(), strict=False):
        renumber(part, some, base)
        leaf_of[some] = part.leaf_of[: len(some)] + base
    joined = {
        name: np.concatenate([getattr(p, name)[:n] for p, n in zip(parts, counts, strict=True)])
        for name in _BY_NODE
    }
    joined["mark"][:] = 0
    state = np.array([0, bases[-1], -1, 0, 0], np.int64)
    roots = np.array([part.state[ROOT] for part in parts]) + bases[:-1]
    return RTree(**joined, leaf_of=leaf_of, state=state), roots.astype(np.int64)


@kernel
def renumber(tree: RTree, items: NDArray[np.int64], base: Number) -> None:
    """Give the items of a tree these numbers, and its nodes the numbers from ``base`` on."""
    for node in range(tree.state[NODES]):
        left = tree.used[node]
        while left != np.uint64(0):
            slot = lowest_bit(left)
            left &= left - np.uint64(1)
            entry = tree.entry[node, slot]
            tree.entry[node, slot] = items[entry] if tree.level[node] == 0 else entry + base
        if tree.parent[node] >= 0:
            tree.parent[node] += base


def insert_into_forest(
    tree: RTree,
    root: NDArray[np.int64],
    box: NDArray[np.int32],
    key: NDArray[np.int32],
    tree_of: NDArray[np.int64],
    min_entries: int,
) -> RTree:
    """Insert the last ``len(key)`` items, each into its tree; return the arrays, maybe larger."""
    first = len(box) - len(key)
    tree = tree._replace(leaf_of=with_capacity(tree.leaf_of, len(box)))
    scratch = make_split_scratch(tree.entry.shape[1])
    while True:
        numbers = (first, len(box))
        first = int(insert_each(tree, root, box, key, tree_of, numbers, min_entries, scratch))
        if first == len(box):
            return tree
        nodes = len(tree.used) + 64
        tree = tree._replace(
            **{name: with_capacity(getattr(tree, name), nodes) for name in _BY_NODE}
        )


@kernel
def insert_each(
    tree: RTree,
    root: NDArray[np.int64],
    item_boxes: NDArray[np.int32],
    item_keys: NDArray[np.int32],
    tree_of: NDArray[np.int64],
    numbers: tuple[Number, Number],
    min_entries: Number,
    scratch: SplitScratch,
) -> Number:
    """Insert the items ``numbers[0]`` to ``numbers[1]``; return the first that did not fit.

    ``item_keys`` and ``tree_of`` hold the keys and the trees of the last items.
    """
    base = np.int64(numbers[1]) - len(item_keys)
    for item in range(numbers[0], numbers[1]):
        number = tree_of[item - base]
        tree.state[ROOT] = root[number]
        keys = item_keys[item - base : item - base + 1]
        if insert_items(tree, item_boxes, keys, (item, item + 1), min_entries, scratch) == item:
            return np.int64(item)
        root[number] = tree.state[ROOT]
    return np.int64(numbers[1])


def condense_forest(
    tree: RTree,
    root: NDArray[np.int64],
    leaf: NDArray[np.int64],
    tree_of: NDArray[np.int64],
    min_entries: int,
) -> None:
    """Merge nodes that have too few entries; ``leaf`` lost an item of the tree ``tree_of``."""
    scratch = make_split_scratch(tree.entry.shape[1])
    for number in np.unique(tree_of).tolist():
        tree.state[ROOT] = root[number]
        condense(tree, np.unique(leaf[tree_of == number]), min_entries, scratch)
        root[number] = tree.state[ROOT]
