"""Check the arrays of a pt-quadtree that were read from disk.

Kernels do not check bounds. These checks make sure that matching and updating stay inside the
arrays and end: the nodes are a tree of limited depth, every table has a free slot and finds its
tokens, lists do not overlap, and the sets of inner nodes have exactly the tokens of the lists below
them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import starts
from nearcast.compiled.jit import Number, bit_count, kernel
from nearcast.compiled.token_lists import CAPACITY_BITS, CAPACITY_MASK
from nearcast.compiled.token_table import BITS32, LOW32, NO_TOKEN, Tables, find_slot
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST_SLOT
from nearcast.indexes.damage import require
from nearcast.indexes.pt_quadtree.layout import (
    CLAUSE,
    CLAUSES,
    EAST,
    ENTRIES,
    ENTRY_WIDTH,
    FIRST_CHILD,
    FREED,
    LIST_SIZE,
    MAX_DEPTH,
    NODE_WIDTH,
    NODES,
    NORTH,
    PARENT,
    PUSH_ALL,
    PUSHES,
    REMOVED,
    SIZE,
    SOUTH,
    STATE_WIDTH,
    WEST,
    Header,
    Quadtree,
    lowest_set,
    parent_set,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses

_require = partial(require, "pt-quadtree")


class Lists(NamedTuple):
    """All lists: the node of each, and its start, size and capacity, all int64[lists]."""

    node: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    capacity: NDArray[np.int64]


def check_quadtree(
    tree: Quadtree,
    header: Header,
    clauses: Clauses,
    tokens: NDArray[np.int32],
    alive: NDArray[np.bool_],
) -> None:
    """Raise `StorageError` unless the tree is sound and lists live clauses only."""
    _require(alive.shape == (clauses.subscriptions,), "alive must have one value per subscription")
    live = alive[clauses.row]
    _require(tokens.shape == clauses.token.shape, "token must have one value per token of clauses")
    _require(((tokens >= 0) & (tokens < NO_TOKEN)).all(), "token has an id that is out of range")
    _check_shapes(tree, len(clauses))
    _check_state(tree, header, len(clauses), int(live.sum()))
    _check_nodes(tree.node[: int(tree.state[NODES])], header)
    lists = _check_tables(tree)
    _check_entries(tree, lists, live)


def _check_shapes(tree: Quadtree, clauses: int) -> None:
    arrays: dict[str, tuple[NDArray[Any], int]] = {
        "node": (tree.node, NODE_WIDTH),
        "entry": (tree.entry, ENTRY_WIDTH),
        "sets.slot": (tree.sets.slot, 2),
        "sets.table": (tree.sets.table, 3),
        "lists.slot": (tree.lists.slot, 2),
        "lists.table": (tree.lists.table, 3),
    }
    for name, (array, width) in arrays.items():
        shape = (len(array), width)
        _require(array.shape == shape, f"{name} must have the shape {shape}, got {array.shape}")
    for name in ("sets", "lists"):
        rows = len(getattr(tree, name).table)
        _require(rows == len(tree.node), f"{name}.table must have one row per node")
    _require(tree.state.shape == (STATE_WIDTH,), f"state must have {STATE_WIDTH} values")
    labels = len(tree.clause_label)
    _require(labels >= clauses or not labels, "labels must be those of all clauses")
    ranks = len(tree.entry) if labels else 0
    _require(tree.entry_rank.shape == (ranks,), f"entry_rank must have {ranks} values")


def _check_state(tree: Quadtree, header: Header, clauses: int, live: int) -> None:
    state = tree.state.tolist()
    bounds = {
        "nodes": (state[NODES], 1, len(tree.node)),
        "entries": (state[ENTRIES], 0, len(tree.entry)),
        "freed entries": (state[FREED], 0, state[ENTRIES]),
        "list size": (state[LIST_SIZE], header.list_size, header.list_size),
        "depth": (state[MAX_DEPTH], header.max_depth, header.max_depth),
        "push": (state[PUSH_ALL], int(header.push_all), int(header.push_all)),
        "clauses": (state[CLAUSES], live, live),
        "removed": (state[REMOVED], 0, clauses),
    }
    for name, (value, minimum, maximum) in bounds.items():
        expectation = f"state: {name} must be from {minimum} to {maximum}, got {value}"
        _require(minimum <= value <= maximum, expectation)


def _check_nodes(node: NDArray[np.int32], header: Header) -> None:
    """Check that nodes are a tree, and that children divide the region of their parent."""
    first, parent = node[:, FIRST_CHILD].astype(np.int64), node[:, PARENT].astype(np.int64)
    inner = np.flatnonzero(first != -1)
    children = first[inner]
    inside = (children > inner) & (children <= len(node) - 4)
    _require(inside.all() and parent[0] == -1, "node has a child that is out of range")
    expected = np.full(len(node), -1, np.int64)
    for i in range(4):
        expected[children + i] = inner
    _require(
        4 * len(inner) == len(node) - 1 and (parent == expected).all(),
        "node has children that belong to two nodes, or to none",
    )
    _require(np.isin(node[inner, PUSHES], (0, 1)).all(), "node has a push flag that is not 0 or 1")
    level, depth = np.zeros(1, np.int64), 0
    while len(level):
        _require(depth <= header.max_depth, f"node is deeper than {header.max_depth}")
        below = first[level]
        level = (below[below >= 0][:, None] + np.arange(4)).ravel()
        depth += 1
    region = node[:, :4].astype(np.int64)
    west, south, east, north = region[inner].T
    x, y = west + ((east - west - 1) >> 1), south + ((north - south - 1) >> 1)
    parts = [(west, south, x, y), (x + 1, south, east, y), (west, y + 1, x, north)]
    for i, part in enumerate([*parts, (x + 1, y + 1, east, north)]):
        _require((region[children + i] == np.stack(part, axis=1)).all(), "node has a wrong region")
    ordered = (region[:, WEST] <= region[:, EAST]) & (region[:, SOUTH] <= region[:, NORTH])
    _require(ordered.all(), "node has a region without area")


def _check_tables(tree: Quadtree) -> Lists:
    """Check both tables, and that sets have the tokens of lists; return the lists."""
    nodes = int(tree.state[NODES])
    _used_slots("sets", tree.sets, nodes)
    slot, owner = _used_slots("lists", tree.lists, nodes)
    leaves = tree.node[:nodes, FIRST_CHILD] < 0
    _require((tree.sets.table[:nodes, SLOTS][leaves] == 0).all(), "sets has tokens of a leaf")
    _require(sets_have_tokens(tree), "sets must have exactly the tokens of the lists below")
    key, word = tree.lists.slot[slot].T
    start = (word >> CAPACITY_BITS).astype(np.int64)
    capacity = (word & CAPACITY_MASK).astype(np.int64)
    return Lists(owner, start, (key >> BITS32).astype(np.int64), capacity)


def _used_slots(name: str, tables: Tables, nodes: int) -> tuple[NDArray[np.int64], ...]:
    """Check the regions of tables; return all slots in use, and the node of each."""
    top = int(tables.top[0])
    first, slots, count = tables.table[:nodes].T
    inside = (first >= 0) & (slots >= 0) & (first <= top) & (slots <= top - first)
    _require(top <= len(tables.slot) and inside.all(), f"{name}.table has a region out of range")
    owner = np.flatnonzero(slots)
    owner = owner[np.argsort(first[owner], kind="stable")]
    apart = (first + slots)[owner][:-1] <= first[owner][1:]
    _require(apart.all(), f"{name}.table has a region that overlaps another")
    length = slots[owner]
    begin = starts(length)
    slot = np.arange(begin[-1]) + np.repeat(first[owner] - begin[:-1], length)
    used = (tables.slot[slot, 0] & LOW32) != 0
    owner_of_slot = np.repeat(owner, length)[used]
    counted = np.bincount(owner_of_slot, minlength=nodes)
    full = (count >= slots) & (slots > 0)
    _require((counted == count).all() and not full.any(), f"{name}.table has a wrong count")
    return slot[used], owner_of_slot


def _check_entries(tree: Quadtree, lists: Lists, live: NDArray[np.bool_]) -> None:
    """Check that lists are in range and apart, and their clauses live and ranked by label."""
    nodes, entries = int(tree.state[NODES]), int(tree.state[ENTRIES])
    inside = (lists.size > 0) & (lists.size <= lists.capacity)
    inside &= lists.start + lists.capacity <= entries
    _require(inside.all(), "lists has a list that is out of range")
    order = np.argsort(lists.start, kind="stable")
    apart = (lists.start + lists.capacity)[order][:-1] <= lists.start[order][1:]
    _require(apart.all(), "lists has a list that overlaps another")
    used = entries - int(tree.state[FREED])
    _require(lists.capacity.sum() == used, f"lists must take {used} entries")
    size = np.bincount(lists.node, weights=lists.size, minlength=nodes)
    _require((size == tree.node[:nodes, SIZE]).all(), "node has another size than its lists")
    begin = starts(lists.size)
    place = np.arange(begin[-1]) + np.repeat(lists.start - begin[:-1], lists.size)
    clause = tree.entry[place, CLAUSE]
    in_range = (clause >= 0) & (clause < len(live))
    _require(in_range.all() and live[clause].all(), "entry has a clause out of range or dead")
    if len(tree.clause_label):
        rank = tree.clause_label[clause] >> 32
        _require((tree.entry_rank[place] == rank).all(), "entry_rank must follow the labels")


@kernel
def sets_have_tokens(tree: Quadtree) -> Number:
    """Tell whether sets have exactly the tokens of lists, and lookups find all slots in use."""
    backed, bits = np.int64(0), np.int64(0)
    for at in range(tree.state[NODES]):
        first = tree.lists.table[at, FIRST_SLOT]
        for slot in range(first, first + tree.lists.table[at, SLOTS]):
            token = np.int64(tree.lists.slot[slot, 0] & LOW32) - 1
            if token >= 0:
                holder, bit = lowest_set(tree.node, at)
                if find_slot(tree.lists, at, token) != slot or not has_bit(
                    tree.sets, holder, token, bit
                ):
                    return False
                backed += np.int64(holder >= 0)
        first = tree.sets.table[at, FIRST_SLOT]
        for slot in range(first, first + tree.sets.table[at, SLOTS]):
            token = np.int64(tree.sets.slot[slot, 0] & LOW32) - 1
            if token >= 0:
                holder, bit = parent_set(tree.node, at)
                word = tree.sets.slot[slot, 1]
                if word == np.uint64(0) or word > np.uint64(31):
                    return False
                if find_slot(tree.sets, at, token) != slot or not has_bit(
                    tree.sets, holder, token, bit
                ):
                    return False
                bits += bit_count(word)
                backed += np.int64(holder >= 0)
    # Each backed bit was seen once: if there are no more bits than that, none is without a list.
    return bits == backed


@kernel
def has_bit(sets: Tables, holder: Number, token: Number, bit: Number) -> Number:
    """Tell whether the set of a node, if there is one, has a token with this bit."""
    if holder < 0:
        return True
    slot = find_slot(sets, holder, token)
    return slot >= 0 and (sets.slot[slot, 1] & bit) != np.uint64(0)
