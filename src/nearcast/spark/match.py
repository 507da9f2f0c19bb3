"""``match``: messages to matches, for batches and streams."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from nearcast import indexes
from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.spark.artifact.leases import StreamLease, lease_version
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.build import MODES
from nearcast.spark.files import map_rows
from nearcast.spark.frames import ddl, id_type, message_columns, struct, warm
from nearcast.spark.leases import hold_while_planned, released_on_error
from nearcast.spark.workers.answers import answer_schema
from nearcast.spark.workers.matching import MatchMessages, MatchRouted
from nearcast.spark.workers.routing import NOW, ROUTE, RouteMessages
from nearcast.text import opened

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, Observation, SparkSession

    from nearcast.spark.artifact.leases import Lease
    from nearcast.spark.artifact.versions import Version
    from nearcast.text import Tokenizer

__all__ = ["METRICS", "REPLICATED_BYTES", "keys_of_partitions", "match", "plan_stream"]

METRICS = "nearcast"
"""The name of what `match` observes in the progress of a streaming query."""

REPLICATED_BYTES = 4_000_000_000
"""Every worker maps a version of up to this size as a whole, even if it has shards."""


def match(
    messages: DataFrame,
    index_path: str | os.PathLike[str],
    *,
    mode: str = "auto",
    version: int | None = None,
    observation: Observation | None = None,
    replicated_bytes: int = REPLICATED_BYTES,
    owners: bool = False,
    tokenizer: str | Tokenizer | None = None,
) -> DataFrame:
    """Return every pair of a message and a subscription that it matches.

    As long as the frame, or one derived from it, can be evaluated, the driver holds the version
    that it reads: `nearcast.spark.compact` does not drop it. A streaming frame holds all versions;
    `nearcast.spark.stream` releases those that its micro-batches no longer need.

    Parameters
    ----------
    messages
        A batch or a stream with the columns of message files. Invalid rows are left out and counted
        (`nearcast.spark.prepare` gives the reasons). An id that occurs twice is matched twice.
    index_path
        The artifact that `nearcast.spark.build` wrote.
    mode
        ``replicated``: every worker maps the whole version. ``sharded``: messages are shuffled to
        the shards that may match them. ``auto``: by the size of the version.
    version
        The version of the index; by default the latest one. A stream uses, for each micro-batch,
        the version that is in force when it begins.
    observation
        Receives ``messages``, ``matches``, ``examined``, ``examined_per_message``,
        ``matches_per_second`` (of CPU time) and ``rejected``. The progress of a stream has them
        under the name ``nearcast``. A batch without an observation is not counted, which is faster.
    replicated_bytes
        The largest version that ``auto`` replicates.
    owners
        Whether the matches have a column ``owner``, null where a subscription names nobody.
    tokenizer
        That of the version, which is the default: another one is an error.

    Returns
    -------
    DataFrame
        ``message_id``, ``subscription_id`` and ``score``, which is null for boolean subscriptions.

    Raises
    ------
    UnsupportedFile
        When the frame has no columns for ids, words and places.
    StorageError
        When there is no index, or one that this library cannot read. Damaged data is found when the
        frame is evaluated.

    Examples
    --------
    >>> matches = match(spark.read.parquet("messages"), "index")  # doctest: +SKIP
    >>> matches.write.parquet("matches")  # doctest: +SKIP
    """
    how = _Mode(mode, replicated_bytes, owners)
    given = message_columns(messages)
    if messages.isStreaming and version is not None:
        raise InvalidInput("version", version, "must be left out for a stream")
    artifact = Artifact(index_path)
    if messages.isStreaming:
        return plan_stream(
            messages, artifact, mode, replicated_bytes, tokenizer=tokenizer, owners=owners
        )[0]
    chosen, lease = _lease(artifact, version)
    with released_on_error(lease):
        opened(chosen.tokenizer, tokenizer, index_path)
        now_us = time.time_ns() // 1000
        answers = _answers(messages, given, artifact, chosen, chosen.number, now_us, how)
        hold_while_planned(answers, lease)
    return _pairs(answers if observation is None else _observed(answers, observation))


def plan_stream(
    messages: DataFrame,
    artifact: Artifact,
    mode: str,
    replicated_bytes: int = REPLICATED_BYTES,
    *,
    tokenizer: str | Tokenizer | None = None,
    owners: bool = False,
) -> tuple[DataFrame, StreamLease]:
    """Return the matches of a stream of messages, and the lease on the versions it may read."""
    how = _Mode(mode, replicated_bytes, owners)
    given = message_columns(messages).withColumn(NOW, F.current_timestamp())
    latest = artifact.latest()
    opened(latest.tokenizer, tokenizer, artifact.folder.uri)
    lease = StreamLease(artifact)
    with released_on_error(lease):
        answers = _answers(given, given, artifact, latest, None, 0, how)
        hold_while_planned(answers, lease)
    return _pairs(_observed(answers, METRICS)), lease


@dataclass(frozen=True)
class _Mode:
    """How a version is spread over the workers, and whether they return owners."""

    name: str
    replicated_bytes: int
    owners: bool

    def __post_init__(self) -> None:
        if self.name not in MODES:
            raise UnknownName("mode", self.name, MODES)

    def replicates(self, version: Version) -> bool:
        """Whether every worker maps the whole version."""
        if self.name == "auto":
            return len(version.shards) == 1 or version.nbytes <= self.replicated_bytes
        return self.name == "replicated"


def _answers(
    messages: DataFrame,
    given: DataFrame,
    artifact: Artifact,
    version: Version,
    number: int | None,
    now_us: int,
    mode: _Mode,
) -> DataFrame:
    """Return the answers to messages, as `nearcast.spark.workers.answers` explains them.

    ``given`` has the columns of ``messages`` that are used. ``number`` is None for a stream: each
    micro-batch has its own version.
    """
    uri = artifact.folder.uri
    builder = indexes.create(version.index, **version.options)
    warm(builder, None if version.weights is None else version.scoring)
    ids = pa.int64() if version.ids == "integer" else pa.string()
    schema = answer_schema(id_type(given), ids, owners=mode.owners)
    if mode.replicates(version):
        matching = MatchMessages(uri, number, now_us, schema)
        return map_rows(messages, given.columns, matching, ddl(schema))
    keys = _keys(given.sparkSession, len(version.shards))
    routing = RouteMessages(uri, number, now_us, keys)
    return _routed(messages, given, routing, MatchRouted(uri, schema))


def _lease(artifact: Artifact, number: int | None) -> tuple[Version, Lease]:
    """Return a version that the driver holds, by default the latest one."""
    while True:
        version = artifact.latest() if number is None else artifact.read(number)
        try:
            return version, lease_version(artifact, version.number)
        except StorageError:
            if number is not None or artifact.latest().number == version.number:
                raise
            # It was replaced and dropped before it was held.


def _pairs(answers: DataFrame) -> DataFrame:
    exploded = F.posexplode("subscription_ids").alias("position", "subscription_id")
    lists = {"scores": "score", "owners": "owner"}
    found = {name: column for name, column in lists.items() if name in answers.columns}
    pairs = answers.select("message_id", *found, exploded)
    more = [F.get(name, "position").alias(column) for name, column in found.items()]
    return pairs.select("message_id", "subscription_id", *more)


def _routed(
    messages: DataFrame, given: DataFrame, routing: RouteMessages, matching: MatchRouted
) -> DataFrame:
    """Route messages to their shards, shuffle once, and match."""
    own = given.drop(NOW).schema.fields
    copies = StructType([*own, *struct(ddl(ROUTE)).fields])
    routed = map_rows(messages, given.columns, routing, copies)
    spread = routed.repartition(len(routing.keys), "_key")
    return spread.mapInArrow(matching, ddl(matching.schema))


def _keys(spark: SparkSession, shards: int) -> tuple[int, ...]:
    """Return a key for each partition of the shuffle; every shard has as many partitions."""
    each = -(-spark.sparkContext.defaultParallelism // shards)
    return keys_of_partitions(spark, shards * each)


@lru_cache(maxsize=64)
def keys_of_partitions(spark: SparkSession, partitions: int) -> tuple[int, ...]:
    """Return numbers that Spark hashes to the partitions 0, 1, 2 and so on."""
    key = F.col("id").cast("int")
    tried = spark.range(0, partitions * 20 + 100, 1, 1)
    hashed = tried.select(key.alias("key"), F.pmod(F.hash(key), F.lit(partitions)).alias("to"))
    found = {row["to"]: row["key"] for row in hashed.collect()}
    return tuple(found[partition] for partition in range(partitions))


def _observed(answers: DataFrame, name: Observation | str) -> DataFrame:
    """Let Spark observe the costs of answers."""
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
