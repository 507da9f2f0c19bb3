"""The steps of a change, as plain generators over Arrow record batches.

`SpoolChanges` writes all rows to one place. `FindChanged` finds the subscriptions of a shard that
they name. `ResolveChanges` applies the changes in order and writes new subscriptions as parts, one
for each shard. `ApplyChanges` writes the new segments of a shard: it marks deleted rows, and writes
new rows to a small second segment, which it merges with the first one when it has become large.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast import indexes
from nearcast.columns import read_only
from nearcast.segments.parts import Part, part_arrays, part_from_arrays, trimmed, unite
from nearcast.segments.scorer import count_tokens
from nearcast.spark.artifact.segments import (
    open_scorer,
    open_segment,
    read_scorer,
    write_dead,
    write_segment,
    write_weights,
)
from nearcast.spark.artifact.versions import Artifact, SegmentRef, ShardRef, Stored
from nearcast.spark.shards.shard_dedup import pack_shards
from nearcast.spark.workers.building import (
    STORED,
    built,
    combine_counts,
    data_name,
    read_parts,
    several_shards,
    write_parts,
)
from nearcast.spark.workers.cleaning import ORIGIN, RECORD, located
from nearcast.spark.workers.resolving import Found, number_ids, resolve
from nearcast.storage import ids_from_arrays, ids_to_arrays, read_arrays
from nearcast.text import IdTable, tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.indexes import Builder
    from nearcast.spark.artifact.folders import Folder
    from nearcast.spark.artifact.segments import ShardSegment
    from nearcast.spark.artifact.versions import Version

__all__ = [
    "RESOLVED",
    "ApplyChanges",
    "FindChanged",
    "ResolveChanges",
    "SpoolChanges",
]

RESOLVED = pa.schema(
    [
        ("what", pa.string()),
        ("shard", pa.int32()),
        ("name", pa.string()),
        ("digest", pa.string()),
        ("nbytes", pa.int64()),
        ("rows", pa.int64()),
        ("row", pa.int64()),
        ("file", pa.string()),
        ("field", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)
"""Rows of `ResolveChanges`: a ``part``, the ``dead`` ids, ``weights``, a ``reject``, or a count.

A count is that of an operation.
"""

_MERGED_SHARE = 4  # changes are merged when they are more than 1/4 of a shard
_REJECTS_AT_A_TIME = 10_000


@dataclass(frozen=True)
class SpoolChanges:
    """Writes the rows of changes to one stored folder.

    Parameters
    ----------
    folder, work
        The artifact, and the temporary folder in it.
    """

    folder: str
    work: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows."""
        given = [batch for batch in batches if batch.num_rows]
        if given:
            table = pa.Table.from_batches(given)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            content = np.frombuffer(sink.getvalue(), np.uint8)
            folder = Artifact(self.folder).folder
            yield _stored(folder, self.work, "changes", {"table": content}, table.num_rows)


@dataclass(frozen=True)
class FindChanged:
    """Finds the registered subscriptions of each shard that the changes name.

    Parameters
    ----------
    folder, work, version
        The artifact, the temporary folder in it, and the version to change.
    changes
        The output of `SpoolChanges`.
    """

    folder: str
    work: str
    version: int
    changes: Stored

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Search the shards with these numbers."""
        artifact = Artifact(self.folder)
        version = artifact.read(self.version)
        scorer = open_scorer(artifact.folder, version)
        numbered = number_ids(read_changes(artifact.folder, self.changes))
        for shard in _numbers(batches):
            for ref in version.shards[shard].segments:
                segment = open_segment(artifact.folder, ref, scorer)
                number = numbered.table.find(segment.subscriptions.ids)
                rows = np.flatnonzero((number >= 0) & segment.alive())
                if not len(rows):
                    continue
                part = trimmed(Part(segment.subscriptions.take(rows), segment.vocabulary))
                arrays = {**part_arrays(part), "number": number[rows]}
                yield _stored(artifact.folder, self.work, "found", arrays, len(rows))


@dataclass(frozen=True)
class ResolveChanges:
    """Applies the changes in order, and writes new subscriptions as parts.

    The weights of ranked subscriptions stay those of the version. If it has none, because these are
    its first ranked subscriptions, the weights are counted over them.

    Parameters
    ----------
    folder, work, version, changes
        As for `FindChanged`.
    found
        The output of `FindChanged`.
    """

    folder: str
    work: str
    version: int
    changes: Stored
    found: tuple[Stored, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run once; the input only triggers it."""
        for _ in batches:
            pass
        artifact = Artifact(self.folder)
        folder = artifact.folder
        found = [_read_found(folder, stored) for stored in self.found]
        version = artifact.read(self.version)
        table = read_changes(folder, self.changes)
        origin = [name for name in (*ORIGIN.names, RECORD) if name in table.column_names]
        part, dead, rejects, taken = resolve(
            table.drop_columns(origin), found, tokenizer(version.tokenizer)
        )
        rejects = located(rejects, table.take(pa.array(rejects.row)))
        results: list[dict[str, Any]] = [
            {"what": what, "rows": rows} for what, rows in taken.items()
        ]
        if len(part.subscriptions):
            weights = version.weights
            if weights is None and part.subscriptions.rankings is not None:
                weights = _count_weights(folder, part)
                results.append({"what": "weights", **vars(weights)})
            scorer = read_scorer(folder, weights, version.scoring)
            results += write_parts(folder, self.work, part, version.router, scorer)
        if len(dead):
            name = f"{self.work}/{secrets.token_hex(8)}"
            digest, _ = folder.write_arrays(name, "ids", ids_to_arrays(dead), {})
            results.append({"what": "dead", "name": name, "digest": digest, "rows": len(dead)})
        yield pa.RecordBatch.from_pylist(results, RESOLVED)
        for batch in rejects.to_table().to_batches(_REJECTS_AT_A_TIME):
            rows = [{"what": "reject", **row} for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, RESOLVED)


