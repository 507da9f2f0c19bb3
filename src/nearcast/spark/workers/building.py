"""The two steps of a build, as plain generators over Arrow record batches.

`WriteParts` reads the subscriptions of one task, with its own token ids, and writes a part for each
shard. `BuildShards` unites the parts of a shard and builds its index. Parts go through the folder
of the artifact and not through Spark's shuffle: they are flat arrays, written and mapped as they
are. Each part has a new name, so retried tasks do no harm: the driver learns only of the parts of
tasks that succeeded.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast import indexes
from nearcast.columns import Subscriptions
from nearcast.intake import read_subscriptions
from nearcast.segments.parts import Part, part_arrays, part_from_arrays, unite
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.artifact.segments import read_router, write_segment
from nearcast.spark.artifact.versions import ShardRef
from nearcast.spark.shards.shard_dedup import pack_shards
from nearcast.storage import read_arrays
from nearcast.text import IdTable, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.spark.artifact.folders import Folder
    from nearcast.spark.artifact.versions import Stored

__all__ = [
    "BUILT",
    "PARTS",
    "BuildShards",
    "WriteParts",
    "built",
    "data_name",
    "read_parts",
    "several_shards",
    "write_parts",
]

PARTS = pa.schema(
    [
        ("shard", pa.int32()),
        ("name", pa.string()),
        ("digest", pa.string()),
        ("rows", pa.int64()),
        ("rejected", pa.int64()),
    ]
)
"""A part, as a row for the driver. A row without a name only counts rejects."""

BUILT = pa.schema([("shard", pa.int32()), ("segments", pa.string()), ("repeated", pa.int64())])
"""A finished shard, as a row for the driver: its segments as JSON, and its duplicate ids."""

_MAX_PART_ROWS = 2_000_000


@dataclass(frozen=True)
class WriteParts:
    """Reads subscriptions and writes parts.

    Parameters
    ----------
    folder
        The artifact.
    work
        The temporary folder in it, for parts.
    router
        The stored router; None for a single shard.
    """

    folder: str
    work: str
    router: Stored | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write parts and yield their rows."""
        reading = _Reading(self)
        for batch in batches:
            reading.take(pa.Table.from_batches([batch]))
            if reading.rows >= _MAX_PART_ROWS:
                yield from reading.flush()
        yield from reading.flush()


@dataclass
class _Reading:
    """The subscriptions that a task has read but not yet written."""

    plan: WriteParts
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    read: list[Subscriptions] = field(default_factory=list)
    rows: int = 0
    rejected: int = 0

    def take(self, table: pa.Table) -> None:
        """Read some rows."""
        subscriptions, rejects = read_subscriptions(table, self.vocabulary, unique=False)
        self.read.append(subscriptions)
        self.rows += len(subscriptions)
        self.rejected += len(rejects)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Write what was read, and start again."""
        rows = [{"rows": 0, "rejected": self.rejected}] if self.rejected else []
        if self.rows:
            part = Part(Subscriptions.concatenate(self.read), self.vocabulary)
            rows += write_parts(
                open_folder(self.plan.folder), self.plan.work, part, self.plan.router
            )
        yield pa.RecordBatch.from_pylist(rows, PARTS)
        self.vocabulary, self.read, self.rows, self.rejected = Vocabulary(), [], 0, 0


@dataclass(frozen=True)
class BuildShards:
    """Builds the shards with the given numbers, except those with duplicate ids.

    Parameters
    ----------
    folder
        The artifact.
    parts
        The names and digests of the parts of each shard, as JSON.
    index, options
        The index to build.
    """

    folder: str
    parts: str
    index: str
    options: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Build shards and yield their rows."""
        folder = open_folder(self.folder)
        builder = indexes.create(self.index, **json.loads(self.options))
        parts = json.loads(self.parts)
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                part, bits = read_parts(folder, parts[shard])
                repeated = _repeated(part)
                if repeated:
                    yield built(shard, ShardRef(()), repeated)
                    continue
                ref = write_segment(folder, data_name(), part, builder, several_shards(bits))
                yield built(shard, ShardRef((ref,)))


def write_parts(
    folder: Folder, work: str, part: Part, stored_router: Stored | None
) -> list[dict[str, Any]]:
    """Write a part for each shard that gets subscriptions; return rows of `PARTS`."""
    if stored_router is None:
        return [_write_part(folder, work, 0, part, None)]
    router = read_router(folder, stored_router)
    clauses = part.subscriptions.clauses
    start, shard = router.route_subscriptions(clauses, router.ranks(part.vocabulary))
    start, shard = at_least_one_shard(start, shard)
    bits = pack_shards(start, shard, router.shards)
    row = np.repeat(np.arange(len(part.subscriptions)), np.diff(start))
    written = []
    for one in np.unique(shard).tolist():
        rows = row[shard == one]
        own = Part(part.subscriptions.take(rows), part.vocabulary)
        written.append(_write_part(folder, work, one, own, bits[rows]))
    return written


def at_least_one_shard(
    start: NDArray[np.int64], shard: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the shards of each subscription; one that can never match goes to the first."""
    length = np.diff(start)
    if length.all():
        return start, shard
    nowhere = length == 0
    return (
        np.concatenate([[0], np.cumsum(length + nowhere)]),
        np.insert(shard, start[:-1][nowhere], 0),
    )


def several_shards(bits: NDArray[np.uint64] | None) -> NDArray[np.uint64] | None:
    """Return the shards of rows, None if every row is in one shard only."""
    if bits is None or int(np.bitwise_count(bits).sum()) == len(bits):
        return None
    return bits


def built(shard: int, made: ShardRef, repeated: int = 0) -> pa.RecordBatch:
    """Return the row of a finished shard."""
    row = {"shard": shard, "segments": made.to_json(), "repeated": repeated}
    return pa.RecordBatch.from_pylist([row], BUILT)


def _repeated(part: Part) -> int:
    """Return the number of subscriptions with the id of an earlier one."""
    known = IdTable()
    known.add(part.subscriptions.ids)
    return len(part.subscriptions) - len(known)


def data_name() -> str:
    """Return a new name for a stored folder of a version."""
    return f"data/{secrets.token_hex(8)}"


def read_parts(
    folder: Folder, parts: Sequence[tuple[str, str]]
) -> tuple[Part, NDArray[np.uint64] | None]:
    """Return the union of parts and the shards of its rows."""
    found, bits = [], []
    for name, digest in parts:
        arrays, _ = read_arrays(folder.fetch(name, digest), "part")
        found.append(part_from_arrays(arrays))
        bits += [arrays["shards"]] if "shards" in arrays else []
    return unite(found), np.concatenate(bits) if bits else None


def _write_part(
    folder: Folder, work: str, shard: int, part: Part, bits: NDArray[np.uint64] | None
) -> dict[str, Any]:
    name = f"{work}/{secrets.token_hex(8)}"
    arrays = part_arrays(part) if bits is None else {**part_arrays(part), "shards": bits}
    digest, _ = folder.write_arrays(name, "part", arrays, {})
    rows = len(part.subscriptions)
    return {"shard": shard, "name": name, "digest": digest, "rows": rows, "rejected": 0}
