"""What is due when: numbers by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Schedule"]


class Schedule:
    """Numbers that come out when their time has come, in the order of time.

    It consists of sorted runs, of which there are few: as in a binary counter, two of about the
    same length become one.

    Examples
    --------
    >>> schedule = Schedule()
    >>> schedule.add(np.array([30, 10]), np.array([0, 1]))
    >>> schedule.add(np.array([20]), np.array([2]))
    >>> schedule.first_us, [column.tolist() for column in schedule.due(20)]
    (10, [[10, 20], [1, 2]])
    """

    def __init__(self) -> None:
        self._runs: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
        self.first_us = NEVER

    @property
    def nbytes(self) -> int:
        """The bytes of all runs."""
        return sum(time.nbytes + number.nbytes for time, number in self._runs)

    def add(self, time_us: NDArray[np.int64], number: NDArray[np.int32]) -> None:
        """Note when numbers are due; `NEVER` is never."""
        chosen = np.flatnonzero(time_us < NEVER)
        if not len(chosen):
            return
        order = chosen[np.argsort(time_us[chosen], kind="stable")]
        self._runs.append((time_us[order], number[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            self._runs[-2:] = [_joined(self._runs[-2:])]
        self._look()

    def due(self, until_us: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return what is due until a time, that time included, and forget it."""
        if until_us < self.first_us:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        taken, left = [], []
        for time, number in self._runs:
            end = int(np.searchsorted(time, until_us, side="right"))
            if end:
                taken.append((time[:end], number[:end]))
            if end < len(time):
                left.append((time[end:], number[end:]))
        self._runs = left
        self._look()
        return _joined(taken)

    def _look(self) -> None:
        self.first_us = min((int(time[0]) for time, _ in self._runs), default=NEVER)


def _joined(
    runs: list[tuple[NDArray[np.int64], NDArray[np.int32]]],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    if len(runs) == 1:
        return runs[0]
    time = np.concatenate([time for time, _ in runs])
    number = np.concatenate([number for _, number in runs])
    order = np.argsort(time, kind="stable")
    return time[order], number[order]
