"""Group clauses into the trie of a trie-pyramid: ranks, first tokens, and children where they pay.

A list of clauses that share their rarest tokens costs a message what those of them cost that touch
it. Those that share their next token as well are worth a child of their own where several are
expected to touch: then messages without that token do not meet them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DEPTH = 8
"""Lists at this depth have no children, however many clauses share more tokens than that."""

LOW32 = np.uint64(0xFFFFFFFF)
BITS32 = np.uint64(32)
_KEPT = np.uint64(0xFFFFFFFFFFFFFFFF)


class Ranked(NamedTuple):
    """Clauses with their tokens replaced by ranks, rarest first, and sorted."""

    token_start: NDArray[np.int64]
    rank: NDArray[np.int32]
    box: NDArray[np.int32]
    token_of_rank: NDArray[np.int32]


class Trie(NamedTuple):
    """The trie as ranges of a permutation of the clauses.

    List ``k`` keeps ``order[low[k]:kept[k]]`` and has the children ``first_child[k]`` and
    following, whose clauses stand behind, up to ``high[k]``. Its token has the rank ``rank[k]``
    (-1 for clauses without tokens) and stands at ``depth[k] - 1`` of its clauses. ``node`` is the
    number of a list that has children, from 1 on, ``parent`` that of the list above it.
    ``state``: lists, nodes.
    """

    order: NDArray[np.int32]
    low: NDArray[np.int64]
    kept: NDArray[np.int64]
    high: NDArray[np.int64]
    rank: NDArray[np.int32]
    depth: NDArray[np.int32]
    parent: NDArray[np.int32]
    node: NDArray[np.int32]
    first_child: NDArray[np.int64]
    children: NDArray[np.int64]
    state: NDArray[np.int64]


LISTS, NODES = 0, 1


@kernel
def rank_tokens(
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
    rank_of: NDArray[np.int32],
    rank: NDArray[np.int32],
) -> None:
    """Write the ranks of every clause's tokens, ascending, into ``rank`` (as long as ``token``)."""
    for clause in range(len(token_start) - 1):
        first, last = token_start[clause], token_start[clause + 1]
        for position in range(first, last):
            value = rank_of[token[position]]
            slot = position
            while slot > first and rank[slot - 1] > value:
                rank[slot] = rank[slot - 1]
                slot -= 1
            rank[slot] = value


@kernel
def first_group(ranked: Ranked, clause: Number) -> Number:
    """Return 0 for a clause without tokens, else one more than its first rank."""
    begin = ranked.token_start[clause]
    if begin == ranked.token_start[clause + 1]:
        return np.int64(0)
    return np.int64(ranked.rank[begin]) + 1


@kernel
def touch_share(box: NDArray[np.int32], clause: Number, area: Number) -> Number:
    """Return the share of an area that a box takes: how likely it touches a message."""
    width = np.float64(box[clause, 2]) - np.float64(box[clause, 0])
    height = np.float64(box[clause, 3]) - np.float64(box[clause, 1])
    return width * height / area


@kernel
def group_by_first(
    ranked: Ranked,
    area: Number,
    group_start: NDArray[np.int64],
    touching: NDArray[np.float64],
    order: NDArray[np.int32],
) -> None:
    """Order the clauses by their first rank (those without tokens first), by counting.

    ``group_start`` int64[ranks + 3] and ``touching`` float64[ranks + 1] come zeroed; afterwards
    group ``r + 1`` begins at ``group_start[r + 1]``, group 0 has no tokens, and ``touching`` is how
    many clauses of a group are expected to touch a message.
    """
    count = len(ranked.box)
    for clause in range(count):
        group = first_group(ranked, clause)
        group_start[group + 2] += 1
        touching[group] += touch_share(ranked.box, clause, area)
    for group in range(2, len(group_start)):
        group_start[group] += group_start[group - 1]
    for clause in range(count):
        group = first_group(ranked, clause)
        order[group_start[group + 1]] = clause
        group_start[group + 1] += 1


