"""The cost model: what partitions cost, and that the cuts found cost little."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import WORLD
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput
from nearcast.indexes.cost_model import (
    cell_counts,
    cell_shares,
    cut_keywords,
    cut_space,
    keyword_hits,
    optimal_keywords,
    partition_cost,
    smoothed,
)

RNG = np.random.default_rng(5)


def test_the_paper_s_special_case() -> None:
    """Where hits follow weights, parts of equal weight are the best (equation 4)."""
    weight = np.full(12, 5)
    found = cut_keywords(weight, keyword_hits(weight), 4)
    assert found.cut.tolist() == [0, 3, 6, 9, 12]
    assert found.cost == pytest.approx(4 * 15 * 15 / 60)


def test_keywords_that_messages_hit_often_have_few_clauses_beside_them() -> None:
    weight = np.array([10, 10, 10, 10])
    often_last = keyword_hits(weight, np.array([0, 0, 0, 100]), 100)
    assert cut_keywords(weight, often_last, 2).cut.tolist() == [0, 3, 4]
    often_first = keyword_hits(weight, np.array([100, 0, 0, 0]), 100)
    assert cut_keywords(weight, often_first, 2).cut.tolist() == [0, 1, 4]


def test_fewer_keywords_than_cuts() -> None:
    assert cut_keywords(np.array([3]), np.array([1.0]), 5).cut.tolist() == [0, 1]
    assert cut_keywords(np.array([3, 4]), np.array([0.5, 0.5]), 5).cut.tolist() == [0, 1, 2]


@pytest.mark.parametrize("cuts", [2, 3])
def test_heuristic_cuts_are_near_the_best(cuts: int) -> None:
    for _ in range(20):
        size = 14
        weight, hit = RNG.integers(1, 50, size), RNG.random(size)
        found = cut_keywords(weight, hit, cuts, rounds=5)
        best = min(
            partition_cost(np.add.reduceat(weight, [0, *inner]), np.add.reduceat(hit, [0, *inner]))
            for inner in combinations(range(1, size), cuts - 1)
        )
        assert best - 1e-9 <= found.cost <= 1.1 * best


LINES = st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1, width=16)), min_size=1, max_size=9)


@given(LINES, st.integers(1, 6))
@settings(max_examples=examples(150 if JIT else 40), deadline=None)
def test_optimal_cuts_are_the_best_of_all(pairs: list[tuple[int, float]], cuts: int) -> None:
    weight, hit = np.array([w for w, _ in pairs]), np.array([h for _, h in pairs])
    found = optimal_keywords(weight, hit, cuts)
    parts = min(cuts, len(pairs))
    assert len(found.cut) == parts + 1
    assert (np.diff(found.cut) > 0).all()
    best = min(
        partition_cost(np.add.reduceat(weight, [0, *inner]), np.add.reduceat(hit, [0, *inner]))
        for inner in combinations(range(1, len(pairs)), parts - 1)
    )
    assert found.cost == pytest.approx(best, rel=1e-12, abs=1e-12)


@given(st.integers(0, 1 << 32), st.integers(1, 200), st.integers(1, 40))
@settings(max_examples=examples(100 if JIT else 20), deadline=None)
def test_optimal_cuts_never_cost_more_than_heuristic_ones(seed: int, size: int, cuts: int) -> None:
    rng = np.random.default_rng(seed)
    size = size if JIT else 1 + size % 30
    weight = (rng.pareto(1.0, size) * 5).astype(np.int64)
    hit = keyword_hits(weight) if seed % 2 else rng.pareto(1.5, size) / size
    found = optimal_keywords(weight, hit, cuts)
    assert found.cost <= cut_keywords(weight, hit, cuts).cost * (1 + 1e-12) + 1e-12


def test_nothing_has_probability_0() -> None:
    hit = keyword_hits(np.array([1, 1, 2]), np.array([0, 7, 0]), 7)
    assert hit.tolist() == [0.25 / 8, 7.25 / 8, 0.5 / 8]
    assert smoothed([0], 0, [0.3]).tolist() == [0.3]
    assert keyword_hits(np.zeros(2)).tolist() == [0, 0]


def test_space_is_cut_between_clusters() -> None:
    corner = np.concatenate([RNG.integers(0, 20, (50, 2)), RNG.integers(70, 90, (50, 2))])
    box = np.concatenate([corner, corner + 5], axis=1).astype(np.int32)
    found = cut_space(box, (0, 0, 99, 99), 2, 2)
    assert 20 <= found.column[0] <= 75
    assert 20 <= found.row[0] <= 75
    counts = cell_counts(box, found.column, found.row)
    assert counts.tolist() == [[50, 0], [0, 50]]
    shares = cell_shares((0, 0, 99, 99), found.column, found.row)
    assert shares.sum() == pytest.approx(1)
    assert found.cost == pytest.approx(partition_cost(counts, shares))


def test_messages_move_the_cuts() -> None:
    corner = np.arange(0, 100, 2)
    box = np.stack([corner, corner * 0, corner + 1, corner * 0], axis=1).astype(np.int32)
    places = np.array([[10, 0, 10, 0]] * 100, np.int32)
    alone = cut_space(box, (0, 0, 99, 0), 2, 1)
    crowded = cut_space(box, (0, 0, 99, 0), 2, 1, places)
    assert alone.column.tolist() == [50]
    assert crowded.column[0] < 20
    assert crowded.cost < alone.cost


def test_boxes_that_contain_the_region_count_whole() -> None:
    box = np.array([WORLD] * 7, np.int32)
    found = cut_space(box, WORLD, 4, 4)
    assert len(found.column) == len(found.row) == 0
    assert found.cost == 7
    assert cut_space(np.empty((0, 4), np.int32), WORLD, 2, 2).cost == 0


@given(
    st.lists(st.tuples(*[st.integers(0, 30)] * 4), max_size=25),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=9),
    st.integers(1, 5),
    st.integers(1, 5),
)
@settings(max_examples=examples(80 if JIT else 20), deadline=None)
def test_any_grid_is_sound(
    sides: list[tuple[int, ...]], points: list[tuple[int, int]], columns: int, rows: int
) -> None:
    box = np.array(
        [[min(w, e), min(s, n), max(w, e), max(s, n)] for w, s, e, n in sides], np.int32
    ).reshape(-1, 4)
    places = np.array([[x, y, x, y] for x, y in points], np.int32).reshape(-1, 4)
    region = (0, 0, 30, 30)
    found = cut_space(box, region, columns, rows, places, rounds=3)
    for split, most in ((found.column, columns), (found.row, rows)):
        assert len(split) < most
        assert (np.diff(split) > 0).all()
        assert ((split > 0) & (split <= 30)).all()
    whole = (box == region).all(axis=1)
    counts = cell_counts(box[~whole], found.column, found.row)
    shares = cell_shares(region, found.column, found.row)
    hit = smoothed(cell_counts(places, found.column, found.row), len(places), shares)
    assert found.cost == pytest.approx(partition_cost(counts, hit) + whole.sum())


def test_numbers_that_cannot_be() -> None:
    with pytest.raises(InvalidInput, match="cuts: must be at least 1"):
        cut_keywords(np.ones(3), np.ones(3), 0)
    with pytest.raises(InvalidInput, match="cuts: must be at least 1"):
        optimal_keywords(np.ones(3), np.ones(3), 0)
    with pytest.raises(InvalidInput, match="rows: must be at least 1"):
        cut_space(np.empty((0, 4), np.int32), WORLD, 1, 0)
