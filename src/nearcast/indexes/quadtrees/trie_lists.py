"""A trie of ordered tokens whose nodes have lists, or quadtrees where lists are long.

AP-Tree, VLDB Journal 2015, section 5.1.1 (RQ-Tree: lists of the rarest token, a quadtree for each)
and section 5.1.2 (Trie-Qd: the ordered keyword trie of Hmedeh et al., a quadtree for each keyword
set). The former is a trie of one level; the tokens that a path does not have are verified.

Node 0 is the root; a row of owner ``o`` and token ``t`` is the child of node ``o`` by ``t``. A node
keeps all clauses below it in its own list until they are as many as ``CHILD_SIZE``: then it becomes
a *branch*, an owner itself, and clauses with more tokens move to its children. A list that has
become as long as ``LIST_SIZE`` is a quadtree: its capacity is `TREE`, its start the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import CAPACITY, SIZE, START
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.indexes.quadtrees.cells import Costs, wish_of
from nearcast.indexes.quadtrees.lists import (
    BRANCH,
    CHILD_SIZE,
    DEEPEST,
    LIST_SIZE,
    OWNER,
    Needs,
    Quad,
    Work,
    append_clause,
    claim_row,
    clause_at,
    drop_clause,
    drop_entry,
    find_row,
    has_room,
    list_token,
    room_to_append,
    room_to_list,
)
from nearcast.indexes.quadtrees.tree import (
    find_places,
    is_full,
    plant_owner,
    plant_root,
    split_node,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOP_OWNER = np.int64(0)

TREE = np.int32(-1)
"""The capacity of a list that is a quadtree."""


@kernel
def plant_trie(quad: Quad) -> None:
    """Begin with a root without children."""
    plant_owner(quad, np.int64(0))


@kernel
def find_node(quad: Quad, ordered: Ordered, clause: Number) -> tuple[Number, Number, Number]:
    """Go down to the node of a clause; return its owner, its token and how many are on its path.

    The node may not be there yet.
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
def claim_node(quad: Quad, owner: Number, token: Number) -> Number:
    """Return the row of a node, which is made if it is new."""
    at = find_row(quad.slot, owner, token)
    if quad.slot[at, OWNER] == 0:
        if owner != TOP_OWNER:
            list_token(quad, owner, token)
        at = claim_row(quad, owner, token)
    return at


@kernel
def wants_children(
    quad: Quad, ordered: Ordered, clause: Number, known: Number, row: NDArray[np.int32]
) -> Number:
    """Tell whether a node must become a branch before a clause is put there.

    It has enough clauses, or none is to be kept and this one goes farther; then the node may not
    be there yet.
    """
    if known >= quad.state[DEEPEST] or (row[OWNER] != 0 and row[BRANCH] != 0):
        return False
    if quad.state[CHILD_SIZE] == 0:
        return length_of(ordered, clause) > known
    return row[OWNER] != 0 and row[SIZE] >= quad.state[CHILD_SIZE]


@kernel
def make_branch(
    quad: Quad, ordered: Ordered, owner: Number, token: Number, known: Number, work: Work
) -> Number:
    """Make a branch of a node, which may be new; return whether there was room.

    Clauses that have more than ``known`` tokens move to its children.
    """
    row, size = quad.slot[find_row(quad.slot, owner, token)], np.int64(0)
    # A list is a quadtree before its node is a branch only where nodes keep no clause that goes on.
    if row[OWNER] != 0 and row[CAPACITY] != TREE:
        size = np.int64(row[SIZE])
    # A list that grows to n takes less than 8 n in all, by a quarter each time; a run 4 n.
    listed = room_to_list(quad, owner) + 4 * size + 8
    needs = Needs(size + 1, np.int64(0), np.int64(1), listed, 8 * size)
    if not has_room(quad, needs, work.missing):
        return False
    branch = plant_owner(quad, np.int64(2))
    row = quad.slot[claim_node(quad, owner, token)]
    row[BRANCH] = branch
    for number in range(size - 1, -1, -1):
        clause = clause_at(quad, row, number)
        if length_of(ordered, clause) > known:
            child = claim_node(quad, branch, token_at(ordered, clause, known))
            append_clause(quad, quad.slot[child], ordered, clause, known + 1)
            drop_entry(quad, row, number)
    return True


