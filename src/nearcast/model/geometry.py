"""Polygons: validation, rounding to units, and how they are written by Shapely.

A polygon comes as *parts*: for each part its outer ring and its holes, each an array of lon, lat
in degrees. It must be valid after rounding to units, because that is what messages are matched
with. Across the antimeridian it stays uncut; see `nearcast.model.antimeridian`.
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
from nearcast.model.antimeridian import crosses, moved_into_range, split_edges
from nearcast.model.circles import TURN, Box, outline, reaches_poles
from nearcast.model.ring_sweep import is_certainly_valid

__all__ = [
    "Coordinates",
    "Parts",
    "circle",
    "coordinates_of",
    "polygon",
    "rectangles",
    "to_coordinates",
    "to_geojson",
]

Parts = list[list[NDArray[np.float64]]]
"""The rings of each part, the outer ring first; a ring is an array of lon, lat in degrees."""

Ring = tuple[tuple[float, float], ...]
Coordinates = tuple[tuple[Ring, ...], ...]
"""The coordinates of a GeoJSON MultiPolygon: parts, rings, places."""

UnitParts = list[list[NDArray[np.int64]]]
"""The rings of each part in units; outer rings run counterclockwise, holes clockwise."""

_MAX_WIDTH = 360.0
_MAX_LONGITUDE = 540.0
_MIN_DRAWN_M = 0.01

# GEOS takes time quadratic in the number of corners for some polygons.
_LARGE = 10_000


def coordinates_of(parts: Parts) -> Coordinates:
    """Return the coordinates of a polygon, validated and rounded to units."""
    if not parts:
        raise RegionError("polygon", parts, "must have at least one part")
    for rings in parts:
        _check_part(rings)
    try:
        with np.errstate(all="ignore"):
            return to_coordinates(_rounded(parts))
    except shapely.errors.GEOSException as error:
        shown = [[ring.tolist() for ring in rings] for rings in parts]
        raise RegionError("polygon", shown, f"cannot be rounded to 1e-7 degree: {error}") from None


def to_coordinates(parts: UnitParts) -> Coordinates:
    """Return the coordinates in degrees of parts in units."""
    return tuple(
        tuple(tuple((lon, lat) for lon, lat in (ring / UNITS + 0.0).tolist()) for ring in rings)
        for rings in parts
    )


def _rounded(parts: Parts) -> UnitParts:
    degrees = _shapely(parts)
    exact = _on_grid(shapely.transform(degrees, _to_units), degrees)
    if all(np.abs(ring[:, 0]).max() <= 180.0 for rings in parts for ring in rings):
        return _unit_parts(exact)
    uncut = _uncut(_unit_parts(exact))
    if uncut is None:
        pieces = cut(exact, 180.0 * UNITS)
        uncut = _unit_parts(_on_grid(pieces, pieces))
    return uncut


def _uncut(parts: UnitParts) -> UnitParts | None:
    """Return parts that begin between -180 and 180 degrees, in a form that can be matched exactly.

    None means that only the union of its pieces can represent the polygon: parts overlap after
    moving them by 360 degrees, or a long edge is less than a unit away from another.
    """
    moved = [moved_into_range(rings) for rings in parts]
    split = [
        [split_edges(ring) for ring in rings] if crosses(rings[0]) else rings for rings in moved
    ]
    for rings, before in zip(split, moved, strict=True):
        changed = any(len(a) > len(b) for a, b in zip(rings, before, strict=True))
        if changed and not _is_valid(_shapely([rings])):
            return None
    return None if len(split) > 1 and _overlap(split) else split


def _overlap(parts: UnitParts) -> bool:
    """Whether two parts that begin between -180 and 180 degrees have places in common."""
    part, pieces = [], []
    for number, rings in enumerate(parts):
        for turns in range(1 + crosses(rings[0])):
            part.append(number)
            pieces.append(_shapely([[ring - np.array([turns * TURN, 0]) for ring in rings]]))
    one, other = shapely.STRtree(pieces).query(pieces, predicate="intersects")
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    return any(
        bool(shapely.relate_pattern(pieces[a], pieces[b], "T********"))
        for a, b in pairs
        if part[a] < part[b]
    )


def _check_part(rings: list[NDArray[np.float64]]) -> None:
    for number, ring in enumerate(rings):
        field = "polygon" if number == 0 else f"hole {number} of the polygon"
        if not (np.abs(ring[:, 0]) <= _MAX_LONGITUDE).all():
            place = _outside(ring, 0, _MAX_LONGITUDE)
            raise RegionError(field, place, _range_problem("longitude", 540))
        if not (np.abs(ring[:, 1]) <= 90.0).all():
            raise RegionError(field, _outside(ring, 1, 90.0), _range_problem("latitude", 90))
        if len(ring) < 4:
            raise RegionError(field, ring.tolist(), "a ring must have at least three corners")
        if np.ptp(ring[:, 0]) > _MAX_WIDTH:
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
    """Round to whole units; if that makes a valid polygon invalid, let Shapely repair it.

    Parts that share an edge or overlap, as those of boundary files do, are united. ``shown`` is the
    polygon as the user gave it, to tell why it is invalid.
    """
    rounded = shapely.transform(units, np.rint)
    if _is_valid(rounded):
        return shapely.remove_repeated_points(rounded)
    if not shapely.is_valid(shown):
        if shapely.is_valid(shapely.get_parts(shown)).all():
            return shapely.union_all(shapely.get_parts(units), grid_size=1.0)
        raise RegionError(
            "polygon",
            shapely.to_wkt(shown),
            f"is not valid: {shapely.is_valid_reason(shown)}; repair it, for example with "
            "shapely.make_valid, and give its polygons",
        )
    repaired = shapely.set_precision(units, 1.0)
    if repaired.is_empty:
        problem = "is smaller than the resolution of 1e-7 degree; give a Point or a Rect"
        raise RegionError("polygon", shapely.to_wkt(shown), problem)
    return repaired


def _is_valid(units: Any) -> bool:
    large = shapely.get_num_coordinates(units) > _LARGE
    return (large and is_certainly_valid(_unit_parts(units))) or bool(shapely.is_valid(units))


def _shapely(parts: Any) -> Any:
    return shapely.MultiPolygon([shapely.Polygon(rings[0], rings[1:]) for rings in parts])


def _unit_parts(units: Any) -> UnitParts:
    parts = [orient(part) for part in _polygons(units)]
    return [
        [
            np.rint(shapely.get_coordinates(ring)).astype(np.int64)
            for ring in (part.exterior, *part.interiors)
        ]
        for part in parts
    ]


def cut(geometry: Any, half_turn: float) -> Any:
    """Return the union of polygons, cut at the antimeridian, between -half_turn and half_turn."""
    turn, height = 2.0 * half_turn, half_turn
    pieces = []
    for shift in (-turn, 0.0, turn):
        window = shapely.box(shift - half_turn, -height, shift + half_turn, height)
        offset = np.array([shift, 0.0])
        for piece in _polygons(shapely.intersection(geometry, window)):
            pieces.append(shapely.transform(piece, lambda points, by=offset: points - by))
    return shapely.union_all(pieces)


def _polygons(geometry: Any) -> list[Any]:
    """Return the polygons of a geometry, without points and lines where it was only touched."""
    return [part for part in shapely.get_parts(geometry) if part.geom_type == "Polygon"]


def polygon(coordinates: Coordinates) -> Any:
    """Return the Shapely geometry of coordinates: a Polygon if there is one part."""
    parts = [shapely.Polygon(rings[0], rings[1:]) for rings in coordinates]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def rectangles(boxes: list[Box]) -> Any:
    """Return the Shapely geometry of boxes: a Point if the only box has no area."""
    west, south, east, north = (bound / UNITS for bound in boxes[0])
    if west == east and south == north and len(boxes) == 1:
        return shapely.Point(west, south)
    parts = [shapely.box(*(bound / UNITS for bound in box)) for box in boxes]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def circle(lon: float, lat: float, radius_m: float, corners: int) -> Any:
    """Return the Shapely geometry of a polygon with its corners on a circle."""
    if radius_m < _MIN_DRAWN_M:
        return shapely.Point(lon, lat)
    with np.errstate(all="ignore"):
        return _drawn(lon, lat, radius_m, corners)


def _drawn(lon: float, lat: float, radius_m: float, corners: int) -> Any:
    world = shapely.box(-180.0, -90.0, 180.0, 90.0)
    opposite_m = np.pi * EARTH_RADIUS_M - radius_m
    if opposite_m < _MIN_DRAWN_M:
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
