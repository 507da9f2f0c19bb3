"""``build``: an index over subscriptions, whole or in shards."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from nearcast import indexes
from nearcast.columns import DISTANCES, SIMILARITIES, Messages, Scoring
from nearcast.errors import InvalidInput, UnknownName
from nearcast.intake import SUBSCRIPTION_COLUMNS, read_messages, read_subscriptions
from nearcast.model.json_form import RANKED
from nearcast.segments import Part, Scorer, routing_clauses
from nearcast.spark.artifact.segments import write_router
from nearcast.spark.artifact.versions import Artifact, ShardRef, Stored, Version
from nearcast.spark.artifact.working import working
from nearcast.spark.files import map_rows, with_tokenizer
from nearcast.spark.frames import (
    ddl,
    id_type,
    message_columns,
    plain_errors,
    subscription_columns,
    warm,
)
from nearcast.spark.prepare import prepare
from nearcast.spark.shards.planner import messages_like
from nearcast.spark.shards.planner import plan as plan_shards
from nearcast.spark.workers.building import (
    BUILT,
    PARTS,
    STORED,
    BuildShards,
    CombineCounts,
    RouteParts,
    WriteParts,
    Written,
    data_name,
)
from nearcast.text import Vocabulary, loadable_name, words
from nearcast.text import tokenizer as find_tokenizer

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame

    from nearcast.spark.shards.planner import Plan
    from nearcast.spark.shards.router import Router
    from nearcast.text import Tokenizer

__all__ = ["MODES", "Built", "build", "check_arguments"]

MODES = ("auto", "replicated", "sharded")

SHARD_SIZE = 20_000_000
"""The default for the largest number of subscriptions in a shard; about 4 GB."""

_SAMPLE = 100_000


@dataclass(frozen=True, eq=False)
class Built:
    """The result of `build`.

    Attributes
    ----------
    version
        The version in force now.
    rejected, duplicates
        The number of invalid rows, and of rows with the id of an earlier row.
    rejects
        The invalid rows with reasons, as a lazy frame.
    plan
        The plan of the shards, None for a single index.
    """

    version: Version
    rejected: int
    duplicates: int
    rejects: DataFrame
    plan: Plan | None


def build(
    subscriptions: DataFrame,
    out: str | os.PathLike[str],
    *,
    mode: str = "auto",
    shards: int | None = None,
    shard_size: int = SHARD_SIZE,
    messages: DataFrame | None = None,
    index: str = indexes.DEFAULT,
    options: dict[str, Any] | None = None,
    similarity: str = SIMILARITIES[0],
    distance: str = DISTANCES[0],
    tokenizer: str | Tokenizer = words,
    empty: bool = True,
) -> Built:
    """Build an index over subscriptions as a new version of an artifact.

    Boolean and ranked subscriptions may be mixed. The weights of words are counted over all ranked
    ones, once, and belong to the version: scores do not depend on shards or tasks. `changes` and
    `compact` keep the weights, so that they change no score; only the next build counts again.

    Parameters
    ----------
    subscriptions
        A batch with the columns of subscription files.
    out
        The artifact: a folder on any file system that PyArrow or fsspec can open.
    mode
        ``replicated``: one index, which every machine maps as a whole. ``sharded``: several shards;
        a machine maps only those that its messages visit. ``auto``: one index for up to
        ``shard_size`` subscriptions, shards for more.
    shards
        The number of shards; by default as many as ``shard_size`` requires.
    shard_size
        The largest number of subscriptions in a shard.
    messages
        Typical messages, from which the planner takes a sample. By default, it assumes messages at
        the places and with the words of the subscriptions.
    index, options
        The index of every shard.
    similarity, distance
        How ranked subscriptions compare words (``containment``, ``overlap``, ``jaccard``, ``dice``
        or ``cosine``) and measure distance (``geodesic`` or ``planar``).
    tokenizer
        What makes tokens of keywords and texts: ``words``, ``stem:<language>``, ``cjk``,
        ``module:function`` or a function that workers can import. The version keeps its name, and
        all other jobs use it.
    empty
        Whether an index without subscriptions comes into force. Otherwise the old version stays
        in force, and the version that is returned has the number 0.

    Returns
    -------
    Built
        The version in force now, and the rows that were rejected.

    Raises
    ------
    UnsupportedFile
        When the frame has no columns for ids and places.
    StorageError
        When the artifact cannot be written. The old version stays in force.

    Examples
    --------
    >>> subscriptions = spark.read.parquet("subscriptions")  # doctest: +SKIP
    >>> build(subscriptions, "index", mode="sharded", shards=4).version.number  # doctest: +SKIP
    1
    """
    builder = check_arguments(mode, shards, shard_size, index, options or {})
    if getattr(subscriptions, "isStreaming", False):
        raise InvalidInput(
            "subscriptions",
            "a stream",
            "must be a batch; use changes for subscriptions that arrive later",
        )
    scoring, name = Scoring(similarity, distance), loadable_name(tokenizer)
    given = with_tokenizer(subscriptions, name)
    return _Build(given, Artifact(out), builder, scoring, name, empty).run(
        mode, shards, shard_size, messages
    )


def check_arguments(
    mode: str, shards: int | None, shard_size: int, index: str, options: dict[str, Any]
) -> indexes.Builder:
    """Return the index to build, or raise an error for arguments that do not go together."""
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    if shards is not None and shards < 1:
        raise InvalidInput("shards", shards, "must be at least 1")
    if mode == "replicated" and (shards or 1) > 1:
        raise InvalidInput("shards", shards, "must be left out if the mode is replicated")
    if shard_size < 1:
        raise InvalidInput("shard_size", shard_size, "must be at least 1")
    builder = indexes.create(index, **options)
    if len(builder.vocabulary()):
        problem = "need one vocabulary, but every shard has its own; leave them out"
        raise InvalidInput("options", options, problem)
    return builder


class _Build:
    """The steps of a build."""

    def __init__(
        self,
        subscriptions: DataFrame,
        artifact: Artifact,
        builder: indexes.Builder,
        scoring: Scoring,
        tokenizer: str,
        empty: bool,
    ) -> None:
        self._builder = builder
        self._empty = empty
        self._subscriptions = subscriptions
        self._given = subscription_columns(subscriptions)
        self._spark = subscriptions.sparkSession
        self._artifact = artifact
        self._scoring = scoring
        self._tokenizer = tokenizer

    def run(
        self, mode: str, shards: int | None, shard_size: int, messages: DataFrame | None
    ) -> Built:
        """Run the steps."""
        may_rank = any(name in RANKED for name in self._given.columns)
        warm(self._builder, self._scoring if may_rank else None)
        with plain_errors():
            count = self._shards(mode, shards, shard_size)
            router, plan = self._plan(count, messages)
            prepared = prepare(self._subscriptions, "subscriptions", tokenizer=self._tokenizer)
            # The task that builds a single shard finds duplicate ids itself.
            duplicates = count > 1 and _has_duplicate_ids(self._given)
            with working(self._artifact) as work:
                made = None if duplicates else self._write(self._subscriptions, work, router, plan)
                if made is None:
                    made = self._write(prepared.rows, work, router, plan)
                    assert made is not None
                    counts = prepared.check()
                else:
                    counts = {"rejected": made[1], "duplicates": 0}
                source = {"by": "build", **counts, **made[0].source}
                version = replace(made[0], source=source)
                if version.rows or self._empty:
                    version = self._artifact.commit(version)
        return Built(version, counts["rejected"], counts["duplicates"], prepared.rejects, plan)

    def _shards(self, mode: str, shards: int | None, shard_size: int) -> int:
        if mode == "replicated" or shards is not None:
            return shards or 1
        total = self._given.count()
        needed = math.ceil(total / shard_size)
        return max(needed, 2) if mode == "sharded" else max(needed, 1)

    def _plan(self, shards: int, messages: DataFrame | None) -> tuple[Router | None, Plan | None]:
        if shards == 1:
            return None, None
        vocabulary = Vocabulary()
        total = self._given.count()
        split = find_tokenizer(self._tokenizer)
        rows, _ = read_subscriptions(_sample(self._given, total), vocabulary, split)
        sample = Messages.of([], np.empty((0, 4)))
        if messages is not None:
            frame = message_columns(messages)
            table = _sample(frame, frame.count())
            batch, _ = read_messages(table, split, now_us=0, unique=False)
            sample = batch.number(vocabulary, add=True)
        elif rows.rankings is not None:
            sample = messages_like(rows.clauses)
        scorer = Scorer.counted(Part(rows, vocabulary), self._scoring)
        clauses = routing_clauses(scorer.content(rows, vocabulary), vocabulary)
        return plan_shards(clauses, sample, vocabulary, shards=shards, total=total)

    def _write(
        self, frame: DataFrame, work: str, router: Router | None, plan: Plan | None
    ) -> tuple[Version, int] | None:
        """Return a version to commit and the number of rejects; None if there are duplicate ids."""
        folder, builder = self._artifact.folder, self._builder
        stored = None if router is None else write_router(folder, data_name(), router)
        written = Written(1 if router is None else router.shards)
        writing = WriteParts(folder.uri, work, stored, self._tokenizer)
        columns = [name for name in frame.columns if name in SUBSCRIPTION_COLUMNS]
        written.add(map_rows(frame, columns, writing, ddl(PARTS)).collect())
        weights = self._weights(written)
        if stored is not None and weights is not None:
            unrouted = json.dumps(written.unrouted)
            routing = RouteParts(folder.uri, work, stored, unrouted, weights, self._scoring)
            numbers = self._numbers(len(written.unrouted))
            written.add(numbers.mapInArrow(routing, ddl(PARTS)).collect())
        parts, options = json.dumps(written.parts), json.dumps(builder.stored_options())
        building = BuildShards(
            folder.uri, parts, builder.index.name, options, weights, self._scoring
        )
        shards = len(written.parts)
        made = self._numbers(shards).mapInArrow(building, ddl(BUILT)).collect()
        if any(row.repeated for row in made):
            return None
        built = {row.shard: ShardRef.from_json(row.segments) for row in made}
        version = Version(
            index=builder.index.name,
            options=builder.stored_options(),
            ids="integer" if id_type(frame) == pa.int64() else "string",
            shards=tuple(built[shard] for shard in range(shards)),
            router=stored,
            plan={} if plan is None else plan.to_dict(),
            source={} if weights is None else {"ranked": written.ranked},
            weights=weights,
            scoring=self._scoring,
            tokenizer=self._tokenizer,
        )
        return version, written.rejected

    def _weights(self, written: Written) -> Stored | None:
        """Return the table of weights of all ranked subscriptions; None if there are none."""
        if not written.counts:
            return None
        combining = CombineCounts(self._artifact.folder.uri, json.dumps(written.counts))
        [row] = self._numbers(1).mapInArrow(combining, ddl(STORED)).collect()
        return Stored(row.name, row.digest, row.nbytes)

    def _numbers(self, count: int) -> DataFrame:
        """Return the numbers from 0 on, each in its own task."""
        return self._spark.range(0, count, 1, count)


def _has_duplicate_ids(frame: DataFrame) -> bool:
    """Whether some id has several rows. This reads only the ids, because usually none has."""
    repeated = frame.groupBy("id").count().where(F.col("id").isNotNull() & (F.col("count") > 1))
    return not repeated.isEmpty()


def _sample(frame: DataFrame, total: int) -> pa.Table:
    share = min(1.0, 1.1 * _SAMPLE / max(total, 1))
    chosen = frame if share == 1.0 else frame.sample(fraction=share, seed=0)
    return chosen.limit(_SAMPLE).toArrow()
