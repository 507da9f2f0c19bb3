"""Find candidates of ranked subscriptions in trees with token sets and inverted files.

Two walks, both with frames as in `match`: the tokens of the message that occur below a node, each
with the entries below which it occurs.

- by bounds (``ir-tree-1``, ``ir-tree-100``, ``rt-tree``): the weights of the tokens that occur
  below an entry limit T, its box limits S, and its bounds (`ranked_bounds`) say whether that can be
  enough. Inverted files of leaves give the exact weight that a subscription shares.
- by prefixes (``rt+-tree``): an entry is opened if it meets the message and has a prefix token of
  it, or has one that is enough anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, bit_count, borrow, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import Output, known_tokens
from nearcast.compiled.token_table import SIZE, START, Tables, find_slot, home
from nearcast.indexes.rtree.match import NODE_BITS
from nearcast.indexes.rtree.nodes import Box, RTree, overlapping_slots, slot_end
from nearcast.indexes.rtree.ranked_bounds import (
    EXTENT,
    P_MAX,
    Q_MIN,
    SLACK,
    WEIGHT,
    matching_slots,
    text_below,
    write_text_bounds,
    write_text_scores,
)
from nearcast.indexes.rtree.ranked_keys import EVERY
from nearcast.indexes.rtree.ranked_space import write_spaces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedMessages, ScoringCodes


class BoundArrays(NamedTuple):
    """Trees with bounds.

    ``bound`` float32[nodes, 5, most], see `ranked_bounds`; ``root`` int64[trees]. Token ``t``
    weighs ``weight[t]``, or ``unknown_weight[0]`` from ``len(weight)`` on.
    """

    tree: RTree
    tables: Tables
    root: NDArray[np.int64]
    bound: NDArray[np.float32]
    weight: NDArray[np.float64]
    unknown_weight: NDArray[np.float64]


class PrefixArrays(NamedTuple):
    """Trees whose nodes know prefixes of subscriptions."""

    tree: RTree
    tables: Tables
    root: NDArray[np.int64]


class WalkScratch(NamedTuple):
    """Scratch for one message at a time.

    - ``stack`` int64[k]: places of nodes to open, as in `match`; ``above`` float64[k]: the bound of
      S that their parents have for them.
    - ``token`` and ``entries`` uint64[levels + 1, t], ``weight`` float64[levels + 1, t]: frames,
      by level, the last one for the message; ``size`` int64: the number of their tokens.
    - ``shared`` and ``space`` float64[64]: weights or T, and S or gaps, of the slots of a node.
    """

    stack: NDArray[np.int64]
    above: NDArray[np.float64]
    token: NDArray[np.uint64]
    entries: NDArray[np.uint64]
    weight: NDArray[np.float64]
    size: NDArray[np.int64]
    shared: NDArray[np.float64]
    space: NDArray[np.float64]


def make_walk_scratch(height: int, trees: int, tokens: int) -> WalkScratch:
    """Return scratch for trees of at most this height and messages of at most ``tokens`` tokens."""
    levels, slots = height + 2, tokens + 1
    return WalkScratch(
        stack=np.empty(trees + 64 * levels, np.int64),
        above=np.empty(trees + 64 * levels),
        token=np.empty((levels, slots), np.uint64),
        entries=np.empty((levels, slots), np.uint64),
        weight=np.empty((levels, slots)),
        size=np.zeros(levels, np.int64),
        shared=np.zeros(64),
        space=np.zeros(64),
    )


@kernel
def token_weight(index: BoundArrays, token: Number) -> Number:
    """Return the weight of a token."""
    return index.weight[token] if token < len(index.weight) else index.unknown_weight[0]


@kernel
def push_roots(tree: RTree, root: NDArray[np.int64], stack: NDArray[np.int64]) -> Number:
    """Push the roots of all trees that are not empty; return the top of the stack."""
    top = np.int64(0)
    for i in range(len(root)):
        if tree.used[root[i]] != np.uint64(0):
            stack[top] = root[i]
            top += 1
    return top


@kernel
def frame_above(tree: RTree, node: Number, scratch: WalkScratch) -> Number:
    """Return the frame of a node's parent; that of the message for a root."""
    if tree.parent[node] < 0:
        return np.int64(len(scratch.size) - 1)
    return np.int64(tree.level[node]) + 1


