"""The arrays of a pt-quadtree: how they are made and enlarged, and questions asked of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import WORLD, read_only
from nearcast.compiled.clauses import Ordered, length_of, token_at
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_lists import list_capacity, list_count, list_start, place_list
from nearcast.compiled.token_table import (
    LOW32,
    NO_TOKEN,
    Tables,
    claim_slot,
    find_slot,
    move_tables,
    remove_slot,
)
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST_SLOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

WEST, SOUTH, EAST, NORTH, FIRST_CHILD, PARENT, SIZE = range(7)
SPLIT_ABOVE = PUSHES = 7
"""Columns of ``node``; the last one has a name for leaves and one for inner nodes."""

CLAUSE, OTHER_TOKENS, ENTRY_WIDTH = 4, 5, 8
"""Columns of ``entry`` after the box: the clause, the first other token, and the end."""

NODES, ENTRIES, FREED, LIST_SIZE, MAX_DEPTH, PUSH_ALL, CLAUSES, REMOVED = range(8)
"""Fields of ``state``: nodes and entries in use, entries freed among these, the header, how many
clauses there are, and how many were removed since the tree was built."""

NODE_WIDTH, STATE_WIDTH = 8, 8

UNSPLITTABLE = np.int64(0x7FFFFFFF)
"""The split size of a leaf at the maximum depth."""

OWN_LISTS = np.uint64(16)
ALL_CHILDREN = np.uint64(15)
"""Bits of a token in ``sets``."""

STACK = 128
"""The capacity of a stack of nodes: a walk adds three per level, in at most 21 levels."""


class Quadtree(NamedTuple):
    """The arrays of the index. Node 0 is the root; children have higher numbers than parents.

    - ``node`` int32[nodes, 8]: west, south, east and north of the region; the first of four
      adjacent children (-1 for a leaf); the parent (-1 for the root); the clauses in the node's
      lists; and, for a leaf, the size above which to try splitting it, for an inner node, whether
      clauses across its children are pushed down to the leaves (1) or listed here (0).
    - ``sets``: for inner nodes, a table of the pivotal tokens at and below the node, each with a
      bit for every child that has it and one (`OWN_LISTS`) for the node's own lists.
    - ``lists``: a table of the pivotal tokens of the node's own lists
      (`nearcast.compiled.token_lists`). The labels in a list ascend.
    - ``entry`` int32[m, 8]: the pool of lists: the box of a clause, its number, and three of its
      other tokens, rarest first. `NO_TOKEN` pads fewer tokens; the last one is inverted if there
      are more.
    - ``entry_rank`` int32[m]: the upper half of the label of an entry's clause; empty if clauses
      have no labels.
    - ``clause_label`` int64[clauses]: the labels by which lists are ordered. If it is empty, the
      number of a clause is its label.
    - ``state`` int64[8]: see `NODES` and the following.
    """

    node: NDArray[np.int32]
    sets: Tables
    lists: Tables
    entry: NDArray[np.int32]
    entry_rank: NDArray[np.int32]
    clause_label: NDArray[np.int64]
    state: NDArray[np.int64]


class Header(NamedTuple):
    """When leaves are split, and whether all inner nodes push clauses down."""

    list_size: int
    max_depth: int
    push_all: bool


def region_around(box: NDArray[np.int32], depth: int) -> NDArray[np.int32]:
    """Return the region around boxes, large enough to be split ``depth`` times."""
    if not len(box):
        box = np.zeros((1, 4), np.int32)
    low, high = box[:, :2].min(axis=0).astype(np.int64), box[:, 2:].max(axis=0).astype(np.int64)
    high = np.maximum(high, low + (1 << depth))
    excess = np.maximum(high - np.iinfo(np.int32).max, 0)
    return np.concatenate([low - excess, high - excess]).astype(np.int32)


def enlarged_region(region: NDArray[np.int32], box: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return a region around another and boxes, half as large again on every side.

    So it grows only a few times before it is the world.
    """
    low = np.minimum(region[:2], box[:, :2].min(axis=0)).astype(np.int64)
    high = np.maximum(region[2:], box[:, 2:].max(axis=0)).astype(np.int64)
    margin = (high - low + 1) // 2
    wider_low = np.minimum(low, np.maximum(low - margin, WORLD[:2]))
    wider_high = np.maximum(high, np.minimum(high + margin, WORLD[2:]))
    return np.concatenate([wider_low, wider_high]).astype(np.int32)


