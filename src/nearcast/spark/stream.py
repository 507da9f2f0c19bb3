"""``stream``: matches of messages as they arrive, each once, through restarts and crashes.

The query is `nearcast.spark.match` over a streaming frame. Each micro-batch uses the version of the
index that was in force when it began. Spark logs that time before it works on the batch, so a batch
that is tried again uses the same version and gives the same matches.

The file sink is Spark's: its log says which files count. A process that is killed leaves files that
are not in the log. Spark ignores them, but other readers do not, so `stream` removes them when it
starts again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from nearcast.errors import InvalidInput, StorageError
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.leases import follow_query, released_on_error
from nearcast.spark.match import METRICS, plan_stream
from nearcast.spark.prepare import prepare
from nearcast.spark.sources import topic_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from nearcast.spark.artifact.folders import Folder
    from nearcast.spark.artifact.leases import StreamLease
    from nearcast.spark.sources import Topic
    from nearcast.text import Tokenizer

__all__ = ["rates", "stream", "stream_rejects"]

_LOG = "_spark_metadata"


def stream(
    messages: DataFrame,
    index_path: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | Callable[[DataFrame, int], None],
    checkpoint: str | os.PathLike[str],
    mode: str = "auto",
    every: str | None = None,
    available_now: bool = False,
    owners: bool = False,
    tokenizer: str | Tokenizer | None = None,
) -> StreamingQuery:
    """Start a query that matches a stream of messages, and return it.

    Parameters
    ----------
    messages
        A streaming frame with the columns of message files.
    index_path
        The artifact that `nearcast.spark.build` wrote. The next micro-batch uses changed
        subscriptions. `nearcast.spark.compact` keeps the versions that the query may still read.
    to
        A folder (Parquet, each match once), ``kafka://HOST:PORT/TOPIC`` (JSON, each match at least
        once: after a crash, the last batch may be written again), or a function that is called
        with the matches of each micro-batch and its number.
    checkpoint
        The folder where Spark keeps its progress. A query with the same folder continues there.
    mode, tokenizer
        As for `nearcast.spark.match`.
    every
        How often a micro-batch begins, such as ``10 seconds``; by default as soon as the last one
        is done.
    available_now
        Stop when all messages that are available now have been matched.
    owners
        As for `nearcast.spark.match`.

    Returns
    -------
    StreamingQuery
        The running query; Spark's ``awaitTermination`` and ``stop`` end it.

    Raises
    ------
    InvalidInput
        When the frame is not a stream, or the folder belongs to another checkpoint.

    Examples
    --------
    >>> messages = open_stream(spark, "incoming")  # doctest: +SKIP
    >>> query = stream(messages, "index", to="matches", checkpoint="state")  # doctest: +SKIP
    >>> query.awaitTermination()  # doctest: +SKIP
    """
    if not messages.isStreaming:
        raise InvalidInput("messages", "a batch", "must be a stream; use match for a batch")
    if isinstance(to, str):
        topic_of(to)
    matches, lease = plan_stream(
        messages, Artifact(index_path), mode, tokenizer=tokenizer, owners=owners
    )
    return start_query(
        matches, lease, to=to, checkpoint=checkpoint, every=every, available_now=available_now
    )


def start_query(
    rows: DataFrame,
    lease: StreamLease,
    *,
    to: str | os.PathLike[str] | Callable[[DataFrame, int], None],
    checkpoint: str | os.PathLike[str],
    every: str | None,
    available_now: bool,
) -> StreamingQuery:
    """Start a query that writes matches or updates, and let it hold the versions that it reads.

    The lease is released if that fails; see `stream` for the arguments.
    """
    with released_on_error(lease):
        if isinstance(to, os.PathLike):
            to = os.fspath(to)
        topic = topic_of(to) if isinstance(to, str) else None
        if topic is not None:
            rows = rows.select(
                F.col("subscription_id").cast("string").alias("key"),
                F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
            )
        writer = rows.writeStream.option("checkpointLocation", os.fspath(checkpoint))
        writer = _paced(writer, every, available_now)
        if isinstance(to, str) and topic is None:
            remove_leftovers(to, checkpoint)
        remove_first_attempt(checkpoint)
        query = _sink(writer, to, topic).start()
    follow_query(query, lease)
    return query


def _sink(
    writer: DataStreamWriter, to: str | Callable[[DataFrame, int], None], topic: Topic | None
) -> DataStreamWriter:
    if not isinstance(to, str):
        return writer.foreachBatch(to)
    if topic is None:
        return writer.format("parquet").option("path", to)
    writer = writer.format("kafka").option("kafka.bootstrap.servers", topic.servers)
    return writer.option("topic", topic.name)


def stream_rejects(
    messages: DataFrame,
    *,
    to: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    every: str | None = None,
    available_now: bool = False,
) -> StreamingQuery:
    """Start a query that writes the invalid rows of a stream, with reasons, as JSON lines.

    Parameters
    ----------
    messages
        A streaming frame with the columns of message files.
    to
        The folder for the JSON lines.
    checkpoint
        The folder where Spark keeps the progress of this query.
    every, available_now
        As for `stream`.

    Returns
    -------
    StreamingQuery
        The running query.

    Raises
    ------
    InvalidInput
        When the frame is not a stream.
    """
    if not messages.isStreaming:
        raise InvalidInput("messages", "a batch", "must be a stream; use prepare for a batch")
    rejects = prepare(messages, "messages", duplicates="keep").rejects
    remove_leftovers(to, checkpoint)
    remove_first_attempt(checkpoint)
    writer = rejects.writeStream.option("checkpointLocation", os.fspath(checkpoint))
    writer = _paced(writer, every, available_now).format("json")
    return writer.option("path", os.fspath(to)).start()


def rates(progress: Any) -> dict[str, float] | None:
    """Return the counts and rates of a micro-batch from its query's progress; None without data.

    Examples
    --------
    >>> rates({"batchId": 4, "observedMetrics": {}, "durationMs": {}})
    """
    metrics = progress["observedMetrics"].get(METRICS)
    if metrics is None or not metrics["messages"] + metrics["rejected"]:
        return None
    seconds = max(progress["durationMs"]["triggerExecution"], 1) / 1000
    return {
        "batch": progress["batchId"],
        "messages": metrics["messages"],
        "matches": metrics["matches"],
        "rejected": metrics["rejected"],
        "seconds": seconds,
        "messages_per_second": metrics["messages"] / seconds,
        "matches_per_second": metrics["matches"] / seconds,
        "examined_per_message": metrics["examined"] / max(metrics["messages"], 1),
    }


def remove_leftovers(out: str | os.PathLike[str], checkpoint: str | os.PathLike[str]) -> list[str]:
    """Remove the files that a killed query left in its folder; return their names.

    Raises
    ------
    InvalidInput
        When the folder and the checkpoint do not belong together: the folder has files and the
        checkpoint is new, or the folder lacks batches that the checkpoint has.
    """
    folder = open_folder(out)
    files = [name for name in folder.names() if not name.startswith(("_", "."))]
    progress = open_folder(checkpoint)
    if not has_begun(checkpoint):
        if files or _entries(folder, _LOG):
            problem = (
                f"contains files, but {checkpoint} is new; use another folder, or the old "
                "checkpoint"
            )
            raise InvalidInput("to", out, problem)
        return []
    if _last(progress, "commits") > _last(folder, _LOG):
        problem = (
            f"lacks files that {checkpoint} has recorded as written; use the same folder as "
            "before, or a new checkpoint to match all messages again"
        )
        raise InvalidInput("to", out, problem)
    counted = _counted(folder)
    leftovers = [name for name in files if name not in counted]
    for name in leftovers:
        folder.remove(name)
    return leftovers


def remove_first_attempt(checkpoint: str | os.PathLike[str]) -> None:
    """Clean up a checkpoint whose query was killed before its first batch began.

    Spark refuses to start with an incomplete entry: it takes it for the state of another query.
    """
    if has_begun(checkpoint):
        return
    progress = open_folder(checkpoint)
    for log in ("offsets", "commits"):
        for name in progress.names(log):
            if name.startswith("."):
                progress.remove(f"{log}/{name}")


def has_begun(checkpoint: str | os.PathLike[str]) -> bool:
    """Whether a query with this checkpoint has begun a batch."""
    return _last(open_folder(checkpoint), "offsets") >= 0


def _counted(folder: Folder) -> set[str]:
    """Return the names of the files that the log of Spark's file sink counts."""
    counted: set[str] = set()
    for entry in _entries(folder, _LOG):
        where = f"{_LOG}/{entry}"
        head, _, lines = folder.read(where).decode(errors="replace").partition("\n")
        try:
            if head != "v1":
                raise ValueError(f"it begins with {head[:20]!r}, not with 'v1'")
            paths = [json.loads(line)["path"] for line in lines.splitlines()]
            counted |= {path.rpartition("/")[2] for path in paths}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"{folder.uri}/{where}: cannot be read as a log of Spark's file sink ({error}); "
                "use another folder and another checkpoint"
            ) from None
    return counted


def _entries(folder: Folder, log: str) -> list[str]:
    """Return the entries of one of Spark's logs; their names are the numbers of batches."""
    names = folder.names(log)
    return [name for name in names if name.removesuffix(".compact").isdecimal()]


def _last(folder: Folder, log: str) -> int:
    """Return the last batch in one of Spark's logs, or -1."""
    entries = _entries(folder, log)
    return max((int(entry.removesuffix(".compact")) for entry in entries), default=-1)


def _paced(writer: DataStreamWriter, every: str | None, available_now: bool) -> DataStreamWriter:
    if available_now:
        return writer.trigger(availableNow=True)
    return writer if every is None else writer.trigger(processingTime=every)
