"""Files as frames, read by the rules of `nearcast.intake`, as ``nearcast match`` reads them.

The driver lists the files and finds out which columns they have; workers read them. CSV, JSON,
GeoJSON and compressed files are read by one task each, because only a reader that starts at the
beginning knows which line breaks are inside of quotes, and how lines are numbered. Parquet files
are divided by their row groups.

A frame of files remembers how it is read. A job over it reads and works in the same process, so
rows do not go through Java in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark.sql import DataFrame

from nearcast.errors import UnsupportedFile
from nearcast.intake.files import naming
from nearcast.intake.reading import Reading, find_files, format_of, name_of
from nearcast.spark.frames import ddl, plain_errors
from nearcast.spark.workers.reading import Chain, Piece, ReadFiles, frame_batches, local_path
from nearcast.spark.workers.surveying import (
    SURVEYED,
    Survey,
    SurveyFiles,
    is_described,
    survey_file,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from nearcast.spark.workers.cleaning import Cleaning

    Worker = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = ["FileSet", "files_of", "map_rows", "read_files", "with_tokenizer"]

_AS_IT_IS = Reading()
_SURVEY_HERE_BYTES = 1 << 25
_SURVEY_HERE_FILES = 200
_MAX_TASK_BYTES = 1 << 27
_MIN_TASK_BYTES = 1 << 22


def read_files(
    spark: SparkSession,
    path: str | os.PathLike[str],
    kind: str = "messages",
    reading: Reading = _AS_IT_IS,
) -> DataFrame:
    """Return the rows of files, including those that cannot be read.

    Parameters
    ----------
    spark
        The session.
    path
        A file, a folder, a pattern such as ``data/*.csv``, or a URI of a file or a folder on a file
        system that PyArrow has.
    kind
        ``messages``, ``subscriptions`` or ``changes`` (also moves).
    reading
        How the files are read: the format, the encoding, which columns are ours, and so on.

    Returns
    -------
    DataFrame
        Our columns, each with one type: numbers are doubles, times timestamps, durations seconds.
        Ids are integers if all are, otherwise text. ``_file`` and ``_line`` say where a row comes
        from. A row that cannot be read, or is not valid, is null in our columns; ``_rejected`` has
        the ``field``, the ``reason`` and the whole ``record``. Every job counts it as rejected, and
        `nearcast.spark.prepare` gives the reasons.

    Raises
    ------
    UnsupportedFile
        When there are no files, they cannot be read, or a required column is missing.

    Examples
    --------
    >>> read_files(spark, "raw/*.csv.gz", "messages", Reading(ids="row"))  # doctest: +SKIP
    """
    return FileSet.find(path, kind, reading).frame(spark)


def files_of(frame: DataFrame) -> FileSet | None:
    """Return the files of a frame from `read_files`; None for any other frame."""
    return _files.get(frame) if isinstance(frame, DataFrame) else None


def with_tokenizer(frame: DataFrame, tokenizer: str) -> DataFrame:
    """Return a frame whose keywords are checked with a tokenizer, if it is one of files."""
    files = files_of(frame)
    if files is None or files.tokenizer == tokenizer:
        return frame
    return replace(files, tokenizer=tokenizer).frame(frame.sparkSession)


def map_rows(
    frame: DataFrame, columns: Sequence[str], worker: Worker, schema: str | Any
) -> DataFrame:
    """Return what a worker makes of some columns of a frame.

    The rows of files go from the reader to the worker without a detour through Java.
    """
    files = files_of(frame)
    if files is None:
        return frame.select(*columns).mapInArrow(worker, schema)
    spark = frame.sparkSession
    reader = files.reader(spark, frame_batches)
    return _numbers(spark, reader).mapInArrow(Chain(reader, tuple(columns), worker), schema)


@dataclass(frozen=True)
class FileSet:
    """Files that are read alike.

    ``survey`` is None as long as large files of JSON, or very many files, have not been surveyed.
    ``tokenizer`` decides which keywords are valid.
    """

    kind: str
    reading: Reading
    pieces: tuple[Piece, ...]
    survey: Survey | None
    tokenizer: str = "words"

    @classmethod
    def find(cls, path: str | os.PathLike[str], kind: str, reading: Reading = _AS_IT_IS) -> FileSet:
        """Return the files of a path; this needs no Spark.

        Raises
        ------
        UnsupportedFile
            When there are none, one of them has an unknown format, or a required column is missing.
        """
        pieces = tuple(_find(str(path)))
        free_bytes = 0
        for piece in pieces:
            with naming(piece.path):
                free_bytes += 0 if is_described(piece.path, reading) else piece.size
        if free_bytes > _SURVEY_HERE_BYTES or len(pieces) > _SURVEY_HERE_FILES:
            return cls(kind, reading, pieces, None)
        found = (survey_file(piece, reading, kind) for piece in pieces)
        return cls(kind, reading, pieces, reduce(Survey.__add__, found, Survey()))

    def surveyed(self, spark: SparkSession) -> FileSet:
        """Return the files with their survey, which may take a job."""
        if self.survey is not None:
            return self
        work = SurveyFiles(self.reading, self.kind, self._tasks(spark, self.pieces))
        with plain_errors():
            rows = _numbers(spark, work).mapInArrow(work, ddl(SURVEYED)).collect()
        found = (Survey.of(*row) for row in rows)
        return replace(self, survey=reduce(Survey.__add__, found, Survey()))

    def cleaning(self, *, tidy: bool = False) -> Cleaning:
        """Return how the rows are read; ``tidy`` to clean them too."""
        assert self.survey is not None
        return replace(self.survey.cleaning(self.kind, tidy=tidy), tokenizer=self.tokenizer)

    def reader(self, spark: SparkSession, output: Any, *, tidy: bool = False) -> ReadFiles:
        """Return the worker that reads the files."""
        tasks = self._tasks(spark, self._divided(spark))
        return ReadFiles(self.reading, self.cleaning(tidy=tidy), tasks, output)

    def read(self, spark: SparkSession, output: Any, schema: pa.Schema, *, tidy: bool) -> DataFrame:
        """Return what ``output`` makes of the rows."""
        reader = self.reader(spark, output, tidy=tidy)
        return _numbers(spark, reader).mapInArrow(reader, ddl(schema))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows; see `read_files`."""
        files = self.surveyed(spark)
        schema = files.cleaning().frame_schema
        frame = files.read(spark, frame_batches, schema, tidy=False)
        _files[frame] = files
        return frame

    def _task_bytes(self, spark: SparkSession) -> int:
        total = sum(piece.size for piece in self.pieces)
        share = -(-total // spark.sparkContext.defaultParallelism)
        return min(_MAX_TASK_BYTES, max(_MIN_TASK_BYTES, share))

    def _divided(self, spark: SparkSession) -> tuple[Piece, ...]:
        """Return the files, large Parquet files by row groups."""
        limit = self._task_bytes(spark)
        return tuple(one for piece in self.pieces for one in _by_groups(piece, limit, self.reading))

    def _tasks(
        self, spark: SparkSession, pieces: tuple[Piece, ...]
    ) -> tuple[tuple[Piece, ...], ...]:
        """Return the pieces of each task, in order; tasks are of about the same size."""
        limit, before = self._task_bytes(spark), 0
        tasks: dict[int, list[Piece]] = {}
        for piece in pieces:
            tasks.setdefault((2 * before + piece.size) // (2 * limit), []).append(piece)
            before += piece.size
        return tuple(map(tuple, tasks.values()))


_files: WeakKeyDictionary[DataFrame, FileSet] = WeakKeyDictionary()


def _numbers(spark: SparkSession, work: ReadFiles | SurveyFiles) -> DataFrame:
    """Return the numbers of tasks, each in a task."""
    return spark.range(0, len(work.tasks), 1, len(work.tasks))


def _by_groups(piece: Piece, limit: int, reading: Reading) -> list[Piece]:
    """Return a Parquet file in pieces of whole row groups."""
    if piece.size <= limit or "://" in piece.path or format_of(piece.path, reading) != "parquet":
        return [piece]
    try:
        with parquet.ParquetFile(piece.path) as file:
            sizes = [
                file.metadata.row_group(group).total_byte_size
                for group in range(file.metadata.num_row_groups)
            ]
    except (pa.ArrowException, OSError, ValueError):
        return [piece]  # the reader says what is wrong
    share = piece.size / max(sum(sizes), 1)  # of what is compressed
    return [
        piece._replace(size=round(own * share), groups=(group, group + 1))
        for group, own in enumerate(sizes)
    ]


def _find(path: str) -> Iterator[Piece]:
    """Yield the files of a path or a URI, in the order of their names."""
    given = local_path(path)
    if "://" not in given:
        for file in find_files(given):
            yield Piece(str(file.absolute()), name_of(file, given), file.stat().st_size)
        return
    try:
        system, inside = fs.FileSystem.from_uri(given)
        where = system.get_file_info(inside)
        chosen = fs.FileSelector(inside, recursive=True)
        infos = [where] if where.is_file else system.get_file_info(chosen)
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0][:200]
        raise UnsupportedFile(f"{path}: cannot be opened ({said})") from None
    scheme = given.partition("://")[0]
    if not infos:
        raise UnsupportedFile(f"{path}: no file found; check the path")
    for info in sorted(infos, key=lambda one: str(one.path)):
        parts = Path(info.path).relative_to(inside).parts or (Path(info.path).name,)
        if info.is_file and not any(part.startswith(("_", ".")) for part in parts):
            yield Piece(f"{scheme}://{info.path.lstrip('/')}", "/".join(parts), info.size)
