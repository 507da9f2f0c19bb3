"""Read files as frames; lines that cannot be parsed are rows as well.

A line that is not a record has its text in the column ``_corrupt_record`` and null in the others:
`nearcast.spark.prepare` rejects it with the reason, and every other job counts it as rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from nearcast.errors import UnknownName, UnsupportedFile
from nearcast.spark.workers.cleaning import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["REASONS", "read_records"]

REASONS = {
    "csv": "has too few or too many cells, or an open quote",
    "json": "is not a JSON object",
    "parquet": "cannot be read",
}
"""Why a row of each format is rejected."""

_CSV = {
    "header": "true",
    "escape": '"',
    "nullValue": "",
    "emptyValue": "",
    # Otherwise Spark reads a file whose columns have another order as if they had not,
    "enforceSchema": "false",
    # and accepts lines with too few or too many cells unless all columns are needed.
    "columnPruning": "false",
    "columnNameOfCorruptRecord": DAMAGED,
}


def read_records(
    spark: SparkSession, path: str, kind: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the rows of files, including lines that cannot be parsed.

    Parameters
    ----------
    spark
        The session.
    path
        A file or a folder.
    kind
        ``parquet``, ``csv`` (with a header; all columns are text) or ``json`` (lines).
    columns
        The names of columns that are called differently, by our name.

    Raises
    ------
    UnsupportedFile
        When there are no files, or they cannot be read in this format.
    """
    if kind not in REASONS:
        raise UnknownName("format", kind, REASONS)
    try:
        if kind == "csv":
            return _read_csv(spark, path)
        return (
            _read_json(spark, path, columns or {}) if kind == "json" else spark.read.parquet(path)
        )
    except PySparkException as error:
        said = str(error).strip().splitlines()[0][:300]
        raise UnsupportedFile(f"{path}: cannot be read as {kind} ({said})") from None


def _read_csv(spark: SparkSession, path: str) -> DataFrame:
    reader = spark.read.options(**_CSV)
    names = reader.csv(path).schema
    return reader.schema(names.add(DAMAGED, "string")).csv(path)


def _read_json(spark: SparkSession, path: str, columns: Mapping[str, str]) -> DataFrame:
    schema = _json_schema(spark.read.json(path).schema, columns)
    lines = spark.read.text(path).filter("trim(value) != ''")
    # Spark reads the first object of a line and ignores the rest, unless it is in an array.
    whole = F.when(F.is_valid_utf8("value"), F.concat(F.lit("["), "value", F.lit("]")))
    read = lines.select("value", F.explode_outer(F.from_json(whole, ArrayType(schema))).alias("r"))
    return read.select("r.*", F.when(F.col("r").isNull(), F.col("value")).alias(DAMAGED))


def _json_schema(found: StructType, columns: Mapping[str, str]) -> StructType:
    """Return the schema to read with: GeoJSON as text, and ids too unless all are integers.

    Spark would infer useless types for points mixed with polygons, or for one id that is too large.
    """
    as_text = {columns.get("geometry", "geometry")}
    identity = columns.get("id", "id")
    if identity in found.names and not isinstance(found[identity].dataType, LongType):
        as_text.add(identity)
    return StructType(
        [
            StructField(field.name, StringType()) if field.name in as_text else field
            for field in found
            if field.name != DAMAGED
        ]
    )
