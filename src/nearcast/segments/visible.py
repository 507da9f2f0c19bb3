"""Which matches are visible: those whose subscription has neither died nor expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LifeArrays", "MatchArrays", "visible_matches"]


class MatchArrays(NamedTuple):
    """Subscription rows, message by message, and the time of every message."""

    start: NDArray[np.int64]
    row: NDArray[np.int32]
    time_us: NDArray[np.int64]


class LifeArrays(NamedTuple):
    """The version in which each row died, and when it expires; empty where no row ever does."""

    died: NDArray[np.int64]
    expires_us: NDArray[np.int64]


@kernel
def visible_matches(
    matches: MatchArrays,
    life: LifeArrays,
    version: Number,
    kept_start: NDArray[np.int64],
    kept: NDArray[np.int64],
) -> None:
    """Write the positions of the matches that are visible in a version.

    ``kept_start`` int64[messages + 1] and ``kept`` int64[matches] are filled.
    """
    count = np.int64(0)
    kept_start[0] = 0
    may_die, may_expire = len(life.died) > 0, len(life.expires_us) > 0
    for message in range(len(matches.start) - 1):
        time_us = matches.time_us[message]
        for i in range(matches.start[message], matches.start[message + 1]):
            row = matches.row[i]
            if may_die and life.died[row] <= version:
                continue
            if may_expire and life.expires_us[row] <= time_us:
                continue
            kept[count] = i
            count += 1
        kept_start[message + 1] = count
