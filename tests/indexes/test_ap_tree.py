"""The ap-tree: invariants of its arrays, changes, drift, hit probabilities, crafted arrays.

`check_ap_tree` reads the arrays of an index as plain numbers and shares nothing with the kernels.
The paper's example is in `test_ap_example`.
"""

from __future__ import annotations

import math
import pickle
import shutil
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test
from test_crafted_arrays import SEED, TRIES, crafted
from test_tree_changes import CROWD, EXAMPLES, STEPS, Changes, crowd, questions, seeds

from effort import examples
from nearcast import indexes
from nearcast.columns import Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.indexes.ap_tree import ApTree
from nearcast.indexes.scan import Scan
from nearcast.indexes.statistics import Statistics
from nearcast.testing.checks import assert_same
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

NO_RANK = 2**31 - 1
LEAF, KEYWORDS, SPACE = 0, 1, 2

Box = tuple[int, int, int, int]


class Node:
    """A node of an ap-tree, and all below it, as plain Python."""

    def __init__(self, arena: list[int], name: int) -> None:
        base = 8 * name
        self.kind = arena[base]
        self.children: list[Node | None] = []
        if self.kind == LEAF:
            self.size, self.capacity, self.split_above = arena[base + 1 : base + 4]
            self.region = tuple(arena[base + 4 : base + 8])
            self.key = arena[base + 8 : base + 8 + self.size]
            side, tail = base + 8 + self.capacity, base + 8 + 5 * self.capacity
            self.entry = [
                [
                    *(arena[side + self.capacity * j + i] for j in range(4)),
                    *arena[tail + 2 * i : tail + 2 * i + 2],
                ]
                for i in range(self.size)
            ]
            self.units = (8 + 7 * self.capacity + 7) // 8
            return
        self.parts, self.columns, self.offset, self.count = arena[base + 1 : base + 5]
        self.region = tuple(arena[base + 8 : base + 12])
        splits = arena[base + 16 : base + arena[base + 7]]
        self.units = (arena[base + 12] + 7) // 8
        if self.kind == KEYWORDS:
            self.high, self.low = splits[: self.parts], splits[self.parts :]
        else:
            self.column, self.row = splits[: self.columns - 1], splits[self.columns - 1 :]
        names = base + arena[base + 7]
        children = self.parts + 1
        self.now = arena[names + children : names + 2 * children]
        self.old = arena[names + 2 * children : names + 3 * children]
        self.children = [
            Node(arena, arena[names + i]) if arena[names + i] else None for i in range(children)
        ]

    def below(self) -> list[Node]:
        """Return this node and all below it."""
        return [self, *(node for child in self.children if child for node in child.below())]

    def clauses(self) -> set[int]:
        """Return the clauses in leaves at and below this node."""
        return {entry[5] for node in self.below() if node.kind == LEAF for entry in node.entry}


def root_of(index: ApTree) -> Node | None:
    arena = index.arrays()["nodes"].tolist()
    return Node(arena, arena[0]) if arena[0] else None


def cells(node: Node, region: Box) -> list[Box]:
    """Return the regions of a space node's cells."""
    west, south, east, north = region
    x, y = [west, *node.column, east + 1], [south, *node.row, north + 1]
    assert all(a < b for a, b in pairwise(x))
    assert all(a < b for a, b in pairwise(y))
    return [(a, c, b - 1, d - 1) for c, d in pairwise(y) for a, b in pairwise(x)]


def ranks_of(index: ApTree, clause: int) -> list[int]:
    start = index.clauses.token_start
    ranks: list[int] = index.arrays()["rank"][start[clause] : start[clause + 1]].tolist()
    return ranks


def check_ap_tree(index: ApTree) -> None:
    """Assert what holds of the arrays at all times."""
    arrays = index.arrays()
    state, root = arrays["state"].tolist(), root_of(index)
    alive = np.flatnonzero(index.alive[index.clauses.row]).tolist() if len(index.clauses) else []
    assert state[2] == len(alive)
    nodes = root.below() if root else []
    assert state[3] == sum(node.size for node in nodes if node.kind == LEAF)
    assert state[0] - state[1] == 1 + sum(node.units for node in nodes)
    assert (root.clauses() if root else set()) == set(alive)
    if root:
        bounds = state[8:12]
        check_node(index, root, set(alive), 0, (bounds[0], bounds[1], bounds[2], bounds[3]))


