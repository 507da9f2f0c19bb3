"""Find candidates of ranked subscriptions in trees with token lists (``rt++-tree``).

A message reads the lists of every node that it opens. A posting is a candidate if its place is
within its limit and its token is the first of the signature that the message shares, so every
candidate is found once. Signatures lie anywhere in memory, so what has to be compared with them
waits in a buffer, and signatures are prefetched.

Children are opened if they are within their limits, whether a list had anything to offer or not:
the first shared token of a match may stand further down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import Output, known_tokens
from nearcast.compiled.token_filter import FILTER_WORDS, clear_filter, occurs, set_filter
from nearcast.compiled.token_lists import list_count, list_start
from nearcast.compiled.token_table import LOW32, NO_TOKEN, SIZE, START, find_slot, home
from nearcast.indexes.rtree.nodes import ROOT, depth_of, slot_end
from nearcast.indexes.rtree.ranked_lists import ListArrays, first_kept
from nearcast.indexes.rtree.ranked_space import near_slots, place_gap, write_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedMessages, ScoringCodes
    from nearcast.indexes.rtree.ranked_keys import Keys


AHEAD = 16
"""How many waiting candidates ahead a signature is prefetched."""

WAITING = 1024
"""The size of the buffer of waiting candidates."""

LEAF = np.int64(-1)
"""In place of a token: the candidate comes from a leaf."""


class ListScratch(NamedTuple):
    """Scratch for one message at a time.

    - ``stack`` int64: nodes to open. ``lists`` int64[t, 3]: starts, sizes and tokens of lists.
    - ``token_filter`` uint64: a bit for each token of the message.
    - ``gap`` float64[64]: the gaps of the slots of a node.
    - ``clause``, ``token`` int64[w] and ``clause_gap`` float64[w]: waiting candidates, where they
      were found (a token, or `LEAF`), and for those of leaves, their gaps.
    """

    stack: NDArray[np.int64]
    lists: NDArray[np.int64]
    token_filter: NDArray[np.uint64]
    gap: NDArray[np.float64]
    clause: NDArray[np.int64]
    token: NDArray[np.int64]
    clause_gap: NDArray[np.float64]


class Text(NamedTuple):
    """The ascending tokens of a message and their filter."""

    tokens: NDArray[np.int32]
    token_filter: NDArray[np.uint64]


class Progress(NamedTuple):
    """The end of the candidates (-1 if they do not fit), and the number of waiting ones."""

    count: Number
    waiting: Number


def make_list_scratch(height: int, tokens: int) -> ListScratch:
    """Return scratch for a tree of this height and messages of at most ``tokens`` tokens."""
    return ListScratch(
        stack=np.empty(64 * (height + 2), np.int64),
        lists=np.empty((tokens + 1, 3), np.int64),
        token_filter=np.zeros(FILTER_WORDS, np.uint64),
        gap=np.zeros(64),
        clause=np.empty(WAITING + 64, np.int64),
        token=np.empty(WAITING + 64, np.int64),
        clause_gap=np.empty(WAITING + 64),
    )


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
        done, more = read_far_lists(index, text, scratch, found, start[message]), np.int64(0)
        if done.count >= 0:
            done, more = walk_lists(index, codes, messages, message, text, scratch, found, done)
        if done.count >= 0:
            done = verify_waiting(index, text, scratch, found, done)
        clear_filter(text.token_filter, tokens)
        if done.count < 0:
            return np.int64(message), examined, visited
        examined += done.count - start[message]
        visited += more
        start[message + 1] = done.count
    return np.int64(numbers[1]), examined, visited


@inlined_kernel
def row_of(index: ListArrays, clause: Number) -> Number:
    """Return the row of a clause; nearly always its number, which is not looked up then."""
    return np.int64(clause) if index.far[1] != 0 else np.int64(index.row[clause])


@inlined_kernel
def first_shared(keys: Keys, clause: Number, text: Text) -> Number:
    """Return the first key of a clause that a message has, counted from 0; -1 if none."""
    start = keys.start[clause]
    for at in range(start, keys.start[clause + 1]):
        if occurs(text.token_filter, text.tokens, np.int64(keys.token[at])):
            return at - start
    return np.int64(-1)


@kernel
def verify_waiting(
    index: ListArrays,
    text: Text,
    scratch: ListScratch,
    found: NDArray[np.int32],
    done: Progress,
) -> Progress:
    """Append the waiting candidates that were found where their first shared token is kept."""
    keys, count = index.keys, np.int64(done.count)
    if count + done.waiting > len(found):
        return Progress(np.int64(-1), np.int64(0))
    tree = index.tree
    leaf_depth = np.int64(tree.level[tree.state[ROOT]])
    for i in range(done.waiting):
        if i + AHEAD < done.waiting:
            prefetch(keys.start, scratch.clause[i + AHEAD])
        if i + AHEAD // 2 < done.waiting:
            at = keys.start[scratch.clause[i + AHEAD // 2]]
            prefetch(keys.token, at)
            prefetch(keys.limit, at)
        clause = scratch.clause[i]
        first = first_shared(keys, clause, text)
        if first < 0:
            continue
        at = keys.start[clause] + first
        if scratch.token[i] == LEAF:
            accepted = scratch.clause_gap[i] <= np.float64(keys.limit[at]) and (
                first >= first_kept(index, clause, leaf_depth)
            )
        else:
            accepted = np.int64(keys.token[at]) == scratch.token[i]
        if accepted:
            found[count] = row_of(index, clause)
            count += 1
    return Progress(count, np.int64(0))


@kernel
def read_far_lists(
    index: ListArrays,
    text: Text,
    scratch: ListScratch,
    found: NDArray[np.int32],
    count: Number,
) -> Progress:
    """Read the lists of the whole index."""
    tables, clauses = index.far_tables, index.far_lists.clause
    known = known_tokens(text.tokens)
    start, size = tables.table[0, START], tables.table[0, SIZE]
    done = Progress(np.int64(count), np.int64(0))
    for i in range(known):
        prefetch(tables.slot, start + home(text.tokens[i], size))
    for i in range(known + 1):
        token = np.int64(text.tokens[i]) if i < known else NO_TOKEN
        at = find_slot(tables, 0, token)
        if at < 0:
            continue
        begin, end = list_start(tables, at), list_start(tables, at) + list_count(tables, at)
        if done.count + end - begin > len(found):
            return Progress(np.int64(-1), np.int64(0))
        for k in range(begin, end):
            clause = np.int64(clauses[k])
            if clause < 0:  # the first token of its signature
                found[done.count] = row_of(index, ~clause)
                done = Progress(done.count + 1, done.waiting)
                continue
            scratch.clause[done.waiting], scratch.token[done.waiting] = clause, token
            done = Progress(done.count, done.waiting + 1)
            if done.waiting >= WAITING:
                done = verify_waiting(index, text, scratch, found, done)
                if done.count < 0 or done.count + end - k > len(found):
                    return Progress(np.int64(-1), np.int64(0))
    return done


@kernel
def walk_lists(
    index: ListArrays,
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    text: Text,
    scratch: ListScratch,
    found: NDArray[np.int32],
    done: Progress,
) -> tuple[Progress, Number]:
    """Walk down the tree and read lists and files; return how far, and the nodes visited."""
    tree, visited, top = index.tree, np.int64(0), np.int64(1)
    scratch.stack[0] = tree.state[ROOT]
    while top > 0 and done.count >= 0:
        top -= 1
        node = scratch.stack[top]
        visited += 1
        if top > 0:
            prefetch_files(index, scratch.stack[top - 1], text)
        if tree.level[node] > 0 and depth_of(tree, node) > 0:
            done = read_lists(index, codes, node, messages, message, text, scratch, found, done)
        most = slot_end(tree, node)
        write_gaps(codes, tree.box[node], messages, message, most, scratch.gap)
        slots = near_slots(scratch.gap, index.limit[node], most) & tree.used[node]
        if tree.level[node] == 0:
            if done.waiting >= WAITING:
                done = verify_waiting(index, text, scratch, found, done)
            waiting = read_leaf(index, node, slots, text, scratch, done.waiting)
            done = Progress(done.count, waiting)
            continue
        while slots != np.uint64(0):
            child = np.int64(tree.entry[node, lowest_bit(slots)])
            slots &= slots - np.uint64(1)
            prefetch(tree.box, child)
            prefetch(index.limit, child)
            prefetch(index.tables.table, child)
            scratch.stack[top] = child
            top += 1
    return done, visited


@kernel
def prefetch_files(index: ListArrays, node: Number, text: Text) -> None:
    """Prefetch the tokens of a message in the table of a node that is opened next."""
    tables, known = index.tables, known_tokens(text.tokens)
    start, size = tables.table[node, START], tables.table[node, SIZE]
    if size > known:
        for i in range(known):
            prefetch(tables.slot, start + home(text.tokens[i], size))


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
    done: Progress,
) -> Progress:
    """Read the lists of an inner node."""
    tables, lists, depth = index.tables, index.lists, depth_of(index.tree, node)
    known, chosen = known_tokens(text.tokens), np.int64(0)
    for i in range(known):
        at = find_slot(tables, node, np.int64(text.tokens[i]))
        if at >= 0:
            scratch.lists[chosen, 0] = list_start(tables, at)
            scratch.lists[chosen, 1] = list_count(tables, at)
            scratch.lists[chosen, 2] = np.int64(text.tokens[i])
            prefetch(lists.place, scratch.lists[chosen, 0])
            prefetch(lists.limit, scratch.lists[chosen, 0])
            chosen += 1
    for k in range(chosen):
        begin, end = scratch.lists[k, 0], scratch.lists[k, 0] + scratch.lists[k, 1]
        if done.count + end - begin > len(found):
            return Progress(np.int64(-1), np.int64(0))
        for i in range(begin, end):
            if place_gap(codes, lists.place[i], messages, message) > np.float64(lists.limit[i]):
                continue
            clause = np.int64(lists.clause[i])
            if depth == 1:  # the first token of its signature
                found[done.count] = row_of(index, clause)
                done = Progress(done.count + 1, done.waiting)
                continue
            scratch.clause[done.waiting], scratch.token[done.waiting] = clause, scratch.lists[k, 2]
            done = Progress(done.count, done.waiting + 1)
            if done.waiting >= WAITING:
                done = verify_waiting(index, text, scratch, found, done)
                if done.count < 0 or done.count + end - i > len(found):
                    return Progress(np.int64(-1), np.int64(0))
    return done


@kernel
def read_leaf(
    index: ListArrays,
    leaf: Number,
    near: Number,
    text: Text,
    scratch: ListScratch,
    waiting: Number,
) -> Number:
    """Put what a leaf has for a message among its near slots into the buffer; return its end."""
    hit = shared_slots(index, leaf, text) & near if near != np.uint64(0) else near
    while hit != np.uint64(0):
        slot = lowest_bit(hit)
        hit &= hit - np.uint64(1)
        scratch.clause[waiting] = index.tree.entry[leaf, slot]
        scratch.token[waiting], scratch.clause_gap[waiting] = LEAF, scratch.gap[slot]
        waiting += 1
    return waiting


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
    for i in range(known + 1):
        at = find_slot(tables, leaf, np.int64(text.tokens[i]) if i < known else NO_TOKEN)
        if at >= 0:
            slots |= tables.slot[at, 1]
    return slots
