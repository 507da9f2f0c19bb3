"""Exact geometry: whether a message's box or point overlaps a circle or a polygon.

Polygons are exact in integer units: every decision compares two products that fit into 64 bits.
Circles use the haversine distance; a place within `TOLERANCE_M` of the radius is inside.

Used by `nearcast.indexes.verification`, and so by all index families.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import EARTH_RADIUS_M, TOLERANCE_M
from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

RADIANS = math.pi / 180 / 1e7
"""Radians per unit."""


class ShapeArrays(NamedTuple):
    """The arrays of `nearcast.columns.Shapes`."""

    radius_m: NDArray[np.float64]
    ring_start: NDArray[np.int64]
    point_start: NDArray[np.int64]
    point: NDArray[np.int32]


@kernel
def distance_m(lon_a: Number, lat_a: Number, lon_b: Number, lat_b: Number) -> Number:
    """Return the haversine distance between two places in units.

    Both the haversine and its complement are sums of squares, so the result is precise for
    places that are close together and for places that are nearly opposite.
    """
    half_lat = (lat_b - lat_a) * RADIANS / 2
    half_sum = (lat_b + lat_a) * RADIANS / 2
    half_lon = (lon_b - lon_a) * RADIANS / 2
    along, across = math.cos(half_lon) ** 2, math.sin(half_lon) ** 2
    near = along * math.sin(half_lat) ** 2 + across * math.cos(half_sum) ** 2
    far = along * math.cos(half_lat) ** 2 + across * math.sin(half_sum) ** 2
    return 2 * EARTH_RADIUS_M * math.atan2(math.sqrt(near), math.sqrt(far))


@kernel
def distance_to_meridian_m(
    lon: Number, lat: Number, meridian: Number, south: Number, north: Number
) -> Number:
    """Return the distance from a place to the part of a meridian between two latitudes."""
    nearest = min(distance_m(lon, lat, meridian, south), distance_m(lon, lat, meridian, north))
    angle = (meridian - lon) * RADIANS
    foot = math.atan2(math.sin(lat * RADIANS), math.cos(lat * RADIANS) * math.cos(angle))
    if south * RADIANS <= foot <= north * RADIANS:
        nearest = min(nearest, distance_m(lon, lat, meridian, foot / RADIANS))
    return nearest


@kernel
def distance_to_box_m(lon: Number, lat: Number, box: NDArray[np.int32]) -> Number:
    """Return the distance from a place to a box (west, south, east, north) on the sphere."""
    west, south = np.float64(box[0]), np.float64(box[1])
    east, north = np.float64(box[2]), np.float64(box[3])
    if west <= lon <= east:
        return max(0.0, south - lat, lat - north) * RADIANS * EARTH_RADIUS_M
    return min(
        distance_to_meridian_m(lon, lat, west, south, north),
        distance_to_meridian_m(lon, lat, east, south, north),
    )


@kernel
def side_of(x: Number, y: Number, x0: Number, y0: Number, x1: Number, y1: Number) -> Number:
    """Return on which side of the line from (x0, y0) to (x1, y1) a point is: -1, 0 or 1."""
    left = (x1 - x0) * (y - y0)
    right = (x - x0) * (y1 - y0)
    return np.int64(left > right) - np.int64(left < right)


@kernel
def point_in_rings(shapes: ShapeArrays, shape: Number, x: Number, y: Number) -> Number:
    """Tell whether a point is inside a polygon or on its border."""
    inside = False
    for ring in range(shapes.ring_start[shape], shapes.ring_start[shape + 1]):
        for i in range(shapes.point_start[ring], shapes.point_start[ring + 1] - 1):
            x0, y0 = np.int64(shapes.point[i, 0]), np.int64(shapes.point[i, 1])
            x1, y1 = np.int64(shapes.point[i + 1, 0]), np.int64(shapes.point[i + 1, 1])
            side = side_of(x, y, x0, y0, x1, y1)
            if side == 0 and min(x0, x1) <= x <= max(x0, x1) and min(y0, y1) <= y <= max(y0, y1):
                return True
            if (y0 > y) != (y1 > y) and (side > 0) == (y1 > y0):
                inside = not inside
    return inside


@kernel
def edge_overlaps_box(
    x0: Number, y0: Number, x1: Number, y1: Number, box: NDArray[np.int32]
) -> Number:
    """Tell whether a straight edge overlaps a box."""
    west, south = np.int64(box[0]), np.int64(box[1])
    east, north = np.int64(box[2]), np.int64(box[3])
    if max(x0, x1) < west or min(x0, x1) > east or max(y0, y1) < south or min(y0, y1) > north:
        return False
    first = side_of(west, south, x0, y0, x1, y1)
    second = side_of(east, south, x0, y0, x1, y1)
    third = side_of(east, north, x0, y0, x1, y1)
    fourth = side_of(west, north, x0, y0, x1, y1)
    if first == second and second == third and third == fourth and first != 0:
        return False
    return True


@kernel
def box_overlaps_shape(shapes: ShapeArrays, shape: Number, box: NDArray[np.int32]) -> Number:
    """Tell whether a message's box overlaps a shape; borders count as inside."""
    if shapes.radius_m[shape] >= 0:
        center = shapes.point_start[shapes.ring_start[shape]]
        lon, lat = np.float64(shapes.point[center, 0]), np.float64(shapes.point[center, 1])
        if box[0] == box[2] and box[1] == box[3]:
            distance = distance_m(lon, lat, np.float64(box[0]), np.float64(box[1]))
        else:
            distance = distance_to_box_m(lon, lat, box)
        return distance <= shapes.radius_m[shape] + TOLERANCE_M
    if point_in_rings(shapes, shape, np.int64(box[0]), np.int64(box[1])):
        return True
    if box[0] == box[2] and box[1] == box[3]:
        return False
    for ring in range(shapes.ring_start[shape], shapes.ring_start[shape + 1]):
        for i in range(shapes.point_start[ring], shapes.point_start[ring + 1] - 1):
            x0, y0 = np.int64(shapes.point[i, 0]), np.int64(shapes.point[i, 1])
            x1, y1 = np.int64(shapes.point[i + 1, 0]), np.int64(shapes.point[i + 1, 1])
            if edge_overlaps_box(x0, y0, x1, y1, box):
                return True
    return False
