"""The order of tokens: a table from tokens to ranks, and the ranks of clauses and messages.

Wang et al., VLDB Journal 2015, sections 3.1 and 5.1.1: one order of all tokens, by which those of
clauses and messages are sorted. ``slot`` uint64[slots], open addressing: a token (its number plus
one, 0 for a free slot) in the upper half, and how often it occurs or its rank (plus 2**31) in the
lower one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.token_table import home
from nearcast.indexes.ap_tree.tree import HIGH, LOW

if TYPE_CHECKING:
    from numpy.typing import NDArray

AHEAD = 16

FEW = 24
"""Up to so many ranks of a message are sorted one by one."""

_LOW32 = np.uint64(0xFFFFFFFF)
_BITS32 = np.uint64(32)
_ONE = np.uint64(1)
_BIAS = np.int64(1 << 31)


class Bits(NamedTuple):
    """The set of a message's ranks, which count from the lowest of all here.

    ``rank`` uint64[ranks / 64 + 1]; ``block`` uint64[ranks / 4096 + 1] tells which words of it are
    not 0.
    """

    rank: NDArray[np.uint64]
    block: NDArray[np.uint64]


@inlined_kernel
def find_token(slot: NDArray[np.uint64], token: Number) -> Number:
    """Return the slot of a token, or the free one where it belongs."""
    wanted = np.uint64(token) + _ONE
    at = home(token, len(slot))
    while slot[at] != np.uint64(0) and (slot[at] >> _BITS32) != wanted:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@inlined_kernel
def rank_of(word: Number) -> Number:
    """Return the rank in a slot."""
    return np.int64(word & _LOW32) - _BIAS


@inlined_kernel
def word_of(token: Number, rank: Number) -> Number:
    """Return what stands in the slot of a token with a rank."""
    return ((np.uint64(token) + _ONE) << _BITS32) | np.uint64(np.int64(rank) + _BIAS)


@kernel
def count_tokens(
    slot: NDArray[np.uint64], token: NDArray[np.int32], first: Number, used: NDArray[np.int64]
) -> Number:
    """Count tokens from a position on; return that for which the table has no room."""
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
def give_ranks(slot: NDArray[np.uint64], at: NDArray[np.int64]) -> None:
    """Give the tokens in these slots ranks from 0 on."""
    for rank in range(len(at)):
        token = np.int64(slot[at[rank]] >> _BITS32) - 1
        slot[at[rank]] = word_of(token, rank)


@kernel
def move_slots(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> None:
    """Put what is in a table into an empty one with room."""
    for i in range(len(old)):
        if old[i] != np.uint64(0):
            new[find_token(new, np.int64(old[i] >> _BITS32) - 1)] = old[i]


@kernel
def sort_few(rank: NDArray[np.int32]) -> None:
    """Sort few ranks."""
    for i in range(1, len(rank)):
        wanted, at = rank[i], i
        while at > 0 and rank[at - 1] > wanted:
            rank[at] = rank[at - 1]
            at -= 1
        rank[at] = wanted


@kernel
def rank_clauses(
    slot: NDArray[np.uint64],
    columns: tuple[NDArray[np.int64], NDArray[np.int32]],
    clauses: NDArray[np.int32],
    rank: NDArray[np.int32],
    state: NDArray[np.int64],
    growth: tuple[Number, NDArray[np.int64]],
) -> Number:
    """Write the ranks of clauses; return for how many of them the table had room.

    ``columns`` are the start array and the tokens of all clauses; ``rank`` lies as tokens do. New
    tokens get the next rank, above all others or (where ``growth`` says so) below them.
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
                new = state[LOW] - 1 if downward else state[HIGH]
                slot[place] = word_of(np.int64(token[at]), new)
                state[LOW], state[HIGH] = min(state[LOW], new), max(state[HIGH], new + 1)
            rank[at] = rank_of(slot[place])
        if end - begin <= FEW:
            sort_few(rank[begin:end])
        else:
            rank[begin:end].sort()
    return np.int64(len(clauses))


@kernel
def rank_message(
    slot: NDArray[np.uint64],
    tokens: NDArray[np.int32],
    low: Number,
    bits: Bits,
    rank: NDArray[np.int32],
) -> Number:
    """Write the ranks of a message's tokens that any clause has, ascending, and set their bits.

    Return how many there are.
    """
    count = np.int64(0)
    for i in range(len(tokens)):
        word = slot[find_token(slot, np.int64(tokens[i]))]
        if word != np.uint64(0):
            known = rank_of(word)
            rank[count] = known
            count += 1
            at = np.uint64(known - low)
            bits.rank[at >> np.uint64(6)] |= _ONE << (at & np.uint64(63))
    if count <= FEW:
        sort_few(rank[:count])
        return count
    # Too many to be sorted one by one: their bits are in order.
    for i in range(count):
        at = np.uint64(np.int64(rank[i]) - low)
        bits.block[at >> np.uint64(12)] |= _ONE << ((at >> np.uint64(6)) & np.uint64(63))
    count = np.int64(0)
    for block in range(len(bits.block)):
        words = bits.block[block]
        while words != np.uint64(0):
            word = 64 * block + lowest_bit(words)
            words &= words - _ONE
            left = bits.rank[word]
            while left != np.uint64(0):
                rank[count] = low + 64 * word + lowest_bit(left)
                count += 1
                left &= left - _ONE
        bits.block[block] = np.uint64(0)
    return count


@kernel
def clear_bits(bits: Bits, low: Number, rank: NDArray[np.int32]) -> None:
    """Take the bits of a message's ranks out."""
    for i in range(len(rank)):
        bits.rank[(np.int64(rank[i]) - low) >> 6] = np.uint64(0)
