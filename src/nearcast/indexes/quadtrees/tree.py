"""Quadtrees whose nodes hold lists of clauses, placed by cost: where clauses stand, and splitting.

A tree begins as a leaf. A leaf that has as many clauses as it may, or more since its parent was
split, is split when another comes: each of its clauses stays, or moves to the children that its
box touches, as `nearcast.indexes.quadtrees.cells` has it. A leaf from which none would move may have
twice as many. So a clause stands where a walk from the root says: in the first node that is a leaf
or is worth staying in.

- ``node`` int32[nodes, 8]: token, first entry, size and capacity of the node's list, where it has
  one of its own (rq-tree, trie-quadtree); else, of an iq-tree, size is that of all its lists. Then
  the first of its four children, or, of a leaf, how many clauses it may have, inverted; and its
  cell: west, south and level.

In an iq-tree, node ``n`` is owner ``n + 1``, and the rows of owner 0, the directory, say at which
levels each token occurs, a bit a level. An rq-tree and a trie-quadtree have many trees, one for
each long list: there, a node needs one list only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import SIZE, START, TOKEN, rounded
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.indexes.quadtrees.cells import (
    SOUTH_END,
    WEST_END,
    Cell,
    Costs,
    Wish,
    child_cell,
    way_down,
    wish_of,
)
from nearcast.indexes.quadtrees.lists import (
    ALIGNMENT,
    BY_TOKEN,
    LIST_SIZE,
    LISTED,
    M_WAYS,
    NODES,
    OWNER,
    OWNERS,
    RUN_COUNT,
    RUN_ROOM,
    RUN_START,
    Needs,
    Quad,
    Work,
    append_clause,
    claim_row,
    clause_at,
    drop_entry,
    find_row,
    has_room,
    list_token,
    move_list,
    remove_row,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.ordered_clauses import Ordered

CHILD, WEST, SOUTH, LEVEL, NODE_WIDTH = 4, 5, 6, 7, 8
"""In ``node``."""

DIRECTORY = np.int64(0)
"""The owner whose rows say, in `START`, at which levels of an iq-tree a token occurs."""

NEVER = np.int64(0x7FFFFFFF)
"""What a leaf may have that is not split."""


@inlined_kernel
def cell_of(quad: Quad, node: Number) -> Cell:
    """Return the cell of a node."""
    row = quad.node[node]
    return Cell(np.int64(row[LEVEL]), np.int64(row[WEST]), np.int64(row[SOUTH]))


@inlined_kernel
def is_leaf(quad: Quad, node: Number) -> Number:
    """Tell whether a node has no children."""
    return quad.node[node, CHILD] < 0


@inlined_kernel
def is_full(quad: Quad, node: Number) -> Number:
    """Tell whether a node is a leaf that must be split before it takes another clause."""
    return quad.node[node, CHILD] < 0 and quad.node[node, SIZE] >= ~quad.node[node, CHILD]


@kernel
def plant_node(quad: Quad, costs: Costs, cell: Cell) -> Number:
    """Make a leaf without clauses, for which there is room."""
    at = quad.state[NODES]
    quad.state[NODES] += 1
    row = quad.node[at]
    row[:CHILD] = 0
    row[CHILD] = ~(quad.state[LIST_SIZE] if cell.level < costs.depth else NEVER)
    row[WEST], row[SOUTH], row[LEVEL] = cell.west, cell.south, cell.level
    return at


@kernel
def plant_root(quad: Quad, costs: Costs) -> Number:
    """Make the root of a tree."""
    return plant_node(quad, costs, Cell(np.int64(0), WEST_END, SOUTH_END))


@kernel
def plant_owner(quad: Quad, tokens: Number) -> Number:
    """Make an owner with room for so many tokens; there is room for it."""
    owner = quad.state[OWNERS]
    quad.state[OWNERS] += 1
    quad.run[owner, RUN_START], quad.run[owner, RUN_COUNT] = quad.state[LISTED], 0
    quad.run[owner, RUN_ROOM] = tokens
    quad.state[LISTED] += tokens
    return owner


@kernel
def find_places(quad: Quad, costs: Costs, root: Number, wish: Wish, work: Work) -> Number:
    """Write the nodes in which a clause stands into ``place``; return how many there are."""
    work.stack[0] = root
    top, count = np.int64(1), np.int64(0)
    while top > 0:
        top -= 1
        at = work.stack[top]
        way = np.int64(0)
        if not is_leaf(quad, at):
            way = way_down(costs, cell_of(quad, at), wish)
        if way == 0:
            work.place[count] = at
            count += 1
        for child in range(4):
            if (way >> child) & 1:
                work.stack[top] = np.int64(quad.node[at, CHILD]) + child
                top += 1
    return count


@kernel
def claim_directory(quad: Quad, token: Number) -> Number:
    """Return the row of the directory for a token."""
    at = find_row(quad.slot, DIRECTORY, token)
    if quad.slot[at, OWNER] == 0:
        at = claim_row(quad, DIRECTORY, token)
        quad.slot[at, START] = 0
    return at


@kernel
def note_level(quad: Quad, token: Number, node: Number) -> None:
    """Note in the directory that a token has a list at the level of a node."""
    at = claim_directory(quad, token)
    quad.slot[at, START] |= np.int32(1) << quad.node[node, LEVEL]


@inlined_kernel
def lists_of(quad: Quad, node: Number) -> Number:
    """Return how many lists a node has."""
    return np.int64(quad.run[node + 1, RUN_COUNT]) if quad.state[BY_TOKEN] else np.int64(1)


@inlined_kernel
def list_of(quad: Quad, node: Number, number: Number) -> NDArray[np.int32]:
    """Return the row of one of a node's lists."""
    if quad.state[BY_TOKEN]:
        token = np.int64(quad.listed[quad.run[node + 1, RUN_START] + number])
        return quad.slot[find_row(quad.slot, node + 1, token)]
    return quad.node[node]


