"""The order in which an index looks at the tokens of a clause, usually the rarest first.

`TokenOrder` counts how often tokens occur in clauses and sorts the tokens of each clause by it. The
R-trees, the quadtrees, ``pt-quadtree`` and ``keyword-first`` use it. `order` has the class,
`kernels` counts and sorts, `cover` is the greedy cover of the order ``df``.
"""

from nearcast.indexes.token_order.order import TokenOrder

__all__ = ["TokenOrder"]
