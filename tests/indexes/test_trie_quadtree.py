"""The trie-quadtree: the paper's example, its invariants, and changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test
from quad_lists import Plain, ordered_tokens
from test_iq_tree import M1, M2, answers, asked, example
from test_rq_tree import check_trie
from test_tree_changes import CROWD, EXAMPLES, STEPS, Changes, crowd, seeds

from effort import examples
from nearcast import indexes
from nearcast.columns import Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.quadtrees import TrieQuadtree

EVERYWHERE = [-180, -90, 180, 90]


@pytest.mark.parametrize("order", ["rare", "frequent"])
def test_example_by_keywords_only(order: str) -> None:
    """The trie leads m1 = {w2, w3, w4} to s3 and s7, in any order of keywords."""
    index = example("trie-quadtree", child_size=0, order=order)
    check_trie(index)
    anywhere = asked(index, (M1[0], EVERYWHERE))
    assert answers(anywhere) == {"s3", "s7"}
    assert anywhere.examined == 2
    there = asked(index, M1)
    assert answers(there) == {"s7"}
    assert there.examined == 2
    assert answers(asked(index, M2)) == {"s1", "s4"}


def test_example_a_path_for_every_keyword_set() -> None:
    """A subscription is reached through the path of its ordered keywords, as s1 is."""
    index = example("trie-quadtree", child_size=0)
    plain = Plain(index)
    for clause, path in enumerate(ordered_tokens(index)):
        owner = 0
        for token in path:
            row = plain.rows[owner, token]
            owner = row[5]
        assert [number for _, number, _ in plain.entries(row)] == [clause]


def test_many_of_one_keyword_set_are_a_quadtree() -> None:
    rng = np.random.default_rng(0)
    count = 400 if JIT else 60
    corner = rng.integers(-1_000_000_000, 1_000_000_000, (count, 2)) // [1, 2]
    box = np.concatenate([corner, corner + 1_000_000], axis=1)
    clauses = Clauses.of([[1, 2]] * count + [[3]] * 3, np.concatenate([box, box[:3]]))
    index: Any = indexes.create("trie-quadtree", list_size=10, child_size=1).build(clauses)
    check_trie(index)
    assert len(Plain(index).nodes) > count / 10
    messages = Messages.of([[1, 2, 3]] * 20, corner[:20])
    matches = index.match(messages)
    assert set(range(20)) <= set(matches.subscription.tolist())
    assert matches.examined <= 20 * 30


def test_nodes_of_few_have_no_children() -> None:
    few = Clauses.of([[1, 2], [1, 3]], [[0, 0, 9, 9]] * 2)
    keeps: Any = indexes.create("trie-quadtree", child_size=3).build(few)
    assert len(Plain(keeps).rows) == 2
    parts: Any = indexes.create("trie-quadtree", child_size=1, order="frequent").build(few)
    assert {(o, t) for o, t in Plain(parts).rows} >= {(0, 1)}
    for index in (keeps, parts):
        index.insert(Clauses.of([[1, 2, 3]] * 5, [[0, 0, 9, 9]] * 5))
        check_trie(index)


def test_a_clause_of_many_tokens() -> None:
    """The trie ends at some depth; tokens after it are verified."""
    count = 40
    tokens = [[*range(50), 50 + i % 2] for i in range(count)]
    clauses = Clauses.of(tokens, [[0, 0, 9, 9]] * count)
    index: Any = indexes.create("trie-quadtree", list_size=2, child_size=1).build(clauses)
    check_trie(index)
    messages = Messages.of([list(range(51)), list(range(52)), list(range(50))], [[5, 5]] * 3)
    assert np.diff(index.match(messages).start).tolist() == [count / 2, count, 0]


class TrieQuadtreeChanges(Changes):
    """Inserts, deletes and restarts in any order; the invariants hold after each."""

    name = "trie-quadtree"

    @initialize(
        seed=seeds,
        count=st.integers(0, CROWD),
        list_size=st.sampled_from([1, 3, 10]),
        child_size=st.sampled_from([0, 1, 2, 5]),
        update_cost=st.sampled_from([1e-9, 0.01]),
        order=st.sampled_from(["rare", "frequent"]),
    )
    def build(
        self,
        seed: int,
        count: int,
        list_size: int,
        child_size: int,
        update_cost: float,
        order: str,
    ) -> None:
        self.clauses = crowd(seed, count)
        options: dict[str, Any] = {"list_size": list_size, "child_size": child_size}
        options |= {"update_cost": update_cost, "order": order}
        self.index = indexes.create(self.name, **options).build(self.clauses)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    @invariant()
    def lists_hold(self) -> None:
        assert isinstance(self.index, TrieQuadtree)
        check_trie(self.index)
        self.index.check_structure()


def test_changes() -> None:
    run_state_machine_as_test(
        TrieQuadtreeChanges,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


def test_wrong_options() -> None:
    with pytest.raises(InvalidInput, match="child_size"):
        indexes.create("trie-quadtree", child_size=-1)
    with pytest.raises(UnknownName, match="unknown order 'random'; choose from: frequent, rare"):
        indexes.create("trie-quadtree", order="random")
