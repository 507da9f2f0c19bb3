"""quadtrees."""

from nearcast.indexes.quadtrees.iq_tree import IqTree
from nearcast.indexes.quadtrees.rq_tree import RqTree
from nearcast.indexes.quadtrees.trie_quadtree import TrieQuadtree

__all__ = ["IqTree", "RqTree", "TrieQuadtree"]
