"""What indexes that change in place have in common: clauses that grow, and which rows are there.

Clauses are numbered as they come and keep their numbers; a dropped one leaves the index, but its
columns stay. An index that was opened from a folder is read-only views until its first change.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import Clauses, GrowingArray, GrowingClauses, read_only
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.errors import InvalidInput, UnknownId
from nearcast.indexes.boolean import BooleanIndex
from nearcast.indexes.contract import UpdatableIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["InPlaceIndex", "check_tokens", "current", "present_rows"]


class InPlaceIndex(BooleanIndex, UpdatableIndex):
    """An index over clauses that grow.

    A subclass puts ``alive`` among its arrays and says how clauses are added and removed. What
    of it must be writable for that, it makes so in `_begin_changing`.
    """

    def __init__(
        self, clauses: Clauses, options: Any, alive: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(clauses, options)
        if alive is None:
            alive = np.ones(clauses.subscriptions, np.bool_)
        self._fixed_alive = read_only(alive, np.bool_)
        self._growing: tuple[GrowingClauses, GrowingArray] | None = None

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which subscription rows are in the index."""
        return self._fixed_alive if self._growing is None else self._growing[1].view

    def insert(self, clauses: Clauses) -> None:
        """Add subscriptions; their rows follow those that are there."""
        check_tokens(clauses)
        growing, alive = self._changeable()
        self._drop_scratch()
        first = len(self.clauses)
        growing.append(clauses)
        alive.append(np.ones(clauses.subscriptions, np.bool_))
        self.clauses = growing.clauses
        if len(clauses):
            self._add(first, first + len(clauses))

    def delete(self, rows: NDArray[Any]) -> None:
        """Drop the subscriptions of these rows; the other rows keep their numbers."""
        gone = self._present(np.asarray(rows).reshape(-1))
        _, alive = self._changeable()
        self._drop_scratch()
        _, clauses = self.clauses.clauses_of(gone)
        if len(clauses):
            self._remove(clauses)
        alive.writable[gone] = False

    def follow_insert(self, leader: InPlaceIndex, first: int, last: int) -> None:
        """Take clauses that an index of which this one is a part has taken already."""
        self._join(leader)
        self._add(first, last)

    def follow_delete(self, leader: InPlaceIndex, clauses: NDArray[np.int64]) -> None:
        """Drop clauses that an index of which this one is a part is dropping."""
        self._join(leader)
        self._remove(clauses)

    def _join(self, leader: InPlaceIndex) -> None:
        """Have the same clauses, and the same rows alive, as another index that is changing."""
        self._drop_scratch()
        if self._growing is None:
            self._begin_changing()
        self._growing = leader._growing
        self.clauses = leader.clauses

    def _live_clauses(self, removed: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
        """Return the clauses of all rows that are alive, without those that are being removed."""
        live = np.flatnonzero(self.alive[self.clauses.row]).astype(np.int32)
        return live if removed is None else np.setdiff1d(live, removed.astype(np.int32))

    @abstractmethod
    def _add(self, first: int, last: int) -> None:
        """Take the clauses with these numbers, which are in ``self.clauses`` already."""

    @abstractmethod
    def _remove(self, clauses: NDArray[np.int64]) -> None:
        """Drop the clauses with these numbers, all of which are in the index."""

    def _begin_changing(self) -> None:
        """Make what is read-only writable; called once, before the first change."""

    def _changeable(self) -> tuple[GrowingClauses, GrowingArray]:
        if self._growing is None:
            growing = GrowingClauses(self.clauses), GrowingArray(self._fixed_alive)
            self._begin_changing()
            self._growing = growing
            self.clauses = growing[0].clauses
        return self._growing

    def _present(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the rows as they are, if each is in the index and stands there once."""
        return present_rows(self.alive, rows)


def present_rows(alive: NDArray[np.bool_], rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows as they are, if each is in an index and stands there once."""
    known = (rows >= 0) & (rows < len(alive))
    if known.all():
        known = alive[rows.astype(np.int64)]
    if not known.all():
        raise UnknownId(f"row {rows[~known][0]} is not in the index")
    ascending = np.sort(rows)
    twice = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(twice):
        raise UnknownId(f"row {twice[0]} is not in the index")
    return rows.astype(np.int64)


def current(column: NDArray[Any] | GrowingArray) -> NDArray[Any]:
    """Return a column of an index as it is now, whether it grows already or not."""
    return column.view if isinstance(column, GrowingArray) else column


def check_tokens(clauses: Clauses) -> None:
    """Raise unless all token ids are below the one that stands for no token."""
    if len(clauses.token) and int(clauses.token.max()) >= NO_TOKEN:
        raise InvalidInput("token", int(NO_TOKEN), f"token ids must be below {NO_TOKEN:,}")
