"""The two steps of a build, as plain generators over Arrow record batches.

`WriteParts` reads the subscriptions that one task is given, numbers their tokens in its own way and
writes a part for every shard. `BuildShards` unites the parts of a shard and builds its index. Parts
go through the artifact's own folder, not through Spark's shuffle: they are flat arrays, which are
written and mapped as they are. A part has a name of its own, so that a task that is tried again
spoils nothing; only the parts of tasks that came to their end are told to the driver.
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
from nearcast.spark.shards.router import pack_shards
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
"""What `WriteParts` tells of a part. A row without a name only counts."""

BUILT = pa.schema([("shard", pa.int32()), ("segments", pa.string()), ("repeated", pa.int64())])
"""What is told of a shard that is done: its segments, as JSON, and how many ids occur again."""

_ROWS_OF_A_PART = 2_000_000


@dataclass(frozen=True)
class WriteParts:
    """Reads subscriptions and writes parts.

    Parameters
    ----------
    folder
        The artifact.
    work
        The folder in it where parts go.
    router
        Where the router lies; None where there is one shard.
    """

    folder: str
    work: str
    router: Stored | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write parts, and tell which."""
        reading = _Reading(self)
        for batch in batches:
            reading.take(pa.Table.from_batches([batch]))
            if reading.rows >= _ROWS_OF_A_PART:
                yield from reading.flush()
        yield from reading.flush()


@dataclass
class _Reading:
    """The subscriptions that a task has read and not yet written."""

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
        """Write what was read, and begin anew."""
        told = [{"rows": 0, "rejected": self.rejected}] if self.rejected else []
        if self.rows:
            part = Part(Subscriptions.concatenate(self.read), self.vocabulary)
            told += write_parts(
                open_folder(self.plan.folder), self.plan.work, part, self.plan.router
            )
        yield pa.RecordBatch.from_pylist(told, PARTS)
        self.vocabulary, self.read, self.rows, self.rejected = Vocabulary(), [], 0, 0


@dataclass(frozen=True)
class BuildShards:
    """Builds the shards whose numbers it is given, unless an id occurs twice in one of them.

    Parameters
    ----------
    folder
        The artifact.
    parts
        The parts of every shard, names and digests, as JSON.
    index, options
        The index to build.
    """

    folder: str
    parts: str
    index: str
    options: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Build shards, and tell how their segments are called."""
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
    """Write a part for every shard in which subscriptions lie; return rows of `PARTS`."""
    if stored_router is None:
        return [_write_part(folder, work, 0, part, None)]
    router = read_router(folder, stored_router)
    clauses = part.subscriptions.clauses
    start, shard = router.route_subscriptions(clauses, router.ranks(part.vocabulary))
    start, shard = somewhere(start, shard)
    bits = pack_shards(start, shard, router.shards)
    row = np.repeat(np.arange(len(part.subscriptions)), np.diff(start))
    told = []
    for one in np.unique(shard).tolist():
        rows = row[shard == one]
        own = Part(part.subscriptions.take(rows), part.vocabulary)
        told.append(_write_part(folder, work, one, own, bits[rows]))
    return told


def somewhere(
    start: NDArray[np.int64], shard: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the shards of every subscription; one that can never match lies in the first."""
    length = np.diff(start)
    if length.all():
        return start, shard
    nowhere = length == 0
    return (
        np.concatenate([[0], np.cumsum(length + nowhere)]),
        np.insert(shard, start[:-1][nowhere], 0),
    )


def several_shards(bits: NDArray[np.uint64] | None) -> NDArray[np.uint64] | None:
    """Return the shards of rows, None where every row lies in one only."""
    if bits is None or int(np.bitwise_count(bits).sum()) == len(bits):
        return None
    return bits


def built(shard: int, made: ShardRef, repeated: int = 0) -> pa.RecordBatch:
    """Return the one row that tells of a shard."""
    told = {"shard": shard, "segments": made.to_json(), "repeated": repeated}
    return pa.RecordBatch.from_pylist([told], BUILT)


def _repeated(part: Part) -> int:
    """Return how many subscriptions have an id that another one has."""
    known = IdTable()
    known.add(part.subscriptions.ids)
    return len(part.subscriptions) - len(known)


def data_name() -> str:
    """Return a new name for a stored folder that is to stay."""
    return f"data/{secrets.token_hex(8)}"


def read_parts(
    folder: Folder, parts: Sequence[tuple[str, str]]
) -> tuple[Part, NDArray[np.uint64] | None]:
    """Return the union of parts, and the shards of its rows."""
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
