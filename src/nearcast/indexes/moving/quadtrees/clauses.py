"""Clauses of the moving quadtrees: their rates, their moves, and the rest of their tokens.

Kernels that run out of space change nothing for the clause at hand, as those of
`nearcast.indexes.quadtrees.update`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import CAPACITY, SIZE, START, drop_clause, find_clause, set_box
from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.messages import MessageArrays, Output, contains
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.moving.entries import FIRST, KEY, EntryArrays
from nearcast.indexes.moving.frequencies import CLAUSES, MESSAGES, find_token
from nearcast.indexes.quadtrees.cells import Costs, placement_in, placement_of, sides_of
from nearcast.indexes.quadtrees.layout import (
    BY_TOKEN,
    OWNER,
    TOP_OWNER,
    TREE,
    Demand,
    QuadArrays,
    add_token,
    append_clause,
    append_demand,
    find_or_add_row,
    find_row,
    has_capacity,
)
from nearcast.indexes.quadtrees.split import UpdateScratch, find_nodes, find_open_nodes, note_level
from nearcast.indexes.quadtrees.update import insert_demand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import Ordered

_ROOT, _NONE, _ONE = np.int64(0), np.int64(0), np.int64(1)
_AHEAD = 16


@kernel
def rate_entries(
    slot: NDArray[np.int32],
    entries: EntryArrays,
    entry: NDArray[np.int32],
    documents: Number,
    pair: NDArray[np.int32],
    hit: NDArray[np.float32],
) -> None:
    """Set the pair and the hit probability of entries that have their keys."""
    record, pool = entries
    for i in range(len(entry)):
        number = np.int64(entry[i])
        first, key = np.int64(record[number, FIRST]), np.int64(record[number, KEY])
        follower, rarest = NO_TOKEN, np.int64(0)
        for j in range(first + 1, first + 1 + pool[first]):
            if pool[j] == key:
                continue
            row = slot[find_token(slot, pool[j])]
            count = np.int64(row[CLAUSES]) + np.int64(row[MESSAGES])
            if follower == NO_TOKEN or count < rarest:
                follower, rarest = np.int64(pool[j]), count
        pair[number, 0], pair[number, 1] = key, follower
        probability = 1.0
        if key != NO_TOKEN:
            row = slot[find_token(slot, key)]
            count = np.int64(row[CLAUSES]) + np.int64(row[MESSAGES])
            probability = min(max(np.float64(count), 1.0) / documents, 1.0)
        hit[number] = np.float32(probability)


@kernel
def is_among(nodes: NDArray[np.int64], node: Number) -> Number:
    """Tell whether a node is one of a few."""
    for i in range(len(nodes)):
        if nodes[i] == node:
            return True
    return False


@kernel
def list_of_node(quad: QuadArrays, node: Number, token: Number) -> NDArray[np.int32]:
    """Return the row of a token's list in a node; it may be a free slot of an iq-tree."""
    if quad.state[BY_TOKEN]:
        return quad.slot[find_row(quad.slot, node + 1, token)]
    return quad.node[node]


@kernel
def enter_node(
    quad: QuadArrays, ordered: Ordered, node: Number, token: Number, clause: Number
) -> None:
    """Add a clause to a node; there is space for it."""
    row = list_of_node(quad, node, token)
    if quad.state[BY_TOKEN]:
        if row[OWNER] == 0:
            add_token(quad, node + 1, token)
            row = quad.slot[find_or_add_row(quad, node + 1, token)]
        quad.node[node, SIZE] += 1
        note_level(quad, token, node)
    append_clause(quad, row, ordered, clause, _ONE)


@kernel
def enter_demand(quad: QuadArrays, token: Number, nodes: NDArray[np.int64]) -> Demand:
    """Return what it needs at most to add a clause to nodes."""
    if quad.state[BY_TOKEN]:
        return insert_demand(quad, token, nodes)
    entries = np.int64(0)
    for i in range(len(nodes)):
        entries += append_demand(quad.node[nodes[i]])
    return Demand(_NONE, _NONE, _NONE, _NONE, entries)


