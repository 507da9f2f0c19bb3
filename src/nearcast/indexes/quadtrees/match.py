"""Match messages against the quadtree indexes.

A message first collects the lists that it reaches, then scans them. Lookups in the hash table are
collected, too: the slot of each is prefetched when it is noted, and read later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    SIZE,
    START,
    ScanScratch,
    new_scan_scratch,
    scan_lists,
)
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import MessageView, known_tokens
from nearcast.compiled.token_filter import clear_filter, occurs, set_filter
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.quadtrees.cells import MAX_DEPTH, Sides, touched_children
from nearcast.indexes.quadtrees.layout import (
    BRANCH,
    BY_TOKEN,
    CHILD,
    OWNER,
    RUN_COUNT,
    RUN_START,
    TOP_OWNER,
    TREE,
    QuadArrays,
    cell_of,
    find_row,
    home,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseTokens
    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.quadtrees.cells import Cell

FOUND, LISTS, EXAMINED, VISITED, TREES, BRANCHES = range(6)
"""Items of ``counters``: matches of the message (-1: they do not fit) and lists to scan; candidates
examined and nodes visited so far; and quadtrees and branches of the trie to walk."""

ANYWHERE = np.int32(-(1 << 31))
"""The corner of a list of which all clauses are reported."""

_LEVELS = 32
_LOOKUPS = 1024
_QUEUE = 4096


class MatchScratch(NamedTuple):
    """Scratch space for one message.

    - ``scan``: the lists to scan, each with the corner before which no clause starts that is
      reported there.
    - ``lookup`` int64[many, 4]: an owner and a token to look up, and the corner of the cell.
    - ``queue`` int64[many], ``stack`` int64[many] and ``branch`` int64[many]: quadtree nodes and
      branches of the trie to visit.
    - ``token`` int64[tokens + 1, 2]: the message's tokens that an iq-tree has, each with a bit for
      every level; ``level`` int64[32]: how many tokens each level has.
    - ``counters`` int64[6]: see `FOUND` and the other items.
    """

    scan: ScanScratch
    lookup: NDArray[np.int64]
    queue: NDArray[np.int64]
    stack: NDArray[np.int64]
    branch: NDArray[np.int64]
    token: NDArray[np.int64]
    level: NDArray[np.int64]
    counters: NDArray[np.int64]


def new_match_scratch(tokens: int, trie_levels: int) -> MatchScratch:
    """Return scratch space for messages of at most ``tokens`` tokens."""
    lookups = max(_LOOKUPS, 2 * (tokens + 1))
    return MatchScratch(
        new_scan_scratch(lookups, corners=True),
        np.empty((lookups, 4), np.int64),
        np.empty(max(_QUEUE, lookups), np.int64),
        np.empty(4 * MAX_DEPTH, np.int64),
        np.empty((tokens + 1) * (trie_levels + 1), np.int64),
        np.empty((tokens + 1, 2), np.int64),
        np.empty(_LEVELS, np.int64),
        np.empty(6, np.int64),
    )


@inlined_kernel
def note_lookup(
    slot: NDArray[np.int32], owner: Number, token: Number, lookup: NDArray[np.int64]
) -> None:
    """Note a list to be looked up, and prefetch its slot."""
    lookup[0], lookup[1] = owner, token
    prefetch(slot, home(slot, owner, token))


@inlined_kernel
def corner_of(cell: Cell, box: NDArray[np.int32]) -> tuple[Number, Number]:
    """Return the corner before which no clause starts that is reported in a cell.

    A clause is reported in the cell that holds the south-west corner of its overlap with the
    message. Both touch the cell, so it is enough that where the message starts before the cell,
    the clause does not.
    """
    west = cell.west if cell.west > box[0] else ANYWHERE
    south = cell.south if cell.south > box[1] else ANYWHERE
    return west, south


@inlined_kernel
def queue_list(
    entry: NDArray[np.int32],
    row: NDArray[np.int32],
    corner: tuple[Number, Number],
    scratch: MatchScratch,
    count: Number,
) -> Number:
    """Add a list to the ``count`` ones to scan, unless it is empty; return how many there are.

    Prefetches the start of the list. There is space for it.
    """
    start, size, lists = np.int64(row[START]), np.int64(row[SIZE]), scratch.scan.lists
    lists[count, 0], lists[count, 1], lists[count, 2] = start, size, row[CAPACITY]
    lists[count, 3], lists[count, 4] = corner[0], corner[1]
    # The boxes of the first block are four cache lines, each nearly three entries long.
    for line in range(0, min(size, np.int64(10)), 3):
        prefetch(entry, start + line)
    return count + np.int64(size > 0)


@kernel
def scan_queued(
    flat: NDArray[np.int32],
    clauses: ClauseTokens,
    message: MessageView,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Write the matches of all lists that are queued."""
    counters = scratch.counters
    found, lists = counters[FOUND], counters[LISTS]
    counters[LISTS] = 0
    if found < 0:
        return
    corner = np.int64(0)  # there are corners
    more, examined = scan_lists(flat, clauses, message, scratch.scan, corner, lists, match[found:])
    counters[EXAMINED] += examined
    counters[FOUND] = found + more if more >= 0 else np.int64(-1)


