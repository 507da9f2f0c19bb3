"""Options, figures and writers of the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from nearcast.cli.options import assignments, counts, shares
from nearcast.cli.output import count, seconds, size
from nearcast.cli.writers import open_writer, write_whole
from nearcast.errors import UnsupportedFile
from nearcast.intake import open_table

if TYPE_CHECKING:
    from pathlib import Path


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_are_read_as_python_writes_them(one: float, other: float) -> None:
    least, most = sorted([one, other])
    assert shares(f"{least}-{most}") == (least, most)
    assert shares(f"{least}") == (least, least)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_counts_are_read(one: int, other: int) -> None:
    least, most = sorted([one, other])
    assert counts(f"{least}-{most}") == (least, most)


@given(st.text(max_size=8))
def test_anything_else_is_wrong_usage(text: str) -> None:
    for read in (counts, shares):
        try:
            least, most = read(text)
        except typer.BadParameter:
            continue
        assert least <= most


@pytest.mark.parametrize("text", ["", "x", "=3", " =3"])
def test_an_assignment_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="name=value"):
        assignments([text])


def test_values_are_numbers_where_they_can_be() -> None:
    read = assignments(["a=1", "b=0.5", "c=true", "d=x=y", "e="])
    assert read == {"a": 1, "b": 0.5, "c": True, "d": "x=y", "e": ""}


def test_figures_are_short() -> None:
    assert [count(n) for n in (0, 7, 0.5, 99.96, 1234.5)] == ["0", "7", "0.5", "100", "1,234"]
    assert [seconds(s) for s in (0.0, 0.5, 75)] == ["0 ms", "500 ms", "75 s"]
    assert [size(n) for n in (0, 999, 1_500, 2.5e9)] == ["0 B", "999 B", "1.5 kB", "2.5 GB"]


TABLE = pa.table(
    {
        "id": ["a", 'quote " and, comma'],
        "keywords": [["one", "two"], ["three"]],
        "lon": [1.25, -0.1],
        "time": pa.array([datetime(2026, 1, 1, 0, 0, 0, 5000, UTC)] * 2, pa.timestamp("us", "UTC")),
    }
)


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson", "jsonl", "json"])
def test_tables_come_back(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / f"table.{ending}"
    with open_writer(path, TABLE.schema) as writer:
        writer.write(TABLE)
        writer.write(TABLE.slice(1))
        assert not path.exists()
    rows: list[dict[str, Any]] = [
        row for batch in open_table(path) for row in batch.table.to_pylist()
    ]
    assert [row["id"] for row in rows] == ["a", 'quote " and, comma', 'quote " and, comma']
    assert [float(row["lon"]) for row in rows] == [1.25, -0.1, -0.1]
    assert str(rows[0]["time"]).startswith("2026-01-01")
    assert ".005" in str(rows[0]["time"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
def test_an_error_leaves_what_was_there(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{ending}"
    path.write_text("old")

    def half() -> None:
        with open_writer(path, TABLE.schema) as writer:
            writer.write(TABLE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_integers_become_strings_when_strings_come(tmp_path: Path) -> None:
    numbers = pa.table({"id": [1, 2], "other": [3, 4]})
    strings = pa.table({"id": ["x"], "other": [5]})
    path = tmp_path / "table.parquet"
    with open_writer(path, numbers.schema) as writer:
        for table in (numbers, strings, numbers):
            writer.write(table)
    found = parquet.read_table(path)
    assert found["id"].to_pylist() == ["1", "2", "x", "1", "2"]
    assert found["other"].to_pylist() == [3, 4, 5, 3, 4]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFile, match="no extension"):
        open_writer(tmp_path / "table", TABLE.schema)


def test_small_files_are_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "manifest.json"
    for value in (1, 2):
        write_whole(path, json.dumps(value).encode())
    assert json.loads(path.read_text()) == 2
    assert [file.name for file in path.parent.iterdir()] == [path.name]
