"""Match messages against an MBRTrie: filter nodes by box and token, then check boxes in lists.

Yu et al. (CIKM 2015), sections 3.2 and 3.3. A message's tokens become ranks, in ascending order; a
node that was reached by one of them goes on with those behind it. The children of a node are found
by ProbeTokenSet (each child is looked for among the ranks, by a filter of one bit and by binary
search), by ProbeTrie (each rank is searched among the children), or by whichever costs less.

Nodes are opened level by level: while the boxes of one level are compared, those of the next come
into the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.compiled.token_filter import LOW_BITS, clear_filter, set_filter
from nearcast.compiled.token_table import home
from nearcast.indexes.mbr_trie.load import sort_keys
from nearcast.indexes.mbr_trie.trie import (
    CHILD,
    CHILDREN,
    COUNT,
    LIST,
    RANK,
    ROOM,
    SIZE,
    TOKEN,
    Trie,
    clause_place,
    find_slot,
    first_not_below,
    four_sides,
    outlines_meet,
    stride_of,
    touches,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays

COST, TOKEN_SET, TRIE = 0, 1, 2
"""Ways to find the children of a node."""

AHEAD = 128
"""How many entries ahead boxes are asked for."""

_ONE = np.uint64(1)
_LOW32 = np.int64(0xFFFFFFFF)


class Scratch(NamedTuple):
    """Room for one message.

    ``key`` int64[most tokens + 1], ``rank`` int32[most tokens + 1]; ``queue`` int64[nodes + 1]:
    nodes to be opened, with the position of the first rank behind theirs in the lower half.
    """

    token_filter: NDArray[np.uint64]
    key: NDArray[np.int64]
    rank: NDArray[np.int32]
    queue: NDArray[np.int64]


class Asked(NamedTuple):
    """A message: its ascending ranks, their filter, its box as int32[4], and how to probe.

    ``outline`` is the box again, to be compared with the outlines of nodes.
    """

    rank: NDArray[np.int32]
    token_filter: NDArray[np.uint64]
    window: NDArray[np.int32]
    outline: Number
    probe: Number


@kernel
def find_ranks(trie: Trie, tokens: NDArray[np.int32], scratch: Scratch) -> Number:
    """Write the ranks of tokens that clauses have, with the root's children; return how many."""
    count = np.int64(0)
    for i in range(len(tokens)):
        at = find_slot(trie.slot, np.int64(tokens[i]))
        if trie.slot[at, TOKEN] != 0:
            child = np.int64(trie.slot[at, CHILD])
            prefetch(trie.node, child)
            scratch.key[count] = np.int64(trie.slot[at, RANK]) << 32 | child
            scratch.rank[count] = trie.slot[at, RANK]
            count += 1
    return count


@kernel
def sort_ranks(scratch: Scratch, count: Number) -> None:
    """Put ranks in ascending order."""
    sort_keys(scratch.key, count)
    for i in range(count):
        scratch.rank[i] = scratch.key[i] >> 32


