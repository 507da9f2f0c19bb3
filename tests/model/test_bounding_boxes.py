"""Regions as bounding boxes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model import Circle, Point, Polygon, Rect, Region, region


@pytest.mark.parametrize(
    ("place", "bbox"),
    [
        (Rect(1, 2, 3, 4), (1, 2, 3, 4)),
        (Rect(10, -5, -10, 5), (10, -5, -10, 5)),
        (Rect(-180, -90, 180, 90), (-180, -90, 180, 90)),
        (Point(7, 8), (7, 8, 7, 8)),
        (Polygon([[(170, 0), (190, 0), (190, 9), (180, 5)]]), (170, 0, -170, 9)),
        (Polygon([[[(0, 0), (1, 0), (1, 1)]], [[(9, 3), (9, 4), (8, 4)]]]), (0, 0, 9, 4)),
    ],
)
def test_bbox(place: Region, bbox: tuple[float, ...]) -> None:
    assert place.to_bbox() == bbox


def test_a_circle_over_the_antimeridian() -> None:
    west, _, east, _ = Circle(180, 0, 1000.0).to_bbox()
    assert 179.99 < west < 180
    assert -180 < east < -179.99


@given(st.tuples(*[st.integers(-17, 17)] * 2, *[st.integers(-8, 8)] * 2))
def test_a_rectangle_comes_back(sides: tuple[int, int, int, int]) -> None:
    west, east, south, north = (10 * side for side in sides)
    given_one = Rect(west, min(south, north), east, max(south, north))
    assert region(given_one.to_bbox()) == given_one
