"""Check the arrays of a quadtree index that was read from disk, in time linear in their size.

Kernels do not check bounds. If `find_damage` finds nothing, every number that leads from one array
to another is in range, no walk is endless, and no two lists overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    ENTRY_WIDTH,
    PADDING,
    SIZE,
    START,
    TOKEN,
    find_damaged_list,
)
from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.quadtrees.cells import SOUTH_END, WEST_END
from nearcast.indexes.quadtrees.layout import (
    BRANCH,
    BY_TOKEN,
    CHILD,
    DOCUMENTS,
    FREED,
    LEVEL,
    LISTED,
    NODE_WIDTH,
    NODES,
    OWNER,
    OWNERS,
    RUN_CAPACITY,
    RUN_COUNT,
    RUN_START,
    RUN_WIDTH,
    SLOT_WIDTH,
    SLOTS,
    SOUTH,
    STATES,
    TOP,
    TREE,
    TRIE_LEVELS,
    WEST,
    QuadArrays,
    find_row,
    home,
    used_arrays,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AHEAD = 16


@kernel
def find_misplaced(slot: NDArray[np.int32]) -> Number:
    """Return the first slot whose row is not found there, or -1; some slot is free."""
    for at in range(len(slot)):
        owner, token = np.int64(slot[at, OWNER]) - 1, np.int64(slot[at, TOKEN])
        if owner >= 0 and find_row(slot, owner, token) != at:
            return at
    return np.int64(-1)


@kernel
def find_damaged_run(
    quad: QuadArrays, rows: NDArray[np.int64], taken: NDArray[np.bool_], seen: NDArray[np.bool_]
) -> Number:
    """Return the first owner whose tokens are not those of its rows, or -1.

    ``rows`` counts the rows of each owner. ``taken`` has an item for each one of ``listed``, and
    ``seen`` for each slot; both are false.
    """
    for owner in range(len(quad.run)):
        start, count = np.int64(quad.run[owner, RUN_START]), np.int64(quad.run[owner, RUN_COUNT])
        capacity = np.int64(quad.run[owner, RUN_CAPACITY])
        if count < 0 or count > capacity or count != (rows[owner] if owner > 0 else 0):
            return owner
        if start < 0 or start + capacity > len(taken):
            return owner
        for i in range(start, start + capacity):
            if taken[i]:
                return owner
            taken[i] = True
        for i in range(start, start + count):
            if i + _AHEAD < start + count:
                prefetch(quad.slot, home(quad.slot, owner, np.int64(quad.listed[i + _AHEAD])))
            at = find_row(quad.slot, owner, np.int64(quad.listed[i]))
            if quad.slot[at, OWNER] == 0 or seen[at]:
                return owner
            seen[at] = True
    return np.int64(-1)


@kernel
def find_deep_branch(
    parent: NDArray[np.int64], maximum: Number, depth: NDArray[np.int64]
) -> Number:
    """Return the first branch that is deeper than the maximum, or -1; parents come first."""
    for owner in range(1, len(parent)):
        depth[owner] = depth[parent[owner]] + 1
        if depth[owner] > maximum:
            return owner
    return np.int64(-1)


def find_damage(quad: QuadArrays, header: dict[int, int], clauses: int, depth: int) -> str | None:
    """Return what is wrong with the arrays, or nothing.

    Parameters
    ----------
    quad
        The arrays.
    header
        The header fields that ``state`` must have, for the options of the index.
    clauses, depth
        The number of clauses, and the last level of quadtrees.
    """
    problem = _check_sizes(quad, header)
    if problem:
        return problem
    quad = used_arrays(quad)
    return _check_slots(quad, depth) or _check_tree(quad, depth) or _check_lists(quad, clauses)


def _check_sizes(quad: QuadArrays, header: dict[int, int]) -> str | None:
    """Check that arrays have the right widths, and ``state`` does not count more than there is."""
    slot, node, run, listed, entry, state = quad
    widths = SLOT_WIDTH, NODE_WIDTH, RUN_WIDTH, ENTRY_WIDTH
    for name, array, width in zip(
        ("slot", "node", "run", "entry"), (slot, node, run, entry), widths, strict=True
    ):
        if array.ndim != 2 or array.shape[1] != width:
            return f"{name} has the shape {array.shape}, expected {width} columns"
    if listed.ndim != 1 or state.shape != (STATES,):
        return "listed or state has the wrong shape"
    if any(state[item] != value for item, value in header.items()):
        return "state does not fit the options"
    if (state[: FREED + 1] < 0).any() or state[DOCUMENTS] < 0:
        return "state has a negative count"
    if state[NODES] > len(node) or state[OWNERS] > len(run) or state[LISTED] > len(listed):
        return "state counts more nodes, owners or tokens than there are"
    if state[TOP] > len(entry) - PADDING:
        return "state counts more entries than entry has"
    if state[OWNERS] < 1 or (state[BY_TOKEN] and state[OWNERS] != state[NODES] + 1):
        return "run does not have one row per owner"
    return None


def _check_slots(quad: QuadArrays, depth: int) -> str | None:
    """Check the hash table, the tokens of owners, and that the trie has no cycles."""
    slot, state = quad.slot, quad.state
    used, owners = slot[:, OWNER] != 0, len(quad.run)
    if state[SLOTS] != np.count_nonzero(used) or state[SLOTS] >= len(slot):
        return "slot does not have as many rows as state counts, or is full"
    owner = slot[used, OWNER].astype(np.int64) - 1
    if len(owner) and (owner.min() < 0 or owner.max() >= owners):
        return "slot has an owner that does not exist"
    if slot[used, TOKEN].min(initial=0) < 0 or find_misplaced(slot) >= 0:
        return "slot has a row that cannot be found"
    rows = np.bincount(owner, minlength=owners)
    taken, seen = np.zeros(len(quad.listed), np.bool_), np.zeros(len(slot), np.bool_)
    damaged = find_damaged_run(quad, rows, taken, seen)
    if damaged >= 0:
        return f"run and listed do not have the tokens of owner {damaged}"
    branch = slot[used, BRANCH].astype(np.int64)
    if state[BY_TOKEN]:
        directory = slot[slot[:, OWNER] == 1]
        if branch.any() or directory[:, [SIZE, CAPACITY]].any():
            return "slot has a branch, or the directory has a list"
        levels = directory[:, START]
        if len(levels) and (levels.min() < 0 or levels.max() >= 1 << (depth + 1)):
            return "the directory has a level that does not exist"
        return None
    inner = branch != 0
    parent = np.zeros(owners, np.int64)
    if (branch[inner] <= owner[inner]).any() or branch.max(initial=0) >= owners:
        return "slot has a branch that does not exist, or leads back"
    if (np.bincount(branch[inner], minlength=owners)[1:] != 1).any():
        return "run has an owner that is not the branch of one node"
    parent[branch[inner]] = owner[inner]
    if find_deep_branch(parent, state[TRIE_LEVELS] - 1, np.zeros(owners, np.int64)) >= 0:
        return "slot has a branch that is too deep"
    return None


def _check_tree(quad: QuadArrays, depth: int) -> str | None:
    """Check that each quadtree node is a root, or the child of one node whose cell is above."""
    slot, node, count = quad.slot, quad.node.astype(np.int64), len(quad.node)
    if quad.state[BY_TOKEN]:
        root = np.zeros(1, np.int64)
    else:
        trees = (slot[:, OWNER] != 0) & (slot[:, CAPACITY] == TREE)
        root = slot[trees, START].astype(np.int64)
    inner = np.flatnonzero(node[:, CHILD] >= 0)
    first = node[inner, CHILD]
    named = np.concatenate([root, *(first + child for child in range(4))])
    if len(named) != count or (len(named) and (named.min() < 0 or named.max() >= count)):
        return "node has a child that does not exist, or a tree has no root"
    if (np.bincount(named, minlength=count) != 1).any():
        return "node has a child of two nodes"
    if (node[root][:, [WEST, SOUTH, LEVEL]] != [WEST_END, SOUTH_END, 0]).any():
        return "node has a root that is not the whole world"
    level = node[inner, LEVEL]
    if (level < 0).any() or (level >= depth).any():
        return "node has a level that does not exist"
    for child in range(4):
        below = node[first + child]
        west = node[inner, WEST] + (np.int64(child & 1) << (31 - level))
        south = node[inner, SOUTH] + (np.int64(child >> 1) << (30 - level))
        if not np.array_equal(
            below[:, [WEST, SOUTH, LEVEL]], np.stack([west, south, level + 1], 1)
        ):
            return "node has a child whose cell is not a quarter of its own"
    if (node[:, CHILD] == -1).any():
        return "node has a leaf that may hold no clauses"
    return None


def _check_lists(quad: QuadArrays, clauses: int) -> str | None:
    """Check that all lists lie within the pool, apart, and hold clauses that exist."""
    slot, node, state = quad.slot, quad.node, quad.state
    used = slot[:, OWNER] != 0
    if slot[used, CAPACITY].min(initial=0) < (0 if state[BY_TOKEN] else TREE):
        return "slot has a list of negative capacity"
    if state[BY_TOKEN]:
        lists = slot[used & (slot[:, OWNER] > 1)]
        size = np.bincount(lists[:, OWNER] - 2, lists[:, SIZE], len(node))
        if node[:, [START, CAPACITY]].any() or (node[:, SIZE] != size).any():
            return "node does not have the size of its lists"
    elif node[:, CAPACITY].min(initial=0) < 0:
        return "node has a list of negative capacity"
    taken = np.zeros(int(state[TOP]), np.bool_)
    nodes = np.full(len(node), not state[BY_TOKEN])
    for name, rows, which in (("slot", slot, used), ("node", node, nodes)):
        at = find_damaged_list(rows, which, quad.entry, clauses, taken)
        if at >= 0:
            return f"the list of {name} {at} leads out of entry, or to an unknown clause"
    return None
