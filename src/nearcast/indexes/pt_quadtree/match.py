"""Match messages against a pivotal-token quadtree: filter its nodes, then verify what they list.

Yu, Li and Feng, CIKM 2015, section 4.2. A node is pruned if its region does not meet the message
(case 1) or none of its pivotal tokens occurs (case 2). An inner node tells both for its children:
where a token of its cover set occurs, all of them have it (case 4); else the bits of the tokens in
its non-cover set say which have one (case 3). The paper opens all descendants in case 4; but a
child that has a token need not have it everywhere, so here every inner node is asked.

Whether a set has tokens of the message is told by looking up these or by going through the set,
whichever is less (section 4.2, with the cost rule of 3.3). Lists are grouped by pivotal token, and
only those whose token occurs are looked at: others have no matches. Of an entry, the box is
verified, and then the other tokens.

A clause may stand in several leaves. It is reported by the one that has the south-west corner of
what the message and its box have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.ordered_clauses import Ordered
from nearcast.compiled.token_filter import clear_filter, occurs, set_filter
from nearcast.compiled.token_regions import list_count, list_start
from nearcast.compiled.token_table import COUNT, LOW32, NO_TOKEN, Tables, find_slot, home
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST
from nearcast.indexes.pt_quadtree.tree import (
    CHILD,
    CHILDREN,
    EAST,
    NORTH,
    SOUTH,
    WEST,
    Quadtree,
    touched_children,
)
from nearcast.indexes.pt_quadtree.verify import Scratch, Seen, verify_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays

LOOKUP_COST = 4
"""To look a token up costs as much as to go through so many slots."""


@inlined_kernel
def goes_through(tables: Tables, at: Number, seen: Seen) -> Number:
    """Tell whether a table is to be gone through, rather than looked up in."""
    return tables.table[at, SLOTS] <= LOOKUP_COST * (len(seen.tokens) + 1)


@inlined_kernel
def token_of(tables: Tables, slot: Number) -> Number:
    """Return the token of a slot, or -1 if it is free."""
    return np.int64(tables.slot[slot, 0] & LOW32) - 1


@kernel
def ask_ahead(tables: Tables, at: Number, seen: Seen) -> None:
    """Ask for the slots of a table at which the message's tokens would stand."""
    first, slots = tables.table[at, FIRST], tables.table[at, SLOTS]
    for i in range(len(seen.tokens)):
        prefetch(tables.slot, first + home(np.int64(seen.tokens[i]), slots))


@kernel
def open_children(sets: Tables, at: Number, seen: Seen, wanted: Number) -> Number:
    """Return which of the wanted children have a pivotal token that occurs."""
    found = np.uint64(0)
    if goes_through(sets, at, seen):
        first = sets.table[at, FIRST]
        for slot in range(first, first + sets.table[at, SLOTS]):
            if (sets.slot[slot, 1] & wanted & ~found) == np.uint64(0):
                continue
            token = token_of(sets, slot)
            if token >= 0 and occurs(seen.token_filter, seen.tokens, token):
                found |= sets.slot[slot, 1] & wanted
                if found == wanted:
                    break
        return found
    for i in range(len(seen.tokens) + 1):
        token = np.int64(seen.tokens[i]) if i < len(seen.tokens) else NO_TOKEN
        slot = find_slot(sets, at, token)
        if slot >= 0:
            found |= sets.slot[slot, 1] & wanted
            if found == wanted:
                break
    return found


@inlined_kernel
def collect_list(
    tree: Quadtree, at: Number, slot: Number, lists: NDArray[np.int64], count: Number
) -> Number:
    """Put a list aside and ask for its beginning; return how many there are then."""
    start, size = list_start(tree.lists, slot), list_count(tree.lists, slot)
    if len(tree.entry_rank) > 0:
        prefetch(tree.entry_rank, start)
        prefetch(tree.entry_rank, start + 16)
    for place in range(start, start + min(size, np.int64(8)), 2):
        prefetch(tree.entry, place)
    lists[count, 0], lists[count, 1], lists[count, 2] = at, start, size
    return count + 1


@kernel
def collect_lists(
    tree: Quadtree, at: Number, seen: Seen, lists: NDArray[np.int64], count: Number
) -> Number:
    """Put a node's lists aside whose token occurs; return how many there are then.

    There is room for as many as the message has tokens.
    """
    tables = tree.lists
    if goes_through(tables, at, seen):
        first = tables.table[at, FIRST]
        for slot in range(first, first + tables.table[at, SLOTS]):
            token = token_of(tables, slot)
            if token >= 0 and occurs(seen.token_filter, seen.tokens, token):
                count = collect_list(tree, at, slot, lists, count)
        return count
    ask_ahead(tables, at, seen)
    for i in range(len(seen.tokens) + 1):
        token = np.int64(seen.tokens[i]) if i < len(seen.tokens) else NO_TOKEN
        slot = find_slot(tables, at, token)
        if slot >= 0:
            count = collect_list(tree, at, slot, lists, count)
    return count


