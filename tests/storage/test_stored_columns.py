"""Columns as named arrays: round trips, slices, and damage behind a fitting checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.columns import NEVER, Clauses, Ids, Messages, Shapes, Subscriptions
from nearcast.errors import StorageError
from nearcast.storage import (
    clauses_from_arrays,
    clauses_to_arrays,
    ids_from_arrays,
    ids_to_arrays,
    messages_from_arrays,
    messages_to_arrays,
    read_arrays,
    strings_from_arrays,
    strings_to_arrays,
    subscriptions_from_arrays,
    subscriptions_to_arrays,
    write_arrays,
)

if TYPE_CHECKING:
    from pathlib import Path

texts = st.text(max_size=6)
ids = st.lists(st.text(min_size=1, max_size=4) | st.integers(-(2**63), 2**63 - 1), max_size=8)


@given(st.lists(st.none() | texts, max_size=20), st.integers(0, 5), st.integers(0, 20))
def test_strings_come_back_also_from_slices(
    values: list[str | None], first: int, length: int
) -> None:
    column = pa.array(values, pa.string()).slice(first, length)
    assert strings_from_arrays(strings_to_arrays(column)).equals(column)


@given(ids)
def test_ids_come_back(values: list[str | int]) -> None:
    assert ids_from_arrays(ids_to_arrays(Ids.of(values))).tolist() == values


def example() -> Subscriptions:
    ring = [[0, 0], [4, 0], [0, 4], [0, 0]]
    shapes = Shapes(np.array([12.5, -1]), np.array([0, 1, 2]), np.array([0, 1, 5]), [[1, 1], *ring])  # type: ignore[arg-type]
    clauses = Clauses.of(
        [[3, 1], [], [2]],
        [[0, 0, 9, 9]] * 3,
        negatives=[[], [], [7]],
        row=[0, 1, 1],
        shape=[-1, 0, 1],
        shapes=shapes,
    )
    expires = np.array([NEVER, 5])
    return Subscriptions(
        ids=Ids.of(["a", 7]),
        clauses=clauses,
        expires_us=expires,
        owner=pa.array([None, "me"], pa.string()),
    )


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("mmap", [True, False])
def test_subscriptions_survive_the_disk(tmp_path: Path, mmap: bool) -> None:
    arrays = subscriptions_to_arrays(example())
    write_arrays(tmp_path / "s", "subscriptions", arrays, {})
    found = subscriptions_from_arrays(read_arrays(tmp_path / "s", "subscriptions", mmap=mmap)[0])
    assert same(subscriptions_to_arrays(found), arrays)
    assert found.ids.tolist() == ["a", 7]
    assert found.owner is not None
    assert found.owner.to_pylist() == [None, "me"]
    assert found.clauses.shapes.radius_m.tolist() == [12.5, -1]
    assert len(found) == 2


def test_nothing_survives_the_disk(tmp_path: Path) -> None:
    empty = Subscriptions.empty()
    write_arrays(tmp_path / "s", "subscriptions", subscriptions_to_arrays(empty), {})
    found = subscriptions_from_arrays(read_arrays(tmp_path / "s", "subscriptions")[0])
    assert len(found) == 0
    assert found.owner is None


def test_arrays_are_not_copied_when_read() -> None:
    arrays = clauses_to_arrays(example().clauses)
    found = clauses_from_arrays(arrays)
    assert np.shares_memory(found.token, arrays["token"])
    text = strings_to_arrays(pa.array(["some", "text"]))
    assert strings_from_arrays(text).buffers()[2].address == text["text"].ctypes.data


@given(st.lists(st.tuples(st.lists(st.integers(0, 9)), st.integers(-9, 9)), max_size=6))
def test_messages_come_back(rows: list[tuple[list[int], int]]) -> None:
    box = np.array([[x, x] for _, x in rows], np.int32).reshape(-1, 2)
    arrays = messages_to_arrays(Messages.of([t for t, _ in rows], box, time_us=3)) if rows else {}
    if rows:
        assert same(messages_to_arrays(messages_from_arrays(arrays)), arrays)


DAMAGE: dict[str, list[Any]] = {
    "clauses.token_start": [[0, 2, 2, 4], [0, 3, 2, 3], [1, 2, 2, 3], [0, 2, 3], []],
    "clauses.negative_start": [[0, 0, 0, 9], [0]],
    "clauses.box": [[[0, 0, 9, 9]], [[0, 0]] * 6],
    "clauses.row": [[0, 1, 2], [1, 0, 1], [-1, 0, 1], [0, 1]],
    "clauses.shape": [[-1, 0, 2], [-2, 0, 1], [0]],
    "clauses.subscriptions": [[1], [3], [], [2, 2]],
    "clauses.shapes.ring_start": [[0, 1, 3], [0, 2], [0, 2, 1]],
    "clauses.shapes.point_start": [[0, 1, 6], [0, 9, 5]],
    "clauses.shapes.radius_m": [[1.0]],
    "ids.number": [[1], [[1, 2]]],
    "ids.text_start": [[0, 1, 2], [0, 1], [0, -1, 1]],
    "ids.text": [[255], [97, 98]],
    "ids.text_valid": [[], [1, 1]],
    "expires_us": [[1], [1, 2, 3]],
    "owner.text_start": [[0, 0], [0, 0, 3]],
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("kept_dtype", [True, False])
def test_damage_behind_a_fitting_checksum_is_noticed(name: str, kept_dtype: bool) -> None:
    sound = subscriptions_to_arrays(example())
    other = np.float32 if sound[name].dtype != np.float32 else np.int8
    for values in DAMAGE[name]:
        array = np.array(values, sound[name].dtype if kept_dtype else other)
        with pytest.raises(StorageError, match="stored array"):
            subscriptions_from_arrays({**sound, name: array})


@given(st.sampled_from(sorted(subscriptions_to_arrays(example()))))
@settings(deadline=None)
def test_a_missing_array_is_named(name: str) -> None:
    arrays = subscriptions_to_arrays(example())
    del arrays[name]
    if name in {"ids.text_valid", "owner.text_valid"}:
        assert subscriptions_from_arrays(arrays).ids.tolist() != [None, 7]
    elif name == "ids.text_start":
        assert subscriptions_from_arrays(arrays).ids.tolist() == [0, 7]
    else:
        with pytest.raises(StorageError, match=repr(name.split(".")[-1])):
            subscriptions_from_arrays(arrays)
