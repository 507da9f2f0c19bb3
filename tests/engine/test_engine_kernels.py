"""The kernels of the engine against plain Python; small enough to run without the compiler."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.columns import NEVER, Clauses, Messages, Shapes, read_only
from nearcast.indexes.boolean import Linear
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.scan import Scan
from nearcast.segments.visible import LifeArrays, MatchArrays, visible_matches

coordinate = st.integers(-2, 2)
box = st.tuples(coordinate, coordinate, coordinate, coordinate).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)
tokens = st.lists(st.integers(0, 4), max_size=3)


@given(
    st.lists(st.tuples(tokens, tokens, box, st.booleans()), max_size=8),
    st.lists(st.tuples(tokens, st.tuples(coordinate, coordinate, coordinate, coordinate))),
)
def test_linear_agrees_with_the_scan(
    clauses: list[tuple[list[int], list[int], tuple[int, ...], bool]],
    messages: list[tuple[list[int], tuple[int, int, int, int]]],
) -> None:
    row = np.cumsum([0, *(new for *_, new in clauses[1:])])[: len(clauses)]
    columns = Clauses.of(
        [asked for asked, *_ in clauses],
        [place for _, _, place, _ in clauses] or np.empty((0, 4)),
        negatives=[without for _, without, *_ in clauses],
        row=row,
    )
    places = [(w, min(s, n), e, max(s, n)) for _, (w, s, e, n) in messages]
    batch = Messages.of([said for said, _ in messages], places or np.empty((0, 4)))
    linear = Linear.build(columns).match(batch)
    assert linear.pairs() == Scan.build(columns, NoOptions()).match(batch).pairs()
    assert len(linear.pairs()) == len(linear) <= linear.examined


def test_linear_asks_for_more_room() -> None:
    clauses = Clauses.of([[]] * 100, [[0, 0, 1, 1]] * 100)
    matches = Linear.build(clauses).match(Messages.of([[]] * 5, [[0, 0]] * 5))
    assert np.diff(matches.start).tolist() == [100] * 5
    assert matches.subscription.tolist() == [*range(100)] * 5
    assert matches.examined == 500


def test_linear_verifies_exact_shapes() -> None:
    circle = Shapes(np.array([100_000.0]), [0, 1], [0, 1], [[0, 0]])  # type: ignore[arg-type]
    clauses = Clauses.of([[]], [[-(10**7), -(10**7), 10**7, 10**7]], shape=[0], shapes=circle)
    corner_and_centre = Messages.of([[], []], [[10**7, 10**7], [0, 0]])
    assert Linear.build(clauses).match(corner_and_centre).pairs() == {(1, 0)}


@given(
    st.lists(st.lists(st.integers(0, 5), unique=True), max_size=5),
    st.none() | st.lists(st.sampled_from([1, 2, 3, NEVER]), min_size=6, max_size=6),
    st.none() | st.lists(st.sampled_from([10, 20, NEVER]), min_size=6, max_size=6),
    st.integers(0, 3),
    st.data(),
)
def test_visible_matches_keeps_what_is_neither_dead_nor_expired(
    matches: list[list[int]],
    died: list[int] | None,
    expires: list[int] | None,
    version: int,
    data: st.DataObject,
) -> None:
    times = [data.draw(st.sampled_from([9, 10, 11, 20])) for _ in matches]
    start = np.cumsum([0, *map(len, matches)])
    flat = [row for rows in matches for row in rows]
    kept_start = np.full(len(matches) + 1, -1, np.int64)
    kept = np.full(len(flat), -1, np.int64)
    visible_matches(
        MatchArrays(
            read_only(start, np.int64), read_only(flat, np.int32), read_only(times, np.int64)
        ),
        LifeArrays(read_only(died or [], np.int64), read_only(expires or [], np.int64)),
        version,
        kept_start,
        kept,
    )
    expected = [
        [
            row
            for row in rows
            if (died is None or died[row] > version) and (expires is None or expires[row] > time)
        ]
        for rows, time in zip(matches, times, strict=True)
    ]
    found = [[flat[i] for i in kept[a:b]] for a, b in pairwise(kept_start)]
    assert found == expected
