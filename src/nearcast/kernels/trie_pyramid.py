"""The arrays of the trie-pyramid, and how their fields are packed.

- ``token_slot`` uint64[t, 2]: open addressing by token id. Token id and rank (rarest first); what
  the trie has for clauses whose rarest token it is: nothing, a node, or a list (`LIST` set).
- ``node`` uint64[n, 8], one cache line each: signature of the children's tokens; bounds of all
  clauses below (x, then y); first child and number of children; position of the flat list;
  start and end of the pyramid; its number of cells and mask of levels; token.
- ``child_slot``, ``cell_slot`` uint64[...]: open addressing, a 32-bit tag and a node or the
  position of a cell side by side. What is found is verified at its target; no two keys of one
  probe chain share a tag: the seeds were chosen so.
- ``entry`` uint64[m, 2]: lists. A list begins with a header (origin of its frame; number of
  entries and shift), its entries follow: the packed box; the clause, the next token that must
  occur (`ANY` where none is left) and `MORE` where there are others after that.
- ``setting`` uint64[3]: the seeds of ``child_slot`` and ``cell_slot``, and the depth of the trie.

Node 0 holds the clauses without tokens. Position 0 of ``entry`` is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIST = np.uint64(1 << 63)
MORE = np.uint64(1 << 63)
ANY = np.int64(0x7FFFFFFF)
FREE = np.uint64(0xFFFFFFFFFFFFFFFF)


class TriePyramidArrays(NamedTuple):
    """The arrays of a trie-pyramid and the columns that it verifies against."""

    token_slot: NDArray[np.uint64]
    node: NDArray[np.uint64]
    child_slot: NDArray[np.uint64]
    cell_slot: NDArray[np.uint64]
    entry: NDArray[np.uint64]
    setting: NDArray[np.uint64]
    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]
