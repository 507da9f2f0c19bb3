"""What is special about keyword-first: its lists, how they grow, and that it changes in place."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import examples
from nearcast import indexes
from nearcast.columns import Clauses, Messages
from nearcast.compiled.jit import kernel
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.datasets.workloads import Workload
from nearcast.errors import InvalidInput, UnknownId
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.keyword_first.index import KeywordFirst
from nearcast.indexes.scan import Scan
from nearcast.testing import draw
from nearcast.testing import strategies as drawn

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

HERE = [0, 0, 10, 10]


def build(clauses: Clauses) -> KeywordFirst:
    return KeywordFirst.build(clauses, NoOptions())


def assert_scan_agrees(index: KeywordFirst, messages: Messages) -> None:
    scan = Scan(index.clauses, index.alive.copy())
    assert index.match(messages).pairs() == scan.match(messages).pairs()


def test_a_clause_is_in_the_list_of_its_rarest_token() -> None:
    """iphone4s (0) is in four clauses, ipad2 (1) in three, verizon (2) in two, 32GB (3) in one."""
    tokens: list[list[int]] = [[0, 1, 3], [0, 1, 2], [0, 1], [0, 2], []]
    index = build(Clauses.of(tokens, [HERE] * 5))
    examined = {token: index.match(Messages.of([[token]], [[5, 5]])).examined for token in range(5)}
    assert examined == {0: 1, 1: 2, 2: 3, 3: 2, 4: 1}
    matches = index.match(Messages.of([[0, 1, 2]], [[5, 5]]))
    assert matches.pairs() == {(0, 1), (0, 2), (0, 3), (0, 4)}
    assert matches.examined == 4


def test_where_a_message_is_does_not_change_what_is_examined() -> None:
    clauses = draw("crowd").clauses
    index = build(clauses)
    everywhere = Messages.of([[1, 2, 3]] * 2, [[0, 0], [1_700_000_000, 800_000_000]])
    apart = [index.match(everywhere.take(np.array([m]))).examined for m in range(2)]
    assert apart[0] == apart[1] > 0


def test_it_examines_the_lists_of_a_messages_tokens_only() -> None:
    tweets = Workload("tweets", seed=5)
    clauses, messages = tweets.subscriptions(5_000), tweets.messages(100)
    frequency = np.bincount(clauses.token)
    rarest = [
        min(clauses.token[a:b].tolist(), key=lambda t: (frequency[t], t))
        for a, b in zip(clauses.token_start, clauses.token_start[1:], strict=False)
    ]
    size = np.bincount(rarest, minlength=int(messages.token.max()) + 1)
    assert build(clauses).match(messages).examined == size[messages.token].sum()


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_lists_grow_and_shrink(batch: int) -> None:
    """From lists of no entry to blocks of them and back; the pool moves several times."""
    rng = np.random.default_rng(batch)
    case = draw("crowd")
    rows = np.arange(case.clauses.subscriptions)[: 6 * batch + 150]
    index = build(case.clauses.take(rows[:3]))
    for first in range(3, len(rows), batch):
        index.insert(case.clauses.take(rows[first : first + batch]))
    assert_scan_agrees(index, case.messages)
    for gone in np.array_split(rng.permutation(rows), 4):
        index.delete(gone)
        assert_scan_agrees(index, case.messages)
    assert not index.alive.any()
    assert index.match(case.messages).examined == 0


def test_one_list_of_many_entries() -> None:
    count = 1_000
    index = build(Clauses.of([[1]], [HERE]))
    for size in (15, 1, 1, 100, count - 118):
        index.insert(Clauses.of([[1]] * size, [HERE] * size))
    messages = Messages.of([[2], [1], [1, 2]], [[0, 0]] * 3)
    matches = index.match(messages)
    assert np.diff(matches.start).tolist() == [0, count, count]
    assert matches.examined == 2 * count
    index.delete(np.arange(0, count, 3))
    assert_scan_agrees(index, messages)


def test_what_moved_away_is_given_back() -> None:
    index = build(Clauses.empty())
    for _ in range(40):
        index.insert(Clauses.of([[t] for t in range(50)], [HERE] * 50))
    entry = index.arrays()["entry"]
    assert 2_000 <= len(entry) <= 4 * 2_000


def test_a_stored_index_changes_and_its_folder_does_not(tmp_path: Path) -> None:
    case = draw("alternatives")
    rows = np.arange(case.clauses.subscriptions)
    build(case.clauses.take(rows[:40])).save(tmp_path / "index")
    wanted = KeywordFirst.load(tmp_path / "index").match(case.messages).pairs()
    index = KeywordFirst.load(tmp_path / "index")
    index.insert(case.clauses.take(rows[40:]))
    index.delete(np.array([3, 1, 50]))
    assert_scan_agrees(index, case.messages)
    index.save(tmp_path / "changed")
    for again in (KeywordFirst.load(tmp_path / "changed"), pickle.loads(pickle.dumps(index))):
        assert again.match(case.messages).pairs() == index.match(case.messages).pairs()
        with pytest.raises(UnknownId):
            again.delete(np.array([50]))
        again.insert(case.clauses.take(rows[:5]))
        again.delete(np.array([0]))
        assert_scan_agrees(again, case.messages)
    assert KeywordFirst.load(tmp_path / "index").match(case.messages).pairs() == wanted


@pytest.mark.parametrize("rows", [[3], [-1], [0, 0], [1], [0, 1]])
def test_rows_that_are_not_there_are_refused_before_anything_changes(rows: list[int]) -> None:
    index = build(Clauses.of([[1], [1], [2]], [HERE] * 3))
    index.delete(np.array([1]))
    messages = Messages.of([[1, 2]], [[5, 5]])
    with pytest.raises(UnknownId, match=f"row {rows[-1]} is not in the index"):
        index.delete(np.array(rows))
    assert index.match(messages).pairs() == {(0, 0), (0, 2)}
    index.delete(np.array([]))
    assert index.alive.tolist() == [True, False, True]


def test_the_largest_token_id_is_refused() -> None:
    largest = 2**31 - 1
    fine, wrong = Clauses.of([[largest - 1]], [HERE]), Clauses.of([[largest]], [HERE])
    with pytest.raises(InvalidInput, match="token: token ids must be below 2,147,483,647"):
        build(wrong)
    index = build(fine)
    with pytest.raises(InvalidInput, match="token"):
        index.insert(wrong)
    assert len(index.clauses) == 1
    index.insert(Clauses.of([[]], [HERE]))
    messages = Messages.of([[largest - 1], [largest]], [[0, 0]] * 2)
    assert sorted(index.match(messages).pairs()) == [(0, 0), (0, 1), (1, 1)]
    assert len(index.match(messages)) == 3


def test_answers_that_were_given_stay_as_they_were() -> None:
    index = build(Clauses.of([[1]], [HERE]))
    clauses = index.clauses
    index.insert(Clauses.of([[2, 3]], [HERE]))
    assert clauses.token.tolist() == [1]
    assert index.clauses.token.tolist() == [1, 2, 3]


class Changes(RuleBasedStateMachine):
    """Inserts, deletes and restarts, in any order, against a scan of what is alive."""

    @initialize(clauses=drawn.clauses())
    def begin(self, clauses: Clauses) -> None:
        self.index = build(clauses)
        self.messages = draw("ranges").messages.take(np.arange(6))

    @rule(clauses=drawn.clauses(max_size=12), times=st.integers(1, 3))
    def insert(self, clauses: Clauses, times: int) -> None:
        for _ in range(times):
            self.index.insert(clauses)

    @precondition(lambda self: self.index.alive.any())
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        rows = np.flatnonzero(self.index.alive).tolist()
        gone = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=12))
        self.index.delete(np.array(gone, np.int64))

    @rule()
    def restart(self) -> None:
        self.index = pickle.loads(pickle.dumps(self.index))

    @invariant()
    def agrees(self) -> None:
        assert_scan_agrees(self.index, self.messages)
        self.index.check_structure()


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=examples(25), stateful_step_count=12, deadline=None)


@kernel
def touching(flat: NDArray[np.int32], stride: int, window: NDArray[np.int32]) -> Any:
    return touching_boxes(flat, np.int64(0), np.int64(stride), window)


@settings(deadline=None)
@given(
    boxes=st.lists(drawn.boxes(), min_size=1, max_size=LANES),
    window=drawn.boxes(),
)
def test_lanes_touch_as_boxes_do(boxes: list[list[int]], window: list[int]) -> None:
    count = len(boxes)
    flat = np.zeros(4 * LANES + LANES, np.int32)
    flat[: 4 * count] = np.array(boxes, np.int32).T.reshape(-1)
    bits = int(touching(flat, count, np.array(window, np.int32)))
    wanted = [
        b[0] <= window[2] and b[2] >= window[0] and b[1] <= window[3] and b[3] >= window[1]
        for b in boxes
    ]
    assert [bool(bits >> lane & 1) for lane in range(count)] == wanted


def test_it_is_in_the_registry() -> None:
    assert indexes.get("keyword-first") is KeywordFirst
