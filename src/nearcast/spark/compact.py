"""``compact``: changes folded in, and versions that nobody reads dropped."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from nearcast.errors import InvalidInput
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.artifact.working import remove_rubbish, working
from nearcast.spark.changes import remake_shards
from nearcast.spark.frames import plain_errors
from nearcast.spark.workers.changing import ApplyChanges

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from nearcast.spark.artifact.versions import Version

__all__ = ["Compacted", "compact"]

REMOTE_KEEP_S = 24 * 3600.0
"""How long versions are kept where nothing tells whether somebody reads them."""


@dataclass(frozen=True)
class Compacted:
    """What compacting did.

    Attributes
    ----------
    version
        The version in force.
    folded
        How many shards had changes, which are folded in now.
    dropped, kept
        The numbers of versions that are gone, and of older ones that stay because somebody reads
        them or they are not old enough.
    removed
        How many stored folders and remains of dead work were removed.
    """

    version: Version
    folded: int
    dropped: tuple[int, ...]
    kept: tuple[int, ...]
    removed: int


def compact(
    spark: SparkSession, index_path: str | os.PathLike[str], *, keep_s: float | None = None
) -> Compacted:
    """Fold changes into the shards of an index, and drop what nobody needs any more.

    Parameters
    ----------
    spark
        The session whose executors do it.
    index_path
        What `nearcast.spark.build` wrote.
    keep_s
        How long older versions are kept after they were replaced, in seconds. On a local disk, 0
        if left out: a version that a task reads is kept anyway. On other file systems nothing
        tells who reads, and a day is the default.

    Raises
    ------
    StorageError
        When the index cannot be read or written. It is as it was then.
    """
    if keep_s is not None and keep_s < 0:
        raise InvalidInput("keep_s", keep_s, "must be 0 or more seconds")
    artifact = Artifact(index_path)
    version = artifact.latest()
    kept_s = keep_s if keep_s is not None else _default_keep_s(artifact)
    folded = version.deltas
    if folded:
        with plain_errors(), working(artifact):
            folding = ApplyChanges(artifact.folder.uri, version.number, None, "{}", fold=True)
            shards = remake_shards(spark, version, folding)
            made = replace(version, shards=shards, source={"by": "compact", "folded": folded})
            version = artifact.commit(made, after=version.number)
    dropped, kept = _drop_versions(artifact, version.number, kept_s)
    removed = remove_rubbish(artifact, kept_s)
    return Compacted(version, folded, tuple(dropped), tuple(kept), len(removed))


def _default_keep_s(artifact: Artifact) -> float:
    return REMOTE_KEEP_S if artifact.folder.local is None else 0.0


def _drop_versions(artifact: Artifact, latest: int, keep_s: float) -> tuple[list[int], list[int]]:
    """Drop versions that were replaced long enough ago and are not read."""
    now_ms = time.time_ns() // 1_000_000
    numbers = artifact.numbers()
    dropped: list[int] = []
    kept: list[int] = []
    for number, next_one in pairwise(numbers):
        if number >= latest:
            break
        replaced_ms = artifact.read(next_one).created_ms
        old = now_ms - replaced_ms >= keep_s * 1000
        (dropped if old and artifact.drop(number) else kept).append(number)
    return dropped, kept
