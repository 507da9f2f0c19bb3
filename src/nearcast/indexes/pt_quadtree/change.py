"""How a pivotal-token quadtree changes: clauses come to the lists of their places, and leave them.

Yu, Li and Feng, CIKM 2015, section 4.1, "Updates". A new clause takes a pivotal token that the
list has, if it has one of its tokens, else its rarest. A leaf that has become too large is split.
The paper marks what is deleted; here those behind it in the list move up at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_regions import (
    ONE,
    list_count,
    list_room,
    list_start,
    make_room,
    place_list,
)
from nearcast.compiled.token_table import LOW32, claim_slot, drop_table, find_slot, remove_slot
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST
from nearcast.indexes.pt_quadtree.grow import (
    M_CLAUSES,
    M_ENTRIES,
    M_LISTS,
    NEXT,
    PLACE,
    STEPS,
    Work,
    grow_nodes,
    make_lists,
    room_above,
)
from nearcast.indexes.pt_quadtree.tree import (
    CHILD,
    CLAUSE,
    LEFT,
    NODES,
    RULE,
    SIZE,
    TOP,
    WIDTH,
    Quadtree,
    forget_above,
    label_of,
    move_entry,
    next_place,
    tell_above,
    write_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.pt_quadtree.cover import Cover

ALL_PLACES = np.int64(-1)
"""The next place of a clause that stands in all of them; leaves may still have to be split."""


@kernel
def choose_key(tree: Quadtree, ordered: Ordered, at: Number, clause: Number) -> Number:
    """Return the token in whose list a new clause is to stand."""
    for i in range(length_of(ordered, clause)):
        token = token_at(ordered, clause, i)
        if find_slot(tree.lists, at, token) >= 0:
            return token
    return token_at(ordered, clause, 0)


@kernel
def room_in_list(tree: Quadtree, at: Number, key: Number, missing: NDArray[np.int64]) -> Number:
    """Make room for one more entry in a list, which may be new; return whether there was room."""
    slot = find_slot(tree.lists, at, key)
    if slot >= 0 and list_count(tree.lists, slot) < list_room(tree.lists, slot):
        return True
    count = list_count(tree.lists, slot) if slot >= 0 else np.int64(0)
    room = count + (count >> 1) + 2
    if tree.state[TOP] + room > len(tree.entry):
        missing[M_ENTRIES] = room
        return False
    if slot < 0:
        missing[M_LISTS] = make_room(tree.lists, at, np.int64(1))
        if missing[M_LISTS] > 0 or not room_above(tree, at, np.int64(1), missing):
            return False
        slot = claim_slot(tree.lists, at, key)
        tell_above(tree, at, key)
    else:
        start = list_start(tree.lists, slot)
        for i in range(count):
            move_entry(tree, start + i, tree.state[TOP] + i)
        tree.state[LEFT] += list_room(tree.lists, slot)
    place_list(tree.lists, slot, tree.state[TOP], room)
    tree.state[TOP] += room
    return True


@kernel
def put_clause(tree: Quadtree, ordered: Ordered, at: Number, clause: Number, work: Work) -> Number:
    """Put a clause into the lists of a node; return whether there was room."""
    key = choose_key(tree, ordered, at, clause)
    if not room_in_list(tree, at, key, work.missing):
        return False
    slot = find_slot(tree.lists, at, key)
    start = list_start(tree.lists, slot)
    place = start + list_count(tree.lists, slot)
    label = tree.clause_label[clause] if len(tree.clause_label) > 0 else np.int64(clause)
    while place > start and label_of(tree, place - 1) > label:
        move_entry(tree, place - 1, place)
        place -= 1
    write_entry(tree, ordered, place, clause, key)
    tree.lists.slot[slot, 0] += ONE
    tree.node[at, SIZE] += 1
    return True


@kernel
def put_everywhere(tree: Quadtree, ordered: Ordered, clause: Number, work: Work) -> Number:
    """Put a clause into all places that it is not in yet; return whether there was room."""
    box = ordered.box[clause]
    work.stack[0] = 0
    place = np.int64(0)
    at, top = next_place(tree, box, work.stack, np.int64(1))
    while at >= 0:
        if place == work.state[PLACE]:
            if not put_clause(tree, ordered, at, clause, work):
                return False
            work.state[PLACE] += 1
        place += 1
        at, top = next_place(tree, box, work.stack, top)
    work.state[PLACE] = ALL_PLACES
    return True


@kernel
def copy_clauses(tree: Quadtree, at: Number, clauses: NDArray[np.int32]) -> None:
    """Copy the numbers of the clauses in a node's own lists, in the order of their labels."""
    first, slots, count = tree.lists.table[at, FIRST], tree.lists.table[at, SLOTS], np.int64(0)
    for slot in range(first, first + slots):
        if (tree.lists.slot[slot, 0] & LOW32) != np.uint64(0):
            start = list_start(tree.lists, slot)
            for i in range(start, start + list_count(tree.lists, slot)):
                clauses[count] = tree.entry[i, CLAUSE]
                count += 1
    if len(tree.clause_label) > 0:
        clauses[:] = clauses[np.argsort(tree.clause_label[clauses])]
    else:
        clauses.sort()


