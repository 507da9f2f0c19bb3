"""What is special about the trie-pyramid: that it prunes, and its hash tables and thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from nearcast import indexes
from nearcast.bench.workloads import Workload
from nearcast.columns import Clauses, Messages
from nearcast.errors import InvalidInput
from nearcast.indexes.boolean.trie_pyramid import TriePyramid

TWEETS = Workload("tweets", seed=5)


@pytest.fixture(scope="module")
def clauses() -> Clauses:
    return TWEETS.subscriptions(20_000)


@pytest.fixture(scope="module")
def index(clauses: Clauses) -> indexes.Index:
    return indexes.create("trie-pyramid").build(clauses)


@pytest.mark.parametrize(
    ("tokens", "range_share", "most"),
    [((6, 20), 0.0, 0.004), ((6, 20), 0.01, 0.006), ((100, 1000), 0.0, 0.09)],
    ids=["short points", "short ranges", "long points"],
)
def test_it_examines_a_small_share(
    index: indexes.Index, tokens: tuple[int, int], range_share: float, most: float
) -> None:
    messages = TWEETS.messages(200, tokens=tokens, range_share=range_share)
    examined = index.match(messages).examined
    assert examined < most * len(messages) * len(index.clauses)


def test_a_point_far_from_all_boxes_examines_nothing() -> None:
    box = np.tile([[0, 0, 100, 100]], (1_000, 1))
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * 1_000, box))
    far = Messages.of([[1]], [[500_000_000, 500_000_000]])
    assert index.match(far).examined == 0


def test_it_is_small(index: indexes.Index) -> None:
    assert index.nbytes < 120 * len(index.clauses)


@pytest.mark.parametrize("option", ["list_size", "child_size", "level_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True, 2**31])
def test_thresholds_are_checked(option: str, value: object) -> None:
    with pytest.raises(
        InvalidInput, match=f"{option}: must be a whole number from 1 to 2,147,483,647"
    ):
        indexes.create("trie-pyramid", **{option: value})


def test_the_largest_token_id_is_refused() -> None:
    """It stands for "any token" in an entry."""
    largest = 2**31 - 1
    box = [[0, 0, 1, 1]]
    with pytest.raises(InvalidInput, match="token: token ids must be below 2,147,483,647"):
        indexes.create("trie-pyramid").build(Clauses.of([[largest]], box))
    index = indexes.create("trie-pyramid").build(Clauses.of([[largest - 1]], box))
    messages = Messages.of([[largest - 1], [largest]], [[0, 0]] * 2)
    assert index.match(messages).pairs() == {(0, 0)}


def test_no_room_for_the_matches_at_first() -> None:
    """One message with far more matches than there was room for, after one with none."""
    count = 5_000
    box = np.tile([[-10, -10, 10, 10]], (count, 1))
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * count, box))
    messages = Messages.of([[2], [1], [1, 2]], [[0, 0]] * 3)
    matches = index.match(messages)
    assert np.diff(matches.start).tolist() == [0, count, count]
    assert matches.examined == 2 * count


def test_threads_share_an_index(index: indexes.Index) -> None:
    messages = TWEETS.messages(500)
    assert index.match(messages, threads=4).pairs() == index.match(messages).pairs()
    with pytest.raises(InvalidInput, match="threads: must be at least 1"):
        index.match(messages, threads=0)


def test_records_lie_on_cache_lines(index: indexes.Index) -> None:
    assert isinstance(index, TriePyramid)
    assert index.arrays()["node"].ctypes.data % 64 == 0
