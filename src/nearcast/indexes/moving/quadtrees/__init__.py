"""``iq+-tree`` and ``rq+-tree``: the quadtrees of clauses, with living messages in their cells.

Wang, Zhang, Zhang, Lin and Wang, VLDB Journal 2015 (the AP-Tree paper), section 5.2.1. Clauses are
in the arrays of `nearcast.indexes.quadtrees`, in the cells that the cost model chooses. When a
clause moves, its best cells are found again: it leaves some, enters others, and gets another
box in the rest. Messages have the same structure as clauses::

    iq+-tree   cell  -> table: token -> messages     in every cell around a message, all its tokens
    rq+-tree   token -> list of messages, and, if the token has a quadtree, a list in every cell

A message is stored whether or not a clause of its tokens is there, so that a clause which comes to
a cell finds its messages. When a cell is split, its messages are dealt to the children; it keeps
its own. So the cells that a clause is in have every message within its box, each once: what a
clause gains and loses is found in the lists of its key in the cells of its old and its new box. In
cells that both boxes cover, nothing changes.

Many cells with children have no clauses: a quadtree over the world begins with a chain of them if
all clauses are in one city. Such cells are *closed* when the index is built, and messages pass them
by. A closed cell that a clause comes to is opened: the living messages in it are stored there.

::

    header     int32[nodes, 2]     iq+-tree: the table of each cell, from tokens to messages
    list_of    int32[nodes]        rq+-tree: the list of each cell; that of a root is its token's
    is_open    bool[nodes]         which cells have messages
    pair       int32[entries, 2]   the key of an entry, and its next token, `NO_TOKEN` if none

The boolean indexes keep all tokens of a clause, rarest first; here they see two, and the others are
verified afterwards by the entry's record. Everything is rebuilt when the clauses have doubled: the
probabilities of the cost model are those of the clauses and messages at that time. The statistics
of an option are only used for where messages come from.

What differs from the paper, beyond the differences of the boolean indexes: it does not say what
happens to messages when a cell is split, and stores them in all cells. It re-assigns a clause to
all of its new cells; those that stay the same are only given the new box here.

Modules: `clauses` (clauses that move), `messages` (storing and dealing out), `shift` (comparing),
`index`.
"""

from nearcast.indexes.moving.quadtrees.index import IqPlusTree, RqPlusTree

__all__ = ["IqPlusTree", "RqPlusTree"]
