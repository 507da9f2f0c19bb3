"""The byte table against a plain dict, at sizes where collisions and wrap-around are common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from effort import examples
from nearcast.columns import read_only
from nearcast.text.byte_table import (
    ByteTable,
    Keys,
    add_keys,
    find_keys,
    hash_keys,
    move_keys,
    move_slots,
    remove_keys,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = 19
KEY = st.binary(min_size=1, max_size=3)
UNIVERSE = [bytes([a]) * n for a in range(8) for n in (1, 2, 9)]


def batch(strings: Sequence[bytes], tags: Sequence[int] | None = None) -> Keys:
    start = read_only(np.cumsum([0, *map(len, strings)]), np.int64)
    byte = read_only(np.frombuffer(b"".join(strings), np.uint8), np.uint8)
    tag = np.zeros(len(strings), np.uint32)
    if tags is None:
        hash_keys(start, byte, tag)
    else:
        tag[:] = tags
    return Keys(start, byte, read_only(tag, np.uint32))


def table_of(slots: int, numbers: int, key_bytes: int) -> ByteTable:
    return ByteTable(
        np.zeros(slots, np.uint64), np.zeros(numbers, np.uint64), np.zeros(key_bytes, np.uint8)
    )


def readable(table: ByteTable) -> ByteTable:
    return ByteTable(*(read_only(array, array.dtype) for array in table))


def found(table: ByteTable, keys: Keys) -> list[int]:
    number = np.full(len(keys.tag), -7, np.int32)
    find_keys(readable(table), keys, number)
    return number.tolist()


def fill(table: ByteTable, keys: Keys) -> tuple[list[int], int]:
    number = np.full(len(keys.tag), -1, np.int32)
    fresh = read_only(np.arange(len(keys.tag)), np.int32)
    _, used = add_keys(table, 0, keys, fresh, number)
    return number.tolist(), used


class TableMachine(RuleBasedStateMachine):
    """Adds, removes and moves keys in a table that is nearly full."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table_of(SLOTS, SLOTS, 4000)
        self.used = 0
        self.known: dict[bytes, int] = {}

    @rule(strings=st.lists(st.sampled_from(UNIVERSE), max_size=6))
    def add(self, strings: list[bytes]) -> None:
        new = [s for s in dict.fromkeys(strings) if s not in self.known]
        if len(self.known) + len(new) >= SLOTS or self.used + 60 > len(self.table.key):
            return
        free = sorted(set(range(SLOTS)) - set(self.known.values()))
        number = np.full(len(strings), -1, np.int32)
        taken, self.used = add_keys(
            self.table, self.used, batch(strings), read_only(free, np.int32), number
        )
        assert taken == len(new)
        self.known.update(zip(new, free, strict=False))
        assert number.tolist() == [self.known[s] for s in strings]

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.known) or [b""]), unique=True))
        number = read_only([self.known.pop(s) for s in chosen if s], np.int32)
        freed = np.zeros(len(number), np.int32)
        assert remove_keys(self.table, number, freed) == len(number)
        assert freed.tolist() == number.tolist()
        assert remove_keys(self.table, number, freed) == 0

    @rule(slots=st.integers(SLOTS, 3 * SLOTS))
    def move(self, slots: int) -> None:
        table = table_of(slots, SLOTS, 4000)
        move_slots(readable(self.table).slot, table.slot)
        self.used = move_keys(readable(self.table), table)
        self.table = table
        assert self.used == sum(map(len, self.known))

    @invariant()
    def agrees(self) -> None:
        assert found(self.table, batch(UNIVERSE)) == [self.known.get(s, -1) for s in UNIVERSE]
        assert np.count_nonzero(self.table.slot) == len(self.known)
        assert set(np.flatnonzero(self.table.span)) == set(self.known.values())


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(KEY, max_size=200), st.lists(KEY, max_size=50))
def test_numbers_are_given_in_order_of_first_appearance(
    strings: list[bytes], others: list[bytes]
) -> None:
    expected: dict[bytes, int] = {}
    for s in strings:
        expected.setdefault(s, len(expected))
    table = table_of(2 * len(expected) + 1, len(expected), sum(map(len, expected)))
    numbers, used = fill(table, batch(strings))
    assert numbers == [expected[s] for s in strings]
    assert used == len(table.key)
    assert found(table, batch(others)) == [expected.get(s, -1) for s in others]


@pytest.mark.parametrize("tag", [0, 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_keys_of_one_tag_are_told_apart_by_their_bytes(tag: int) -> None:
    strings = [b"a", b"b", b"ab", b"", b"a\0"]
    table = table_of(7, 5, 20)
    assert fill(table, batch(strings, [tag] * 5))[0] == [0, 1, 2, 3, 4]
    wanted = [*reversed(strings), b"c", b"\0"]
    assert found(table, batch(wanted, [tag] * 7)) == [4, 3, 2, 1, 0, -1, -1]


def test_a_known_number_is_left_alone() -> None:
    table = table_of(7, 5, 20)
    number = np.array([3, -1], np.int32)
    assert add_keys(table, 0, batch([b"a", b"b"]), read_only([2], np.int32), number) == (1, 1)
    assert number.tolist() == [3, 2]
    assert found(table, batch([b"a", b"b"])) == [-1, 2]


def test_a_slot_without_span_or_bytes_yet_is_unknown() -> None:
    keys = batch([b"key"])
    table = table_of(7, 5, 20)
    fill(table, keys)
    half_written = table._replace(span=np.zeros(5, np.uint64))
    assert found(half_written, keys) == [-1]
    assert found(table._replace(key=np.zeros(20, np.uint8)), keys) == [-1]
    assert found(table, keys) == [0]


def test_tags_of_similar_keys_spread_over_the_table() -> None:
    keys = batch([f"user-{i:05d}".encode() for i in range(1000)])
    buckets = np.bincount((keys.tag.astype(np.uint64) * np.uint64(100)) >> np.uint64(32))
    assert len(set(keys.tag.tolist())) == 1000
    assert buckets.max() < 30
