"""The contract of indexes for subscriptions that move and messages that live for a while.

An index holds subscriptions and living messages, and says what every event changes: which pairs of
them begin to match, and which stop. All that it ever returned for a pair adds up to 1 while the
pair matches and to 0 otherwise. It knows nothing of ids and times: subscriptions are *rows*,
messages are *numbers*, both given by the index and given again when they are free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from nearcast.indexes.contract import NoOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Messages

__all__ = ["BEGINS", "ENDS", "Changes", "MovingIndex", "positions_among"]

BEGINS = 1
"""The sign of a change: a pair begins to match."""

ENDS = -1
"""The sign of a change: a pair no longer matches."""


class Changes(NamedTuple):
    """Pairs that begin to match (sign +1) or stop (-1), in the order of the call's arguments.

    Attributes
    ----------
    row
        The rows of subscriptions, int32.
    message
        The numbers of messages, int32.
    sign
        1 or -1, int8.

    Examples
    --------
    >>> Changes.of([3, 4], [0, 0], [BEGINS, ENDS]).triples() == {(3, 0, 1), (4, 0, -1)}
    True
    """

    row: NDArray[np.int32]
    message: NDArray[np.int32]
    sign: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> Self:
        """Return no changes."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int8))

    @classmethod
    def of(cls, row: Any, message: Any, sign: Any) -> Self:
        """Return changes of these rows and numbers; one sign for all, or one each."""
        rows = np.asarray(row, np.int32)
        signs = np.broadcast_to(np.asarray(sign, np.int8), len(rows))
        return cls(rows, np.asarray(message, np.int32), signs)

    @classmethod
    def concatenate(cls, parts: Sequence[Changes]) -> Self:
        """Return the changes of all parts, one after another."""
        if not parts:
            return cls.none()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def triples(self) -> set[tuple[int, int, int]]:
        """Return the changes as a set of (row, message, sign)."""
        return set(zip(self.row.tolist(), self.message.tolist(), self.sign.tolist(), strict=True))


def positions_among(given: NDArray[np.int32], numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Return where each number stands among the given ones, no two of which are the same.

    Examples
    --------
    >>> positions_among(np.array([7, 3], np.int32), np.array([3, 7, 3])).tolist()
    [1, 0, 1]
    """
    if len(given) == 1:
        return np.zeros(len(numbers), np.int64)
    position = np.empty(int(given.max(initial=-1)) + 1, np.int64)
    position[given] = np.arange(len(given))
    found: NDArray[np.int64] = position[numbers]
    return found


class MovingIndex(ABC):
    """Subscriptions that move, and the messages that are alive.

    See `nearcast.testing.check_moving_index` for what every one must pass. An index is not for
    several threads at a time.

    Attributes
    ----------
    examined, visited, copies
        Counted since the index was made: candidates that had to be verified; nodes, cells or lists
        that were opened; places where messages were stored.
    """

    name: ClassVar[str]
    """The name in the registry."""

    summary: ClassVar[str]
    """One line for people who choose an index."""

    Options: ClassVar[type[Any]] = NoOptions
    """A frozen dataclass of its options, which checks them."""

    options: Any
    examined: int
    visited: int
    copies: int

    @classmethod
    @abstractmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Build the index over subscriptions, which get the rows from 0 on; no message lives."""

    @abstractmethod
    def publish(self, messages: Messages) -> tuple[NDArray[np.int32], Changes]:
        """Take messages, which are alive from now on; return their numbers and all matches."""

    @abstractmethod
    def expire(self, numbers: NDArray[Any]) -> Changes:
        """Drop messages, whose numbers are free then; what matches them now, ends."""

    @abstractmethod
    def move(self, rows: NDArray[Any], box: NDArray[np.int32]) -> Changes:
        """Give subscriptions other boxes, one each; no row twice.

        Only for subscriptions of one clause without forbidden tokens, in a box that is not cut
        and has no exact shape. Others are moved by `replace`.
        """

    @abstractmethod
    def insert(self, clauses: Clauses) -> tuple[NDArray[np.int32], Changes]:
        """Add subscriptions; return their rows, and the living messages that they match."""

    @abstractmethod
    def delete(self, rows: NDArray[Any]) -> Changes:
        """Drop subscriptions, whose rows are free then."""

    @abstractmethod
    def replace(self, rows: NDArray[Any], clauses: Clauses) -> Changes:
        """Give subscriptions other clauses: other words, another place, or both; no row twice."""

    @abstractmethod
    def match(self, messages: Messages) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return what matches messages that nobody keeps.

        The result is pairs, in order: the row of ``messages``, and the row of a subscription.
        """

    @abstractmethod
    def find(self, clauses: Clauses) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the living messages that match subscriptions which are not in the index.

        The result is pairs, in order: the row of ``clauses``, and the number of the message.
        """

    @abstractmethod
    def messages(self, numbers: NDArray[Any]) -> Messages:
        """Return living messages as columns, without times."""

    @abstractmethod
    def clauses(self, rows: NDArray[Any]) -> Clauses:
        """Return subscriptions as they are now, in the order of the rows."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many subscriptions there are."""

    @property
    @abstractmethod
    def live_messages(self) -> int:
        """How many messages are alive."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes of subscriptions, messages and everything that finds them."""
