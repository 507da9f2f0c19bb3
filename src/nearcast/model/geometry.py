"""What Shapely does for us: checking polygons, rounding them to units, cutting them, writing them.

A polygon travels as *parts*: for each part its outer ring and its holes, each an array of lon, lat
in degrees. It is valid if it is so after rounding to units, for that is what is matched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import mapping
from shapely.geometry.polygon import orient

from nearcast.columns import EARTH_RADIUS_M, UNITS
from nearcast.errors import RegionError
from nearcast.model.circles import Box, outline, reaches_poles

__all__ = [
    "Coordinates",
    "Parts",
    "circle",
    "coordinates_of",
    "polygon",
    "rectangles",
    "to_geojson",
]

Parts = list[list[NDArray[np.float64]]]
"""For each part its rings, the outer one first; a ring is an array of lon, lat in degrees."""

Ring = tuple[tuple[float, float], ...]
Coordinates = tuple[tuple[Ring, ...], ...]
"""The coordinates of a GeoJSON MultiPolygon: parts, rings, places."""

_WIDEST = 360.0
_EASTMOST = 540.0
_SMALLEST_M = 0.01


def coordinates_of(parts: Parts) -> Coordinates:
    """Return the coordinates of a polygon: checked, rounded to units, cut at the antimeridian."""
    if not parts:
        raise RegionError("polygon", parts, "must have at least one part")
    for rings in parts:
        _check_part(rings)
    try:
        with np.errstate(all="ignore"):
            return _exact_coordinates(parts)
    except shapely.errors.GEOSException as error:
        shown = [[ring.tolist() for ring in rings] for rings in parts]
        raise RegionError("polygon", shown, f"cannot be rounded and cut: {error}") from None


def _exact_coordinates(parts: Parts) -> Coordinates:
    degrees = shapely.MultiPolygon([shapely.Polygon(rings[0], rings[1:]) for rings in parts])
    exact = _on_grid(shapely.transform(degrees, _to_units), degrees)
    if any(np.abs(ring[:, 0]).max() > 180.0 for rings in parts for ring in rings):
        pieces = cut(exact, 180.0 * UNITS)
        exact = _on_grid(pieces, pieces)
    return tuple(_rings_of(orient(part)) for part in _polygons(exact))


def _check_part(rings: list[NDArray[np.float64]]) -> None:
    for number, ring in enumerate(rings):
        field = "polygon" if number == 0 else f"hole {number} of the polygon"
        if not (np.abs(ring[:, 0]) <= _EASTMOST).all():
            raise RegionError(field, _outside(ring, 0, _EASTMOST), _range_problem("longitude", 540))
        if not (np.abs(ring[:, 1]) <= 90.0).all():
            raise RegionError(field, _outside(ring, 1, 90.0), _range_problem("latitude", 90))
        if len(ring) < 4:
            raise RegionError(field, ring.tolist(), "a ring must have at least three corners")
        if np.ptp(ring[:, 0]) > _WIDEST:
            raise RegionError(
                field, float(np.ptp(ring[:, 0])), "must be at most 360 degrees of longitude wide"
            )


def _range_problem(name: str, limit: int) -> str:
    return f"every {name} must lie between -{limit} and {limit}; places are (longitude, latitude)"


def _outside(ring: NDArray[np.float64], axis: int, limit: float) -> list[float]:
    wrong = ~(np.abs(ring[:, axis]) <= limit)
    return ring[np.argmax(wrong)].tolist()  # type: ignore[no-any-return]


def _to_units(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return points * UNITS


def _on_grid(units: Any, shown: Any) -> Any:
    """Round to whole units; where that breaks a valid polygon, let Shapely mend it.

    ``shown`` is the same polygon as the user knows it, for the reason why it is invalid.
    """
    rounded = shapely.transform(units, np.rint)
    if shapely.is_valid(rounded):
        return shapely.remove_repeated_points(rounded)
    if not shapely.is_valid(shown):
        raise RegionError(
            "polygon",
            shapely.to_wkt(shown),
            f"is not valid: {shapely.is_valid_reason(shown)}; mend it, for example with "
            "shapely.make_valid, and give its polygons",
        )
    mended = shapely.set_precision(units, 1.0)
    if mended.is_empty:
        problem = "is smaller than the resolution of 1e-7 degree; give a Point or a Rect"
        raise RegionError("polygon", shapely.to_wkt(shown), problem)
    return mended


def cut(geometry: Any, half_turn: float) -> Any:
    """Cut polygons at the antimeridian and move all pieces between -half_turn and half_turn."""
    turn, height = 2.0 * half_turn, half_turn
    pieces = []
    for shift in (-turn, 0.0, turn):
        window = shapely.box(shift - half_turn, -height, shift + half_turn, height)
        offset = np.array([shift, 0.0])
        for piece in _polygons(shapely.intersection(geometry, window)):
            pieces.append(shapely.transform(piece, lambda points, by=offset: points - by))
    return shapely.union_all(pieces)


def _polygons(geometry: Any) -> list[Any]:
    """Return the polygons of a geometry; points and lines where it only touched are left out."""
    return [part for part in shapely.get_parts(geometry) if part.geom_type == "Polygon"]


def _rings_of(part: Any) -> tuple[Ring, ...]:
    rings = [part.exterior, *part.interiors]
    scaled = [shapely.get_coordinates(ring) / UNITS + 0.0 for ring in rings]
    return tuple(tuple((lon, lat) for lon, lat in ring.tolist()) for ring in scaled)


def polygon(coordinates: Coordinates) -> Any:
    """Return the Shapely geometry of coordinates: a Polygon if it has one part."""
    parts = [shapely.Polygon(rings[0], rings[1:]) for rings in coordinates]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def rectangles(boxes: list[Box]) -> Any:
    """Return the Shapely geometry of boxes: a Point where a box is one."""
    west, south, east, north = (bound / UNITS for bound in boxes[0])
    if west == east and south == north and len(boxes) == 1:
        return shapely.Point(west, south)
    parts = [shapely.box(*(bound / UNITS for bound in box)) for box in boxes]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def circle(lon: float, lat: float, radius_m: float, corners: int) -> Any:
    """Return the Shapely geometry of a polygon with its corners on a circle."""
    if radius_m < _SMALLEST_M:
        return shapely.Point(lon, lat)
    with np.errstate(all="ignore"):
        return _drawn(lon, lat, radius_m, corners)


def _drawn(lon: float, lat: float, radius_m: float, corners: int) -> Any:
    world = shapely.box(-180.0, -90.0, 180.0, 90.0)
    opposite_m = np.pi * EARTH_RADIUS_M - radius_m
    if opposite_m < _SMALLEST_M:
        return world
    if all(reaches_poles(lat, radius_m)):
        outside = outline(lon - np.copysign(180.0, lon), -lat, opposite_m, corners)
        return shapely.difference(world, _within_world(outside))
    return _within_world(outline(lon, lat, radius_m, corners))


def _within_world(ring: NDArray[np.float64]) -> Any:
    drawn = shapely.Polygon(ring)
    return cut(drawn, 180.0) if np.abs(ring[:, 0]).max() > 180.0 else drawn


def to_geojson(geometry: Any) -> dict[str, Any]:
    """Return a GeoJSON geometry made of dicts, lists, strings and numbers."""
    described = mapping(geometry)
    return {"type": described["type"], "coordinates": _listed(described["coordinates"])}


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value
