"""mbr-trie: the paper's running example, the arrays after any change, and what is pruned.

The example is that of Yu et al. (CIKM 2015), figures 1 to 3. The text gives only some of its tokens
and boxes; the others are chosen so that every statement of section 3 holds that can hold. The trie
has 31 nodes in pre-order, with leaves (nodes with the empty token) among them.

- nodes 1-7: a, with s1 = {a, b, c} at the leaf 4 and s2 = {a, c, e} at the leaf 7;
- nodes 8-22: b, with s3 and s4 = {b, c, d} (leaf 11), s5 = {b, c, h} (13), s6 = {b, d} (15),
  s7 = {b, e, f} (18), s8 = {b, f} (20) and s9 = {b, f, h} (22);
- nodes 23-25: c, with s10 = {c, d} (25);
- nodes 26-30: d, with s11 = {d, e} (28) and s12 = {d, f} (30).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test
from test_crafted_arrays import crafted
from test_tree_changes import CROWD, EXAMPLES, STEPS, Changes, crowd, seeds

from effort import examples
from nearcast import indexes
from nearcast.columns import WORLD, Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.indexes.mbr_trie import ORDERS, PROBES, MbrTrie, MbrTrieOptions
from nearcast.indexes.scan import Scan
from nearcast.indexes.token_order.order import TokenOrder
from nearcast.testing import draw
from nearcast.testing.checks import assert_same

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.columns import Matches
    from nearcast.indexes.in_place import InPlaceIndex

SUBSCRIPTIONS = {
    "s1": ("abc", [22, 0, 30, 20]),
    "s2": ("ace", [10, 30, 18, 40]),
    "s3": ("bcd", [20, 32, 35, 35]),
    "s4": ("bcd", [20, 10, 28, 18]),
    "s5": ("bch", [2, 30, 14, 38]),
    "s6": ("bd", [34, 4, 44, 12]),
    "s7": ("bef", [24, 12, 32, 20]),
    "s8": ("bf", [36, 24, 44, 30]),
    "s9": ("bfh", [28, 22, 34, 36]),
    "s10": ("cd", [25, 12, 40, 24]),
    "s11": ("de", [12, 20, 18, 28]),
    "s12": ("df", [4, 2, 12, 8]),
}
NAMES = list(SUBSCRIPTIONS)

POINT = ("bcdef", [26, 14, 26, 14])
RANGE = ("acde", [10, 10, 40, 40])

PATHS = {
    0: "", 1: "a", 2: "ab", 3: "abc", 5: "ac", 6: "ace", 8: "b", 9: "bc", 10: "bcd", 12: "bch",
    14: "bd", 16: "be", 17: "bef", 19: "bf", 21: "bfh", 23: "c", 24: "cd", 26: "d", 27: "de",
    29: "df",
}  # fmt: skip
"""The paper's nodes that are not leaves: all the nodes of our trie."""


@dataclass
class Node:
    """A node, read from the arrays by plain Python."""

    box: list[int]
    range: tuple[int, int]
    clauses: list[int]
    below: int
    has_list: bool
    children: list[int] = field(default_factory=list)


def read(index: MbrTrie) -> dict[tuple[int, ...], Node]:
    """Return the nodes of the trie by the tokens of their paths."""
    arrays = {name: array.tolist() for name, array in index.arrays().items()}
    tokens = {rank: token - 1 for token, rank, _, _ in arrays["slot"] if token}
    roots = [(rank, child) for token, rank, child, _ in arrays["slot"] if token and child]
    nodes: dict[tuple[int, ...], Node] = {}
    todo: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while todo:
        path, at = todo.pop()
        *box, first, count, block, start, size, capacity, dead, below = arrays["node"][at]
        if capacity == 0:
            clauses = [start] if size else []
        else:
            clauses = [c for c in arrays["entry"][start + 4 * capacity :][:size] if c >= 0]
            assert len(clauses) == size - dead
        children = [child for _, child in sorted(roots)] if at == 0 else range(first, first + count)
        ranks = [arrays["rank"][child] for child in children]
        assert ranks == sorted(set(ranks))
        assert count == len(ranks) <= block or at == 0
        low, high = arrays["label"][at]
        assert arrays["outline"][at] == outline(box)
        nodes[path] = Node(box, (low, high), clauses, below, size > 0 or capacity > 0)
        nodes[path].children = [tokens[rank] for rank in ranks]
        todo += [((*path, tokens[r]), c) for r, c in zip(ranks, children, strict=True)]
    return nodes


