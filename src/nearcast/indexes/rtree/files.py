"""Read the inverted files of leaves: how many tokens of each clause occur in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit, prefetch
from nearcast.compiled.ordered_clauses import length_of
from nearcast.compiled.token_filter import occurs
from nearcast.compiled.token_table import LOW32, SIZE, START, find_slot, home
from nearcast.indexes.rtree.token_tree import first_in_leaf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.rtree.tree_arrays import Asked, TreeArrays, TreeScratch


@kernel
def count_hits(hits: NDArray[np.int64], clauses: Number) -> None:
    """Count one more token for each clause of a set."""
    while clauses != np.uint64(0):
        hits[lowest_bit(clauses)] += 1
        clauses &= clauses - np.uint64(1)


@kernel
def read_file(
    index: TreeArrays, leaf: Number, slot: Number, inside: Number, scratch: TreeScratch
) -> Number:
    """Count the tokens of a leaf's clauses by its file, from its parent's frame."""
    met, tables = np.uint64(0), index.tables
    start, size = tables.table[leaf, START], tables.table[leaf, SIZE]
    for i in range(scratch.size[1]):
        prefetch(tables.slot, start + home(scratch.token[1, i], size))
    for i in range(scratch.size[1]):
        if (scratch.entries[1, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            at = find_slot(index.tables, leaf, scratch.token[1, i])
            if at >= 0:
                clauses = index.tables.slot[at, 1] & inside
                count_hits(scratch.hits, clauses)
                met |= clauses
    return met


@kernel
def read_rest(
    index: TreeArrays, leaf: Number, inside: Number, asked: Asked, scratch: TreeScratch
) -> tuple[Number, Number]:
    """Count the tokens of a leaf's clauses by its file, from all tokens of the message.

    Goes through the shorter of the two. Return the clauses met, and whether any token occurs.
    """
    tables, met, any_token = index.tables, np.uint64(0), False
    start, size = tables.table[leaf, START], tables.table[leaf, SIZE]
    if size < scratch.size[asked.frame]:
        for at in range(start, start + size):
            token = tables.slot[at, 0] & LOW32
            if token != np.uint64(0) and occurs(
                scratch.token_filter, asked.tokens, np.int64(token - np.uint64(1))
            ):
                clauses, any_token = tables.slot[at, 1] & inside, True
                count_hits(scratch.hits, clauses)
                met |= clauses
        return met, any_token
    for i in range(scratch.size[asked.frame]):
        at = find_slot(tables, leaf, scratch.token[asked.frame, i])
        if at >= 0:
            clauses, any_token = tables.slot[at, 1] & inside, True
            count_hits(scratch.hits, clauses)
            met |= clauses
    return met, any_token


@kernel
def report_hits(
    index: TreeArrays,
    leaf: Number,
    met: Number,
    depth: Number,
    scratch: TreeScratch,
    match: NDArray[np.int32],
    found: Number,
) -> Number:
    """Append the clauses of a leaf that have all their tokens, and forget the hits.

    ``depth`` is that of a tree with lists, whose leaves hold the rest of the tokens; 0 otherwise.
    """
    skip = first_in_leaf(depth)
    while met != np.uint64(0):
        slot = lowest_bit(met)
        met &= met - np.uint64(1)
        clause = index.tree.entry[leaf, slot]
        if scratch.hits[slot] == length_of(index.ordered, clause) - skip and (
            depth <= 1 or np.int64(scratch.stamp[clause]) == scratch.epoch[0] + depth - 1
        ):
            match[found] = clause
            found += 1
        scratch.hits[slot] = 0
    return found
