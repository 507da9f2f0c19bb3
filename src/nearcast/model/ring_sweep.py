"""Whether the rings of a polygon are apart from each other and from themselves, in O(n log n).

GEOS looks at all pairs of edges whose bounding boxes overlap, which takes many seconds for a
polygon with 100,000 long edges. This is the sweep of Shamos and Hoey ("Geometric intersection
problems", FOCS 1976): a vertical line moves from west to east over the edges and keeps those that
it cuts ordered from south to north. If two edges meet, two that meet are neighbors in that order
at some time, so only neighbors are compared. All comparisons are exact, in 64-bit integers.

The order of edges is a doubly linked list, and to find places in it, a list of blocks with up to
`_BLOCK` edges each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import UNITS
from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["is_certainly_valid"]

_BLOCK = 256
_NONE = -1
_MAX_WIDTH = 500 * UNITS  # times 180 degrees, the largest height, this fits into 64 bits


class Edges(NamedTuple):
    """Edges of closed rings, from the western end (of two, the southern) to the eastern end.

    ``start`` and ``end`` are (n, 2); ``ring`` is the number of the ring; ``area_above`` tells
    whether the area that the ring encloses is north of the edge.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    ring: NDArray[np.int64]
    area_above: NDArray[np.bool_]


class SweepLine(NamedTuple):
    """The edges that the sweep line cuts, from south to north.

    ``below`` and ``above`` link each edge with its neighbors; ``block`` is (blocks, _BLOCK) and
    ``length`` counts the edges of each; ``block_of`` is the block of each edge; ``order`` is the
    order of blocks; ``used`` is the number of blocks in ``block``, and in ``order``.
    """

    below: NDArray[np.int64]
    above: NDArray[np.int64]
    block: NDArray[np.int64]
    length: NDArray[np.int64]
    block_of: NDArray[np.int64]
    order: NDArray[np.int64]
    used: NDArray[np.int64]


def is_certainly_valid(parts: list[list[NDArray[np.int64]]]) -> bool:
    """Whether a polygon is valid and its rings do not even touch.

    ``parts`` are closed rings in units, the outer ring of each part first. A polygon for which this
    is False may still be valid: rings may touch at points.

    Examples
    --------
    >>> square = np.array([(0, 0), (4, 0), (4, 4), (0, 4), (0, 0)])
    >>> is_certainly_valid([[square, square // 4 + 1]]), is_certainly_valid([[square, square + 1]])
    (True, False)
    """
    rings = [_without_repeats(ring) for part in parts for ring in part]
    corners = np.concatenate([ring[:-1] for ring in rings])
    if any(len(ring) < 4 for ring in rings) or np.ptp(corners[:, 0]) > _MAX_WIDTH:
        return False
    ordered = corners[np.lexsort((corners[:, 1], corners[:, 0]))]
    if (ordered[1:] == ordered[:-1]).all(axis=1).any():
        return False
    parent = np.full(len(rings), _NONE, np.int64)
    edges = _edges(rings)
    if not sweep(edges, _events(edges), _sweep_line(len(corners)), parent):
        return False
    outer = np.concatenate([[number == 0 for number in range(len(part))] for part in parts])
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    inside = parent != _NONE
    # Directly around a hole lies the outer ring of its part, and around an outer ring a hole.
    holes_fit = (inside & outer[parent] & (part_of[parent] == part_of))[~outer].all()
    return bool(holes_fit and (~inside | ~outer[parent])[outer].all())