def outline(box: list[int]) -> int:
    """Round a box: east, north, inverted west, inverted south, each below a guard bit."""
    if box[0] > box[2]:
        return 0x8000_8000_8000_8000
    west, east = ((x - WORLD[0]) >> 17 for x in box[::2])
    south, north = ((y - WORLD[1]) >> 16 for y in box[1::2])
    sides = [east, north, 0x7FFF - west, 0x7FFF - south]
    return sum((0x8000 | side) << (16 * lane) for lane, side in enumerate(sides))


def ranks(index: MbrTrie) -> dict[int, int]:
    """Return the rank of every token."""
    return {token - 1: rank for token, rank, _, _ in index.arrays()["slot"].tolist() if token}


def check_trie(index: MbrTrie) -> None:
    """Assert what holds for the nodes and lists of a trie at all times."""
    nodes, order = read(index), ranks(index)
    clauses = index.clauses
    alive = np.flatnonzero(index.alive[clauses.row]).tolist()
    assert sorted(c for node in nodes.values() for c in node.clauses) == alive
    below: dict[tuple[int, ...], list[int]] = {path: [] for path in nodes}
    labels: dict[tuple[int, ...], list[int]] = {path: [] for path in nodes}
    for path, node in nodes.items():
        assert [order[token] for token in path] == sorted(order[token] for token in path)
        for clause in node.clauses:
            begin, end = clauses.token_start[clause : clause + 2]
            assert sorted(path) == clauses.token[begin:end].tolist()
        for size in range(len(path) + 1):
            below[path[:size]] += node.clauses
            if node.has_list:
                labels[path[:size]].append(node.range[0])
    for path, node in nodes.items():
        assert node.below == len(below[path])
        if below[path]:
            box = clauses.box[below[path]]
            assert (box[:, :2] >= node.box[:2]).all()
            assert (box[:, 2:] <= node.box[2:]).all()
        assert all(node.range[0] <= label <= node.range[1] for label in labels[path])
    sets = [path for path, node in nodes.items() if node.has_list]
    sets.sort(key=lambda path: [order[token] for token in path])
    given = [nodes[path].range[0] for path in sets]
    assert given == sorted(set(given)), "labels must ascend in the order of token sets"
    for path, node in nodes.items():
        inside = [nodes[(*path, token)].range for token in node.children]
        assert all(a[1] < b[0] for a, b in pairwise(inside))
        assert all(node.range[0] <= a <= b <= node.range[1] for a, b in inside)


def visited(index: MbrTrie, words: str, box: list[int]) -> set[str]:
    """Return the nodes that a message opens: their tokens occur, and their boxes overlap it."""
    nodes = read(index)
    return {
        spelled(path)
        for path in nodes
        if all(letter in words for letter in spelled(path))
        and all(overlap(nodes[path[:size]].box, box) for size in range(len(path) + 1))
    }


def overlap(one: list[int], other: list[int]) -> bool:
    return one[0] <= other[2] and one[1] <= other[3] and one[2] >= other[0] and one[3] >= other[1]


def spelled(path: tuple[int, ...]) -> str:
    return "".join("abcdefgh"[token] for token in path)


def tokens_of(words: str) -> list[int]:
    return ["abcdefgh".index(letter) for letter in words]


def build(clauses: Clauses, **options: Any) -> MbrTrie:
    return MbrTrie.build(clauses, MbrTrieOptions(**options))


