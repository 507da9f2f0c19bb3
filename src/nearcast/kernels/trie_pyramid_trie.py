"""Group clauses into the trie of a trie-pyramid: ranks, first tokens, nodes and their children."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, kernel
from nearcast.kernels.tag_table import BITS32, LOW32
from nearcast.kernels.trie_pyramid import FREE

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_DEPTH = 8
"""Nodes at this depth have no children, however many clauses share more tokens than that."""


class Ranked(NamedTuple):
    """Clauses with their tokens replaced by ranks, rarest first, and sorted."""

    token_start: NDArray[np.int64]
    rank: NDArray[np.int32]
    box: NDArray[np.int32]
    token_of_rank: NDArray[np.int32]


class Trie(NamedTuple):
    """The trie as ranges of a permutation of the clauses.

    Node ``k`` keeps ``order[low[k]:kept[k]]`` and has the children ``first_child[k]`` and
    following; its token has the rank ``rank[k]`` and stands at ``depth[k] - 1`` of its clauses.
    """

    order: NDArray[np.int32]
    low: NDArray[np.int64]
    kept: NDArray[np.int64]
    high: NDArray[np.int64]
    rank: NDArray[np.int32]
    depth: NDArray[np.int32]
    first_child: NDArray[np.int64]
    children: NDArray[np.int64]


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
def group_by_first(
    token_start: NDArray[np.int64],
    rank: NDArray[np.int32],
    group_start: NDArray[np.int64],
    order: NDArray[np.int32],
) -> None:
    """Order the clauses by their first rank (those without tokens first), by counting.

    ``group_start`` int64[ranks + 3] comes zeroed; afterwards group ``r + 1`` begins at
    ``group_start[r + 1]`` and group 0 has no tokens.
    """
    count = len(token_start) - 1
    for clause in range(count):
        group = (
            rank[token_start[clause]] + 1 if token_start[clause] < token_start[clause + 1] else 0
        )
        group_start[group + 2] += 1
    for group in range(2, len(group_start)):
        group_start[group] += group_start[group - 1]
    for clause in range(count):
        group = (
            rank[token_start[clause]] + 1 if token_start[clause] < token_start[clause + 1] else 0
        )
        order[group_start[group + 1]] = clause
        group_start[group + 1] += 1


@kernel
def split_node(
    ranked: Ranked, trie: Trie, node: Number, nodes: Number, least: Number, key: NDArray[np.uint64]
) -> Number:
    """Give a node its children: groups of ``least`` clauses or more that share their next token.

    Clauses are reordered: what the node keeps first, then child by child. Return the new number
    of nodes; ``key`` is room for the clauses of the node.
    """
    low, high, depth = trie.low[node], trie.high[node], trie.depth[node]
    size = high - low
    for i in range(size):
        clause = trie.order[low + i]
        position = ranked.token_start[clause] + depth
        next_rank = np.uint64(0)
        if position < ranked.token_start[clause + 1]:
            next_rank = np.uint64(ranked.rank[position]) + np.uint64(1)
        key[i] = (next_rank << BITS32) | np.uint64(clause)
    key[:size].sort()
    trie.first_child[node] = nodes
    kept = low
    start = 0
    while start < size:
        group = key[start] >> BITS32
        end = start + 1
        while end < size and (key[end] >> BITS32) == group:
            end += 1
        if group == np.uint64(0) or end - start < least:
            for i in range(start, end):
                trie.order[kept] = np.int32(key[i] & LOW32)
                key[i] = FREE
                kept += 1
        start = end
    trie.kept[node] = kept
    write = kept
    start = 0
    while start < size:
        if key[start] == FREE:
            start += 1
            continue
        group = key[start] >> BITS32
        trie.low[nodes] = write
        while start < size and key[start] != FREE and (key[start] >> BITS32) == group:
            trie.order[write] = np.int32(key[start] & LOW32)
            write += 1
            start += 1
        trie.high[nodes] = write
        trie.kept[nodes] = write
        trie.rank[nodes] = np.int32(group - np.uint64(1))
        trie.depth[nodes] = depth + 1
        nodes += 1
    trie.children[node] = nodes - trie.first_child[node]
    return nodes


@kernel
def grow_trie(ranked: Ranked, trie: Trie, nodes: Number, least: Number) -> Number:
    """Split nodes 1 and following, and the nodes that this makes; return how many there are."""
    largest = np.int64(1)
    for node in range(nodes):
        largest = max(largest, trie.high[node] - trie.low[node])
    key = np.empty(largest, np.uint64)
    current = np.int64(1)
    while current < nodes:
        if trie.depth[current] < MOST_DEPTH:
            nodes = split_node(ranked, trie, current, nodes, least, key)
        current += 1
    return nodes
