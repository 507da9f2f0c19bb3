"""Decide candidates: by the next token that their words have, and where that is not enough, later.

What matches for sure is parted from what has to be looked at: clauses of more tokens, and boxes
that only meet the message's when rounded. That lies anywhere in memory. So it is asked for, and
looked at when the next chunk was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, prefetch
from nearcast.compiled.token_filter import LOW_BITS, set_filter
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.trie_pyramid.scan import UNSURE
from nearcast.indexes.trie_pyramid.tokens import occurs, put_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.trie_pyramid.arrays import TriePyramidArrays

_ONE = np.uint64(1)
_CLAUSE = np.uint64((1 << 31) - 1)

_DOUBT = np.uint64(1 << 31)
"""`UNSURE` in a word: clauses take fewer bits than half a word has."""

_BETWEEN = np.int64(31)

SURE, ASIDE = 0, 1
"""The fields of ``counts``."""


class Asked(NamedTuple):
    """The tokens of a message.

    ``token_filter`` uint64[512] has a bit for each, ``table`` int32[...] the tokens, ``bits``
    int64[1] the logarithm of its size.
    """

    token_filter: NDArray[np.uint64]
    table: NDArray[np.int32]
    bits: NDArray[np.int64]


class Sifted(NamedTuple):
    """What is left of the entries of a chunk.

    ``sure`` int32[CANDIDATES]: clauses that match; ``aside`` uint64[CANDIDATES]: the words of
    entries that may match; ``counts`` int64[2]: how many they are.
    """

    sure: NDArray[np.int32]
    aside: NDArray[np.uint64]
    counts: NDArray[np.int64]


@inlined_kernel
def ask(tokens: NDArray[np.int32], asked: Asked) -> None:
    """Prepare the tokens of a message."""
    asked.bits[0] = put_tokens(asked.table, tokens)
    set_filter(asked.token_filter, tokens)


@inlined_kernel
def sift(
    index: TriePyramidArrays,
    token_filter: NDArray[np.uint64],
    candidate: NDArray[np.int64],
    count: Number,
    sifted: Sifted,
) -> None:
    """Part the candidates that match for sure from others that may match, drop the rest.

    There are no branches that depend on tokens: half of them would be guessed wrong.
    """
    pool, sure, aside = index.pyramid, sifted.sure, sifted.aside
    sures, asides = np.int64(0), np.int64(0)
    for i in range(count):
        doubt = np.uint64(candidate[i] >> _BETWEEN) & _DOUBT
        word = pool[candidate[i] & ~UNSURE]
        token = np.int64(word) >> np.int64(32)
        bit = np.uint64(token ^ (token >> np.int64(63))) & LOW_BITS
        may = (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE
        done = np.int64(token == NO_TOKEN) & np.int64(doubt == np.uint64(0))
        sure[sures] = np.int32(word & _CLAUSE)
        sures += done
        aside[asides] = word | doubt
        asides += np.int64(may) & ~done
    for i in range(asides):
        clause = np.int64(aside[i] & _CLAUSE)
        if aside[i] & _DOUBT:
            prefetch(index.box, clause)
        if np.int64(aside[i]) < 0:
            prefetch(index.token_start, clause)
    sifted.counts[SURE], sifted.counts[ASIDE] = sures, asides


@inlined_kernel
def prefetch_tokens(index: TriePyramidArrays, sifted: Sifted) -> None:
    """Ask for the tokens of clauses that were put aside."""
    for i in range(sifted.counts[ASIDE]):
        if np.int64(sifted.aside[i]) < 0:
            prefetch(index.token, index.token_start[sifted.aside[i] & _CLAUSE])


@inlined_kernel
def meets(boxes: NDArray[np.int32], clause: Number, box: NDArray[np.int32]) -> Number:
    """Compare the box of a clause with that of the message."""
    touches = (boxes[clause, 0] <= box[2]) & (boxes[clause, 1] <= box[3])
    return touches & (boxes[clause, 2] >= box[0]) & (boxes[clause, 3] >= box[1])


@inlined_kernel
def has_tokens(
    index: TriePyramidArrays,
    table: NDArray[np.int32],
    bits: Number,
    tokens: NDArray[np.int32],
    clause: Number,
) -> Number:
    """Tell whether all tokens of a clause occur."""
    for i in range(index.token_start[clause], index.token_start[clause + 1]):
        if not occurs(table, bits, tokens, np.int64(index.token[i])):
            return False
    return True


@inlined_kernel
def finish(
    index: TriePyramidArrays,
    asked: Asked,
    tokens: NDArray[np.int32],
    box: NDArray[np.int32],
    sifted: Sifted,
    match: NDArray[np.int32],
) -> Number:
    """Write the matches of a chunk; there is room for all. Return how many."""
    table, bits = asked.table, asked.bits[0]
    found, aside = sifted.counts[SURE], sifted.aside
    for i in range(found):
        match[i] = sifted.sure[i]
    for i in range(sifted.counts[ASIDE]):
        clause, token = np.int64(aside[i] & _CLAUSE), np.int64(aside[i]) >> np.int64(32)
        if token < 0:
            if not has_tokens(index, table, bits, tokens, clause):
                continue
        elif token != NO_TOKEN and not occurs(table, bits, tokens, token):
            continue
        if aside[i] & _DOUBT and not meets(index.box, clause, box):
            continue
        match[found] = clause
        found += 1
    return found
