"""ap+."""

from nearcast.indexes.moving.ap_plus.index import ApPlusTree
from nearcast.indexes.moving.ap_plus.options import PRINTED, ApPlusOptions
from nearcast.indexes.moving.ap_plus.separate import ApPlusKeywordTree, ApPlusSpaceTree

__all__ = ["PRINTED", "ApPlusKeywordTree", "ApPlusOptions", "ApPlusSpaceTree", "ApPlusTree"]
