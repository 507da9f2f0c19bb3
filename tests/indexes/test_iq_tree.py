"""The iq-tree: the paper's example, its invariants, and changes."""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test
from quad_lists import (
    SOUTH_WEST,
    Model,
    Plain,
    alive_clauses,
    check_entries,
    check_state,
    places,
)
from test_tree_changes import CROWD, EXAMPLES, STEPS, Changes, crowd, seeds

from effort import examples
from nearcast import indexes
from nearcast.columns import UNITS, Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput
from nearcast.indexes.quadtrees import IqTree
from nearcast.indexes.statistics import Statistics
from nearcast.testing import draw
from nearcast.testing.checks import assert_same
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.columns import Matches

NO_TOKEN = 2**31 - 1

SUBSCRIPTIONS = {
    "s1": ([1, 2], [5, 5, 80, 60]),
    "s2": ([1, 3], [5, 5, 30, 30]),
    "s3": ([2, 3], [-100, -60, -50, -20]),
    "s4": ([1, 5], [1, 1, 100, 70]),
    "s5": ([1, 5, 6], [-90, 20, -30, 60]),
    "s6": ([4, 6], [-120, 10, -60, 40]),
    "s7": ([3, 4], [8, 8, 12, 12]),
    "s8": ([2, 5], [20, -50, 90, -10]),
    "s9": ([5, 6], [110, -70, 170, -30]),
}
"""The nine subscriptions of the AP-Tree paper's figure 3, which is lost: keywords and degrees.

From the text: s1 is {w1, w2}, s7 {w3, w4}, and w4 is the rarer of the two; those of s1, s2, s4 and
s5 begin with w1, and then have w2, w3 or w5; first keywords are w1 to w5; m1 is {w2, w3, w4} and
lies in s1, s2, s4 and s7; m2 matches s1 and s4; by keywords alone, m1 matches s3 and s7; s4 is
none of the three that the iq-tree verifies for m1, so its key is none of m1's keywords. The rest
is completed by hand.
"""

NAMES = list(SUBSCRIPTIONS)
M1 = [2, 3, 4], [10, 10]
M2 = [1, 2, 5], [60, 40]


def example(name: str, **options: Any) -> Any:
    clauses = Clauses.of(
        [tokens for tokens, _ in SUBSCRIPTIONS.values()],
        [[side * UNITS for side in box] for _, box in SUBSCRIPTIONS.values()],
    )
    return indexes.create(name, **options).build(clauses)


def asked(index: Any, message: tuple[list[int], list[int]]) -> Matches:
    tokens, place = message
    matches: Matches = index.match(Messages.of([tokens], [[side * UNITS for side in place]]))
    return matches


def answers(matches: Matches) -> set[str]:
    return {NAMES[row] for row in matches.subscription.tolist()}


def check_iq_tree(index: IqTree) -> None:
    """Assert the invariants of the arrays."""
    plain, model = Plain(index), Model(index)
    check_state(index, plain)
    nodes_of: dict[int, list[int]] = defaultdict(list)
    size: dict[int, int] = defaultdict(int)
    for (owner, token), row in plain.rows.items():
        if owner == 0:
            continue
        assert token in plain.run(owner)
        for clause in check_entries(model, plain, row, 1):
            assert model.tokens[clause][0] == token
            nodes_of[clause].append(owner - 1)
            size[owner - 1] += 1
            # The directory knows the level.
            assert (plain.rows[0, token][1] >> plain.nodes[owner - 1][7]) & 1
    assert [node[2] for node in plain.nodes] == [size[n] for n in range(len(plain.nodes))]
    assert sorted(plain.below(0)) == list(range(len(plain.nodes)))
    assert plain.cell(0) == SOUTH_WEST
    alive = alive_clauses(index)
    assert sorted(nodes_of) == alive
    for clause in alive:
        assert sorted(nodes_of[clause]) == sorted(places(plain, model, clause, 0))
    # A leaf that got more than it may have from a node that was split is split when the next comes.
    assert all(~row[4] >= index.options.list_size for row in plain.nodes if row[4] < 0)


