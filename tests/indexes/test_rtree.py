"""The R-tree under all tree indexes: how it is loaded, and what holds of it at all times.

`check_tree` reads the arrays of an index as plain numbers and shares nothing with the kernels.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import Clauses
from nearcast.compiled.jit import JIT
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.rtree.index import RTreeIndex
from nearcast.indexes.scan import Scan
from nearcast.testing import draw
from nearcast.testing.checks import assert_same

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nearcast.indexes import Index

NAMES = ["spatial-first", "ir-tree", "rt-tree", "rt+-tree", "rt++-tree"]
LOADS = ["str", "hilbert", "insert"]
NO_TOKEN = 2**31 - 1
FAR = 2**31 - 1

Box: TypeAlias = tuple[int, int, int, int]
Knowledge: TypeAlias = dict[int, Any]
"""What a node knows: by token, a set of slots as a word, or a sorted list of postings."""


class Tree:
    """The arrays of a tree index as plain Python."""

    box: list[list[list[int]]]
    entry: list[list[int]]
    key: list[list[int]]
    used: list[int]
    level: list[int]
    parent: list[int]
    place: list[int]
    leaf_of: list[int]
    root: int

    def __init__(self, index: RTreeIndex) -> None:
        arrays = {name: array.tolist() for name, array in index.arrays().items()}
        for name in ("box", "entry", "key", "used", "level", "parent", "place", "leaf_of"):
            setattr(self, name, arrays[f"tree.{name}"])
        self.name = index.name
        self.least, self.most = index.options.least, index.options.most
        self.root, self.top, self.free, self.moved, self.changed = arrays["tree.state"]
        self.table, self.slot, self.posting = arrays["table"], arrays["slot"], arrays["posting"]
        start, token = index.clauses.token_start.tolist(), arrays["token"]
        given = index.clauses.token.tolist()
        pieces = list(pairwise(start))
        assert all(sorted(token[a:b]) == given[a:b] for a, b in pieces)
        self.tokens = [token[a:b] or [NO_TOKEN] for a, b in pieces]
        self.clause_box = [tuple(box) for box in index.clauses.box.tolist()]
        rows = index.clauses.row.tolist()
        self.alive = [clause for clause, row in enumerate(rows) if arrays["alive"][row]]

    def slots(self, node: int) -> list[int]:
        """Return the slots of a node in use."""
        return [slot for slot in range(64) if self.used[node] >> slot & 1]

    def entries(self, node: int) -> list[int]:
        return [self.entry[node][slot] for slot in self.slots(node)]

    def entry_box(self, node: int, slot: int) -> Box:
        west, south, east, north = (side[slot] for side in self.box[node])
        return west, south, east, north

    def depth(self, node: int) -> int:
        return self.level[self.root] - self.level[node]

    def nodes(self) -> list[int]:
        """Return the nodes of the tree, parents before children."""
        found = [self.root]
        for node in found:
            if self.level[node] > 0:
                found += self.entries(node)
        return found

    def free_nodes(self) -> list[int]:
        found, node = [], self.free
        while node >= 0:
            found.append(node)
            node = self.parent[node]
        return found

    def below(self, node: int) -> list[int]:
        """Return the clauses below a node."""
        if self.level[node] == 0:
            return self.entries(node)
        return [clause for child in self.entries(node) for clause in self.below(child)]

    def known(self, node: int) -> Knowledge:
        """Read what a node knows."""
        start, size, count = self.table[node]
        known: Knowledge = {}
        for key, word in self.slot[start : start + size]:
            if key:
                token, upper = (key & 0xFFFFFFFF) - 1, key >> 32
                assert token not in known, f"node {node} has token {token} twice"
                if self.name == "rt++-tree" and self.level[node] > 0:
                    assert 0 < upper <= word & (2**28 - 1)
                    known[token] = sorted(self.posting[word >> 28 :][:upper])
                else:
                    assert upper == 0
                    known[token] = word
        assert count == len(known)
        assert size == 0 or count < size, f"node {node} has a table without a free slot"
        return known

    def expected(self, node: int) -> Knowledge:
        """Work out what a node has to know, from the clauses below it."""
        if self.level[node] == 0:
            if self.name in ("rt-tree", "rt+-tree"):
                return {}
            skip = max(0, self.depth(node) - 1) if self.name == "rt++-tree" else 0
            return masks(
                (slot, self.tokens[self.entry[node][slot]][skip:]) for slot in self.slots(node)
            )
        if self.name == "rt++-tree":
            return self.expected_lists(node)
        last = 1 if self.name == "rt+-tree" else None
        return masks(
            (slot, self.tokens[clause][:last])
            for slot in self.slots(node)
            for clause in self.below(self.entry[node][slot])
        )

    def expected_lists(self, node: int) -> Knowledge:
        lists: defaultdict[int, list[int]] = defaultdict(list)
        depth = self.depth(node)
        for clause in self.below(node) if depth else []:
            if len(self.tokens[clause]) >= depth:
                is_last = len(self.tokens[clause]) == depth
                lists[self.tokens[clause][depth - 1]].append(~clause if is_last else clause)
        return {token: sorted(postings) for token, postings in lists.items()}


def masks(pairs: Iterable[tuple[int, list[int]]]) -> Knowledge:
    """Return the slots of every token as a word."""
    word: defaultdict[int, int] = defaultdict(int)
    for slot, tokens in pairs:
        for token in tokens:
            word[token] |= 1 << slot
    return dict(word)


def around(boxes: list[Box]) -> Box:
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def check_nodes(tree: Tree, nodes: list[int]) -> None:
    """Nodes have enough entries and not too many, know their parents, and free ones are listed."""
    free = tree.free_nodes()
    assert sorted(nodes + free) == list(range(tree.top)), "every node is in the tree or free, once"
    assert {tree.level[node] for node in free} <= {-1}
    assert {tree.used[node] for node in free} <= {0}
    assert (tree.moved, tree.changed) == (0, 0)
    assert tree.parent[tree.root] == -1
    assert tree.level[tree.root] == 0 or len(tree.slots(tree.root)) >= 2
    for node in nodes:
        count = len(tree.slots(node))
        assert tree.used[node] < 1 << tree.most
        assert count <= tree.most
        assert node == tree.root or count >= tree.least, f"node {node} has {count} entries"
        for slot in set(range(tree.most)) - set(tree.slots(node)):
            assert tree.entry_box(node, slot) == (FAR, FAR, -FAR, -FAR)
        if tree.level[node] > 0:
            for slot in tree.slots(node):
                child = tree.entry[node][slot]
                assert (tree.parent[child], tree.place[child]) == (node, slot)
                assert tree.level[child] == tree.level[node] - 1
                below = [tree.entry_box(child, at) for at in tree.slots(child)]
                assert tree.entry_box(node, slot) == around(below), f"box of node {child}"


def check_leaves(tree: Tree, nodes: list[int]) -> None:
    """Every clause that is there is in one leaf, with its box and first token."""
    leaf_of = [-1] * len(tree.tokens)
    for leaf in nodes:
        if tree.level[leaf] == 0:
            for slot in tree.slots(leaf):
                clause = tree.entry[leaf][slot]
                assert leaf_of[clause] == -1, f"clause {clause} is in two places"
                leaf_of[clause] = leaf
                assert tree.entry_box(leaf, slot) == tree.clause_box[clause]
                assert tree.key[leaf][slot] == tree.tokens[clause][0]
    assert tree.leaf_of == leaf_of
    assert [clause for clause, leaf in enumerate(leaf_of) if leaf >= 0] == tree.alive


def check_tokens(tree: Tree, nodes: list[int]) -> None:
    """Nodes know the tokens of what is below them, no more and no less; free ones nothing."""
    if tree.name == "spatial-first":
        assert not any(map(any, tree.table))
        return
    for node in range(tree.top):
        wanted = tree.expected(node) if tree.level[node] >= 0 else {}
        known = tree.known(node)
        assert known == wanted, f"node {node}, depth {tree.depth(node)}"
    assert len(tree.table) == tree.top
    apart([(start, size) for start, size, _ in tree.table], len(tree.slot))
    if tree.name == "rt++-tree":
        inner = [tree.table[node] for node in nodes if tree.level[node] > 0]
        words = [word for start, size, _ in inner for word in tree.slot[start : start + size]]
        lists = [(where >> 28, where & (2**28 - 1)) for key, where in words if key]
        apart(lists, len(tree.posting))


def apart(regions: list[tuple[int, int]], pool_size: int) -> None:
    """Raise unless regions (start, size) lie inside the pool, and none over another."""
    end = 0
    for start, size in sorted(region for region in regions if region[1]):
        assert start >= end, f"what begins at {start} lies over what ends at {end}"
        end = start + size
    assert end <= pool_size


def check_tree(index: Index) -> None:
    """Raise unless everything holds that has to hold of the tree of an index."""
    assert isinstance(index, RTreeIndex)
    tree = Tree(index)
    nodes = tree.nodes()
    check_nodes(tree, nodes)
    check_leaves(tree, nodes)
    check_tokens(tree, nodes)


def some_clauses(count: int, seed: int = 0) -> Clauses:
    """Draw clauses of 0 to 5 tokens on a small lattice, where many boxes are equal."""
    rng = np.random.default_rng([seed, count])
    corner = rng.integers(0, 12, (count, 2)) * 1000
    box = np.concatenate([corner, corner + rng.integers(0, 3, (count, 2)) * 1000], axis=1)
    tokens = [rng.integers(0, 20, rng.integers(0, 6)).tolist() for _ in range(count)]
    return Clauses.of(tokens, box)


SIZES = [*range(301), 511, 512, 513, 1000, 2501] if JIT else [0, 1, 2, 3, 4, 5, 26, 51, 61]


@pytest.mark.parametrize("load", ["str", "hilbert"])
@pytest.mark.parametrize(("least", "most"), [(2, 3), (2, 4), (4, 7), (25, 50)])
def test_nodes_are_filled_whatever_the_number_of_clauses(load: str, least: int, most: int) -> None:
    builder = indexes.create("spatial-first", least=least, most=most, load=load)
    for size in SIZES:
        check_tree(builder.build(some_clauses(size)))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", NAMES)
def test_nodes_know_what_is_below_them(name: str, load: str) -> None:
    for least, most in ((2, 3), (2, 4), (25, 50), (2, 64), (32, 64)):
        builder = indexes.create(name, least=least, most=most, load=load)
        for size in (0, 1, most, most + 1, 150, 777) if JIT else (5, 30):
            check_tree(builder.build(some_clauses(size)))


@pytest.mark.parametrize("load", LOADS)
def test_clauses_that_are_all_alike(load: str) -> None:
    clauses = Clauses.of([[1, 2]] * 200, [[5, 5, 5, 5]] * 200)
    index = indexes.create("rt++-tree", least=2, most=4, load=load).build(clauses)
    check_tree(index)
    assert isinstance(index, RTreeIndex)
    assert index.height >= 3


def test_boxes_at_the_edge_of_what_can_be_said() -> None:
    """The widest and tallest boxes have sides whose sums and products need more than 32 bits."""
    world = [-1_800_000_000, -900_000_000, 1_800_000_000, 900_000_000]
    corners = [[x, y, x, y] for x in (world[0], 0, world[2]) for y in (world[1], world[3])]
    clauses = Clauses.of([[1]] * 70, ([world, *corners] * 10)[:70])
    for load in LOADS:
        check_tree(indexes.create("rt-tree", least=2, most=3, load=load).build(clauses))


def test_packed_leaves_are_full_and_packed_nodes_nearly() -> None:
    """Leaves of 50 and inner nodes of 37 are asked for, whole slices aside."""
    count = 20_000 if JIT else 3_000
    place = np.random.default_rng(0).integers(-(10**9), 10**9, (count, 2)) // 2
    clauses = Clauses.of([[1]] * count, np.concatenate([place, place + 5], axis=1))
    for load in ("str", "hilbert"):
        index = indexes.create("spatial-first", load=load).build(clauses)
        level = index.arrays()["tree.level"].tolist()
        assert level.count(0) <= 1.1 * count / 50
        assert level.count(1) <= 1.2 * level.count(0) / 37 + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_tree_that_changes_answers_as_one_built_anew(name: str, tmp_path: Path) -> None:
    case = draw("alternatives", seed=3)
    rows = np.arange(case.clauses.subscriptions)
    half = len(rows) // 2
    builder = indexes.create(name, least=2, most=4)
    builder.build(case.clauses.take(rows[:half])).save(tmp_path / "half")
    before = indexes.load(tmp_path / "half").match(case.messages)
    index = indexes.load(tmp_path / "half")
    assert isinstance(index, RTreeIndex)
    check_tree(index)
    index.insert(case.clauses.take(rows[half:]))
    check_tree(index)
    wanted = Scan(case.clauses, np.ones(len(rows), np.bool_)).match(case.messages)
    assert_same("inserted", case.messages, index.match(case.messages), wanted)
    assert_same("rebuilt", case.messages, builder.build(case.clauses).match(case.messages), wanted)
    index.delete(rows[::3])
    index.save(tmp_path / "changed")
    again = indexes.load(tmp_path / "changed")
    check_tree(again)
    wanted = Scan(case.clauses, rows % 3 != 0).match(case.messages)
    assert_same("deleted", case.messages, again.match(case.messages), wanted)
    unchanged = indexes.load(tmp_path / "half").match(case.messages)
    assert_same("half", case.messages, unchanged, before)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"most": 2}, r"most: must be a whole number from 3 to 64 \(got 2\)"),
        ({"most": 65}, r"most: must be a whole number from 3 to 64 \(got 65\)"),
        ({"most": 10.0}, r"most: must be a whole number from 3 to 64 \(got 10.0\)"),
        ({"most": True}, r"most: must be a whole number from 3 to 64 \(got True\)"),
        ({"least": 1}, r"least: must be a whole number from 2 to 25 \(got 1\)"),
        ({"least": 26}, r"least: must be at most 25 if most is 50; set both options \(got 26\)"),
        ({"least": 3, "most": 4}, r"least: must be at most 2 if most is 4; set both options"),
        ({"least": "2"}, r"least: must be a whole number from 2 to 25 \(got '2'\)"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_the_size_of_nodes_is_checked(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        indexes.create(name, **options)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_unknown_are_answered_with_the_known(name: str) -> None:
    with pytest.raises(
        UnknownName, match="unknown load 'z-order'; choose from: hilbert, insert, str"
    ):
        indexes.create(name, load="z-order")
    with pytest.raises(UnknownName, match="unknown option"):
        indexes.create(name, fanout=4)


@pytest.mark.parametrize("name", ["rt+-tree", "rt++-tree"])
def test_how_tokens_are_chosen_is_checked(name: str) -> None:
    choices = "df, idf, local-df, local-idf, random"
    with pytest.raises(UnknownName, match=f"unknown tokens 'tf'; choose from: {choices}"):
        indexes.create(name, tokens="tf")
    for value in (0, -1, 2.0, True, 2**30 + 1):
        problem = "cells: must be a whole number from 1 to 1,073,741,824"
        with pytest.raises(InvalidInput, match=problem):
            indexes.create(name, cells=value)
    for value in (-1, 0.5, 2**63):
        with pytest.raises(InvalidInput, match="seed: must be a whole number from 0 to 9,22"):
            indexes.create(name, seed=value)


def test_a_tree_without_representatives_has_no_say_in_tokens() -> None:
    for name in ("spatial-first", "ir-tree", "rt-tree"):
        with pytest.raises(UnknownName, match="tokens"):
            indexes.create(name, tokens="idf")


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_token_id_is_refused(name: str) -> None:
    """It stands for the token of a clause without tokens."""
    wrong = Clauses.of([[NO_TOKEN]], [[0, 0, 1, 1]])
    with pytest.raises(InvalidInput, match="token: token ids must be below 2,147,483,647"):
        indexes.create(name).build(wrong)
    index = indexes.create(name).build(Clauses.of([[NO_TOKEN - 1]], [[0, 0, 1, 1]]))
    assert isinstance(index, RTreeIndex)
    with pytest.raises(InvalidInput, match="token"):
        index.insert(wrong)
    assert len(index.clauses) == 1
    check_tree(index)
