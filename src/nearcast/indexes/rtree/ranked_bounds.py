"""What entries know about shares, thresholds, weights and sizes (``ir-tree-1``, ``rt-tree``...).

For every slot of a node: the smallest and the largest text share below it, the smallest threshold,
the smallest weight of a text, and the largest distance (proximity) or the smallest area (overlap).
All are rounded outward, so no subscription below can score more than they allow: the score is
linear in the text share, so its maximum is at one of the two ends.

A region of two boxes is in the tree twice. The box that has more in common with a message has at
least half of what both have, so each stands for a region of half the area.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit
from nearcast.compiled.scoring import (
    COSINE,
    DICE,
    GUARD,
    JACCARD,
    TOLERANCE,
    RankedColumns,
    ScoringCodes,
    share,
)
from nearcast.indexes.rtree.nodes import RTree, slot_of
from nearcast.indexes.rtree.ranked_space import ROUND_DOWN, ROUND_UP

if TYPE_CHECKING:
    from numpy.typing import NDArray

P_MIN, P_MAX, Q_MIN, WEIGHT, EXTENT = range(5)
"""Rows of a node's bounds."""

FIELDS = 5

SLACK = TOLERANCE + GUARD
"""A score this much below the threshold may match."""


class Bound(NamedTuple):
    """The bounds of one entry, see the rows of a node's bounds."""

    p_min: Number
    p_max: Number
    q_min: Number
    weight: Number
    size: Number


@kernel
def row_bound(codes: ScoringCodes, rows: RankedColumns, row: Number) -> Bound:
    """Return the bounds of one subscription."""
    p, q = share(rows.text_share[row]), share(rows.threshold[row])
    boxes = np.float64(rows.box_start[row + 1] - rows.box_start[row])
    size: Number = rows.area[row] / boxes * ROUND_DOWN
    if codes.proximity != 0:
        size = np.float64(rows.max_distance_cm[row]) / 100.0 * ROUND_UP
    return Bound(
        np.float32(p * ROUND_DOWN),
        np.float32(p * ROUND_UP),
        np.float32(q * ROUND_DOWN),
        np.float32(rows.text_weight[row] * ROUND_DOWN),
        np.float32(size),
    )


@kernel
def set_bound(bound: NDArray[np.float32], node: Number, slot: Number, value: Bound) -> None:
    """Write the bounds of a slot."""
    bound[node, P_MIN, slot], bound[node, P_MAX, slot] = value.p_min, value.p_max
    bound[node, Q_MIN, slot], bound[node, WEIGHT, slot] = value.q_min, value.weight
    bound[node, EXTENT, slot] = value.size


@kernel
def get_bound(bound: NDArray[np.float32], node: Number, slot: Number) -> Bound:
    """Read the bounds of a slot."""
    return Bound(
        bound[node, P_MIN, slot],
        bound[node, P_MAX, slot],
        bound[node, Q_MIN, slot],
        bound[node, WEIGHT, slot],
        bound[node, EXTENT, slot],
    )


@kernel
def wider(codes: ScoringCodes, a: Bound, b: Bound) -> Bound:
    """Return bounds that hold for what either of two holds for."""
    size = max(a.size, b.size) if codes.proximity != 0 else min(a.size, b.size)
    return Bound(
        min(a.p_min, b.p_min),
        max(a.p_max, b.p_max),
        min(a.q_min, b.q_min),
        min(a.weight, b.weight),
        size,
    )


@kernel
def node_bound(codes: ScoringCodes, tree: RTree, bound: NDArray[np.float32], node: Number) -> Bound:
    """Return bounds for all that is below a node, which is not empty."""
    left = tree.used[node]
    whole = get_bound(bound, node, lowest_bit(left))
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        whole = wider(codes, whole, get_bound(bound, node, slot))
    return whole


