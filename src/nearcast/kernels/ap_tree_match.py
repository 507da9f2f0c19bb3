"""Match messages against an adaptive partition tree: open what they hit, verify what leaves have.

Wang et al., VLDB Journal 2015, algorithm 1. In a keyword node, every cut that one of the message's
ranks hits is opened once, and below it only the ranks after the smallest of these count; in a
space node, the cells that the message touches. The dummy is opened anyway. Cuts and ranks both
ascend: where there are few of either, the others are searched, not gone through.

A clause may lie in several cells. It is reported by the leaf that has the south-west corner of what
the message and its box have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.ap_tree import (
    ANOTHER,
    CHILD,
    CLAUSE,
    COLUMNS,
    CORNER,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_HEADER,
    LOW,
    NOTHING,
    PARTS,
    ROOM,
    ROOT,
    SIZE,
    UNIT,
    WIDTH,
    Ranked,
    Tree,
    cut_of,
    entry_place,
    touched_cells,
)
from nearcast.kernels.ap_tree_ranks import Bits, all_occur, clear_bits, occurs, rank_message
from nearcast.kernels.compile import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.kernels.lanes import LANES
from nearcast.kernels.token_filter import LOW_BITS, clear_filter, set_filter
from nearcast.kernels.token_table import home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.kernels.messages import MessageArrays

TOGETHER = 16
"""So many nodes are opened one after the other before any of those below them: what is read of
these has been asked for by then."""

LINES = 4
"""How many cache lines of a node are asked for."""

_ONE, _SIX, _BITS63 = np.uint64(1), np.uint64(6), np.uint64(63)


class Scratch(NamedTuple):
    """Room for one message.

    - ``bits``: the set of its ranks; ``rank`` int32[most tokens]: its ranks, ascending;
      ``rank_filter`` uint64[512]: a bit for each.
    - ``stack`` int64[many, 2]: nodes to open, and the first rank that counts there.
    - ``candidate`` int64[many, 2]: places of entries that have to be verified, and of their leaves.
    - ``unsure`` int32[many]: clauses of more than two ranks.
    """

    bits: Bits
    rank: NDArray[np.int32]
    rank_filter: NDArray[np.uint64]
    stack: NDArray[np.int64]
    candidate: NDArray[np.int64]
    unsure: NDArray[np.int32]


class Seen(NamedTuple):
    """A message: its ranks, ascending, and its box."""

    rank: NDArray[np.int32]
    box: NDArray[np.int32]


@inlined_kernel
def push(
    arena: NDArray[np.int32], place: Number, first: Number, stack: NDArray[np.int64], top: Number
) -> Number:
    """Put the place of a node's name on the stack, and ask for the name; return the top."""
    prefetch(arena, place)
    stack[top, 0], stack[top, 1] = place, first
    return top + 1


@kernel
def take_together(arena: NDArray[np.int32], stack: NDArray[np.int64], top: Number) -> Number:
    """Move nodes, where there are any, from the top of the stack to its end; return how many.

    What will be read of them first is asked for.
    """
    count, end = np.int64(0), len(stack) - TOGETHER
    for i in range(max(np.int64(0), top - TOGETHER), top):
        node = np.int64(arena[stack[i, 0]])
        if node != 0:
            base = UNIT * node
            for line in range(LINES):
                prefetch(arena, base + 16 * line)
            stack[end + count, 0], stack[end + count, 1] = base, stack[i, 1]
            count += 1
    return count


