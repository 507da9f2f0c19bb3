"""The directory: the segment and row of every id.

Only writers use it, one at a time. An id has a handle, a small number that is reused when the id is
gone; arrays by handle hold the segment and row of the subscription. An id can be
*reserved* for a subscription that is still being prepared: then nobody else can take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import DuplicateId, UnknownId
from nearcast.text import IdTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns import Ids
    from nearcast.model import Id

__all__ = [
    "ALIKE",
    "MOVING",
    "NOWHERE",
    "Directory",
    "alike_id",
    "duplicate_id",
    "living_id",
    "unknown_id",
]

NOWHERE = -1
"""The segment of an id that is in none."""

MOVING = -2
"""In place of a segment: the subscription has moved, and its row is one of the moving index."""


ALIKE = (
    "is written like an id of another type that is registered (7 and '7'), and tables could not "
    "tell them apart; use another id"
)
"""Why an id cannot be registered."""


class Directory:
    """Ids, their handles, and the segment and row of each.

    Examples
    --------
    >>> from nearcast.columns import Ids
    >>> directory = Directory()
    >>> handle = directory.reserve(Ids.of(["a", "b"]))
    >>> directory.place(handle, 3, np.array([7, 8]))
    >>> found = directory.find(Ids.of(["b", "c"]))
    >>> directory.segment_of(found).tolist(), directory.row_of(found[:1]).tolist()
    ([3, -1], [8])
    """

    def __init__(self) -> None:
        self._table = IdTable()
        self._segment = np.empty(0, np.int32)
        self._row = np.empty(0, np.int32)
        self._reserved = np.empty(0, np.bool_)
        self.allows_alike = False

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """The bytes of the directory in memory."""
        arrays = (self._segment, self._row, self._reserved)
        return self._table.nbytes + sum(array.nbytes for array in arrays)

    def find(self, ids: Ids) -> NDArray[np.int32]:
        """Return the handle of every id, -1 where it is unknown."""
        return self._table.find(ids)

    def find_one(self, id: Id) -> int:
        """Return the handle of an id, -1 if it is unknown."""
        return self._table.find_one(id)

    def segment_at(self, handle: int) -> int:
        """Return the segment of a handle, `NOWHERE` if it has none or is -1."""
        return int(self._segment[handle]) if handle >= 0 else NOWHERE

    def row_at(self, handle: int) -> int:
        """Return the row of a handle that is in a segment."""
        return int(self._row[handle])

    def is_reserved(self, handle: int) -> bool:
        """Return whether a handle is reserved; -1 is not."""
        return handle >= 0 and bool(self._reserved[handle])

    def segment_of(self, handle: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the segment of every handle, `NOWHERE` where it has none or is -1."""
        if not len(self._segment):
            return np.full(len(handle), NOWHERE, np.int32)
        return np.where(handle < 0, NOWHERE, self._segment[handle])

    def row_of(self, handle: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the row of every handle that is in a segment."""
        return self._row[handle]

    def reserved(self, handle: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which handles are reserved; -1 is not."""
        if not len(self._reserved):
            return np.zeros(len(handle), np.bool_)
        return (handle >= 0) & self._reserved[handle]

    def alike(
        self, ids: Ids, taken: Callable[[NDArray[np.int32]], NDArray[np.bool_]]
    ) -> NDArray[np.bool_]:
        """Return which ids are written like one of the other type: 7 and "7".

        A column of a table has one type, so tables could not tell them apart. The other one is
        among the ids before it, or its handle is taken.
        """
        alike = np.zeros(len(ids), np.bool_)
        if self.allows_alike or not self._table.may_have_alike(ids):
            return alike
        other = self._table.find_alike(ids)
        rows = np.flatnonzero(other >= 0)
        if len(rows):
            alike[rows] = taken(other[rows])
        first: dict[str, type] = {}
        for row, value in enumerate(ids.tolist()):
            if not alike[row]:
                alike[row] = first.setdefault(str(value), type(value)) is not type(value)
        return alike

    def reserve(self, ids: Ids) -> NDArray[np.int32]:
        """Reserve ids, known or new, and return their handles."""
        if len(ids) == 1:
            one = self._table.add_one(ids.tolist()[0])
            self._reserve_handles(self._table.handles)
            self._reserved[one] = True
            return np.array([one], np.int32)
        handle = self._table.add(ids)
        self._reserve_handles(self._table.handles)
        self._reserved[handle] = True
        return handle

    def cancel(self, handle: NDArray[np.int32]) -> None:
        """Cancel reservations; ids that are in no segment are forgotten."""
        self._reserved[handle] = False
        self._forget(handle[self._segment[handle] == NOWHERE])

    def place(self, handle: NDArray[np.int32], segment: int, row: NDArray[Any]) -> None:
        """Set the segment and rows of handles, and end their reservations."""
        if len(handle) == 1:
            one = int(handle[0])
            self._segment[one], self._row[one], self._reserved[one] = segment, row[0], False
            return
        self._segment[handle] = segment
        self._row[handle] = row
        self._reserved[handle] = False

    def move(self, handle: NDArray[np.int32], segment: int, row: NDArray[Any]) -> None:
        """Set the segment and rows of handles; reservations stay."""
        self._segment[handle] = segment
        self._row[handle] = row

    def release(self, handle: NDArray[np.int32]) -> None:
        """Forget ids; a reserved one is in no segment any more but stays reserved."""
        if len(handle) == 1:
            one = int(handle[0])
            self._segment[one] = NOWHERE
            if not self._reserved[one]:
                self._forget(handle)
            return
        self._segment[handle] = NOWHERE
        self._forget(handle[~self._reserved[handle]])

    def _forget(self, handle: NDArray[np.int32]) -> None:
        self._table.remove(handle)

    def _reserve_handles(self, handles: int) -> None:
        capacity = len(self._segment)
        if handles <= capacity:
            return
        grown = max(handles, capacity + capacity // 2, 64)
        self._segment = _grown(self._segment, grown, NOWHERE)
        self._row = _grown(self._row, grown, 0)
        self._reserved = _grown(self._reserved, grown, False)


def _grown(array: NDArray[Any], size: int, fill: int | bool) -> NDArray[Any]:
    larger = np.full(size, fill, array.dtype)
    larger[: len(array)] = array
    return larger


def duplicate_id(ids: Ids, taken: NDArray[np.bool_]) -> DuplicateId:
    """Return the error for ids that are taken."""
    return DuplicateId(
        f"the id {_listed(ids, taken)} is registered already; use replace to change it"
    )


def alike_id(ids: Ids, alike: NDArray[np.bool_]) -> DuplicateId:
    """Return the error for ids that are written like one of the other type."""
    return DuplicateId(f"the id {_listed(ids, alike)} {ALIKE}")


def unknown_id(ids: Ids, unknown: NDArray[np.bool_]) -> UnknownId:
    """Return the error for ids that are not registered."""
    return UnknownId(
        f"no subscription with the id {_listed(ids, unknown)} is registered; "
        "subscribe first, or check whether it has expired"
    )


def living_id(ids: Ids, living: NDArray[np.bool_]) -> DuplicateId:
    """Return the error for ids of messages that are alive."""
    return DuplicateId(
        f"a message with the id {_listed(ids, living)} is alive; "
        "publish it again when that has expired"
    )


def _listed(ids: Ids, chosen: NDArray[np.bool_], maximum: int = 3) -> str:
    rows = np.flatnonzero(chosen)
    shown = ", ".join(repr(value) for value in ids.take(rows[:maximum]).tolist())
    return shown if len(rows) <= maximum else f"{shown} and {len(rows) - maximum:,} more"
