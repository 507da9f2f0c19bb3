"""How the region of a node is cut into a grid of unequal cells, and what that costs.

Wang et al., VLDB Journal 2015, section 3.3.3: one axis after the other, heuristically, since it
is NP-hard to find the best grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.partition import Line, axis_line, improve_cuts, spread_cuts
from nearcast.indexes.ap_tree.cost import CENTRES, COPY, SAMPLE, VISIT, Draft, Hits, most_parts
from nearcast.indexes.ap_tree.tree import LEAF_SIZE, Ranked, contains_region

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def messages_below(hits: Hits, x: Number, y: Number) -> Number:
    """Return how many messages lie to the west and south of a place."""
    up, across = hits.passed.shape[0] - 1, hits.passed.shape[1] - 1
    column = (x - hits.world[0]) / (hits.world[2] - hits.world[0]) * across
    row = (y - hits.world[1]) / (hits.world[3] - hits.world[1]) * up
    column, row = min(max(column, 0.0), across), min(max(row, 0.0), up)
    i, j = min(np.int64(column), across - 1), min(np.int64(row), up - 1)
    right, upper = column - i, row - j
    south = (1 - right) * hits.passed[j, i] + right * hits.passed[j, i + 1]
    north = (1 - right) * hits.passed[j + 1, i] + right * hits.passed[j + 1, i + 1]
    return (1 - upper) * south + upper * north


@kernel
def messages_in(hits: Hits, west: Number, south: Number, east: Number, north: Number) -> Number:
    """Return how many messages lie in a rectangle, east and north excluded."""
    northern = messages_below(hits, east, north) - messages_below(hits, west, north)
    return northern - messages_below(hits, east, south) + messages_below(hits, west, south)


@kernel
def space_share(hits: Hits, region: NDArray[np.int64], part: NDArray[np.float64]) -> Number:
    """Return with which probability a message in a region lies in a part of it.

    It is the share of the area; a sample of messages is smoothed by it, as if one more were there.
    """
    west, south = np.float64(region[0]), np.float64(region[1])
    east, north = np.float64(region[2]) + 1.0, np.float64(region[3]) + 1.0
    share = (part[2] - part[0]) / (east - west) * ((part[3] - part[1]) / (north - south))
    if hits.passed.shape[0] < 2:
        return share
    whole = messages_in(hits, west, south, east, north)
    return (messages_in(hits, part[0], part[1], part[2], part[3]) + share) / (whole + 1.0)


@kernel
def draw_axes(
    ranked: Ranked,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    hits: Hits,
    draft: Draft,
    count: NDArray[np.int64],
) -> None:
    """Write lines of both axes; ``count`` int64[4] gets the places of each, the boxes, the whole.

    Those that contain the region are counted only.
    """
    step = max(np.int64(1), np.int64(len(clauses)) // SAMPLE)
    boxes, whole = np.int64(0), np.int64(0)
    for i in range(0, len(clauses), step):
        box = ranked.box[clauses[i]]
        if contains_region(box, region):
            whole += 1
            continue
        for axis in range(2):
            begin = max(np.int64(box[axis]), region[axis])
            end = min(np.int64(box[axis + 2]), region[axis + 2])
            # What an insert put into an outermost cell may lie outside of the region.
            begin, end = min(begin, region[axis + 2]), max(end, region[axis])
            draft.side[axis, 0, boxes], draft.side[axis, 1, boxes] = begin, end
            draft.side[axis, 2, boxes] = (begin + end) >> 1
        boxes += 1
    part, unknown = np.empty(4, np.float64), hits.passed.shape[0] < 2
    for axis in range(2):
        side = draft.side[axis, :, :boxes]
        side[0].sort()
        side[1].sort()
        side[2].sort()
        along = draft.along[axis]
        line = Line(along[0], along[1], along[2])
        bounds = region[axis], region[axis + 2]
        places = axis_line((side[0], side[1], side[2]), bounds, draft.place[axis], line, along[3])
        for edge in range(4):
            part[edge] = np.float64(region[edge]) + (edge >> 1)
        for i in range(places):
            part[axis + 2] = draft.place[axis, i]
            along[2, i] = space_share(hits, region, part)
            if unknown and boxes > 0:
                along[2, i] += CENTRES * (along[3, i] / boxes - along[2, i])
        count[axis] = places
    count[2], count[3] = boxes, whole


@kernel
def cut_axis(draft: Draft, axis: Number, places: Number, parts: Number) -> Number:
    """Cut an axis into at most so many parts; return how many splits there are."""
    along = draft.along[axis, :, :places]
    line = Line(along[0], along[1], along[2])
    parts = max(min(parts, places - 1), 1)
    cut = draft.cut[: parts + 1]
    spread_cuts(along[3], cut)
    improve_cuts(line, cut, 1)
    for i in range(1, parts):
        draft.split[axis, i - 1] = draft.place[axis, cut[i]]
    return parts - 1


@kernel
def split_of(split: NDArray[np.int64], splits: Number, value: Number) -> Number:
    """Return how many splits are not above a value."""
    part = np.int64(0)
    for i in range(splits):
        part += np.int64(split[i] <= value)
    return part


@kernel
def weigh_cells(
    ranked: Ranked,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    splits: tuple[Number, Number],
    draft: Draft,
) -> None:
    """Count, by cell, the boxes that touch it, but for those that contain the region.

    ``cell`` is a table with a column and a row more than there are cells: first the differences
    between neighbours, then their sums.
    """
    columns, rows = splits[0] + 1, splits[1] + 1
    width = columns + 1
    cell = draft.cell[: width * (rows + 1)]
    cell[:] = 0.0
    step = max(np.int64(1), np.int64(len(clauses)) // SAMPLE)
    for i in range(0, len(clauses), step):
        box = ranked.box[clauses[i]]
        if contains_region(box, region):
            continue
        west = split_of(draft.split[0], splits[0], box[0])
        east = split_of(draft.split[0], splits[0], box[2]) + 1
        south = split_of(draft.split[1], splits[1], box[1])
        north = split_of(draft.split[1], splits[1], box[3]) + 1
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
    hits: Hits,
    draft: Draft,
    prices: tuple[Number, Number],
) -> tuple[Number, Number]:
    """Return what the cells cost, and how many entries they have; both as counted.

    ``prices`` are how many boxes there are, and what a visit costs.
    """
    boxes, visit = prices
    columns, rows = splits[0] + 1, splits[1] + 1
    cost, entries = 0.0, 0.0
    part = np.empty(4, np.float64)
    unknown = hits.passed.shape[0] < 2
    for row in range(rows):
        part[1] = region[1] if row == 0 else draft.split[1, row - 1]
        part[3] = region[3] + 1 if row == rows - 1 else draft.split[1, row]
        for column in range(columns):
            weight = draft.cell[row * (columns + 1) + column]
            if weight == 0.0:
                continue
            part[0] = region[0] if column == 0 else draft.split[0, column - 1]
            part[2] = region[2] + 1 if column == columns - 1 else draft.split[0, column]
            share = space_share(hits, region, part)
            if unknown:
                share += CENTRES * (weight / boxes - share)
            cost += share * (weight + visit)
            entries += weight
    return cost, entries


@kernel
def cut_region(
    state: NDArray[np.int64],
    ranked: Ranked,
    clauses: NDArray[np.int32],
    region: NDArray[np.int64],
    hits: Hits,
    draft: Draft,
) -> tuple[Number, Number, Number]:
    """Cut a region into a grid; return its columns and rows (0: none), and what it costs.

    Grids of a quarter and a sixteenth of the cells are tried as well: a clause that lies in many
    cells has a price.
    """
    count = np.empty(4, np.int64)
    draw_axes(ranked, clauses, region, hits, draft, count)
    boxes, whole = count[2], count[3]
    best, best_columns, best_rows = np.inf, np.int64(0), np.int64(0)
    if boxes == 0:
        return best_columns, best_rows, best
    scale = len(clauses) / (boxes + whole)
    parts = most_parts(state, len(clauses))
    while parts >= 2:
        columns = max(np.int64(np.sqrt(parts)), np.int64(1))
        rows = parts // columns
        splits = (
            cut_axis(draft, 0, count[0], columns),
            cut_axis(draft, 1, count[1], rows),
        )
        weigh_cells(ranked, clauses, region, splits, draft)
        prices = boxes, VISIT * state[LEAF_SIZE] / scale
        cost, entries = grid_cost(region, splits, hits, draft, prices)
        cost = scale * (cost + COPY * max(0.0, entries - boxes) + whole)
        if whole > 0:
            cost += VISIT * state[LEAF_SIZE]
        if splits[0] + splits[1] > 0 and cost < best:
            best, best_columns, best_rows = cost, splits[0] + 1, splits[1] + 1
            for i in range(splits[0]):
                draft.best[0, i] = draft.split[0, i]
            for i in range(splits[1]):
                draft.best[1, i] = draft.split[1, i]
        parts >>= 2
    return best_columns, best_rows, best
