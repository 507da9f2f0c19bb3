"""``scan`` for ranked subscriptions: scores every one for every message, and so defines the answer.

Written for clarity, with NumPy and Shapely. It shares no kernel with any index of ranked
subscriptions, so that it can judge them: words are Python sets, distances are haversines of the C
library, areas of polygons come from Shapely.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import shapely

from nearcast.columns import (
    EARTH_RADIUS_M,
    KINDS,
    OVERLAP,
    PROXIMITY,
    TOLERANCE_M,
    UNITS,
    WORLD,
    Clauses,
    Matches,
    Messages,
    Ranked,
)
from nearcast.errors import UnknownId
from nearcast.indexes.contract import NoOptions, UpdatableIndex
from nearcast.indexes.damage import require
from nearcast.model import Circle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Parts", "RankedScan"]

_MARGIN = 1.001e-9
_TURN = 360 * UNITS
_Box = tuple[int, int, int, int]


class Parts(NamedTuple):
    """The parts of a score: T, S, and p * T + (1 - p) * S."""

    text: float
    space: float
    score: float


class RankedScan(UpdatableIndex):
    """The exhaustive scan of ranked subscriptions, the oracle of all tests.

    Examples
    --------
    >>> from nearcast.columns import Messages
    >>> near = Ranked.of([[1]], [[0, 0]], kind="proximity", p=0.5, q=0.9, max_distance_m=1000)
    >>> scan = RankedScan.build(near, NoOptions())
    >>> scan.match(Messages.of([[1, 5], [5]], [[0, 0], [0, 0]])).pairs()
    {(0, 0)}
    """

    name = "scan"
    summary = "scores everything; defines the answer"
    kinds = (KINDS[PROXIMITY], KINDS[OVERLAP])

    def __init__(self, ranked: Ranked, alive: NDArray[np.bool_]) -> None:
        self.ranked = ranked
        self.clauses = ranked.clauses
        self.options = NoOptions()
        self._alive = alive
        self._rows = [_Row(ranked, row) for row in range(len(ranked))]

    @property
    def content(self) -> Ranked:
        """The subscriptions."""
        return self.ranked

    @classmethod
    def build(cls, content: Ranked, options: NoOptions) -> Self:
        """Take the subscriptions as they are."""
        return cls(content, np.ones(len(content), np.bool_))

    @classmethod
    def build_small(cls, content: Ranked) -> RankedScan:
        """Return a scan: it costs nothing to build."""
        return cls.build(content, NoOptions())

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return which subscriptions are alive."""
        return {"alive": self._alive}

    @classmethod
    def from_arrays(
        cls, content: Ranked, options: NoOptions, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the scan from its arrays."""
        return cls(content, arrays["alive"].astype(np.bool_))

    def check_structure(self) -> None:
        """Raise `StorageError` unless there is one flag per subscription."""
        expected = (len(self.ranked),)
        problem = f"alive has the shape {self._alive.shape}, expected {expected}"
        require(self.name, self._alive.shape == expected, problem)

    def insert(self, content: Ranked) -> None:
        """Append subscriptions."""
        alive = np.concatenate([self._alive, np.ones(len(content), np.bool_)])
        self.__init__(Ranked.concatenate([self.ranked, content]), alive)  # type: ignore[misc]

    def delete(self, rows: NDArray[Any]) -> None:
        """Mark subscriptions as deleted."""
        for row in np.asarray(rows).tolist():
            if not 0 <= row < len(self._alive) or not self._alive[row]:
                raise UnknownId(f"row {row} is not in the index")
        self._alive[rows] = False

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message, with their scores."""
        found: list[list[tuple[int, float]]] = []
        for m in range(len(messages)):
            message = _Message(messages, m)
            found.append([])
            for row in np.flatnonzero(self._alive).tolist():
                candidate = self._rows[row]
                score = candidate.parts(message).score
                if score >= candidate.q - _MARGIN and candidate.allows(message.tokens):
                    found[-1].append((row, score))
        return Matches(
            np.cumsum([0, *map(len, found)]),
            np.array([row for rows in found for row, _ in rows], np.int32),
            len(messages) * len(self.ranked),
            np.array([score for rows in found for _, score in rows], np.float64),
        )

    def parts(self, messages: Messages, message: int, row: int) -> Parts:
        """Return the parts of the score of one pair, whether it matches or not."""
        return self._rows[row].parts(_Message(messages, message))


class _Message:
    """One message: its tokens, its boxes and the weight of all its words."""

    def __init__(self, messages: Messages, m: int) -> None:
        start = messages.token_start
        self.tokens = set(messages.token[start[m] : start[m + 1]].tolist())
        west, south, east, north = messages.box[m].tolist()
        self.boxes: list[_Box] = [(west, south, east, north)]
        if west > east:
            self.boxes = [(west, south, WORLD[2], north), (WORLD[0], south, east, north)]
        self.area = sum((e - w) * (n - s) for w, s, e, n in self.boxes)
        self.weight = float(messages.text_weight[m]) if len(messages.text_weight) else 0.0


class _Row:
    """One subscription."""

    def __init__(self, ranked: Ranked, row: int) -> None:
        rankings, clauses = ranked.rankings, ranked.clauses
        chosen = np.flatnonzero(clauses.row == row)
        first = int(chosen[0])
        self.scoring = ranked.scoring
        tokens = clauses.token[clauses.token_start[first] : clauses.token_start[first + 1]].tolist()
        self.weight = {t: _weight(ranked, t) for t in tokens}
        self.p = int(rankings.text_share[row]) / 1e9
        self.q = int(rankings.threshold[row]) / 1e9
        self.proximity = ranked.kind == KINDS[PROXIMITY]
        self.max_distance_m = int(rankings.max_distance_cm[row]) / 100
        self.boxes: list[_Box] = [tuple(box) for box in clauses.box[chosen].tolist()]
        shape = int(clauses.shape[first])
        self.circle = _circle(clauses, shape)
        rings = _rings(clauses, shape)
        # Geometries are relative to the first place, so that areas of small ones are precise.
        self.origin = tuple(rings[0][0].tolist()) if rings else (0, 0)
        self.borders = [shapely.LineString(ring - self.origin) for ring in rings if len(ring) > 1]
        self.region = _region(self.circle, rings, self.origin) if rings else None
        self.condition = _condition(rankings.condition, row)

    def allows(self, tokens: set[int]) -> bool:
        """Whether the condition is true of a set of tokens."""
        return not self.condition or any(
            wanted <= tokens and not unwanted & tokens for wanted, unwanted in self.condition
        )

    def parts(self, message: _Message) -> Parts:
        """Return the parts of the score."""
        text = self._text(message)
        space = self._nearness(message) if self.proximity else self._coverage(message)
        return Parts(text, space, min(1.0, self.p * text + (1 - self.p) * space))

    def _text(self, message: _Message) -> float:
        if not self.weight:
            return 1.0
        own = math.fsum(self.weight.values())
        shared = math.fsum(w for token, w in self.weight.items() if token in message.tokens)
        if shared == 0.0:
            return 0.0
        return {
            "containment": lambda: shared / own,
            "overlap": lambda: shared / own,
            "jaccard": lambda: shared / (own + message.weight - shared),
            "dice": lambda: 2 * shared / (own + message.weight),
            "cosine": lambda: shared / math.sqrt(own * message.weight),
        }[self.scoring.similarity]()

    def _nearness(self, message: _Message) -> float:
        lon, lat, _, _ = self.boxes[0]
        measure = _planar_m if self.scoring.distance == "planar" else _geodesic_m
        distance = min(measure(lon, lat, box) for box in message.boxes)
        return max(0.0, 1.0 - distance / self.max_distance_m)

    def _coverage(self, message: _Message) -> float:
        own: float = sum((e - w) * (n - s) for w, s, e, n in self.boxes)
        if self.region is not None:
            own = self.region.area
        if own == 0 or message.area == 0:
            return float(any(self._meets(box) for box in message.boxes))
        if self.region is None:
            return sum(_common(a, b) for a in self.boxes for b in message.boxes) / own
        common = sum(
            shapely.intersection(self.region, shapely.box(*_relative(self.origin, box))).area
            for box in message.boxes
        )
        return float(min(1.0, common / own))

    def _meets(self, box: _Box) -> bool:
        west, south, east, north = box
        touches = any(
            w <= east and e >= west and s <= north and n >= south for w, s, e, n in self.boxes
        )
        if not touches or (self.region is None and self.circle is None):
            return touches
        if self.circle is not None:
            lon, lat, radius_m = self.circle
            return _geodesic_m(lon, lat, box) <= radius_m + TOLERANCE_M
        west, south, east, north = _relative(self.origin, box)
        corners = [(west, south), (east, south), (east, north), (west, north)]
        place = shapely.MultiPoint(corners).envelope
        on_border = any(shapely.intersects(border, place) for border in self.borders)
        return on_border or bool(shapely.intersects(self.region, shapely.Point(west, south)))


def _weight(ranked: Ranked, token: int) -> float:
    if ranked.scoring.similarity not in ("containment", "jaccard"):
        return 1.0
    return float(ranked.weight[token]) if token < len(ranked.weight) else ranked.unknown_weight


def _condition(condition: Clauses | None, row: int) -> list[tuple[set[int], set[int]]]:
    if condition is None:
        return []
    return [
        (
            set(condition.token[condition.token_start[c] : condition.token_start[c + 1]].tolist()),
            set(
                condition.negative[
                    condition.negative_start[c] : condition.negative_start[c + 1]
                ].tolist()
            ),
        )
        for c in np.flatnonzero(condition.row == row).tolist()
    ]


def _circle(clauses: Clauses, shape: int) -> tuple[int, int, float] | None:
    shapes = clauses.shapes
    if shape < 0 or shapes.radius_m[shape] < 0:
        return None
    lon, lat = shapes.point[shapes.point_start[shapes.ring_start[shape]]].tolist()
    return lon, lat, float(shapes.radius_m[shape])


def _rings(clauses: Clauses, shape: int) -> list[NDArray[np.int64]]:
    """Return the rings of a shape, none if there is no shape."""
    shapes = clauses.shapes
    if shape < 0:
        return []
    return [
        shapes.point[shapes.point_start[ring] : shapes.point_start[ring + 1]].astype(np.int64)
        for ring in range(shapes.ring_start[shape], shapes.ring_start[shape + 1])
    ]


def _region(
    circle: tuple[int, int, float] | None, rings: list[NDArray[np.int64]], origin: Any
) -> Any:
    """Return the Shapely geometry of a shape relative to the origin."""
    world = shapely.box(*_relative(origin, WORLD))
    if circle is not None:
        lon, lat, radius_m = circle
        drawn = shapely.from_wkb(Circle(lon / UNITS, lat / UNITS, radius_m).to_wkb())
        moved = shapely.transform(drawn, lambda place: place * UNITS - origin)
        return shapely.intersection(moved, world)
    area = shapely.Polygon()
    for ring in rings:
        area = shapely.symmetric_difference(area, shapely.Polygon(ring - origin))
    return shapely.intersection(area, world)


def _relative(origin: Any, box: _Box) -> tuple[int, int, int, int]:
    x, y = origin
    west, south, east, north = box
    return west - x, south - y, east - x, north - y


def _common(a: _Box, b: _Box) -> int:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return max(width, 0) * max(height, 0)


def _planar_m(lon: int, lat: int, box: _Box) -> float:
    west, south, east, north = box
    across = 0
    if not west <= lon <= east:
        across = min((west - lon) % _TURN, (lon - east) % _TURN)
    along = max(0, south - lat, lat - north)
    return math.hypot(across, along) / UNITS * (math.pi * EARTH_RADIUS_M / 180)


def _geodesic_m(lon: int, lat: int, box: _Box) -> float:
    """Return the distance from a place to the nearest place of a box."""
    west, south, east, north = box
    if west <= lon <= east:
        return math.radians(max(0, south - lat, lat - north) / UNITS) * EARTH_RADIUS_M
    nearest = math.inf
    for meridian in (west, east):
        nearest = min(nearest, *(_haversine_m(lon, lat, meridian, end) for end in (south, north)))
        apart = (meridian - lon) % _TURN
        turn = math.radians(min(apart, _TURN - apart) / UNITS)
        x = math.sin(math.radians((90 * UNITS - abs(lat)) / UNITS)) * math.cos(turn)
        y = math.sin(math.radians((90 * UNITS - abs(lat)) / UNITS)) * math.sin(turn)
        z = math.sin(math.radians(lat / UNITS))
        if math.radians(south / UNITS) <= math.atan2(z, x) <= math.radians(north / UNITS):
            nearest = min(nearest, EARTH_RADIUS_M * math.atan2(y, math.hypot(x, z)))
    return nearest


def _haversine_m(lon: float, lat: float, other_lon: float, other_lat: float) -> float:
    """Return the distance between two places, precise for close and for opposite ones."""
    apart = (other_lon - lon) % _TURN
    half_lon = math.radians(min(apart, _TURN - apart) / UNITS) / 2
    half_lat = math.radians((other_lat - lat) / UNITS) / 2
    pole_gap = math.radians((180 * UNITS - abs(other_lat + lat)) / UNITS) / 2
    from_equator = math.radians((other_lat + lat) / UNITS) / 2
    near = (math.cos(half_lon) * math.sin(half_lat)) ** 2
    near += (math.sin(half_lon) * math.sin(pole_gap)) ** 2
    far = (math.cos(half_lon) * math.cos(half_lat)) ** 2
    far += (math.sin(half_lon) * math.sin(from_equator)) ** 2
    return 2 * EARTH_RADIUS_M * math.atan2(math.sqrt(near), math.sqrt(far))
