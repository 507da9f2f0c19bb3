"""The checks that every moving index must pass, and `check_moving_index`, which runs them.

An index and the scan get the same events: subscriptions and messages of a case come, go, move and
change in a random order. After every event both must have returned the same changes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nearcast.columns import Clauses, Messages
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.moving import MovingBuilder
from nearcast.indexes.moving.scan import MovingScan
from nearcast.testing.cases import CASES, draw, draw_boxes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.moving import Changes

__all__ = ["MOVING_CHECKS", "Lockstep", "check_moving_index"]

Check: TypeAlias = Callable[[MovingBuilder, int], None]
Triples: TypeAlias = list[tuple[int, int, int]]


class Lockstep:
    """An index and the scan, which get the same events and must return the same changes.

    Subscriptions and messages are named by the order in which they came.
    """

    def __init__(self, builder: MovingBuilder, clauses: Clauses) -> None:
        self.index = builder.build(clauses)
        self.scan = MovingScan.build(clauses, NoOptions())
        count = clauses.subscriptions
        self._row = [dict(enumerate(range(count))) for _ in range(2)]
        self._number: list[dict[int, int]] = [{}, {}]
        self._sum: Counter[tuple[int, int]] = Counter()
        self._next_row, self._next_number = count, 0
        self.plain = {row for row in range(count) if _is_plain(clauses.row_slice(row))}

    @property
    def rows(self) -> list[int]:
        """The subscriptions that are registered."""
        return list(self._row[0])

    @property
    def numbers(self) -> list[int]:
        """The messages that are alive."""
        return list(self._number[0])

    def publish(self, messages: Messages) -> None:
        """Publish messages."""
        names = range(self._next_number, self._next_number + len(messages))
        self._next_number = names.stop
        results = []
        for side, index in enumerate((self.index, self.scan)):
            numbers, changes = index.publish(messages)
            assert len({*numbers.tolist()}) == len(messages), "numbers are distinct"
            self._number[side].update(zip(names, numbers.tolist(), strict=True))
            results.append(changes)
        self._compare("publish", results)

    def expire(self, names: list[int]) -> None:
        """Let messages expire."""
        results = [
            index.expire(np.array([self._number[side][name] for name in names], np.int32))
            for side, index in enumerate((self.index, self.scan))
        ]
        self._compare("expire", results)
        for side in range(2):
            for name in names:
                del self._number[side][name]

    def insert(self, clauses: Clauses) -> None:
        """Register subscriptions."""
        names = range(self._next_row, self._next_row + clauses.subscriptions)
        self._next_row = names.stop
        self.plain |= {n for i, n in enumerate(names) if _is_plain(clauses.row_slice(i))}
        results = []
        for side, index in enumerate((self.index, self.scan)):
            rows, changes = index.insert(clauses)
            self._row[side].update(zip(names, rows.tolist(), strict=True))
            results.append(changes)
        self._compare("insert", results)

    def delete(self, names: list[int]) -> None:
        """Delete subscriptions."""
        results = [
            index.delete(self._rows(side, names))
            for side, index in enumerate((self.index, self.scan))
        ]
        self._compare("delete", results)
        for side in range(2):
            for name in names:
                del self._row[side][name]
        self.plain -= {*names}

    def move(self, names: list[int], box: NDArray[np.int32]) -> None:
        """Move subscriptions."""
        results = [
            index.move(self._rows(side, names), box)
            for side, index in enumerate((self.index, self.scan))
        ]
        self._compare("move", results)

    def replace(self, names: list[int], clauses: Clauses) -> None:
        """Replace what subscriptions ask for."""
        results = [
            index.replace(self._rows(side, names), clauses)
            for side, index in enumerate((self.index, self.scan))
        ]
        self._compare("replace", results)
        for i, name in enumerate(names):
            self.plain.discard(name)
            if _is_plain(clauses.row_slice(i)):
                self.plain.add(name)

    def find(self, clauses: Clauses) -> None:
        """Ask which messages other subscriptions would match."""
        answers = []
        for side, index in enumerate((self.index, self.scan)):
            row, number = index.find(clauses)
            name_of = {number: name for name, number in self._number[side].items()}
            pairs = [(r, name_of[n]) for r, n in zip(row.tolist(), number.tolist(), strict=True)]
            assert len({*pairs}) == len(pairs), "find: a pair is there twice"
            answers.append({*pairs})
        assert answers[0] == answers[1], f"find: {_differences(*answers)}"

    def match(self, messages: Messages) -> None:
        """Match messages that nobody keeps."""
        answers = []
        for side, index in enumerate((self.index, self.scan)):
            message, row = index.match(messages)
            name_of = {row: name for name, row in self._row[side].items()}
            pairs = [(m, name_of[r]) for m, r in zip(message.tolist(), row.tolist(), strict=True)]
            assert len({*pairs}) == len(pairs), "match: a pair is there twice"
            answers.append({*pairs})
        assert answers[0] == answers[1], f"match: {_differences(*answers)}"

    def read_back(self) -> None:
        """Compare what the index tells of its subscriptions and messages."""
        for names, number_of, method in (
            (self.rows, self._row, "clauses"),
            (self.numbers, self._number, "messages"),
        ):
            sides = [
                getattr(index, method)(np.array([number_of[side][n] for n in names], np.int32))
                for side, index in enumerate((self.index, self.scan))
            ]
            for name in ("token_start", "token", "box", *_MORE.get(method, ())):
                got, expected = (getattr(columns, name) for columns in sides)
                assert np.array_equal(got, expected), f"{method}: {name} differs"

    def _rows(self, side: int, names: list[int]) -> NDArray[np.int32]:
        return np.array([self._row[side][name] for name in names], np.int32)

    def _compare(self, event: str, results: list[Changes]) -> None:
        got, expected = (self._named(side, changes) for side, changes in enumerate(results))
        assert {*got} == {*expected}, f"{event}: {_differences({*got}, {*expected})}"
        assert len(got) == len(expected), f"{event}: a change is there twice"
        for row, number, sign in got:
            self._sum[row, number] += sign
            assert self._sum[row, number] in (0, 1), f"{event}: the sum of a pair is wrong"
        assert len(self.index) == len(self.scan), f"{event}: number of subscriptions"
        assert self.index.live_messages == self.scan.live_messages, f"{event}: messages"

    def _named(self, side: int, changes: Changes) -> Triples:
        row_of = {row: name for name, row in self._row[side].items()}
        number_of = {number: name for name, number in self._number[side].items()}
        columns = (changes.row.tolist(), changes.message.tolist(), changes.sign.tolist())
        return [(row_of[r], number_of[n], s) for r, n, s in zip(*columns, strict=True)]


def random_events(steps: Lockstep, case: str, seed: int, count: int) -> None:
    """Let subscriptions and messages of a case come, go, move and change at random."""
    rng = np.random.default_rng([seed, 7])
    drawn = draw(case, seed)
    for _ in range(count):
        event = _EVENTS[rng.integers(0, len(_EVENTS))]
        event(steps, drawn.clauses, drawn.messages, rng)


def _publish(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    steps.publish(messages.take(rng.integers(0, len(messages), rng.integers(1, 12))))


def _expire(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    steps.expire(_some(steps.numbers, rng))


def _insert(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    steps.insert(_taken(clauses, rng.integers(1, 30), rng))


def _delete(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    steps.delete(_some(steps.rows, rng))


def _move(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    moved = [name for name in _some(steps.rows, rng) if name in steps.plain]
    rng.shuffle(moved)
    box = draw_boxes(rng, len(moved)).astype(np.int32).reshape(-1, 4)
    if len(moved):
        near = messages.box[rng.integers(0, len(messages), len(moved))]
        flat = near[:, 0] <= near[:, 2]
        chosen = flat & (rng.random(len(moved)) < 0.3)
        box[chosen] = near[chosen]
    steps.move(moved, box)


def _replace(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    names = _some(steps.rows, rng)
    steps.replace(names, _taken(clauses, len(names), rng))


def _find(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    steps.find(_taken(clauses, rng.integers(0, 20), rng))


def _match(steps: Lockstep, clauses: Clauses, messages: Messages, rng: Any) -> None:
    steps.match(messages.take(rng.integers(0, len(messages), rng.integers(1, 12))))
    steps.read_back()


_EVENTS = [
    *(_publish, _publish, _expire, _insert, _delete, _move, _move, _move, _replace, _find, _match)
]
_MORE = {"clauses": ("negative_start", "negative", "row")}


def _some(names: list[int], rng: Any) -> list[int]:
    return [name for name in names if rng.random() < 0.2]


def _taken(clauses: Clauses, count: int, rng: Any) -> Clauses:
    rows = rng.integers(0, clauses.subscriptions, count)
    return Clauses.concatenate([Clauses.empty(), *(clauses.row_slice(int(r)) for r in rows)])


def _is_plain(clauses: Clauses) -> bool:
    return clauses.plain and len(clauses) == 1


def _differences(got: set[Any], expected: set[Any]) -> str:
    missing, wrong = sorted(expected - got), sorted(got - expected)
    return (
        f"{len(missing)} of {len(expected)} are missing, for example {missing[:3]}; "
        f"{len(wrong)} are wrong, for example {wrong[:3]}"
    )


def _check_case(builder: MovingBuilder, seed: int, case: str) -> None:
    rng = np.random.default_rng([seed, 3])
    drawn = draw(case, seed)
    first = rng.integers(0, drawn.clauses.subscriptions, rng.integers(0, 80))
    steps = Lockstep(builder, drawn.clauses.take(np.unique(first)))
    random_events(steps, case, seed, 40)


MOVING_CHECKS: dict[str, Check] = {
    case: functools.partial(_check_case, case=case) for case in CASES
}
"""The checks by name: random events over the subscriptions and messages of each case."""


def check_moving_index(builder: MovingBuilder, seed: int = 0) -> None:
    """Raise `AssertionError` unless an index returns what the scan does, in all cases.

    Parameters
    ----------
    builder
        The index: ``nearcast.indexes.moving.create(name, **options)``.
    seed
        Another seed gives other events.

    Raises
    ------
    AssertionError
        If the index returns other changes than the scan. The message has some of them.

    Examples
    --------
    >>> from nearcast.indexes import moving
    >>> check_moving_index(moving.create("moving-scan"))
    """
    for check in MOVING_CHECKS.values():
        check(builder, seed)
