"""Plans: routers from samples that miss nothing, are balanced, and are what the plan says."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast import indexes
from nearcast.columns import WORLD, Clauses, Messages
from nearcast.compiled.jit import JIT
from nearcast.datasets import Workload
from nearcast.errors import InvalidInput
from nearcast.spark.shards.planner import plan
from nearcast.spark.shards.shard_dedup import owned_matches, pack_shards
from nearcast.spark.shards.tree import KEYWORDS, SPACE
from nearcast.testing import CASES, draw, strategies
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from nearcast.spark.shards.planner import Plan
    from nearcast.spark.shards.router import Router

SAMPLE = 3_000 if JIT else 600


def as_words(clauses: Clauses, messages: Messages) -> tuple[Clauses, Messages, Vocabulary]:
    """Give the tokens of both ids of one vocabulary."""
    ids, inverse = np.unique(np.concatenate([clauses.token, messages.token]), return_inverse=True)
    own, theirs = np.split(inverse.astype(np.int32), [len(clauses.token)])
    vocabulary = Vocabulary([f"w{i}" for i in ids])
    return replace(clauses, token=own), replace(messages, token=theirs), vocabulary


def check_pairs(router: Router, clauses: Clauses, messages: Messages, local: Vocabulary) -> None:
    """Match shard by shard and compare with the scan over all."""
    rank = router.ranks(local)
    of_rows = pack_shards(*router.route_subscriptions(clauses, rank), router.shards)
    of_messages = pack_shards(*router.route_messages(messages, rank), router.shards)
    found: list[tuple[int, int]] = []
    for shard in range(router.shards):
        word, bit = divmod(shard, 64)
        rows = np.flatnonzero(of_rows[:, word] >> np.uint64(bit) & np.uint64(1))
        visitors = np.flatnonzero(of_messages[:, word] >> np.uint64(bit) & np.uint64(1))
        if len(rows) and len(visitors):
            index = indexes.create("scan").build(clauses.take(rows))
            matches = index.match(messages.take(visitors))
            kept = owned_matches(matches, of_rows[rows], of_messages[visitors], shard)
            found += [(int(visitors[m]), int(rows[r])) for m, r in kept.pairs()]
    assert len(found) == len(set(found))
    assert set(found) == indexes.create("scan").build(clauses).match(messages).pairs()


class Drawn(NamedTuple):
    """A plan, its samples, and as many rows of the same kind that it has not seen."""

    router: Router
    plan: Plan
    clauses: Clauses
    messages: Messages
    fresh_clauses: Clauses
    fresh_messages: Messages
    vocabulary: Vocabulary


@cache
def drawn(dataset: str, shards: int) -> Drawn:
    work = Workload(dataset, 3)
    clauses, messages, vocabulary = as_words(
        work.subscriptions(2 * SAMPLE), work.messages(2 * SAMPLE)
    )
    seen, fresh = np.split(np.arange(2 * SAMPLE), 2)
    sample = clauses.take(seen), messages.take(seen)
    return Drawn(
        *plan(*sample, vocabulary, total=1_000_000, shards=shards),
        *sample,
        clauses.take(fresh),
        messages.take(fresh),
        vocabulary,
    )


@given(
    strategies.clauses(),
    strategies.messages(),
    st.integers(0, 30),
    st.integers(0, 10),
    st.integers(2, 9),
)
@settings(max_examples=examples(50 if JIT else 10), deadline=None)
def test_plans_of_anything_miss_nothing(
    clauses: Clauses, messages: Messages, seen: int, heard: int, shards: int
) -> None:
    """Plan from a few; route all, most of whose tokens the plan has never seen."""
    clauses, messages, local = as_words(clauses, messages)
    rows = np.arange(min(seen, clauses.subscriptions))
    sample = clauses.take(rows), messages.take(np.arange(min(heard, len(messages))))
    router, _ = plan(*sample, local, total=max(len(rows), 1), shards=shards)
    check_pairs(router, clauses, messages, local)


@pytest.mark.parametrize("name", CASES)
def test_plans_of_every_case_miss_nothing(name: str) -> None:
    case = draw(name, seed=2)
    rows = np.arange(min(case.clauses.subscriptions, 200))
    clauses, messages, local = as_words(case.clauses.take(rows), case.messages)
    router, found = plan(clauses, messages, local, total=len(rows), shards=5)
    assert router.shards == len(found.shards) == 5
    check_pairs(router, clauses, messages, local)


@pytest.mark.parametrize("dataset", ["tweets", "places"])
@pytest.mark.parametrize("shards", [2, 7])
def test_shards_are_balanced(dataset: str, shards: int) -> None:
    made = drawn(dataset, shards)
    router, found = made.router, made.plan
    assert router.shards == shards
    rank = router.ranks(made.vocabulary)
    rows = router.route_subscriptions(made.fresh_clauses, rank)
    visits = router.route_messages(made.fresh_messages, rank)
    held = np.bincount(rows.shard, minlength=shards)
    assert held.max() < (2.0 if JIT else 3.0) * held.mean()
    assert len(rows.shard) / SAMPLE == pytest.approx(found.subscription_copies, rel=0.2)
    assert len(visits.shard) / SAMPLE == pytest.approx(found.message_copies, rel=0.2)
    assert found.message_copies < 1 + shards / 4
    assert found.subscription_copies < 2.5
    assert len(rows.shard) / SAMPLE * len(visits.shard) / SAMPLE < 0.8 * shards


def test_local_words_are_cut_by_space_and_wide_boxes_by_keywords() -> None:
    rng = np.random.default_rng(1)
    local = Vocabulary([f"w{i}" for i in range(200)])
    tokens = rng.integers(0, 200, (500, 2)).tolist()
    corner = rng.integers(-1_000_000_00, 1_000_000_00, (500, 2)) * 5
    small = np.concatenate([corner, corner + 1000], axis=1)
    messages = Messages.of(tokens, corner)
    router, _ = plan(Clauses.of(tokens, small), messages, local, total=500, shards=4)
    assert router.kind[0] == SPACE
    wide = Clauses.of(tokens, np.tile(np.array(WORLD), (500, 1)))
    router, found = plan(wide, messages, local, total=500, shards=4)
    assert router.kind[0] == KEYWORDS
    assert found.subscription_copies == 1
    assert found.message_copies < 2


def test_clauses_without_keywords_lie_everywhere_if_they_are_few() -> None:
    rng = np.random.default_rng(2)
    local = Vocabulary([f"w{i}" for i in range(100)])
    tokens = [[], *rng.integers(0, 100, (999, 2)).tolist()]
    wide = Clauses.of(tokens, np.tile(np.array(WORLD), (1_000, 1)))
    messages = Messages.of(tokens, rng.integers(-1_000, 1_000, (1_000, 2)))
    router, found = plan(wide, messages, local, total=1_000, shards=4)
    rank = router.ranks(local)
    routes = router.route_subscriptions(wide, rank)
    assert routes.shard[: routes.start[1]].tolist() == [0, 1, 2, 3]
    assert found.message_copies < 2.2
    check_pairs(router, wide.take(np.arange(60)), messages.take(np.arange(60)), local)


def test_a_size_gives_the_number_of_shards() -> None:
    made = drawn("places", 2)
    sample = made.clauses, made.messages, made.vocabulary
    router, found = plan(*sample, total=100_000, size=20_000)
    assert router.shards == len(found.shards)
    assert 5 <= router.shards <= 9
    assert max(shard.subscriptions for shard in found.shards) < 1.5 * 20_000
    once, _ = plan(*sample, total=100_000, size=1_000_000)
    assert once.shards == 1


def test_what_cannot_be_told_apart_stays_in_one_shard() -> None:
    clauses = Clauses.of([[0]] * 50, [WORLD] * 50)
    messages = Messages.of([[0]] * 5, [[0, 0]] * 5)
    router, found = plan(clauses, messages, Vocabulary(["latte"]), total=50, shards=3)
    assert router.shards == 3
    assert sorted(shard.subscriptions for shard in found.shards) == [0, 0, 50]


def test_without_messages_subscriptions_stand_for_them() -> None:
    made = drawn("places", 2)
    clauses = made.clauses.take(np.arange(500))
    nothing = Messages.of([], np.empty((0, 2)))
    router, found = plan(clauses, nothing, made.vocabulary, total=500, shards=4)
    held = [shard.subscriptions for shard in found.shards]
    assert max(held) < 2 * min(held)
    some = made.messages.take(np.arange(40))
    check_pairs(router, clauses.take(np.arange(200)), some, made.vocabulary)


def test_the_same_samples_give_the_same_router() -> None:
    made = drawn("tweets", 7)
    sample = made.clauses, made.messages, made.vocabulary
    again, also = plan(*sample, total=1_000_000, shards=7)
    assert also == made.plan
    arrays = again.arrays()
    for name, array in made.router.arrays().items():
        assert np.array_equal(array, arrays[name]), name


def test_the_order_of_the_vocabulary_does_not_matter() -> None:
    """Another numbering of the same tokens gives the same tree."""
    made = drawn("places", 2)
    order = np.random.default_rng(1).permutation(len(made.vocabulary))
    tokens = made.vocabulary.tokens().to_pylist()
    other = Vocabulary([tokens[i] for i in np.argsort(order)])
    clauses = replace(made.clauses, token=order[made.clauses.token].astype(np.int32))
    messages = replace(made.messages, token=order[made.messages.token].astype(np.int32))
    again, also = plan(clauses, messages, other, total=1_000_000, shards=2)
    assert also == made.plan
    assert again.split.tolist() == made.router.split.tolist()


def test_a_plan_as_json_and_as_a_table() -> None:
    found = drawn("places", 2).plan
    said = json.loads(json.dumps(found.to_dict()))
    assert said["subscriptions"] == 1_000_000
    assert set(said["shards"][0]) == {"subscriptions", "message_share", "load_share"}
    assert sum(shard["load_share"] for shard in said["shards"]) == pytest.approx(1, abs=1e-5)
    table = str(found).splitlines()
    assert table[0].startswith("2 shards of 1,000,000 subscriptions: a subscription lies in 1.")
    assert len(table) == 4


def test_no_sample_gives_a_router_all_the_same() -> None:
    nothing = Messages.of([], np.empty((0, 2)))
    router, found = plan(Clauses.empty(), nothing, Vocabulary(), total=9, shards=3)
    assert router.shards == len(found.shards) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "shards: give either the number of shards or their size"),
        ({"shards": 2, "size": 5}, "give either the number"),
        ({"shards": 0}, "shards: must be at least 1"),
        ({"size": -1}, "size: must be at least 1"),
        ({"shards": 2, "total": 1}, "total: must be at least the 50 subscriptions of the sample"),
    ],
)
def test_numbers_that_cannot_be(changes: dict[str, int], message: str) -> None:
    clauses = Clauses.of([[0]] * 50, [WORLD] * 50)
    messages = Messages.of([[0]], [[0, 0]])
    with pytest.raises(InvalidInput, match=message):
        plan(clauses, messages, Vocabulary(["a"]), **{"total": 50, **changes})
