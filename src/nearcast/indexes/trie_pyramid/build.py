"""Build a trie-pyramid: group the clauses into a trie, order each list, write the arrays.

Grouping
    Every clause starts in the list of its rarest token. Clauses of a list that share their next
    token may get a child of their own, so that messages without that token skip them. A child
    costs a lookup whenever its parent is opened; clauses that stay in the parent cost a message
    only if they overlap it. So a child is made if enough of its clauses (``child_size``, 4 by
    default) are expected to overlap a message, estimated by the share of the area they cover.
Ordering
    The entries of a list are ordered by place: see `nearcast.compiled.pyramid_build`.
Writing
    The pyramid and slot of every list, then children and cell masks bottom-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.pyramid_build import (
    HIGH,
    LOW,
    WIDTH,
    add_cells,
    align,
    order_rows,
    write_pyramid,
)
from nearcast.compiled.pyramids import (
    BLOCK_SIZE,
    CELLS,
    KEY,
    MAX_QUEUED,
    TARGET,
    find_slot,
    pack_pyramid,
    pyramid_words,
)
from nearcast.compiled.token_table import BITS32, LOW32, NO_TOKEN
from nearcast.indexes.trie_pyramid.layout import (
    CHILDREN,
    IS_NODE,
    KEPT,
    SIGNATURE,
    TriePyramidArrays,
    key_of,
    signature_bit,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseTokens

MAX_DEPTH = 8
"""Lists at this depth are not split, even if their clauses share more tokens."""

LISTS, NODES = 0, 1
"""The fields of ``Trie.counts``."""

PREFETCH_DISTANCE = 16

_IN_PARENT = np.uint64(0xFFFFFFFFFFFFFFFF)


class RankedClauses(NamedTuple):
    """Clauses with each token replaced by its rank (rarest first); ranks of a clause ascend.

    ``area`` is that of the bounding box of all clauses.
    """

    token_start: NDArray[np.int64]
    rank: NDArray[np.int32]
    box: NDArray[np.int32]
    token_of_rank: NDArray[np.int32]
    area: float


class Trie(NamedTuple):
    """The lists of the trie, as ranges of a permutation of the clauses.

    List ``k`` keeps the clauses ``order[low[k]:kept[k]]``. Its ``child_count[k]`` children are the
    lists from ``first_child[k]`` on; their clauses follow, up to ``high[k]``. ``rank[k]`` is the
    rank of its token (-1 for clauses without tokens), which is token ``depth[k] - 1`` of its
    clauses. ``node[k]`` numbers the lists that have children, from 1 on; ``parent[k]`` is the
    node above the list, 0 for none. ``counts``: the number of lists and of nodes.
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
    child_count: NDArray[np.int64]
    counts: NDArray[np.int64]


# --- grouping ------------------------------------------------------------------------------------


@kernel
def rank_tokens(clauses: ClauseTokens, rank_of: NDArray[np.int32], rank: NDArray[np.int32]) -> None:
    """Write the ascending ranks of each clause's tokens into ``rank`` (as long as ``token``)."""
    token_start, token = clauses
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
def first_group(ranked: RankedClauses, clause: Number) -> Number:
    """Return 0 for a clause without tokens, otherwise its first rank plus one."""
    begin = ranked.token_start[clause]
    if begin == ranked.token_start[clause + 1]:
        return np.int64(0)
    return np.int64(ranked.rank[begin]) + 1


@kernel
def area_share(ranked: RankedClauses, clause: Number) -> Number:
    """Return the share of the area that a box covers: its probability to overlap a message."""
    box = ranked.box
    width = np.float64(box[clause, 2]) - np.float64(box[clause, 0])
    height = np.float64(box[clause, 3]) - np.float64(box[clause, 1])
    return width * height / ranked.area


@kernel
def group_by_first(
    ranked: RankedClauses,
    group_start: NDArray[np.int64],
    overlaps: NDArray[np.float64],
    order: NDArray[np.int32],
) -> None:
    """Order the clauses by their first rank, those without tokens first (a counting sort).

    ``group_start`` int64[ranks + 3] and ``overlaps`` float64[ranks + 1] are zero on entry.
    Afterwards group ``r + 1`` begins at ``group_start[r + 1]``, group 0 has no tokens, and
    ``overlaps`` is the number of clauses of a group expected to overlap a message.
    """
    count = len(ranked.box)
    for clause in range(count):
        group = first_group(ranked, clause)
        group_start[group + 2] += 1
        overlaps[group] += area_share(ranked, clause)
    for group in range(2, len(group_start)):
        group_start[group] += group_start[group - 1]
    for clause in range(count):
        group = first_group(ranked, clause)
        order[group_start[group + 1]] = clause
        group_start[group + 1] += 1


