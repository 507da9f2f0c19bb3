"""``spatial-first``: an R-tree finds the clauses whose box meets a message; tokens come after.

A baseline of Li et al., KDD 2013, section 2.2.
"""

from __future__ import annotations

from nearcast.indexes.rtree.index import TreeIndex
from nearcast.indexes.rtree.token_tree import NOTHING

__all__ = ["SpatialFirst"]


class SpatialFirst(TreeIndex):
    """An R-tree that knows nothing of tokens.

    ``examined`` counts the clauses whose box meets the message, ``visited`` the nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("spatial-first").build(clauses)
    >>> matches = index.match(Messages.of([[1]], [[7, 7]]))
    >>> matches.pairs(), matches.examined
    ({(0, 0)}, 2)
    """

    name = "spatial-first"
    summary = "R-tree, then the keywords are checked; a baseline"
    kind = NOTHING