def empty_tree(
    region: NDArray[np.int32], header: Header, clauses: int, clause_label: NDArray[np.int64] | None
) -> Quadtree:
    """Return a leaf without clauses, with ample capacity: untouched memory costs nothing."""
    nodes = 64 + 4 * clauses // header.list_size
    node = np.zeros((nodes, NODE_WIDTH), np.int32)
    node[0] = *region.tolist(), -1, -1, 0, header.list_size
    state = np.zeros(STATE_WIDTH, np.int64)
    state[[NODES, LIST_SIZE, MAX_DEPTH, PUSH_ALL]] = 1, *header
    entry = np.empty((16 + clauses + clauses // 4, ENTRY_WIDTH), np.int32)
    tables = _empty_tables(nodes, clauses), _empty_tables(nodes, clauses)
    rank = np.empty(0 if clause_label is None else len(entry), np.int32)
    label = np.empty(0, np.int64) if clause_label is None else clause_label
    return Quadtree(node, *tables, entry, rank, label, state)


def _empty_tables(owners: int, tokens: int) -> Tables:
    slot = np.empty((64 + tokens, 2), np.uint64)
    return Tables(slot, np.zeros((owners, 3), np.int64), np.zeros(1, np.int64))


def compacted_tables(tables: Tables, more: int) -> Tables:
    """Return the tables without gaps; if ``more`` slots are needed, with capacity for those."""
    used = int(tables.table[:, SLOTS].sum())
    slot = np.empty((used + (more + used // 2 if more else 0), 2), np.uint64)
    move_tables(tables, slot)
    return tables._replace(slot=slot)


def stored_tables(tables: Tables, nodes: int) -> dict[str, NDArray[Any]]:
    """Return the part of tables that is in use, to be stored."""
    return {"slot": tables.slot[: int(tables.top[0])], "table": tables.table[:nodes]}


def loaded_tables(arrays: Mapping[str, NDArray[Any]]) -> Tables:
    """Make tables from what was stored."""
    slot = read_only(arrays["slot"], np.uint64)
    return Tables(slot, read_only(arrays["table"], np.int64), read_only([len(slot)], np.int64))


def with_nodes(tree: Quadtree, count: int) -> Quadtree:
    """Return the tree with capacity for ``count`` nodes."""

    def enlarged(array: NDArray[Any]) -> NDArray[Any]:
        larger = np.zeros((count, array.shape[1]), array.dtype)
        larger[: len(array)] = array
        return larger

    sets, lists = tree.sets, tree.lists
    return tree._replace(
        node=enlarged(tree.node),
        sets=sets._replace(table=enlarged(sets.table)),
        lists=lists._replace(table=enlarged(lists.table)),
    )


def with_entries(tree: Quadtree, more: int) -> Quadtree:
    """Return the tree with capacity for ``more`` entries, its lists without gaps between them."""
    used = int(tree.state[ENTRIES] - tree.state[FREED])
    entry = np.empty((64 + more + used + used // 2, ENTRY_WIDTH), np.int32)
    rank = np.empty(len(entry) if len(tree.clause_label) else 0, np.int32)
    move_lists(tree, entry, rank)
    return tree._replace(entry=entry, entry_rank=rank)


@kernel
def move_lists(tree: Quadtree, entry: NDArray[np.int32], rank: NDArray[np.int32]) -> None:
    """Copy all lists, node by node, into another pool; freed entries are left behind."""
    end = np.int64(0)
    for at in range(tree.state[NODES]):
        first, slots = tree.lists.table[at, FIRST_SLOT], tree.lists.table[at, SLOTS]
        for slot in range(first, first + slots):
            if (tree.lists.slot[slot, 0] & LOW32) != np.uint64(0):
                start, capacity = list_start(tree.lists, slot), list_capacity(tree.lists, slot)
                for i in range(list_count(tree.lists, slot)):
                    for column in range(ENTRY_WIDTH):
                        entry[end + i, column] = tree.entry[start + i, column]
                    if len(rank) > 0:
                        rank[end + i] = tree.entry_rank[start + i]
                place_list(tree.lists, slot, end, capacity)
                end += capacity
    tree.state[ENTRIES], tree.state[FREED] = end, 0


@kernel
def split_position(node: NDArray[np.int32], at: Number, side: Number) -> Number:
    """Return the last unit of a node's western (side 0) or southern (side 1) children."""
    low = np.int64(node[at, side])
    return low + ((np.int64(node[at, side + 2]) - low - 1) >> 1)


@kernel
def overlapped_children(node: NDArray[np.int32], at: Number, box: NDArray[np.int32]) -> Number:
    """Return a bit for every child that a box overlaps; the box overlaps the node."""
    x, y = split_position(node, at, 0), split_position(node, at, 1)
    across, overlapped = 0, 0
    if box[0] <= x:
        across |= 1
    if box[2] > x:
        across |= 2
    if box[1] <= y:
        overlapped |= across
    if box[3] > y:
        overlapped |= across << 2
    return np.int64(overlapped)


@kernel
def stays_at_node(
    node: NDArray[np.int32], at: Number, box: NDArray[np.int32], overlapped: Number, pushes: Number
) -> Number:
    """Tell whether a box is listed at an inner node.

    It is if it overlaps several children and the node does not push, unless it was pushed from
    above: then it does not lie within the node's region.
    """
    if (overlapped & (overlapped - 1)) == 0 or pushes != 0:
        return False
    within = box[0] >= node[at, WEST] and box[2] <= node[at, EAST]
    return within and box[1] >= node[at, SOUTH] and box[3] <= node[at, NORTH]


@kernel
def push_children(stack: NDArray[np.int64], top: Number, first: Number, bits: Number) -> Number:
    """Push the children of these bits on a stack; return its new top."""
    for child in range(4):
        if (bits >> child) & 1:
            stack[top] = first + child
            top += 1
    return top


@kernel
def next_list_node(
    tree: Quadtree, box: NDArray[np.int32], stack: NDArray[np.int64], top: Number
) -> tuple[Number, Number]:
    """Continue to the next node that lists a box; return it (-1: none left) and the stack's top."""
    node = tree.node
    while top > 0:
        top -= 1
        at = stack[top]
        first = np.int64(node[at, FIRST_CHILD])
        if first < 0:
            return at, top
        overlapped = overlapped_children(node, at, box)
        if stays_at_node(node, at, box, overlapped, node[at, PUSHES]):
            return at, top
        top = push_children(stack, top, first, overlapped)
    return np.int64(-1), np.int64(0)


@kernel
def depth_of(node: NDArray[np.int32], at: Number) -> Number:
    """Return how far below the root a node is."""
    depth, above = np.int64(0), np.int64(node[at, PARENT])
    while above >= 0:
        depth, above = depth + 1, np.int64(node[above, PARENT])
    return depth


@kernel
def parent_set(node: NDArray[np.int32], at: Number) -> tuple[Number, Number]:
    """Return the parent of a node (-1: none), and the node's bit in the parent's set."""
    above = np.int64(node[at, PARENT])
    if above < 0:
        return above, OWN_LISTS
    return above, np.uint64(1) << np.uint64(at - node[above, FIRST_CHILD])


@kernel
def lowest_set(node: NDArray[np.int32], at: Number) -> tuple[Number, Number]:
    """Return the lowest node whose set has the tokens of a node's own lists, and their bit."""
    if node[at, FIRST_CHILD] >= 0:
        return np.int64(at), OWN_LISTS
    return parent_set(node, at)


@kernel
def add_to_sets(tree: Quadtree, at: Number, token: Number) -> None:
    """Record in the sets above that a node's own lists have a token; the sets have space."""
    holder, bit = lowest_set(tree.node, at)
    while holder >= 0:
        slot = find_slot(tree.sets, holder, token)
        if slot >= 0:
            tree.sets.slot[slot, 1] |= bit
            return
        slot = claim_slot(tree.sets, holder, token)
        tree.sets.slot[slot, 1] = bit
        holder, bit = parent_set(tree.node, holder)


@kernel
def remove_from_sets(tree: Quadtree, at: Number, token: Number) -> None:
    """Record in the sets above that a node's own lists no longer have a token."""
    holder, bit = lowest_set(tree.node, at)
    while holder >= 0:
        slot = find_slot(tree.sets, holder, token)
        tree.sets.slot[slot, 1] &= ~bit
        if tree.sets.slot[slot, 1] != np.uint64(0):
            return
        remove_slot(tree.sets, holder, slot)
        holder, bit = parent_set(tree.node, holder)


@inlined_kernel
def entry_label(tree: Quadtree, place: Number) -> Number:
    """Return the label of the clause of an entry."""
    clause = np.int64(tree.entry[place, CLAUSE])
    return tree.clause_label[clause] if len(tree.clause_label) > 0 else clause


@kernel
def copy_entry(tree: Quadtree, old: Number, new: Number) -> None:
    """Copy an entry to another place in the pool."""
    for column in range(ENTRY_WIDTH):
        tree.entry[new, column] = tree.entry[old, column]
    if len(tree.entry_rank) > 0:
        tree.entry_rank[new] = tree.entry_rank[old]


@kernel
def write_entry(
    tree: Quadtree, ordered: Ordered, place: Number, clause: Number, pivot: Number
) -> None:
    """Write a clause, without its pivotal token, to a place in the pool."""
    entry = tree.entry
    if len(tree.entry_rank) > 0:
        tree.entry_rank[place] = tree.clause_label[clause] >> 32
    for side in range(4):
        entry[place, side] = ordered.box[clause, side]
    entry[place, CLAUSE] = clause
    for i in range(OTHER_TOKENS, ENTRY_WIDTH):
        entry[place, i] = NO_TOKEN
    others = np.int64(0)
    for i in range(length_of(ordered, clause)):
        token = token_at(ordered, clause, i)
        if token != pivot:
            if OTHER_TOKENS + others < ENTRY_WIDTH:
                entry[place, OTHER_TOKENS + others] = token
            others += 1
    if OTHER_TOKENS + others > ENTRY_WIDTH:
        entry[place, ENTRY_WIDTH - 1] = ~entry[place, ENTRY_WIDTH - 1]
