"""Walk messages down an R-tree, whatever its nodes know about tokens (see the kinds in `tokens`).

A node is opened if its box overlaps the message and it has a token of the message. A token that a
node does not have, no node below it has, so each node of the path keeps a *frame*: those tokens of
the message that occur below it, each with the entries below which it occurs. A message of a
thousand tokens asks a leaf for a few of them.

Trees with token lists count instead: a clause that was found at every depth so far, and whose box
overlaps the message, keeps the path to its leaf open. (In Li et al., KDD 2013, section 5.2, it
keeps open all children of its node that overlap the message.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.clauses import length_of
from nearcast.compiled.jit import Number, bit_count, borrow, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import MessageArrays, Output, known_tokens
from nearcast.compiled.token_filter import FILTER_WORDS, clear_filter, occurs, set_filter
from nearcast.compiled.token_lists import list_count, list_start
from nearcast.compiled.token_table import LOW32, NO_TOKEN, SIZE, START, find_slot, home
from nearcast.indexes.rtree.nodes import ROOT, Box, RTree, bit, overlapping_slots
from nearcast.indexes.rtree.tokens import (
    INVERTED_FILES,
    NO_TOKENS,
    TOKEN_LISTS,
    IndexArrays,
    first_leaf_token,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

EPOCH = 64
"""Stamps that belong to one message: more than a tree has depths."""

AHEAD = 16
"""How many postings ahead the data of a clause is prefetched."""

NODE_BITS = 40
"""A place on the stack: the node in the low bits, its slot in its parent above them."""


class MatchScratch(NamedTuple):
    """Scratch for matching one message at a time.

    - ``stack`` int64[k]: places of nodes to open.
    - ``token`` and ``entries`` uint64[levels + 2, t]: the frames, by level; ``size`` int64: the
      number of their tokens.
    - ``token_filter`` uint64: a bit for each token of the message.
    - ``hits`` int64[64]: the number of tokens found of each clause of a leaf.
    - ``candidate`` int64[64]: clauses whose first token occurs.
    - ``lists`` int64[t, 2]: starts and sizes of token lists; ``posting`` int32: their content.
    - ``stamp`` uint32[clauses]: the epoch of the message that found a clause last, plus the depth.
    - ``epoch`` int64[1]: the epoch of the current message.
    """

    stack: NDArray[np.int64]
    token: NDArray[np.uint64]
    entries: NDArray[np.uint64]
    size: NDArray[np.int64]
    token_filter: NDArray[np.uint64]
    hits: NDArray[np.int64]
    candidate: NDArray[np.int64]
    lists: NDArray[np.int64]
    posting: NDArray[np.int32]
    stamp: NDArray[np.uint32]
    epoch: NDArray[np.int64]


class Stamps(NamedTuple):
    """The part of the scratch that is as large as the clauses, see `MatchScratch`."""

    stamp: NDArray[np.uint32]
    epoch: NDArray[np.int64]


class Query(NamedTuple):
    """A message: its box, its ascending tokens, and the number of the frame above the root."""

    window: Box
    tokens: NDArray[np.int32]
    frame: Number


def make_stamps(clauses: int) -> Stamps:
    """Return stamps of clauses that no message has found yet."""
    return Stamps(np.zeros(clauses, np.uint32), np.zeros(1, np.int64))


def make_match_scratch(height: int, tokens: int, stamps: Stamps) -> MatchScratch:
    """Return scratch for a tree of this height and messages of at most ``tokens`` tokens."""
    levels, slots = height + 2, tokens + 1
    return MatchScratch(
        stack=np.empty(64 * levels, np.int64),
        token=np.empty((levels, slots), np.uint64),
        entries=np.empty((levels, slots), np.uint64),
        size=np.zeros(levels, np.int64),
        token_filter=np.zeros(FILTER_WORDS, np.uint64),
        hits=np.zeros(64, np.int64),
        candidate=np.empty(64, np.int64),
        lists=np.empty((slots, 2), np.int64),
        posting=np.empty(1024, np.int32),
        stamp=stamps.stamp,
        epoch=stamps.epoch,
    )


@kernel
def match_messages(
    index: IndexArrays,
    kind: Number,
    messages: MessageArrays,
    numbers: tuple[Number, Number],
    scratch: MatchScratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match the messages ``numbers[0]`` to ``numbers[1]``.

    Return the message at which the output was full (or the end), the clauses examined and the nodes
    visited.
    """
    index, messages, scratch = borrow(index), borrow(messages), borrow(scratch)
    match_start, match = borrow(output)
    examined, visited = np.int64(0), np.int64(0)
    for m in range(numbers[0], numbers[1]):
        if scratch.epoch[0] > (np.int64(1) << 32) - 2 * EPOCH:
            scratch.stamp[:] = 0
            scratch.epoch[0] = 0
        scratch.epoch[0] += EPOCH
        query = start_message(index, messages, m, scratch)
        found, more_examined, more_visited = match_message(
            index, kind, query, scratch, match, match_start[m]
        )
        clear_filter(scratch.token_filter, query.tokens)
        if found < 0:
            return np.int64(m), examined, visited
        examined += more_examined
        visited += more_visited
        match_start[m + 1] = found
    return np.int64(numbers[1]), examined, visited


