"""ap_tree."""

from nearcast.indexes.ap_tree.index import ApTree, ApTreeOptions

__all__ = ["ApTree", "ApTreeOptions"]