# iq-tree: cells that the message touches, then its tokens in each.


@inlined_kernel
def collect_tokens(
    quad: QuadArrays, tokens: NDArray[np.int32], scratch: MatchScratch
) -> tuple[Number, Number]:
    """Look up the message's tokens in the directory; return how many it has, and all levels."""
    count, levels = np.int64(0), np.int64(0)
    scratch.level[:] = 0
    known = known_tokens(tokens)
    for i in range(known + 1):
        token = np.int64(tokens[i]) if i < known else NO_TOKEN
        at = find_row(quad.slot, TOP_OWNER, token)
        if quad.slot[at, OWNER] != 0:
            bits = np.int64(quad.slot[at, START])
            scratch.token[count, 0], scratch.token[count, 1] = token, bits
            levels |= bits
            count += 1
            level = 0
            while bits >> level:
                scratch.level[level] += (bits >> level) & 1
                level += 1
    return count, levels


@inlined_kernel
def note_node(
    quad: QuadArrays,
    message: MessageView,
    node: Number,
    tokens: Number,
    scratch: MatchScratch,
    lookups: Number,
) -> Number:
    """Note the lists of a node to be looked up; return how many lookups there are then."""
    cell = cell_of(quad, node)
    first, west, south = lookups, *corner_of(cell, message.box)
    run = quad.run[node + 1]
    if run[RUN_COUNT] < 4 * scratch.level[cell.level]:
        for i in range(run[RUN_START], run[RUN_START] + run[RUN_COUNT]):
            token = np.int64(quad.listed[i])
            if occurs(message.token_filter, message.tokens, token):
                note_lookup(quad.slot, node + 1, token, scratch.lookup[lookups])
                lookups += 1
    else:
        for i in range(tokens):
            if (scratch.token[i, 1] >> cell.level) & 1:
                note_lookup(quad.slot, node + 1, scratch.token[i, 0], scratch.lookup[lookups])
                lookups += 1
    for i in range(first, lookups):
        scratch.lookup[i, 2], scratch.lookup[i, 3] = west, south
    return lookups


@inlined_kernel
def queue_lists(quad: QuadArrays, lookups: Number, scratch: MatchScratch) -> None:
    """Queue the lists that were noted."""
    count = scratch.counters[LISTS]
    for i in range(lookups):
        lookup = scratch.lookup[i]
        at = find_row(quad.slot, lookup[0], lookup[1])
        if quad.slot[at, OWNER] != 0:
            corner = lookup[2], lookup[3]
            count = queue_list(quad.entry, quad.slot[at], corner, scratch, count)
    scratch.counters[LISTS] = count


