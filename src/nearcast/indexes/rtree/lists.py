"""Read the lists of inner nodes: which clauses a message has met at every depth so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.token_regions import list_count, list_start
from nearcast.compiled.token_table import SIZE, START, find_slot, home
from nearcast.indexes.rtree.nodes import Box, RTree, bit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.rtree.tree_arrays import Asked, TreeArrays, TreeScratch

AHEAD = 16
"""Postings whose clauses are asked for before they are needed."""


@kernel
def touches(box: NDArray[np.int32], clause: Number, window: Box) -> Number:
    """Tell whether the box of a clause meets the window."""
    sides = box[clause]
    return (
        sides[0] <= window.east
        and sides[1] <= window.north
        and sides[2] >= window.west
        and sides[3] >= window.south
    )


@kernel
def place_below(tree: RTree, clause: Number, level: Number) -> Number:
    """Return the slot, in its ancestor of a level, below which a clause lies."""
    node = np.int64(tree.leaf_of[clause])
    for _ in range(level - 1):
        node = np.int64(tree.parent[node])
    return tree.place[node]


@kernel
def count_postings(
    index: TreeArrays,
    count: Number,
    depth: Number,
    asked: Asked,
    scratch: TreeScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number]:
    """Stamp the clauses of postings that were met at every depth, or append the complete ones.

    Return the matches so far (-1: no room), and the entries below which clauses go on.
    """
    posting, stamp, box = scratch.posting, scratch.stamp, index.ordered.box
    before, now = np.uint32(scratch.epoch[0] + depth - 1), np.uint32(scratch.epoch[0] + depth)
    level, going_on = asked.frame - 1 - depth, np.uint64(0)
    if found + count > len(match):
        return np.int64(-1), going_on
    for i in range(count):
        if i + AHEAD < count:
            ahead = np.int64(posting[i + AHEAD])
            if depth > 1:
                prefetch(stamp, ahead if ahead >= 0 else ~ahead)
            else:
                prefetch(box, ahead if ahead >= 0 else ~ahead)
        clause = np.int64(posting[i])
        complete = clause < 0
        if complete:
            clause = ~clause
        if depth > 1:
            if stamp[clause] != before:
                continue
        elif not touches(box, clause, asked.window):
            continue
        if complete:
            match[found] = clause
            found += 1
        else:
            stamp[clause] = now
            going_on |= bit(place_below(index.tree, clause, level))
    return found, going_on


@kernel
def find_lists(index: TreeArrays, node: Number, asked: Asked, scratch: TreeScratch) -> Number:
    """Note the lists that an inner node has for the message's tokens; return how many."""
    tables, count = index.tables, np.int64(0)
    start, size = tables.table[node, START], tables.table[node, SIZE]
    for i in range(scratch.size[asked.frame]):
        prefetch(tables.slot, start + home(scratch.token[asked.frame, i], size))
    for i in range(scratch.size[asked.frame]):
        at = find_slot(tables, node, scratch.token[asked.frame, i])
        if at >= 0:
            scratch.lists[count, 0] = list_start(tables, at)
            scratch.lists[count, 1] = list_count(tables, at)
            prefetch(index.postings.posting, scratch.lists[count, 0])
            count += 1
    return count


@kernel
def read_lists(
    index: TreeArrays,
    node: Number,
    depth: Number,
    asked: Asked,
    scratch: TreeScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number, Number]:
    """Read the lists of an inner node for all tokens of the message.

    Lists are short and many: their postings are put together, so that what is needed of each
    clause can be asked for in time. Return the matches so far (-1: no room), the postings read,
    whether any token occurs, and the entries below which clauses go on.
    """
    lists = find_lists(index, node, asked, scratch)
    examined, filled, going_on = np.int64(0), np.int64(0), np.uint64(0)
    for k in range(lists):
        start, end = scratch.lists[k, 0], scratch.lists[k, 0] + scratch.lists[k, 1]
        examined += end - start
        for i in range(start, end):
            scratch.posting[filled] = index.postings.posting[i]
            filled += 1
            if filled == len(scratch.posting):
                found, more = count_postings(index, filled, depth, asked, scratch, match, found)
                if found < 0:
                    return found, examined, True, going_on
                filled, going_on = np.int64(0), going_on | more
    found, more = count_postings(index, filled, depth, asked, scratch, match, found)
    return found, examined, lists > 0, going_on | more
