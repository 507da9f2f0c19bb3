"""Distances and areas of ranked subscriptions, against other formulas with more digits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import EARTH_RADIUS_M, UNITS, WORLD, Shapes
from nearcast.compiled.areas import outline_area
from nearcast.compiled.distances import (
    arc,
    box_distance_m,
    place_distance_m,
    planar_distance_m,
    sine,
)
from nearcast.compiled.jit import JIT
from nearcast.indexes.outlines import outlines_of
from nearcast.model import Circle, Polygon

EXAMPLES = 500 if JIT else 60
longitudes = st.sampled_from([-180, 180, 0, 90, 179]).map(lambda d: d * UNITS) | st.integers(
    -180 * UNITS, 180 * UNITS
)
latitudes = st.sampled_from([-90, 90, 0, 45]).map(lambda d: d * UNITS) | st.integers(
    -90 * UNITS, 90 * UNITS
)
steps = st.integers(-100, 100)


def exact_m(lon: int, lat: int, other_lon: int, other_lat: int) -> float:
    """Return a distance by unit vectors in extended precision."""
    radian = np.longdouble("3.14159265358979323846264338327950288") / 180

    def vector(x: int, y: int) -> np.ndarray:
        a, b = np.longdouble(x) / UNITS * radian, np.longdouble(y) / UNITS * radian
        return np.array([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)])

    here, there = vector(lon, lat), vector(other_lon, other_lat)
    apart = np.sqrt(((here - there) ** 2).sum())
    opposite = np.sqrt(((here + there) ** 2).sum())
    return float(2 * np.longdouble(EARTH_RADIUS_M) * np.arctan2(apart, opposite))


@settings(max_examples=examples(EXAMPLES))
@given(lon=longitudes, lat=latitudes, other_lon=longitudes, other_lat=latitudes)
def test_distances_have_the_digits_of_a_double(
    lon: int, lat: int, other_lon: int, other_lat: int
) -> None:
    found = place_distance_m(float(lon), float(lat), float(other_lon), float(other_lat))
    expected = exact_m(lon, lat, other_lon, other_lat)
    assert found == pytest.approx(expected, rel=3e-15, abs=2e-12)
    assert found == place_distance_m(float(other_lon), float(other_lat), float(lon), float(lat))


@settings(max_examples=examples(EXAMPLES))
@given(lon=longitudes, lat=latitudes, east=steps, north=steps, opposite=st.booleans())
def test_distances_of_close_and_of_opposite_places(
    lon: int, lat: int, east: int, north: int, opposite: bool
) -> None:
    there = max(-90 * UNITS, min(90 * UNITS, lat + north))
    other = (lon + east + 540 * UNITS) % (360 * UNITS) - 180 * UNITS
    if opposite:
        there, other = -there, (other + 360 * UNITS) % (360 * UNITS) - 180 * UNITS
    found = place_distance_m(float(lon), float(lat), float(other), float(there))
    assert found == pytest.approx(exact_m(lon, lat, other, there), rel=3e-15, abs=2e-12)


def test_sines_and_arcs_are_those_of_the_c_library() -> None:
    angles = np.linspace(-np.pi / 2, np.pi / 2, 2001)
    assert np.abs([sine(a) for a in angles] - np.sin(angles)).max() < 3e-16
    squares = np.linspace(0, 0.5, 2001)
    assert np.abs([arc(s) for s in squares] - np.arcsin(np.sqrt(squares))).max() < 3e-16


@settings(max_examples=examples(EXAMPLES))
@given(lon=longitudes, lat=latitudes, sides=st.tuples(longitudes, latitudes, longitudes, latitudes))
def test_no_place_of_a_box_is_nearer_than_the_box(
    lon: int, lat: int, sides: tuple[int, int, int, int]
) -> None:
    west, east = sorted(sides[::2])
    south, north = sorted(sides[1::2])
    box = np.array([west, south, east, north], np.int32)
    nearest = box_distance_m(float(lon), float(lat), box)
    x = np.linspace(west, east, 9).astype(np.int64)
    y = np.linspace(south, north, 9).astype(np.int64)
    places = [(a, b) for a in {*x.tolist(), min(max(lon, west), east)} for b in y.tolist()]
    distances = [place_distance_m(float(lon), float(lat), float(a), float(b)) for a, b in places]
    assert nearest <= min(distances) * (1 + 1e-14) + 1e-9
    inside = west <= lon <= east and south <= lat <= north
    assert (nearest == 0.0) == inside or nearest < 1e-8
    if inside:
        assert planar_distance_m(float(lon), float(lat), box) == 0.0


def shapes_of(*regions: Circle | Polygon) -> Shapes:
    rings = [region.rings() or [] for region in regions]
    flat = [ring for each in rings for ring in each]
    return Shapes(
        np.array([getattr(region, "radius_m", -1.0) for region in regions]),
        np.cumsum([0, *map(len, rings)]),
        np.cumsum([0, *map(len, flat)]),
        np.concatenate(flat),
    )


REGIONS: list[Circle | Polygon] = [
    Circle(11.5, 48.1, 0.5),
    Circle(11.5, 48.1, 250_000.0),
    Circle(179.9, -60, 900_000.0),
    Circle(180, 30, 1.0),
    Circle(20, 89, 400_000.0),
    Polygon([[(0, 0), (4, 0), (1, 3)], [(1, 0.5), (2, 0.5), (1.5, 1)]]),
    Polygon([[(170, 0), (190, 2), (180, 9)]]),
]


@pytest.mark.parametrize("region", REGIONS, ids=repr)
def test_areas_of_tiles_add_up_to_the_whole(region: Circle | Polygon) -> None:
    outlines = outlines_of(shapes_of(region))
    world = np.array(WORLD, np.int32)
    whole = outline_area(outlines, 0, world)
    drawn = shapely.from_wkb(region.to_wkb())
    assert whole == pytest.approx(drawn.area * UNITS**2, rel=2e-6)
    boxes = region.boxes()
    middle = [(box[0] + box[2]) // 2 for box in boxes]
    cuts = sorted({WORLD[0], WORLD[2], *middle})
    half = sum(box[1] + box[3] for box in boxes) // (2 * len(boxes))
    total = sum(
        outline_area(outlines, 0, np.array([west, south, east, north], np.int32))
        for west, east in pairwise(cuts)
        for south, north in ((WORLD[1], half), (half, WORLD[3]))
    )
    assert total == pytest.approx(whole, rel=1e-12)


def test_a_hole_has_no_area() -> None:
    outlines = outlines_of(shapes_of(REGIONS[5]))
    inside = np.array([14_900_000, 5_100_000, 15_100_000, 6_000_000], np.int32)
    assert outline_area(outlines, 0, inside) == 0.0
    assert outline_area(outlines, 0, np.array([0, -9, 9, -1], np.int32)) == 0.0
