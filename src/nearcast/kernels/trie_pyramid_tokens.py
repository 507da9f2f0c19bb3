"""The tokens of one message as a hash table: whether one occurs is asked again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.kernels.compile import Number, inlined_kernel, kernel
from nearcast.kernels.messages import contains
from nearcast.kernels.token_table import EVERY, MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

FREE = np.int32(-1)
FEW = 32


@kernel
def table_bits(tokens: Number) -> Number:
    """Return the logarithm of the slots for so many tokens and one more: a half are free."""
    bits = np.int64(4)
    while (np.int64(1) << bits) < 2 * (tokens + 1):
        bits += 1
    return bits


@inlined_kernel
def put_token(table: NDArray[np.int32], bits: Number, token: Number) -> None:
    """Put a token into the table of a message."""
    mask = (np.int64(1) << bits) - 1
    at = np.int64((np.uint64(token) * MIXER) >> np.uint64(64 - bits))
    while table[at] != FREE and table[at] != token:
        at = (at + 1) & mask
    table[at] = token


@inlined_kernel
def put_tokens(table: NDArray[np.int32], tokens: NDArray[np.int32]) -> Number:
    """Fill the table with the tokens of a message and `EVERY`; return the bits of its size."""
    if len(tokens) <= FEW:
        return np.int64(0)
    bits = table_bits(np.int64(len(tokens)))
    table[: np.int64(1) << bits] = FREE
    for i in range(len(tokens)):
        put_token(table, bits, np.int64(tokens[i]))
    put_token(table, bits, EVERY)
    return bits


@inlined_kernel
def occurs(
    table: NDArray[np.int32], bits: Number, tokens: NDArray[np.int32], token: Number
) -> Number:
    """Tell whether a message has a token."""
    if bits == 0:
        return contains(tokens, token)
    mask = (np.int64(1) << bits) - 1
    at = np.int64((np.uint64(token) * MIXER) >> np.uint64(64 - bits))
    while table[at] != token:
        if table[at] == FREE:
            return False
        at = (at + 1) & mask
    return True
