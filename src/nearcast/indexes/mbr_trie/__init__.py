"""``mbr-trie``: a trie of token sets in which every node has the bounding box of what is below it.

The MBRTrie of Yu, Li and Feng, "A cost-based method for location-aware publish/subscribe services"
(CIKM 2015), section 3. All tokens have one global order, their *ranks*: the rarest token first, or
by token id. A clause follows its ranks down the trie in ascending order and is stored in the list
of the node where they end. A message opens a node if it has the node's token and overlaps the
node's box, so a message that reaches a list has all tokens of its clauses, and only their boxes
remain to be compared::

    slot     token + 1 | rank | child of the root | frequency     hash table by token
                                        |
             .--------------------------'
             v
    rank     r | r | r r r | r r - | ...       one per node; children are adjacent, ranks ascending
    outline  the box of a node in 64 bits      ("-": capacity for more children)
    node     box | first child, count, capacity | list, size, capacity, dead | clauses below
    label    lowest and highest label below           |
             .----------------------------------------'
             v
    entry    16 west, 16 south, 16 east, 16 north | ... | clause numbers | next list ...

Every token set has a *label*, an int64: labels ascend in the order of the trie and leave gaps, so
that a new token set gets one between its neighbors. The upper 32 bits are the rank of the first
token, so a gap that is used up concerns the token sets below one child of the root only.
``lfilter`` orders the lists of its quadtree by these labels.

Building sorts the clauses level by level. Matching goes down level by level too: while the boxes of
one level are compared, the nodes of the next are prefetched. An insert creates the missing part of
its path; a delete marks its entry dead, and a list half of which is dead is compacted. The trie is
built again once a third of its clauses are dead, or most of them came after tokens were ranked.

What differs from the paper:

- A leaf (a node with the empty token) is not a node here; its list belongs to its parent.
- Children of the root are found by the hash table that maps tokens to ranks, at no extra cost.
- A node's box is stored a second time, rounded to 15 bits a side, next to its rank: most children
  whose token occurs lie elsewhere, and reading their full records costs more than all the rest.
"""

from nearcast.indexes.mbr_trie.index import ORDERS, PROBES, MbrTrie, MbrTrieOptions

__all__ = ["ORDERS", "PROBES", "MbrTrie", "MbrTrieOptions"]
