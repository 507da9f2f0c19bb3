"""What changes come to, held against an interpreter that takes them one at a time."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.columns import Clauses, Shapes, Subscriptions
from nearcast.intake import subscriptions_from
from nearcast.model import Circle, Polygon, Rect, Subscription
from nearcast.spark.workers.effects import OPERATIONS, net_effects, with_places
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from nearcast.model import Region

IDS = 4
SQUARE = [[(0, 0), (10, 0), (10, 10), (0, 10)], [(3, 3), (6, 3), (6, 6), (3, 6)]]
PLACES: list[Region] = [
    Rect(0, 0, 1, 1),
    Rect(170, -10, -170, 10),
    Rect(180, -10, -180, 10),
    Rect(-180, -90, 180, 90),
    Circle(180, 0, 0.0),
    Circle(13.4, 52.5, 0.0),
    Circle(13.4, 52.5, 500.0),
    Circle(179.99, 10, 100_000.0),
    Circle(0, 89.9, 100_000.0),
    Polygon(SQUARE),
    Polygon([SQUARE, [[(20, 0), (30, 0), (25, 10)]]]),
    Polygon([[(170, 0), (190, 0), (180, 10)]]),
]
WANTS: list[dict[str, Any]] = [
    {},
    {"keywords": ["tea"]},
    {"keywords": ["flat white", "cake"]},
    {"expression": "tea OR milk"},
    {"expression": "tea AND NOT milk"},
    {"expression": "(tea OR milk OR cake) AND (hot OR iced) AND NOT sugar"},
    {"keywords": ["tea"], "owner": "ann", "expires_at": 1_700_000_000},
    {"expression": "milk OR cake NOT tea", "owner": "bob"},
]


class Naive:
    """Takes changes one at a time, into a dictionary of what is there."""

    def __init__(self, existed: list[bool]) -> None:
        self.before = {one: (-1, -1) for one, was in enumerate(existed) if was}
        self.now = dict(self.before)
        self.rejected: dict[int, str] = {}
        self.taken = dict.fromkeys(OPERATIONS, 0)

    def take(self, row: int, one: int, operation: str) -> None:
        if operation == "insert" and one in self.now:
            self.rejected[row] = "is registered already; delete it first, or move it"
            return
        if operation != "insert" and one not in self.now:
            self.rejected[row] = "is not registered"
            return
        self.taken[operation] += 1
        if operation == "insert":
            self.now[one] = (row, row)
        elif operation == "delete":
            del self.now[one]
        else:
            self.now[one] = (self.now[one][0], row)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, IDS - 1), st.integers(0, 2)), max_size=25),
    st.lists(st.booleans(), min_size=IDS, max_size=IDS),
    st.randoms(use_true_random=False),
)
def test_changes_come_to_what_they_do_one_at_a_time(
    rows: list[tuple[int, int]], existed: list[bool], random: Any
) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    effects = net_effects(
        np.array([one for one, _ in rows], np.int32),
        np.array([what for _, what in rows], np.int8),
        np.array(order, np.int64),
        np.array(existed, np.bool_),
    )
    naive = Naive(existed)
    for row in order:
        one, what = rows[row]
        naive.take(row, one, OPERATIONS[what])
    assert effects.rejected == naive.rejected
    assert effects.taken == naive.taken
    assert sum(effects.taken.values()) + len(effects.rejected) == len(rows)
    assert np.flatnonzero(effects.exists).tolist() == sorted(naive.now)
    for one, (wants, place) in naive.now.items():
        assert (effects.condition[one], effects.place[one]) == (wants, place)
    for one in range(IDS):
        assert effects.changed[one] == (naive.now.get(one) != naive.before.get(one))


def test_no_changes_of_no_ids_come_to_nothing() -> None:
    nothing = np.empty(0, np.int64)
    effects = net_effects(
        nothing.astype(np.int32), nothing.astype(np.int8), nothing, np.empty(0, np.bool_)
    )
    assert len(effects.exists) == len(effects.changed) == len(effects.condition) == 0
    assert effects.changed.dtype == np.bool_
    assert effects.taken == {"insert": 0, "delete": 0, "move": 0}


def same(one: Any, other: Any) -> bool:
    """Whether two sets of arrays are alike, the arrays of their arrays included."""
    if isinstance(one, Clauses | Shapes):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def read(rows: list[tuple[dict[str, Any], Region]]) -> Subscriptions:
    given_ones = [Subscription(f"s{n}", place, **what) for n, (what, place) in enumerate(rows)]
    return subscriptions_from(given_ones, Vocabulary())


def check_moved(what: list[dict[str, Any]], before: list[Region], after: list[Region]) -> None:
    old = read(list(zip(what, before, strict=True)))
    places = read([({}, place) for place in after])
    moved = with_places(old, places)
    wanted = read(list(zip(what, after, strict=True)))
    assert same(moved.clauses, wanted.clauses)
    assert moved.ids.tolist() == wanted.ids.tolist()
    assert moved.expires_us.tolist() == wanted.expires_us.tolist()
    assert moved.owner == wanted.owner


@pytest.mark.parametrize("place", PLACES, ids=lambda place: repr(place)[:30])
def test_everything_moves_to_any_place_from_any_other(place: Region) -> None:
    what = [w for w in WANTS for _ in PLACES]
    check_moved(what, PLACES * len(WANTS), [place] * len(what))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(WANTS), st.sampled_from(PLACES), st.sampled_from(PLACES)),
        max_size=8,
    )
)
def test_rows_move_each_to_its_own_place(rows: list[tuple[Any, Any, Any]]) -> None:
    check_moved([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
