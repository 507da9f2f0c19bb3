"""The options of ap+-trees."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from nearcast.errors import InvalidInput, UnknownName
from nearcast.indexes.options import check_number, check_whole

__all__ = ["PRINTED", "ApPlusOptions"]

ORDERS = ("rare", "frequent")

PRINTED: dict[str, Any] = {
    "fanout": 200,
    "leaf": 40,
    "kl": 0.001,
    "order": "frequent",
    "node_lists": True,
    "tokens": 1.0,
}
"""The options as the paper has them (VLDB Journal 2015, sections 4.2.5 and 5.2)."""

_MAX_FANOUT = 1 << 14


@dataclass(frozen=True)
class ApPlusOptions:
    """The options of an ap+-tree; `PRINTED` has those of the paper.

    Parameters
    ----------
    fanout
        The maximum number of cuts or cells of a node.
    leaf
        Nodes with more clauses than this are split.
    kl
        A node is rebuilt when the distribution of its clauses over its children has diverged this
        far from that when it was built (Kullback-Leibler), beyond what chance does; ``math.inf``
        means never.
    share
        Nodes with less than this share of all clauses are not rebuilt.
    copies
        A message is stored in at most this many lists.
    node_lists
        Whether every clause has a list of its leaves, as in the paper. Without them, a move walks
        down with the old and the new box at the same time, which is as fast and needs no memory.
    moving_costs
        Whether the cost of moves and of rebuilding counts when a node is split by space.
    tokens
        How many tokens a message has, for the cost model. As printed, it has 1.
    order
        Which token of a clause comes first: the most ``rare`` one, or the most ``frequent`` one as
        in the paper.

    Examples
    --------
    >>> ApPlusOptions(**PRINTED).fanout
    200
    """

    fanout: int = 16_000
    leaf: int = 40
    kl: float = 0.001
    share: float = 0.001
    copies: int = 64
    node_lists: bool = False
    moving_costs: bool = True
    tokens: float = 3.0
    order: str = "rare"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        check_whole("fanout", self.fanout, 2, _MAX_FANOUT)
        check_whole("leaf", self.leaf, 1, 1 << 24)
        check_whole("copies", self.copies, 1, 1 << 16)
        check_number("kl", self.kl, 0, float("inf"))
        check_number("share", self.share, 0, 1)
        check_number("tokens", self.tokens, 0, 1e9)
        for name in ("node_lists", "moving_costs"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(name, getattr(self, name), "must be true or false")
        # Options are stored as JSON, which has no infinity; no divergence is above this number.
        object.__setattr__(self, "kl", min(self.kl, sys.float_info.max))

    @property
    def header(self) -> tuple[int, int, int, int, int]:
        """The fields of the tree's state that follow from the options."""
        return self.leaf, self.fanout, 0, 0, int(self.order == "rare")