@kernel
def next_rank(rank: NDArray[np.int32], first: Number, wanted: Number) -> Number:
    """Return the first position, from one on, of a rank that is not below a wanted one."""
    count = len(rank)
    step, low = 1, first
    while low + step < count and rank[low + step] < wanted:
        low += step
        step <<= 1
    high = min(low + step, count)
    while low < high:
        middle = (low + high) >> 1
        if rank[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def open_cuts(
    arena: NDArray[np.int32],
    base: Number,
    rank: NDArray[np.int32],
    first: Number,
    stack: NDArray[np.int64],
    top: Number,
) -> Number:
    """Put the cuts on the stack that ranks from a first one on hit; return its top."""
    parts = np.int64(arena[base + PARTS])
    lowest, names = base + HEADER + parts, base + np.int64(arena[base + CHILD])
    top = push(arena, names + parts, first, stack, top)
    cut = np.int64(0)
    while first < len(rank):
        cut = cut_of(arena, base, cut, rank[first])
        if cut == parts:
            break
        if rank[first] < arena[lowest + cut]:
            first = next_rank(rank, first, arena[lowest + cut])
            continue
        top = push(arena, names + cut, first + 1, stack, top)
        cut += 1
        first += 1
        if cut < parts and first < len(rank) and rank[first] < arena[lowest + cut]:
            first = next_rank(rank, first, arena[lowest + cut])
    return top


@kernel
def open_cells(
    arena: NDArray[np.int32],
    base: Number,
    box: NDArray[np.int32],
    first: Number,
    stack: NDArray[np.int64],
    top: Number,
) -> Number:
    """Put the cells that a message touches on the stack; return its top."""
    parts, names = np.int64(arena[base + PARTS]), base + np.int64(arena[base + CHILD])
    columns = np.int64(arena[base + COLUMNS])
    top = push(arena, names + parts, first, stack, top)
    west, east, south, north = touched_cells(arena, base, box)
    for row in range(south, north + 1):
        for column in range(west, east + 1):
            top = push(arena, names + row * columns + column, first, stack, top)
    return top


@kernel
def scan_leaf(
    arena: NDArray[np.int32],
    base: Number,
    begin: Number,
    scratch: Scratch,
    count: Number,
) -> tuple[Number, Number]:
    """Put the entries of a leaf aside whose keys may occur, as long as there is room.

    Return how far it came, and how many have been put aside then. Sixteen keys are asked at a time,
    without a branch; behind the last one there are other numbers.
    """
    size, room = np.int64(arena[base + SIZE]), np.int64(arena[base + ROOM])
    bits, candidate = scratch.rank_filter, scratch.candidate
    while begin < size and count + LANES <= len(candidate):
        key, may = base + LEAF_HEADER + begin, np.uint64(0)
        for lane in range(LANES):
            bit = np.uint64(arena[key + lane]) & LOW_BITS
            one = (bits[bit >> _SIX] >> (bit & _BITS63)) & _ONE
            may |= one << np.uint64(lane)
        if size - begin < LANES:
            may &= (_ONE << np.uint64(size - begin)) - _ONE
        while may != np.uint64(0):
            place = entry_place(base, room, begin + lowest_bit(may))
            may &= may - _ONE
            prefetch(arena, place)
            candidate[count, 0], candidate[count, 1] = place, base
            count += 1
        begin += LANES
    return begin, count


@kernel
def here_first(arena: NDArray[np.int32], place: Number, leaf: Number, seen: Seen) -> Number:
    """Tell whether a leaf has the south-west corner of what an entry and the message share."""
    west, south = arena[leaf + CORNER], arena[leaf + CORNER + 1]
    if seen.box[0] < west and arena[place] < west:
        return False
    return seen.box[1] >= south or arena[place + 1] >= south


@kernel
def take_candidates(
    tree: Tree,
    ranked: Ranked,
    seen: Seen,
    scratch: Scratch,
    count: Number,
    match: NDArray[np.int32],
) -> Number:
    """Write those of the candidates that match; there is room for all. Return how many."""
    arena, low, box = tree.arena, tree.state[LOW], seen.box
    bits, unsure = scratch.bits, scratch.unsure
    found, unsures = np.int64(0), np.int64(0)
    for i in range(count):
        place, leaf = scratch.candidate[i, 0], scratch.candidate[i, 1]
        touches = (arena[place] <= box[2]) & (arena[place + 1] <= box[3])
        touches &= (arena[place + 2] >= box[0]) & (arena[place + 3] >= box[1])
        if not touches or not here_first(arena, place, leaf, seen):
            continue
        number = (place - leaf - LEAF_HEADER - np.int64(arena[leaf + ROOM])) // WIDTH
        key = np.int64(arena[leaf + LEAF_HEADER + number])
        another, clause = np.int64(arena[place + ANOTHER]), arena[place + CLAUSE]
        if key != NOTHING:
            if not occurs(bits, low, key) or not occurs(bits, low, another >> 1):
                continue
            if another & 1:
                prefetch(ranked.start, clause)
                unsure[unsures] = clause
                unsures += 1
                continue
        match[found] = clause
        found += 1
    for i in range(unsures):
        prefetch(ranked.rank, ranked.start[unsure[i]])
    for i in range(unsures):
        match[found] = unsure[i]
        found += np.int64(all_occur(ranked, bits, low, np.int64(unsure[i])))
    return found


@kernel
def match_message(
    tree: Tree,
    ranked: Ranked,
    seen: Seen,
    scratch: Scratch,
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Write the matches of a message.

    Return how many (-1: no room), the entries examined and the nodes visited.
    """
    arena, stack = tree.arena, scratch.stack
    found, examined, visited, count = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    waiting = len(stack) - TOGETHER
    top = push(arena, np.int64(ROOT), np.int64(0), stack, np.int64(0))
    while top > 0:
        together = take_together(arena, stack, top)
        top = max(np.int64(0), top - TOGETHER)
        for i in range(together):
            base, first = stack[waiting + i, 0], stack[waiting + i, 1]
            visited += 1
            kind = arena[base]
            if kind == KEYWORDS:
                top = open_cuts(arena, base, seen.rank, first, stack, top)
            elif kind != LEAF:
                top = open_cells(arena, base, seen.box, first, stack, top)
            else:
                size, at = np.int64(arena[base + SIZE]), np.int64(0)
                examined += size
                while at < size:
                    at, count = scan_leaf(arena, base, at, scratch, count)
                    if at < size:
                        if found + count > len(match):
                            return np.int64(-1), examined, visited
                        found += take_candidates(tree, ranked, seen, scratch, count, match[found:])
                        count = np.int64(0)
    if found + count > len(match):
        return np.int64(-1), examined, visited
    found += take_candidates(tree, ranked, seen, scratch, count, match[found:])
    return found, examined, visited


@kernel
def match_messages(
    tree: Tree,
    ranked: Ranked,
    slot: NDArray[np.uint64],
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
    tree = Tree(borrow(tree.arena), borrow(tree.state))
    ranked = Ranked(borrow(ranked.start), borrow(ranked.rank), borrow(ranked.box))
    scratch = Scratch(
        Bits(borrow(scratch.bits.rank), borrow(scratch.bits.block)),
        borrow(scratch.rank),
        borrow(scratch.rank_filter),
        borrow(scratch.stack),
        borrow(scratch.candidate),
        borrow(scratch.unsure),
    )
    slot, match = borrow(slot), borrow(match)
    token, box = borrow(messages.token), borrow(messages.box)
    low, examined, visited = tree.state[LOW], np.int64(0), np.int64(0)
    for m in range(part[0], part[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < part[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(slot, home(np.int64(token[i]), len(slot)))
        count = rank_message(slot, token[begin:end], low, scratch.bits, scratch.rank)
        seen = Seen(scratch.rank[:count], box[m])
        set_filter(scratch.rank_filter, seen.rank)
        start = match_start[m]
        found, more, opened = match_message(tree, ranked, seen, scratch, match[start:])
        clear_filter(scratch.rank_filter, seen.rank)
        clear_bits(scratch.bits, low, seen.rank)
        if found < 0:
            return m, examined, visited
        examined += more
        visited += opened
        match_start[m + 1] = start + found
    return part[1], examined, visited
