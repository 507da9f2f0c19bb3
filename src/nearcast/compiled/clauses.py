"""Clauses as kernels take them: as they are, or with their tokens in the order of an index.

`ClauseColumns` is used by ``mbr-trie``, `nearcast.indexes.token_order` and
`nearcast.indexes.linear`; `ClauseTokens` by ``keyword-first``, the quadtrees, ``ap-tree`` and
``trie-pyramid``; `Ordered` by the R-trees, the quadtrees, ``keyword-first``, ``pt-quadtree`` and
``lfilter``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses


class ClauseColumns(NamedTuple):
    """The tokens of clause ``c`` are ``token[token_start[c]:token_start[c + 1]]``."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]


class ClauseTokens(NamedTuple):
    """The same without boxes."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]


class Ordered(NamedTuple):
    """The arrays of clauses with ordered tokens.

    The tokens of clause ``c`` are ``token[start[c]:start[c + 1]]``. A clause without tokens has
    the one token `NO_TOKEN`.
    """

    start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]


def clause_columns(clauses: Clauses) -> ClauseColumns:
    """Return the columns that kernels read."""
    return ClauseColumns(clauses.token_start, clauses.token, clauses.box)


@kernel
def length_of(ordered: Ordered, clause: Number) -> Number:
    """Return the number of tokens of a clause, at least one."""
    return max(np.int64(1), ordered.start[clause + 1] - ordered.start[clause])


@kernel
def token_at(ordered: Ordered, clause: Number, i: Number) -> Number:
    """Return the ``i``-th token of a clause, from 0."""
    if ordered.start[clause] == ordered.start[clause + 1]:
        return NO_TOKEN
    return np.int64(ordered.token[ordered.start[clause] + i])
