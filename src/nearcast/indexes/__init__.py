"""Indexes: the contract, the registry, and one file per index.

>>> from nearcast import indexes
>>> "trie-pyramid" in indexes.names()
True
>>> builder = indexes.create("trie-pyramid", list_size=32)
"""

from nearcast.indexes.boolean import BooleanIndex, Found
from nearcast.indexes.contract import Builder, Index, UpdatableIndex
from nearcast.indexes.registry import DEFAULT, create, get, load, names

__all__ = [
    "DEFAULT",
    "BooleanIndex",
    "Builder",
    "Found",
    "Index",
    "UpdatableIndex",
    "create",
    "get",
    "load",
    "names",
]
