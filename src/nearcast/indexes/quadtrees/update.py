"""Insert clauses into the quadtree indexes and remove them; building is inserting, too.

A kernel that runs out of space changes nothing for the clause at hand; it notes the shortage and
returns how many clauses are done. The caller enlarges the arrays and continues there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    SIZE,
    START,
    TOKEN,
    clause_at,
    drop_clause,
    drop_entry,
)
from nearcast.compiled.clauses import Ordered, length_of, token_at
from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.quadtrees.cells import Costs, placement_of
from nearcast.indexes.quadtrees.layout import (
    BRANCH,
    CHILD_SIZE,
    LIST_SIZE,
    OWNER,
    TOP_OWNER,
    TREE,
    TRIE_LEVELS,
    Demand,
    QuadArrays,
    add_owner,
    add_root,
    add_token,
    append_clause,
    append_demand,
    find_or_add_row,
    find_row,
    has_capacity,
    token_demand,
)
from nearcast.indexes.quadtrees.split import UpdateScratch, find_nodes, find_open_nodes, note_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROOT = np.int64(0)
_NONE, _ONE = np.int64(0), np.int64(1)


# iq-tree: one quadtree, whose nodes have lists by rarest token.


@kernel
def start_quadtree(quad: QuadArrays, costs: Costs) -> None:
    """Add the directory, and an empty leaf, which is the owner after it."""
    add_owner(quad, np.int64(0))
    add_root(quad, costs.depth)
    add_owner(quad, np.int64(0))


@kernel
def insert_demand(quad: QuadArrays, token: Number, nodes: NDArray[np.int64]) -> Demand:
    """Return what it needs to add a clause to these nodes."""
    entries, listed = np.int64(0), np.int64(0)
    for i in range(len(nodes)):
        at = find_row(quad.slot, nodes[i] + 1, token)
        if quad.slot[at, OWNER] == 0:
            entries += 2
            listed += token_demand(quad, nodes[i] + 1)
        else:
            entries += append_demand(quad.slot[at])
    return Demand(np.int64(len(nodes) + 1), _NONE, _NONE, listed, entries)


@kernel
def insert_into_quadtree(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    clauses: NDArray[np.int32],
    scratch: UpdateScratch,
) -> Number:
    """Insert clauses into an iq-tree; return how many fit."""
    for i in range(len(clauses)):
        clause = np.int64(clauses[i])
        token = token_at(ordered, clause, 0)
        placement = placement_of(costs, ordered.box, clause)
        count, fits = find_open_nodes(quad, costs, ordered, placement, _ROOT, _ONE, scratch)
        nodes = scratch.node[:count]
        if not fits or not has_capacity(quad, insert_demand(quad, token, nodes), scratch.shortage):
            return i
        for n in range(count):
            owner = nodes[n] + 1
            at = find_row(quad.slot, owner, token)
            if quad.slot[at, OWNER] == 0:
                add_token(quad, owner, token)
                at = find_or_add_row(quad, owner, token)
            append_clause(quad, quad.slot[at], ordered, clause, _ONE)
            quad.node[nodes[n], SIZE] += 1
            note_level(quad, token, nodes[n])
    return len(clauses)


@kernel
def remove_from_quadtree(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    gone: NDArray[np.int64],
    scratch: UpdateScratch,
) -> None:
    """Remove clauses from an iq-tree."""
    flat = quad.entry.reshape(-1)
    for i in range(len(gone)):
        token, placement = token_at(ordered, gone[i], 0), placement_of(costs, ordered.box, gone[i])
        for n in range(find_nodes(quad, costs, _ROOT, placement, scratch)):
            node = scratch.node[n]
            row = quad.slot[find_row(quad.slot, node + 1, token)]
            if drop_clause(flat, row, gone[i]):
                quad.node[node, SIZE] -= 1


@kernel
def refresh_directory(quad: QuadArrays) -> None:
    """Forget the levels at which a token has no list any more."""
    slot = quad.slot
    for at in range(len(slot)):
        if slot[at, OWNER] == TOP_OWNER + 1:
            slot[at, START] = 0
    for at in range(len(slot)):
        if slot[at, OWNER] > TOP_OWNER + 1 and slot[at, SIZE] > 0:
            note_level(quad, np.int64(slot[at, TOKEN]), np.int64(slot[at, OWNER]) - 2)


# rq-tree and trie-quadtree: a trie of ordered tokens, of one level or more. A node keeps all
# clauses below it in its own list until there are `CHILD_SIZE` of them. Then it becomes a branch:
# it is an owner itself, and clauses with more tokens move to its children. A list of `LIST_SIZE`
# clauses becomes a quadtree. Tokens that are not on the path to a list are verified.


@kernel
def start_trie(quad: QuadArrays, costs: Costs) -> None:
    """Add the root."""
    add_owner(quad, np.int64(0))


@kernel
def find_trie_node(
    quad: QuadArrays, ordered: Ordered, clause: Number
) -> tuple[Number, Number, Number]:
    """Walk down to the node of a clause, which may not exist yet.

    Returns its owner, its token and the number of tokens on the path to it.
    """
    owner, known = TOP_OWNER, np.int64(0)
    while True:
        token = token_at(ordered, clause, known)
        known += 1
        row = quad.slot[find_row(quad.slot, owner, token)]
        if known == length_of(ordered, clause) or row[OWNER] == 0 or row[BRANCH] == 0:
            return owner, token, known
        owner = np.int64(row[BRANCH])


@kernel
def find_or_add_trie_node(quad: QuadArrays, owner: Number, token: Number) -> Number:
    """Return the slot of a node, which is added if it is new."""
    at = find_row(quad.slot, owner, token)
    if quad.slot[at, OWNER] == 0:
        if owner != TOP_OWNER:
            add_token(quad, owner, token)
        at = find_or_add_row(quad, owner, token)
    return at


@kernel
def needs_children(
    quad: QuadArrays, ordered: Ordered, clause: Number, known: Number, row: NDArray[np.int32]
) -> Number:
    """Tell whether a node, which may be new, must become a branch before it takes a clause.

    That is if it has enough clauses, or if nodes keep none and this clause has more tokens.
    """
    if known >= quad.state[TRIE_LEVELS] or (row[OWNER] != 0 and row[BRANCH] != 0):
        return False
    if quad.state[CHILD_SIZE] == 0:
        return length_of(ordered, clause) > known
    return row[OWNER] != 0 and row[SIZE] >= quad.state[CHILD_SIZE]


@kernel
def make_branch(
    quad: QuadArrays,
    ordered: Ordered,
    owner: Number,
    token: Number,
    known: Number,
    scratch: UpdateScratch,
) -> Number:
    """Turn a node, which may be new, into a branch; return whether it fit.

    Clauses of more than ``known`` tokens move to its children.
    """
    row, size = quad.slot[find_row(quad.slot, owner, token)], np.int64(0)
    # A list becomes a quadtree before its node is a branch only if nodes keep no clauses.
    if row[OWNER] != 0 and row[CAPACITY] != TREE:
        size = np.int64(row[SIZE])
    # A list that grows by quarters to n entries takes less than 8 n in all, a run less than 4 n.
    listed = token_demand(quad, owner) + 4 * size + 8
    demand = Demand(size + 1, _NONE, _ONE, listed, 8 * size)
    if not has_capacity(quad, demand, scratch.shortage):
        return False
    flat, branch = quad.entry.reshape(-1), add_owner(quad, np.int64(2))
    row = quad.slot[find_or_add_trie_node(quad, owner, token)]
    row[BRANCH] = branch
    for number in range(size - 1, -1, -1):
        clause = clause_at(flat, row, number)
        if length_of(ordered, clause) > known:
            child = find_or_add_trie_node(quad, branch, token_at(ordered, clause, known))
            append_clause(quad, quad.slot[child], ordered, clause, known + 1)
            drop_entry(flat, row, number)
    return True


@kernel
def make_tree(quad: QuadArrays, costs: Costs, at: Number, scratch: UpdateScratch) -> Number:
    """Turn a list into the root of a quadtree; return whether it fit."""
    if not has_capacity(quad, Demand(_NONE, _ONE, _NONE, _NONE, _NONE), scratch.shortage):
        return False
    row, root = quad.slot[at], add_root(quad, costs.depth)
    for column in (START, SIZE, CAPACITY):
        quad.node[root, column] = row[column]
    row[START], row[CAPACITY] = root, TREE
    return True


@kernel
def prepare_trie_node(
    quad: QuadArrays, costs: Costs, ordered: Ordered, clause: Number, scratch: UpdateScratch
) -> tuple[Number, Number]:
    """Make the branches and trees that a new clause requires.

    Returns the slot of the clause's node (-1 if it does not exist yet), and whether all fit.
    """
    while True:
        owner, token, known = find_trie_node(quad, ordered, clause)
        at = find_row(quad.slot, owner, token)
        row = quad.slot[at]
        if needs_children(quad, ordered, clause, known, row):
            if not make_branch(quad, ordered, owner, token, known, scratch):
                return at, False
        elif row[OWNER] == 0:
            return np.int64(-1), True
        elif row[CAPACITY] != TREE and row[SIZE] >= quad.state[LIST_SIZE]:
            if not make_tree(quad, costs, at, scratch):
                return at, False
        else:
            return at, True


@kernel
def insert_into_tree(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    clause: Number,
    at: Number,
    known: Number,
    scratch: UpdateScratch,
) -> Number:
    """Insert a clause into the quadtree of a slot; return whether it fit."""
    root, placement = np.int64(quad.slot[at, START]), placement_of(costs, ordered.box, clause)
    count, fits = find_open_nodes(quad, costs, ordered, placement, root, known, scratch)
    if not fits:
        return False
    entries = np.int64(0)
    for n in range(count):
        entries += append_demand(quad.node[scratch.node[n]])
    if not has_capacity(quad, Demand(_NONE, _NONE, _NONE, _NONE, entries), scratch.shortage):
        return False
    for n in range(count):
        append_clause(quad, quad.node[scratch.node[n]], ordered, clause, known)
    quad.slot[at, SIZE] += 1
    return True


@kernel
def insert_clause(
    quad: QuadArrays, costs: Costs, ordered: Ordered, clause: Number, scratch: UpdateScratch
) -> Number:
    """Insert a clause into its list or quadtree of the trie; return whether it fit."""
    at, fits = prepare_trie_node(quad, costs, ordered, clause, scratch)
    if not fits:
        return False
    owner, token, known = find_trie_node(quad, ordered, clause)
    if at >= 0 and quad.slot[at, CAPACITY] == TREE:
        return insert_into_tree(quad, costs, ordered, clause, at, known, scratch)
    entries = append_demand(quad.slot[at]) if at >= 0 else np.int64(2)
    listed = token_demand(quad, owner) if owner != TOP_OWNER else np.int64(0)
    if not has_capacity(quad, Demand(_ONE, _NONE, _NONE, listed, entries), scratch.shortage):
        return False
    at = find_or_add_trie_node(quad, owner, token)
    append_clause(quad, quad.slot[at], ordered, clause, known)
    return True


@kernel
def insert_into_trie(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    clauses: NDArray[np.int32],
    scratch: UpdateScratch,
) -> Number:
    """Insert clauses into a trie; return how many fit."""
    for i in range(len(clauses)):
        if not insert_clause(quad, costs, ordered, np.int64(clauses[i]), scratch):
            return i
    return len(clauses)


@kernel
def remove_from_trie(
    quad: QuadArrays,
    costs: Costs,
    ordered: Ordered,
    gone: NDArray[np.int64],
    scratch: UpdateScratch,
) -> None:
    """Remove clauses from the lists and quadtrees of a trie."""
    flat = quad.entry.reshape(-1)
    for i in range(len(gone)):
        owner, token, _ = find_trie_node(quad, ordered, gone[i])
        row = quad.slot[find_row(quad.slot, owner, token)]
        if row[CAPACITY] != TREE:
            drop_clause(flat, row, gone[i])
            continue
        root, placement = np.int64(row[START]), placement_of(costs, ordered.box, gone[i])
        dropped = False
        for n in range(find_nodes(quad, costs, root, placement, scratch)):
            dropped |= drop_clause(flat, quad.node[scratch.node[n]], gone[i])
        row[SIZE] -= np.int64(dropped)
