"""Prefetch what the next moves will read.

A move reads a dozen places of memory, each found in the one before. Before some moves are done one
after another, all of them go through these steps together, so that they wait for memory at the same
time. Nothing is kept: a move may change the tree for those after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.indexes.ap_tree.layout import (
    CAPACITY,
    CHILDREN,
    KEYWORDS,
    LEAF,
    LEAF_HEADER,
    PARTS,
    ROOT,
    SIZE,
    UNIT,
    RankedClauses,
    Tree,
    has_lists,
    tail_position,
)
from nearcast.indexes.moving.ap_plus.ways import cut_of
from nearcast.indexes.moving.lists import ListArrays, capacity_of, size_of, start_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

AHEAD = 32
"""How many moves are prefetched together."""


@kernel
def _prefetch_leaf(arena: NDArray[np.int32], node: Number) -> None:
    """Prefetch the clauses of a leaf, by which the one that moves is found."""
    if arena[node] == LEAF:
        tail = tail_position(node, np.int64(arena[node + CAPACITY]), np.int64(0))
        for at in range(tail, tail + 2 * np.int64(arena[node + SIZE]), 16):
            prefetch(arena, at)


@kernel
def _prefetch_list(lists: ListArrays, number: Number) -> None:
    """Prefetch the places of the first messages of a list."""
    start, capacity = start_of(lists, number), capacity_of(lists, number)
    for at in range(0, min(size_of(lists, number), np.int64(128)), 16):
        prefetch(lists.pool, start + at)
        prefetch(lists.pool, start + capacity + at)


@kernel
def look_ahead(
    tree: Tree,
    ranked: RankedClauses,
    lists: ListArrays,
    entry: NDArray[np.int32],
    link: NDArray[np.int64],
) -> None:
    """Prefetch for clauses that are about to move; ``link`` int64[clauses] is scratch."""
    arena = tree.arena
    for i in range(len(entry)):
        prefetch(ranked.box, entry[i])
        prefetch(ranked.start, entry[i])
        prefetch(ranked.end, entry[i])
    base = UNIT * np.int64(arena[ROOT])
    if base == 0 or arena[base] != KEYWORDS:
        return
    for i in range(len(entry)):
        prefetch(ranked.rank, ranked.start[entry[i]])
    parts, links = np.int64(arena[base + PARTS]), base + np.int64(arena[base + CHILDREN])
    names = 3 * (parts + 1)
    listed = has_lists(tree.state)
    for i in range(len(entry)):
        child, start = parts, ranked.start[entry[i]]
        if ranked.end[entry[i]] > start:
            child = cut_of(arena, base, ranked.rank[start])
        link[i] = links + child
        prefetch(arena, link[i])
        if listed:
            prefetch(arena, link[i] + names)
    for i in range(len(entry)):
        prefetch(arena, UNIT * np.int64(arena[link[i]]))
        prefetch(arena, UNIT * np.int64(arena[link[i]]) + LEAF_HEADER + UNIT)
        if listed:
            prefetch(lists.head, arena[link[i] + names])
    for i in range(len(entry)):
        _prefetch_leaf(arena, UNIT * np.int64(arena[link[i]]))
        if listed:
            _prefetch_list(lists, np.int64(arena[link[i] + names]))