@kernel
def push_slots(
    tree: RTree, tables: Tables, node: Number, slots: Number, stack: NDArray[np.int64], top: Number
) -> Number:
    """Push the children in these slots onto the stack; return its new top."""
    while slots != np.uint64(0):
        slot = lowest_bit(slots)
        slots &= slots - np.uint64(1)
        child = np.int64(tree.entry[node, slot])
        prefetch(tree.box, child)
        prefetch(tables.table, child)
        stack[top] = (slot << NODE_BITS) | child
        top += 1
    return top


@kernel
def append_rows(
    tree: RTree, leaf: Number, slots: Number, found: NDArray[np.int32], count: Number
) -> Number:
    """Append the rows in these slots of a leaf; return the end."""
    while slots != np.uint64(0):
        slot = lowest_bit(slots)
        slots &= slots - np.uint64(1)
        found[count] = tree.key[leaf, slot]
        count += 1
    return count


# By bounds.


@kernel
def find_by_bounds(
    index: BoundArrays,
    codes: ScoringCodes,
    messages: RankedMessages,
    numbers: tuple[Number, Number],
    scratch: WalkScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Find candidates for the messages ``numbers[0]`` to ``numbers[1]``.

    Return the message at which the output was full (or the end), the candidates and the nodes
    visited.
    """
    index, messages, scratch = borrow(index), borrow(messages), borrow(scratch)
    start, found = borrow(output)
    examined, visited = np.int64(0), np.int64(0)
    for message in range(numbers[0], numbers[1]):
        fill_message_frame(index, messages, message, scratch)
        count, more = walk_bounds(index, codes, messages, message, scratch, found, start)
        if count < 0:
            return np.int64(message), examined, visited
        examined += count - start[message]
        visited += more
        start[message + 1] = count
    return np.int64(numbers[1]), examined, visited


@kernel
def fill_message_frame(
    index: BoundArrays, messages: RankedMessages, message: Number, scratch: WalkScratch
) -> None:
    """Fill the frame above the roots with all tokens of a message and their weights."""
    tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
    frame, count = len(scratch.size) - 1, known_tokens(tokens)
    for i in range(count):
        scratch.token[frame, i] = np.uint64(tokens[i])
        scratch.entries[frame, i] = np.uint64(1)
        scratch.weight[frame, i] = token_weight(index, np.int64(tokens[i]))
    scratch.size[frame] = count


@kernel
def walk_bounds(
    index: BoundArrays,
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    scratch: WalkScratch,
    found: NDArray[np.int32],
    start: NDArray[np.int64],
) -> tuple[Number, Number]:
    """Append the candidates of a message; return their end (-1 if full) and the nodes visited."""
    tree, count, visited = index.tree, start[message], np.int64(0)
    weight = messages.text_weight[message]
    top = push_roots(tree, index.root, scratch.stack)
    for i in range(top):
        scratch.above[i] = 1.0
    while top > 0:
        top -= 1
        slot, node = split_place(scratch.stack[top])
        is_far, bound, level = scratch.above[top] == 0.0, index.bound[node], tree.level[node]
        visited += 1
        if top > 0:
            prefetch_tokens(tree, index.tables, scratch.stack[top - 1], scratch)
        if level == 0:
            if count + tree.entry.shape[1] > len(found):
                return np.int64(-1), visited
            if is_far:
                count = read_far_leaf(index, codes, (node, slot), weight, scratch, found, count)
                continue
        most = slot_end(tree, node)
        share_tokens(index, node, slot, most, scratch)
        if level == 0:
            write_text_scores(codes.similarity, bound, weight, most, scratch.shared)
        else:
            write_text_bounds(codes.similarity, bound, weight, most, scratch.shared)
        if is_far:
            for i in range(most):
                scratch.space[i] = 0.0
        else:
            sizes = bound[EXTENT]
            write_spaces(codes, tree.box[node], sizes, messages, message, most, scratch.space)
        slots = matching_slots(bound, scratch.shared, scratch.space, most) & tree.used[node]
        if level == 0:
            count = append_rows(tree, node, slots, found, count)
        else:
            keep_entries(scratch, np.int64(level), slots)
            top = push_bounded(index, node, slots, scratch, top)
    return count, visited


@kernel
def push_bounded(
    index: BoundArrays, node: Number, slots: Number, scratch: WalkScratch, top: Number
) -> Number:
    """Push the children in these slots, and their S; return the new top of the stack.

    S is 0 only where all that matches has a token of the message: not below an entry that has
    subscriptions without keywords, or that match everything.
    """
    bound = index.bound[node]
    while slots != np.uint64(0):
        slot = lowest_bit(slots)
        slots &= slots - np.uint64(1)
        child = np.int64(index.tree.entry[node, slot])
        prefetch(index.tables.table, child)
        space = scratch.space[slot]
        if bound[WEIGHT, slot] == 0.0 or np.float64(bound[Q_MIN, slot]) <= 2.0 * SLACK:
            space = max(space, SLACK)
        if space > 0.0:
            prefetch(index.tree.box, child)
        scratch.stack[top] = (slot << NODE_BITS) | child
        scratch.above[top] = space
        top += 1
    return top


@kernel
def prefetch_tokens(tree: RTree, tables: Tables, place: Number, scratch: WalkScratch) -> None:
    """Prefetch the tokens of the message in the table of a node that is opened next."""
    slot, node = split_place(place)
    above, start, size = (
        frame_above(tree, node, scratch),
        tables.table[node, START],
        tables.table[node, SIZE],
    )
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            prefetch(tables.slot, start + home(scratch.token[above, i], size))


@kernel
def read_far_leaf(
    index: BoundArrays,
    codes: ScoringCodes,
    place: tuple[Number, Number],
    message_weight: Number,
    scratch: WalkScratch,
    found: NDArray[np.int32],
    count: Number,
) -> Number:
    """Append the candidates of a leaf that is too far away for any S; return their end.

    Only subscriptions that share a token can match, and they are few.
    """
    tree, tables, shared = index.tree, index.tables, scratch.shared
    hit: Number = np.uint64(0)
    leaf, slot = place
    above = frame_above(tree, leaf, scratch)
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) == np.uint64(0):
            continue
        at = find_slot(tables, leaf, scratch.token[above, i])
        entries: Number = tables.slot[at, 1] if at >= 0 else np.uint64(0)
        while entries != np.uint64(0):
            one = lowest_bit(entries)
            entries &= entries - np.uint64(1)
            before = shared[one] if (hit >> np.uint64(one)) & np.uint64(1) != np.uint64(0) else 0.0
            shared[one] = before + scratch.weight[above, i]
            hit |= np.uint64(1) << np.uint64(one)
    hit = hit & tree.used[leaf]
    bound = index.bound[leaf]
    while hit != np.uint64(0):
        one = lowest_bit(hit)
        hit &= hit - np.uint64(1)
        text = text_below(
            codes.similarity, np.float64(bound[WEIGHT, one]), message_weight, shared[one]
        )
        if np.float64(bound[P_MAX, one]) * text >= np.float64(bound[Q_MIN, one]) - SLACK:
            found[count] = tree.key[leaf, one]
            count += 1
    return count


@kernel
def split_place(place: Number) -> tuple[Number, Number]:
    """Return the slot and the node of a place on the stack."""
    return place >> NODE_BITS, place & ((np.int64(1) << NODE_BITS) - 1)


@kernel
def share_tokens(
    index: BoundArrays, node: Number, slot: Number, most: Number, scratch: WalkScratch
) -> None:
    """Fill the frame of a node from its parent's, and add up the weights that slots share."""
    tables, level = index.tables, np.int64(index.tree.level[node])
    above, wanted = frame_above(index.tree, node, scratch), np.int64(0)
    for i in range(most):
        scratch.shared[i] = 0.0
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            scratch.token[level, wanted] = scratch.token[above, i]
            scratch.weight[level, wanted] = scratch.weight[above, i]
            wanted += 1
    count = np.int64(0)
    for i in range(wanted):
        token, weight = scratch.token[level, i], scratch.weight[level, i]
        at = find_slot(tables, node, token)
        if at >= 0:
            entries = tables.slot[at, 1]
            scratch.token[level, count], scratch.weight[level, count] = token, weight
            scratch.entries[level, count] = entries
            count += 1
            add_weight(scratch.shared, entries, weight, most)
    scratch.size[level] = count


@kernel
def add_weight(shared: NDArray[np.float64], entries: Number, weight: Number, most: Number) -> None:
    """Add a weight to the slots of a word: one by one if they are few, all at once if not."""
    if bit_count(entries) > 12:
        for slot in range(most):
            shared[slot] += weight * np.float64((entries >> np.uint64(slot)) & np.uint64(1))
        return
    while entries != np.uint64(0):
        shared[lowest_bit(entries)] += weight
        entries &= entries - np.uint64(1)


@kernel
def keep_entries(scratch: WalkScratch, level: Number, slots: Number) -> None:
    """Drop entries that are not opened from a frame, and tokens that have no others."""
    count = np.int64(0)
    for i in range(scratch.size[level]):
        entries = scratch.entries[level, i] & slots
        if entries != np.uint64(0):
            scratch.token[level, count] = scratch.token[level, i]
            scratch.weight[level, count] = scratch.weight[level, i]
            scratch.entries[level, count] = entries
            count += 1
    scratch.size[level] = count


# By prefixes.


@kernel
def find_by_prefixes(
    index: PrefixArrays,
    messages: RankedMessages,
    numbers: tuple[Number, Number],
    scratch: WalkScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Find candidates for the messages ``numbers[0]`` to ``numbers[1]``, see `find_by_bounds`."""
    index, messages, scratch = borrow(index), borrow(messages), borrow(scratch)
    start, found = borrow(output)
    tree = index.tree
    examined, visited = np.int64(0), np.int64(0)
    frame = len(scratch.size) - 1
    for message in range(numbers[0], numbers[1]):
        tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
        count = np.int64(0)
        for i in range(len(tokens)):
            if tokens[i] < EVERY:
                scratch.token[frame, count] = np.uint64(tokens[i])
                scratch.entries[frame, count] = np.uint64(1)
                count += 1
        scratch.token[frame, count] = np.uint64(EVERY)
        scratch.entries[frame, count] = np.uint64(1)
        scratch.size[frame] = count + 1
        count, top = start[message], push_roots(tree, index.root, scratch.stack)
        while top > 0:
            top -= 1
            slot, node = split_place(scratch.stack[top])
            visited += 1
            if top > 0:
                prefetch_prefixes(tree, index.tables, scratch.stack[top - 1], scratch)
            slots = prefix_slots(index, (node, slot), messages, message, scratch)
            if tree.level[node] > 0:
                keep_entries(scratch, np.int64(tree.level[node]), slots)
                top = push_slots(tree, index.tables, node, slots, scratch.stack, top)
                continue
            if count + tree.entry.shape[1] > len(found):
                return np.int64(message), examined, visited
            count = append_rows(tree, node, slots, found, count)
        examined += count - start[message]
        start[message + 1] = count
    return np.int64(numbers[1]), examined, visited


@kernel
def prefix_slots(
    index: PrefixArrays,
    place: tuple[Number, Number],
    messages: RankedMessages,
    message: Number,
    scratch: WalkScratch,
) -> Number:
    """Fill the frame of a node from its parent's; return the slots that a match can be below."""
    tables, (node, slot) = index.tables, place
    level = np.int64(index.tree.level[node])
    above, wanted = frame_above(index.tree, node, scratch), np.int64(0)
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            token = scratch.token[above, i]
            scratch.token[level, wanted] = token
            wanted += 1
    count, near, anywhere = np.int64(0), np.uint64(0), np.uint64(0)
    for i in range(wanted):
        token = scratch.token[level, i]
        at = find_slot(tables, node, token << np.uint64(1))
        if at >= 0:
            entries = tables.slot[at, 1]
            scratch.token[level, count], scratch.entries[level, count] = token, entries
            count += 1
            near |= entries
            at = find_slot(tables, node, (token << np.uint64(1)) | np.uint64(1))
            if at >= 0:
                anywhere |= tables.slot[at, 1]
    scratch.size[level] = count
    if near & ~anywhere != np.uint64(0):
        near &= meeting_slots(index.tree.box, node, messages, message)
    return (near | anywhere) & index.tree.used[node]


@kernel
def prefetch_prefixes(tree: RTree, tables: Tables, place: Number, scratch: WalkScratch) -> None:
    """Prefetch the tokens of the message in the table of a node that is opened next."""
    slot, node = split_place(place)
    above = frame_above(tree, node, scratch)
    start, size = tables.table[node, START], tables.table[node, SIZE]
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            token = scratch.token[above, i] << np.uint64(1)
            prefetch(tables.slot, start + home(token, size))
            prefetch(tables.slot, start + home(token | np.uint64(1), size))


@kernel
def meeting_slots(
    box: NDArray[np.int32], node: Number, messages: RankedMessages, message: Number
) -> Number:
    """Return the slots of a node whose boxes meet a message."""
    slots = np.uint64(0)
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        sides = messages.box[piece]
        slots |= overlapping_slots(box, node, Box(sides[0], sides[1], sides[2], sides[3]))
    return slots
