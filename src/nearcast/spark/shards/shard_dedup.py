"""Which shard reports a match that several shards find.

A subscription may lie in several shards and a message may visit several of them: of those that
they share, the lowest one reports the pair. So no shard has to know what another one found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = 64
_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Pairs(NamedTuple):
    """The matches of one shard: rows of subscriptions, message by message."""

    start: NDArray[np.int64]
    row: NDArray[np.int32]


class ShardBits(NamedTuple):
    """The shards of subscriptions and messages, uint64[any, words]: shard ``s`` is bit ``s``."""

    row: NDArray[np.uint64]
    message: NDArray[np.uint64]


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
