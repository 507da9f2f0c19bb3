"""The registry of moving indexes: names, as users write them, to classes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from nearcast.columns import Clauses
from nearcast.errors import UnknownName
from nearcast.loading import load_object

if TYPE_CHECKING:
    from nearcast.indexes.moving.contract import MovingIndex

__all__ = ["DEFAULT", "MovingBuilder", "create", "get", "names"]

DEFAULT = "twin-lists"
"""The moving index, unless another is chosen."""

_INDEXES = {
    "moving-scan": "scan:MovingScan",
    "twin-lists": "twin_lists:TwinLists",
    "ss-index": "grids:SsIndex",
    "kk-index": "grids:KkIndex",
    "iq+-tree": "quadtrees:IqPlusTree",
    "rq+-tree": "quadtrees:RqPlusTree",
    "ap+-tree": "ap_plus:ApPlusTree",
    "ap+k-tree": "ap_plus:ApPlusKeywordTree",
    "ap+s-tree": "ap_plus:ApPlusSpaceTree",
}
"""Where the indexes are: each is imported when it is first asked for."""


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
    found: type[MovingIndex] = load_object("moving", f"nearcast.indexes.moving.{_INDEXES[name]}")
    return found


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
