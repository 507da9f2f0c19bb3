"""Random columns that all data sets draw: Zipf ranks, distinct tokens, boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS, WORLD, starts
from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["boxes", "distinct", "hash_to_uniform", "zipf"]


def zipf(uniform: NDArray[Any], size: int, head: float) -> NDArray[np.int64]:
    """Turn uniform numbers into ranks below ``size``; a rank has the weight ``1 / (rank + head)``.

    Examples
    --------
    >>> zipf(np.array([0.0, 0.5, 0.999]), 1000, 2.0).tolist()
    [0, 42, 993]
    """
    ratio = np.log((size + head) / head)
    rank = head * np.expm1(uniform * ratio)
    ranks: NDArray[np.int64] = np.minimum(rank.astype(np.int64), size - 1)
    return ranks


def hash_to_uniform(value: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hash each number to a float in [0, 1) (splitmix64)."""
    mixed = value + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def distinct(
    row: NDArray[np.uint64], token: NDArray[np.uint64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the start of each of ``count`` rows, and their distinct tokens in ascending order."""
    key = (row << np.uint64(32)) | token
    key.sort()
    if len(key):
        key = key[np.concatenate([[True], key[1:] != key[:-1]])]
    length = np.bincount((key >> np.uint64(32)).astype(np.int64), minlength=count)
    return starts(length), (key & np.uint64(0xFFFFFFFF)).astype(np.int32)


def first_distinct(
    start: NDArray[np.int64], token: NDArray[np.int64], max_tokens: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the first ``max_tokens[i]`` distinct tokens of each row ``i``, in ascending order.

    Examples
    --------
    >>> first_distinct(np.array([0, 4]), np.array([7, 3, 7, 1]), np.array([2]))[1].tolist()
    [3, 7]
    """
    kept_start = np.empty(len(start), np.int64)
    kept = np.empty(len(token), np.int32)
    end = keep_first_distinct(start, token.astype(np.int32), max_tokens, kept_start, kept)
    return kept_start, kept[:end]


def boxes(lon: NDArray[Any], lat: NDArray[Any], width: Any, height: Any) -> NDArray[np.int32]:
    """Return boxes of these sizes (degrees) around points, moved inside the world."""
    west = np.clip(lon - width / 2, -180, 180 - width)
    south = np.clip(lat - height / 2, -90, 90 - height)
    edges = np.stack([west, south, west + width, south + height], axis=1) * UNITS
    inside = np.clip(np.rint(edges), WORLD[:2] * 2, WORLD[2:] * 2)
    return inside.astype(np.int32)  # type: ignore[no-any-return]


@kernel
def keep_first_distinct(
    drawn_start: NDArray[np.int64],
    drawn: NDArray[np.int32],
    max_tokens: NDArray[np.int64],
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
) -> Number:
    """Write the first ``max_tokens[i]`` distinct tokens of each row ``i``, in ascending order.

    Fills ``token_start`` (one longer than ``max_tokens``) and ``token`` (as long as ``drawn``);
    returns the number of tokens written.
    """
    end = np.int64(0)
    token_start[0] = 0
    for row in range(len(max_tokens)):
        begin = end
        for i in range(drawn_start[row], drawn_start[row + 1]):
            if end - begin == max_tokens[row]:
                break
            insert_at = begin + np.searchsorted(token[begin:end], drawn[i])
            if insert_at < end and token[insert_at] == drawn[i]:
                continue
            for j in range(end, insert_at, -1):
                token[j] = token[j - 1]
            token[insert_at] = drawn[i]
            end += 1
        token_start[row + 1] = end
    return end
