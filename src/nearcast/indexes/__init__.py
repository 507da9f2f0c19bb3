"""Indexes: the contract, the registry, and one file per index.

>>> from nearcast import indexes
>>> "trie-pyramid" in indexes.names()
True
>>> builder = indexes.create("trie-pyramid", list_size=32)
"""

from nearcast.indexes.boolean import BooleanIndex, Found
from nearcast.indexes.builder import Builder
from nearcast.indexes.contract import Index, UpdatableIndex
from nearcast.indexes.ranked import RankedIndex
from nearcast.indexes.registry import (
    DEFAULT,
    RANKED_DEFAULT,
    create,
    get,
    load,
    names,
    register,
)

__all__ = [
    "DEFAULT",
    "RANKED_DEFAULT",
    "BooleanIndex",
    "Builder",
    "Found",
    "Index",
    "RankedIndex",
    "UpdatableIndex",
    "create",
    "get",
    "load",
    "names",
    "register",
]
