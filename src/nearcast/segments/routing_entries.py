"""The entries of ranked subscriptions: which messages may match, by a token and a reach.

`nearcast.segments.routing` makes clauses of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.scoring import reach_m, share, text_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NO_TOKEN", "Entries", "RankedRows", "write_entries"]

NO_TOKEN = -1

MERGED = 1.3
"""Tokens are left out if they let a subscription reach at most this many times further."""


class RankedRows(NamedTuple):
    """Ranked subscriptions: their tokens, the heaviest first, and what bounds their scores.

    ``token_start`` int64[n + 1], ``token`` int32[...], ``token_weight`` float64[...],
    ``text_weight`` float64[n], ``text_share`` and ``threshold`` int32[n], ``max_distance_cm``
    uint32[n].
    """

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    token_weight: NDArray[np.float64]
    text_weight: NDArray[np.float64]
    text_share: NDArray[np.int32]
    threshold: NDArray[np.int32]
    max_distance_cm: NDArray[np.uint32]


class Entries(NamedTuple):
    """Which messages may match: those with a token, so near to a row.

    ``row`` int32[any], ``token`` int32[any] (or `NO_TOKEN`), ``reach_m`` float64[any]. The reach is
    infinite where the place does not matter; where a region counts, a finite one only says that the
    message must meet it.
    """

    row: NDArray[np.int32]
    token: NDArray[np.int32]
    reach_m: NDArray[np.float64]


@kernel
def write_entries(rows: RankedRows, similarity: Number, entries: Entries) -> Number:
    """Write the entries of all rows; return how many there are, at most one per row and token."""
    count = 0
    for row in range(len(rows.text_share)):
        p, q = share(rows.text_share[row]), share(rows.threshold[row])
        max_m = np.float64(rows.max_distance_cm[row]) / np.float64(CENTIMETERS)
        own = rows.text_weight[row]
        farthest = reach_m(p, q, max_m, text_bound(similarity, own, own))
        alone = reach_m(p, q, max_m, text_bound(similarity, 0.0, own))
        if alone >= 0.0 and alone * MERGED >= farthest:
            entries.row[count], entries.token[count] = row, NO_TOKEN
            entries.reach_m[count] = farthest
            count += 1
            continue
        if alone >= 0.0:
            entries.row[count], entries.token[count] = row, NO_TOKEN
            entries.reach_m[count] = alone
            count += 1
        shared = 0.0
        for i in range(rows.token_start[row + 1] - 1, rows.token_start[row] - 1, -1):
            shared += rows.token_weight[i]
            reach = reach_m(p, q, max_m, text_bound(similarity, shared, own))
            if reach >= 0.0:
                entries.row[count], entries.token[count] = row, rows.token[i]
                entries.reach_m[count] = reach
                count += 1
    return count
