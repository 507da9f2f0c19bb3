"""What is special about the trie-pyramid: that it prunes, its borders, chunks and thresholds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import WORLD, Clauses, Messages
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput
from nearcast.indexes.trie_pyramid.index import TriePyramid

TWEETS = Workload("tweets", seed=5)


@pytest.fixture(scope="module")
def clauses() -> Clauses:
    return TWEETS.subscriptions(20_000)


@pytest.fixture(scope="module")
def index(clauses: Clauses) -> indexes.Index:
    return indexes.create("trie-pyramid").build(clauses)


@pytest.mark.parametrize(
    ("dataset", "tokens", "range_share", "most"),
    [
        ("tweets", (6, 20), 0.0, 0.0009),
        ("tweets", (6, 20), 0.01, 0.0013),
        ("tweets", (100, 1000), 0.0, 0.022),
        ("places", (4, 12), 0.0, 0.003),
        ("places", (4, 12), 0.0001, 0.004),
        ("places", (100, 1000), 0.0001, 0.01),
    ],
)
def test_it_examines_a_small_share(
    dataset: str, tokens: tuple[int, int], range_share: float, most: float
) -> None:
    workload = Workload(dataset, seed=5)
    clauses = workload.subscriptions(20_000)
    messages = workload.messages(200, tokens=tokens, range_share=range_share)
    examined = indexes.create("trie-pyramid").build(clauses).match(messages).examined
    assert examined < most * len(messages) * len(clauses)


def test_it_opens_few_leaves() -> None:
    """A point among ten thousand small boxes: one leaf, and a neighbour now and then."""
    rng = np.random.default_rng(1)
    place = rng.integers(-900_000_000, 900_000_000, (10_000, 2))
    index = indexes.create("trie-pyramid").build(
        Clauses.of([[1]] * len(place), np.concatenate([place, place + 1000], axis=1))
    )
    matches = index.match(Messages.of([[1]] * 100, place[:100] + 500))
    assert len(matches) == 100
    assert matches.examined < 2 * 32 * 100


def test_a_point_far_from_all_boxes_examines_nothing() -> None:
    box = np.tile([[0, 0, 100, 100]], (1_000, 1))
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * 1_000, box))
    far = Messages.of([[1]], [[500_000_000, 500_000_000]])
    assert index.match(far).examined == 0


def test_a_list_that_is_elsewhere_is_not_opened() -> None:
    """The places beside the token tell, whatever the bounds of the list are."""
    corners = [[-1_700_000_000, -800_000_000], [1_600_000_000, 700_000_000]]
    box = [[x, y, x + 9, y + 9] for x, y in corners]
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * 2, box))
    matches = index.match(Messages.of([[1]] * 2, [[0, 0], corners[1]]))
    assert matches.pairs() == {(1, 1)}
    assert matches.examined == 2


def test_it_is_small(index: indexes.Index) -> None:
    assert index.nbytes < 100 * len(index.clauses)


@pytest.mark.parametrize("value", [1, 33, -1, 1.5, "many", True])
def test_the_size_of_lists_is_checked(value: object) -> None:
    with pytest.raises(InvalidInput, match="list_size: must be a whole number from 2 to 32"):
        indexes.create("trie-pyramid", list_size=value)


@pytest.mark.parametrize("value", [-0.5, "many", True, float("nan"), float("inf")])
def test_the_threshold_of_children_is_checked(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"child_size: must be a number from 0 to 1e\+18"):
        indexes.create("trie-pyramid", child_size=value)


def test_children_keep_messages_without_their_token_away() -> None:
    """A hundred clauses of the world with tokens 1 and 2, three of 1 and others."""
    tokens = [[1, 2]] * 100 + [[1], [1, 3], [1, 2, 3]] + [[2]] * 200 + [[3]] * 200
    index = indexes.create("trie-pyramid").build(
        Clauses.of(tokens, np.tile(WORLD, (len(tokens), 1)))
    )
    matches = index.match(Messages.of([[1], [1, 3], [1, 2, 3]], [[0, 0]] * 3))
    assert np.diff(matches.start).tolist() == [1, 202, 503]
    alone = index.match(Messages.of([[1]], [[0, 0]]))
    assert (alone.examined < 10, alone.visited) == (True, 1)


@pytest.mark.parametrize("tokens", [0, 1, 31, 32, 33, 64, 65, 200])
def test_messages_of_any_number_of_chunks(tokens: int) -> None:
    """With clauses without tokens, which come after the last token."""
    wanted = [[], *([i] for i in range(tokens)), *([i, i + 1] for i in range(tokens))]
    index = indexes.create("trie-pyramid").build(
        Clauses.of(wanted, np.tile([[0, 0, 9, 9]], (len(wanted), 1)))
    )
    messages = Messages.of([list(range(tokens))] * 2 + [[]], [[5, 5]] * 3)
    assert np.diff(index.match(messages).start).tolist() == [2 * tokens + (tokens == 0)] * 2 + [1]


@pytest.mark.parametrize("base", [-(1 << 16), 0, 7 << 16, (7 << 16) - 1])
@pytest.mark.parametrize("count", [1, 40])
def test_borders_are_exact_where_upper_halves_are_equal(base: int, count: int) -> None:
    box = np.tile([[base + 10, base + 20, base + 30, base + 40]], (count, 1))
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * count, box))
    points = [(x, y) for x in (9, 10, 30, 31) for y in (19, 20, 40, 41)]
    messages = Messages.of([[1]] * len(points), [[base + x, base + y] for x, y in points])
    inside = [10 <= x <= 30 and 20 <= y <= 40 for x, y in points]
    assert np.diff(index.match(messages).start).tolist() == [count * one for one in inside]


def test_the_largest_token_id_is_refused() -> None:
    """It stands for no token in an entry."""
    largest = 2**31 - 1
    box = [[0, 0, 1, 1]]
    with pytest.raises(InvalidInput, match="token: token ids must be below 2,147,483,647"):
        indexes.create("trie-pyramid").build(Clauses.of([[largest]], box))
    index = indexes.create("trie-pyramid").build(Clauses.of([[largest - 1]], box))
    messages = Messages.of([[largest - 1], [largest]], [[0, 0]] * 2)
    assert index.match(messages).pairs() == {(0, 0)}


@pytest.mark.parametrize("others", [0, 31, 32, 40])
def test_a_message_may_have_the_largest_token_id(others: int) -> None:
    """It brings clauses without tokens no second time."""
    index = indexes.create("trie-pyramid").build(Clauses.of([[], [3]], [[0, 0, 1, 1]] * 2))
    messages = Messages.of([[*range(others), 2**31 - 1], [2**31 - 1]], [[0, 0]] * 2)
    assert np.diff(index.match(messages).start).tolist() == [1 + (others > 3), 1]


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


@pytest.mark.parametrize("name", ["slot", "pyramid"])
def test_records_lie_on_cache_lines(index: indexes.Index, name: str) -> None:
    assert index.arrays()[name].ctypes.data % 64 == 0


def test_room_is_used_again_and_by_one_thread_at_a_time() -> None:
    """Messages of one, of many and of one token again, one by one and by several threads."""
    index = indexes.create("trie-pyramid").build(TWEETS.subscriptions(3_000))
    assert isinstance(index, TriePyramid)
    scan = indexes.create("scan").build(index.clauses)
    batches = [TWEETS.messages(40, tokens=n) for n in ((1, 1), (200, 300), (1, 1), (40, 80))]
    for messages in batches:
        assert index.match(messages).pairs() == scan.match(messages).pairs()
    assert len(index._idle) == 1
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda messages: index.match(messages, threads=2), batches * 20))
    expected = [scan.match(messages).pairs() for messages in batches] * 20
    assert [matches.pairs() for matches in found] == expected
    assert 1 <= len(index._idle) <= 8
