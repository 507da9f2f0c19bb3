"""Flat arrays: taking rows, putting parts together, cutting at the antimeridian."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.columns import WORLD, Clauses, Ids, Messages, Shapes, Subscriptions
from nearcast.errors import InvalidInput
from nearcast.testing import CASES, draw
from nearcast.testing import strategies as drawn


def rows_of(clauses: Clauses) -> list[tuple[Any, ...]]:
    """Return the clauses as plain values, without the numbering of shapes."""

    def piece(start: np.ndarray, content: np.ndarray, c: int) -> list[int]:
        return [int(v) for v in content[start[c] : start[c + 1]]]

    def shape(c: int) -> object:
        s, shapes = int(clauses.shape[c]), clauses.shapes
        if s < 0:
            return None
        rings = range(shapes.ring_start[s], shapes.ring_start[s + 1])
        points = [
            shapes.point[shapes.point_start[r] : shapes.point_start[r + 1]].tolist() for r in rings
        ]
        return float(shapes.radius_m[s]), points

    return [
        (
            int(clauses.row[c]),
            piece(clauses.token_start, clauses.token, c),
            piece(clauses.negative_start, clauses.negative, c),
            clauses.box[c].tolist(),
            shape(c),
        )
        for c in range(len(clauses))
    ]


@pytest.mark.parametrize("case", CASES)
def test_parts_put_together_are_the_whole(case: str) -> None:
    clauses = draw(case).clauses
    rows = np.arange(clauses.subscriptions)
    parts = [clauses.take(rows[:7]), clauses.take(rows[7:7]), clauses.take(rows[7:])]
    assert rows_of(Clauses.concatenate(parts)) == rows_of(clauses)


@given(clauses=drawn.clauses(), chosen=st.sets(st.integers(0, 29)))
def test_take_keeps_the_chosen_and_renumbers(clauses: Clauses, chosen: set[int]) -> None:
    rows = np.array(sorted(c for c in chosen if c < clauses.subscriptions), np.int64)
    taken = clauses.take(rows)
    expected = [row for row in rows_of(clauses) if row[0] in rows]
    back = [(int(rows[row[0]]), *row[1:]) for row in rows_of(taken)]
    assert back == expected
    assert taken.subscriptions == len(rows)


@given(messages=drawn.messages())
def test_pieces_do_not_cross_and_cover_the_message(messages: Messages) -> None:
    pieces, message_of = messages.cut()
    assert not pieces.wraps.any()
    for m in range(len(messages)):
        west, south, east, north = messages.box[m].tolist()
        own = pieces.box[message_of == m].tolist()
        if west <= east:
            assert own == [[west, south, east, north]]
        else:
            assert own == [[west, south, WORLD[2], north], [WORLD[0], south, east, north]]


def test_columns_are_read_only_and_pickle() -> None:
    clauses = pickle.loads(pickle.dumps(draw("polygons").clauses))
    assert rows_of(clauses) == rows_of(draw("polygons").clauses)
    with pytest.raises(ValueError, match="read-only"):
        clauses.box[0, 0] = 1


def test_lengths_must_agree() -> None:
    with pytest.raises(InvalidInput, match="box: must have one row per clause, 1"):
        Clauses.of([[1]], [[0, 0, 1, 1], [0, 0, 1, 1]])


def test_plain_clauses_need_no_finish() -> None:
    box = [[0, 0, 1, 1], [0, 0, 1, 1]]
    circle = Shapes(np.ones(1), np.array([0, 1]), np.array([0, 1]), np.zeros((1, 2), np.int32))
    assert Clauses.of([[1], [2]], box).plain
    assert not Clauses.of([[1], [2]], box, row=[0, 0]).plain
    assert not Clauses.of([[1]], box[:1], row=[1]).plain
    assert not Clauses.of([[1], [2]], box, negatives=[[3], []]).plain
    assert not Clauses.of([[1], [2]], box, shape=[-1, 0], shapes=circle).plain


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(min_size=1), max_size=20))
def test_ids_come_back_as_given(values: list[str | int]) -> None:
    ids = Ids.of(values)
    assert ids.tolist() == values
    assert Ids.concatenate([ids, ids]).tolist() == values + values
    assert ids.take(np.arange(len(values))[::-1]).tolist() == values[::-1]
    kinds = {type(v) for v in values}
    if len(kinds) == 1:
        assert ids.to_arrow().to_pylist() == values


def test_subscriptions_carry_expiry_and_owner() -> None:
    import pyarrow as pa

    clauses = Clauses.of([[1], [2]], [[0, 0, 1, 1]] * 2)
    plain = Subscriptions(ids=Ids.of([1, 2]), clauses=clauses, expires_us=np.array([5, 6]))
    owned = Subscriptions(
        ids=Ids.of(["a", "b"]),
        clauses=clauses,
        expires_us=np.array([7, 8]),
        owner=pa.array(["x", None]),
    )
    both = Subscriptions.concatenate([plain, owned])
    assert both.ids.tolist() == [1, 2, "a", "b"]
    assert both.expires_us.tolist() == [5, 6, 7, 8]
    assert both.owner is not None
    assert both.owner.to_pylist() == [None, None, "x", None]
    assert both.take(np.array([2])).ids.tolist() == ["a"]
