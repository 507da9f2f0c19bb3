"""Match messages against an ap-tree.

Wang et al., VLDB Journal 2015, algorithm 1. A few messages are matched together, so that none has
to wait for memory. All of them walk down the tree first (`nearcast.indexes.ap_tree.walk`); then the
boxes and keys in their leaves are scanned, sixteen boxes at a time; then the entries are verified
whose keys occur.

A clause may lie in several cells. Of its leaves, only the one that holds the south-west corner of
the intersection of the message and the clause's box reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
from nearcast.compiled.token_filter import FILTER_WORDS, LOW_BITS, clear_filter, set_filter
from nearcast.compiled.token_table import home
from nearcast.indexes.ap_tree.layout import (
    CAPACITY,
    CLAUSE,
    END_RANK,
    FIRST_RANK,
    LEAF_HEADER,
    LEAF_REGION,
    NO_RANK,
    SECOND_RANK,
    SIZE,
    UNBOUNDED,
    RankedClauses,
    Tree,
    tail_position,
    west_position,
)
from nearcast.indexes.ap_tree.ranks import RankBitmap, clear_bitmap, rank_message
from nearcast.indexes.ap_tree.walk import (
    EXAMINED,
    MAX_LEAVES,
    MESSAGE,
    RANK_BEGIN,
    RANK_END,
    VISITED,
    WalkScratch,
    start_walk,
    walk_on,
    walk_scratch,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output

MAX_GROUP = 8
"""How many messages are matched together at most."""

MAX_GROUP_TOKENS = 192
"""How many tokens they have at most, unless the group is a single message."""

MAX_CANDIDATES = 2048
"""How many entries wait for verification at most."""

MAX_BRANCHES = 4
"""If more of sixteen boxes touch the message, all sixteen keys are looked up, without branches."""

KEY, TAIL = 0, 1
"""Columns of a candidate: the position of its key, and of its tail."""

ALL_DONE, TOO_MANY_LEAVES = -1, -2
"""What a kernel returns instead of the member at which the output is full."""

_ONE, _SIX, _BITS63 = np.uint64(1), np.uint64(6), np.uint64(63)
_UNBOUNDED32 = np.int32(UNBOUNDED)


class MatchScratch(NamedTuple):
    """Scratch for a group of messages.

    - ``walk``: their ranks, and where they are in the tree.
    - ``bitmap``: the sets of their ranks, end to end; ``rank_filter`` uint64[512]: a bit for each
      rank of the message that is scanned.
    - ``sorted_leaf`` int64[leaves]: leaves by member; ``leaf_start`` int64[members + 2].
    - ``candidate`` int64[m, 2]: see above. ``segment`` int64[members + 1, 2]: the member that the
      next candidates belong to, and where they end.
    - ``kept`` int32[m, 2]: the clauses of candidates, and whether they have more than two ranks.
    """

    walk: WalkScratch
    bitmap: RankBitmap
    rank_filter: NDArray[np.uint64]
    sorted_leaf: NDArray[np.int64]
    leaf_start: NDArray[np.int64]
    candidate: NDArray[np.int64]
    segment: NDArray[np.int64]
    kept: NDArray[np.int32]


def match_scratch(tree: Tree, box: NDArray[np.int32], max_tokens: int) -> MatchScratch:
    """Return scratch for messages with these boxes and at most ``max_tokens`` tokens each."""
    words = int(tree.state[END_RANK] - tree.state[FIRST_RANK]) // 64 + 1
    return MatchScratch(
        walk=walk_scratch(tree, box, MAX_GROUP, max(max_tokens, MAX_GROUP_TOKENS)),
        bitmap=RankBitmap(
            word=np.zeros(MAX_GROUP * words, np.uint64), block=np.zeros(words // 64 + 1, np.uint64)
        ),
        rank_filter=np.zeros(FILTER_WORDS, np.uint64),
        sorted_leaf=np.empty(MAX_LEAVES, np.int64),
        leaf_start=np.empty(MAX_GROUP + 2, np.int64),
        candidate=np.empty((MAX_CANDIDATES, 2), np.int64),
        segment=np.empty((MAX_GROUP + 1, 2), np.int64),
        kept=np.empty((MAX_CANDIDATES, 2), np.int32),
    )


@inlined_kernel
def has_bit(bits: NDArray[np.uint64], first: Number, at: Number) -> Number:
    """Return 1 if bit ``at`` of the words from ``first`` on is set, else 0."""
    return (bits[first + (at >> 6)] >> np.uint64(at & 63)) & _ONE


@kernel
def filter_candidates(tree: Tree, scratch: MatchScratch, segments: Number) -> None:
    """Keep the candidates whose two known ranks occur; segments then end where the kept ones do.

    There are no branches: too many would be mispredicted.
    """
    arena, first_rank = tree.arena, tree.state[FIRST_RANK]
    bits, candidate, kept = scratch.bitmap.word, scratch.candidate, scratch.kept
    words = len(bits) // len(scratch.walk.group)
    first, count = np.int64(0), np.int64(0)
    for i in range(scratch.segment[segments - 1, 1]):
        prefetch(arena, candidate[i, TAIL])
    for i in range(segments):
        own, end = scratch.segment[i, 0] * words, scratch.segment[i, 1]
        for at in range(first, end):
            tail = candidate[at, TAIL]
            key, second = np.int64(arena[candidate[at, KEY]]), np.int64(arena[tail + SECOND_RANK])
            free = key == NO_RANK
            key, beside = (first_rank if free else key), (first_rank if free else second >> 1)
            both = has_bit(bits, own, key - first_rank) & has_bit(bits, own, beside - first_rank)
            kept[count, 0], kept[count, 1] = arena[tail + CLAUSE], second & 1
            count += np.int64(free | (both != np.uint64(0)))
        scratch.segment[i, 1], first = count, end


@inlined_kernel
def contains_ranks(
    ranked: RankedClauses, bits: NDArray[np.uint64], own: Number, first_rank: Number, clause: Number
) -> Number:
    """Tell whether the message has all ranks of a clause."""
    for i in range(ranked.start[clause], ranked.end[clause]):
        if has_bit(bits, own, np.int64(ranked.rank[i]) - first_rank) == np.uint64(0):
            return False
    return True


@kernel
def verify_candidates(
    tree: Tree, ranked: RankedClauses, scratch: MatchScratch, segments: Number, output: Output
) -> Number:
    """Write the candidates that match; return the member at which the output is full, or -1."""
    filter_candidates(tree, scratch, segments)
    bits, group, kept = scratch.bitmap.word, scratch.walk.group, scratch.kept
    first_rank = tree.state[FIRST_RANK]
    words = len(bits) // len(group)
    for i in range(scratch.segment[segments - 1, 1]):
        if kept[i, 1] != 0:
            prefetch(ranked.start, kept[i, 0])
    for i in range(scratch.segment[segments - 1, 1]):
        if kept[i, 1] != 0:
            prefetch(ranked.rank, ranked.start[kept[i, 0]])
    first = np.int64(0)
    for i in range(segments):
        member, end = scratch.segment[i, 0], scratch.segment[i, 1]
        message = group[member, MESSAGE]
        found = output.start[message + 1]
        if found + end - first > len(output.clause):
            return member
        for at in range(first, end):
            clause = np.int64(kept[at, 0])
            output.clause[found] = clause
            if kept[at, 1] != 0:
                found += np.int64(contains_ranks(ranked, bits, member * words, first_rank, clause))
            else:
                found += 1
        output.start[message + 1] = found
        if message + 2 < len(output.start):
            output.start[message + 2] = found
        first = end
    return np.int64(ALL_DONE)


@kernel
def sort_leaves(scratch: MatchScratch, members: Number, leaves: Number) -> None:
    """Sort the visited leaves by member."""
    leaf, start = scratch.walk.leaf, scratch.leaf_start
    for i in range(members + 2):
        start[i] = 0
    for i in range(leaves):
        start[leaf[i, 1] + 2] += 1
    for i in range(members):
        start[i + 2] += start[i + 1]
    for i in range(leaves):
        after = leaf[i, 1] + 1
        scratch.sorted_leaf[start[after]] = leaf[i, 0]
        start[after] += 1


@inlined_kernel
def scan_leaf(
    arena: NDArray[np.int32],
    base: Number,
    begin: Number,
    box: NDArray[np.int32],
    scratch: MatchScratch,
    count: Number,
) -> tuple[Number, Number]:
    """Collect the entries of a leaf whose boxes touch the message and whose keys may occur.

    Return the entry at which the candidates are full, and how many candidates there are. Behind the
    last entry other values are read, whose bits are dropped.
    """
    size, capacity = np.int64(arena[base + SIZE]), np.int64(arena[base + CAPACITY])
    west, south = arena[base + LEAF_REGION], arena[base + LEAF_REGION + 1]
    west = west if west > box[0] else _UNBOUNDED32
    south = south if south > box[1] else _UNBOUNDED32
    bits, candidate = scratch.rank_filter, scratch.candidate
    while begin < size and count + LANES <= len(candidate):
        side = west_position(base, capacity, begin)
        touches = touching_boxes(arena, side, capacity, box)
        if size - begin < LANES:
            touches &= (_ONE << np.uint64(size - begin)) - _ONE
        key, tail = base + LEAF_HEADER + begin, tail_position(base, capacity, begin)
        if bit_count(touches) > MAX_BRANCHES:
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
            here = (arena[side + lane] >= west) & (arena[side + capacity + lane] >= south)
            candidate[count, KEY], candidate[count, TAIL] = key + lane, tail + 2 * lane
            count += np.int64(occurs & here)
        begin += LANES
    return begin, count


@kernel
def scan_leaves(
    tree: Tree,
    ranked: RankedClauses,
    scratch: MatchScratch,
    amount: tuple[Number, Number],
    output: Output,
) -> Number:
    """Write the matches in all leaves; return the member at which the output is full, or -1.

    ``amount`` are the members of the group and their leaves.
    """
    sort_leaves(scratch, amount[0], amount[1])
    arena, group, segment = tree.arena, scratch.walk.group, scratch.segment
    count, segments, ended = np.int64(0), np.int64(0), np.int64(ALL_DONE)
    for member in range(amount[0]):
        box = scratch.walk.box[group[member, MESSAGE]]
        ranks = scratch.walk.rank[group[member, RANK_BEGIN] : group[member, RANK_END]]
        set_filter(scratch.rank_filter, ranks)
        for i in range(scratch.leaf_start[member], scratch.leaf_start[member + 1]):
            base, at = scratch.sorted_leaf[i], np.int64(0)
            size = np.int64(arena[base + SIZE])
            while at < size and ended < 0:
                at, count = scan_leaf(arena, base, at, box, scratch, count)
                if at < size:
                    segment[segments, 0], segment[segments, 1] = member, count
                    ended = verify_candidates(tree, ranked, scratch, segments + 1, output)
                    count, segments = np.int64(0), np.int64(0)
        clear_filter(scratch.rank_filter, ranks)
        if ended >= 0:
            return ended
        segment[segments, 0], segment[segments, 1] = member, count
        segments += 1
    return verify_candidates(tree, ranked, scratch, segments, output)


@kernel
def match_group(
    tree: Tree, ranked: RankedClauses, scratch: MatchScratch, members: Number, output: Output
) -> Number:
    """Write the matches of a group; return the member at which the output is full, or -1.

    Return -2 if several members visit more leaves than there is space for: match them one by one.
    """
    top = start_walk(scratch.walk, members)
    while True:
        top, leaves = walk_on(tree, scratch.walk, top)
        if top > 0 and members > 1:
            return np.int64(TOO_MANY_LEAVES)
        ended = scan_leaves(tree, ranked, scratch, (members, leaves), output)
        if ended >= 0 or top == 0:
            return ended


@kernel
def group_end(start: NDArray[np.int64], first: Number, last: Number) -> Number:
    """Return the end of the group of messages that begins with ``first``."""
    end = first + 1
    while (
        end < last and end < first + MAX_GROUP and start[end + 1] - start[first] <= MAX_GROUP_TOKENS
    ):
        end += 1
    return end


@kernel
def rank_group(
    slot: NDArray[np.uint64],
    messages: MessageArrays,
    part: tuple[Number, Number],
    first_rank: Number,
    scratch: MatchScratch,
) -> None:
    """Write the ranks of a group of messages."""
    group, rank, words = scratch.walk.group, scratch.walk.rank, len(scratch.bitmap.word)
    words //= len(group)
    begin = np.int64(0)
    for m in range(part[0], part[1]):
        member = m - part[0]
        tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
        own = RankBitmap(
            scratch.bitmap.word[member * words : (member + 1) * words], scratch.bitmap.block
        )
        count = rank_message(slot, tokens, first_rank, own, rank[begin:])
        group[member, MESSAGE], group[member, RANK_BEGIN] = m, begin
        begin += count
        group[member, RANK_END] = begin


@kernel
def clear_group(scratch: MatchScratch, members: Number, first_rank: Number) -> None:
    """Clear the bitmaps of a group."""
    group, rank = scratch.walk.group, scratch.walk.rank
    words = len(scratch.bitmap.word) // len(group)
    for member in range(members):
        own = RankBitmap(
            scratch.bitmap.word[member * words : (member + 1) * words], scratch.bitmap.block
        )
        clear_bitmap(own, first_rank, rank[group[member, RANK_BEGIN] : group[member, RANK_END]])


@kernel
def match_messages(
    tree: Tree,
    ranked: RankedClauses,
    slot: NDArray[np.uint64],
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part, from ``output.start[part[0]]`` on.

    Return the message at which the output is full (or the end), the entries examined and the nodes
    visited.
    """
    tree, ranked, scratch = borrow(tree), borrow(ranked), borrow(scratch)
    slot, output = borrow(slot), borrow(output)
    start, token = messages.token_start, borrow(messages.token)
    first_rank, examined, visited = tree.state[FIRST_RANK], np.int64(0), np.int64(0)
    first, alone_before = part[0], part[0]
    while first < part[1]:
        end = group_end(start, first, part[1]) if first >= alone_before else first + 1
        ahead = min(end + MAX_GROUP, part[1])
        for i in range(start[end], min(start[ahead], start[end] + MAX_GROUP_TOKENS)):
            prefetch(slot, home(np.int64(token[i]), len(slot)))
        rank_group(slot, messages, (first, end), first_rank, scratch)
        output.start[first + 1] = output.start[first]
        ended = match_group(tree, ranked, scratch, end - first, output)
        clear_group(scratch, end - first, first_rank)
        if ended == TOO_MANY_LEAVES:
            alone_before = end
            continue
        for member in range(end - first if ended < 0 else ended):
            visited += scratch.walk.group[member, VISITED]
            examined += scratch.walk.group[member, EXAMINED]
        if ended >= 0:
            return first + ended, examined, visited
        first = end
    return part[1], examined, visited
