"""``ir-tree``: an R-tree with an inverted file in every node.

Cong et al., VLDB 2009, extended to filtering as in Li et al., KDD 2013, section 2.2. A node is
opened when its box meets the message and its file has one of the message's tokens; the file of a
leaf tells how many tokens of each clause occur.
"""

from __future__ import annotations

from nearcast.indexes.rtree.index import TreeIndex
from nearcast.indexes.rtree.token_tree import FILES

__all__ = ["IrTree"]


class IrTree(TreeIndex):
    """An R-tree whose nodes all have an inverted file: the entries of every token.

    ``examined`` counts the clauses that were met in the file of a leaf, ``visited`` the nodes
    opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2], [3]], [[0, 0, 10, 10]] * 3)
    >>> matches = create("ir-tree").build(clauses).match(Messages.of([[1]], [[7, 7]]))
    >>> matches.pairs(), matches.examined
    ({(0, 0)}, 2)
    """

    name = "ir-tree"
    summary = "R-tree with an inverted file in every node; a baseline"
    kind = FILES
