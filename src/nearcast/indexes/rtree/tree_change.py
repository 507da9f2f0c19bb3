"""Bring what the nodes of an R-tree know of tokens up to date, batch by batch.

Clauses are inserted into the tree first (`rtree_change.insert_clauses`); then the nodes that were
marked are made anew, and the clauses added to the others. Deleting goes the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.rtree.change import erase_clause
from nearcast.indexes.rtree.nodes import ENTRIES
from nearcast.indexes.rtree.token_lists import add_postings, remove_postings, renew_lists
from nearcast.indexes.rtree.token_sets import renew_set
from nearcast.indexes.rtree.token_tree import LISTS, NOTHING, Room
from nearcast.indexes.rtree.token_updates import add_tokens, refresh_set, remove_tokens
from nearcast.indexes.rtree.tree_arrays import TreeArrays, borrow_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Missing(NamedTuple):
    """How far a kernel came, and what was missing there: slots, room for gathering, postings."""

    reached: Number
    slots: Number
    room: Number
    postings: Number


@kernel
def renew_nodes(
    index: TreeArrays, kind: Number, nodes: NDArray[np.int64], first: Number, room: Room
) -> Missing:
    """Make what the nodes (children before parents) know of tokens anew, from the first one on.

    A node that only got or lost children is brought up to date.
    """
    index = borrow_tree(index)
    tree, tables, postings, ordered = index
    none = np.int64(0)
    for i in range(first, len(nodes)):
        node = nodes[i]
        if kind == LISTS and tree.level[node] > 0:
            slots, gathering, more = renew_lists(tree, tables, postings, ordered, node, room)
        elif tree.mark[node] == ENTRIES:
            slots, gathering = refresh_set(tree, tables, ordered, kind, node), none
            more = none
        else:
            slots, gathering = renew_set(tree, tables, ordered, kind, node, room)
            more = none
        if slots > 0 or gathering > 0 or more > 0:
            return Missing(np.int64(i), slots, gathering, more)
    return Missing(np.int64(len(nodes)), none, none, none)


@kernel
def add_clauses(index: TreeArrays, kind: Number, first: Number, last: Number) -> Missing:
    """Add the tokens of clauses that are in the tree to all nodes above them."""
    index = borrow_tree(index)
    tree, tables, postings, ordered = index
    none = np.int64(0)
    for clause in range(first, last):
        if kind == LISTS:
            slots, more = add_postings(tree, tables, postings, ordered, clause)
        else:
            slots, more = add_tokens(tree, tables, ordered, kind, clause), none
        if slots > 0 or more > 0:
            return Missing(np.int64(clause), slots, none, more)
    return Missing(np.int64(last), none, none, none)


@kernel
def erase_clauses(
    index: TreeArrays, kind: Number, clauses: NDArray[np.int64], leaf: NDArray[np.int64]
) -> None:
    """Take clauses out of the tree and out of all that its nodes know; write their leaves."""
    index = borrow_tree(index)
    tree, tables, postings, ordered = index
    for i in range(len(clauses)):
        clause = clauses[i]
        place = erase_clause(tree, clause)
        leaf[i] = place[0]
        if kind == LISTS:
            remove_postings(tree, tables, postings, ordered, clause, place)
        elif kind != NOTHING:
            remove_tokens(tree, tables, ordered, kind, clause, place)
