"""GeoJSON, WKT, WKB and bounding boxes: what is read, and that nothing else is ever raised."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.errors import InvalidInput, RegionError
from nearcast.model import Message, Point, Polygon, Rect, Region, Subscription, region

SQUARE = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]
TRIANGLE = [[0, 0], [2, 0], [0, 2], [0, 0]]

numbers = st.integers(-200, 200) | st.floats() | st.integers()
scalars = st.none() | st.booleans() | numbers | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
names = st.sampled_from(
    ["Point", "Polygon", "MultiPolygon", "LineString", "Feature", "GeometryCollection", "Circle"]
)
places = st.lists(numbers | values, max_size=4)
rings = st.lists(places, max_size=6)
coordinates = (
    places | st.lists(rings, max_size=3) | st.lists(st.lists(rings, max_size=2), max_size=2)
)
geometries = st.fixed_dictionaries({"type": names | values, "coordinates": coordinates | values})
features = st.fixed_dictionaries({"type": st.just("Feature"), "geometry": geometries | values})


def attempted(value: Any) -> Region | RegionError:
    """Return the region, or the error: anything but RegionError goes through."""
    try:
        made = region(value)
    except RegionError as error:
        return error
    assert made.boxes()
    return made


@settings(max_examples=examples(400), deadline=None)
@given(values | geometries | features)
@example({"type": "Polygon", "coordinates": [[[10**400, 1], [0, 0], [1, 1]]]})
@example({"type": "Polygon", "coordinates": [[[]]]})
@example({"type": "MultiPolygon", "coordinates": [[TRIANGLE], [TRIANGLE]]})
@example({"type": ["Point"], "coordinates": [1, 2]})
def test_arbitrary_json_raises_nothing_else(value: Any) -> None:
    attempted(value)
    attempted(json.dumps(value))
    try:
        Polygon(value)
    except RegionError:
        pass


def nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        np.array(5.0),
        [np.array(5.0)],
        [np.array(1.0)] * 4,
        nested(100_000),
        [nested(100_000)] * 4,
        {"type": "Point", "coordinates": np.array(1)},
        {"type": "Polygon", "coordinates": np.array(1)},
        {"type": "Polygon", "coordinates": [np.array(1)]},
        {"type": "MultiPolygon", "coordinates": nested(100_000)},
        {"type": "Feature", "geometry": nested(100_000)},
        {"type": nested(100_000)},
    ],
)
def test_arrays_without_length_and_deep_lists_raise_nothing_else(value: Any) -> None:
    assert isinstance(attempted(value), RegionError)
    with pytest.raises(RegionError):
        Polygon(value)
    with pytest.raises(RegionError):
        Message(1, value, "")
    with pytest.raises(InvalidInput):
        Subscription(1, Rect(0, 0, 1, 1), value)


@pytest.mark.parametrize("depth", [100, *range(900, 1100)])
def test_text_of_any_depth_raises_nothing_else(depth: int) -> None:
    coordinates = "[" * depth + "1" + "]" * depth
    for name in ("Point", "Polygon", "MultiPolygon"):
        assert isinstance(
            attempted(f'{{"type": "{name}", "coordinates": {coordinates}}}'), RegionError
        )


lattice = st.tuples(st.integers(-3, 3), st.integers(-3, 3)).map(list)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(lattice, min_size=3, max_size=6), min_size=1, max_size=3))
def test_a_lattice_polygon_is_taken_exactly_if_shapely_calls_it_valid(drawn: Any) -> None:
    made = attempted({"type": "Polygon", "coordinates": drawn})
    expected = shapely.Polygon(drawn[0], drawn[1:])
    assert isinstance(made, Region) == bool(shapely.is_valid(expected))
    if isinstance(made, Region):
        assert shapely.equals(shapely.from_wkb(made.to_wkb()), expected)


fragments = st.sampled_from(
    ["POINT", "POLYGON", "MULTIPOLYGON", "POLYGON Z", "EMPTY", "(", ")", ",", " ", "1", "2.5",
     "1e400", "nan", "SRID=4326;", "SRID=3857;", "{", "}", '"type"', ":", "[", "]", "\0"]
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(
    st.text(max_size=30)
    | st.lists(fragments, max_size=20).map(" ".join)
    | st.lists(fragments, max_size=20).map("".join)
)
@example("GEOMETRYCOLLECTION(" * 100_000)
@example("MULTIPOLYGON(" * 100_000)
@example('{"a":' * 100_000)
@example("POINT(1 \ud800)")
@example("POINT(1 2)\0")
@example("{" + '"type":"Point","coordinates":[' + "9" * 5000 + ",1]}")
def test_arbitrary_text_raises_nothing_else(text: str) -> None:
    attempted(text)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60), st.sampled_from([1, 3, 6, 7, 1003, 3006, 0x80000003, 0x20000001]))
def test_arbitrary_bytes_raise_nothing_else(data: bytes, code: int) -> None:
    attempted(data)
    attempted(struct.pack("<BI", 1, code) + data)
    attempted(struct.pack(">BI", 0, code) + data)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_damaged_binary_raises_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(region({"type": "MultiPolygon", "coordinates": [[TRIANGLE]]}).to_wkb())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    attempted(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    attempted(bytes(whole))


def test_nested_binary_is_refused_not_followed() -> None:
    assert isinstance(attempted(struct.pack("<BII", 1, 6, 1) * 200_000), RegionError)
    assert isinstance(attempted(struct.pack("<BII", 1, 7, 1) * 200_000), RegionError)
    assert isinstance(attempted(struct.pack("<BII", 1, 3, 2**32 - 1)), RegionError)


@settings(deadline=None)
@given(st.lists(values, max_size=6) | st.lists(numbers, min_size=4, max_size=4))
def test_arbitrary_bounding_boxes_raise_nothing_else(value: Any) -> None:
    made = attempted(value)
    assert isinstance(made, (RegionError, Rect))
    attempted(tuple(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2, 3, 4], Rect(1, 2, 3, 4)),
        (np.array([1.5, 2, 3, 4]), Rect(1.5, 2, 3, 4)),
        ({"type": "Point", "coordinates": [1, 2, 300]}, Point(1, 2)),
        ('  {"type": "Point", "coordinates": [1, 2]}', Point(1, 2)),
        ({"type": "Feature", "geometry": {"type": "Point", "coordinates": (1, 2)}}, Point(1, 2)),
        ("point(1 2)", Point(1, 2)),
        ("POINT Z (1 2 3)", Point(1, 2)),
        ("POINTZM(1 2 3 4)", Point(1, 2)),
        ("SRID=4326;POINT(1 2)", Point(1, 2)),
        (shapely.to_wkb(shapely.Point(1, 2)), Point(1, 2)),
        (shapely.to_wkb(shapely.Point(1, 2, 3)), Point(1, 2)),
        (shapely.to_wkb(shapely.Point(1, 2, 3), flavor="iso"), Point(1, 2)),
        (shapely.to_wkb(shapely.Point(1, 2), byte_order=0), Point(1, 2)),
        (bytearray(shapely.to_wkb(shapely.Point(1, 2))), Point(1, 2)),
        (
            shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 4326), include_srid=True),
            Point(1, 2),
        ),
        ({"type": "Polygon", "coordinates": [SQUARE[:4]]}, Polygon([SQUARE])),
        ("POLYGON((0 0,2 0,2 2,0 2,0 0))", Polygon([SQUARE])),
        ("MULTIPOLYGON(((0 0,2 0,2 2,0 2,0 0)),EMPTY)", Polygon([SQUARE])),
        (shapely.to_wkb(shapely.Polygon(SQUARE), byte_order=0), Polygon([SQUARE])),
        (Rect(1, 2, 3, 4), Rect(1, 2, 3, 4)),
    ],
)
def test_reads(value: Any, expected: Region) -> None:
    assert region(value) == expected


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (None, "must be a Rect"),
        (7, "must be a Rect"),
        ([1, 2], "must be a Rect"),
        ([1, 2, 3, "4"], "north"),
        ("", "cannot be read as GeoJSON, WKT"),
        ("{", "cannot be read as GeoJSON, WKT"),
        ("Berlin", "Berlin is not a region"),
        ("LINESTRING(0 0,1 1)", "LINESTRING is not a region"),
        ("CURVEPOLYGON((0 0,1 1,1 0,0 0))", "CURVEPOLYGON is not a region"),
        ("POLYGON EMPTY", "empty"),
        ("POINT(1 2) x", "cannot be read as GeoJSON, WKT"),
        ("POINT(200 2)", "lon"),
        ("SRID=3857;POINT(1 2)", "3857"),
        ({}, "type and coordinates"),
        ({"type": "Feature", "geometry": None}, "type and coordinates"),
        ({"type": "FeatureCollection", "features": []}, "FeatureCollection"),
        ({"type": "Circle", "coordinates": [1, 2], "radius": 3}, "Circle is not a region"),
        ({"type": "Point"}, "coordinates"),
        ({"type": "Point", "coordinates": [1]}, "longitude and latitude"),
        ({"type": "Polygon", "coordinates": []}, "rings"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2]]]}, "Self-inter"),
        (b"", "ends early"),
        (b"\x07\0\0\0\0", "byte order"),
        (shapely.to_wkb(shapely.Point(1, 2))[:-1], "ends early"),
        (shapely.to_wkb(shapely.Point(1, 2)) + b"x", "after its end"),
        (shapely.to_wkb(shapely.LineString([(0, 0), (1, 1)])), "LineString is not a region"),
        (struct.pack("<BI", 1, 99), "unknown geometry type 99"),
        (struct.pack("<BII", 1, 6, 1) + shapely.to_wkb(shapely.Point(1, 2)), "Point inside"),
        (
            shapely.to_wkb(shapely.set_srid(shapely.Point(1, 2), 3857), include_srid=True),
            "3857",
        ),
        (shapely.to_wkb(shapely.Polygon()), "part"),
        (shapely.Polygon(), "empty"),
        (shapely.LineString([(0, 0), (1, 1)]), "LineString"),
    ],
)
def test_refuses_with_the_reason(value: Any, part: str) -> None:
    with pytest.raises(RegionError, match=part):
        region(value)
