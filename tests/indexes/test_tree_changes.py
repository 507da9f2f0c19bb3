"""Indexes that change in place, through everything that can happen to them."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from test_crafted_arrays import crafted
from test_rtree import LOADS, NAMES, check_tree

from effort import examples
from nearcast import indexes
from nearcast.columns import WORLD, Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.errors import StorageError, UnknownId
from nearcast.indexes.in_place import InPlaceIndex
from nearcast.indexes.rtree.index import RTreeIndex
from nearcast.indexes.scan import Scan
from nearcast.indexes.token_order.order import KINDS
from nearcast.testing import strategies as drawn
from nearcast.testing.cases import TOKENS
from nearcast.testing.checks import assert_same

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOAK = "NEARCAST_TEST_SEED" in os.environ
EXAMPLES = (120 if SOAK else 20) if JIT else 10
STEPS = 20 if JIT else 8

CROWD = 60 if JIT else 15
"""The most clauses of a crowd, which would take long to draw one by one."""

seeds = st.integers(0, 1 << 32)


def crowd(seed: int, count: int) -> Clauses:
    """Make many clauses at once: of few tokens or many, on few places or many."""
    rng = np.random.default_rng(seed)
    tokens, longest, places, side = (
        int(rng.choice(c)) for c in ([4, 30, 400], [1, 3, 8], [3, 40], [1, 9])
    )
    corner = rng.integers(0, places, (count, 2)) * 7
    box = np.concatenate([corner, corner + rng.integers(0, side, (count, 2)) * 7], axis=1)
    row = np.cumsum(rng.random(count) < rng.choice([0.5, 1.0])) if count else np.empty(0, np.int64)
    return Clauses.of(
        [rng.integers(0, tokens, rng.integers(0, longest + 1)).tolist() for _ in range(count)],
        box,
        row=row - row[:1],
    )


def questions(seed: int) -> Messages:
    """Make messages: one that has all, some of many tokens, some of few; boxes and points."""
    rng = np.random.default_rng(seed)
    count = 12 if JIT else 5
    length = rng.choice([0, 2, 8, 200], count)
    tokens = [rng.integers(0, 60 if n < 200 else 400, n).tolist() for n in length]
    tokens[0] = [*range(400), *TOKENS.tolist()]
    corner = rng.integers(0, 40, (count, 2)) * 7
    box = np.concatenate([corner, corner + rng.integers(0, 20, (count, 2)) * 7], axis=1)
    box[0] = box[1] = WORLD
    return Messages.of(tokens, box)


class Changes(RuleBasedStateMachine):
    """Inserts, deletes and restarts in any order, against a scan of all that is there."""

    name = ""

    @initialize(
        seed=seeds,
        count=st.integers(0, CROWD),
        size=st.sampled_from([(2, 3), (2, 4), (3, 6), (2, 9)]),
        load=st.sampled_from(LOADS),
        tokens=st.sampled_from(KINDS),
    )
    def build(self, seed: int, count: int, size: tuple[int, int], load: str, tokens: str) -> None:
        options: dict[str, Any] = {"least": size[0], "most": size[1], "load": load}
        if self.name.startswith("rt+"):
            options |= {"tokens": tokens, "cells": 4}
        if self.name == "keyword-first":
            options = {}
        self.clauses = crowd(seed, count)
        self.index = indexes.create(self.name, **options).build(self.clauses)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    def insert(self, clauses: Clauses) -> None:
        assert isinstance(self.index, InPlaceIndex)
        self.index.insert(clauses)
        self.clauses = Clauses.concatenate([self.clauses, clauses])
        self.alive = np.append(self.alive, np.ones(clauses.subscriptions, np.bool_))

    def delete(self, rows: NDArray[np.int64]) -> None:
        assert isinstance(self.index, InPlaceIndex)
        self.index.delete(rows)
        self.alive[rows] = False

    @rule(clauses=drawn.clauses(max_size=8))
    def insert_some(self, clauses: Clauses) -> None:
        self.insert(clauses)

    @rule(seed=seeds, count=st.integers(1, CROWD))
    def insert_many(self, seed: int, count: int) -> None:
        self.insert(crowd(seed, count))

    @rule(box=drawn.boxes(), tokens=drawn.tokens(), count=st.integers(2, 20))
    def insert_alike(self, box: list[int], tokens: list[int], count: int) -> None:
        self.insert(Clauses.of([tokens] * count, [box] * count))

    @rule(seed=seeds, count=st.integers(1, 12))
    def insert_one_by_one(self, seed: int, count: int) -> None:
        clauses = crowd(seed, count)
        for row in range(clauses.subscriptions):
            self.insert(clauses.take(np.array([row])))

    @precondition(lambda self: self.alive.any())
    @rule(data=st.data())
    def delete_some(self, data: Any) -> None:
        rows = np.flatnonzero(self.alive).tolist()
        gone = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=6))
        self.delete(np.array(gone, np.int64))

    @rule(seed=seeds, share=st.sampled_from([0.1, 0.3, 0.7, 0.95]))
    def delete_many(self, seed: int, share: float) -> None:
        chosen = np.random.default_rng(seed).random(len(self.alive)) < share
        self.delete(np.flatnonzero(chosen & self.alive))

    @rule(east=st.integers(0, 280))
    def delete_a_region(self, east: int) -> None:
        """Whole nodes lose all they have, beside others that lose nothing."""
        rows = np.unique(self.clauses.row[self.clauses.box[:, 2] <= east])
        self.delete(rows[self.alive[rows]].astype(np.int64))

    @rule()
    def delete_all(self) -> None:
        self.delete(np.flatnonzero(self.alive))

    @precondition(lambda self: not self.alive.all())
    @rule(data=st.data())
    def delete_what_is_gone(self, data: Any) -> None:
        assert isinstance(self.index, InPlaceIndex)
        gone = data.draw(st.sampled_from(np.flatnonzero(~self.alive).tolist()))
        with pytest.raises(UnknownId, match=f"row {gone} is not in the index"):
            self.index.delete(np.append(np.flatnonzero(self.alive), gone))

    @rule()
    def restart(self) -> None:
        self.index = pickle.loads(pickle.dumps(self.index))

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.index.save(Path(folder) / "index")
            self.index = indexes.load(Path(folder) / "index")

    @rule(seed=seeds)
    def match(self, seed: int) -> None:
        messages = questions(seed)
        wanted = Scan(self.clauses, self.alive).match(messages)
        got = self.index.match(messages)
        assert_same(self.name, messages, got, wanted)
        assert got.examined >= len(got)

    @invariant()
    def holds(self) -> None:
        assert isinstance(self.index, InPlaceIndex)
        assert self.index.alive.tolist() == self.alive.tolist()
        if isinstance(self.index, RTreeIndex):
            check_tree(self.index)

    @invariant()
    def agrees(self) -> None:
        self.match(len(self.alive))


@pytest.mark.parametrize("name", [*NAMES, "keyword-first"])
def test_changes(name: str) -> None:
    machine = type("Changes", (Changes,), {"name": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_one_by_one_up_and_down_and_up(name: str, seed: int) -> None:
    """Clauses of few tokens that share leaves: what one of them takes away, others still have."""
    rng = np.random.default_rng(seed)
    count = 60 if JIT else 20
    tokens = [rng.integers(0, 7, rng.integers(0, 5)).tolist() for _ in range(2 * count)]
    corner = rng.integers(0, 9, (2 * count, 2))
    clauses = Clauses.of(tokens, np.concatenate([corner, corner + 1], axis=1))
    index = indexes.create(name, least=2, most=3 + seed).build(Clauses.empty())
    assert isinstance(index, RTreeIndex)
    for row in range(count):
        index.insert(clauses.take(np.array([row])))
        check_tree(index)
    for row in rng.permutation(count):
        index.delete(np.array([row]))
        check_tree(index)
    assert index.height == 0
    index.insert(clauses.take(np.arange(count, 2 * count)))
    check_tree(index)
    assert index.height > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_leaves_few(name: str) -> None:
    """Nodes lose most of what they have, their neighbours all: they are united level by level."""
    rng = np.random.default_rng(0)
    count = 120 if JIT else 40
    corner = rng.integers(0, 30, (count, 2))
    tokens = [rng.integers(0, 9, rng.integers(0, 5)).tolist() for _ in range(count)]
    clauses = Clauses.of(tokens, np.concatenate([corner, corner], axis=1))
    for kept in [1, 2, 3, 5, 8, 13] * (6 if JIT else 2):
        index = indexes.create(name, least=2, most=int(rng.integers(3, 5))).build(clauses)
        assert isinstance(index, RTreeIndex)
        index.delete(rng.permutation(count)[kept:])
        check_tree(index)
        index.insert(clauses)
        check_tree(index)


@pytest.mark.parametrize("name", NAMES)
def test_crafted_arrays_that_are_accepted_change_without_harm(name: str) -> None:
    """What `check_structure` leaves to chance, insertion and deletion survive, too."""
    seed = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
    rng = np.random.default_rng([seed, len(name)])
    count = 200 if JIT else 30
    index = indexes.create(name, least=2, most=4).build(crowd(seed, count))
    arrays = dict(index.arrays())
    changed = 0
    for _ in range(200 if JIT else 30):
        array = sorted(arrays)[int(rng.integers(len(arrays)))]
        try:
            loaded = type(index).from_arrays(
                index.clauses, index.options, arrays | {array: crafted(arrays[array], rng)}
            )
            loaded.check_structure()
        except StorageError:
            continue
        assert isinstance(loaded, InPlaceIndex)
        loaded.insert(crowd(seed + 1, count))
        loaded.delete(np.flatnonzero(loaded.alive)[::3])
        loaded.match(questions(seed))
        loaded.delete(np.flatnonzero(loaded.alive))
        changed += 1
    assert changed