@kernel
def move_in_tree(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    record: NDArray[np.int32],
    root: Number,
    moved: tuple[Number, NDArray[np.int32]],
    scratch: UpdateScratch,
    target: NDArray[np.int64],
) -> Number:
    """Take a clause to the best nodes of its new box; return whether all fit."""
    clause, box = moved
    token = np.int64(record[clause, KEY])
    flat = quad.entry.reshape(-1)
    placement = placement_in(costs, sides_of(box.reshape(1, 4), 0), clause)
    count, fits = find_open_nodes(quad, costs, ordered, placement, root, _ONE, scratch)
    if not fits:
        return False
    new = target[:count]
    new[:] = scratch.node[:count]
    if not has_capacity(quad, enter_demand(quad, token, new), scratch.shortage):
        return False
    placement = placement_of(costs, ordered.box, clause)
    old = scratch.node[: find_nodes(quad, costs, root, placement, scratch)]
    for side in range(4):
        record[clause, side] = box[side]
    for i in range(len(old)):
        row = list_of_node(quad, old[i], token)
        if is_among(new, old[i]):
            set_box(flat, row, find_clause(flat, row, clause), box)
        elif drop_clause(flat, row, clause) and quad.state[BY_TOKEN]:
            quad.node[old[i], SIZE] -= 1
    for i in range(len(new)):
        if not is_among(old, new[i]):
            enter_node(quad, ordered, new[i], token, clause)
    return True


@kernel
def move_clauses(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    record: NDArray[np.int32],
    entry: NDArray[np.int32],
    after: NDArray[np.int32],
    scratch: UpdateScratch,
    target: NDArray[np.int64],
) -> Number:
    """Give clauses other boxes; return how many fit. ``target`` is like ``scratch.node``."""
    for i in range(len(entry)):
        if i + _AHEAD < len(entry):
            prefetch(record, np.int64(entry[i + _AHEAD]))
        clause, root = np.int64(entry[i]), _ROOT
        if not quad.state[BY_TOKEN]:
            token = np.int64(record[clause, KEY])
            row = quad.slot[find_row(quad.slot, TOP_OWNER, token)]
            if row[CAPACITY] != TREE:
                flat = quad.entry.reshape(-1)
                set_box(flat, row, find_clause(flat, row, clause), after[i])
                for side in range(4):
                    record[clause, side] = after[i, side]
                continue
            root = np.int64(row[START])
        moved = (clause, after[i])
        if not move_in_tree(quad, costs, ordered, record, root, moved, scratch, target):
            return i
    return len(entry)


@kernel
def keep_matches(
    entries: EntryArrays, messages: MessageArrays, part: tuple[Number, Number], output: Output
) -> None:
    """Keep the found entries of messages that have all tokens of the entry."""
    record, pool = borrow(entries)
    token, token_start = borrow(messages.token), messages.token_start
    clause, start = borrow(output.clause), output.start
    kept, first = start[part[0]], start[part[0]]
    for message in range(part[0], part[1]):
        last = start[message + 1]
        tokens = token[token_start[message] : token_start[message + 1]]
        for i in range(first, last):
            prefetch(record, np.int64(clause[i]))
        for i in range(first, last):
            prefetch(pool, np.int64(record[clause[i], FIRST]))
        for i in range(first, last):
            at = np.int64(record[clause[i], FIRST])
            count = np.int64(pool[at])
            # Key and next token are known to occur.
            end, at = at + 1 + count, at + 1
            if count > 2:
                while at < end and contains(tokens, pool[at]):
                    at += 1
            if count <= 2 or at == end:
                clause[kept] = clause[i]
                kept += 1
        first = last
        start[message + 1] = kept
