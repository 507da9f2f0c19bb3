"""Option parsers, number formats and file writers of the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from nearcast.cli.options import parse_assignments, parse_counts, parse_index_options, parse_shares
from nearcast.cli.output import format_count, format_seconds, format_size
from nearcast.cli.writers import open_writer, write_atomically
from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake import open_table

if TYPE_CHECKING:
    from pathlib import Path


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_are_parsed_as_python_prints_them(one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert parse_shares(f"{low}-{high}") == (low, high)
    assert parse_shares(f"{low}") == (low, low)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_counts_are_parsed(one: int, other: int) -> None:
    low, high = sorted([one, other])
    assert parse_counts(f"{low}-{high}") == (low, high)


@given(st.text(max_size=8))
def test_other_text_is_wrong_usage(text: str) -> None:
    for parse in (parse_counts, parse_shares):
        try:
            minimum, maximum = parse(text)
        except typer.BadParameter:
            continue
        assert minimum <= maximum


@pytest.mark.parametrize("text", ["", "x", "=3", " =3"])
def test_an_assignment_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be NAME=VALUE"):
        parse_assignments([text])


def test_numbers_and_booleans_are_converted() -> None:
    read = parse_assignments(["a=1", "b=0.5", "c=true", "d=x=y", "e="])
    assert read == {"a": 1, "b": 0.5, "c": True, "d": "x=y", "e": ""}


@dataclass(frozen=True)
class GridOptions:
    cells: int = 8
    push: float = 0.5
    order: str = "rare"
    exact: bool = False
    sizes: Any = None


def test_options_of_an_index_are_converted_by_their_annotations() -> None:
    texts = ["cells=32", "push=1", "order=1e3", "exact=True", "sizes=[1]", "other=2"]
    read = parse_index_options(texts, [GridOptions])
    assert read == {
        "cells": 32,
        "push": 1.0,
        "order": "1e3",
        "exact": True,
        "sizes": [1],
        "other": 2,
    }
    assert isinstance(read["push"], float)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cells=x", r"cells: must be a whole number \(got 'x'\)"),
        ("cells=1.5", "cells: must be a whole number"),
        ("cells=true", "cells: must be a whole number"),
        ("push=far", "push: must be a number"),
        ("exact=1", "exact: must be true or false"),
    ],
)
def test_wrong_options_of_an_index_are_errors(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_index_options([text], [GridOptions])


def test_numbers_are_formatted_briefly() -> None:
    assert [format_count(n) for n in (0, 7, 0.5, 99.96, 1234.5)] == [
        "0",
        "7",
        "0.5",
        "100",
        "1,234",
    ]
    assert [format_seconds(s) for s in (0.0, 0.5, 75)] == ["0 ms", "500 ms", "75 s"]
    assert [format_size(n) for n in (0, 999, 1_500, 2.5e9)] == ["0 B", "999 B", "1.5 kB", "2.5 GB"]


TABLE = pa.table(
    {
        "id": ["a", 'quote " and, comma'],
        "keywords": [["one", "two"], ["three"]],
        "lon": [1.25, -0.1],
        "time": pa.array([datetime(2026, 1, 1, 0, 0, 0, 5000, UTC)] * 2, pa.timestamp("us", "UTC")),
    }
)


@pytest.mark.parametrize("extension", ["parquet", "csv", "ndjson", "jsonl", "json"])
def test_written_tables_can_be_read_again(extension: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / f"table.{extension}"
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


@pytest.mark.parametrize("extension", ["parquet", "csv", "ndjson"])
def test_an_error_keeps_the_old_file(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{extension}"
    path.write_text("old")

    def write_and_fail() -> None:
        with open_writer(path, TABLE.schema) as writer:
            writer.write(TABLE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_integers_become_strings_when_a_string_occurs(tmp_path: Path) -> None:
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


def test_unknown_extensions_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFile, match="no extension"):
        open_writer(tmp_path / "table", TABLE.schema)


def test_small_files_are_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "manifest.json"
    for value in (1, 2):
        write_atomically(path, json.dumps(value).encode())
    assert json.loads(path.read_text()) == 2
    assert [file.name for file in path.parent.iterdir()] == [path.name]
