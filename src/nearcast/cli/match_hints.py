"""What a user may have done wrong when nothing matched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import UNITS
from nearcast.text.scopes import SCOPE_BYTE

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch

__all__ = ["Hints"]

_NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)
_MANY = 0.1
_BEYOND_90 = "must lie between -90 and 90"


class Hints:
    """Collects where subscriptions and messages are, and how many words there were."""

    def __init__(self) -> None:
        self._box = {"subscriptions": np.array(_NOWHERE), "messages": np.array(_NOWHERE)}
        self._messages = self._words = 0

    def add_subscriptions(self, box: NDArray[np.int32]) -> None:
        """Add the boxes of subscriptions, in units."""
        self._extend("subscriptions", box)

    def add_messages(self, batch: MessageBatch) -> None:
        """Add messages."""
        self._extend("messages", batch.box)
        self._messages += len(batch)
        words = batch.words.keys
        self._words += int(np.count_nonzero(words.byte[words.byte_start[:-1]] != SCOPE_BYTE))

    def found(self, reasons: Counter[tuple[str, str, str]], rows: Counter[str]) -> list[str]:
        """Return what may be wrong if nothing matched.

        ``reasons`` counts rejects by source, field and reason, and ``rows`` all rows by source.
        """
        hints = []
        swapped = [source for source in self._box if self._beyond_90(source, reasons, rows)]
        if swapped or self._fit_if_swapped():
            which = f" of the {' and the '.join(swapped)}" if swapped else ""
            hints.append(
                f"longitude and latitude{which} look swapped; if they are, add "
                "--column lon=COLUMN_OF_LONGITUDES --column lat=COLUMN_OF_LATITUDES"
            )
        elif self._are_disjoint():
            places = "; ".join(f"{source} {self._shown(source)}" for source in self._box)
            hints.append(f"subscriptions and messages are in different places: {places}")
        if self._messages and not self._words:
            hints.append(
                "no message has a word; check which column has the texts (--column text=COLUMN)"
            )
        return hints

    def _extend(self, source: str, box: NDArray[np.int32]) -> None:
        if len(box):
            low, high = box[:, [0, 1]], box[:, [2, 3]]
            both = np.concatenate([low, high])
            old = self._box[source]
            self._box[source] = np.concatenate(
                [np.minimum(old[:2], both.min(axis=0)), np.maximum(old[2:], both.max(axis=0))]
            )

    def _are_disjoint(self) -> bool:
        one, other = self._box.values()
        return bool(np.isfinite([one, other]).all() and not _overlap(one, other))

    def _fit_if_swapped(self) -> bool:
        one, other = self._box.values()
        return self._are_disjoint() and _overlap(one, other[[1, 0, 3, 2]])

    def _beyond_90(
        self, source: str, reasons: Counter[tuple[str, str, str]], rows: Counter[str]
    ) -> bool:
        fields = {"lat", "south", "north"}
        wrong = sum(
            count
            for (where, field, reason), count in reasons.items()
            if where == source and field in fields and reason.startswith(_BEYOND_90)
        )
        return wrong > _MANY * rows[source]

    def _shown(self, source: str) -> str:
        west, south, east, north = (self._box[source] / UNITS).tolist()
        return f"from {west:.4g} to {east:.4g} longitude, {south:.4g} to {north:.4g} latitude"


def _overlap(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool((one[:2] <= other[2:]).all() and (other[:2] <= one[2:]).all())
