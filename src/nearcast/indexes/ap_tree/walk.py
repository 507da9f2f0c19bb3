"""Which leaves of an adaptive partition tree messages come to.

Wang et al., VLDB Journal 2015, algorithm 1. In a keyword node, every cut that one of the message's
ranks hits is opened once, and below it only the ranks after the smallest of these count; in a
space node, the cells that the message touches. The dummy is opened anyway.

Several messages walk at once. Nodes wait on one stack; many of them are taken from it together,
and what will be read of all of these is asked for before the first is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, prefetch
from nearcast.indexes.ap_tree.search import first_not_below
from nearcast.indexes.ap_tree.tree import (
    CHILD,
    COLUMNS,
    DEPTH,
    FANOUT,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_HEADER,
    PARTS,
    ROOT,
    SIZE,
    UNIT,
    Tree,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOGETHER = 128
"""So many nodes are taken from the stack together."""

LINES = 2
"""How many cache lines of a node are asked for, before it is known what it is."""

MAX_LINES = 10
"""How many of a leaf are asked for; of long ones the machine itself sees what comes next."""

BASE, FIRST, WHOSE, STACK_WIDTH = 0, 1, 2, 3
"""In a row of the stack: where the name of a node stands, or the node itself; the first rank that
counts there; and which message it is."""

MESSAGE, RANKS, RANKS_END, NODES, ENTRIES, GROUP_WIDTH = 0, 1, 2, 3, 4, 5
"""In a row of the group: a message; where its ranks begin and end; the nodes that it opened, and
the entries of its leaves."""


class Walk(NamedTuple):
    """Where messages are on their way.

    - ``rank`` int32[many]: the ranks of all messages of a group, ascending for each; ``group``
      int64[most, 5]: see above; ``box`` int32[messages, 4].
    - ``stack`` int64[many, 3]: nodes to open; ``taken`` int64[128, 3]: those that are next.
    - ``leaf`` int64[many, 2]: leaves that were come to, and by whom.
    """

    rank: NDArray[np.int32]
    group: NDArray[np.int64]
    box: NDArray[np.int32]
    stack: NDArray[np.int64]
    taken: NDArray[np.int64]
    leaf: NDArray[np.int64]


@inlined_kernel
def push(
    arena: NDArray[np.int32],
    place: Number,
    first: Number,
    whose: Number,
    stack: NDArray[np.int64],
    top: Number,
) -> None:
    """Write the place of a node's name to the stack, and ask for the name."""
    prefetch(arena, place)
    stack[top, BASE], stack[top, FIRST], stack[top, WHOSE] = place, first, whose


@inlined_kernel
def open_cuts(
    arena: NDArray[np.int32], walk: Walk, node: tuple[Number, Number, Number], top: Number
) -> Number:
    """Put the cuts on the stack that ranks from a first one on hit; return its top.

    Either each rank looks for its cut, or each cut for its first rank: whichever are fewer.
    """
    base, first, whose = node
    rank, stack = walk.rank, walk.stack
    begin = walk.group[whose, RANKS]
    at, end = begin + first, walk.group[whose, RANKS_END]
    parts = np.int64(arena[base + PARTS])
    highest, names = base + HEADER, base + np.int64(arena[base + CHILD])
    lowest = highest + parts
    push(arena, names + parts, first, whose, stack, top)
    top += 1
    if at == end:
        return top
    if end - at <= parts:
        opened = np.int64(-1)
        for i in range(at, end):
            cut = first_not_below(arena, highest, lowest, rank[i]) - highest
            push(arena, names + cut, i + 1 - begin, whose, stack, top)
            hit = (cut < parts) & (cut != opened) & (arena[lowest + cut] <= rank[i])
            top += np.int64(hit)
            opened = cut if hit else opened
        return top
    for cut in range(parts):
        at = first_not_below(rank, at, end, arena[lowest + cut])
        if at == end:
            break
        push(arena, names + cut, at + 1 - begin, whose, stack, top)
        top += np.int64(rank[at] <= arena[highest + cut])
    return top


