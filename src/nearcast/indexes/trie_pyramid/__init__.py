"""trie_pyramid."""

from nearcast.indexes.trie_pyramid.index import TriePyramid, TriePyramidOptions

__all__ = ["TriePyramid", "TriePyramidOptions"]
