"""The moving quadtrees: splits with messages, closed cells, moves along cell borders, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast.columns import Clauses, Messages
from nearcast.indexes import moving
from nearcast.indexes.moving.quadtrees.index import MovingQuadIndex
from nearcast.indexes.quadtrees import IqTreeOptions, RqTreeOptions
from nearcast.indexes.quadtrees.layout import NODES
from nearcast.testing.moving_checks import Lockstep

from .sweeping import SweepingIqPlusTree, SweepingRqPlusTree

if TYPE_CHECKING:
    from nearcast.indexes.moving import MovingBuilder

QUARTER = 1 << 29
"""Cells of level 2 are twice as wide, and as high, as this."""

TINY: dict[str, Any] = {"list_size": 2, "update_cost": 1e-9}


@pytest.fixture(params=["iq+-tree", "rq+-tree"])
def builder(request: pytest.FixtureRequest) -> MovingBuilder:
    return moving.create(request.param, **TINY)


def nodes_of(steps: Lockstep) -> int:
    assert isinstance(steps.index, MovingQuadIndex)
    return int(steps.index._quad.state[NODES])


def boxes(*rows: list[int]) -> Any:
    return np.array(rows, np.int32).reshape(-1, 4)


def scattered(rng: np.random.Generator, count: int, reach: int) -> Any:
    return rng.integers(-reach, reach, (count, 2))


def test_a_split_deals_messages_to_the_children(builder: MovingBuilder) -> None:
    rng = np.random.default_rng(1)
    steps = Lockstep(builder, Clauses.of([[1]], [[-9, -9, 9, 9]]))
    steps.publish(Messages.of([[1], [1, 2]] * 100, scattered(rng, 200, QUARTER)))
    steps.expire(list(range(0, 200, 3)))
    before = nodes_of(steps)
    low = scattered(rng, 40, QUARTER)
    steps.insert(Clauses.of([[1]] * 40, np.concatenate([low, low + 10**7], axis=1)))
    assert nodes_of(steps) > before
    steps.move(list(range(1, 41)), np.concatenate([-low, -low + 10**7], axis=1).astype(np.int32))
    steps.publish(Messages.of([[1]] * 100, scattered(rng, 100, QUARTER)))
    steps.delete(list(range(0, 41, 2)))


def test_moves_split_cells(builder: MovingBuilder) -> None:
    rng = np.random.default_rng(2)
    low = scattered(rng, 60, QUARTER)
    steps = Lockstep(
        builder, Clauses.of([[1], [1, 2]] * 30, np.concatenate([low, low + 10**6], axis=1))
    )
    steps.publish(Messages.of([[1, 2]] * 200, scattered(rng, 200, 10**6)))
    before = nodes_of(steps)
    near = scattered(rng, 60, 10**6)
    steps.move(list(range(60)), np.concatenate([near, near + 10**5], axis=1).astype(np.int32))
    assert nodes_of(steps) > before
    steps.move(list(range(60)), np.concatenate([low, low + 10**6], axis=1).astype(np.int32))


def test_moves_along_the_borders_of_cells(builder: MovingBuilder) -> None:
    lines = [line + d for line in (-QUARTER, 0, QUARTER) for d in (-1, 0, 1)]
    low = [[x, y] for x in lines for y in lines]
    steps = Lockstep(builder, Clauses.of([[1]] * len(low), [[*at, *at] for at in low]))
    steps.publish(Messages.of([[1]] * len(low), low))
    for i in range(len(lines)):
        for j in range(i, len(lines)):
            steps.move([i, j + 9], boxes(*[[lines[i], -1, lines[j], 1]] * 2))
            steps.move([i, j + 9], boxes(*[[-1, lines[i], 1, lines[j]]] * 2))


def test_a_clause_that_comes_to_a_closed_cell_finds_its_messages(builder: MovingBuilder) -> None:
    # All clauses are in one city: most cells of the chain that leads there are closed.
    rng = np.random.default_rng(3)
    low = 10**8 + scattered(rng, 300, 10**5)
    steps = Lockstep(builder, Clauses.of([[1]] * 300, np.concatenate([low, low + 10**4], axis=1)))
    assert isinstance(steps.index, MovingQuadIndex)
    assert not steps.index._is_open.writable.all()
    steps.publish(Messages.of([[1, 2]] * 60, 10**8 + scattered(rng, 60, 10**5)))
    steps.publish(Messages.of([[1]] * 60, scattered(rng, 60, QUARTER)))
    steps.publish(Messages.of([[1]], [[QUARTER, QUARTER]]))
    steps.move(list(range(0, 300, 7)), np.concatenate([-low, -low + 10**4], axis=1)[::7])
    steps.move([1], boxes([-(10**9), -(10**8), 10**9, 10**8]))
    steps.move([2], boxes([QUARTER - 5, QUARTER - 5, QUARTER + 5, QUARTER + 5]))
    steps.insert(Clauses.of([[1], [], [2]], [[-QUARTER, -QUARTER, QUARTER, QUARTER]] * 3))
    steps.delete([0, 1, 2, 3])


def test_a_token_whose_clauses_are_gone_keeps_its_quadtree_filled() -> None:
    rng = np.random.default_rng(4)
    low = scattered(rng, 30, QUARTER)
    box = np.concatenate([low, low + 10**6], axis=1)
    steps = Lockstep(
        moving.create("rq+-tree", **TINY),
        Clauses.of([[1]] * 30 + [[2]] * 99, [*box, *[[0, 0, 1, 1]] * 99]),
    )
    steps.delete(list(range(30)))
    steps.publish(Messages.of([[1]] * 60, np.concatenate([low, low + 5])))
    steps.insert(Clauses.of([[1]] * 30, box))


def test_growing_from_nothing(builder: MovingBuilder) -> None:
    rng = np.random.default_rng(5)
    steps = Lockstep(builder, Clauses.empty())
    for _ in range(6):
        steps.publish(Messages.of([[1], [2, 3], []] * 10, scattered(rng, 30, QUARTER)))
        low = scattered(rng, 30, QUARTER)
        steps.insert(
            Clauses.of([[1], [2], [2, 3]] * 10, np.concatenate([low, low + 10**8], axis=1))
        )


@pytest.mark.parametrize(
    ("index", "options"),
    [
        (SweepingIqPlusTree, IqTreeOptions(**TINY)),
        (SweepingRqPlusTree, RqTreeOptions(**TINY)),
    ],
)
def test_memory_is_flat_when_tokens_never_return(index: type[Any], options: Any) -> None:
    rng = np.random.default_rng(6)
    low = scattered(rng, 40, QUARTER)
    clauses = Clauses.of([[1]] * 40, np.concatenate([low, low + 10**6], axis=1))
    tree = index.build(clauses, options)
    sizes = []
    for tick in range(100):
        tokens = [[1, 1000 * tick + i, 500_000 + 1000 * tick + i] for i in range(40)]
        numbers, _ = tree.publish(Messages.of(tokens, scattered(rng, 40, QUARTER)))
        tree.move(np.arange(40), np.concatenate([low, low + 10**6 + tick], axis=1))
        tree.expire(numbers)
        sizes.append(tree.nbytes)
    assert max(sizes[50:]) <= 1.25 * max(sizes[10:50])
