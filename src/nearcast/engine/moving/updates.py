"""Updates as columns, and the outbox where they wait until somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids, distinct, join_scores, starts
from nearcast.model import Update, time_from_us
from nearcast.text import hash_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["UPDATE_COLUMNS", "Outbox", "Updates"]

UPDATE_COLUMNS = ("time", "subscription_id", "message_id", "sign", "score")
"""The columns of a table of updates."""


class Updates(NamedTuple):
    """Matches that began (sign +1) or ended (-1), with the scores of those that are ranked.

    ``score`` is None where all of them are boolean, and NaN for boolean ones among others.
    """

    time_us: NDArray[np.int64]
    subscription: Ids
    message: Ids
    sign: NDArray[np.int8]
    score: NDArray[np.float64] | None = None

    @classmethod
    def none(cls) -> Updates:
        """Return no updates."""
        return cls(np.empty(0, np.int64), Ids.of([]), Ids.of([]), np.empty(0, np.int8))

    def take(self, rows: NDArray[np.int64]) -> Updates:
        """Return the updates of these rows."""
        return Updates(
            self.time_us[rows],
            self.subscription.take(rows),
            self.message.take(rows),
            self.sign[rows],
            None if self.score is None else self.score[rows],
        )

    def by_time(self) -> Updates:
        """Return the updates in the order of time; those of one time stay in their order."""
        if len(self.sign) < 2 or bool((self.time_us[1:] >= self.time_us[:-1]).all()):
            return self
        return self.take(np.argsort(self.time_us, kind="stable"))

    @classmethod
    def concatenate(cls, parts: Sequence[Updates]) -> Updates:
        """Return the updates of all parts, one after another."""
        parts = [part for part in parts if len(part.sign)]
        if len(parts) <= 1:
            return parts[0] if parts else cls.none()
        return cls(
            np.concatenate([part.time_us for part in parts]),
            Ids.concatenate([part.subscription for part in parts]),
            Ids.concatenate([part.message for part in parts]),
            np.concatenate([part.sign for part in parts]),
            join_scores([part.score for part in parts], [len(part.sign) for part in parts]),
        )

    def pairs(self) -> Iterator[tuple[str | int, str | int]]:
        """Yield the subscription and the message of each."""
        return zip(self.subscription.tolist(), self.message.tolist(), strict=True)

    def to_table(self) -> pa.Table:
        """Return ``time``, ``subscription_id``, ``message_id``, ``sign`` and ``score``."""
        score = pa.nulls(len(self.sign), pa.float64())
        if self.score is not None:
            score = pa.array(self.score, from_pandas=True)
        columns = [
            pa.array(self.time_us, pa.timestamp("us", "UTC")),
            self.subscription.to_arrow(),
            self.message.to_arrow(),
            pa.array(self.sign, pa.int8()),
            score,
        ]
        return pa.table(columns, names=UPDATE_COLUMNS)

    def to_list(self) -> list[Update]:
        """Return the updates as objects."""
        score: list[float | None] = [None] * len(self.sign)
        if self.score is not None:
            score = [None if np.isnan(value) else value for value in self.score.tolist()]
        times = {us: time_from_us(us) for us in {*self.time_us.tolist()}}
        return [
            Update(times[us], subscription, message, sign, value)
            for us, subscription, message, sign, value in zip(
                self.time_us.tolist(),
                self.subscription.tolist(),
                self.message.tolist(),
                self.sign.tolist(),
                score,
                strict=True,
            )
        ]


class Outbox:
    """Updates that no call has returned yet, in the order in which they happened."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._parts: list[Updates] = []  # newer than all runs

    def __len__(self) -> int:
        counts = [run.count for run in self._runs]
        return sum(counts) + sum(len(part.sign) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """The bytes of all updates."""
        parts = [*(run.updates for run in self._runs), *self._parts]
        return sum(run.key.nbytes + run.row.nbytes for run in self._runs) + sum(
            part.time_us.nbytes + part.subscription.nbytes + part.message.nbytes + len(part.sign)
            for part in parts
        )

    def add(self, updates: Updates) -> None:
        """Keep updates."""
        if len(updates.sign):
            self._parts.append(updates)

    def look(self) -> Updates:
        """Return all updates, and keep them."""
        updates = Updates.concatenate([*(run.rest() for run in self._runs), *self._parts])
        self._runs, self._parts = [], []
        self.add(updates)
        return updates

    def take(self) -> Updates:
        """Return all updates, and forget them."""
        updates = self.look()
        self._parts = []
        return updates

    def take_pairs(self, updates: Updates) -> Updates:
        """Return all updates of the same pairs as these, and forget them."""
        if not len(updates.sign) or not (self._runs or self._parts):
            return Updates.none()
        if self._parts:
            newest, self._parts = Updates.concatenate(self._parts), []
            # Each run is at least twice as long as the next, so there are few of them.
            while self._runs and self._runs[-1].count < 2 * len(newest.sign):
                newest = Updates.concatenate([self._runs.pop().rest(), newest])
            self._runs.append(_Run(newest))
        key = distinct(_pair_keys(updates))
        return Updates.concatenate([run.take(key, updates) for run in self._runs])


class _Run:
    """Updates that wait, sorted by pair, so that those of a pair are found quickly."""

    def __init__(self, updates: Updates) -> None:
        key = _pair_keys(updates)
        self.updates = updates
        self.row = np.argsort(key, kind="stable")
        self.key = key[self.row]
        self._waits = np.ones(len(key), np.bool_)
        self.count = len(key)

    def rest(self) -> Updates:
        """Return the updates that still wait."""
        whole = self.count == len(self._waits)
        return self.updates if whole else self.updates.take(np.flatnonzero(self._waits))

    def take(self, key: NDArray[np.uint64], updates: Updates) -> Updates:
        """Return all updates of the same pairs as others, given their keys, and forget them."""
        first, last = (np.searchsorted(self.key, key, side) for side in ("left", "right"))
        start = starts(last - first)
        if not start[-1]:
            return Updates.none()
        row = self.row[np.arange(start[-1]) + np.repeat(first - start[:-1], last - first)]
        row = np.sort(row[self._waits[row]])
        found, pairs = self.updates.take(row), {*updates.pairs()}
        same = np.array([pair in pairs for pair in found.pairs()], np.bool_)
        self._waits[row[same]] = False
        self.count -= int(np.count_nonzero(same))
        return found.take(np.flatnonzero(same))


def _pair_keys(updates: Updates) -> NDArray[np.uint64]:
    """Return a hash of every pair of a subscription and a message."""
    return hash_ids(updates.subscription).astype(np.uint64) << np.uint64(32) | hash_ids(
        updates.message
    )
