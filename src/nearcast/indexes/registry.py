"""The registry: index names, as users write them, to classes.

An index of one's own is known after `register`, or without it if its package has an entry point in
the group ``nearcast.indexes``: then the command line and the workers of Spark know it, too. Its
name may also be written ``module:Class``.
"""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from nearcast.columns import KINDS
from nearcast.errors import InvalidInput, StorageError, UnknownName
from nearcast.indexes.builder import Builder
from nearcast.indexes.contract import Index
from nearcast.loading import load_object
from nearcast.storage import holds_ranked, read_arrays

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DEFAULT",
    "RANKED_DEFAULT",
    "create",
    "get",
    "load",
    "names",
    "option_classes",
    "register",
]

GROUP = "nearcast.indexes"
"""The group of entry points that name indexes."""

T = TypeVar("T", bound=Index)

DEFAULT = "trie-pyramid"
"""The index of boolean subscriptions, unless another is chosen."""

RANKED_DEFAULT = "ranked-pyramid"
"""The index of ranked subscriptions, unless another is chosen."""

_OURS = {
    "scan": "scan:Scan",
    "keyword-first": "keyword_first:KeywordFirst",
    "spatial-first": "rtree:SpatialFirst",
    "ir-tree": "rtree:IrTree",
    "ir-tree-1": "rtree:IrTree1",
    "ir-tree-100": "rtree:IrTree100",
    "rt-tree": "rtree:RtTree",
    "rt+-tree": "rtree:RtPlusTree",
    "rt++-tree": "rtree:RtPlusPlusTree",
    "mbr-trie": "mbr_trie:MbrTrie",
    "pt-quadtree": "pt_quadtree:PtQuadtree",
    "lfilter": "lfilter:Lfilter",
    "ap-tree": "ap_tree:ApTree",
    "iq-tree": "quadtrees:IqTree",
    "rq-tree": "quadtrees:RqTree",
    "trie-quadtree": "quadtrees:TrieQuadtree",
    "trie-pyramid": "trie_pyramid:TriePyramid",
    "ranked-pyramid": "ranked_pyramid:RankedPyramid",
    "stamp": "stamp:Stamp",
}
"""Where our indexes are: each is imported when it is first asked for."""

_registered: dict[str, type[Index]] = {}


def _known() -> list[str]:
    return sorted({*_OURS, *_registered})


def _find(name: str) -> type[Index] | None:
    """Return the class of an index that is ours or registered; None if there is none."""
    if name in _OURS and name not in _registered:
        _registered[name] = load_object("index", f"nearcast.indexes.{_OURS[name]}")
    return _registered.get(name)


