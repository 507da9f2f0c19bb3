"""Match messages against a pt-quadtree: filter its nodes, then verify the lists they leave.

Yu, Li and Feng, CIKM 2015, section 4.2. A node is pruned if its region does not overlap the message
(case 1) or none of its pivotal tokens occurs (case 2). An inner node decides both for its children:
if a token of its cover set occurs, all of them have it (case 4); otherwise the bits of the tokens
in its non-cover set tell which do (case 3).

Whether a set has tokens of the message is decided by looking these up or by scanning the set,
whichever costs less (section 4.2, with the cost rule of 3.3). Only lists whose token occurs are
verified: first boxes and a filter of the message's tokens, for all entries of a list, then the
other tokens of the entries that are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import MessageView, known_tokens
from nearcast.compiled.token_filter import LOW_BITS, clear_filter, occurs, set_filter
from nearcast.compiled.token_lists import list_count, list_start
from nearcast.compiled.token_table import COUNT, LOW32, NO_TOKEN, Tables, find_slot, home
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST_SLOT
from nearcast.indexes.pt_quadtree.layout import (
    ALL_CHILDREN,
    CLAUSE,
    EAST,
    ENTRY_WIDTH,
    FIRST_CHILD,
    NORTH,
    OTHER_TOKENS,
    SOUTH,
    WEST,
    Quadtree,
    overlapped_children,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import Ordered
    from nearcast.compiled.messages import MessageArrays, Output

LOOKUP_COST = 4
"""Looking up a token costs as much as scanning this many slots."""


class MatchScratch(NamedTuple):
    """Scratch for one message.

    ``token_filter`` uint64[words]; ``stack`` int64[STACK]: nodes to open; ``lists`` int64[n, 3]:
    lists to verify, as node, start and size; ``candidate`` int64[m]: places of entries.
    """

    token_filter: NDArray[np.uint64]
    stack: NDArray[np.int64]
    lists: NDArray[np.int64]
    candidate: NDArray[np.int64]


@kernel
def match_messages(
    tree: Quadtree,
    ordered: Ordered,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part.

    Return the message at which the output was full (or the end), how many entries were examined
    and how many nodes were visited.
    """
    tree, ordered, scratch = borrow(tree), borrow(ordered), borrow(scratch)
    token, box = borrow(messages.token), borrow(messages.box)
    match_start, match = borrow(output)
    examined, visited = np.int64(0), np.int64(0)
    for m in range(part[0], part[1]):
        tokens = token[messages.token_start[m] : messages.token_start[m + 1]]
        query = MessageView(tokens[: known_tokens(tokens)], box[m], scratch.token_filter)
        set_filter(scratch.token_filter, query.tokens)
        start = match_start[m]
        found, more, opened = match_message(tree, ordered, query, scratch, match[start:])
        clear_filter(scratch.token_filter, query.tokens)
        if found < 0:
            return m, examined, visited
        examined += more
        visited += opened
        match_start[m + 1] = start + found
    return part[1], examined, visited