@dataclass(frozen=True)
class ApplyChanges:
    """Writes the new segments of shards.

    Parameters
    ----------
    folder, version
        The artifact, and the version to change.
    dead
        The ids that are deleted or replaced, None if there are none.
    parts
        The new subscriptions of each shard: names and digests, as JSON.
    fold
        Whether every shard becomes one segment, however little has changed.
    weights
        The first weights of the version, if it has had none.
    """

    folder: str
    version: int
    dead: Stored | None
    parts: str
    fold: bool = False
    weights: Stored | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the shards with these numbers."""
        artifact = Artifact(self.folder)
        version = artifact.read(self.version)
        version = replace(version, weights=self.weights or version.weights)
        dead = IdTable()
        if self.dead is not None:
            where = artifact.folder.fetch(self.dead.name, self.dead.digest)
            dead.add(ids_from_arrays(read_arrays(where, "ids")[0]))
        parts = json.loads(self.parts)
        for shard in _numbers(batches):
            change = _ShardChange(artifact.folder, version, shard, dead)
            yield built(shard, change.made(parts.get(str(shard), []), self.fold))


class _ShardChange:
    """The change of one shard."""

    def __init__(self, folder: Folder, version: Version, shard: int, dead: IdTable) -> None:
        self._folder = folder
        self._version = version
        self._shard = shard
        self._refs = version.shards[shard].segments
        self._scorer = open_scorer(folder, version)
        self._segments = [open_segment(folder, ref, self._scorer) for ref in self._refs]
        self._alive = [
            segment.alive() & (dead.find(segment.subscriptions.ids) < 0)
            for segment in self._segments
        ]

    def made(self, new: list[tuple[str, str]], fold: bool) -> ShardRef:
        """Return the shard with new parts."""
        base, *deltas = range(len(self._refs))
        part, bits = read_parts(self._folder, new)
        fresh = [(part, bits)] if len(part.subscriptions) else []
        kept = [self._kept(number) for number in deltas]
        changed = sum(len(one.subscriptions) for one, _ in [*kept, *fresh])
        changed += int((~self._alive[base]).sum())
        if fold or changed * _MERGED_SHARE > self._refs[base].rows:
            return self._written([self._kept(base), *kept, *fresh], ())
        if not fresh and all(
            int(alive.sum()) == ref.rows - ref.dead_rows
            for alive, ref in zip(self._alive, self._refs, strict=True)
        ):
            return ShardRef(self._refs)
        return self._written([*kept, *fresh], (self._marked(base),))

    def _kept(self, number: int) -> tuple[Part, NDArray[np.uint64] | None]:
        """Return the rows of a segment that are not deleted."""
        segment, rows = self._segments[number], np.flatnonzero(self._alive[number])
        part = Part(segment.subscriptions.take(rows), segment.vocabulary)
        return trimmed(part), self._bits(segment)[rows] if self._version.router else None

    def _bits(self, segment: ShardSegment) -> NDArray[np.uint64]:
        if segment.shards is not None:
            return segment.shards
        rows = len(segment.subscriptions)
        here = np.full(rows, self._shard, np.int32)
        return pack_shards(np.arange(rows + 1), here, len(self._version.shards))

    def _marked(self, number: int) -> SegmentRef:
        """Return a segment with its deleted rows marked."""
        ref = self._refs[number]
        dead = np.flatnonzero(~self._alive[number]).astype(np.int32)
        if len(dead) == ref.dead_rows:
            return ref
        stored = write_dead(self._folder, data_name(), read_only(dead, np.int32))
        return SegmentRef(ref.data, ref.rows, stored, len(dead))

    def _written(
        self, pieces: list[tuple[Part, NDArray[np.uint64] | None]], before: tuple[SegmentRef, ...]
    ) -> ShardRef:
        part = unite([part for part, _ in pieces])
        if before and not len(part.subscriptions):
            return ShardRef(before)
        found = [bits for _, bits in pieces if bits is not None]
        bits = np.concatenate(found) if found else None
        own = several_shards(bits)
        segment = write_segment(self._folder, data_name(), part, self._builder(), own, self._scorer)
        return ShardRef((*before, segment))

    def _builder(self) -> Builder:
        return indexes.create(self._version.index, **self._version.options)


def read_changes(folder: Folder, stored: Stored) -> pa.Table:
    """Return the rows that `SpoolChanges` wrote."""
    arrays, _ = read_arrays(folder.fetch(stored.name, stored.digest), "changes")
    return pa.ipc.open_stream(pa.py_buffer(arrays["table"])).read_all()


def _count_weights(folder: Folder, part: Part) -> Stored:
    """Store the weights of the first ranked subscriptions of a version."""
    frequency, ranked = count_tokens(part)
    weights = combine_counts([(part.vocabulary, frequency, ranked)])
    return write_weights(folder, data_name(), weights)


def _read_found(folder: Folder, stored: Stored) -> Found:
    arrays, _ = read_arrays(folder.fetch(stored.name, stored.digest), "found")
    return Found(part_from_arrays(arrays), arrays["number"])


def _stored(folder: Folder, work: str, kind: str, arrays: dict[str, Any], rows: int) -> Any:
    name = f"{work}/{secrets.token_hex(8)}"
    digest, nbytes = folder.write_arrays(name, kind, arrays, {})
    one = {"name": name, "digest": digest, "nbytes": nbytes, "rows": rows}
    return pa.RecordBatch.from_pylist([one], STORED)


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
