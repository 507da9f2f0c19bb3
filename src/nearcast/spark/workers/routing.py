"""Routing: send messages to the shards that they must visit, as record batches."""

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
from nearcast.spark.shards.shard_dedup import pack_shards
from nearcast.text import Vocabulary, tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from nearcast.intake import MessageBatch
    from nearcast.spark.artifact.versions import Version
    from nearcast.spark.shards.router import Router

__all__ = [
    "NOW",
    "ROUTE",
    "MessageRouter",
    "RouteMessages",
    "Routed",
    "bits_of",
    "version_of",
]

NOW = "_now"
"""The column with the time of the micro-batch, for messages of a stream."""

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
"""The columns that routing adds to those of a message.

``_key`` selects the partition of the shuffle. ``_shards`` has all shards of the message as bits.
``_counted`` is 1 for one copy of each message. A row without a shard has no message, only the
number of rejected ones.
"""

COPIES_AT_A_TIME = 20_000
"""The largest number of copies in a batch: long messages that visit many shards are large."""

_MAX_TOKENS = 1_000_000


class Routed(NamedTuple):
    """The shards of each message, and the same as bits."""

    start: NDArray[np.int64]
    shard: NDArray[np.int32]
    bits: NDArray[np.uint64]

    @property
    def message(self) -> NDArray[np.int64]:
        """The message row of every entry of ``shard``."""
        return np.repeat(np.arange(len(self.bits)), np.diff(self.start))


class MessageRouter:
    """Routes messages; keeps the ranks of all words so far.

    A router must also see words that no sampled subscription has. When there are too many words,
    this starts again.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._forget()

    def _forget(self) -> None:
        self._vocabulary = Vocabulary()
        self._rank: NDArray[np.int32] | None = None

    def route(self, batch: MessageBatch) -> Routed:
        """Return the shards that each message must visit."""
        if len(self._vocabulary) > _MAX_TOKENS:
            self._forget()
        messages = batch.number(self._vocabulary, add=True)
        self._rank = self._router.ranks(self._vocabulary, self._rank)
        start, shard = self._router.route_messages(messages, self._rank)
        return Routed(start, shard, pack_shards(start, shard, self._router.shards))


@dataclass(frozen=True)
class RouteMessages:
    """Sends each message to the shards that it must visit, one copy for each.

    Parameters
    ----------
    folder, version, now_us
        As for `nearcast.spark.workers.matching.MatchMessages`.
    keys
        A key for each partition of the shuffle that follows. If there are fewer shards than
        partitions, each shard uses several partitions in turn.
    """

    folder: str
    version: int | None
    now_us: int
    keys: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Route each batch."""
        artifact = Artifact(self.folder)
        known: dict[int, MessageRouter] = {}
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            version, now_us = version_of(artifact, self.version, table, self.now_us)
            if version.number not in known:
                router = open_router(artifact.folder, version)
                known = {version.number: MessageRouter(router)}
            messages = table.drop_columns([NOW]) if NOW in table.column_names else table
            read, rejects = read_messages(
                messages, tokenizer(version.tokenizer), now_us=now_us, unique=False
            )
            if len(rejects):
                accepted = np.ones(messages.num_rows, np.bool_)
                accepted[rejects.row] = False
                messages = messages.filter(pa.array(accepted))
            same = {"_version": version.number, "_time": now_us, "_rejected": 0}
            routed = known[version.number].route(read)
            yield from self._copies(messages, routed, len(version.shards), same)
            if len(rejects):
                alone = {"_key": self.keys[0], "_counted": 0, **same, "_rejected": len(rejects)}
                schema = pa.schema([*messages.schema, *ROUTE])
                yield pa.RecordBatch.from_pylist([alone], schema)

    def _copies(
        self, messages: pa.Table, routed: Routed, shards: int, same: dict[str, int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield a copy of each message for each of its shards."""
        message = routed.message
        key = self._keys_of(routed.shard, shards)
        counted = np.diff(message, prepend=-1) > 0
        for low in range(0, len(message), COPIES_AT_A_TIME):
            piece = slice(low, low + COPIES_AT_A_TIME)
            copies = messages.take(pa.array(message[piece]))
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

    def _keys_of(self, shard: NDArray[np.int32], shards: int) -> NDArray[np.int32]:
        """Return the key of each copy."""
        each = max(len(self.keys) // shards, 1)
        turn = np.arange(len(shard)) % each
        partition = (shard.astype(np.int64) * each + turn) % len(self.keys)
        keys: NDArray[np.int32] = np.array(self.keys, np.int32)[partition]
        return keys


def version_of(
    artifact: Artifact, number: int | None, table: pa.Table, now_us: int
) -> tuple[Version, int]:
    """Return the version to match messages against, and the time of messages without one."""
    if number is not None:
        return artifact.read(number), now_us
    time_us = int(table.column(NOW)[0].cast(pa.int64()).as_py())
    return artifact.at(time_us // 1000), time_us


def bits_of(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the bits that a column has as bytes; all rows have the same length."""
    rows: list[bytes] = column.to_pylist()
    return read_only(np.frombuffer(b"".join(rows), np.uint64), np.uint64, len(rows[0]) // 8)


def _bytes_of(bits: NDArray[np.uint64]) -> pa.Array:
    width = bits.shape[1] * 8
    flat = pa.py_buffer(np.ascontiguousarray(bits))
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(bits), [None, flat])
    return pc.cast(fixed, pa.binary())