@kernel
def match_message(
    tree: Quadtree,
    ordered: Ordered,
    query: MessageView,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Write the matches of a message.

    Return how many (-1: the output was full), entries examined and nodes visited.
    """
    found, examined, visited = np.int64(0), np.int64(0), np.int64(0)
    top = start_filter(tree, query, scratch)
    while top > 0:
        top, lists, opened = filter_nodes(tree, query, scratch, top)
        visited += opened
        examined += count_entries(scratch.lists[:lists])
        more = verify_lists(
            tree, ordered, query, scratch.lists[:lists], scratch.candidate, match[found:]
        )
        if more < 0:
            return more, examined, visited
        found += more
    return found, examined, visited


@kernel
def start_filter(tree: Quadtree, query: MessageView, scratch: MatchScratch) -> Number:
    """Push the root on the stack if the message overlaps it; return the top of the stack."""
    scratch.stack[0] = 0
    return np.int64(overlaps_root(tree, query.box))


@kernel
def overlaps_root(tree: Quadtree, box: NDArray[np.int32]) -> Number:
    """Tell whether a box overlaps the region of the root."""
    across = box[0] <= tree.node[0, EAST] and box[2] >= tree.node[0, WEST]
    return across and box[1] <= tree.node[0, NORTH] and box[3] >= tree.node[0, SOUTH]


@kernel
def filter_nodes(
    tree: Quadtree, query: MessageView, scratch: MatchScratch, top: Number
) -> tuple[Number, Number, Number]:
    """Open the nodes on the stack and collect their lists, until there is no space for lists.

    Return the top of the stack, how many lists there are, and how many nodes were visited.
    """
    stack = scratch.stack
    lists, visited = np.int64(0), np.int64(0)
    while top > 0 and lists + len(query.tokens) + 1 <= len(scratch.lists):
        top -= 1
        at = stack[top]
        visited += 1
        if tree.lists.table[at, COUNT] > 0:
            lists = collect_lists(tree, at, query, scratch.lists, lists)
        first = np.int64(tree.node[at, FIRST_CHILD])
        if first >= 0:
            overlapped = overlapped_children(tree.node, at, query.box)
            opened = children_to_open(tree.sets, at, query, np.uint64(overlapped) & ALL_CHILDREN)
            for child in range(4):
                if (opened >> np.uint64(child)) & np.uint64(1):
                    stack[top] = first + child
                    top += 1
    return top, lists, visited


@inlined_kernel
def scanning_is_cheaper(tables: Tables, at: Number, query: MessageView) -> Number:
    """Tell whether to scan a table rather than to look up the tokens of the message."""
    return tables.table[at, SLOTS] <= LOOKUP_COST * (len(query.tokens) + 1)


@inlined_kernel
def slot_token(tables: Tables, slot: Number) -> Number:
    """Return the token of a slot, or -1 if it is free."""
    return np.int64(tables.slot[slot, 0] & LOW32) - 1


@kernel
def children_to_open(sets: Tables, at: Number, query: MessageView, wanted: Number) -> Number:
    """Return which of the wanted children have a pivotal token that occurs."""
    found = np.uint64(0)
    if scanning_is_cheaper(sets, at, query):
        first = sets.table[at, FIRST_SLOT]
        for slot in range(first, first + sets.table[at, SLOTS]):
            if (sets.slot[slot, 1] & wanted & ~found) == np.uint64(0):
                continue
            token = slot_token(sets, slot)
            if token >= 0 and occurs(query.token_filter, query.tokens, token):
                found |= sets.slot[slot, 1] & wanted
                if found == wanted:
                    break
        return found
    for i in range(len(query.tokens) + 1):
        token = np.int64(query.tokens[i]) if i < len(query.tokens) else NO_TOKEN
        slot = find_slot(sets, at, token)
        if slot >= 0:
            found |= sets.slot[slot, 1] & wanted
            if found == wanted:
                break
    return found


@kernel
def collect_lists(
    tree: Quadtree, at: Number, query: MessageView, lists: NDArray[np.int64], count: Number
) -> Number:
    """Collect the lists of a node whose token occurs; return the new count of lists.

    There is space for one list per token of the message, and one more.
    """
    tables = tree.lists
    if scanning_is_cheaper(tables, at, query):
        first = tables.table[at, FIRST_SLOT]
        for slot in range(first, first + tables.table[at, SLOTS]):
            token = slot_token(tables, slot)
            if token >= 0 and occurs(query.token_filter, query.tokens, token):
                count = collect_list(tree, at, slot, lists, count)
        return count
    prefetch_slots(tables, at, query)
    for i in range(len(query.tokens) + 1):
        token = np.int64(query.tokens[i]) if i < len(query.tokens) else NO_TOKEN
        slot = find_slot(tables, at, token)
        if slot >= 0:
            count = collect_list(tree, at, slot, lists, count)
    return count


@inlined_kernel
def collect_list(
    tree: Quadtree, at: Number, slot: Number, lists: NDArray[np.int64], count: Number
) -> Number:
    """Collect a list and prefetch its beginning; return the new count of lists."""
    start, size = list_start(tree.lists, slot), list_count(tree.lists, slot)
    if len(tree.entry_rank) > 0:
        prefetch(tree.entry_rank, start)
        prefetch(tree.entry_rank, start + 16)
    for place in range(start, start + min(size, np.int64(8)), 2):
        prefetch(tree.entry, place)
    lists[count, 0], lists[count, 1], lists[count, 2] = at, start, size
    return count + 1


@kernel
def prefetch_slots(tables: Tables, at: Number, query: MessageView) -> None:
    """Prefetch the home slots of the message's tokens in a table."""
    first, slots = tables.table[at, FIRST_SLOT], tables.table[at, SLOTS]
    for i in range(len(query.tokens)):
        prefetch(tables.slot, first + home(np.int64(query.tokens[i]), slots))


@kernel
def count_entries(lists: NDArray[np.int64]) -> Number:
    """Return how many entries the lists have in total."""
    total = np.int64(0)
    for i in range(len(lists)):
        total += lists[i, 2]
    return total


@kernel
def verify_lists(
    tree: Quadtree,
    ordered: Ordered,
    query: MessageView,
    lists: NDArray[np.int64],
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
) -> Number:
    """Write the matches in collected lists; return how many, or -1 if the output was full."""
    found, count = np.int64(0), np.int64(0)
    for i in range(len(lists)):
        at, place = lists[i, 0], lists[i, 1]
        end = place + lists[i, 2]
        corner = tree.node[at, WEST], tree.node[at, SOUTH]
        while True:
            stop = min(end, place + len(candidate) - count)
            count = keep_candidates(tree.entry, query, corner, (place, stop), candidate, count)
            place = stop
            if place == end and i + 1 < len(lists):
                break
            if found + count > len(match):
                return np.int64(-1)
            found += take_candidates(tree.entry, ordered, query, candidate[:count], match[found:])
            count = np.int64(0)
            if place == end:
                break
    return found


@kernel
def keep_candidates(
    entry: NDArray[np.int32],
    query: MessageView,
    corner: tuple[Number, Number],
    places: tuple[Number, Number],
    candidate: NDArray[np.int64],
    count: Number,
) -> Number:
    """Append the places of entries that may match to the candidates; return the new count.

    Everything is compared for every entry, without a branch: a box in a leaf is as likely to
    overlap the message as not, which branch prediction cannot guess. A clause is left to another
    leaf unless the south-west corner of the overlap is not before this node's corner. (It cannot
    be after the node's region: both boxes begin before the region ends, or would not be here.)
    """
    box, bits = query.box, query.token_filter
    west, south, east, north = box[0], box[1], box[2], box[3]
    on_west, on_south = west >= corner[0], south >= corner[1]
    for place in range(places[0], places[1]):
        may = filter_bit(bits, entry[place, OTHER_TOKENS])
        may &= filter_bit(bits, entry[place, OTHER_TOKENS + 1])
        may &= filter_bit(bits, entry[place, OTHER_TOKENS + 2])
        touches = (entry[place, WEST] <= east) & (entry[place, SOUTH] <= north)
        touches &= (entry[place, EAST] >= west) & (entry[place, NORTH] >= south)
        touches &= on_west | (entry[place, WEST] >= corner[0])
        touches &= on_south | (entry[place, SOUTH] >= corner[1])
        candidate[count] = place
        count += np.int64(touches) & np.int64(may & np.uint64(1))
    return count


@inlined_kernel
def filter_bit(token_filter: NDArray[np.uint64], token: Number) -> Number:
    """Return the filter's bit, as the lowest, of a token that may be inverted."""
    bit = np.uint64(token ^ (token >> 31)) & LOW_BITS
    return token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))


@kernel
def take_candidates(
    entry: NDArray[np.int32],
    ordered: Ordered,
    query: MessageView,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
) -> Number:
    """Write the candidates whose other tokens occur; the output has space. Return how many."""
    found = np.int64(0)
    for i in range(len(candidate)):
        match[found] = entry[candidate[i], CLAUSE]
        found += np.int64(tokens_occur(entry, ordered, query, candidate[i]))
    return found


@inlined_kernel
def tokens_occur(
    entry: NDArray[np.int32], ordered: Ordered, query: MessageView, place: Number
) -> Number:
    """Tell whether the other tokens of an entry occur."""
    for i in range(OTHER_TOKENS, ENTRY_WIDTH):
        token = np.int64(entry[place, i])
        if token == NO_TOKEN:
            return True
        if token < 0:  # the clause has more tokens than an entry
            clause = np.int64(entry[place, CLAUSE])
            for at in range(ordered.start[clause], ordered.start[clause + 1]):
                if not occurs(query.token_filter, query.tokens, np.int64(ordered.token[at])):
                    return False
            return True
        if not occurs(query.token_filter, query.tokens, token):
            return False
    return True