def test_example_what_is_verified() -> None:
    index = example("iq-tree", list_size=1, depth=2)
    check_iq_tree(index)
    plain = Plain(index)
    # s7 is in the list of w4, the rarer of its keywords.
    where = [
        (o, t)
        for (o, t), row in plain.rows.items()
        if o and NAMES.index("s7") in [clause for _, clause, _ in plain.entries(row)]
    ]
    assert {token for _, token in where} == {4}
    # Of the cells around m1, the lists of its keywords have s1, s2 and s7.
    node, reached = 0, set()
    while True:
        for token in M1[0]:
            row = plain.rows.get((node + 1, token))
            if row:
                reached |= {NAMES[clause] for _, clause, _ in plain.entries(row)}
        if not plain.children(node):
            break
        level, west, south = plain.cell(node)
        x, y = M1[1][0] * UNITS, M1[1][1] * UNITS
        east, north = x >= west + (1 << (31 - level)), y >= south + (1 << (30 - level))
        node = plain.children(node)[east + 2 * north]
    assert reached == {"s1", "s2", "s7"}
    matches = asked(index, M1)
    assert answers(matches) == {"s7"}
    assert matches.examined == 3


def test_example_the_other_message() -> None:
    assert answers(asked(example("iq-tree", list_size=1, depth=2), M2)) == {"s1", "s4"}


def test_a_small_box_on_a_border_is_divided_further_down() -> None:
    """All children are hit as often as the cell; only their children are hit less."""
    box = [[-9, -9, 9, 9]]
    options = {"list_size": 1, "depth": 12, "update_cost": 1e-9}
    index = indexes.create("iq-tree", **options).build(Clauses.of([[1]] * 20, box * 20))
    assert isinstance(index, IqTree)
    check_iq_tree(index)
    plain = Plain(index)
    levels = {plain.nodes[owner - 1][7] for owner, _ in plain.rows if owner}
    assert levels == {12}
    assert len(asked(index, ([1], [0, 0]))) == 20
    assert len(asked(index, ([1], [-1, -1, 1, 1]))) == 20


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_expensive_updates_lead_to_few_copies(name: str) -> None:
    tweets = Workload("tweets", seed=3, vocabulary=10, keywords=(1, 1))
    clauses, messages = tweets.subscriptions(3000 if JIT else 400), tweets.messages(100)
    sizes, work = [], []
    for cost in (1e-6, 1e-2, 1.0):
        index = indexes.create(name, list_size=8, update_cost=cost).build(clauses)
        sizes.append(len(index.arrays()["entry"]))
        work.append(index.match(messages).examined)
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[0] > sizes[2]
    assert work[0] < work[2]


class IqTreeChanges(Changes):
    """Inserts, deletes and restarts in any order; the invariants hold after each."""

    name = "iq-tree"

    @initialize(
        seed=seeds,
        count=st.integers(0, CROWD),
        list_size=st.sampled_from([1, 3, 10]),
        update_cost=st.sampled_from([1e-9, 1e-3, 0.1]),
        depth=st.sampled_from([2, 20]),
        parts=st.sampled_from([1, 8]),
    )
    def build(
        self, seed: int, count: int, list_size: int, update_cost: float, depth: int, parts: int
    ) -> None:
        self.clauses = crowd(seed, count)
        options = {"list_size": list_size, "update_cost": update_cost}
        options |= {"depth": depth, "parts": parts}
        self.index = indexes.create(self.name, **options).build(self.clauses)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    @invariant()
    def lists_hold(self) -> None:
        assert isinstance(self.index, IqTree)
        check_iq_tree(self.index)
        self.index.check_structure()


