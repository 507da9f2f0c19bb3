"""Whether a message has a token: a hash table for long messages, a search in short ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.messages import contains
from nearcast.compiled.token_table import MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

FREE = np.int32(-1)

FEW = 32
"""So many tokens are searched faster than a table is filled."""


@kernel
def table_bits(tokens: Number) -> Number:
    """Return the logarithm of the slots for so many tokens: half of them or more are free."""
    bits = np.int64(4)
    while (np.int64(1) << bits) < 2 * tokens:
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
    """Fill the table with the tokens of a message; return the bits of its size, 0 for no table."""
    if len(tokens) <= FEW:
        return np.int64(0)
    bits = table_bits(np.int64(len(tokens)))
    table[: np.int64(1) << bits] = FREE
    for i in range(len(tokens)):
        put_token(table, bits, np.int64(tokens[i]))
    return bits


@inlined_kernel
def occurs(
    table: NDArray[np.int32], bits: Number, tokens: NDArray[np.int32], token: Number
) -> Number:
    """Tell whether a token is one of a message's, which are ascending and may be in a table."""
    if bits == 0:
        return contains(tokens, token)
    mask = (np.int64(1) << bits) - 1
    at = np.int64((np.uint64(token) * MIXER) >> np.uint64(64 - bits))
    while table[at] != token:
        if table[at] == FREE:
            return False
        at = (at + 1) & mask
    return True
