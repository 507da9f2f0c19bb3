"""``stream``: matches of messages as they come, each once, through restarts and crashes.

The query is `match` over a streaming frame. Every micro-batch meets the version of the index that
was in force when it began; Spark writes that moment down before it works, so a batch that is
tried again meets the same version, and gives the same matches.

The file sink is Spark's: its log says which files count. A process that is killed leaves files that
are not in the log, which Spark passes over and other readers would not; `stream` removes them
when it starts again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from nearcast.errors import InvalidInput, StorageError
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.match import METRICS, match
from nearcast.spark.prepare import prepare
from nearcast.spark.sources import topic_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from nearcast.spark.artifact.folders import Folder

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
) -> StreamingQuery:
    """Start to match a stream of messages; return the running query.

    Parameters
    ----------
    messages
        A streaming frame with the columns of message files.
    index_path
        What `nearcast.spark.build` wrote. Changed subscriptions are taken up by the next
        micro-batch.
    to
        A folder (Parquet, each match once), ``kafka://HOST:PORT/TOPIC`` (JSON, each match at least
        once: after a crash, the last batch may come again), or a function that is given the
        matches of every micro-batch and its number.
    checkpoint
        A folder in which Spark notes how far it is. The same folder goes on where it stopped.
    mode
        As for `match`.
    every
        How often a micro-batch begins, such as ``10 seconds``; as soon as the last one is done if
        left out.
    available_now
        Stop when all messages that are there have been matched.

    Raises
    ------
    InvalidInput
        When the frame is no stream, or the folder holds something else.
    """
    if not messages.isStreaming:
        raise InvalidInput(
            "messages", "a batch", "must be a streaming frame; use match for this one"
        )
    if isinstance(to, os.PathLike):
        to = os.fspath(to)
    matches = match(messages, index_path, mode=mode)
    topic = topic_of(to) if isinstance(to, str) else None
    if topic is not None:
        matches = matches.select(
            F.col("subscription_id").cast("string").alias("key"),
            F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
        )
    writer = matches.writeStream.option("checkpointLocation", os.fspath(checkpoint))
    writer = _paced(writer, every, available_now)
    if isinstance(to, str) and topic is None:
        remove_leftovers(to, checkpoint)
    remove_first_attempt(checkpoint)
    if not isinstance(to, str):
        return writer.foreachBatch(to).start()
    if topic is not None:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", topic.servers)
        return writer.option("topic", topic.name).start()
    return writer.format("parquet").option("path", to).start()


def stream_rejects(
    messages: DataFrame,
    *,
    to: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    every: str | None = None,
    available_now: bool = False,
) -> StreamingQuery:
    """Start to write the rows of a stream that are no messages, with reasons, as JSON lines."""
    if not messages.isStreaming:
        raise InvalidInput("messages", "a batch", "must be a streaming frame; use prepare for it")
    rejects = prepare(messages, "messages", duplicates="keep").rejects
    remove_leftovers(to, checkpoint)
    remove_first_attempt(checkpoint)
    writer = rejects.writeStream.option("checkpointLocation", os.fspath(checkpoint))
    writer = _paced(writer, every, available_now).format("json")
    return writer.option("path", os.fspath(to)).start()


def rates(progress: Any) -> dict[str, float] | None:
    """Return what a micro-batch did, from the progress of its query; None where it had no data.

    Examples
    --------
    >>> rates({"batchId": 4, "observedMetrics": {}, "durationMs": {}})
    """
    told = progress["observedMetrics"].get(METRICS)
    if told is None or not told["messages"] + told["rejected"]:
        return None
    seconds = max(progress["durationMs"]["triggerExecution"], 1) / 1000
    return {
        "batch": progress["batchId"],
        "messages": told["messages"],
        "matches": told["matches"],
        "rejected": told["rejected"],
        "seconds": seconds,
        "messages_per_second": told["messages"] / seconds,
        "matches_per_second": told["matches"] / seconds,
        "examined_per_message": told["examined"] / max(told["messages"], 1),
    }


def remove_leftovers(out: str | os.PathLike[str], checkpoint: str | os.PathLike[str]) -> list[str]:
    """Remove the files that a killed query left in its folder; return their names.

    Raises
    ------
    InvalidInput
        When the folder holds files and the checkpoint is new, or lacks batches that the checkpoint
        has: they do not belong together.
    """
    folder = open_folder(out)
    files = [name for name in folder.names() if not name.startswith(("_", "."))]
    progress = open_folder(checkpoint)
    if _last(progress, "offsets") < 0:
        if files or _entries(folder, _LOG):
            problem = (
                f"holds files, but {checkpoint} is new; name another folder, or both as before"
            )
            raise InvalidInput("to", out, problem)
        return []
    if _last(progress, "commits") > _last(folder, _LOG):
        problem = (
            f"lacks what {checkpoint} says is written; name the folder as before, or a new "
            "checkpoint to match all messages again"
        )
        raise InvalidInput("to", out, problem)
    counted = _counted(folder)
    leftovers = [name for name in files if name not in counted]
    for name in leftovers:
        folder.remove(name)
    return leftovers


def remove_first_attempt(checkpoint: str | os.PathLike[str]) -> None:
    """Make a checkpoint new again whose query was killed before its first batch began.

    Spark refuses to begin where half an entry lies, and takes it for the state of another query.
    """
    progress = open_folder(checkpoint)
    if _last(progress, "offsets") >= 0:
        return
    for log in ("offsets", "commits"):
        for name in progress.names(log):
            if name.startswith("."):
                progress.remove(f"{log}/{name}")


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
                f"{folder.uri}/{where}: is no log of Spark's file sink that can be read ({error}); "
                "name another folder and another checkpoint"
            ) from None
    return counted


def _entries(folder: Folder, log: str) -> list[str]:
    """Return the entries of one of Spark's logs, a number for each batch."""
    names = folder.names(log)
    return [name for name in names if name.removesuffix(".compact").isdecimal()]


def _last(folder: Folder, log: str) -> int:
    """Return the last batch in one of Spark's logs, -1 where there is none."""
    entries = _entries(folder, log)
    return max((int(entry.removesuffix(".compact")) for entry in entries), default=-1)


def _paced(writer: DataStreamWriter, every: str | None, available_now: bool) -> DataStreamWriter:
    if available_now:
        return writer.trigger(availableNow=True)
    return writer if every is None else writer.trigger(processingTime=every)
