"""Verify what messages found in the leaves of an adaptive partition tree, and write what matches.

Wang et al., VLDB Journal 2015, algorithm 1. `nearcast.indexes.ap_tree.match` has the way there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.indexes.ap_tree.ranks import Bits
from nearcast.indexes.ap_tree.tree import ANOTHER, CLAUSE, LOW, NOTHING, Ranked, Tree
from nearcast.indexes.ap_tree.walk import MESSAGE, Walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ONE = np.uint64(1)

KEY, TAIL, CANDIDATE_WIDTH = 0, 1, 2
"""In a row of candidates: where the key of an entry stands, and where its other rank."""


class Scratch(NamedTuple):
    """Room for a group of messages.

    - ``walk``: their ranks and where they are.
    - ``bits``: the sets of their ranks, end to end; ``rank_filter`` uint64[512]: a bit for each
      rank of one message.
    - ``sorted`` int64[leaves]: leaves by message; ``leaf_start`` int64[most + 2].
    - ``candidate`` int64[many, 2]: see above. ``segment`` int64[most + 1, 2]: which message the
      next candidates belong to, and where they end.
    - ``kept`` int32[many, 2]: clauses, and whether they have more than two ranks.
    """

    walk: Walk
    bits: Bits
    rank_filter: NDArray[np.uint64]
    sorted: NDArray[np.int64]
    leaf_start: NDArray[np.int64]
    candidate: NDArray[np.int64]
    segment: NDArray[np.int64]
    kept: NDArray[np.int32]


class Output(NamedTuple):
    """The clauses of message ``m`` are ``match[match_start[m]:match_start[m + 1]]``."""

    match_start: NDArray[np.int64]
    match: NDArray[np.int32]


@kernel
def borrow_scratch(scratch: Scratch) -> Scratch:
    """Return the same room without an owner, for the time of a call."""
    walk = scratch.walk
    return Scratch(
        Walk(
            borrow(walk.rank),
            borrow(walk.group),
            borrow(walk.box),
            borrow(walk.stack),
            borrow(walk.taken),
            borrow(walk.leaf),
        ),
        Bits(borrow(scratch.bits.rank), borrow(scratch.bits.block)),
        borrow(scratch.rank_filter),
        borrow(scratch.sorted),
        borrow(scratch.leaf_start),
        borrow(scratch.candidate),
        borrow(scratch.segment),
        borrow(scratch.kept),
    )


@inlined_kernel
def has_bit(bits: NDArray[np.uint64], first: Number, at: Number) -> Number:
    """Return 1 if a bit is set in the words from a first one on, or 0."""
    return (bits[first + (at >> 6)] >> np.uint64(at & 63)) & _ONE


@kernel
def keep_candidates(tree: Tree, scratch: Scratch, segments: Number) -> None:
    """Keep those candidates two of whose ranks occur.

    The segments end where the kept ones do then. There are no branches: too few of them would be
    foreseen.
    """
    arena, low = tree.arena, tree.state[LOW]
    bits, candidate, kept = scratch.bits.rank, scratch.candidate, scratch.kept
    words = len(bits) // len(scratch.walk.group)
    first, count = np.int64(0), np.int64(0)
    for i in range(scratch.segment[segments - 1, 1]):
        prefetch(arena, candidate[i, TAIL])
    for i in range(segments):
        own, end = scratch.segment[i, 0] * words, scratch.segment[i, 1]
        for at in range(first, end):
            tail = candidate[at, TAIL]
            key, another = np.int64(arena[candidate[at, KEY]]), np.int64(arena[tail + ANOTHER])
            free = key == NOTHING
            key, beside = (low if free else key), (low if free else another >> 1)
            both = has_bit(bits, own, key - low) & has_bit(bits, own, beside - low)
            kept[count, 0], kept[count, 1] = arena[tail + CLAUSE], another & 1
            count += np.int64(free | (both != np.uint64(0)))
        scratch.segment[i, 1], first = count, end


@kernel
def all_occur(
    ranked: Ranked, bits: NDArray[np.uint64], own: Number, low: Number, clause: Number
) -> Number:
    """Tell whether all ranks of a clause are among those of the message."""
    for i in range(ranked.start[clause], ranked.start[clause + 1]):
        if has_bit(bits, own, np.int64(ranked.rank[i]) - low) == np.uint64(0):
            return False
    return True


@kernel
def take_candidates(
    tree: Tree, ranked: Ranked, scratch: Scratch, segments: Number, output: Output
) -> Number:
    """Write those of the candidates that match; return the message for which there is no room.

    If there is room, return -1.
    """
    keep_candidates(tree, scratch, segments)
    bits, group, kept, low = scratch.bits.rank, scratch.walk.group, scratch.kept, tree.state[LOW]
    words = len(bits) // len(group)
    for i in range(scratch.segment[segments - 1, 1]):
        if kept[i, 1] != 0:
            prefetch(ranked.start, kept[i, 0])
    for i in range(scratch.segment[segments - 1, 1]):
        if kept[i, 1] != 0:
            prefetch(ranked.rank, ranked.start[kept[i, 0]])
    first = np.int64(0)
    for i in range(segments):
        whose, end = scratch.segment[i, 0], scratch.segment[i, 1]
        message = group[whose, MESSAGE]
        found = output.match_start[message + 1]
        if found + end - first > len(output.match):
            return whose
        for at in range(first, end):
            clause = np.int64(kept[at, 0])
            output.match[found] = clause
            if kept[at, 1] != 0:
                found += np.int64(all_occur(ranked, bits, whose * words, low, clause))
            else:
                found += 1
        output.match_start[message + 1] = found
        if message + 2 < len(output.match_start):
            output.match_start[message + 2] = found
        first = end
    return np.int64(-1)
