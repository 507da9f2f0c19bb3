"""``lfilter``: an mbr-trie and a pt-quadtree over the same clauses, chosen per message by cost.

LFilter of Yu, Li and Feng, "A cost-based method for location-aware publish/subscribe services"
(CIKM 2015), section 5. Each message is filtered by the part that is expected to cost less; if that
is the quadtree, the trie prunes the lists that it leaves, where that pays::

                         message
                            |
              cost of the trie < cost of the quadtree?         cost.py
                  | yes                   | no
                  v                       v
              mbr-trie               pt-quadtree: lists of candidates
                  |                       |
                  |          verify directly, or prune         prune.py
                  |          by going down the trie with
                  |          the label range of each node
                  v                       v
                        matching clauses

    trie.*  quadtree.*   the arrays of the two parts (`nearcast.indexes.mbr_trie`,
                         `nearcast.indexes.pt_quadtree`), without ``alive``
    model.weight         by node of the quadtree: what messages are expected to read there
    model.token_cost     what a token of a message costs with the trie
    alive                which subscription rows are in the index

The trie labels every token set in the order of its nodes, and the lists of the quadtree are ordered
by the labels of their clauses. So a node's label range cuts the part out of every list that can
match below it. When the trie is rebuilt, labels change their order, and the quadtree is rebuilt.

List pruning starts with runs of entries that have the same first token, whose rank is stored next
to the entries: runs whose token does not occur are skipped. For short tweets this alone leaves an
eighth of the entries. It saves no time over a million subscriptions, though: lists are short, since
the quadtree groups them by pivotal token, and looking up the ranks of the message costs more. Only
runs of 512 and more go down the trie, those of all lists together; for shorter ones, the binary
searches among labels cost more than verifying them.

What differs from the paper: costs are nanoseconds and include verification, which the paper leaves
out of its comparison.
"""

from nearcast.indexes.lfilter.index import (
    FILTERS,
    VERIFIES,
    Explanation,
    Lfilter,
    LfilterOptions,
)

__all__ = ["FILTERS", "VERIFIES", "Explanation", "Lfilter", "LfilterOptions"]
