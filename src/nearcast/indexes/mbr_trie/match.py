"""Match messages against an mbr-trie: filter nodes by token and box, then compare boxes in lists.

Yu et al. (CIKM 2015), sections 3.2 and 3.3. The tokens of a message become ascending ranks; a node
that was reached by one of them continues with the ranks after it. The children of a node are found
by ProbeTokenSet (each child is looked up among the ranks, by a filter of one bit and a binary
search), by ProbeTrie (each rank is searched among the children), or by whichever costs less.

Nodes are opened level by level: while the boxes of one level are compared, the next is prefetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.compiled.sorting import sort_short
from nearcast.compiled.token_filter import LOW_BITS, clear_filter, set_filter
from nearcast.compiled.token_table import home
from nearcast.indexes.mbr_trie.layout import (
    CHILD_COUNT,
    FIRST_CHILD,
    LIST,
    LIST_CAPACITY,
    LIST_SIZE,
    LOW32,
    RANK,
    ROOT_CHILD,
    TOKEN,
    Trie,
    clause_position,
    find_slot,
    lower_bound,
    may_overlap,
    overlaps,
    pack_sides,
    side_stride,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output

PROBE_CHEAPER, PROBE_TOKEN_SET, PROBE_TRIE = range(3)
"""Ways to find the children of a node."""

AHEAD = 128
"""How many entries ahead the boxes of a list are prefetched."""

_ONE = np.uint64(1)


class MatchScratch(NamedTuple):
    """Scratch for one message.

    ``token_filter`` uint64[words]; ``key`` int64[max tokens + 1]: ranks, each with its child of the
    root in the lower half; ``rank`` int32[max tokens + 1]; ``queue`` int64[nodes + 1]: nodes to
    open, each with the position of the next rank in the lower half.
    """

    token_filter: NDArray[np.uint64]
    key: NDArray[np.int64]
    rank: NDArray[np.int32]
    queue: NDArray[np.int64]


class RankQuery(NamedTuple):
    """A message as the trie sees it: ascending ranks, their filter, its box, and how to probe.

    ``window`` int32[4] is the box, ``outline`` its opposite sides packed (`may_overlap`).
    """

    rank: NDArray[np.int32]
    token_filter: NDArray[np.uint64]
    window: NDArray[np.int32]
    outline: Number
    probe: Number


@kernel
def match_messages(
    trie: Trie,
    box: NDArray[np.int32],
    messages: MessageArrays,
    probe: Number,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part; ``box`` has the boxes of all clauses.

    Return the message at which the output was full (or the end), how many entries were examined
    and how many nodes were visited.
    """
    trie, scratch = borrow(trie), borrow(scratch)
    token, window = borrow(messages.token), borrow(messages.box)
    box, (start, match) = borrow(box), borrow(output)
    examined, visited = np.int64(0), np.int64(0)
    for m in range(part[0], part[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < part[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(trie.slot, home(np.int64(token[i]), len(trie.slot)))
        count = find_ranks(trie, token[begin:end], scratch)
        sort_ranks(scratch, count)
        query = start_query(count, window[m], probe, scratch)
        found, more_examined, more_visited = match_message(
            trie, box, query, scratch, match, start[m]
        )
        clear_filter(scratch.token_filter, query.rank)
        if found < 0:
            return np.int64(m), examined, visited
        examined += more_examined
        visited += more_visited
        start[m + 1] = found
    return np.int64(part[1]), examined, visited


@kernel
def match_message(
    trie: Trie,
    box: NDArray[np.int32],
    query: RankQuery,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a message.

    Return the new length of the output (-1: it was full), entries examined and nodes visited.
    """
    queue = scratch.queue
    examined, visited = np.int64(0), np.int64(1)
    if not overlaps(trie.node, 0, query.window):
        return found, examined, visited
    if trie.node[0, LIST_SIZE] > 0:
        if found + trie.node[0, LIST_SIZE] > len(match):
            return np.int64(-1), examined, visited
        examined += trie.node[0, LIST_SIZE]
        found = scan_list(trie, box, 0, query.window, match, found)
    first, last = np.int64(0), probe_root(trie, query, scratch)
    while first < last:
        kept = keep_overlapping(trie, box, query, queue, (first, last))
        visited += kept - first
        last = kept
        for i in range(first, kept):
            at = queue[i] >> 32
            size = trie.node[at, LIST_SIZE]
            if size > 0:
                if found + size > len(match):
                    return np.int64(-1), examined, visited
                examined += size
                found = scan_list(trie, box, at, query.window, match, found)
            if trie.node[at, CHILD_COUNT] > 0:
                last = probe_children(trie, at, queue[i] & LOW32, query, queue, last)
        first = kept
    return found, examined, visited


@kernel
def find_ranks(trie: Trie, tokens: NDArray[np.int32], scratch: MatchScratch) -> Number:
    """Write the ranks of known tokens, with their children of the root; return how many."""
    count = np.int64(0)
    for i in range(len(tokens)):
        at = find_slot(trie.slot, np.int64(tokens[i]))
        if trie.slot[at, TOKEN] != 0:
            child = np.int64(trie.slot[at, ROOT_CHILD])
            prefetch(trie.node, child)
            scratch.key[count] = np.int64(trie.slot[at, RANK]) << 32 | child
            scratch.rank[count] = trie.slot[at, RANK]
            count += 1
    return count


@kernel
def sort_ranks(scratch: MatchScratch, count: Number) -> None:
    """Sort the ranks."""
    sort_short(scratch.key[:count])
    for i in range(count):
        scratch.rank[i] = scratch.key[i] >> 32


@kernel
def start_query(
    count: Number, window: NDArray[np.int32], probe: Number, scratch: MatchScratch
) -> RankQuery:
    """Return the query of a message with ``count`` ranks, and set their filter."""
    opposite_sides = pack_sides(window[0], window[1], window[2], window[3])
    query = RankQuery(scratch.rank[:count], scratch.token_filter, window, opposite_sides, probe)
    set_filter(scratch.token_filter, query.rank)
    return query


@inlined_kernel
def may_occur(token_filter: NDArray[np.uint64], rank: Number) -> Number:
    """Tell whether the bit of a rank is set."""
    bit = np.uint64(rank) & LOW_BITS
    return (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE != np.uint64(0)


@inlined_kernel
def push(trie: Trie, queue: NDArray[np.int64], top: Number, at: Number, position: Number) -> Number:
    """Append a node to the queue and prefetch its record; return the end of the queue."""
    prefetch(trie.node, at)
    queue[top] = np.int64(at) << 32 | position
    return top + 1


@inlined_kernel
def probe_root(trie: Trie, query: RankQuery, scratch: MatchScratch) -> Number:
    """Queue the children of the root whose tokens occur in the message; return how many.

    `find_ranks` has found them already. Only where ProbeTokenSet is asked for everywhere, all
    children are looked up among the ranks.
    """
    top, count = np.int64(0), len(query.rank)
    if query.probe != PROBE_TOKEN_SET:
        for i in range(count):
            child = scratch.key[i] & LOW32
            if child != 0:
                scratch.queue[top] = child << 32 | (i + 1)
                top += 1
        return top
    for slot in range(len(trie.slot)):
        child, rank = np.int64(trie.slot[slot, ROOT_CHILD]), np.int64(trie.slot[slot, RANK])
        if child != 0 and may_occur(query.token_filter, rank):
            found = lower_bound(query.rank, np.int64(0), count, rank)
            if found < count and query.rank[found] == rank:
                top = push(trie, scratch.queue, top, child, found + 1)
    return top


@kernel
def search_steps(size: Number) -> Number:
    """Return the steps of a binary search: the paper's logarithm, but 1 where that is 0."""
    count = np.int64(0)
    while size > 0:
        size >>= 1
        count += 1
    return count


@inlined_kernel
def probe_children(
    trie: Trie,
    at: Number,
    position: Number,
    query: RankQuery,
    queue: NDArray[np.int64],
    top: Number,
) -> Number:
    """Queue the children of a node whose tokens occur in the message; return the queue's end."""
    first, children = np.int64(trie.node[at, FIRST_CHILD]), np.int64(trie.node[at, CHILD_COUNT])
    ranks, last = len(query.rank), first + children
    left = ranks - position
    by_trie = query.probe == PROBE_TRIE
    if query.probe == PROBE_CHEAPER and children > 1:
        by_trie = left * search_steps(children) < children * search_steps(left)
    if by_trie:
        for i in range(position, ranks):
            first = lower_bound(trie.rank, first, last, query.rank[i])
            if first == last:
                break
            if trie.rank[first] == query.rank[i] and may_overlap(
                trie.outline[first], query.outline
            ):
                top = push(trie, queue, top, first, i + 1)
        return top
    for child in range(first, last):
        rank = trie.rank[child]
        if may_overlap(trie.outline[child], query.outline) and may_occur(query.token_filter, rank):
            position = lower_bound(query.rank, position, ranks, rank)
            if position == ranks:
                break
            if query.rank[position] == rank:
                top = push(trie, queue, top, child, position + 1)
    return top


@inlined_kernel
def keep_overlapping(
    trie: Trie, box: NDArray[np.int32], query: RankQuery, queue: NDArray[np.int64], part: Number
) -> Number:
    """Keep the nodes of a part of the queue whose boxes overlap the message; return their end."""
    kept = part[0]
    for i in range(part[0], part[1]):
        at = queue[i] >> 32
        if overlaps(trie.node, at, query.window):
            queue[kept] = queue[i]
            kept += 1
            capacity = np.int64(trie.node[at, LIST_CAPACITY])
            if trie.node[at, CHILD_COUNT] > 0:
                prefetch(trie.rank, trie.node[at, FIRST_CHILD])
                prefetch(trie.outline, trie.node[at, FIRST_CHILD])
                if trie.node[at, LIST_SIZE] > 0 and capacity == 0:
                    prefetch(box, trie.node[at, LIST])
            if capacity > 0:
                for line in range(0, 4 * min(capacity, np.int64(64)), LANES):
                    prefetch(trie.entry, trie.node[at, LIST] + line)
    return kept


@inlined_kernel
def scan_list(
    trie: Trie,
    box: NDArray[np.int32],
    at: Number,
    window: NDArray[np.int32],
    match: NDArray[np.int32],
    found: Number,
) -> Number:
    """Append the clauses of a node's list that overlap the window; the output has space."""
    size, capacity = np.int64(trie.node[at, LIST_SIZE]), np.int64(trie.node[at, LIST_CAPACITY])
    if capacity == 0:
        # Without children, the box of the node is that of its only clause, and was compared.
        clause = trie.node[at, LIST]
        if trie.node[at, CHILD_COUNT] == 0 or overlaps(box, clause, window):
            match[found] = clause
            found += 1
        return found
    base, stride = np.int64(trie.node[at, LIST]), side_stride(capacity)
    clauses = clause_position(base, capacity, np.int64(0))
    for first in range(0, size, LANES):
        if first + AHEAD < size:
            for line in range(4):
                prefetch(trie.entry, base + 4 * (first + AHEAD) + LANES * line)
        touching = touching_boxes(trie.entry, base + 4 * first, stride, window)
        if size - first < LANES:
            touching &= (_ONE << np.uint64(size - first)) - _ONE
        while touching != np.uint64(0):
            match[found] = trie.entry[clauses + first + lowest_bit(touching)]
            touching &= touching - _ONE
            found += 1
    return found
