"""A bit filter of a message's tokens: one bit rejects most tokens that do not occur.

Used by all index families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.messages import contains
from nearcast.compiled.token_table import NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILTER_BITS = 15
"""The filter has 2**15 bits: 4 KiB, which fit into L1."""

FILTER_WORDS = (1 << FILTER_BITS) // 64

LOW_BITS = np.uint64((1 << FILTER_BITS) - 1)


@kernel
def set_filter(token_filter: NDArray[np.uint64], tokens: NDArray[Any]) -> None:
    """Set the bits of a message's tokens and of `NO_TOKEN`."""
    for i in range(len(tokens)):
        bit = np.uint64(tokens[i]) & LOW_BITS
        token_filter[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    bit = np.uint64(NO_TOKEN) & LOW_BITS
    token_filter[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))


@kernel
def clear_filter(token_filter: NDArray[np.uint64], tokens: NDArray[Any]) -> None:
    """Clear the bits of a message's tokens."""
    for i in range(len(tokens)):
        bit = np.uint64(tokens[i]) & LOW_BITS
        token_filter[bit >> np.uint64(6)] = np.uint64(0)


@kernel
def occurs(token_filter: NDArray[np.uint64], tokens: NDArray[np.int32], token: Number) -> Number:
    """Tell whether a token is among the ascending tokens for which the filter was set."""
    bit = np.uint64(token) & LOW_BITS
    if (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1) == np.uint64(0):
        return False
    return token == NO_TOKEN or contains(tokens, token)
