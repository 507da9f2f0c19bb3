"""Columns that are called differently, and ids that are made."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from nearcast.errors import UnknownName, UnsupportedFile
from nearcast.intake import Reading, load_messages, load_subscriptions, open_table
from nearcast.intake.names import resolve
from nearcast.model.close_names import near
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ["csv", "ndjson", "parquet", "geojson"]


def write(folder: Path, extension: str, rows: list[dict[str, Any]], name: str = "f") -> Path:
    path = folder / f"{name}.{extension}"
    if extension == "csv":
        names = [*dict.fromkeys(key for row in rows for key in row)]
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    elif extension == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif extension == "geojson":
        features = [{"type": "Feature", "properties": row, "geometry": None} for row in rows]
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Keywords", "keywords"),
        ("KEY_WORDS", "keywords"),
        ("key-words", "keywords"),
        ("keyword", "keywords"),
        ("Keyword", "keywords"),
        ("LNG", "lon"),
        ("long", "lon"),
        ("Longitude", "lon"),
        ("latitude", "lat"),
        ("Radius M", "radius_m"),
        ("ID", "id"),
        ("expiresAt", "expires_at"),
    ],
)
def test_a_name_that_is_nearly_ours_is_taken(
    tmp_path: Path, extension: str, theirs: str, ours: str
) -> None:
    row = {"id": "a", "keywords": "tea", "lon": 1.0, "lat": 2.0, "radius_m": 3.0}
    row["expires_at"] = "2030-01-01"
    renamed = {theirs if name == ours else name: value for name, value in row.items()}
    path = write(tmp_path, extension, [renamed | {"color": "red"}])
    found, rejects = load_subscriptions(path, Vocabulary())
    assert (found.ids.tolist(), len(rejects)) == (["a"], 0)
    assert len(found.clauses.token) == 1
    assert found.expires_us[0] < 2**62
    [batch] = open_table(path, kind="subscriptions")
    assert dict(batch.taken) == {ours: theirs}
    assert batch.unused == ("color",)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("keywrods", "keywords"),
        ("radius", "radius_m"),
        ("expires", "expires_at"),
        ("owners", "owner"),
    ],
)
def test_a_name_that_is_close_is_asked_about(
    tmp_path: Path, extension: str, theirs: str, ours: str
) -> None:
    row: dict[str, Any] = {"id": "a", "keywords": "tea", "lon": 1.0, "lat": 2.0, "radius_m": 3.0}
    row |= {"expires_at": "2030-01-01", "owner": "me"}
    renamed = {theirs if name == ours else name: value for name, value in row.items()}
    path = write(tmp_path, extension, [renamed])
    with pytest.raises(UnsupportedFile, match=f"--column {ours}={theirs} to read it"):
        load_subscriptions(path, Vocabulary())
    used = Reading(columns=((ours, theirs),))
    found, rejects = load_subscriptions(path, Vocabulary(), reading=used)
    assert (len(found), len(rejects), len(found.clauses.token)) == (1, 0, 1)
    if ours != "radius_m":
        left_out = Reading(columns=((ours, ""),))
        found, rejects = load_subscriptions(path, Vocabulary(), reading=left_out)
        assert (len(found), len(rejects)) == (1, 0)
        assert len(found.clauses.token) == (0 if ours == "keywords" else 1)


def test_a_score_is_no_scope(tmp_path: Path) -> None:
    row = {"id": "a", "text": "tea", "lon": 1.0, "lat": 2.0, "score": 0.5, "slope": 7.0}
    for extension in FORMATS:
        [(batch, rejects)] = load_messages(write(tmp_path, extension, [row]), now_us=0)
        assert (len(batch), len(rejects)) == (1, 0)
        with pytest.raises(UnsupportedFile, match="--column scope=scopes to read it"):
            list(load_messages(write(tmp_path, extension, [row | {"scopes": "a"}]), now_us=0))


def test_a_text_by_another_name_is_asked_about(tmp_path: Path) -> None:
    row = {"id": "a", "message": "tea", "lon": 1.0, "lat": 2.0}
    for extension in FORMATS:
        with pytest.raises(UnsupportedFile, match="--column text=message to read it"):
            list(load_messages(write(tmp_path, extension, [row]), now_us=0))


def test_a_close_name_in_a_later_record_costs_that_record_only(tmp_path: Path) -> None:
    row = {"id": "a", "keywords": "tea", "lon": 1, "lat": 2, "radius_m": 3}
    other = {"id": "b", "keywrods": "tea", "lon": 1, "lat": 2, "radius_m": 3}
    third = {"id": "c", "Keyword": "tea", "lng": 1, "lat": 2, "radius_m": 3}
    path = write(tmp_path, "ndjson", [row, other, third])
    found, rejects = load_subscriptions(path, Vocabulary())
    assert found.ids.tolist() == ["a", "c"]
    assert len(found.clauses.token) == 2
    assert (rejects.row.tolist(), rejects.field) == ([2], ("keywords",))
    assert "--column keywords=keywrods" in rejects.reason[0]


def test_our_own_column_is_taken_before_a_similar_one(tmp_path: Path) -> None:
    row = {"id": "a", "text": "x", "lon": 1.0, "lng": 99.0, "lat": 2.0, "Text": "y", "texts": "z"}
    for extension in FORMATS:
        [batch] = open_table(write(tmp_path, extension, [row]))
        assert [float(v) for v in batch.table.column("lon").to_pylist()] == [1.0]
        assert (dict(batch.taken), batch.unused) == ({}, ("lng", "Text", "texts"))


def test_two_names_for_one_column_are_asked_about(tmp_path: Path) -> None:
    row = {"id": "a", "text": "x", "lng": 1.0, "longitude": 3.0, "lat": 2.0}
    for extension in FORMATS:
        with pytest.raises(UnsupportedFile, match="--column lon=longitude to read it"):
            list(open_table(write(tmp_path, extension, [row])))


def test_a_place_that_is_complete_needs_no_other_names() -> None:
    names = ("id", "text", "lon", "lat", "radius", "wests", "Geometry")
    assert resolve(names, "messages").unused == ("radius", "wests", "Geometry")
    others = ("id", "keywords", "geometry", "latitude", "longitude", "radius")
    assert resolve(others, "subscriptions").taken == {}
    assert near("last", "subscriptions") is None


@pytest.mark.parametrize("extension", ["ndjson", "parquet", "geojson"])
def test_paths_lead_into_nested_values(tmp_path: Path, extension: str) -> None:
    rows = [
        {
            "id": str(n),
            "a": {"b": [{"x": 1.5 * n, "t": f"tea {n}"}]},
            "at": [n * 1.0, 2.0][: 2 - n // 2],
        }
        for n in range(3)
    ]
    said = (("text", "a.b[0].t"), ("lon", "a.b[0].x"), ("lat", "at[1]"))
    path = write(tmp_path, extension, rows)
    [(batch, rejects)] = load_messages(path, now_us=0, reading=Reading(columns=said))
    assert (batch.ids.tolist(), len(rejects)) == (["0", "1"], 1)
    assert (batch.box[:, 0] / 1e7).tolist() == [0.0, 1.5]
    assert rejects.field == ("lat",)
    assert json.loads(rejects.record[0]).get("properties", json.loads(rejects.record[0])) == rows[2]


def test_coordinate_arrays_of_geojson_like_lines(tmp_path: Path) -> None:
    rows = [
        {"id": n, "text": "tea", "geometry": {"type": "Point", "coordinates": [n / 2, 7]}}
        for n in range(5)
    ]
    path = write(tmp_path, "ndjson", rows)
    said = (("lon", "geometry.coordinates[0]"), ("lat", "geometry.coordinates[1]"))
    [(batch, _)] = load_messages(path, now_us=0, reading=Reading(columns=said))
    [(other, _)] = load_messages(path, now_us=0)
    assert batch.box.tolist() == other.box.tolist()
    assert (batch.box[:, 0] / 1e7).tolist() == [0, 0.5, 1, 1.5, 2]


def test_maps_of_parquet_have_keys(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.float64())
    table = pa.table(
        {
            "id": [1, 2],
            "text": ["tea", "tea"],
            "at": pa.array([[("x", 1.0), ("y", 2.0)], [("x", 1.0)]], kind),
        }
    )
    parquet.write_table(table, tmp_path / "m.parquet")
    said = Reading(columns=(("lon", "at.x"), ("lat", "at.y")))
    [(batch, rejects)] = load_messages(tmp_path / "m.parquet", now_us=0, reading=said)
    assert (batch.ids.tolist(), rejects.field) == ([1], ("lat",))


def test_a_name_with_a_dot_is_a_name(tmp_path: Path) -> None:
    row = {"id": "a", "text": "tea", "pos.x": 1.0, "pos.y": 2.0}
    said = Reading(columns=(("lon", "pos.x"), ("lat", "pos.y")))
    for extension in ("csv", "parquet"):
        [(batch, _)] = load_messages(write(tmp_path, extension, [row]), now_us=0, reading=said)
        assert len(batch) == 1


@pytest.mark.parametrize("extension", ["csv", "parquet"])
def test_columns_that_are_not_there_are_an_error(tmp_path: Path, extension: str) -> None:
    path = write(tmp_path, extension, [{"id": "a", "text": "tea", "lon": 1.0, "lat": 2.0}])
    with pytest.raises(UnsupportedFile, match="there is no column 'x' for --column lon=x"):
        list(open_table(path, Reading(columns=(("lon", "x"),))))
    with pytest.raises(UnknownName, match="altitude"):
        list(open_table(path, Reading(columns=(("altitude", "lon"),))))


def test_fields_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "parquet", [{"id": "a", "text": "tea", "at": {"x": 1.0}}])
    with pytest.raises(UnsupportedFile, match="there is no field 'z'"):
        list(open_table(path, Reading(columns=(("lon", "at.z"),))))
    with pytest.raises(UnsupportedFile, match=r"there is no element \[0\]"):
        list(open_table(path, Reading(columns=(("lon", "at[0]"),))))


@pytest.mark.parametrize("extension", FORMATS)
def test_rows_without_ids_get_them_from_their_number(tmp_path: Path, extension: str) -> None:
    rows = [{"text": "tea", "lon": 1.0, "lat": 2.0}] * 3
    path = write(tmp_path, extension, rows)
    [(batch, rejects)] = load_messages(path, now_us=0, reading=Reading(ids="row"))
    first = {"csv": 2, "ndjson": 1, "parquet": 0, "geojson": 1}[extension]
    assert batch.ids.tolist() == [f"f.{extension}:{first + n}" for n in range(3)]
    assert not len(rejects)


def test_hashes_are_the_same_from_every_format(tmp_path: Path) -> None:
    rows = [{"text": f"tea {n}", "lon": 1.25 * n, "lat": 2.5, "color": "é"} for n in (1, 2)]
    found = set()
    for extension in FORMATS:
        path = write(tmp_path, extension, rows)
        [(batch, _)] = load_messages(path, now_us=0, reading=Reading(ids="hash"))
        found.add(tuple(batch.ids.tolist()))
    [(one, other)] = found
    assert len(str(one)) == len(str(other)) == 32
    assert one != other


def test_the_same_record_twice_has_one_hash(tmp_path: Path) -> None:
    rows = [{"text": "tea", "lon": 1.0, "lat": 2.0}] * 2
    [(batch, rejects)] = load_messages(
        write(tmp_path, "csv", rows), now_us=0, reading=Reading(ids="hash")
    )
    assert (len(batch), rejects.field) == (1, ("id",))


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("ids", ["row", "hash"])
def test_ids_are_not_made_where_there_are_some(tmp_path: Path, extension: str, ids: str) -> None:
    rows = [{"id": "a", "text": "tea", "lon": 1.0, "lat": 2.0}]
    [(batch, _)] = load_messages(
        write(tmp_path, extension, rows), now_us=0, reading=Reading(ids=ids)
    )
    assert batch.ids.tolist() == ["a"]


def test_records_of_json_without_id_get_one(tmp_path: Path) -> None:
    place = {"text": "tea", "lon": 1.0, "lat": 2.0}
    for rows in ([{"id": "a", **place}, place], [{"id": 7, **place}, place]):
        path = write(tmp_path, "ndjson", rows)
        parts = load_messages(path, now_us=0, reading=Reading(ids="row"))
        ids = [i for batch, _ in parts for i in batch.ids.tolist()]
        assert ids == [rows[0]["id"], "f.ndjson:2"]


def test_a_folder_names_the_rows_by_their_path(tmp_path: Path) -> None:
    rows = [{"text": "tea", "lon": 1.0, "lat": 2.0}]
    (tmp_path / "x").mkdir()
    write(tmp_path / "x", "csv", rows)
    write(tmp_path, "csv", rows, "g")
    parts = load_messages(tmp_path, now_us=0, reading=Reading(ids="row"))
    assert [i for batch, _ in parts for i in batch.ids.tolist()] == ["g.csv:2", "x/f.csv:2"]


def test_unused_columns_of_lines_may_have_any_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nearcast.intake import json_lines

    rows = [
        {"id": n, "text": "t", "lon": n, "lat": 1, "zip": z} for n, z in enumerate([1, "x", []])
    ]
    with monkeypatch.context() as only_arrow:
        only_arrow.setattr(json_lines, "read_records", None)
        [batch] = open_table(write(tmp_path, "ndjson", rows))
    assert (batch.table.num_rows, batch.unused) == (3, ("zip",))
    rows[2]["Long"] = rows[2].pop("lon")
    [(messages, rejects)] = load_messages(write(tmp_path, "ndjson", rows), now_us=0)
    assert (len(messages), len(rejects)) == (3, 0)


@pytest.mark.parametrize("extension", FORMATS)
def test_what_is_taken_answers_a_question(tmp_path: Path, extension: str) -> None:
    row = {"wests": 5.0, "id": "a", "texts": "x", "Text": "tea", "lng": 1.0, "latitude": 2.0}
    [batch] = open_table(write(tmp_path, extension, [row]))
    assert dict(batch.taken) == {"text": "Text", "lon": "lng", "lat": "latitude"}
    assert batch.unused == ("wests", "texts")
