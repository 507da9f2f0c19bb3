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

__all__ = ["FILES", "MESSAGES", "Topic", "kafka_messages", "open_stream", "topic_of"]

FILES = ("parquet", "json", "csv")

MESSAGES = (
    "id string, text string, tokens array<string>, lon double, lat double, west double, "
    "south double, east double, north double, time string, ttl_s double"
)
"""The columns of JSON messages; missing fields are null."""

_PARQUET = "id string, text string, lon double, lat double, time timestamp"
_CSV = "id string, text string, lon string, lat string, time string"
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
    spark: SparkSession, source: str, *, kind: str = "parquet", files_per_batch: int | None = None
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

    Raises
    ------
    UnknownName
        When the format is unknown.
    InvalidInput
        When the folder does not exist, or the URI names no topic.
    """
    topic = topic_of(source)
    if topic is not None:
        return kafka_messages(spark, topic)
    if kind not in FILES:
        raise UnknownName("kind of files", kind, FILES)
    if files_per_batch is not None and files_per_batch < 1:
        raise InvalidInput("files_per_batch", files_per_batch, "must be at least 1")
    reader = spark.readStream.format("text" if kind == "json" else kind)
    if kind != "json":
        reader = reader.schema(_schema_of(spark, source, kind))
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
        records = _from_json(records.where("trim(value) != ''"))
    return _without_damaged(records)


def kafka_messages(spark: SparkSession, topic: Topic) -> DataFrame:
    """Return the messages of a topic, JSON objects with the fields of message files.

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
    return _without_damaged(_from_json(records))


def _from_json(records: DataFrame) -> DataFrame:
    """Return the fields of each JSON value as columns; other values are damaged."""
    text = F.col("value").cast("string")
    schema = struct(f"{MESSAGES}, {_DAMAGED} string")
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
    fields = [f"read.{field}" for field in struct(MESSAGES).names]
    return read.select(*fields, damaged.alias(_DAMAGED))


def _without_damaged(records: DataFrame) -> DataFrame:
    """Remove the id of records that were parsed only in part, so that they are rejected."""
    if _DAMAGED not in records.columns or "id" not in records.columns:
        return records
    return records.withColumn("id", F.when(F.col(_DAMAGED).isNull(), F.col("id")))


def _schema_of(spark: SparkSession, folder: str, kind: str) -> StructType:
    """Return the columns of existing files."""
    reader = spark.read.option("header", True) if kind == "csv" else spark.read
    try:
        found = reader.format(kind).load(folder).schema
    except AnalysisException:
        found = StructType()
    if not found.fields:
        found = struct(_CSV if kind == "csv" else _PARQUET)
    return found.add(_DAMAGED, "string") if kind == "csv" else found
