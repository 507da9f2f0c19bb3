"""Readers of GeoJSON, WKT, WKB, Shapely geometries and lists of rings.

They return a point as ``(lon, lat)`` and a polygon as its parts (see `nearcast.model.geometry`).
Anything else raises `RegionError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from nearcast.errors import RegionError
from nearcast.model.wkb import read_wkb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.model.geometry import Parts

    Place = tuple[float, float] | Parts

__all__ = ["parts_of_rings", "read_geojson", "read_shapely", "read_text", "read_wkb_bytes"]

_WKT = re.compile(r"\s*(?:SRID\s*=\s*(?P<srid>[0-9]+)\s*;)?\s*(?P<name>[A-Za-z]+)", re.IGNORECASE)
_HEX = re.compile(r"0[01](?:[0-9A-Fa-f]{2}){4,}")
_WKT_NAMES = frozenset({"POINT", "POLYGON", "MULTIPOLYGON"})
_NO_REGION = "is not a region; give a Polygon, MultiPolygon or Point"
_UNREADABLE = "cannot be read as GeoJSON, WKT or hex WKB"


def read_text(text: str) -> Place:
    """Read GeoJSON, WKT or WKB in hexadecimal digits."""
    if _HEX.fullmatch(text):
        return read_wkb_bytes(bytes.fromhex(text))
    if not text.lstrip().startswith("{"):
        return _read_wkt(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegionError("geometry", text, f"{_UNREADABLE}: {error}") from None
    return read_geojson(value)


def _read_wkt(text: str) -> Place:
    match = _WKT.match(text)
    if match is None or "\0" in text:
        raise RegionError("geometry", text, _UNREADABLE)
    if (match["srid"] or "").lstrip("0") not in {"", "4326"}:
        problem = f"has SRID {match['srid']}; convert it to longitude and latitude (SRID 4326)"
        raise RegionError("geometry", text, problem)
    # Other types never reach the parser: deeply nested collections overflow its stack.
    if match["name"].upper().removesuffix("ZM").rstrip("ZM") not in _WKT_NAMES:
        raise RegionError("geometry", text, f"{match['name']} {_NO_REGION}")
    try:
        with np.errstate(all="ignore"):
            geometry = shapely.from_wkt(text[match.start("name") :])
    except shapely.errors.ShapelyError as error:
        raise RegionError("geometry", text, f"{_UNREADABLE}: {error}") from None
    return read_shapely(geometry)


def read_wkb_bytes(data: bytes) -> Place:
    """Read well-known binary, ISO or extended."""
    place = read_wkb(data)
    return place if isinstance(place, tuple) else [_closed(rings, data) for rings in place if rings]


def read_shapely(geometry: Any) -> Place:
    """Read a Shapely geometry."""
    name = geometry.geom_type
    if name not in {"Point", "Polygon", "MultiPolygon"}:
        raise RegionError("geometry", geometry, f"a {name} {_NO_REGION}")
    if geometry.is_empty:
        raise RegionError("geometry", geometry, "is empty")
    if shapely.get_srid(geometry) not in (0, 4326):
        problem = "must be in longitude and latitude (SRID 4326); convert it"
        raise RegionError("geometry", geometry, problem)
    if name == "Point":
        return geometry.x, geometry.y
    return [
        [shapely.get_coordinates(ring) for ring in (part.exterior, *part.interiors)]
        for part in shapely.get_parts(geometry)
        if not part.is_empty
    ]


def read_geojson(value: object) -> Place:
    """Read a GeoJSON geometry, or the geometry of a Feature."""
    geometry = value
    if isinstance(geometry, Mapping) and geometry.get("type") == "Feature":
        geometry = geometry.get("geometry")
    if not isinstance(geometry, Mapping) or not isinstance(geometry.get("type"), str):
        problem = "must be a GeoJSON geometry or Feature: an object with type and coordinates"
        raise RegionError("geometry", value, problem)
    name, coordinates = geometry["type"], geometry.get("coordinates")
    if name == "Point":
        return _position(coordinates)
    if name == "Polygon":
        return [_rings(coordinates, value)]
    if name == "MultiPolygon":
        return [_rings(part, value) for part in _items(coordinates, "parts", value)]
    raise RegionError("geometry", value, f"a {name} {_NO_REGION}")


def parts_of_rings(value: object) -> Parts:
    """Read a list of rings, the outer ring first, or a list of such lists, one for each part."""
    depth: int = 0
    inner: Any = value
    while _is_list(inner) and len(inner) and depth < 5:
        depth, inner = depth + 1, inner[0]
    if depth == 3:
        return [_rings(value, value)]
    if depth == 4:
        return [_rings(part, value) for part in _items(value, "parts", value)]
    problem = "must be a list of rings, the outer one first: [[(lon, lat), ...], ...]"
    raise RegionError("polygon", value, problem)


def _position(value: object) -> tuple[float, float]:
    numbers = _items(value, "coordinates", value)
    if len(numbers) not in (2, 3):
        raise RegionError("coordinates", value, "must be longitude and latitude")
    return numbers[0], numbers[1]


def _rings(value: object, shown: object) -> list[NDArray[np.float64]]:
    return _closed([_ring(ring) for ring in _items(value, "rings", shown)], shown)


def _items(value: Any, name: str, shown: object) -> Any:
    if not _is_list(value) or len(value) == 0:
        raise RegionError("coordinates", shown, f"must be a list of {name}, not an empty one")
    return value


def _is_list(value: Any) -> bool:
    """Whether a value is a list, a tuple or an array with a length."""
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _ring(value: object) -> NDArray[np.float64]:
    problem = "a ring must be a list of positions, each [longitude, latitude]"
    try:
        places = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise RegionError("coordinates", value, problem) from None
    if places.dtype.kind not in "iuf" or places.ndim != 2 or places.shape[1] not in (2, 3):
        raise RegionError("coordinates", value, problem)
    return places[:, :2].astype(np.float64)


def _closed(rings: list[NDArray[np.float64]], shown: object) -> list[NDArray[np.float64]]:
    """Close the rings that do not end where they begin."""
    if any(len(ring) == 0 for ring in rings):
        raise RegionError("coordinates", shown, "has a ring without positions")
    return [ring if (ring[0] == ring[-1]).all() else np.vstack([ring, ring[:1]]) for ring in rings]
