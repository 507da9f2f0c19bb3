"""How a node of an adaptive partition tree is parted: by keywords, by space, or not at all.

Wang et al., VLDB Journal 2015, sections 3.3.1 to 3.3.4: a part ``B`` with ``w(B)`` clauses that a
message hits with probability ``p(B)`` costs ``w(B) p(B)``; the partition that costs less is taken.
Where there is no sample of messages, a token is as probable as it is frequent among the clauses of
the node, and a place is a fifth as probable as it is frequent, and for the rest as any other.

Three things are added to the cost, without which trees become too deep and too large: a message
has more than one token; a part that is hit has a price of its own; and so has a clause that lies
in several cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.tree import FANOUT, LEAF_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE = 4096
"""Of more clauses than this, every second, third and so on decides where space is cut."""

VISIT = 0.5
"""To visit a part costs as much as to look at so many leaves full of clauses."""

COPY = 0.05
"""A clause that lies in one cell more costs as much as one that so many messages look at."""

DENSITY = 4
"""So many parts are made at most of clauses that would fill a leaf."""

GAIN = 0.9
"""What a partition may cost at most, as a share of what the clauses do without it."""

CENTRES = 0.2
"""How far the centres of boxes tell where messages are; the rest is area."""


class Hits(NamedTuple):
    """What is known of messages: nothing, or how often tokens occur, and where.

    - ``rank`` float32[ranks]: the share of messages that have a token, by its rank.
    - ``passed`` float64[up + 1, across + 1]: by lines of a grid, the messages to the west and
      south of their crossings; ``world`` float64[4]: what the grid covers.
    - ``tokens``: how many tokens a message has, where nothing is known.
    """

    rank: NDArray[np.float32]
    passed: NDArray[np.float64]
    world: NDArray[np.float64]
    tokens: Number


class Draft(NamedTuple):
    """Room to decide how a node is parted.

    - ``key`` and ``value`` int32[clauses]: ranks, and distinct ones in order; ``entered`` and
      ``passed`` float64[clauses + 1] make a line of them; ``times`` int32[ranks].
    - ``cut`` int64[fanout + 1]: the cuts of the line.
    - ``side`` int64[2, 3, many]: by axis, where boxes begin, end, and have their centre.
    - ``place`` int64[2, many] and ``along`` float64[2, 4, many]: by axis, where it may be cut, and
      a line with its centres.
    - ``split`` int64[2, fanout]: splits of columns and rows; ``best``: those that cost least.
    - ``cell`` float64[cells + more].
    """

    key: NDArray[np.int32]
    value: NDArray[np.int32]
    entered: NDArray[np.float64]
    passed: NDArray[np.float64]
    times: NDArray[np.int32]
    cut: NDArray[np.int64]
    side: NDArray[np.int64]
    place: NDArray[np.int64]
    along: NDArray[np.float64]
    split: NDArray[np.int64]
    best: NDArray[np.int64]
    cell: NDArray[np.float64]


@kernel
def most_parts(state: NDArray[np.int64], clauses: Number) -> Number:
    """Return into how many parts so many clauses are parted at most."""
    wanted = max(DENSITY * np.int64(clauses) // state[LEAF_SIZE], np.int64(2))
    return min(state[FANOUT], wanted)
