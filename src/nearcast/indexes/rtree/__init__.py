"""Indexes over one R-tree, which differ in what its nodes know about tokens.

The R-tree holds clauses by their boxes. A message walks down from the root and opens a node if its
box overlaps the message and, depending on the index, the node knows a token of the message. Five
indexes are for boolean subscriptions:

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
`tokens` and `update` are what nodes know about tokens, built and changed (`maintain`: by an index);
`match` is the walk, the same for all five; `check` checks stored arrays; `index` has the classes.

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

Ranked subscriptions
--------------------

Over ranked subscriptions the same trees know other things. A node is opened if something below it
can still score enough:

- ``ir-tree-1`` (proximity) and ``rt-tree`` (overlap): every entry has bounds of shares, thresholds,
  weights and sizes. The message's tokens below it limit T, its box limits S.
- ``ir-tree-100`` (proximity): a hundred such trees, by tenths of text share and threshold.
- ``rt+-tree`` (overlap): nodes know the *prefix* tokens of subscriptions: those that can be the
  first shared one of a match, some only where it meets the message, some anywhere.
- ``rt++-tree`` (both): the i-th token of a subscription is listed in its ancestor at depth ``i``,
  with the largest distance of a match whose first shared token it is (its *limit*).

::

    bound      node -> [5 x 64]   p from, p to, q from, weight from, distance to (or area from)
    root       tree -> node       (ir-tree-100: all trees share nodes, tables and items)
    limit      node -> [64]       (rt++) the largest limit of what is kept below each slot
    key_start  clause -> key, key_limit: t1 far, t2 20 km, t3 1 km, * 300 m       (a signature)
                                          |      |       |      |
    far.slot   token -> list of clauses <-'      |       |      |
    slot       node at depth 2 -> token -> list <'       |      |
               leaf -> token -> word of entries <--------'------'
    list       clause, limit, place | clause, limit, place | ...

Modules: `ranked_space` (how far a message is from the boxes of a node), `ranked_bounds`,
`ranked_keys` (prefixes and signatures), `ranked_lists` (token lists), `forest` (several trees in
the arrays of one), `ranked_match` and `ranked_list_match` (the walks), `ranked_check`,
`ranked_index` and `ranked_list_index`.

Papers: Yu et al., TKDE 2014, section 6 (overlap). Hu et al., A Location-Aware Publish/Subscribe
Framework for Parameterized Spatio-Textual Subscriptions, ICDE 2015, section VII (proximity).

What differs, and why:

- *Bounds in leaves.* A leaf has an inverted file and the bounds of each subscription, so the score
  is nearly known before a candidate is verified. A leaf that is too far away for any S is
  read by tokens only: ``ir-tree-1`` takes 2.3 ms instead of 21 ms per short message over a million
  ``tweets`` subscriptions, at the same nodes visited.
- *Distances without arcs.* Limits are kept as haversines (or square units), so a node compares all
  its boxes with a polynomial; it never exceeds the distance to what is below.
- *rt++: tokens that are enough anywhere* are in lists of the whole index (option ``anywhere``).
  The papers list them like all others; then nearly every node has to be opened for every
  message (880 nodes instead of 43 per short message, 2.6 ms instead of 0.3 ms).
- *Only tokens of the signature are listed*, and a candidate counts where its first shared token is
  listed, so none is found twice and nothing has to be counted.
- Where a printed bound would lose matches (ties, a share that is divided twice, subscriptions
  without keywords), the bound here is the one that its proof gives.
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
from nearcast.indexes.rtree.ranked_index import IrTree1, IrTree100
from nearcast.indexes.rtree.ranked_list_index import ListOptions

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
