"""The table of ``docs/guides/files.md``: what every format and every type of a column gives.

Each case is a file with one message, of which one column is of interest. `read_case` reads it with
`nearcast.intake` and returns what the table says.
"""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import shapely
from pyarrow import parquet

from nearcast.errors import UnsupportedFile
from nearcast.intake import Reading, load_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.intake import MessageBatch

__all__ = ["CASES", "DOCUMENT", "Case", "described", "read_case", "rows_of_document", "shown"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "files.md"
HEADER = "| source | column | value | gives | in Spark |"

_ROW: dict[str, Any] = {"id": "a", "text": "tea", "lon": 13.4, "lat": 52.5}
_NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
_POINT = shapely.Point(13.4, 52.5)
_CSV = "id,text,lon,lat\na,tea,13.4,52.5\n"
_LATIN_1 = _CSV.replace("tea", "thé").encode("latin-1")
_GEOJSON = {"type": "Point", "coordinates": [13.4, 52.5]}


class Case(NamedTuple):
    """A file with one message: what it is, its column of interest, and how it is written."""

    source: str
    column: str
    value: str
    write: Callable[[Path], Path]
    reading: Reading = Reading()


def read_case(case: Case, folder: Path) -> str:
    """Return what `nearcast.intake` makes of a case."""
    path = case.write(folder)
    try:
        parts = list(load_messages(path, now_us=0, reading=case.reading))
    except UnsupportedFile as error:
        return f"refused: {shown(str(error).split(': ', 1)[1])}"
    for _, rejects in parts:
        if len(rejects):
            return f"rejected: {shown(rejects.reason[0])}"
    [batch] = [batch for batch, _ in parts if len(batch)]
    return described(case, batch)


def described(case: Case, batch: MessageBatch) -> str:
    """Return what the table says of a message that was accepted."""
    if case.column == "time":
        moment = datetime(1970, 1, 1) + timedelta(microseconds=int(batch.time_us[0]))
        return f"{moment.isoformat()}Z"
    if case.column == "ttl_s":
        return f"{batch.ttl_us[0] / 1e6:g} s"
    if case.column == "id":
        return repr(batch.ids.tolist()[0])
    if case.column == "text":
        words = int(batch.words.word_start[-1])
        return f"{words} word" + "s" * (words != 1)
    west, south, east, north = (batch.box[0] / 1e7).tolist()
    if (west, south) == (east, north):
        return f"{west:g}" if case.column == "lon" else f"{west:g} {south:g}"
    return f"box {west:g} {south:g} {east:g} {north:g}"


def shown(reason: str) -> str:
    """Return a reason as the table shows it: without values, and without what to do."""
    return re.split(r"[;:?] | \(got", reason)[0]


def rows_of_document() -> list[list[str]]:
    """Return the cells of the table in the document, without the header."""
    lines = DOCUMENT.read_text().splitlines()
    rows = lines[lines.index(HEADER) + 2 :]
    table = takewhile(lambda line: line.startswith("|"), rows)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]


def _text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def _parquet(column: str, array: pa.Array, metadata: Any = None) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        row: dict[str, Any] = {name: [value] for name, value in _ROW.items()}
        if column in {"geometry", "shape"}:
            del row["lon"], row["lat"]
        table = pa.table(row | {column: array}).replace_schema_metadata(metadata)
        parquet.write_table(table, folder / "m.parquet")
        return folder / "m.parquet"

    return write


def _json(column: str, value: Any) -> Callable[[Path], Path]:
    row = {n: v for n, v in _ROW.items() if column != "geometry" or n not in {"lon", "lat"}}
    return _text("m.ndjson", json.dumps(row | {column: value}) + "\n")


def _features(lines: bool) -> Callable[[Path], Path]:
    feature = {"type": "Feature", "id": "a", "properties": {"text": "tea"}, "geometry": _GEOJSON}
    document = feature if lines else {"type": "FeatureCollection", "features": [feature]}
    return _text("m.geojson", json.dumps(document))