def check_node(index: ApTree, node: Node, clauses: set[int], offset: int, region: Box) -> None:
    """Assert that a node has these clauses, each where it belongs."""
    box = index.clauses.box
    if node.kind == LEAF:
        assert 0 < node.size <= min(node.capacity, node.split_above)
        assert Counter(entry[5] for entry in node.entry) == Counter(clauses)
        bounds = index.arrays()["state"].tolist()[8:12]
        corner = [-(2**31) if region[i] == bounds[i] else region[i] for i in (0, 1)]
        assert list(node.region[:2]) == corner
        for key, (*sides, second, clause) in zip(node.key, node.entry, strict=True):
            ranks = ranks_of(index, clause)
            assert ranks == sorted(set(ranks))
            assert sides == box[clause].tolist()
            assert (key == NO_RANK) if not ranks else (key in ranks)
            if ranks:
                assert second >> 1 in ranks
                assert (second & 1) == (len(ranks) > 2)
                assert (second >> 1 != key) == (len(ranks) > 1)
        return
    assert len(clauses) == node.count
    assert node.count >= index.options.leaf
    assert node.region == region
    expected: dict[int, set[int]] = defaultdict(set)
    if node.kind == KEYWORDS:
        assert node.offset == offset
        assert all(low <= high for low, high in zip(node.low, node.high, strict=True))
        assert all(high < low for high, low in zip(node.high, node.low[1:], strict=False))
        for clause in clauses:
            ranks = ranks_of(index, clause)
            cut = node.parts
            if len(ranks) > offset:
                [cut] = [
                    i for i in range(node.parts) if node.low[i] <= ranks[offset] <= node.high[i]
                ]
            expected[cut].add(clause)
        regions = [region] * node.parts
    else:
        regions = cells(node, region)
        expected = split_by_space(index, node, clauses, region, regions)
    for i, child in enumerate(node.children):
        assert node.now[i] == len(expected[i])
        assert (child is not None) == (len(expected[i]) > 0)
        if child:
            deeper = offset + (node.kind == KEYWORDS and i < node.parts)
            check_node(index, child, expected[i], deeper, [*regions, region][i])


def split_by_space(
    index: ApTree, node: Node, clauses: set[int], region: Box, regions: list[Box]
) -> dict[int, set[int]]:
    """Return the clauses of a space node by child."""
    expected: dict[int, set[int]] = defaultdict(set)
    x, y = [-math.inf, *node.column, math.inf], [-math.inf, *node.row, math.inf]
    for clause in clauses:
        west, south, east, north = index.clauses.box[clause].tolist()
        if west <= region[0] and south <= region[1] and east >= region[2] and north >= region[3]:
            expected[len(regions)].add(clause)
            continue
        for j, (low, high) in enumerate(pairwise(y)):
            for i, (left, right) in enumerate(pairwise(x)):
                if west < right and east >= left and south < high and north >= low:
                    expected[j * node.columns + i].add(clause)
    return expected


def build(clauses: Clauses, **options: Any) -> ApTree:
    index = indexes.create("ap-tree", **options).build(clauses)
    assert isinstance(index, ApTree)
    return index


