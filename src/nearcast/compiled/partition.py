"""Cut an ordered set into parts so that a message is compared with few clauses.

Used by `nearcast.indexes.ap_tree` (how its nodes are split) and `nearcast.indexes.cost_model` (how
`nearcast.spark.shards` splits subscriptions); `part_of` also routes messages to shards.

Keywords and an axis of space are both a `Line` with positions ``0 .. n``. The part from position
``a`` to position ``b`` has ``begun[b] - ended[a]`` clauses, and a message hits it with probability
``hit[b] - hit[a]``. A keyword begins and ends at the same position, so that both arrays are the
running sum of the clauses of each keyword. A box begins at its west side and ends after its east
side, and counts in every part between.

The cost of a part is its clauses times its probability, as in AP-Tree (Wang, Zhang, Zhang, Lin,
Wang, VLDB Journal 2015, sections 3.3.1 to 3.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Line(NamedTuple):
    """Clauses begun and ended before each position, and the probability of a hit before it.

    Each array is float64[n + 1], ascending.
    """

    begun: NDArray[np.float64]
    ended: NDArray[np.float64]
    hit: NDArray[np.float64]


@kernel
def part_of(split: NDArray[np.int32], low: Number, high: Number, value: Number) -> Number:
    """Return how many of the ascending ``split[low:high]`` are at most ``value``."""
    begin = low
    while low < high:
        middle = (low + high) >> 1
        if split[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - begin


@kernel
def part_cost(line: Line, begin: Number, end: Number) -> Number:
    """Return the clauses of a part times its hit probability."""
    weight = line.begun[end] - line.ended[begin]
    return weight * (line.hit[end] - line.hit[begin])


@kernel
def line_cost(line: Line, cut: NDArray[np.int64]) -> Number:
    """Return the cost of all parts; ``cut`` int64[parts + 1] goes from 0 to ``n``."""
    cost = 0.0
    for i in range(len(cut) - 1):
        cost += part_cost(line, cut[i], cut[i + 1])
    return cost


@kernel
def balance_cuts(amount: NDArray[np.float64], cut: NDArray[np.int64]) -> None:
    """Cut into parts of similar amounts, each at least one position long.

    ``amount`` float64[n + 1] is a running sum. ``cut`` int64[parts + 1], for at most ``n`` parts,
    is filled.
    """
    last, parts = len(amount) - 1, len(cut) - 1
    cut[0] = 0
    position = 0
    for i in range(1, parts):
        wanted = amount[0] + (amount[last] - amount[0]) * i / parts
        position = max(position, cut[i - 1] + 1)
        last_position = last - (parts - i)
        while position < last_position and amount[position] < wanted:
            position += 1
        closer_before = position - 1 > cut[i - 1] and (
            wanted - amount[position - 1] < amount[position] - wanted
        )
        cut[i] = position - 1 if closer_before else min(position, last_position)
    cut[parts] = last


@kernel
def improve_cuts(line: Line, cut: NDArray[np.int64], rounds: Number) -> None:
    """Move one cut after the other to the cheapest position between its neighbors.

    Stop after ``rounds`` rounds, or after one in which no cut moved.
    """
    for _ in range(rounds):
        moved = False
        for i in range(1, len(cut) - 1):
            low, high = cut[i - 1], cut[i + 1]
            best = part_cost(line, low, cut[i]) + part_cost(line, cut[i], high)
            for middle in range(low + 1, high):
                cost = part_cost(line, low, middle) + part_cost(line, middle, high)
                if cost < best:
                    best = cost
                    cut[i] = middle
                    moved = True
        if not moved:
            return


@kernel
def best_layer(
    line: Line,
    before: NDArray[np.float64],
    bounds: tuple[Number, Number, Number],
    cost: NDArray[np.float64],
    choice: NDArray[np.int32],
) -> None:
    """Write the lowest cost of cutting up to each position into one part more than ``before``.

    ``bounds`` are the first and last position, and the first at which the last part may begin;
    ``choice`` gets where it begins. That moves to the right with the position (see
    `optimal_cuts`), so the positions are solved middle first, and each result narrows the search on
    both sides.
    """
    stack = np.empty((128, 4), np.int64)
    stack[0, 0], stack[0, 1] = bounds[0], bounds[1]
    stack[0, 2], stack[0, 3] = bounds[2], bounds[1] - 1
    top = 1
    while top > 0:
        top -= 1
        first, last, low, high = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        middle = (first + last) >> 1
        best, best_at = np.inf, low
        for begin in range(low, min(high, middle - 1) + 1):
            whole = before[begin] + part_cost(line, begin, middle)
            if whole < best:
                best, best_at = whole, begin
        cost[middle], choice[middle] = best, best_at
        if middle > first:
            stack[top, 0], stack[top, 1] = first, middle - 1
            stack[top, 2], stack[top, 3] = low, best_at
            top += 1
        if middle < last:
            stack[top, 0], stack[top, 1] = middle + 1, last
            stack[top, 2], stack[top, 3] = best_at, high
            top += 1


@kernel
def optimal_cuts(line: Line, cut: NDArray[np.int64]) -> None:
    """Cut keywords into the parts of the lowest cost (``line.begun`` and ``ended`` are equal).

    ``cut`` int64[parts + 1], for at most ``n`` parts, is filled. All parts are used: two parts
    never cost more than both joined.

    This is the dynamic programming of AP-Tree's algorithm 2 with fewer trials. For consecutive
    pieces x, y, z with weights w and probabilities p,

        cost(xyz) + cost(y) - cost(xy) - cost(yz) = w(x) p(z) + w(z) p(x) >= 0,

    the quadrangle inequality. So the best start of the last part never moves to the left when its
    end moves to the right, and ``n`` positions need ``n log n`` trials a cut instead of ``n * n``.
    """
    last, parts = len(line.begun) - 1, len(cut) - 1
    choice = np.zeros((parts + 1, last + 1), np.int32)
    before, cost = np.empty(last + 1), np.empty(last + 1)
    for end in range(last + 1):
        before[end] = part_cost(line, 0, end)
    for part in range(2, parts + 1):
        # Every part has a position: leave one for each part before this one and after it.
        bounds = part, last - (parts - part), part - 1
        best_layer(line, before, bounds, cost, choice[part])
        before, cost = cost, before
    cut[parts] = last
    for part in range(parts, 1, -1):
        cut[part - 1] = choice[part, cut[part]]
    cut[0] = 0


@kernel
def axis_line(
    side: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    region: tuple[Number, Number],
    candidate: NDArray[np.int64],
    line: Line,
    amount: NDArray[np.float64],
) -> Number:
    """Write where an axis may be cut: where a box begins or has just ended; return how many places.

    ``side`` are the first and last coordinates and the centers of all boxes, int64[n] each,
    ascending and within the region. ``candidate`` and the other outputs have ``2 n + 2`` values:
    ``line`` gets the boxes begun and ended, ``amount`` the centers before each place.
    """
    begin, end, center = side
    begins, ends, centers, count = 0, 0, 0, 0
    at = np.int64(region[0])
    while True:
        candidate[count] = at
        while begins < len(begin) and begin[begins] < at:
            begins += 1
        while ends < len(end) and end[ends] < at:
            ends += 1
        while centers < len(center) and center[centers] < at:
            centers += 1
        line.begun[count], line.ended[count] = begins, ends
        amount[count] = centers
        count += 1
        if at == region[1] + 1:
            return count
        following = np.int64(region[1]) + 1
        ahead = begins
        while ahead < len(begin) and begin[ahead] == at:
            ahead += 1
        if ahead < len(begin):
            following = min(following, begin[ahead])
        if ends < len(end):
            following = min(following, end[ends] + 1)
        at = following


@kernel
def count_cells(
    box: NDArray[np.int32],
    column: NDArray[np.int32],
    row: NDArray[np.int32],
    count: NDArray[np.int64],
) -> None:
    """Add the number of boxes that meet each cell to ``count`` int64[rows, columns].

    ``column`` int32[columns - 1] and ``row`` int32[rows - 1] are the splits, ascending.
    """
    for i in range(len(box)):
        west = part_of(column, 0, len(column), box[i, 0])
        east = part_of(column, 0, len(column), box[i, 2])
        south = part_of(row, 0, len(row), box[i, 1])
        north = part_of(row, 0, len(row), box[i, 3])
        for y in range(south, north + 1):
            for x in range(west, east + 1):
                count[y, x] += 1
