"""The pool of token tables against dicts, where collisions and wrap-around are common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from nearcast.compiled.jit import JIT
from nearcast.compiled.token_table import (
    COUNT,
    NO_TOKEN,
    SIZE,
    START,
    Tables,
    claim_slot,
    drop_table,
    find_slot,
    home,
    move_table,
    move_tables,
    new_region,
    region_size,
    remove_slot,
    slots_needed,
)

OWNERS = 4
TOKENS = [*range(20), 70, 4_099, 2_000_000_000, int(NO_TOKEN) - 1, int(NO_TOKEN)]

owners = st.integers(0, OWNERS - 1)
tokens = st.sampled_from(TOKENS)
words = st.integers(0, 2**64 - 1)


def pool(slots: int, owners: int = OWNERS) -> Tables:
    """Return a pool without tables; what nobody was given holds rubbish."""
    slot = np.full((slots, 2), 0xDEAD_BEEF_0000_0007, np.uint64)
    return Tables(slot, np.zeros((owners, 3), np.int64), np.zeros(1, np.int64))


def content(tables: Tables, owner: int) -> dict[int, tuple[int, int]]:
    """Read a table slot by slot: by token, the owner's 32 bits and the owner's word."""
    start, size, count = tables.table[owner].tolist()
    found = {
        (key & 0xFFFFFFFF) - 1: (key >> 32, word)
        for key, word in tables.slot[start : start + size].tolist()
        if key
    }
    assert len(found) == count
    return found


def write(tables: Tables, owner: int, token: int, bits: int, word: int) -> None:
    """Put a token and its value into a table that has a free slot."""
    at = claim_slot(tables, owner, token)
    tables.slot[at] = (bits << 32) | (token + 1), word


def sharing_home(size: int, place: int, count: int) -> list[int]:
    """Return tokens that all want the same slot of a region."""
    found = (token for token in range(1_000_000) if int(home(token, size)) == place)
    return [next(found) for _ in range(count)]


class Pool(RuleBasedStateMachine):
    """Four tables in one pool that is always nearly full."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = pool(8)
        self.model: list[dict[int, tuple[int, int]]] = [{} for _ in range(OWNERS)]

    def larger_pool(self, more: int) -> None:
        """Move all tables, as an index does when its pool is full."""
        used = int(self.tables.table[:, SIZE].sum())
        slot = pool(used + more).slot
        move_tables(self.tables, slot)
        self.tables = self.tables._replace(slot=slot)
        assert self.tables.top[0] == used

    @rule(owner=owners, token=tokens, bits=st.integers(0, 2**32 - 1), word=words)
    def claim(self, owner: int, token: int, bits: int, word: int) -> None:
        needed = int(slots_needed(self.tables, owner, 1))
        if needed:
            if self.tables.top[0] + needed > len(self.tables.slot):
                self.larger_pool(needed)
            move_table(self.tables, owner, needed)
            assert self.tables.table[owner, SIZE] == needed
            assert slots_needed(self.tables, owner, 1) == 0
        at = claim_slot(self.tables, owner, token)
        if token not in self.model[owner]:
            assert self.tables.slot[at].tolist() == [token + 1, 0]
        write(self.tables, owner, token, bits, word)
        self.model[owner][token] = bits, word

    @precondition(lambda self: any(self.model))
    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        there = [(owner, token) for owner in range(OWNERS) for token in self.model[owner]]
        owner, token = data.draw(st.sampled_from(there))
        remove_slot(self.tables, owner, find_slot(self.tables, owner, token))
        del self.model[owner][token]

    @rule(owner=owners)
    def drop(self, owner: int) -> None:
        drop_table(self.tables, owner)
        self.model[owner] = {}

    @rule(more=st.integers(0, 20))
    def move(self, more: int) -> None:
        self.larger_pool(more)

    @invariant()
    def holds_what_was_put_in(self) -> None:
        regions = sorted(self.tables.table[:, [START, SIZE]].tolist())
        end = 0
        for start, size in regions:
            if size:
                assert start >= end
                end = start + size
        assert end <= self.tables.top[0] <= len(self.tables.slot)
        for owner in range(OWNERS):
            assert content(self.tables, owner) == self.model[owner]

    @invariant()
    def finds_what_is_there(self) -> None:
        for owner in range(OWNERS):
            start, size, count = self.tables.table[owner].tolist()
            assert size == 0 or count < size
            for token in TOKENS:
                at = int(find_slot(self.tables, owner, token))
                assert (at >= 0) == (token in self.model[owner])
                if at >= 0:
                    assert start <= at < start + size
                    assert self.tables.slot[at, 0] & np.uint64(0xFFFFFFFF) == token + 1


