"""Frames of pandas, Polars and others, types of columns, and objects with times as tables have."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from pyarrow import parquet

from nearcast import Engine, Message, Rect, Subscription
from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake import read_messages, read_moves, read_subscriptions, table_from
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

HOUR_US = 3_600_000_000


class Capsule:
    """A frame of a library that nobody knows, with the Arrow PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def as_polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars", reason="needs polars").from_arrow(table)


FRAMES = {
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "capsule": Capsule,
    "pandas": lambda table: table.to_pandas().set_index(
        np.array([f"i{n}" for n in range(len(table))])
    ),
    "pandas arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": as_polars,
}


@pytest.mark.parametrize("library", FRAMES)
def test_frames_are_tables(library: str) -> None:
    frame = FRAMES[library]
    place = {"lon": [1.0, 2.0], "lat": [1.0, 95.0]}
    subscriptions = pa.table(
        {"id": ["a", "b"], "keywords": [["tea"], ["x"]], **place, "radius_m": [9.0, 9.0]}
    )
    messages = pa.table({"id": [1, 2], "text": ["tea", "tea"], **place})
    moves = pa.table({"subscription_id": ["a", "b"], **place, "radius_m": [9.0, 9.0]})
    engine = Engine()
    rejects = engine.subscribe_table(frame(subscriptions))
    assert (rejects.row.tolist(), rejects.field) == ([1], ("lat",))
    assert "i1" not in rejects.record[0]
    published = engine.publish_table(frame(messages))
    assert published.matches["subscription_id"].to_pylist() == ["a"]
    assert published.rejects.row.tolist() == [1]
    assert engine.move_table(frame(moves)).rejects.row.tolist() == [1]
    wanted = Subscription("new", Rect(0, 0, 2, 2), ["tea"])
    assert [match.message_id for match in engine.preview(wanted, frame(messages))] == [1]
    assert len(read_messages(frame(messages), now_us=0)[0]) == 1
    assert len(read_subscriptions(frame(subscriptions), Vocabulary())[0]) == 1
    assert len(read_moves(frame(moves))[0]) == 1


def test_other_things_are_not_tables() -> None:
    for value in ({"id": [1]}, [1], "x", pd.Series([1]), None):
        with pytest.raises(InvalidInput, match="must be a PyArrow table, or a data frame"):
            table_from(value)
    with pytest.raises(InvalidInput, match="cannot be converted to an Arrow table"):
        table_from(pd.DataFrame({"id": [1, "a", b"x"]}))


def test_tables_of_the_engine_may_have_other_names() -> None:
    engine = Engine()
    table = pa.table({"ID": ["a", "b"], "Keyword": ["tea", "x"], "x": [1.0, 2.0], "lat": [1, 95.0]})
    table = table.append_column("r", pa.array([9.0, 9.0]))
    rejects = engine.subscribe_table(table, columns={"lon": "x", "radius_m": "r"})
    assert rejects.row.tolist() == [1]
    assert rejects.record == ('{"ID": "b", "Keyword": "x", "x": 2.0, "lat": 95.0, "r": 9.0}',)
    assert engine.get("a").keywords == ("tea",)
    near = pa.table({"id": [1], "text": ["tea"], "lng": [1.0], "latitude": [1.0]})
    assert engine.publish_table(near).matches.num_rows == 1
    asked = pa.table({"id": ["c"], "keywrods": ["tea"], "lon": [1], "lat": [1], "radius_m": [9]})
    with pytest.raises(UnsupportedFile, match=r"columns=\{'keywords': 'keywrods'\}"):
        engine.subscribe_table(asked)
    engine.subscribe_table(asked, columns={"keywords": "keywrods"})
    assert engine.get("c").keywords == ("tea",)
    moved = engine.move_table(
        pa.table({"SubscriptionId": ["a"], "lng": [5.0], "lat": [5.0], "r": [9.0]}),
        columns={"radius_m": "r"},
    )
    assert moved.moved == 1


def message_table(**columns: Any) -> pa.Table:
    count = len(next(iter(columns.values())))
    given = {"id": range(count), "text": ["t"] * count, "lon": [1.0] * count, "lat": [2.0] * count}
    return pa.table(given | columns)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_durations(unit: str) -> None:
    hour = pa.array([timedelta(hours=1), timedelta(seconds=-1), None], pa.duration(unit))
    batch, rejects = read_messages(message_table(ttl_s=hour), now_us=0)
    assert batch.ttl_us.tolist() == [HOUR_US, 0]
    assert (rejects.row.tolist(), rejects.field) == ([1], ("ttl_s",))
    assert "must be a finite number of seconds, 0 or more" in rejects.reason[0]


