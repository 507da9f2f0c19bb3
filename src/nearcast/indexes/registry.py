"""The registry: index names, as users write them, to classes."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from nearcast.errors import StorageError, UnknownName
from nearcast.indexes.ap_tree import ApTree
from nearcast.indexes.contract import Builder, Index
from nearcast.indexes.keyword_first import KeywordFirst
from nearcast.indexes.lfilter import Lfilter
from nearcast.indexes.mbr_trie import MbrTrie
from nearcast.indexes.pt_quadtree import PtQuadtree
from nearcast.indexes.quadtrees import IqTree, RqTree, TrieQuadtree
from nearcast.indexes.rtree import IrTree, RtPlusPlusTree, RtPlusTree, RtTree, SpatialFirst
from nearcast.indexes.scan import Scan
from nearcast.indexes.trie_pyramid import TriePyramid
from nearcast.storage import read_arrays

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEFAULT", "create", "get", "load", "names"]

DEFAULT = TriePyramid.name

_INDEXES: dict[str, type[Index]] = {
    index.name: index
    for index in (
        Scan,
        KeywordFirst,
        SpatialFirst,
        IrTree,
        RtTree,
        RtPlusTree,
        RtPlusPlusTree,
        MbrTrie,
        PtQuadtree,
        Lfilter,
        ApTree,
        IqTree,
        RqTree,
        TrieQuadtree,
        TriePyramid,
    )
}


def names() -> list[str]:
    """Return the names of all indexes.

    Examples
    --------
    >>> "trie-pyramid" in names()
    True
    """
    return sorted(_INDEXES)


def get(name: str) -> type[Index]:
    """Return the class of an index."""
    if name not in _INDEXES:
        raise UnknownName("index", name, _INDEXES)
    return _INDEXES[name]


def create(name: str = DEFAULT, **options: Any) -> Builder:
    """Choose an index by name and options; ``build(clauses)`` then makes it.

    Examples
    --------
    >>> create("trie-pyramid", child_size=100).options.child_size
    100
    >>> create("trie-pyramid", fanout=3)
    Traceback (most recent call last):
    ...
    nearcast.errors.UnknownName: unknown option of trie-pyramid 'fanout'; choose from: ...
    """
    index = get(name)
    valid = [field.name for field in fields(index.Options)]
    for option in options:
        if option not in valid:
            raise UnknownName(f"option of {name}", option, valid)
    return Builder(index, index.Options(**options))


def load(folder: str | Path, *, verify: bool = True) -> Index:
    """Open a saved index of any kind, memory-mapped read-only."""
    arrays, meta = read_arrays(folder, "index", verify=verify)
    name = meta.get("index")
    if name not in _INDEXES:
        raise StorageError(f"{folder} holds an index {name!r}, which this version does not know")
    return _INDEXES[name].from_stored(arrays, meta, verify=verify)