def test_changes() -> None:
    run_state_machine_as_test(
        IqTreeChanges,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_identical_clauses_are_not_split_endlessly(name: str) -> None:
    count = 3000 if JIT else 200
    clauses = Clauses.of([[1, 2]] * count, [[5, 5, 5, 5]] * count)
    index = indexes.create(name, list_size=4, update_cost=1e-12, depth=20).build(clauses)
    assert len(index.arrays()["node"]) <= 1 + 4 * 20
    assert len(index.match(Messages.of([[1, 2]], [[5, 5]]))) == count


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_what_is_added_later_is_found_as_quickly(name: str) -> None:
    tweets = Workload("tweets", seed=4)
    clauses, messages = tweets.subscriptions(4000 if JIT else 400), tweets.messages(100)
    whole = indexes.create(name, list_size=16).build(clauses)
    grown: Any = indexes.create(name, list_size=16).build(Clauses.empty())
    for rows in np.array_split(np.arange(len(clauses)), 20):
        grown.insert(clauses.take(rows))
    assert grown.match(messages).pairs() == whole.match(messages).pairs()
    assert grown.match(messages).examined <= 2 * whole.match(messages).examined


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_many_deletes_make_the_index_small(name: str) -> None:
    clauses = Workload("tweets", seed=1).subscriptions(800)
    index: Any = indexes.create(name, list_size=4).build(clauses)
    before = index.nbytes
    index.delete(np.arange(780))
    # The shares of cells do not shrink.
    assert index.nbytes - index.arrays()["share"].nbytes < before / 2


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_a_message_may_contain_the_id_of_no_token(name: str) -> None:
    clauses = Clauses.of([[], [1]], [[0, 0, 9, 9]] * 2)
    index = indexes.create(name).build(clauses)
    messages = Messages.of([[1, NO_TOKEN], [NO_TOKEN]], [[5, 5]] * 2)
    assert sorted(index.match(messages).pairs()) == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_statistics_of_messages_say_what_is_divided(name: str, tmp_path: Path) -> None:
    """Of two crowds of clauses, the one where messages come from is worth small cells."""
    rng = np.random.default_rng(0)
    centre = np.repeat([[-90, 45], [90, 45]], 200, axis=0) + rng.uniform(-3, 3, (400, 2))
    box = (np.concatenate([centre - 0.2, centre + 0.2], axis=1) * UNITS).astype(np.int64)
    clauses = Clauses.of([[0]] * 400, box)
    there = (rng.uniform((-93, 42), (-87, 48), (500, 2)) * UNITS).astype(np.int64)
    words = Vocabulary(["tea"])
    folder = tmp_path / "statistics"
    Statistics.count(Messages.of([[0]] * 500, there), words).save(folder)
    builder = indexes.create(name, list_size=4, update_cost=1e-3, statistics=str(folder))
    assert builder.vocabulary().tokens().to_pylist() == ["tea"]
    index: Any = builder.build(clauses)
    plain = Plain(index)
    leaves = [plain.cell(n) for n in range(len(plain.nodes)) if not plain.children(n)]
    west = max(level for level, x, _ in leaves if x < 0)
    east = max(level for level, x, _ in leaves if x >= 0)
    assert west > east
    messages = Messages.of([[0]] * 40, np.concatenate([there[:20], box[-20:, :2]]))
    wanted = indexes.create("scan").build(clauses).match(messages)
    assert_same(name, messages, index.match(messages), wanted)


@pytest.mark.parametrize("name", ["iq-tree", "rq-tree", "trie-quadtree"])
def test_a_saved_index_does_not_need_its_statistics(name: str, tmp_path: Path) -> None:
    case = draw("lattice")
    seen, words = Messages.of([[0], [1, 2]], [[0, 0], [9, 9]]), Vocabulary(["a", "b", "c"])
    Statistics.count(seen, words).save(tmp_path / "statistics")
    builder = indexes.create(name, list_size=2, statistics=str(tmp_path / "statistics"))
    builder.build(case.clauses).save(tmp_path / "index")
    shutil.rmtree(tmp_path / "statistics")
    index: Any = indexes.load(tmp_path / "index")
    count = case.clauses.subscriptions
    for _ in range(2):  # doubling it rebuilds it
        index.insert(case.clauses)
    index.delete(np.arange(count // 2, 3 * count))
    rest = indexes.create("scan").build(case.clauses.take(np.arange(count // 2)))
    assert_same(name, case.messages, index.match(case.messages), rest.match(case.messages))


def test_few_candidates_are_examined() -> None:
    tweets = Workload("tweets", seed=5)
    clauses, messages = tweets.subscriptions(4000 if JIT else 800), tweets.messages(60)
    index = indexes.create("iq-tree", list_size=50, update_cost=1e-6).build(clauses)
    assert index.match(messages).examined <= 3 * len(messages)


@pytest.mark.parametrize(
    "wrong",
    [
        {"list_size": 0},
        {"update_cost": 0.0},
        {"update_cost": 2.0},
        {"update_cost": "little"},
        {"depth": 21},
        {"parts": 0},
    ],
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        indexes.create("iq-tree", **wrong)
