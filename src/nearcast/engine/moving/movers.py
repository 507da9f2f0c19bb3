"""Subscriptions that have moved: their words and places are in the moving index, the rest is here.

A subscription that never moves stays in its segment. Its first move takes it out: segments are made
for matching and never change, the moving index is made for moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import NEVER, Subscriptions
from nearcast.engine.moving.numbered import NumberedIds, NumberedValues
from nearcast.engine.moving.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Ids
    from nearcast.indexes.moving import MovingIndex

__all__ = ["Movers"]

_NOBODY = -1


class Movers:
    """The subscriptions in a moving index, by row."""

    def __init__(self) -> None:
        self._ids = NumberedIds()
        self._handle = NumberedValues(np.int32, _NOBODY)
        self._expires_us = NumberedValues(np.int64, NEVER)
        self._plain = NumberedValues(np.bool_, False)
        self._owner: dict[int, str] = {}
        self._owned: dict[str, set[int]] = {}
        self._schedule = Schedule()
        self._typed: dict[int, str] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        parts = (self._ids, self._handle, self._expires_us, self._plain, self._schedule)
        return sum(part.nbytes for part in parts)

    @property
    def rows(self) -> NDArray[np.int32]:
        """The rows of all subscriptions."""
        return np.flatnonzero(self._handle.all != _NOBODY).astype(np.int32)

    @property
    def first_expiry_us(self) -> int:
        """When the first of them expires, or one did that is gone."""
        return self._schedule.first_us

    def put(
        self, rows: NDArray[np.int32], handle: NDArray[np.int32], subscriptions: Subscriptions
    ) -> None:
        """Take subscriptions that the index has in these rows."""
        self._ids.put(rows, subscriptions.ids)
        self._handle.put(rows, handle)
        self._expires_us.put(rows, subscriptions.expires_us)
        self._schedule.add(np.asarray(subscriptions.expires_us), rows)
        if subscriptions.owner is not None:
            for row, owner in zip(rows.tolist(), subscriptions.owner.to_pylist(), strict=True):
                if owner is not None:
                    self._owner[row] = owner
                    self._owned.setdefault(owner, set()).add(row)
        if subscriptions.typed is not None:
            pairs = zip(rows.tolist(), subscriptions.typed.to_pylist(), strict=True)
            self._typed.update((row, typed) for row, typed in pairs if typed is not None)
        self._count += len(rows)

    def note_clauses(self, rows: NDArray[np.int32], clauses: Clauses) -> None:
        """Note which subscriptions are a box and words, given what all of them ask for."""
        plain = np.bincount(clauses.row, minlength=len(rows)) == 1
        plain[clauses.row[(clauses.shape >= 0) | (np.diff(clauses.negative_start) > 0)]] = False
        self._plain.put(rows, plain)

    def plain(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which subscriptions are a box and words, and nothing else."""
        return self._plain.of(rows)

    def is_plain(self, row: int) -> bool:
        """Return whether a subscription is a box and words, and nothing else."""
        return bool(self._plain.at(row))

    def drop(self, rows: NDArray[np.int32]) -> None:
        """Forget the subscriptions of rows."""
        self._ids.drop(rows)
        self._handle.put(rows, _NOBODY)
        self._expires_us.put(rows, NEVER)
        for row in rows.tolist() if self._typed else ():
            self._typed.pop(row, None)
        for row in rows.tolist() if self._owner else ():
            owner = self._owner.pop(row, None)
            if owner is not None:
                self._owned[owner].remove(row)
                if not self._owned[owner]:
                    del self._owned[owner]
        self._count -= len(rows)

    def ids(self, rows: NDArray[np.int32]) -> Ids:
        """Return the ids of rows."""
        return self._ids.of(rows)

    def owners(self, rows: NDArray[np.int32]) -> list[str | None]:
        """Return the owners of rows."""
        return [self._owner.get(row) for row in rows.tolist()]

    def owned_by(self, owner: str) -> NDArray[np.int32]:
        """Return the rows of an owner."""
        return np.array(sorted(self._owned.get(owner, ())), np.int32)

    def handle(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the handles of rows."""
        return self._handle.of(rows)

    def expires_us(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return when rows expire."""
        return self._expires_us.of(rows)

    def expiry_us(self, row: int) -> int:
        """Return when a row expires."""
        return int(self._expires_us.at(row))

    def due(self, until_us: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return which rows expire until a time, and when, by time."""
        if until_us < self._schedule.first_us:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        time, row = self._schedule.due(until_us)
        # A row may be somebody else's by now.
        still = self._expires_us.of(row) == time if len(row) else np.empty(0, np.bool_)
        time, row = time[still], row[still]
        _, first = np.unique(row, return_index=True)
        first.sort()
        return time[first], row[first]

    def subscriptions(self, rows: NDArray[np.int32], index: MovingIndex) -> Subscriptions:
        """Return the subscriptions of rows as they are now, with tokens as the index has them."""
        owner = None
        if self._owner:
            owner = pa.array(self.owners(rows), pa.string())
        typed = None
        if self._typed:
            typed = pa.array([self._typed.get(row) for row in rows.tolist()], pa.string())
        return Subscriptions(
            ids=self.ids(rows),
            clauses=index.clauses(rows),
            expires_us=self.expires_us(rows),
            owner=owner,
            typed=typed,
        )
