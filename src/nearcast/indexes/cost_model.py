"""The cost of splitting clauses by keywords or by space, and splits of low cost.

Follows AP-Tree (Wang, Zhang, Zhang, Lin, Wang, VLDB Journal 2015), sections 3.3.1 to 3.3.3. A part
``B`` has ``w(B)`` clauses, and a message hits it with probability ``p(B)``; a message is compared
with ``sum of w(B) p(B)`` clauses. Cuts start with parts of similar weight; then each moves to the
cheapest place between its neighbors.

Used by `nearcast.spark.shards` to split subscriptions into shards. The ``ap-tree`` itself has
the same model in kernels (`nearcast.indexes.ap_tree`), on top of the same
`nearcast.compiled.partition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import read_only
from nearcast.compiled.partition import (
    Line,
    axis_line,
    balance_cuts,
    count_cells,
    improve_cuts,
    line_cost,
    optimal_cuts,
)
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "KeywordCuts",
    "SpaceCuts",
    "cell_counts",
    "cell_shares",
    "cut_keywords",
    "cut_space",
    "keyword_hits",
    "optimal_keywords",
    "partition_cost",
    "smoothed",
]


class KeywordCuts(NamedTuple):
    """Cuts of ordered keywords: cut ``i`` has those from ``cut[i]`` to before ``cut[i + 1]``."""

    cut: NDArray[np.int64]
    cost: float


class SpaceCuts(NamedTuple):
    """A grid of uneven cells: a split is the first coordinate of the next column or row.

    In ``cost``, clauses that contain the whole region count as hit by every message.
    """

    column: NDArray[np.int32]
    row: NDArray[np.int32]
    cost: float


def partition_cost(weight: Any, hit: Any) -> float:
    """Return how many clauses a message is compared with: weights times hit probabilities.

    Examples
    --------
    >>> partition_cost([30, 10], [0.1, 0.5])
    8.0
    """
    return float(np.sum(np.asarray(weight, np.float64) * np.asarray(hit, np.float64)))


def smoothed(hits: Any, messages: int, prior: Any) -> NDArray[np.float64]:
    """Return hit probabilities from a sample of messages: ``(hits + prior) / (messages + 1)``.

    One message is added that hits each part with probability ``prior``. So nothing has probability
    0, and without a sample the result is the prior.

    Examples
    --------
    >>> smoothed([3, 0], 3, [0.5, 0.5]).tolist()
    [0.875, 0.125]
    """
    counted: NDArray[np.float64] = np.asarray(hits, np.float64) + np.asarray(prior, np.float64)
    return counted / (messages + 1)


def keyword_hits(
    weight: NDArray[Any], occurrences: NDArray[Any] | None = None, messages: int = 0
) -> NDArray[np.float64]:
    """Return the hit probability of every keyword.

    Parameters
    ----------
    weight
        How many clauses have the keyword. Without messages, its share of all clauses is its
        probability: people subscribe to what is talked about.
    occurrences, messages
        How many messages of a sample have the keyword, and the size of the sample. The probability
        is then `smoothed` with that share.

    Examples
    --------
    >>> keyword_hits(np.array([1, 3])).tolist()
    [0.25, 0.75]
    >>> keyword_hits(np.array([1, 3]), np.array([4, 0]), 4).tolist()
    [0.85, 0.15]
    """
    share = weight / max(float(weight.sum()), 1.0)
    if occurrences is None:
        return smoothed(0, 0, share)
    return smoothed(occurrences, messages, share)


def cut_keywords(
    weight: NDArray[Any], hit: NDArray[Any], cuts: int, *, rounds: int = 1
) -> KeywordCuts:
    """Cut ordered keywords (algorithm 3 of the paper).

    Parameters
    ----------
    weight, hit
        How many clauses each keyword has, and the probability that a message hits it. The
        probability of a cut is the sum over its keywords, as in the paper.
    cuts
        How many cuts to make; fewer if there are fewer keywords.
    rounds
        How often every cut is moved; once in the paper.

    Examples
    --------
    >>> weight, hit = np.array([4, 4, 1, 1]), np.array([0.1, 0.1, 0.4, 0.4])
    >>> cut_keywords(weight, hit, 2).cut.tolist()
    [0, 2, 4]
    """
    _require_positive(cuts=cuts)
    running = _running(weight)
    line = Line(running, running, _running(hit))
    return KeywordCuts(*_cut(line, running, cuts, rounds))


def optimal_keywords(weight: NDArray[Any], hit: NDArray[Any], cuts: int) -> KeywordCuts:
    """Cut ordered keywords at the lowest cost (algorithm 2 of the paper).

    For ``n`` keywords it takes ``O(cuts n log n)`` time, where the paper's algorithm takes
    ``O(cuts n n)``, and memory for ``cuts n`` numbers.

    Parameters
    ----------
    weight, hit, cuts
        See `cut_keywords`.

    Examples
    --------
    >>> weight, hit = np.array([1, 1, 9, 1, 1]), np.array([0.1, 0.1, 0.6, 0.1, 0.1])
    >>> optimal_keywords(weight, hit, 3).cut.tolist()
    [0, 2, 3, 5]
    """
    _require_positive(cuts=cuts)
    running = _running(weight)
    line = Line(running, running, _running(hit))
    cut = np.empty(max(min(cuts, len(weight)), 1) + 1, np.int64)
    optimal_cuts(line, cut)
    return KeywordCuts(cut, float(line_cost(line, cut)))


def cut_space(
    box: NDArray[np.int32],
    region: tuple[int, int, int, int],
    columns: int,
    rows: int,
    places: NDArray[np.int32] | None = None,
    *,
    rounds: int = 1,
) -> SpaceCuts:
    """Cut a region into a grid, one axis after the other (section 3.3.3 of the paper).

    Parameters
    ----------
    box
        The boxes of the clauses, int32[n, 4], all of which meet the region. Those that contain it
        do not influence the cuts.
    region
        West, south, east and north, all included.
    columns, rows
        How many columns and rows to make; fewer if too few boxes begin or end inside.
    places
        Boxes of a sample of messages, int32[m, 4], for the hit probabilities, which are
        `smoothed` with the share of the area. Without them, that share is the probability.
    rounds
        How often every cut is moved.

    Examples
    --------
    >>> box = np.array([[0, 0, 9, 9], [20, 0, 29, 9], [21, 0, 30, 9]], np.int32)
    >>> cut_space(box, (0, 0, 39, 9), 2, 1)
    SpaceCuts(column=array([20], dtype=int32), row=array([], dtype=int32), cost=1.5)
    """
    _require_positive(columns=columns, rows=rows)
    west, south, east, north = region
    inside = np.clip(box, (west, south) * 2, (east, north) * 2).astype(np.int32)
    whole = (inside == np.array(region)).all(axis=1)
    partial = inside[~whole]
    clipped = None
    if places is not None and len(places):
        clipped = np.clip(places, (west, south) * 2, (east, north) * 2)
    column = _cut_axis(partial[:, [0, 2]], (west, east), columns, _axis(clipped, 0), rounds)
    row = _cut_axis(partial[:, [1, 3]], (south, north), rows, _axis(clipped, 1), rounds)
    count = cell_counts(partial, column, row)
    share = cell_shares(region, column, row)
    if clipped is not None:
        share = smoothed(cell_counts(clipped, column, row), len(clipped), share)
    return SpaceCuts(column, row, partition_cost(count, share) + float(whole.sum()))


def cell_counts(
    box: NDArray[Any], column: NDArray[np.int32], row: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return how many boxes meet each cell of a grid, int64[rows, columns].

    Examples
    --------
    >>> cell_counts(np.array([[0, 0, 9, 9], [7, 7, 7, 7]]), np.array([5]), np.array([8]))
    array([[1, 2],
           [1, 1]])
    """
    count = np.zeros((len(row) + 1, len(column) + 1), np.int64)
    count_cells(
        read_only(box, np.int32, 4), read_only(column, np.int32), read_only(row, np.int32), count
    )
    return count


