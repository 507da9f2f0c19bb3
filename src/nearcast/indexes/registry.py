"""The registry: index names, as users write them, to classes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from nearcast.columns import KINDS
from nearcast.errors import StorageError, UnknownName
from nearcast.indexes.ap_tree import ApTree
from nearcast.indexes.builder import Builder
from nearcast.indexes.keyword_first import KeywordFirst
from nearcast.indexes.lfilter import Lfilter
from nearcast.indexes.mbr_trie import MbrTrie
from nearcast.indexes.pt_quadtree import PtQuadtree
from nearcast.indexes.quadtrees import IqTree, RqTree, TrieQuadtree
from nearcast.indexes.ranked_pyramid import RankedPyramid
from nearcast.indexes.rtree import (
    IrTree,
    IrTree1,
    IrTree100,
    RtPlusPlusTree,
    RtPlusTree,
    RtTree,
    SpatialFirst,
)
from nearcast.indexes.scan import Scan
from nearcast.indexes.stamp import Stamp
from nearcast.indexes.trie_pyramid import TriePyramid
from nearcast.storage import holds_ranked, read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from nearcast.indexes.contract import Index

__all__ = ["DEFAULT", "RANKED_DEFAULT", "create", "get", "load", "names"]

DEFAULT = TriePyramid.name
"""The index of boolean subscriptions, unless another is chosen."""

RANKED_DEFAULT = RankedPyramid.name
"""The index of ranked subscriptions, unless another is chosen."""

_INDEXES: dict[str, type[Index]] = {
    index.name: index
    for index in (
        Scan,
        KeywordFirst,
        SpatialFirst,
        IrTree,
        IrTree1,
        IrTree100,
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
        RankedPyramid,
        Stamp,
    )
}


def names(kind: str | None = None) -> list[str]:
    """Return the names of all indexes, or of those that take one kind of subscriptions.

    Examples
    --------
    >>> "trie-pyramid" in names()
    True
    >>> "scan" in names("overlap")
    True
    """
    if kind is None:
        return sorted(_INDEXES)
    if kind not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    return sorted(
        name for name, index in _INDEXES.items() if any(kind in f.kinds for f in _forms(index))
    )


def get(name: str) -> type[Index]:
    """Return the class of an index."""
    if name not in _INDEXES:
        raise UnknownName("index", name, _INDEXES)
    return _INDEXES[name]


def create(name: str = DEFAULT, **options: Any) -> Builder:
    """Choose an index by name and options; ``build`` then makes it.

    An index is used for the kinds of subscriptions that it takes. Subscriptions of other kinds get
    the default index of their kind.

    Examples
    --------
    >>> create("trie-pyramid", child_size=100).options.child_size
    100
    >>> create("trie-pyramid", fanout=3)
    Traceback (most recent call last):
    ...
    nearcast.errors.UnknownName: unknown option of trie-pyramid 'fanout'; choose from: ...
    """
    forms = _forms(get(name))
    known = {form: [field.name for field in fields(form.Options)] for form in forms}
    valid = list(dict.fromkeys(option for names in known.values() for option in names))
    for option in options:
        if option not in valid:
            raise UnknownName(f"option of {name}", option, valid)
    builders = [
        Builder(form, form.Options(**{k: v for k, v in options.items() if k in known[form]}))
        for form in forms
    ]
    builders += [Builder(_INDEXES[d], _INDEXES[d].Options()) for d in (DEFAULT, RANKED_DEFAULT)]
    return replace(builders[0], others=tuple(builders[1:]))


def _forms(index: type[Index]) -> list[type[Index]]:
    """Return an index and the index of the same name for ranked subscriptions, if there is one."""
    return [index] if index.ranked_form is None else [index, index.ranked_form]


def load(folder: str | Path, *, verify: bool = True) -> Index:
    """Open a saved index of any kind, memory-mapped read-only."""
    arrays, meta = read_arrays(folder, "index", verify=verify)
    name = meta.get("index")
    if name not in _INDEXES:
        raise StorageError(f"{folder} holds an index {name!r}, which this version does not know")
    index = _INDEXES[name]
    if index.ranked_form is not None and holds_ranked(arrays):
        index = index.ranked_form
    return index.from_stored(arrays, meta, verify=verify)
