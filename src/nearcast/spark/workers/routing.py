"""Routing: messages to the shards that they concern, as record batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import read_only
from nearcast.intake import read_messages
from nearcast.spark.artifact.segments import open_router
from nearcast.spark.artifact.versions import Artifact
from nearcast.spark.shards.router import pack_shards
from nearcast.text import Vocabulary, tokenize_column, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch, Rejects
    from nearcast.spark.artifact.versions import Version
    from nearcast.spark.shards.router import Router

__all__ = [
    "NOW",
    "ROUTE",
    "RouteMessages",
    "Routed",
    "Words",
    "bits_of",
    "read_all_words",
    "version_of",
]

NOW = "_now"
"""The column that gives messages of a stream the time of their micro-batch."""

ROUTE = pa.schema(
    [
        ("_key", pa.int32()),
        ("_shard", pa.int32()),
        ("_shards", pa.binary()),
        ("_version", pa.int32()),
        ("_time", pa.int64()),
        ("_counted", pa.int64()),
        ("_rejected", pa.int64()),
    ]
)
"""What routing puts beside the columns of a message.

``_key`` chooses the partition of the shuffle, ``_shards`` are all shards of the message as bits,
``_counted`` is 1 for one copy of each message. A row without a shard has no message and says how
many were refused.
"""

COPIES_AT_A_TIME = 20_000
"""So many copies a batch has at most: a long message that visits many shards is large."""

_MAX_TOKENS = 1_000_000


class Routed(NamedTuple):
    """The sound messages of a table, the shards of each, and the same as bits."""

    table: pa.Table
    start: NDArray[np.int64]
    shard: NDArray[np.int32]
    bits: NDArray[np.uint64]
    rejected: int


class Words:
    """All words of the messages that went through, and their ranks in a router.

    A router has to see words that no subscription of the sample had, too. They are forgotten when
    they have become many.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._forget()

    def _forget(self) -> None:
        self._vocabulary = Vocabulary()
        self._rank: NDArray[np.int32] | None = None

    def route(self, table: pa.Table, now_us: int) -> Routed:
        """Return which shards each message of a table concerns."""
        if len(self._vocabulary) > _MAX_TOKENS:
            self._forget()
        batch, rejects = read_all_words(table, self._vocabulary, now_us)
        if len(rejects):
            sound = np.ones(table.num_rows, np.bool_)
            sound[rejects.row] = False
            table = table.filter(pa.array(sound))
        self._rank = self._router.ranks(self._vocabulary, self._rank)
        start, shard = self._router.route_messages(batch.messages, self._rank)
        bits = pack_shards(start, shard, self._router.shards)
        return Routed(table, start, shard, bits, len(rejects))


@dataclass(frozen=True)
class RouteMessages:
    """Sends each message to the shards that it concerns, one copy for each.

    Parameters
    ----------
    folder, version, now_us
        As for `nearcast.spark.workers.matching.MatchMessages`.
    keys
        A key for every partition of the shuffle that follows. Where shards are fewer, several
        partitions take turns for each of them.
    """

    folder: str
    version: int | None
    now_us: int
    keys: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Route every batch."""
        artifact = Artifact(self.folder)
        known: dict[int, Words] = {}
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            version, now_us = version_of(artifact, self.version, table, self.now_us)
            if version.number not in known:
                known = {version.number: Words(open_router(artifact.folder, version))}
            messages = table.drop_columns([NOW]) if NOW in table.column_names else table
            routed = known[version.number].route(messages, now_us)
            yield from self._copies(routed, version, now_us)

    def _copies(self, routed: Routed, version: Version, now_us: int) -> Iterator[pa.RecordBatch]:
        message = np.repeat(np.arange(len(routed.bits)), np.diff(routed.start))
        same = {"_version": version.number, "_time": now_us, "_rejected": 0}
        key = self._keys_of(routed.shard, len(version.shards))
        counted = np.diff(message, prepend=-1) > 0
        for low in range(0, len(message), COPIES_AT_A_TIME):
            piece = slice(low, low + COPIES_AT_A_TIME)
            copies = routed.table.take(pa.array(message[piece]))
            own: dict[str, Any] = {
                "_key": key[piece],
                "_shard": routed.shard[piece],
                "_shards": _bytes_of(routed.bits[message[piece]]),
                "_counted": counted[piece],
                **{name: np.full(copies.num_rows, value) for name, value in same.items()},
            }
            for field in ROUTE:
                copies = copies.append_column(field, pa.array(own[field.name]).cast(field.type))
            yield from copies.combine_chunks().to_batches()
        if routed.rejected:
            alone = {"_key": self.keys[0], "_counted": 0, **same, "_rejected": routed.rejected}
            schema = pa.schema([*routed.table.schema, *ROUTE])
            yield pa.RecordBatch.from_pylist([alone], schema)

    def _keys_of(self, shard: NDArray[np.int32], shards: int) -> NDArray[np.int32]:
        """Return the key of every copy."""
        each = max(len(self.keys) // shards, 1)
        turn = np.arange(len(shard)) % each
        partition = (shard.astype(np.int64) * each + turn) % len(self.keys)
        keys: NDArray[np.int32] = np.array(self.keys, np.int32)[partition]
        return keys


def read_all_words(
    table: pa.Table, vocabulary: Vocabulary, now_us: int
) -> tuple[MessageBatch, Rejects]:
    """Return the messages of a table with all their words, which the vocabulary takes up."""
    for name in {"text", "tokens"} & set(table.column_names):
        if _holds_words(table.schema.field(name).type):
            tokenize_column(table.column(name), words, vocabulary, add=True)
    return read_messages(table, vocabulary, now_us=now_us, unique=False)


def version_of(
    artifact: Artifact, number: int | None, table: pa.Table, now_us: int
) -> tuple[Version, int]:
    """Return the version that messages meet, and the time of those without one."""
    if number is not None:
        return artifact.read(number), now_us
    time_us = int(table.column(NOW)[0].cast(pa.int64()).as_py())
    return artifact.at(time_us // 1000), time_us


def bits_of(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the bits that stand in a column as bytes, as many words in every row."""
    rows: list[bytes] = column.to_pylist()
    return read_only(np.frombuffer(b"".join(rows), np.uint64), np.uint64, len(rows[0]) // 8)


def _bytes_of(bits: NDArray[np.uint64]) -> pa.Array:
    width = bits.shape[1] * 8
    flat = pa.py_buffer(np.ascontiguousarray(bits))
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(bits), [None, flat])
    return pc.cast(fixed, pa.binary())


def _holds_words(kind: pa.DataType) -> bool:
    texts = (pa.string(), pa.large_string())
    return kind in texts or (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and kind.value_type in texts
    )