@inlined_kernel
def may_occur(token_filter: NDArray[np.uint64], rank: Number) -> Number:
    """Tell whether the bit of a rank is set."""
    bit = np.uint64(rank) & LOW_BITS
    return (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE != np.uint64(0)


@inlined_kernel
def push(trie: Trie, queue: NDArray[np.int64], top: Number, at: Number, position: Number) -> Number:
    """Put a node into the queue and ask for its record; return the end of the queue."""
    prefetch(trie.node, at)
    queue[top] = np.int64(at) << 32 | position
    return top + 1


@inlined_kernel
def probe_root(trie: Trie, asked: Asked, scratch: Scratch) -> Number:
    """Put the root's children into the queue that are tokens of the message; return how many.

    A token leads to its child by the table of ranks, for nothing; only where the paper's
    ProbeTokenSet is wanted everywhere, all children are looked for among the tokens.
    """
    top, count = np.int64(0), len(asked.rank)
    if asked.probe != TOKEN_SET:
        for i in range(count):
            child = scratch.key[i] & _LOW32
            if child != 0:
                scratch.queue[top] = child << 32 | (i + 1)
                top += 1
        return top
    for slot in range(len(trie.slot)):
        child, rank = np.int64(trie.slot[slot, CHILD]), np.int64(trie.slot[slot, RANK])
        if child != 0 and may_occur(asked.token_filter, rank):
            found = first_not_below(asked.rank, np.int64(0), count, rank)
            if found < count and asked.rank[found] == rank:
                top = push(trie, scratch.queue, top, child, found + 1)
    return top


@kernel
def steps(size: Number) -> Number:
    """Return the steps of a binary search: the paper's logarithm, and 1 where that is 0."""
    count = np.int64(0)
    while size > 0:
        size >>= 1
        count += 1
    return count


@inlined_kernel
def probe_children(
    trie: Trie, at: Number, position: Number, asked: Asked, queue: NDArray[np.int64], top: Number
) -> Number:
    """Put the children of a node into the queue that are tokens of the message; return its end."""
    first, children = np.int64(trie.node[at, CHILDREN]), np.int64(trie.node[at, COUNT])
    ranks, last = len(asked.rank), first + children
    left = ranks - position
    by_trie = asked.probe == TRIE
    if asked.probe == COST and children > 1:
        by_trie = left * steps(children) < children * steps(left)
    if by_trie:
        for i in range(position, ranks):
            first = first_not_below(trie.rank, first, last, asked.rank[i])
            if first == last:
                break
            if trie.rank[first] == asked.rank[i] and outlines_meet(
                trie.outline[first], asked.outline
            ):
                top = push(trie, queue, top, first, i + 1)
        return top
    for child in range(first, last):
        rank = trie.rank[child]
        if outlines_meet(trie.outline[child], asked.outline) and may_occur(
            asked.token_filter, rank
        ):
            position = first_not_below(asked.rank, position, ranks, rank)
            if position == ranks:
                break
            if asked.rank[position] == rank:
                top = push(trie, queue, top, child, position + 1)
    return top


@inlined_kernel
def filter_boxes(
    trie: Trie, box: NDArray[np.int32], asked: Asked, queue: NDArray[np.int64], part: Number
) -> Number:
    """Keep the nodes of a part of the queue whose boxes meet the message; return where they end."""
    kept = part[0]
    for i in range(part[0], part[1]):
        at = queue[i] >> 32
        if touches(trie.node, at, asked.window):
            queue[kept] = queue[i]
            kept += 1
            if trie.node[at, COUNT] > 0:
                prefetch(trie.rank, trie.node[at, CHILDREN])
                prefetch(trie.outline, trie.node[at, CHILDREN])
                if trie.node[at, SIZE] > 0 and trie.node[at, ROOM] == 0:
                    prefetch(box, trie.node[at, LIST])
            if trie.node[at, ROOM] > 0:
                for line in range(0, 4 * min(np.int64(trie.node[at, ROOM]), np.int64(64)), LANES):
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
    """Append the clauses of a node's list that meet the window; there is room for all."""
    size, room = np.int64(trie.node[at, SIZE]), np.int64(trie.node[at, ROOM])
    if room == 0:
        # Without children, the box of the node is that of its only clause, and was compared.
        clause = trie.node[at, LIST]
        if trie.node[at, COUNT] == 0 or touches(box, clause, window):
            match[found] = clause
            found += 1
        return found
    base, stride = np.int64(trie.node[at, LIST]), stride_of(room)
    clauses = clause_place(base, room, np.int64(0))
    for first in range(0, size, LANES):
        if first + AHEAD < size:
            for line in range(4):
                prefetch(trie.entry, base + 4 * (first + AHEAD) + LANES * line)
        met = touching_boxes(trie.entry, base + 4 * first, stride, window)
        if size - first < LANES:
            met &= (_ONE << np.uint64(size - first)) - _ONE
        while met != np.uint64(0):
            match[found] = trie.entry[clauses + first + lowest_bit(met)]
            met &= met - _ONE
            found += 1
    return found


@kernel
def match_message(
    trie: Trie,
    box: NDArray[np.int32],
    asked: Asked,
    scratch: Scratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a message (-1: no room); return also the examined and the visited."""
    queue = scratch.queue
    examined, visited = np.int64(0), np.int64(1)
    if not touches(trie.node, 0, asked.window):
        return found, examined, visited
    if trie.node[0, SIZE] > 0:
        if found + trie.node[0, SIZE] > len(match):
            return np.int64(-1), examined, visited
        examined += trie.node[0, SIZE]
        found = scan_list(trie, box, 0, asked.window, match, found)
    first, last = np.int64(0), probe_root(trie, asked, scratch)
    while first < last:
        kept = filter_boxes(trie, box, asked, queue, (first, last))
        visited += kept - first
        last = kept
        for i in range(first, kept):
            at = queue[i] >> 32
            size = trie.node[at, SIZE]
            if size > 0:
                if found + size > len(match):
                    return np.int64(-1), examined, visited
                examined += size
                found = scan_list(trie, box, at, asked.window, match, found)
            if trie.node[at, COUNT] > 0:
                last = probe_children(trie, at, queue[i] & _LOW32, asked, queue, last)
        first = kept
    return found, examined, visited


@kernel
def borrowed_trie(trie: Trie) -> Trie:
    """Return the same trie without owners."""
    return Trie(
        borrow(trie.slot),
        borrow(trie.rank),
        borrow(trie.outline),
        borrow(trie.node),
        borrow(trie.label),
        borrow(trie.entry),
        borrow(trie.clause_label),
        borrow(trie.state),
    )


@kernel
def borrowed_scratch(scratch: Scratch) -> Scratch:
    """Return the same room without owners."""
    return Scratch(
        borrow(scratch.token_filter),
        borrow(scratch.key),
        borrow(scratch.rank),
        borrow(scratch.queue),
    )


@kernel
def asked_for(count: Number, window: NDArray[np.int32], probe: Number, scratch: Scratch) -> Asked:
    """Return a message with so many ranks, and set their filter."""
    other_sides = four_sides(window[0], window[1], window[2], window[3])
    asked = Asked(scratch.rank[:count], scratch.token_filter, window, other_sides, probe)
    set_filter(scratch.token_filter, asked.rank)
    return asked


@kernel
def match_messages(
    trie: Trie,
    box: NDArray[np.int32],
    messages: MessageArrays,
    probe: Number,
    numbers: tuple[Number, Number],
    scratch: Scratch,
    start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match messages from the first to the last number.

    The clauses of message ``m`` stand in ``match[start[m]:start[m + 1]]``; ``box`` has the boxes of
    all clauses. Return where the room ended, the examined and the visited.
    """
    trie, scratch = borrowed_trie(trie), borrowed_scratch(scratch)
    token, window = borrow(messages.token), borrow(messages.box)
    box, match = borrow(box), borrow(match)
    examined, visited = np.int64(0), np.int64(0)
    for m in range(numbers[0], numbers[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < numbers[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(trie.slot, home(np.int64(token[i]), len(trie.slot)))
        count = find_ranks(trie, token[begin:end], scratch)
        sort_ranks(scratch, count)
        asked = asked_for(count, window[m], probe, scratch)
        found, more_examined, more_visited = match_message(
            trie, box, asked, scratch, match, start[m]
        )
        clear_filter(scratch.token_filter, asked.rank)
        if found < 0:
            return np.int64(m), examined, visited
        examined += more_examined
        visited += more_visited
        start[m + 1] = found
    return np.int64(numbers[1]), examined, visited