@kernel
def weigh_node(
    quad: Quad, costs: Costs, box: NDArray[np.int32], node: Number, work: Work
) -> Number:
    """Note the way of every entry of a node's lists; return how many leave it."""
    cell, at, leaving = cell_of(quad, node), np.int64(0), np.int64(0)
    for i in range(lists_of(quad, node)):
        row = list_of(quad, node, i)
        for number in range(row[SIZE]):
            clause = clause_at(quad, row, number)
            work.way[at] = way_down(costs, cell, wish_of(costs, box, clause))
            leaving += np.int64(work.way[at] != 0)
            at += 1
    return leaving


@kernel
def deal_list(
    quad: Quad,
    ordered: Ordered,
    row: NDArray[np.int32],
    way: NDArray[np.uint8],
    first: Number,
    known: Number,
) -> None:
    """Move the entries of a list that leave it to the children, which begin at ``first``."""
    for child in range(4):
        count = np.int64(0)
        for number in range(row[SIZE]):
            count += (np.int64(way[number]) >> child) & 1
        if count == 0:
            continue
        into = quad.node[first + child]
        if quad.state[BY_TOKEN]:
            into[SIZE] += count
            list_token(quad, first + child + 1, row[TOKEN])
            note_level(quad, np.int64(row[TOKEN]), first + child)
            into = quad.slot[claim_row(quad, first + child + 1, np.int64(row[TOKEN]))]
        move_list(quad, into, rounded(count))
        for number in range(row[SIZE]):
            if (np.int64(way[number]) >> child) & 1:
                append_clause(quad, into, ordered, clause_at(quad, row, number), known)
    for number in range(np.int64(row[SIZE]) - 1, -1, -1):
        if way[number] != 0:
            drop_entry(quad, row, number)


@kernel
def deal_node(quad: Quad, ordered: Ordered, node: Number, known: Number, work: Work) -> None:
    """Move all entries of a node that leave it to its children; lists that are empty then go."""
    first, at, kept = np.int64(quad.node[node, CHILD]), np.int64(0), np.int64(0)
    run = quad.run[node + 1] if quad.state[BY_TOKEN] else quad.run[0]
    for i in range(lists_of(quad, node)):
        row = list_of(quad, node, i)
        size, token = np.int64(row[SIZE]), row[TOKEN]
        deal_list(quad, ordered, row, work.way[at : at + size], first, known)
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
def split_needs(quad: Quad, node: Number) -> Needs:
    """Return what the splitting of a node may take."""
    # A list of more than a block is rounded up to blocks, and begins at a cache line.
    entries = np.int64(quad.node[node, SIZE])
    blocks = 4 * (entries // LANES + 1) * (LANES + ALIGNMENT)
    if not quad.state[BY_TOKEN]:
        return Needs(np.int64(0), np.int64(4), np.int64(0), np.int64(0), 4 * entries + blocks)
    lists = 4 * lists_of(quad, node)
    return Needs(lists, np.int64(4), np.int64(4), lists, 4 * entries + blocks)


@kernel
def split_node(
    quad: Quad, costs: Costs, ordered: Ordered, node: Number, known: Number, work: Work
) -> Number:
    """Split a leaf, or let it have more where nothing would leave it; return if there was room.

    ``known`` tokens of its clauses are those of their lists; entries tell of the others.
    """
    if quad.node[node, SIZE] > len(work.way):
        work.missing[M_WAYS] = quad.node[node, SIZE]
        return False
    if not has_room(quad, split_needs(quad, node), work.missing):
        return False
    if weigh_node(quad, costs, ordered.box, node, work) == 0:
        may = ~np.int64(quad.node[node, CHILD])
        quad.node[node, CHILD] = ~min(2 * may, NEVER)
        return True
    lists, cell = lists_of(quad, node), cell_of(quad, node)
    quad.node[node, CHILD] = quad.state[NODES]
    for child in range(4):
        plant_node(quad, costs, child_cell(cell, child))
        if quad.state[BY_TOKEN]:
            plant_owner(quad, lists)
    deal_node(quad, ordered, node, known, work)
    return True