OPTIONS: dict[str, dict[str, Any]] = {
    "small": {"leaf": 2, "fanout": 4},
    "optimal, rare": {"leaf": 3, "fanout": 9, "partition": "optimal", "order": "rare"},
    "keyword": {"leaf": 2, "fanout": 5, "prefer": "keyword", "order": "alphabet"},
    "space": {"leaf": 2, "fanout": 16, "prefer": "space"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("dataset", ["tweets", "places"])
def test_a_built_tree_is_valid(dataset: str, options: dict[str, Any]) -> None:
    index = build(Workload(dataset, seed=3).subscriptions(2000 if JIT else 200), **options)
    check_ap_tree(index)
    root = root_of(index)
    assert root is not None
    kinds = {node.kind for node in root.below()}
    assert kinds >= {LEAF, KEYWORDS if options.get("prefer") == "keyword" else SPACE} or (
        kinds >= {LEAF, KEYWORDS}
    )


@pytest.mark.parametrize(("prefer", "kind"), [("keyword", KEYWORDS), ("space", SPACE)])
def test_the_preferred_kind_comes_first(prefer: str, kind: int) -> None:
    index = build(Workload("tweets").subscriptions(3000 if JIT else 300), prefer=prefer, leaf=10)
    root = root_of(index)
    assert root is not None
    assert root.kind == kind


class ApTreeChanges(Changes):
    """Inserts, deletes and restarts in any order; the invariants hold after each."""

    name = "ap-tree"

    @initialize(
        seed=seeds,
        count=st.integers(0, CROWD),
        leaf=st.sampled_from([1, 3, 10]),
        fanout=st.sampled_from([2, 4, 30]),
        order=st.sampled_from(["frequent", "rare", "alphabet"]),
        prefer=st.sampled_from([None, "keyword", "space"]),
        divergence=st.sampled_from([0.0, 0.05, math.inf]),
        share=st.sampled_from([0.0, 0.2]),
    )
    def build(self, seed: int, count: int, **options: Any) -> None:
        self.clauses = crowd(seed, count)
        self.index = indexes.create(self.name, **options).build(self.clauses)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    @invariant()
    def tree_is_valid(self) -> None:
        assert isinstance(self.index, ApTree)
        check_ap_tree(self.index)


def test_changes() -> None:
    run_state_machine_as_test(
        ApTreeChanges,
        settings=settings(
            max_examples=examples(2 * EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


def test_a_leaf_is_split_and_joined_again() -> None:
    clauses = Workload("tweets", seed=1).subscriptions(41)
    index = build(clauses.take(np.arange(40)), divergence=math.inf)
    root = root_of(index)
    assert root is not None
    assert root.kind == LEAF
    index.insert(clauses.take(np.array([40])))
    root = root_of(index)
    assert root is not None
    assert root.kind != LEAF
    index.delete(np.array([0]))
    root = root_of(index)
    assert root is not None
    assert root.kind != LEAF  # 40 are not fewer than 40
    index.delete(np.array([1]))
    root = root_of(index)
    assert root is not None
    assert root.kind == LEAF
    check_ap_tree(index)


def drifted(divergence: float, half: int) -> tuple[ApTree, ApTree, Messages]:
    """Build over one data set, replace it step by step by another, and build over that."""
    old = Workload("tweets", seed=1, cities=20, vocabulary=2000).subscriptions(half)
    late = Workload("tweets", seed=9, cities=20, vocabulary=90_000)
    tokens = late.subscriptions(half)
    new = Clauses(
        token_start=tokens.token_start,
        token=tokens.token + 50_000,
        negative_start=tokens.negative_start,
        negative=tokens.negative,
        box=tokens.box,
        row=tokens.row,
        shape=tokens.shape,
        shapes=tokens.shapes,
        subscriptions=tokens.subscriptions,
    )
    index = build(old, divergence=divergence)
    step = half // 20
    for first in range(0, half, step):
        rows = np.arange(first, first + step)
        index.insert(new.take(rows))
        index.delete(rows)
    drawn = late.messages(400)
    messages = Messages(
        drawn.token_start, drawn.token + 50_000, drawn.box, drawn.time_us, drawn.ttl_us
    )
    return index, build(new), messages


@pytest.mark.skipif(not JIT, reason="slow as plain Python")
def test_rebuilding_follows_a_drift() -> None:
    """A tree that drifted examines about as much as a new one, but not without rebuilding."""
    half = 20_000
    index, fresh, messages = drifted(0.001, half)
    kept, _, _ = drifted(math.inf, half)
    check_ap_tree(index)
    check_ap_tree(kept)
    wanted = fresh.match(messages)
    assert len(wanted) > 0
    assert len(index.match(messages)) == len(kept.match(messages)) == len(wanted)
    assert index.match(messages).examined <= 1.5 * wanted.examined
    assert kept.match(messages).examined > 1.5 * wanted.examined


def test_freed_units_are_used_again() -> None:
    """The arena does not grow with the number of changes."""
    count, rounds = (3000, 8) if JIT else (100, 2)
    clauses = Workload("tweets", seed=2).subscriptions(count)
    index = build(clauses, leaf=8, divergence=0.0, share=0.0)
    before = len(index.arrays()["nodes"])
    for i in range(rounds):
        rows = np.arange(i * count, (i + 1) * count)
        index.insert(clauses)
        index.delete(rows)
    check_ap_tree(index)
    assert len(index.arrays()["nodes"]) < 6 * before + (1 << 20)


@pytest.mark.parametrize("prefer", [None, "keyword", "space"])
def test_identical_clauses_are_one_leaf(prefer: str | None) -> None:
    count = 500 if JIT else 50
    alike = Clauses.of([[1, 2]] * count, [[0, 0, 9, 9]] * count)
    index = build(alike, leaf=2, prefer=prefer)
    check_ap_tree(index)
    index.insert(alike)
    index.delete(np.arange(0, 2 * count, 2))
    check_ap_tree(index)
    assert len(index.match(Messages.of([[1, 2, 3]], [[9, 9]]))) == count


def test_large_boxes_are_not_copied_without_end() -> None:
    rng = np.random.default_rng(0)
    count = 3000 if JIT else 300
    corner = rng.integers(0, 400, (count, 2))
    box = np.concatenate([corner, corner + 600 + rng.integers(0, 400, (count, 2))], axis=1)
    index = build(Clauses.of([[1]] * count, box * 1000), leaf=4, prefer="space")
    check_ap_tree(index)
    assert index.arrays()["state"][3] < 40 * count


def test_a_cut_is_opened_once() -> None:
    """Two ranks of a message hit a cut; clauses that start with either are found once."""
    tokens = [[1, 3], [2, 3], [1, 2, 3], [2], [1], []]
    clauses = Clauses.of(tokens * 9, [[0, 0, 9, 9]] * 54)
    index = build(clauses, leaf=1, fanout=2, prefer="keyword", order="alphabet")
    messages = Messages.of([[1, 2, 3], [2, 3], [3], [NO_RANK]], [[5, 5]] * 4)
    assert_same(
        "cuts",
        messages,
        index.match(messages),
        Scan(clauses, np.ones(len(clauses), np.bool_)).match(messages),
    )


def test_a_sample_of_messages_decides(tmp_path: Path) -> None:
    """The places and tokens of messages improve the tree."""
    words = [f"w{i}" for i in range(60)]
    rng = np.random.default_rng(4)
    texts = [rng.choice(6, 4, replace=False).tolist() for _ in range(400)]
    places = np.full((400, 2), 100_000_000) + rng.integers(0, 10_000_000, (400, 2))
    messages = Messages.of(texts, places)
    Statistics.count(messages, Vocabulary(words)).save(tmp_path / "sample")
    builder = indexes.create("ap-tree", sample=str(tmp_path / "sample"), leaf=8)
    vocabulary = builder.vocabulary()
    assert len(vocabulary) == 6  # the tokens that occur; subscriptions add others
    count = 1200 if JIT else 150
    corner = rng.integers(0, 200_000_000, (count, 2))
    clauses = Clauses.of(
        [rng.integers(0, 60, 3).tolist() for _ in range(count)],
        np.concatenate([corner, corner + 20_000_000], axis=1),
    )
    index, without = builder.build(clauses), build(clauses, leaf=8)
    assert isinstance(index, ApTree)
    check_ap_tree(index)
    found = index.match(messages)
    assert_same(
        "sample", messages, found, Scan(clauses, np.ones(len(clauses), np.bool_)).match(messages)
    )
    if JIT:  # fewer clauses gain little
        assert found.examined < without.match(messages).examined
    index.save(tmp_path / "index")
    again = indexes.load(tmp_path / "index")
    assert isinstance(again, ApTree)
    again.insert(clauses)
    check_ap_tree(again)


def test_a_saved_index_does_not_need_its_sample(tmp_path: Path) -> None:
    """The arrays have what is needed of the sample: its folder may be gone."""
    messages = Messages.of([[0, 1], [1, 2]] * 20, [[5, 5], [9, 9]] * 20)
    Statistics.count(messages, Vocabulary(["a", "b", "c"])).save(tmp_path / "sample")
    builder = indexes.create("ap-tree", sample=str(tmp_path / "sample"), leaf=2, share=0.0)
    clauses = crowd(3, CROWD)
    builder.build(clauses).save(tmp_path / "index")
    shutil.rmtree(tmp_path / "sample")
    index = indexes.load(tmp_path / "index")
    assert isinstance(index, ApTree)
    assert len(index.arrays()["sample.share"]) == 3
    for seed in range(4):
        index.insert(crowd(seed, CROWD))
    index.delete(np.arange(clauses.subscriptions))
    check_ap_tree(index)
    index.save(tmp_path / "again")
    again = pickle.loads(pickle.dumps(indexes.load(tmp_path / "again")))
    check_ap_tree(again)
    assert again.match(messages).pairs() == index.match(messages).pairs()


@pytest.mark.parametrize("prefer", [None, "keyword", "space"])
def test_crafted_arrays_change_without_harm(prefer: str | None) -> None:
    """What the check accepts can be changed: no kernel leaves its arrays or runs for ever."""
    rng = np.random.default_rng(SEED)
    clauses = crowd(SEED, CROWD)
    index = build(clauses, fanout=4, leaf=2, prefer=prefer, share=0.0, divergence=0.0)
    index.delete(np.arange(0, clauses.subscriptions, 5))
    index.insert(crowd(SEED + 1, CROWD // 4))
    arrays = dict(index.arrays())
    accepted = 0
    for _ in range(TRIES):
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        changed = arrays | {name: crafted(arrays[name], rng)}
        try:
            loaded = ApTree.from_arrays(index.clauses, index.options, changed)
            loaded.check_structure()
        except StorageError:
            continue
        accepted += 1
        rows = np.flatnonzero(loaded.alive)
        loaded.delete(rows[::3])
        loaded.insert(clauses)
        loaded.delete(rows[1::3])
        loaded.match(questions(SEED))
    assert accepted > 0


def test_a_crafted_cycle_is_refused() -> None:
    index = build(crowd(1, CROWD), fanout=4, leaf=2)
    arrays = dict(index.arrays())
    nodes = arrays["nodes"].copy()
    root = 8 * int(nodes[0])
    nodes[root + int(nodes[root + 7])] = nodes[0]
    loaded = ApTree.from_arrays(index.clauses, index.options, arrays | {"nodes": nodes})
    with pytest.raises(StorageError, match="build it again from its subscriptions"):
        loaded.check_structure()


def test_no_divergence_is_stored_as_a_number(tmp_path: Path) -> None:
    index = build(Clauses.of([[1]], [[0, 0, 9, 9]]), divergence=math.inf)
    index.save(tmp_path / "index")
    assert indexes.load(tmp_path / "index").options == index.options


def test_invalid_options() -> None:
    for name, value in {"partition": "best", "prefer": "time", "order": "random"}.items():
        with pytest.raises(UnknownName, match=name):
            indexes.create("ap-tree", **{name: value})
    wrong = {"fanout": 1, "leaf": 0, "divergence": -1, "share": 2}
    for name, number in wrong.items():
        with pytest.raises(InvalidInput, match=name):
            indexes.create("ap-tree", **{name: number})


def test_tweets_examine_few() -> None:
    """A bound on the examined clauses: tokens or places rule out most."""
    count = 20_000 if JIT else 400
    workload = Workload("tweets", seed=5)
    index = build(workload.subscriptions(count))
    messages = workload.messages(300 if JIT else 20)
    assert index.match(messages).examined <= (0.015 if JIT else 0.5) * count * len(messages)
