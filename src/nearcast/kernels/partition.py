"""Where to cut an ordered set so that little is examined: what keywords and space have in common.

Whatever is cut has positions ``0 .. n`` in order. A part from position ``a`` to position ``b``
holds ``entered[b] - left[a]`` clauses and is hit with probability ``passed[b] - passed[a]``. For
keywords, a clause that is entered is left at once (both arrays are the running sum of the weights);
along an axis of space, a box is entered at its west and left behind its east, and counts in every
part in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nearcast.kernels.compile import Number, kernel
from nearcast.kernels.router import part_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Line(NamedTuple):
    """What is cut: float64[n + 1] each, ascending."""

    entered: NDArray[np.float64]
    left: NDArray[np.float64]
    passed: NDArray[np.float64]


@kernel
def part_cost(line: Line, begin: Number, end: Number) -> Number:
    """Return the weight of a part times its hit probability."""
    weight = line.entered[end] - line.left[begin]
    return weight * (line.passed[end] - line.passed[begin])


@kernel
def line_cost(line: Line, cut: NDArray[np.int64]) -> Number:
    """Return the cost of all parts; ``cut`` int64[parts + 1] begins at 0 and ends at ``n``."""
    cost = 0.0
    for i in range(len(cut) - 1):
        cost += part_cost(line, cut[i], cut[i + 1])
    return cost


@kernel
def spread_cuts(amount: NDArray[np.float64], cut: NDArray[np.int64]) -> None:
    """Cut where parts have similar amounts, each at least one position long.

    ``amount`` float64[n + 1] is a running sum; ``cut`` int64[parts + 1], of at most ``n`` parts, is
    filled.
    """
    last, parts = len(amount) - 1, len(cut) - 1
    cut[0] = 0
    position = 0
    for i in range(1, parts):
        wanted = amount[0] + (amount[last] - amount[0]) * i / parts
        position = max(position, cut[i - 1] + 1)
        most = last - (parts - i)
        while position < most and amount[position] < wanted:
            position += 1
        # The position before may be nearer.
        nearer = position - 1 > cut[i - 1] and (
            wanted - amount[position - 1] < amount[position] - wanted
        )
        cut[i] = position - 1 if nearer else min(position, most)
    cut[parts] = last


@kernel
def improve_cuts(line: Line, cut: NDArray[np.int64], rounds: Number) -> None:
    """Move one cut after the other to the best place between its neighbours.

    Ends after so many rounds, or after one in which no cut moved.
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
def count_cells(
    box: NDArray[np.int32],
    column: NDArray[np.int32],
    row: NDArray[np.int32],
    count: NDArray[np.int64],
) -> None:
    """Count the boxes that meet each cell; ``count`` int64[rows, columns] is added to.

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