def example(**options: Any) -> MbrTrie:
    boxes = [box for _, box in SUBSCRIPTIONS.values()]
    tokens = [tokens_of(words) for words, _ in SUBSCRIPTIONS.values()]
    return build(Clauses.of(tokens, boxes), order="alphabet", **options)


def match(index: MbrTrie, words: str, box: list[int]) -> Matches:
    return index.match(Messages.of([tokens_of(words)], [box]))


def answers(matches: Matches) -> set[str]:
    return {NAMES[row] for row in matches.subscription.tolist()}


def test_the_example_has_the_papers_nodes() -> None:
    index = example()
    check_trie(index)
    nodes = {spelled(path): node for path, node in read(index).items()}
    assert sorted(nodes) == sorted(PATHS.values())
    # 20 nodes and 11 leaves, one of which has two subscriptions: the paper's 31.
    assert len(nodes) + sum(node.has_list for node in nodes.values()) == 31
    assert nodes["a"].box == [10, 0, 30, 40]
    assert [NAMES[clause] for clause in nodes["bcd"].clauses] == ["s3", "s4"]


def test_the_example_has_the_papers_ranges() -> None:
    nodes = {spelled(path): node for path, node in read(example()).items()}
    label = {NAMES[c]: node.range[0] for node in nodes.values() for c in node.clauses}
    assert sorted(NAMES, key=lambda name: (label[name], NAMES.index(name))) == NAMES
    ranges = {"a": ("s1", "s2"), "b": ("s3", "s9"), "c": ("s10", "s10"), "d": ("s11", "s12")}
    for path, (low, high) in ranges.items():
        assert nodes[path].range == (label[low], label[high])


@pytest.mark.parametrize("probe", PROBES)
def test_the_point_message(probe: str) -> None:
    # The paper says that nodes 0-4, 8-11, 16-18 and 23-25 are visited, and that s1 is found below
    # node 1. That contradicts its own answers, s4, s7 and s10: the message has no token a. The
    # statement holds for a message with a; without it, nodes 1-4 are pruned by their token.
    index = example(probe=probe)
    matches = match(index, *POINT)
    assert answers(matches) == {"s4", "s7", "s10"}
    opened = {PATHS[n] for n in (0, 8, 9, 10, 16, 17, 23, 24)}
    assert visited(index, *POINT) == opened
    assert matches.visited == len(opened)
    assert matches.examined == 4  # s3 and s4 of one list, s7 and s10

    words, box = POINT
    matches = match(index, "a" + words, box)
    assert answers(matches) == {"s1", "s4", "s7", "s10"}
    # Of the paper's 15 nodes, 4, 11, 18 and 25 are leaves, which are not nodes here.
    opened |= {PATHS[n] for n in (1, 2, 3)}
    assert visited(index, "a" + words, box) == opened
    assert matches.visited == len(opened) == 15 - 4


@pytest.mark.parametrize("probe", PROBES)
def test_the_range_message(probe: str) -> None:
    index = example(probe=probe)
    matches = match(index, *RANGE)
    assert answers(matches) == {"s2", "s10", "s11"}
    assert visited(index, *RANGE) == {"", "a", "ac", "ace", "c", "cd", "d", "de"}
    assert (matches.visited, matches.examined) == (8, 3)


def test_the_example_grows_one_by_one_to_the_same_trie() -> None:
    whole = example()
    index = build(Clauses.empty(), order="alphabet")
    for row in np.random.default_rng(3).permutation(12).tolist():
        index.insert(whole.clauses.take(np.array([row])))
        check_trie(index)
    grown, loaded = read(index), read(whole)
    assert grown.keys() == loaded.keys()
    assert all(grown[path].box == loaded[path].box for path in loaded)
    assert match(index, *POINT).visited == match(whole, *POINT).visited


def test_the_order_by_frequency_is_the_rarest_token_first() -> None:
    clauses = draw("crowd").clauses
    order = ranks(build(clauses))
    _, ordered = TokenOrder.count(clauses, "idf")
    for begin, end in zip(clauses.token_start, clauses.token_start[1:], strict=False):
        wanted = ordered[begin:end].tolist()
        assert sorted(wanted, key=order.__getitem__) == wanted


