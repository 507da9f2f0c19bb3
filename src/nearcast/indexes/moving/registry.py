"""The registry of moving indexes: names, as users write them, to classes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from nearcast.columns import Clauses
from nearcast.errors import UnknownName
from nearcast.indexes.moving.ap_plus import ApPlusKeywordTree, ApPlusSpaceTree, ApPlusTree
from nearcast.indexes.moving.grids import KkIndex, SsIndex
from nearcast.indexes.moving.quadtrees import IqPlusTree, RqPlusTree
from nearcast.indexes.moving.scan import MovingScan
from nearcast.indexes.moving.twin_lists import TwinLists

if TYPE_CHECKING:
    from nearcast.indexes.moving.contract import MovingIndex

__all__ = ["DEFAULT", "MovingBuilder", "create", "get", "names"]

DEFAULT = TwinLists.name
"""The moving index, unless another is chosen."""

_INDEXES: dict[str, type[MovingIndex]] = {
    index.name: index
    for index in (
        MovingScan,
        TwinLists,
        SsIndex,
        KkIndex,
        IqPlusTree,
        RqPlusTree,
        ApPlusTree,
        ApPlusKeywordTree,
        ApPlusSpaceTree,
    )
}


@dataclass(frozen=True)
class MovingBuilder:
    """A moving index that is chosen but not built.

    Parameters
    ----------
    index, options
        The class of the index and an instance of its ``Options``.
    """

    index: type[MovingIndex]
    options: Any

    def build(self, clauses: Clauses | None = None) -> MovingIndex:
        """Build the index over subscriptions, none if left out."""
        return self.index.build(Clauses.empty() if clauses is None else clauses, self.options)


def names() -> list[str]:
    """Return the names of all moving indexes.

    Examples
    --------
    >>> "twin-lists" in names()
    True
    """
    return sorted(_INDEXES)


def get(name: str) -> type[MovingIndex]:
    """Return the class of a moving index."""
    if name not in _INDEXES:
        raise UnknownName("moving index", name, _INDEXES)
    return _INDEXES[name]


def create(name: str, **options: Any) -> MovingBuilder:
    """Choose a moving index by name and options; ``build`` then makes it.

    Parameters
    ----------
    name
        A name that `names` lists.
    options
        Options of the index.

    Raises
    ------
    UnknownName
        When there is no such index, or when it has no such option.

    Examples
    --------
    >>> len(create("moving-scan").build())
    0
    """
    index = get(name)
    known = [field.name for field in fields(index.Options)]
    for option in options:
        if option not in known:
            raise UnknownName("option", option, known, of=name)
    return MovingBuilder(index, index.Options(**options))
