"""The rq-tree: its invariants, and changes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test
from quad_lists import (
    SOUTH_WEST,
    TREE,
    Model,
    Plain,
    alive_clauses,
    check_entries,
    check_state,
    places,
)
from test_iq_tree import M1, M2, answers, asked, example
from test_tree_changes import CROWD, EXAMPLES, STEPS, Changes, crowd, seeds

from effort import examples
from nearcast import indexes
from nearcast.compiled.jit import JIT
from nearcast.datasets.workloads import Workload
from nearcast.indexes.quadtrees import RqTree

if TYPE_CHECKING:
    from nearcast.indexes.quadtrees.index import QuadTrie


def check_trie(index: QuadTrie) -> None:
    """Assert the invariants of a trie with quadtrees, of any depth."""
    plain, model = Plain(index), Model(index)
    check_state(index, plain)
    header, alive = index.options.header, alive_clauses(index)
    seen: list[int] = []
    roots: list[int] = []

    def check_node(path: list[int], owner: int, row: list[int]) -> None:
        """Assert the invariants of the node at the end of a path, and of all nodes below it."""
        token, start, size, capacity, _, branch = row
        path = [*path, token]
        assert size <= header.list_size or capacity == TREE
        if capacity == TREE:
            roots.append(start)
            nodes_of: dict[int, list[int]] = defaultdict(list)
            assert plain.cell(start) == SOUTH_WEST
            for node in plain.below(start):
                for clause in check_entries(model, plain, plain.nodes[node], len(path)):
                    nodes_of[clause].append(node)
            for clause, nodes in nodes_of.items():
                assert sorted(nodes) == sorted(places(plain, model, clause, start))
            own = sorted(nodes_of)
        else:
            own = sorted(check_entries(model, plain, row, len(path)))
        assert len(own) == size
        for clause in own:
            assert model.tokens[clause][: len(path)] == path
            assert not branch or model.tokens[clause] == path
        seen.extend(own)
        if branch:
            assert len(path) < header.trie_levels
            below = {t for o, t in plain.rows if o == branch}
            assert set(plain.run(branch)) == below
            for token in below:
                check_node(path, branch, plain.rows[branch, token])

    for (owner, _), row in plain.rows.items():
        if owner == 0:
            check_node([], owner, row)
    assert sorted(seen) == alive
    assert sorted(n for root in roots for n in plain.below(root)) == list(range(len(plain.nodes)))


def test_example_lists_of_the_rarest_keyword() -> None:
    """The lists of m1's keywords have s1, s3 and s8; s2; s6 and s7; a quadtree separates them."""
    matches = asked(example("rq-tree"), M1)
    assert (answers(matches), matches.examined) == ({"s7"}, 6)
    index = example("rq-tree", list_size=1)
    check_trie(index)
    assert answers(asked(index, M2)) == {"s1", "s4"}
    matches = asked(index, M1)
    assert (answers(matches), matches.examined) == ({"s7"}, 3)


def test_only_long_lists_are_quadtrees() -> None:
    tweets = Workload("tweets", seed=2, vocabulary=100)
    index: Any = indexes.create("rq-tree", list_size=5).build(tweets.subscriptions(300))
    rows = Plain(index).rows.values()
    assert {row[2] <= 5 for row in rows if row[3] != TREE} == {True}
    assert {row[2] > 5 for row in rows if row[3] == TREE} == {True}


class RqTreeChanges(Changes):
    """Inserts, deletes and restarts in any order; the invariants hold after each."""

    name = "rq-tree"

    @initialize(
        seed=seeds,
        count=st.integers(0, CROWD),
        list_size=st.sampled_from([1, 3, 10]),
        update_cost=st.sampled_from([1e-9, 1e-3, 0.1]),
        depth=st.sampled_from([2, 20]),
    )
    def build(self, seed: int, count: int, list_size: int, update_cost: float, depth: int) -> None:
        self.clauses = crowd(seed, count)
        options = {"list_size": list_size, "update_cost": update_cost, "depth": depth}
        self.index = indexes.create(self.name, **options).build(self.clauses)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    @invariant()
    def lists_hold(self) -> None:
        assert isinstance(self.index, RqTree)
        check_trie(self.index)
        self.index.check_structure()


def test_changes() -> None:
    run_state_machine_as_test(
        RqTreeChanges,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


def test_few_candidates_are_examined() -> None:
    tweets = Workload("tweets", seed=5)
    clauses, messages = tweets.subscriptions(4000 if JIT else 800), tweets.messages(60)
    index = indexes.create("rq-tree", list_size=8, update_cost=1e-6).build(clauses)
    assert index.match(messages).examined <= 12 * len(messages)
