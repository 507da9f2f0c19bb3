"""Loads the classes of Spark that tests use, for the archive of `quick_spark`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quick_spark import QUICK

from nearcast.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path) -> None:
    """Write and read files, sort and join, call Python, and stream."""
    rows = spark.createDataFrame(
        [(i, f"tea {i}", float(i)) for i in range(20)], "id long, text string, x double"
    )
    for format in ("parquet", "csv", "json"):
        getattr(rows.write, format)(str(folder / format))
    spark.read.csv(str(folder / "csv"), schema=rows.schema).count()
    spark.read.json(str(folder / "json")).count()
    read = spark.read.parquet(str(folder / "parquet"))
    counted = read.groupBy("text").count().join(read, "text").orderBy("id")
    counted.mapInArrow(_same, counted.schema).collect()
    query = (
        spark.readStream.schema(rows.schema)
        .parquet(str(folder / "parquet"))
        .mapInArrow(_same, rows.schema)
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"), format="parquet")
    )
    query.awaitTermination()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    spark = session("local[1]", **QUICK, spark__driver__memory="512m")
    with tempfile.TemporaryDirectory() as folder:
        run(spark, Path(folder))
    java: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait()  # it writes the archive
