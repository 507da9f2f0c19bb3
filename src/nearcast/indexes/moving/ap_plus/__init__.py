"""The ``ap+-tree``: an ap-tree whose clauses move, with the living messages in its slots.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: efficiently support location-aware Publish/Subscribe",
VLDB Journal 2015, section 4. Clauses are in an ap-tree (`nearcast.indexes.ap_tree`, whose kernels
and nodes these are). A *slot* is where the tree names a child: the root's link, and every child of
an inner node, whether or not there is a node. Every slot has a list of messages, so that clauses
and the messages that they may match are together::

    inner node    ... | links | clauses now | clauses when built | lists |
    root slot     arena[0] its link, arena[3] its list

    lists         x[capacity] y[capacity] stamp[capacity] signature[capacity]   per list
    record        west south east north | signature first key place             per clause
    cell          node child next                                  node lists, if they are kept

*A message arrives*: it is matched as in the ap-tree, then walks down and is put into the list of
each slot where its walk ends. *A clause moves*: one walk finds the slots of its old and its new
box. The lists of slots where the boxes differ are read, sixteen messages at a time: those in the
old box only end, those in the new box only begin. Then the clause leaves the leaves that only the
old box reaches, enters those that only the new one reaches, and gets its new box in the others.
A clause that is inserted comes from nowhere, one that is deleted goes there. *A message expires*:
it is matched once more; its copies stay in lists until these are full or swept.

What differs from the paper:

- The paper stores a message in the leaves that it visits. A leaf that is made later, a cut that is
  widened or a node that is rebuilt would then miss messages. Here a message is stored wherever a
  clause that it matches could ever be: all its tokens have ranks, cuts tile the ranks without gaps,
  dummies and empty children have lists.
- At the limit on copies, a message stays in the list of a slot with an inner node, and moves read
  the lists of all slots on their way. The limit holds for a message as a whole, also when nodes are
  rebuilt.
- The conditions of algorithm 6 are misprinted. Where both boxes have the same points in a slot's
  region, nothing is read; at the border of the tree, regions have no end. Dummies, which the paper
  leaves out of its moves, are slots like others.
- Node lists are an option. A walk with both boxes at the same time finds the same slots.
- A rebuilt node keeps its messages: they walk down again from its slot, and which of their ranks
  count there follows from the cuts above. So a posting does not keep it, but a signature of the
  message's tokens, which rules out most others without a look at the message.
- Nodes are rebuilt when they have doubled, or have diverged by more than chance explains.
- Costs of moves (`nearcast.indexes.ap_tree.motion`) are weighed against comparisons, and have no
  clock: they depend on how many moves there are for a message.
- Rare tokens come first and nodes have up to 16,000 cuts by default; `PRINTED` has the paper's
  options.

``ap+k-tree`` and ``ap+s-tree`` (section 5.2.2) have the same tree without lists. Their messages are
in a grid of 40 by 40 cells under all their tokens: by token and then cell, or by cell and then
token. A clause reads the lists of its rarest token, in the cells where its boxes may differ. The
grid covers the subscriptions; when there are four times as many as when their extent was last
looked at, it is looked at again, and all messages are stored again if it has changed by much.

The modules, in reading order: `ways` (slots of a clause), `store` (slots of a message), `places`
(node lists), `change` (leaves and counts), `renew` (rebuilding with messages), `ahead`
(prefetching), `shift` (a move as a whole), `ranks`, `options`, `index` (the class), `grids` and
`separate` (the two others).
"""

from nearcast.indexes.moving.ap_plus.index import ApPlusTree
from nearcast.indexes.moving.ap_plus.options import PRINTED, ApPlusOptions
from nearcast.indexes.moving.ap_plus.separate import ApPlusKeywordTree, ApPlusSpaceTree

__all__ = ["PRINTED", "ApPlusKeywordTree", "ApPlusOptions", "ApPlusSpaceTree", "ApPlusTree"]