@kernel
def start_trie(group_start: NDArray[np.int64], trie: Trie) -> None:
    """Make a list of every group that has clauses."""
    count = np.int64(0)
    for group in range(len(group_start) - 1):
        low, high = group_start[group], group_start[group + 1]
        if low < high:
            trie.low[count], trie.kept[count], trie.high[count] = low, high, high
            trie.rank[count], trie.depth[count] = group - 1, min(group, 1)
            trie.parent[count] = trie.node[count] = trie.children[count] = 0
            count += 1
    trie.state[LISTS] = count


@kernel
def order_by_next(ranked: Ranked, trie: Trie, at: Number, key: NDArray[np.uint64]) -> None:
    """Write the clauses of a list into ``key``, sorted by their next ranks (none: 0)."""
    low, high = trie.low[at], trie.high[at]
    for i in range(high - low):
        clause = trie.order[low + i]
        position = ranked.token_start[clause] + trie.depth[at]
        next_rank = np.uint64(0)
        if position < ranked.token_start[clause + 1]:
            next_rank = np.uint64(ranked.rank[position]) + np.uint64(1)
        key[i] = (next_rank << BITS32) | np.uint64(clause)
    key[: high - low].sort()


@kernel
def keep_small_groups(
    ranked: Ranked, trie: Trie, at: Number, area: Number, least: Number, key: NDArray[np.uint64]
) -> None:
    """Keep what is worth no child in the list; of the others, ``key`` still has the groups."""
    size = trie.high[at] - trie.low[at]
    kept, start = trie.low[at], np.int64(0)
    while start < size:
        group, end = key[start] >> BITS32, start
        touching = np.float64(0)
        while end < size and (key[end] >> BITS32) == group:
            touching += touch_share(ranked.box, np.int64(key[end] & LOW32), area)
            end += 1
        if group == np.uint64(0) or touching < least:
            for i in range(start, end):
                trie.order[kept] = np.int32(key[i] & LOW32)
                key[i] = _KEPT
                kept += 1
        start = end
    trie.kept[at] = kept


@kernel
def split_list(
    ranked: Ranked, trie: Trie, at: Number, area: Number, least: Number, key: NDArray[np.uint64]
) -> None:
    """Give a list its children; ``key`` is room for its clauses."""
    order_by_next(ranked, trie, at, key)
    keep_small_groups(ranked, trie, at, area, least, key)
    size = trie.high[at] - trie.low[at]
    write, start = trie.kept[at], np.int64(0)
    if write == trie.high[at]:
        return
    trie.state[NODES] += 1
    trie.node[at] = trie.state[NODES]
    trie.first_child[at] = trie.state[LISTS]
    while start < size:
        if key[start] == _KEPT:
            start += 1
            continue
        child, group = trie.state[LISTS], key[start] >> BITS32
        trie.low[child] = write
        while start < size and key[start] != _KEPT and (key[start] >> BITS32) == group:
            trie.order[write] = np.int32(key[start] & LOW32)
            write += 1
            start += 1
        trie.kept[child] = trie.high[child] = write
        trie.rank[child] = np.int32(group - np.uint64(1))
        trie.depth[child] = trie.depth[at] + 1
        trie.parent[child] = trie.node[at]
        trie.node[child] = trie.children[child] = 0
        trie.state[LISTS] += 1
    trie.children[at] = trie.state[LISTS] - trie.first_child[at]


@kernel
def grow_trie(
    ranked: Ranked, trie: Trie, area: Number, least: Number, touching: NDArray[np.float64]
) -> None:
    """Split lists of which enough clauses are expected to touch, and what that makes."""
    roots, largest = trie.state[LISTS], np.int64(1)
    for at in range(roots):
        largest = max(largest, trie.high[at] - trie.low[at])
    key = np.empty(largest, np.uint64)
    done = np.int64(0)
    while done < trie.state[LISTS]:
        worth = done >= roots or touching[trie.rank[done] + 1] >= least
        if worth and 1 <= trie.depth[done] < MAX_DEPTH:
            split_list(ranked, trie, done, area, least, key)
        done += 1
