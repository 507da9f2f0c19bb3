"""Check the arrays of a stored R-tree.

Kernels do not check bounds. A folder from elsewhere may hold children that lead out of the arrays
or in circles, or tables without a free slot, in which a search never ends. `check_tree` checks the
geometry alone, `check_tables` what nodes know about tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, bit_count, kernel
from nearcast.compiled.token_lists import list_capacity, list_count, list_start
from nearcast.compiled.token_table import COUNT, LOW32, NO_TOKEN, SIZE, START, Tables
from nearcast.indexes.damage import require
from nearcast.indexes.rtree.nodes import FAR, FREE, MARKED, NODES, ROOT, ROOT_CHANGED, RTree, bit
from nearcast.indexes.rtree.tokens import TOKEN_LISTS, IndexArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.rtree.build import TreeOptions

__all__ = [
    "check_keys",
    "check_pool",
    "check_pool_content",
    "check_tables",
    "check_tree",
    "check_trees",
]


def check_tree(name: str, tree: RTree, options: TreeOptions, present: NDArray[np.bool_]) -> None:
    """Raise `StorageError` unless a tree is sound and its leaves hold exactly the present items.

    Parameters
    ----------
    name
        The name of the index, for the message.
    tree, options
        The tree, and the node size that it was built with.
    present
        Whether each item is in the tree.
    """
    check_trees(name, tree, tree.state[ROOT : ROOT + 1], options, present)


def check_trees(
    name: str,
    tree: RTree,
    root: NDArray[np.int64],
    options: TreeOptions,
    present: NDArray[np.bool_],
) -> None:
    """Do the same for several trees in the same arrays, given by their roots."""
    nodes, most = len(tree.used), options.most
    shapes = {
        "box": (nodes, 4, most),
        "entry": (nodes, most),
        "key": (nodes, most),
        "used": (nodes,),
        "level": (nodes,),
        "parent": (nodes,),
        "place": (nodes,),
        "leaf_of": (len(present),),
        "state": (5,),
    }
    for field, shape in shapes.items():
        found = getattr(tree, field).shape
        require(name, found == shape, f"tree.{field}", f"has the shape {found}, expected {shape}")
    top, free = (int(tree.state[field]) for field in (NODES, FREE))
    fits = bool(((root >= 0) & (root < nodes)).all()) and top == nodes and -1 <= free < nodes
    fits = fits and tree.state[ROOT_CHANGED] == tree.state[MARKED] == 0
    require(name, fits, "tree.state", "names nodes that do not exist")
    _check_free_nodes(name, tree, free)
    seen, is_root = np.zeros(len(present), np.bool_), np.zeros(nodes, np.bool_)
    is_root[root] = True
    fits = int(is_root.sum()) == len(root) and not (tree.level[root] < 0).any()
    require(name, fits, "tree.state", "has a root that is free, or twice")
    wrong = int(find_wrong_node(tree, is_root, options.least, seen))
    require(name, wrong < 0, f"node {wrong} of the tree", "has wrong entries or a wrong parent")
    fits = np.array_equal(seen, present) and np.array_equal(tree.leaf_of >= 0, present)
    require(name, fits, "tree.leaf_of", "does not agree with the leaves")


def _check_free_nodes(name: str, tree: RTree, first: int) -> None:
    """Raise unless the list of free nodes leads from free node to free node, and ends."""
    free = np.flatnonzero(tree.level < 0)
    # Every free node follows exactly one other one, or is the first, so the list has no circle.
    following = np.sort(np.append(tree.parent[free], first))
    fits = np.array_equal(following, np.append(-1, free)) and not tree.used[free].any()
    require(name, fits, "tree.parent", "has a wrong list of free nodes")


@kernel
def find_wrong_node(
    tree: RTree, is_root: NDArray[np.bool_], min_entries: Number, seen: NDArray[np.bool_]
) -> Number:
    """Return the first node whose entries, boxes or parent cannot be right, or -1.

    Marks the items of all leaves in ``seen``.
    """
    nodes, most = tree.entry.shape
    for node in range(nodes):
        level, used = np.int64(tree.level[node]), tree.used[node]
        if level < 0:
            continue
        if is_root[node]:
            enough = level == 0 or bit_count(used) >= 2
            linked = tree.parent[node] == -1
        else:
            enough = bit_count(used) >= min_entries
            linked = is_child(tree, node)
        if not enough or not linked or (most < 64 and used >> np.uint64(most) != np.uint64(0)):
            return np.int64(node)
        for slot in range(most):
            if used & bit(slot) == np.uint64(0):
                fits = tree.box[node, 0, slot] == FAR
            elif level == 0:
                fits = is_item(tree, node, tree.entry[node, slot], seen)
            else:
                fits = is_parent(tree, node, slot)
            if not fits:
                return np.int64(node)
    return np.int64(-1)


@kernel
def is_child(tree: RTree, node: Number) -> Number:
    """Tell whether the parent of a node exists and has the node in the right slot."""
    parent, slot = tree.parent[node], tree.place[node]
    return (
        0 <= parent < len(tree.used)
        and 0 <= slot < tree.entry.shape[1]
        and tree.used[parent] & bit(slot) != np.uint64(0)
        and tree.entry[parent, slot] == node
        and np.int64(tree.level[parent]) == np.int64(tree.level[node]) + 1
    )


@kernel
def is_parent(tree: RTree, node: Number, slot: Number) -> Number:
    """Tell whether the child in a slot exists and knows its parent."""
    child = tree.entry[node, slot]
    return (
        0 <= child < len(tree.used)
        and tree.parent[child] == node
        and tree.place[child] == slot
        and np.int64(tree.level[child]) == np.int64(tree.level[node]) - 1
        and tree.level[child] >= 0
    )


@kernel
def is_item(tree: RTree, leaf: Number, item: Number, seen: NDArray[np.bool_]) -> Number:
    """Tell whether an item exists, knows its leaf and was not seen yet; mark it as seen."""
    if not 0 <= item < len(seen) or tree.leaf_of[item] != leaf or seen[item]:
        return False
    seen[item] = True
    return True


def check_tables(name: str, index: IndexArrays, kind: int) -> None:
    """Raise `StorageError` unless what nodes know about tokens is sound; the tree is, already."""
    tree, tables, postings, ordered = index
    check_pool(name, tables, len(tree.used))
    require(name, postings.posting.ndim == 1, "posting", "is not a list of clauses")
    tokens = ordered.token
    fits = tokens.shape == (int(ordered.start[-1]),)
    require(name, fits, "token", f"has the shape {tokens.shape}, expected {ordered.start[-1]}")
    fits = not len(tokens) or 0 <= tokens.min() <= tokens.max() < NO_TOKEN
    require(name, fits, "token", f"has ids that are negative or not below {NO_TOKEN:,}")
    check_pool_content(name, index, kind)
    first = np.full(len(ordered.start) - 1, NO_TOKEN, np.int32)
    some = ordered.start[1:] > ordered.start[:-1]
    first[some] = tokens[ordered.start[:-1][some]]
    check_keys(name, tree, first)


def check_pool_content(name: str, index: IndexArrays, kind: int) -> None:
    """Raise unless tables have free slots and as many tokens as they say, and lists are sound."""
    wrong = int(find_wrong_table(index, kind))
    require(name, wrong < 0, f"the table of node {wrong}", "has wrong slots or lists")


def check_keys(name: str, tree: RTree, expected: NDArray[np.int32]) -> None:
    """Raise unless the items of leaves have these keys."""
    slot = np.arange(tree.key.shape[1], dtype=np.uint64)
    leaf = np.flatnonzero(tree.level == 0)
    used = (tree.used[leaf, None] >> slot) & np.uint64(1) != 0
    fits = np.array_equal(tree.key[leaf][used], expected[tree.entry[leaf][used]])
    require(name, fits, "tree.key", "does not agree with the subscriptions")


def check_pool(name: str, tables: Tables, owners: int) -> None:
    """Raise unless a pool has this number of tables, and they lie side by side in it."""
    slots = len(tables.slot)
    fits = tables.table.shape == (owners, 3) and tables.slot.shape == (slots, 2)
    require(name, fits, "table or slot", f"has a wrong shape, expected {owners} tables")
    start, size = tables.table[:, START], tables.table[:, SIZE]
    fits = bool(((size >= 0) & (size <= slots)).all())
    start, size = start[size > 0], size[size > 0]
    fits = fits and bool(((start >= 0) & (start <= slots - size)).all())
    order = np.argsort(start)
    fits = fits and bool((start[order][1:] >= (start + size)[order][:-1]).all())
    require(name, fits, "table", "has tables that overlap or lie outside the slots")


@kernel
def find_wrong_table(index: IndexArrays, kind: Number) -> Number:
    """Return the first node whose table or lists cannot be right, or -1.

    A table must have a free slot, where a search ends, and as many tokens as it says.
    """
    tree, tables, postings, _ = index
    space = np.int64(len(postings.posting))
    for node in range(len(tree.used)):
        start, size = tables.table[node, START], tables.table[node, SIZE]
        has_lists, count = kind == TOKEN_LISTS and tree.level[node] > 0, np.int64(0)
        for at in range(start, start + size):
            if tables.slot[at, 0] & LOW32 != np.uint64(0):
                count += 1
                if has_lists:
                    space -= list_capacity(tables, at)
                    if space < 0 or not is_list(index, at):
                        return np.int64(node)
            elif tables.slot[at, 0] != np.uint64(0):
                return np.int64(node)
        if count != tables.table[node, COUNT] or count > max(size - 1, 0):
            return np.int64(node)
    return np.int64(-1)


@kernel
def is_list(index: IndexArrays, at: Number) -> Number:
    """Tell whether the list of a slot lies inside the pool and holds clauses of the tree."""
    tables, posting = index.tables, index.postings.posting
    start, count, capacity = (
        list_start(tables, at),
        list_count(tables, at),
        list_capacity(tables, at),
    )
    if not 0 < count <= capacity or start > len(posting) - capacity:
        return False
    for i in range(start, start + count):
        clause = np.int64(posting[i])
        clause = clause if clause >= 0 else ~clause
        if clause >= len(index.tree.leaf_of) or index.tree.leaf_of[clause] < 0:
            return False
    return True
