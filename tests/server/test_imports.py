"""Imports and moves: lines of several kinds, and what is refused of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import model
from nearcast.server.http import imports
from nearcast.server.http.definitions import DefinitionLimits, definition_of, request_of
from nearcast.server.http.imports import read_import, read_moves
from nearcast.server.http.plain_records import plain_definitions
from nearcast.server.http.problems import Problem

NOW_US = 1_795_888_800_000_000
TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}
POINT = {"type": "Point", "coordinates": [13.4, 52.5]}
RESOURCE = {
    "id": "r1",
    "config": {"subscriptionDetail": {"keywords": ["tea"], "region": TRIANGLE, "subscriber": "b"}},
}
RECORD = {
    "id": 7,
    "keywords": ["tea"],
    "lon": 13.4,
    "lat": 52.5,
    "radius_m": 500,
    "owner": "ann",
    "expires_at": "2099-01-01T00:00:00Z",
}


def lines(*records: Any) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


def test_resources_and_records_side_by_side() -> None:
    body = b"\xef\xbb\xbf" + lines(RESOURCE, RECORD) + b"\r\n\n{\n[]\n" + lines({"id": 1})
    lines_read, definitions, rejected = read_import(body, now_us=NOW_US)
    assert lines_read == [1, 2]
    assert definitions[0] == definition_of(request_of(RESOURCE), now_us=NOW_US)
    assert (definitions[1]["id"], definitions[1]["subscriber"]) == ("7", "ann")
    assert definitions[1]["expires_us"] == 4_070_908_800_000_000
    assert definitions[1]["row"] == {
        "keywords": ["tea"],
        "lon": 13.4,
        "lat": 52.5,
        "radius_m": 500.0,
    }
    assert [(one.line, one.field) for one in rejected] == [(4, ""), (5, ""), (6, "place")]
    shown = definitions[1]["given"]
    again = definition_of(request_of(shown), now_us=NOW_US)
    assert again == definitions[1]


def test_a_collection_of_features() -> None:
    features = [
        {"type": "Feature", "id": "f1", "geometry": TRIANGLE, "properties": {"keywords": ["tea"]}},
        {"type": "Feature", "geometry": POINT, "properties": {"id": "f2", "radius_m": 500}},
        {"type": "Feature", "geometry": None, "properties": {"id": "f3"}},
        {"type": "Feature", "geometry": TRIANGLE, "properties": {"id": "f4", "radius_m": 5}},
        {"type": "Feature", "geometry": TRIANGLE, "properties": None},
        {
            "type": "Feature",
            "geometry": POINT,
            "properties": {"id": 6, "keywords": "tea", "delta": 0.3, "tau": 0.5}
            | {"max_distance_m": 2000},
        },
        7,
    ]
    body = json.dumps({"type": "FeatureCollection", "features": features}, indent=1).encode()
    lines_read, definitions, rejected = read_import(body, now_us=NOW_US)
    assert lines_read == [1, 2, 6]
    assert [definition["id"] for definition in definitions] == ["f1", "f2", "6"]
    assert definitions[0]["row"]["geometry"] == model.region(TRIANGLE).to_wkb()
    assert definitions[1]["row"] == {"lon": 13.4, "lat": 52.5, "radius_m": 500.0}
    assert definitions[2]["row"]["max_distance_m"] == 2000
    found = [(one.line, one.field) for one in rejected]
    assert found == [(3, "geometry"), (4, "radius_m"), (5, "id"), (7, "type")]


def test_a_collection_without_features_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        read_import(b'{"type": "FeatureCollection"}')
    assert caught.value.errors[0].field == "features"


def test_limits_hold_for_every_line() -> None:
    limits = DefinitionLimits(vertices=3, clauses=1)
    record = {"id": 1, "geometry": TRIANGLE}
    words = {"id": 2, "expression": "a OR b", "lon": 1, "lat": 1, "radius_m": 1}
    expired, large = RECORD | {"expires_at": 1}, RECORD | {"radius_m": 1e9}
    owner = RECORD | {"owner": "a\nb"}
    body = lines(record, RESOURCE, words, expired, large, owner, RECORD | {"keywords": ["--"]})
    rejected = read_import(body, limits, now_us=NOW_US).rejected
    assert [(one.line, one.field) for one in rejected] == [
        (1, "geometry"),
        (2, "config.subscriptionDetail.region"),
        (3, "expression"),
        (4, "expires_at"),
        (5, "radius_m"),
        (6, "owner"),
        (7, "keywords"),
    ]


MOVES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"lon": 13.4, "lat": 52.5}, {"lon": 13.4, "lat": 52.5}),
    ({"region": POINT}, {"lon": 13.4, "lat": 52.5}),
    ({"lon": 1, "lat": 2, "radius_m": 3}, {"lon": 1.0, "lat": 2.0, "radius_m": 3.0}),
    (
        {"west": 1, "south": 2, "east": 3, "north": 4},
        {"west": 1.0, "south": 2.0, "east": 3.0, "north": 4.0},
    ),
    ({"region": TRIANGLE}, {"geometry": model.region(TRIANGLE).to_wkb()}),
    (
        {
            "region": {
                "areaType": "CIRCLE",
                "center": {"latitude": 2, "longitude": 1},
                "radius": 3,
            }
        },
        {"lon": 1.0, "lat": 2.0, "radius_m": 3.0},
    ),
]


@pytest.mark.parametrize(("place", "row"), MOVES)
def test_moves(place: dict[str, Any], row: dict[str, Any]) -> None:
    read = read_moves(lines({"subscriptionId": "s1", **place}))
    assert (read.lines, read.rejected) == ([1], [])
    assert read.moves == [("s1", None, row)]


def test_times_of_moves() -> None:
    place = {"subscriptionId": "s", "lon": 1, "lat": 1}
    body = lines(place | {"time": "1970-01-01T01:00:01+01:00"}, place | {"time": 1.5})
    assert [move.time_us for move in read_moves(body).moves] == [1_000_000, 1_500_000]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"subscriptionId": 7}, "subscriptionId"),
        ({"time": True}, "time"),
        ({"time": "1970-01-01"}, "time"),
        ({"time": 1e15}, "time"),
        ({"lon": 181}, "lon"),
        ({"lon": None}, "lon"),
        ({"region": POINT}, "lon"),
        ({"color": "red"}, "color"),
        ({"west": 1, "south": 1, "east": 1, "north": 1, "radius_m": 1}, "place"),
    ],
)
def test_moves_that_are_refused(change: dict[str, Any], field: str) -> None:
    good = {"subscriptionId": "s", "lon": 1, "lat": 1}
    read = read_moves(lines(good, good | change, good))
    assert read.lines == [1, 3]
    [rejected] = read.rejected
    assert (rejected.line, rejected.field) == (2, field)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (read_import(body), read_moves(body)):
        count = sum(1 for one in body.removeprefix(b"\xef\xbb\xbf").split(b"\n") if one.strip())
        assert len(read.lines) + len(read.rejected) == count


_numbers = st.one_of(
    st.floats(-185, 185),
    st.integers(-91, 91),
    st.sampled_from([0, -0.0, 180, -180, 90, 1e-8, 13.123456789, 20_037_510, 1e300, 10**400, True]),
)
_texts = st.one_of(
    st.sampled_from(["tea", "flat white", "", "--", "c++", '"old town"', "to*", "AND", "x/y", "."]),
    st.text(max_size=6),
)
_plain_records = st.fixed_dictionaries(
    {
        "id": st.one_of(_texts, st.integers(-(2**64), 2**64), st.none()),
        "keywords": st.one_of(st.lists(_texts, max_size=3), _texts, st.just(["tea"])),
    },
    optional={"owner": st.one_of(_texts, st.none()), "color": st.just("red")},
)
_circles = st.fixed_dictionaries({"lon": _numbers, "lat": _numbers, "radius_m": _numbers})
_boxes = st.fixed_dictionaries(
    {"west": _numbers, "south": _numbers, "east": _numbers, "north": _numbers}
)
_fine = st.fixed_dictionaries(
    {
        "id": st.text("abc", min_size=1, max_size=3),
        "keywords": st.lists(st.sampled_from(["tea", "Tea", "flat white", "é"]), min_size=1),
    },
    optional={"owner": st.sampled_from(["ann", "bob"])},
)
_small = st.fixed_dictionaries(
    {"lon": st.floats(-180, 180), "lat": st.floats(-90, 90), "radius_m": st.floats(0, 1e7)}
)


@given(
    st.lists(
        st.one_of(
            st.tuples(_plain_records, st.one_of(_circles, _boxes)),
            st.tuples(_fine, st.one_of(_small, _small, _boxes)),
        ),
        max_size=6,
    )
)
def test_records_that_are_read_together_are_read_as_one_by_one(given: Any) -> None:
    body = b"\n".join(json.dumps({**words, **place}).encode() for words, place in given)
    together = read_import(body, now_us=NOW_US)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "plain_definitions", lambda records: [None] * len(records))
        one_by_one = read_import(body, now_us=NOW_US)
    assert repr(together) == repr(one_by_one)  # which tells 0.0 from -0.0


def test_plain_records_are_read_together() -> None:
    box = {"id": "b", "keywords": ["tea"], "west": 1, "south": 2, "east": 3, "north": 4}
    circle = {"id": 7, "keywords": ["tea"], "lon": 1, "lat": 2, "radius_m": 3, "owner": "ann"}
    others = [RESOURCE, RECORD, circle | {"lat": 91}, box | {"west": 170, "east": -170}, 7]
    found = plain_definitions([box, circle, *others])
    assert [one is not None for one in found] == [True, True, *[False] * 5]


_json_values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('ab"\\[]{},: \n', max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('a"\\,]', max_size=3), inner)
    ),
    max_leaves=8,
)


@given(st.lists(_json_values, max_size=5), st.sampled_from([None, 1]))
def test_the_elements_of_an_array_are_found(values: list[Any], indent: int | None) -> None:
    array = json.dumps(values, indent=indent).encode()
    found = [json.loads(one) for one in imports._elements(memoryview(array))]
    assert found == values


def test_a_collection_may_have_its_members_in_any_order_and_spaces() -> None:
    feature = {
        "type": "Feature",
        "properties": {"note": ["a]", 'b",{'], "id": "f", "keywords": ["tea"], "radius_m": 5},
        "geometry": POINT,
    }
    for features, count in (([], 0), ([feature], 1), ([feature, feature], 2)):
        body = {"name": [{}], "features": features, "crs": {"a": []}, "type": "FeatureCollection"}
        read = read_import(json.dumps(body, indent=2).encode(), now_us=NOW_US)
        assert (len(read.definitions), read.rejected) == (count, [])
        assert all(one["row"]["radius_m"] == 5 for one in read.definitions)


@pytest.mark.parametrize("body", [b"{}\n" * 5_000, b"no json\n" * 5_000, b"[]\n" * 5_000])
def test_reading_stops_when_too_many_lines_are_refused(body: bytes) -> None:
    valid = b"".join(lines(RECORD | {"id": number}) + b"\n" for number in range(30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "_RECORDS_AT_ONCE", 20)
        read = read_import(valid + body, now_us=NOW_US, max_rejected=100)
    assert len(read.definitions) == 30
    assert 100 < len(read.rejected) <= 160
    moves = read_moves(body, max_rejected=100)
    assert (len(moves.moves), len(moves.rejected)) == (0, 101)


def test_a_record_of_empty_arrays_is_never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = b'{"id": 1, "a": [' + b"[]," * 200_000 + b"1]}"
    decoded: list[int] = []
    decode = imports._decode

    def counted(line: bytes) -> Any:
        decoded.append(len(line))
        return decode(line)

    monkeypatch.setattr(imports, "_decode", counted)
    collection = b'{"type":"FeatureCollection","features":[%b]}' % huge
    for body in (huge + b"\n" + lines(RECORD), collection):
        read = read_import(body, now_us=NOW_US)
        assert read.rejected[0].line == 1
        assert "brackets and commas; at most 180,000" in read.rejected[0].reason
    assert read_moves(huge).rejected[0].line == 1
    assert max(decoded) < 1_000


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"keywords": ["a"] * 1_001}, "1001 keywords"),
        ({"keywords": ["tea", "a" * 257]}, "a keyword has 257"),
        ({"keywords": "tea " * 5_000}, "20,000 characters"),
        ({"Expression": "tea " * 5_000}, "20,000 characters"),
        ({"expression": "tea " + "a" * 257}, "a word has 257"),
    ],
)
def test_long_texts_are_refused_before_they_are_parsed(
    words: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"id": 1, "lon": 1, "lat": 2, "radius_m": 3}
    monkeypatch.setattr(model, "Subscription", None)
    [rejected] = read_import(lines(place | words), now_us=NOW_US).rejected
    assert reason in rejected.reason
    assert rejected.field == next(iter(words)).lower()
