"""``twin-lists``, the default moving index: clauses and messages stand under the same tokens.

A structure that does not depend on the box needs no update when the box moves. Each token has a
*header* with two lists: the clauses whose *key* it is, and the living messages that have it. A
message is compared with the clauses of its tokens. A clause that moves stays where it is: its box
is overwritten, and the messages of its key near the old and the new box are compared. ::

    table     token -> header                 (a hash table)
    header    one cache line per token
              clauses: chunk, size, class, debt | messages: list or directory, total
                 |                                   |
                 v                                   v
    leaf      west[32] south[32]              list   x[8] y[8] stamp[8] | x[8] y[8] stamp[8] | ...
              east[32] north[32]
              (entry, signature)[32]          directory, of many messages
                                                splits of columns   | a | b | c |
    many clauses                                splits of rows      | d | e | f | in each column
      bounds[32] | bounds[32] | ...             heads of tiles      list, list, list ...
      leaf | leaf | leaf | ...

    record of an entry     exact box, signature, tokens, key, place in the list
    record of a message    exact place, signature, tokens                        (half a line each)

Places in lists are rounded to 16 bits within a frame around all subscriptions and messages, so that
one vector comparison takes 8 messages or 32 clauses. Rounding keeps the order. Most candidates are
decided without exact places, and what is outside of the frame costs time, never an answer.

`layout` describes the arrays, `leaves` the clauses of a token, `postings` and `directory` its
messages, `lanes` the comparisons; `match`, `move`, `post` and `place` are what happens; `frame`
chooses the frame, and `index` is the class.

This index is Nearcast's own and follows no paper. Decisions behind it:

- The key of a clause is its token with the fewest messages: a clause is compared, and a move reads
  messages, as often as messages have the key. A key that has 8 times the messages of another token
  of its clause is given up. All keys are looked at when the number of messages has grown fourfold,
  and one in every 64 clauses that move.
- Bounds of leaves only grow when clauses move. They are repaired by *regret*: a leaf that is opened
  in vain adds to the debt of its list, and a list is sorted when its debt exceeds 16 leaves per
  clause. Lists that nobody reads are never sorted, and sorting costs no more than was wasted.
- Messages die in place, by a bit. A list that is full drops its dead; a sweep copies all lists to a
  new pool without them. Lists get half as much space again as they need, which lasts for about a
  lifetime of messages: without it every message enlarged one list.
- Loops over memory are staged in chunks: each stage prefetches what the next one reads. Calls with
  many arrays cost more than the work of a posting, so stages are inlined.
- Tried and not kept: tiles of 12 messages instead of 24 (fewer comparisons, more tiles, no gain);
  chunks of 32 and 64 messages instead of 16 (no difference); a mask of 8 x 8 cells in each header
  that tells where its clauses are (a third fewer leaves, but no faster: clauses that move fill the
  mask, and lists must be sorted to clear it).

Cost with a million subscriptions of 1 to 5 words and 500,000 living messages of 10 words, on one
core: a move reads 1.2 lists or tiles (11 cache lines), examines 4.5 messages and changes 4; that
takes 0.4 us, and 0.55 us with the checks and the numbers of messages around it. A message looks up
10 headers, opens 12 leaves and compares 10 clauses in 1.2 us; storing it takes 1.1 us.
"""

from nearcast.indexes.moving.twin_lists.index import TwinLists, TwinListsOptions

__all__ = ["TwinLists", "TwinListsOptions"]
