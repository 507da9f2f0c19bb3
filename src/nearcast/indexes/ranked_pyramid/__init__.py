"""``ranked-pyramid``, the default index of ranked subscriptions.

A subscription matches if its score, text and space together, reaches its threshold. The fewer of
its tokens a message shares, the nearer it must be. So every subscription becomes a few *entries*: a
token, and a box around all places that are near enough if this token is the first one shared (the
heaviest first). An entry needs no box if its text is enough anywhere on earth, and no token if its
place is enough. A message looks up each of its tokens, and the entries without a token. The boxes
of a list form a pyramid, as in ``trie-pyramid``, and are compared 32 at a time.

Of all entries of a subscription that a message finds, exactly one is accepted: the one whose token
is the first shared. So nothing is found twice, and no set of seen rows is needed. What decides
this, and the score, is in the *record* of the subscription, one cache line. ::

    slot      token | target | cell mask            (as in trie-pyramid; a target has a head if the
                        |                            list has entries without a box)
                        v
    list      head: counts, cells | sole entries | words without a box | pyramid
                                                                           |
                                                                           v
              leaf: 32 west, south, east, north | 32 words
                                                     |
              word: record, position of the token, flags, two hashes
                        |
                        v
    record    place, distance or region | p, q | W | row | seven tokens

A *sole entry* is a subscription of one token that is enough anywhere: a sure match. Its score is
its text share p unless the message is near, which a rounded box beside it tells. Three of four
matches of tweets within 100 km are such; 32 of them are written at once, and they have no record.
The hashes of a word drop entries that need another token which the message does not have.

`entries` is the reduction and its refinements. `layout` describes the arrays, `build`
fills them, `tokens` and `match` find and accept candidates, `score` scores them, `check` checks
arrays that were read from disk. Subscriptions that do not fit a record (more than seven tokens,
exact shapes, regions of several boxes) are scored by their columns.

The bounds are those of stamp (Hu, Liu, Li, Feng and Tan: A Location-Aware Publish/Subscribe
Framework for Parameterized Spatio-Textual Subscriptions, ICDE 2015); the reduction and the layout
are Nearcast's own. Decisions behind it:

- Boxes, not a hierarchy of regions with reaches per token: an entry is one comparison among 32.
- Everything that runs for every message is compiled into one function, with unsigned positions:
  signed ones may count from the end, and checking that kept loops from being vectorized.
- The table of a message's tokens has no clashes: the hash is changed until that is so.
- Candidates are accepted without branches, put side by side, and scored in vector instructions,
  with the same operations in the same order as everywhere else, so that scores have the same bits.
- Where all tokens weigh the same, the rarest comes first. Before, `dice` took three times as long.
- Regions note the least area of a message that can cover enough of them. Before, messages with
  small boxes had eight candidates a match instead of 1.2, and took four times as long.
- Tried and not kept: entries of their own for long messages where T falls with their length (a
  fifth more bytes, 3 to 10 % less time); other limits for merging entries (1.0 to 1.3: no
  difference).

Cost over a million ``tweets`` subscriptions with the ranges of the paper and 100 km, in one thread:
18 to 20 ns a match for messages of 12 tokens (460 matches, 1.16 candidates a match), 15 ns for 41
tokens (1,435 matches). 118 bytes a subscription: records 61, lists 40, slots 17, sole entries 1.
Building takes less than 2 seconds.
"""

from nearcast.indexes.ranked_pyramid.index import RankedPyramid, RankedPyramidOptions

__all__ = ["RankedPyramid", "RankedPyramidOptions"]
