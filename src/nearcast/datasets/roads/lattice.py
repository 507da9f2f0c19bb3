"""A synthetic road network: a lattice that is denser around a few centers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import UNITS
from nearcast.compiled.distances import METERS_PER_UNIT
from nearcast.datasets.roads.network import Edges, RoadNetwork, lengths_m
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["lattice", "lattice_edges"]

_CENTERS = 3
_CENTER_WIDTH = 0.08
"""How far a center pulls lines towards it, as a share of the side."""
_CENTER_PULL = 2.0
_JITTER = 0.3
_DROPPED = 0.15
_MAIN_LINES, _MIDDLE_LINES = 16, 4
_MAX_LINES = 4_096
_MAX_SIDE_KM = 2_000.0


def lattice(
    lines: int = 128,
    seed: int = 0,
    *,
    side_km: float = 50.0,
    center: tuple[float, float] = (9.5, 47.2),
) -> RoadNetwork:
    """Return a network of ``lines`` roads from west to east and as many from south to north.

    Every 16th line has class 0, every 4th class 1, the others class 2. Edges of class 2 are dropped
    with probability 0.15. Lines are closer to each other around three centers, and nodes are moved
    by up to 0.3 of the distance between lines.

    Parameters
    ----------
    lines
        The number of lines in each direction, from 2 to 4,096.
    seed
        The same seed gives the same network.
    side_km
        The width and height.
    center
        Longitude and latitude of the middle.

    Examples
    --------
    >>> width_m, height_m = lattice(lines=40, side_km=10).size_m
    >>> bool(9_000 < width_m < 11_000 and 9_000 < height_m < 11_000)
    True
    """
    return RoadNetwork.from_edges(lattice_edges(lines, seed, side_km=side_km, center=center))


def lattice_edges(
    lines: int = 128,
    seed: int = 0,
    *,
    side_km: float = 50.0,
    center: tuple[float, float] = (9.5, 47.2),
) -> Edges:
    """Return the edges of `lattice`, before it becomes a network; node ``y * lines + x``."""
    if not 2 <= lines <= _MAX_LINES:
        raise InvalidInput("lines", lines, f"must be from 2 to {_MAX_LINES:,}")
    if not 0 < side_km <= _MAX_SIDE_KM:
        raise InvalidInput("side_km", side_km, f"must be above 0, at most {_MAX_SIDE_KM:,.0f}")
    rng = np.random.default_rng([seed, 5])
    share = _jittered(rng, lines)
    place = _on_the_map(share, side_km, center)
    node = np.arange(lines * lines, dtype=np.int32).reshape(lines, lines)
    u = np.concatenate([node[:, :-1].ravel(), node[:-1].ravel()])
    v = np.concatenate([node[:, 1:].ravel(), node[1:].ravel()])
    line_class = _line_classes(lines)
    road_class = np.concatenate(
        [np.repeat(line_class, lines - 1), np.tile(line_class, lines - 1)]
    ).astype(np.uint8)
    kept = (road_class < 2) | (rng.random(len(u)) >= _DROPPED)
    u, v = u[kept], v[kept]
    one_way = np.zeros(len(u), np.bool_)
    return Edges(place, u, v, lengths_m(place, u, v), road_class[kept], one_way)


def _line_classes(lines: int) -> NDArray[np.int64]:
    number = np.arange(lines)
    return np.where(number % _MAIN_LINES == 0, 0, np.where(number % _MIDDLE_LINES == 0, 1, 2))


def _jittered(rng: np.random.Generator, lines: int) -> NDArray[np.float64]:
    """Return the positions of all nodes as shares of the side: float64[lines * lines, 2]."""
    axes = [_warped(lines, center) for center in rng.random((_CENTERS, 2)).T]
    position = np.stack(np.meshgrid(*axes), axis=2)
    gaps = np.stack(np.meshgrid(*(np.gradient(axis) for axis in axes)), axis=2)
    position += rng.uniform(-_JITTER, _JITTER, position.shape) * gaps
    return position.reshape(-1, 2)


def _warped(lines: int, center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the positions of lines from 0 to 1 on an axis, closer to each other near centers."""
    middle = (np.arange(lines - 1) + 0.5) / (lines - 1)
    pull = np.exp(-(((middle[:, None] - center) / _CENTER_WIDTH) ** 2)).sum(axis=1)
    axis = np.concatenate([[0.0], np.cumsum(1 / (1 + _CENTER_PULL * pull))])
    warped: NDArray[np.float64] = axis / axis[-1]
    return warped


def _on_the_map(
    share: NDArray[np.float64], side_km: float, center: tuple[float, float]
) -> NDArray[np.int32]:
    """Return positions in a square around a center, in units."""
    lon, lat = center
    side = side_km * 1_000 / METERS_PER_UNIT
    reach = side * 0.55 / UNITS
    if not -90 < lat - reach <= lat + reach < 90:
        raise InvalidInput("center", center, "is too near to a pole for a square of this size")
    narrow = np.cos(np.radians(lat))
    if not -180 < lon - reach / narrow <= lon + reach / narrow < 180:
        raise InvalidInput(
            "center", center, "is too near to the antimeridian for a square of this size"
        )
    scale = np.array([side / narrow, side])
    place: NDArray[np.int32] = np.rint(np.array([lon, lat]) * UNITS + (share - 0.5) * scale).astype(
        np.int32
    )
    return place
