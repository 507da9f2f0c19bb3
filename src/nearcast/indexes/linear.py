"""The index of a buffer: no index at all.

It costs nothing to build, so that a subscription can be added for the price of copying a few
columns; it is fast enough for as many subscriptions as a buffer holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.indexes.contract import Found, Index, NoOptions, message_arrays
from nearcast.indexes.linear_kernels import LinearArrays, scan_clauses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Messages

__all__ = ["Linear"]


class Linear(Index):
    """Looks at every clause, for sets of a thousand at most.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> linear = Linear.build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> linear.match(Messages.of([[1, 5], [5]], [[9, 9], [0, 0]])).pairs()
    {(0, 0)}
    """

    name = "linear"
    summary = "looks at every clause; for the youngest subscriptions of an engine"

    def __init__(self, clauses: Clauses) -> None:
        self.clauses = clauses
        self.options = NoOptions()

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions | None = None) -> Self:
        """Take the clauses as they are."""
        return cls(clauses)

    def find(self, messages: Messages, threads: int) -> Found:
        """Find the clauses of each message; ``threads`` makes no difference."""
        clauses = self.clauses
        columns = LinearArrays(clauses.token_start, clauses.token, clauses.box)
        arrays = message_arrays(messages)
        start = np.zeros(len(messages) + 1, np.int64)
        clause = np.empty(64 + 2 * len(messages), np.int32)
        done, examined = 0, 0
        while True:
            done, more = scan_clauses(columns, arrays, done, start, clause)
            examined += more
            if done == len(messages):
                return Found(start, clause[: start[done]], examined)
            room = np.empty(len(clause) + len(clauses), np.int32)
            clause = np.concatenate([clause[: start[done]], room])

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return nothing: the clauses are all there is."""
        return {}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: NoOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Take the clauses as they are."""
        return cls(clauses)
