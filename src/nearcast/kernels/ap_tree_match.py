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
    BEFORE,
    CHILD,
    CLAUSE,
    COLUMNS,
    CORNER,
    ENDLESS,
    HEADER,
    KEYWORDS,
    LAST,
    LEAF,
    LEAF_HEADER,
    LOW,
    NOTHING,
    PARTS,
    ROOM,
    ROOT,
    SIZE,
    UNIT,
    Ranked,
    Tree,
    cut_of,
    touched_cells,
)
from nearcast.kernels.ap_tree_lanes import fitting_entries
from nearcast.kernels.ap_tree_ranks import (
    Bits,
    all_occur,
    clear_bits,
    occurs,
    rank_message,
)
from nearcast.kernels.compile import Number, borrow, kernel, lowest_bit, prefetch
from nearcast.kernels.lanes import LANES
from nearcast.kernels.token_table import home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.kernels.messages import MessageArrays

_ONE = np.uint64(1)


class Scratch(NamedTuple):
    """Room for one message.

    - ``bits``: the set of its ranks; ``rank`` int32[most tokens]: its ranks, ascending.
    - ``stack`` int64[many, 2]: nodes to open, and the first rank that counts there.
    - ``leaf`` int64[many]: leaves to verify. ``unsure`` int32[many]: clauses of more than two ranks.
    - ``window`` int32[7]: see `nearcast.kernels.ap_tree_lanes`.
    """

    bits: Bits
    rank: NDArray[np.int32]
    stack: NDArray[np.int64]
    leaf: NDArray[np.int64]
    unsure: NDArray[np.int32]
    window: NDArray[np.int32]


@kernel
def push(
    arena: NDArray[np.int32], place: Number, first: Number, stack: NDArray[np.int64], top: Number
) -> Number:
    """Put the node named at a place of the arena on the stack, if there is one; return the top."""
    node = np.int64(arena[place])
    if node == 0:
        return top
    base = UNIT * node
    prefetch(arena, base)
    prefetch(arena, base + 16)
    stack[top, 0], stack[top, 1] = base, first
    return top + 1


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
    low: Number,
    scratch: Scratch,
    match: NDArray[np.int32],
    unsure: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Write the matches of a leaf, and clauses to be verified further; return how many of each.

    There is room for all.
    """
    size, room = np.int64(arena[base + SIZE]), np.int64(arena[base + ROOM])
    window, bits = scratch.window, scratch.bits
    window[4] = arena[base + CORNER] if window[2] < arena[base + CORNER] else ENDLESS
    window[5] = arena[base + CORNER + 1] if window[3] < arena[base + CORNER + 1] else ENDLESS
    found, unsures = np.int64(0), np.int64(0)
    for begin in range(0, size, LANES):
        place = base + LEAF_HEADER + begin
        fits = fitting_entries(arena, place, room, window)
        if size - begin < LANES:
            fits &= (_ONE << np.uint64(size - begin)) - _ONE
        while fits != np.uint64(0):
            at = place + lowest_bit(fits)
            fits &= fits - _ONE
            last = np.int64(arena[at + LAST * room])
            if last == NOTHING:
                match[found] = arena[at + CLAUSE * room]
                found += 1
                continue
            if not occurs(bits, low, last):
                continue
            before = np.int64(arena[at + BEFORE * room])
            if occurs(bits, low, before >> 1):
                clause = arena[at + CLAUSE * room]
                if before & 1:
                    unsure[unsures] = clause
                    unsures += 1
                else:
                    match[found] = clause
                    found += 1
    return found, unsures


@kernel
def verify_unsure(
    ranked: Ranked, bits: Bits, low: Number, unsure: NDArray[np.int32], match: NDArray[np.int32]
) -> Number:
    """Write those of the unsure clauses all of whose ranks occur; return how many."""
    for i in range(len(unsure)):
        prefetch(ranked.start, unsure[i])
    for i in range(len(unsure)):
        prefetch(ranked.rank, ranked.start[unsure[i]])
    found = np.int64(0)
    for i in range(len(unsure)):
        match[found] = unsure[i]
        found += np.int64(all_occur(ranked, bits, low, np.int64(unsure[i])))
    return found


@kernel
def verify_leaves(
    tree: Tree, ranked: Ranked, scratch: Scratch, leaves: Number, match: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Write the matches of all leaves put aside; return how many (-1: no room), and the examined."""
    found, examined, unsures = np.int64(0), np.int64(0), np.int64(0)
    arena, low, unsure = tree.arena, tree.state[LOW], scratch.unsure
    for i in range(leaves):
        base = scratch.leaf[i]
        size = np.int64(arena[base + SIZE])
        if unsures > 0 and unsures + size > len(unsure):
            found += verify_unsure(ranked, scratch.bits, low, unsure[:unsures], match[found:])
            unsures = np.int64(0)
        if found + unsures + size > len(match):
            return np.int64(-1), examined
        if i + 1 < leaves:
            ahead = scratch.leaf[i + 1]
            room = np.int64(arena[ahead + ROOM])
            for line in range(32, LEAF_HEADER + 5 * min(room, np.int64(64)), 16):
                prefetch(arena, ahead + line)
        examined += size
        more, aside = scan_leaf(arena, base, low, scratch, match[found:], unsure[unsures:])
        found += more
        unsures += aside
    found += verify_unsure(ranked, scratch.bits, low, unsure[:unsures], match[found:])
    return found, examined


