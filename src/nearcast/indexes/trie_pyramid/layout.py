"""The arrays of a trie-pyramid. Slots, pyramids and cell masks: see `nearcast.compiled.pyramids`.

- ``slot`` uint64[s, 4] is a hash table with open addressing. A slot has a key (a token and, in the
  upper 32 bits, the node above it, 0 for the first token of a clause), a target (a pyramid, or
  a node where `IS_NODE` is set; 0 for a free slot) and a cell mask of two words.
- ``pyramid`` uint64[w] holds all pyramids. The word of an entry is its clause and, in the upper 32
  bits, its next token: `NO_TOKEN` if no token is left, the complement of the token (a
  negative number) if more tokens follow it.
- ``node`` uint64[n, 4] describes the lists that have children: a signature of the children's
  tokens; the first child and, in the upper 32 bits, the number of children; the pyramid of the
  clauses that are in no child, 0 for none; an unused word. Node 0 is not used.
- ``child`` uint64[c] holds the children of all nodes: the slot and, in the upper 32 bits, the
  token. The children of the last node come first.
- ``part_sizes`` int64[2, levels] describes the parts of pyramids: the base-2 logarithm of their
  number of entries, and the words that a part takes.
- ``header`` int64[4]: boxes per block, level of the grid, whether there are clauses without tokens,
  and the largest number of blocks and children that one message can queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import BITS32, MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIGNATURE, CHILDREN, KEPT = 0, 1, 2
"""The words of a node."""

TOKENLESS = 2
"""A field of ``header``; the others are in `nearcast.compiled.pyramids`."""

IS_NODE = np.uint64(1 << 63)


class TriePyramidArrays(NamedTuple):
    """The arrays of a trie-pyramid, and the columns of the clauses that matching reads.

    ``rounded_boxes`` is ``pyramid`` seen as int16.
    """

    slot: NDArray[np.uint64]
    pyramid: NDArray[np.uint64]
    node: NDArray[np.uint64]
    child: NDArray[np.uint64]
    part_sizes: NDArray[np.int64]
    header: NDArray[np.int64]
    rounded_boxes: NDArray[np.int16]
    box: NDArray[np.int32]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]


# --- slots ---------------------------------------------------------------------------------------


@kernel
def key_of(node: Number, token: Number) -> Number:
    """Return the key of a token below a node."""
    return (np.uint64(node) << BITS32) | np.uint64(token)


@kernel
def signature_bit(token: Number) -> Number:
    """Return the bit of a token in the signature of a node."""
    return np.uint64(1) << ((np.uint64(token) * MIXER) >> np.uint64(58))