def register(index: type[T]) -> type[T]:
    """Let an index of one's own be known by its name, and return it; works as a decorator too.

    `Engine`, `create` and, in the same process, ``nearcast match`` and ``bench compare`` know it
    then. `nearcast.testing.check_index` tells whether it is right.

    Parameters
    ----------
    index
        A class that extends `Index` and has a ``name``.

    Raises
    ------
    InvalidInput
        When it is no such class, or when another index has its name.

    Notes
    -----
    As a decorator:

        @nearcast.indexes.register
        class MyIndex(BooleanIndex):
            name = "my-index"

        Engine("my-index")
    """
    if not (isinstance(index, type) and issubclass(index, Index)):
        raise InvalidInput("index", index, "must be a class that extends nearcast.indexes.Index")
    name = getattr(index, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput("name", name, f"must be the name of the index {index.__name__}")
    known = _find(name)
    if known is not None and (known.__module__, known.__qualname__) != (
        index.__module__,
        index.__qualname__,
    ):
        raise InvalidInput("name", name, f"is the name of {known.__qualname__}; choose another")
    _registered[name] = index
    return index


@cache
def _find_others() -> None:
    """Register the indexes that other packages bring."""
    for point in entry_points(group=GROUP):
        try:
            register(point.load())
        except Exception as error:
            problem = f"the index {point.name} ({point.value}) cannot be used: {error}"
            warnings.warn(problem, RuntimeWarning, stacklevel=2)


def _find_any(name: str) -> type[Index] | None:
    """Return the class of an index, of other packages too; None if there is none."""
    found = _find(name)
    if found is None:
        _find_others()
        found = _find(name)
    return found


def names(kind: str | None = None) -> list[str]:
    """Return the names of all indexes, or of those that take one kind of subscriptions.

    Parameters
    ----------
    kind
        ``boolean``, ``proximity`` or ``overlap``; all if left out.

    Examples
    --------
    >>> "trie-pyramid" in names()
    True
    >>> "scan" in names("overlap")
    True
    """
    _find_others()
    if kind is None:
        return _known()
    if kind not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    return [name for name in _known() if any(kind in form.kinds for form in _forms(get(name)))]


def get(name: str) -> type[Index]:
    """Return the class of an index.

    Parameters
    ----------
    name
        Its name, or ``module:Class`` to load and register one of one's own.

    Raises
    ------
    UnknownName
        When there is no such index.

    Examples
    --------
    >>> get("scan").summary
    'looks at everything; defines the answer'
    """
    if ":" in name:
        return register(load_object("index", name))
    found = _find_any(name)
    if found is None:
        raise UnknownName("index", name, _known())
    return found


def create(name: str = DEFAULT, **options: Any) -> Builder:
    """Choose an index by name and options; ``build`` then makes it.

    An index is used for the kinds of subscriptions that it takes. Subscriptions of other kinds get
    the default index of their kind.

    Parameters
    ----------
    name
        A name that `names` lists, or ``module:Class``.
    options
        Options of the index; ``nearcast indexes`` lists them.

    Returns
    -------
    Builder
        The index, chosen but not built.

    Raises
    ------
    UnknownName
        When there is no such index, or when it has no such option.

    Examples
    --------
    >>> create("trie-pyramid", child_size=100).options.child_size
    100
    >>> create("trie-pyramid", fanout=3)
    Traceback (most recent call last):
    ...
    nearcast.errors.UnknownName: unknown option 'fanout' of trie-pyramid; choose from: ...
    """
    forms = _forms(get(name))
    known = {form: [field.name for field in fields(form.Options)] for form in forms}
    valid = list(dict.fromkeys(option for names in known.values() for option in names))
    for option in options:
        if option not in valid:
            raise UnknownName("option", option, valid, of=name)
    builders = [
        Builder(form, form.Options(**{k: v for k, v in options.items() if k in known[form]}))
        for form in forms
    ]
    builders += [Builder(get(d), get(d).Options()) for d in (DEFAULT, RANKED_DEFAULT)]
    return replace(builders[0], others=tuple(builders[1:]))


def option_classes(name: str) -> list[type]:
    """Return the dataclasses with the options of an index, one for each of its forms."""
    return [form.Options for form in _forms(get(name))]


def _forms(index: type[Index]) -> list[type[Index]]:
    """Return an index and the index of the same name for ranked subscriptions, if there is one."""
    return [index] if index.ranked_form is None else [index, index.ranked_form]


def load(folder: str | Path, *, verify: bool = True) -> Index:
    """Open a saved index of any kind, memory-mapped read-only.

    Parameters
    ----------
    folder
        What `Index.save` wrote.
    verify
        Whether to compare every byte with its checksum first, and to check the structure.

    Raises
    ------
    StorageError
        When the folder is damaged, of another version, or holds no index.

    Examples
    --------
    >>> import tempfile
    >>> from nearcast.columns import Clauses
    >>> folder = tempfile.mkdtemp()
    >>> create("keyword-first").build(Clauses.of([[1]], [[0, 0, 9, 9]])).save(folder)
    >>> load(folder).name
    'keyword-first'
    """
    arrays, meta = read_arrays(folder, "index", verify=verify)
    name = str(meta.get("index"))
    index = _find_any(name)
    if index is None:
        raise StorageError(
            f"{folder} contains the index {name!r}, which is unknown here; register it first, or "
            "upgrade Nearcast"
        )
    if index.ranked_form is not None and holds_ranked(arrays):
        index = index.ranked_form
    return index.from_stored(arrays, meta, verify=verify)
