"""Which leaves of an ap-tree messages visit.

Wang et al., VLDB Journal 2015, algorithm 1. In a keyword node a message opens each cut that one of
its ranks hits, once, and below it only the ranks after the smallest of these count. In a space node
it opens the cells that it touches. It opens every dummy.

Several messages walk together. Their nodes wait on one stack; many are popped at a time, and the
first cache lines of all of them are prefetched before the first is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, instruction, kernel, prefetch
from nearcast.indexes.ap_tree.layout import (
    CHILDREN,
    COLUMNS,
    FANOUT,
    HEADER,
    KEYWORDS,
    LEAF,
    LEAF_HEADER,
    MAX_LEVEL,
    PARTS,
    ROOT,
    SIZE,
    UNIT,
    Tree,
    max_pending,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BATCH_NODES = 128
"""How many nodes are popped from the stack at a time."""

NODE_LINES = 2
"""How many cache lines of a node are prefetched before its kind is known."""

MAX_LEAF_LINES = 10
"""How many of a leaf are prefetched at most; the hardware prefetches the rest of a long one."""

MAX_LEAVES = 2048
"""How many leaves are collected before they are scanned."""

NODE, NEXT_RANK, MEMBER, STACK_WIDTH = range(4)
"""Columns of the stack: the link of a node, or its base once it is popped; the first rank of the
message that counts there; the message's number in its group."""

MESSAGE, RANK_BEGIN, RANK_END, VISITED, EXAMINED, GROUP_WIDTH = range(6)
"""Columns of the group: a message; where its ranks begin and end; nodes that it opened, and entries
of its leaves."""


class WalkScratch(NamedTuple):
    """Where the messages of a group are.

    - ``rank`` int32[m]: the ranks of all messages, ascending for each; ``group`` int64[members, 5]:
      see above; ``box`` int32[messages, 4].
    - ``stack`` int64[m, 3]: nodes to open; ``popped`` int64[128, 3]: those to open next.
    - ``leaf`` int64[m, 2]: the base of a visited leaf, and the member that visited it.
    """

    rank: NDArray[np.int32]
    group: NDArray[np.int64]
    box: NDArray[np.int32]
    stack: NDArray[np.int64]
    popped: NDArray[np.int64]
    leaf: NDArray[np.int64]


def walk_scratch(tree: Tree, box: NDArray[np.int32], members: int, tokens: int) -> WalkScratch:
    """Return scratch for a group of messages with this many tokens in total."""
    nodes = max_pending(tree) + BATCH_NODES * int(tree.state[FANOUT] + 2)
    return WalkScratch(
        rank=np.empty(tokens, np.int32),
        group=np.zeros((members, GROUP_WIDTH), np.int64),
        box=box,
        stack=np.empty((nodes, STACK_WIDTH), np.int64),
        popped=np.empty((BATCH_NODES, STACK_WIDTH), np.int64),
        leaf=np.empty((MAX_LEAVES, 2), np.int64),
    )


