"""The order of updates: by the row of the event, then by the publication of the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ranks_within"]

_MAX_INSERTIONS = 64
"""Longer runs are sorted by NumPy's sort, which is slower for a few values."""


@kernel
def _rank_runs(
    position: NDArray[np.int64], order: NDArray[np.int64], rank: NDArray[np.int64]
) -> None:
    """Sort each run of equal positions by order; ``rank`` says where each was before."""
    begin = 0
    while begin < len(position):
        end = begin
        while end < len(position) and position[end] == position[begin]:
            rank[end] = end
            end += 1
        if end - begin > _MAX_INSERTIONS:
            rank[begin:end] = begin + np.argsort(order[begin:end])
        else:
            for i in range(begin + 1, end):
                at = i
                while at > begin and order[rank[at - 1]] > order[i]:
                    rank[at] = rank[at - 1]
                    at -= 1
                rank[at] = i
        begin = end


def ranks_within(position: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which pair comes first, second and so on: by position, then by order.

    Positions usually ascend already; then this is much faster than `numpy.lexsort`.

    Examples
    --------
    >>> ranks_within(np.array([0, 1, 1]), np.array([5, 9, 7])).tolist()
    [0, 2, 1]
    """
    if len(position) > 1 and bool((position[1:] < position[:-1]).any()):
        return np.lexsort((order, position))
    rank = np.empty(len(position), np.int64)
    _rank_runs(position, order, rank)
    return rank