def test_frames_of_pandas_have_nanoseconds_and_timedeltas() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2, 3],
            "text": pd.Categorical(["tea", "tea", "cake"]),
            "lon": [1.0, 2.0, 3.0],
            "lat": np.array([1, 2, 300], np.float16),
            "time": pd.to_datetime(
                ["2024-05-01T12:00:00.123456789", "2024-05-01", None], format="ISO8601"
            ),
            "ttl_s": pd.to_timedelta(["1h", "1min", None]),
        }
    )
    batch, rejects = read_messages(frame, now_us=7)
    expected = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert batch.time_us[0] == expected.timestamp() * 1_000_000
    assert batch.ttl_us.tolist() == [HOUR_US, 60_000_000]
    assert rejects.row.tolist() == [2]


def test_nanoseconds_of_rejects_are_shown() -> None:
    times = pa.array([1, 1_000], pa.timestamp("ns", "UTC"))
    plain = pa.array([1_714_564_800_123_456_789, None], pa.timestamp("ns"))
    table = message_table(lat=[95.0, 95.0], time=times, seen=plain)
    _, rejects = read_messages(table, now_us=0)
    assert '"time": "1970-01-01T00:00:00.000000001+00:00"' in rejects.record[0]
    assert '"seen": "2024-05-01T12:00:00.123456789"' in rejects.record[0]
    assert '"time": "1970-01-01T00:00:00.000001+00:00"' in rejects.record[1]


