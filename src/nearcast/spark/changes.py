"""``changes``: insert, delete and move subscriptions, as a new version of the index."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nearcast.errors import InvalidInput, UnsupportedFile
from nearcast.intake import SUBSCRIPTION_COLUMNS
from nearcast.spark.artifact.versions import Artifact, ShardRef, Stored, Version
from nearcast.spark.artifact.working import working
from nearcast.spark.frames import ddl, id_type, plain_errors
from nearcast.spark.workers.building import BUILT, STORED
from nearcast.spark.workers.changing import (
    RESOLVED,
    ApplyChanges,
    FindChanged,
    ResolveChanges,
    SpoolChanges,
)
from nearcast.spark.workers.cleaning import ORIGIN, RECORD, REJECTS
from nearcast.spark.workers.effects import OPERATIONS
from nearcast.text import opened

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, Row, SparkSession

    from nearcast.text import Tokenizer

__all__ = ["Changed", "change_columns", "changes", "check_ids", "rewrite_shards"]

_COLUMNS = ("op", "time", *SUBSCRIPTION_COLUMNS)


@dataclass(frozen=True, eq=False)
class Changed:
    """The result of `changes`.

    Attributes
    ----------
    version
        The version in force now; the old one if no change was valid.
    taken
        The number of valid changes of each operation.
    rejected
        The number of invalid rows.
    rejects
        The invalid rows, with reasons.
    """

    version: Version
    taken: dict[str, int]
    rejected: int
    rejects: DataFrame


def changes(
    frame: DataFrame,
    index_path: str | os.PathLike[str],
    *,
    tokenizer: str | Tokenizer | None = None,
) -> Changed:
    """Change the subscriptions of an index; running streams use them from their next micro-batch.

    The weights of ranked subscriptions stay as they were counted by `nearcast.spark.build`, so a
    change of one subscription changes no score of another. Words that are new weigh as rare ones.
    The first ranked subscriptions of an index that was built without any are counted here.

    Parameters
    ----------
    frame
        ``op`` is ``insert`` (all columns of a subscription), ``delete`` (its ``id``) or ``move``
        (its ``id`` and a place). Several changes of one id are applied in the order of the column
        ``time`` if there is one, otherwise in the order of the rows. A frame of moves
        (``subscription_id``, ``time`` and a place, no ``op``) is accepted as well. The place of a
        subscription that is ranked by distance is ``lon``, ``lat``; that of others is a region.
    index_path
        The artifact that `nearcast.spark.build` wrote.
    tokenizer
        That of the index, which is the default: another one is an error.

    Returns
    -------
    Changed
        The version in force now, what was changed, and the rows that were rejected.

    Raises
    ------
    UnsupportedFile
        When a required column is missing.
    StorageError
        When the index cannot be read or written, or somebody else changed it meanwhile. It is not
        changed then.

    Examples
    --------
    >>> deletes = spark.createDataFrame([("delete", "s1")], ["op", "id"])  # doctest: +SKIP
    >>> changes(deletes, "index").taken  # doctest: +SKIP
    {'insert': 0, 'delete': 1, 'move': 0}
    """
    given = change_columns(frame, *ORIGIN.names, RECORD)
    if frame.isStreaming:
        raise InvalidInput(
            "frame",
            "a stream",
            "must be a batch; call changes in foreachBatch, or use stream_updates",
        )
    artifact = Artifact(index_path)
    version = artifact.latest()
    check_ids(given, version)
    opened(version.tokenizer, tokenizer, index_path)
    with plain_errors(), working(artifact) as work, artifact.reading(version):
        return _Change(given, artifact, version, work).run()


class _Change:
    """The steps of a change."""

    def __init__(self, frame: DataFrame, artifact: Artifact, version: Version, work: str) -> None:
        self._frame = frame
        self._spark = frame.sparkSession
        self._artifact = artifact
        self._version = version
        self._work = work

    def run(self) -> Changed:
        """Run the steps."""
        uri, number = self._artifact.folder.uri, self._version.number
        spooled = self._run_step(self._frame.coalesce(1), SpoolChanges(uri, self._work))
        if not spooled:
            return self._changed(self._version, [])
        shards = _numbers(self._spark, len(self._version.shards))
        found = self._run_step(shards, FindChanged(uri, self._work, number, spooled[0]))
        resolving = ResolveChanges(uri, self._work, number, spooled[0], tuple(found))
        one = _numbers(self._spark, 1)
        results = one.mapInArrow(resolving, ddl(RESOLVED)).collect()
        if not any(row.rows for row in results if row.what in OPERATIONS):
            return self._changed(self._version, results)
        version = self._apply(results)
        made = self._artifact.commit(version, after=number)
        return self._changed(made, results)

    def _run_step(self, frame: DataFrame, step: Any) -> list[Stored]:
        rows = frame.mapInArrow(step, ddl(STORED)).collect()
        return [Stored(row.name, row.digest, row.nbytes) for row in rows]

    def _apply(self, results: list[Row]) -> Version:
        parts: dict[int, list[tuple[str, str]]] = {}
        dead, weights = None, self._version.weights
        for row in results:
            if row.what == "part":
                parts.setdefault(row.shard, []).append((row.name, row.digest))
            elif row.what == "dead":
                dead = Stored(row.name, row.digest, 0)
            elif row.what == "weights":
                weights = Stored(row.name, row.digest, row.nbytes)
        uri, number = self._artifact.folder.uri, self._version.number
        applying = ApplyChanges(uri, number, dead, json.dumps(parts), weights=weights)
        shards = rewrite_shards(self._spark, self._version, applying)
        source = {"by": "changes", **_taken(results)}
        return replace(self._version, shards=shards, weights=weights, source=source)

    def _changed(self, version: Version, results: list[Row]) -> Changed:
        invalid = [
            tuple(row[name] for name in REJECTS.names) for row in results if row.what == "reject"
        ]
        rejects = self._spark.createDataFrame(invalid, ddl(REJECTS))
        return Changed(version, _taken(results), len(invalid), rejects)


def rewrite_shards(
    spark: SparkSession, version: Version, step: ApplyChanges
) -> tuple[ShardRef, ...]:
    """Return the shards of a version as executors have rewritten them."""
    shards = _numbers(spark, len(version.shards))
    made = {
        row.shard: ShardRef.from_json(row.segments)
        for row in shards.mapInArrow(step, ddl(BUILT)).collect()
    }
    return tuple(made[shard] for shard in range(len(version.shards)))


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers from 0 on, each in its own task."""
    return spark.range(0, count, 1, count)


