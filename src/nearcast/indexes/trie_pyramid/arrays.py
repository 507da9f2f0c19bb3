"""The arrays of the trie-pyramid, and how their fields are packed.

- ``slot`` uint64[s, 4], open addressing: a token and, in the upper half, the node below which it
  is looked for (0 for the first token of a clause); what is there, a pyramid
  (`nearcast.indexes.trie_pyramid.pyramid`) or a node (`NODE` set), 0 for a free slot; two words of places
  (`nearcast.indexes.trie_pyramid.places`).
- ``pyramid`` uint64[w]: the pyramids. The word of an entry is its clause and, in the upper half,
  the next token that must occur: `NO_TOKEN` where none is left, its complement (a negative number)
  where there are more after it.
- ``node`` uint64[n, 4], the nodes that have children: a bit for each of the children's tokens;
  their first and how many they are; the pyramid of clauses that no child has, 0 for none; unused.
  Node 0 is not used.
- ``child`` uint64[c]: the children of all nodes, slot and, in the upper half, token.
- ``shape`` int64[2, sizes]: the parts of pyramids.
- ``setting`` int64[4]: boxes in a block, level of places, whether there are clauses without
  tokens, and how many blocks and children can be waiting for a message at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY, FOUND, PLACES = 0, 1, 2
"""The words of a slot; places are two."""

SIGNATURE, CHILDREN, KEPT = 0, 1, 2
"""The words of a node."""

BLOCK_SIZE, PLACE_LEVEL, TOKENLESS, WAITING = 0, 1, 2, 3
"""The fields of ``setting``."""

NODE = np.uint64(1 << 63)
LOW32 = np.uint64(0xFFFFFFFF)
BITS32 = np.uint64(32)

PADDING = 8
"""Words behind the last pyramid: a block of few boxes is read as if it were full."""


class TriePyramidArrays(NamedTuple):
    """The arrays of a trie-pyramid, its pool as halves, and the columns of clauses."""

    slot: NDArray[np.uint64]
    pyramid: NDArray[np.uint64]
    node: NDArray[np.uint64]
    child: NDArray[np.uint64]
    shape: NDArray[np.int64]
    setting: NDArray[np.int64]
    half: NDArray[np.int16]
    box: NDArray[np.int32]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]


@kernel
def key_of(node: Number, token: Number) -> Number:
    """Return the key of a token below a node."""
    return (np.uint64(node) << BITS32) | np.uint64(token)


@kernel
def home(slot: NDArray[np.uint64], key: Number) -> Number:
    """Return where the chain of a key begins."""
    return np.int64((((key * MIXER) >> BITS32) * np.uint64(len(slot))) >> BITS32)


@kernel
def find_slot(slot: NDArray[np.uint64], key: Number) -> Number:
    """Return the slot of a key, or the free one where it belongs."""
    at = home(slot, key)
    while slot[at, FOUND] != np.uint64(0) and slot[at, KEY] != key:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def signature_bit(token: Number) -> Number:
    """Return the bit of a token in the signature of a node."""
    return np.uint64(1) << ((np.uint64(token) * MIXER) >> np.uint64(58))
