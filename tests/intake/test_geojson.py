"""GeoJSON: documents and lines, features that are broken, and geometries of messages."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from effort import examples
from nearcast.errors import NearcastError, UnsupportedFile
from nearcast.intake import (
    Reading,
    json_documents,
    load_messages,
    load_subscriptions,
    open_table,
    read_messages,
)
from nearcast.model import Message, Polygon, Rect
from nearcast.model.json_form import message_geometry
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}
TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [0, 2], [0, 0]]]}


def feature(identity: Any, geometry: Any, **properties: Any) -> dict[str, Any]:
    own = {} if identity is None else {"id": identity}
    return {"type": "Feature", **own, "properties": properties, "geometry": geometry}


def point(lon: float, lat: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [lon, lat]}


DISTRICTS = [
    feature("a", SQUARE, keywords=["tea"], name="A"),
    feature(None, TRIANGLE, keywords="tea cake", id="b"),
    feature(7, {"type": "MultiPolygon", "coordinates": [TRIANGLE["coordinates"]]}, expression="x"),
    feature("line", {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}),
    feature("none", None),
]


def write(folder: Path, name: str, features: list[Any], *, lines: bool, indent: Any = None) -> Path:
    path = folder / name
    if lines:
        path.write_text("".join(json.dumps(one) + "\n" for one in features))
    else:
        document = {"type": "FeatureCollection", "name": None, "features": features, "bbox": [0]}
        path.write_text(json.dumps(document, indent=indent))
    return path


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("name", ["d.geojson", "d.json"])
@pytest.mark.parametrize("indent", [None, 2])
def test_features_are_subscriptions(tmp_path: Path, name: str, lines: bool, indent: Any) -> None:
    path = write(tmp_path, name, DISTRICTS, lines=lines, indent=indent)
    found, rejects = load_subscriptions(path, Vocabulary())
    assert sorted(map(str, found.ids.tolist())) == ["7", "a", "b"]
    assert 7 in found.ids.tolist()
    assert sorted(rejects.row.tolist()) == [4, 5]
    assert {*rejects.field} == {"geometry", "place"}
    assert json.loads(rejects.record[0])["type"] == "Feature"
    batches = list(open_table(path, kind="subscriptions"))
    assert {name for batch in batches for name in batch.unused} == {"name"}


@pytest.mark.parametrize("lines", [True, False])
def test_features_are_messages(tmp_path: Path, lines: bool) -> None:
    quakes = [feature(f"q{n}", point(n, 10 + n), text="quake", lat="wrong") for n in range(4)]
    quakes[2]["geometry"]["coordinates"].append(35.5)  # the depth
    path = write(tmp_path, "m.geojson", quakes, lines=lines)
    [(batch, rejects)] = load_messages(path, now_us=0)
    assert not len(rejects), rejects.reason
    assert (batch.box[:, :2] / 1e7).tolist() == [[n, 10 + n] for n in range(4)]


def test_properties_are_the_place_of_a_feature_without_geometry(tmp_path: Path) -> None:
    features = [
        feature("a", None, text="t", lon=1, lat=2),
        feature("b", None, text="t", lng=1, lat=2),
    ]
    path = write(tmp_path, "m.geojson", features, lines=False)
    [(batch, _)] = load_messages(path, now_us=0)
    assert (batch.box[:, :2] / 1e7).tolist() == [[1, 2], [1, 2]]


def test_a_path_may_begin_in_the_feature(tmp_path: Path) -> None:
    features = [feature("a", point(1, 2), title="tea", at={"x": 5})]
    path = write(tmp_path, "m.geojson", features, lines=False)
    columns = (("text", "properties.title"), ("lon", "at.x"), ("lat", "geometry.coordinates[1]"))
    [(batch, _)] = load_messages(path, now_us=0, reading=Reading(columns=columns))
    assert (batch.box[:, :2] / 1e7).tolist() == [[5, 2]]


def test_an_array_of_objects_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    rows = [{"id": n, "text": "tea", "lon": n, "lat": n} for n in range(3)]
    path.write_text(json.dumps([*rows, 5, None, "x"], indent=1))
    parts = list(load_messages(path, now_us=0))
    assert [i for batch, _ in parts for i in batch.ids.tolist()] == [0, 1, 2]
    rejects = [r for _, part in parts for r in zip(part.row.tolist(), part.reason, strict=True)]
    assert rejects == [(n, "is not a JSON object") for n in (4, 5, 6)]
    path.write_text("[]")
    assert list(load_messages(path, now_us=0)) == []


def test_a_list_called_features_does_not_make_a_document(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    rows = [{"features": ["pool"], "id": n, "text": "flat", "lon": n, "lat": n} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [(batch, _)] = load_messages(path, now_us=0)
    assert len(batch) == 3


BROKEN = [
    '{"type": "Feature", "id": "x", "properties": {"text": "t}, "geometry": null}',
    '{"type": "Feature", "id": "x", "properties": {"text": "t", "geometry": null}',
    '{"type": "Feature", "id": "x", "properties": {"text": "t"}], "geometry": null}',
    '{"type": "Feature", "id": x}',
    '{"type": "Feature", "id": "\\ud800"}',
    '{"type": "Feature", "properties": [1]}',
    "nonsense",
    '{"type": "Other"}',
    "12e",
]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("size", [5, 1 << 20])
def test_a_broken_feature_costs_itself_only(
    tmp_path: Path, broken: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_documents, "_CHUNK_BYTES", size)
    good = [json.dumps(feature(f"m{n}", point(n, n), text="t")) for n in range(3)]
    path = tmp_path / "m.geojson"
    for at in range(4):
        features = [*good[:at], broken, *good[at:]]
        path.write_text('{"type": "FeatureCollection", "features": [' + ", ".join(features) + "]}")
        parts = list(load_messages(path, now_us=0))
        ids = [i for batch, _ in parts for i in batch.ids.tolist()]
        assert ids == ["m0", "m1", "m2"], (at, ids)
        assert [row for _, part in parts for row in part.row.tolist()] == [at + 1]
        assert all(part.reason[0] for _, part in parts if len(part))


@pytest.mark.parametrize("size", [1, 3, 64])
def test_documents_are_read_in_chunks(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_documents, "_CHUNK_BYTES", size)
    features = [feature(f"é{n}", point(n, n), text='a "]}" b \\') for n in range(9)]
    path = write(tmp_path, "m.geojson", features, lines=False, indent=1)
    path.write_text(path.read_text().replace("\\u00e9", "é"))
    [(batch, rejects)] = load_messages(path, now_us=0)
    assert (len(batch), len(rejects)) == (9, 0)


def test_a_collection_without_features_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "m.geojson"
    path.write_text('{"type": "FeatureCollection", "name": "x"}')
    with pytest.raises(UnsupportedFile, match="without features"):
        list(load_messages(path, now_us=0))


def test_features_are_plain_objects_if_the_format_is_json(tmp_path: Path) -> None:
    path = write(tmp_path, "m.json", [feature("a", point(1, 2), text="t")], lines=True)
    columns = (("text", "properties.text"),)
    reading = Reading(format="json", columns=columns)
    [(batch, _)] = load_messages(path, now_us=0, reading=reading)
    assert len(batch) == 1


pieces = st.sampled_from(
    ['{"type": "Feature",', '"id": "a",', '"features": [', "[", "]", "{", "}", ",", '"', "\\", "1"]
)


@given(st.lists(pieces, max_size=30).map("".join), st.booleans())
@example('"\\', True)
@settings(max_examples=examples(300), deadline=None)
def test_any_text_can_be_a_document(
    tmp_path_factory: pytest.TempPathFactory, text: str, collection: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.geojson"
    path.write_text(('{"type": "FeatureCollection", "features": [' if collection else "[") + text)
    try:
        parts = list(open_table(path))
    except NearcastError:
        return
    for batch in parts:
        _, rejects = read_messages(batch.table, now_us=0, source=batch)
        assert len(rejects) <= len(batch.rows)


POINT = shapely.Point(13.4, 52.5)
WRITTEN = {
    "wkb": POINT.wkb,
    "big endian": shapely.to_wkb(POINT, byte_order=0),
    "srid": shapely.to_wkb(shapely.set_srid(POINT, 4326), include_srid=True),
    "z": shapely.Point(13.4, 52.5, 7).wkb,
    "hex": POINT.wkb_hex,
    "lower hex": POINT.wkb_hex.lower(),
    "wkt": "POINT (13.4 52.5)",
    "wkt z": " point z(13.4 52.5 3) ",
    "ewkt": "SRID=4326;POINT(13.4 52.5)",
    "geojson": '{"type": "Point", "coordinates": [13.4, 52.5]}',
    "tight geojson": '{"type":"Point","coordinates":[13.4,52.5,7]}',
    "struct": {"type": "Point", "coordinates": [13.4, 52.5]},
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("count", [1, 40])
def test_points_may_be_written_in_many_ways(form: str, count: int) -> None:
    table = pa.table(
        {"id": range(count), "text": ["t"] * count, "geometry": [WRITTEN[form]] * count}
    )
    batch, rejects = read_messages(table, now_us=0)
    assert not len(rejects), rejects.reason
    assert batch.box.tolist() == [[134000000, 525000000] * 2] * count
    fields = {"id": 1, "text": "t", "geometry": WRITTEN[form]}
    assert Message.from_dict(fields).box() == (134000000, 525000000) * 2


@pytest.mark.parametrize("form", ["wkb", "hex", "wkt", "geojson"])
def test_whole_columns_of_points_are_not_read_one_by_one(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nearcast.intake import point_geometries

    monkeypatch.setattr(point_geometries, "message_geometry", None)
    table = pa.table({"id": range(40), "text": ["t"] * 40, "geometry": [WRITTEN[form]] * 40})
    assert len(read_messages(table, now_us=0)[0]) == 40


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        ("LINESTRING (0 0, 1 1)", "LINESTRING is not a region"),
        ("POLYGON ((0 0, 2 0, 0 2, 0 0))", "must be a point, or a rectangle"),
        ("POINT (181 0)", "between -180 and 180"),
        ("POINT EMPTY", "is empty"),
        ("MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)), ((5 5, 6 5, 6 6, 5 6, 5 5)))", "one place"),
        ("SRID=3857;POINT (1 1)", "SRID 3857"),
        ("01010000", "cannot be read as GeoJSON, WKT or hex WKB"),
        ("0101000000000000000000F03F", "ends early"),
        ("nowhere", "nowhere is not a region"),
    ],
)
def test_other_geometries_of_messages_are_rejected(geometry: str, reason: str) -> None:
    good = "POINT (1 1)"
    table = pa.table({"id": [1, 2], "text": ["t"] * 2, "geometry": [geometry, good]})
    batch, rejects = read_messages(table, now_us=0)
    assert (batch.ids.tolist(), rejects.field) == ([2], ("geometry",))
    assert reason in rejects.reason[0]


def test_a_rectangle_may_be_a_polygon() -> None:
    assert message_geometry(SQUARE) == Rect(0, 0, 2, 2)
    across = Polygon([[(170, 0), (190, 0), (190, 5), (170, 5)]])
    assert message_geometry(across.to_geojson()) == Rect(170, 0, -170, 5)
    table = pa.table({"id": [1], "text": ["t"], "geometry": [across.to_wkb()]})
    [box] = read_messages(table, now_us=0)[0].box.tolist()
    assert box == list(Message(1, Rect(170, 0, -170, 5), "t").box())


def test_coordinates_are_taken_before_a_geometry() -> None:
    columns = {"id": [1, 2], "text": ["t"] * 2, "lon": [5.0, None], "lat": [6.0, None]}
    table = pa.table({**columns, "geometry": ["POINT (1 2)", "POINT (3 4)"]})
    batch, _ = read_messages(table, now_us=0)
    assert (batch.box[:, :2] / 1e7).tolist() == [[5, 6], [3, 4]]
    assert Message.from_dict(table.to_pylist()[0]).box()[0] == 5 * 10**7


def test_hex_wkb_is_a_region(tmp_path: Path) -> None:
    triangle = Polygon([[(0, 0), (4, 0), (0, 4)]])
    path = tmp_path / "s.csv"
    path.write_text(
        f"id,geometry\na,{triangle.to_wkb().hex()}\nb,{triangle.to_wkb().hex().upper()}\n"
    )
    found, rejects = load_subscriptions(path, Vocabulary())
    assert (len(found), len(rejects)) == (2, 0)


def geoparquet(
    path: Path, geometries: list[Any], crs: Any, *, name: str = "shape", **more: Any
) -> Path:
    geo = {"primary_column": name, "columns": {name: {"encoding": "WKB", "crs": crs}}}
    table = pa.table({"id": range(len(geometries)), name: geometries, **more})
    parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return path


MERCATOR = {"id": {"authority": "EPSG", "code": 3857}, "name": "WGS 84 / Pseudo-Mercator"}


def test_the_primary_geometry_is_taken_by_its_name(tmp_path: Path) -> None:
    other = [shapely.Point(1, 1).wkb]
    path = geoparquet(tmp_path / "s.parquet", [POINT.wkb], None, geometry=other, text=["t"])
    [(batch, _)] = load_messages(path, now_us=0)
    assert (batch.box[0, :2] / 1e7).tolist() == [13.4, 52.5]


def test_another_reference_system_needs_pyproj(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyproj", None)
    path = geoparquet(tmp_path / "s.parquet", [POINT.wkb], MERCATOR, text=["t"])
    for read in (
        lambda: load_subscriptions(path, Vocabulary()),
        lambda: list(load_messages(path, now_us=0)),
    ):
        with pytest.raises(UnsupportedFile, match=r"is in EPSG:3857.*nearcast\[geo\]"):
            read()
    placed: dict[str, Any] = {"text": ["t"], "lon": [1.0], "lat": [2.0]}
    path = geoparquet(tmp_path / "s.parquet", [POINT.wkb], MERCATOR, **placed)
    [(batch, _)] = load_messages(path, now_us=0)
    assert (batch.box[0, :2] / 1e7).tolist() == [1, 2]


def test_another_reference_system_is_converted(tmp_path: Path) -> None:
    pyproj = pytest.importorskip("pyproj", reason="needs the extra geo")
    to_mercator = pyproj.Transformer.from_crs("OGC:CRS84", "EPSG:3857", always_xy=True)
    square = shapely.box(13.0, 52.0, 14.0, 53.0)
    moved = [
        shapely.transform(
            shape, lambda c: __import__("numpy").stack(to_mercator.transform(*c.T), 1)
        )
        for shape in (POINT, square)
    ]
    line = shapely.LineString([(0, 0), (1, 1)])
    crs = json.loads(pyproj.CRS("EPSG:3857").to_json())
    raw = [*(shape.wkb for shape in moved), line.wkb, None, b"junk"]
    path = geoparquet(tmp_path / "s.parquet", raw, crs, text=["t"] * 5)
    [(batch, rejects)] = load_messages(path, now_us=0)
    assert batch.ids.tolist() == [0, 1]
    boxes = (batch.box / 1e7).tolist()
    assert boxes[0] == pytest.approx([13.4, 52.5, 13.4, 52.5], abs=2e-7)
    assert boxes[1] == pytest.approx([13, 52, 14, 53], abs=2e-7)
    assert rejects.row.tolist() == [2, 3, 4]
    unknown = geoparquet(tmp_path / "u.parquet", raw, {"name": "nonsense"}, text=["t"] * 5)
    with pytest.raises(UnsupportedFile, match="nonsense, which pyproj cannot convert"):
        list(load_messages(unknown, now_us=0))