@kernel
def start_trie(group_start: NDArray[np.int64], trie: Trie) -> None:
    """Make a list of each group that has clauses."""
    count = np.int64(0)
    for group in range(len(group_start) - 1):
        low, high = group_start[group], group_start[group + 1]
        if low < high:
            trie.low[count], trie.kept[count], trie.high[count] = low, high, high
            trie.rank[count], trie.depth[count] = group - 1, min(group, 1)
            trie.parent[count] = trie.node[count] = trie.child_count[count] = 0
            count += 1
    trie.counts[LISTS] = count


@kernel
def sort_by_next(ranked: RankedClauses, trie: Trie, at: Number, key: NDArray[np.uint64]) -> None:
    """Write the clauses of a list into ``key``, sorted by next rank plus one (0 for none)."""
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
    ranked: RankedClauses, trie: Trie, at: Number, child_size: Number, key: NDArray[np.uint64]
) -> None:
    """Keep groups that are not worth a child in the list, and mark them as such in ``key``."""
    size = trie.high[at] - trie.low[at]
    kept, start = trie.low[at], np.int64(0)
    while start < size:
        group, end = key[start] >> BITS32, start
        overlaps = np.float64(0)
        while end < size and (key[end] >> BITS32) == group:
            overlaps += area_share(ranked, np.int64(key[end] & LOW32))
            end += 1
        if group == np.uint64(0) or overlaps < child_size:
            for i in range(start, end):
                trie.order[kept] = np.int32(key[i] & LOW32)
                key[i] = _IN_PARENT
                kept += 1
        start = end
    trie.kept[at] = kept


@kernel
def split_list(
    ranked: RankedClauses, trie: Trie, at: Number, child_size: Number, key: NDArray[np.uint64]
) -> None:
    """Move clauses of a list into children; ``key`` is scratch for all its clauses."""
    sort_by_next(ranked, trie, at, key)
    keep_small_groups(ranked, trie, at, child_size, key)
    size = trie.high[at] - trie.low[at]
    write, start = trie.kept[at], np.int64(0)
    if write == trie.high[at]:
        return
    trie.counts[NODES] += 1
    trie.node[at] = trie.counts[NODES]
    trie.first_child[at] = trie.counts[LISTS]
    while start < size:
        if key[start] == _IN_PARENT:
            start += 1
            continue
        child, group = trie.counts[LISTS], key[start] >> BITS32
        trie.low[child] = write
        while start < size and key[start] != _IN_PARENT and (key[start] >> BITS32) == group:
            trie.order[write] = np.int32(key[start] & LOW32)
            write += 1
            start += 1
        trie.kept[child] = trie.high[child] = write
        trie.rank[child] = np.int32(group - np.uint64(1))
        trie.depth[child] = trie.depth[at] + 1
        trie.parent[child] = trie.node[at]
        trie.node[child] = trie.child_count[child] = 0
        trie.counts[LISTS] += 1
    trie.child_count[at] = trie.counts[LISTS] - trie.first_child[at]


@kernel
def split_lists(
    ranked: RankedClauses, trie: Trie, child_size: Number, overlaps: NDArray[np.float64]
) -> None:
    """Split each list with enough expected overlaps, and the children in turn."""
    roots, largest = trie.counts[LISTS], np.int64(1)
    for at in range(roots):
        largest = max(largest, trie.high[at] - trie.low[at])
    key = np.empty(largest, np.uint64)
    done = np.int64(0)
    while done < trie.counts[LISTS]:
        worth = done >= roots or overlaps[trie.rank[done] + 1] >= child_size
        if worth and 1 <= trie.depth[done] < MAX_DEPTH:
            split_list(ranked, trie, done, child_size, key)
        done += 1


# --- writing -------------------------------------------------------------------------------------


