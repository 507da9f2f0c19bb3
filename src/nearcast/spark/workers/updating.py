"""`ApplyEvents`: events to updates, with a state that lives from micro-batch to micro-batch.

A worker keeps the state of the partitions that it saw last. Which worker gets a partition next is
for Spark to say: one that has an older state applies the events since then again, one that has none
also maps the last snapshot; see `nearcast.spark.artifact.states`.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.segments import Scorer
from nearcast.segments.parts import Part, trimmed, unite
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.artifact.segments import open_scorer, open_segment
from nearcast.spark.artifact.states import PartitionStates
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.workers.events import (
    CHANGE,
    EVENT,
    MESSAGE,
    partition_of,
    with_origin,
)
from nearcast.spark.workers.living import LivingSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.spark.artifact.versions import Version
    from nearcast.spark.workers.happening import Applied

__all__ = ["COUNTS", "ApplyEvents", "Task", "update_schema"]

COUNTS = ("messages", "changes", "begun", "ended", "rejected", "cpu_us")
"""What is counted of a micro-batch: events, updates of either sign, rejected rows, CPU time."""

SOURCE = {CHANGE: "moves", MESSAGE: "messages"}
"""How rejects call the origin of a row."""

_UPDATES_AT_A_TIME = 100_000
# A snapshot costs about as much as it takes to apply half as many events as it has rows.
_SNAPSHOT_SHARE = 4
_MAX_KEPT = 2


class Task(NamedTuple):
    """Which part of which micro-batch a task works on; ``run`` names the run of the query."""

    run: str
    batch: int
    partition: int


def update_schema(subscription_id: pa.DataType, message_id: pa.DataType) -> pa.Schema:
    """Return the schema of updates, and of the counts after them.

    Examples
    --------
    >>> update_schema(pa.int64(), pa.string()).names
    ['time', 'subscription_id', 'message_id', 'sign', 'score', 'counts']
    """
    return pa.schema(
        [
            ("time", pa.timestamp("us", "UTC")),
            ("subscription_id", subscription_id),
            ("message_id", message_id),
            ("sign", pa.int8()),
            ("score", pa.float64()),
            ("counts", pa.list_(pa.int64())),
        ]
    )


@dataclass(frozen=True)
class ApplyEvents:
    """Applies the events of a partition, and yields updates in the order of time.

    After the updates, one row without a sign has the counts, in the order of `COUNTS`.

    Parameters
    ----------
    folder
        The artifact. Its version in force at the first micro-batch has the subscriptions that the
        stream begins with.
    state
        The folder of the stream.
    partitions
        How many partitions the stream has.
    ttl_s
        How long messages live that do not say it.
    schema
        The schema from `update_schema`.
    rejects
        The folder for rejected rows, a file for each partition of each micro-batch that has some;
        None writes none.
    task
        Tells what to work on.
    """

    folder: str
    state: str
    partitions: int
    ttl_s: float | None
    schema: pa.Schema
    rejects: str | None
    task: Callable[[], Task]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply all events of the micro-batch."""
        task, began = self.task(), time.thread_time()
        given = [batch for batch in batches if batch.num_rows]
        events = pa.Table.from_batches(given) if given else EVENT.empty_table()
        states = PartitionStates(open_folder(self.state), task.partition)
        kept = states.last_snapshot(task.batch - 1)
        held = self._state_before(task, states, kept)
        applied = self._apply(held, task.batch, events)
        states.write_log(task.batch, events)
        if held.living is not None and held.snapshot_due(kept):
            states.write_snapshot(task.batch, held.living.save, held.living.meta)
        self._write_rejects(task, applied, events)
        states.remove_before(kept)
        _keep(self._key(task), held)
        if applied is not None:
            yield from self._updates(applied.updates)
            yield self._counts(applied, task.partition, time.thread_time() - began)

    def _state_before(self, task: Task, states: PartitionStates, snapshot: int) -> _Held:
        """Return the state after the batch before, of which the last snapshot is given."""
        until = task.batch - 1
        held = _kept.pop(self._key(task), None)
        if held is None or not snapshot <= held.batch <= until:
            if held is not None:
                held.close()
            held = _Held(snapshot)
            if snapshot >= 0:
                folder, found = states.open_snapshot(snapshot)
                held.living = LivingSet.open(folder, found.meta)
                states.close_snapshot(found)
        for batch, events in states.logs(held.batch, until):
            self._apply(held, batch, events)
        return held

    def _apply(self, held: _Held, batch: int, events: pa.Table) -> Applied | None:
        """Apply the events of the next batch; None if there are no subscriptions yet."""
        held.batch = batch
        held.events[batch] = events.num_rows
        if pc.max(events["_now"]).as_py() is None:
            return None
        if held.living is None:
            held.living = self._begin(events)
        return held.living.apply(events, self.ttl_s, pa.schema([*self.schema][:-1]))

    def _begin(self, events: pa.Table) -> LivingSet:
        """Return the subscriptions of a partition before the first events."""
        artifact, partition = Artifact(self.folder), self.task().partition
        now_us = int(pc.max(events["_now"]).cast(pa.int64()).as_py())
        version = artifact.at(now_us // 1000)
        first = pc.min(events["_time"]).as_py()
        with artifact.reading(version):
            scorer = open_scorer(artifact.folder, version)
            parts = [*_parts(artifact, version, partition, self.partitions)]
            return LivingSet.begin(
                [unite(parts)],
                Scorer.new(version.scoring) if scorer is None else scorer,
                now_us if first is None else min(int(first), now_us),
                version.tokenizer,
            )

    def _write_rejects(self, task: Task, applied: Applied | None, events: pa.Table) -> None:
        if self.rejects is None or applied is None:
            return
        lines = []
        for kind, rejects in applied.rejects.items():
            # All partitions reject the same messages.
            if kind != MESSAGE or task.partition == 0:
                rows = with_origin(rejects.in_order(), events, kind).to_table().to_pylist()
                lines += [json.dumps({"source": SOURCE[kind], **row}) for row in rows]
        if lines:
            name = f"{task.batch:08d}-{task.partition:04d}.json"
            open_folder(self.rejects).put(name, "".join(f"{line}\n" for line in lines).encode())

    def _updates(self, updates: pa.Table) -> Iterator[pa.RecordBatch]:
        none = pa.nulls(updates.num_rows, self.schema.field("counts").type)
        updates = updates.append_column("counts", none)
        yield from updates.combine_chunks().to_batches(_UPDATES_AT_A_TIME)

    def _counts(self, applied: Applied, partition: int, seconds: float) -> pa.RecordBatch:
        sign = applied.updates["sign"].to_numpy()
        begun = int(np.count_nonzero(sign > 0))
        messages, rejected = applied.messages, sum(map(len, applied.rejects.values()))
        if partition:  # every partition has all messages
            messages, rejected = 0, rejected - len(applied.rejects[MESSAGE])
        counts = [messages, applied.changes, begun, len(sign) - begun, rejected]
        counts.append(round(seconds * 1_000_000))
        return pa.RecordBatch.from_pylist([{"counts": counts}], self.schema)

    def _key(self, task: Task) -> tuple[str, str, int]:
        return self.state, task.run, task.partition


@dataclass
class _Held:
    """The state of a partition after a batch, and the sizes of batches that it has applied."""

    batch: int
    living: LivingSet | None = None
    events: dict[int, int] = field(default_factory=dict)

    def snapshot_due(self, last: int) -> bool:
        """Whether there are many events since the last snapshot, or no snapshot yet."""
        assert self.living is not None
        if last < 0:
            return True
        self.events = {batch: rows for batch, rows in self.events.items() if batch > last}
        return sum(self.events.values()) * _SNAPSHOT_SHARE > self.living.rows

    def close(self) -> None:
        """Give up the state."""
        if self.living is not None:
            self.living.close()


_kept: OrderedDict[tuple[str, str, int], _Held] = OrderedDict()


def _keep(key: tuple[str, str, int], held: _Held) -> None:
    """Keep a state for the next batch, instead of those of other runs and of the oldest."""
    state, run, _ = key
    outdated = [one for one in _kept if one[0] == state and one[1] != run]
    _kept[key] = held
    while outdated or len(_kept) > _MAX_KEPT:
        (_kept.pop(outdated.pop()) if outdated else _kept.popitem(last=False)[1]).close()


def _parts(artifact: Artifact, version: Version, partition: int, partitions: int) -> Iterator[Part]:
    """Yield the subscriptions of a version that belong to a partition, each once."""
    scorer = open_scorer(artifact.folder, version)
    for shard, reference in enumerate(version.shards):
        for one in reference.segments:
            segment = open_segment(artifact.folder, one, scorer)
            own = partition_of(segment.subscriptions.ids, partitions) == partition
            own &= segment.alive()
            if segment.shards is not None:
                own &= _lowest(segment.shards) == shard
            rows = np.flatnonzero(own)
            yield trimmed(Part(segment.subscriptions.take(rows), segment.vocabulary))


def _lowest(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the lowest shard of each row."""
    word = (bits != 0).argmax(axis=1)
    value = bits[np.arange(len(bits)), word]
    lowest_bit = value & (~value + np.uint64(1))
    below = np.bitwise_count(lowest_bit - np.uint64(1))
    lowest: NDArray[np.int64] = word * 64 + below
    return lowest
