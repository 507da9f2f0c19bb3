"""Choose the frame in which places are rounded to 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import WORLD
from nearcast.indexes.moving.twin_lists.layout import (
    HALF_MAX,
    ORIGIN_X,
    ORIGIN_Y,
    SHIFT_X,
    SHIFT_Y,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SAMPLE = 8192
_TAIL = 0.001
"""The share of places that may be beyond the frame, on each side."""


class Frame(NamedTuple):
    """The place in the middle, and how many bits are dropped, for both axes."""

    origin_x: int
    origin_y: int
    shift_x: int
    shift_y: int

    @classmethod
    def around(cls, x: NDArray[Any], y: NDArray[Any]) -> Frame:
        """Return a frame around nearly all places, with some margin.

        Examples
        --------
        >>> Frame.around(np.array([0, 1_000_000]), np.array([0, 10]))
        Frame(origin_x=500000, origin_y=5, shift_x=5, shift_y=0)
        """
        (origin_x, shift_x), (origin_y, shift_y) = _axis(x), _axis(y)
        return cls(origin_x, origin_y, shift_x, shift_y)

    @classmethod
    def world(cls) -> Frame:
        """Return a frame around everything."""
        west, south, east, north = WORLD
        return cls.around(np.array([west, east]), np.array([south, north]))

    @classmethod
    def of(cls, state: NDArray[np.int64]) -> Frame:
        """Return the frame that an index has."""
        return cls(*(int(state[field]) for field in (ORIGIN_X, ORIGIN_Y, SHIFT_X, SHIFT_Y)))

    def write(self, state: NDArray[np.int64]) -> None:
        """Let an index have this frame."""
        state[ORIGIN_X], state[ORIGIN_Y] = self.origin_x, self.origin_y
        state[SHIFT_X], state[SHIFT_Y] = self.shift_x, self.shift_y


def _axis(value: NDArray[Any]) -> tuple[int, int]:
    if not len(value):
        return 0, 16
    low, high = (int(v) for v in np.quantile(value, [_TAIL, 1 - _TAIL], method="nearest"))
    reach, shift = (high - low) // 2 + (high - low) // 8 + 1, 0
    while reach >> shift > HALF_MAX - 2:
        shift += 1
    return (low + high) // 2, shift


def sample(chosen: NDArray[Any]) -> NDArray[Any]:
    """Return at most `MAX_SAMPLE` of some numbers, evenly spaced."""
    return chosen[:: 1 + len(chosen) // MAX_SAMPLE]
