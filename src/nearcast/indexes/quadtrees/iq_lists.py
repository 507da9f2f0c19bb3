"""How an iq-tree changes: clauses come to the lists of their cells, and leave them.

Chen, Cong and Cao, SIGMOD 2013, and the AP-Tree paper (VLDB Journal 2015), section 3.1: one
quadtree, in each cell of which a clause stands in the list of its rarest token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import SIZE, START, TOKEN
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.ordered_clauses import Ordered, token_at
from nearcast.indexes.quadtrees.cells import Costs, wish_of
from nearcast.indexes.quadtrees.lists import (
    OWNER,
    Needs,
    Quad,
    Work,
    append_clause,
    claim_row,
    drop_clause,
    find_row,
    has_room,
    list_token,
    room_to_append,
    room_to_list,
)
from nearcast.indexes.quadtrees.tree import (
    DIRECTORY,
    find_places,
    is_full,
    note_level,
    plant_owner,
    plant_root,
    split_node,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = np.int64(0)


@kernel
def plant_quadtree(quad: Quad, costs: Costs) -> None:
    """Begin with a leaf without clauses, which is the owner after the directory."""
    plant_owner(quad, np.int64(0))
    plant_root(quad, costs)
    plant_owner(quad, np.int64(0))


@kernel
def insert_needs(quad: Quad, token: Number, places: NDArray[np.int64]) -> Needs:
    """Return what putting a clause into these nodes takes."""
    entries, listed = np.int64(0), np.int64(0)
    for i in range(len(places)):
        at = find_row(quad.slot, places[i] + 1, token)
        if quad.slot[at, OWNER] == 0:
            entries += 2
            listed += room_to_list(quad, places[i] + 1)
        else:
            entries += room_to_append(quad.slot[at])
    return Needs(np.int64(len(places) + 1), np.int64(0), np.int64(0), listed, entries)


@kernel
def split_full(
    quad: Quad, costs: Costs, ordered: Ordered, clause: Number, work: Work
) -> tuple[Number, Number]:
    """Split full leaves that a clause goes to; return how many places it has, and if it fits."""
    wish = wish_of(costs, ordered.box, clause)
    while True:
        count = find_places(quad, costs, ROOT, wish, work)
        full = np.int64(0)
        while full < count and not is_full(quad, work.place[full]):
            full += 1
        if full == count:
            return count, True
        node = work.place[full]
        if not split_node(quad, costs, ordered, node, np.int64(1), work):
            return count, False


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
        clause = np.int64(clauses[i])
        token = token_at(ordered, clause, 0)
        count, fits = split_full(quad, costs, ordered, clause, work)
        places = work.place[:count]
        if not fits or not has_room(quad, insert_needs(quad, token, places), work.missing):
            return i
        for p in range(count):
            node = places[p]
            at = find_row(quad.slot, node + 1, token)
            if quad.slot[at, OWNER] == 0:
                list_token(quad, node + 1, token)
                at = claim_row(quad, node + 1, token)
            append_clause(quad, quad.slot[at], ordered, clause, np.int64(1))
            quad.node[node, SIZE] += 1
            note_level(quad, token, node)
    return len(clauses)


@kernel
def remove_clauses(
    quad: Quad, costs: Costs, ordered: Ordered, gone: NDArray[np.int64], work: Work
) -> None:
    """Take clauses out of their lists."""
    for i in range(len(gone)):
        token, wish = token_at(ordered, gone[i], 0), wish_of(costs, ordered.box, gone[i])
        for p in range(find_places(quad, costs, ROOT, wish, work)):
            node = work.place[p]
            drop_clause(quad, quad.slot[find_row(quad.slot, node + 1, token)], gone[i])
            quad.node[node, SIZE] -= 1


@kernel
def renew_directory(quad: Quad) -> None:
    """Forget the levels at which a token has no list any more."""
    slot = quad.slot
    for at in range(len(slot)):
        if slot[at, OWNER] == DIRECTORY + 1:
            slot[at, START] = 0
    for at in range(len(slot)):
        if slot[at, OWNER] > DIRECTORY + 1 and slot[at, SIZE] > 0:
            note_level(quad, np.int64(slot[at, TOKEN]), np.int64(slot[at, OWNER]) - 2)
