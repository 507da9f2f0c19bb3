"""Sources of streams: files that arrive in a folder, or a Kafka topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from nearcast.errors import InvalidInput, NearcastError, UnknownName
from nearcast.spark.frames import struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FILES", "MESSAGES", "MOVES", "ROWS", "Topic", "kafka_rows", "open_stream", "topic_of"]

FILES = ("parquet", "json", "csv")

MESSAGES = (
    "id string, text string, tokens array<string>, lon double, lat double, west double, "
    "south double, east double, north double, time string, ttl_s double"
)
"""The columns of JSON messages; missing fields are null."""

MOVES = (
    "op string, id string, subscription_id string, time string, keywords array<string>, "
    "expression string, west double, south double, east double, north double, lon double, "
    "lat double, radius_m double, geometry string, owner string, expires_at string, delta double, "
    "tau double, max_distance_m double, alpha double, theta double"
)
"""The columns of JSON moves and other changes; missing fields are null."""

ROWS = {"messages": MESSAGES, "moves": MOVES}
"""What the rows of a stream may be, and their columns."""

_PARQUET = {
    "messages": "id string, text string, lon double, lat double, time timestamp",
    "moves": "subscription_id string, time timestamp, west double, south double, east double, "
    "north double",
}
_CSV = {
    "messages": "id string, text string, lon string, lat string, time string",
    "moves": "subscription_id string, time string, west string, south string, east string, "
    "north string",
}
_KAFKA = "kafka://"
_DAMAGED = "_corrupt_record"


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
    kind: str = "parquet",
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
    kind
        The format of files: ``parquet`` (with the columns of existing files, or those of message
        files if there are none yet), ``json`` (lines) or ``csv`` (with the same header in all
        files). A line that cannot be parsed has no id, and its text in ``_corrupt_record``.
    files_per_batch
        The largest number of files in a micro-batch.
    rows
        ``messages``, or ``moves`` for `nearcast.spark.stream_updates`. In JSON, a row without
        ``op`` is a move, and ``subscription_id`` may stand for ``id``.

    Raises
    ------
    UnknownName
        When the format or the kind of rows is unknown.
    InvalidInput
        When the folder does not exist, or the URI names no topic.
    """
    if rows not in ROWS:
        raise UnknownName("kind of rows", rows, ROWS)
    topic = topic_of(source)
    if topic is not None:
        return kafka_rows(spark, topic, rows)
    if kind not in FILES:
        raise UnknownName("kind of files", kind, FILES)
    if files_per_batch is not None and files_per_batch < 1:
        raise InvalidInput("files_per_batch", files_per_batch, "must be at least 1")
    reader = spark.readStream.format("text" if kind == "json" else kind)
    if kind != "json":
        reader = reader.schema(_schema_of(spark, source, kind, rows))
    if kind == "csv":
        # Otherwise Spark would read a file whose columns have another order as if they had not.
        reader = reader.option("header", True).option("enforceSchema", False)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    try:
        records = reader.load(source)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise InvalidInput("source", source, "must be an existing folder") from None
    if kind == "json":
        records = _from_json(records.where("trim(value) != ''"), rows)
    return _without_damaged(records)


def kafka_rows(spark: SparkSession, topic: Topic, rows: str = "messages") -> DataFrame:
    """Return the messages or moves of a topic, JSON objects with the fields of their files.

    Ids are text here. A value that is not such an object has no id, and its text in
    ``_corrupt_record``: it is counted as rejected, and `nearcast.spark.prepare` shows it.
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
    return _without_damaged(_from_json(records, rows))


def _from_json(records: DataFrame, rows: str) -> DataFrame:
    """Return the fields of each JSON value as columns; other values are damaged."""
    text = F.col("value").cast("string")
    schema = struct(f"{ROWS[rows]}, {_DAMAGED} string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _DAMAGED}
    read = records.select(
        F.from_json(text, schema, options).alias("read"),
        F.make_valid_utf8(text).alias("text"),
        # Spark reads the first object of a text, ignores the rest, and replaces invalid bytes.
        F.is_valid_utf8(text).alias("valid"),
        F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))).alias("objects"),
    )
    one = F.col("valid") & (F.col("objects") == 1)
    damaged = F.when(one, F.col(f"read.{_DAMAGED}")).otherwise(F.col("text"))
    fields = [F.col(f"read.{field}") for field in struct(ROWS[rows]).names]
    found = read.select(*fields, damaged.alias(_DAMAGED))
    if rows == "messages":
        return found
    found = found.withColumn("id", F.coalesce("id", "subscription_id"))
    return found.drop("subscription_id").withColumn("op", F.coalesce("op", F.lit("move")))


def _without_damaged(records: DataFrame) -> DataFrame:
    """Remove the id of records that were parsed only in part, so that they are rejected."""
    for name in ("id", "subscription_id"):
        if _DAMAGED in records.columns and name in records.columns:
            records = records.withColumn(name, F.when(F.col(_DAMAGED).isNull(), F.col(name)))
    return records


def _schema_of(spark: SparkSession, folder: str, kind: str, rows: str) -> StructType:
    """Return the columns of existing files."""
    reader = spark.read.option("header", True) if kind == "csv" else spark.read
    try:
        found = reader.format(kind).load(folder).schema
    except AnalysisException:
        found = StructType()
    if not found.fields:
        found = struct((_CSV if kind == "csv" else _PARQUET)[rows])
    return found.add(_DAMAGED, "string") if kind == "csv" else found
