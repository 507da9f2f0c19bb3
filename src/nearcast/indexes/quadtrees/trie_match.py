"""Match messages against a trie of lists and quadtrees: its tokens first, then its place.

AP-Tree, VLDB Journal 2015, sections 3.1 (ordered keyword trie) and 5.1. Quadtrees that a message
reaches are walked side by side, one level after the other: what is needed of the next one is asked
for while others are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.box_lists import CAPACITY, SIZE, START
from nearcast.compiled.jit import Number, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.token_filter import occurs
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.quadtrees.cells import Sides, touched_children
from nearcast.indexes.quadtrees.lists import (
    BRANCH,
    OWNER,
    RUN_COUNT,
    RUN_START,
    Quad,
    find_row,
)
from nearcast.indexes.quadtrees.scan import (
    ANYWHERE,
    LISTS,
    VISITED,
    Output,
    Scratch,
    ask_for,
    corner_of,
    put_aside,
    scan_lists,
)
from nearcast.indexes.quadtrees.tree import CHILD, cell_of
from nearcast.indexes.quadtrees.trie_lists import TOP_OWNER, TREE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.box_lists import Seen, Tokens


TREES, BRANCHES = 0, 1
"""In ``level`` of the room for a message: how many trees and branches wait to be walked."""


@inlined_kernel
def ask_children(quad: Quad, seen: Seen, owner: Number, scratch: Scratch) -> Number:
    """Note the children of a branch to be looked up; return how many."""
    run, asked, known = quad.run[owner], np.int64(0), known_tokens(seen.tokens)
    if run[RUN_COUNT] < 4 * known:
        for i in range(run[RUN_START], run[RUN_START] + run[RUN_COUNT]):
            token = np.int64(quad.listed[i])
            if occurs(seen.token_filter, seen.tokens, token):
                ask_for(quad.slot, owner, token, scratch.asked[asked])
                asked += 1
    else:
        for i in range(known):
            ask_for(quad.slot, owner, np.int64(seen.tokens[i]), scratch.asked[asked])
            asked += 1
    return asked


@inlined_kernel
def ask_top(quad: Quad, tokens: NDArray[np.int32], scratch: Scratch) -> Number:
    """Note the children of the root to be looked up, which were asked for before."""
    known = known_tokens(tokens)
    for i in range(known + 1):
        scratch.asked[i, 0] = TOP_OWNER
        scratch.asked[i, 1] = np.int64(tokens[i]) if i < known else NO_TOKEN
    return np.int64(known + 1)


@inlined_kernel
def look_up(quad: Quad, asked: Number, scratch: Scratch, output: Output) -> None:
    """Put lists, trees and branches aside that were asked for."""
    trees, branches = scratch.level[TREES], scratch.level[BRANCHES]
    for i in range(asked):
        at = find_row(quad.slot, scratch.asked[i, 0], scratch.asked[i, 1])
        row = quad.slot[at]
        if row[OWNER] == 0:
            continue
        output.tally[VISITED] += 1
        if row[CAPACITY] == TREE:
            prefetch(quad.node, np.int64(row[START]))
            scratch.queue[trees] = row[START]
            trees += 1
        else:
            put_aside(quad.entry, row, (ANYWHERE, ANYWHERE), scratch.lists, output.tally)
        if row[BRANCH] != 0:
            prefetch(quad.run, np.int64(row[BRANCH]))
            scratch.branch[branches] = row[BRANCH]
            branches += 1
    scratch.level[TREES], scratch.level[BRANCHES] = trees, branches


@inlined_kernel
def open_node(
    quad: Quad, clauses: Tokens, seen: Seen, node: Number, scratch: Scratch, output: Output
) -> Number:
    """Put the list of a node aside; return a bit for every child that the message touches."""
    output.tally[VISITED] += 1
    row, cell, box = quad.node[node], cell_of(quad, node), seen.box
    if row[SIZE] > 0:
        if output.tally[LISTS] == len(scratch.lists):
            scan_lists(quad.entry.reshape(-1), clauses, seen, scratch, output)
        put_aside(quad.entry, row, corner_of(cell, box), scratch.lists, output.tally)
    if row[CHILD] < 0:
        return np.int64(0)
    sides = Sides(np.int64(box[0]), np.int64(box[1]), np.int64(box[2]), np.int64(box[3]))
    return touched_children(cell, sides)


@kernel
def walk_below(
    quad: Quad, clauses: Tokens, seen: Seen, node: Number, scratch: Scratch, output: Output
) -> None:
    """Open a node and all below it that the message touches, one after the other."""
    stack, top = scratch.stack, np.int64(1)
    stack[0] = node
    while top > 0:
        top -= 1
        first = np.int64(quad.node[stack[top], CHILD])
        touched = open_node(quad, clauses, seen, stack[top], scratch, output)
        for child in range(4):
            if (touched >> child) & 1:
                stack[top] = first + child
                top += 1


@inlined_kernel
def walk_trees(quad: Quad, clauses: Tokens, seen: Seen, scratch: Scratch, output: Output) -> None:
    """Open the nodes of all trees that wait; none waits any more then.

    A message of a large box may open more of them than the queue has room for.
    """
    queue, head, tail = scratch.queue, np.int64(0), scratch.level[TREES]
    scratch.level[TREES] = 0
    while head < tail:
        node = queue[head]
        head += 1
        touched = open_node(quad, clauses, seen, node, scratch, output)
        for child in range(4):
            if (touched >> child) & 1:
                below = np.int64(quad.node[node, CHILD]) + child
                if tail < len(queue):
                    prefetch(quad.node, below)
                    queue[tail] = below
                    tail += 1
                else:
                    walk_below(quad, clauses, seen, below, scratch, output)


@inlined_kernel
def match_in_trie(
    quad: Quad, clauses: Tokens, seen: Seen, scratch: Scratch, output: Output
) -> None:
    """Write the matches of a message."""
    flat, waiting = quad.entry.reshape(-1), scratch.level
    waiting[TREES], waiting[BRANCHES] = 0, 0
    asked = ask_top(quad, seen.tokens, scratch)
    look_up(quad, asked, scratch, output)
    while waiting[BRANCHES] > 0:
        waiting[BRANCHES] -= 1
        asked = ask_children(quad, seen, scratch.branch[waiting[BRANCHES]], scratch)
        if output.tally[LISTS] + asked > len(scratch.lists):
            scan_lists(flat, clauses, seen, scratch, output)
        if waiting[TREES] + asked > len(scratch.queue):
            walk_trees(quad, clauses, seen, scratch, output)
        look_up(quad, asked, scratch, output)
    walk_trees(quad, clauses, seen, scratch, output)
    scan_lists(flat, clauses, seen, scratch, output)
