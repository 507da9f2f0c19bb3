"""Areas that regions and messages have in common, on a flat map, in square units.

Boxes are exact: products of whole units fit into 64 bits. The area of a polygon inside a box is a
sum over its edges: for each, the integral of its latitude, clamped to the box, over the longitudes
that it shares with the box. Edges that run east count positive, edges that run west negative, so
holes subtract themselves and nothing has to be clipped corner by corner.

Used by all indexes of ranked subscriptions, through `nearcast.compiled.scoring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Outlines(NamedTuple):
    """The outlines of exact shapes: polygons, and circles as polygons of 64 corners.

    Shape ``s`` has the rings from ``ring_start[s]`` on, and ring ``r`` the closed places
    ``point[point_start[r]:point_start[r + 1]]`` (float64, lon and lat in units, relative to
    ``origin[s]``, so that small shapes keep their precision). Outer rings run counterclockwise,
    holes clockwise. ``bounds`` float64[rings, 4] are relative to the origin, too.
    """

    origin: NDArray[np.int64]
    bounds: NDArray[np.float64]
    ring_start: NDArray[np.int64]
    point_start: NDArray[np.int64]
    point: NDArray[np.float64]


@kernel
def box_area(box: NDArray[np.int32]) -> Number:
    """Return the area of a box."""
    return (np.int64(box[2]) - np.int64(box[0])) * (np.int64(box[3]) - np.int64(box[1]))


@kernel
def boxes_meet(a: NDArray[np.int32], b: NDArray[np.int32]) -> Number:
    """Tell whether two boxes have a place in common."""
    return a[0] <= b[2] and a[2] >= b[0] and a[1] <= b[3] and a[3] >= b[1]


@kernel
def common_box_area(a: NDArray[np.int32], b: NDArray[np.int32]) -> Number:
    """Return the area that two boxes have in common."""
    width = np.int64(min(a[2], b[2])) - np.int64(max(a[0], b[0]))
    height = np.int64(min(a[3], b[3])) - np.int64(max(a[1], b[1]))
    return max(width, np.int64(0)) * max(height, np.int64(0))


@kernel
def area_below(x0: Number, y0: Number, x1: Number, y1: Number, height: Number) -> Number:
    """Return the integral of a line from (x0, y0) to (x1, y1), clamped to 0 and ``height``.

    x0 < x1.
    """
    low, high = min(y0, y1), max(y0, y1)
    if low >= height:
        return (x1 - x0) * height
    if high <= 0.0:
        return 0.0
    slope = (x1 - x0) / (high - low) if high > low else 0.0
    area = 0.0
    if high > height:
        area += (high - height) * slope * height
        high = height
    low = max(low, 0.0)
    if slope == 0.0:
        return (x1 - x0) * low
    return area + (high - low) * slope * (0.5 * (low + high))


@kernel
def outline_area(outlines: Outlines, shape: Number, box: NDArray[np.int32]) -> Number:
    """Return the area of a shape inside a box."""
    x, y = outlines.origin[shape, 0], outlines.origin[shape, 1]
    area = 0.0
    for ring in range(outlines.ring_start[shape], outlines.ring_start[shape + 1]):
        # Relative to a corner of the ring: the rings of a shape may lie a turn apart.
        west = max(np.float64(box[0] - x), outlines.bounds[ring, 0])
        south = max(np.float64(box[1] - y), outlines.bounds[ring, 1])
        width = min(np.float64(box[2] - x), outlines.bounds[ring, 2]) - west
        height = min(np.float64(box[3] - y), outlines.bounds[ring, 3]) - south
        if width <= 0.0 or height <= 0.0:
            continue
        for i in range(outlines.point_start[ring], outlines.point_start[ring + 1] - 1):
            x0, y0 = outlines.point[i, 0] - west, outlines.point[i, 1] - south
            x1, y1 = outlines.point[i + 1, 0] - west, outlines.point[i + 1, 1] - south
            # Outer rings run counterclockwise: their lower edges run east, and are subtracted.
            sign = -1.0
            if x0 > x1:
                x0, y0, x1, y1, sign = x1, y1, x0, y0, 1.0
            left, right = max(x0, 0.0), min(x1, width)
            if left >= right:
                continue
            slope = (y1 - y0) / (x1 - x0)
            at_left, at_right = y0 + (left - x0) * slope, y1 - (x1 - right) * slope
            area += sign * area_below(left, at_left, right, at_right, height)
    return max(area, 0.0)
