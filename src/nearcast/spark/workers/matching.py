"""The matching functions: plain generators over Arrow record batches.

`MatchMessages` matches messages against a whole version. For larger versions,
`nearcast.spark.workers.routing.RouteMessages` first finds the shards that each message must visit,
and `MatchRouted` matches the messages of a shard. Spark pickles them (they are small: a path and a
number) and runs them with ``mapInArrow``; any other program with record batches can call them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import NO_WEIGHTS
from nearcast.intake import read_messages
from nearcast.spark.artifact.segments import open_router, open_scorer, open_segment
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.shards.shard_dedup import owned_matches
from nearcast.spark.workers.answers import Answer, Costs, answer_batches, cost_batch
from nearcast.spark.workers.routing import ROUTE, MessageRouter, bits_of, version_of
from nearcast.text import tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch
    from nearcast.spark.artifact.segments import ShardSegment
    from nearcast.spark.artifact.versions import Version

__all__ = ["MatchMessages", "MatchRouted"]


@dataclass(frozen=True)
class MatchMessages:
    """Matches messages against all shards of a version.

    Parameters
    ----------
    folder
        The artifact.
    version
        The version. None uses the one in force at the time in the column ``_now``: it is the same
        for all messages of a micro-batch, however often Spark tries it.
    now_us
        The time of messages without one, if there is no such column.
    schema
        The schema from `nearcast.spark.workers.answers.answer_schema`.
    """

    folder: str
    version: int | None
    now_us: int
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answer each batch."""
        artifact = Artifact(self.folder)
        opened: dict[int, _Opened] = {}
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            version, now_us = version_of(artifact, self.version, table, self.now_us)
            with artifact.reading(version):
                if version.number not in opened:
                    opened = {version.number: _Opened(artifact, version)}
                costs = Costs()
                for answer in opened[version.number].all_shards(table, now_us, costs):
                    costs.add(answer.matches)
                    yield from answer_batches(answer, self.schema)
                yield cost_batch(costs, self.schema)


@dataclass(frozen=True)
class MatchRouted:
    """Matches messages against the shards that they were routed to.

    Parameters
    ----------
    folder, schema
        As for `MatchMessages`.
    """

    folder: str
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answer each batch."""
        artifact = Artifact(self.folder)
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            counted, rejected = (pc.sum(table[name]).as_py() for name in ("_counted", "_rejected"))
            costs = Costs(messages=counted, rejected=rejected)
            for number in pc.unique(table["_version"]).to_pylist():
                version = artifact.read(number)
                of_version = table.filter(pc.equal(table["_version"], number))
                with artifact.reading(version):
                    for answer in _Opened(artifact, version).own_shards(of_version):
                        costs.add(answer.matches)
                        yield from answer_batches(answer, self.schema)
            yield cost_batch(costs, self.schema)


class _Opened:
    """A version whose shards are opened when the first messages arrive for them."""

    def __init__(self, artifact: Artifact, version: Version) -> None:
        self._folder = artifact.folder
        self._version = version
        self._scorer = open_scorer(artifact.folder, version)
        self._router: MessageRouter | None = None
        self._tokenizer = tokenizer(version.tokenizer)
        # The process caches some segments; this keeps all of a version, which may have more.
        self._segments: dict[int, list[ShardSegment]] = {}

    def all_shards(self, table: pa.Table, now_us: int, costs: Costs) -> Iterator[Answer]:
        """Match messages against all shards, and count them."""
        batch, rejects = read_messages(table, self._tokenizer, now_us=now_us, unique=False)
        costs.messages, costs.rejected = len(batch), len(rejects)
        weight = self._text_weight(batch)
        if self._version.router is None:
            yield from self._shard(0, batch, weight, None)
            return
        if self._router is None:
            self._router = MessageRouter(open_router(self._folder, self._version))
        routed = self._router.route(batch)
        message = routed.message
        for shard in np.unique(routed.shard).tolist():
            rows = message[routed.shard == shard]
            own_weight = weight[rows] if len(weight) else weight
            yield from self._shard(shard, batch.take(rows), own_weight, routed.bits[rows])

    def own_shards(self, table: pa.Table) -> Iterator[Answer]:
        """Match routed messages against their shards."""
        now_us = int(table["_time"][0].as_py())
        for shard in pc.unique(table["_shard"]).drop_null().to_pylist():
            own = table.filter(pc.equal(table["_shard"], shard))
            messages = own.drop_columns(ROUTE.names)
            batch, _ = read_messages(messages, self._tokenizer, now_us=now_us, unique=False)
            yield from self._shard(shard, batch, self._text_weight(batch), bits_of(own["_shards"]))

    def _text_weight(self, batch: MessageBatch) -> NDArray[np.float64]:
        """Return the weights of the texts of messages, if scores depend on them."""
        return NO_WEIGHTS if self._scorer is None else self._scorer.text_weight(batch.words)

    def _shard(
        self,
        shard: int,
        batch: MessageBatch,
        text_weight: NDArray[np.float64],
        bits: NDArray[np.uint64] | None,
    ) -> Iterator[Answer]:
        if shard not in self._segments:
            refs = self._version.shards[shard].segments
            opened = [open_segment(self._folder, ref, self._scorer) for ref in refs]
            self._segments[shard] = opened
        for segment in self._segments[shard]:
            weight = text_weight if segment.ranked else NO_WEIGHTS
            matches = segment.match(batch.number(segment.vocabulary, text_weight=weight))
            if bits is not None and segment.shards is not None:
                matches = owned_matches(matches, segment.shards, bits, shard)
            yield Answer(batch.ids, segment.subscriptions, matches)
