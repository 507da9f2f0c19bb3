"""lfilter: the paper's running example, its choices, what it examines, and changes.

The example is that of `test_pt_quadtree`; the trie has the same twelve subscriptions.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test
from test_mbr_trie import check_crafted_updates, check_trie, read, spelled
from test_pt_quadtree import POINT, RANGE, Tree, answers, check_quadtree, letters, paper_nodes
from test_pt_quadtree import SUBSCRIPTIONS as EXAMPLE
from test_tree_changes import CROWD, EXAMPLES, STEPS, Changes, crowd, seeds

from effort import examples
from nearcast import indexes
from nearcast.benchmarks.compare import GROUPS
from nearcast.columns import WORLD, Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.lfilter import FILTERS, VERIFIES, Lfilter
from nearcast.indexes.lfilter.match import TRIE_MARGIN
from nearcast.testing import draw

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.columns import Matches

MARGIN = 1.1
"""It examines at most this many times what the better of trie and quadtree does."""

NAMES = list(EXAMPLE)

needs_size = pytest.mark.skipif(not JIT, reason="needs more subscriptions than can be interpreted")


def build(clauses: Clauses, **options: Any) -> Lfilter:
    index = indexes.create("lfilter", **options).build(clauses)
    assert isinstance(index, Lfilter)
    return index


def example(**options: Any) -> Lfilter:
    clauses = Clauses.of(
        [letters(text) for text, _ in EXAMPLE.values()], [box for _, box in EXAMPLE.values()]
    )
    chosen = {"list_size": 1, "area_share": 0.25, "place": "leaf", "order": "alphabet"}
    return build(clauses, **(chosen | options))


def match(index: Lfilter, message: tuple[str, list[int]]) -> Matches:
    return index.match(Messages.of([letters(message[0])], [message[1]]))


def check_lfilter(index: Lfilter) -> None:
    """Assert what holds for trie and quadtree, and that labels order the lists."""
    trie, quadtree = index._trie, index._quadtree
    check_trie(trie)
    check_quadtree(quadtree)
    alive = np.flatnonzero(index.alive[index.clauses.row]).tolist()
    label = {c: node.range[0] for node in read(trie).values() for c in node.clauses}
    assert sorted(label) == alive
    assert all(trie.clause_label[clause] == wanted for clause, wanted in label.items())
    tree = Tree(quadtree)
    ranks = quadtree.arrays()["entry_rank"].tolist()
    for node in range(len(tree.child)):
        for token, (count, word) in tree.slots("lists", node).items():
            first = word >> 28
            entries = tree.lists(node)[token]
            labels = [label[entry[4]] for entry in entries]
            assert labels == sorted(labels)
            assert ranks[first : first + count] == [wanted >> 32 for wanted in labels]
    assert len(index.arrays()["model.weight"]) == len(tree.child)


def nodes_below(index: Lfilter, listed: set[str], message: tuple[str, list[int]]) -> set[str]:
    """Return the nodes of the trie that a list reaches: those where entries of it are left."""
    words, box = message
    nodes = {spelled(path): node for path, node in read(index._trie).items()}
    label = {NAMES[c]: node.range[0] for node in nodes.values() for c in node.clauses}
    found = set()
    for path, node in nodes.items():
        west, south, east, north = node.box
        overlaps = west <= box[2] and south <= box[3] and east >= box[0] and north >= box[1]
        low, high = node.range
        if path and set(path) <= set(words) and overlaps:
            if any(low <= label[name] <= high for name in listed):
                found.add(path)
    return found


def test_the_example_prunes_the_list_of_the_point_message() -> None:
    index = example(filter="quadtree", verify="prune")
    check_lfilter(index)
    tree = Tree(index._quadtree)
    lists = tree.lists(paper_nodes(tree)[18])
    listed = {NAMES[entry[4]] for entry in lists[1]}
    assert listed == {"s1", "s4", "s7", "s9"}
    # Node 26 (d) has s11 and s12, of which the list has none; node 8 (b) has s3 to s9, of which
    # s4, s7 and s9 are left. Below it, node 19 (f), with s9, lies elsewhere.
    nodes = {spelled(path): node for path, node in read(index._trie).items()}
    label = {NAMES[c]: node.range[0] for node in nodes.values() for c in node.clauses}
    below = {
        path: {
            name for name in listed if nodes[path].range[0] <= label[name] <= nodes[path].range[1]
        }
        for path in ("b", "d")
    }
    assert below == {"b": {"s4", "s7", "s9"}, "d": set()}
    opened = nodes_below(index, listed, POINT)
    assert opened == {"b", "bc", "bcd", "be", "bef"}
    # The other list of the leaf is that of s10, under d (see `test_pt_quadtree`).
    opened |= nodes_below(index, {"s10"}, POINT)
    matches = match(index, POINT)
    assert answers(matches) == {"s4", "s7", "s10"}
    # Three nodes of the quadtree, and these of the trie; verified are s4, s7 and s10 alone.
    assert matches.visited == 3 + len(opened)
    assert matches.examined == 3


def test_the_example_prunes_all_lists_of_the_range_message_together() -> None:
    index = example(filter="quadtree", verify="prune")
    matches = match(index, RANGE)
    assert answers(matches) == {"s2", "s10", "s11"}
    # s2 and s10 are listed in two leaves each, which go down the trie together: 9 nodes of the
    # quadtree, then a, ac, acd; c, cd; d, de.
    opened = nodes_below(index, {"s2", "s10", "s11"}, RANGE)
    assert opened == {"a", "ac", "acd", "c", "cd", "d", "de"}
    assert (matches.visited, matches.examined) == (9 + len(opened), 5)


@pytest.mark.parametrize("way", FILTERS)
@pytest.mark.parametrize("verify", VERIFIES)
def test_the_example_has_its_answers_with_every_strategy(way: str, verify: str) -> None:
    index = example(filter=way, verify=verify)
    assert answers(match(index, POINT)) == {"s4", "s7", "s10"}
    assert answers(match(index, RANGE)) == {"s2", "s10", "s11"}


SMALL: dict[str, dict[str, Any]] = {
    "chosen": {"list_size": 3, "area_share": 1e-3},
    "trie": {"filter": "trie"},
    "pruned leaves": {
        "filter": "quadtree", "verify": "prune", "list_size": 3, "area_share": 1e-3,
        "place": "leaf",
    },
    "pruned": {"filter": "quadtree", "verify": "prune", "list_size": 20, "push": 0.0},
    "one list": {"filter": "quadtree", "area_share": 1.0, "order": "alphabet"},
}  # fmt: skip


@functools.cache
def of_size(dataset: str) -> list[indexes.Index]:
    clauses = Workload(dataset, seed=7).subscriptions(50_000)
    return [indexes.create(name).build(clauses) for name in ("mbr-trie", "pt-quadtree", "lfilter")]


@needs_size
@pytest.mark.parametrize("dataset", ["tweets", "places"])
@pytest.mark.parametrize("group", GROUPS)
def test_it_examines_no_more_than_trie_or_quadtree(dataset: str, group: str) -> None:
    tokens, ranges = GROUPS[group]
    workload = Workload(dataset, seed=7)
    messages = workload.messages(100, tokens=tokens, range_share=1e-4 if ranges else 0.0)
    trie, quadtree, lfilter = (index.match(messages).examined for index in of_size(dataset))
    assert lfilter <= MARGIN * min(trie, quadtree)


def test_pruning_examines_less_than_verifying_directly() -> None:
    """A long list under one frequent token, of which all but three ask for something else."""
    count = 5_000 if JIT else 600
    clauses = Clauses.of([[0, 1 + i] for i in range(count)], [[0, 0, 9, 9]] * count)
    message = Messages.of([[0, 5, 6, 7]], [[3, 3]])
    ways = {way: build(clauses, filter="quadtree", verify=way).match(message) for way in VERIFIES}
    assert ways["direct"].examined == count
    assert ways["cost"].examined == ways["prune"].examined == 3
    assert {matches.subscription.tolist()[0] for matches in ways.values()} == {4}
    # Where looking up the message's tokens costs more than verifying the list, it is verified.
    wordy = Messages.of([[0, *range(5, 5 + count)]], [[3, 3]])
    assert build(clauses, filter="quadtree").match(wordy).examined == count


def test_boxes_as_large_as_the_world_are_left_to_the_trie() -> None:
    workload = Workload("tweets", seed=7)
    index = build(workload.subscriptions(20_000 if JIT else 2_000), list_size=50)
    messages = workload.messages(20)
    everywhere = Messages.of(
        [
            messages.token[messages.token_start[m] : messages.token_start[m + 1]].tolist()
            for m in range(len(messages))
        ],
        [WORLD] * len(messages),
    )
    explained = index.explain(everywhere)
    assert explained.by_trie.all()
    assert (explained.trie_ns < explained.quadtree_ns).all()
    assert explained.lists.sum() == 0
    here = index.explain(messages)
    assert (here.quadtree_ns < explained.quadtree_ns).all()
    assert np.array_equal(here.by_trie, here.trie_ns < TRIE_MARGIN * here.quadtree_ns)


def test_an_explanation_adds_up_to_the_match() -> None:
    workload = Workload("tweets", seed=3)
    index = build(workload.subscriptions(5_000 if JIT else 500), list_size=50)
    messages = workload.messages(40, range_share=0.01)
    matches, explained = index.match(messages), index.explain(messages)
    assert explained.examined.sum() == matches.examined
    assert explained.visited.sum() == matches.visited
    assert (explained.pruned <= explained.lists).all()
    said = str(explained)
    assert f"{len(explained.by_trie):,} messages" in said
    assert f"{matches.examined:,} examined" in said
    assert str(index.explain(Messages.of([], np.empty((0, 4))))) == "no messages"


def test_an_explanation_of_a_message_across_the_antimeridian() -> None:
    index = example()
    across = Messages.of([[1]], [[WORLD[2] - 5, 0, WORLD[0] + 5, 9]])
    assert across.wraps.all()
    assert len(index.explain(across).by_trie) == 2


def test_more_runs_and_spans_than_the_scratch_holds() -> None:
    count = 6_000 if JIT else 600
    tokens = [[t, 10_000] for t in range(count)] + [[t, 10_000, 10_001] for t in range(count)]
    clauses = Clauses.of(tokens, [[0, 0, 9, 9]] * len(tokens))
    message = Messages.of([[*range(count), 10_000, 10_001]], [[3, 3]])
    for options in (
        {"verify": "cost"},
        {"verify": "prune"},
        {"verify": "prune", "order": "alphabet"},
    ):
        index = build(clauses, filter="quadtree", **options)
        assert len(index.match(message)) == len(tokens)


def test_a_long_run_goes_down_the_trie_by_cost() -> None:
    count = 3_000
    tokens = [[0, 1 + t % 300, 400 + t % 7] for t in range(count)]
    boxes = [[t % 50, 0, t % 50 + 1, 9] for t in range(count)]
    clauses = Clauses.of(tokens, boxes)
    index = build(clauses, filter="quadtree", order="alphabet")
    message = Messages.of([[0, 5, 403]], [[5, 5]])
    matches = index.match(message)
    assert sorted(matches.subscription) == sorted(
        indexes.create("scan").build(clauses).match(message).subscription
    )
    direct = build(clauses, filter="quadtree", verify="direct").match(message)
    assert 10 * matches.examined < direct.examined


class LfilterChanges(Changes):
    """Inserts, deletes and restarts in any order; both indexes are checked after each."""

    name = "lfilter"

    @initialize(seed=seeds, count=st.integers(0, CROWD), small=st.sampled_from(list(SMALL)))
    def build(self, seed: int, count: int, small: str) -> None:
        self.clauses = crowd(seed, count)
        self.index = indexes.create(self.name, **SMALL[small]).build(self.clauses)
        self.alive = np.ones(self.clauses.subscriptions, np.bool_)

    @invariant()
    def both_are_sound(self) -> None:
        assert isinstance(self.index, Lfilter)
        check_lfilter(self.index)


def test_changes() -> None:
    run_state_machine_as_test(
        LfilterChanges,
        settings=settings(
            max_examples=examples(EXAMPLES), stateful_step_count=STEPS, deadline=None
        ),
    )


def test_reassigned_labels_reach_the_quadtree() -> None:
    """Every new token set is labeled between the last one and the first: halving 2**32 40 times."""
    boxes = [[0, 0, 9, 9]]
    index = build(Clauses.of([[0, 1], [0, 900]] * 100, boxes * 200), order="alphabet", list_size=8)
    before = index._trie.clause_label[:200].copy()
    for token in range(899, 840, -1):
        index.insert(Clauses.of([[0, token]], boxes))
    assert not np.array_equal(before, index._trie.clause_label[:200])
    check_lfilter(index)


def test_from_nothing_and_back() -> None:
    index = build(Clauses.empty())
    clauses = draw("crowd").clauses
    index.insert(clauses)
    check_lfilter(index)
    rows = np.arange(clauses.subscriptions)
    index.delete(rows[::2])
    check_lfilter(index)
    index.delete(rows[1::2])
    check_lfilter(index)
    assert len(index.match(Messages.of([[0, 1, 2]], [WORLD]))) == 0


def test_a_saved_index_changes_and_explains_as_before(tmp_path: Path) -> None:
    workload = Workload("places", seed=2)
    index = build(workload.subscriptions(400), list_size=20)
    index.insert(workload.subscriptions(50, first=400))
    index.save(tmp_path)
    loaded = indexes.load(tmp_path)
    assert isinstance(loaded, Lfilter)
    messages = workload.messages(20)
    assert str(loaded.explain(messages)) == str(index.explain(messages))
    loaded.delete(np.arange(0, 100))
    loaded.insert(workload.subscriptions(100, first=450))
    check_lfilter(loaded)


@pytest.mark.parametrize(
    ("option", "value"),
    [("filter", "both"), ("verify", "twice"), ("probe", "hand"), ("order", "none"), ("place", "x")],
)
def test_unknown_words_are_refused(option: str, value: str) -> None:
    with pytest.raises(UnknownName, match=value):
        indexes.create("lfilter", **{option: value})


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInput):
        indexes.create("lfilter", list_size=0)


@pytest.mark.parametrize("small", ["chosen", "pruned leaves"])
def test_crafted_arrays_are_refused_or_harmless_to_updates(small: str) -> None:
    check_crafted_updates(build(draw("lattice").clauses, **SMALL[small]), 100 if JIT else 10)
