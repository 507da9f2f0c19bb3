"""``trie-quadtree``: a trie of ordered tokens, and quadtrees under token sets of many clauses.

AP-Tree, VLDB Journal 2015, section 5.1.2 (Trie-Qd), over the ordered keyword trie of Hmedeh et al.
(section 3.1). `nearcast.indexes.quadtrees.trie_lists` describes the trie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import UnknownName
from nearcast.indexes.options import check_whole
from nearcast.indexes.quadtrees import trie_lists as kernels
from nearcast.indexes.quadtrees.index import QuadIndex, QuadOptions, QuadSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ORDERS", "QuadTrie", "TrieQuadtree", "TrieQuadtreeOptions"]

ORDERS = ("rare", "frequent")
"""Which tokens come first."""

_MAX_LEVELS = 16
_MAX_CHILD_SIZE = 1 << 28


class QuadTrie(QuadIndex):
    """A trie of any number of levels, with quadtrees."""

    def _prepare_planting(self) -> None:
        kernels.plant_trie(self._quad)

    def _put(self, clauses: NDArray[np.int32]) -> int:
        quad, ordered = self._quad, self._ordered()
        return int(kernels.insert_clauses(quad, self._costs(), ordered, clauses, self._work))

    def _take(self, clauses: NDArray[np.int64]) -> None:
        quad, ordered = self._quad, self._ordered()
        kernels.remove_clauses(quad, self._costs(), ordered, clauses, self._work)


@dataclass(frozen=True)
class TrieQuadtreeOptions(QuadOptions):
    """The options of a trie-quadtree.

    Parameters
    ----------
    list_size, update_cost, depth, parts, statistics
        See `QuadOptions`.
    order
        ``rare``: the rarest token of a clause first. ``frequent``: the most frequent one.
    child_size
        A node of the trie gets children when there are as many clauses below it; until then, it
        keeps them, and their other tokens are verified. With 0 it keeps none, as in the paper.
    """

    list_size: int = 256
    order: str = "rare"
    child_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        check_whole("child_size", self.child_size, 0, _MAX_CHILD_SIZE)

    @property
    def settings(self) -> QuadSettings:
        """What the arrays are told: nodes get children before their lists become quadtrees."""
        child_size = min(self.child_size, self.list_size)
        return QuadSettings(False, self.list_size, child_size, _MAX_LEVELS)


class TrieQuadtree(QuadTrie):
    """A trie of ordered tokens with quadtrees.

    ``visited`` counts the nodes of the trie and of the quadtrees that messages reach.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1], [1, 2]], [[0, 0, 10, 10], [5, 5, 20, 20]])
    >>> index = create("trie-quadtree", child_size=0).build(clauses)
    >>> sorted(index.match(Messages.of([[1, 2]], [[7, 7]])).pairs())
    [(0, 0), (0, 1)]
    """

    name = "trie-quadtree"
    summary = "trie of ordered tokens, quadtrees under its token sets; changes in place"

    Options = TrieQuadtreeOptions

    @classmethod
    def _arranged(
        cls, options: Any, tokens: NDArray[np.int32], start: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        if options.order == "rare":
            return tokens
        # A token as far from the end of its clause as it was from the beginning.
        length = np.diff(start)
        mirror = np.repeat(start[:-1] + start[1:] - 1, length) - np.arange(len(tokens))
        return tokens[mirror]
