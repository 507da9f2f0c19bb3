"""``match``: messages to matches, batches and streams alike."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from nearcast import indexes
from nearcast.errors import InvalidInput, UnknownName
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.build import MODES
from nearcast.spark.frames import ddl, id_type, message_columns, struct, warm
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.matching import MatchMessages, MatchRouted
from nearcast.spark.workers.routing import NOW, ROUTE, RouteMessages

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, Observation, SparkSession

    from nearcast.spark.artifact.versions import Version

__all__ = ["METRICS", "REPLICATED_BYTES", "match"]

METRICS = "nearcast"
"""The name under which a query's progress has what `match` observes."""

REPLICATED_BYTES = 4_000_000_000
"""A version up to this size is mapped as a whole by every worker, even if it has shards."""


def match(
    messages: DataFrame,
    index_path: str | os.PathLike[str],
    *,
    mode: str = "auto",
    version: int | None = None,
    observation: Observation | None = None,
    replicated_bytes: int = REPLICATED_BYTES,
) -> DataFrame:
    """Return every pair of a message and a subscription that it matches.

    Parameters
    ----------
    messages
        With the columns of message files; a batch or a stream. Rows that are no messages are left
        out and counted (`nearcast.spark.prepare` tells why). An id that occurs twice is matched
        twice.
    index_path
        What `nearcast.spark.build` wrote.
    mode
        ``replicated``: every worker maps the whole version. ``sharded``: messages are shuffled to
        the shards that they concern. ``auto``: by the size of the version.
    version
        Which version of the index; if left out, the one in force now. A stream takes up the one
        that is in force when a micro-batch begins.
    observation
        Gets ``messages``, ``matches``, ``examined``, ``examined_per_message``,
        ``matches_per_second`` (of one processor) and ``rejected``. The progress of a stream has
        them under the name ``nearcast``. A batch without an observation is not counted, which
        saves Spark the work.
    replicated_bytes
        Up to which size ``auto`` replicates.

    Returns
    -------
    DataFrame
        ``message_id``, ``subscription_id`` and ``score`` (null).

    Raises
    ------
    UnsupportedFile
        When the frame has no columns for ids, words and places.
    StorageError
        When there is no index, or one that this library cannot read. What is damaged is found when
        the frame is evaluated.
    """
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    given = message_columns(messages)
    if messages.isStreaming and version is not None:
        raise InvalidInput("version", version, "must be left out for a stream")
    artifact = Artifact(index_path)
    chosen = artifact.latest() if version is None else artifact.read(version)
    warm(indexes.create(chosen.index, **chosen.options))
    schema = answer_schema(id_type(given), pa.int64() if chosen.ids == "integer" else pa.string())
    number, now_us = (None, 0) if messages.isStreaming else (chosen.number, time.time_ns() // 1000)
    if messages.isStreaming:
        given = given.withColumn(NOW, F.current_timestamp())
    if _replicated(chosen, mode, replicated_bytes):
        matching = MatchMessages(artifact.folder.uri, number, now_us, schema)
        answers = given.mapInArrow(matching, ddl(schema))
    else:
        keys = _keys(messages.sparkSession, len(chosen.shards))
        routing = RouteMessages(artifact.folder.uri, number, now_us, keys)
        answers = _routed(given, routing, MatchRouted(artifact.folder.uri, schema))
    if messages.isStreaming:
        answers = _observed(answers, METRICS)
    elif observation is not None:
        answers = _observed(answers, observation)
    return answers.select(
        "message_id",
        F.explode("subscription_ids").alias("subscription_id"),
        F.lit(None).cast("double").alias("score"),
    )


def _replicated(version: Version, mode: str, replicated_bytes: int) -> bool:
    if mode == "auto":
        return len(version.shards) == 1 or version.nbytes <= replicated_bytes
    return mode == "replicated"


def _routed(given: DataFrame, routing: RouteMessages, matching: MatchRouted) -> DataFrame:
    """Route, shuffle once, match."""
    own = given.drop(NOW).schema.fields
    copies = StructType([*own, *struct(ddl(ROUTE)).fields])
    spread = given.mapInArrow(routing, copies).repartition(len(routing.keys), "_key")
    return spread.mapInArrow(matching, ddl(matching.schema))


def _keys(spark: SparkSession, shards: int) -> tuple[int, ...]:
    """Return a key for every partition of the shuffle, some partitions for each shard."""
    each = -(-spark.sparkContext.defaultParallelism // shards)
    return _keys_of_partitions(spark, shards * each)


@lru_cache(maxsize=64)
def _keys_of_partitions(spark: SparkSession, partitions: int) -> tuple[int, ...]:
    """Return numbers that Spark's hash sends to the partitions 0, 1, 2 and so on."""
    key = F.col("id").cast("int")
    tried = spark.range(0, partitions * 20 + 100, 1, 1)
    hashed = tried.select(key.alias("key"), F.pmod(F.hash(key), F.lit(partitions)).alias("to"))
    found = {row["to"]: row["key"] for row in hashed.collect()}
    return tuple(found[partition] for partition in range(partitions))


def _observed(answers: DataFrame, name: Observation | str) -> DataFrame:
    """Let Spark observe what answers cost."""
    total: dict[str, Any] = {
        name: F.coalesce(F.sum(name), F.lit(0))
        for name in ("messages", "matches", "examined", "rejected")
    }
    rates = {
        "examined_per_message": total["examined"] / F.nullif(total["messages"], F.lit(0)),
        "matches_per_second": total["matches"] / F.nullif(F.sum("seconds"), F.lit(0.0)),
    }
    metrics = [column.alias(name) for name, column in {**total, **rates}.items()]
    return answers.observe(name, *metrics)