@kernel
def count_entries(lists: NDArray[np.int64]) -> Number:
    """Return how many entries lists have together."""
    total = np.int64(0)
    for i in range(len(lists)):
        total += lists[i, 2]
    return total


@kernel
def meets_root(tree: Quadtree, box: NDArray[np.int32]) -> Number:
    """Tell whether a box meets the region of all."""
    across = box[0] <= tree.node[0, EAST] and box[2] >= tree.node[0, WEST]
    return across and box[1] <= tree.node[0, NORTH] and box[3] >= tree.node[0, SOUTH]


@kernel
def begin_filter(tree: Quadtree, seen: Seen, scratch: Scratch) -> Number:
    """Put the root on the stack, if the message meets it; return the top of the stack."""
    scratch.stack[0] = 0
    return np.int64(meets_root(tree, seen.box))


@kernel
def filter_nodes(
    tree: Quadtree, seen: Seen, scratch: Scratch, top: Number
) -> tuple[Number, Number, Number]:
    """Open the nodes on the stack and put their lists aside, as long as there is room for lists.

    Return the top of the stack, where nodes are left if there was no room, how many lists there
    are, and how many nodes were visited.
    """
    stack = scratch.stack
    lists, visited = np.int64(0), np.int64(0)
    while top > 0 and lists + len(seen.tokens) + 1 <= len(scratch.lists):
        top -= 1
        at = stack[top]
        visited += 1
        if tree.lists.table[at, COUNT] > 0:
            lists = collect_lists(tree, at, seen, scratch.lists, lists)
        first = np.int64(tree.node[at, CHILD])
        if first >= 0:
            wanted = np.uint64(touched_children(tree.node, at, seen.box)) & CHILDREN
            found_children = open_children(tree.sets, at, seen, wanted)
            for child in range(4):
                if (found_children >> np.uint64(child)) & np.uint64(1):
                    stack[top] = first + child
                    top += 1
    return top, lists, visited


@kernel
def match_message(
    tree: Quadtree,
    ordered: Ordered,
    seen: Seen,
    scratch: Scratch,
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Write the matches of a message.

    Return how many (-1: no room), the entries examined and the nodes visited.
    """
    found, examined, visited = np.int64(0), np.int64(0), np.int64(0)
    top = begin_filter(tree, seen, scratch)
    while top > 0:
        top, lists, opened = filter_nodes(tree, seen, scratch, top)
        visited += opened
        examined += count_entries(scratch.lists[:lists])
        more = verify_lists(
            tree, ordered, seen, scratch.lists[:lists], scratch.candidate, match[found:]
        )
        if more < 0:
            return more, examined, visited
        found += more
    return found, examined, visited


@kernel
def borrowed_tables(tables: Tables) -> Tables:
    """Return the same tables without owners."""
    return Tables(borrow(tables.slot), borrow(tables.table), borrow(tables.top))


@kernel
def borrowed_tree(tree: Quadtree) -> Quadtree:
    """Return the same tree without owners."""
    return Quadtree(
        borrow(tree.node),
        borrowed_tables(tree.sets),
        borrowed_tables(tree.lists),
        borrow(tree.entry),
        borrow(tree.entry_rank),
        borrow(tree.clause_label),
        borrow(tree.state),
    )


@kernel
def borrowed_scratch(scratch: Scratch) -> Scratch:
    """Return the same room without owners."""
    return Scratch(
        borrow(scratch.token_filter),
        borrow(scratch.stack),
        borrow(scratch.lists),
        borrow(scratch.candidate),
    )


@kernel
def match_messages(
    tree: Quadtree,
    ordered: Ordered,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: Scratch,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match the messages of a part; return where the room ended, the examined and the visited.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start`` of the first says where to begin.
    """
    tree, scratch = borrowed_tree(tree), borrowed_scratch(scratch)
    ordered = Ordered(borrow(ordered.start), borrow(ordered.token), borrow(ordered.box))
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    examined, visited = np.int64(0), np.int64(0)
    for m in range(part[0], part[1]):
        tokens = token[messages.token_start[m] : messages.token_start[m + 1]]
        seen = Seen(tokens[: known_tokens(tokens)], box[m], scratch.token_filter)
        set_filter(scratch.token_filter, seen.tokens)
        start = match_start[m]
        found, more, opened = match_message(tree, ordered, seen, scratch, match[start:])
        clear_filter(scratch.token_filter, seen.tokens)
        if found < 0:
            return m, examined, visited
        examined += more
        visited += opened
        match_start[m + 1] = start + found
    return part[1], examined, visited