@pytest.mark.parametrize("order", ORDERS)
def test_all_ways_to_probe_open_the_same_nodes(order: str) -> None:
    tweets = Workload("tweets", seed=5)
    clauses, messages = tweets.subscriptions(3_000 if JIT else 300), tweets.messages(30)
    found = [build(clauses, probe=probe, order=order).match(messages) for probe in PROBES]
    assert len({(m.examined, m.visited) for m in found}) == 1
    assert found[0].pairs() == found[1].pairs() == found[2].pairs()


def test_it_examines_only_clauses_whose_tokens_all_occur() -> None:
    tweets = Workload("tweets", seed=5)
    clauses, messages = tweets.subscriptions(5_000 if JIT else 500), tweets.messages(50)
    matches = build(clauses).match(messages)
    everywhere = replace(messages, box=np.tile(WORLD, (50, 1)))
    wanted = indexes.create("scan").build(clauses).match(everywhere)
    assert len(matches) <= matches.examined <= len(wanted)
    by_list = indexes.create("keyword-first").build(clauses).match(messages)
    assert 3 * matches.examined < by_list.examined


def test_a_message_outside_of_everything_opens_only_the_root() -> None:
    matches = match(example(), "abcdefgh", [99, 99, 99, 99])
    assert (len(matches), matches.visited, matches.examined) == (0, 1, 0)


def test_labels_are_reassigned_when_a_gap_is_used_up() -> None:
    """Every new token set is labeled between the last one and the first: halving 2**32 40 times."""
    boxes = [[0, 0, 9, 9]]
    index = build(Clauses.of([[0, 1], [0, 900]] * 100, boxes * 200), order="alphabet")
    for token in range(899, 820, -1):
        index.insert(Clauses.of([[0, token]], boxes))
    check_trie(index)
    for token in range(2, 20):
        index.insert(Clauses.of([[0, token], [0], [0, token, 950]], boxes * 3))
        check_trie(index)


def test_lists_grow_and_are_compacted() -> None:
    rng = np.random.default_rng(1)
    index = build(Clauses.of([[1], [2]] * 150, [[0, 0, 5, 5], [3, 3, 9, 9]] * 150))
    for size in (1, 2, 3, 40, 100):
        corner = rng.integers(0, 9, (size, 2))
        box = np.concatenate([corner, corner + 1], axis=1)
        index.insert(Clauses.of([[1, 2]] * size, box))
        check_trie(index)
    messages = Messages.of([[1, 2]] * 9, [[i, i] for i in range(9)])
    rows = rng.permutation(np.arange(300, 446))
    for gone in np.array_split(rows, 8):
        index.delete(gone)
        check_trie(index)
        wanted = Scan(index.clauses, index.alive.copy()).match(messages)
        assert_same("lists", messages, index.match(messages), wanted)
    # A node with nothing left below it has no box.
    empty = read(index)[tuple(sorted((1, 2), key=ranks(index).__getitem__))]
    assert (empty.below, empty.box) == (0, [*[2**31 - 1] * 2, *[-(2**31)] * 2])


def test_it_is_built_again_when_many_are_dead_or_new() -> None:
    case = draw("crowd")
    index = build(case.clauses)
    index.delete(np.arange(0, 600))
    assert index.arrays()["state"][7] == 600
    index.delete(np.arange(600, 1_200))
    assert index.arrays()["state"][5:].tolist() == [800, 0, 0]
    index.insert(case.clauses.take(np.arange(801)))
    assert index.arrays()["state"][5:].tolist() == [800, 801, 0]
    index.insert(case.clauses.take(np.arange(801, 900)))
    assert index.arrays()["state"][5:].tolist() == [1700, 0, 0]
    check_trie(index)


