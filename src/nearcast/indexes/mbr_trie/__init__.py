"""mbr_trie."""

from nearcast.indexes.mbr_trie.index import MbrTrie, MbrTrieOptions

__all__ = ["MbrTrie", "MbrTrieOptions"]
