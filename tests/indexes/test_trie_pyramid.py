"""What is special about the trie-pyramid: pruning, borders, chunks, thresholds, crafted arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nearcast import indexes
from nearcast.columns import WORLD, Clauses, Messages
from nearcast.compiled.pyramids import TARGET, pack_pyramid, size_of
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, StorageError
from nearcast.indexes.trie_pyramid import TriePyramid
from nearcast.indexes.trie_pyramid.index import MAX_CLAUSES
from nearcast.indexes.trie_pyramid.layout import IS_NODE

TWEETS = Workload("tweets", seed=5)


@pytest.fixture(scope="module")
def clauses() -> Clauses:
    return TWEETS.subscriptions(20_000)


@pytest.fixture(scope="module")
def index(clauses: Clauses) -> indexes.Index:
    return indexes.create("trie-pyramid").build(clauses)


@pytest.mark.parametrize(
    ("dataset", "tokens", "range_share", "max_share"),
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
    dataset: str, tokens: tuple[int, int], range_share: float, max_share: float
) -> None:
    workload = Workload(dataset, seed=5)
    clauses = workload.subscriptions(20_000)
    messages = workload.messages(200, tokens=tokens, range_share=range_share)
    examined = indexes.create("trie-pyramid").build(clauses).match(messages).examined
    assert examined < max_share * len(messages) * len(clauses)


def test_it_opens_few_leaves() -> None:
    """A point among ten thousand small boxes opens one leaf, sometimes two."""
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
    """The cell mask of the token decides, although the message is inside the bounds of the list."""
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
    """Clauses without tokens are looked up after the last token."""
    wanted = [[], *([i] for i in range(tokens)), *([i, i + 1] for i in range(tokens))]
    index = indexes.create("trie-pyramid").build(
        Clauses.of(wanted, np.tile([[0, 0, 9, 9]], (len(wanted), 1)))
    )
    messages = Messages.of([list(range(tokens))] * 2 + [[]], [[5, 5]] * 3)
    assert np.diff(index.match(messages).start).tolist() == [2 * tokens + (tokens == 0)] * 2 + [1]


@pytest.mark.parametrize("base", [-(1 << 16), 0, 7 << 16, (7 << 16) - 1])
@pytest.mark.parametrize("count", [1, 40])
def test_borders_are_exact_where_rounded_boxes_are_equal(base: int, count: int) -> None:
    box = np.tile([[base + 10, base + 20, base + 30, base + 40]], (count, 1))
    index = indexes.create("trie-pyramid").build(Clauses.of([[1]] * count, box))
    points = [(x, y) for x in (9, 10, 30, 31) for y in (19, 20, 40, 41)]
    messages = Messages.of([[1]] * len(points), [[base + x, base + y] for x, y in points])
    inside = [10 <= x <= 30 and 20 <= y <= 40 for x, y in points]
    assert np.diff(index.match(messages).start).tolist() == [count * one for one in inside]


def test_the_largest_token_id_is_refused() -> None:
    """In an entry it means that no token is left."""
    largest = 2**31 - 1
    box = [[0, 0, 1, 1]]
    with pytest.raises(InvalidInput, match="token: token ids must be below 2,147,483,647"):
        indexes.create("trie-pyramid").build(Clauses.of([[largest]], box))
    index = indexes.create("trie-pyramid").build(Clauses.of([[largest - 1]], box))
    messages = Messages.of([[largest - 1], [largest]], [[0, 0]] * 2)
    assert index.match(messages).pairs() == {(0, 0)}


@pytest.mark.parametrize("others", [0, 31, 32, 40])
def test_a_message_may_have_the_largest_token_id(others: int) -> None:
    """Clauses without tokens are not found a second time."""
    index = indexes.create("trie-pyramid").build(Clauses.of([[], [3]], [[0, 0, 1, 1]] * 2))
    messages = Messages.of([[*range(others), 2**31 - 1], [2**31 - 1]], [[0, 0]] * 2)
    assert np.diff(index.match(messages).start).tolist() == [1 + (others > 3), 1]


def test_matches_that_do_not_fit_at_first() -> None:
    """One message with far more matches than the output has space for, after one with none."""
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


def test_scratch_is_reused_and_by_one_thread_at_a_time() -> None:
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


def test_the_largest_list_is_not_mistaken_for_a_node() -> None:
    largest = pack_pyramid(0, MAX_CLAUSES)
    assert not largest & IS_NODE
    assert size_of(largest) == MAX_CLAUSES


@pytest.fixture(scope="module")
def deep() -> indexes.Index:
    """Return an index with nodes below nodes, and lists of several blocks."""
    tokens = [[1, 2, 3]] * 20 + [[1, 2]] * 20 + [[1, 3]] * 20 + [[2], [3]] * 50
    clauses = Clauses.of(tokens, np.tile([[0, 0, 9, 9]], (len(tokens), 1)))
    return indexes.create("trie-pyramid", list_size=2, child_size=1).build(clauses)


def load_crafted(index: indexes.Index, name: str, row: Any, value: Any) -> None:
    """Load the index with one value replaced."""
    array = index.arrays()[name].copy()
    array[row] = value
    arrays = {**index.arrays(), name: array}
    TriePyramid.from_arrays(index.clauses, index.options, arrays).check_structure()


def test_a_node_below_itself_is_refused(deep: indexes.Index) -> None:
    slot = deep.arrays()["slot"]
    nodes = np.flatnonzero(slot[:, TARGET] & IS_NODE)
    assert len(nodes) > 1
    with pytest.raises(StorageError, match=r"trie-pyramid: slot must name each of \d nodes once"):
        load_crafted(deep, "slot", (nodes[0], TARGET), slot[nodes[1], TARGET])
    last = nodes[np.argmax(slot[nodes, TARGET])]
    below_itself = (slot[last, TARGET] ^ IS_NODE) << np.uint64(32)
    with pytest.raises(StorageError, match="slot has a node whose parent is not above it"):
        load_crafted(deep, "slot", (last, 0), below_itself)


def test_queues_that_are_too_short_are_refused(deep: indexes.Index) -> None:
    queue_size = int(deep.arrays()["setting"][3])
    with pytest.raises(StorageError, match=f"setting must have a queue size of {queue_size};"):
        load_crafted(deep, "setting", 3, queue_size - 1)


def test_a_clause_in_two_leaves_is_refused(deep: indexes.Index) -> None:
    """Or a clause that does not exist."""
    pyramid = deep.arrays()["pyramid"]
    entries = np.flatnonzero(pyramid >> np.uint64(32) == NO_TOKEN)
    assert len(entries) == len(deep.clauses)
    for word in (pyramid[entries[1]], len(deep.clauses)):
        with pytest.raises(StorageError, match="pyramid must hold each of 160 clauses once"):
            load_crafted(deep, "pyramid", entries[0], word)