@kernel
def refresh_bounds(
    codes: ScoringCodes,
    tree: RTree,
    bound: NDArray[np.float32],
    rows: RankedColumns,
    nodes: NDArray[np.int64],
) -> None:
    """Write the bounds of all slots of nodes, children before parents; free nodes have none."""
    tree, bound, rows = borrow(tree), borrow(bound), borrow(rows)
    for i in range(len(nodes)):
        node = nodes[i]
        left = tree.used[node]
        while left != np.uint64(0):
            slot = lowest_bit(left)
            left &= left - np.uint64(1)
            if tree.level[node] == 0:
                value = row_bound(codes, rows, tree.key[node, slot])
            else:
                value = node_bound(codes, tree, bound, tree.entry[node, slot])
            set_bound(bound, node, slot, value)


@kernel
def widen_bounds(
    codes: ScoringCodes,
    tree: RTree,
    bound: NDArray[np.float32],
    rows: RankedColumns,
    clauses: tuple[Number, Number],
) -> None:
    """Widen the bounds of all entries above new clauses, and write their own."""
    tree, bound, rows = borrow(tree), borrow(bound), borrow(rows)
    for clause in range(clauses[0], clauses[1]):
        node = np.int64(tree.leaf_of[clause])
        slot = slot_of(tree, node, clause)
        value = row_bound(codes, rows, tree.key[node, slot])
        set_bound(bound, node, slot, value)
        while tree.parent[node] >= 0:
            slot, node = np.int64(tree.place[node]), np.int64(tree.parent[node])
            set_bound(bound, node, slot, wider(codes, value, get_bound(bound, node, slot)))


# What a message can score at most below the first ``most`` slots of a node. ``bound`` is that of
# the node: float32[5, ...].


@kernel
def write_text_bounds(
    similarity: Number,
    bound: NDArray[np.float32],
    message_weight: Number,
    most: Number,
    shared: NDArray[np.float64],
) -> None:
    """Replace the weight that slots share at most with a message by the largest T."""
    for slot in range(most):
        least = np.float64(bound[WEIGHT, slot])
        whole = least
        if similarity == JACCARD:
            whole = max(least, message_weight)
        elif similarity == DICE:
            whole = 0.5 * (least + message_weight)
        elif similarity == COSINE:
            whole = np.sqrt(least * message_weight)
        share_of = min(1.0, shared[slot] / whole) if shared[slot] > 0.0 else 0.0
        shared[slot] = 1.0 if least == 0.0 else share_of


@inlined_kernel
def text_below(similarity: Number, least: Number, message: Number, shared: Number) -> Number:
    """Return T of a subscription that shares this weight and weighs at least ``least``."""
    whole = least
    if similarity == JACCARD:
        whole = max(least, least + message - shared)
    elif similarity == DICE:
        whole = 0.5 * (least + message)
    elif similarity == COSINE:
        whole = np.sqrt(least * message)
    part = min(1.0, shared / whole) if shared > 0.0 else 0.0
    return 1.0 if least == 0.0 else part


@kernel
def write_text_scores(
    similarity: Number,
    bound: NDArray[np.float32],
    message_weight: Number,
    most: Number,
    shared: NDArray[np.float64],
) -> None:
    """Replace the weight that the subscriptions of a leaf share with a message by T."""
    for slot in range(most):
        least = np.float64(bound[WEIGHT, slot])
        shared[slot] = text_below(similarity, least, message_weight, shared[slot])


@kernel
def matching_slots(
    bound: NDArray[np.float32],
    text: NDArray[np.float64],
    space: NDArray[np.float64],
    most: Number,
) -> Number:
    """Return the slots below which a match is possible if T and S are at most these."""
    slots = np.uint64(0)
    for slot in range(most):
        t, s = text[slot], space[slot]
        best = max(
            s + np.float64(bound[P_MIN, slot]) * (t - s),
            s + np.float64(bound[P_MAX, slot]) * (t - s),
        )
        enough = best >= np.float64(bound[Q_MIN, slot]) - SLACK
        slots |= np.uint64(enough) << np.uint64(slot)
    return slots
