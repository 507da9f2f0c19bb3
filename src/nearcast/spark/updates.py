"""``stream_updates``: which subscriptions living messages match while subscribers move.

Two streams, of messages and of moves, become one stream of updates: +1 where a match begins, -1
where it ends, each once. The plan is one shuffle: `RouteEvents` sends moves to the partition of
their subscription and messages to all partitions, `ApplyEvents` lets them happen there. What a
partition remembers is in the checkpoint, see `nearcast.spark.artifact.states`; the sinks are those
of `nearcast.spark.stream`.

Spark's own state (``transformWithState``) was measured and not taken: see ARCHITECTURE.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from nearcast.errors import InvalidInput, NearcastError
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.artifact.leases import StreamLease
from nearcast.spark.artifact.states import StreamSettings, open_settings
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.changes import change_columns, check_ids
from nearcast.spark.frames import ddl, id_type, message_columns, struct
from nearcast.spark.leases import hold_while_planned, released_on_error
from nearcast.spark.match import METRICS, keys_of_partitions
from nearcast.spark.sources import topic_of
from nearcast.spark.stream import has_begun, start_query
from nearcast.spark.workers.cleaning import DAMAGED, ORIGIN, RECORD
from nearcast.spark.workers.events import CHANGE, EVENT, GIVEN, MESSAGE, PREFIX, RouteEvents
from nearcast.spark.workers.updating import COUNTS, ApplyEvents, Task, update_schema
from nearcast.text import opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from nearcast.spark.artifact.versions import Version
    from nearcast.text import Tokenizer

__all__ = ["stream_updates", "update_rates"]

STATES = "nearcast"
"""The folder in the checkpoint for what a stream remembers."""

_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
_PARTITION_BITS = 33
_ORIGIN = (DAMAGED, *ORIGIN.names, RECORD)


def stream_updates(
    messages: DataFrame,
    moves: DataFrame,
    index_path: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | Callable[[DataFrame, int], None],
    checkpoint: str | os.PathLike[str],
    ttl_s: float | None = None,
    rejects: str | os.PathLike[str] | None = None,
    partitions: int | None = None,
    every: str | None = None,
    available_now: bool = False,
    tokenizer: str | Tokenizer | None = None,
) -> StreamingQuery:
    """Start a query that follows living messages and moving subscriptions, and return it.

    The updates are ``time``, ``subscription_id``, ``message_id``, ``sign`` and ``score``: +1 when a
    message is published and matches, or a subscription comes to match it, -1 when it expires or
    they no longer match. The updates of a pair add up to 1 while it matches, otherwise to 0.

    Events of a micro-batch happen in the order of their times; at equal times deletes come before
    inserts, then moves, then messages, and otherwise the order is that of Spark's partitions. What
    is older than an earlier micro-batch happens now, and so does what is newer than the time of
    the micro-batch. A micro-batch ends at the time of its last event: what has expired until then
    ends, and the rest when later events come. So the updates do not depend on how the streams are
    cut into micro-batches, as long as no micro-batch has older events than the one before.

    Parameters
    ----------
    messages
        A streaming frame with the columns of message files. A message lives for ``ttl_s`` seconds
        from its time on. One that is dead on arrival, or whose ``ttl_s`` is 0, gives +1 only.
    moves
        A streaming frame with the columns of moves (``subscription_id``, ``time`` and a place), or
        those of `nearcast.spark.changes`, to insert and delete subscriptions too.
    index_path
        The artifact that `nearcast.spark.build` wrote. The first micro-batch takes over the
        subscriptions of the version in force, and the weights of ranked ones; after that, only
        ``moves`` changes them.
    to, checkpoint, every, available_now, tokenizer
        As for `nearcast.spark.stream`. What the stream remembers is in the checkpoint too.
    ttl_s
        How long messages live that do not say it; left out, these are rejected.
    rejects
        A folder for invalid rows, unknown subscriptions and messages whose id is alive, as JSON
        lines with reasons; left out, they are only counted.
    partitions
        How many tasks share the subscriptions; by default as many as Spark has cores when the
        stream begins. It stays the same as long as the checkpoint is used. Each task has all living
        messages.

    Raises
    ------
    InvalidInput
        When a frame is not a stream, or ids, partitions or folders are not those with which the
        stream began.
    UnsupportedFile
        When a column is missing.
    """
    for name, frame in (("messages", messages), ("moves", moves)):
        if not frame.isStreaming:
            problem = "must be a stream; use nearcast match --moves for files"
            raise InvalidInput(name, "a batch", problem)
    _check_numbers(ttl_s, partitions)
    if isinstance(to, str):
        topic_of(to)
    artifact = Artifact(index_path)
    version = artifact.latest()
    opened(version.tokenizer, tokenizer, index_path)
    given = _events(messages, moves, version, ttl_s)
    state = open_folder(f"{os.fspath(checkpoint).rstrip('/')}/{STATES}")
    wanted = StreamSettings(artifact.folder.uri, partitions or 0, version.ids)
    if not partitions and not has_begun(checkpoint):
        cores = messages.sparkSession.sparkContext.defaultParallelism
        wanted = wanted._replace(partitions=cores)
    lease = StreamLease(artifact)
    with released_on_error(lease):
        settings = open_settings(state, wanted, begun=has_begun(checkpoint))
        schema = update_schema(
            pa.int64() if settings.ids == "integer" else pa.string(), id_type(messages)
        )
        applying = ApplyEvents(
            artifact.folder.uri,
            state.uri,
            settings.partitions,
            ttl_s,
            schema,
            None if rejects is None else os.fspath(rejects),
            current_task,
        )
        applied = _applied(given, applying)
        hold_while_planned(applied, lease)
        updates = _observed(applied).where("sign is not null").drop("counts")
    return start_query(
        updates, lease, to=to, checkpoint=checkpoint, every=every, available_now=available_now
    )


def update_rates(progress: Any) -> dict[str, float] | None:
    """Return the counts and rates of a micro-batch from its query's progress; None without data.

    Examples
    --------
    >>> update_rates({"batchId": 4, "observedMetrics": {}, "durationMs": {}})
    """
    metrics = progress["observedMetrics"].get(METRICS)
    if metrics is None or not metrics["messages"] + metrics["changes"] + metrics["rejected"]:
        return None
    seconds = max(progress["durationMs"]["triggerExecution"], 1) / 1000
    events = metrics["messages"] + metrics["changes"]
    return {
        "batch": progress["batchId"],
        **{name: metrics[name] for name in COUNTS[:-1]},
        "seconds": seconds,
        "events_per_second": events / seconds,
        "updates_per_second": (metrics["begun"] + metrics["ended"]) / seconds,
    }


def current_task() -> Task:
    """Return what Spark's task on this worker works on."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if context is None or batch is None:
        raise NearcastError("updates can only be evaluated by the streaming query that gives them")
    return Task(context.getLocalProperty(_RUN) or "", int(batch), context.partitionId())


