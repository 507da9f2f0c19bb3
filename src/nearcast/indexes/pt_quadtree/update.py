"""Insert clauses into a pt-quadtree and remove them, in place.

Yu, Li and Feng, CIKM 2015, section 4.1, "Updates". A new clause is listed under a pivotal token
that its node has already, if it has one of the clause's tokens, else under its rarest token. A leaf
that has become too large is split. The paper marks deleted entries; here the entries after it in
the list move up at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.clauses import Ordered, length_of, token_at
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_lists import (
    ONE,
    list_capacity,
    list_count,
    list_start,
    place_list,
)
from nearcast.compiled.token_table import (
    LOW32,
    claim_slot,
    drop_table,
    find_slot,
    remove_slot,
    reserve_tokens,
)
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST_SLOT
from nearcast.indexes.pt_quadtree.build import (
    MORE_CLAUSES,
    MORE_ENTRIES,
    MORE_LIST_SLOTS,
    NEXT,
    NEXT_PLACE,
    TASKS,
    BuildScratch,
    reserve_in_sets,
    run_tasks,
)
from nearcast.indexes.pt_quadtree.layout import (
    CLAUSE,
    ENTRIES,
    FIRST_CHILD,
    FREED,
    SIZE,
    SPLIT_ABOVE,
    Quadtree,
    add_to_sets,
    copy_entry,
    entry_label,
    next_list_node,
    remove_from_sets,
    write_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.pt_quadtree.pivots import PivotScratch

ALL_PLACES = np.int64(-1)
"""The next place of a clause that is listed everywhere; leaves may still have to be split."""


@kernel
def insert_clauses(
    tree: Quadtree, ordered: Ordered, last: Number, scratch: BuildScratch, pivots: PivotScratch
) -> Number:
    """Insert the clauses from the next one to ``last``; return whether there was enough space."""
    while True:
        if not run_tasks(tree, ordered, scratch, pivots):
            return False
        clause = scratch.progress[NEXT]
        if clause == last:
            return True
        if scratch.progress[NEXT_PLACE] != ALL_PLACES and not add_to_all_nodes(
            tree, ordered, clause, scratch
        ):
            return False
        if not split_full_leaves(tree, ordered, clause, scratch, pivots):
            return False
        scratch.progress[NEXT], scratch.progress[NEXT_PLACE] = clause + 1, 0


@kernel
def add_to_all_nodes(
    tree: Quadtree, ordered: Ordered, clause: Number, scratch: BuildScratch
) -> Number:
    """List a clause in all nodes where it is not yet; return whether there was enough space."""
    box = ordered.box[clause]
    scratch.stack[0] = 0
    place = np.int64(0)
    at, top = next_list_node(tree, box, scratch.stack, np.int64(1))
    while at >= 0:
        if place == scratch.progress[NEXT_PLACE]:
            if not add_to_node(tree, ordered, at, clause, scratch.shortage):
                return False
            scratch.progress[NEXT_PLACE] += 1
        place += 1
        at, top = next_list_node(tree, box, scratch.stack, top)
    scratch.progress[NEXT_PLACE] = ALL_PLACES
    return True


@kernel
def add_to_node(
    tree: Quadtree, ordered: Ordered, at: Number, clause: Number, shortage: NDArray[np.int64]
) -> Number:
    """List a clause in a node, in the order of labels; return whether there was enough space."""
    pivot = choose_pivot(tree, ordered, at, clause)
    if not reserve_entry(tree, at, pivot, shortage):
        return False
    slot = find_slot(tree.lists, at, pivot)
    start = list_start(tree.lists, slot)
    place = start + list_count(tree.lists, slot)
    label = tree.clause_label[clause] if len(tree.clause_label) > 0 else np.int64(clause)
    while place > start and entry_label(tree, place - 1) > label:
        copy_entry(tree, place - 1, place)
        place -= 1
    write_entry(tree, ordered, place, clause, pivot)
    tree.lists.slot[slot, 0] += ONE
    tree.node[at, SIZE] += 1
    return True


@kernel
def choose_pivot(tree: Quadtree, ordered: Ordered, at: Number, clause: Number) -> Number:
    """Return the token under which to list a new clause."""
    for i in range(length_of(ordered, clause)):
        token = token_at(ordered, clause, i)
        if find_slot(tree.lists, at, token) >= 0:
            return token
    return token_at(ordered, clause, 0)


@kernel
def reserve_entry(tree: Quadtree, at: Number, pivot: Number, shortage: NDArray[np.int64]) -> Number:
    """Reserve one more entry in a list, which may be new; return whether there was enough space."""
    slot = find_slot(tree.lists, at, pivot)
    if slot >= 0 and list_count(tree.lists, slot) < list_capacity(tree.lists, slot):
        return True
    count = list_count(tree.lists, slot) if slot >= 0 else np.int64(0)
    capacity = count + (count >> 1) + 2
    if tree.state[ENTRIES] + capacity > len(tree.entry):
        shortage[MORE_ENTRIES] = capacity
        return False
    if slot < 0:
        shortage[MORE_LIST_SLOTS] = reserve_tokens(tree.lists, at, np.int64(1))
        if shortage[MORE_LIST_SLOTS] > 0 or not reserve_in_sets(tree, at, np.int64(1), shortage):
            return False
        slot = claim_slot(tree.lists, at, pivot)
        add_to_sets(tree, at, pivot)
    else:
        start = list_start(tree.lists, slot)
        for i in range(count):
            copy_entry(tree, start + i, tree.state[ENTRIES] + i)
        tree.state[FREED] += list_capacity(tree.lists, slot)
    place_list(tree.lists, slot, tree.state[ENTRIES], capacity)
    tree.state[ENTRIES] += capacity
    return True


@kernel
def split_full_leaves(
    tree: Quadtree, ordered: Ordered, clause: Number, scratch: BuildScratch, pivots: PivotScratch
) -> Number:
    """Split the leaves that a new clause made too large; return whether there was enough space."""
    box = ordered.box[clause]
    scratch.stack[0] = 0
    at, top = next_list_node(tree, box, scratch.stack, np.int64(1))
    while at >= 0:
        if tree.node[at, FIRST_CHILD] < 0 and tree.node[at, SIZE] > tree.node[at, SPLIT_ABOVE]:
            # Afterwards the leaf is split, or its split size is larger.
            if not start_split(tree, at, scratch) or not run_tasks(tree, ordered, scratch, pivots):
                return False
        at, top = next_list_node(tree, box, scratch.stack, top)
    return True


@kernel
def start_split(tree: Quadtree, at: Number, scratch: BuildScratch) -> Number:
    """Make splitting a leaf the only task, and drop its lists; return whether there was space."""
    size = np.int64(tree.node[at, SIZE])
    if size > len(scratch.clause):
        scratch.shortage[MORE_CLAUSES] = size
        return False
    collect_clauses(tree, at, scratch.clause[:size])
    drop_lists(tree, at)
    scratch.task[0, 0], scratch.task[0, 1], scratch.task[0, 2] = at, 0, size
    scratch.progress[TASKS] = 1
    return True


@kernel
def collect_clauses(tree: Quadtree, at: Number, clauses: NDArray[np.int32]) -> None:
    """Write the clauses in a node's own lists, in the order of their labels."""
    first, slots = tree.lists.table[at, FIRST_SLOT], tree.lists.table[at, SLOTS]
    count = np.int64(0)
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
    """Drop a node's own lists."""
    first, slots = tree.lists.table[at, FIRST_SLOT], tree.lists.table[at, SLOTS]
    for slot in range(first, first + slots):
        token = tree.lists.slot[slot, 0] & LOW32
        if token != np.uint64(0):
            tree.state[FREED] += list_capacity(tree.lists, slot)
            remove_from_sets(tree, at, np.int64(token) - 1)
    drop_table(tree.lists, at)
    tree.node[at, SIZE] = 0