def test_new_tokens_come_first() -> None:
    index = build(Clauses.of([[5], [6], [5, 6]] * 100, [[0, 0, 9, 9]] * 300))
    index.insert(Clauses.of([[5, 7], [6, 8]], [[0, 0, 9, 9]] * 2))
    assert {(7, 5), (8, 6)} <= set(read(index))
    check_trie(index)


def test_options_are_checked() -> None:
    with pytest.raises(UnknownName, match="unknown probe 'hash'; choose from: cost, tokens, trie"):
        indexes.create("mbr-trie", probe="hash")
    with pytest.raises(UnknownName, match="unknown order 'idf'"):
        indexes.create("mbr-trie", order="idf")


def test_the_largest_token_id_is_refused_in_clauses_and_allowed_in_messages() -> None:
    largest, box = 2**31 - 1, [[0, 0, 9, 9]]
    with pytest.raises(InvalidInput, match="token ids must be below"):
        build(Clauses.of([[largest]], box))
    for order in ORDERS:
        index = build(Clauses.of([[largest - 1], []], box * 2), order=order)
        index.insert(Clauses.of([[0, largest - 1], []], box * 2))
        messages = Messages.of([[largest - 1], [largest], [0, largest - 1, largest]], [[1, 1]] * 3)
        found = sorted(index.match(messages).pairs())
        assert found == [(0, 0), (0, 1), (0, 3), (1, 1), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
        check_trie(index)


def test_a_stored_index_changes_and_its_folder_does_not(tmp_path: Path) -> None:
    case = draw("alternatives")
    build(case.clauses).save(tmp_path / "index")
    wanted = MbrTrie.load(tmp_path / "index").match(case.messages).pairs()
    index = MbrTrie.load(tmp_path / "index")
    index.insert(case.clauses.take(np.arange(20)))
    index.delete(np.array([3, 1, 50]))
    check_trie(index)
    assert MbrTrie.load(tmp_path / "index").match(case.messages).pairs() == wanted


class TrieChanges(Changes):
    """Inserts, deletes and restarts in any order; the trie is checked after each."""

    name = "mbr-trie"

    @initialize(
        seed=seeds,
        count=st.integers(0, CROWD),
        probe=st.sampled_from(list(PROBES)),
        order=st.sampled_from(ORDERS),
    )
    def build(self, seed: int, count: int, probe: str, order: str) -> None:
        self.clauses = crowd(seed, count)
        self.index = build(self.clauses, probe=probe, order=order)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    @invariant()
    def trie_is_sound(self) -> None:
        assert isinstance(self.index, MbrTrie)
        check_trie(self.index)


def test_changes() -> None:
    run_state_machine_as_test(
        TrieChanges,
        settings=settings(
            max_examples=examples(2 * EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


def check_crafted_updates(index: InPlaceIndex, tries: int) -> None:
    """Assert that crafted arrays are refused, or harmless to matching and updating."""
    rng = np.random.default_rng(0)
    clauses, messages = index.clauses, draw("lattice").messages
    index.insert(clauses.take(np.arange(0, clauses.subscriptions, 3)))
    index.delete(np.arange(1, clauses.subscriptions, 9))
    arrays = dict(index.arrays())
    type(index).from_arrays(index.clauses, index.options, arrays).check_structure()
    refused = 0
    for _ in range(tries):
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        changed = arrays | {name: crafted(arrays[name], rng)}
        try:
            loaded = type(index).from_arrays(index.clauses, index.options, changed)
            loaded.check_structure()
        except StorageError:
            refused += 1
            continue
        rows = np.flatnonzero(loaded.alive)
        loaded.delete(np.sort(rng.permutation(rows)[: len(rows) // int(rng.integers(2, 12))]))
        loaded.insert(clauses.take(np.arange(0, clauses.subscriptions, 4)))
        loaded.match(messages)
    assert refused


@pytest.mark.parametrize("order", ORDERS)
def test_crafted_arrays_are_refused_or_harmless_to_updates(order: str) -> None:
    check_crafted_updates(build(draw("lattice").clauses, order=order), 100 if JIT else 10)
