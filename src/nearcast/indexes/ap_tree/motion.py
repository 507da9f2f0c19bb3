"""What the movement of clauses adds to the cost of splitting a node by space.

Wang et al., VLDB Journal 2015, section 4.3.1. A keyword node does not care where its clauses are. A
space node does: a clause that leaves a cell is taken out of one leaf and put into another, and
clauses that have gone elsewhere make the node worth rebuilding. Both are added to the clauses that
a message is compared with, for each message that reaches the node.

The paper counts time in ticks. All its costs are proportional to rates, so only the ratio of moves
to messages matters, and how far a clause goes with a move; there is no clock here. Unlike in the
paper, steps and comparisons, which take different times, are weighed, a move costs as many steps as
the clause touches cells, and what chance alone does to the distribution of clauses is no drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.layout import (
    END_RANK,
    FIRST_RANK,
    LEAF_SIZE,
    TOTAL_CLAUSES,
    RankedClauses,
    splits_passed,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP_COST = 5.0
"""The price of one step of an insertion, in clauses that a message is compared with."""

BUILD_STEP_COST = 0.5
"""The price of one step of building a node."""

MAX_ROUNDS = 64
"""How far ahead the next rebuild is looked for; in a round every clause moves once."""

SAMPLED_CLAUSES = 4096
"""Of ``k`` times as many clauses, every ``k``-th stands for all."""


class Motion(NamedTuple):
    """How clauses move.

    - ``velocity`` float32[clauses, 2]: how far each goes with a move; empty if none moves.
    - ``rate``: moves of one clause for one message.
    - ``tokens``: how many tokens a message has. ``divergence``: above this, a node is rebuilt.
    """

    velocity: NDArray[np.float32]
    rate: Number
    tokens: Number
    divergence: Number


def no_motion() -> Motion:
    """Return the motion of clauses that stay where they are."""
    return Motion(np.empty((0, 2), np.float32), 0.0, 0.0, 0.0)


@kernel
def _count_centers(
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    velocity: NDArray[np.float32],
    rounds: Number,
    count: NDArray[np.float64],
) -> None:
    """Count clauses by where their centers are after some rounds.

    ``count`` has a square grid of cells, and one more for what is outside of the region; it begins
    with one for each.
    """
    side = np.int64(np.sqrt(len(count) - 1))
    count[:] = 1.0
    step = max(np.int64(1), np.int64(len(clauses)) // SAMPLED_CLAUSES)
    for i in range(0, len(clauses), step):
        box, cell, factor = ranked.box[clauses[i]], np.int64(0), np.int64(1)
        for axis in range(2):
            low, high = np.float64(region[axis]), np.float64(region[axis + 2]) + 1.0
            center = 0.5 * (np.float64(box[axis]) + np.float64(box[axis + 2]))
            center += rounds * np.float64(velocity[clauses[i], axis])
            at = np.int64(np.floor((center - low) / (high - low) * side))
            if at < 0 or at >= side:
                cell = np.int64(-1)
            elif cell >= 0:
                cell += factor * at
                factor *= side
        count[cell if cell >= 0 else len(count) - 1] += 1.0


@kernel
def _drift(
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    velocity: NDArray[np.float32],
    rounds: Number,
    count: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Number:
    """Return how far clauses will have diverged after some rounds, beyond what chance does."""
    before, after = count
    _count_centers(ranked, clauses, region, velocity, rounds, after)
    total, moved, diverged = before.sum(), 0.0, 0.0
    for i in range(len(before)):
        diverged += before[i] / total * np.log(before[i] / after[i])
        moved += 0.5 * abs(before[i] - after[i])
    clauses_counted = total - len(before)
    return diverged - moved / clauses_counted * (len(before) - 1) / clauses_counted


@kernel
def rounds_to_rebuild(
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    motion: Motion,
    parts: Number,
    scratch: NDArray[np.float64],
) -> Number:
    """Return after how many rounds the clauses of a node have diverged, given its parts."""
    side = max(np.int64(np.sqrt(parts)), np.int64(1))
    cells = side * side + 1
    count = scratch[:cells], scratch[cells : 2 * cells]
    velocity = motion.velocity
    _count_centers(ranked, clauses, region, velocity, 0, count[0])
    low, high = np.int64(0), np.int64(1)
    while _drift(ranked, clauses, region, velocity, high, count) <= motion.divergence:
        low, high = high, 2 * high
        if high > MAX_ROUNDS:
            return np.int64(MAX_ROUNDS)
    while high - low > 1:
        middle = (low + high) >> 1
        if _drift(ranked, clauses, region, velocity, middle, count) > motion.divergence:
            high = middle
        else:
            low = middle
    return high


@kernel
def build_steps(clauses: Number, tokens: Number, parts: Number, leaf: Number) -> Number:
    """Return how many steps it takes to build the nodes of clauses, given all their tokens.

    The paper's height of a tree is negative for a node with fewer clauses than a leaf.
    """
    fanout = np.float64(max(parts, 2))
    height = max(0.0, np.log(clauses / np.float64(leaf)) / np.log(fanout))
    split = clauses * np.sqrt(fanout) + fanout * tokens
    return clauses * np.log2(fanout) + split * (height + 1.0)


@kernel
def location_updates(
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    node: tuple[NDArray[np.int64], Number],
    velocity: NDArray[np.float32],
    grid: tuple[Number, Number],
    split: NDArray[np.int64],
) -> Number:
    """Return how many steps it takes to move every clause of a node once.

    ``node`` is its region and level; ``grid`` its columns and rows, with the splits in ``split``.
    """
    region, level = node
    width, height = np.float64(region[2] - region[0] + 1), np.float64(region[3] - region[1] + 1)
    step = max(np.int64(1), np.int64(len(clauses)) // SAMPLED_CLAUSES)
    steps, counted = 0.0, np.int64(0)
    for i in range(0, len(clauses), step):
        box = ranked.box[clauses[i]]
        across = splits_passed(split[0], 0, grid[0] - 1, box[2])
        across -= splits_passed(split[0], 0, grid[0] - 1, box[0])
        up = splits_passed(split[1], 0, grid[1] - 1, box[3])
        up -= splits_passed(split[1], 0, grid[1] - 1, box[1])
        east, north = velocity[clauses[i], 0], velocity[clauses[i], 1]
        crossed = min(1.0, abs(np.float64(east)) / width + abs(np.float64(north)) / height)
        steps += 2.0 * crossed * (across + 1) * (up + 1)
        counted += 1
    steps *= (level + 1) * np.log2(np.float64(max(grid[0] * grid[1], 2)))
    return steps * len(clauses) / counted


@kernel
def moving_cost(
    state: NDArray[np.int64],
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    node: tuple[NDArray[np.int64], Number],
    motion: Motion,
    grid: tuple[Number, Number],
    scratch: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> Number:
    """Return what the moves of its clauses cost a space node, for each message that reaches it.

    ``node`` is its region and level. ``scratch`` is the splits of the grid, and values for twice
    its cells and some more.
    """
    region, level = node
    share = len(clauses) / np.float64(max(state[TOTAL_CLAUSES], np.int64(len(clauses))))
    reaching = 1.0 if level == 0 else min(1.0, motion.tokens * share)
    parts = grid[0] * grid[1]
    steps = STEP_COST * location_updates(ranked, clauses, node, motion.velocity, grid, scratch[0])
    rounds = rounds_to_rebuild(ranked, clauses, region, motion, parts, scratch[1])
    tokens = min(state[END_RANK] - state[FIRST_RANK], np.int64(len(clauses)))
    build = build_steps(np.float64(len(clauses)), np.float64(tokens), parts, state[LEAF_SIZE])
    return motion.rate / reaching * (steps + BUILD_STEP_COST * build / rounds)
