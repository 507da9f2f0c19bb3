"""Random numbers as hashes: they depend on the seed, the mover and a count, and on nothing else.

A generator that is called in turn gives other numbers when movers are drawn in another order, in
chunks or by several threads. A hash of what the number is for does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DESTINATION",
    "GOAL",
    "MESSAGE_ARC",
    "MESSAGE_OFFSET",
    "MOBILITY",
    "NOISE",
    "NOISE_DIRECTION",
    "SIDE",
    "SPEED",
    "START_ARC",
    "START_OFFSET",
    "draw_all",
    "draw_key",
    "uniform",
]

(
    START_ARC,
    START_OFFSET,
    SPEED,
    SIDE,
    GOAL,
    MOBILITY,
    DESTINATION,
    MESSAGE_ARC,
    MESSAGE_OFFSET,
    NOISE,
    NOISE_DIRECTION,
) = range(11)
"""What a random number is for: numbers for different purposes are independent."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


@kernel
def mix(value: Number) -> Number:
    """Return a hash of a uint64 (splitmix64)."""
    mixed = value + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


@kernel
def uniform(key: Number, number: Number, count: Number) -> Number:
    """Return a float64 in [0, 1) for a key (`draw_key`), a mover or message, and a count."""
    value = mix(mix(key ^ mix(np.uint64(number))) + np.uint64(count))
    return np.float64(value >> np.uint64(11)) * _TO_UNIT


@kernel
def fill_uniform(key: Number, number: NDArray[np.int64], drawn: NDArray[np.float64]) -> None:
    """Fill ``drawn`` float64[n] with one `uniform` for each number."""
    for i in range(len(number)):
        drawn[i] = uniform(key, number[i], 0)


def draw_key(seed: int, purpose: int) -> np.uint64:
    """Return the key of all draws of a seed for a purpose.

    Examples
    --------
    >>> len({draw_key(7, GOAL), draw_key(7, SIDE), draw_key(8, GOAL)})
    3
    """
    with np.errstate(over="ignore"):
        return np.uint64(mix(mix(np.uint64(seed % 2**64)) + np.uint64(purpose)))


def draw_all(seed: int, purpose: int, number: NDArray[Any]) -> NDArray[np.float64]:
    """Return a float in [0, 1) for each of these movers or messages.

    Examples
    --------
    >>> both, one = draw_all(7, SIDE, np.array([4, 9])), draw_all(7, SIDE, np.array([9]))
    >>> bool(both[1] == one[0])
    True
    """
    drawn = np.empty(len(number))
    fill_uniform(draw_key(seed, purpose), np.ascontiguousarray(number, np.int64), drawn)
    return drawn
