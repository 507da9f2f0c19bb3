"""Updates as columns, and the outbox where they wait until somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.columns import Ids, join_scores
from nearcast.model import Update, time_from_us

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Updates that no call has returned yet."""

    def __init__(self) -> None:
        self._parts: list[Updates] = []

    def __len__(self) -> int:
        return sum(len(part.sign) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """The bytes of all updates."""
        return sum(
            part.time_us.nbytes + part.subscription.nbytes + part.message.nbytes + len(part.sign)
            for part in self._parts
        )

    def add(self, updates: Updates) -> None:
        """Keep updates."""
        if len(updates.sign):
            self._parts.append(updates)

    def look(self) -> Updates:
        """Return all updates, and keep them."""
        self._parts = [Updates.concatenate(self._parts)] if self._parts else []
        return self._parts[0] if self._parts else Updates.none()

    def take(self) -> Updates:
        """Return all updates, and forget them."""
        updates, self._parts = self.look(), []
        return updates
