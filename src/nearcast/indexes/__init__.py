"""Indexes: the contract, the registry, and one file per index.

>>> from nearcast import indexes
>>> "trie-pyramid" in indexes.names()
True
>>> builder = indexes.create("trie-pyramid", list_size=32)
"""

from nearcast.indexes.contract import Builder, Found, Index, UpdatableIndex
from nearcast.indexes.registry import DEFAULT, create, get, load, names

__all__ = [
    "DEFAULT",
    "Builder",
    "Found",
    "Index",
    "UpdatableIndex",
    "create",
    "get",
    "load",
    "names",
]
