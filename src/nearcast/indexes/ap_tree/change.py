"""How an adaptive partition tree changes: clauses come to their leaves, and leave them.

Wang et al., VLDB Journal 2015, section 3.3.5. After each clause, the nodes that are due are made
anew (`nearcast.indexes.ap_tree.renew`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.ap_tree.grow import DUE, M_PLACES, M_UNITS, NEXT, Work
from nearcast.indexes.ap_tree.renew import Limits, mark_inner, mark_leaves, renew_nodes
from nearcast.indexes.ap_tree.tree import DEAD, HELD, TOP, WORN, Ranked, Tree, has_room
from nearcast.indexes.ap_tree.ways import (
    Ways,
    find_ways,
    put_in_leaves,
    take_from_leaves,
    units_for,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.cost import Draft, Hits


@kernel
def worn_out(tree: Tree) -> Number:
    """Tell whether the tree is to be built anew, or half of the arena was given back."""
    state = tree.state
    return state[WORN] != 0 or 2 * state[DEAD] > state[TOP] + (1 << 16)


@kernel
def insert_clauses(
    tree: Tree,
    ranked: Ranked,
    last: Number,
    work: Work,
    ways: Ways,
    limits: Limits,
    partition: tuple[Hits, Draft],
) -> Number:
    """Add clauses from the next one to ``last``; return whether it came to the end.

    If not, something is missing, or the tree is worn out.
    """
    while True:
        if not renew_nodes(tree, ranked, work, ways, partition[0], partition[1]):
            return False
        clause = work.state[NEXT]
        if worn_out(tree):
            return False
        if clause == last:
            return True
        if not find_ways(tree, ranked, clause, ways):
            work.missing[M_PLACES] = 1
            return False
        needed = units_for(tree, ways)
        if not has_room(tree, needed):
            work.missing[M_UNITS] = needed
            return False
        put_in_leaves(tree, ranked, clause, ways)
        tree.state[HELD] += 1
        due = mark_inner(tree, ranked, clause, ways, np.int64(1), limits)
        due = mark_leaves(tree, ways, due)
        work.state[DUE], work.state[NEXT] = due, clause + 1


@kernel
def remove_clauses(
    tree: Tree,
    ranked: Ranked,
    gone: NDArray[np.int64],
    work: Work,
    ways: Ways,
    limits: Limits,
    partition: tuple[Hits, Draft],
) -> Number:
    """Take clauses out, from the next one on; return whether it came to the end.

    If not, something is missing, or the tree is worn out.
    """
    while True:
        if not renew_nodes(tree, ranked, work, ways, partition[0], partition[1]):
            return False
        number = work.state[NEXT]
        if worn_out(tree):
            return False
        if number == len(gone):
            return True
        if number + 1 < len(gone):
            prefetch(ranked.start, gone[number + 1])
            prefetch(ranked.box, gone[number + 1])
        if not find_ways(tree, ranked, gone[number], ways):
            work.missing[M_PLACES] = 1
            return False
        take_from_leaves(tree, gone[number], ways)
        tree.state[HELD] -= 1
        due = mark_inner(tree, ranked, gone[number], ways, np.int64(-1), limits)
        work.state[DUE], work.state[NEXT] = due, number + 1