@inlined_kernel
def open_cells(
    arena: NDArray[np.int32], walk: Walk, node: tuple[Number, Number, Number], top: Number
) -> Number:
    """Put the cells that a message touches on the stack; return its top."""
    base, first, whose = node
    message, box, stack = walk.group[whose, MESSAGE], walk.box, walk.stack
    box_west, box_south = np.int64(box[message, 0]), np.int64(box[message, 1])
    box_east, box_north = np.int64(box[message, 2]), np.int64(box[message, 3])
    parts, names = np.int64(arena[base + PARTS]), base + np.int64(arena[base + CHILD])
    columns = np.int64(arena[base + COLUMNS])
    push(arena, names + parts, first, whose, stack, top)
    top += 1
    # A split is the first unit of a part: the first that is above a place ends its part.
    columns_end = base + HEADER + columns - 1
    west = first_not_below(arena, base + HEADER, columns_end, box_west + 1)
    south = first_not_below(arena, columns_end, names, box_south + 1)
    east, north = west, south
    if box_east != box_west:
        east = first_not_below(arena, west, columns_end, box_east + 1)
    if box_north != box_south:
        north = first_not_below(arena, south, names, box_north + 1)
    cell = names + (south - columns_end) * columns - base - HEADER
    for _ in range(south, north + 1):
        for column in range(west, east + 1):
            push(arena, cell + column, first, whose, stack, top)
            top += 1
        cell += columns
    return top


@kernel
def take_together(
    arena: NDArray[np.int32], walk: Walk, most: Number, top: Number
) -> tuple[Number, Number]:
    """Take nodes from the stack, and ask for what will be read of them first.

    Return how many there are, and the top of the stack then. Names that are of no node are left
    out.
    """
    stack, taken, count = walk.stack, walk.taken, np.int64(0)
    bottom = max(np.int64(0), top - most)
    for i in range(bottom, top):
        base = UNIT * np.int64(arena[stack[i, BASE]])
        for line in range(LINES):
            prefetch(arena, base + 16 * line)
        taken[count, BASE] = base
        taken[count, FIRST], taken[count, WHOSE] = stack[i, FIRST], stack[i, WHOSE]
        count += np.int64(base != 0)
    return count, bottom


@kernel
def walk_on(tree: Tree, walk: Walk, top: Number) -> tuple[Number, Number]:
    """Open nodes until none waits, or there is no room for more leaves.

    Return the top of the stack, and how many leaves there are.
    """
    arena, leaf, leaves = tree.arena, walk.leaf, np.int64(0)
    children = tree.state[FANOUT] + 2
    # The last rows are for nodes taken one by one, which go to the depth of the tree.
    rows = len(walk.stack) - (tree.state[DEPTH] + 2) * children
    while top > 0 and leaves + TOGETHER <= len(leaf):
        most = min(max((rows - top) // children, np.int64(1)), np.int64(TOGETHER))
        count, top = take_together(arena, walk, most, top)
        for i in range(count):
            base, first, whose = walk.taken[i, BASE], walk.taken[i, FIRST], walk.taken[i, WHOSE]
            walk.group[whose, NODES] += 1
            kind = arena[base]
            if kind == LEAF:
                size = np.int64(arena[base + SIZE])
                walk.group[whose, ENTRIES] += size
                for line in range(
                    LINES, min((LEAF_HEADER + 5 * size) // 16 + 1, np.int64(MAX_LINES))
                ):
                    prefetch(arena, base + 16 * line)
                leaf[leaves, 0], leaf[leaves, 1] = base, whose
                leaves += 1
            elif kind == KEYWORDS:
                top = open_cuts(arena, walk, (base, first, whose), top)
            else:
                top = open_cells(arena, walk, (base, first, whose), top)
    return top, leaves


@kernel
def set_out(walk: Walk, messages: Number) -> Number:
    """Let so many messages wait before the root; return the top of the stack."""
    for whose in range(messages):
        # The first message of the group is on top.
        row = walk.stack[messages - 1 - whose]
        row[BASE], row[FIRST], row[WHOSE] = ROOT, 0, whose
        walk.group[whose, NODES], walk.group[whose, ENTRIES] = 0, 0
    return np.int64(messages)
