"""A road network as flat arrays: junctions, and arcs with polylines between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from nearcast.columns import UNITS, read_only, starts
from nearcast.columns.arrays import Arrays, freeze
from nearcast.compiled.distances import METERS_PER_UNIT, place_distance_m
from nearcast.compiled.jit import Number, kernel
from nearcast.datasets.roads.graph import Chains, Graph, find_chains, largest_strong_part
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_CLASSES", "MIN_LENGTH_M", "Edges", "Polylines", "RoadNetwork", "lengths_m"]

MAX_CLASSES = 16
"""Road classes are below this: 0 is the fastest, each next one is slower."""

MIN_LENGTH_M = 0.01
"""Shorter edges get this length: nobody passes an edge in no time."""

_MAX_ARCS_PER_NODE = 256
_HALF_TURN = 180 * UNITS

_TYPES = {
    **dict.fromkeys(("arc_start", "point_start"), np.int64),
    **dict.fromkeys(("arc_from", "arc_to", "arc_back"), np.int32),
    "arc_class": np.uint8,
    "along_m": np.float64,
}


class Edges(NamedTuple):
    """The edges of a map, before it becomes a network.

    - ``place`` int32[nodes, 2]: longitude and latitude of each node, in units of 1e-7 degree.
    - ``u``, ``v`` int32[edges]: the nodes that an edge joins.
    - ``length_m`` float64[edges], ``road_class`` uint8[edges].
    - ``one_way`` bool[edges]: whether it can only be passed from ``u`` to ``v``.
    """

    place: NDArray[np.int32]
    u: NDArray[np.int32]
    v: NDArray[np.int32]
    length_m: NDArray[np.float64]
    road_class: NDArray[np.uint8]
    one_way: NDArray[np.bool_]


class Polylines(NamedTuple):
    """The polylines of arcs, for kernels; see `RoadNetwork`."""

    point_start: NDArray[np.int64]
    point: NDArray[np.int32]
    along_m: NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class RoadNetwork(Arrays):
    """Roads on which every node can be reached from every other one.

    Node ``n`` is at ``place[n]`` and has the outgoing arcs ``arc_start[n]`` to
    ``arc_start[n + 1]``. Arc ``a`` leads from ``arc_from[a]`` to ``arc_to[a]`` along the points
    ``point_start[a]`` to ``point_start[a + 1]``, of which ``along_m`` is the distance from its
    beginning. A two-way road is two arcs; ``arc_back`` is the other one, or -1. ``arc_class`` is
    the road class; 0 is the fastest. Coordinates are in units of 1e-7 degree.

    Examples
    --------
    >>> from nearcast.datasets.roads import lattice
    >>> network = lattice(lines=20, seed=1)
    >>> network.nodes, network.arcs
    (360, 1252)
    """

    place: NDArray[np.int32]
    arc_start: NDArray[np.int64]
    arc_from: NDArray[np.int32]
    arc_to: NDArray[np.int32]
    arc_back: NDArray[np.int32]
    arc_class: NDArray[np.uint8]
    point_start: NDArray[np.int64]
    point: NDArray[np.int32]
    along_m: NDArray[np.float64]

    def __post_init__(self) -> None:
        freeze(self, _TYPES)
        for name in ("place", "point"):
            object.__setattr__(self, name, read_only(getattr(self, name), np.int32, 2))

    @classmethod
    def from_edges(cls, edges: Edges) -> Self:
        """Make a network of the largest part of a map in which every node reaches every other one.

        Chains of edges of one class become single arcs.

        Raises
        ------
        InvalidInput
            If no two nodes can be reached from each other, an edge crosses the antimeridian, or a
            node has more than 256 outgoing arcs.
        """
        arcs, length_m, back = _strong_arcs(_in_tile_order(edges))
        kept, chains = find_chains(arcs.graph)
        number = np.cumsum(kept) - 1
        first, last = chains.arc[chains.arc_start[:-1]], chains.arc[chains.arc_start[1:] - 1]
        point_start, point, along_m = _polylines(arcs, length_m, chains)
        arc_from = number[arcs.graph.tail[first]]
        arc_start = starts(np.bincount(arc_from, minlength=int(kept.sum())))
        if np.diff(arc_start).max() > _MAX_ARCS_PER_NODE:
            problem = f"must be at most {_MAX_ARCS_PER_NODE} at each node"
            raise InvalidInput("outgoing roads", int(np.diff(arc_start).max()), problem)
        return cls(
            place=arcs.place[kept],
            arc_start=arc_start,
            arc_from=arc_from,
            arc_to=number[arcs.graph.head[last]],
            arc_back=_chains_back(first, last, back),
            arc_class=arcs.graph.road_class[first],
            point_start=point_start,
            point=point,
            along_m=along_m,
        )

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.place)

    @property
    def arcs(self) -> int:
        """The number of arcs; a two-way road has two."""
        return len(self.arc_to)

    @cached_property
    def arc_length_m(self) -> NDArray[np.float64]:
        """The length of each arc."""
        return read_only(self.along_m[self.point_start[1:] - 1], np.float64)

    @cached_property
    def arc_share(self) -> NDArray[np.float64]:
        """The share of all roads that lies on each arc and those before it."""
        total = np.cumsum(self.arc_length_m)
        return read_only(total / total[-1], np.float64)

    @cached_property
    def frame(self) -> tuple[int, int, int, int]:
        """West, south, east and north of all roads, in units."""
        west, south = self.point.min(axis=0).tolist()
        east, north = self.point.max(axis=0).tolist()
        return west, south, east, north

    @property
    def size_m(self) -> tuple[float, float]:
        """The width, in the middle of the frame, and the height of the frame."""
        west, south, east, north = self.frame
        middle = np.radians((south + north) / 2 / UNITS)
        width = (east - west) * METERS_PER_UNIT * float(np.cos(middle))
        return width, (north - south) * METERS_PER_UNIT

    @property
    def polylines(self) -> Polylines:
        """The polylines of all arcs."""
        return Polylines(self.point_start, self.point, self.along_m)

    def draw_arcs(
        self, arc: NDArray[np.float64], offset: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Turn uniform numbers into arcs, the longer the more often, and meters from their start.

        Examples
        --------
        >>> from nearcast.datasets.roads import lattice
        >>> network = lattice(lines=20, seed=1)
        >>> arc, offset_m = network.draw_arcs(np.array([0.0, 0.999999]), np.array([0.0, 0.0]))
        >>> arc.tolist(), offset_m.tolist()
        ([0, 1251], [0.0, 0.0])
        """
        drawn = np.searchsorted(self.arc_share, arc, side="right")
        chosen = np.minimum(drawn, self.arcs - 1).astype(np.int32)
        return chosen, offset * self.arc_length_m[chosen]

    def places_at(self, arc: NDArray[np.int32], offset_m: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the longitude and latitude of points on arcs, in units."""
        place = np.empty((len(arc), 2), np.int32)
        write_places(self.polylines, arc, offset_m, place)
        return place


def lengths_m(place: NDArray[Any], u: NDArray[Any], v: NDArray[Any]) -> NDArray[np.float64]:
    """Return the distance between the places (units) of the two ends of each edge.

    Examples
    --------
    >>> lengths_m(np.array([[0, 0], [0, 10_000_000]]), np.array([0]), np.array([1])).round()
    array([111195.])
    """
    length_m = np.empty(len(u))
    write_distances(np.asarray(place[u], np.float64), np.asarray(place[v], np.float64), length_m)
    return length_m


class _StrongArcs(NamedTuple):
    """The arcs of the strongly connected part, and the places of its nodes."""

    graph: Graph
    place: NDArray[np.int32]


def _in_tile_order(edges: Edges) -> Edges:
    """Return the edges with nodes numbered so that near ones have near numbers.

    Movers that are near each other then share cache lines.
    """
    if len(edges.u) and np.ptp(edges.place[:, 0].astype(np.int64)) > _HALF_TURN:
        problem = "must not be wider than 180 degrees, nor cross the antimeridian"
        raise InvalidInput("roads", f"{np.ptp(edges.place[:, 0]) / UNITS} degrees", problem)
    offset = edges.place.astype(np.int64) - edges.place.min(axis=0, initial=0)
    scale = max(int(offset.max(initial=0)).bit_length() - 16, 0)
    x, y = (_spread_bits(offset[:, axis] >> scale) for axis in (0, 1))
    order = np.argsort(x | (y << np.uint64(1)), kind="stable")
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return edges._replace(place=edges.place[order], u=number[edges.u], v=number[edges.v])


def _spread_bits(value: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Put a zero before each of the 16 lowest bits."""
    spread = value.astype(np.uint64)
    for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        spread = (spread | (spread << np.uint64(shift))) & np.uint64(mask)
    return spread


def _strong_arcs(edges: Edges) -> tuple[_StrongArcs, NDArray[np.float64], NDArray[np.int64]]:
    """Return the arcs of the strongly connected part, their lengths, and the arc back or -1."""
    forward = np.flatnonzero(edges.u != edges.v)
    backward = np.flatnonzero((edges.u != edges.v) & ~edges.one_way)
    edge = np.concatenate([forward, backward])
    tail = np.concatenate([edges.u[forward], edges.v[backward]])
    head = np.concatenate([edges.v[forward], edges.u[backward]])
    order = np.lexsort((head, tail))
    graph = Graph.of(len(edges.place), tail[order], head[order], edges.road_class[edge[order]])
    if not len(edge):
        raise InvalidInput("roads", 0, "must connect at least two nodes")
    inside = largest_strong_part(graph)
    if inside.sum() < 2:
        raise InvalidInput("roads", "one-way roads", "must connect two nodes in both directions")
    stays = inside[graph.tail] & inside[graph.head]
    number = (np.cumsum(inside) - 1).astype(np.int32)
    strong = Graph.of(
        int(inside.sum()),
        number[graph.tail[stays]],
        number[graph.head[stays]],
        graph.road_class[stays],
    )
    kept = order[stays]
    back = _arcs_of_other_direction(kept, edge, len(forward))
    length_m = np.maximum(edges.length_m[edge[kept]], MIN_LENGTH_M)
    return _StrongArcs(strong, edges.place[inside]), length_m, back


def _arcs_of_other_direction(
    kept: NDArray[np.int64], edge: NDArray[np.int64], forward: int
) -> NDArray[np.int64]:
    """Return the position in ``kept`` of the other arc of the same edge, or -1.

    Arcs below ``forward`` go along their edge, the others back.
    """
    position = np.full((2, int(edge.max()) + 1), -1, np.int64)
    backward = (kept >= forward).astype(np.int64)
    position[backward, edge[kept]] = np.arange(len(kept))
    back: NDArray[np.int64] = position[1 - backward, edge[kept]]
    return back


def _polylines(
    arcs: _StrongArcs, length_m: NDArray[np.float64], chains: Chains
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Return ``point_start``, ``point`` and ``along_m`` of each chain."""
    steps = np.diff(chains.arc_start)
    point_start = starts(steps + 1)
    begins = point_start[:-1]
    is_begin = np.zeros(int(point_start[-1]), np.bool_)
    is_begin[begins] = True
    node = np.empty(len(is_begin), np.int32)
    node[is_begin] = arcs.graph.tail[chains.arc[chains.arc_start[:-1]]]
    node[~is_begin] = arcs.graph.head[chains.arc]
    step_m = np.zeros(len(is_begin))
    step_m[~is_begin] = length_m[chains.arc]
    along_m = np.cumsum(step_m)
    along_m -= np.repeat(along_m[begins], steps + 1)
    return point_start, arcs.place[node], along_m


def _chains_back(
    first: NDArray[np.int64], last: NDArray[np.int64], back: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the chain that goes the same way back as each chain, or -1."""
    chain_of_first = np.full(len(back) + 1, -1, np.int32)
    chain_of_first[first] = np.arange(len(first), dtype=np.int32)
    other = chain_of_first[back[last]]  # -1 leads to the last item, which is -1
    # A road may end in one edge one way and in two one-way edges the other way.
    is_pair = (other >= 0) & (other[other] == np.arange(len(other)))
    pairs: NDArray[np.int32] = np.where(is_pair, other, -1)
    return pairs


@kernel
def point_on_arc(polylines: Polylines, arc: Number, offset_m: Number) -> tuple[Number, Number]:
    """Return the longitude and latitude (int64, units) at a distance from the start of an arc."""
    low, high = polylines.point_start[arc], polylines.point_start[arc + 1] - 1
    along_m = polylines.along_m
    while high - low > 1:
        middle = (low + high) >> 1
        if along_m[middle] <= offset_m:
            low = middle
        else:
            high = middle
    step_m = along_m[high] - along_m[low]
    share = min((offset_m - along_m[low]) / step_m, 1.0) if step_m > 0.0 else 0.0
    x, y = polylines.point[low, 0], polylines.point[low, 1]
    right = np.floor((polylines.point[high, 0] - x) * share + 0.5)
    up = np.floor((polylines.point[high, 1] - y) * share + 0.5)
    return x + np.int64(right), y + np.int64(up)


@kernel
def write_places(
    polylines: Polylines,
    arc: NDArray[np.int32],
    offset_m: NDArray[np.float64],
    place: NDArray[np.int32],
) -> None:
    """Write `point_on_arc` of each row to ``place`` int32[n, 2]."""
    for i in range(len(arc)):
        place[i, 0], place[i, 1] = point_on_arc(polylines, arc[i], offset_m[i])


@kernel
def write_distances(
    one: NDArray[np.float64], other: NDArray[np.float64], distance_m: NDArray[np.float64]
) -> None:
    """Write the distances between the places (float64[n, 2], units) of each row."""
    for i in range(len(distance_m)):
        distance_m[i] = place_distance_m(one[i, 0], one[i, 1], other[i, 0], other[i, 1])
