"""``ss-index`` and ``kk-index``: a grid for clauses that move, and for living messages.

Wang, Zhang, Zhang, Lin and Wang, VLDB Journal 2015 (the AP-Tree paper), section 5.2.1. Both have a
grid of 40 by 40 cells over the extent of the subscriptions. A clause stands in every cell that its
box touches, under its key, which is its rarest token; a message stands in its cell, under each of
its tokens. The ss-index goes by place first, the kk-index by token first::

    ss-index   cell  -> table: token -> clauses      and the same for messages
    kk-index   token -> table: cell  -> clauses

Both are the same arrays. The owner of a table is a cell (``header`` has a row for each), or a token
(``header`` is the table of tokens)::

    token     | token | clauses | messages |         how often tokens occur
    header    ... | clause table: start, count | message table: start, count | ...
    slot      | key | value |                        tables: eight slots to a cache line
    list      entry[capacity] signature[capacity]    of clauses
              x[capacity] y[capacity] stamp[capacity]    of messages

A value is the number of a list, or the only item itself. A message looks up its tokens in its cell,
compares the signatures in the lists, and verifies boxes and tokens of what is left by the records
of the entries. A clause that moves from one box to another looks up its key in the cells that
either box touches, but for those that are strictly inside of both, where nothing changes, and
compares the points there with both boxes. It leaves the cells that only the old box touches and
enters those that only the new one does. The kk-index looks at all cells of a token instead, if they
are fewer.

Places outside of the extent are in the cells at the border: which cell a place is in grows with its
coordinates, so whatever is in both a box and a cell is found. A clause without tokens stands under
a token that no word has; from the first such clause on, every message stands there, too.

What differs from the paper: lists of clauses have no boxes, so a move within the same cells changes
no list. Clauses and messages have tables of their own, since most places have messages only. The
paper is silent on both, and on how a cell without messages or clauses is found to be so. When there
are four times as many clauses as when the extent was last looked at, it is looked at again, and
everything is put into a new grid if it has changed by much.

Modules, from the bottom up: `cells`, `layout` (the arrays), `match` (messages that come or expire),
`shift` (clauses that move), `index`.
"""

from nearcast.indexes.moving.grids.index import GridOptions, KkIndex, SsIndex

__all__ = ["GridOptions", "KkIndex", "SsIndex"]
