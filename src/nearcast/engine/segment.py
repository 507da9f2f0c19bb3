"""The segments of an engine, and the state that readers see."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import BOOLEAN, NEVER, Ids
from nearcast.segments import LATEST, Segment
from nearcast.text import hash_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns import Subscriptions
    from nearcast.indexes import Index
    from nearcast.segments import Scorer
    from nearcast.text import Vocabulary

__all__ = ["LiveSegment", "State"]


_MIN_SORTED = 4096
"""A smaller segment is searched for an owner row by row."""


class RowsByOwner:
    """The rows of a column of owners, sorted by the hash of the owner, to find those of one.

    Examples
    --------
    >>> rows = RowsByOwner(pa.array(["ann", "bob", None, "ann"]))
    >>> rows.find("ann").tolist(), rows.find("eve").tolist()
    ([0, 3], [])
    """

    def __init__(self, owners: pa.StringArray) -> None:
        given = np.flatnonzero(pc.is_valid(owners))
        named = owners if len(given) == len(owners) else owners.take(pa.array(given))
        hashed = hash_ids(Ids(np.zeros(len(named), np.int64), named))
        order = np.argsort(hashed, kind="stable")
        self._owners = owners
        self._hash = hashed[order]
        self._row = given[order].astype(np.int32)

    @property
    def nbytes(self) -> int:
        """The bytes of hashes and rows."""
        return int(self._hash.nbytes + self._row.nbytes)

    def find(self, owner: str) -> NDArray[np.int64]:
        """Return the rows of an owner, ascending."""
        [hashed] = hash_ids(Ids.of([owner]))
        first, last = np.searchsorted(self._hash, [hashed, hashed + np.uint32(1)])
        if hashed == np.iinfo(np.uint32).max:
            last = len(self._hash)
        rows = self._row[first:last].astype(np.int64)
        same: NDArray[np.bool_] = pc.equal(self._owners.take(pa.array(rows)), owner).to_numpy(
            zero_copy_only=False
        )
        return rows[same]


class LiveSegment(Segment):
    """A segment of an engine; ``handle`` names each of its rows in the directory.

    Parameters
    ----------
    subscriptions, index, vocabulary, scorer, first_expiry_us
        As for `nearcast.segments.Segment`.
    handle
        The handle of every row.
    serial
        The number of the segment in the directory.
    indexed
        Whether it has a real index, not the small form that costs nothing to build.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        index: Index | Callable[[], Index],
        vocabulary: Vocabulary,
        scorer: Scorer,
        *,
        handle: NDArray[np.int32],
        serial: int,
        indexed: bool,
        first_expiry_us: int | None = None,
    ) -> None:
        super().__init__(subscriptions, index, vocabulary, scorer, first_expiry_us=first_expiry_us)
        self.handle = handle
        self.serial = serial
        self.indexed = indexed

    @cached_property
    def _by_expiry(self) -> NDArray[np.int64]:
        """The rows that expire, by time."""
        expires_us = self.subscriptions.expires_us
        rows = np.flatnonzero(expires_us < NEVER)
        return rows[np.argsort(expires_us[rows], kind="stable")]

    def expiring(self, after_us: int, until_us: int) -> NDArray[np.int64]:
        """Return the rows that are alive and expire after one time, until another."""
        rows = self._by_expiry
        times = self.subscriptions.expires_us[rows]
        first, last = np.searchsorted(times, [after_us, until_us], side="right")
        chosen = rows[first:last]
        return chosen if not len(self.died) else chosen[self.died[chosen] > LATEST]

    def next_expiry_us(self, after_us: int) -> int:
        """Return when a row expires next after a time."""
        times = self.subscriptions.expires_us[self._by_expiry]
        at = int(np.searchsorted(times, after_us, side="right"))
        return int(times[at]) if at < len(times) else NEVER

    def owned_by(self, owner: str) -> NDArray[np.int64]:
        """Return the rows of an owner that are alive, expired ones too."""
        owners = self.subscriptions.owner
        if owners is None:
            return np.empty(0, np.int64)
        if len(self) < _MIN_SORTED:
            rows = np.flatnonzero(pc.fill_null(pc.equal(owners, owner), False))
        else:
            rows = self._rows_by_owner.find(owner)
        return rows if not len(self.died) else rows[self.died[rows] > LATEST]

    @cached_property
    def _rows_by_owner(self) -> RowsByOwner:
        assert self.subscriptions.owner is not None
        return RowsByOwner(self.subscriptions.owner)

    def count_ranked(self) -> int:
        """Return how many rows are ranked and alive."""
        rankings = self.subscriptions.rankings
        if rankings is None:
            return 0
        return int(np.count_nonzero(self.alive() & (rankings.kind != BOOLEAN)))

    def rescored(self, scorer: Scorer, index: Index | Callable[[], Index]) -> LiveSegment:
        """Return the same rows, which go on dying together, with other weights of tokens."""
        segment = LiveSegment(
            self.subscriptions,
            index,
            self.vocabulary,
            scorer,
            handle=self.handle,
            serial=self.serial,
            indexed=self.indexed,
            first_expiry_us=self.first_expiry_us,
        )
        segment.share_deaths_of(self)
        return segment

    @property
    def nbytes(self) -> int:
        """The bytes of subscriptions, index, deaths and handles."""
        by_owner = vars(self).get("_rows_by_owner")
        more = 0 if by_owner is None else by_owner.nbytes
        return super().nbytes + int(self.handle.nbytes) + more


class State(NamedTuple):
    """What readers see: a version, and the segments that make it up. It never changes.

    All segments score with ``scorer``. If some subscriptions are ``moving``, they are in none of
    the segments.
    """

    version: int
    segments: tuple[LiveSegment, ...]
    scorer: Scorer
    moving: bool = False

    @property
    def first_expiry_us(self) -> int:
        """When the first subscription of a segment expires."""
        first_us = NEVER
        for segment in self.segments:
            first_us = min(first_us, segment.first_expiry_us)
        return first_us
