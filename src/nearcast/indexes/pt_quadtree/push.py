"""Which inner nodes of an MX-CIF quadtree push their clauses down to their leaves.

Yu, Li and Feng, CIKM 2015, section 4.1: "given an extra space buffer, we can select some regions".
A list is looked at by the messages in its node's region, an entry in a leaf by those in the leaf's;
so pushing a list down saves its size times the node's area, less the areas of all leaves that its
boxes touch. What it costs are the entries that it has in these leaves beyond the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_regions import list_count, list_start
from nearcast.compiled.token_table import LOW32
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST
from nearcast.indexes.pt_quadtree.tree import (
    CHILD,
    CLAUSE,
    EAST,
    NODES,
    NORTH,
    RULE,
    SOUTH,
    WEST,
    Quadtree,
    next_place,
    touched_children,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def area_of(node: NDArray[np.int32], at: Number) -> Number:
    """Return how many units a node's region has."""
    across = np.float64(node[at, EAST]) - np.float64(node[at, WEST]) + 1.0
    return across * (np.float64(node[at, NORTH]) - np.float64(node[at, SOUTH]) + 1.0)


@kernel
def weigh_clause(
    tree: Quadtree, at: Number, box: NDArray[np.int32], stack: NDArray[np.int64]
) -> tuple[Number, Number]:
    """Return how many leaves below a node a box touches, and the area of these together."""
    touched, top = touched_children(tree.node, at, box), np.int64(0)
    for child in range(4):
        if (touched >> child) & 1:
            stack[top] = tree.node[at, CHILD] + child
            top += 1
    leaves, area = np.int64(0), 0.0
    while top > 0:
        top -= 1
        here = stack[top]
        if tree.node[here, CHILD] < 0:
            leaves += 1
            area += area_of(tree.node, here)
            continue
        touched = touched_children(tree.node, here, box)
        for child in range(4):
            if (touched >> child) & 1:
                stack[top] = tree.node[here, CHILD] + child
                top += 1
    return leaves, area


@kernel
def weigh_nodes(
    tree: Quadtree,
    box: NDArray[np.int32],
    stack: NDArray[np.int64],
    more: NDArray[np.int64],
    gain: NDArray[np.float64],
) -> None:
    """Write, by node, how many entries more there would be, and what would be saved."""
    for at in range(tree.state[NODES]):
        more[at], gain[at] = 0, 0.0
        if tree.node[at, CHILD] < 0:
            continue
        first, slots = tree.lists.table[at, FIRST], tree.lists.table[at, SLOTS]
        for slot in range(first, first + slots):
            if (tree.lists.slot[slot, 0] & LOW32) == np.uint64(0):
                continue
            start = list_start(tree.lists, slot)
            for i in range(start, start + list_count(tree.lists, slot)):
                clause = np.int64(tree.entry[i, CLAUSE])
                leaves, area = weigh_clause(tree, at, box[clause], stack)
                more[at] += leaves - 1
                gain[at] += area_of(tree.node, at) - area


@kernel
def choose_nodes(
    nodes: NDArray[np.int64], more: NDArray[np.int64], space: Number, node: NDArray[np.int32]
) -> None:
    """Let nodes push, the best of which come first, as long as there is space for what they add."""
    for i in range(len(nodes)):
        if more[nodes[i]] <= space:
            space -= more[nodes[i]]
            node[nodes[i], RULE] = 1


@kernel
def count_places(
    tree: Quadtree,
    box: NDArray[np.int32],
    clauses: NDArray[np.int32],
    stack: NDArray[np.int64],
    count: NDArray[np.int64],
) -> None:
    """Count the clauses that are to stand in the lists of each node."""
    for i in range(len(clauses)):
        stack[0] = 0
        at, top = next_place(tree, box[clauses[i]], stack, np.int64(1))
        while at >= 0:
            count[at] += 1
            at, top = next_place(tree, box[clauses[i]], stack, top)


@kernel
def fill_places(
    tree: Quadtree,
    box: NDArray[np.int32],
    clauses: NDArray[np.int32],
    stack: NDArray[np.int64],
    start: NDArray[np.int64],
    placed: NDArray[np.int32],
) -> None:
    """List the clauses of each node from its start on, which is moved to the end."""
    for i in range(len(clauses)):
        stack[0] = 0
        at, top = next_place(tree, box[clauses[i]], stack, np.int64(1))
        while at >= 0:
            placed[start[at]] = clauses[i]
            start[at] += 1
            at, top = next_place(tree, box[clauses[i]], stack, top)
