"""``iq-tree``, ``rq-tree`` and ``trie-quadtree``: quadtrees of clauses, placed by a cost model.

Chen, Cong and Cao, SIGMOD 2013 (the IQ-tree), as the AP-Tree paper describes it and compares it
with two relatives (Wang, Zhang, Zhang, Lin and Wang, VLDB Journal 2015): section 3.1 (IQ-tree, and
the ordered keyword trie of Hmedeh et al.), 5.1.1 (cost model, RQ-tree) and 5.1.2 (Trie-Qd).

A clause is in one or more cells of a quadtree over the world. In a cell it costs a verification for
each message that hits the cell and has the clause's rarest token; each cell costs an update. The
clause is in the cells that make the sum least, so a large box is in a large cell, or in several
small ones where messages are dense. A leaf is split when it is full, and not if no clause would
move down. The three indexes differ in where the lists of clauses are::

    iq-tree        cell  -> token -> list        one quadtree; lists by rarest token in its cells
    rq-tree        token -> list, or quadtree    a list per rarest token; a long one is a quadtree
    trie-quadtree  tokens -> list, or quadtree   the same for each token set of a trie

They share their arrays. An *owner* is a cell of the iq-tree or a node of the trie; a hash table
leads from an owner and a token to a list::

    slot    | token | start | size | capacity | owner | branch |     hash table by owner and token
    entry   [ boxes in blocks of 16 | clause, next token | ... ]     the pool of lists
    node    | token | start | size | capacity | child | west | south | level |      quadtree nodes
    run     | start | count | capacity |  of ``listed``: the tokens of each owner

A message walks down the cells it touches (iq-tree) or the trie (the others), notes the lists it
reaches and scans them: sixteen boxes at a time, then the next token, then all tokens of what is
left. Where a message has more tokens than an owner, the owner's tokens are looked up instead. A
clause in several cells is reported in the one that holds the south-west corner of the overlap of
its box and the message, so that no set of reported clauses is needed.

What differs from the papers: the iq-tree has a directory from each token to the levels of cells
at which it has lists, so that most tokens are looked up in few cells. A node of the trie keeps
its clauses until there are ``child_size`` of them (0 as in the paper). All three indexes change in
place, and are rebuilt after they have doubled or lost a third of their clauses.

Modules, from the bottom up: `cells` (geometry and cost model), `layout` (the arrays), `split`
(quadtree nodes), `update` (inserting and removing), `match`, `check` (arrays from disk), `index`.
"""

from nearcast.indexes.quadtrees.index import (
    IqTree,
    IqTreeOptions,
    RqTree,
    RqTreeOptions,
    TrieQuadtree,
    TrieQuadtreeOptions,
)

__all__ = [
    "IqTree",
    "IqTreeOptions",
    "RqTree",
    "RqTreeOptions",
    "TrieQuadtree",
    "TrieQuadtreeOptions",
]