@kernel
def count_words(trie: Trie, part_sizes: NDArray[np.int64], block: Number) -> Number:
    """Return the words that the pyramids of all lists take."""
    words = np.int64(0)
    for at in range(trie.counts[LISTS]):
        size = trie.kept[at] - trie.low[at]
        words = align(words, size, block) + pyramid_words(part_sizes, block, size)
    return words


@kernel
def next_token(ranked: RankedClauses, clause: Number, depth: Number) -> Number:
    """Return the next token of an entry, as its word stores it."""
    position, end = ranked.token_start[clause] + depth, ranked.token_start[clause + 1]
    if position >= end:
        return NO_TOKEN
    token = np.int64(ranked.token_of_rank[ranked.rank[position]])
    return token if position + 1 == end else ~token


@kernel
def gather_rows(
    ranked: RankedClauses, clauses: NDArray[np.int32], depth: Number, row: NDArray[np.int32]
) -> None:
    """Write the rows of clauses into ``row`` int32[clauses, WIDTH]."""
    for i in range(len(clauses)):
        if i + PREFETCH_DISTANCE < len(clauses):
            prefetch(ranked.box, clauses[i + PREFETCH_DISTANCE])
            prefetch(ranked.token_start, clauses[i + PREFETCH_DISTANCE])
        clause = clauses[i]
        for side in range(4):
            row[i, side] = ranked.box[clause, side]
        row[i, LOW] = clause
        row[i, HIGH] = next_token(ranked, clause, depth)


@kernel
def list_key(ranked: RankedClauses, trie: Trie, at: Number) -> Number:
    """Return the key of a list."""
    if trie.rank[at] < 0:
        return key_of(trie.parent[at], NO_TOKEN)
    return key_of(trie.parent[at], np.int64(ranked.token_of_rank[trie.rank[at]]))


@kernel
def write_lists(ranked: RankedClauses, trie: Trie, index: TriePyramidArrays) -> None:
    """Write the pyramid and the slot of every list, and what nodes keep."""
    largest = np.int64(0)
    for at in range(trie.counts[LISTS]):
        largest = max(largest, trie.kept[at] - trie.low[at])
    rows = np.empty((largest, WIDTH), np.int32)
    block = index.header[BLOCK_SIZE]
    position = np.int64(0)
    for at in range(trie.counts[LISTS]):
        clauses = trie.order[trie.low[at] : trie.kept[at]]
        row = rows[: len(clauses)]
        gather_rows(ranked, clauses, np.int64(trie.depth[at]), row)
        position = align(position, len(row), block)
        key = list_key(ranked, trie, at)
        slot = find_slot(index.slot, key)
        index.slot[slot, KEY] = key
        add_cells(row, index, slot)
        target = np.uint64(0)
        if len(row) > 0:
            order_rows(row, index.part_sizes, block)
            write_pyramid(row, index, position)
            target = pack_pyramid(position, len(row))
            position += pyramid_words(index.part_sizes, block, len(row))
        if trie.node[at] > 0:
            index.node[trie.node[at], KEPT] = target
            target = IS_NODE | np.uint64(trie.node[at])
        index.slot[slot, TARGET] = target


@kernel
def write_children(ranked: RankedClauses, trie: Trie, index: TriePyramidArrays) -> None:
    """Write the children of nodes, and add their cells to the slots above, bottom-up."""
    count = np.int64(0)
    for at in range(trie.counts[LISTS] - 1, -1, -1):
        if trie.node[at] == 0:
            continue
        slot = find_slot(index.slot, list_key(ranked, trie, at))
        signature, first = np.uint64(0), count
        for below in range(trie.first_child[at], trie.first_child[at] + trie.child_count[at]):
            child = find_slot(index.slot, list_key(ranked, trie, below))
            token = index.slot[child, KEY] & LOW32
            signature |= signature_bit(token)
            index.child[count] = np.uint64(child) | (token << BITS32)
            index.slot[slot, CELLS] |= index.slot[child, CELLS]
            index.slot[slot, CELLS + 1] |= index.slot[child, CELLS + 1]
            count += 1
        index.node[trie.node[at], SIGNATURE] = signature
        index.node[trie.node[at], CHILDREN] = np.uint64(first) | (
            np.uint64(count - first) << BITS32
        )
    index.header[MAX_QUEUED] += count
