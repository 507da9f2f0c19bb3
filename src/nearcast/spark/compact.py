"""``compact``: merge changes into the shards, and drop versions that nobody reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from nearcast.errors import InvalidInput
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.artifact.working import remove_garbage, working
from nearcast.spark.changes import rewrite_shards
from nearcast.spark.frames import plain_errors
from nearcast.spark.leases import release_unused
from nearcast.spark.workers.changing import ApplyChanges

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from nearcast.spark.artifact.versions import Version

__all__ = ["Compacted", "compact"]

REMOTE_KEEP_S = 24 * 3600.0
"""How long old versions are kept where files cannot be locked, in seconds."""


@dataclass(frozen=True)
class Compacted:
    """The result of `compact`.

    Attributes
    ----------
    version
        The version in force.
    folded
        How many shards had changes that have been merged.
    dropped, kept
        The numbers of the versions that were dropped, and of older ones that were kept, because
        somebody reads them or they are not old enough.
    removed
        How many stored folders and folders of dead jobs were removed.
    """

    version: Version
    folded: int
    dropped: tuple[int, ...]
    kept: tuple[int, ...]
    removed: int


def compact(
    spark: SparkSession, index_path: str | os.PathLike[str], *, keep_s: float | None = None
) -> Compacted:
    """Merge changes into the shards of an index, and drop what nobody needs any more.

    The weights of ranked subscriptions stay as they are, so merging changes no score.

    Running jobs keep what they need: a version stays if a batch has been planned with it, or a
    stream may read it, until their driver is done with it or ends.

    Parameters
    ----------
    spark
        The session whose executors merge.
    index_path
        The artifact that `nearcast.spark.build` wrote.
    keep_s
        How long older versions are kept after they were replaced, in seconds. The default is 0
        where files can be locked, because locks show who reads a version. It is a day elsewhere.

    Returns
    -------
    Compacted
        The version in force, and what was merged, dropped and kept.

    Raises
    ------
    StorageError
        When the index cannot be read or written. It is not changed then.

    Examples
    --------
    >>> compact(spark, "index").dropped  # doctest: +SKIP
    (1, 2)
    """
    if keep_s is not None and keep_s < 0:
        raise InvalidInput("keep_s", keep_s, "must be 0 or more seconds")
    artifact = Artifact(index_path)
    version = artifact.latest()
    kept_s = keep_s if keep_s is not None else _default_keep_s(artifact)
    folded = version.deltas
    if folded:
        with plain_errors(), working(artifact), artifact.reading(version):
            folding = ApplyChanges(artifact.folder.uri, version.number, None, "{}", fold=True)
            shards = rewrite_shards(spark, version, folding)
            made = replace(version, shards=shards, source={"by": "compact", "folded": folded})
            version = artifact.commit(made, after=version.number)
    release_unused(spark, collect=True)
    dropped, kept = _drop_versions(artifact, version.number, kept_s)
    removed = remove_garbage(artifact, kept_s)
    return Compacted(version, folded, tuple(dropped), tuple(kept), len(removed))


def _default_keep_s(artifact: Artifact) -> float:
    return 0.0 if artifact.clock.lockable else REMOTE_KEEP_S


def _drop_versions(artifact: Artifact, latest: int, keep_s: float) -> tuple[list[int], list[int]]:
    """Drop versions that were replaced long enough ago and that nobody holds."""
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
