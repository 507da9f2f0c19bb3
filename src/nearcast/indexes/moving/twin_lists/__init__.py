"""``twin-lists``, the default moving index."""

from nearcast.indexes.moving.twin_lists.index import TwinLists, TwinListsOptions

__all__ = ["TwinLists", "TwinListsOptions"]
