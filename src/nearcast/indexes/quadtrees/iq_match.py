"""Match messages against an iq-tree: the cells that a message touches, then its tokens there.

AP-Tree, VLDB Journal 2015, section 3.1. The directory says first at which levels a token occurs at
all, so that most tokens are asked for in few cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import START
from nearcast.compiled.jit import Number, borrow, inlined_kernel
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.token_filter import occurs
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.quadtrees.cells import Sides, touched_children
from nearcast.indexes.quadtrees.lists import (
    OWNER,
    RUN_COUNT,
    RUN_START,
    Quad,
    find_row,
)
from nearcast.indexes.quadtrees.scan import (
    VISITED,
    Output,
    Scratch,
    ask_for,
    corner_of,
    put_aside,
    scan_lists,
)
from nearcast.indexes.quadtrees.tree import CHILD, DIRECTORY, cell_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.box_lists import Seen, Tokens


@inlined_kernel
def collect_tokens(
    quad: Quad, tokens: NDArray[np.int32], scratch: Scratch
) -> tuple[Number, Number]:
    """Look up the levels of a message's tokens; return how many have any, and all levels."""
    count, levels = np.int64(0), np.int64(0)
    scratch.level[:] = 0
    known = known_tokens(tokens)
    for i in range(known + 1):
        token = np.int64(tokens[i]) if i < known else NO_TOKEN
        at = find_row(quad.slot, DIRECTORY, token)
        if quad.slot[at, OWNER] != 0:
            bits = np.int64(quad.slot[at, START])
            scratch.token[count, 0], scratch.token[count, 1] = token, bits
            levels |= bits
            count += 1
            level = 0
            while bits >> level:
                scratch.level[level] += (bits >> level) & 1
                level += 1
    return count, levels


@inlined_kernel
def ask_node(
    quad: Quad, seen: Seen, node: Number, tokens: Number, scratch: Scratch, asked: Number
) -> Number:
    """Note the lists of a node to be looked up; return how many there are to look up then."""
    cell = cell_of(quad, node)
    first, west, south = asked, *corner_of(cell, seen.box)
    run = quad.run[node + 1]
    if run[RUN_COUNT] < 4 * scratch.level[cell.level]:
        for i in range(run[RUN_START], run[RUN_START] + run[RUN_COUNT]):
            token = np.int64(quad.listed[i])
            if occurs(seen.token_filter, seen.tokens, token):
                ask_for(quad.slot, node + 1, token, scratch.asked[asked])
                asked += 1
    else:
        for i in range(tokens):
            if (scratch.token[i, 1] >> cell.level) & 1:
                ask_for(quad.slot, node + 1, scratch.token[i, 0], scratch.asked[asked])
                asked += 1
    for i in range(first, asked):
        scratch.asked[i, 2], scratch.asked[i, 3] = west, south
    return asked


@inlined_kernel
def look_up(quad: Quad, asked: Number, scratch: Scratch, output: Output) -> None:
    """Put the lists aside that were asked for."""
    for i in range(asked):
        ask = scratch.asked[i]
        at = find_row(quad.slot, ask[0], ask[1])
        if quad.slot[at, OWNER] != 0:
            put_aside(quad.entry, quad.slot[at], (ask[2], ask[3]), scratch.lists, output.tally)


@inlined_kernel
def match_in_cells(
    quad: Quad, clauses: Tokens, seen: Seen, scratch: Scratch, output: Output
) -> None:
    """Write the matches of a message."""
    flat, box = borrow(quad.entry.reshape(-1)), seen.box
    sides = Sides(np.int64(box[0]), np.int64(box[1]), np.int64(box[2]), np.int64(box[3]))
    tokens, levels = collect_tokens(quad, seen.tokens, scratch)
    stack, asked, top = scratch.stack, np.int64(0), np.int64(1)
    stack[0] = 0
    while top > 0 and levels != 0:
        top -= 1
        node = stack[top]
        cell = cell_of(quad, node)
        if levels >> cell.level == 0:
            continue
        output.tally[VISITED] += 1
        if asked + tokens > len(scratch.asked):
            look_up(quad, asked, scratch, output)
            scan_lists(flat, clauses, seen, scratch, output)
            asked = np.int64(0)
        asked = ask_node(quad, seen, node, tokens, scratch, asked)
        first = np.int64(quad.node[node, CHILD])
        if first >= 0:
            touched = touched_children(cell, sides)
            for child in range(4):
                if (touched >> child) & 1:
                    stack[top] = first + child
                    top += 1
    look_up(quad, asked, scratch, output)
    scan_lists(flat, clauses, seen, scratch, output)
