"""The ``ap-tree``: splits clauses by keywords or by space, whichever should cost less.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: efficiently support location-aware Publish/Subscribe",
VLDB Journal 2015, section 3. All tokens have one order, and the *rank* of a token is its place in
it. A node with more clauses than a leaf may have is split in one of two ways. A *keyword node* at
offset ``l`` sorts clauses into *cuts*, intervals of ranks, by their ``l``-th rank; a message opens
the cuts that its ranks hit. A *space node* sorts clauses into the cells of an uneven grid; a clause
lies in every cell that it touches, and a message opens the cells that it touches. The last child
of a node, the *dummy*, takes the clauses without an ``l``-th token, or those that contain the whole
region; every message opens it. A cost model picks the way by the number of clauses that a message
is expected to be compared with. Inserts and deletes change leaves in place; nodes whose clauses
have drifted are rebuilt.

All nodes lie in one int32 array, in units of 8 values; a link is the number of a unit, 0 for none::

    arena         | root link ... | node | node | ... | padding |

    leaf          kind size capacity split_above region[4]
                  | keys | west | south | east | north | (second rank, clause) per entry |
    keyword node  kind parts 0 offset count built changes children region[4] length ...
                  | highest rank per cut | lowest | links | clauses now | clauses when built |
    space node    the same header, with its columns
                  | column splits | row splits | links | clauses now | clauses when built |

Beside them are ``state`` (counters and options), a hash table from tokens to ranks, the ranks of
all clauses, and the sample of messages, if one was given.

What differs from the paper:

- Rare tokens come first by default, and a keyword node may have a cut for nearly every token: with
  the paper's order and 200 cuts, leaves are full of clauses of other tokens.
- An entry has a *key*, a rare rank of its clause. Together with a comparison of sixteen boxes at a
  time it rules out most entries before their clause is read.
- Messages walk down in groups of eight, with prefetching, and leaves are scanned afterwards.
- The cost model has prices for visits and for copies, and messages have several tokens.
- The optimal keyword partition takes ``f V log V`` steps for ``f`` cuts of ``V`` tokens instead of
  ``f V V`` (`nearcast.compiled.partition.optimal_cuts`).
- Divergence is computed with one added to every count, after an eighth of a node's clauses changed.

The modules, in reading order: `layout` (nodes), `ranks` (tokens), `cost` (how to split), `motion`
(what moving clauses add to that), `build`, `walk` and `match` (messages), `update` (inserts and
deletes), `check` (arrays from disk), `index` (the class). The trees of moving subscriptions
(`nearcast.indexes.moving.ap_plus`) are made of the same nodes; children have a fourth value there.
"""

from nearcast.indexes.ap_tree.index import ApTree, ApTreeOptions

__all__ = ["ApTree", "ApTreeOptions"]
