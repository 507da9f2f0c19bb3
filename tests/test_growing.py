"""Arrays and clauses that grow at their end."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.columns import Clauses, GrowingArray, GrowingClauses
from nearcast.storage import clauses_to_arrays
from nearcast.testing import CASES, draw
from nearcast.testing import strategies as drawn


def assert_equal(got: Clauses, wanted: Clauses) -> None:
    arrays, expected = clauses_to_arrays(got), clauses_to_arrays(wanted)
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: array.tolist() for name, array in expected.items()
    }
    assert [array.dtype for array in arrays.values()] == [a.dtype for a in expected.values()]
    arrays.pop("subscriptions")
    assert not any(array.flags.writeable for array in arrays.values())


@given(st.lists(st.integers(0, 40), max_size=8))
def test_an_array_is_all_that_was_appended(sizes: list[int]) -> None:
    rows = np.arange(2 * sum(sizes)).reshape(-1, 2)
    borders = np.cumsum([0, *sizes]).tolist()
    array = GrowingArray(rows[:0])
    handed_out = []
    for first, last in pairwise(borders):
        array.append(rows[first:last])
        handed_out.append(array.view)
    for view, last in zip(handed_out, borders[1:], strict=True):
        assert view.tolist() == rows[:last].tolist()
    assert len(array) == len(rows)
    assert array.nbytes == rows.nbytes
    assert pickle.loads(pickle.dumps(array)).view.tolist() == rows.tolist()


def test_an_array_copies_what_it_begins_with() -> None:
    values = np.arange(3)
    array = GrowingArray(values)
    array.writable[0] = 7
    assert values[0] == 0
    assert array.view.tolist() == [7, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        array.view[0] = 1


def test_reserved_room_is_used_in_place() -> None:
    array = GrowingArray(np.zeros(1, np.int64))
    array.reserve(1_000)
    before = array.writable
    array.extend(999)[:] = 5
    before[0] = 3
    assert array.view[0] == 3
    assert array.view[1:].tolist() == [5] * 999


@pytest.mark.parametrize("case", CASES)
def test_clauses_grow_as_they_are_concatenated(case: str) -> None:
    clauses = draw(case).clauses
    rows = np.arange(clauses.subscriptions)
    parts = [clauses.take(some) for some in np.split(rows, [3, 3, 30])]
    growing = GrowingClauses(parts[0])
    handed_out = [growing.clauses]
    for part in parts[1:]:
        growing.append(part)
        handed_out.append(growing.clauses)
    for count, whole in enumerate(handed_out, start=1):
        assert_equal(whole, Clauses.concatenate(parts[:count]))


@given(parts=st.lists(drawn.clauses(max_size=4), min_size=1, max_size=4))
def test_grown_clauses_know_whether_they_are_plain(parts: list[Clauses]) -> None:
    growing = GrowingClauses(parts[0])
    for part in parts[1:]:
        growing.append(part)
    assert_equal(growing.clauses, Clauses.concatenate(parts))
    assert growing.clauses.plain == Clauses.concatenate(parts).plain


def test_rows_without_clauses_make_those_after_them_not_plain() -> None:
    one = Clauses.of([[1]], [[0, 0, 1, 1]])
    growing = GrowingClauses(one)
    growing.append(replace(Clauses.empty(), subscriptions=2))
    assert growing.clauses.plain
    growing.append(one)
    assert growing.clauses.row.tolist() == [0, 3]
    assert not growing.clauses.plain
