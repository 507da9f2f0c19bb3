"""Walk messages through the trie of a trie-pyramid, to the lists that have to be scanned.

A few messages go together, in waves. Each step only computes where the next one will look and asks
the memory for it (`prefetch`), so that many cache lines are on their way at once instead of one
after the other: tokens -> nodes -> slots of children and cells -> nodes and lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, inlined_kernel, kernel, prefetch
from nearcast.kernels.pyramid import LEVELS, cell_code, cell_key
from nearcast.kernels.tag_table import BITS32, LOW32, find_tag, mix, slot_position, token_position
from nearcast.kernels.trie_pyramid import FREE, LIST, TriePyramidArrays
from nearcast.kernels.trie_pyramid_scan import FLAT, PYRAMID

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUP = 8
"""How many messages go together."""

WAVE = 64
"""How many nodes go through the steps together."""

WALK_SHARE = 4
"""A node's children are walked when the message has this many times more tokens than they are."""


class WalkScratch(NamedTuple):
    """Room for walking: rows are the messages of a group.

    ``token_key`` holds rank and slot of a message's tokens, ``token`` the tokens, both by rank;
    ``token_count`` how many, ``signature`` a bit for each. ``stack`` holds nodes to visit, with the
    message and the number of its tokens that are used up; ``child`` and ``cell`` what a wave
    looks up; ``lists`` what has to be scanned, ``list_count`` how many per message.
    """

    token_key: NDArray[np.uint64]
    token: NDArray[np.uint64]
    token_count: NDArray[np.int64]
    signature: NDArray[np.uint64]
    window: NDArray[np.int64]
    stack: NDArray[np.uint64]
    child: NDArray[np.uint64]
    cell: NDArray[np.uint64]
    lists: NDArray[np.uint64]
    list_count: NDArray[np.int64]


@kernel
def order_tokens(
    token_slot: NDArray[np.uint64], tokens: NDArray[np.int32], scratch: WalkScratch, g: Number
) -> None:
    """Look up the tokens of a message, drop those without a clause, lay out the rest by rank."""
    mask = np.uint64(len(token_slot) - 1)
    key = scratch.token_key[g]
    count = np.int64(0)
    signature = np.uint64(0)
    for i in range(len(tokens)):
        token = np.uint64(tokens[i])
        position = token_position(token, mask)
        while token_slot[position, 0] != FREE and (token_slot[position, 0] & LOW32) != token:
            position = (position + np.uint64(1)) & mask
        if token_slot[position, 0] == FREE:
            continue
        value = (token_slot[position, 0] & ~LOW32) | position
        place = count
        if len(tokens) <= 32:
            while place > 0 and key[place - 1] > value:
                key[place] = key[place - 1]
                place -= 1
        key[place] = value
        count += 1
        signature |= np.uint64(1) << (token & np.uint64(63))
    if len(tokens) > 32:
        key[:count].sort()
    scratch.token_count[g] = count
    scratch.signature[g] = signature


@kernel
def start_walk(
    index: TriePyramidArrays,
    tokens: NDArray[np.int32],
    scratch: WalkScratch,
    g: Number,
    top: Number,
) -> Number:
    """Put the nodes and lists of a message's tokens on the stack and the lists; return its top."""
    order_tokens(index.token_slot, tokens, scratch, g)
    lists = np.int64(0)
    stack = scratch.stack
    stack[top, 0] = np.uint64(0)
    stack[top, 1] = (np.uint64(g) << BITS32) | np.uint64(scratch.token_count[g])
    top += 1
    for i in range(scratch.token_count[g]):
        slot = scratch.token_key[g, i] & LOW32
        scratch.token[g, i] = index.token_slot[slot, 0] & LOW32
        reference = index.token_slot[slot, 1]
        if reference & LIST:
            position = reference ^ LIST
            prefetch(index.entry, position)
            scratch.lists[g, lists, 0] = position | FLAT
            lists += 1
        elif reference != np.uint64(0):
            prefetch(index.node, reference)
            stack[top, 0] = reference
            stack[top, 1] = (np.uint64(g) << BITS32) | np.uint64(i + 1)
            top += 1
    scratch.list_count[g] = lists
    return top


@inlined_kernel
def add_list(
    entry: NDArray[np.uint64], scratch: WalkScratch, g: Number, position: Number, kind: Number
) -> None:
    """Add a list to those of a message and ask for its beginning."""
    prefetch(entry, position)
    count = scratch.list_count[g]
    if kind == FLAT:
        scratch.lists[g, count, 0] = position | FLAT
    else:
        scratch.lists[g, count, 0] = position
        scratch.lists[g, count, 1] = kind
    scratch.list_count[g] = count + 1


@inlined_kernel
def ask_for_cells(
    index: TriePyramidArrays,
    scratch: WalkScratch,
    k: Number,
    g: Number,
    mask: Number,
    cells: Number,
) -> Number:
    """Note the cell of every level of a node for a point message; return how many are noted."""
    x, y = scratch.window[g, 0], scratch.window[g, 1]
    level = np.int64(0)
    while (mask >> level) != 0:
        if (mask >> level) & 1:
            side = np.int64(32) - level
            hashed = mix(cell_key(k, cell_code(level, x >> side, y >> side)), index.setting[1])
            prefetch(index.cell_slot, slot_position(index.cell_slot, hashed))
            scratch.cell[cells, 0] = hashed
            scratch.cell[cells, 1] = k | (np.uint64(level) << np.uint64(48))
            scratch.cell[cells, 2] = np.uint64(g)
            cells += 1
        level += 1
    return cells


