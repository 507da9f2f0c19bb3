"""Walk a message down an R-tree, whatever its nodes know of tokens (`token_tree`).

A node is opened when its box meets the message and a token of the message occurs in what the tree
knows of the node. Below a node, only those tokens of the message are asked for that occur there:
each node of the path keeps a frame, its tokens with the entries below which they occur. Trees with
lists count instead: a clause that was met at every depth so far, and whose box meets the message,
keeps the way down to its leaf open (Li et al., KDD 2013, section 5.2, where it keeps open all
children of its node that meet the message).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, bit_count, borrow, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import MessageArrays
from nearcast.compiled.token_filter import clear_filter, occurs
from nearcast.compiled.token_table import SIZE, START, find_slot, home
from nearcast.indexes.rtree.files import read_file, read_rest, report_hits
from nearcast.indexes.rtree.lists import read_lists
from nearcast.indexes.rtree.nodes import ROOT, RTree, meeting
from nearcast.indexes.rtree.token_tree import FILES, LISTS, NOTHING
from nearcast.indexes.rtree.tree_arrays import (
    Asked,
    TreeArrays,
    TreeScratch,
    borrow_tree,
    start_message,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

EPOCH = 64
"""Numbers that a message has for itself in the stamps: more than there are depths."""


@kernel
def narrow_frame(
    index: TreeArrays, node: Number, slot: Number, inside: Number, scratch: TreeScratch
) -> Number:
    """Fill the frame of an inner node from its parent's; return the entries that have a token."""
    tables, level = index.tables, np.int64(index.tree.level[node])
    start, size = tables.table[node, START], tables.table[node, SIZE]
    above, kept = level + 1, np.int64(0)
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            scratch.token[level, kept] = scratch.token[above, i]
            prefetch(tables.slot, start + home(scratch.token[above, i], size))
            kept += 1
    wanted, count, having = kept, np.int64(0), np.uint64(0)
    for i in range(wanted):
        token = scratch.token[level, i]
        at = find_slot(tables, node, token)
        if at >= 0:
            entries = tables.slot[at, 1] & inside
            if entries != np.uint64(0):
                scratch.token[level, count] = token
                scratch.entries[level, count] = entries
                having |= entries
                count += 1
    scratch.size[level] = count
    return having


@kernel
def verify_leaf(
    index: TreeArrays,
    leaf: Number,
    inside: Number,
    asked: Asked,
    scratch: TreeScratch,
    match: NDArray[np.int32],
    found: Number,
) -> Number:
    """Append the clauses of these slots whose tokens all occur.

    The first token stands in the leaf; what is needed for the others is asked for in time.
    """
    ordered, left, count = index.ordered, inside, np.int64(0)
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if occurs(scratch.token_filter, asked.tokens, np.int64(index.tree.key[leaf, slot])):
            scratch.candidate[count] = index.tree.entry[leaf, slot]
            prefetch(ordered.start, scratch.candidate[count])
            count += 1
    for i in range(count):
        prefetch(ordered.token, ordered.start[scratch.candidate[i]])
    for i in range(count):
        clause = scratch.candidate[i]
        at, end = ordered.start[clause] + 1, ordered.start[clause + 1]
        while at < end and occurs(scratch.token_filter, asked.tokens, np.int64(ordered.token[at])):
            at += 1
        if at >= end:
            match[found] = clause
            found += 1
    return found


@kernel
def open_leaf(
    index: TreeArrays,
    kind: Number,
    place: tuple[Number, Number],
    asked: Asked,
    scratch: TreeScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a leaf; return how many there are, the examined, and if it counts."""
    leaf, slot = place
    inside = meeting(index.tree.box, leaf, asked.window)
    if kind == LISTS:
        met, any_token = read_rest(index, leaf, inside, asked, scratch)
        found = report_hits(index, leaf, met, asked.frame - 1, scratch, match, found)
        return found, bit_count(met), any_token
    if kind == FILES:
        met = read_file(index, leaf, slot, inside, scratch)
        found = report_hits(index, leaf, met, np.int64(0), scratch, match, found)
        return found, bit_count(met), True
    found = verify_leaf(index, leaf, inside, asked, scratch, match, found)
    return found, bit_count(inside), True


@kernel
def push_children(
    tree: RTree, node: Number, slots: Number, stack: NDArray[np.int64], top: Number
) -> Number:
    """Put the children in these slots on the stack; return its new top."""
    while slots != np.uint64(0):
        slot = lowest_bit(slots)
        slots &= slots - np.uint64(1)
        child = np.int64(tree.entry[node, slot])
        prefetch(tree.box, child)
        stack[top] = (slot << 40) | child
        top += 1
    return top


@kernel
def walk_message(
    index: TreeArrays,
    kind: Number,
    asked: Asked,
    scratch: TreeScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a message (-1: no room); return also the examined and the visited."""
    tree = index.tree
    height = asked.frame - 1
    examined, visited, top = np.int64(0), np.int64(0), np.int64(1)
    scratch.stack[0] = tree.state[ROOT]
    while top > 0:
        top -= 1
        slot, node = scratch.stack[top] >> 40, scratch.stack[top] & ((np.int64(1) << 40) - 1)
        level = np.int64(tree.level[node])
        if level == 0:
            if found + tree.entry.shape[1] > len(match):
                return np.int64(-1), examined, visited
            found, more, counts = open_leaf(index, kind, (node, slot), asked, scratch, match, found)
            examined += more
            visited += np.int64(counts)
            continue
        counts, going_on = True, ~np.uint64(0)
        if kind == LISTS and level < height:
            found, more, counts, going_on = read_lists(
                index, node, height - level, asked, scratch, match, found
            )
            if found < 0:
                return found, examined, visited
            examined += more
        visited += np.int64(counts)
        if going_on != np.uint64(0):
            inside = meeting(tree.box, node, asked.window) & going_on
            if kind != LISTS and kind != NOTHING:
                inside = narrow_frame(index, node, slot, inside, scratch)
            top = push_children(tree, node, inside, scratch.stack, top)
    return found, examined, visited


@kernel
def walk_messages(
    index: TreeArrays,
    kind: Number,
    messages: MessageArrays,
    numbers: tuple[Number, Number],
    scratch: TreeScratch,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match messages from the first to the last number.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``. Return where
    the room ended, the examined and the visited.
    """
    index = borrow_tree(index)
    scratch = TreeScratch(
        borrow(scratch.stack),
        borrow(scratch.token),
        borrow(scratch.entries),
        borrow(scratch.size),
        borrow(scratch.token_filter),
        borrow(scratch.hits),
        borrow(scratch.candidate),
        borrow(scratch.lists),
        borrow(scratch.posting),
        borrow(scratch.stamp),
        borrow(scratch.epoch),
    )
    messages = MessageArrays(
        borrow(messages.token_start), borrow(messages.token), borrow(messages.box)
    )
    match = borrow(match)
    examined, visited = np.int64(0), np.int64(0)
    for m in range(numbers[0], numbers[1]):
        if scratch.epoch[0] > (np.int64(1) << 32) - 2 * EPOCH:
            scratch.stamp[:] = 0
            scratch.epoch[0] = 0
        scratch.epoch[0] += EPOCH
        asked = start_message(index, messages, m, scratch)
        found, more_examined, more_visited = walk_message(
            index, kind, asked, scratch, match, match_start[m]
        )
        clear_filter(scratch.token_filter, asked.tokens)
        if found < 0:
            return np.int64(m), examined, visited
        examined += more_examined
        visited += more_visited
        match_start[m + 1] = found
    return np.int64(numbers[1]), examined, visited
