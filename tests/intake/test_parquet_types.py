"""Parquet files whose columns have any types: rows are taken or rejected, and none is lost."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from effort import examples
from nearcast.errors import NearcastError
from nearcast.intake import load_messages, load_subscriptions
from nearcast.text import Vocabulary

SUBSCRIPTION: dict[str, Any] = {
    "keywords": ["tea"],
    "expression": None,
    "west": 0.0,
    "south": 0.0,
    "east": 1.0,
    "north": 1.0,
    "lon": None,
    "lat": None,
    "radius_m": None,
    "geometry": None,
    "owner": "ann",
    "expires_at": None,
    "delta": None,
    "theta": None,
}
MESSAGE: dict[str, Any] = {
    "text": "tea",
    "tokens": None,
    "lon": 0.5,
    "lat": 0.5,
    "west": None,
    "south": None,
    "east": None,
    "north": None,
    "time": 5,
    "ttl_s": 1.0,
}

WORDS = ["tea", "", "a OR b", "12", "nan", "POINT (1 2)", '{"type":"Point"}', "2020-01-01", "\0"]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 0, 127]),
    (pa.int64(), [-(2**63), 0, 1, 2**63 - 1]),
    (pa.uint64(), [0, 5, 2**64 - 1]),
    (pa.float32(), [0.5, float("nan"), float("inf")]),
    (pa.float64(), [-1.5, 0.0, 1e300, float("nan"), float("-inf")]),
    (pa.bool_(), [True, False]),
    (pa.string(), WORDS),
    (pa.large_string(), WORDS),
    (pa.binary(), [b"", b"\x01\x01\0\0\0", b"\xff\xfe"]),
    (pa.list_(pa.string()), [[], ["tea"], ["", None], ["a b", "c"]]),
    (pa.list_(pa.int64()), [[], [1], [None]]),
    (pa.list_(pa.list_(pa.string())), [[["tea"]], [[]]]),
    (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}]),
    (pa.decimal128(20, 4), [Decimal("1.5"), Decimal("-999999999999")]),
    (pa.timestamp("ms"), [datetime(2020, 1, 1), datetime(9999, 12, 31)]),
    (pa.timestamp("ns", "UTC"), [datetime(2020, 1, 1, tzinfo=UTC)]),
    (pa.date32(), [date(2020, 1, 1), date(1, 1, 1)]),
    (pa.time64("us"), [time(1, 2)]),
    (pa.duration("s"), [timedelta(1)]),
    (pa.null(), [None]),
]


@st.composite
def tables(draw: Any, sound: dict[str, Any]) -> pa.Table:
    """Draw a table of sound columns, of which a few are of any other type."""
    count = draw(st.integers(0, 4))
    columns: dict[str, Any] = {"id": pa.array(range(count), pa.int64())}
    columns |= {name: pa.array([value] * count) for name, value in sound.items()}
    for name in draw(st.sets(st.sampled_from(["id", *sound]), max_size=3)):
        kind, values = draw(st.sampled_from(VALUES))
        cells = draw(st.lists(st.sampled_from([*values, None]), min_size=count, max_size=count))
        columns[name] = pa.array(cells, kind)
        if draw(st.booleans()) and pa.types.is_string(kind):
            columns[name] = columns[name].dictionary_encode()
    return pa.table(columns)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(SUBSCRIPTION))
def test_no_subscription_is_lost(table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.parquet"
        parquet.write_table(table, path)
        try:
            taken, rejects = load_subscriptions(path, Vocabulary())
        except NearcastError:
            return
        assert len(taken) + len(rejects) == table.num_rows


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(MESSAGE))
def test_no_message_is_lost(table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.parquet"
        parquet.write_table(table, path)
        try:
            batches = list(load_messages(path, now_us=0))
        except NearcastError:
            return
        assert sum(len(batch) + len(rejects) for batch, rejects in batches) == table.num_rows