def _select(typing_context: Any, condition: Any, this: Any, other: Any) -> Any:
    """Return ``this`` if a condition holds, else ``other``, without a branch."""
    from numba.core import types

    signature = types.int64(types.boolean, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        from llvmlite import ir

        bit = builder.trunc(arguments[0], ir.IntType(1))
        chosen = builder.select(bit, arguments[1], arguments[2])
        # Without this mark, LLVM may turn the selection into a branch again.
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return signature, generate


select: Callable[[Any, Any, Any], Any] = instruction(
    _select, lambda condition, this, other: this if condition else other
)


@inlined_kernel
def first_not_below(
    numbers: NDArray[np.int32], begin: Number, end: Number, wanted: Number
) -> Number:
    """Return the first position of ascending numbers whose value is at least ``wanted``.

    A binary search without branches, half of which would be mispredicted. It may read
    ``numbers[end]``, whatever that is.
    """
    low, count = np.int64(begin), np.int64(end - begin)
    while count > 1:
        half = count >> 1
        # An unsigned position spares the check for a negative index.
        low = select(numbers[np.uint64(low + half - 1)] < wanted, low + half, low)
        count -= half
    return select((count > 0) & (numbers[np.uint64(low)] < wanted), low + 1, low)


@inlined_kernel
def push(
    arena: NDArray[np.int32],
    link: Number,
    next_rank: Number,
    member: Number,
    stack: NDArray[np.int64],
    top: Number,
) -> None:
    """Write a link to the stack and prefetch it."""
    prefetch(arena, link)
    stack[top, NODE], stack[top, NEXT_RANK], stack[top, MEMBER] = link, next_rank, member


@inlined_kernel
def open_cuts(
    arena: NDArray[np.int32], walk: WalkScratch, node: tuple[Number, Number, Number], top: Number
) -> Number:
    """Push the cuts of a keyword node that the message hits; return the top of the stack.

    Either each rank searches its cut, or each cut its first rank: whichever are fewer.
    """
    base, first, member = node
    rank, stack = walk.rank, walk.stack
    begin = walk.group[member, RANK_BEGIN]
    at, end = begin + first, walk.group[member, RANK_END]
    parts = np.int64(arena[base + PARTS])
    highest, links = base + HEADER, base + np.int64(arena[base + CHILDREN])
    lowest = highest + parts
    push(arena, links + parts, first, member, stack, top)
    top += 1
    if at == end:
        return top
    if end - at <= parts:
        opened = np.int64(-1)
        for i in range(at, end):
            cut = first_not_below(arena, highest, lowest, rank[i]) - highest
            push(arena, links + cut, i + 1 - begin, member, stack, top)
            hit = (cut < parts) & (cut != opened) & (arena[lowest + cut] <= rank[i])
            top += np.int64(hit)
            opened = cut if hit else opened
        return top
    for cut in range(parts):
        at = first_not_below(rank, at, end, arena[lowest + cut])
        if at == end:
            break
        push(arena, links + cut, at + 1 - begin, member, stack, top)
        top += np.int64(rank[at] <= arena[highest + cut])
    return top


@inlined_kernel
def open_cells(
    arena: NDArray[np.int32], walk: WalkScratch, node: tuple[Number, Number, Number], top: Number
) -> Number:
    """Push the cells of a space node that the message touches; return the top of the stack."""
    base, first, member = node
    message, box, stack = walk.group[member, MESSAGE], walk.box, walk.stack
    box_west, box_south = np.int64(box[message, 0]), np.int64(box[message, 1])
    box_east, box_north = np.int64(box[message, 2]), np.int64(box[message, 3])
    parts, links = np.int64(arena[base + PARTS]), base + np.int64(arena[base + CHILDREN])
    columns = np.int64(arena[base + COLUMNS])
    push(arena, links + parts, first, member, stack, top)
    top += 1
    # A split is the first coordinate of a column or row, so the first split above a coordinate
    # ends its column or row.
    columns_end = base + HEADER + columns - 1
    west = first_not_below(arena, base + HEADER, columns_end, box_west + 1)
    south = first_not_below(arena, columns_end, links, box_south + 1)
    east, north = west, south
    if box_east != box_west:
        east = first_not_below(arena, west, columns_end, box_east + 1)
    if box_north != box_south:
        north = first_not_below(arena, south, links, box_north + 1)
    cell = links + (south - columns_end) * columns - base - HEADER
    for _ in range(south, north + 1):
        for column in range(west, east + 1):
            push(arena, cell + column, first, member, stack, top)
            top += 1
        cell += columns
    return top


@kernel
def pop_nodes(
    arena: NDArray[np.int32], walk: WalkScratch, maximum: Number, top: Number
) -> tuple[Number, Number]:
    """Pop links and prefetch their nodes; return how many nodes there are, and the new top."""
    stack, popped, count = walk.stack, walk.popped, np.int64(0)
    bottom = max(np.int64(0), top - maximum)
    for i in range(bottom, top):
        base = UNIT * np.int64(arena[stack[i, NODE]])
        for line in range(NODE_LINES):
            prefetch(arena, base + 16 * line)
        popped[count, NODE] = base
        popped[count, NEXT_RANK], popped[count, MEMBER] = stack[i, NEXT_RANK], stack[i, MEMBER]
        count += np.int64(base != 0)
    return count, bottom


@kernel
def walk_on(tree: Tree, walk: WalkScratch, top: Number) -> tuple[Number, Number]:
    """Open nodes until none waits or the leaves are full; return the top, and how many leaves."""
    arena, leaf, leaves = tree.arena, walk.leaf, np.int64(0)
    children = tree.state[FANOUT] + 2
    # The last rows are reserved for nodes that are popped one by one, down to the lowest level.
    rows = len(walk.stack) - (tree.state[MAX_LEVEL] + 2) * children
    while top > 0 and leaves + BATCH_NODES <= len(leaf):
        maximum = min(max((rows - top) // children, np.int64(1)), np.int64(BATCH_NODES))
        count, top = pop_nodes(arena, walk, maximum, top)
        for i in range(count):
            base, first = walk.popped[i, NODE], walk.popped[i, NEXT_RANK]
            member = walk.popped[i, MEMBER]
            walk.group[member, VISITED] += 1
            kind = arena[base]
            if kind == LEAF:
                size = np.int64(arena[base + SIZE])
                walk.group[member, EXAMINED] += size
                for line in range(
                    NODE_LINES,
                    min((LEAF_HEADER + 5 * size) // 16 + 1, np.int64(MAX_LEAF_LINES)),
                ):
                    prefetch(arena, base + 16 * line)
                leaf[leaves, 0], leaf[leaves, 1] = base, member
                leaves += 1
            elif kind == KEYWORDS:
                top = open_cuts(arena, walk, (base, first, member), top)
            else:
                top = open_cells(arena, walk, (base, first, member), top)
    return top, leaves


@kernel
def start_walk(walk: WalkScratch, members: Number) -> Number:
    """Push the root for every member, the first on top; return the top of the stack."""
    for member in range(members):
        row = walk.stack[members - 1 - member]
        row[NODE], row[NEXT_RANK], row[MEMBER] = ROOT, 0, member
        walk.group[member, VISITED], walk.group[member, EXAMINED] = 0, 0
    return np.int64(members)
