"""``rt+-tree``: an R-tree, every node of which knows one representative token of each clause below.

Li et al., KDD 2013, section 4: smaller token sets, and fewer nodes to open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nearcast.indexes.options import check_whole
from nearcast.indexes.rtree.index import TreeIndex
from nearcast.indexes.rtree.loading import TreeOptions
from nearcast.indexes.rtree.token_tree import FIRST
from nearcast.indexes.statistics import Statistics
from nearcast.indexes.token_order.order import TokenOrder, check_kind
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from nearcast.columns import Clauses

__all__ = ["RepresentativeTree", "RtPlusTree", "TokenOptions"]

_MAX_CELLS = 1 << 30
_MAX_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class TokenOptions(TreeOptions):
    """The R-tree, and how representative tokens are chosen.

    Parameters
    ----------
    least, most, load
        See `TreeOptions`.
    tokens
        ``random``, ``df``, ``idf``, ``local-df`` or ``local-idf``: see `TokenOrder`.
    cells
        The cells of the grid of the local ones.
    statistics
        A folder that ``nearcast spark statistics`` wrote, whose frequencies are taken instead of
        counting. Token ids must be those of its vocabulary: `Builder.vocabulary` gives it, and
        `nearcast.Engine` and ``nearcast match`` read subscriptions with it.
    seed
        Of the random choice.
    """

    tokens: str = "local-idf"
    cells: int = 10_000
    statistics: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind(self.tokens)
        check_whole("cells", self.cells, 1, _MAX_CELLS)
        check_whole("seed", self.seed, 0, _MAX_SEED)


class RepresentativeTree(TreeIndex):
    """A tree whose options say how representative tokens are chosen."""

    Options = TokenOptions

    @classmethod
    def vocabulary(cls, options: Any) -> Vocabulary:
        """Return the vocabulary of the statistics, whose token ids their frequencies go by."""
        if not options.statistics:
            return Vocabulary()
        return Statistics.load(options.statistics).vocabulary

    @classmethod
    def _count(cls, clauses: Clauses, options: Any) -> tuple[TokenOrder, NDArray[np.int32]]:
        return TokenOrder.count(
            clauses,
            options.tokens,
            cells=options.cells,
            statistics=options.statistics,
            seed=options.seed,
        )

    @classmethod
    def _restore_order(cls, options: Any, arrays: Mapping[str, NDArray[Any]]) -> TokenOrder:
        return TokenOrder.from_arrays(
            options.tokens, arrays, cells=options.cells, seed=options.seed
        )


class RtPlusTree(RepresentativeTree):
    """An R-tree with representative tokens.

    ``examined`` counts the clauses of opened leaves whose box meets the message, ``visited`` the
    nodes opened.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> clauses = Clauses.of([[1, 2], [1]], [[0, 0, 10, 10]] * 2)
    >>> index = create("rt+-tree", tokens="idf").build(clauses)
    >>> index.match(Messages.of([[1, 3]], [[7, 7]])).pairs()
    {(0, 1)}
    """

    name = "rt+-tree"
    summary = "rt-tree with one representative token a subscription"
    kind = FIRST
