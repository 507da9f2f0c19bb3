"""Updates that must last before they are sent: a subscriber who passes by is not disturbed.

A match that begins or ends because a subscription changes or moves waits for ``dwell_us``. If the
opposite happens meanwhile, neither is sent. A match whose message expires while it waits is not
sent either. So an end only waits if its match was sent, and is sent even if the message has expired
by then.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Dwelling", "Waiting"]


class Waiting(NamedTuple):
    """An update that waits: when it may be sent, of what, and whether the match begins (+1).

    ``ends_us`` is when the message expires.
    """

    due_us: int
    handle: int
    message: int
    sign: int
    score: float
    ends_us: int


class Dwelling:
    """The updates that wait."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, Waiting]] = {}  # by handle and message
        self._by_time: list[Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def next_us(self) -> int:
        """When the next update may be sent, at the earliest."""
        return self._by_time[0].due_us if self._by_time else NEVER

    def add(self, update: Waiting) -> None:
        """Let an update wait."""
        self._waiting.setdefault(update.handle, {})[update.message] = update
        heapq.heappush(self._by_time, update)

    def cancel(self, handle: int, message: int) -> bool:
        """Forget an update that waits because the opposite happens; return whether one waited."""
        own = self._waiting.get(handle, {})
        waited = own.pop(message, None) is not None
        if waited and not own:
            del self._waiting[handle]
        return waited

    def forget(self, handle: int) -> None:
        """Forget the updates of a subscription that is no longer matched."""
        self._waiting.pop(handle, None)

    def take(self, time_us: int) -> list[Waiting]:
        """Return the updates that have lasted until a time and count, in their order."""
        due = []
        while self._by_time and self._by_time[0].due_us <= time_us:
            update = heapq.heappop(self._by_time)
            if self._waiting.get(update.handle, {}).get(update.message) is update:
                self.cancel(update.handle, update.message)
                if update.sign < 0 or update.ends_us > time_us:
                    due.append(update)
        return due

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the updates as arrays, to be saved."""
        rows = sorted(update for own in self._waiting.values() for update in own.values())
        columns = zip(*rows, strict=True) if rows else ([] for _ in Waiting._fields)
        kinds = (np.int64, np.int64, np.int64, np.int8, np.float64, np.int64)
        named = zip(Waiting._fields, columns, kinds, strict=True)
        return {name: np.array(column, kind) for name, column, kind in named}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Dwelling:
        """Return the updates that were saved."""
        dwelling = cls()
        columns = [arrays[name].tolist() for name in Waiting._fields]
        for row in zip(*columns, strict=True):
            dwelling.add(Waiting(*row))
        return dwelling
