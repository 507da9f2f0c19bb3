"""Find candidates of ranked subscriptions in trees with token lists (``rt++-tree``).

A message reads the lists of every node that it opens. A posting is a candidate if its place is
within its limit and its token is the first of the signature that the message shares, so every
candidate is found once. Children are opened if they are within their limits, whether a list had
anything to offer or not: the first shared token of a match may stand further down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import Output, known_tokens
from nearcast.compiled.token_filter import FILTER_WORDS, clear_filter, occurs, set_filter
from nearcast.compiled.token_lists import list_count, list_start
from nearcast.compiled.token_table import LOW32, NO_TOKEN, SIZE, START, find_slot, home
from nearcast.indexes.rtree.nodes import ROOT, depth_of
from nearcast.indexes.rtree.ranked_lists import ListArrays, first_kept
from nearcast.indexes.rtree.ranked_space import near_slots, place_gap, write_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedMessages, ScoringCodes
    from nearcast.indexes.rtree.ranked_keys import Keys


class ListScratch(NamedTuple):
    """Scratch for one message at a time.

    ``stack`` int64: nodes to open. ``token_filter`` uint64: a bit for each token of the message.
    ``gap`` float64[64]: the gaps of the slots of a node. ``lists`` int64[t, 2]: starts and sizes of
    lists.
    """

    stack: NDArray[np.int64]
    token_filter: NDArray[np.uint64]
    gap: NDArray[np.float64]
    lists: NDArray[np.int64]


class Text(NamedTuple):
    """The ascending tokens of a message and their filter."""

    tokens: NDArray[np.int32]
    token_filter: NDArray[np.uint64]


def make_list_scratch(height: int, tokens: int) -> ListScratch:
    """Return scratch for a tree of this height and messages of at most ``tokens`` tokens."""
    return ListScratch(
        stack=np.empty(64 * (height + 2), np.int64),
        token_filter=np.zeros(FILTER_WORDS, np.uint64),
        gap=np.zeros(64),
        lists=np.empty((tokens + 1, 2), np.int64),
    )


@kernel
def first_shared(keys: Keys, clause: Number, text: Text) -> Number:
    """Return the first key of a clause that a message has, counted from 0; -1 if none."""
    start = keys.start[clause]
    for at in range(start, keys.start[clause + 1]):
        if occurs(text.token_filter, text.tokens, np.int64(keys.token[at])):
            return at - start
    return np.int64(-1)


@kernel
def find_by_lists(
    index: ListArrays,
    codes: ScoringCodes,
    messages: RankedMessages,
    numbers: tuple[Number, Number],
    scratch: ListScratch,
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
        tokens = messages.token[messages.token_start[message] : messages.token_start[message + 1]]
        text = Text(tokens, scratch.token_filter)
        set_filter(text.token_filter, tokens)
        count, more = read_far_lists(index, text, found, start[message]), np.int64(0)
        if count >= 0:
            count, more = walk_lists(index, codes, messages, message, text, scratch, found, count)
        clear_filter(text.token_filter, tokens)
        if count < 0:
            return np.int64(message), examined, visited
        examined += count - start[message]
        visited += more
        start[message + 1] = count
    return np.int64(numbers[1]), examined, visited


@kernel
def read_far_lists(
    index: ListArrays, text: Text, found: NDArray[np.int32], count: Number
) -> Number:
    """Append the candidates from lists of the whole index; return their end, -1 if full."""
    tables, clauses = index.far_tables, index.far_lists.clause
    known = known_tokens(text.tokens)
    for i in range(known + 1):
        token = np.int64(text.tokens[i]) if i < known else NO_TOKEN
        at = find_slot(tables, 0, token)
        if at < 0:
            continue
        begin, end = list_start(tables, at), list_start(tables, at) + list_count(tables, at)
        if count + end - begin > len(found):
            return np.int64(-1)
        for k in range(begin, end):
            clause = np.int64(clauses[k])
            if clause >= 0:
                first = first_shared(index.keys, clause, text)
                if first < 0 or index.keys.token[index.keys.start[clause] + first] != token:
                    continue
            else:
                clause = ~clause
            found[count] = index.row[clause]
            count += 1
    return count


@kernel
def walk_lists(
    index: ListArrays,
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    text: Text,
    scratch: ListScratch,
    found: NDArray[np.int32],
    count: Number,
) -> tuple[Number, Number]:
    """Append the candidates of a message; return their end (-1 if full) and the nodes visited."""
    tree, visited, top = index.tree, np.int64(0), np.int64(1)
    scratch.stack[0] = tree.state[ROOT]
    while top > 0:
        top -= 1
        node = scratch.stack[top]
        visited += 1
        depth = depth_of(tree, node)
        if tree.level[node] > 0 and depth > 0:
            count = read_lists(index, codes, node, messages, message, text, scratch, found, count)
            if count < 0:
                return count, visited
        write_gaps(codes, tree.box[node], messages, message, scratch.gap)
        slots = near_slots(scratch.gap, index.limit[node]) & tree.used[node]
        if tree.level[node] == 0:
            if count + tree.entry.shape[1] > len(found):
                return np.int64(-1), visited
            count = read_leaf(index, node, slots, text, scratch.gap, found, count)
            continue
        while slots != np.uint64(0):
            child = np.int64(tree.entry[node, lowest_bit(slots)])
            slots &= slots - np.uint64(1)
            prefetch(tree.box, child)
            prefetch(index.tables.table, child)
            scratch.stack[top] = child
            top += 1
    return count, visited


@kernel
def read_lists(
    index: ListArrays,
    codes: ScoringCodes,
    node: Number,
    messages: RankedMessages,
    message: Number,
    text: Text,
    scratch: ListScratch,
    found: NDArray[np.int32],
    count: Number,
) -> Number:
    """Append the candidates from the lists of an inner node; return their end, -1 if full."""
    tables, lists, depth = index.tables, index.lists, depth_of(index.tree, node)
    start, size = tables.table[node, START], tables.table[node, SIZE]
    known, chosen = known_tokens(text.tokens), np.int64(0)
    for i in range(known):
        prefetch(tables.slot, start + home(text.tokens[i], size))
    for i in range(known):
        at = find_slot(tables, node, np.int64(text.tokens[i]))
        if at >= 0:
            scratch.lists[chosen, 0] = list_start(tables, at)
            scratch.lists[chosen, 1] = list_count(tables, at)
            prefetch(lists.place, scratch.lists[chosen, 0])
            chosen += 1
    for k in range(chosen):
        begin, end = scratch.lists[k, 0], scratch.lists[k, 0] + scratch.lists[k, 1]
        if count + end - begin > len(found):
            return np.int64(-1)
        for i in range(begin, end):
            if place_gap(codes, lists.place[i], messages, message) > np.float64(lists.limit[i]):
                continue
            clause = np.int64(lists.clause[i])
            if depth == 1 or first_shared(index.keys, clause, text) == depth - 1:
                found[count] = index.row[clause]
                count += 1
    return count


@kernel
def read_leaf(
    index: ListArrays,
    leaf: Number,
    near: Number,
    text: Text,
    gap: NDArray[np.float64],
    found: NDArray[np.int32],
    count: Number,
) -> Number:
    """Append the candidates of a leaf among the near slots; return their end."""
    tree, keys = index.tree, index.keys
    hit = shared_slots(index, leaf, text) & near if near != np.uint64(0) else near
    depth = depth_of(tree, leaf)
    while hit != np.uint64(0):
        slot = lowest_bit(hit)
        hit &= hit - np.uint64(1)
        clause = np.int64(tree.entry[leaf, slot])
        first = first_shared(keys, clause, text)
        if first >= first_kept(index, clause, depth) and gap[slot] <= np.float64(
            keys.limit[keys.start[clause] + first]
        ):
            found[count] = tree.key[leaf, slot]
            count += 1
    return count


@kernel
def shared_slots(index: ListArrays, leaf: Number, text: Text) -> Number:
    """Return the slots of a leaf in whose part of the signature the message has a token.

    Goes through the file or through the message's tokens, whichever is shorter.
    """
    tables, slots = index.tables, np.uint64(0)
    start, size = tables.table[leaf, START], tables.table[leaf, SIZE]
    known = known_tokens(text.tokens)
    if size <= known:
        for at in range(start, start + size):
            token = tables.slot[at, 0] & LOW32
            if token != np.uint64(0) and occurs(
                text.token_filter, text.tokens, np.int64(token - np.uint64(1))
            ):
                slots |= tables.slot[at, 1]
        return slots
    for i in range(known):
        prefetch(tables.slot, start + home(text.tokens[i], size))
    for i in range(known + 1):
        at = find_slot(tables, leaf, np.int64(text.tokens[i]) if i < known else NO_TOKEN)
        if at >= 0:
            slots |= tables.slot[at, 1]
    return slots
