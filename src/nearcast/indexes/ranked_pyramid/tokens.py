"""The tokens of a message, prepared so that each token of a record costs one lookup.

A table of 2,048 slots is filled so that no two tokens of the message share a slot: the multiplier
of the hash is changed until that is so, which takes one or two tries for messages of up to 64
tokens. A lookup then compares one slot, without a branch. Longer messages get an ordinary
table with open addressing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_table import MIXER
from nearcast.indexes.ranked_pyramid.layout import FILTER_WORDS, token_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_BITS = 11
"""The logarithm of the slots of a table for short messages."""

MAX_PERFECT = 64
"""Messages of more tokens are not tried without clashes."""

TRIES = 64

MULTIPLIER, SHIFT, PROBES = 0, 1, 2
"""Fields of ``TokenTable.setting``: the hash of this message, and whether lookups must probe."""

EMPTY = np.int32(-2)
"""A free slot. Records have -1 where there is no token, which must not be found."""

_ONE = np.uint64(1)


class Weighing(NamedTuple):
    """The weights of tokens: ``unknown`` beyond the table; 1 for all if ``weighs`` is 0."""

    weight: NDArray[np.float64]
    unknown: Number
    weighs: Number


class TokenTable(NamedTuple):
    """The tokens of one message.

    - ``token`` int32[1 + a power of two], ``weight`` float64[the same]: a hash table. Slot 0 has no
      token and the weight 0, so that a lookup that fails can add that.
    - ``setting`` uint64[3]: see `MULTIPLIER`.
    - ``token_filter`` uint64[64]: a bit for the `token_hash` of every token.
    """

    token: NDArray[np.int32]
    weight: NDArray[np.float64]
    setting: NDArray[np.uint64]
    token_filter: NDArray[np.uint64]


def new_token_table(tokens: int) -> TokenTable:
    """Return an empty table for messages of at most ``tokens`` tokens."""
    size = 1 << max(MIN_BITS, (4 * tokens - 1).bit_length())
    return TokenTable(
        np.full(1 + size, EMPTY, np.int32),
        np.zeros(1 + size),
        np.zeros(3, np.uint64),
        np.zeros(FILTER_WORDS, np.uint64),
    )


@inlined_kernel
def token_weight(weighing: Weighing, token: Number) -> Number:
    """Return the weight of a token."""
    if weighing.weighs == 0:
        return 1.0
    if token < len(weighing.weight):
        return weighing.weight[token]
    return weighing.unknown


@kernel
def fill_without_clashes(table: TokenTable, tokens: NDArray[np.int32]) -> Number:
    """Put tokens into an empty table, each into its own slot; return whether that was possible."""
    shift = np.uint64(64 - MIN_BITS)
    for attempt in range(TRIES):
        multiplier = MIXER * np.uint64(2 * attempt + 1)
        clash = False
        for i in range(len(tokens)):
            at = ((np.uint64(tokens[i]) * multiplier) >> shift) + _ONE
            clash |= table.token[at] != EMPTY
            table.token[at] = tokens[i]
        table.setting[MULTIPLIER], table.setting[SHIFT] = multiplier, shift
        table.setting[PROBES] = np.uint64(0)
        if not clash:
            return True
        for i in range(len(tokens)):
            table.token[((np.uint64(tokens[i]) * multiplier) >> shift) + _ONE] = EMPTY
    return False


@kernel
def find_token(table: TokenTable, token: Number) -> Number:
    """Return the slot of a token in a table with clashes, or the free slot where it belongs."""
    at = (np.uint64(token) * table.setting[MULTIPLIER]) >> table.setting[SHIFT]
    mask = (_ONE << (np.uint64(64) - table.setting[SHIFT])) - _ONE
    while table.token[at + _ONE] != token and table.token[at + _ONE] != EMPTY:
        at = (at + _ONE) & mask
    return at + _ONE


@kernel
def fill_with_clashes(table: TokenTable, tokens: NDArray[np.int32]) -> None:
    """Put tokens into an empty table with open addressing."""
    bits = MIN_BITS
    while (1 << bits) < 4 * len(tokens):
        bits += 1
    table.setting[MULTIPLIER], table.setting[SHIFT] = MIXER, np.uint64(64 - bits)
    table.setting[PROBES] = _ONE
    for i in range(len(tokens)):
        table.token[find_token(table, np.int64(tokens[i]))] = tokens[i]


@kernel
def fill_table(table: TokenTable, tokens: NDArray[np.int32], weighing: Weighing) -> None:
    """Fill an empty table and filter with the tokens of a message."""
    if len(tokens) > MAX_PERFECT or not fill_without_clashes(table, tokens):
        fill_with_clashes(table, tokens)
    table.token_filter[0] |= _ONE
    for i in range(len(tokens)):
        token = np.int64(tokens[i])
        table.weight[find_token(table, token)] = token_weight(weighing, token)
        bit = token_hash(token)
        table.token_filter[bit >> np.uint64(6)] |= _ONE << (bit & np.uint64(63))


@kernel
def clear_table(table: TokenTable, tokens: NDArray[np.int32]) -> None:
    """Empty the table and the filter that hold these tokens."""
    if table.setting[PROBES] != np.uint64(0):
        table.token[:] = EMPTY
    for i in range(len(tokens)):
        at = (np.uint64(tokens[i]) * table.setting[MULTIPLIER]) >> table.setting[SHIFT]
        table.token[at + _ONE] = EMPTY
        table.token_filter[token_hash(tokens[i]) >> np.uint64(6)] = np.uint64(0)
