"""``trie-pyramid``, the default index: a keyword trie with a pyramid of boxes in every list.

Each clause is in exactly one list: that of its rarest token or, where enough clauses share their
two, three, ... rarest tokens, in a list further down a trie. A message looks up each of its tokens
and goes down to children whose tokens it has as well.

The clauses of a list form a pyramid, which resembles a packed R-tree. Close boxes are
stored together in leaves of up to 32; up to 32 leaves form a part, up to 32 parts a larger one, and
so on. Each block of 32 boxes is stored by side, as the upper 16 bits of the coordinates, so that
one vector comparison tells which of the boxes overlap the message, and which of them certainly do.
An entry of a leaf takes 16 bytes: its rounded box, its clause and the next token that must occur.
The next token decides most candidates. Only the rest needs the clause's own tokens or box.

The slot of a token also has a mask of 128 bits that says roughly where its clauses are. Most lists
of rare tokens have no bit in common with the message and are never read. ::

    slot      key (node, token) | target | cell mask
                                    |  (a pyramid or a node)
              +---------------------+------------------+
              v                                        v
    pyramid   inner block of boxes | part | part ...   node   signature | children | own pyramid
                                      |                                     |
                                      v                                     v
              leaf: 32 west, south, east, north |      child  token | slot, token | slot, ...
                    32 x (clause, next token)

`layout` describes the arrays, `build` fills them, `search` finds candidates, `match` verifies them,
`check` checks arrays that were read from disk, `trace` tells how a message is found.

This index is Nearcast's own and follows no paper. Decisions behind it:

- Pyramids of boxes, not of grids. In an earlier design a clause was in up to four cells of the
  grid level that fits its box. A message with a box opened thousands of cells. In a pyramid a
  clause is stored once, points and boxes are looked up in the same way, and a list of a thousand
  clauses costs a point one inner block and one or two leaves.
- Children only where they pay. On the ``tweets`` and ``places`` data sets that is nowhere; with
  300,000 clauses of world-wide boxes, children save 20 to 30 % of the time.
- Tried and not kept: leaves of 8 or 16 entries for lists of a few hundred (fewer bytes, more
  blocks, no gain); boxes as bytes relative to their leaf (12 bytes per entry and half the cache
  lines, but the message must be converted for each leaf: as fast for points, 10 % slower for long
  messages).

Cost over a million ``tweets`` subscriptions: a short message looks up 13 slots, opens 19 blocks and
decides 24 candidates, of which 16 match. That takes 0.42 us if everything is in the cache (40 %
tokens, 25 % inner blocks, 35 % leaves and candidates) and 1.0 us otherwise. The difference is about
100 cache lines at 5 ns each, which is what scattered prefetched reads cost on that machine.
"""

from nearcast.indexes.trie_pyramid.index import TriePyramid, TriePyramidOptions

__all__ = ["TriePyramid", "TriePyramidOptions"]
