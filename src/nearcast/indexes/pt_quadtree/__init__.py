"""``pt-quadtree``: a quadtree whose nodes know the pivotal tokens of all clauses below them.

Yu, Li and Feng, "A cost-based method for location-aware publish/subscribe services" (CIKM 2015),
section 4. The *pivotal tokens* of a node's clauses are a small set of tokens of which every clause
has one, chosen greedily. A clause is listed in its node under its pivotal token; a message reads
only the lists of its own tokens, and opens a child only if one of its tokens is pivotal there::

    node    region | first child, parent | clauses listed | split size or push flag
              |
              +--> sets   token -> one bit for each child that has it, and one for own lists
              |
              +--> lists  token -> start, size and capacity in:
                            |
                            v
            entry       box | clause | three other tokens     one per clause and list, end to end
            entry_rank  rank of the first token               only if clauses have labels

A region is a rectangle of whole units, borders included; its four children (south-west, south-east,
north-west, north-east) have no unit in common, so a point lies in exactly one leaf. With
``place="leaf"`` a clause is listed in every leaf its box overlaps. With ``place="mx-cif"`` it is
listed once, in the smallest region that contains its box, unless that node *pushes*: a build spends
extra entries on pushing the lists of inner nodes down to the leaves, best gain per entry first.

A clause that is listed in several leaves is reported by the leaf with the south-west corner of the
overlap of message and box. Leaves that grow too large are split; the tree is built again when a
third of all clauses were removed since it was built, or a clause lies outside its region.

A token with the bits of all four children is in the paper's *cover set* of a node, other tokens are
in its non-cover set. What differs from the paper:

- Children keep the tokens that their parent covers. The paper removes them; updates need them.
- A covered token does not open all descendants: a child has the token, but not each of its leaves.
- Lists are grouped by pivotal token.
- A deleted entry is not marked: the entries after it in its list move up.
"""

from nearcast.indexes.pt_quadtree.index import PLACES, PtQuadtree, PtQuadtreeOptions

__all__ = ["PLACES", "PtQuadtree", "PtQuadtreeOptions"]
