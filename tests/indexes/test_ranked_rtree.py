"""Ranked R-trees: examples, what entries promise, how little is read, and every kind of change."""

from __future__ import annotations

import functools
import os
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
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

from effort import examples
from nearcast import indexes
from nearcast.columns import WORLD, Messages, Ranked, Scoring
from nearcast.compiled.jit import JIT
from nearcast.compiled.scoring import GUARD, TOLERANCE
from nearcast.datasets import Workload
from nearcast.errors import InvalidInput, StorageError, UnknownId, UnknownName
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.ranked import ranked_messages
from nearcast.indexes.ranked_in_place import RankedInPlaceIndex
from nearcast.indexes.ranked_scan import RankedScan, _geodesic_m, _planar_m
from nearcast.indexes.rtree.ranked_bounds import (
    P_MAX,
    P_MIN,
    matching_slots,
    write_text_bounds,
)
from nearcast.indexes.rtree.ranked_index import BoundTree, RankedRtTree, RankedTree
from nearcast.indexes.rtree.ranked_space import (
    gap_distance_m,
    near_slots,
    write_gaps,
    write_spaces,
)
from nearcast.testing.ranked_cases import SCORINGS, draw_ranked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nearcast.indexes import Index

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))
SOAK = "NEARCAST_TEST_SEED" in os.environ
EXAMPLES = (60 if SOAK else 10) if JIT else 3
STEPS = 12 if JIT else 5

TREES = [
    ("ir-tree-1", "proximity"),
    ("ir-tree-100", "proximity"),
    ("rt++-tree", "proximity"),
    ("rt-tree", "overlap"),
    ("rt+-tree", "overlap"),
    ("rt++-tree", "overlap"),
]
BOUNDED = [tree for tree in TREES if tree[0] in ("ir-tree-1", "ir-tree-100", "rt-tree")]
by_tree = pytest.mark.parametrize(("name", "kind"), TREES)


def built(name: str, ranked: Ranked, **options: Any) -> RankedTree:
    index = indexes.create(name, **options).build(ranked)
    assert isinstance(index, RankedTree)
    return index


def answers(index: Index, messages: Messages) -> dict[tuple[int, int], float]:
    matches = index.match(messages)
    assert matches.score is not None
    pairs = zip(matches.message.tolist(), matches.subscription.tolist(), strict=True)
    return dict(zip(pairs, matches.score.tolist(), strict=True))


# Examples.


@pytest.mark.parametrize("name", ["ir-tree-1", "ir-tree-100", "rt++-tree"])
def test_a_cafe_nearby(name: str) -> None:
    """One asks for tea within 2 km and half of each, one for tea anywhere, one for a place."""
    tea, cake = 1, 2
    ranked = Ranked.of(
        [[tea, cake], [tea], []],
        [[0, 0], [900_000_000, 0], [0, 0]],
        kind="proximity",
        p=[0.5, 1.0, 0.0],
        q=[0.7, 1.0, 0.9],
        max_distance_m=[2000, 1, 1000],
    )
    messages = Messages.of([[tea], [tea, cake], [cake], []], [[0, 0], [0, 100_000], [0, 0], [0, 0]])
    found = answers(built(name, ranked, least=2, most=3), messages)
    assert found.keys() == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 2), (3, 2)}
    assert found[0, 0] == 0.75
    assert found[1, 0] == pytest.approx(0.5 + 0.5 * (1 - 0.01 * 111_195.0797 / 2000))


@pytest.mark.parametrize("name", ["rt-tree", "rt+-tree", "rt++-tree"])
def test_half_of_a_region(name: str) -> None:
    """A message covers half of a region, all of it, or has nothing in common with it."""
    ranked = Ranked.of(
        [[1], [1], [2]],
        [[0, 0, 10, 10], [0, 0, 100, 100], [0, 0, 10, 10]],
        kind="overlap",
        p=[0.5, 0.5, 0.0],
        q=[0.75, 0.75, 0.5],
    )
    messages = Messages.of([[1], [1], [1]], [[0, 0, 5, 10], [0, 0, 100, 100], [200, 200, 300, 300]])
    found = answers(built(name, ranked, least=2, most=3), messages)
    assert found == {(0, 0): 0.75, (0, 2): 0.5, (1, 0): 1.0, (1, 1): 1.0, (1, 2): 1.0}


