"""``rt-tree``: an R-tree, every node of which knows the tokens below it.

Li et al., KDD 2013, section 3. A node is opened when its box meets the message and its token set
has one of the message's tokens; the clauses of a leaf are verified.
"""

from __future__ import annotations

from nearcast.indexes.rtree.index import TreeIndex
from nearcast.indexes.rtree.token_tree import SETS

__all__ = ["RtTree"]


class RtTree(TreeIndex):
    """An R-tree with token sets.

    ``examined`` counts the clauses of opened leaves whose box meets the message, ``visited`` the
    nodes opened (the paper's candidate nodes).

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1, 2], [1]], [[0, 0, 10, 10]] * 2)
    >>> create("rt-tree").build(clauses).match(Messages.of([[1, 3]], [[7, 7]])).pairs()
    {(0, 1)}
    """

    name = "rt-tree"
    summary = "R-tree, every node holds the tokens below it"
    kind = SETS
