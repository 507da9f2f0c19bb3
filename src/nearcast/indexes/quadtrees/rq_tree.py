"""``rq-tree``: lists of clauses by their rarest token, and a quadtree for each long one.

AP-Tree, VLDB Journal 2015, section 5.1.1: the relative of the iq-tree that puts keywords first. It
is a trie of one level (`nearcast.indexes.quadtrees.trie_lists`).
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.indexes.quadtrees.index import QuadOptions, QuadSettings
from nearcast.indexes.quadtrees.trie_quadtree import QuadTrie

__all__ = ["RqTree", "RqTreeOptions"]


@dataclass(frozen=True)
class RqTreeOptions(QuadOptions):
    """The options of an rq-tree.

    Parameters
    ----------
    list_size
        A list that has as many clauses becomes a quadtree, whose cells are divided likewise.
    update_cost, depth, parts, statistics
        See `QuadOptions`.
    """

    @property
    def settings(self) -> QuadSettings:
        """What the arrays are told."""
        return QuadSettings(False, self.list_size, self.list_size, 1)


class RqTree(QuadTrie):
    """Lists by the rarest token, with quadtrees.

    ``visited`` counts the lists and the nodes of quadtrees that messages reach.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("rq-tree", list_size=1).build(clauses)
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "rq-tree"
    summary = "lists by the rarest token, quadtrees where they are long; changes in place"

    Options = RqTreeOptions
