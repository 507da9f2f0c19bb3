"""Kernels over directed graphs: the largest strongly connected part, and chains of arcs.

A node of a map that only bends a road is no choice for anybody who drives there. All nodes of such
a chain except its ends disappear from the graph, and the chain becomes one arc with a polyline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import starts
from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Chains", "Graph", "arcs_into", "find_chains", "largest_strong_part"]


class Graph(NamedTuple):
    """A directed graph; arcs are sorted by the node where they begin.

    - ``arc_start`` int64[nodes + 1]: the arcs that begin in node ``n`` are those from
      ``arc_start[n]`` to ``arc_start[n + 1]``.
    - ``tail``, ``head`` int32[arcs]: the nodes where an arc begins and ends.
    - ``road_class`` uint8[arcs].
    """

    arc_start: NDArray[np.int64]
    tail: NDArray[np.int32]
    head: NDArray[np.int32]
    road_class: NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        nodes: int,
        tail: NDArray[np.int32],
        head: NDArray[np.int32],
        road_class: NDArray[np.uint8],
    ) -> Graph:
        """Make a graph of arcs that are sorted by ``tail``."""
        return cls(starts(np.bincount(tail, minlength=nodes)), tail, head, road_class)


class Chains(NamedTuple):
    """Chains of arcs: chain ``c`` is ``arc[arc_start[c]:arc_start[c + 1]]``, from end to end."""

    arc_start: NDArray[np.int64]
    arc: NDArray[np.int64]


def arcs_into(nodes: int, head: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the arcs that end in each node: ``arc[arc_start[n]:arc_start[n + 1]]`` of node ``n``.

    Examples
    --------
    >>> start, arc = arcs_into(3, np.array([1, 2, 1], np.int32))
    >>> start.tolist(), arc.tolist()
    ([0, 0, 2, 3], [0, 2, 1])
    """
    return starts(np.bincount(head, minlength=nodes)), np.argsort(head, kind="stable")