@kernel
def remove_clauses(
    tree: Quadtree, ordered: Ordered, removed: NDArray[np.int64], stack: NDArray[np.int64]
) -> None:
    """Remove clauses from all nodes that list them."""
    for i in range(len(removed)):
        box = ordered.box[removed[i]]
        stack[0] = 0
        at, top = next_list_node(tree, box, stack, np.int64(1))
        while at >= 0:
            remove_from_node(tree, ordered, at, removed[i])
            at, top = next_list_node(tree, box, stack, top)


@kernel
def remove_from_node(tree: Quadtree, ordered: Ordered, at: Number, clause: Number) -> None:
    """Remove a clause from the list of a node that has it."""
    for i in range(length_of(ordered, clause)):
        token = token_at(ordered, clause, i)
        slot = find_slot(tree.lists, at, token)
        if slot < 0:
            continue
        start, count = list_start(tree.lists, slot), list_count(tree.lists, slot)
        last = start + count - 1
        place = start
        while place <= last and tree.entry[place, CLAUSE] != clause:
            place += 1
        if place > last:
            continue
        for behind in range(place, last):
            copy_entry(tree, behind + 1, behind)
        tree.lists.slot[slot, 0] -= ONE
        tree.node[at, SIZE] -= 1
        if count == 1:
            tree.state[FREED] += list_capacity(tree.lists, slot)
            remove_slot(tree.lists, at, slot)
            remove_from_sets(tree, at, token)
        return
