"""Indexes for boolean subscriptions: a region, and tokens that must or must not occur.

- `scan` defines the answer: it looks at everything, in plain NumPy, and shares no kernel.
- `trie_pyramid` is the default.
"""
