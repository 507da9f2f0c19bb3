"""The same rows in every format: generators, writers, and what a reader makes of them.

Cells are text, as CSV has them, or None. With ``typed`` formats that have numbers get numbers. A
row has one error at most, so that its reason does not depend on what is checked first.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

from nearcast.intake import Reading, load_messages, load_subscriptions
from nearcast.model.checks import NUMBER
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["FORMATS", "KINDS", "Outcome", "Row", "outcome", "rows_of", "write"]

Row = dict[str, str | None]

FORMATS = ("csv", "tsv", "ndjson", "parquet", "geojson", "array.json")
"""The extensions of the files that `write` writes; an ``array.json`` is one array of objects."""

KINDS = ("messages", "subscriptions")

COLUMNS = {
    "messages": ("id", "text", "lon", "lat", "time", "ttl_s", "scope", "note"),
    "subscriptions": (
        *("id", "keywords", "expression", "west", "south", "east", "north"),
        *("lon", "lat", "radius_m", "owner", "expires_at", "scope", "note"),
    ),
}
"""The columns of the files; nobody uses the last one."""

_NUMBERS = frozenset(
    ["lon", "lat", "ttl_s", "west", "south", "east", "north", "radius_m", "time", "expires_at"]
)
_LONGITUDES = ("0", "13.4", "-180", "180", "1e1", " 7.5", "+3", "-.5")
_LATITUDES = ("0", "52.5", "-90", "90", "4.", "1e-3")
_TIMES = ("1700000000", "1700000000.25", "2024-05-01", "2024-05-01T12:00:00Z", "0")
_WORDS = ("tea", "Café", "İstanbul", "new york", 'a "quoted" word', "two\nlines", "x;y,z|w\tv", " ")

_texts = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3).map(" ".join)
_scopes = st.none() | st.sampled_from(["acme", "ü b", "7", "\x1d"])
_notes = st.none() | st.sampled_from(["n", "ü", '"', "7", "1e5", "true", "null", "[1]"])


def _messages(id: str, text: str, lon: str, lat: str, *others: Any) -> Row:
    return dict(zip(COLUMNS["messages"], (id, text, lon, lat, *others), strict=True))


_message = st.builds(
    _messages,
    st.sampled_from([f"m{n}" for n in range(30)]),
    _texts,
    st.sampled_from(_LONGITUDES),
    st.sampled_from(_LATITUDES),
    st.none() | st.sampled_from(_TIMES),
    st.none() | st.sampled_from(["0", "60", "0.5", "1e3"]),
    _scopes,
    _notes,
)

_box = st.sampled_from(
    [("0", "0", "10", "10"), ("170", "-5", "-170", "5"), ("1.5", "2", "1.5", "2")]
)
_circle = st.sampled_from([("13.4", "52.5", "500"), ("180", "0", "1e4"), ("0", "90", "0")])


def _subscriptions(id: str, words: tuple[Any, Any], place: tuple[str, ...], *others: Any) -> Row:
    box = place if len(place) == 4 else (None,) * 4
    circle = place if len(place) == 3 else (None,) * 3
    cells = (id, *words, *box, *circle, *others)
    return dict(zip(COLUMNS["subscriptions"], cells, strict=True))


_subscription = st.builds(
    _subscriptions,
    st.sampled_from([f"s{n}" for n in range(30)]),
    st.tuples(st.sampled_from(["tea", "new york", "Café tea"]), st.none())
    | st.tuples(st.none(), st.sampled_from(["tea OR cake", "tea NOT (milk, sugar)", None])),
    _box | _circle,
    st.none() | st.sampled_from(["ann", "İ"]),
    st.none() | st.sampled_from(_TIMES),
    _scopes,
    _notes,
)

_BROKEN: dict[str, tuple[tuple[str, str | None], ...]] = {
    "messages": (
        ("id", None),
        ("text", ""),  # valid; CSV cannot say that there is none
        *(("lon", cell) for cell in (None, "east", "181", "-1e9", "nan", "1,5")),
        *(("lat", cell) for cell in (None, "x", "90.001", "1e400")),
        *(("time", cell) for cell in ("soon", "99999999999999", "2024-13-01")),
        *(("ttl_s", cell) for cell in ("-1", "long", "1e300")),
        ("scope", "\0"),
    ),
    "subscriptions": (
        ("id", None),
        ("expires_at", "soon"),
        ("expires_at", "1e20"),
        ("owner", "\0"),
        ("scope", "\0"),
    ),
}
_BROKEN_PLACES = (
    {"west": "x"},
    {"south": "91"},
    {"north": "-90", "south": "0"},
    {"west": None, "south": None, "east": None, "north": None},
    {"east": "1e9"},
)


@st.composite
def _row(draw: st.DrawFn, kind: str) -> Row:
    """Draw a row that is valid, or has one error."""
    row: Row = dict(draw(_message if kind == "messages" else _subscription))
    if draw(st.integers(0, 2)):
        return row
    if kind == "subscriptions" and row["west"] is not None and draw(st.booleans()):
        return {**row, **draw(st.sampled_from(_BROKEN_PLACES))}
    name, cell = draw(st.sampled_from(_BROKEN[kind]))
    return {**row, name: cell}


def rows_of(kind: str, max_size: int = 12) -> st.SearchStrategy[list[Row]]:
    """Return a strategy for rows of a kind, valid and invalid; ids may occur again."""
    return st.lists(_row(kind), min_size=1, max_size=max_size)


def write(folder: Path, kind: str, rows: Sequence[Row], extension: str, *, typed: bool) -> Path:
    """Write rows in a format; with ``typed`` as numbers where they are and the format has them."""
    path = folder / f"{kind}.{extension}"
    names = COLUMNS[kind]
    if extension in {"csv", "tsv"}:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if extension == "tsv" else ",")
            writer.writerows([names, *([row[name] for name in names] for row in rows)])
    elif extension == "parquet":
        columns = {name: _column(name, [row[name] for row in rows], typed) for name in names}
        parquet.write_table(pa.table(columns), path)
    else:
        objects = [
            {name: _value(name, cell, typed) for name, cell in row.items() if cell is not None}
            for row in rows
        ]
        path.write_text(_json(objects, extension), encoding="utf-8")
    return path


def _json(objects: list[dict[str, Any]], extension: str) -> str:
    if extension == "ndjson":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects)
    if extension == "geojson":
        features = [_feature(row) for row in objects]
        return json.dumps({"type": "FeatureCollection", "features": features}, indent=1)
    return json.dumps(objects)


def _feature(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a feature: valid points as geometries, all other places as properties."""
    geometry = None
    lon, lat = row.get("lon"), row.get("lat")
    if isinstance(lon, float) and isinstance(lat, float) and "radius_m" not in row:
        if abs(lon) <= 180 and abs(lat) <= 90:
            geometry = {"type": "Point", "coordinates": [lon, lat]}
    elsewhere = {"id"} if geometry is None else {"id", "lon", "lat"}
    properties = {name: value for name, value in row.items() if name not in elsewhere}
    feature = {"type": "Feature", "properties": properties, "geometry": geometry}
    return {**feature, "id": row["id"]} if "id" in row else feature


