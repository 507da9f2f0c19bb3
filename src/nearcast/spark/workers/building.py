"""The steps of a build, as plain generators over Arrow record batches.

`WriteParts` reads the subscriptions of one task, with its own token ids, and writes a part for each
shard. `BuildShards` unites the parts of a shard and builds its index. Parts go through the folder
of the artifact and not through Spark's shuffle: they are flat arrays, written and mapped as they
are. Each part has a new name, so retried tasks do no harm: the driver learns only of the parts of
tasks that succeeded.

Where ranked subscriptions match depends on the weights of their tokens, and those on all ranked
subscriptions. So parts with ranked ones have two steps in between: their tasks also count tokens,
`CombineCounts` makes one table of all counts, and `RouteParts` then sends the parts to the shards.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast import indexes
from nearcast.columns import Scoring, Subscriptions
from nearcast.intake import read_subscriptions
from nearcast.segments import routing_clauses
from nearcast.segments.parts import Part, part_arrays, part_from_arrays, unite
from nearcast.segments.scorer import count_tokens
from nearcast.spark.artifact.folders import open_folder
from nearcast.spark.artifact.segments import (
    read_router,
    read_scorer,
    write_segment,
    write_weights,
)
from nearcast.spark.artifact.versions import ShardRef
from nearcast.spark.shards.shard_dedup import pack_shards
from nearcast.storage import nested, prefixed, read_arrays
from nearcast.text import IdTable, Vocabulary, Weights, tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nearcast.segments import Scorer
    from nearcast.spark.artifact.folders import Folder
    from nearcast.spark.artifact.versions import Stored

__all__ = [
    "BUILT",
    "PARTS",
    "STORED",
    "BuildShards",
    "CombineCounts",
    "RouteParts",
    "WriteParts",
    "Written",
    "built",
    "combine_counts",
    "data_name",
    "read_parts",
    "several_shards",
    "write_parts",
]

PARTS = pa.schema(
    [
        ("what", pa.string()),
        ("shard", pa.int32()),
        ("name", pa.string()),
        ("digest", pa.string()),
        ("rows", pa.int64()),
        ("rejected", pa.int64()),
    ]
)
"""What a task has written, as a row for the driver: ``what`` is one of these.

- ``part``: subscriptions of a shard.
- ``unrouted``: subscriptions of any shard, which need weights before they can be routed.
- ``counts``: how many ranked subscriptions use each token; ``rows`` is the number of them.
- ``rejects``: nothing, only the number of invalid rows.
"""

STORED = pa.schema(
    [("name", pa.string()), ("digest", pa.string()), ("nbytes", pa.int64()), ("rows", pa.int64())]
)
"""A stored folder, as a row for the driver."""

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
    tokenizer
        The name of the tokenizer.
    """

    folder: str
    work: str
    router: Stored | None
    tokenizer: str = "words"

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
        subscriptions, rejects = read_subscriptions(
            table, self.vocabulary, tokenizer(self.plan.tokenizer), unique=False
        )
        self.read.append(subscriptions)
        self.rows += len(subscriptions)
        self.rejected += len(rejects)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Write what was read, and start again."""
        rows = [{"what": "rejects", "rows": 0, "rejected": self.rejected}] if self.rejected else []
        if self.rows:
            rows += self._write(Part(Subscriptions.concatenate(self.read), self.vocabulary))
        yield pa.RecordBatch.from_pylist(rows, PARTS)
        self.vocabulary, self.read, self.rows, self.rejected = Vocabulary(), [], 0, 0

    def _write(self, part: Part) -> list[dict[str, Any]]:
        folder, work = open_folder(self.plan.folder), self.plan.work
        if part.subscriptions.rankings is None:
            return write_parts(folder, work, part, self.plan.router)
        counts = _write_counts(folder, work, part)
        if self.plan.router is None:
            return [counts, *write_parts(folder, work, part, None)]
        waiting = _write_part(folder, work, None, part, None)
        return [counts, {**waiting, "what": "unrouted"}]


class Written:
    """What the tasks of `WriteParts` and `RouteParts` have written, sorted for the next steps.

    ``parts`` has the names and digests of the parts of each shard, ``unrouted`` of parts without a
    shard, and ``counts`` of counts. ``ranked`` is the number of ranked subscriptions.
    """

    def __init__(self, shards: int) -> None:
        self.parts: list[list[tuple[str, str]]] = [[] for _ in range(shards)]
        self.unrouted: list[tuple[str, str]] = []
        self.counts: list[tuple[str, str]] = []
        self.ranked = 0
        self.rejected = 0

    def add(self, rows: Iterable[Any]) -> None:
        """Add rows of `PARTS`."""
        for row in rows:
            stored = row["name"], row["digest"]
            self.rejected += row["rejected"]
            if row["what"] == "part":
                self.parts[row["shard"]].append(stored)
            elif row["what"] == "unrouted":
                self.unrouted.append(stored)
            elif row["what"] == "counts":
                self.counts.append(stored)
                self.ranked += row["rows"]


@dataclass(frozen=True)
class CombineCounts:
    """Makes one table of weights of all counts.

    The table does not depend on which task counted what: tokens are in the order of their bytes.

    Parameters
    ----------
    folder
        The artifact.
    counts
        The names and digests of counts, as JSON.
    """

    folder: str
    counts: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run once; the input only triggers it. Yield the stored table."""
        for _ in batches:
            pass
        folder = open_folder(self.folder)
        counts = [_read_counts(folder, name, digest) for name, digest in json.loads(self.counts)]
        weights = combine_counts(counts)
        stored = write_weights(folder, data_name(), weights)
        row = {**vars(stored), "rows": weights.subscriptions}
        yield pa.RecordBatch.from_pylist([row], STORED)