def _events(
    messages: DataFrame, moves: DataFrame, version: Version, ttl_s: float | None
) -> DataFrame:
    """Return the rows of both streams in one frame, with the columns of `GIVEN`."""
    own = message_columns(messages).columns
    origin = [name for name in _ORIGIN if name in messages.columns]
    chosen, changes = messages.select(*own, *origin), change_columns(moves, *_ORIGIN)
    check_ids(changes, version)
    if ttl_s is None and "ttl_s" not in own:
        problem = "is missing; messages have no column ttl_s, so give the seconds that they live"
        raise InvalidInput("ttl_s", ttl_s, problem)
    rows = []
    for kind, frame in ((MESSAGE, chosen), (CHANGE, changes)):
        columns = [F.col(name).alias(f"{PREFIX[kind]}{name}") for name in frame.columns]
        first = F.shiftleft(F.spark_partition_id().cast("bigint"), _PARTITION_BITS)
        now = F.current_timestamp()
        extra = (F.lit(kind).cast("tinyint"), first, now)
        named = [one.alias(name) for name, one in zip(GIVEN.names, extra, strict=True)]
        rows.append(frame.select(*columns, *named))
    return rows[0].unionByName(rows[1], allowMissingColumns=True)


def _applied(given: DataFrame, applying: ApplyEvents) -> DataFrame:
    """Send events to their partitions, and let them happen there."""
    keys = keys_of_partitions(given.sparkSession, applying.partitions)
    routing = [field for field in struct(ddl(EVENT)).fields if field.name not in GIVEN.names]
    own = [StructField(field.name, field.dataType) for field in given.schema.fields]
    routed = given.mapInArrow(RouteEvents(keys), StructType([*own, *routing]))
    return routed.repartition(len(keys), "_key").mapInArrow(applying, ddl(applying.schema))


def _observed(applied: DataFrame) -> DataFrame:
    """Let Spark observe the counts."""
    metrics = [
        F.coalesce(F.sum(F.get("counts", F.lit(position))), F.lit(0)).alias(name)
        for position, name in enumerate(COUNTS)
    ]
    return applied.observe(METRICS, *metrics)


def _check_numbers(ttl_s: object, partitions: object) -> None:
    if ttl_s is not None and not (isinstance(ttl_s, int | float) and 0 <= ttl_s < float("inf")):
        raise InvalidInput("ttl_s", ttl_s, "must be a number of seconds, 0 or more")
    if partitions is not None and not (isinstance(partitions, int) and partitions >= 1):
        raise InvalidInput("partitions", partitions, "must be a whole number of at least 1")
