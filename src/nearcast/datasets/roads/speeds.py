"""How far movers get in a tick, by road class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.datasets.roads.network import MAX_CLASSES
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.datasets.roads.network import RoadNetwork

__all__ = ["PACES", "ROAD_SPEEDS_KMH", "meters_per_tick"]

PACES = {"slow": 250, "medium": 50, "fast": 10}
"""Ticks in which a mover on roads of class 0 covers the width plus the height of the network."""

ROAD_SPEEDS_KMH = (100.0, 60.0, 40.0, 20.0, 5.0)
"""Motorways, main roads, streets, tracks, paths."""


def meters_per_tick(
    network: RoadNetwork, speeds: str | Sequence[float], tick_s: float
) -> NDArray[np.float64]:
    """Return how far the fastest movers get on roads of each class.

    Parameters
    ----------
    network
        The roads.
    speeds
        ``slow``, ``medium`` or ``fast``: class 0 covers (width + height) / 250, 50 or 10 in a tick,
        each next class half as much. ``roads``: `ROAD_SPEEDS_KMH`. Or km/h for each class; classes
        without a speed have the last one.
    tick_s
        The seconds of a tick.

    Examples
    --------
    >>> from nearcast.datasets.roads import lattice
    >>> meters_per_tick(lattice(lines=20, seed=1), (60, 30), tick_s=30)[:3].tolist()
    [500.0, 250.0, 250.0]
    """
    if isinstance(speeds, str) and speeds in PACES:
        return np.ldexp(sum(network.size_m) / PACES[speeds], -np.arange(MAX_CLASSES))
    if isinstance(speeds, str) and speeds != "roads":
        raise UnknownName("speeds", speeds, (*PACES, "roads"))
    kmh = np.array(ROAD_SPEEDS_KMH if isinstance(speeds, str) else speeds, np.float64)
    if not len(kmh) or not ((kmh > 0) & (kmh < np.inf)).all():
        raise InvalidInput("speeds", speeds, "must be numbers of km/h above 0")
    by_class = kmh[np.minimum(np.arange(MAX_CLASSES), len(kmh) - 1)]
    meters: NDArray[np.float64] = by_class * tick_s * 1_000 / 3_600
    return meters
