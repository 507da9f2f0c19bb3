"""Distances from a place to a message, by additions and multiplications only.

The sines of a haversine distance are polynomials here, not calls of the C library: loops over them
become vector instructions, and a distance has the same bits in a vector, in a scalar loop and on
every machine. The error is about that of the C library (below 1e-15, relative). Coefficients are
Chebyshev interpolations: sin(x) / x for x up to a quarter turn, asin(x) / x for x up to
sin(22.5 degrees).

Used by all indexes of ranked subscriptions, through `nearcast.compiled.scoring`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import EARTH_RADIUS_M, UNITS
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.shapes import RADIANS

if TYPE_CHECKING:
    from numpy.typing import NDArray

TURN = np.int64(360 * UNITS)
"""Units of a whole turn of longitude."""

METERS_PER_UNIT = RADIANS * EARTH_RADIUS_M
"""Meters per unit of latitude; and, for planar distances, of longitude."""


@inlined_kernel
def sine(angle: Number) -> Number:
    """Return the sine of an angle from minus to plus a quarter turn, in radians."""
    z = angle * angle
    series = 2.721574933448145e-15
    series = series * z - 7.643026557152665e-13
    series = series * z + 1.6058940878455908e-10
    series = series * z - 2.5052106890568924e-08
    series = series * z + 2.75573192112296e-06
    series = series * z - 0.00019841269841208676
    series = series * z + 0.008333333333333186
    series = series * z - 0.16666666666666666
    return angle + angle * (z * series)


@inlined_kernel
def arc(square: Number) -> Number:
    """Return the arc sine of the root of a number from 0 to 1/2, in radians.

    The angle is halved first: asin(sqrt(a)) is twice the arc sine of the root of
    (1 - sqrt(1 - a)) / 2.
    """
    z = square / (2.0 * (1.0 + math.sqrt(1.0 - square)))
    series = 0.0176214081041715
    series = series * z + 0.0061025822798496596
    series = series * z + 0.012318435972677424
    series = series * z + 0.013867689393860091
    series = series * z + 0.017360569002383846
    series = series * z + 0.02237175960563748
    series = series * z + 0.03038195712646181
    series = series * z + 0.044642856908859094
    series = series * z + 0.07500000000220788
    series = series * z + 0.16666666666665855
    root = math.sqrt(z)
    return 2.0 * (root + root * (z * series))


@inlined_kernel
def short_way(difference: Number) -> Number:
    """Return a difference of longitudes (float64, units) by the short way round the world."""
    apart = abs(difference)
    return min(apart, np.float64(TURN) - apart)


@inlined_kernel
def haversine(lon: Number, lat: Number, other_lon: Number, other_lat: Number) -> Number:
    """Return the square of the sine of half the angle between two places (float64, units).

    Where latitudes nearly add up to a pole, their cosine is the sine of what is missing to it,
    which is an exact difference of whole units.
    """
    half_lat = sine((other_lat - lat) * (0.5 * RADIANS))
    half_lon = sine(short_way(other_lon - lon) * (0.5 * RADIANS))
    to_pole = sine((180.0 * UNITS - abs(other_lat + lat)) * (0.5 * RADIANS))
    across = half_lon * half_lon
    return (1.0 - across) * (half_lat * half_lat) + across * (to_pole * to_pole)


@kernel
def opposite_haversine(lon: Number, lat: Number, other_lon: Number, other_lat: Number) -> Number:
    """Return the same from a place to the point opposite to the other one: 1 minus `haversine`.

    It is precise where the two are nearly opposite.
    """
    return haversine(lon, lat, other_lon + 180.0 * UNITS - TURN * (other_lon > 0), -other_lat)


@kernel
def place_distance_m(lon: Number, lat: Number, other_lon: Number, other_lat: Number) -> Number:
    """Return the distance between two places (float64, units) on the sphere."""
    near = haversine(lon, lat, other_lon, other_lat)
    if near <= 0.5:
        return (2.0 * EARTH_RADIUS_M) * arc(near)
    far = opposite_haversine(lon, lat, other_lon, other_lat)
    return (2.0 * EARTH_RADIUS_M) * (0.5 * math.pi - arc(min(far, 0.5)))


@kernel
def meridian_distance_m(
    lon: Number, lat: Number, meridian: Number, south: Number, north: Number
) -> Number:
    """Return the distance from a place to the part of a meridian between two latitudes.

    It is that to one of the ends, or the perpendicular one where that meets the part.
    """
    nearest = min(
        place_distance_m(lon, lat, meridian, south), place_distance_m(lon, lat, meridian, north)
    )
    angle = short_way(meridian - lon) * RADIANS
    up, out = math.sin(lat * RADIANS), math.sin((90.0 * UNITS - abs(lat)) * RADIANS)
    along, across = out * math.cos(angle), out * math.sin(angle)
    foot = math.atan2(up, along)
    if south * RADIANS <= foot <= north * RADIANS:
        perpendicular = math.atan2(across, math.sqrt(up * up + along * along))
        nearest = min(nearest, EARTH_RADIUS_M * perpendicular)
    return nearest


@kernel
def box_distance_m(lon: Number, lat: Number, box: NDArray[np.int32]) -> Number:
    """Return the distance from a place to a box that does not cross the antimeridian."""
    west, south = np.float64(box[0]), np.float64(box[1])
    east, north = np.float64(box[2]), np.float64(box[3])
    if west == east and south == north:
        return place_distance_m(lon, lat, west, south)
    if west <= lon <= east:
        return max(0.0, south - lat, lat - north) * METERS_PER_UNIT
    return min(
        meridian_distance_m(lon, lat, west, south, north),
        meridian_distance_m(lon, lat, east, south, north),
    )


@kernel
def planar_distance_m(lon: Number, lat: Number, box: NDArray[np.int32]) -> Number:
    """Return the distance from a place to a box on a flat map, longitudes the short way round."""
    west, south = np.float64(box[0]), np.float64(box[1])
    east, north = np.float64(box[2]), np.float64(box[3])
    along = max(0.0, south - lat, lat - north)
    across = 0.0
    if lon < west or lon > east:
        across = min(short_way(west - lon), short_way(lon - east))
    return math.sqrt(across * across + along * along) * METERS_PER_UNIT
