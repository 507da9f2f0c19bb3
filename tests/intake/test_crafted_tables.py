"""No table makes a reader crash, or pay for what it only claims: a clear error, or right rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from crafted_tables import (
    CRAFTED,
    VALID,
    bounded,
    crafted_column,
    damaged,
    dictionary_of,
    file_of,
    stream_of,
)
from effort import repeated
from nearcast.errors import NearcastError, UnsupportedFile
from nearcast.intake import (
    load_messages,
    load_subscriptions,
    open_file,
    read_messages,
    read_moves,
    read_subscriptions,
    table_from,
)
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MB = 1 << 20


def messages(table: Any) -> int:
    batch, rejects = read_messages(table, now_us=0)
    return len(batch) + len(rejects)


def subscriptions(table: Any) -> int:
    found, rejects = read_subscriptions(table, Vocabulary())
    return len(found) + len(rejects)


def moves(table: Any) -> int:
    found, rejects = read_moves(table)
    return len(found) + len(rejects)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Import and compile what the first table needs: that memory is no matter of a table."""
    for reader, name in [(messages, "messages"), (subscriptions, "subscriptions")]:
        reader(VALID[name]())


READERS: tuple[Callable[[Any], int], ...] = (messages, subscriptions, moves)


@pytest.mark.parametrize("place", ["id", "tokens", "unused"])
@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_column_is_a_clear_error(name: str, place: str) -> None:
    table = crafted_column(name, place)
    for reader in READERS:
        with (
            bounded(8 * MB + 4 * table.get_total_buffer_size()),
            pytest.raises(UnsupportedFile) as caught,
        ):
            reader(table)
        assert repr(place) in str(caught.value)


@pytest.mark.parametrize("name", VALID)
def test_the_valid_tables_are_read(name: str) -> None:
    table = VALID[name]()
    reader = subscriptions if name == "subscriptions" else messages
    assert reader(table) == table.num_rows
    again = pa.ipc.open_stream(stream_of(table)).read_all()
    assert reader(again) == table.num_rows
    assert table_from(table).equals(table)


def test_rows_of_valid_tables() -> None:
    batch, rejects = read_messages(VALID["messages"](), now_us=0)
    assert (batch.ids.tolist(), len(rejects)) == (["a", "b", "c"], 0)
    batch, rejects = read_messages(VALID["lists"](), now_us=0)
    assert (batch.ids.tolist(), rejects.row.tolist(), rejects.field) == ([1, 2], [2], ("lon",))
    found, rejects = read_subscriptions(VALID["subscriptions"](), Vocabulary())
    assert (found.ids.tolist(), rejects.row.tolist(), rejects.field) == ([1, 2], [2], ("east",))


def test_frames_with_views_and_categories_are_read() -> None:
    rows = {"id": [*range(2_000)], "text": ["tea " * 100] * 2_000}
    place = {"lon": [1.0] * 2_000, "lat": [1.0] * 2_000}
    frame = pl.DataFrame({**rows, **place, "tokens": [None] * 2_000})
    category = frame.with_columns(pl.col("text").cast(pl.Categorical))
    frames = [frame, category, pd.DataFrame({**rows, **place})]
    frames.append(frames[-1].astype({"text": "category"}))
    for one in frames:
        batch, rejects = read_messages(one, now_us=0)
        assert (len(batch), len(rejects)) == (2_000, 0)


def test_one_text_may_be_that_of_many_rows() -> None:
    count = 100_000
    table = pa.table(
        {
            "id": pa.array(range(count)),
            "text": dictionary_of("tea " * 500, count),
            "lon": pa.array(np.ones(count)),
            "lat": pa.array(np.ones(count)),
        }
    )
    assert table_from(table) is table


def test_times_of_an_unknown_zone_are_read_and_rejected() -> None:
    """What counts are the microseconds; a record of a rejected row cannot show the time."""
    columns = {"id": [1, 2], "text": ["a", "b"], "lon": [1.0, 999.0], "lat": [1.0, 1.0]}
    time = pa.array([5_000_000, 6_000_000], pa.timestamp("us", "Foo/Bar"))
    table = pa.table({**columns, "time": time})
    batch, rejects = read_messages(table, now_us=0)
    assert (batch.time_us.tolist(), rejects.row.tolist()) == ([5_000_000], [1])
    assert "unreadable timestamp" in rejects.record[0]


def test_a_name_of_a_column_that_is_not_utf8() -> None:
    body = stream_of(VALID["messages"]()).replace(b"properties", b"prop\xff\xff\xff\xffes")
    table = pa.ipc.open_stream(body).read_all()
    with pytest.raises(UnsupportedFile, match="the name of a column is not valid UTF-8"):
        read_messages(table, now_us=0)


def test_a_time_zone_that_is_not_utf8() -> None:
    body = stream_of(VALID["messages"]()).replace(b"Europe/Berlin", b"Europe/\xff\xffrlin")
    table = pa.ipc.open_stream(body).read_all()
    with pytest.raises(UnsupportedFile, match="the type of the column 'time' has text that is not"):
        read_messages(table, now_us=0)


def test_a_column_that_is_there_twice() -> None:
    names = ["subscription_id", "lon", "lat", "lat", "radius_m"]
    table = pa.Table.from_arrays([pa.array([1])] * len(names), names)
    with pytest.raises(UnsupportedFile, match="the column lat occurs twice"):
        read_moves(table)


