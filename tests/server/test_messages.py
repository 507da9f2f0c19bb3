"""Messages: three ways to read them that agree, and everything that can be wrong with a body."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crafted_tables import CRAFTED, VALID, bounded, damaged, stream_of
from effort import examples, repeated
from nearcast.errors import InvalidInput
from nearcast.intake import messages_from, read_messages
from nearcast.model import Message
from nearcast.server.http.messages import ARROW, JSON, NDJSON, parse_at_once, parse_messages
from nearcast.server.http.problems import Problem
from nearcast.server.log import messages as messages_module
from nearcast.server.log.messages import (
    MessageLimits,
    Rejected,
    canonical,
    columns_of,
    read_array,
    read_lines,
)
from nearcast.text import words

GOOD = {"id": "m1", "text": "tea", "lon": 13.5, "lat": 52.5}
LIMITS = MessageLimits()


def line(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def without(*names: str, **fields: Any) -> dict[str, Any]:
    return {name: value for name, value in {**GOOD, **fields}.items() if name not in names}


def only(body: bytes) -> Rejected:
    blobs, rejected = read_lines(body)
    assert blobs == []
    [one] = rejected
    return one


ACCEPTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (GOOD, GOOD),
    (without("id"), without("id")),
    (without(id=-(2**63)), without(id=-(2**63))),
    (without(id="ä" * 128), without(id="ä" * 128)),
    (without(id=None, ttl_s=None), without("id")),
    (without(lon=13), without(lon=13.0)),
    (without(text=""), without(text="")),
    (without("text", tokens=["a", "b"]), without("text", tokens=["a", "b"])),
    (without(text=None, tokens=[]), without("text", tokens=[])),
    (
        without("lon", "lat", west=170, south=-1, east=-170, north=1),
        without("lon", "lat", west=170.0, south=-1.0, east=-170.0, north=1.0),
    ),
    (
        without("lon", "lat", geometry={"type": "Point", "coordinates": [13.5, 52.5]}),
        GOOD,
    ),
    (
        without("lon", "lat", geometry={"type": "Point", "coordinates": [13.5, 52.5, 40]}),
        GOOD,
    ),
    (
        without(
            "lon",
            "lat",
            geometry={"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 2], [0, 2], [0, 0]]]},
        ),
        without("lon", "lat", west=0.0, south=0.0, east=1.0, north=2.0),
    ),
    (
        without(time="2026-11-17T19:00:00.25+01:00"),
        without(time="2026-11-17T19:00:00.250000+01:00"),
    ),
    (without(time="2026-11-17T18:00:00Z"), without(time="2026-11-17T18:00:00Z")),
    (without(time=1.5, ttl_s=60), without(time=1.5, ttl_s=60.0)),
    (without(properties={}), without(properties={})),
    (
        without(properties={"a": [1, {"b": None}], "n": 2**70}),
        without(properties={"a": [1, {"b": None}], "n": 2**70}),
    ),
]


@pytest.mark.parametrize(("fields", "stored"), ACCEPTED)
def test_what_is_stored_of_a_message(fields: dict[str, Any], stored: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    [blob], rejected = read_lines(body)
    assert rejected == []
    assert json.loads(blob) == stored
    assert b"\n" not in blob
    assert read_array(body).blobs == [blob]
    assert read_array(b"[" + body + b"]").blobs == [blob]
    assert canonical(json.loads(body)) == blob
    assert read_lines(blob).blobs == [blob]


REFUSED: list[tuple[Any, str]] = [
    (without("text"), "text"),
    (without(tokens=["a"]), "text"),
    (without("text", tokens="a b"), "tokens"),
    (without("text", tokens=["a", 1]), "tokens"),
    (without("text", tokens=["a", None]), "tokens"),
    (without(text=7), "text"),
    (without("lon"), "lon"),
    (without("lon", "lat"), "place"),
    (without(lon="13.5"), "lon"),
    (without(lat=False), "lat"),
    (without(lon=180.5), "lon"),
    (without(lat=-91), "lat"),
    (without(lon=10**400), "lon"),
    (without(west=1, south=1, east=2, north=2), "place"),
    (without("lon", "lat", west=1, south=1, east=2), "north"),
    (without("lon", "lat", west=1, south=3, east=2, north=2), "south"),
    (without(geometry={"type": "Point", "coordinates": [1, 2]}), "geometry"),
    (without("lon", "lat", geometry="POINT (1 2)"), "geometry"),
    (without("lon", "lat", geometry={"type": "LineString", "coordinates": []}), "geometry"),
    (without("lon", "lat", geometry={"type": "Point", "coordinates": [True, 2]}), "lon"),
    (without(id=""), "id"),
    (without(id=1.0), "id"),
    (without(id=True), "id"),
    (without(id=2**63), "id"),
    (without(id="a\0b"), "id"),
    (without(id="ä" * 129), "id"),
    (without(time=True), "time"),
    (without(time="2026-11-17T18:00:00"), "time"),
    (without(time="2026-11-17"), "time"),
    (without(time="1.5"), "time"),
    (without(time="0001-01-01T00:00:00+14:00"), "time"),
    (without(time=1_795_888_800_000), "time"),
    (without(time=[1]), "time"),
    (without(ttl_s=-1), "ttl_s"),
    (without(ttl_s="60"), "ttl_s"),
    (without(ttl_s=1e300), "ttl_s"),
    (without(properties=[]), "properties"),
    (without(properties=json.loads('{"a":' * 40 + "1" + "}" * 40)), "properties"),
    (without(color="red"), "color"),
    (without(txet="red"), "txet"),
    ([], ""),
    (7, ""),
    (None, ""),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED)
def test_refusals_name_the_field_and_leave_the_others(fields: Any, field: str) -> None:
    bad = json.dumps(fields).encode()
    blobs, [rejected] = read_lines(b"\n".join([line(id="a"), bad, line(id="b")]))
    assert [json.loads(blob)["id"] for blob in blobs] == ["a", "b"]
    assert (rejected.line, rejected.field) == (2, field)
    assert rejected.reason
    assert read_array(b"[" + bad + b"," + line() + b"]").rejected == [rejected._replace(line=1)]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"text": "a", "lon": NaN, "lat": 1}',
        b'{"text": "a", "lon": Infinity, "lat": 1}',
        b'{"text": "a", "lon": 1e400, "lat": 1}',
        b'{"text": "\\ud800", "lon": 1, "lat": 1}',
        b'{"text": "\\ud800\\ud800", "lon": 1, "lat": 1}',
        b'{"text": "\\udc00 a", "lon": 1, "lat": 1}',
        b'{"text": "\xff", "lon": 1, "lat": 1}',
        b'{"text": "\xed\xa0\x80", "lon": 1, "lat": 1}',
        b'{"text": "a", "lon": 1, "lat": 1} {"text": "b", "lon": 1, "lat": 1}',
        b'{"text": "a", "lon": 1, "lat": 1',
        b'{"text": "a", "lon": 01, "lat": 1}',
        b'{"properties": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b'{"text": "a\tb", "lon": 1, "lat": 1}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_lines_that_are_not_json(bad: bytes) -> None:
    body = line() + b"\n" + bad + b"\n" + line()
    blobs, [rejected] = read_lines(body)
    assert len(blobs) == 2
    assert (rejected.line, rejected.field) == (2, "")
    assert rejected.reason.startswith("is ")


def test_line_ends_empty_lines_and_byte_order_marks() -> None:
    body = b"\xef\xbb\xbf" + line(id=1) + b"\r\n\r\n  \n" + line(id=2) + b"\r\n{}\r\n"
    blobs, rejected = read_lines(body)
    assert [json.loads(blob)["id"] for blob in blobs] == [1, 2]
    assert [one.line for one in rejected] == [5]
    for empty in (b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf"):
        assert read_lines(empty) == ([], [])
    assert read_array(b"\xef\xbb\xbf [ ] \n") == ([], [])


def test_a_message_is_one_line_of_ndjson() -> None:
    blobs, rejected = read_lines(b'{"text": "a",\n"lon": 1, "lat": 1}')
    assert blobs == []
    assert [one.line for one in rejected] == [1, 2]


def test_the_last_of_repeated_names_counts() -> None:
    [blob], _ = read_lines(b'{"text": "a", "text": "b", "lon": 1, "lat": 1}')
    assert json.loads(blob)["text"] == "b"


def test_a_message_that_is_too_large_is_refused_alone() -> None:
    limits = MessageLimits(message_bytes=200)
    blobs, [rejected] = read_lines(line() + b"\n" + line(text="a" * 200), limits)
    assert len(blobs) == 1
    assert "at most 200" in rejected.reason
    blobs, [rejected] = read_array(b"[" + line() + b"," + line(text="a" * 200) + b"]", limits)
    assert len(blobs) == 1
    assert rejected.line == 2


@pytest.mark.parametrize("body", [b"", b"7", b'"a"', b"null", b"[1", b"{", b"\xff", b"[" * 9000])
def test_json_bodies_that_are_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_messages(body, JSON, LIMITS)
    assert (caught.value.status, caught.value.errors[0].field) == (400, "body")


def test_limits_of_a_body() -> None:
    limits = MessageLimits(body_bytes=1000, messages=3)
    assert len(parse_messages(b"\n".join([line()] * 3), NDJSON, limits).blobs) == 3
    assert len(parse_messages(b"\n".join([line()] * 3) + b"\n", NDJSON, limits).blobs) == 3
    for body, kind in [
        (b"\n".join([line()] * 4), NDJSON),
        (b"[" + b",".join([line()] * 4) + b"]", JSON),
        (b" " * 1001, JSON),
        (arrow([GOOD] * 4), ARROW),
    ]:
        with pytest.raises(Problem) as caught:
            parse_messages(body, kind, limits)
        assert caught.value.status == 413


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/json; charset=latin-1", "application/xml"]
)
def test_other_media_types(content_type: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_messages(line(), content_type, LIMITS)
    assert caught.value.status == 415


def arrow(rows: list[dict[str, Any]], schema: Any = None, **options: Any) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({n: [row.get(n) for row in rows] for n in names}, schema=schema)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def test_an_arrow_stream() -> None:
    time = datetime(2026, 11, 17, 18, tzinfo=UTC)
    rows = [
        {**GOOD, "time": time, "properties": {"a": 1}},
        {"id": "m2", "tokens": ["a"], "west": 0, "south": 0, "east": 1, "north": 1},
        {"id": "m3", "text": "tea", "lon": 190.0, "lat": 0.0},
    ]
    blobs, [rejected] = parse_messages(arrow(rows), ARROW, LIMITS)
    assert json.loads(blobs[0]) == {
        **GOOD,
        "time": "2026-11-17T18:00:00Z",
        "properties": {"a": 1},
    }
    assert json.loads(blobs[1])["tokens"] == ["a"]
    assert (rejected.line, rejected.field) == (3, "lon")


def test_arrow_times_of_all_units_without_a_zone_are_utc() -> None:
    for unit in ("s", "ms", "us", "ns"):
        schema = pa.schema(
            {
                "text": pa.string(),
                "lon": pa.float32(),
                "lat": pa.int8(),
                "time": pa.timestamp(unit),
            }
        )
        rows = [{"text": "a", "lon": 1.5, "lat": 2, "time": datetime(2026, 11, 17, 18)}]
        [blob], _ = parse_messages(arrow(rows, schema), ARROW, LIMITS)
        assert json.loads(blob)["time"] == "2026-11-17T18:00:00Z"


def test_arrow_streams_that_are_refused() -> None:
    encoded = pa.schema([("text", pa.dictionary(pa.int32(), pa.string())), ("lon", pa.float64())])
    for body in [
        b"",
        b"abc",
        arrow([GOOD])[:-40],
        arrow([GOOD], compression="zstd"),
        arrow([GOOD], compression="lz4"),
        arrow([{"text": "a", "lon": 1.0}], encoded),
    ]:
        with pytest.raises(Problem) as caught:
            parse_messages(body, ARROW, LIMITS)
        assert caught.value.status == 400


@pytest.mark.parametrize("place", ["tokens", "properties", "id"])
@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_arrow_column_is_refused_before_it_is_read(name: str, place: str) -> None:
    """The elements of lists are counted before they become objects of Python."""
    column = CRAFTED[name]()
    table = pa.table({"text": pa.array(["tea"] * len(column)), place: column})
    body = stream_of(table)
    parse_messages(arrow([GOOD]), ARROW, LIMITS)
    with bounded((8 << 20) + 4 * len(body)), pytest.raises(Problem) as caught:
        parse_messages(body, ARROW, LIMITS)
    assert caught.value.status == 400
    assert caught.value.errors[0].field == "body"


def test_arrow_values_are_bounded_by_the_bytes_of_the_body() -> None:
    limits = MessageLimits(messages=1_000)
    for count, fits in ((31_800, True), (36_000, False)):
        kind = pa.struct([("a", pa.list_(pa.struct([])))])
        properties = pa.array([{"a": [{}] * count}], kind)
        body = stream_of(
            pa.table({"text": ["a"], "lon": [1.0], "lat": [1.0], "properties": properties})
        )
        if fits:  # and is too large a message
            [rejected] = parse_messages(body, ARROW, limits).rejected
            assert rejected.reason.startswith("has 95,")
            continue
        with pytest.raises(Problem) as caught:
            parse_messages(body, ARROW, limits)
        allowed = f"{32 * limits.messages + len(body):,}"
        assert "stands for 36,005 values" in caught.value.detail
        assert f"at most {allowed} are read of so few bytes" in caught.value.detail


def test_arrow_columns_that_are_unknown_or_there_twice() -> None:
    for names, field, reason in [
        (("text", "color"), "color", "is not a column of messages (id, text"),
        (("text", "text"), "text", "occurs twice"),
    ]:
        table = pa.Table.from_arrays([pa.array(["a"])] * 2, [*names])
        with pytest.raises(Problem) as caught:
            parse_messages(stream_of(table), ARROW, LIMITS)
        [error] = caught.value.errors
        assert (caught.value.status, error.field) == (400, field)
        assert error.reason.startswith(reason)


def test_arrow_types_that_polars_and_pandas_write_are_read() -> None:
    columns = {
        "text": pa.array(["a text of more than twelve bytes", "tea"], pa.string_view()),
        "lon": pa.array([1, 2], pa.uint8()),
        "lat": pa.array([1.5, None], pa.float32()),
        "time": pa.array([0, 1], pa.timestamp("ns", "Europe/Berlin")),
        "properties": pa.array([{"a": [], "b": [None], "c": [{}], "d": None}, None]),
    }
    blobs, [rejected] = parse_messages(stream_of(pa.table(columns)), ARROW, LIMITS)
    assert json.loads(blobs[0]) == {
        "text": "a text of more than twelve bytes",
        "lon": 1.0,
        "lat": 1.5,
        "time": "1970-01-01T01:00:00+01:00",
        "properties": {"a": [], "b": [None], "c": [{}], "d": None},
    }
    assert (rejected.line, rejected.field) == (2, "lat")
    lists = {"tokens": pa.array([["a"], ["b", "c"]], pa.list_view(pa.string_view()))}
    table = pa.table({**lists, "lon": [1.0, 2.0], "lat": [1.0, 2.0]})
    blobs, _ = parse_messages(stream_of(table), ARROW, LIMITS)
    assert [json.loads(blob)["tokens"] for blob in blobs] == [["a"], ["b", "c"]]


def test_generated_arrow_streams_are_problems_or_messages() -> None:
    bodies = [stream_of(table()) for table in VALID.values()]
    refused: Counter[int] = Counter()
    parse_messages(arrow([GOOD]), ARROW, LIMITS)
    for seed in range(repeated("NEARCAST_DAMAGED_TABLES", 500, 10_000)):
        chance = random.Random(seed)
        body = damaged(chance.choice(bodies), chance)
        with bounded(32 << 20):
            try:
                found = parse_messages(body, ARROW, LIMITS)
            except Problem as problem:
                refused[problem.status] += 1
            else:
                assert len(found.blobs) + len(found.rejected) <= 3, seed
    assert refused.keys() <= {400, 413}


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
@settings(max_examples=examples(200))
def test_damaged_arrow_streams_never_raise_anything_else(place: int, damage: bytes) -> None:
    body = bytearray(arrow([GOOD, GOOD]))
    place %= len(body)
    body[place : place + len(damage)] = damage
    try:
        parse_messages(bytes(body), ARROW, LIMITS)
    except Problem as problem:
        status = problem.status
    else:
        status = 400
    assert status in (400, 413)


numbers = st.sampled_from([0, 1, -1, 90, 180, 180.0000001, -181, 1.5, 1e308, 2**63, 2**70, -0.0])
values = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.text(max_size=5),
    st.sampled_from(["2026-11-17T18:00:00Z", "9999-12-31T23:59:59-01:00", "1", "a\0"]),
    st.lists(st.text(max_size=3), max_size=3),
    st.just({"type": "Point", "coordinates": [1, 2]}),
    st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3), max_size=2),
)
names = st.sampled_from(
    "id text tokens lon lat west south east north geometry time ttl_s properties color".split()
)
likely = st.fixed_dictionaries(
    {"text": st.text(max_size=5), "lon": numbers, "lat": numbers},
    optional={"id": values, "time": values, "ttl_s": values, "properties": values},
)


@given(st.one_of(likely, st.dictionaries(names, values)))
@settings(max_examples=examples(500))
def test_the_three_ways_agree_with_each_other_and_the_library(fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    fast = read_lines(body)
    assert read_array(b"[" + body + b"]") == fast
    try:
        expected = [canonical(fields)]
    except InvalidInput:
        expected = []
    assert fast.blobs == expected
    assert len(fast.rejected) == 1 - len(expected)
    for blob in fast.blobs:
        stored = json.loads(blob)
        assert canonical(stored) == blob
        kept = {"id": 0, **{n: v for n, v in fields.items() if v is not None}}
        ours, theirs = Message.from_dict({"id": 0, **stored}), Message.from_dict(kept)
        assert (ours.place, ours.text, ours.tokens) == (theirs.place, theirs.text, theirs.tokens)
        assert (ours.time_us, ours.ttl_us) == (theirs.time_us, theirs.ttl_us)


@given(st.binary(max_size=60))
def test_any_bytes_are_lines_or_refused(body: bytes) -> None:
    blobs, rejected = read_lines(body)
    assert len(blobs) + len(rejected) == sum(1 for one in _lines(body) if one.strip())
    for blob in blobs:
        msgspec.json.decode(blob)


def _lines(body: bytes) -> list[bytes]:
    return body.removeprefix(b"\xef\xbb\xbf").split(b"\n")


@given(st.lists(st.sampled_from([fields for fields, _ in ACCEPTED]), min_size=1, max_size=6))
def test_columns_mean_the_same_messages_to_the_engine(chosen: list[dict[str, Any]]) -> None:
    blobs = [canonical(fields) for fields in chosen]
    columns = columns_of(blobs)
    assert ("tokens" in columns) == any(fields.get("tokens") is not None for fields in chosen)
    table = pa.table({"id": list(range(len(blobs))), **columns})
    batch, rejects = read_messages(table, words, now_us=0)
    meant = [
        Message.from_dict({**json.loads(blob), "id": n, "time": None})
        for n, blob in enumerate(blobs)
    ]
    expected = messages_from(meant, words, now_us=0)
    assert len(rejects) == 0
    assert batch.box.tolist() == expected.box.tolist()
    assert batch.ttl_us.tolist() == expected.ttl_us.tolist()


def test_columns_of_points_have_nothing_else() -> None:
    blobs = [canonical(GOOD), canonical(without(ttl_s=5))]
    assert columns_of(blobs) == {
        "text": ["tea", "tea"],
        "lon": [13.5, 13.5],
        "lat": [52.5, 52.5],
        "ttl_s": [None, 5.0],
    }
    assert columns_of([]) == {"text": [], "lon": [], "lat": []}


# --- bodies that have more than they may ------------------------------------------------------


class Counted:
    """Stands for a decoder, and counts the bytes that it was given."""

    def __init__(self, decode: Any) -> None:
        self._decode = decode
        self.bytes = 0

    def __call__(self, value: Any) -> Any:
        self.bytes += len(bytes(value))
        return self._decode(value)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counted]:
    """Return what decoders of messages were given, by their names."""
    names = ("_decode_object", "_decode_point", "_decode_points", "_decode_given")
    counted = {name: Counted(getattr(messages_module, name)) for name in names}
    for name, decode in counted.items():
        monkeypatch.setattr(messages_module, name, decode)
    return counted


@pytest.mark.parametrize("element", [b"{}", b"[]", b"1", b'""', b'{"text":"a","lon":1,"lat":1}'])
def test_reading_stops_at_the_limit_of_messages(
    element: bytes, decoded: dict[str, Counted]
) -> None:
    body = b"[" + b",".join([element] * 200_000) + b"]"
    with pytest.raises(Problem) as caught:
        parse_messages(body, JSON, LIMITS)
    assert (caught.value.status, caught.value.code) == (413, "CONTENT_TOO_LARGE")
    assert "more than 10,000 messages" in caught.value.detail
    assert sum(one.bytes for one in decoded.values()) == 0  # no message was even looked at


def test_a_body_that_is_cut_off_is_refused_where_its_messages_are_too_many() -> None:
    with pytest.raises(Problem) as caught:
        parse_messages(b"[" + b"{}," * 10_001, JSON, LIMITS)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "inside", [b'"properties":{"a":[%b1]}' % (b"[]," * 200_000), b'"text":"%b"' % (b"a" * 600_000)]
)
@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_a_message_that_is_too_large_is_never_decoded(
    inside: bytes, kind: str, decoded: dict[str, Counted]
) -> None:
    huge, good = b'{"lon":1,"lat":1,%b}' % inside, line()
    body = b"\n".join([good, huge, good])
    if kind == JSON:
        body = b"[%b]" % body.replace(b"\n", b",")
    blobs, [rejected] = parse_messages(body, kind, LIMITS)
    assert len(blobs) == 2
    assert rejected.line == 2
    assert "at most 65,536 are allowed" in rejected.reason
    assert sum(one.bytes for one in decoded.values()) < 1_000
    if kind == JSON:
        assert parse_messages(huge, kind, LIMITS).rejected[0].line == 1
        assert sum(one.bytes for one in decoded.values()) < 1_000


@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_a_large_body_is_decoded_in_small_parts(kind: str, decoded: dict[str, Counted]) -> None:
    given: list[Any] = [{**GOOD, "text": f"{number} " * 50} for number in range(1_000)]
    given[17] = {**GOOD, "lat": 91}
    given[500] = {"tokens": ["tea"], "west": 1, "south": 2, "east": 3, "north": 4}
    given[777] = {**GOOD, "text": "a\0b"}
    body = b"\n".join(json.dumps(one).encode() for one in given)
    small = [parse_messages(json.dumps(one).encode(), JSON, LIMITS) for one in given]
    if kind == JSON:
        body = b"[%b]" % body.replace(b"\n", b",")
    found = parse_messages(body, kind, LIMITS)
    assert found.blobs == [blob for one in small for blob in one.blobs]
    assert [one.line for one in found.rejected] == [18]
    assert decoded["_decode_points"].bytes == 0


def test_spaces_and_escapes_do_not_count() -> None:
    spaced = line(text="\u00e9" * 10_000)  # six bytes each, as it is written
    assert len(spaced) > 60_000
    padded = spaced[:-1] + b" " * 200_000 + b"}"
    for body in (spaced, padded):
        assert len(parse_messages(body, JSON, LIMITS).blobs[0]) < 21_000


@given(
    st.lists(
        st.one_of(
            st.just(GOOD),
            st.sampled_from([{}, 7, None, {**GOOD, "lat": 99}, {**GOOD, "properties": {"a": [1]}}]),
            st.just({"tokens": ["tea"], "lon": 1, "lat": 2}),
        ),
        max_size=12,
    ),
    st.sampled_from(["lines", "lines of an array", "array", "object"]),
)
@settings(max_examples=examples(100))
def test_what_is_parsed_at_once_is_what_would_be_parsed(given: list[Any], form: str) -> None:
    body = b"\n".join(json.dumps(one).encode() for one in given)
    kind = NDJSON if form.startswith("lines") else JSON
    if form.endswith("array"):
        body = b"[%b]" % body.replace(b"\n", b",")
    at_once = parse_at_once_or_problem(body, kind)
    if at_once is not None:
        assert at_once == parsed_or_problem(body, kind)


def parse_at_once_or_problem(body: bytes, kind: str) -> Any:
    try:
        return parse_at_once(body, kind, LIMITS)
    except Problem as problem:
        return problem.to_dict()


def parsed_or_problem(body: bytes, kind: str) -> Any:
    try:
        return parse_messages(body, kind, LIMITS)
    except Problem as problem:
        return problem.to_dict()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{}\n" * 9_000, NDJSON),
        (b"[" + b"{}," * 9_000 + b"{}]", JSON),
        (b"\n" * 20_000, NDJSON),
        (line(properties={"a": [[]] * 5_000}), JSON),
        (line(properties={str(n): {} for n in range(2_000)}), JSON),
        (b"\n".join([line()] * 2_000), NDJSON),
        (arrow([GOOD]), ARROW),
    ],
)
def test_bodies_that_take_longer_are_not_parsed_at_once(body: bytes, kind: str) -> None:
    assert parse_at_once(body, kind, LIMITS) is None


def test_the_usual_body_is_parsed_at_once() -> None:
    lines_of_points = b"\n".join([line(properties={"shop": 7, "tags": {"a": 1}})] * 100)
    assert parse_at_once(lines_of_points, NDJSON, LIMITS) == read_lines(lines_of_points)