@inlined_kernel
def ask_for_children(
    index: TriePyramidArrays,
    scratch: WalkScratch,
    k: Number,
    g: Number,
    after: Number,
    children: Number,
) -> Number:
    """Note the child of a node for every token left of a message; return how many are noted."""
    for i in range(after, scratch.token_count[g]):
        token = scratch.token[g, i]
        if (index.node[k, 0] >> (token & np.uint64(63))) & np.uint64(1):
            hashed = mix((k << BITS32) | token, index.setting[0])
            prefetch(index.child_slot, slot_position(index.child_slot, hashed))
            scratch.child[children, 0] = hashed
            scratch.child[children, 1] = (np.uint64(g) << BITS32) | np.uint64(i + 1)
            scratch.child[children, 2] = k
            children += 1
    return children


@kernel
def walk_children(
    index: TriePyramidArrays,
    scratch: WalkScratch,
    k: Number,
    g: Number,
    after: Number,
    children: Number,
) -> Number:
    """Note the children of a node whose token a long message has, going through the children."""
    first = np.int64(index.node[k, 3] & LOW32)
    count = scratch.token_count[g]
    for child in range(first, first + np.int64(index.node[k, 3] >> BITS32)):
        rank = index.node[child, 7] & ~LOW32
        low, high = after, count
        while low < high:
            middle = (low + high) >> 1
            if scratch.token_key[g, middle] < rank:
                low = middle + 1
            else:
                high = middle
        if low < count and scratch.token[g, low] == (index.node[child, 7] & LOW32):
            scratch.child[children, 0] = np.uint64(child)
            scratch.child[children, 1] = (np.uint64(g) << BITS32) | np.uint64(low + 1)
            scratch.child[children, 2] = FREE
            children += 1
    return children


@kernel
def visit_nodes(
    index: TriePyramidArrays, scratch: WalkScratch, base: Number, top: Number
) -> tuple[Number, Number]:
    """Visit the nodes of a wave: add their lists, note children and cells to look up."""
    node = index.node
    children = np.int64(0)
    cells = np.int64(0)
    for w in range(base, top):
        k = scratch.stack[w, 0]
        g = np.int64(scratch.stack[w, 1] >> BITS32)
        after = np.int64(scratch.stack[w, 1] & LOW32)
        if k != np.uint64(0) and (node[k, 7] & LOW32) != scratch.token[g, after - 1]:
            continue
        x0, y0 = scratch.window[g, 0], scratch.window[g, 1]
        x1, y1 = scratch.window[g, 2], scratch.window[g, 3]
        if (
            np.int64(node[k, 1] & LOW32) > x1
            or np.int64(node[k, 1] >> BITS32) < x0
            or np.int64(node[k, 2] & LOW32) > y1
            or np.int64(node[k, 2] >> BITS32) < y0
        ):
            continue
        if node[k, 4] != np.uint64(0):
            add_list(index.entry, scratch, g, node[k, 4], FLAT)
        mask = np.int64(node[k, 6] >> BITS32)
        if mask and x0 == x1 and y0 == y1:
            cells = ask_for_cells(index, scratch, k, g, mask, cells)
        elif mask:
            scratch.lists[g, scratch.list_count[g], 0] = k | PYRAMID
            scratch.list_count[g] += 1
        left = scratch.token_count[g] - after
        if left > 0 and node[k, 0] & scratch.signature[g]:
            if np.int64(node[k, 3] >> BITS32) * WALK_SHARE < left:
                children = walk_children(index, scratch, k, g, after, children)
            else:
                children = ask_for_children(index, scratch, k, g, after, children)
    return children, cells


@kernel
def walk_group(
    index: TriePyramidArrays, scratch: WalkScratch, top: Number, group: Number
) -> Number:
    """Walk down from the nodes on the stack until it is empty or a message has no room for lists.

    Return what is left on the stack.
    """
    node = index.node
    room = np.int64(scratch.lists.shape[1]) - WAVE * (LEVELS + 1)
    while top > 0:
        for g in range(group):
            if scratch.list_count[g] > room:
                return top
        base = max(np.int64(0), top - WAVE)
        children, cells = visit_nodes(index, scratch, base, top)
        top = base
        for c in range(children):
            k = scratch.child[c, 2]
            child = scratch.child[c, 0]
            if k != FREE:
                child = find_tag(index.child_slot, child)
                first = node[k, 3] & LOW32
                if child < first or child >= first + (node[k, 3] >> BITS32):
                    continue
            prefetch(node, child)
            scratch.stack[top, 0] = child
            scratch.stack[top, 1] = scratch.child[c, 1]
            top += 1
        for c in range(cells):
            position = find_tag(index.cell_slot, scratch.cell[c, 0])
            k = scratch.cell[c, 1] & np.uint64((1 << 48) - 1)
            if position >= (node[k, 5] & LOW32) and position < (node[k, 5] >> BITS32):
                level = scratch.cell[c, 1] >> np.uint64(48)
                add_list(index.entry, scratch, np.int64(scratch.cell[c, 2]), position, level)
    return top