def _without_repeats(ring: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a ring without points that repeat the one before."""
    distinct: NDArray[np.bool_] = (ring[1:] != ring[:-1]).any(axis=1)
    kept: NDArray[np.int64] = ring[np.concatenate([[True], distinct])]
    return kept


def _edges(rings: list[NDArray[np.int64]]) -> Edges:
    first = np.concatenate([ring[:-1] for ring in rings])
    last = np.concatenate([ring[1:] for ring in rings])
    number = np.repeat(np.arange(len(rings)), [len(ring) - 1 for ring in rings])
    forward = (first[:, 0] < last[:, 0]) | (
        (first[:, 0] == last[:, 0]) & (first[:, 1] < last[:, 1])
    )
    start = np.where(forward[:, None], first, last)
    end = np.where(forward[:, None], last, first)
    counterclockwise = np.array([_is_counterclockwise(ring) for ring in rings], np.bool_)
    return Edges(start, end, number, forward == counterclockwise[number])


def _is_counterclockwise(ring: NDArray[np.int64]) -> bool:
    """Whether a simple ring runs counterclockwise: its westernmost corner is a left turn."""
    corners = ring[:-1]
    at = int(np.lexsort((corners[:, 1], corners[:, 0]))[0])
    (x0, y0), (x1, y1), (x2, y2) = corners[[at - 1, at, (at + 1) % len(corners)]].tolist()
    return bool((x1 - x0) * (y2 - y0) > (y1 - y0) * (x2 - x0))


def _events(edges: Edges) -> NDArray[np.int64]:
    """Return where edges end (as ``~edge``) and begin, in the order in which the line meets them.

    At the same point, edges end before others begin.
    """
    count = len(edges.start)
    point = np.concatenate([edges.end, edges.start])
    event = np.concatenate([~np.arange(count), np.arange(count)])
    return event[np.lexsort((event >= 0, point[:, 1], point[:, 0]))]


def _sweep_line(count: int) -> SweepLine:
    blocks = 2 * count // _BLOCK + 2
    return SweepLine(
        np.full(count, _NONE, np.int64),
        np.full(count, _NONE, np.int64),
        np.empty((blocks, _BLOCK), np.int64),
        np.zeros(blocks, np.int64),
        np.empty(count, np.int64),
        np.zeros(blocks, np.int64),
        np.ones(2, np.int64),
    )


@kernel
def side(edges: Edges, edge: Number, x: Number, y: Number) -> Number:
    """Return 1 where a point is left of (north of) an edge, -1 where right of it, 0 on its line."""
    x0, y0 = edges.start[edge, 0], edges.start[edge, 1]
    left = (edges.end[edge, 0] - x0) * (y - y0)
    right = (x - x0) * (edges.end[edge, 1] - y0)
    return np.int64(left > right) - np.int64(left < right)


@kernel
def is_below(edges: Edges, edge: Number, other: Number) -> Number:
    """Tell whether an edge on the sweep line is south of another that begins there."""
    where = side(edges, edge, edges.start[other, 0], edges.start[other, 1])
    if where == 0:
        where = side(edges, edge, edges.end[other, 0], edges.end[other, 1])
    return where > 0


@kernel
def is_on(edges: Edges, edge: Number, x: Number, y: Number) -> Number:
    """Tell whether a point on the line of an edge is on the edge."""
    low = min(edges.start[edge, 1], edges.end[edge, 1])
    high = max(edges.start[edge, 1], edges.end[edge, 1])
    return edges.start[edge, 0] <= x <= edges.end[edge, 0] and low <= y <= high


@kernel
def meet(edges: Edges, a: Number, b: Number) -> Number:
    """Tell whether two edges have more in common than the corner that joins them."""
    ax0, ay0, ax1, ay1 = edges.start[a, 0], edges.start[a, 1], edges.end[a, 0], edges.end[a, 1]
    bx0, by0, bx1, by1 = edges.start[b, 0], edges.start[b, 1], edges.end[b, 0], edges.end[b, 1]
    start_side, end_side = side(edges, a, bx0, by0), side(edges, a, bx1, by1)
    if (ax0 == bx0 and ay0 == by0) or (ax1 == bx1 and ay1 == by1):
        return start_side == 0 and end_side == 0
    if (ax0 == bx1 and ay0 == by1) or (ax1 == bx0 and ay1 == by0):
        return False
    a_start, a_end = side(edges, b, ax0, ay0), side(edges, b, ax1, ay1)
    if start_side * end_side < 0 and a_start * a_end < 0:
        return True
    return (
        (start_side == 0 and is_on(edges, a, bx0, by0))
        or (end_side == 0 and is_on(edges, a, bx1, by1))
        or (a_start == 0 and is_on(edges, b, ax0, ay0))
        or (a_end == 0 and is_on(edges, b, ax1, ay1))
    )


@kernel
def insert(edges: Edges, line: SweepLine, edge: Number) -> None:
    """Put an edge that begins at the sweep line into its place."""
    low, high = 0, line.used[1]
    while high - low > 1:
        middle = (low + high) // 2
        if is_below(edges, line.block[line.order[middle], 0], edge):
            low = middle
        else:
            high = middle
    block = line.order[low]
    if line.length[block] == _BLOCK:
        split_block(line, low)
        if is_below(edges, line.block[line.order[low + 1], 0], edge):
            block = line.order[low + 1]
    begin, end = 0, line.length[block]
    while begin < end:
        middle = (begin + end) // 2
        if is_below(edges, line.block[block, middle], edge):
            begin = middle + 1
        else:
            end = middle
    below, above = _NONE, _NONE
    if begin > 0:
        below = line.block[block, begin - 1]
        above = line.above[below]
    elif line.length[block]:
        above = line.block[block, 0]
        below = line.below[above]
    for i in range(line.length[block], begin, -1):
        line.block[block, i] = line.block[block, i - 1]
    line.block[block, begin] = edge
    line.length[block] += 1
    line.block_of[edge] = block
    link(line, below, edge)
    link(line, edge, above)


@kernel
def link(line: SweepLine, below: Number, above: Number) -> None:
    """Make two edges neighbors; each may be missing."""
    if below != _NONE:
        line.above[below] = above
    if above != _NONE:
        line.below[above] = below


@kernel
def split_block(line: SweepLine, position: Number) -> None:
    """Move the upper half of a full block into a new one, behind it."""
    block = line.order[position]
    other = line.used[0]
    line.used[0] += 1
    for i in range(line.used[1], position + 1, -1):
        line.order[i] = line.order[i - 1]
    line.order[position + 1] = other
    line.used[1] += 1
    half = _BLOCK // 2
    for i in range(half, _BLOCK):
        line.block[other, i - half] = line.block[block, i]
        line.block_of[line.block[block, i]] = other
    line.length[block], line.length[other] = half, _BLOCK - half


@kernel
def remove(line: SweepLine, edge: Number) -> None:
    """Take an edge from the sweep line."""
    block = line.block_of[edge]
    i = 0
    while line.block[block, i] != edge:
        i += 1
    line.length[block] -= 1
    for j in range(i, line.length[block]):
        line.block[block, j] = line.block[block, j + 1]
    if line.length[block] == 0 and line.used[1] > 1:
        position = 0
        while line.order[position] != block:
            position += 1
        line.used[1] -= 1
        for j in range(position, line.used[1]):
            line.order[j] = line.order[j + 1]
    link(line, line.below[edge], line.above[edge])


@kernel
def sweep(
    edges: Edges, events: NDArray[np.int64], line: SweepLine, parent: NDArray[np.int64]
) -> Number:
    """Tell whether no two edges meet; ``parent`` gets the ring directly around each ring.

    ``events`` is (2 n,) as `_events` returns it; ``parent`` is (rings,), -1 if no ring is around.
    """
    seen = np.zeros(len(parent), np.bool_)
    for event in events:
        if event < 0:
            edge = ~event
            below, above = line.below[edge], line.above[edge]
            remove(line, edge)
            if below != _NONE and above != _NONE and meet(edges, below, above):
                return False
            continue
        insert(edges, line, event)
        below, above = line.below[event], line.above[event]
        if below != _NONE and meet(edges, below, event):
            return False
        if above != _NONE and meet(edges, event, above):
            return False
        ring = edges.ring[event]
        if not seen[ring]:
            seen[ring] = True
            if below != _NONE:
                around = edges.ring[below]
                parent[ring] = around if edges.area_above[below] else parent[around]
    return True
