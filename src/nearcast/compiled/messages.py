"""Messages as kernels take them, where kernels write what they found, and lookups among tokens.

Used by all index families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import NO_TOKEN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MessageArrays(NamedTuple):
    """The arrays of a batch of messages; no message crosses the antimeridian."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]


class MessageView(NamedTuple):
    """One message: ascending tokens, the box as int32[4], and the filter of its tokens."""

    tokens: NDArray[np.int32]
    box: NDArray[np.int32]
    token_filter: NDArray[np.uint64]


class Output(NamedTuple):
    """What kernels find: the clauses of message ``m`` are ``clause[start[m]:start[m + 1]]``.

    ``start`` int64[messages + 1]: that of the first message is given. ``clause`` int32[any].
    """

    start: NDArray[np.int64]
    clause: NDArray[np.int32]


@kernel
def known_tokens(tokens: NDArray[np.int32]) -> Number:
    """Return the number of ascending tokens without `NO_TOKEN`, which no clause contains."""
    known = len(tokens)
    if known > 0 and tokens[known - 1] == NO_TOKEN:
        known -= 1
    return known


@kernel
def contains(tokens: NDArray[np.int32], token: Number) -> Number:
    """Tell whether ascending tokens contain a token (binary search)."""
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high) >> 1
        if tokens[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low < len(tokens) and tokens[low] == token