def test_decimals_with_more_digits_than_their_type() -> None:
    wide = pa.array([10**30], pa.decimal128(38, 0))
    column = pa.Array.from_buffers(pa.decimal128(5, 0), 1, wide.buffers())
    table = pa.table({"id": column, "text": ["a"], "lon": [1.0], "lat": [1.0]})
    with pytest.raises(UnsupportedFile, match="the column 'id' is damaged"):
        read_messages(table, now_us=0)


# --- Parquet ---------------------------------------------------------------------------------


def written(folder: Path, content: bytes) -> Path:
    path = folder / "a.parquet"
    path.write_bytes(content)
    return path


def test_a_file_of_one_text_in_every_row_is_refused(tmp_path: Path) -> None:
    texts = dictionary_of("a" * 1_000_000, 200_000)
    rows = pa.table({"id": pa.array(range(200_000)), "text": texts, "nested": nested(texts)})
    for chosen in (["id", "text"], ["id", "nested"]):
        content = file_of(rows.select(chosen), store_schema=False)
        path = written(tmp_path, content)
        with bounded(128 * MB), pytest.raises(UnsupportedFile) as caught:
            list(open_file(path, kind=None))
        assert str(path) in str(caught.value)
        assert "the table stands for 200,000,000,000 bytes" in str(caught.value)


def nested(texts: pa.Array) -> pa.Array:
    """Return texts in maps in lists in structs."""
    offsets = pa.array(range(len(texts) + 1), pa.int32())
    keys = pa.array(np.zeros(len(texts), np.int8))
    maps = pa.MapArray.from_arrays(offsets, keys, texts)
    return pa.StructArray.from_arrays([pa.ListArray.from_arrays(offsets, maps)], ["a"])


def test_long_texts_of_many_rows_are_read_in_parts(tmp_path: Path) -> None:
    text = "tea " * 100_000
    table = pa.table({"text": dictionary_of(text, 1_000), "id": pa.array(range(1_000))})
    path = written(tmp_path, file_of(table, store_schema=False))
    rows: list[int] = []
    for batch in open_file(path, kind=None):
        assert batch.table.column("id").to_pylist() == batch.rows.tolist()
        assert batch.table.schema.field("text").type == pa.string()
        assert batch.table.column("text")[0].as_py() == text
        assert batch.table.nbytes < 300 * MB
        rows += batch.rows.tolist()
    assert rows == [*range(1_000)]


def test_a_file_that_claims_too_many_rows_is_refused(tmp_path: Path) -> None:
    columns = {name: pa.nulls(5_000_000) for name in ("id", "text", "lon", "lat")}
    pages = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 30}
    content = file_of(pa.table(columns), compression="zstd", **pages)
    assert len(content) < 4_000
    path = written(tmp_path, content)
    for load in (
        lambda: list(load_messages(path, now_us=0)),
        lambda: load_subscriptions(path, Vocabulary()),
    ):
        with bounded(8 * MB), pytest.raises(UnsupportedFile, match="it claims 5,000,000 rows in"):
            load()


def test_files_with_repeated_texts_have_the_types_that_were_written(tmp_path: Path) -> None:
    """They are read as dictionaries, and written out again."""
    long = "a" * 100_000
    deep = pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.string()))]))
    texts = [pa.array([long, None, "b"] * 400, kind) for kind in (pa.string(), pa.large_string())]
    table = pa.table(
        {
            "s": texts[0],
            "l": texts[1],
            "n": pa.array([[{"a": [("k", long)]}], [], None] * 400, deep),
            "d": texts[0].dictionary_encode(),
            "i": pa.array([1, None, 3] * 400),
        }
    )
    path = written(tmp_path, file_of(table))
    assert len(path.read_bytes()) < 8 * MB
    found = pa.concat_tables([batch.table for batch in open_file(path, kind=None)])
    assert (
        found.replace_schema_metadata()
        .combine_chunks()
        .equals(parquet.read_table(path).combine_chunks())
    )


# --- generated -------------------------------------------------------------------------------


def test_damaged_streams_are_errors_or_rows() -> None:
    bodies = {name: stream_of(table()) for name, table in VALID.items()}
    read = 0
    for seed in range(repeated("NEARCAST_DAMAGED_TABLES", 300, 10_000)):
        chance = random.Random(seed)
        body = damaged(bodies[chance.choice([*bodies])], chance)
        with bounded(64 * MB):
            try:
                table = pa.ipc.open_stream(body).read_all()
            except (pa.ArrowException, OSError, ValueError):
                continue  # PyArrow has found it
            for reader in READERS:
                try:
                    assert reader(table) == table.num_rows, seed
                except NearcastError:
                    continue
                read += 1
    assert read


def test_damaged_files_are_errors_or_rows(tmp_path: Path) -> None:
    contents = []
    for name, compression in (
        ("messages", "none"),
        ("subscriptions", "none"),
        ("messages", "zstd"),
    ):
        table = VALID[name]()
        kept = [field.name for field in table.schema if field.name != "properties"]
        contents.append((name, file_of(table.select(kept), compression=compression)))
    read = 0
    for seed in range(repeated("NEARCAST_DAMAGED_TABLES", 300, 10_000)):
        chance = random.Random(seed)
        name, content = chance.choice(contents)
        path = written(tmp_path, damaged(content, chance))
        try:
            if name == "messages":
                count = sum(
                    len(one) + len(not_one) for one, not_one in load_messages(path, now_us=0)
                )
            else:
                count = sum(len(part) for part in load_subscriptions(path, Vocabulary()))
        except NearcastError:
            continue
        assert count <= 3, seed
        read += 1
    assert read
