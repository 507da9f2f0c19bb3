"""The cleaning of batches, without a JVM."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import UnknownName, UnsupportedFile
from nearcast.intake import read_messages, read_subscriptions
from nearcast.spark.workers import cleaning
from nearcast.spark.workers.cleaning import (
    DAMAGED,
    Cleaning,
    clean_rejects,
    clean_rows,
    normalized,
    require_columns,
)
from nearcast.text import Vocabulary, words

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)

GOOD_MESSAGES: list[dict[str, Any]] = [
    {"id": "a", "text": "Hot tea", "lon": "13.4", "lat": " 52.5 "},
    {"id": "b", "tokens": '["hot tea", "cake"]', "lon": "-180", "lat": "+90"},
    {"id": "c", "tokens": "hot tea", "west": "170", "south": "0", "east": "-170", "north": "1e1"},
    {"id": "d", "text": "", "lon": "0.00000005", "lat": "-0.00000004", "ttl_s": "60"},
    {"id": "e", "text": "x", "lon": "1", "lat": "2", "time": "2024-05-06T07:08:09Z"},
    {"id": "f", "text": "x", "lon": "1", "lat": "2", "time": "1714979289"},
]
BAD_MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("id", {"text": "x", "lon": "1", "lat": "2"}),
    ("id", {"id": "", "text": "x", "lon": "1", "lat": "2"}),
    ("id", {"id": "a\0b", "text": "x", "lon": "1", "lat": "2"}),
    ("text", {"id": "a", "lon": "1", "lat": "2"}),
    ("tokens", {"id": "a", "text": "x", "tokens": "x", "lon": "1", "lat": "2"}),
    ("tokens", {"id": "a", "tokens": "[1]", "lon": "1", "lat": "2"}),
    ("lon", {"id": "a", "text": "x", "lon": "east", "lat": "2"}),
    ("lon", {"id": "a", "text": "x", "lon": "180.1", "lat": "2"}),
    ("lat", {"id": "a", "text": "x", "lon": "1", "lat": "-91"}),
    ("lat", {"id": "a", "text": "x", "lon": "1"}),
    ("place", {"id": "a", "text": "x"}),
    ("place", {**GOOD_MESSAGES[2], "lon": "1", "lat": "1"}),
    ("south", {**GOOD_MESSAGES[2], "south": "11"}),
    ("time", {**GOOD_MESSAGES[0], "time": "yesterday"}),
    ("time", {**GOOD_MESSAGES[0], "time": "1714979289000"}),
    ("ttl_s", {**GOOD_MESSAGES[0], "ttl_s": "-1"}),
]
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
BOX = {"west": "0", "south": "0", "east": "1", "north": "1"}
TRIANGLE = "POLYGON ((0 0, 1 0, 1 1, 0 0))"
NEAR = {"delta": "0.5", "tau": "0.6", "max_distance_m": "1e3"}
GOOD_SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"id": "a", "keywords": "hot tea", **BOX},
    {"id": "b", "expression": "tea \t AND NOT milk", "lon": "1", "lat": "1", "radius_m": "50.5"},
    {"id": "c", "geometry": json.dumps(SQUARE), "owner": "Ann", "expires_at": "2024-05-06"},
    {"id": "d", "geometry": TRIANGLE, "keywords": '["flat white"]'},
    {"id": "e", "lon": "1", "lat": "1", "keywords": "tea", "expression": "NOT milk", **NEAR},
    {"id": "f", **BOX, "keywords": "tea", "alpha": "0.5", "theta": "0.25"},
]
BAD_SUBSCRIPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("id", {"keywords": "tea", **BOX}),
    ("expression", {"id": "a", "keywords": "tea", "expression": "tea", **BOX}),
    ("expression", {"id": "a", "expression": "tea AND", **BOX}),
    ("keywords", {"id": "a", "keywords": "tea !!", **BOX}),
    ("place", {"id": "a", "keywords": "tea"}),
    ("geometry", {"id": "a", "keywords": "tea", "geometry": "POINT (1 2)"}),
    ("radius_m", {"id": "a", "lon": "1", "lat": "1", "radius_m": "-5"}),
    ("geometry", {"id": "a", "geometry": "POLYGON ((0 0, 1 1"}),
    ("north", {"id": "a", **BOX, "north": "99"}),
    ("expires_at", {"id": "a", **BOX, "expires_at": "never"}),
    ("owner", {"id": "a", **BOX, "owner": ""}),
    ("theta", {"id": "a", **BOX, "alpha": "0.5"}),
    ("tau", {"id": "a", "lon": "1", "lat": "1", **NEAR, "tau": "1.5"}),
    ("radius_m", {"id": "a", "lon": "1", "lat": "1", "radius_m": "5", **NEAR}),
]


def batch_of(records: list[dict[str, Any]], kind: str, first: int = 0) -> pa.RecordBatch:
    names = cleaning.COLUMNS[kind]
    columns: dict[str, Any] = {n: pa.array([r.get(n) for r in records], pa.string()) for n in names}
    return pa.record_batch({**columns, "row": pa.array([first] * len(records), pa.int64())})


def run(kind: str, *batches: pa.RecordBatch, **options: Any) -> tuple[pa.Table, pa.Table]:
    """Return the clean rows with their numbers, and the rejects."""
    names = [n for n in batches[0].schema.names if n not in {"row", DAMAGED}]
    job = Cleaning.of(kind, names, **options)
    counted = pa.Table.from_batches(clean_rows(batches, job), job.counted_schema)
    rejects = pa.Table.from_batches(clean_rejects(batches, job), cleaning.REJECTS)
    rows = counted.filter(counted["read"].is_null())
    given = sum(batch.num_rows for batch in batches)
    told = counted.filter(counted["read"].is_valid())
    assert sum(told["read"].to_pylist()) == given == len(rows) + len(rejects)
    assert sum(told["rejected"].to_pylist()) == len(rejects)
    assert len({*rejects["row"].to_pylist(), *rows["row"].to_pylist()}) == given
    return rows.drop_columns(["read", "rejected"]), rejects


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("messages", GOOD_MESSAGES, BAD_MESSAGES),
        ("subscriptions", GOOD_SUBSCRIPTIONS, BAD_SUBSCRIPTIONS),
    ],
)
def test_bad_rows_are_refused_for_the_field_at_fault(
    kind: str, good: list[dict[str, Any]], bad: list[tuple[str, dict[str, Any]]]
) -> None:
    records = [*good, *(record for _, record in bad)]
    rows, rejects = run(kind, batch_of(records, kind, first=1 << 33))
    assert rows["id"].to_pylist() == [record["id"] for record in good]
    assert rejects["field"].to_pylist() == [field for field, _ in bad]
    assert rejects["row"].to_pylist() == [(1 << 33) + len(good) + i for i in range(len(bad))]
    assert [json.loads(record) for record in rejects["record"].to_pylist()] == [r for _, r in bad]


def test_messages_of_text_become_typed() -> None:
    rows, _ = run("messages", batch_of(GOOD_MESSAGES, "messages"))
    assert rows.drop_columns("row").schema == pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("tokens", pa.list_(pa.string())),
            *[(n, pa.float64()) for n in ("lon", "lat", "west", "south", "east", "north")],
            ("geometry", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("ttl_s", pa.float64()),
            ("scope", pa.string()),
        ]
    )
    assert rows["tokens"].to_pylist()[:3] == [None, ["hot tea", "cake"], ["hot", "tea"]]
    assert rows["lon"].to_pylist() == [13.4, -180.0, None, 0.0, 1.0, 1.0]
    assert not np.signbit(rows["lat"].to_numpy()[3])
    assert rows["north"].to_pylist()[2] == 10.0
    assert rows["time"].to_pylist()[3:] == [None, MOMENT, MOMENT]
    assert rows["ttl_s"].to_pylist()[3:5] == [60.0, None]


def test_subscriptions_of_text_become_typed() -> None:
    rows, _ = run("subscriptions", batch_of(GOOD_SUBSCRIPTIONS, "subscriptions"))
    wanted = [["hot", "tea"], None, None, ["flat white"], ["tea"], ["tea"]]
    assert rows["keywords"].to_pylist() == wanted
    assert rows["max_distance_m"].to_pylist() == [None] * 4 + [1000.0, None]
    assert rows["theta"].to_pylist() == [None] * 5 + [0.25]
    assert rows["expression"].to_pylist()[1] == "tea AND NOT milk"
    assert rows["radius_m"].to_pylist()[1] == 50.5
    assert rows["geometry"].to_pylist()[3] == TRIANGLE
    assert rows["owner"].to_pylist() == [None, None, "Ann", None, None, None]
    assert rows["expires_at"].to_pylist()[2] == datetime(2024, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([MOMENT], pa.timestamp("us", "America/New_York")),
        pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")),
        pa.array([int(MOMENT.timestamp())]),
        pa.array([MOMENT.timestamp()]),
        pa.array(["2024-05-06T09:08:09+02:00"], pa.string_view()),
    ],
)
def test_times_of_any_type(times: pa.Array) -> None:
    batch = pa.record_batch(
        {"id": [7], "tokens": [["x"]], "lon": [1], "lat": [2], "time": times, "row": [0]}
    )
    rows, _ = run("messages", batch, integer_ids=True)
    assert rows["time"].to_pylist() == [MOMENT]
    assert rows["id"].to_pylist() == [7]


def test_dates_and_small_integers_and_structures() -> None:
    batch = pa.record_batch(
        {
            "id": pa.array([7, 8], pa.int16()),
            "geometry": pa.array([SQUARE, {"type": "Polygon", "coordinates": [[[0.0, 0.0]]]}]),
            "expires_at": pa.array([date(2024, 5, 6), None]),
            "owner": pa.array([None, None], pa.null()),
            "row": pa.array([0, 0]),
        }
    )
    rows, rejects = run("subscriptions", batch, integer_ids=True)
    assert json.loads(rows["geometry"].to_pylist()[0]) == SQUARE
    assert rows["expires_at"].to_pylist() == [datetime(2024, 5, 6, tzinfo=UTC)]
    assert rows["owner"].to_pylist() == [None]
    assert rejects["field"].to_pylist() == ["geometry"]


def test_binary_geometry_stays_as_it_came() -> None:
    triangle = shapely.to_wkb(shapely.from_wkt(TRIANGLE))
    batch = pa.record_batch({"id": ["a"], "geometry": [triangle], "row": [0]})
    rows, _ = run("subscriptions", batch, binary_geometry=True)
    assert rows["geometry"].to_pylist() == [triangle]


@pytest.mark.parametrize("kind", ["messages", "subscriptions"])
def test_an_id_that_occurs_again_is_no_fault_of_the_row(kind: str) -> None:
    good = {"messages": GOOD_MESSAGES, "subscriptions": GOOD_SUBSCRIPTIONS}[kind][0]
    bad = {**good, "south": None, "lat": None}
    rows, rejects = run(kind, batch_of([good, good, bad, good], kind))
    assert rows["row"].to_pylist() == [0, 1, 3]
    assert rejects["row"].to_pylist() == [2]


def test_rows_are_numbered_through_all_batches_of_a_task() -> None:
    records = [*GOOD_MESSAGES, *(record for _, record in BAD_MESSAGES)]
    pieces = [batch_of(records[i : i + 4], "messages", 100) for i in range(0, len(records), 4)]
    whole = run("messages", batch_of(records, "messages", 100))
    cut = run("messages", *pieces, batch_of([], "messages"))
    assert [table.to_pylist() for table in cut] == [table.to_pylist() for table in whole]


def test_lines_that_could_not_be_read_are_refused_as_they_are() -> None:
    batch = batch_of([{}, GOOD_MESSAGES[0], BAD_MESSAGES[0][1], {}], "messages")
    bad = pa.array([b"{nope", None, None, b"\xff"]).view(pa.string())
    batch = batch.append_column(DAMAGED, bad)
    rows, rejects = run("messages", batch, damaged="is no JSON object")
    assert rows["row"].to_pylist() == [1]
    told = {r["row"]: (r["field"], r["reason"], r["record"]) for r in rejects.to_pylist()}
    assert told[0] == ("", "is no JSON object", '"{nope"')
    assert told[2][0] == "id"
    assert told[3][:2] == ("", "is no JSON object")


def test_the_vocabulary_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(Vocabulary):
        def __init__(self) -> None:
            made.append(self)
            super().__init__()

    monkeypatch.setattr(cleaning, "_MAX_TOKENS", 2)
    monkeypatch.setattr(cleaning, "Vocabulary", Counted)
    wide = [{"id": f"{i}", "keywords": f"a{i} b{i}", **BOX} for i in range(10)]
    batches = [batch_of(wide[i : i + 1], "subscriptions") for i in range(10)]
    job = Cleaning.of("subscriptions", ["id", "keywords", *BOX])
    assert [b.num_rows for b in clean_rows(batches, job)] == [2] * 10
    assert max(map(len, made)) <= 4


@pytest.mark.parametrize("names", [["id", "lon", "lat"], ["id", "text", "lon"], ["text"]])
def test_missing_columns_are_named(names: list[str]) -> None:
    with pytest.raises(UnsupportedFile, match="it has the columns " + ", ".join(names)):
        require_columns("messages", names)


def test_columns_must_be_there_once() -> None:
    require_columns("subscriptions", ["id", "geometry", "other", "other"])
    with pytest.raises(UnsupportedFile, match="occurs twice"):
        require_columns("subscriptions", ["id", "id", "geometry"])
    with pytest.raises(UnknownName, match="messages, subscriptions"):
        Cleaning.of("matches", ["id"])


def test_the_job_pickles() -> None:
    job = partial(clean_rows, cleaning=Cleaning.of("messages", ["id", "text", "lon", "lat"]))
    again = pickle.loads(pickle.dumps(job))
    [batch] = again([batch_of(GOOD_MESSAGES[:1], "messages")])
    assert batch.column("id").to_pylist() == ["a", None]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.text(
    "eE\u0301\u212bÅ\u017f \t\n\x00\x85\u2028\u00a0\u200d\ufb01", max_size=12
)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=8))
def test_normalizing_keeps_the_words(texts: list[str]) -> None:
    once = normalized(pa.array(texts, pa.large_string()))
    assert once.type == pa.string()
    assert normalized(once) == once
    for before, after in zip(texts, once.to_pylist(), strict=True):
        assert words(after) == words(before)
        assert after == after.strip()
        assert "  " not in after


DEGREES = st.floats(-1, 1, width=32) | st.floats(-181, 181) | st.integers(-90, 90)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, DEGREES, DEGREES), min_size=1, max_size=8))
def test_clean_messages_mean_the_same_and_stay_as_they_are(
    rows: list[tuple[str, Any, Any]],
) -> None:
    text, lon, lat = (list(part) for part in zip(*rows, strict=True))
    raw = pa.record_batch(
        {
            "id": pa.array(range(len(rows))),
            "text": pa.array(text),
            "lon": pa.array([float(x) for x in lon]),
            "lat": pa.array([str(y) for y in lat]),
            "row": pa.array([0] * len(rows)),
        }
    )
    clean, _ = run("messages", raw, integer_ids=True)
    again = clean.drop_columns("row").append_column("row", pa.array([0] * len(clean), pa.int64()))
    if len(clean):
        twice, _ = run("messages", again.combine_chunks().to_batches()[0], integer_ids=True)
        assert twice.drop_columns("row") == clean.drop_columns("row")
    vocabulary = Vocabulary(words(" ".join(text)))
    before, _ = read_messages(pa.Table.from_batches([raw]), now_us=0)
    after, refused = read_messages(clean, now_us=0)
    assert not len(refused)
    assert after.ids.tolist() == before.ids.tolist()
    assert after.box.tolist() == before.box.tolist()
    assert after.number(vocabulary).token.tolist() == before.number(vocabulary).token.tolist()


def test_clean_subscriptions_mean_the_same() -> None:
    raw = batch_of(GOOD_SUBSCRIPTIONS, "subscriptions")
    clean, _ = run("subscriptions", raw)
    before, _ = read_subscriptions(pa.Table.from_batches([raw]), Vocabulary())
    after, refused = read_subscriptions(clean, Vocabulary())
    assert not len(refused)
    for name in ("token_start", "token", "negative", "box", "row"):
        one, other = getattr(before.clauses, name), getattr(after.clauses, name)
        assert one.tolist() == other.tolist(), name
    assert before.expires_us.tolist() == after.expires_us.tolist()
