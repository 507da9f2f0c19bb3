"""Quadtree nodes: the nodes of a clause, and how a full leaf is split.

A quadtree starts as one leaf. When a clause comes to a full leaf, the leaf is split: each of its
clauses stays, or moves to the children that its box touches, as the cost model says
(`nearcast.indexes.quadtrees.cells`). If none would move, the leaf may hold twice as many. So a
clause is where a walk from the root leads: in the first node that is a leaf or costs less than its
children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.box_lists import (
    ALIGNMENT,
    SIZE,
    START,
    TOKEN,
    capacity_for,
    clause_at,
    drop_entry,
)
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.indexes.quadtrees.cells import (
    MAX_DEPTH,
    Costs,
    Placement,
    child_cell,
    children_to_enter,
    placement_of,
)
from nearcast.indexes.quadtrees.layout import (
    BY_TOKEN,
    CHILD,
    LEVEL,
    NODES,
    RUN_COUNT,
    RUN_START,
    TOP_OWNER,
    UNLIMITED,
    Demand,
    QuadArrays,
    add_node,
    add_owner,
    add_token,
    append_clause,
    cell_of,
    find_or_add_row,
    find_row,
    has_capacity,
    is_full,
    is_leaf,
    move_to_end,
    remove_row,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import Ordered

DEMANDS = 5
"""The items of ``shortage`` that a `Demand` has; the item after them is for ``moves``."""

_NONE = np.int64(0)


class UpdateScratch(NamedTuple):
    """Scratch space for changes.

    - ``stack`` int64[many]: nodes to visit. ``node`` int64[many]: the nodes of a clause.
    - ``moves`` uint8[many]: for each entry of a node, a bit for each child it moves to.
    - ``shortage`` int64[6]: what ran out: the fields of `Demand`, and items of ``moves``.
    """

    stack: NDArray[np.int64]
    node: NDArray[np.int64]
    moves: NDArray[np.uint8]
    shortage: NDArray[np.int64]


def new_update_scratch(parts: int, moves: int = 1024) -> UpdateScratch:
    """Return scratch space for boxes cut into ``parts``, and nodes of at most ``moves`` entries."""
    # Smallest cells lie along the border of a box only, so their number is linear in the parts.
    return UpdateScratch(
        np.empty(4 * MAX_DEPTH, np.int64),
        np.empty(64 + 16 * parts, np.int64),
        np.empty(moves, np.uint8),
        np.zeros(DEMANDS + 1, np.int64),
    )


@kernel
def find_nodes(
    quad: QuadArrays, costs: Costs, root: Number, placement: Placement, scratch: UpdateScratch
) -> Number:
    """Write the nodes of a clause to ``scratch.node``; return how many there are."""
    scratch.stack[0] = root
    top, count = np.int64(1), np.int64(0)
    while top > 0:
        top -= 1
        at = scratch.stack[top]
        children = np.int64(0)
        if not is_leaf(quad, at):
            children = children_to_enter(costs, cell_of(quad, at), placement)
        if children == 0:
            scratch.node[count] = at
            count += 1
        for child in range(4):
            if (children >> child) & 1:
                scratch.stack[top] = np.int64(quad.node[at, CHILD]) + child
                top += 1
    return count


@kernel
def note_level(quad: QuadArrays, token: Number, node: Number) -> None:
    """Note in the directory of an iq-tree that a token has a list at the level of a node."""
    at = find_or_add_row(quad, TOP_OWNER, token)
    quad.slot[at, START] |= np.int32(1) << quad.node[node, LEVEL]


@inlined_kernel
def count_lists(quad: QuadArrays, node: Number) -> Number:
    """Return the number of lists of a node."""
    return np.int64(quad.run[node + 1, RUN_COUNT]) if quad.state[BY_TOKEN] else np.int64(1)


@inlined_kernel
def list_row(quad: QuadArrays, node: Number, number: Number) -> NDArray[np.int32]:
    """Return the row of one of the lists of a node."""
    if quad.state[BY_TOKEN]:
        token = np.int64(quad.listed[quad.run[node + 1, RUN_START] + number])
        return quad.slot[find_row(quad.slot, node + 1, token)]
    return quad.node[node]


@kernel
def choose_moves(
    quad: QuadArrays, costs: Costs, box: NDArray[np.int32], node: Number, scratch: UpdateScratch
) -> Number:
    """Write the moves of every entry of a node; return how many entries leave it."""
    flat, cell = quad.entry.reshape(-1), cell_of(quad, node)
    at, leaving = np.int64(0), np.int64(0)
    for i in range(count_lists(quad, node)):
        row = list_row(quad, node, i)
        for number in range(row[SIZE]):
            placement = placement_of(costs, box, clause_at(flat, row, number))
            scratch.moves[at] = children_to_enter(costs, cell, placement)
            leaving += np.int64(scratch.moves[at] != 0)
            at += 1
    return leaving


@kernel
def distribute_list(
    quad: QuadArrays,
    ordered: Ordered,
    row: NDArray[np.int32],
    moves: NDArray[np.uint8],
    first: Number,
    known: Number,
) -> None:
    """Move the entries of a list that leave it to the four children that start at ``first``."""
    flat = quad.entry.reshape(-1)
    for child in range(4):
        count = np.int64(0)
        for number in range(row[SIZE]):
            count += (np.int64(moves[number]) >> child) & 1
        if count == 0:
            continue
        into = quad.node[first + child]
        if quad.state[BY_TOKEN]:
            into[SIZE] += count
            token = np.int64(row[TOKEN])
            add_token(quad, first + child + 1, token)
            note_level(quad, token, first + child)
            into = quad.slot[find_or_add_row(quad, first + child + 1, token)]
        move_to_end(quad, into, capacity_for(count))
        for number in range(row[SIZE]):
            if (np.int64(moves[number]) >> child) & 1:
                append_clause(quad, into, ordered, clause_at(flat, row, number), known)
    for number in range(np.int64(row[SIZE]) - 1, -1, -1):
        if moves[number] != 0:
            drop_entry(flat, row, number)


@kernel
def distribute_node(
    quad: QuadArrays, ordered: Ordered, node: Number, known: Number, scratch: UpdateScratch
) -> None:
    """Move all entries that leave a node to its children; remove lists by token that are empty."""
    first, at, kept = np.int64(quad.node[node, CHILD]), np.int64(0), np.int64(0)
    run = quad.run[node + 1] if quad.state[BY_TOKEN] else quad.run[0]
    for i in range(count_lists(quad, node)):
        row = list_row(quad, node, i)
        size, token = np.int64(row[SIZE]), row[TOKEN]
        distribute_list(quad, ordered, row, scratch.moves[at : at + size], first, known)
        at += size
        if quad.state[BY_TOKEN]:
            quad.node[node, SIZE] -= size - row[SIZE]
            if row[SIZE] == 0:
                remove_row(quad, find_row(quad.slot, node + 1, np.int64(token)))
            else:
                quad.listed[run[RUN_START] + kept] = token
                kept += 1
    if quad.state[BY_TOKEN]:
        run[RUN_COUNT] = kept


@kernel
def split_demand(quad: QuadArrays, node: Number) -> Demand:
    """Return what splitting a node needs at most."""
    # A list of more than one block is rounded up to blocks, and starts at a cache line.
    entries = np.int64(quad.node[node, SIZE])
    blocks = 4 * (entries // LANES + 1) * (LANES + ALIGNMENT)
    if not quad.state[BY_TOKEN]:
        return Demand(_NONE, np.int64(4), _NONE, _NONE, 4 * entries + blocks)
    lists = 4 * count_lists(quad, node)
    return Demand(lists, np.int64(4), np.int64(4), lists, 4 * entries + blocks)


@kernel
def split_node(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    node: Number,
    known: Number,
    scratch: UpdateScratch,
) -> Number:
    """Split a leaf, or double its maximum size if nothing would leave it; return whether it fit.

    The lists of the node imply the first ``known`` tokens of their clauses.
    """
    if quad.node[node, SIZE] > len(scratch.moves):
        scratch.shortage[DEMANDS] = quad.node[node, SIZE]
        return False
    if not has_capacity(quad, split_demand(quad, node), scratch.shortage):
        return False
    if choose_moves(quad, costs, ordered.box, node, scratch) == 0:
        maximum = ~np.int64(quad.node[node, CHILD])
        quad.node[node, CHILD] = ~min(2 * maximum, UNLIMITED)
        return True
    lists, cell = count_lists(quad, node), cell_of(quad, node)
    quad.node[node, CHILD] = quad.state[NODES]
    for child in range(4):
        add_node(quad, child_cell(cell, child), costs.depth)
        if quad.state[BY_TOKEN]:
            add_owner(quad, lists)
    distribute_node(quad, ordered, node, known, scratch)
    return True


@kernel
def find_open_nodes(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    placement: Placement,
    root: Number,
    known: Number,
    scratch: UpdateScratch,
) -> tuple[Number, Number]:
    """Find the nodes of a clause that comes, and split those that are full.

    Returns how many there are in ``scratch.node``, and whether the splits fit.
    """
    while True:
        count, full = find_nodes(quad, costs, root, placement, scratch), np.int64(0)
        while full < count and not is_full(quad, scratch.node[full]):
            full += 1
        if full == count:
            return count, True
        if not split_node(quad, costs, ordered, scratch.node[full], known, scratch):
            return count, False
