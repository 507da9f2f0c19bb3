"""``moving-scan``: compares everything with everything. It defines what the others must return.

It keeps subscriptions and messages as they were given, asks the boolean scan which pairs match
before and after an event, and returns the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, Messages
from nearcast.errors import UnknownId
from nearcast.indexes.contract import NoOptions
from nearcast.indexes.moving.contract import BEGINS, ENDS, Changes, MovingIndex
from nearcast.indexes.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["MovingScan"]


class MovingScan(MovingIndex):
    """The exhaustive scan, the oracle of all tests.

    Examples
    --------
    >>> scan = MovingScan.build(Clauses.of([[1]], [[0, 0, 9, 9]]), NoOptions())
    >>> numbers, changes = scan.publish(Messages.of([[1, 5]], [[20, 20]]))
    >>> numbers.tolist(), changes.triples()
    ([0], set())
    >>> scan.move([0], np.array([[10, 10, 30, 30]], np.int32)).triples()
    {(0, 0, 1)}
    >>> scan.expire([0]).triples()
    {(0, 0, -1)}
    """

    name = "moving-scan"
    summary = "compares everything with everything; defines the answer"

    def __init__(self) -> None:
        self.options = NoOptions()
        self.examined = self.visited = self.copies = 0
        self._subscriptions: dict[int, Clauses] = {}
        self._messages: dict[int, Messages] = {}

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions) -> Self:
        """Take the clauses as they are."""
        index = cls()
        index.insert(clauses)
        return index

    def __len__(self) -> int:
        return len(self._subscriptions)

    @property
    def live_messages(self) -> int:
        """How many messages are alive."""
        return len(self._messages)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        kept = [*self._subscriptions.values(), *self._messages.values()]
        return sum(columns.nbytes for columns in kept)

    def publish(self, messages: Messages) -> tuple[NDArray[np.int32], Changes]:
        """Take messages; return their numbers and all matches."""
        numbers = _unused(self._messages, len(messages))
        for i, number in enumerate(numbers):
            self._messages[number] = messages.take(np.array([i]))
        found = self._pairs(self._subscriptions, numbers)
        found.sort(key=lambda pair: numbers.index(pair[1]))
        return np.array(numbers, np.int32), _changes([(*pair, BEGINS) for pair in found])

    def expire(self, numbers: NDArray[Any]) -> Changes:
        """Drop messages."""
        gone = _known(self._messages, numbers, "message")
        found = self._pairs(self._subscriptions, gone)
        found.sort(key=lambda pair: gone.index(pair[1]))
        for number in gone:
            del self._messages[number]
        return _changes([(*pair, ENDS) for pair in found])

    def insert(self, clauses: Clauses) -> tuple[NDArray[np.int32], Changes]:
        """Add subscriptions."""
        rows = _unused(self._subscriptions, clauses.subscriptions)
        for i, row in enumerate(rows):
            self._subscriptions[row] = clauses.take(np.array([i]))
        found = self._pairs(rows, self._messages)
        return np.array(rows, np.int32), _changes([(*pair, BEGINS) for pair in found])

    def delete(self, rows: NDArray[Any]) -> Changes:
        """Drop subscriptions."""
        gone = _known(self._subscriptions, rows, "row")
        found = self._pairs(gone, self._messages)
        for row in gone:
            del self._subscriptions[row]
        return _changes([(*pair, ENDS) for pair in found])

    def move(self, rows: NDArray[Any], box: NDArray[np.int32]) -> Changes:
        """Give subscriptions other boxes."""
        moved = [
            Clauses.of([self._subscriptions[row].token.tolist()], [place])
            for row, place in zip(_known(self._subscriptions, rows, "row"), box, strict=True)
        ]
        return self.replace(rows, Clauses.concatenate([Clauses.empty(), *moved]))

    def replace(self, rows: NDArray[Any], clauses: Clauses) -> Changes:
        """Give subscriptions other clauses."""
        changed = _known(self._subscriptions, rows, "row")
        before = self._pairs(changed, self._messages)
        for i, row in enumerate(changed):
            self._subscriptions[row] = clauses.take(np.array([i]))
        after = self._pairs(changed, self._messages)
        ended, begun = {*before} - {*after}, {*after} - {*before}
        found = [(*pair, ENDS) for pair in ended] + [(*pair, BEGINS) for pair in begun]
        found.sort(key=lambda change: changed.index(change[0]))
        return _changes(found)

    def find(self, clauses: Clauses) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the living messages that match subscriptions which are not in the index."""
        others = MovingScan.build(clauses, NoOptions())
        others._messages = self._messages
        found = others._pairs(others._subscriptions, self._messages)
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1].astype(np.int32)

    def match(self, messages: Messages) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return what matches messages that nobody keeps."""
        numbers, changes = self.publish(messages)
        for number in numbers.tolist():
            del self._messages[number]
        place = {number: i for i, number in enumerate(numbers.tolist())}
        at = [place[number] for number in changes.message.tolist()]
        return np.array(at, np.int64), changes.row

    def messages(self, numbers: NDArray[Any]) -> Messages:
        """Return living messages as columns."""
        chosen = [self._messages[n] for n in _known(self._messages, numbers, "message")]
        tokens = [message.token.tolist() for message in chosen]
        boxes = [message.box[0] for message in chosen]
        return Messages.of(tokens, np.array(boxes, np.int32).reshape(-1, 4))

    def clauses(self, rows: NDArray[Any]) -> Clauses:
        """Return subscriptions as they are now."""
        chosen = [self._subscriptions[row] for row in _known(self._subscriptions, rows, "row")]
        return Clauses.concatenate([Clauses.empty(), *chosen])

    def _pairs(self, rows: Iterable[int], numbers: Iterable[int]) -> list[tuple[int, int]]:
        """Return which of these rows match which of these messages, in the order of the rows."""
        row_of, number_of = list(rows), list(numbers)
        if not row_of or not number_of:
            return []
        clauses = Clauses.concatenate([self._subscriptions[row] for row in row_of])
        scan = Scan.build(clauses, NoOptions())
        found = [
            (row, number)
            for number in number_of
            for row in scan.match(self._messages[number]).subscription.tolist()
        ]
        return [(row_of[row], number) for row, number in sorted(found)]


def _changes(found: list[tuple[int, int, int]]) -> Changes:
    columns = np.array(found, np.int64).reshape(-1, 3)
    return Changes.of(columns[:, 0], columns[:, 1], columns[:, 2])


def _unused(used: dict[int, Any], count: int) -> list[int]:
    """Return the lowest numbers that are free."""
    free = (number for number in range(len(used) + count) if number not in used)
    return [next(free) for _ in range(count)]


def _known(used: dict[int, Any], numbers: NDArray[Any], what: str) -> list[int]:
    known: list[int] = np.asarray(numbers).reshape(-1).tolist()
    for position, number in enumerate(known):
        if number not in used or number in known[:position]:
            raise UnknownId(f"{what} {number} is not in the index")
    return known
