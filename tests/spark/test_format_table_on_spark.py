"""The table in the documentation says what Spark makes of every format and type."""

from __future__ import annotations

import sys
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from format_table import CASES, described, rows_of_document, shown
from pyspark.sql import functions as F

from nearcast.errors import UnsupportedFile
from nearcast.intake import MESSAGE_COLUMNS, read_messages
from nearcast.spark import read_files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import DataFrame, SparkSession


def test_the_document_says_what_spark_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_all(spark, tmp_path, monkeypatch) == [row[4] for row in rows_of_document()]


def read_all(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what Spark makes of all cases; one job reads them."""
    monkeypatch.setitem(sys.modules, "pyproj", None)
    found: dict[int, str] = {}
    frames: dict[int, DataFrame] = {}
    for number, case in enumerate(CASES):
        own = folder / str(number)
        own.mkdir()
        try:
            frames[number] = read_files(spark, case.write(own), reading=case.reading)
        except UnsupportedFile as error:
            found[number] = f"refused: {shown(str(error).split(': ', 1)[1])}"
    chosen = (numbered(number, frame) for number, frame in frames.items())
    for row in reduce(union, chosen).collect():
        number = row["number"]
        if row["_rejected"] is not None:
            found[number] = f"rejected: {shown(row['_rejected']['reason'])}"
            continue
        there = [name for name in MESSAGE_COLUMNS if name in row]
        columns = {name: row[name] for name in there if row[name] is not None}
        if dict(frames[number].dtypes)["id"] == "bigint":
            columns["id"] = int(columns["id"])
        batch, rejects = read_messages(table_of(columns), now_us=0)
        assert not len(rejects)
        found[number] = described(CASES[number], batch)
    return [found[number] for number in range(len(CASES))]


def numbered(number: int, frame: DataFrame) -> DataFrame:
    """Return the columns of a frame in types that all have, and the number of the case."""
    types: dict[str, str] = {"id": "string", "geometry": "string"}
    columns = [
        F.col(name).cast(types.get(name, kind)).alias(name)
        if name != "geometry" or kind == "string"
        else F.hex(name).alias(name)
        for name, kind in frame.dtypes
    ]
    return frame.select(F.lit(number).alias("number"), *columns)


def union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


def table_of(columns: dict[str, Any]) -> pa.Table:
    return pa.table({name: [value] for name, value in columns.items()})
