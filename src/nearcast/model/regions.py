"""The regions of subscriptions: rectangles, circles, polygons and points.

Coordinates are degrees, longitude first, rounded on creation to units of 1e-7 degree. Borders count
as inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import shapely

from nearcast.columns import UNITS, WORLD
from nearcast.errors import RegionError
from nearcast.model import antimeridian
from nearcast.model import geometry as shapes
from nearcast.model.checks import latitude, longitude, region_number, units
from nearcast.model.circles import Box, cap_boxes
from nearcast.model.formats import (
    parts_of_rings,
    read_geojson,
    read_shapely,
    read_text,
    read_wkb_bytes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.model.geometry import Coordinates

__all__ = ["Circle", "Point", "Polygon", "Rect", "Region", "region"]

_CORNERS = 64

NO_REACH = (
    "is a single place, which hardly any message is at; give a circle around it: "
    "Circle(lon, lat, radius_m=...), or lon, lat, radius_m in files"
)
"""Why a boolean subscription cannot have a `Point`."""


class Region(ABC):
    """The region of a subscription: a `Rect`, a `Circle`, a `Polygon` or a `Point`.

    `nearcast.region` makes one from GeoJSON, WKT, WKB, a Shapely geometry or four numbers.

    Examples
    --------
    >>> isinstance(Point(13.4, 52.5), Region)
    True
    """

    __slots__ = ()

    @abstractmethod
    def boxes(self) -> list[Box]:
        """Return bounding boxes in units of 1e-7 degree; none crosses the antimeridian."""

    def rings(self) -> list[NDArray[np.int32]] | None:
        """Return the exact shape as rings in units; None if the region is equal to its boxes.

        A polygon has the closed rings of all its parts and holes. A circle has one ring with one
        place, its center.
        """
        return None

    @abstractmethod
    def _geometry(self) -> Any:
        """Return the Shapely geometry, in degrees."""

    def to_bbox(self) -> tuple[float, float, float, float]:
        """Return west, south, east and north of the region; west > east over the antimeridian.

        Examples
        --------
        >>> Rect(170, -5, -170, 5).to_bbox()
        (170.0, -5.0, -170.0, 5.0)
        """
        boxes = sorted(self.boxes())
        west, south = boxes[0][0], min(box[1] for box in boxes)
        east, north = max(box[2] for box in boxes), max(box[3] for box in boxes)
        if len(boxes) == 2:
            gap = boxes[1][0] - boxes[0][2]
            if gap > 180 * UNITS or (gap > 0 and (west, east) == (WORLD[0], WORLD[2])):
                west, east = boxes[1][0], boxes[0][2]
        return west / UNITS, south / UNITS, east / UNITS, north / UNITS

    def to_geojson(self) -> dict[str, Any]:
        """Return a GeoJSON geometry.

        Examples
        --------
        >>> Point(13.4, 52.5).to_geojson()
        {'type': 'Point', 'coordinates': [13.4, 52.5]}
        """
        return shapes.to_geojson(self._geometry())

    def to_wkt(self) -> str:
        """Return well-known text.

        Examples
        --------
        >>> Rect(0, 0, 2, 1).to_wkt()
        'POLYGON ((2 0, 2 1, 0 1, 0 0, 2 0))'
        """
        return str(shapely.to_wkt(self._geometry(), rounding_precision=7, trim=True))

    def to_wkb(self) -> bytes:
        """Return well-known binary.

        Examples
        --------
        >>> len(Point(13.4, 52.5).to_wkb())
        21
        """
        return bytes(shapely.to_wkb(self._geometry()))


@dataclass(frozen=True, slots=True)
class Rect(Region):
    """A rectangle in degrees. One whose west is greater than its east crosses the antimeridian.

    In GeoJSON, a rectangle is a polygon, two polygons if it crosses the antimeridian, and a point
    if it has no width and height.

    Parameters
    ----------
    west, south, east, north
        The sides, in degrees of longitude and latitude.

    Raises
    ------
    RegionError
        When a coordinate is out of range, or when south lies north of north.

    Examples
    --------
    >>> Rect(13.0, 52.3, 13.8, 52.7).boxes()
    [(130000000, 523000000, 138000000, 527000000)]
    >>> len(Rect(170, -20, -170, -10).boxes())
    2
    """

    west: float
    south: float
    east: float
    north: float

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "west", longitude("west", self.west))
        put(self, "south", latitude("south", self.south))
        put(self, "east", longitude("east", self.east))
        put(self, "north", latitude("north", self.north))
        if self.south > self.north:
            raise RegionError("south", self.south, f"must not be greater than north, {self.north}")

    def boxes(self) -> list[Box]:
        """Return one box, or two where the rectangle crosses the antimeridian."""
        south, north = units(self.south), units(self.north)
        west, east = units(self.west), units(self.east)
        if west <= east:
            return [(west, south, east, north)]
        # 180 and -180 are the same meridian, so a piece without width adds nothing.
        pieces = [(west, south, WORLD[2], north), (WORLD[0], south, east, north)]
        return [piece for piece in pieces if piece[0] < piece[2]] or pieces[:1]

    def _geometry(self) -> Any:
        return shapes.rectangles(self.boxes())


@dataclass(frozen=True, slots=True)
class Point(Region):
    """A single place in degrees.

    Parameters
    ----------
    lon, lat
        Longitude (-180 to 180) and latitude (-90 to 90).

    Examples
    --------
    >>> Point(13.4, 52.5).to_wkt()
    'POINT (13.4 52.5)'
    """

    lon: float
    lat: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lon", longitude("lon", self.lon))
        object.__setattr__(self, "lat", latitude("lat", self.lat))

    def boxes(self) -> list[Box]:
        """Return one box without width and height."""
        lon, lat = units(self.lon), units(self.lat)
        return [(lon, lat, lon, lat)]

    def _geometry(self) -> Any:
        return shapely.Point(self.lon, self.lat)


@dataclass(frozen=True, slots=True)
class Circle(Region):
    """All places within a distance of a center, in meters on the sphere, to the millimeter.

    GeoJSON, WKT and WKB have no circles: there, a circle is approximated by a polygon with 64
    corners, or by a point if its radius is less than a centimeter.

    Parameters
    ----------
    lon, lat
        The center, in degrees.
    radius_m
        The radius in meters.

    Examples
    --------
    >>> Circle(13.4, 52.5, radius_m=500.0).boxes()
    [(133926134, 524955033, 134073866, 525044967)]
    """

    lon: float
    lat: float
    radius_m: float

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "lon", longitude("lon", self.lon))
        put(self, "lat", latitude("lat", self.lat))
        radius_m = region_number("radius_m", self.radius_m, "meters")
        if not 0.0 <= radius_m < float("inf"):
            raise RegionError("radius_m", self.radius_m, "must be a number of meters, 0 or more")
        put(self, "radius_m", radius_m)

    def boxes(self) -> list[Box]:
        """Return one or two boxes that contain the circle."""
        return cap_boxes(units(self.lon), units(self.lat), self.radius_m)

    def rings(self) -> list[NDArray[np.int32]]:
        """Return one ring with one place: the center."""
        return [np.array([[units(self.lon), units(self.lat)]], np.int32)]

    def _geometry(self) -> Any:
        return shapes.circle(self.lon, self.lat, self.radius_m, _CORNERS)

    def to_wkt(self) -> str:
        """Return well-known text of the approximation."""
        return str(shapely.to_wkt(self._geometry(), rounding_precision=-1, trim=True))


@dataclass(frozen=True, slots=True, init=False)
class Polygon(Region):
    """A polygon with any number of parts and holes; edges are straight lines in lon/lat.

    Parameters
    ----------
    coordinates
        A list of rings, the outer ring first, then its holes; a list of such lists, one for each
        part; a GeoJSON mapping; or a Shapely geometry. Open rings are closed. Longitudes may run
        past 180 (170 to 190) where the polygon crosses the antimeridian.

    Attributes
    ----------
    coordinates
        Parts, rings and places, as in a GeoJSON MultiPolygon. A part that crosses the antimeridian
        is not cut: it begins between -180 and 180, and its longitudes run past 180. The same is
        true of the GeoJSON, WKT and WKB of the polygon.

    Examples
    --------
    >>> triangle = Polygon([[(0, 0), (10, 0), (0, 10)]])
    >>> triangle.boxes()
    [(0, 0, 100000000, 100000000)]
    >>> len(triangle.rings()[0])
    4
    """

    coordinates: Coordinates

    def __init__(self, coordinates: Sequence[Any] | Mapping[str, Any] | NDArray[Any] | Any) -> None:
        if isinstance(coordinates, Mapping):
            place: Any = read_geojson(coordinates)
        elif isinstance(coordinates, shapely.Geometry):
            place = read_shapely(coordinates)
        else:
            place = parts_of_rings(coordinates)
        if isinstance(place, tuple):
            raise RegionError("polygon", coordinates, "is a point; use Point or region(...)")
        object.__setattr__(self, "coordinates", shapes.coordinates_of(place))

    @classmethod
    def from_rings(cls, rings: Sequence[NDArray[np.int32]]) -> Self:
        """Return the polygon for which `rings` returned these rings, without validating it.

        Examples
        --------
        >>> triangle = Polygon([[(170, 0), (190, 0), (180, 10)]])
        >>> Polygon.from_rings(triangle.rings()) == triangle
        True
        """
        parts: list[list[NDArray[Any]]] = []
        for ring in rings:
            if not parts or _is_counterclockwise(ring):
                parts.append([])
            parts[-1].append(ring)
        return cls._of(shapes.to_coordinates(antimeridian.without_copies(parts)))

    @classmethod
    def _of(cls, coordinates: Coordinates) -> Self:
        made = cls.__new__(cls)
        object.__setattr__(made, "coordinates", coordinates)
        return made

    def boxes(self) -> list[Box]:
        """Return the bounding box; two if the polygon lies on both sides of the antimeridian."""
        pieces = sorted(self._pieces())
        if self._is_boxes():
            whole_turn = len(pieces) > len(self.coordinates) and pieces[0][2] >= pieces[1][0]
            return [_around(pieces)] if whole_turn else pieces
        reached = np.maximum.accumulate([box[2] for box in pieces])
        gaps = np.array([box[0] for box in pieces[1:]]) - reached[:-1]
        if len(gaps) == 0 or gaps.max() <= 180 * UNITS:
            return [_around(pieces)]
        split = int(gaps.argmax()) + 1
        return [_around(pieces[:split]), _around(pieces[split:])]

    def rings(self) -> list[NDArray[np.int32]] | None:
        """Return closed rings in units; None for a rectangle, which is equal to its box.

        A place is inside if it is inside an odd number of rings, or on one. A part that crosses the
        antimeridian has two copies of each ring, 360 degrees apart; what lies beyond 180 and
        -180 degrees only completes the rings.
        """
        if self._is_boxes():
            return None
        rings: list[NDArray[np.int32]] = []
        for part in self.coordinates:
            in_units = [_in_units(ring) for ring in part]
            if antimeridian.crosses(in_units[0]):
                west, east = zip(*(antimeridian.copies(ring) for ring in in_units), strict=True)
                rings += [*west, *east]
            else:
                rings += [ring.astype(np.int32) for ring in in_units]
        return rings

    def _pieces(self) -> list[Box]:
        """Return the bounding boxes of all parts, two for one that crosses the antimeridian."""
        boxes: list[Box] = []
        for part in self.coordinates:
            outer = _in_units(part[0])
            crossing = antimeridian.crosses(outer)
            boxes += antimeridian.piece_boxes(outer) if crossing else [_bounds(outer)]
        return boxes

    def _is_boxes(self) -> bool:
        """Whether one or two boxes along the axes are all of the polygon."""
        parts = self.coordinates
        if len(parts) > 2 or not all(
            len(part) == 1 and _is_box(_in_units(part[0])) for part in parts
        ):
            return False
        return len(parts) == 1 or not any(antimeridian.crosses(_in_units(p[0])) for p in parts)

    def _geometry(self) -> Any:
        return shapes.polygon(self.coordinates)


def region(value: object) -> Region:
    """Return the region that a value describes.

    Parameters
    ----------
    value
        A `Region`; a GeoJSON geometry or Feature, as a mapping or as text; well-known text or
        binary; a Shapely geometry; or four numbers: west, south, east, north.

    Raises
    ------
    RegionError
        If the value is none of these, or describes an invalid place.

    Examples
    --------
    >>> region([13.0, 52.3, 13.8, 52.7])
    Rect(west=13.0, south=52.3, east=13.8, north=52.7)
    >>> region("POINT (13.4 52.5)")
    Point(lon=13.4, lat=52.5)
    >>> region('{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}').boxes()
    [(0, 0, 10000000, 10000000)]
    """
    if isinstance(value, Region):
        return value
    if isinstance(value, Mapping):
        place: Any = read_geojson(value)
    elif isinstance(value, str):
        place = read_text(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        place = read_wkb_bytes(bytes(value))
    elif isinstance(value, shapely.Geometry):
        place = read_shapely(value)
    elif _has_four_items(value):
        return Rect(*value)  # type: ignore[misc]
    else:
        problem = (
            "must be a Rect, Circle, Polygon or Point, GeoJSON, WKT, WKB, or four numbers "
            "(west, south, east, north)"
        )
        if isinstance(value, Sequence) and len(value) == 2:
            problem += "; for a circle around a place, Circle(lon, lat, radius_m=...)"
        raise RegionError("region", value, problem)
    if isinstance(place, tuple):
        return Point(*place)
    return Polygon._of(shapes.coordinates_of(place))


def _has_four_items(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.shape[:1] == (4,))
    return isinstance(value, (list, tuple)) and len(value) == 4


def _in_units(ring: shapes.Ring) -> NDArray[np.int64]:
    rounded: NDArray[np.float64] = np.rint(np.array(ring) * UNITS)
    return rounded.astype(np.int64)


def _is_counterclockwise(ring: NDArray[np.int32]) -> bool:
    """Whether a closed ring encloses an area and runs counterclockwise, in integers of any size."""
    places = ring.tolist()
    return bool(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise(places)) > 0)


def _bounds(ring: NDArray[np.int64]) -> Box:
    west, south = ring.min(axis=0).tolist()
    east, north = ring.max(axis=0).tolist()
    return west, south, east, north


def _around(boxes: Sequence[Box]) -> Box:
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def _is_box(ring: NDArray[np.int64]) -> bool:
    """Whether a simple ring is a rectangle: all on its bounding box, through all four corners."""
    west, south, east, north = _bounds(ring)
    lon, lat = ring[:, 0], ring[:, 1]
    on_border = (lon == west) | (lon == east) | (lat == south) | (lat == north)
    if not on_border.all():
        return False
    corners = {(x, y) for x, y in ring.tolist()}
    return corners >= {(west, south), (west, north), (east, south), (east, north)}