@kernel
def match_message(
    tree: Tree,
    ranked: Ranked,
    message: tuple[NDArray[np.int32], NDArray[np.int32]],
    scratch: Scratch,
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Write the matches of a message, which is its ranks and its box.

    Return how many (-1: no room), the entries examined and the nodes visited.
    """
    rank, box = message
    arena, stack = tree.arena, scratch.stack
    found, examined, visited, leaves = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    top = push(arena, np.int64(ROOT), np.int64(0), stack, np.int64(0))
    while top > 0:
        top -= 1
        base, first = stack[top, 0], stack[top, 1]
        visited += 1
        kind = arena[base]
        if kind == LEAF:
            scratch.leaf[leaves] = base
            leaves += 1
            if leaves == len(scratch.leaf):
                more, looked = verify_leaves(tree, ranked, scratch, leaves, match[found:])
                examined += looked
                leaves = np.int64(0)
                if more < 0:
                    return more, examined, visited
                found += more
        elif kind == KEYWORDS:
            top = open_cuts(arena, base, rank, first, stack, top)
        else:
            top = open_cells(arena, base, box, first, stack, top)
    more, looked = verify_leaves(tree, ranked, scratch, leaves, match[found:])
    return more if more < 0 else found + more, examined + looked, visited


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
        borrow(scratch.stack),
        borrow(scratch.leaf),
        borrow(scratch.unsure),
        borrow(scratch.window),
    )
    slot, match = borrow(slot), borrow(match)
    token, box, window = borrow(messages.token), borrow(messages.box), scratch.window
    low, examined, visited = tree.state[LOW], np.int64(0), np.int64(0)
    for m in range(part[0], part[1]):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < part[1]:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(slot, home(np.int64(token[i]), len(slot)))
        count, signature = rank_message(slot, token[begin:end], low, scratch.bits, scratch.rank)
        rank = scratch.rank[:count]
        for side in range(4):
            window[side] = box[m, (side + 2) & 3]
        window[6] = np.int64(~signature & np.uint64(0x7FFFFFFF))
        start = match_start[m]
        found, more, opened = match_message(tree, ranked, (rank, box[m]), scratch, match[start:])
        clear_bits(scratch.bits, low, rank)
        if found < 0:
            return m, examined, visited
        examined += more
        visited += opened
        match_start[m + 1] = start + found
    return part[1], examined, visited