@kernel
def make_tree(quad: Quad, costs: Costs, at: Number, work: Work) -> Number:
    """Make a list the root of a quadtree; return whether there was room."""
    one = Needs(np.int64(0), np.int64(1), np.int64(0), np.int64(0), np.int64(0))
    if not has_room(quad, one, work.missing):
        return False
    row, root = quad.slot[at], plant_root(quad, costs)
    for column in (START, SIZE, CAPACITY):
        quad.node[root, column] = row[column]
    row[START], row[CAPACITY] = root, TREE
    return True


@kernel
def grow_node(
    quad: Quad, costs: Costs, ordered: Ordered, clause: Number, work: Work
) -> tuple[Number, Number]:
    """Make branches and trees that a clause asks for; return its row, and if there was room.

    The row is -1 where the node is not there yet.
    """
    while True:
        owner, token, known = find_node(quad, ordered, clause)
        at = find_row(quad.slot, owner, token)
        row = quad.slot[at]
        if wants_children(quad, ordered, clause, known, row):
            if not make_branch(quad, ordered, owner, token, known, work):
                return at, False
        elif row[OWNER] == 0:
            return np.int64(-1), True
        elif row[CAPACITY] != TREE and row[SIZE] >= quad.state[LIST_SIZE]:
            if not make_tree(quad, costs, at, work):
                return at, False
        else:
            return at, True


@kernel
def put_in_tree(
    quad: Quad,
    costs: Costs,
    ordered: Ordered,
    clause: Number,
    at: Number,
    known: Number,
    work: Work,
) -> Number:
    """Put a clause into the quadtree of a row; return whether there was room."""
    root, wish = np.int64(quad.slot[at, START]), wish_of(costs, ordered.box, clause)
    while True:
        count, full = find_places(quad, costs, root, wish, work), np.int64(0)
        while full < count and not is_full(quad, work.place[full]):
            full += 1
        if full == count:
            break
        if not split_node(quad, costs, ordered, work.place[full], known, work):
            return False
    entries = np.int64(0)
    for p in range(count):
        entries += room_to_append(quad.node[work.place[p]])
    needs = Needs(np.int64(0), np.int64(0), np.int64(0), np.int64(0), entries)
    if not has_room(quad, needs, work.missing):
        return False
    for p in range(count):
        append_clause(quad, quad.node[work.place[p]], ordered, clause, known)
    quad.slot[at, SIZE] += 1
    return True


@kernel
def put_clause(quad: Quad, costs: Costs, ordered: Ordered, clause: Number, work: Work) -> Number:
    """Put a clause into its list or quadtree; return whether there was room."""
    at, fits = grow_node(quad, costs, ordered, clause, work)
    if not fits:
        return False
    owner, token, known = find_node(quad, ordered, clause)
    if at >= 0 and quad.slot[at, CAPACITY] == TREE:
        return put_in_tree(quad, costs, ordered, clause, at, known, work)
    entries = room_to_append(quad.slot[at]) if at >= 0 else np.int64(2)
    listed = room_to_list(quad, owner) if owner != TOP_OWNER else np.int64(0)
    needs = Needs(np.int64(1), np.int64(0), np.int64(0), listed, entries)
    if not has_room(quad, needs, work.missing):
        return False
    at = claim_node(quad, owner, token)
    append_clause(quad, quad.slot[at], ordered, clause, known)
    return True


@kernel
def insert_clauses(
    quad: Quad,
    costs: Costs,
    ordered: Ordered,
    clauses: NDArray[np.int32],
    work: Work,
) -> Number:
    """Add clauses; return how many were added before the room ended."""
    for i in range(len(clauses)):
        if not put_clause(quad, costs, ordered, np.int64(clauses[i]), work):
            return i
    return len(clauses)


@kernel
def remove_clauses(
    quad: Quad, costs: Costs, ordered: Ordered, gone: NDArray[np.int64], work: Work
) -> None:
    """Take clauses out of their lists and quadtrees."""
    for i in range(len(gone)):
        owner, token, _ = find_node(quad, ordered, gone[i])
        row = quad.slot[find_row(quad.slot, owner, token)]
        if row[CAPACITY] != TREE:
            drop_clause(quad, row, gone[i])
            continue
        row[SIZE] -= 1
        root, wish = np.int64(row[START]), wish_of(costs, ordered.box, gone[i])
        for p in range(find_places(quad, costs, root, wish, work)):
            drop_clause(quad, quad.node[work.place[p]], gone[i])
