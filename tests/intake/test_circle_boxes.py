"""The boxes of many circles are those of each, and contain every place within the radius."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import EARTH_RADIUS_M, UNITS, WORLD
from nearcast.intake.places import split_meridian, unite_meridian
from nearcast.model import Rect
from nearcast.model.circles import cap_boxes, circle_boxes

lon = st.sampled_from([0, WORLD[0], WORLD[2], WORLD[2] - 1]) | st.integers(WORLD[0], WORLD[2])
lat = st.sampled_from([0, WORLD[1], WORLD[3], WORLD[3] - 5]) | st.integers(WORLD[1], WORLD[3])
radius_m = st.sampled_from([0.0, 1.0, 500.0, 1e5, 1e7, 2e7, 3e7, 1e300]) | st.floats(0, 2.1e7)
circles = st.lists(st.tuples(lon, lat, radius_m), min_size=1, max_size=6)


@given(circles)
@settings(max_examples=examples(300), deadline=None)
def test_boxes_are_those_of_single_circles(values: list[tuple[int, int, float]]) -> None:
    centre = np.array([value[:2] for value in values], np.int32)
    circle, box = circle_boxes(centre, np.array([value[2] for value in values]))
    for number, value in enumerate(values):
        expected = np.array(cap_boxes(*value))
        found = box[circle == number]
        assert found.shape == expected.shape
        # Sines of arrays and of numbers may differ in the last bit, and then in the last unit.
        assert np.abs(found - expected).max() <= 1


@given(lon, lat, radius_m, st.floats(0, 2 * math.pi), st.floats(0, 1))
@settings(max_examples=examples(300), deadline=None)
def test_boxes_contain_the_circle(
    lon: int, lat: int, radius_m: float, bearing: float, part: float
) -> None:
    _, boxes = circle_boxes(np.array([[lon, lat]], np.int32), np.array([radius_m]))
    angle = min(radius_m * part, math.pi * EARTH_RADIUS_M) / EARTH_RADIUS_M
    phi = math.radians(lat / UNITS)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(bearing)
    there = math.asin(max(-1.0, min(1.0, sine)))
    turn = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sine
    )
    x = round((math.degrees(turn) + lon / UNITS) * UNITS)
    x = (x - WORLD[0]) % (360 * UNITS) + WORLD[0]
    y = round(math.degrees(there) * UNITS)
    inside = [
        box[0] - 1 <= x <= box[2] + 1 and box[1] - 1 <= y <= box[3] + 1 for box in boxes.tolist()
    ]
    near_pole = abs(y) > 89.999 * UNITS  # where a longitude says little
    assert any(inside) or near_pole or abs(x) >= WORLD[2] - 1


edges = st.sampled_from([-180.0, 180.0, 170.0, -170.0, 0.0])


@given(st.lists(st.tuples(edges, edges), min_size=1, max_size=5))
def test_boxes_are_cut_as_rectangles_are(pairs: list[tuple[float, float]]) -> None:
    box = np.array([[w * UNITS, 0, e * UNITS, UNITS] for w, e in pairs], np.int64).astype(np.int32)
    row, pieces = split_meridian(box)
    for number, (west, east) in enumerate(pairs):
        found = [tuple(piece) for piece in pieces[row == number].tolist()]
        assert found == Rect(west, 0, east, 1).boxes()


def test_uniting_leaves_other_boxes_alone() -> None:
    world = np.array([WORLD, (0, 0, 5, 5), (WORLD[2] - 5, 0, WORLD[0] + 5, 0)], np.int32)
    assert unite_meridian(world) is world
