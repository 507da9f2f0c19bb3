"""The grids: cells that come later, moves in and along cells, places outside, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.columns import Clauses, Messages
from nearcast.errors import InvalidInput
from nearcast.indexes import moving
from nearcast.indexes.moving.grids import GridOptions
from nearcast.testing.moving_checks import Lockstep

from .sweeping import SweepingKkIndex, SweepingSsIndex

if TYPE_CHECKING:
    from nearcast.indexes.moving import MovingBuilder

NAMES = ["ss-index", "kk-index"]
SIDE = 900
"""The clauses of `spanned` are within 0 and `SIDE`, so a grid of 3 by 3 has borders at 300, 600."""


def spanned(tokens: list[list[int]], boxes: list[list[int]]) -> Clauses:
    """Return clauses after two that span the extent, so that it is known where cells are."""
    corners = [[0, 0, 1, 1], [SIDE - 2, SIDE - 2, SIDE - 1, SIDE - 1]]
    return Clauses.of([[99], [99], *tokens], [*corners, *boxes])


def every_point(step: int, tokens: list[int]) -> Messages:
    """Return messages all over the extent and a little outside of it."""
    places = [[x, y] for x in range(-step, SIDE + 2 * step, step) for y in range(-step, SIDE, step)]
    return Messages.of([tokens] * len(places), places)


def boxes(*rows: list[int]) -> Any:
    return np.array(rows, np.int32).reshape(-1, 4)


@pytest.fixture(params=NAMES)
def builder(request: pytest.FixtureRequest) -> MovingBuilder:
    return moving.create(request.param, size=3)


def test_a_move_inside_of_a_cell(builder: MovingBuilder) -> None:
    steps = Lockstep(builder, spanned([[1]], [[310, 310, 350, 350]]))
    steps.publish(every_point(10, [1]))
    steps.move([2], boxes([330, 330, 370, 370]))
    steps.move([2], boxes([331, 329, 371, 369]))


def test_moves_along_the_borders_of_cells(builder: MovingBuilder) -> None:
    steps = Lockstep(builder, spanned([[1]], [[0, 0, 0, 0]]))
    near = [298, 299, 300, 301, 599, 600, 601]
    steps.publish(Messages.of([[1]] * len(near) ** 2, [[x, y] for x in near for y in near]))
    for west in near:
        for east in near[near.index(west) :]:
            steps.move([2], boxes([west, 299, east, 300]))
            steps.move([2], boxes([299, west, 300, east]))


def test_cells_inside_of_both_boxes_are_not_read(builder: MovingBuilder) -> None:
    fine = moving.create(builder.index.name, size=30)
    steps = Lockstep(fine, spanned([[1]], [[10, 10, 850, 850]]))
    steps.publish(every_point(15, [1]))
    examined, visited = steps.index.examined, steps.index.visited
    steps.move([2], boxes([20, 20, 860, 860]))
    assert steps.index.visited - visited <= 4 * 30 * 2
    assert steps.index.examined - examined <= 4 * 60


def test_messages_and_clauses_outside_of_the_extent(builder: MovingBuilder) -> None:
    steps = Lockstep(builder, spanned([[1], [1]], [[0, 0, 500, 500], [400, 400, 899, 899]]))
    far = [-(10**9), -5, 0, 450, 899, 905, 10**9]
    steps.publish(Messages.of([[1]] * 49, [[x, y // 2] for x in far for y in far]))
    steps.move([2, 3], boxes([-(10**9), -(10**8), -4, 10**8], [890, 0, 10**9, 10**8]))
    steps.move([2, 3], boxes([906, 906, 10**9, 10**8], [-(10**9), 899, 10**9, 899]))
    steps.delete([2])


def test_clauses_that_come_find_messages_of_new_tokens_and_cells(builder: MovingBuilder) -> None:
    steps = Lockstep(builder, spanned([], []))
    steps.publish(every_point(60, [5, 7]))
    steps.insert(Clauses.of([[7], [5, 7], [], [5, 8]], [[100, 100, 700, 200]] * 4))
    steps.publish(every_point(90, [5, 8]))
    steps.move([2, 3, 4, 5], boxes(*[[0, 300, 899, 600]] * 4))


def test_a_clause_without_tokens_finds_messages_that_came_before(builder: MovingBuilder) -> None:
    steps = Lockstep(builder, spanned([], []))
    steps.publish(Messages.of([[], [3], [4, 5]], [[10, 10], [500, 500], [800, 20]]))
    steps.insert(Clauses.of([[]], [[0, 0, 600, 600]]))
    steps.publish(Messages.of([[], [3]], [[550, 10], [700, 20]]))
    steps.delete([2])
    steps.publish(Messages.of([[]], [[550, 10]]))
    steps.insert(Clauses.of([[]], [[0, 0, 899, 899]]))


def test_a_grid_that_begins_empty_gets_the_extent_of_its_clauses(builder: MovingBuilder) -> None:
    steps = Lockstep(builder, Clauses.empty())
    steps.publish(every_point(90, [1]))
    rng = np.random.default_rng(3)
    low = rng.integers(0, 800, (300, 2))
    steps.insert(Clauses.of([[1]] * 300, np.concatenate([low, low + 90], axis=1)))
    before = steps.index.visited
    steps.move([0], boxes([10, 10, 80, 80]))
    assert steps.index.visited - before <= 9
    steps.publish(every_point(70, [1, 2]))
    steps.move(list(range(300)), np.concatenate([low + 5, low + 99], axis=1).astype(np.int32))


@pytest.mark.parametrize("index", [SweepingSsIndex, SweepingKkIndex])
def test_memory_is_flat_when_tokens_never_return(index: type[Any]) -> None:
    grid = index.build(spanned([[1]], [[0, 0, 500, 500]]), GridOptions(size=3))
    rng = np.random.default_rng(1)
    sizes = []
    lasting, _ = grid.publish(Messages.of([[1]], [[3, 3]]))
    for tick in range(100):
        tokens = [[1, 1000 * tick + i, 500_000 + 1000 * tick + i] for i in range(50)]
        numbers, _ = grid.publish(Messages.of(tokens, rng.integers(0, SIDE, (50, 2))))
        grid.move(np.array([2]), boxes([tick, 0, 500 + tick, 500]))
        grid.expire(numbers)
        sizes.append(grid.nbytes)
    assert max(sizes[50:]) <= 1.25 * max(sizes[10:50])
    assert grid.expire(lasting).triples() == set()


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInput):
        moving.create("ss-index", size=0)
