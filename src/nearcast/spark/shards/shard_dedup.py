"""Deduplication of matches that several shards find.

A subscription may be in several shards, and a message may visit several of them. The lowest shard
that both share reports the pair. So a shard need not know what the others found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Matches, read_only
from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["owned_matches", "pack_shards"]

_WORD = 64
_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Pairs(NamedTuple):
    """The matches of one shard: the rows of subscriptions, grouped by message."""

    start: NDArray[np.int64]
    row: NDArray[np.int32]


class ShardBits(NamedTuple):
    """The shards of subscriptions and messages, uint64[any, words]: shard ``s`` is bit ``s``."""

    row: NDArray[np.uint64]
    message: NDArray[np.uint64]


def pack_shards(
    start: NDArray[np.int64], shard: NDArray[np.int32], shards: int
) -> NDArray[np.uint64]:
    """Return the shards of each row as bits: uint64[rows, words], shard ``s`` is bit ``s``.

    Examples
    --------
    >>> pack_shards(np.array([0, 2, 3]), np.array([0, 3, 64]), 65).tolist()
    [[9, 0], [0, 1]]
    """
    if len(shard) and not 0 <= int(shard.min()) <= int(shard.max()) < shards:
        raise InvalidInput("shard", int(shard.max()), f"must be from 0 to {shards - 1}")
    bits = np.zeros((len(start) - 1, -(-shards // 64)), np.uint64)
    set_shards(read_only(start, np.int64), read_only(shard, np.int32), bits)
    return read_only(bits, np.uint64, bits.shape[1])


def owned_matches(
    matches: Matches, row_shards: NDArray[np.uint64], message_shards: NDArray[np.uint64], shard: int
) -> Matches:
    """Return the matches that a shard reports: those that no lower shard finds as well.

    Parameters
    ----------
    matches
        The matches of the shard, by rows of its subscriptions.
    row_shards, message_shards
        The shards of its subscriptions and of the messages, from `pack_shards`.
    shard
        The number of the shard.

    Examples
    --------
    >>> found = Matches(np.array([0, 2]), np.array([0, 1], np.int32), 2)
    >>> rows = pack_shards(np.array([0, 2, 3]), np.array([0, 1, 1]), 2)
    >>> visited = pack_shards(np.array([0, 2]), np.array([0, 1]), 2)
    >>> owned_matches(found, rows, visited, 1).pairs()
    {(0, 1)}
    """
    start = np.empty(len(matches.start), np.int64)
    kept = np.empty(len(matches), np.int64)
    keep_owned(
        Pairs(read_only(matches.start, np.int64), read_only(matches.subscription, np.int32)),
        ShardBits(read_only(row_shards, np.uint64), read_only(message_shards, np.uint64)),
        shard,
        start,
        kept,
    )
    return matches.keep(start, kept[: start[-1]])


@kernel
def set_shards(
    start: NDArray[np.int64], shard: NDArray[np.int32], bits: NDArray[np.uint64]
) -> None:
    """Set the bits of the shards of every row; ``bits`` uint64[rows, words] is filled."""
    for i in range(len(bits)):
        for word in range(bits.shape[1]):
            bits[i, word] = _NONE
        for j in range(start[i], start[i + 1]):
            bits[i, shard[j] // _WORD] |= _ONE << np.uint64(shard[j] % _WORD)


@kernel
def keep_owned(
    pairs: Pairs,
    bits: ShardBits,
    shard: Number,
    kept_start: NDArray[np.int64],
    kept: NDArray[np.int64],
) -> None:
    """Write the positions of the matches that no lower shard shares with this one.

    ``kept_start`` int64[messages + 1] and ``kept`` int64[matches] are filled.
    """
    row_bits, message_bits, rows = borrow(bits.row), borrow(bits.message), borrow(pairs.row)
    last = shard // _WORD
    below = (_ONE << np.uint64(shard % _WORD)) - _ONE
    count = np.int64(0)
    kept_start[0] = 0
    for message in range(len(pairs.start) - 1):
        for i in range(pairs.start[message], pairs.start[message + 1]):
            row = rows[i]
            shared = row_bits[row, last] & message_bits[message, last] & below
            for word in range(last):
                shared |= row_bits[row, word] & message_bits[message, word]
            if shared == _NONE:
                kept[count] = i
                count += 1
        kept_start[message + 1] = count
