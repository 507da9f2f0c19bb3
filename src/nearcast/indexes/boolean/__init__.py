"""Indexes for boolean subscriptions: a region, and tokens that must or must not occur.

- `scan` defines the answer: it looks at everything, in plain NumPy, and shares no kernel.
- `trie_pyramid` is the default.
- `keyword_first`, `spatial_first` and `ir_tree` are the baselines of the rt-tree papers, `rt_tree`,
  `rt_plus_tree` and `rt_plus_plus_tree` their own trees. All change in place (`changing`). All
  but the first stand on one R-tree (`rtree`, `tree_index`) and differ in what its nodes know of
  tokens; `token_order` says which token of a clause comes first.
- `mbr_trie` and `pt_quadtree` put words first and space first: a trie of tokens with bounds, a
  quadtree with pivotal tokens. They change in place, too.
"""
