"""The outlines of exact shapes, for the areas of ranked subscriptions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import shapely

from nearcast.columns import UNITS, WORLD, Shapes, read_only, starts
from nearcast.compiled.areas import Outlines
from nearcast.model import Circle

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["outlines_of"]


_NO_OUTLINES = Outlines(
    read_only(np.empty((0, 2)), np.int64, 2),
    read_only(np.empty((0, 4)), np.float64, 4),
    read_only(np.zeros(1), np.int64),
    read_only(np.zeros(1), np.int64),
    read_only(np.empty((0, 2)), np.float64, 2),
)


def outlines_of(shapes: Shapes) -> Outlines:
    """Return the outlines of shapes: polygons as they are, circles with 64 corners.

    Examples
    --------
    >>> center = np.zeros((1, 2), np.int32)
    >>> circle = Shapes(np.array([1000.0]), np.array([0, 1]), np.array([0, 1]), center)
    >>> len(outlines_of(circle).point)
    65
    """
    if not len(shapes):
        return _NO_OUTLINES
    rings = [_rings(shapes, shape) for shape in range(len(shapes))]
    flat = [ring for each in rings for ring in each]
    first = shapes.point_start[shapes.ring_start[:-1]]
    origin = shapes.point[first].astype(np.int64)
    bounds = [[*ring.min(axis=0).tolist(), *ring.max(axis=0).tolist()] for ring in flat]
    return Outlines(
        read_only(origin, np.int64, 2),
        read_only(np.array(bounds).reshape(-1, 4), np.float64, 4),
        read_only(starts(np.array([len(each) for each in rings], np.int64)), np.int64),
        read_only(starts(np.array([len(ring) for ring in flat], np.int64)), np.int64),
        read_only(np.concatenate([np.empty((0, 2)), *flat]), np.float64, 2),
    )


def _rings(shapes: Shapes, shape: int) -> list[NDArray[np.float64]]:
    """Return the rings of one shape relative to its first place, outer ones counterclockwise."""
    first, last = shapes.ring_start[shape], shapes.ring_start[shape + 1]
    rings = [
        shapes.point[shapes.point_start[ring] : shapes.point_start[ring + 1]].astype(np.int64)
        for ring in range(first, last)
    ]
    origin = rings[0][0]
    radius_m = float(shapes.radius_m[shape])
    if radius_m >= 0:
        lon, lat = (origin / UNITS).tolist()
        drawn = shapely.from_wkb(Circle(lon, lat, radius_m).to_wkb())
        area = shapely.transform(drawn, lambda place: place * UNITS - origin)
    elif len(rings) == 1:
        ring = (rings[0] - origin).astype(np.float64)
        return [ring if _signed_area(ring) >= 0 else ring[::-1]]
    else:  # a place inside an odd number of rings is inside
        parts = [shapely.Polygon(ring - origin) for ring in rings]
        area = functools.reduce(shapely.symmetric_difference, parts)
    world = shapely.box(*(WORLD[:2] - origin), *(WORLD[2:] - origin))
    parts = shapely.get_parts(shapely.intersection(area, world))
    return [
        shapely.get_coordinates(ring)
        for part in shapely.orient_polygons(parts)
        if part.geom_type == "Polygon" and not part.is_empty
        for ring in (part.exterior, *part.interiors)
    ]


def _signed_area(ring: NDArray[np.float64]) -> float:
    x, y = ring.T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum())
