"""The order of tokens: a hash table from tokens to ranks, and the ranks of clauses and messages.

All tokens have one order (Wang et al., VLDB Journal 2015, sections 3.1 and 5.1.1); the rank of a
token is its place in it. The table is ``slot`` uint64[slots] with open addressing. The upper half
of a slot is a token plus one (0 if the slot is free); the lower half is its frequency while tokens
are counted, and then its rank plus 2**31. A token that is new after the build gets a rank before or
after all others, so ranks may be negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Clauses, read_only
from nearcast.compiled.jit import Number, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.sorting import sort_short
from nearcast.compiled.token_table import home
from nearcast.indexes.ap_tree.layout import END_RANK, FIRST_RANK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseTokens

AHEAD = 16
"""How many tokens or clauses ahead of their use slots are prefetched."""

MAX_SORTED = 24
"""More ranks of a message than this are not sorted, but read back from the bitmap."""

_MIN_SLOTS = 64
_LOW32 = np.uint64(0xFFFFFFFF)
_BITS32 = np.uint64(32)
_ONE = np.uint64(1)
_BIAS = np.int64(1 << 31)


class RankBitmap(NamedTuple):
    """The ranks of a message as a set of bits; bit 0 is the lowest rank of the tree.

    ``word`` uint64[ranks / 64 + 1]; ``block`` uint64[ranks / 4096 + 1] has a bit for each word.
    """

    word: NDArray[np.uint64]
    block: NDArray[np.uint64]


@inlined_kernel
def find_token(slot: NDArray[np.uint64], token: Number) -> Number:
    """Return the position of a token in the table, or the free one where it belongs."""
    wanted = np.uint64(token) + _ONE
    at = home(token, len(slot))
    while slot[at] != np.uint64(0) and (slot[at] >> _BITS32) != wanted:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@inlined_kernel
def unpack_rank(word: Number) -> Number:
    """Return the rank in a slot."""
    return np.int64(word & _LOW32) - _BIAS


@inlined_kernel
def pack_slot(token: Number, rank: Number) -> Number:
    """Return the slot of a token with a rank."""
    return ((np.uint64(token) + _ONE) << _BITS32) | np.uint64(np.int64(rank) + _BIAS)


@kernel
def count_tokens(
    slot: NDArray[np.uint64], token: NDArray[np.int32], first: Number, used: NDArray[np.int64]
) -> Number:
    """Count tokens from position ``first`` on; return the first that the table has no space for."""
    for i in range(first, len(token)):
        if i + AHEAD < len(token):
            prefetch(slot, home(np.int64(token[i + AHEAD]), len(slot)))
        at = find_token(slot, np.int64(token[i]))
        if slot[at] == np.uint64(0):
            if 2 * (used[0] + 1) > len(slot):
                return np.int64(i)
            used[0] += 1
            slot[at] = (np.uint64(token[i]) + _ONE) << _BITS32
        slot[at] += _ONE
    return np.int64(len(token))


@kernel
def assign_ranks(slot: NDArray[np.uint64], order: NDArray[np.int64]) -> None:
    """Replace frequencies by ranks: ``order`` has the positions of all tokens, by rank."""
    for rank in range(len(order)):
        token = np.int64(slot[order[rank]] >> _BITS32) - 1
        slot[order[rank]] = pack_slot(token, rank)


@kernel
def copy_slots(source: NDArray[np.uint64], target: NDArray[np.uint64]) -> None:
    """Copy a table into an empty one of another size."""
    for i in range(len(source)):
        if source[i] != np.uint64(0):
            target[find_token(target, np.int64(source[i] >> _BITS32) - 1)] = source[i]


@kernel
def rank_clauses(
    slot: NDArray[np.uint64],
    columns: ClauseTokens,
    clauses: NDArray[np.int32],
    rank: NDArray[np.int32],
    state: NDArray[np.int64],
    growth: tuple[Number, NDArray[np.int64]],
) -> Number:
    """Write the ranks of clauses; return how many clauses the table had space for.

    ``rank`` is parallel to the tokens of all clauses. ``growth`` says whether new tokens get ranks
    below all others, and counts the used slots.
    """
    start, token = columns
    downward, used = growth
    for i in range(len(clauses)):
        begin, end = start[clauses[i]], start[clauses[i] + 1]
        if 3 * (used[0] + end - begin) >= 2 * len(slot):
            return np.int64(i)
        if i + AHEAD < len(clauses):
            ahead = clauses[i + AHEAD]
            for at in range(start[ahead], start[ahead + 1]):
                prefetch(slot, home(np.int64(token[at]), len(slot)))
        for at in range(begin, end):
            place = find_token(slot, np.int64(token[at]))
            if slot[place] == np.uint64(0):
                used[0] += 1
                new = state[FIRST_RANK] - 1 if downward else state[END_RANK]
                slot[place] = pack_slot(np.int64(token[at]), new)
                state[FIRST_RANK] = min(state[FIRST_RANK], new)
                state[END_RANK] = max(state[END_RANK], new + 1)
            rank[at] = unpack_rank(slot[place])
        sort_short(rank[begin:end])
    return np.int64(len(clauses))


@kernel
def rank_message(
    slot: NDArray[np.uint64],
    tokens: NDArray[np.int32],
    first_rank: Number,
    bitmap: RankBitmap,
    rank: NDArray[np.int32],
) -> Number:
    """Write the ranks of a message's tokens, ascending, and set their bits; return how many.

    Tokens that no clause has are left out.
    """
    count = np.int64(0)
    for i in range(len(tokens)):
        word = slot[find_token(slot, np.int64(tokens[i]))]
        if word != np.uint64(0):
            known = unpack_rank(word)
            rank[count] = known
            count += 1
            at = np.uint64(known - first_rank)
            bitmap.word[at >> np.uint64(6)] |= _ONE << (at & np.uint64(63))
    if count <= MAX_SORTED:
        sort_short(rank[:count])
        return count
    # Read many ranks back from the bitmap: its bits are in order.
    for i in range(count):
        at = np.uint64(np.int64(rank[i]) - first_rank)
        bitmap.block[at >> np.uint64(12)] |= _ONE << ((at >> np.uint64(6)) & np.uint64(63))
    count = np.int64(0)
    for block in range(len(bitmap.block)):
        words = bitmap.block[block]
        while words != np.uint64(0):
            word = 64 * block + lowest_bit(words)
            words &= words - _ONE
            left = bitmap.word[word]
            while left != np.uint64(0):
                rank[count] = first_rank + 64 * word + lowest_bit(left)
                count += 1
                left &= left - _ONE
        bitmap.block[block] = np.uint64(0)
    return count


@kernel
def clear_bitmap(bitmap: RankBitmap, first_rank: Number, rank: NDArray[np.int32]) -> None:
    """Clear the bits of a message's ranks."""
    for i in range(len(rank)):
        bitmap.word[(np.int64(rank[i]) - first_rank) >> 6] = np.uint64(0)