def largest_strong_part(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask of the nodes of the largest strongly connected part.

    From each of its nodes there is a way to each other one. If several parts have the same size, it
    is the one with the lowest node.
    """
    nodes = len(graph.arc_start) - 1
    part = np.full(nodes, -1, np.int32)
    label_strong_parts(graph.arc_start, graph.head, part)
    size = np.bincount(part)
    mask: NDArray[np.bool_] = part == part[np.argmax(size[part])]
    return mask


def find_chains(graph: Graph) -> tuple[NDArray[np.bool_], Chains]:
    """Return a mask of the nodes that stay, and the chains between them, by their first node.

    No chain ends where it begins: a loop keeps a node in its middle.
    """
    nodes, arcs = len(graph.arc_start) - 1, len(graph.head)
    in_start, in_arc = arcs_into(nodes, graph.head)
    kept = np.empty(nodes, np.bool_)
    mark_junctions(graph, in_start, in_arc, kept)
    if not kept.any():  # the network is one ring
        kept[0] = True
    split_loops(graph, kept)
    chain_start, chain_arc = np.zeros(arcs + 1, np.int64), np.empty(arcs, np.int64)
    count = write_chains(graph, kept, chain_start, chain_arc)
    return kept, Chains(chain_start[: count + 1], chain_arc)


@kernel
def label_strong_parts(
    arc_start: NDArray[np.int64], head: NDArray[np.int32], part: NDArray[np.int32]
) -> Number:
    """Write the strongly connected part of each node to ``part`` int32[nodes]; return their number.

    Tarjan's algorithm ("Depth-first search and linear graph algorithms", SIAM J. Comput. 1972) with
    a stack of its own in place of recursion. ``part`` is -1 everywhere at the start.
    """
    nodes = len(part)
    order = np.full(nodes, -1, np.int64)
    low = np.empty(nodes, np.int64)
    next_arc = arc_start[:-1].copy()
    path, open_nodes = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    seen, waiting, parts = 0, 0, 0
    for root in range(nodes):
        if order[root] >= 0:
            continue
        depth = 1
        path[0] = root
        while depth > 0:
            node = path[depth - 1]
            if order[node] < 0:
                order[node] = low[node] = seen
                seen += 1
                open_nodes[waiting] = node
                waiting += 1
            if next_arc[node] < arc_start[node + 1]:
                target = head[next_arc[node]]
                next_arc[node] += 1
                if order[target] < 0:
                    path[depth] = target
                    depth += 1
                elif part[target] < 0:
                    low[node] = min(low[node], order[target])
                continue
            depth -= 1
            if depth > 0:
                parent = path[depth - 1]
                low[parent] = min(low[parent], low[node])
            if low[node] == order[node]:
                waiting = close_part(open_nodes, waiting, node, part, parts)
                parts += 1
    return parts


@kernel
def close_part(
    open_nodes: NDArray[np.int64],
    waiting: Number,
    root: Number,
    part: NDArray[np.int32],
    number: Number,
) -> Number:
    """Give the nodes above and including ``root`` a part; return how many nodes stay open."""
    while True:
        waiting -= 1
        node = open_nodes[waiting]
        part[node] = number
        if node == root:
            return waiting


@kernel
def mark_junctions(
    graph: Graph,
    in_start: NDArray[np.int64],
    in_arc: NDArray[np.int64],
    kept: NDArray[np.bool_],
) -> None:
    """Write to ``kept`` bool[nodes] which nodes are more than a bend of one road."""
    for node in range(len(kept)):
        kept[node] = not is_bend(graph, in_start, in_arc, node)


@kernel
def is_bend(
    graph: Graph, in_start: NDArray[np.int64], in_arc: NDArray[np.int64], node: Number
) -> Number:
    """Whether a node joins two others by roads of one class, both two-way or one after another."""
    begin, end = graph.arc_start[node], graph.arc_start[node + 1]
    into = in_start[node]
    count = end - begin
    if in_start[node + 1] - into != count or count < 1 or count > 2:
        return False
    for i in range(count):
        if (
            graph.road_class[begin + i] != graph.road_class[begin]
            or graph.road_class[in_arc[into + i]] != graph.road_class[begin]
        ):
            return False
    one, other = graph.tail[in_arc[into]], graph.head[begin]
    if count == 1:
        return one != other
    second = graph.head[begin + 1]
    last = graph.tail[in_arc[into + 1]]
    return other != second and min(one, last) == min(other, second) and one + last == other + second


@kernel
def next_of_chain(graph: Graph, arc: Number) -> Number:
    """Return the arc that goes on where an arc of a chain ends in a bend."""
    node = graph.head[arc]
    onward = graph.arc_start[node]
    if graph.arc_start[node + 1] - onward == 2 and graph.head[onward] == graph.tail[arc]:
        onward += 1
    return onward


@kernel
def split_loops(graph: Graph, kept: NDArray[np.bool_]) -> None:
    """Keep a node in the middle of each chain that would end where it begins."""
    for node in range(len(kept)):
        if not kept[node]:
            continue
        for first in range(graph.arc_start[node], graph.arc_start[node + 1]):
            arc, steps = first, 1
            while not kept[graph.head[arc]]:
                arc = next_of_chain(graph, arc)
                steps += 1
            if graph.head[arc] == node:
                arc = first
                for _ in range(steps // 2 - 1):
                    arc = next_of_chain(graph, arc)
                kept[graph.head[arc]] = True


@kernel
def write_chains(
    graph: Graph,
    kept: NDArray[np.bool_],
    chain_start: NDArray[np.int64],
    chain_arc: NDArray[np.int64],
) -> Number:
    """Write the arcs of all chains (`Chains`); return the number of chains.

    Every arc belongs to one chain, so ``chain_arc`` is as long as there are arcs.
    """
    count, end = 0, 0
    for node in range(len(kept)):
        if not kept[node]:
            continue
        for first in range(graph.arc_start[node], graph.arc_start[node + 1]):
            arc = first
            chain_arc[end] = arc
            end += 1
            while not kept[graph.head[arc]]:
                arc = next_of_chain(graph, arc)
                chain_arc[end] = arc
                end += 1
            count += 1
            chain_start[count] = end
    return count