TestPool = Pool.TestCase
TestPool.settings = settings(
    max_examples=examples(100 if JIT else 10), stateful_step_count=40, deadline=None
)


@settings(deadline=None)
@given(token=st.integers(0, int(NO_TOKEN)), size=st.integers(1, 2**31))
def test_every_token_has_a_home_in_the_region(token: int, size: int) -> None:
    assert 0 <= int(home(token, size)) < size


@settings(deadline=None)
@given(count=st.integers(0, 200), more=st.integers(1, 50))
def test_there_is_a_free_slot_in_every_region(count: int, more: int) -> None:
    """A search ends at a free slot: there must be one, whatever size a region was given."""
    assert region_size(count) > count
    tables = pool(2_000, 1)
    new_region(tables, 0, region_size(count))
    for token in range(count):
        claim_slot(tables, 0, token)
    needed = int(slots_needed(tables, 0, more))
    size = needed or int(tables.table[0, SIZE])
    assert size > count + more
    if needed:
        assert needed >= tables.table[0, SIZE]


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("gone", range(5))
def test_tokens_that_want_the_same_slot(place: int, gone: int) -> None:
    """Five of them in a region of seven go around its end; one leaves, and all others are found."""
    same = sharing_home(7, place, 5)
    tables = pool(20, 2)
    new_region(tables, 1, 3)
    new_region(tables, 0, 7)
    for number, token in enumerate(same):
        write(tables, 0, token, number, 100 + number)
    stands = [(int(find_slot(tables, 0, token)) - 3) % 7 for token in same]
    assert stands == [(place + number) % 7 for number in range(5)]
    remove_slot(tables, 0, find_slot(tables, 0, same[gone]))
    assert int(find_slot(tables, 0, same[gone])) == -1
    left = {token: (i, 100 + i) for i, token in enumerate(same) if i != gone}
    assert content(tables, 0) == left
    assert all(find_slot(tables, 0, token) >= 0 for token in left)


def test_a_token_at_home_does_not_move_up() -> None:
    """The gap lies before it, but there it would not be looked for."""
    [first], [second] = sharing_home(7, 2, 1), sharing_home(7, 3, 1)
    tables = pool(7, 1)
    new_region(tables, 0, 7)
    for token in (first, second):
        claim_slot(tables, 0, token)
    remove_slot(tables, 0, find_slot(tables, 0, first))
    assert int(find_slot(tables, 0, second)) == 3


def test_an_owner_without_a_table_has_no_tokens() -> None:
    tables = pool(10)
    assert int(find_slot(tables, 0, 7)) == -1
    new_region(tables, 0, 5)
    assert int(find_slot(tables, 0, 6)) == -1, "what was in the slots before is not there any more"
    claim_slot(tables, 0, 6)
    drop_table(tables, 0)
    assert int(find_slot(tables, 0, 6)) == -1
    assert tables.table[0].tolist() == [0, 0, 0]


def test_a_larger_pool_gives_back_what_was_left_behind() -> None:
    tables = pool(1_000, 2)
    for owner in (0, 1):
        for token in range(60):
            needed = int(slots_needed(tables, owner, 1))
            if needed:
                move_table(tables, owner, needed)
            write(tables, owner, token, owner, token)
    used = int(tables.table[:, SIZE].sum())
    assert tables.top[0] > used
    slot = pool(used).slot
    move_tables(tables, slot)
    tables = tables._replace(slot=slot)
    assert tables.top[0] == used
    for owner in (0, 1):
        assert content(tables, owner) == {token: (owner, token) for token in range(60)}
        assert tables.table[owner, COUNT] == 60
        assert all(find_slot(tables, owner, token) >= 0 for token in range(60))
