"""Regions: boxes and rings, the antimeridian and the poles, and what is refused."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.columns import UNITS, WORLD
from nearcast.errors import RegionError
from nearcast.model import Circle, Message, Point, Polygon, Rect, Region, region

RADIUS_M = 6_371_008.8
unhurried = settings(deadline=None)

lons = st.floats(-180, 180) | st.sampled_from([-180.0, -179.9999999, 0.0, 179.9999999, 180.0])
lats = st.floats(-90, 90) | st.sampled_from([-90.0, -89.9999999, 0.0, 89.9999999, 90.0])


def holds(boxes: list[tuple[int, int, int, int]], lon: int, lat: int) -> bool:
    """Whether a box holds the place, where 180 and -180 are one meridian."""
    same = {lon, -lon} if abs(lon) == WORLD[2] else {lon}
    return any(w <= x <= e and s <= lat <= n for w, s, e, n in boxes for x in same)


def well_formed(boxes: list[tuple[int, int, int, int]]) -> bool:
    return all(
        WORLD[0] <= w <= e <= WORLD[2] and WORLD[1] <= s <= n <= WORLD[3] for w, s, e, n in boxes
    )


def distance_m(lon: int, lat: int, other_lon: int, other_lat: int) -> float:
    a, b, c, d = (math.radians(v / UNITS) for v in (lon, lat, other_lon, other_lat))
    h = math.sin((d - b) / 2) ** 2 + math.cos(b) * math.cos(d) * math.sin((c - a) / 2) ** 2
    return 2 * RADIUS_M * math.asin(min(1.0, math.sqrt(h)))


class TestRect:
    @unhurried
    @given(lons, lats, lons, lats)
    def test_boxes_are_the_rounded_bounds(self, a: float, b: float, c: float, d: float) -> None:
        south, north = sorted([b, d])
        rect = Rect(a, south, c, north)
        boxes = rect.boxes()
        west, east = (int(np.rint(v * 1e7)) for v in (a, c))
        assert well_formed(boxes)
        assert holds(boxes, west, boxes[0][1])
        assert holds(boxes, east, boxes[0][3])
        if west <= east:
            assert boxes == [(west, int(np.rint(south * 1e7)), east, int(np.rint(north * 1e7)))]
        else:
            assert not holds(boxes, (west + east) // 2, boxes[0][1]) or west - east <= 1

    def test_rounds_once_and_shows_what_it_keeps(self) -> None:
        assert Rect(0.00000004, 0, 1, 1) == Rect(0, 0, 1, 1)
        numbers: list[Any] = [13, 0.0, np.float32(14.5), np.int64(1)]
        assert Rect(*numbers) == Rect(13.0, 0.0, 14.5, 1.0)
        assert repr(Rect(0, 0, 1, 1)) == "Rect(west=0.0, south=0.0, east=1.0, north=1.0)"

    def test_crossing_the_antimeridian(self) -> None:
        assert Rect(170, 1, -170, 2).boxes() == [
            (1_700_000_000, 10_000_000, WORLD[2], 20_000_000),
            (WORLD[0], 10_000_000, -1_700_000_000, 20_000_000),
        ]
        assert Rect(180, 1, -170, 2).boxes() == [(WORLD[0], UNITS, -170 * UNITS, 2 * UNITS)]
        assert Rect(170, 1, -180, 2).boxes() == [(170 * UNITS, UNITS, WORLD[2], 2 * UNITS)]
        assert Rect(180, 1, -180, 2).boxes() == [(WORLD[2], UNITS, WORLD[2], 2 * UNITS)]

    @pytest.mark.parametrize(
        ("bounds", "field"),
        [
            ((-180.1, 0, 1, 1), "west"),
            ((0, -91, 1, 1), "south"),
            ((0, 0, math.inf, 1), "east"),
            ((0, 0, 1, math.nan), "north"),
            ((0, 2, 1, 1), "south"),
            (("0", 0, 1, 1), "west"),
            ((True, 0, 1, 1), "west"),
            ((None, 0, 1, 1), "west"),
            ((10**400, 0, 1, 1), "west"),
        ],
    )
    def test_names_the_field_it_refuses(self, bounds: tuple[Any, ...], field: str) -> None:
        with pytest.raises(RegionError) as caught:
            Rect(*bounds)
        assert caught.value.field == field


class TestCircle:
    @settings(max_examples=examples(300), deadline=None)
    @given(lons, lats, st.floats(0, 2.1e7) | st.sampled_from([0.0, 0.005, 1.0]), st.data())
    def test_boxes_contain_every_place(
        self, lon: float, lat: float, radius_m: float, data: st.DataObject
    ) -> None:
        circle = Circle(lon, lat, radius_m)
        boxes = circle.boxes()
        assert well_formed(boxes)
        ((x, y),) = circle.rings()[0].tolist()
        bearing = data.draw(st.floats(0, 2 * math.pi) | st.sampled_from([0.0, math.pi]))
        for reach in (radius_m + 1e-3, radius_m * 0.999999):
            place = destination(circle.lon, circle.lat, reach, bearing)
            for dx in (-1, 0, 1):
                for dy in (-1, 0, 1):
                    place_x = (place[0] + dx - WORLD[0]) % (360 * UNITS) + WORLD[0]
                    place_y = min(max(place[1] + dy, WORLD[1]), WORLD[3])
                    if distance_m(x, y, place_x, place_y) <= radius_m + 1e-3:
                        assert holds(boxes, place_x, place_y), (circle, boxes, place_x, place_y)

    @settings(max_examples=examples(200), deadline=None)
    @given(lons, lats, st.floats(0, 3e6), lons, lats)
    def test_boxes_contain_any_place_within_the_radius(
        self, lon: float, lat: float, radius_m: float, other_lon: float, other_lat: float
    ) -> None:
        circle, other = Circle(lon, lat, radius_m), Point(other_lon, other_lat)
        ((x, y),) = circle.rings()[0].tolist()
        far = distance_m(x, y, *other.boxes()[0][:2])
        circle = replace(circle, radius_m=max(radius_m, far))
        assert holds(circle.boxes(), *other.boxes()[0][:2])

    @pytest.mark.parametrize("colatitude", [1, 2, 5, 1000])
    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999, 0.9999999, 1.0, 1.0001])
    def test_beside_the_pole(self, colatitude: int, share: float) -> None:
        """Every place of a fine lattice near the pole, by the plain formula."""
        lat = WORLD[3] - colatitude
        radius_m = share * distance_m(0, lat, 0, WORLD[3])
        boxes = Circle(0, lat / UNITS, radius_m).boxes()
        for y in range(WORLD[3] - 2 * colatitude, WORLD[3] + 1, max(1, colatitude // 20)):
            for x in range(WORLD[0], WORLD[2] + 1, 5 * UNITS):
                if distance_m(0, lat, x, y) <= radius_m + 1e-3:
                    assert holds(boxes, x, y), (x, y)

    def test_boxes_are_tight(self) -> None:
        ((west, south, east, north),) = Circle(10, 60, 10_000).boxes()
        degrees = math.degrees(10_000 / RADIUS_M)
        assert (north - south) / UNITS == pytest.approx(2 * degrees, rel=1e-6)
        assert (east - west) / UNITS == pytest.approx(4 * degrees, rel=1e-4)

    def test_over_a_pole_and_around_the_world(self) -> None:
        ((west, south, east, north),) = Circle(10, 89, 200_000).boxes()
        assert (west, east, north) == (WORLD[0], WORLD[2], WORLD[3])
        assert 87 * UNITS < south < 89 * UNITS
        assert Circle(10, 20, 3e7).boxes() == [WORLD]
        assert len(Circle(180, 0, 10).boxes()) == 2
        assert len(Circle(-179.99, 10, 10_000).boxes()) == 2

    @pytest.mark.parametrize("radius_m", [-1, math.nan, math.inf, "5", None, True, 10**400])
    def test_refuses_a_radius(self, radius_m: Any) -> None:
        with pytest.raises(RegionError, match="radius_m"):
            Circle(0, 0, radius_m)

    @settings(max_examples=examples(150), deadline=None)
    @given(lons, lats, st.floats(10, 2.001e7))
    @example(0.0, 0.0, math.pi / 2 * RADIUS_M + 1)
    @example(180.0, -90.0, 1e6)
    def test_outline_lies_on_the_circle(self, lon: float, lat: float, radius_m: float) -> None:
        circle = Circle(lon, lat, radius_m)
        drawn = circle.to_geojson()
        assert drawn["type"] in {"Polygon", "MultiPolygon"}
        geometry = shapely.from_wkb(circle.to_wkb())
        west, south, east, north = geometry.bounds
        assert west >= -180
        assert south >= -90
        assert east <= 180
        assert north <= 90
        for x, y in shapely.get_coordinates(geometry).tolist():
            on_seam = (
                abs(abs(x) - 180) < 1e-6 or abs(abs(y) - 90) < 1e-6 or abs_turn(x, lon) > 179.9
            )
            far = distance_m(*(round(v * UNITS) for v in (circle.lon, circle.lat, x, y)))
            assert on_seam or far == pytest.approx(radius_m, abs=0.5)

    @pytest.mark.parametrize(
        ("circle", "inside", "outside"),
        [
            (Circle(10, 50, 1e5), [(10, 50), (11, 50)], [(13, 50), (10, 52)]),
            (Circle(179.9, 0, 1e5), [(179.9, 0), (-179.8, 0)], [(178, 0), (-178, 0)]),
            (Circle(100, 89, 5e5), [(-80, 89), (0, 90), (100, 86)], [(-80, 86)]),
            (Circle(-100, -89, 5e5), [(80, -89), (0, -90)], [(80, -86)]),
            (Circle(20, 10, 1.9e7), [(20, 10), (0, 90), (0, -90), (170, 5)], [(-160, -10)]),
            (Circle(0, 10, 1.9e7), [(0, 0), (0, 90), (0, -90)], [(180, -10), (-179, -10)]),
        ],
    )
    def test_outline_holds_the_circle(
        self, circle: Circle, inside: list[tuple[float, float]], outside: list[tuple[float, float]]
    ) -> None:
        geometry = shapely.from_wkt(circle.to_wkt())
        assert shapely.is_valid(geometry)
        assert all(shapely.intersects_xy(geometry, *place) for place in inside)
        assert not any(shapely.intersects_xy(geometry, *place) for place in outside)

    def test_the_smallest_and_the_largest_outline(self) -> None:
        assert Circle(1, 2, 0).to_wkt() == "POINT (1 2)"
        assert shapely.from_wkb(Circle(1, 2, 3e7).to_wkb()).bounds == (-180, -90, 180, 90)
        assert len(Circle(1, 2, 50).to_geojson()["coordinates"][0]) == 65


def abs_turn(lon: float, other: float) -> float:
    return abs((lon - other + 180) % 360 - 180)


def destination(lon: float, lat: float, reach_m: float, bearing: float) -> tuple[int, int]:
    angle, phi = reach_m / RADIUS_M, math.radians(lat)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(bearing)
    sine = min(1.0, max(-1.0, sine))
    turn = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sine
    )
    return round((lon + math.degrees(turn)) * UNITS), round(math.degrees(math.asin(sine)) * UNITS)


# Polygons on a coarse lattice, so that borders and corners are hit often.


@st.composite
def simple_rings(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Return a star around a centre: corners by angle, so that the ring is simple."""
    count = draw(st.integers(3, 7))
    lon, lat = draw(st.integers(-178, 178)), draw(st.integers(-50, 50))
    reaches = draw(st.lists(st.integers(2, 30), min_size=count, max_size=count))
    angles = [2 * math.pi * i / count for i in range(count)]
    return [
        (round(lon + r * math.cos(a), 3), round(lat + r * math.sin(a), 3))
        for r, a in zip(reaches, angles, strict=True)
    ]


