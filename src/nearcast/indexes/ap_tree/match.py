"""Match messages against an adaptive partition tree: verify what is in the leaves they come to.

Wang et al., VLDB Journal 2015, algorithm 1. A few messages are matched together, so that none has
to wait for memory: first all of them walk down the tree (`nearcast.indexes.ap_tree.walk`), then the
keys in their leaves are scanned, and then the entries verified whose keys occur.

A clause may lie in several cells. It is reported by the leaf that has the south-west corner of what
the message and its box have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import (
    Number,
    bit_count,
    borrow,
    inlined_kernel,
    kernel,
    lowest_bit,
    prefetch,
)
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.compiled.token_filter import LOW_BITS, clear_filter, set_filter
from nearcast.compiled.token_table import home
from nearcast.indexes.ap_tree.ranks import Bits, clear_bits, rank_message
from nearcast.indexes.ap_tree.tree import (
    CORNER,
    LEAF_HEADER,
    LOW,
    ROOM,
    SIZE,
    Ranked,
    Tree,
    side_place,
    tail_place,
)
from nearcast.indexes.ap_tree.verify import (
    KEY,
    TAIL,
    Output,
    Scratch,
    borrow_scratch,
    take_candidates,
)
from nearcast.indexes.ap_tree.walk import (
    ENTRIES,
    MESSAGE,
    NODES,
    RANKS,
    RANKS_END,
    set_out,
    walk_on,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays

GROUP = 8
"""So many messages are matched together at most."""

GROUP_TOKENS = 192
"""So many tokens they have at most, unless it is one message."""

_ONE, _SIX, _BITS63 = np.uint64(1), np.uint64(6), np.uint64(63)

FEW = 4
"""Where more of sixteen boxes touch the message, all sixteen keys are asked, without a branch."""

ANYWHERE = -(1 << 31)
"""The corner of a leaf before which no clause begins."""


@kernel
def sort_leaves(scratch: Scratch, messages: Number, leaves: Number) -> None:
    """Sort leaves by message."""
    leaf, start = scratch.walk.leaf, scratch.leaf_start
    for i in range(messages + 2):
        start[i] = 0
    for i in range(leaves):
        start[leaf[i, 1] + 2] += 1
    for i in range(messages):
        start[i + 2] += start[i + 1]
    for i in range(leaves):
        whose = leaf[i, 1] + 1
        scratch.sorted[start[whose]] = leaf[i, 0]
        start[whose] += 1


@inlined_kernel
def scan_leaf(
    arena: NDArray[np.int32],
    base: Number,
    begin: Number,
    box: NDArray[np.int32],
    scratch: Scratch,
    count: Number,
) -> tuple[Number, Number]:
    """Put entries of a leaf aside whose boxes touch the message and whose keys may occur.

    Return how far it came, as long as there is room, and how many have been put aside then. Sixteen
    boxes are compared at a time; behind the last one there are other numbers.
    """
    size, room = np.int64(arena[base + SIZE]), np.int64(arena[base + ROOM])
    west, south = arena[base + CORNER], arena[base + CORNER + 1]
    west = west if west > box[0] else np.int32(ANYWHERE)
    south = south if south > box[1] else np.int32(ANYWHERE)
    bits, candidate = scratch.rank_filter, scratch.candidate
    while begin < size and count + LANES <= len(candidate):
        side = side_place(base, room, begin)
        touches = touching_boxes(arena, side, room, box)
        if size - begin < LANES:
            touches &= (_ONE << np.uint64(size - begin)) - _ONE
        key, tail = base + LEAF_HEADER + begin, tail_place(base, room, begin)
        if bit_count(touches) > FEW:
            may = np.uint64(0)
            for lane in range(np.uint64(LANES)):
                bit = np.uint64(arena[np.uint64(key) + lane]) & LOW_BITS
                may |= ((bits[bit >> _SIX] >> (bit & _BITS63)) & _ONE) << lane
            touches &= may
        while touches != np.uint64(0):
            lane = lowest_bit(touches)
            touches &= touches - _ONE
            bit = np.uint64(arena[key + lane]) & LOW_BITS
            occurs = (bits[bit >> _SIX] >> (bit & _BITS63)) & _ONE != np.uint64(0)
            here = (arena[side + lane] >= west) & (arena[side + room + lane] >= south)
            candidate[count, KEY], candidate[count, TAIL] = key + lane, tail + 2 * lane
            count += np.int64(occurs & here)
        begin += LANES
    return begin, count


@kernel
def scan_leaves(
    tree: Tree,
    ranked: Ranked,
    scratch: Scratch,
    amount: tuple[Number, Number],
    output: Output,
) -> Number:
    """Write the matches in all leaves; return the message without room, or -1.

    ``amount`` are the messages of the group and their leaves.
    """
    sort_leaves(scratch, amount[0], amount[1])
    arena, group, segment = tree.arena, scratch.walk.group, scratch.segment
    count, segments, ended = np.int64(0), np.int64(0), np.int64(-1)
    for whose in range(amount[0]):
        box = scratch.walk.box[group[whose, MESSAGE]]
        ranks = scratch.walk.rank[group[whose, RANKS] : group[whose, RANKS_END]]
        set_filter(scratch.rank_filter, ranks)
        for i in range(scratch.leaf_start[whose], scratch.leaf_start[whose + 1]):
            base, at = scratch.sorted[i], np.int64(0)
            size = np.int64(arena[base + SIZE])
            while at < size and ended < 0:
                at, count = scan_leaf(arena, base, at, box, scratch, count)
                if at < size:
                    segment[segments, 0], segment[segments, 1] = whose, count
                    ended = take_candidates(tree, ranked, scratch, segments + 1, output)
                    count, segments = np.int64(0), np.int64(0)
        clear_filter(scratch.rank_filter, ranks)
        if ended >= 0:
            return ended
        segment[segments, 0], segment[segments, 1] = whose, count
        segments += 1
    return take_candidates(tree, ranked, scratch, segments, output)


@kernel
def match_group(
    tree: Tree, ranked: Ranked, scratch: Scratch, messages: Number, output: Output
) -> Number:
    """Write the matches of a group; return which of its messages has no room.

    Return -1 if all have, and -2 if these are too many messages for so many leaves.
    """
    top = set_out(scratch.walk, messages)
    while True:
        top, leaves = walk_on(tree, scratch.walk, top)
        if top > 0 and messages > 1:
            return np.int64(-2)
        ended = scan_leaves(tree, ranked, scratch, (messages, leaves), output)
        if ended >= 0 or top == 0:
            return ended


@kernel
def group_from(start: NDArray[np.int64], first: Number, last: Number) -> Number:
    """Return the end of the group of messages that begins with a first one."""
    end = first + 1
    while end < last and end < first + GROUP and start[end + 1] - start[first] <= GROUP_TOKENS:
        end += 1
    return end


@kernel
def rank_group(
    slot: NDArray[np.uint64],
    messages: MessageArrays,
    part: tuple[Number, Number],
    low: Number,
    scratch: Scratch,
) -> None:
    """Write the ranks of a group of messages."""
    group, rank, words = scratch.walk.group, scratch.walk.rank, len(scratch.bits.rank)
    words //= len(group)
    begin = np.int64(0)
    for m in range(part[0], part[1]):
        whose = m - part[0]
        tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
        own = Bits(scratch.bits.rank[whose * words : (whose + 1) * words], scratch.bits.block)
        count = rank_message(slot, tokens, low, own, rank[begin:])
        group[whose, MESSAGE], group[whose, RANKS] = m, begin
        begin += count
        group[whose, RANKS_END] = begin


@kernel
def clear_group(scratch: Scratch, messages: Number, low: Number) -> None:
    """Take the bits of a group out."""
    group, words = scratch.walk.group, len(scratch.bits.rank) // len(scratch.walk.group)
    for whose in range(messages):
        own = Bits(scratch.bits.rank[whose * words : (whose + 1) * words], scratch.bits.block)
        clear_bits(own, low, scratch.walk.rank[group[whose, RANKS] : group[whose, RANKS_END]])


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

    ``match_start`` of the first message says where to begin.
    """
    tree = Tree(borrow(tree.arena), borrow(tree.state))
    ranked = Ranked(borrow(ranked.start), borrow(ranked.rank), borrow(ranked.box))
    scratch = borrow_scratch(scratch)
    output = Output(borrow(match_start), borrow(match))
    slot, start, token = borrow(slot), messages.token_start, borrow(messages.token)
    low, examined, visited = tree.state[LOW], np.int64(0), np.int64(0)
    first, alone = part[0], part[0]
    while first < part[1]:
        end = group_from(start, first, part[1]) if first >= alone else first + 1
        ahead = min(end + GROUP, part[1])
        for i in range(start[end], min(start[ahead], start[end] + GROUP_TOKENS)):
            prefetch(slot, home(np.int64(token[i]), len(slot)))
        rank_group(slot, messages, (first, end), low, scratch)
        match_start[first + 1] = match_start[first]
        ended = match_group(tree, ranked, scratch, end - first, output)
        clear_group(scratch, end - first, low)
        if ended == -2:
            alone = end
            continue
        for whose in range(end - first if ended < 0 else ended):
            visited += scratch.walk.group[whose, NODES]
            examined += scratch.walk.group[whose, ENTRIES]
        if ended >= 0:
            return first + ended, examined, visited
        first = end
    return part[1], examined, visited