def cell_shares(
    region: tuple[int, int, int, int], column: NDArray[np.int32], row: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the share of each cell of the area of a region, float64[rows, columns].

    Examples
    --------
    >>> cell_shares((0, 0, 9, 9), np.array([5]), np.array([8])).tolist()
    [[0.4, 0.4], [0.1, 0.1]]
    """
    west, south, east, north = region
    width = np.diff(np.array([west, *column.tolist(), east + 1], np.float64)) / (east + 1 - west)
    height = np.diff(np.array([south, *row.tolist(), north + 1], np.float64)) / (north + 1 - south)
    return np.outer(height, width)


def _cut_axis(
    side: NDArray[np.int32],
    region: tuple[int, int],
    parts: int,
    places: NDArray[np.int32] | None,
    rounds: int,
) -> NDArray[np.int32]:
    """Cut one axis, at places where a box begins or has just ended."""
    begin, end = side.astype(np.int64).T
    first, last = region
    sides = np.sort(begin), np.sort(end), np.sort((begin + end) // 2)
    size = 2 * len(side) + 2
    candidate, amount = np.empty(size, np.int64), np.empty(size)
    line = Line(np.empty(size), np.empty(size), np.empty(size))
    count = int(axis_line(sides, (first, last), candidate, line, amount))
    candidate = candidate[:count]
    hit = (candidate - first) / (last + 1 - first)
    if places is not None:
        before = np.searchsorted(np.sort(places.sum(axis=1, dtype=np.int64) // 2), candidate)
        hit = smoothed(before, len(places), hit)
    line = Line(line.begun[:count], line.ended[:count], hit)
    cut, _ = _cut(line, amount[:count], parts, rounds)
    return candidate[cut[1:-1]].astype(np.int32)


def _cut(
    line: Line, amount: NDArray[np.float64], parts: int, rounds: int
) -> tuple[NDArray[np.int64], float]:
    cut = np.empty(max(min(parts, len(amount) - 1), 1) + 1, np.int64)
    balance_cuts(amount, cut)
    improve_cuts(line, cut, rounds)
    return cut, float(line_cost(line, cut))


def _axis(box: NDArray[Any] | None, axis: int) -> NDArray[Any] | None:
    return None if box is None else box[:, [axis, axis + 2]]


def _running(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise InvalidInput(name, number, "must be at least 1")
