"""``rt++-tree``: an R-tree with another token of each clause at every level, found by counting.

Li et al., KDD 2013, section 5. The node at depth ``i`` above a clause has it in the list of its
``i``-th token; a clause of more tokens keeps the rest in its leaf. A message that meets a clause at
every depth has all its tokens: nothing is verified but the box. The paper counts levels in two
ways; here the children of the root are level 1, so that even the first lists are cut by space.
"""

from __future__ import annotations

from nearcast.indexes.rtree.rt_plus_tree import RepresentativeTree
from nearcast.indexes.rtree.token_tree import LISTS

__all__ = ["RtPlusPlusTree"]


class RtPlusPlusTree(RepresentativeTree):
    """An R-tree with token lists.

    ``examined`` counts the clauses that were met in lists, ``visited`` the nodes whose box and
    tokens meet the message.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1, 2], [1]], [[0, 0, 10, 10]] * 2)
    >>> create("rt++-tree").build(clauses).match(Messages.of([[1, 3]], [[7, 7]])).pairs()
    {(0, 1)}
    """

    name = "rt++-tree"
    summary = "rt-tree with a token a level, found by counting"
    kind = LISTS
