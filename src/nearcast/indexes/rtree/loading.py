"""The R-tree under all tree indexes: its options, how it is loaded, and how it makes room.

Bulk loading packs full nodes in an order: `str` (sort, tile, recurse: Leutenegger et al. 1997) cuts
every level into vertical slices and each slice from south to north; `hilbert` (Kamel and Faloutsos
1994) goes along a Hilbert curve. `insert` inserts one clause after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import read_only
from nearcast.errors import UnknownName
from nearcast.indexes.options import check_whole
from nearcast.indexes.rtree.change import insert_clauses
from nearcast.indexes.rtree.load import bound_nodes, hilbert_keys, pack_leaves, pack_nodes
from nearcast.indexes.rtree.nodes import MAX_ENTRIES, RTree
from nearcast.indexes.rtree.split import SplitScratch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LOADS", "TreeOptions", "grown", "insert_into_tree", "load_tree", "split_scratch"]

LOADS = ("str", "hilbert", "insert")
"""The ways to load a tree."""

INNER_FILL = 0.75
"""Bulk loading fills leaves, but not the nodes above: a leaf that is split needs a slot there."""


@dataclass(frozen=True)
class TreeOptions:
    """The R-tree of an index; the defaults are the paper's.

    Parameters
    ----------
    least, most
        How many entries a node has (the root may have fewer); ``least`` is at most half of
        ``most``.
    load
        How the tree is built: ``str``, ``hilbert``, or ``insert``, one by one.
    """

    least: int = 25
    most: int = 50
    load: str = "str"

    def __post_init__(self) -> None:
        check_whole("most", self.most, 3, MAX_ENTRIES)
        check_whole("least", self.least, 2, (self.most + 1) // 2)
        if self.load not in LOADS:
            raise UnknownName("load", self.load, LOADS)


def load_tree(box: NDArray[np.int32], key: NDArray[np.int32], options: TreeOptions) -> RTree:
    """Build a tree over the boxes and first tokens of clauses."""
    if options.load == "insert" or len(box) <= options.most:
        tree = _empty_tree(1, len(box), options.most)
        return insert_into_tree(tree, box, key, options.least)
    order = _spatial_order(box, 0, options)
    cuts = [_cut(len(box), 0, options)]
    while len(cuts[-1]) > 2:
        cuts.append(_cut(len(cuts[-1]) - 1, len(cuts), options))
    nodes = sum(len(cut) - 1 for cut in cuts)
    tree = _empty_tree(nodes, len(box), options.most)
    pack_leaves(tree, box, key, order, cuts[0])
    below, first = 0, len(cuts[0]) - 1
    for level, cut in enumerate(cuts[1:], 1):
        around = np.empty((first - below, 4), np.int32)
        bound_nodes(tree, below, first, around)
        order = below + _spatial_order(read_only(around, np.int32), level, options)
        pack_nodes(tree, level, first, order, cut)
        below, first = first, first + len(cut) - 1
    tree.state[:3] = nodes - 1, nodes, -1
    return tree


def insert_into_tree(
    tree: RTree, box: NDArray[np.int32], key: NDArray[np.int32], least: int
) -> RTree:
    """Insert the last clauses, whose keys are given; return the tree, moved for room if need be."""
    first = len(box) - len(key)
    tree = tree._replace(leaf_of=grown(tree.leaf_of, len(box)))
    scratch = split_scratch(tree.entry.shape[1])
    while True:
        first = int(insert_clauses(tree, box, key, (first, len(box)), least, scratch))
        if first == len(box):
            return tree
        more = len(tree.used) + 64
        names = ("box", "entry", "key", "used", "level", "parent", "place", "mark", "marked")
        tree = tree._replace(**{name: grown(getattr(tree, name), more) for name in names})


def split_scratch(most: int) -> SplitScratch:
    """Return room for splitting nodes of so many entries, and for two that are united."""
    room = 2 * most + 1
    one = [np.empty(room, np.int64) for _ in range(4)]
    boxes = [np.empty((room, 4), np.int64) for _ in range(2)]
    return SplitScratch(np.empty((4, room), np.int64), *one, *boxes)


def grown(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return an array with room for so many rows: itself, or a copy of at least twice the size."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _empty_tree(nodes: int, clauses: int, most: int) -> RTree:
    """Return a tree whose root is an empty leaf, with room for nodes and clauses."""
    far = np.iinfo(np.int32).max
    box = np.empty((nodes, 4, most), np.int32)
    box[:, :2], box[:, 2:] = far, -far
    return RTree(
        box=box,
        entry=np.zeros((nodes, most), np.int32),
        key=np.zeros((nodes, most), np.int32),
        used=np.zeros(nodes, np.uint64),
        level=np.zeros(nodes, np.int32),
        parent=np.full(nodes, -1, np.int32),
        place=np.zeros(nodes, np.int32),
        leaf_of=np.full(clauses, -1, np.int32),
        mark=np.zeros(nodes, np.uint8),
        marked=np.zeros(nodes, np.int32),
        state=np.array([0, 1, -1, 0, 0], np.int64),
    )


def _nodes_for(entries: int, level: int, options: TreeOptions) -> int:
    """Return how many nodes take so many entries: full leaves, inner nodes with room for more."""
    fill = options.most if level == 0 else max(2, int(INNER_FILL * options.most))
    return 1 if entries <= options.most else min(-(-entries // fill), entries // options.least)


def _slices(entries: int, level: int, options: TreeOptions) -> NDArray[np.int64]:
    """Return where the vertical slices of a level begin; a curve needs no slices."""
    nodes = _nodes_for(entries, level, options)
    count = int(np.ceil(np.sqrt(nodes))) if options.load == "str" else 1
    return np.linspace(0, entries, count + 1).astype(np.int64)


def _cut(entries: int, level: int, options: TreeOptions) -> NDArray[np.int64]:
    """Return where the nodes of a level begin: those of a slice are filled evenly."""
    border = _slices(entries, level, options)
    pieces = [
        np.linspace(first, last, _nodes_for(last - first, level, options) + 1)[:-1]
        for first, last in zip(border[:-1].tolist(), border[1:].tolist(), strict=True)
    ]
    return np.concatenate([*pieces, [entries]]).astype(np.int64)


def _spatial_order(box: NDArray[np.int32], level: int, options: TreeOptions) -> NDArray[np.int64]:
    """Return the order in which boxes are packed."""
    if options.load == "hilbert":
        place = np.empty(len(box), np.int64)
        hilbert_keys(box, place)
        return np.argsort(place, kind="stable")
    across = np.argsort(box[:, 0].astype(np.int64) + box[:, 2], kind="stable")
    up = (box[:, 1].astype(np.int64) + box[:, 3])[across]
    border = _slices(len(box), level, options)
    column = np.repeat(np.arange(len(border) - 1), np.diff(border))
    order: NDArray[np.int64] = across[np.lexsort((up, column))]
    return order