NUMBERS = {
    "decimal": pa.array([Decimal("1.5"), Decimal("2.5")]),
    "decimal256": pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal256(50, 10)),
    "half": pa.array(np.array([1.5, 2.5], np.float16)),
    "float": pa.array([1.5, 2.5], pa.float32()),
    "text": pa.array(["1.5", " 2.5 "]),
    "large text": pa.array(["1.5", "2.5"], pa.large_string()),
    "text view": pa.array(["1.5", "2.5"], pa.string_view()),
    "dictionary": pa.array([1.5, 2.5]).dictionary_encode(),
    "dictionary of text": pa.array(["1.5", "2.5"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_may_have_many_types(kind: str) -> None:
    batch, rejects = read_messages(message_table(lon=NUMBERS[kind]), now_us=0)
    assert not len(rejects)
    assert (batch.box[:, 0] / 1e7).tolist() == [1.5, 2.5]


NO_NUMBERS = {
    "bool": pa.array([True, False]),
    "date": pa.array([date(2024, 5, 1)] * 2),
    "duration": pa.array([timedelta(1)] * 2),
    "binary": pa.array([b"1", b"2"]),
    "list": pa.array([[1.0], [2.0]]),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_is_no_number_is_rejected(kind: str) -> None:
    batch, rejects = read_messages(message_table(lon=NO_NUMBERS[kind]), now_us=0)
    assert (len(batch), rejects.field) == (0, ("lon", "lon"))
    assert "must be a number" in rejects.reason[0]


def test_ids_of_64_bits_without_sign() -> None:
    ids = pa.array([2**63 - 1, 2**63, 2**64 - 1], pa.uint64())
    batch, rejects = read_messages(message_table(id=ids, lat=[1.0] * 3), now_us=0)
    assert batch.ids.tolist() == [2**63 - 1]
    assert rejects.row.tolist() == [1, 2]
    assert "must fit into 64 bits; give larger ids as strings" in rejects.reason[0]
    assert '"id": 9223372036854775808' in rejects.record[0]


def test_whole_decimals_are_ids() -> None:
    ids = pa.array([Decimal(7), Decimal(-(2**63)), Decimal(2**63), None], pa.decimal128(38, 0))
    batch, rejects = read_messages(message_table(id=ids, lat=[1.0] * 4), now_us=0)
    assert batch.ids.tolist() == [7, -(2**63)]
    assert rejects.row.tolist() == [2, 3]
    assert "must fit into 64 bits" in rejects.reason[0]
    fractions = pa.array([Decimal("1.5")])
    _, rejects = read_messages(message_table(id=fractions), now_us=0)
    assert "must be a string or an integer" in rejects.reason[0]


def test_times_of_many_types() -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    seconds = int(noon.timestamp())
    for times in (
        pa.array([noon], pa.timestamp("s", "UTC")),
        pa.array([noon], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([seconds], pa.uint64()),
        pa.array([Decimal(seconds)]),
        pa.array([str(seconds)]),
        pa.array(["2024-05-01T14:00:00+02:00"]),
        pa.array([noon.isoformat()]).dictionary_encode(),
        pa.array([noon.isoformat()], pa.string_view()),
    ):
        batch, rejects = read_messages(message_table(time=times), now_us=0)
        assert not len(rejects), rejects.reason
        assert batch.time_us.tolist() == [seconds * 1_000_000]
    day, _ = read_messages(message_table(time=pa.array([date(2024, 5, 1)])), now_us=0)
    assert day.time_us.tolist() == [(seconds - 12 * 3600) * 1_000_000]
    for wrong in (pa.array([True]), pa.array([timedelta(1)]), pa.array([7], pa.time32("s"))):
        _, rejects = read_messages(message_table(time=wrong), now_us=0)
        assert rejects.field == ("time",)


def test_times_written_as_numbers_and_as_text_may_be_mixed() -> None:
    texts = ["5", " 6.5 ", "1970-01-01T00:00:07Z", "soon", None, "1e300", "+8"]
    for order in (texts, texts[::-1]):
        batch, rejects = read_messages(message_table(time=pa.array(order)), now_us=0)
        assert sorted(batch.time_us.tolist()) == [0, 5_000_000, 6_500_000, 7_000_000, 8_000_000]
        assert sorted(order[row] or "" for row in rejects.row.tolist()) == ["1e300", "soon"]


@pytest.mark.parametrize(
    ("time", "us"),
    [
        ("2024-05-01T12:00:00Z", 1_714_564_800_000_000),
        ("2024-05-01T14:00:00+02:00", 1_714_564_800_000_000),
        ("2024-05-01", 1_714_521_600_000_000),
        (date(2024, 5, 1), 1_714_521_600_000_000),
        (datetime(2024, 5, 1, 12), 1_714_564_800_000_000),
        (datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))), 1_714_564_800_000_000),
        (pd.Timestamp("2024-05-01T12:00:00.000000999"), 1_714_564_800_000_000),
        ("1714564800", 1_714_564_800_000_000),
    ],
)
def test_objects_take_times_as_tables_do(time: Any, us: int) -> None:
    message = Message(1, (0, 0), "t", time=time)
    assert message.time_us == us
    assert Message.from_dict(message.to_dict()).time_us == us
    assert Message.from_dict({"id": 1, "text": "", "lon": 0, "lat": 0, "time": time}).time_us == us
    subscription = Subscription(1, Rect(0, 0, 1, 1), expires_at=time)
    assert subscription.expires_us == us
    assert Subscription.from_dict(subscription.to_dict()).expires_us == us
    clock = us / 1_000_000
    engine = Engine(clock=lambda: clock)
    engine.subscribe(Subscription(1, Rect(0, 0, 1, 1)), time=time)
    engine.move(1, Rect(0, 0, 2, 2), time=time)
    engine.advance(time)


@pytest.mark.parametrize(
    ("ttl", "us"),
    [
        (timedelta(hours=1), HOUR_US),
        (pd.Timedelta("1h"), HOUR_US),
        ("3600", HOUR_US),
        (3600, HOUR_US),
        (timedelta(microseconds=1), 1),
    ],
)
def test_objects_take_durations_as_tables_do(ttl: Any, us: int) -> None:
    message = Message(1, (0, 0), "t", ttl_s=ttl)
    assert message.ttl_us == us
    assert Message.from_dict(message.to_dict()).ttl_us == us
    assert Message.from_dict({"id": 1, "text": "", "lon": 0, "lat": 0, "ttl_s": ttl}).ttl_us == us


@pytest.mark.parametrize(
    "fields", [{"time": "soon"}, {"time": "2024-13-01"}, {"ttl_s": timedelta(-1)}, {"ttl_s": "1h"}]
)
def test_objects_refuse_what_tables_reject(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(InvalidInput, match=name):
        Message(1, (0, 0), "t", **fields)
    _, rejects = read_messages(message_table(**{name: pa.array([fields[name]])}), now_us=0)
    assert rejects.field == (name,)


@pytest.mark.parametrize("reference", [None, "EPSG:4326", "EPSG:3857", "EPSG:25833"])
@pytest.mark.parametrize("name", ["geometry", "shape"])
def test_geo_data_frames(reference: str | None, name: str) -> None:
    geopandas = pytest.importorskip("geopandas", reason="needs geopandas")
    areas = [shapely.box(13, 52, 14, 53), None, shapely.LineString([(0, 0), (1, 1)])]
    said = [shapely.Point(13.5, 52.5), shapely.Point(20, 52.5)]

    def frame(columns: Any, geometry: Any) -> Any:
        found = geopandas.GeoDataFrame(columns, geometry=geometry, crs=reference and "EPSG:4326")
        found = found if reference is None else found.to_crs(reference)
        return found.rename_geometry(name) if name != "geometry" else found

    subscriptions = frame({"id": ["a", "b", "c"], "keywords": [["tea"]] * 3}, areas)
    messages = frame({"id": [1, 2], "text": ["tea", "tea"]}, said)
    engine = Engine()
    rejects = engine.subscribe_table(subscriptions)
    assert rejects.row.tolist() == [1, 2]
    matches = engine.publish_table(messages).matches.to_pylist()
    assert [(m["message_id"], m["subscription_id"]) for m in matches] == [(1, "a")]
    moves = frame({"subscription_id": ["a"]}, [shapely.box(19, 52, 21, 53)])
    assert not len(engine.move_table(moves).rejects)
    matches = engine.publish_table(messages).matches.to_pylist()
    assert [m["message_id"] for m in matches] == [2]
    if name == "geometry":
        found, rejects = read_subscriptions(subscriptions, Vocabulary())
        assert (len(found), len(rejects)) == (1, 2)


@pytest.mark.parametrize("reference", [None, "EPSG:4326", "EPSG:3857"])
def test_tables_of_geoarrow_say_where_their_geometries_are(reference: str | None) -> None:
    geopandas = pytest.importorskip("geopandas", reason="needs geopandas")
    area = geopandas.GeoSeries([shapely.box(13, 52, 14, 53)], crs=reference and "EPSG:4326")
    area = area if reference is None else area.to_crs(reference)
    frame = geopandas.GeoDataFrame({"id": [1], "keywords": [["tea"]], "area": area})
    table = pa.table(frame.set_geometry("area").to_arrow())
    for given in (table, frame.set_geometry("area").to_arrow()):
        engine = Engine()
        assert not len(engine.subscribe_table(given))
        assert engine.get(1).region.to_bbox() == pytest.approx((13, 52, 14, 53))
    assert table.schema.field("area").metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        (b'{"crs": "EPSG:999999"}', "is in EPSG:999999, which pyproj cannot convert"),
        (b"{", "the GeoArrow metadata of the column 'area' cannot be read"),
        (b"[]", "the GeoArrow metadata of the column 'area' cannot be read"),
        (b"", None),
        (b'{"crs": "OGC:CRS84", "crs_type": "authority_code"}', None),
    ],
)
def test_metadata_of_geoarrow(metadata: bytes, problem: str | None) -> None:
    pytest.importorskip("pyproj", reason="needs pyproj")
    said = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": metadata}
    area = pa.field("area", pa.binary(), metadata=said)
    schema = pa.schema([("id", pa.int64()), ("keywords", pa.string()), area])
    table = pa.table([[1], ["tea"], [shapely.to_wkb(shapely.box(13, 52, 14, 53))]], schema=schema)
    if problem is None:
        assert not len(Engine().subscribe_table(table))
    else:
        with pytest.raises(UnsupportedFile, match=problem):
            Engine().subscribe_table(table)


def test_a_table_of_geoparquet_is_converted_once(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas", reason="needs geopandas")
    places = geopandas.GeoSeries([shapely.box(13, 52, 14, 53)], crs="EPSG:4326").to_crs(3857)
    geopandas.GeoDataFrame({"id": [1]}, geometry=places).to_parquet(tmp_path / "s.parquet")
    engine = Engine.open(tmp_path / "j", journal=True)
    assert not len(engine.subscribe_table(parquet.read_table(tmp_path / "s.parquet")))
    before = engine.get(1).region
    assert before.to_bbox() == pytest.approx((13, 52, 14, 53))
    engine.close()
    engine = Engine.open(tmp_path / "j", journal=True)
    assert engine.get(1).region == before
    engine.close()
