"""Polygons across the antimeridian: every place, however close to the border, is on its side."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast import indexes
from nearcast.columns import UNITS, WORLD, Messages, Subscriptions
from nearcast.errors import RegionError
from nearcast.intake import messages_from, subscriptions_from
from nearcast.intake.places import unite_meridian
from nearcast.model import Message, Polygon, Rect, Subscription
from nearcast.model.antimeridian import _hull_below
from nearcast.text import Vocabulary

TURN = 360 * UNITS

Place = tuple[int, int]


@st.composite
def stars(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Return a ring with corners at any unit, from a few centimeters to half of the world wide."""
    count = draw(st.integers(3, 6))
    size = draw(st.sampled_from([1e-6, 0.01, 5.0, 40.0, 80.0, 170.0]))
    lon, lat = draw(st.floats(180 - size / 2, 180 + size / 2)), draw(st.floats(-20, 20))
    reach = st.floats(0.2, 1.0)
    ring = []
    for number in range(count):
        angle = 2 * math.pi * (number + draw(st.floats(0, 0.5))) / count
        width, height = size * draw(reach), min(size, 60) * draw(reach)
        ring.append((lon + width * math.cos(angle), lat + height * math.sin(angle)))
    return ring


def in_units(ring: list[tuple[float, float]]) -> list[Place]:
    places = [(round(lon * UNITS), round(lat * UNITS)) for lon, lat in ring]
    return [*places, places[0]]


def is_inside(ring: list[Place], x: int, y: int) -> bool:
    """Whether a place is inside a ring or on its border, with exact fractions."""
    odd = False
    for (ax, ay), (bx, by) in pairwise(ring):
        cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        if cross == 0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
            return True
        if (ay > y) != (by > y) and x < Fraction((bx - ax) * (y - ay), by - ay) + ax:
            odd = not odd
    return odd


def near_border(ring: list[Place], edge: int, share: float, step: int) -> Place:
    """Return a place within two units of an edge; ``share`` tells where, negative at 180."""
    (ax, ay), (bx, by) = ring[edge % (len(ring) - 1)], ring[edge % (len(ring) - 1) + 1]
    x = round(ax + share * (bx - ax))
    if share < 0 and min(ax, bx) <= WORLD[2] <= max(ax, bx):
        x = WORLD[2] + round(3 * share)
    if ax == bx:
        return ax, round((ay + by) / 2) + step
    return x, math.floor(Fraction((by - ay) * (x - ax), bx - ax) + ay) + step


def polygon_of(ring: list[tuple[float, float]]) -> Polygon:
    try:
        return Polygon([ring])
    except RegionError:
        assume(False)
        raise


def matched(subscriptions: Subscriptions, messages: Messages) -> list[set[tuple[int, int]]]:
    """Return what the scan finds, and what an index with the compiled kernels finds."""
    scan = indexes.create("scan").build(subscriptions.clauses)
    compiled = indexes.create("spatial-first").build_small(subscriptions.clauses)
    return [scan.match(messages).pairs(), compiled.match(messages).pairs()]


borders = st.lists(
    st.tuples(st.integers(0, 5), st.floats(-1, 1), st.integers(-1, 2)), min_size=1, max_size=12
)


@settings(max_examples=examples(150), deadline=None)
@given(stars(), borders)
def test_every_index_agrees_with_the_uncut_ring(
    ring: list[tuple[float, float]], drawn: list[tuple[int, float, int]]
) -> None:
    uncut = in_units(ring)
    places = [near_border(uncut, *border) for border in drawn]
    places = [(x, y) for x, y in places if abs(y) <= WORLD[3]]
    assume(places)
    subscriptions = subscriptions_from([Subscription(1, polygon_of(ring))], Vocabulary())
    messages = messages_from(
        [
            Message(n, (((x - WORLD[0]) % TURN + WORLD[0]) / UNITS, y / UNITS), "")
            for n, (x, y) in enumerate(places)
        ],
        now_us=0,
    ).number(Vocabulary())
    expected = {
        (n, 0)
        for n, (x, y) in enumerate(places)
        if any(is_inside(uncut, x + turn * TURN, y) for turn in (-1, 0, 1))
    }
    for matches in matched(subscriptions, messages):
        assert matches == expected


