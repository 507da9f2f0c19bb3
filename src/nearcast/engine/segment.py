"""A segment: subscriptions that never change, their index, and which of them are gone.

Every write makes a new *version* of the engine. A row notes the version in which it died, so that
whoever still reads an older version goes on seeing it: a write is seen as a whole or not at all,
and nobody waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import NEVER, Matches, read_only
from nearcast.segments.visible import LifeArrays, MatchArrays, keep_visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Messages, Subscriptions
    from nearcast.indexes import Index

__all__ = ["Segment", "State"]

_NOBODY = read_only(np.empty(0), np.int64)


class Segment:
    """Subscriptions with their index; ``handle`` names each of them in the directory.

    Parameters
    ----------
    columns
        The subscriptions.
    index
        An index over their clauses.
    handle
        The handle of every row.
    serial
        What the directory calls the segment.
    """

    def __init__(
        self, columns: Subscriptions, index: Index, handle: NDArray[np.int32], serial: int
    ) -> None:
        self.columns = columns
        self.index = index
        self.handle = handle
        self.serial = serial
        self.tombstones = 0
        self.first_expiry_us = int(columns.expires_us.min(initial=NEVER))
        self._expires_us = _NOBODY
        if self.first_expiry_us < NEVER:
            self._expires_us = read_only(columns.expires_us, np.int64)
        self._died: NDArray[np.int64] | None = None
        self.died = _NOBODY

    def __len__(self) -> int:
        return len(self.handle)

    @property
    def nbytes(self) -> int:
        """The bytes of columns, index and tombstones."""
        own = int(self.handle.nbytes) + int(self.died.nbytes)
        return self.columns.nbytes + self.index.nbytes + own

    def prepare_to_kill(self) -> None:
        """Have room for tombstones, so that `kill` cannot fail."""
        if self._died is None:
            self._died = np.full(len(self), NEVER, np.int64)

    def kill(self, rows: NDArray[Any], version: int | NDArray[np.int64]) -> None:
        """Let rows die in a version that nobody reads yet, or each in its own."""
        self.prepare_to_kill()
        assert self._died is not None
        self._died[rows] = version
        self.tombstones += len(rows)
        self.died = read_only(self._died, np.int64)

    def alive(self, version: int) -> NDArray[np.bool_]:
        """Return which rows had not died in a version."""
        if not len(self.died):
            return np.ones(len(self), np.bool_)
        return self.died > version

    def unexpired(self, now_us: int) -> NDArray[np.bool_]:
        """Return which rows have not expired."""
        if now_us < self.first_expiry_us:
            return np.ones(len(self), np.bool_)
        return self.columns.expires_us > now_us

    def match(self, messages: Messages, version: int, threads: int) -> Matches:
        """Return the rows visible in a version that match each message."""
        matches = self.index.match(messages, threads=threads)
        life = LifeArrays(self.died, self._expires_us)
        if not len(matches) or not (len(life.died) or len(life.expires_us)):
            return matches
        start = np.empty(len(matches.start), np.int64)
        kept = np.empty(len(matches), np.int32)
        found = MatchArrays(
            read_only(matches.start, np.int64),
            read_only(matches.subscription, np.int32),
            messages.time_us,
        )
        keep_visible(found, life, version, start, kept)
        return Matches(start, kept[: start[-1]], matches.examined)


class State(NamedTuple):
    """What readers see: a version, and the segments that make it up. It never changes."""

    version: int
    segments: tuple[Segment, ...]
