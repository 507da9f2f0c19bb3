"""Which matches are in the log already: Spark, and the way to it, may repeat some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Seen"]

_MAX_PAIRS = 4_000_000
_MAX_RUNS = 16
_MAX_SPAN = (1 << 32) - 1
_HANDLE_BITS = np.uint64(32)


class Seen:
    """The pairs of messages and subscriptions that were seen, of the newest messages.

    Parameters
    ----------
    since
        The first message of which all pairs will be added.
    max_pairs
        How many pairs are kept, about.

    Attributes
    ----------
    since
        The first message of which all pairs are known.

    Examples
    --------
    >>> seen = Seen(1)
    >>> seen.add(np.array([5, 5]), np.array([1, 2]))
    >>> seen.contains(np.array([5, 6]), np.array([2, 2])).tolist()
    [True, False]
    """

    def __init__(self, since: int, max_pairs: int = _MAX_PAIRS) -> None:
        self.since = self._base = since
        self._max_pairs = max_pairs
        self._runs: list[NDArray[np.uint64]] = []
        self._pairs = 0

    def contains(self, message: NDArray[np.int64], handle: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which pairs were seen; of messages before ``since`` nothing is known."""
        key = self._keys(message, handle)
        found = np.zeros(len(key), np.bool_)
        for run in self._runs:
            at = np.minimum(run.searchsorted(key), len(run) - 1)
            found |= run[at] == key
        known: NDArray[np.bool_] = found & (message >= self.since)
        return known

    def add(self, message: NDArray[np.int64], handle: NDArray[np.int64]) -> None:
        """Take note of pairs; those of messages before ``since`` are left out."""
        key = self._keys(message, handle)[message >= self.since]
        if not len(key):
            return
        self._runs.append(np.sort(key))
        self._pairs += len(key)
        if len(self._runs) > _MAX_RUNS or self._pairs > self._max_pairs:
            self._merge()
            if self._pairs > self._max_pairs:
                middle = int(self._runs[0][self._pairs // 2] >> _HANDLE_BITS)
                self._forget(self._base + middle + 1)

    def _keys(self, message: NDArray[np.int64], handle: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return pairs as numbers; messages before ``since`` as others."""
        newest = int(message.max(initial=self._base))
        if newest - self._base > _MAX_SPAN:
            self._merge()
            self._forget(newest - _MAX_SPAN // 2)
        own = np.maximum(message - self._base, 0).astype(np.uint64)
        return (own << _HANDLE_BITS) | handle.astype(np.uint64)

    def _merge(self) -> None:
        self._runs = [np.sort(np.concatenate([np.empty(0, np.uint64), *self._runs]))]

    def _forget(self, before: int) -> None:
        """Forget the messages before one, in the only run."""
        self.since = max(self.since, before)
        shift = np.uint64(self.since - self._base) << _HANDLE_BITS
        [run] = self._runs
        run = run[run >= shift] - shift
        self._base, self._pairs = self.since, len(run)
        self._runs = [run] if len(run) else []
