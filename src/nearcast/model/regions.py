"""Places that a subscription asks for: rectangles, circles, polygons and points.

Coordinates are degrees, longitude first, rounded on creation to units of 1e-7 degree. Borders count
as inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from nearcast.columns import UNITS, WORLD
from nearcast.errors import RegionError
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


class Region(ABC):
    """A place that a subscription asks for."""

    __slots__ = ()

    @abstractmethod
    def boxes(self) -> list[Box]:
        """Return the boxes that contain the region, in units, none crossing the antimeridian."""

    def rings(self) -> list[NDArray[np.int32]] | None:
        """Return what lies inside the boxes, as rings in units; None where the boxes say it all.

        Rings of a polygon are closed, of all parts and holes. A circle has one ring of one
        place, its centre.
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
        """Return a GeoJSON geometry."""
        return shapes.to_geojson(self._geometry())

    def to_wkt(self) -> str:
        """Return well-known text."""
        return str(shapely.to_wkt(self._geometry(), rounding_precision=7, trim=True))

    def to_wkb(self) -> bytes:
        """Return well-known binary."""
        return bytes(shapely.to_wkb(self._geometry()))


@dataclass(frozen=True, slots=True)
class Rect(Region):
    """A rectangle in degrees. One whose west is greater than its east crosses the antimeridian.

    As GeoJSON, a rectangle is a polygon, one that crosses the antimeridian is two, and one without
    width and height is a point.

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
            raise RegionError("south", self.south, f"must not lie north of north, {self.north}")

    def boxes(self) -> list[Box]:
        """Return one box, or two where the rectangle crosses the antimeridian."""
        south, north = units(self.south), units(self.north)
        west, east = units(self.west), units(self.east)
        if west <= east:
            return [(west, south, east, north)]
        # 180 and -180 are one meridian, so a piece without width says nothing new.
        pieces = [(west, south, WORLD[2], north), (WORLD[0], south, east, north)]
        return [piece for piece in pieces if piece[0] < piece[2]] or pieces[:1]

    def _geometry(self) -> Any:
        return shapes.rectangles(self.boxes())


@dataclass(frozen=True, slots=True)
class Point(Region):
    """A single place in degrees.

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
    """All places within a distance of a centre, in metres along the sphere, to the millimetre.

    As GeoJSON, WKT and WKB, a circle is approximated by a polygon with 64 corners (none of these
    formats has circles), and one smaller than a centimetre by a point.

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
        radius_m = region_number("radius_m", self.radius_m, "metres")
        if not 0.0 <= radius_m < float("inf"):
            raise RegionError("radius_m", self.radius_m, "must be a number of metres, 0 or more")
        put(self, "radius_m", radius_m)

    def boxes(self) -> list[Box]:
        """Return one or two boxes that contain every place of the circle."""
        return cap_boxes(units(self.lon), units(self.lat), self.radius_m)

    def rings(self) -> list[NDArray[np.int32]]:
        """Return one ring of one place: the centre."""
        return [np.array([[units(self.lon), units(self.lat)]], np.int32)]

    def _geometry(self) -> Any:
        return shapes.circle(self.lon, self.lat, self.radius_m, _CORNERS)

    def to_wkt(self) -> str:
        """Return well-known text of the approximation."""
        return str(shapely.to_wkt(self._geometry(), rounding_precision=-1, trim=True))


@dataclass(frozen=True, slots=True, init=False)
class Polygon(Region):
    """A polygon, with holes and several parts if need be; edges are straight in lon/lat.

    Parameters
    ----------
    coordinates
        A list of rings, the outer one first, then its holes; a list of such lists, one for each
        part; a GeoJSON mapping; or a Shapely geometry. Rings are closed if they are not.
        Longitudes may run past 180 (170 to 190): the polygon is cut there.

    Attributes
    ----------
    coordinates
        Parts, rings and places, as in a GeoJSON MultiPolygon.

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

    def boxes(self) -> list[Box]:
        """Return the box of the polygon; two if its parts lie on both sides of the antimeridian."""
        boxes = sorted(_bounds(_in_units(part[0])) for part in self.coordinates)
        if self._is_boxes():
            return boxes
        reached = np.maximum.accumulate([box[2] for box in boxes])
        gaps = np.array([box[0] for box in boxes[1:]]) - reached[:-1]
        if len(gaps) == 0 or gaps.max() <= 180 * UNITS:
            return [_around(boxes)]
        split = int(gaps.argmax()) + 1
        return [_around(boxes[:split]), _around(boxes[split:])]

    def rings(self) -> list[NDArray[np.int32]] | None:
        """Return all closed rings in units; None for a rectangle, whose box says it all.

        A place lies inside when it lies inside an odd number of rings, or on one.
        """
        if self._is_boxes():
            return None
        return [_in_units(ring) for part in self.coordinates for ring in part]

    def _is_boxes(self) -> bool:
        """Whether there are one or two parts and all are rectangles along the axes."""
        return len(self.coordinates) <= 2 and all(
            len(part) == 1 and _is_box(_in_units(part[0])) for part in self.coordinates
        )

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
        If the value is none of these, or the place that it describes is not one.

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
    elif isinstance(value, (list, tuple, np.ndarray)) and len(value) == 4:
        return Rect(*value)
    else:
        problem = (
            "must be a Rect, Circle, Polygon or Point, GeoJSON, WKT, WKB, or four numbers "
            "(west, south, east, north)"
        )
        raise RegionError("region", value, problem)
    return Point(*place) if isinstance(place, tuple) else _polygon(place)


def _polygon(parts: shapes.Parts) -> Polygon:
    """Make a polygon from parts that are read already."""
    made = Polygon.__new__(Polygon)
    object.__setattr__(made, "coordinates", shapes.coordinates_of(parts))
    return made


def _in_units(ring: shapes.Ring) -> NDArray[np.int32]:
    rounded: NDArray[np.float64] = np.rint(np.array(ring) * UNITS)
    return rounded.astype(np.int32)


def _bounds(ring: NDArray[np.int32]) -> Box:
    west, south = ring.min(axis=0).tolist()
    east, north = ring.max(axis=0).tolist()
    return west, south, east, north


def _around(boxes: Sequence[Box]) -> Box:
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def _is_box(ring: NDArray[np.int32]) -> bool:
    """Whether a simple ring is its own bounding box: on its border, through all its corners."""
    west, south, east, north = _bounds(ring)
    lon, lat = ring[:, 0], ring[:, 1]
    on_border = (lon == west) | (lon == east) | (lat == south) | (lat == north)
    if not on_border.all():
        return False
    taken = {(x, y) for x, y in ring.tolist()}
    return taken >= {(west, south), (west, north), (east, south), (east, north)}
