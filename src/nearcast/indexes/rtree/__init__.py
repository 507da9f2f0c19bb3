"""Five indexes over one R-tree, which differ in what its nodes know about tokens.

The R-tree holds clauses by their boxes. A message walks down from the root and opens a node if its
box overlaps the message and, depending on the index, the node knows a token of the message:

- ``spatial-first``: nodes know nothing about tokens; the clauses of leaves are verified.
- ``ir-tree``: every node has an inverted file; leaves count the tokens of each clause that occur.
- ``rt-tree``: inner nodes have the set of all tokens below; the clauses of leaves are verified.
- ``rt+-tree``: the same with one representative token of each clause.
- ``rt++-tree``: a node at depth ``d`` lists the clauses below by their ``d``-th token, so a clause
  that is found at every depth has all its tokens.

::

    tree     node:   0          1          2              n
             box    [4 x 64]   [4 x 64]   [4 x 64]  ...      sides of the entries, side by side
             entry  [64]       [64]       [64]      ...      child nodes; in leaves, clauses
             used   word       word       word      ...      the slots in use
    table    node ->  start, size, count  -----------.
    slot     ... | token -> word of entries | free | ...     one hash table per node, in a pool
                   token -> start, size of a list ---.       (rt++ only, in inner nodes)
    posting  ... | clause, clause, ~clause | ...  <--'       ~: this is the clause's last token

Modules: `nodes`, `build` and `balance` are the tree as geometry and know nothing about tokens;
`tokens` and `update` are what nodes know about tokens, built and changed; `match` is the walk, the
same for all five; `check` checks stored arrays; `index` has the classes.

Papers: Li et al., Location-Aware Publish/Subscribe, KDD 2013 (the rt-trees, sections 3 to 5; the
baselines, section 2.2). Yu et al., Efficient Filtering Algorithms for Location-Aware
Publish/Subscribe, TKDE 2014 (updates, section 3.1; orders of tokens, section 4.2). Cong et al.,
Efficient Retrieval of the Top-k Most Relevant Spatial Web Objects, VLDB 2009 (the ir-tree).

What differs from the papers, and why:

- *A set of entries is one word.* A node has at most 64 slots, and an entry keeps its slot. Sides of
  boxes lie together, so all entries of a node are compared at once and give the word of those that
  overlap the message.
- *Token sets by node, not by entry.* The papers give every entry a hash table of its tokens. Here a
  node has one table from a token to the word of entries below which it occurs: one lookup per
  node instead of one per entry. The word is the reference count, too.
- *rt++: only the path to the clause.* A clause found at every depth so far keeps open the one child
  that leads to it, and counts only if its own box overlaps the message; the paper keeps open all
  children that overlap. Of the two ways in which the papers count levels, the children of the root
  are level 1: lists of the root itself would know nothing about space.
- *Underfull nodes are merged* with a sibling. Guttman's reinsertion would change distant nodes and
  their tables.

Measured: with inner nodes packed full, each of the first splits after bulk loading went up to the
root and rebuilt tables all the way, so bulk loading fills inner nodes by three quarters only. On
boxes that overlap as much as those of ``tweets``, insertion one by one gives better trees than
``str`` (``rt-tree`` over a million subscriptions: 195 nodes visited per short message, not 227).
"""

from nearcast.indexes.rtree.build import TreeOptions
from nearcast.indexes.rtree.index import (
    IrTree,
    RtPlusPlusTree,
    RtPlusTree,
    RtTree,
    SpatialFirst,
    TokenOptions,
)
from nearcast.indexes.rtree.ranked_index import IrTree1, IrTree100, ListOptions

__all__ = [
    "IrTree",
    "IrTree1",
    "IrTree100",
    "ListOptions",
    "RtPlusPlusTree",
    "RtPlusTree",
    "RtTree",
    "SpatialFirst",
    "TokenOptions",
    "TreeOptions",
]
