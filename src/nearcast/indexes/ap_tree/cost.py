"""How a node is split: by keywords, by space, or not at all.

Wang et al., VLDB Journal 2015, sections 3.3.1 to 3.3.4. A part ``B`` with ``w(B)`` clauses that a
message hits with probability ``p(B)`` costs ``w(B) p(B)``: the clauses that a message is compared
with on average. A node takes the partition that costs less.

Without a sample of messages, a token is as probable as it is frequent among the clauses of the
node. The probability of a place is four fifths its share of the area, one fifth its share of the
clauses.

Three prices are added to the paper's cost; without them trees become too deep and too large. A
message has more than one token (the paper's probabilities sum to 1, as if it had one); a visit of a
part has a price; a clause in several cells has a price for each copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.partition import (
    Line,
    axis_line,
    balance_cuts,
    improve_cuts,
    optimal_cuts,
)
from nearcast.indexes.ap_tree.layout import (
    END_RANK,
    FANOUT,
    FIRST_RANK,
    KEYWORDS,
    LEAF,
    LEAF_SIZE,
    OPTIMAL,
    PREFER,
    SPACE,
    RankedClauses,
    Tree,
    covers_region,
    rank_at,
    rank_count,
    splits_passed,
)
from nearcast.indexes.ap_tree.motion import Motion, moving_cost

if TYPE_CHECKING:
    from numpy.typing import NDArray

VISIT_COST = 0.5
"""The price of visiting a part, in full leaves that a message is compared with."""

COPY_COST = 0.05
"""The price of a clause in one more cell, in clauses that a message is compared with."""

PARTS_PER_LEAF = 4
"""A node is split into at most this many parts for each full leaf of clauses."""

MAX_COST_SHARE = 0.9
"""A node is split if that costs at most this share of comparing all its clauses."""

CENTER_WEIGHT = 0.2
"""Without a sample, how far the centers of boxes tell where messages are; the rest is area."""

SAMPLED_BOXES = 4096
"""Of ``k`` times as many clauses, every ``k``-th decides how space is cut."""

MAX_CHOICES = 1 << 27
"""The optimal partition remembers cuts times tokens choices; with more tokens there are fewer
cuts."""


class HitModel(NamedTuple):
    """What is known of messages, from a sample or without one.

    - ``share`` float32[ranks]: the share of messages that have a token, by its rank; empty without
      a sample.
    - ``below`` float64[up + 1, across + 1]: for the crossings of a grid, the messages to the west
      and south; float64[1, 1] without a sample. ``world`` float64[4]: what the grid covers.
    - ``tokens``: how many tokens a message has where there is no sample.
    - ``motion``: how clauses move.
    """

    share: NDArray[np.float32]
    below: NDArray[np.float64]
    world: NDArray[np.float64]
    tokens: Number
    motion: Motion


class SplitScratch(NamedTuple):
    """Scratch for the decision how a node is split, and its result.

    - ``rank`` int32[clauses]: the ranks at the node's offset; ``distinct`` int32[clauses]: each
      once, ascending; ``begun`` and ``hit`` float64[clauses + 1]: their `Line`; ``frequency``
      int32[ranks]: how often each rank occurs.
    - ``cut`` int64[fanout + 2]: positions on a line.
    - ``side`` int64[2, 3, boxes]: by axis, where boxes begin, end, and have their center.
    - ``position`` int64[2, places] and ``line`` float64[2, 4, places]: by axis, where it may be
      cut; the `Line` there, and the centers passed.
    - ``split`` int64[2, fanout + 1]: the splits of columns and rows; ``best``: those of the
      cheapest grid. ``cell`` float64[cells + more]: the boxes in each cell.
    """

    rank: NDArray[np.int32]
    distinct: NDArray[np.int32]
    begun: NDArray[np.float64]
    hit: NDArray[np.float64]
    frequency: NDArray[np.int32]
    cut: NDArray[np.int64]
    side: NDArray[np.int64]
    position: NDArray[np.int64]
    line: NDArray[np.float64]
    split: NDArray[np.int64]
    best: NDArray[np.int64]
    cell: NDArray[np.float64]


def split_scratch(tree: Tree, clauses: int) -> SplitScratch:
    """Return scratch to split nodes of at most this many clauses."""
    ranks, fanout = int(tree.state[END_RANK] - tree.state[FIRST_RANK]), int(tree.state[FANOUT])
    boxes = min(clauses, 2 * SAMPLED_BOXES)
    return SplitScratch(
        rank=np.empty(clauses, np.int32),
        distinct=np.empty(clauses, np.int32),
        begun=np.empty(clauses + 1),
        hit=np.empty(clauses + 1),
        frequency=np.empty(ranks + ranks // 4 + 64, np.int32),
        cut=np.empty(fanout + 2, np.int64),
        side=np.empty((2, 3, boxes), np.int64),
        position=np.empty((2, 2 * boxes + 2), np.int64),
        line=np.empty((2, 4, 2 * boxes + 2)),
        split=np.empty((2, fanout + 1), np.int64),
        best=np.empty((2, fanout + 1), np.int64),
        cell=np.empty(4 * (fanout + 2)),
    )


@kernel
def max_parts(state: NDArray[np.int64], clauses: Number) -> Number:
    """Return into how many parts a node of this many clauses is split at most."""
    wanted = max(PARTS_PER_LEAF * np.int64(clauses) // state[LEAF_SIZE], np.int64(2))
    return min(state[FANOUT], wanted)


# By keywords (section 3.3.2).


@kernel
def distinct_ranks(state: NDArray[np.int64], scratch: SplitScratch, keys: Number) -> Number:
    """Write each rank once, ascending, and the running sum of frequencies; return how many."""
    ranks, first_rank = state[END_RANK] - state[FIRST_RANK], state[FIRST_RANK]
    count = np.int64(0)
    scratch.begun[0] = 0.0
    if 8 * keys > ranks:
        frequency = scratch.frequency[:ranks]
        frequency[:] = 0
        for i in range(keys):
            frequency[np.int64(scratch.rank[i]) - first_rank] += 1
        for i in range(ranks):
            if frequency[i] > 0:
                scratch.distinct[count] = first_rank + i
                count += 1
                scratch.begun[count] = scratch.begun[count - 1] + frequency[i]
        return count
    rank = scratch.rank[:keys]
    rank.sort()
    for i in range(keys):
        if i == 0 or rank[i] != rank[i - 1]:
            scratch.distinct[count] = rank[i]
            count += 1
        scratch.begun[count] = i + 1
    return count


@kernel
def cut_ranks(
    state: NDArray[np.int64],
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    offset: Number,
    model: HitModel,
    scratch: SplitScratch,
) -> tuple[Number, Number]:
    """Cut the ranks of clauses at an offset; return how many cuts there are, and their cost."""
    keys = np.int64(0)
    for i in range(len(clauses)):
        if rank_count(ranked, clauses[i]) > offset:
            scratch.rank[keys] = rank_at(ranked, clauses[i], offset)
            keys += 1
    if keys == 0:
        return np.int64(0), np.inf
    known = distinct_ranks(state, scratch, keys)
    scratch.hit[0] = 0.0
    for i in range(known):
        share = (scratch.begun[i + 1] - scratch.begun[i]) / keys
        if len(model.share) > 0:
            # Below a cut, messages resemble the clauses there more than they resemble all messages.
            rank, like = np.int64(scratch.distinct[i]), model.tokens * share if offset > 0 else 0.0
            share = np.float64(model.share[rank]) if 0 <= rank < len(model.share) else 0.0
            share = max(share, like)
        scratch.hit[i + 1] = scratch.hit[i] + share
    begun, hit = scratch.begun[: known + 1], scratch.hit[: known + 1]
    line = Line(begun, begun, hit)
    parts = min(max_parts(state, len(clauses)), known)
    cut = scratch.cut[: parts + 1]
    if state[OPTIMAL] != 0:
        parts = max(min(parts, MAX_CHOICES // known), np.int64(1))
        cut = scratch.cut[: parts + 1]
        optimal_cuts(line, cut)
    else:
        balance_cuts(begun, cut)
        improve_cuts(line, cut, 1)
    factor = 1.0 if len(model.share) > 0 else model.tokens
    cost = np.float64(len(clauses) - keys)
    if cost > 0.0:
        cost += VISIT_COST * state[LEAF_SIZE]
    for i in range(parts):
        share = min(1.0, factor * (hit[cut[i + 1]] - hit[cut[i]]))
        cost += share * (begun[cut[i + 1]] - begun[cut[i]] + VISIT_COST * state[LEAF_SIZE])
    return parts, cost


# By space (section 3.3.3): one axis after the other, since finding the best grid is NP-hard.


@kernel
def messages_below(model: HitModel, x: Number, y: Number) -> Number:
    """Return how many messages lie to the west and south of a place."""
    up, across = model.below.shape[0] - 1, model.below.shape[1] - 1
    column = (x - model.world[0]) / (model.world[2] - model.world[0]) * across
    row = (y - model.world[1]) / (model.world[3] - model.world[1]) * up
    column, row = min(max(column, 0.0), across), min(max(row, 0.0), up)
    i, j = min(np.int64(column), across - 1), min(np.int64(row), up - 1)
    right, upper = column - i, row - j
    south = (1 - right) * model.below[j, i] + right * model.below[j, i + 1]
    north = (1 - right) * model.below[j + 1, i] + right * model.below[j + 1, i + 1]
    return (1 - upper) * south + upper * north


@kernel
def messages_in(
    model: HitModel, west: Number, south: Number, east: Number, north: Number
) -> Number:
    """Return how many messages lie in a rectangle, east and north excluded."""
    northern = messages_below(model, east, north) - messages_below(model, west, north)
    return northern - messages_below(model, east, south) + messages_below(model, west, south)


@kernel
def space_share(model: HitModel, region: NDArray[np.int64], part: NDArray[np.float64]) -> Number:
    """Return the probability that a message in a region lies in a part of it.

    Without a sample it is the part's share of the area. With one, that share counts as one message
    more, so that no probability is 0.
    """
    west, south = np.float64(region[0]), np.float64(region[1])
    east, north = np.float64(region[2]) + 1.0, np.float64(region[3]) + 1.0
    share = (part[2] - part[0]) / (east - west) * ((part[3] - part[1]) / (north - south))
    if model.below.shape[0] < 2:
        return share
    whole = messages_in(model, west, south, east, north)
    return (messages_in(model, part[0], part[1], part[2], part[3]) + share) / (whole + 1.0)


@kernel
def measure_axes(
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    model: HitModel,
    scratch: SplitScratch,
    count: NDArray[np.int64],
) -> None:
    """Write the lines of both axes.

    ``count`` int64[4] gets the places of each axis, the boxes they were made of, and the boxes that
    contain the region, which count for no axis.
    """
    step = max(np.int64(1), np.int64(len(clauses)) // SAMPLED_BOXES)
    boxes, whole = np.int64(0), np.int64(0)
    for i in range(0, len(clauses), step):
        box = ranked.box[clauses[i]]
        if covers_region(box, region, 0):
            whole += 1
            continue
        for axis in range(2):
            begin = max(np.int64(box[axis]), region[axis])
            end = min(np.int64(box[axis + 2]), region[axis + 2])
            # A clause that was inserted into an outermost cell may lie outside of the region.
            begin, end = min(begin, region[axis + 2]), max(end, region[axis])
            scratch.side[axis, 0, boxes], scratch.side[axis, 1, boxes] = begin, end
            scratch.side[axis, 2, boxes] = (begin + end) >> 1
        boxes += 1
    part, unknown = np.empty(4, np.float64), model.below.shape[0] < 2
    for axis in range(2):
        side = scratch.side[axis, :, :boxes]
        side[0].sort()
        side[1].sort()
        side[2].sort()
        begun, ended, hit, centers = (
            scratch.line[axis, 0],
            scratch.line[axis, 1],
            scratch.line[axis, 2],
            scratch.line[axis, 3],
        )
        places = axis_line(
            (side[0], side[1], side[2]),
            (region[axis], region[axis + 2]),
            scratch.position[axis],
            Line(begun, ended, hit),
            centers,
        )
        for edge in range(4):
            part[edge] = np.float64(region[edge]) + (edge >> 1)
        for i in range(places):
            part[axis + 2] = scratch.position[axis, i]
            hit[i] = space_share(model, region, part)
            if unknown and boxes > 0:
                hit[i] += CENTER_WEIGHT * (centers[i] / boxes - hit[i])
        count[axis] = places
    count[2], count[3] = boxes, whole


@kernel
def cut_axis(scratch: SplitScratch, axis: Number, places: Number, parts: Number) -> Number:
    """Cut an axis into at most ``parts`` parts; return how many splits there are."""
    line = scratch.line[axis, :, :places]
    parts = max(min(parts, places - 1), 1)
    cut = scratch.cut[: parts + 1]
    balance_cuts(line[3], cut)
    improve_cuts(Line(line[0], line[1], line[2]), cut, 1)
    for i in range(1, parts):
        scratch.split[axis, i - 1] = scratch.position[axis, cut[i]]
    return parts - 1


@kernel
def count_cell_boxes(
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    splits: tuple[Number, Number],
    scratch: SplitScratch,
) -> None:
    """Count the boxes that touch each cell, except those that contain the region.

    ``cell`` has one column and one row more than there are cells: each box changes four corners of
    it, and running sums along rows and columns give the counts.
    """
    columns, rows = splits[0] + 1, splits[1] + 1
    column_split, row_split = scratch.split[0], scratch.split[1]
    width = columns + 1
    cell = scratch.cell[: width * (rows + 1)]
    cell[:] = 0.0
    step = max(np.int64(1), np.int64(len(clauses)) // SAMPLED_BOXES)
    for i in range(0, len(clauses), step):
        box = ranked.box[clauses[i]]
        if covers_region(box, region, 0):
            continue
        west = splits_passed(column_split, 0, splits[0], box[0])
        east = splits_passed(column_split, 0, splits[0], box[2]) + 1
        south = splits_passed(row_split, 0, splits[1], box[1])
        north = splits_passed(row_split, 0, splits[1], box[3]) + 1
        cell[south * width + west] += 1.0
        cell[south * width + east] -= 1.0
        cell[north * width + west] -= 1.0
        cell[north * width + east] += 1.0
    for row in range(rows):
        for column in range(1, columns):
            cell[row * width + column] += cell[row * width + column - 1]
    for row in range(1, rows):
        for column in range(columns):
            cell[row * width + column] += cell[(row - 1) * width + column]


@kernel
def grid_cost(
    region: NDArray[np.int64],
    splits: tuple[Number, Number],
    model: HitModel,
    scratch: SplitScratch,
    boxes: Number,
    visit_cost: Number,
) -> tuple[Number, Number]:
    """Return the cost of all cells and their entries, for ``boxes`` sampled boxes."""
    columns, rows = splits[0] + 1, splits[1] + 1
    cost, entries = 0.0, 0.0
    part = np.empty(4, np.float64)
    unknown = model.below.shape[0] < 2
    for row in range(rows):
        part[1] = region[1] if row == 0 else scratch.split[1, row - 1]
        part[3] = region[3] + 1 if row == rows - 1 else scratch.split[1, row]
        for column in range(columns):
            weight = scratch.cell[row * (columns + 1) + column]
            if weight == 0.0:
                continue
            part[0] = region[0] if column == 0 else scratch.split[0, column - 1]
            part[2] = region[2] + 1 if column == columns - 1 else scratch.split[0, column]
            share = space_share(model, region, part)
            if unknown:
                share += CENTER_WEIGHT * (weight / boxes - share)
            cost += share * (weight + visit_cost)
            entries += weight
    return cost, entries


@kernel
def cut_region(
    state: NDArray[np.int64],
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    model: HitModel,
    scratch: SplitScratch,
) -> tuple[Number, Number, Number]:
    """Cut a region into a grid; return its columns and rows (0 if there is none), and its cost.

    Grids of a quarter, a sixteenth and so on of the cells are tried as well, since a clause that
    lies in many cells costs more.
    """
    count = np.empty(4, np.int64)
    measure_axes(ranked, clauses, region, model, scratch, count)
    boxes, whole = count[2], count[3]
    best, best_columns, best_rows = np.inf, np.int64(0), np.int64(0)
    if boxes == 0:
        return best_columns, best_rows, best
    scale = len(clauses) / (boxes + whole)
    visit_cost = VISIT_COST * state[LEAF_SIZE]
    parts = max_parts(state, len(clauses))
    while parts >= 2:
        columns = max(np.int64(np.sqrt(parts)), np.int64(1))
        rows = parts // columns
        splits = (
            cut_axis(scratch, 0, count[0], columns),
            cut_axis(scratch, 1, count[1], rows),
        )
        count_cell_boxes(ranked, clauses, region, splits, scratch)
        cost, entries = grid_cost(region, splits, model, scratch, boxes, visit_cost / scale)
        cost = scale * (cost + COPY_COST * max(0.0, entries - boxes) + whole)
        if whole > 0:
            cost += visit_cost
        if splits[0] + splits[1] > 0 and cost < best:
            best, best_columns, best_rows = cost, splits[0] + 1, splits[1] + 1
            for axis in range(2):
                for i in range(splits[axis]):
                    scratch.best[axis, i] = scratch.split[axis, i]
        parts >>= 2
    return best_columns, best_rows, best


# The cheaper of both (section 3.3.4).


@kernel
def choose_partition(
    state: NDArray[np.int64],
    ranked: RankedClauses,
    clauses: NDArray[np.int32],
    node: tuple[Number, NDArray[np.int64], Number],
    model: HitModel,
    scratch: SplitScratch,
) -> tuple[Number, Number, Number]:
    """Return the kind that a node is to have, its cuts or columns, and its rows.

    ``node`` is its offset, its region and its level. The scratch has the cuts of a keyword node in
    ``cut`` and the splits of a space node in ``best``.
    """
    offset, region, level = node
    max_cost = MAX_COST_SHARE * len(clauses)
    columns, rows, space_cost = np.int64(0), np.int64(0), np.inf
    if state[PREFER] != KEYWORDS:
        columns, rows, space_cost = cut_region(state, ranked, clauses, region, model, scratch)
        if len(model.motion.velocity) > 0 and columns > 0:
            space_cost += moving_cost(
                state,
                ranked,
                clauses,
                (region, level),
                model.motion,
                (columns, rows),
                (scratch.best, scratch.cell),
            )
        if state[PREFER] == SPACE and space_cost < max_cost:
            return np.int64(SPACE), columns, rows
    cuts, keyword_cost = cut_ranks(state, ranked, clauses, offset, model, scratch)
    if state[PREFER] == KEYWORDS:
        if cuts > 1 or keyword_cost < max_cost:
            return np.int64(KEYWORDS), cuts, np.int64(1)
        columns, rows, space_cost = cut_region(state, ranked, clauses, region, model, scratch)
    if min(keyword_cost, space_cost) >= max_cost:
        return np.int64(LEAF), np.int64(0), np.int64(0)
    if keyword_cost <= space_cost:
        return np.int64(KEYWORDS), cuts, np.int64(1)
    return np.int64(SPACE), columns, rows
