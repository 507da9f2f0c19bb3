"""Check the arrays of stored ranked trees, see `check`.

Bounds and limits may be any numbers: wrong ones lose matches, but lead no kernel out of its arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_lists import list_capacity, list_count, list_start
from nearcast.compiled.token_table import COUNT, LOW32, SIZE, START, Tables
from nearcast.indexes.damage import require
from nearcast.indexes.rtree.check import check_keys, check_pool, check_pool_content, check_trees
from nearcast.indexes.rtree.ranked_keys import Keys, signatures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses
    from nearcast.compiled.scoring import RankedColumns, ScoringCodes
    from nearcast.indexes.rtree.build import TreeOptions
    from nearcast.indexes.rtree.nodes import RTree
    from nearcast.indexes.rtree.ranked_lists import ListArrays, ListPool
    from nearcast.indexes.rtree.tokens import IndexArrays

__all__ = [
    "check_forest",
    "check_list_arrays",
    "check_shape",
    "check_signatures",
    "check_token_tables",
]


def check_shape(name: str, field: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise `StorageError` unless an array has this shape."""
    require(name, array.shape == shape, field, f"has the shape {array.shape}, expected {shape}")


def check_forest(
    name: str,
    tree: RTree,
    root: NDArray[np.int64],
    options: TreeOptions,
    alive: NDArray[np.bool_],
    row: NDArray[np.int32],
    tree_of: NDArray[np.int64],
) -> None:
    """Raise `StorageError` unless trees are sound and every clause is in the tree of its row."""
    check_shape(name, "alive", alive, (int(row[-1]) + 1 if len(row) else 0,))
    check_trees(name, tree, root, options, alive[row])
    check_keys(name, tree, row)
    owner = np.empty(len(tree.used), np.int64)
    name_trees(tree, root, owner)
    inside = tree.leaf_of >= 0
    fits = np.array_equal(owner[tree.leaf_of[inside]], tree_of[inside])
    require(name, fits, "tree.entry", "has subscriptions in a wrong tree")


@kernel
def name_trees(tree: RTree, root: NDArray[np.int64], owner: NDArray[np.int64]) -> None:
    """Write the number of the tree of every node, -1 for free ones; the trees are sound."""
    for node in range(len(owner)):
        owner[node] = -1
        if tree.level[node] >= 0:
            top = np.int64(node)
            while tree.parent[top] >= 0:
                top = np.int64(tree.parent[top])
            for number in range(len(root)):
                if root[number] == top:
                    owner[node] = number


def check_token_tables(name: str, index: IndexArrays, kind: int) -> None:
    """Raise `StorageError` unless token sets and files are sound; the trees are, already."""
    check_pool(name, index.tables, len(index.tree.used))
    check_pool_content(name, index, kind)


def check_signatures(
    name: str, keys: Keys, codes: ScoringCodes, rows: RankedColumns, clauses: Clauses
) -> None:
    """Raise `StorageError` unless signatures are those of the subscriptions."""
    expected = signatures(codes, rows, clauses)
    fits = all(np.array_equal(getattr(keys, n), getattr(expected, n)) for n in Keys._fields)
    require(name, fits, "key", "does not agree with the subscriptions")


def check_list_arrays(name: str, index: ListArrays, sides: int) -> None:
    """Raise `StorageError` unless lists and files are sound; the tree and the keys are, already."""
    tree, lists = index.tree, index.lists
    nodes, most = tree.entry.shape
    check_shape(name, "limit", index.limit, (nodes, most))
    check_shape(name, "node_limit", index.node_limit, (nodes,))
    postings = len(lists.clause)
    check_shape(name, "list.clause", lists.clause, (postings,))
    check_shape(name, "list.limit", lists.limit, (postings,))
    check_shape(name, "list.place", lists.place, (postings, sides))
    check_shape(name, "far.clause", index.far_lists.clause, (len(index.far_lists.clause),))
    check_pool(name, index.tables, nodes)
    check_pool(name, index.far_tables, 1)
    inner = tree.level > 0
    wrong = int(find_wrong_list(tree, index.tables, lists, inner, False))
    require(name, wrong < 0, f"the table of node {wrong}", "has wrong slots or lists")
    whole = np.ones(1, np.bool_)
    wrong = int(find_wrong_list(tree, index.far_tables, index.far_lists, whole, True))
    require(name, wrong < 0, "far.table", "has wrong slots or lists")


@kernel
def find_wrong_list(
    tree: RTree,
    tables: Tables,
    lists: ListPool,
    has_lists: NDArray[np.bool_],
    inverted: Number,
) -> Number:
    """Return the first owner whose table or lists cannot be right, or -1.

    A table must have a free slot, where a search ends, and as many tokens as it says. Lists may
    have inverted clauses if ``inverted`` is true.
    """
    space = np.int64(len(lists.clause))
    for owner in range(len(tables.table)):
        start, size = tables.table[owner, START], tables.table[owner, SIZE]
        count = np.int64(0)
        for at in range(start, start + size):
            if tables.slot[at, 0] & LOW32 != np.uint64(0):
                count += 1
                if has_lists[owner]:
                    space -= list_capacity(tables, at)
                    if space < 0 or not has_clauses(tree, tables, lists, at, inverted):
                        return np.int64(owner)
            elif tables.slot[at, 0] != np.uint64(0):
                return np.int64(owner)
        if count != tables.table[owner, COUNT] or count > max(size - 1, 0):
            return np.int64(owner)
    return np.int64(-1)


@kernel
def has_clauses(
    tree: RTree, tables: Tables, lists: ListPool, at: Number, inverted: Number
) -> Number:
    """Tell whether the list of a slot lies inside the pool and holds clauses of the tree."""
    start, count = list_start(tables, at), list_count(tables, at)
    capacity = list_capacity(tables, at)
    if not 0 < count <= capacity or start > len(lists.clause) - capacity:
        return False
    for i in range(start, start + count):
        clause = np.int64(lists.clause[i])
        clause = ~clause if clause < 0 and inverted else clause
        if not 0 <= clause < len(tree.leaf_of) or tree.leaf_of[clause] < 0:
            return False
    return True
