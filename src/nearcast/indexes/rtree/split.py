"""Split the entries of a node in two, as in the R*-tree (Beckmann et al. 1990).

Along the axis with the smallest perimeters, where the halves overlap least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.indexes.rtree.nodes import Box, RTree, get_box

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def area(box: Box) -> Number:
    """Return the area of a box; a box without one gets a little, by its length."""
    wide, tall = np.float64(box.east - box.west), np.float64(box.north - box.south)
    return (wide + 1.0) * (tall + 1.0)


@kernel
def united(a: Box, b: Box) -> Box:
    """Return the box around two."""
    return Box(
        min(a.west, b.west), min(a.south, b.south), max(a.east, b.east), max(a.north, b.north)
    )


class SplitScratch(NamedTuple):
    """Room for splitting: entries (up to 2 * most + 1) with their boxes, and sums over them.

    ``side`` int64[4, m], ``entry`` and ``key`` int64[m], ``order`` and ``best`` int64[m];
    ``head`` and ``tail`` int64[m, 4]: boxes around the first and the last entries of an order.
    """

    side: NDArray[np.int64]
    entry: NDArray[np.int64]
    key: NDArray[np.int64]
    order: NDArray[np.int64]
    best: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]


@kernel
def collect_entry(
    scratch: SplitScratch, count: Number, entry: Number, key: Number, box: Box
) -> Number:
    """Append an entry to those that are to be split; return how many there are."""
    scratch.entry[count], scratch.key[count] = entry, key
    scratch.side[0, count], scratch.side[1, count] = box.west, box.south
    scratch.side[2, count], scratch.side[3, count] = box.east, box.north
    return count + 1


@kernel
def collect_entries(tree: RTree, node: Number, scratch: SplitScratch, count: Number) -> Number:
    """Append all entries of a node to those that are to be split."""
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        count = collect_entry(
            scratch, count, tree.entry[node, slot], tree.key[node, slot], get_box(tree, node, slot)
        )
    return count


@kernel
def sum_boxes(scratch: SplitScratch, count: Number) -> None:
    """Write the boxes around the first and around the last entries of the order."""
    for i in range(count):
        one = scratch.order[i]
        for k in range(4):
            scratch.head[i, k] = scratch.side[k, one]
        if i > 0:
            for k in range(2):
                scratch.head[i, k] = min(scratch.head[i, k], scratch.head[i - 1, k])
                scratch.head[i, k + 2] = max(scratch.head[i, k + 2], scratch.head[i - 1, k + 2])
    for i in range(count - 1, -1, -1):
        one = scratch.order[i]
        for k in range(4):
            scratch.tail[i, k] = scratch.side[k, one]
        if i < count - 1:
            for k in range(2):
                scratch.tail[i, k] = min(scratch.tail[i, k], scratch.tail[i + 1, k])
                scratch.tail[i, k + 2] = max(scratch.tail[i, k + 2], scratch.tail[i + 1, k + 2])


@kernel
def row_box(rows: NDArray[np.int64], i: Number) -> Box:
    """Read a box from a row."""
    return Box(rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3])


@kernel
def margins(scratch: SplitScratch, count: Number, least: Number) -> Number:
    """Return the sum of the perimeters of both halves over all cuts of the order."""
    total = 0.0
    for cut in range(least, count - least + 1):
        for box in (row_box(scratch.head, cut - 1), row_box(scratch.tail, cut)):
            total += np.float64(box.east - box.west) + np.float64(box.north - box.south)
    return total


@kernel
def best_cut(scratch: SplitScratch, count: Number, least: Number) -> tuple[Number, Number, Number]:
    """Return the cut at which the halves overlap least, the overlap, and the area of both."""
    chosen, overlap, size = np.int64(least), np.inf, np.inf
    for cut in range(least, count - least + 1):
        a, b = row_box(scratch.head, cut - 1), row_box(scratch.tail, cut)
        wide = np.float64(min(a.east, b.east) - max(a.west, b.west))
        tall = np.float64(min(a.north, b.north) - max(a.south, b.south))
        common = (wide + 1.0) * (tall + 1.0) if wide >= 0 and tall >= 0 else 0.0
        both = area(a) + area(b)
        if common < overlap or (common == overlap and both < size):
            chosen, overlap, size = np.int64(cut), common, both
    return chosen, overlap, size


@kernel
def choose_split(scratch: SplitScratch, count: Number, least: Number) -> Number:
    """Put the entries in the best order for a split into ``best``; return where it is cut."""
    axis, lowest = 0, np.inf
    for way in range(4):
        scratch.order[:count] = np.argsort(scratch.side[way, :count], kind="mergesort")
        sum_boxes(scratch, count)
        total = margins(scratch, count, least)
        if total < lowest:
            axis, lowest = way & 1, total
    chosen, overlap, size = np.int64(least), np.inf, np.inf
    for way in (axis, axis + 2):
        scratch.order[:count] = np.argsort(scratch.side[way, :count], kind="mergesort")
        sum_boxes(scratch, count)
        at, common, both = best_cut(scratch, count, least)
        if common < overlap or (common == overlap and both < size):
            chosen, overlap, size = at, common, both
            scratch.best[:count] = scratch.order[:count]
    return chosen
