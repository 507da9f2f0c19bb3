"""The order of tokens: against orders that are worked out the slow way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import Clauses, Messages
from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.statistics import Grid, Statistics
from nearcast.indexes.token_order.order import KINDS, TokenOrder
from nearcast.testing import draw
from nearcast.testing import strategies as drawn
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

FEW = settings(max_examples=examples(60), deadline=None)
HERE = [0, 0, 9, 9]


def tokens_of(clauses: Clauses) -> list[list[int]]:
    start = clauses.token_start
    return [clauses.token[start[c] : start[c + 1]].tolist() for c in range(len(clauses))]


def by_clause(clauses: Clauses, ordered: Any) -> list[list[int]]:
    assert len(ordered) == len(clauses.token)
    parts = [part.tolist() for part in np.split(ordered, clauses.token_start[1:-1])]
    return parts if len(clauses) else []


def cells_of(clauses: Clauses, kind: str, side: int = 100) -> list[int]:
    if not kind.startswith("local"):
        return [0] * len(clauses)
    box = clauses.box.astype(np.int64)
    return [int(c) for c in Grid(side, side).cell_of((box[:, :2] + box[:, 2:]) // 2)]


class Counted:
    """Frequencies as dictionaries."""

    def __init__(self, kind: str) -> None:
        self.sign = 1 if kind.endswith("idf") else -1
        self.local: Counter[tuple[int, int]] = Counter()
        self.anywhere: Counter[int] = Counter()

    def count(self, tokens: list[int], cell: int, more: int = 1) -> None:
        for token in tokens:
            self.anywhere[token] += more
            self.local[cell, token] += more

    def order(self, tokens: list[int], cell: int) -> list[int]:
        def key(token: int) -> tuple[int, int, int]:
            return (
                self.sign * self.local[cell, token],
                self.sign * self.anywhere[token],
                token,
            )

        return sorted(tokens, key=key)


@pytest.mark.parametrize("kind", ["idf", "local-idf"])
@FEW
@given(clauses=drawn.clauses())
def test_rare_tokens_come_first(kind: str, clauses: Clauses) -> None:
    tokens, cells = tokens_of(clauses), cells_of(clauses, kind)
    counted = Counted(kind)
    for some, cell in zip(tokens, cells, strict=True):
        counted.count(some, cell if kind.startswith("local") else 0)
    wanted = [counted.order(some, cell) for some, cell in zip(tokens, cells, strict=True)]
    assert by_clause(clauses, TokenOrder.count(clauses, kind)[1]) == wanted


def assert_greedy(clauses: Clauses, kind: str, side: int) -> None:
    """Follow the order: each next first token covers as many of the other clauses as any could."""
    tokens, cells = tokens_of(clauses), cells_of(clauses, kind, side)
    ordered = by_clause(clauses, TokenOrder.count(clauses, kind, cells=side * side)[1])
    frequency = Counter((c, t) for c, some in zip(cells, tokens, strict=True) for t in some)
    assert [sorted(some) for some in ordered] == tokens
    left = {i for i, some in enumerate(tokens) if some}
    firsts = {(cells[i], ordered[i][0]) for i in left}
    chosen = []
    while left:
        counts = Counter((cells[i], t) for i in left for t in tokens[i])
        most = max(counts.values())
        able = [pair for pair in firsts if counts[pair] == most]
        assert able, "a first token that covers the most is missing"
        # Of equals, the order itself says which one was chosen before the others.
        pair = next(p for p in able if _before_all(p, able, cells, ordered))
        covered = {i for i in left if cells[i] == pair[0] and pair[1] in tokens[i]}
        assert all(ordered[i][0] == pair[1] for i in covered)
        chosen.append(pair)
        firsts.discard(pair)
        left -= covered
    assert not firsts
    for cell, some in zip(cells, ordered, strict=True):
        rest = [(cell, t) for t in some if (cell, t) not in chosen]
        assert [(cell, t) for t in some][len(some) - len(rest) :] == rest
        assert rest == sorted(rest, key=lambda pair: (-frequency[pair], pair[1]))


def _before_all(
    pair: tuple[int, int],
    others: list[tuple[int, int]],
    cells: list[int],
    ordered: list[list[int]],
) -> bool:
    return all(
        some.index(pair[1]) <= some.index(token)
        for other_cell, token in others
        for cell, some in zip(cells, ordered, strict=True)
        if cell == pair[0] == other_cell and pair[1] in some and token in some
    )


@pytest.mark.parametrize("kind", ["df", "local-df"])
@FEW
@given(clauses=drawn.clauses())
def test_few_tokens_cover_the_most(kind: str, clauses: Clauses) -> None:
    assert_greedy(clauses, kind, 3)


@pytest.mark.parametrize("kind", ["df", "local-df"])
def test_few_tokens_cover_a_crowd(kind: str) -> None:
    assert_greedy(draw("crowd").clauses.take(np.arange(300)), kind, 4)


def test_greedy_counts_again_after_each_choice() -> None:
    """The most frequent token covers the clauses of the second; the third is chosen next."""
    tokens = [[1, 2], [1, 2], [1, 2], [1], [1], [3, 2], [3], [3, 4]]
    clauses = Clauses.of(tokens, [HERE] * len(tokens))
    ordered = by_clause(clauses, TokenOrder.count(clauses, "df")[1])
    assert [some[0] for some in ordered] == [1, 1, 1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "random"])
@FEW
@given(
    clauses=drawn.clauses(), more=st.lists(drawn.clauses(max_size=8), max_size=4), data=st.data()
)
def test_changes_are_counted(kind: str, clauses: Clauses, more: list[Clauses], data: Any) -> None:
    order, _ = TokenOrder.count(clauses, kind)
    counted = Counted(kind)
    for some, cell in zip(tokens_of(clauses), cells_of(clauses, kind), strict=True):
        counted.count(some, cell)
    if len(clauses):
        gone = data.draw(st.sets(st.integers(0, len(clauses) - 1)))
        order.delete(clauses, np.array(sorted(gone), np.int64))
        for c in gone:
            counted.count(tokens_of(clauses)[c], cells_of(clauses, kind)[c], -1)
    for part in more:
        wanted = []
        for some, cell in zip(tokens_of(part), cells_of(part, kind), strict=True):
            wanted.append(counted.order(some, cell))
            counted.count(some, cell)
        assert by_clause(part, order.insert(part)) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_goes_on_where_it_was_stored(kind: str) -> None:
    clauses = draw("long_messages").clauses
    rows = np.arange(clauses.subscriptions)
    first, second = clauses.take(rows[:200]), clauses.take(rows[200:])
    order, _ = TokenOrder.count(first, kind, cells=50, seed=3)
    arrays = {name: array.copy() for name, array in order.arrays().items()}
    for array in arrays.values():
        array.flags.writeable = False
    again = TokenOrder.from_arrays(kind, arrays, cells=50, seed=3)
    assert again.insert(second).tolist() == order.insert(second).tolist()
    assert {k: v.tolist() for k, v in again.arrays().items()} == {
        k: v.tolist() for k, v in order.arrays().items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_clauses_that_follow_are_ordered_from_a_number_on(kind: str) -> None:
    clauses = draw("crowd").clauses
    rows = np.arange(clauses.subscriptions)
    order, _ = TokenOrder.count(clauses.take(rows[:100]), kind)
    again, _ = TokenOrder.count(clauses.take(rows[:100]), kind)
    wanted = order.insert(clauses.take(rows[100:]))
    assert again.insert(clauses, 100).tolist() == wanted.tolist()


def test_random_orders_follow_from_the_seed() -> None:
    clauses = Clauses.of([range(c, c + 5) for c in range(400)], [HERE] * 400)
    order, ordered = TokenOrder.count(clauses, "random", seed=1)
    assert order.insert(clauses).tolist() == ordered.tolist()
    assert order.arrays() == {}
    assert TokenOrder.count(clauses, "random", seed=2)[1].tolist() != ordered.tolist()
    parts = by_clause(clauses, ordered)
    assert [sorted(some) for some in parts] == tokens_of(clauses)
    firsts = Counter(some[0] - c for c, some in enumerate(parts))
    assert min(firsts[place] for place in range(5)) > 50


def test_a_long_clause_is_ordered_too() -> None:
    clauses = Clauses.of([range(300), range(0, 300, 2), range(0, 300, 3)], [HERE] * 3)
    counted = Counted("idf")
    for some in tokens_of(clauses):
        counted.count(some, 0)
    wanted = [counted.order(some, 0) for some in tokens_of(clauses)]
    assert by_clause(clauses, TokenOrder.count(clauses, "idf")[1]) == wanted


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "random"])
def test_frequencies_of_statistics_are_taken(kind: str, tmp_path: Path) -> None:
    """In the east 2 is frequent, in the west 1, and 0 everywhere; 9 is not known."""
    east, west = [500_000_000, 0], [-500_000_000, 0]
    messages = Messages.of(
        [[0, 1], [0, 1], [0, 1], [0, 2], [0, 2], [1]], [west, west, west, east, east, east]
    )
    words = Vocabulary(["everywhere", "west", "east"])
    Statistics.count(messages, words, across=2, up=1).save(tmp_path / "statistics")
    known = Statistics.load(tmp_path / "statistics").vocabulary
    id_of = {word: i for i, word in enumerate(known.tokens().to_pylist())}
    ids = [id_of[word] for word in ("everywhere", "west", "east")]
    clauses = Clauses.of([[*ids, 9]] * 2, [east * 2, west * 2])
    folder = str(tmp_path / "statistics")
    order, ordered = TokenOrder.count(clauses, kind, statistics=folder)
    everywhere, western, eastern = ids
    rising = {
        "idf": [[9, eastern, western, everywhere]] * 2,
        "local-idf": [[9, western, eastern, everywhere], [9, eastern, western, everywhere]],
    }
    wanted = rising.get(kind) or [some[::-1] for some in rising[kind.replace("df", "idf")]]
    assert by_clause(clauses, ordered) == wanted
    assert order.grid == Grid.around(messages, 2, 1) or not kind.startswith("local")
    again = TokenOrder.from_arrays(kind, order.arrays(), cells=10_000, seed=0)
    assert again.grid == order.grid or not kind.startswith("local")
    assert again.insert(clauses).tolist() == ordered.tolist()


def test_what_is_no_order_is_refused() -> None:
    with pytest.raises(UnknownName, match="choose from: df, idf"):
        TokenOrder.count(Clauses.empty(), "fdi")
    with pytest.raises(InvalidInput, match="cells"):
        TokenOrder.count(Clauses.empty(), "idf", cells=0)
