"""Cuts of a line against all cuts that there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.columns import read_only
from nearcast.compiled.partition import Line, balance_cuts, count_cells, improve_cuts, line_cost

VALUES = st.lists(st.integers(0, 9), min_size=1, max_size=9)


def running(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def line_of(weight: list[int], hit: list[int]) -> Line:
    return Line(running(weight), running(weight), running(hit))


def cost_of(weight: list[int], hit: list[int], cut: list[int]) -> float:
    parts = pairwise(cut)
    return sum(sum(weight[a:b]) * sum(hit[a:b]) for a, b in parts)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9), st.data())
def test_improved_cuts_cannot_be_improved_one_by_one(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    weight, hit = [w for w, _ in pairs], [h for _, h in pairs]
    parts = data.draw(st.integers(1, len(pairs)))
    line = line_of(weight, hit)
    cut = np.empty(parts + 1, np.int64)
    balance_cuts(line.begun, cut)
    before = line_cost(line, cut)
    improve_cuts(line, cut, 100)
    found = cut.tolist()
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (0, len(pairs))
    cost = line_cost(line, cut)
    assert cost == cost_of(weight, hit, found) <= before
    for i in range(1, parts):
        for moved in range(found[i - 1] + 1, found[i + 1]):
            assert cost <= cost_of(weight, hit, [*found[:i], moved, *found[i + 1 :]])


@settings(deadline=None)
@given(VALUES, VALUES)
def test_two_parts_are_the_best_two(weight: list[int], hit: list[int]) -> None:
    size = min(len(weight), len(hit))
    weight, hit = weight[:size], hit[:size]
    if size < 2:
        return
    line, cut = line_of(weight, hit), np.empty(3, np.int64)
    balance_cuts(line.begun, cut)
    improve_cuts(line, cut, 1)
    best = min(cost_of(weight, hit, [0, *c, size]) for c in combinations(range(1, size), 1))
    assert line_cost(line, cut) == best


@pytest.mark.parametrize(
    ("weight", "parts", "wanted"),
    [
        ([1, 1, 1, 1], 2, [0, 2, 4]),
        ([1, 1, 1, 1, 1, 1], 3, [0, 2, 4, 6]),
        ([9, 1, 1, 1], 2, [0, 1, 4]),
        ([1, 1, 1, 9], 2, [0, 3, 4]),
        ([0, 0, 0, 0], 4, [0, 1, 2, 3, 4]),
        ([5, 5], 1, [0, 2]),
        ([9, 0, 0, 0], 3, [0, 1, 2, 4]),
    ],
)
def test_cuts_of_even_weight(weight: list[int], parts: int, wanted: list[int]) -> None:
    cut = np.empty(parts + 1, np.int64)
    balance_cuts(running(weight), cut)
    assert cut.tolist() == wanted


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=12),
    st.sets(st.integers(1, 9), max_size=3),
    st.sets(st.integers(1, 9), max_size=3),
)
def test_boxes_count_in_every_cell_that_they_meet(
    sides: list[tuple[int, ...]], columns: set[int], rows: set[int]
) -> None:
    box = [[min(w, e), min(s, n), max(w, e), max(s, n)] for w, s, e, n in sides]
    count = np.zeros((len(rows) + 1, len(columns) + 1), np.int64)
    count_cells(
        read_only(np.array(box, np.int32), np.int32, 4),
        read_only(sorted(columns), np.int32),
        read_only(sorted(rows), np.int32),
        count,
    )
    x, y = [0, *sorted(columns), 10], [0, *sorted(rows), 10]
    for j in range(len(y) - 1):
        for i in range(len(x) - 1):
            cell = {(a, b) for a in range(x[i], x[i + 1]) for b in range(y[j], y[j + 1])}
            met = [any(w <= a <= e and s <= b <= n for a, b in cell) for w, s, e, n in box]
            assert count[j, i] == sum(met)