def _is_number(name: str, cell: str | None) -> bool:
    return name in _NUMBERS and cell is not None and re.match(NUMBER, cell) is not None


def _value(name: str, cell: str, typed: bool) -> Any:
    is_number = typed and _is_number(name, cell) and np.isfinite(float(cell))
    return float(cell) if is_number else cell


def _column(name: str, cells: list[str | None], typed: bool) -> pa.Array:
    numbers = typed and all(cell is None or _is_number(name, cell) for cell in cells)
    if numbers and any(cell is not None for cell in cells):
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array(cells, pa.string())


class Outcome(NamedTuple):
    """What a reader made of a file.

    ``ids`` are those of the accepted rows in their order, ``content`` is all else that is known
    of these, and ``rejects`` has the field and the reason of each reject, without values, and
    what the record says in the column ``note``, sorted.
    """

    ids: list[str]
    content: Any
    rejects: list[tuple[str, str, str]]


def outcome(path: Path, kind: str, reading: Reading | None = None) -> Outcome:
    """Read a file with `nearcast.intake`."""
    given = reading or Reading()
    if kind == "messages":
        parts = list(load_messages(path, now_us=7, reading=given))
        vocabulary = Vocabulary()
        ids = [i for batch, _ in parts for i in batch.ids.tolist()]
        content: Any = []
        for batch, _ in parts:
            numbered = batch.number(vocabulary, add=True)
            start = numbered.token_start
            tokens = [sorted(numbered.token[a:b].tolist()) for a, b in pairwise(start)]
            columns = (batch.box.tolist(), batch.time_us.tolist(), batch.ttl_us.tolist(), tokens)
            content += zip(*columns, strict=True)
        rejects = [one for _, part in parts for one in reasons(part.to_table())]
        return Outcome([str(i) for i in ids], content, sorted(rejects))
    found, rejected = load_subscriptions(path, Vocabulary(), reading=given)
    content = {
        field.name: np.asarray(getattr(found.clauses, field.name)).tolist()
        for field in fields(found.clauses)
        if isinstance(getattr(found.clauses, field.name), np.ndarray)
    }
    owners = [None] * len(found) if found.owner is None else found.owner.to_pylist()
    content |= {"owner": owners, "expires_us": found.expires_us.tolist()}
    return Outcome(
        [str(i) for i in found.ids.tolist()], content, sorted(reasons(rejected.to_table()))
    )


def reasons(rejects: pa.Table) -> list[tuple[str, str, str]]:
    """Return the field, the reason without its values, and the note of each reject."""
    found = []
    for row in rejects.to_pylist():
        reason = re.sub(r" \((got|at character) .*\)$", "", row["reason"], flags=re.DOTALL)
        record = json.loads(row["record"])
        record = record.get("properties", record)
        found.append((row["field"], reason, str(record.get("note"))))
    return found
