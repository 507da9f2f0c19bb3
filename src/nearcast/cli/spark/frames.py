"""Shared by the Spark commands: options, the session, and reading and writing frames."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.output import format_count, show_table
from nearcast.errors import InvalidInput, NearcastError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Format",
    "IndexPath",
    "Json",
    "Master",
    "Overwrite",
    "Rejects",
    "Strict",
    "errors_in_one_line",
    "exists",
    "format_of",
    "open_session",
    "read_frame",
    "rejects_folder",
    "show_reasons",
    "write_frame",
    "write_rejects",
]

Master = Annotated[
    str | None,
    typer.Option(help="Spark master, such as local[4].  [default: local[*]]"),
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="parquet, csv or json.  [default: by the name]"),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the content of OUT.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]

IndexPath = Annotated[str, typer.Option(help="Folder of the index that spark build wrote.")]
Rejects = Annotated[
    str | None, typer.Option(help="Folder for invalid rows, as JSON.  [default: OUT.rejects]")
]
Strict = Annotated[bool, typer.Option(help="Exit with 3 when rows were rejected.")]

_MAX_REASONS = 12

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def open_session(master: str | None, packages: tuple[str, ...] = ()) -> SparkSession:
    """Return the session of this command; on a terminal, Spark shows its progress."""
    try:
        from nearcast.spark.session import session
    except ImportError as error:
        raise NearcastError(str(error)) from error
    shown = str(sys.stderr.isatty()).lower()
    made = session(master, packages=packages, spark__ui__showConsoleProgress=shown)
    made.sparkContext.setLogLevel("OFF")  # errors are shown in one line instead
    return made


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Raise Spark errors as `NearcastError`, with the message of the root cause."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from nearcast.spark.frames import plain_errors

    try:
        with plain_errors():
            yield
    except PySparkException as error:
        raise NearcastError(str(error).strip().splitlines()[0][:300]) from error
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise NearcastError(str(cause.getMessage() or cause.toString())[:300]) from error


def format_of(path: str, given: str | None) -> str:
    """Return the format of a file or a folder: as given, or by its suffix, or Parquet.

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


def read_frame(
    spark: SparkSession,
    path: str,
    given: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read files, including lines that cannot be parsed; all columns of CSV are text.

    Raises
    ------
    UnsupportedFile
        When there are no files, or they cannot be read in this format.
    """
    from nearcast.spark.records import read_records

    return read_records(spark, path, format_of(path, given), columns)


def write_frame(frame: DataFrame, path: str, given: str | None = None, *, overwrite: bool) -> None:
    """Write a frame as a folder of files; replace an existing one only with ``overwrite``."""
    from pyspark.errors import AnalysisException

    writer = frame.write.mode("overwrite" if overwrite else "errorifexists")
    try:
        writer.format(format_of(path, given)).save(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise InvalidInput("--out", path, "exists already; add --overwrite") from None


def rejects_folder(given: str | None, out: str) -> str:
    """Return the folder for rejected rows.

    Examples
    --------
    >>> rejects_folder(None, "out/matches/")
    'out/matches.rejects'
    """
    return given or f"{out.rstrip('/')}.rejects"


def write_rejects(
    spark: SparkSession, rejects: DataFrame, path: str, rejected: int
) -> list[dict[str, Any]]:
    """Write rejects if there are any, and return the most frequent reasons."""
    from pyspark.sql import functions as F

    if not rejected:
        _remove(spark, path)  # of an earlier run
        return []
    write_frame(rejects, path, "json", overwrite=True)
    reason = F.regexp_replace("reason", r" \((got|at character) .*\)$", "").alias("reason")
    by_reason = spark.read.schema(rejects.schema).json(path).groupBy("field", reason)
    by_count = by_reason.agg(F.count("*").alias("rows")).orderBy(F.desc("rows"), "field", "reason")
    return [row.asDict() for row in by_count.limit(_MAX_REASONS).collect()]


def show_reasons(reasons: list[dict[str, Any]]) -> None:
    """Print why rows were rejected."""
    if reasons:
        rows = [[r["field"], r["reason"], format_count(r["rows"])] for r in reasons]
        show_table("rejected", ["field", "reason", "rows"], rows)


def exists(spark: SparkSession, path: str) -> bool:
    """Whether a path exists on any file system of Hadoop."""
    system, where = _hadoop(spark, path)
    return bool(system.exists(where))


def _remove(spark: SparkSession, path: str) -> None:
    system, where = _hadoop(spark, path)
    system.delete(where, True)


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the Hadoop file system of a path, and the path as a Hadoop object."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(context._jsc.hadoopConfiguration()), where