def _taken(results: list[Row]) -> dict[str, int]:
    found = {row.what: row.rows for row in results}
    return {operation: found.get(operation, 0) for operation in OPERATIONS}


def change_columns(frame: DataFrame, *others: str) -> DataFrame:
    """Return the columns of changes, or of moves as changes, and some others if they are there.

    Raises
    ------
    UnsupportedFile
        When a required column is missing.
    """
    from pyspark.sql import functions as F

    if "id" in frame.columns and "subscription_id" in frame.columns:
        frame = frame.withColumn("id", F.coalesce("id", "subscription_id"))
    elif "subscription_id" in frame.columns:
        frame = frame.withColumnRenamed("subscription_id", "id")
        if "op" not in frame.columns and "time" in frame.columns:
            frame = frame.withColumn("op", F.lit("move"))
    missing = [name for name in ("op", "id") if name not in frame.columns]
    if missing:
        raise UnsupportedFile(
            f"not a table of changes: it has the columns {', '.join(frame.columns) or 'none'}; "
            "expected op (insert, delete or move), id, and the columns of subscriptions"
        )
    return frame.select(*(name for name in frame.columns if name in (*_COLUMNS, *others)))


def check_ids(frame: DataFrame, version: Version) -> None:
    """Raise an error unless the ids of changes are of the kind that the index has."""
    found = "integer" if id_type(frame) == pa.int64() else "string"
    if found != version.ids:
        raise InvalidInput(
            "id", f"{found} ids", f"must be {version.ids} like those of the index; cast the column"
        )