@dataclass(frozen=True)
class RouteParts:
    """Sends the subscriptions of unrouted parts to their shards.

    Parameters
    ----------
    folder, work, router
        As for `WriteParts`.
    parts
        The names and digests of the parts, as JSON; a task gets their numbers.
    weights, scoring
        What the scores of ranked subscriptions depend on.
    """

    folder: str
    work: str
    router: Stored
    parts: str
    weights: Stored
    scoring: Scoring

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write parts and yield their rows."""
        folder = open_folder(self.folder)
        scorer = read_scorer(folder, self.weights, self.scoring)
        parts = json.loads(self.parts)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part, _ = read_parts(folder, [parts[number]])
                rows = write_parts(folder, self.work, part, self.router, scorer)
                yield pa.RecordBatch.from_pylist(rows, PARTS)


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
    weights, scoring
        What the scores of ranked subscriptions depend on; no weights if there are none.
    """

    folder: str
    parts: str
    index: str
    options: str
    weights: Stored | None = None
    scoring: Scoring = field(default_factory=Scoring)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Build shards and yield their rows."""
        folder = open_folder(self.folder)
        builder = indexes.create(self.index, **json.loads(self.options))
        scorer = read_scorer(folder, self.weights, self.scoring)
        parts = json.loads(self.parts)
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                part, bits = read_parts(folder, parts[shard])
                repeated = _repeated(part)
                if repeated:
                    yield built(shard, ShardRef(()), repeated)
                    continue
                own = several_shards(bits)
                ref = write_segment(folder, data_name(), part, builder, own, scorer)
                yield built(shard, ShardRef((ref,)))


def write_parts(
    folder: Folder,
    work: str,
    part: Part,
    stored_router: Stored | None,
    scorer: Scorer | None = None,
) -> list[dict[str, Any]]:
    """Write a part for each shard that gets subscriptions; return rows of `PARTS`.

    Routing ranked subscriptions needs a scorer.
    """
    if stored_router is None:
        return [_write_part(folder, work, 0, part, None)]
    router = read_router(folder, stored_router)
    content = part.subscriptions.clauses if scorer is None else scorer.content(*part)
    rank = router.ranks(part.vocabulary)
    start, shard = router.route_subscriptions(routing_clauses(content, part.vocabulary), rank)
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


def combine_counts(counts: Sequence[tuple[Vocabulary, NDArray[Any], int]]) -> Weights:
    """Return the table of counts, as `Weights.combine` takes them: the only one of a version."""
    return Weights.combine(counts, version=1)


def _write_part(
    folder: Folder, work: str, shard: int | None, part: Part, bits: NDArray[np.uint64] | None
) -> dict[str, Any]:
    arrays = part_arrays(part) if bits is None else {**part_arrays(part), "shards": bits}
    written = _write(folder, work, "part", arrays)
    return {"what": "part", "shard": shard, **written, "rows": len(part.subscriptions)}


def _write_counts(folder: Folder, work: str, part: Part) -> dict[str, Any]:
    frequency, ranked = count_tokens(part)
    numbers = {"frequency": frequency, "ranked": np.array([ranked], np.int64)}
    arrays = {**prefixed("vocabulary", part.vocabulary.arrays()), **numbers}
    return {"what": "counts", **_write(folder, work, "counts", arrays), "rows": ranked}


def _read_counts(folder: Folder, name: str, digest: str) -> tuple[Vocabulary, NDArray[Any], int]:
    arrays, _ = read_arrays(folder.fetch(name, digest), "counts")
    vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
    return vocabulary, arrays["frequency"], int(arrays["ranked"][0])


def _write(folder: Folder, work: str, kind: str, arrays: dict[str, Any]) -> dict[str, Any]:
    name = f"{work}/{secrets.token_hex(8)}"
    digest, _ = folder.write_arrays(name, kind, arrays, {})
    return {"name": name, "digest": digest, "rejected": 0}
