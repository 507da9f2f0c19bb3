"""How a node of an adaptive partition tree is parted: by keywords, by space, or not at all.

Wang et al., VLDB Journal 2015, sections 3.3.2 and 3.3.4: ordered tokens are cut, and the partition
that costs less is taken. `nearcast.indexes.ap_tree.cost` has the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.partition import Line, improve_cuts, optimal_cuts, spread_cuts
from nearcast.indexes.ap_tree.cost import GAIN, VISIT, Draft, Hits, most_parts
from nearcast.indexes.ap_tree.grid import cut_region
from nearcast.indexes.ap_tree.tree import (
    HIGH,
    KEYWORDS,
    LEAF,
    LEAF_SIZE,
    LOW,
    OPTIMAL,
    PREFER,
    SPACE,
    Ranked,
    length_of,
    rank_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CHOICES = 1 << 27
"""The best cuts are looked for as long as cuts times tokens are not more: so many numbers are
remembered. There are fewer cuts where there are more tokens."""


@kernel
def distinct_ranks(state: NDArray[np.int64], draft: Draft, keys: Number) -> Number:
    """Write the distinct keys in order, and the running sum of their numbers; return how many."""
    ranks, low = state[HIGH] - state[LOW], state[LOW]
    count = np.int64(0)
    draft.entered[0] = 0.0
    if 8 * keys > ranks:
        times = draft.times[:ranks]
        times[:] = 0
        for i in range(keys):
            times[np.int64(draft.key[i]) - low] += 1
        for i in range(ranks):
            if times[i] > 0:
                draft.value[count] = low + i
                count += 1
                draft.entered[count] = draft.entered[count - 1] + times[i]
        return count
    key = draft.key[:keys]
    key.sort()
    for i in range(keys):
        if i == 0 or key[i] != key[i - 1]:
            draft.value[count] = key[i]
            count += 1
        draft.entered[count] = i + 1
    return count


@kernel
def cut_ranks(
    state: NDArray[np.int64],
    ranked: Ranked,
    clauses: NDArray[np.int32],
    offset: Number,
    hits: Hits,
    draft: Draft,
) -> tuple[Number, Number]:
    """Cut the ranks of clauses at an offset; return how many cuts there are, and what they cost."""
    keys = np.int64(0)
    for i in range(len(clauses)):
        if length_of(ranked, clauses[i]) > offset:
            draft.key[keys] = rank_at(ranked, clauses[i], offset)
            keys += 1
    if keys == 0:
        return np.int64(0), np.inf
    known = distinct_ranks(state, draft, keys)
    draft.passed[0] = 0.0
    for i in range(known):
        share = (draft.entered[i + 1] - draft.entered[i]) / keys
        if len(hits.rank) > 0:
            # Below a cut, messages are more like the clauses there than like all messages.
            rank, like = np.int64(draft.value[i]), hits.tokens * share if offset > 0 else 0.0
            share = np.float64(hits.rank[rank]) if 0 <= rank < len(hits.rank) else 0.0
            share = max(share, like)
        draft.passed[i + 1] = draft.passed[i] + share
    entered, passed = draft.entered[: known + 1], draft.passed[: known + 1]
    line = Line(entered, entered, passed)
    parts = min(most_parts(state, len(clauses)), known)
    cut = draft.cut[: parts + 1]
    if state[OPTIMAL] != 0:
        parts = max(min(parts, MAX_CHOICES // known), np.int64(1))
        cut = draft.cut[: parts + 1]
        optimal_cuts(line, cut)
    else:
        spread_cuts(entered, cut)
        improve_cuts(line, cut, 1)
    factor = 1.0 if len(hits.rank) > 0 else hits.tokens
    cost = np.float64(len(clauses) - keys)
    if cost > 0.0:
        cost += VISIT * state[LEAF_SIZE]
    for i in range(parts):
        hit = min(1.0, factor * (passed[cut[i + 1]] - passed[cut[i]]))
        cost += hit * (entered[cut[i + 1]] - entered[cut[i]] + VISIT * state[LEAF_SIZE])
    return parts, cost


@kernel
def choose_partition(
    state: NDArray[np.int64],
    ranked: Ranked,
    clauses: NDArray[np.int32],
    place: tuple[Number, NDArray[np.int64]],
    hits: Hits,
    draft: Draft,
) -> tuple[Number, Number, Number]:
    """Return what a node is to be: its kind, its cuts or columns, and its rows.

    ``place`` is the offset of the ranks and the region. A keyword node's cuts are in the draft
    then, a space node's splits among the best.
    """
    enough = GAIN * len(clauses)
    columns, rows, by_space = np.int64(0), np.int64(0), np.inf
    if state[PREFER] != KEYWORDS:
        columns, rows, by_space = cut_region(state, ranked, clauses, place[1], hits, draft)
        if state[PREFER] == SPACE and by_space < enough:
            return np.int64(SPACE), columns, rows
    cuts, by_rank = cut_ranks(state, ranked, clauses, place[0], hits, draft)
    if state[PREFER] == KEYWORDS:
        if cuts > 1 or by_rank < enough:
            return np.int64(KEYWORDS), cuts, np.int64(1)
        columns, rows, by_space = cut_region(state, ranked, clauses, place[1], hits, draft)
    if min(by_rank, by_space) >= enough:
        return np.int64(LEAF), np.int64(0), np.int64(0)
    if by_rank <= by_space:
        return np.int64(KEYWORDS), cuts, np.int64(1)
    return np.int64(SPACE), columns, rows
