"""Sources of streams: files that arrive in a folder, or a Kafka topic.

Spark lists the files and remembers which ones it has read; workers read them as
`nearcast.spark.read_files` does. Values of a topic are read as the lines of JSON files are.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from nearcast.errors import InvalidInput, NearcastError, UnknownName, UnsupportedFile
from nearcast.intake.reading import Reading, find_files, format_of
from nearcast.model.close_names import COLUMNS
from nearcast.spark.frames import ddl
from nearcast.spark.workers.cleaning import Cleaning
from nearcast.spark.workers.reading import Piece, ReadArriving, local_path
from nearcast.spark.workers.surveying import survey_file
from nearcast.spark.workers.values import ReadValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ROWS", "Topic", "kafka_rows", "open_stream", "topic_of", "value_rows"]

ROWS = {"messages": "messages", "moves": "changes"}
"""What the rows of a stream may be, and the kind of files that they come from."""

_LISTED = "path string, modificationTime timestamp, length bigint, content binary"
_KAFKA = "kafka://"
_AS_IT_IS = Reading()


class Topic(NamedTuple):
    """A Kafka topic and its servers, written as ``kafka://host:9092,other:9092/topic``."""

    servers: str
    name: str


def topic_of(uri: str) -> Topic | None:
    """Return the topic of a ``kafka://`` URI, None for anything else.

    Examples
    --------
    >>> topic_of("kafka://localhost:9092/messages")
    Topic(servers='localhost:9092', name='messages')
    >>> topic_of("data/messages")
    """
    if not uri.startswith(_KAFKA):
        return None
    servers, _, name = uri.removeprefix(_KAFKA).partition("/")
    if not servers or not name or "/" in name:
        raise InvalidInput("address", uri, "must be kafka://HOST:PORT/TOPIC")
    return Topic(servers, name)


def open_stream(
    spark: SparkSession,
    source: str,
    *,
    reading: Reading = _AS_IT_IS,
    files_per_batch: int | None = None,
    rows: str = "messages",
) -> DataFrame:
    """Return the messages of a topic, or of files that arrive in a folder, as a stream.

    Parameters
    ----------
    spark
        The session; for Kafka, it needs the package `nearcast.spark.kafka.connector`.
    source
        A folder, or ``kafka://HOST:PORT/TOPIC``. A topic is read from its beginning.
    reading
        How files are read; each may have a format and an order of columns of its own.
    files_per_batch
        The largest number of files in a micro-batch.
    rows
        ``messages``, or ``moves`` for `nearcast.spark.stream_updates`. A move without ``op`` is a
        move, and ``subscription_id`` may stand for ``id``.

    Returns
    -------
    DataFrame
        All columns of messages or changes, with the types that `nearcast.spark.read_files` gives
        them, and where each row comes from. Ids are integers if there is a Parquet file with such
        ids already, otherwise text. A file that cannot be read is one rejected row.

    Raises
    ------
    UnknownName
        When the kind of rows is unknown.
    InvalidInput
        When the folder does not exist, or the URI names no topic.
    """
    if rows not in ROWS:
        raise UnknownName("kind of rows", rows, ROWS)
    topic = topic_of(source)
    if topic is not None:
        return kafka_rows(spark, topic, rows)
    if files_per_batch is not None and files_per_batch < 1:
        raise InvalidInput("files_per_batch", files_per_batch, "must be at least 1")
    reader = spark.readStream.format("binaryFile").schema(_LISTED)
    reader = reader.option("recursiveFileLookup", True)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    try:
        listed = reader.load(source).select("path", "length")  # so the content is not read here
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise InvalidInput("source", source, "must be an existing folder") from None
    integers = _has_integer_ids(source, ROWS[rows], reading)
    cleaning = Cleaning.of(ROWS[rows], COLUMNS[ROWS[rows]], integer_ids=integers, tidy=False)
    work = ReadArriving(reading, cleaning, _folder_of(source))
    return _named(listed.mapInArrow(work, ddl(cleaning.frame_schema)), rows)


def kafka_rows(spark: SparkSession, topic: Topic, rows: str = "messages") -> DataFrame:
    """Return the messages or moves of a topic, JSON objects with the fields of their files.

    Ids are text here. A value that is not such an object is rejected; it is called by its topic and
    partition, and its line is the offset.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
    )
    try:
        records = reader.load()
    except AnalysisException as error:
        raise NearcastError(
            f"this session cannot read from Kafka ({str(error).splitlines()[0]}); start the "
            "process with nearcast.spark.session(packages=[nearcast.spark.connector()])"
        ) from None
    return value_rows(records, rows)


def value_rows(records: DataFrame, rows: str = "messages") -> DataFrame:
    """Return the rows of records of Kafka: ``value``, ``topic``, ``partition`` and ``offset``."""
    cleaning = Cleaning.of(ROWS[rows], COLUMNS[ROWS[rows]], tidy=False)
    chosen = records.select("value", "topic", "partition", "offset")
    return _named(chosen.mapInArrow(ReadValues(cleaning), ddl(cleaning.frame_schema)), rows)


def _named(found: DataFrame, rows: str) -> DataFrame:
    """Return changes with an id and an operation."""
    if rows == "messages":
        return found
    found = found.withColumn("id", F.coalesce("id", "subscription_id"))
    moved = F.when(F.col("id").isNotNull(), F.coalesce("op", F.lit("move")))
    return found.drop("subscription_id").withColumn("op", moved)


def _has_integer_ids(source: str, kind: str, reading: Reading) -> bool:
    """Whether the first Parquet file that is there already has integers for ids."""
    where = local_path(source)
    if "://" in where:
        return False
    try:
        for file in find_files(where):
            if format_of(file.name, reading) == "parquet":
                found = survey_file(Piece(str(file), file.name, 0), reading, kind)
                return found.ids == ("integer",)
    except UnsupportedFile:
        pass
    return False


def _folder_of(source: str) -> str:
    """Return the folder within which files of a stream are named."""
    where = local_path(source)
    if "://" in where:
        return where
    folder = os.path.abspath(where)
    while glob.has_magic(folder) and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder
