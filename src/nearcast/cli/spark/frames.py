"""Shared by the Spark commands: options, the session, and reading and writing frames.

What a user gives is checked before Spark starts, as far as that is possible without it: a mistake
costs no start of Java.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast.cli.commands import FOLDER, INDEX, INPUT, OUTPUT, SPARK
from nearcast.cli.output import format_count, show_table
from nearcast.cli.spark.java_output import JavaOutput
from nearcast.errors import InvalidInput, NearcastError
from nearcast.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from nearcast.cli.reading_options import ReadingOptions
    from nearcast.spark.artifact.versions import Version
    from nearcast.spark.files import FileSet

__all__ = [
    "IndexPath",
    "Json",
    "Master",
    "Mode",
    "Overwrite",
    "Rejects",
    "Strict",
    "check_index",
    "check_new",
    "columns_of",
    "end_with",
    "errors_in_one_line",
    "exists",
    "find_files",
    "open_session",
    "rejects_folder",
    "show_columns",
    "show_reasons",
    "write_frame",
    "write_rejects",
]

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=SPARK,
        show_default="local[*], all cores of this machine",
        help="Spark master to run on, such as spark://HOST:7077 or local[4].",
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        metavar="auto|replicated|sharded",
        rich_help_panel=INDEX,
        help="replicated: every machine has the whole index. sharded: the index is split, and each "
        "message goes only to the shards that can match it. auto: by the size of the index.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", rich_help_panel=OUTPUT, help="Replace the output folders if they exist."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the summary as JSON.")
]

IndexPath = Annotated[
    str,
    typer.Option(
        metavar=FOLDER, rich_help_panel=INPUT, help="Index: the --out of nearcast spark build."
    ),
]
Rejects = Annotated[
    str | None,
    typer.Option(
        metavar=FOLDER,
        rich_help_panel=OUTPUT,
        show_default="OUT.rejects",
        help="Folder for invalid rows with the reasons, as JSON.",
    ),
]
Strict = Annotated[
    bool, typer.Option(rich_help_panel=OUTPUT, help="Exit with code 3 if rows were rejected.")
]

_MAX_REASONS = 12
_MAX_COLUMNS = 12


def open_session(master: str | None, packages: tuple[str, ...] = ()) -> SparkSession:
    """Return the session of this command; on a terminal, Spark shows its progress."""
    require("spark", "nearcast spark")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from nearcast.spark.session import session

    shown = sys.stderr.isatty()

    def start() -> SparkSession:
        made = session(master, packages=packages, spark__ui__showConsoleProgress=str(shown).lower())
        made.sparkContext.setLogLevel("OFF")  # errors are shown in one line instead
        return made

    if SparkSession.getActiveSession() is not None:
        return start()
    from py4j.protocol import Py4JError

    if shown:
        typer.echo("Starting Spark...", err=True)
    output = JavaOutput(shown=shown)
    try:
        return output.start(start)
    except (PySparkException, Py4JError) as error:
        said = output.problem() or str(error).strip().splitlines()[0]
        raise NearcastError(f"Spark could not start: {said[:300]}") from None


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


def check_new(option: str, path: str, *, overwrite: bool) -> None:
    """Raise an error if a local folder exists and must not be replaced."""
    if not overwrite and "://" not in path and Path(path).exists():
        raise InvalidInput(
            option, path, "exists already; choose another folder, or add --overwrite"
        )


def check_index(path: str, mode: str = "auto", version: int | None = None) -> Version:
    """Return the version of an index, or raise an error that says why there is none."""
    from nearcast.errors import UnknownName
    from nearcast.spark.artifact.versions import Artifact
    from nearcast.spark.build import MODES

    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    artifact = Artifact(path)
    return artifact.latest() if version is None else artifact.read(version)


def find_files(path: str, kind: str, options: ReadingOptions) -> FileSet:
    """Return the files of a path, with the columns that they have; this needs no Java."""
    from nearcast.spark.files import FileSet

    return FileSet.find(path, kind, options.readings({kind: path})[kind])


def columns_of(files: FileSet) -> dict[str, Any]:
    """Return which columns were recognized by a similar name, and which are not used."""
    if files.survey is None:
        return {"taken": {}, "unused": []}
    taken = dict(text.split("=", 1) for text in files.survey.taken)
    return {"taken": taken, "unused": list(files.survey.unused)}


def show_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines of a summary about columns."""
    pairs = {}
    if columns["taken"]:
        taken = [f"{theirs} as {ours}" for ours, theirs in columns["taken"].items()]
        pairs["recognized columns"] = ", ".join(taken)
    if columns["unused"]:
        more = len(columns["unused"]) - _MAX_COLUMNS
        names = [*columns["unused"][:_MAX_COLUMNS], *([f"{more} more"] if more > 0 else [])]
        pairs["unused columns"] = ", ".join(names)
    return pairs


def write_frame(frame: DataFrame, path: str, form: str = "parquet", *, overwrite: bool) -> None:
    """Write a frame as a folder of files; replace an existing one only with ``overwrite``."""
    from pyspark.errors import AnalysisException

    writer = frame.write.mode("overwrite" if overwrite else "errorifexists")
    try:
        writer.format(form).save(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise InvalidInput(
            "--out", path, "exists already; choose another folder, or add --overwrite"
        ) from None


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


def end_with(accepted: int, rejected: int, *, what: str, strict: bool) -> None:
    """Exit with 1 if nothing was accepted, and with 3 if rows were rejected and that is strict.

    ``what`` are the rows.
    """
    if not accepted:
        problem = f"all {rejected:,} were rejected" if rejected else "the input has no rows"
        raise NearcastError(f"no {what}: {problem}")
    if strict and rejected:
        raise typer.Exit(3)


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
