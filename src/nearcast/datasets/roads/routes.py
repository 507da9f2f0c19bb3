"""Routes: the first arc of the fastest way from every node to each of a few destinations.

Movers do not carry routes. A table has, for each destination and node, the outgoing arc to take, as
one byte. It is filled by one run of Dijkstra's algorithm per destination, over the arcs reversed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from nearcast.columns import read_only
from nearcast.columns.arrays import Arrays
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.datasets.roads.graph import arcs_into
from nearcast.datasets.roads.hashing import DESTINATION, draw_all
from nearcast.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.datasets.roads.network import RoadNetwork

__all__ = ["GOALS", "MAX_DESTINATIONS", "Routes"]

GOALS = ("nodes", "density")
"""How destinations are drawn."""

MAX_DESTINATIONS = 32_767

_GRID = 32
"""Cells per side of the grid in which the density of nodes is counted."""


@dataclass(frozen=True, eq=False)
class Routes(Arrays):
    """Destinations, and the way to each of them.

    ``destination`` int32[K] are nodes. ``hop`` uint8[K, nodes]: on the way to destination ``k``, a
    mover at node ``n`` takes the outgoing arc number ``hop[k, n]`` of that node.
    """

    destination: NDArray[np.int32]
    hop: NDArray[np.uint8]

    @classmethod
    def find(
        cls,
        network: RoadNetwork,
        class_speed: NDArray[np.float64],
        *,
        destinations: int = 256,
        goals: str = "nodes",
        seed: int = 0,
    ) -> Self:
        """Draw destinations and find the fastest ways to them.

        Parameters
        ----------
        network
            The roads.
        class_speed
            The speed on roads of each class.
        destinations
            How many nodes are destinations; all of them if the network has no more.
        goals
            ``nodes``: each node is drawn with the same probability. ``density``: nodes where there
            are many are drawn more often, in proportion to the nodes around them.
        seed
            The same seed gives the same destinations.

        Examples
        --------
        >>> from nearcast.datasets.roads import lattice
        >>> routes = Routes.find(lattice(lines=20, seed=1), np.array([4.0, 2.0, 1.0]))
        >>> routes.hop.shape
        (256, 360)
        """
        if not 2 <= destinations <= MAX_DESTINATIONS:
            problem = f"must be from 2 to {MAX_DESTINATIONS:,}"
            raise InvalidInput("destinations", destinations, problem)
        destination = _draw_destinations(network, destinations, goals, seed)
        in_start, in_arc = arcs_into(network.nodes, network.arc_to)
        cost = network.arc_length_m / class_speed[network.arc_class]
        ways = _Ways(in_start, in_arc, network.arc_from, network.arc_start, cost)
        hop = np.zeros((len(destination), network.nodes), np.uint8)
        fill_hops(ways, destination, hop)
        return cls(read_only(destination, np.int32), read_only(hop, np.uint8))

    @classmethod
    def none(cls) -> Self:
        """Return routes without destinations, for movers that wander."""
        nothing = np.empty((0, 0), np.uint8)
        return cls(read_only(np.empty(0, np.int32), np.int32), read_only(nothing, np.uint8))


class _Ways(NamedTuple):
    """The arcs into each node, and what it costs to pass an arc."""

    in_start: NDArray[np.int64]
    in_arc: NDArray[np.int64]
    arc_from: NDArray[np.int32]
    arc_start: NDArray[np.int64]
    cost: NDArray[np.float64]


def _draw_destinations(
    network: RoadNetwork, count: int, goals: str, seed: int
) -> NDArray[np.int32]:
    """Draw distinct nodes: those with the lowest exponential numbers of a rate that is the weight.

    That is a draw without replacement (Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", Information Processing Letters 2006).
    """
    if goals not in GOALS:
        raise UnknownName("goals", goals, GOALS)
    weight = _density(network) if goals == "density" else np.ones(network.nodes)
    uniform = draw_all(seed, DESTINATION, np.arange(network.nodes))
    order = np.argsort(-np.log1p(-uniform) / weight, kind="stable")
    return np.sort(order[:count]).astype(np.int32)


def _density(network: RoadNetwork) -> NDArray[np.float64]:
    """Return the number of nodes in the cell of each node."""
    west, south, east, north = network.frame
    share = (network.place - np.array([west, south])) / np.maximum([east - west, north - south], 1)
    x, y = np.minimum(share * _GRID, _GRID - 1).astype(np.int64).T
    cell = y * _GRID + x
    density: NDArray[np.float64] = np.bincount(cell)[cell].astype(np.float64)
    return density


@kernel
def fill_hops(ways: _Ways, destination: NDArray[np.int32], hop: NDArray[np.uint8]) -> None:
    """Fill ``hop`` uint8[destinations, nodes] with the first arcs of the fastest ways.

    Dijkstra's algorithm from each destination over reversed arcs, with a binary heap in which
    outdated items stay until they are popped.
    """
    nodes = hop.shape[1]
    best = np.empty(nodes, np.float64)
    heap_cost = np.empty(len(ways.cost) + 1, np.float64)
    heap_node = np.empty(len(ways.cost) + 1, np.int32)
    for row in range(len(destination)):
        best[:] = np.inf
        best[destination[row]] = 0.0
        heap_cost[0], heap_node[0] = 0.0, destination[row]
        size = 1
        while size > 0:
            cost, node = heap_cost[0], heap_node[0]
            size -= 1
            remove_lowest(heap_cost, heap_node, size)
            if cost > best[node]:
                continue
            for i in range(ways.in_start[node], ways.in_start[node + 1]):
                arc = ways.in_arc[i]
                before = ways.arc_from[arc]
                total = cost + ways.cost[arc]
                if total < best[before]:
                    best[before] = total
                    hop[row, before] = arc - ways.arc_start[before]
                    add_item(heap_cost, heap_node, size, total, before)
                    size += 1


@inlined_kernel
def add_item(
    heap_cost: NDArray[np.float64],
    heap_node: NDArray[np.int32],
    size: Number,
    cost: Number,
    node: Number,
) -> None:
    """Add an item to a heap of ``size`` items, the lowest cost first."""
    at = size
    while at > 0 and heap_cost[(at - 1) >> 1] > cost:
        above = (at - 1) >> 1
        heap_cost[at], heap_node[at] = heap_cost[above], heap_node[above]
        at = above
    heap_cost[at], heap_node[at] = cost, node


@inlined_kernel
def remove_lowest(
    heap_cost: NDArray[np.float64], heap_node: NDArray[np.int32], size: Number
) -> None:
    """Remove the first item; ``size`` items stay, of which the last one is behind them."""
    cost, node = heap_cost[size], heap_node[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and heap_cost[below + 1] < heap_cost[below]:
            below += 1
        if heap_cost[below] >= cost:
            break
        heap_cost[at], heap_node[at] = heap_cost[below], heap_node[below]
        at = below
    heap_cost[at], heap_node[at] = cost, node