@kernel
def start_message(
    index: IndexArrays, messages: MessageArrays, m: Number, scratch: MatchScratch
) -> Query:
    """Fill the frame above the root with all tokens of a message, and the filter."""
    box = messages.box[m]
    tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
    frame = np.int64(index.tree.level[index.tree.state[ROOT]]) + 1
    count = known_tokens(tokens)
    for i in range(count):
        scratch.token[frame, i] = np.uint64(tokens[i])
        scratch.entries[frame, i] = np.uint64(1)
    scratch.token[frame, count] = np.uint64(NO_TOKEN)
    scratch.entries[frame, count] = np.uint64(1)
    scratch.size[frame] = count + 1
    set_filter(scratch.token_filter, tokens)
    return Query(Box(box[0], box[1], box[2], box[3]), tokens, frame)


@kernel
def match_message(
    index: IndexArrays,
    kind: Number,
    query: Query,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a message.

    Return the end of the matches (-1 if they do not fit), the clauses examined and the nodes
    visited.
    """
    tree = index.tree
    height = query.frame - 1
    examined, visited, top = np.int64(0), np.int64(0), np.int64(1)
    scratch.stack[0] = tree.state[ROOT]
    while top > 0:
        top -= 1
        place = scratch.stack[top]
        slot, node = place >> NODE_BITS, place & ((np.int64(1) << NODE_BITS) - 1)
        level = np.int64(tree.level[node])
        if level == 0:
            if found + tree.entry.shape[1] > len(match):
                return np.int64(-1), examined, visited
            found, more, counts = match_leaf(
                index, kind, (node, slot), query, scratch, match, found
            )
            examined += more
            visited += np.int64(counts)
            continue
        counts, open_slots = True, ~np.uint64(0)
        if kind == TOKEN_LISTS and level < height:
            found, more, counts, open_slots = read_lists(
                index, node, height - level, query, scratch, match, found
            )
            if found < 0:
                return found, examined, visited
            examined += more
        visited += np.int64(counts)
        if open_slots != np.uint64(0):
            slots = overlapping_slots(tree.box, node, query.window) & open_slots
            if kind != TOKEN_LISTS and kind != NO_TOKENS:
                slots = fill_frame(index, node, slot, slots, scratch)
            top = push_children(tree, node, slots, scratch.stack, top)
    return found, examined, visited


@kernel
def push_children(
    tree: RTree, node: Number, slots: Number, stack: NDArray[np.int64], top: Number
) -> Number:
    """Push the children in these slots onto the stack; return its new top."""
    while slots != np.uint64(0):
        slot = lowest_bit(slots)
        slots &= slots - np.uint64(1)
        child = np.int64(tree.entry[node, slot])
        prefetch(tree.box, child)
        stack[top] = (slot << NODE_BITS) | child
        top += 1
    return top


@kernel
def fill_frame(
    index: IndexArrays, node: Number, slot: Number, overlapping: Number, scratch: MatchScratch
) -> Number:
    """Fill the frame of an inner node from its parent's; return the entries that have a token."""
    tables, level = index.tables, np.int64(index.tree.level[node])
    start, size = tables.table[node, START], tables.table[node, SIZE]
    above, wanted = level + 1, np.int64(0)
    for i in range(scratch.size[above]):
        if (scratch.entries[above, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            scratch.token[level, wanted] = scratch.token[above, i]
            prefetch(tables.slot, start + home(scratch.token[above, i], size))
            wanted += 1
    count, slots = np.int64(0), np.uint64(0)
    for i in range(wanted):
        token = scratch.token[level, i]
        at = find_slot(tables, node, token)
        if at >= 0:
            entries = tables.slot[at, 1] & overlapping
            if entries != np.uint64(0):
                scratch.token[level, count] = token
                scratch.entries[level, count] = entries
                slots |= entries
                count += 1
    scratch.size[level] = count
    return slots


@kernel
def match_leaf(
    index: IndexArrays,
    kind: Number,
    place: tuple[Number, Number],
    query: Query,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a leaf.

    Return the end of the matches, the clauses examined, and whether the leaf counts as visited.
    """
    leaf, slot = place
    overlapping = overlapping_slots(index.tree.box, leaf, query.window)
    if kind == TOKEN_LISTS:
        hit, any_token = count_remaining(index, leaf, overlapping, query, scratch)
        found = append_complete(index, leaf, hit, query.frame - 1, scratch, match, found)
        return found, bit_count(hit), any_token
    if kind == INVERTED_FILES:
        hit = count_by_file(index, leaf, slot, overlapping, scratch)
        found = append_complete(index, leaf, hit, np.int64(0), scratch, match, found)
        return found, bit_count(hit), True
    found = verify_leaf(index, leaf, overlapping, query, scratch, match, found)
    return found, bit_count(overlapping), True


@kernel
def verify_leaf(
    index: IndexArrays,
    leaf: Number,
    slots: Number,
    query: Query,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> Number:
    """Append the clauses in these slots that have all their tokens in the message.

    The first token is in the leaf, the others are prefetched. Return the end of the matches.
    """
    ordered, left, count = index.ordered, slots, np.int64(0)
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        if occurs(scratch.token_filter, query.tokens, np.int64(index.tree.key[leaf, slot])):
            scratch.candidate[count] = index.tree.entry[leaf, slot]
            prefetch(ordered.start, scratch.candidate[count])
            count += 1
    for i in range(count):
        prefetch(ordered.token, ordered.start[scratch.candidate[i]])
    for i in range(count):
        clause = scratch.candidate[i]
        at, end = ordered.start[clause] + 1, ordered.start[clause + 1]
        while at < end and occurs(scratch.token_filter, query.tokens, np.int64(ordered.token[at])):
            at += 1
        if at >= end:
            match[found] = clause
            found += 1
    return found


# Inverted files of leaves: the number of tokens of each clause that occur in the message.


@kernel
def count_hits(hits: NDArray[np.int64], slots: Number) -> None:
    """Count one more token for the clause of each of these slots."""
    while slots != np.uint64(0):
        hits[lowest_bit(slots)] += 1
        slots &= slots - np.uint64(1)


@kernel
def count_by_file(
    index: IndexArrays, leaf: Number, slot: Number, overlapping: Number, scratch: MatchScratch
) -> Number:
    """Count the tokens of the clauses of a leaf that occur in its parent's frame.

    Return the slots of the clauses that have any.
    """
    hit, tables = np.uint64(0), index.tables
    start, size = tables.table[leaf, START], tables.table[leaf, SIZE]
    for i in range(scratch.size[1]):
        prefetch(tables.slot, start + home(scratch.token[1, i], size))
    for i in range(scratch.size[1]):
        if (scratch.entries[1, i] >> np.uint64(slot)) & np.uint64(1) != np.uint64(0):
            at = find_slot(index.tables, leaf, scratch.token[1, i])
            if at >= 0:
                slots = index.tables.slot[at, 1] & overlapping
                count_hits(scratch.hits, slots)
                hit |= slots
    return hit


@kernel
def count_remaining(
    index: IndexArrays, leaf: Number, overlapping: Number, query: Query, scratch: MatchScratch
) -> tuple[Number, Number]:
    """Count the remaining tokens of the clauses of a leaf below token lists.

    Goes through the file or through the message's tokens, whichever is shorter. Return the slots of
    the clauses that have any, and whether the file has any.
    """
    tables, hit, any_token = index.tables, np.uint64(0), False
    start, size = tables.table[leaf, START], tables.table[leaf, SIZE]
    if size < scratch.size[query.frame]:
        for at in range(start, start + size):
            token = tables.slot[at, 0] & LOW32
            if token != np.uint64(0) and occurs(
                scratch.token_filter, query.tokens, np.int64(token - np.uint64(1))
            ):
                slots, any_token = tables.slot[at, 1] & overlapping, True
                count_hits(scratch.hits, slots)
                hit |= slots
        return hit, any_token
    for i in range(scratch.size[query.frame]):
        at = find_slot(tables, leaf, scratch.token[query.frame, i])
        if at >= 0:
            slots, any_token = tables.slot[at, 1] & overlapping, True
            count_hits(scratch.hits, slots)
            hit |= slots
    return hit, any_token


@kernel
def append_complete(
    index: IndexArrays,
    leaf: Number,
    hit: Number,
    depth: Number,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> Number:
    """Append the clauses that have all their tokens, and reset the hits of all.

    ``depth`` is the depth of the leaf if its file holds the remaining tokens only, 0 otherwise.
    Return the end of the matches.
    """
    skip = first_leaf_token(depth)
    while hit != np.uint64(0):
        slot = lowest_bit(hit)
        hit &= hit - np.uint64(1)
        clause = index.tree.entry[leaf, slot]
        if scratch.hits[slot] == length_of(index.ordered, clause) - skip and (
            depth <= 1 or np.int64(scratch.stamp[clause]) == scratch.epoch[0] + depth - 1
        ):
            match[found] = clause
            found += 1
        scratch.hits[slot] = 0
    return found


# Token lists of inner nodes: the clauses that the message has found at every depth so far.


@kernel
def box_overlaps(box: NDArray[np.int32], clause: Number, window: Box) -> Number:
    """Tell whether the box of a clause overlaps the window."""
    sides = box[clause]
    return (
        sides[0] <= window.east
        and sides[1] <= window.north
        and sides[2] >= window.west
        and sides[3] >= window.south
    )


@kernel
def slot_toward(tree: RTree, clause: Number, level: Number) -> Number:
    """Return, as a word, the slot that leads to a clause in its ancestor of this level."""
    node = np.int64(tree.leaf_of[clause])
    if node < 0:  # only in damaged lists
        return np.uint64(0)
    for _ in range(level - 1):
        node = np.int64(tree.parent[node])
    return bit(tree.place[node])


@kernel
def stamp_postings(
    index: IndexArrays,
    count: Number,
    depth: Number,
    query: Query,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number]:
    """Stamp the clauses of postings that were found at every depth; append the complete ones.

    Return the end of the matches (-1 if they do not fit), and the slots that lead to clauses with
    more tokens.
    """
    posting, stamp, box = scratch.posting, scratch.stamp, index.ordered.box
    before, now = np.uint32(scratch.epoch[0] + depth - 1), np.uint32(scratch.epoch[0] + depth)
    level, open_slots = query.frame - 1 - depth, np.uint64(0)
    if found + count > len(match):
        return np.int64(-1), open_slots
    for i in range(count):
        if i + AHEAD < count:
            ahead = np.int64(posting[i + AHEAD])
            if depth > 1:
                prefetch(stamp, ahead if ahead >= 0 else ~ahead)
            else:
                prefetch(box, ahead if ahead >= 0 else ~ahead)
        clause = np.int64(posting[i])
        complete = clause < 0
        if complete:
            clause = ~clause
        if depth > 1:
            if stamp[clause] != before:
                continue
        elif not box_overlaps(box, clause, query.window):
            continue
        if complete:
            match[found] = clause
            found += 1
        else:
            stamp[clause] = now
            open_slots |= slot_toward(index.tree, clause, level)
    return found, open_slots


@kernel
def find_lists(index: IndexArrays, node: Number, query: Query, scratch: MatchScratch) -> Number:
    """Note the lists that an inner node has for the message's tokens; return their number."""
    tables, count = index.tables, np.int64(0)
    start, size = tables.table[node, START], tables.table[node, SIZE]
    for i in range(scratch.size[query.frame]):
        prefetch(tables.slot, start + home(scratch.token[query.frame, i], size))
    for i in range(scratch.size[query.frame]):
        at = find_slot(tables, node, scratch.token[query.frame, i])
        if at >= 0:
            scratch.lists[count, 0] = list_start(tables, at)
            scratch.lists[count, 1] = list_count(tables, at)
            prefetch(index.postings.posting, scratch.lists[count, 0])
            count += 1
    return count


@kernel
def read_lists(
    index: IndexArrays,
    node: Number,
    depth: Number,
    query: Query,
    scratch: MatchScratch,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number, Number, Number]:
    """Read the lists of an inner node for all tokens of the message.

    Lists are many and short, so their postings are joined first: then the data of each clause can
    be prefetched. Return the end of the matches (-1 if they do not fit), the postings read,
    whether the node has any list, and the slots that lead to clauses with more tokens.
    """
    lists = find_lists(index, node, query, scratch)
    examined, filled, open_slots = np.int64(0), np.int64(0), np.uint64(0)
    for k in range(lists):
        start, end = scratch.lists[k, 0], scratch.lists[k, 0] + scratch.lists[k, 1]
        examined += end - start
        for i in range(start, end):
            scratch.posting[filled] = index.postings.posting[i]
            filled += 1
            if filled == len(scratch.posting):
                found, more = stamp_postings(index, filled, depth, query, scratch, match, found)
                if found < 0:
                    return found, examined, True, open_slots
                filled, open_slots = np.int64(0), open_slots | more
    found, more = stamp_postings(index, filled, depth, query, scratch, match, found)
    return found, examined, lists > 0, open_slots | more