@pytest.mark.parametrize("name", ["rt-tree", "rt+-tree", "rt++-tree"])
def test_a_region_of_two_boxes_is_found_once_and_their_areas_add(name: str) -> None:
    """Each box has half of what the message needs: neither would be enough alone."""
    east, west = WORLD[2], WORLD[0]
    ranked = Ranked.of(
        [[1], [1]],
        [[east - 10, 0, east, 10], [west, 0, west + 10, 10]],
        kind="overlap",
        p=0.0,
        q=0.5,
        row=[0, 0],
    )
    index = built(name, ranked)
    crossing = Messages.of([[7], [7]], [[east - 5, 0, west + 5, 10], [east - 5, 0, east, 10]])
    matches = index.match(crossing)
    assert matches.subscription.tolist() == [0]
    assert matches.message.tolist() == [0]
    assert answers(index, crossing)[0, 0] == 0.5


def test_shares_and_thresholds_choose_one_of_a_hundred_trees() -> None:
    p = np.array([0.0, 0.0999, 0.1, 0.95, 1.0, 1.0])
    q = np.array([0.0, 0.25, 0.25, 0.999, 1.0, 0.05])
    ranked = Ranked.of([[1]] * 6, [[0, 0]] * 6, kind="proximity", p=p, q=q, max_distance_m=10)
    index = built("ir-tree-100", ranked)
    arrays = index.arrays()
    trees = np.searchsorted(arrays["root"], arrays["tree.leaf_of"])
    assert trees.tolist() == [0, 2, 12, 99, 99, 90]
    assert index.match(Messages.of([[1]], [[0, 0]])).visited == 5, "empty trees are skipped"


@pytest.mark.parametrize("kind", ["proximity", "overlap"])
def test_lists_of_the_whole_index_change_what_is_visited_not_what_is_found(kind: str) -> None:
    case = draw_ranked("crowd", kind, seed=SEED)
    whole, nodes = (
        indexes.create("rt++-tree", least=2, most=4, anywhere=place).build(case.ranked)
        for place in ("index", "nodes")
    )
    assert answers(whole, case.messages) == answers(nodes, case.messages)
    visited = [index.match(case.messages).visited for index in (whole, nodes)]
    assert 1.5 * visited[0] < visited[1]


# What is refused.


def test_trees_say_what_they_take() -> None:
    near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=10)
    with pytest.raises(InvalidInput, match="rt-tree takes overlap subscriptions"):
        RankedRtTree.build(near, indexes.create("rt-tree").others[0].options)
    with pytest.raises(UnknownName, match="unknown anywhere 'leaf'; choose from: index, nodes"):
        indexes.create("rt++-tree", anywhere="leaf")
    # The ranked form does not know how boolean clauses choose tokens, and need not.
    assert isinstance(indexes.create("rt++-tree", tokens="idf").build(near), RankedTree)


@by_tree
def test_only_subscriptions_of_the_same_kind_weights_and_scoring_are_inserted(
    name: str, kind: str
) -> None:
    case = draw_ranked("lattice", kind, seed=SEED)
    index = built(name, case.ranked)
    other = "overlap" if kind == "proximity" else "proximity"
    for wrong in (
        draw_ranked("lattice", other, seed=SEED).ranked,
        draw_ranked("lattice", kind, Scoring("dice"), seed=SEED).ranked,
        Ranked.of([[1]], [[0, 0]], kind=kind, p=1, q=1, max_distance_m=1, weight=[1.0, 2.0]),
    ):
        with pytest.raises(InvalidInput):
            index.insert(wrong)
    with pytest.raises(UnknownId, match="row 120 is not in the index"):
        index.delete(np.array([120]))
    assert len(index.content) == 120


# What entries promise.


class Slots:
    """The trees of an index as plain numbers: what is below every slot of every node."""

    def __init__(self, index: RankedTree) -> None:
        arrays = index.arrays()
        self.used, self.level = arrays["tree.used"].tolist(), arrays["tree.level"].tolist()
        self.entry, self.box = arrays["tree.entry"].tolist(), arrays["tree.box"]
        self.row = index.clauses.row.tolist()

    def each(self) -> Iterator[tuple[int, int, list[int]]]:
        """Return every slot in use: its node, its number and the clauses below it."""
        for node in range(len(self.used)):
            if self.level[node] >= 0:
                for slot in self.slots(node):
                    yield node, slot, self.below(node, slot)

    def slots(self, node: int) -> list[int]:
        return [slot for slot in range(64) if self.used[node] >> slot & 1]

    def below(self, node: int, slot: int) -> list[int]:
        entry = self.entry[node][slot]
        if self.level[node] == 0:
            return [entry]
        return [clause for s in self.slots(entry) for clause in self.below(entry, s)]


