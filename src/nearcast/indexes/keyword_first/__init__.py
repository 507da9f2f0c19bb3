"""``keyword-first``: inverted lists by the rarest token, then a check of the place.

The keyword-first method of the rt-tree paper (Li, Wang, Wang and Feng, KDD 2013, section 2.2) over
the ranked-key lists of Yan and Garcia-Molina (TODS 1994).

Each clause is in one list only, that of its rarest token by the frequencies at the time it was
added. A message looks up the list of each of its tokens and scans it whole, wherever the message
is: the boxes of sixteen entries are compared at once, then the second-rarest token of those that
overlap, then, for clauses of three tokens and more, all tokens. A clause without tokens is in the
list of `NO_TOKEN`, which every message looks up::

    slot   | token | start | size | capacity |    a hash table, open addressing by token
                       |
    entry  ... [ boxes in blocks of 16 | clause, next token | ... ] ...    the pool of lists

    first  the token in whose list each clause is, to find the clause when it is deleted

`nearcast.compiled.box_lists` describes a list in the pool and scans it.

The index changes in place. A full list moves to the end of the pool; when the pool is full, all
lists are packed into a larger one. Frequencies follow inserts and deletes, but clauses that are
in the index stay in their lists.

It differs from the paper in the comparison of sixteen boxes at once, which makes it by far the
strongest of the baselines: with a million subscriptions, it takes two to three times as long as
the default index for short messages. Its cost grows with the length of the lists, whatever the
boxes: with ten million subscriptions, five to thirteen times as long.
"""

from nearcast.indexes.keyword_first.index import KeywordFirst

__all__ = ["KeywordFirst"]
