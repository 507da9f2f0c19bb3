"""``scan``: compares every clause with every message. It defines the answer of all other indexes.

Written for clarity, with NumPy and Shapely. To be able to judge the others, it shares no kernel
with any index, not even the verification that boolean indexes have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import shapely

from nearcast.columns import EARTH_RADIUS_M, TOLERANCE_M, WORLD, Clauses, Matches, Messages
from nearcast.errors import UnknownId
from nearcast.indexes.contract import NoOptions, UpdatableIndex
from nearcast.indexes.damage import require
from nearcast.indexes.ranked_scan import RankedScan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nearcast.columns import Shapes


class Scan(UpdatableIndex):
    """The exhaustive scan, the oracle of all tests.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> scan = Scan.build(Clauses.of([[1]], [[0, 0, 9, 9]]), NoOptions())
    >>> scan.match(Messages.of([[1, 5], [5]], [[9, 9], [0, 0]])).pairs()
    {(0, 0)}
    """

    name = "scan"
    summary = "looks at everything; defines the answer"
    ranked_form = RankedScan

    def __init__(self, clauses: Clauses, alive: NDArray[np.bool_]) -> None:
        self.clauses = clauses
        self.options = NoOptions()
        self._alive = alive

    @classmethod
    def build(cls, clauses: Clauses, options: NoOptions) -> Self:
        """Take the clauses as they are."""
        return cls(clauses, np.ones(clauses.subscriptions, np.bool_))

    @classmethod
    def build_small(cls, clauses: Clauses) -> Scan:
        """Return a scan: it costs nothing to build."""
        return cls.build(clauses, NoOptions())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return which subscriptions are alive."""
        return {"alive": self._alive}

    @classmethod
    def from_arrays(
        cls, clauses: Clauses, options: NoOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the scan from its arrays."""
        return cls(clauses, arrays["alive"].astype(np.bool_))

    def check_structure(self) -> None:
        """Raise `StorageError` unless there is one flag per subscription."""
        expected = (self.clauses.subscriptions,)
        problem = f"alive has the shape {self._alive.shape}, expected {expected}"
        require(self.name, self._alive.shape == expected, problem)

    def insert(self, clauses: Clauses) -> None:
        """Append subscriptions."""
        self.clauses = Clauses.concatenate([self.clauses, clauses])
        self._alive = np.concatenate([self._alive, np.ones(clauses.subscriptions, np.bool_)])

    def delete(self, rows: NDArray[Any]) -> None:
        """Mark subscriptions as deleted."""
        for row in np.asarray(rows).tolist():
            if not 0 <= row < len(self._alive) or not self._alive[row]:
                raise UnknownId(f"row {row} is not in the index")
        self._alive[rows] = False

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message."""
        rows = [self._rows(messages, m) for m in range(len(messages))]
        start = np.cumsum([0, *(len(r) for r in rows)])
        flat = np.concatenate([np.empty(0, np.int32), *rows]).astype(np.int32)
        return Matches(start, flat, len(messages) * len(self.clauses))

    def _rows(self, messages: Messages, m: int) -> NDArray[Any]:
        clauses = self.clauses
        found = self._found(messages, m)
        tokens = _tokens(messages, m)
        forbidden = _counts(clauses.negative_start, clauses.negative, found, tokens)
        found = found[forbidden == 0]
        boxes = _pieces(messages.box[m])
        inside = [
            clauses.shape[c] < 0
            or any(_overlaps_shape(clauses.shapes, int(clauses.shape[c]), box) for box in boxes)
            for c in found
        ]
        rows: NDArray[Any] = np.unique(clauses.row[found[np.array(inside, np.bool_)]])
        return rows

    def _found(self, messages: Messages, m: int) -> NDArray[Any]:
        clauses = self.clauses
        overlaps = np.zeros(len(clauses), np.bool_)
        for west, south, east, north in _pieces(messages.box[m]):
            box = clauses.box
            overlaps |= (
                (box[:, 0] <= east)
                & (box[:, 2] >= west)
                & (box[:, 1] <= north)
                & (box[:, 3] >= south)
            )
        found: NDArray[Any] = np.flatnonzero(overlaps & self._alive[clauses.row])
        required = np.diff(clauses.token_start)[found]
        present = _counts(clauses.token_start, clauses.token, found, _tokens(messages, m))
        matching: NDArray[Any] = found[present == required]
        return matching


def _tokens(messages: Messages, m: int) -> NDArray[np.int32]:
    return messages.token[messages.token_start[m] : messages.token_start[m + 1]]


def _pieces(box: NDArray[np.int32]) -> list[tuple[int, int, int, int]]:
    """Cut a box at the antimeridian."""
    west, south, east, north = box.tolist()
    if west <= east:
        return [(west, south, east, north)]
    return [(west, south, WORLD[2], north), (WORLD[0], south, east, north)]


def _counts(
    start: NDArray[np.int64],
    content: NDArray[np.int32],
    rows: NDArray[Any],
    tokens: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Return, for each of the rows, how many of its tokens are among ``tokens``."""
    length = start[rows + 1] - start[rows]
    owner = np.repeat(np.arange(len(rows)), length)
    first = np.repeat(np.cumsum(length) - length, length)
    position = np.repeat(start[rows], length) + np.arange(len(owner)) - first
    return np.bincount(owner, np.isin(content[position], tokens), len(rows)).astype(np.int64)


def _overlaps_shape(shapes: Shapes, shape: int, box: tuple[int, int, int, int]) -> bool:
    """Tell whether a box overlaps a circle or a polygon."""
    rings = [
        shapes.point[shapes.point_start[r] : shapes.point_start[r + 1]].astype(np.int64)
        for r in range(shapes.ring_start[shape], shapes.ring_start[shape + 1])
    ]
    if shapes.radius_m[shape] >= 0:
        return bool(_distance_m(rings[0][0], box) <= shapes.radius_m[shape] + TOLERANCE_M)
    west, south, east, north = box
    corners = [(west, south), (east, south), (east, north), (west, north)]
    place = shapely.MultiPoint(corners).envelope
    borders = [shapely.LineString(ring) for ring in rings]
    if any(shapely.intersects(border, place) for border in borders):
        return True
    return sum(_edges_east_of(ring, west, south) for ring in rings) % 2 == 1


def _edges_east_of(ring: NDArray[np.int64], x: int, y: int) -> int:
    """Count the edges that a ray from a point to the east crosses: odd if the point is inside."""
    (x0, y0), (x1, y1) = ring[:-1].T, ring[1:].T
    upward = y1 > y
    crosses = (y0 > y) != upward
    left, right = (x1 - x0) * (y - y0), (x - x0) * (y1 - y0)
    return int((crosses & np.where(upward, left > right, left < right)).sum())


def _distance_m(center: NDArray[Any], box: tuple[int, int, int, int]) -> float:
    """Return the distance from a place to the nearest place of a box, by vectors on the sphere."""
    (lon, lat), (west, south, east, north) = (
        np.radians(center / 1e7),
        np.radians(np.array(box) / 1e7),
    )
    if west <= lon <= east:
        return float(max(0.0, south - lat, lat - north) * EARTH_RADIUS_M)
    here = _vector(lon, lat)
    nearest = np.inf
    for meridian in (west, east):
        candidates = [south, north]
        normal = np.array([-np.sin(meridian), np.cos(meridian), 0.0])
        foot = here - (here @ normal) * normal
        along = np.array([np.cos(meridian), np.sin(meridian), 0.0]) @ foot
        foot_lat = np.arctan2(foot[2], along)
        if south <= foot_lat <= north:
            candidates.append(foot_lat)
        for latitude in candidates:
            there = _vector(meridian, latitude)
            angle = 2 * np.arctan2(np.linalg.norm(here - there), np.linalg.norm(here + there))
            nearest = min(nearest, EARTH_RADIUS_M * float(angle))
    return float(nearest)


def _vector(lon: float, lat: float) -> NDArray[np.float64]:
    return np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