def inside_rings(rings: list[Any], x: int, y: int) -> bool:
    """Even-odd, borders inside, with exact fractions."""
    odd = False
    for ring in rings:
        points = ring.tolist()
        for (ax, ay), (bx, by) in itertools.pairwise(points):
            cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
            between = min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by)
            if cross == 0 and between:
                return True
            if (ay > y) != (by > y) and x < Fraction((bx - ax) * (y - ay), by - ay) + ax:
                odd = not odd
    return odd


def covers(polygon: Polygon, x: int, y: int) -> bool:
    if not holds(polygon.boxes(), x, y):
        return False
    rings = polygon.rings()
    same = {x, -x} if abs(x) == WORLD[2] else {x}
    return rings is None or any(inside_rings(rings, s, y) for s in same)


class TestPolygon:
    @settings(max_examples=examples(150), deadline=None)
    @given(simple_rings(), st.integers(-200, 200), st.integers(-80, 80))
    def test_agrees_with_the_uncut_ring(
        self, ring: list[tuple[float, float]], lon: int, lat: int
    ) -> None:
        polygon = Polygon([ring])
        assert well_formed(polygon.boxes())
        exact = np.rint(np.array([*ring, ring[0]]) * UNITS).astype(np.int64)
        expected = any(
            inside_rings([exact], (lon + turn) * UNITS, lat * UNITS) for turn in (-360, 0, 360)
        )
        x = (lon + 180) % 360 - 180
        assert covers(polygon, x * UNITS, lat * UNITS) == expected

    @unhurried
    @given(simple_rings())
    def test_corners_are_inside_and_rings_are_closed(self, ring: list[tuple[float, float]]) -> None:
        polygon = Polygon([ring])
        rings = polygon.rings()
        assert rings is None or all((r[0] == r[-1]).all() and r.dtype == np.int32 for r in rings)
        for lon, lat in ring:
            x, y = round(lon * UNITS), round(lat * UNITS)
            assert covers(polygon, (x - WORLD[0]) % (360 * UNITS) + WORLD[0], y)

    @unhurried
    @given(simple_rings())
    def test_round_trips(self, ring: list[tuple[float, float]]) -> None:
        polygon = Polygon([ring])
        assert region(polygon.to_geojson()) == polygon
        assert region(polygon.to_wkt()) == polygon
        assert region(polygon.to_wkb()) == polygon
        assert Polygon(polygon.coordinates) == polygon
        assert pickle.loads(pickle.dumps(polygon)) == polygon
        assert hash(Polygon(polygon.to_geojson())) == hash(polygon)

    def test_holes_and_parts(self) -> None:
        shell = [(0, 0), (10, 0), (10, 10), (0, 10)]
        hole = [(2, 2), (4, 2), (4, 4), (2, 4)]
        island = [(2.5, 2.5), (3.5, 2.5), (3.5, 3.5), (2.5, 3.5)]
        polygon = Polygon([[shell, hole], [island]])
        assert len(polygon.rings() or []) == 3
        assert polygon.boxes() == [(0, 0, 10 * UNITS, 10 * UNITS)]
        for lon, lat, expected in [(1, 1, True), (2.2, 2.2, False), (2, 3, True), (3, 3, True)]:
            assert covers(polygon, round(lon * UNITS), round(lat * UNITS)) == expected

    def test_a_rectangle_is_its_box(self) -> None:
        ring = [(0, 0), (5, 0), (10, 0), (10, 10), (0, 10), (0, 0)]
        assert Polygon([ring]).rings() is None
        assert Polygon([ring]).boxes() == Rect(0, 0, 10, 10).boxes()
        assert Polygon([ring[:3] + ring[4:]]).rings() is not None
        beveled = [(0, 0), (9, 0), (10, 1), (10, 10), (0, 10)]
        assert Polygon([beveled]).rings() is not None

    @pytest.mark.parametrize("shift", [-360, 0])
    def test_past_the_antimeridian(self, shift: int) -> None:
        ring = [(170 + shift, 0), (190 + shift, 0), (190 + shift, 10), (170 + shift, 10)]
        polygon = Polygon([ring])
        assert set(polygon.boxes()) == set(Rect(170, 0, -170, 10).boxes())
        assert polygon.rings() is None
        triangle = Polygon([[(170 + shift, 0), (190 + shift, 0), (180 + shift, 10)]])
        assert len(triangle.boxes()) == 2
        assert covers(triangle, -175 * UNITS, 5 * UNITS)
        assert not covers(triangle, -174 * UNITS, 5 * UNITS)

    def test_all_around_the_world(self) -> None:
        ring = [(170, 0), (530, 0), (530, 10), (170, 10)]
        assert Polygon([ring]).boxes() == [(WORLD[0], 0, WORLD[2], 10 * UNITS)]

    def test_parts_that_meet_after_wrapping_become_one(self) -> None:
        square = np.array([(0, 0), (10, 0), (10, 10), (0, 10)])
        east, west = np.array([185, 0]), np.array([-170, 0])
        polygon = Polygon([[square + east], [square + west]])
        assert polygon.boxes() == [(-175 * UNITS, 0, -160 * UNITS, 10 * UNITS)]

    def test_takes_shapely(self) -> None:
        assert Polygon(shapely.box(0, 0, 1, 1)).boxes() == Rect(0, 0, 1, 1).boxes()
        assert region(shapely.Point(1, 2)) == Point(1, 2)
        far = shapely.set_srid(shapely.box(0, 0, 1, 1), 3857)
        with pytest.raises(RegionError, match="4326"):
            Polygon(far)

    def test_rounding_that_breaks_a_ring_is_mended(self) -> None:
        ring = [(0, 0), (1, 0), (1, 1), (0.50000002, 0.00000002), (0.49999998, 0.00000002), (0, 1)]
        polygon = Polygon([ring])
        assert region(polygon.to_geojson()) == polygon
        assert covers(polygon, UNITS, UNITS)

    @pytest.mark.parametrize(
        "other",
        [
            [(2, 0), (4, 0), (4, 2), (2, 2)],
            [(2, 0), (4, 0), (4, 1), (2, 1.3333333333)],
            [(1, 1), (3, 1), (3, 3), (1, 3)],
            [(0.5, 0.5), (1, 0.5), (1, 1)],
            [(0, 0), (2, 0), (2, 2), (0, 2)],
        ],
        ids=["edge", "part of an edge", "overlap", "inside", "same"],
    )
    def test_parts_that_touch_or_overlap_are_united(self, other: Any) -> None:
        one = [(0, 0), (2, 0), (2, 2), (0, 2)]
        polygon = Polygon([[one], [other]])
        whole = shapely.union(shapely.Polygon(one), shapely.Polygon(other))
        drawn = shapely.geometry.shape(polygon.to_geojson())
        assert shapely.symmetric_difference(drawn, whole).area < 1e-6
        assert len(polygon.coordinates) == 1
        assert region(polygon.to_geojson()) == polygon
        assert region(shapely.MultiPolygon([[one, []], [other, []]])) == polygon
        for lon, lat in one + other:
            assert covers(polygon, round(lon * UNITS), round(lat * UNITS))
        east = [[(lon + 179, lat) for lon, lat in ring] for ring in (one, other)]
        assert shapely.geometry.shape(Polygon([[ring] for ring in east]).to_geojson()).is_valid

    @pytest.mark.parametrize(
        ("value", "part"),
        [
            ([[(0, 0), (1, 1), (1, 0), (0, 1)]], "Self-intersection"),
            ([[[(5, 5), (6, 5), (5, 6)]], [[(0, 0), (1, 1), (1, 0), (0, 1)]]], "Self-intersection"),
            ([[(0, 0), (1, 1)]], "three corners"),
            ([[(0, 0), (1, 0), (2, 0)]], "not valid"),
            ([[(0, 0), (1e-9, 0), (0, 1e-9)]], "resolution"),
            ([[(0, 0), (541, 0), (0, 1)]], "longitude"),
            ([[(0, 0), (1, 91), (0, 1)]], "latitude"),
            ([[(0, 0), (math.nan, 0), (0, 1)]], "longitude"),
            ([[(-200, 0), (200, 0), (0, 1)]], "360"),
            ([(0, 0), (1, 0), (1, 1)], "list of rings"),
            ([], "list of rings"),
            ("POLYGON EMPTY", "list of rings"),
            (None, "list of rings"),
            ([[("0", "0"), ("1", "0"), ("1", "1")]], "each"),
            ([[(0, 0), (1,), (1, 1)]], "each"),
            ([[(0, 0), (4, 0), (0, 4)], [(9, 9), (8, 9), (9, 8)]], "Hole lies outside"),
            ({"type": "Point", "coordinates": [1, 2]}, "point"),
            (shapely.LineString([(0, 0), (1, 1)]), "LineString"),
        ],
    )
    def test_refuses_with_the_reason(self, value: Any, part: str) -> None:
        with pytest.raises(RegionError, match=part):
            Polygon(value)


regions = st.one_of(
    st.builds(Point, lons, lats),
    st.builds(lambda w, s, e, n: Rect(w, min(s, n), e, max(s, n)), lons, lats, lons, lats),
    simple_rings().map(lambda ring: Polygon([ring])),
)


@unhurried
@given(regions)
def test_every_region_comes_back_with_the_same_boxes(value: Region) -> None:
    if any((w == e) != (s == n) for w, s, e, n in value.boxes()):
        return  # A rectangle without area, which is no valid polygon.
    for written in (value.to_geojson(), value.to_wkt(), value.to_wkb()):
        assert set(region(written).boxes()) == set(value.boxes())


@unhurried
@given(lons, lats)
def test_the_antimeridian_is_one_meridian_for_messages(lon: float, lat: float) -> None:
    west, south, east, north = Message(1, (lon, lat), "").box()
    assert south == north
    if abs(round(lon * UNITS)) == WORLD[2]:
        assert (west, east) == (WORLD[2], WORLD[0])
    else:
        assert west == east