def _geo(reference: Any) -> dict[str, str]:
    column = {"encoding": "WKB", "crs": reference}
    return {"geo": json.dumps({"primary_column": "shape", "columns": {"shape": column}})}


def _folder(folder: Path) -> Path:
    (folder / "in").mkdir()
    (folder / "in" / "_SUCCESS").touch()
    (folder / "in" / "m.csv").write_text(_CSV)
    return folder / "in"


_X_Y = Reading(columns=(("lon", "at.x"), ("lat", "at.y[0]")))

CASES = [
    Case("CSV", "lon", "13.4", _text("m.csv", _CSV)),
    Case("CSV", "text", "quoted line break", _text("m.csv", _CSV.replace("tea", '"tea\ncake"'))),
    Case("CSV", "text", "empty cell", _text("m.csv", _CSV.replace("tea", ""))),
    Case("CSV", "lon", "`;` as delimiter", _text("m.csv", _CSV.replace(",", ";"))),
    Case("CSV", "lon", "`13,4`", _text("m.csv", _CSV.replace(",", ";").replace("13.4", "13,4"))),
    Case("CSV", "lon", "missing cell", _text("m.csv", "id,text,lon,lat\na,tea,13.4\n")),
    Case("TSV", "lon", "13.4", _text("m.tsv", _CSV.replace(",", "\t"))),
    Case("CSV, UTF-16 with mark", "lon", "13.4", _text("m.csv", _CSV.encode("utf-16"))),
    Case(
        "CSV, Latin-1", "text", "`thé`", _text("m.csv", _CSV.replace("tea", "thé").encode("cp1252"))
    ),
    Case(
        "CSV, Latin-1, `--encoding latin-1`",
        "text",
        "`thé`",
        _text("m.csv", _LATIN_1),
        Reading(encoding="latin-1"),
    ),
    Case("CSV, gzip", "lon", "13.4", _text("m.csv.gz", gzip.compress(_CSV.encode()))),
    Case(
        "CSV, zstd",
        "lon",
        "13.4",
        _text("m.csv.zst", pa.Codec("zstd").compress(_CSV.encode(), asbytes=True)),
    ),
    Case("folder", "lon", "13.4", _folder),
    Case("CSV", "time", "1714564800", _text("m.csv", "id,text,lon,lat,time\na,t,1,2,1714564800\n")),
    Case("CSV", "time", "2024-05-01", _text("m.csv", "id,text,lon,lat,time\na,t,1,2,2024-05-01\n")),
    Case("CSV", "id", "7", _text("m.csv", _CSV.replace("a,tea", "7,tea"))),
    Case(
        "CSV, `--id row`",
        "id",
        "none",
        _text("m.csv", "text,lon,lat\ntea,13.4,52.5\n"),
        Reading(ids="row"),
    ),
    Case(
        "CSV, `--id hash`",
        "id",
        "none",
        _text("m.csv", "text,lon,lat\ntea,13.4,52.5\n"),
        Reading(ids="hash"),
    ),
    Case("CSV", "lon", "column `lng`", _text("m.csv", _CSV.replace("lon", "lng"))),
    Case("CSV", "text", "column `body`", _text("m.csv", _CSV.replace("text", "body"))),
    Case("NDJSON", "lon", "13.4", _json("lon", 13.4)),
    Case("NDJSON", "lon", '"13.4"', _json("lon", "13.4")),
    Case("NDJSON", "lon", "true", _json("lon", True)),
    Case("NDJSON", "id", "7", _json("id", 7)),
    Case("NDJSON", "id", "2⁶³", _json("id", 2**63)),
    Case("NDJSON", "text", '""', _json("text", "")),
    Case("NDJSON", "text", "null", _json("text", None)),
    Case("NDJSON", "time", "1714564800.5", _json("time", 1714564800.5)),
    Case("NDJSON", "time", "2024-05-01T14:00:00+02:00", _json("time", "2024-05-01T14:00:00+02:00")),
    Case("NDJSON", "ttl_s", "60", _json("ttl_s", 60)),
    Case(
        "NDJSON, `--column lon=at.x --column 'lat=at.y[0]'`",
        "geometry",
        "nested",
        _text("m.ndjson", '{"id": "a", "text": "tea", "at": {"x": 13.4, "y": [52.5]}}\n'),
        _X_Y,
    ),
    Case("JSON array", "lon", "13.4", _text("m.json", json.dumps([_ROW]))),
    Case("GeoJSON, one document", "geometry", "Point", _features(False)),
    Case("GeoJSON, one feature a line", "geometry", "Point", _features(True)),
    Case(
        "NDJSON", "geometry", "GeoJSON Point", _json("geometry", shapely.geometry.mapping(_POINT))
    ),
    Case("NDJSON", "geometry", "WKT", _json("geometry", _POINT.wkt)),
    Case("NDJSON", "geometry", "WKB in hex", _json("geometry", _POINT.wkb_hex)),
    Case("NDJSON", "geometry", "rectangle", _json("geometry", shapely.box(13, 52, 14, 53).wkt)),
    Case("NDJSON", "geometry", "LineString", _json("geometry", "LINESTRING (0 0, 1 1)")),
    Case("Parquet", "geometry", "WKB", _parquet("geometry", pa.array([_POINT.wkb]))),
    Case(
        "GeoParquet, CRS84",
        "geometry",
        "WKB",
        _parquet("shape", pa.array([_POINT.wkb]), _geo(None)),
    ),
    Case(
        "GeoParquet, EPSG:3857, no pyproj",
        "geometry",
        "WKB",
        _parquet(
            "shape",
            pa.array([_POINT.wkb]),
            _geo({"id": {"authority": "EPSG", "code": 3857}}),
        ),
    ),
    *(
        Case(f"Parquet `{array.type}`", column, value, _parquet(column, array))
        for column, value, array in (
            ("lon", "13.4", pa.array([Decimal("13.4")])),
            ("lon", "13.5", pa.array(np.array([13.5], np.float16))),
            ("lon", "13", pa.array([13], pa.uint64())),
            ("lon", "`13.4`", pa.array(["13.4"], pa.string_view())),
            ("lon", "13.4", pa.array([13.4]).dictionary_encode()),
            ("lon", "true", pa.array([True])),
            ("id", "7", pa.array([7], pa.int8())),
            ("id", "2⁶³ - 1", pa.array([2**63 - 1], pa.uint64())),
            ("id", "2⁶³", pa.array([2**63], pa.uint64())),
            ("id", "1.5", pa.array([1.5])),
            ("id", "`a`", pa.array(["a"]).dictionary_encode()),
            ("time", "…00.123456789", pa.array([1714564800123456789], pa.timestamp("ns"))),
            ("time", "noon", pa.array([_NOON], pa.timestamp("us", "Europe/Berlin"))),
            ("time", "2024-05-01", pa.array([date(2024, 5, 1)])),
            ("time", "1714564800", pa.array([1714564800], pa.uint64())),
            ("time", "1714564800.5", pa.array([Decimal("1714564800.5")])),
            ("time", "12:00", pa.array([time(12)])),
            ("time", "1 h", pa.array([timedelta(hours=1)])),
            ("ttl_s", "1 h", pa.array([timedelta(hours=1)], pa.duration("ns"))),
            ("ttl_s", "-1 s", pa.array([timedelta(seconds=-1)], pa.duration("us"))),
            ("ttl_s", "3600", pa.array([3600])),
            ("text", "`hot tea`", pa.array(["hot tea"], pa.large_string())),
            ("text", "7", pa.array([7])),
        )
    ),
]
"""All rows of the table."""
