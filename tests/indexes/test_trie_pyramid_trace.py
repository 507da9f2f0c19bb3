"""Tracing a message through a trie-pyramid: the walk ends where the index itself does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import Clauses, Messages
from nearcast.indexes.boolean import Linear
from nearcast.indexes.trie_pyramid import TriePyramid

if TYPE_CHECKING:
    from nearcast.indexes.tracing import TracedBox, TracedNode

WIDE = 1_800_000_000


def drawn(seed: int, clauses: int, tokens: int = 12) -> Clauses:
    """Return clauses of few tokens, on a lattice of places; some have no token at all."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(-8, 8, (clauses, 2)) * [200_000_000, 100_000_000]
    size = rng.integers(0, 5, (clauses, 2)) * [50_000_000, 30_000_000]
    lists = [
        sorted(set(rng.integers(0, tokens, rng.integers(0, 4)).tolist())) for _ in range(clauses)
    ]
    return Clauses.of(lists, np.concatenate([corner, corner + size], axis=1))


def messages(seed: int, count: int, tokens: int = 12) -> Messages:
    """Return messages on the same lattice, points and boxes."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(-8, 8, (count, 2)) * [200_000_000, 100_000_000]
    size = rng.integers(0, 2, (count, 1)) * [60_000_000, 40_000_000]
    lists = [
        sorted(set(rng.integers(0, tokens, rng.integers(0, 7)).tolist())) for _ in range(count)
    ]
    return Messages.of(lists, np.concatenate([corner, corner + size], axis=1))


def is_inside(box: TracedBox, outer: TracedBox) -> bool:
    west, south, east, north = box.box
    return (
        outer.box[0] <= west
        and outer.box[1] <= south
        and outer.box[2] >= east
        and outer.box[3] >= north
    )


def check_boxes(node: TracedNode, window: list[int]) -> None:
    """Check that what overlaps the message is opened, and lies in larger boxes that are opened."""
    opened = [box for box in node.boxes if box.opened]
    largest = max(box.level for box in node.boxes)
    for box in node.boxes:
        west, south, east, north = box.box
        beside = west > window[2] or south > window[3] or east < window[0] or north < window[1]
        assert box.opened or beside
        above = [outer for outer in opened if outer.level > box.level]
        assert box.level == largest or any(is_inside(box, outer) for outer in above)


@pytest.mark.parametrize(
    "options",
    [{}, {"child_size": 0}, {"list_size": 2, "child_size": 0}, {"list_size": 3}],
    ids=["usual", "all children", "deep", "deep pyramids"],
)
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_with_the_clauses_that_the_index_finds(options: dict[str, Any], seed: int) -> None:
    clauses = drawn(seed, 600)
    index = indexes.create("trie-pyramid", **options).build(clauses)
    assert isinstance(index, TriePyramid)
    batch = messages(seed + 100, 60)
    total = 0
    for at in range(len(batch)):
        one = batch.take(np.array([at]))
        found, nodes = index.find(one), index.trace(one)
        traced = [clause for node in nodes for clause in node.found]
        assert sorted(traced) == sorted(found.clause.tolist())
        assert sum(node.examined for node in nodes) == found.examined
        total += len(traced)
        own = set(one.token.tolist())
        for node in nodes:
            assert own.issuperset(node.tokens)
            assert node.examined == sum(box.level == 0 for box in node.boxes) <= node.clauses
            check_boxes(node, one.box[0].tolist())
            for clause in node.found:
                first, last = clauses.token_start[clause : clause + 2]
                assert set(node.tokens) <= set(clauses.token[first:last].tolist()) <= own
    assert total > 50


def test_children_are_reached_by_the_words_above_them() -> None:
    clauses = drawn(7, 400, tokens=4)
    index = indexes.create("trie-pyramid", child_size=0).build(clauses)
    everything = Messages.of([[0, 1, 2, 3]], [[-WIDE, -900_000_000, WIDE - 1, 900_000_000]])
    nodes = index.trace(everything)
    assert nodes is not None
    paths = [node.tokens for node in nodes]
    assert len(paths) == len(set(paths))
    assert max(map(len, paths)) > 1
    assert () in paths
    assert sorted(c for node in nodes for c in node.found) == list(range(len(clauses)))


def test_a_message_across_the_antimeridian_is_two() -> None:
    box = [[WIDE - 1000, 0, WIDE, 1000], [-WIDE, 0, -WIDE + 1000, 1000], [0, 0, 1000, 1000]]
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * 3, box))
    across = Messages.of([[1]], [[WIDE - 500, 0, -WIDE + 500, 500]])
    nodes = index.trace(across)
    assert nodes is not None
    assert [node.found for node in nodes] == [(0,), (1,)]


def test_the_small_form_compares_everything() -> None:
    clauses = drawn(3, 300)
    index = indexes.create("trie-pyramid").build_small(clauses)
    assert isinstance(index, Linear)
    batch = messages(5, 60)
    total = 0
    for at in range(len(batch)):
        one = batch.take(np.array([at]))
        found, [node] = index.find(one), index.trace(one)
        assert sorted(node.found) == sorted(found.clause.tolist())
        assert node.examined == found.examined == sum(box.opened for box in node.boxes)
        assert (node.tokens, node.clauses, len(node.boxes)) == ((), 300, 300)
        total += len(node.found)
    assert total > 20


def test_other_indexes_say_that_they_cannot_tell() -> None:
    clauses, one = drawn(1, 50), messages(2, 1)
    others = [name for name in indexes.names("boolean") if name != "trie-pyramid"]
    assert len(others) > 5
    for name in others:
        assert indexes.create(name).build(clauses).trace(one) is None
