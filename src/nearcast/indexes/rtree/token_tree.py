"""What the nodes of an R-tree know of tokens, and the arrays that hold it.

Every node may have a table of tokens (`nearcast.compiled.token_table`). What it holds depends on
the kind of the tree:

- `NOTHING`: no tables.
- `SETS`: in inner nodes, the tokens of all clauses below, each with the set of entries (a bit a
  slot) below which it occurs: the token sets of all entries of a node, side by side. A token that
  loses its last entry leaves the table: the set of entries is its reference count.
- `FIRST`: the same with the first token of every clause only.
- `FILES`: as `SETS`, and leaves have the set of clauses of every token: an inverted file.
- `LISTS`: in an inner node at depth ``d >= 1``, the list of the clauses below whose ``d``-th token
  it is (`nearcast.indexes.rtree.token_lists`); leaves have files of all tokens from the ``d``-th on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.rtree.nodes import ROOT, RTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.token_table import Tables

NOTHING, SETS, FIRST, FILES, LISTS = 0, 1, 2, 3, 4
"""The kinds of trees."""


class Postings(NamedTuple):
    """The pool of lists: ``posting`` int32[m], and ``top`` int64[1], how much was given away."""

    posting: NDArray[np.int32]
    top: NDArray[np.int64]


class Room(NamedTuple):
    """Room for gathering the tokens of a node: a table, and a stack of nodes."""

    tables: Tables
    stack: NDArray[np.int64]


@kernel
def depth_of(tree: RTree, node: Number) -> Number:
    """Return how far below the root a node is."""
    return np.int64(tree.level[tree.state[ROOT]]) - np.int64(tree.level[node])


@kernel
def first_in_leaf(depth: Number) -> Number:
    """Return the first of a clause's tokens, from 0, that a leaf at this depth keeps in `LISTS`."""
    return max(np.int64(0), depth - 1)
