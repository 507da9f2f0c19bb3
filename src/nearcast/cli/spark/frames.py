"""What the Spark commands share: the session, and frames from and to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.errors import InvalidInput, UnsupportedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Format", "Json", "Master", "Overwrite", "open_session", "read_frame", "write_frame"]

Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs, such as local[4].  [default: local[*]]"),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="parquet, csv or json.  [default: by the name]"),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what OUT holds.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def open_session(master: str | None) -> SparkSession:
    """Return the session of this command."""
    from nearcast.spark.session import session

    return session(master)


def format_of(path: str, given: str | None) -> str:
    """Return the format of a file or a folder: as given, or by its name, Parquet otherwise.

    Examples
    --------
    >>> format_of("raw/tweets.csv", None), format_of("raw", None), format_of("raw", "json")
    ('csv', 'parquet', 'json')
    """
    if given is None:
        return FORMATS.get(Path(path).suffix.lower(), "parquet")
    if given not in FORMATS.values():
        raise InvalidInput("--format", given, "must be parquet, csv or json")
    return given


def read_frame(spark: SparkSession, path: str, given: str | None = None) -> DataFrame:
    """Read files of rows; every column of a CSV file is text.

    Raises
    ------
    UnsupportedFile
        When there is nothing there, or it cannot be read as what it should be.
    """
    from pyspark.errors import PySparkException

    kind = format_of(path, given)
    reader = spark.read.option("header", True) if kind == "csv" else spark.read
    try:
        return reader.format(kind).load(path)
    except PySparkException as error:
        raise UnsupportedFile(f"{path}: cannot be read as {kind} ({one_line(error)})") from None


def write_frame(frame: DataFrame, path: str, given: str | None = None, *, overwrite: bool) -> None:
    """Write a frame as a folder of files; what stands there is only replaced if that is asked."""
    from pyspark.errors import AnalysisException

    writer = frame.write.mode("overwrite" if overwrite else "errorifexists")
    try:
        writer.format(format_of(path, given)).save(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise InvalidInput("--out", path, "is there already; add --overwrite") from None


def one_line(error: Exception) -> str:
    """Return the first line of what Spark says."""
    return str(error).strip().splitlines()[0][:300]