@kernel
def drop_lists(tree: Quadtree, at: Number) -> None:
    """Take a node's own lists away."""
    first, slots = tree.lists.table[at, FIRST], tree.lists.table[at, SLOTS]
    for slot in range(first, first + slots):
        token = tree.lists.slot[slot, 0] & LOW32
        if token != np.uint64(0):
            tree.state[LEFT] += list_room(tree.lists, slot)
            forget_above(tree, at, np.int64(token) - 1)
    drop_table(tree.lists, at)
    tree.node[at, SIZE] = 0


@kernel
def start_split(tree: Quadtree, at: Number, work: Work) -> Number:
    """Put a leaf on the stack with its clauses, without its lists; return whether there was room.

    The stack is empty.
    """
    size = np.int64(tree.node[at, SIZE])
    if size > len(work.clause):
        work.missing[M_CLAUSES] = size
        return False
    copy_clauses(tree, at, work.clause[:size])
    drop_lists(tree, at)
    work.step[0, 0], work.step[0, 1], work.step[0, 2] = at, 0, size
    work.state[STEPS] = 1
    return True


@kernel
def split_places(
    tree: Quadtree, ordered: Ordered, clause: Number, work: Work, cover: Cover
) -> Number:
    """Split the leaves that are too large since a clause came; return whether there was room."""
    box = ordered.box[clause]
    work.stack[0] = 0
    at, top = next_place(tree, box, work.stack, np.int64(1))
    while at >= 0:
        if tree.node[at, CHILD] < 0 and tree.node[at, SIZE] > tree.node[at, RULE]:
            # A leaf that is split, or not after all, is not too large any more.
            if not start_split(tree, at, work) or not grow_nodes(tree, ordered, work, cover):
                return False
        at, top = next_place(tree, box, work.stack, top)
    return True


@kernel
def insert_clauses(
    tree: Quadtree, ordered: Ordered, last: Number, work: Work, cover: Cover
) -> Number:
    """Add clauses from the next one to ``last``; return whether there was room."""
    while True:
        if not grow_nodes(tree, ordered, work, cover):
            return False
        clause = work.state[NEXT]
        if clause == last:
            return True
        if work.state[PLACE] != ALL_PLACES and not put_everywhere(tree, ordered, clause, work):
            return False
        if not split_places(tree, ordered, clause, work, cover):
            return False
        work.state[NEXT], work.state[PLACE] = clause + 1, 0


@kernel
def take_clause(tree: Quadtree, ordered: Ordered, at: Number, clause: Number) -> None:
    """Take a clause out of the lists of a node; it is in one of them."""
    entry = tree.entry
    for i in range(length_of(ordered, clause)):
        token = token_at(ordered, clause, i)
        slot = find_slot(tree.lists, at, token)
        if slot < 0:
            continue
        start, count = list_start(tree.lists, slot), list_count(tree.lists, slot)
        last = start + count - 1
        place = start
        while place <= last and entry[place, CLAUSE] != clause:
            place += 1
        if place > last:
            continue
        for i in range(place, last):
            move_entry(tree, i + 1, i)
        tree.lists.slot[slot, 0] -= ONE
        tree.node[at, SIZE] -= 1
        if count == 1:
            tree.state[LEFT] += list_room(tree.lists, slot)
            remove_slot(tree.lists, at, slot)
            forget_above(tree, at, token)
        return


@kernel
def remove_clauses(
    tree: Quadtree, ordered: Ordered, gone: NDArray[np.int64], stack: NDArray[np.int64]
) -> None:
    """Take clauses out of all lists that they stand in."""
    for g in range(len(gone)):
        box = ordered.box[gone[g]]
        stack[0] = 0
        at, top = next_place(tree, box, stack, np.int64(1))
        while at >= 0:
            take_clause(tree, ordered, at, gone[g])
            at, top = next_place(tree, box, stack, top)


@kernel
def move_entries(tree: Quadtree, entry: NDArray[np.int32], rank: NDArray[np.int32]) -> None:
    """Copy all lists, node by node, into another pool; what was given back is left behind."""
    end = np.int64(0)
    for at in range(tree.state[NODES]):
        first, slots = tree.lists.table[at, FIRST], tree.lists.table[at, SLOTS]
        for slot in range(first, first + slots):
            if (tree.lists.slot[slot, 0] & LOW32) != np.uint64(0):
                start, room = list_start(tree.lists, slot), list_room(tree.lists, slot)
                for i in range(list_count(tree.lists, slot)):
                    for part in range(WIDTH):
                        entry[end + i, part] = tree.entry[start + i, part]
                    if len(rank) > 0:
                        rank[end + i] = tree.entry_rank[start + i]
                place_list(tree.lists, slot, end, room)
                end += room
    tree.state[TOP], tree.state[LEFT] = end, 0


@kernel
def relist_nodes(
    tree: Quadtree,
    ordered: Ordered,
    start: NDArray[np.int64],
    clauses: NDArray[np.int32],
    work: Work,
    cover: Cover,
) -> Number:
    """Give all nodes, which have no lists, those of their clauses; return whether there was room.

    Those of node ``n`` are ``clauses[start[n]:start[n + 1]]``; the next node is that of the work.
    """
    while work.state[NEXT] < tree.state[NODES]:
        at = work.state[NEXT]
        own = clauses[start[at] : start[at + 1]]
        if not make_lists(tree, ordered, at, own, cover, work.missing):
            return False
        if tree.node[at, CHILD] < 0 and len(own) > tree.node[at, RULE]:
            tree.node[at, RULE] = 2 * len(own)
        work.state[NEXT] += 1
    return True