def changed(index: RankedTree, case: Any) -> RankedTree:
    """Return the index after some rows came and some went; rows keep their numbers."""
    rows = np.arange(len(case.ranked))
    index.insert(case.ranked.take(rows[len(index.content) :]))
    index.delete(rows[1::7])
    return index


@pytest.mark.parametrize("scoring", SCORINGS[: 6 if JIT else 2])
@pytest.mark.parametrize(("name", "kind"), BOUNDED)
def test_no_subscription_below_an_entry_scores_more_than_it_promises(
    name: str, kind: str, scoring: Scoring
) -> None:
    case = draw_ranked("antimeridian" if SEED % 2 else "near", kind, scoring, SEED)
    some = case.ranked.take(np.arange(len(case.ranked) // 2))
    index = changed(built(name, some, least=2, most=4, load="insert"), case)
    assert isinstance(index, BoundTree)
    scan = RankedScan.build(index.content, NoOptions())
    seen, columns = ranked_messages(case.messages, index.content), index.columns
    slots, bounds = Slots(index), index.arrays()["bound"]
    tokens = [set(columns.token[a:b].tolist()) for a, b in pairwise(columns.token_start.tolist())]
    pruned = 0
    for message in range(0, len(case.messages), 5):
        start = case.messages.token_start
        has = set(case.messages.token[start[message] : start[message + 1]].tolist())
        weight = {t: _weight(index.content, t) for t in has}
        parts: dict[int, Any] = {}
        for node, slot, below in slots.each():
            rows = sorted({slots.row[clause] for clause in below})
            shared, space = np.zeros(64), np.zeros(64)
            shared[slot] = sum(weight[t] for t in has & set().union(*(tokens[r] for r in rows)))
            write_text_bounds(
                index.codes.similarity, bounds[node], seen.text_weight[message], 4, shared
            )
            write_spaces(index.codes, slots.box[node], bounds[node][4], seen, message, 4, space)
            possible = int(matching_slots(bounds[node], shared, space, 4)) >> slot & 1
            most = max(
                space[slot] + float(bounds[node][end, slot]) * (shared[slot] - space[slot])
                for end in (P_MIN, P_MAX)
            )
            pruned += not possible
            for row in rows:
                if row not in parts:
                    parts[row] = scan.parts(case.messages, message, row)
                one_box = int((index.clauses.row == row).sum()) == 1
                assert parts[row].text <= shared[slot] + GUARD
                if one_box:
                    assert parts[row].space <= space[slot] + 1e-9
                    assert parts[row].score <= most + 1e-9
                    matches = parts[row].score >= scan._rows[row].q - TOLERANCE
                    assert possible or not matches
    assert pruned


def _weight(ranked: Ranked, token: int) -> float:
    if not ranked.scoring.weighs:
        return 1.0
    return float(ranked.weight[token]) if token < len(ranked.weight) else ranked.unknown_weight


@pytest.mark.parametrize("scoring", SCORINGS[: 6 if JIT else 2])
@pytest.mark.parametrize("kind", ["proximity", "overlap"])
def test_no_match_lies_beyond_the_limit_of_an_entry(kind: str, scoring: Scoring) -> None:
    case = draw_ranked("crowd" if JIT else "lattice", kind, scoring, SEED)
    some = case.ranked.take(np.arange(len(case.ranked) // 2))
    index = changed(built("rt++-tree", some, least=2, most=4), case)
    scan = RankedScan.build(index.content, NoOptions())
    seen, slots, arrays = (
        ranked_messages(case.messages, index.content),
        Slots(index),
        index.arrays(),
    )
    start, key, limit = arrays["key_start"], arrays["key"], arrays["key_limit"]
    top = max(slots.level)
    found = 0
    for message in range(3):
        tokens = case.messages.token_start
        has = set(case.messages.token[tokens[message] : tokens[message + 1]].tolist())
        has.add(2**31 - 1)
        matching = {
            row
            for row in range(len(index.content))
            if scan.parts(case.messages, message, row).score >= scan._rows[row].q - TOLERANCE
        }
        for node, slot, below in slots.each():
            gap = np.zeros(64)
            write_gaps(index.codes, slots.box[node], seen, message, 4, gap)
            near = int(near_slots(gap, arrays["limit"][node], 4)) >> slot & 1
            depth = top - slots.level[node] + (slots.level[node] > 0)
            for clause in below:
                if slots.row[clause] in matching:
                    own = key[start[clause] : start[clause + 1]].tolist()
                    first = next(i for i, token in enumerate(own) if token in has)
                    anywhere = limit[start[clause] + first] == np.inf
                    # Dummies are kept in leaves, whatever their position.
                    if not anywhere and (first >= depth - 1 or own[first] == 2**31 - 1):
                        found += 1
                        assert near
    assert found


coordinate = st.tuples(
    st.integers(int(WORLD[0]), int(WORLD[2])) | st.sampled_from([-(10**9), 0, 7, int(WORLD[2])]),
    st.integers(int(WORLD[1]), int(WORLD[3])) | st.sampled_from([int(WORLD[1]), 0, int(WORLD[3])]),
)


@settings(max_examples=examples(300 if JIT else 60), deadline=None)
@given(a=coordinate, b=coordinate, c=coordinate, d=coordinate, share=st.floats(0, 1))
def test_gaps_are_at_most_the_distance_to_any_place_in_a_box(
    a: tuple[int, int], b: tuple[int, int], c: tuple[int, int], d: tuple[int, int], share: float
) -> None:
    west, east = sorted((a[0], b[0]))
    south, north = sorted((a[1], b[1]))
    place = west + int(share * (east - west)), south + int(share * (north - south))
    message = (*np.minimum(c, d).tolist(), *np.maximum(c, d).tolist())
    box = np.array([[west], [south], [east], [north]], np.int32)
    for scoring, measure in ((Scoring(), _geodesic_m), (Scoring(distance="planar"), _planar_m)):
        near = Ranked.of(
            [[1]], [[0, 0]], kind="proximity", p=0, q=1, max_distance_m=1, scoring=scoring
        )
        index = built("rt++-tree", near)
        gap = np.zeros(64)
        seen = ranked_messages(Messages.of([[1]], [message]), near)
        write_gaps(index.codes, box, seen, 0, 1, gap)
        assert gap_distance_m(index.codes, gap[0]) <= measure(*place, message) + 1e-6


# How little is read.


@pytest.mark.skipif(not JIT, reason="takes long as plain Python")
@pytest.mark.parametrize(
    ("name", "kind", "examined", "visited"),
    [
        ("ir-tree-1", "proximity", 1.001, 300),
        ("ir-tree-100", "proximity", 1.001, 175),
        ("rt++-tree", "proximity", 1.7, 6),
        ("rt-tree", "overlap", 1.001, 300),
        ("rt+-tree", "overlap", 1.1, 38),
        ("rt++-tree", "overlap", 1.1, 17),
    ],
)
def test_few_candidates_are_examined_and_few_nodes_visited(
    name: str, kind: str, examined: float, visited: float
) -> None:
    """Candidates an answer, and nodes a message, over 20,000 subscriptions."""
    workload = Workload("tweets", seed=7)
    matches = built(name, workload.ranked(20_000, kind)).match(workload.messages(200))
    assert len(matches) > 1000
    assert matches.examined <= examined * len(matches)
    assert matches.visited <= visited * 200


# Changes.


@functools.cache
def pool(kind: str, number: int) -> tuple[Ranked, Messages, dict[int, dict[int, float]]]:
    """Return subscriptions to choose from, messages, and the answers of all: by row, by message."""
    scoring = SCORINGS[number]
    names = ["near", "antimeridian", "no_keywords", "conditions", "shapes"]
    cases = [draw_ranked(name, kind, scoring, SEED) for name in names if JIT or name != "shapes"]
    ranked = Ranked.concatenate([case.ranked for case in cases])
    messages = draw_ranked("antimeridian", kind, scoring, SEED).messages
    messages = messages.take(np.arange(0, len(messages), 3 if JIT else 10))
    found: dict[int, dict[int, float]] = {}
    for (message, row), score in answers(RankedScan.build(ranked, NoOptions()), messages).items():
        found.setdefault(row, {})[message] = score
    return ranked, messages, found


class Changes(RuleBasedStateMachine):
    """Inserts, deletes and restarts in any order, against the answers of a scan."""

    name, kind = "", ""

    @initialize(
        seed=st.integers(0, 1 << 32),
        count=st.integers(0, 40),
        size=st.sampled_from([(2, 3), (2, 4), (3, 6)]),
        load=st.sampled_from(["str", "hilbert", "insert"]),
        scoring=st.integers(0, len(SCORINGS) - 1),
    )
    def build(self, seed: int, count: int, size: tuple[int, int], load: str, scoring: int) -> None:
        self.ranked, self.messages, self.found = pool(self.kind, scoring)
        self.row: list[int] = self.some(seed, max(count, 1))
        self.alive = [True] * len(self.row)
        options = {"least": size[0], "most": size[1], "load": load}
        if self.name == "rt++-tree":
            options["anywhere"] = ["index", "nodes"][seed % 2]
        index = indexes.create(self.name, **options).build(self.ranked.take(np.array(self.row)))
        assert isinstance(index, RankedInPlaceIndex)
        self.index: Any = index

    def some(self, seed: int, count: int) -> list[int]:
        chosen = np.random.default_rng(seed).choice(len(self.ranked), count, replace=False)
        rows: list[int] = np.sort(chosen).tolist()
        return rows

    def delete(self, rows: NDArray[np.int64]) -> None:
        self.index.delete(rows)
        for row in rows.tolist():
            self.alive[row] = False

    @rule(seed=st.integers(0, 1 << 32), count=st.integers(1, 40 if JIT else 12))
    def insert(self, seed: int, count: int) -> None:
        rows = self.some(seed, count)
        self.index.insert(self.ranked.take(np.array(rows)))
        self.row += rows
        self.alive += [True] * count

    @rule(seed=st.integers(0, 1 << 32), count=st.integers(2, 6))
    def insert_one_by_one(self, seed: int, count: int) -> None:
        for number in range(count):
            self.insert(seed + number, 1)

    @rule(seed=st.integers(0, 1 << 32), share=st.sampled_from([0.1, 0.4, 0.9, 1.0]))
    def delete_some(self, seed: int, share: float) -> None:
        chosen = np.random.default_rng(seed).random(len(self.alive)) < share
        self.delete(np.flatnonzero(chosen & np.array(self.alive)))

    @precondition(lambda self: not all(self.alive))
    @rule()
    def delete_what_is_gone(self) -> None:
        gone = self.alive.index(False)
        with pytest.raises(UnknownId, match=f"row {gone} is not in the index"):
            self.index.delete(np.array([gone]))

    @rule()
    def restart(self) -> None:
        self.index = pickle.loads(pickle.dumps(self.index))

    @invariant()
    def agrees(self) -> None:
        expected = {
            (message, row): score
            for row, number in enumerate(self.row)
            if self.alive[row]
            for message, score in self.found.get(number, {}).items()
        }
        got = answers(self.index, self.messages)
        assert got.keys() == expected.keys()
        assert all(abs(got[pair] - score) < 1e-11 for pair, score in expected.items())

    @invariant()
    def is_sound(self) -> None:
        index = self.index
        assert index.alive.tolist() == self.alive
        type(index).from_arrays(index.content, index.options, index.arrays()).check_structure()


@by_tree
def test_changes(name: str, kind: str) -> None:
    machine = type("Changes", (Changes,), {"name": name, "kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


@by_tree
def test_bounds_are_tight_again_after_nodes_are_rebuilt(name: str, kind: str) -> None:
    """After everything left and came back, little more is visited than in a new tree."""
    case = draw_ranked("crowd" if JIT else "near", kind, seed=SEED)
    index = built(name, case.ranked, least=2, most=4)
    index.delete(np.arange(len(case.ranked)))
    assert index.match(case.messages).visited <= len(case.messages)
    index.insert(case.ranked)
    new = built(name, case.ranked, least=2, most=4, load="insert").match(case.messages)
    assert index.match(case.messages).visited <= 1.5 * new.visited


# Arrays from elsewhere.


@by_tree
def test_crafted_arrays_are_refused_or_harmless(name: str, kind: str) -> None:
    """Those that are accepted can be matched, and changed."""
    rng = np.random.default_rng([SEED, len(name)])
    case = draw_ranked("antimeridian", kind, seed=SEED)
    index = built(name, case.ranked, least=2, most=4)
    arrays = dict(index.arrays())
    refused = accepted = 0
    for _ in range(200 if JIT else 8):
        array = sorted(arrays)[int(rng.integers(len(arrays)))]
        try:
            loaded = type(index).from_arrays(
                case.ranked, index.options, arrays | {array: crafted(arrays[array], rng)}
            )
            loaded.check_structure()
        except StorageError:
            refused += 1
            continue
        accepted += 1
        loaded.match(case.messages)
        loaded.insert(case.ranked.take(np.arange(20)))
        loaded.delete(np.flatnonzero(loaded.alive)[::3])
        loaded.match(case.messages)
        loaded.delete(np.flatnonzero(loaded.alive))
    assert not JIT or (refused and accepted), (refused, accepted)


@by_tree
def test_arrays_of_a_built_index_are_accepted(name: str, kind: str) -> None:
    for case in ("lattice", "identical", "antimeridian"):
        index = built(name, draw_ranked(case, kind, seed=SEED).ranked)
        type(index).from_arrays(index.content, index.options, index.arrays()).check_structure()