@inlined_kernel
def match_in_cells(
    quad: QuadArrays,
    clauses: ClauseTokens,
    message: MessageView,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Write the matches of a message in an iq-tree."""
    flat, box = borrow(quad.entry.reshape(-1)), message.box
    sides = Sides(np.int64(box[0]), np.int64(box[1]), np.int64(box[2]), np.int64(box[3]))
    tokens, levels = collect_tokens(quad, message.tokens, scratch)
    stack, lookups, top = scratch.stack, np.int64(0), np.int64(1)
    stack[0] = 0
    while top > 0 and levels != 0:
        top -= 1
        node = stack[top]
        cell = cell_of(quad, node)
        if levels >> cell.level == 0:
            continue
        scratch.counters[VISITED] += 1
        if lookups + tokens > len(scratch.lookup):
            queue_lists(quad, lookups, scratch)
            scan_queued(flat, clauses, message, scratch, match)
            lookups = np.int64(0)
        lookups = note_node(quad, message, node, tokens, scratch, lookups)
        first = np.int64(quad.node[node, CHILD])
        if first >= 0:
            touched = touched_children(cell, sides)
            for child in range(4):
                if (touched >> child) & 1:
                    stack[top] = first + child
                    top += 1
    queue_lists(quad, lookups, scratch)
    scan_queued(flat, clauses, message, scratch, match)


# rq-tree and trie-quadtree: tokens of the message, then the cells that it touches.


@inlined_kernel
def note_top(tokens: NDArray[np.int32], scratch: MatchScratch) -> Number:
    """Note the children of the root to be looked up, which were prefetched; return how many."""
    known = known_tokens(tokens)
    for i in range(known + 1):
        scratch.lookup[i, 0] = TOP_OWNER
        scratch.lookup[i, 1] = np.int64(tokens[i]) if i < known else NO_TOKEN
    return np.int64(known + 1)


@inlined_kernel
def note_children(
    quad: QuadArrays, message: MessageView, owner: Number, scratch: MatchScratch
) -> Number:
    """Note the children of a branch to be looked up; return how many."""
    run, lookups, known = quad.run[owner], np.int64(0), known_tokens(message.tokens)
    if run[RUN_COUNT] < 4 * known:
        for i in range(run[RUN_START], run[RUN_START] + run[RUN_COUNT]):
            token = np.int64(quad.listed[i])
            if occurs(message.token_filter, message.tokens, token):
                note_lookup(quad.slot, owner, token, scratch.lookup[lookups])
                lookups += 1
    else:
        for i in range(known):
            note_lookup(quad.slot, owner, np.int64(message.tokens[i]), scratch.lookup[lookups])
            lookups += 1
    return lookups


@inlined_kernel
def queue_trie_nodes(quad: QuadArrays, lookups: Number, scratch: MatchScratch) -> None:
    """Queue the lists, quadtrees and branches that were noted."""
    counters = scratch.counters
    lists, trees, branches = counters[LISTS], counters[TREES], counters[BRANCHES]
    for i in range(lookups):
        at = find_row(quad.slot, scratch.lookup[i, 0], scratch.lookup[i, 1])
        row = quad.slot[at]
        if row[OWNER] == 0:
            continue
        counters[VISITED] += 1
        if row[CAPACITY] == TREE:
            prefetch(quad.node, np.int64(row[START]))
            scratch.queue[trees] = row[START]
            trees += 1
        else:
            lists = queue_list(quad.entry, row, (ANYWHERE, ANYWHERE), scratch, lists)
        if row[BRANCH] != 0:
            prefetch(quad.run, np.int64(row[BRANCH]))
            scratch.branch[branches] = row[BRANCH]
            branches += 1
    counters[LISTS], counters[TREES], counters[BRANCHES] = lists, trees, branches


@inlined_kernel
def visit_node(
    quad: QuadArrays,
    clauses: ClauseTokens,
    message: MessageView,
    node: Number,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> Number:
    """Queue the list of a quadtree node; return a bit for each child that the message touches."""
    counters = scratch.counters
    counters[VISITED] += 1
    row, cell, box = quad.node[node], cell_of(quad, node), message.box
    if row[SIZE] > 0:
        if counters[LISTS] == len(scratch.scan.lists):
            scan_queued(quad.entry.reshape(-1), clauses, message, scratch, match)
        corner = corner_of(cell, box)
        counters[LISTS] = queue_list(quad.entry, row, corner, scratch, counters[LISTS])
    if row[CHILD] < 0:
        return np.int64(0)
    sides = Sides(np.int64(box[0]), np.int64(box[1]), np.int64(box[2]), np.int64(box[3]))
    return touched_children(cell, sides)


@kernel
def walk_below(
    quad: QuadArrays,
    clauses: ClauseTokens,
    message: MessageView,
    node: Number,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Visit a node and all nodes below it that the message touches, depth first."""
    stack, top = scratch.stack, np.int64(1)
    stack[0] = node
    while top > 0:
        top -= 1
        first = np.int64(quad.node[stack[top], CHILD])
        touched = visit_node(quad, clauses, message, stack[top], scratch, match)
        for child in range(4):
            if (touched >> child) & 1:
                stack[top] = first + child
                top += 1


@inlined_kernel
def walk_trees(
    quad: QuadArrays,
    clauses: ClauseTokens,
    message: MessageView,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Visit the nodes of all queued quadtrees that the message touches.

    All trees are walked side by side, level by level: a node is prefetched while others are
    visited. Nodes that do not fit in the queue, if the message has a large box, are walked depth
    first.
    """
    queue, head, tail = scratch.queue, np.int64(0), scratch.counters[TREES]
    scratch.counters[TREES] = 0
    while head < tail:
        node = queue[head]
        head += 1
        touched = visit_node(quad, clauses, message, node, scratch, match)
        for child in range(4):
            if (touched >> child) & 1:
                below = np.int64(quad.node[node, CHILD]) + child
                if tail < len(queue):
                    prefetch(quad.node, below)
                    queue[tail] = below
                    tail += 1
                else:
                    walk_below(quad, clauses, message, below, scratch, match)


@inlined_kernel
def match_in_trie(
    quad: QuadArrays,
    clauses: ClauseTokens,
    message: MessageView,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Write the matches of a message in a trie."""
    flat, counters = quad.entry.reshape(-1), scratch.counters
    counters[TREES], counters[BRANCHES] = 0, 0
    lookups = note_top(message.tokens, scratch)
    queue_trie_nodes(quad, lookups, scratch)
    while counters[BRANCHES] > 0:
        counters[BRANCHES] -= 1
        lookups = note_children(quad, message, scratch.branch[counters[BRANCHES]], scratch)
        if counters[LISTS] + lookups > len(scratch.scan.lists):
            scan_queued(flat, clauses, message, scratch, match)
        if counters[TREES] + lookups > len(scratch.queue):
            walk_trees(quad, clauses, message, scratch, match)
        queue_trie_nodes(quad, lookups, scratch)
    walk_trees(quad, clauses, message, scratch, match)
    scan_queued(flat, clauses, message, scratch, match)


@kernel
def match_messages(
    quad: QuadArrays,
    clauses: ClauseTokens,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match a part of the messages.

    Returns the message whose matches did not fit (or the end), and how many candidates were
    examined and nodes visited.
    """
    quad, clauses, scratch = borrow(quad), borrow(clauses), borrow(scratch)
    token, box = borrow(messages.token), borrow(messages.box)
    match_start, match = borrow(output)
    counters, token_filter = scratch.counters, scratch.scan.token_filter
    counters[:] = 0
    for m in range(part[0], part[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < part[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(quad.slot, home(quad.slot, TOP_OWNER, np.int64(token[i])))
        examined, visited = counters[EXAMINED], counters[VISITED]
        message = MessageView(token[begin:end], box[m], token_filter)
        set_filter(token_filter, message.tokens)
        counters[FOUND], counters[LISTS] = 0, 0
        here = match[match_start[m] :]
        if quad.state[BY_TOKEN]:
            match_in_cells(quad, clauses, message, scratch, here)
        else:
            match_in_trie(quad, clauses, message, scratch, here)
        clear_filter(token_filter, message.tokens)
        if counters[FOUND] < 0:
            return m, examined, visited
        match_start[m + 1] = match_start[m] + counters[FOUND]
    return part[1], counters[EXAMINED], counters[VISITED]