def ordered_table(clauses: Clauses, chosen: NDArray[np.int32], order: str) -> NDArray[np.uint64]:
    """Return a table with the ranks of all tokens of the chosen clauses, in one of three orders."""
    return ordered_slots(_tokens_of(clauses, chosen), order)


def ordered_slots(tokens: NDArray[np.int32], order: str) -> NDArray[np.uint64]:
    """Return a table with the ranks of tokens by their frequency, in one of three orders."""
    slot = _count_frequencies(tokens)
    used = np.flatnonzero(slot)
    token, frequency = slot_tokens(slot[used]), (slot[used] & _LOW32).astype(np.int64)
    key = {"frequent": -frequency, "rare": frequency, "alphabet": np.zeros_like(frequency)}[order]
    assign_ranks(slot, used[np.lexsort((token, key))])
    return slot


def enlarged_table(slot: NDArray[np.uint64], slots: int) -> NDArray[np.uint64]:
    """Return the table with more slots."""
    larger = np.zeros(slots, np.uint64)
    copy_slots(slot, larger)
    return larger


def slot_tokens(slot: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the tokens of slots, -1 for free ones."""
    return (slot >> _BITS32).astype(np.int64) - 1


def slot_ranks(slot: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the ranks of slots."""
    ranks: NDArray[np.int64] = (slot & _LOW32).astype(np.int64) - _BIAS
    return ranks


def _count_frequencies(token: NDArray[np.int32]) -> NDArray[np.uint64]:
    slot, used, done = np.zeros(_MIN_SLOTS, np.uint64), np.zeros(1, np.int64), 0
    while True:
        done = int(count_tokens(slot, token, done, used))
        if done == len(token):
            return enlarged_table(slot, _MIN_SLOTS + 2 * int(used[0]))
        slot = enlarged_table(slot, 4 * len(slot))


def _tokens_of(clauses: Clauses, chosen: NDArray[np.int32]) -> NDArray[np.int32]:
    if len(chosen) == len(clauses):
        return clauses.token
    is_chosen = np.zeros(len(clauses), np.bool_)
    is_chosen[chosen] = True
    return read_only(clauses.token[np.repeat(is_chosen, np.diff(clauses.token_start))], np.int32)
