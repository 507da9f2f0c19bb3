"""What the papers say of how much is opened and verified, held against what is counted.

Li et al., KDD 2013, lemma 2 and sections 4 and 5; Yu et al., TKDE 2014, section 4.2. All trees of a
seed are the same R-tree, with small nodes so that it is deep: only what its nodes know differs.
"""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
from test_rtree import some_clauses

from nearcast import indexes
from nearcast.benchmarks.compare import GROUPS
from nearcast.columns import Messages
from nearcast.compiled.jit import JIT
from nearcast.datasets.workloads import Workload
from nearcast.indexes.rtree.index import RTreeIndex
from nearcast.indexes.statistics import Statistics
from nearcast.indexes.token_order.order import KINDS
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SEEDS = (1, 2, 3) if JIT else (1,)
SUBSCRIPTIONS, MESSAGES = (20_000, 200) if JIT else (150, 5)
LEAST, MOST, CELLS = 2, 4, 100
RANGE_SHARE = 0.0001

Counts: TypeAlias = dict[str, "NDArray[np.int64]"]
"""By index, and for the trees with representatives by ``name kind``: a number a message."""

needs_many = pytest.mark.skipif(not JIT, reason="holds on average, of more than can be interpreted")


class Measured:
    """What every tree opened and verified for each message of the four groups."""

    def __init__(self, seed: int) -> None:
        tweets = Workload("tweets", seed=seed)
        clauses = tweets.subscriptions(SUBSCRIPTIONS)
        plans: dict[str, tuple[str, dict[str, Any]]] = {
            name: (name, {}) for name in ("spatial-first", "ir-tree", "rt-tree")
        }
        for name in ("rt+-tree", "rt++-tree"):
            for kind in KINDS:
                plans[f"{name} {kind}"] = name, {"tokens": kind, "cells": CELLS}
        batches = {
            group: tweets.messages(
                MESSAGES, tokens=tokens or (6, 20), range_share=RANGE_SHARE if is_range else 0.0
            )
            for group, (tokens, is_range) in GROUPS.items()
        }
        self.visited: dict[str, Counts] = {group: {} for group in GROUPS}
        self.examined: dict[str, Counts] = {group: {} for group in GROUPS}
        self.heights = set()
        for label, (name, options) in plans.items():
            index = indexes.create(name, least=LEAST, most=MOST, **options).build(clauses)
            assert isinstance(index, RTreeIndex)
            self.heights.add(index.height)
            for group, messages in batches.items():
                alone = [index.match(messages.take(np.array([m]))) for m in range(MESSAGES)]
                self.visited[group][label] = np.array([matches.visited for matches in alone])
                self.examined[group][label] = np.array([matches.examined for matches in alone])


@pytest.fixture(scope="module", params=SEEDS)
def measured(request: pytest.FixtureRequest) -> Measured:
    return Measured(request.param)


def test_the_tree_is_deep_and_the_same_for_all(measured: Measured) -> None:
    assert len(measured.heights) == 1
    assert min(measured.heights) >= (7 if JIT else 3)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_lemma_2_representatives_open_no_more(measured: Measured, kind: str, group: str) -> None:
    """What an rt+-tree opens, the rt-tree opens, whichever tokens represent."""
    for counts in (measured.visited[group], measured.examined[group]):
        assert (counts[f"rt+-tree {kind}"] <= counts["rt-tree"]).all()


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_a_level_opens_no_more(measured: Measured, kind: str, group: str) -> None:
    """A clause that keeps a node open has its first token in the message, and more."""
    visited = measured.visited[group]
    assert (visited[f"rt++-tree {kind}"] <= visited[f"rt+-tree {kind}"]).all()


@pytest.mark.parametrize("group", GROUPS)
def test_token_sets_open_no_more_than_boxes_alone(measured: Measured, group: str) -> None:
    for counts in (measured.visited[group], measured.examined[group]):
        assert (counts["rt-tree"] <= counts["spatial-first"]).all()


@pytest.mark.parametrize("group", GROUPS)
def test_inverted_files_open_what_token_sets_open(measured: Measured, group: str) -> None:
    """In leaves they tell more: only clauses that have one of the tokens are met."""
    visited, examined = measured.visited[group], measured.examined[group]
    assert (visited["ir-tree"] == visited["rt-tree"]).all()
    assert (examined["ir-tree"] <= examined["rt-tree"]).all()


@pytest.mark.parametrize("kind", ["idf", "local-df"])
@pytest.mark.parametrize("name", ["rt+-tree", "rt++-tree"])
def test_statistics_are_not_needed_after_building(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored index has all frequencies in itself; the folder may be gone, or named from afar."""
    clauses = some_clauses(300 if JIT else 60)
    messages = Messages.of([range(token, token + 8) for token in range(40)], clauses.box[:40])
    words = Vocabulary([f"word{token}" for token in range(20)])
    monkeypatch.chdir(tmp_path)
    Statistics.count(clauses, words).save("statistics")
    index = indexes.create(name, tokens=kind, statistics="statistics").build(clauses)
    index.save("index")
    shutil.rmtree("statistics")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    again = indexes.load(tmp_path / "index")
    for one in (index, again, pickle.loads(pickle.dumps(again))):
        assert isinstance(one, RTreeIndex)
        one.insert(clauses)
        one.delete(np.arange(0, 2 * clauses.subscriptions, 3))
    got, wanted = again.match(messages), index.match(messages)
    assert got.pairs() == wanted.pairs()
    assert got.examined == wanted.examined


@needs_many
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", ["rt+-tree", "rt++-tree"])
def test_rare_representatives_prune_best(measured: Measured, name: str, group: str) -> None:
    """The greedy cover makes small sets of frequent tokens, which prune less than random ones.

    Frequencies by cell make the cover better and leave the rarest tokens about as good.
    """
    for counts in (measured.visited[group], measured.examined[group]):
        mean = {kind: counts[f"{name} {kind}"].mean() for kind in KINDS}
        assert mean["idf"] < 0.9 * mean["random"] < 0.9 * mean["df"]
        assert mean["local-df"] < mean["df"]
        assert 0.8 * mean["idf"] < mean["local-idf"] < 1.15 * mean["idf"]


@needs_many
@pytest.mark.parametrize("group", GROUPS)
def test_every_step_of_the_family_opens_fewer_nodes(measured: Measured, group: str) -> None:
    names = ["rt++-tree local-idf", "rt+-tree local-idf", "rt-tree", "spatial-first"]
    mean = [measured.visited[group][name].mean() for name in names]
    assert mean[0] < 0.3 * mean[1]
    assert mean[1] < 0.6 * mean[2]
    assert mean[2] < (0.35 if group.startswith("short") else 0.95) * mean[3]


@needs_many
@pytest.mark.parametrize(
    ("name", "short", "long"),
    [
        ("spatial-first", 0.0125, 0.0125),
        ("ir-tree", 0.0004, 0.0055),
        ("rt-tree", 0.0012, 0.0115),
        ("rt+-tree local-idf", 0.00015, 0.0038),
        ("rt++-tree local-idf", 0.0025, 0.11),
    ],
)
def test_a_small_share_is_examined(
    measured: Measured, name: str, short: float, long: float
) -> None:
    """Of an rt++-tree, the clauses met in lists count, of which there are several a level."""
    for group, counts in measured.examined.items():
        most = short if group.startswith("short") else long
        assert counts[name].mean() < most * SUBSCRIPTIONS
