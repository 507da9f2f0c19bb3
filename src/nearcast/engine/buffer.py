"""The buffer: where small writes go until there are enough of them for an index.

Its columns grow in place, so a write costs what it adds. Every write makes a new `LiveSegment` over
views of the columns; segments that readers still hold do not change.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import (
    NEVER,
    GrowingArray,
    GrowingClauses,
    GrowingRankings,
    Ids,
    Rankings,
    Subscriptions,
)
from nearcast.engine.segment import LiveSegment
from nearcast.segments import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.indexes import Builder, Index
    from nearcast.segments import Scorer

__all__ = ["BUFFER_ROWS", "Buffer", "small_index"]

BUFFER_ROWS = 1024
"""How many rows the buffer holds, dead ones included."""


class Buffer:
    """Subscriptions that are compared one by one; ``segment`` is the latest view of all of them.

    Parameters
    ----------
    builder
        Makes the small form of an index.
    scorer
        What scores depend on.
    part, handle
        The first rows, and the vocabulary of all rows in the buffer.
    serial
        The number of its segments in the directory.
    """

    def __init__(
        self,
        builder: Builder,
        scorer: Scorer,
        part: Part,
        handle: NDArray[np.int32],
        serial: int,
    ) -> None:
        subscriptions, self.vocabulary = part
        self.scorer = scorer
        self._builder = builder
        self._serial = serial
        self._clauses = GrowingClauses(subscriptions.clauses)
        self._rankings = None
        if subscriptions.rankings is not None:
            self._rankings = GrowingRankings(subscriptions.rankings)
        self._expires_us = GrowingArray(subscriptions.expires_us)
        self._first_expiry_us = int(subscriptions.expires_us.min(initial=NEVER))
        self._number = GrowingArray(subscriptions.ids.number)
        self._text = subscriptions.ids.text
        self._owner = subscriptions.owner
        self._typed = subscriptions.typed
        self._handle = GrowingArray(handle)
        self._died = GrowingArray(np.full(len(handle), NEVER))
        self.segment = self._view(0)

    def __len__(self) -> int:
        return len(self._handle)

    def append(self, subscriptions: Subscriptions, handle: NDArray[np.int32]) -> LiveSegment:
        """Append rows, and return the new view of all of them; earlier views do not change."""
        before = len(self)
        ids = subscriptions.ids
        if self._text is not None or ids.has_text:
            self._text = _appended(self._text, before, ids.text, len(subscriptions))
        self._owner = _appended(self._owner, before, subscriptions.owner, len(subscriptions))
        self._typed = _appended(self._typed, before, subscriptions.typed, len(subscriptions))
        self._clauses.append(subscriptions.clauses)
        rankings = subscriptions.rankings
        if rankings is not None and self._rankings is None:
            self._rankings = GrowingRankings(Rankings.boolean(before))
        if self._rankings is not None:
            self._rankings.append(
                Rankings.boolean(len(subscriptions)) if rankings is None else rankings
            )
        if len(handle) == 1:
            expires_us = int(subscriptions.expires_us[0])
            self._first_expiry_us = min(self._first_expiry_us, expires_us)
            self._expires_us.push(expires_us)
            [one] = ids.tolist()
            self._number.push(0 if isinstance(one, str) else one)
            self._handle.push(handle[0])
            self._died.push(NEVER)
        else:
            first = int(subscriptions.expires_us.min(initial=NEVER))
            self._first_expiry_us = min(self._first_expiry_us, first)
            self._expires_us.append(subscriptions.expires_us)
            self._number.append(ids.number)
            self._handle.append(handle)
            self._died.append(np.full(len(handle), NEVER))
        self.segment = self._view(self.segment.tombstones)
        return self.segment

    def _view(self, tombstones: int) -> LiveSegment:
        clauses = self._clauses.clauses
        subscriptions = Subscriptions(
            ids=Ids(self._number.view, self._text),
            clauses=clauses,
            expires_us=self._expires_us.view,
            owner=self._owner,
            rankings=None if self._rankings is None else self._rankings.rankings,
            typed=self._typed,
        )
        index: Index | Callable[[], Index] = partial(
            small_index, self._builder, self.scorer, Part(subscriptions, self.vocabulary)
        )
        if self._rankings is None:  # this one costs nothing; others wait until they are needed
            index = self._builder.build_small(clauses)
        segment = LiveSegment(
            subscriptions,
            index,
            self.vocabulary,
            self.scorer,
            handle=self._handle.view,
            serial=self._serial,
            indexed=False,
            first_expiry_us=self._first_expiry_us,
        )
        segment.share_deaths(self._died.writable, tombstones)
        return segment


def small_index(builder: Builder, scorer: Scorer, part: Part) -> Index:
    """Return the small form of an index over a part."""
    return builder.build_small(scorer.content(part.subscriptions, part.vocabulary))


def _appended(
    text: pa.StringArray | None, rows: int, more: pa.StringArray | None, more_rows: int
) -> pa.StringArray | None:
    """Return strings of which either part may be None: then all of its rows are null."""
    if text is None and more is None:
        return None
    parts = [(text, rows), (more, more_rows)]
    return pa.concat_arrays([pa.nulls(n, pa.string()) if t is None else t for t, n in parts])