@settings(max_examples=examples(100), deadline=None)
@given(stars(), borders, st.integers(0, 10), st.integers(0, 10))
def test_messages_with_a_range_agree_with_the_uncut_ring(
    ring: list[tuple[float, float]], drawn: list[tuple[int, float, int]], width: int, height: int
) -> None:
    uncut = in_units(ring)
    assume(max(x for x, _ in uncut) - min(x for x, _ in uncut) < 34 * UNITS)
    shape = shapely.Polygon(uncut)
    corners = [near_border(uncut, *border) for border in drawn]
    boxes = [(x, y, x + width, y + height) for x, y in corners if abs(y) <= WORLD[3] - height]
    assume(boxes)
    subscriptions = subscriptions_from([Subscription(1, polygon_of(ring))], Vocabulary())
    wrapped = [
        [(x - WORLD[0]) % TURN + WORLD[0] if i % 2 == 0 else x for i, x in enumerate(box)]
        for box in boxes
    ]
    messages = Messages.of([[] for _ in boxes], unite_meridian(np.array(wrapped, np.int32)))
    expected = {
        (n, 0)
        for n, box in enumerate(boxes)
        if shapely.intersects(shape, shapely.MultiPoint([box[:2], box[2:]]).envelope)
    }
    for matches in matched(subscriptions, messages):
        assert matches == expected


@settings(max_examples=examples(100), deadline=None)
@given(stars())
def test_polygons_come_back_from_their_rings_and_formats(ring: list[tuple[float, float]]) -> None:
    polygon = polygon_of(ring)
    rings = polygon.rings()
    if rings is not None:
        assert Polygon.from_rings(rings) == polygon
    assert Polygon(polygon.coordinates) == polygon
    assert Polygon(polygon.to_geojson()) == polygon
    assert all(-180 <= min(lon for lon, _ in part[0]) < 180 for part in polygon.coordinates)


def test_holes_and_parts_come_back_from_their_rings() -> None:
    shell, hole = [(100, -40), (260, -41), (255, 43), (101, 42)], [(170, 0), (180, 9), (185, 1)]
    far_hole = [(230, 0), (240, 1), (240, 9)]
    island = [(0, 0), (9, 0), (0, 9)]
    polygon = Polygon([[shell, hole, far_hole], [island]])
    rings = polygon.rings()
    assert rings is not None
    assert len(rings) == 2 * 3 + 1
    assert Polygon.from_rings(rings) == polygon
    assert [len(part) for part in polygon.coordinates] == [3, 1]


@given(st.integers(-90, 90), st.integers(1, 70), st.data())
def test_the_hull_below_a_line_has_exactly_the_places_below(
    rise: int, run: int, data: st.DataObject
) -> None:
    width = data.draw(st.integers(1, run))
    corners = [(0, 0), *_hull_below(rise, run, width)]
    for (ax, ay), (bx, by) in pairwise(corners):
        for x in range(ax, bx + 1):
            hull = Fraction((by - ay) * (x - ax), bx - ax) + ay
            highest = rise * x // run
            assert highest <= hull <= Fraction(rise * x, run)
    assert corners[-1][0] == width


def test_a_part_that_overlaps_another_one_after_wrapping_is_united_with_it() -> None:
    east = [(175, 0), (190, 1), (190, 9), (175, 10)]
    west = [(-175, 0), (-165, 0), (-165, 10), (-175, 10)]
    polygon = Polygon([[east], [west]])
    message = Messages.of([[]], [[-172 * UNITS, 5 * UNITS]])
    subscriptions = subscriptions_from([Subscription(1, polygon)], Vocabulary())
    assert matched(subscriptions, message) == [{(0, 0)}, {(0, 0)}]


@pytest.mark.parametrize("shift", [-360, 0])
def test_boxes_of_the_two_sides_are_tight(shift: int) -> None:
    ring: Any = [(170 + shift, 0), (190 + shift, 0), (190 + shift, 10)]
    assert Polygon([ring]).boxes() == [
        (WORLD[0], 0, -170 * UNITS, 10 * UNITS),
        (170 * UNITS, 0, WORLD[2], 5 * UNITS),
    ]
    assert Polygon([ring]).to_bbox() == (170, 0, -170, 10)
    square: Any = [(170, 0), (190, 0), (190, 10), (170, 10)]
    assert set(Polygon([square]).boxes()) == set(Rect(170, 0, -170, 10).boxes())


def test_copies_of_a_ring_fit_into_32_bits() -> None:
    polygon = Polygon([[(-179, -10), (180.5, -11), (179, 12)]])
    rings = polygon.rings()
    assert rings is not None
    assert all(ring.dtype == np.int32 for ring in rings)
    assert Polygon.from_rings(rings) == polygon
