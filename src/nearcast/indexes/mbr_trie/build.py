"""Build an mbr-trie of many clauses at once: rank tokens, make nodes level by level, label sets.

A level takes the clauses that continue below the previous one, sorted by their node there and their
next rank. So nodes are made level by level, and the children of a node are adjacent.

Labels follow Yu et al. (CIKM 2015), section 3.1: token sets are numbered in their order, with
numbers reserved for later inserts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import Clauses, at_cache_line, gather, read_only, starts
from nearcast.compiled.clauses import ClauseColumns, clause_columns
from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.sorting import sort_short
from nearcast.compiled.token_table import home
from nearcast.indexes.mbr_trie.layout import (
    BUILT,
    CHILD_CAPACITY,
    CHILD_COUNT,
    CLAUSES_BELOW,
    DEPTH,
    ENTRIES,
    FIRST_CHILD,
    FIRST_RANK,
    FREQUENCY,
    HIGH,
    LABEL_BITS,
    LIST,
    LIST_CAPACITY,
    LIST_SIZE,
    LOW,
    LOW32,
    MAX_LABEL,
    NEXT_RANK,
    NO_TOKENS,
    NODE_WIDTH,
    NODES,
    PADDING,
    RANK,
    ROOT_CHILD,
    SLOT_WIDTH,
    STATE_WIDTH,
    TOKEN,
    TOKENS,
    Trie,
    align_list,
    clause_box,
    clause_position,
    clear_node,
    extend_box,
    find_slot,
    has_label,
    round_capacity,
    table_is_full,
    update_outline,
    write_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

AHEAD = 32
"""How many tokens or clauses ahead slots are prefetched."""

_MIN_SLOTS = 64


class RankedClauses(NamedTuple):
    """The clauses to build from, and the ascending ranks of their tokens, end to end.

    ``clause`` int32[n], ``rank_start`` int64[n + 1], ``rank`` int32[ranks], ``slot`` int32[n]: the
    slot of the first token of each clause, undefined for clauses without tokens.
    """

    clause: NDArray[np.int32]
    rank_start: NDArray[np.int64]
    rank: NDArray[np.int32]
    slot: NDArray[np.int32]


class Level(NamedTuple):
    """The clauses with a node in a level, by their position in `RankedClauses`, and its parent."""

    number: NDArray[np.int32]
    parent: NDArray[np.int32]


def build_trie(
    clauses: Clauses, numbers: NDArray[np.int32], order: str, clause_label: NDArray[np.int64]
) -> Trie:
    """Build the trie of the clauses with these numbers; ``clause_label`` is filled if not empty."""
    columns = clause_columns(clauses)
    length = np.diff(columns.token_start)[numbers]
    ranked = RankedClauses(
        numbers,
        starts(length),
        np.empty(int(length.sum()), np.int32),
        np.zeros(len(numbers), np.int32),
    )
    # The most that may be needed: memory that is never touched costs nothing.
    nodes = len(ranked.rank) + 1
    trie = Trie(
        np.zeros((_MIN_SLOTS, SLOT_WIDTH), np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.uint64),
        np.zeros((nodes, NODE_WIDTH), np.int32),
        np.zeros((nodes, 2), np.int64),
        at_cache_line(11 * len(numbers) + 2 * PADDING, np.int32),
        clause_label,
        np.zeros(STATE_WIDTH, np.int64),
    )
    trie.state[BUILT] = len(numbers)
    trie = _count_all_tokens(trie, _tokens_of(clauses, numbers))
    _assign_ranks(trie, order)
    rank_clauses(trie, columns, ranked, np.empty(int(length.max(initial=0)) + 1, np.int64))
    _build_nodes(trie, columns, ranked)
    assign_all_labels(trie, np.zeros((int(trie.state[DEPTH]) + 2, 2), np.int64))
    return trie


def resize_slots(trie: Trie, slots: int) -> Trie:
    """Return the trie with a table of ``slots`` slots."""
    slot = np.zeros((slots, SLOT_WIDTH), np.int32)
    rehash(trie.slot, slot)
    return trie._replace(slot=slot)


def _tokens_of(clauses: Clauses, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    if len(numbers) == len(clauses):
        return clauses.token
    _, position = gather(clauses.token_start, numbers)
    return read_only(clauses.token[position], np.int32)


def _count_all_tokens(trie: Trie, tokens: NDArray[np.int32]) -> Trie:
    """Count tokens in a table that grows; at the end it is resized to fit."""
    done = 0
    while True:
        done = int(count_tokens(trie.slot, tokens, done, trie.state))
        if done == len(tokens):
            return resize_slots(trie, _MIN_SLOTS + 2 * int(trie.state[TOKENS]))
        trie = resize_slots(trie, 4 * len(trie.slot))


def _assign_ranks(trie: Trie, order: str) -> None:
    """Assign a rank to every token in the table."""
    used = np.flatnonzero(trie.slot[:, TOKEN])
    token = trie.slot[used, TOKEN] - 1
    if order == "alphabet":
        trie.slot[used, RANK] = token
        trie.state[NEXT_RANK] = -1
        return
    rarest_first = used[np.lexsort((token, trie.slot[used, FREQUENCY]))]
    trie.slot[rarest_first, RANK] = FIRST_RANK + np.arange(len(rarest_first))
    trie.state[NEXT_RANK] = FIRST_RANK - 1


def _build_nodes(trie: Trie, columns: ClauseColumns, ranked: RankedClauses) -> None:
    """Make all nodes, level by level."""
    count = len(ranked.clause)
    level = Level(np.empty(count, np.int32), np.empty(count, np.int32))
    count, depth = int(build_root(trie, columns, ranked, level)), 0
    while count:
        level = Level(level.number[:count], level.parent[:count])
        key = np.empty(count, np.int64)
        write_level_keys(ranked, level, depth, key)
        order = np.argsort(key, kind="stable")
        ordered = level.number[order].astype(np.int64), key[order]
        depth += 1
        count = int(build_level(trie, columns, ranked, ordered, level, depth))


@kernel
def count_tokens(
    slot: NDArray[np.int32], token: NDArray[np.int32], first: Number, state: NDArray[np.int64]
) -> Number:
    """Count tokens from position ``first`` on; return the position where the table was full."""
    for i in range(first, len(token)):
        if i + AHEAD < len(token):
            prefetch(slot, home(np.int64(token[i + AHEAD]), len(slot)))
        at = find_slot(slot, np.int64(token[i]))
        if slot[at, TOKEN] == 0:
            if table_is_full(slot, state):
                return i
            slot[at, TOKEN] = token[i] + 1
            state[TOKENS] += 1
        slot[at, FREQUENCY] += 1
    return len(token)


@kernel
def rehash(old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    """Copy all tokens of a table into an empty table that is large enough."""
    for i in range(len(old)):
        if old[i, TOKEN] != 0:
            at = find_slot(new, np.int64(old[i, TOKEN]) - 1)
            for field in range(SLOT_WIDTH):
                new[at, field] = old[i, field]


@kernel
def rank_clauses(
    trie: Trie, columns: ClauseColumns, ranked: RankedClauses, key: NDArray[np.int64]
) -> None:
    """Write the ascending ranks of all clauses; ``key`` is scratch for the tokens of one clause."""
    for i in range(len(ranked.clause)):
        begin = columns.token_start[ranked.clause[i]]
        size = columns.token_start[ranked.clause[i] + 1] - begin
        if i + AHEAD < len(ranked.clause):
            ahead = ranked.clause[i + AHEAD]
            for j in range(columns.token_start[ahead], columns.token_start[ahead + 1]):
                prefetch(trie.slot, home(np.int64(columns.token[j]), len(trie.slot)))
        for j in range(size):
            at = find_slot(trie.slot, np.int64(columns.token[begin + j]))
            key[j] = np.int64(trie.slot[at, RANK]) << 32 | at
        sort_short(key[:size])
        for j in range(size):
            ranked.rank[ranked.rank_start[i] + j] = key[j] >> 32
        if size > 0:
            ranked.slot[i] = key[0] & LOW32
        trie.state[DEPTH] = max(trie.state[DEPTH], size)


@kernel
def write_level_keys(
    ranked: RankedClauses, level: Level, depth: Number, key: NDArray[np.int64]
) -> None:
    """Write the sort keys of a level: the parent of every clause, then its rank at this depth."""
    for i in range(len(level.number)):
        rank = np.int64(ranked.rank[ranked.rank_start[level.number[i]] + depth])
        key[i] = np.int64(level.parent[i]) << 32 | rank


@kernel
def rank_count(ranked: RankedClauses, number: Number) -> Number:
    """Return how many ranks a clause has."""
    return ranked.rank_start[number + 1] - ranked.rank_start[number]


@kernel
def build_root(trie: Trie, columns: ClauseColumns, ranked: RankedClauses, level: Level) -> Number:
    """Make the root and its list; write the clauses that continue to ``level``, return how many."""
    clear_node(trie, 0, np.int64(-1))
    trie.label[0, LOW], trie.label[0, HIGH] = NO_TOKENS, MAX_LABEL
    trie.state[NODES] = 1
    fill_node(trie, columns, ranked, np.arange(len(ranked.clause)), 0, 0)
    continuing = np.int64(0)
    for i in range(len(ranked.clause)):
        if rank_count(ranked, i) > 0:
            level.number[continuing], level.parent[continuing] = i, 0
            continuing += 1
    return continuing


@kernel
def build_level(
    trie: Trie,
    columns: ClauseColumns,
    ranked: RankedClauses,
    ordered: tuple[NDArray[np.int64], NDArray[np.int64]],
    level: Level,
    depth: Number,
) -> Number:
    """Make the nodes of a level; write the clauses that continue to ``level``, return how many.

    ``ordered`` has the clauses of this level and their keys, sorted by key. Clauses with ``depth``
    ranks end here.
    """
    number, key = ordered
    first, continuing = np.int64(0), np.int64(0)
    while first < len(number):
        last = first + 1
        while last < len(number) and key[last] == key[first]:
            last += 1
        at, parent = trie.state[NODES], key[first] >> 32
        trie.state[NODES] += 1
        clear_node(trie, at, key[first] & LOW32)
        if parent == 0:
            trie.slot[ranked.slot[number[first]], ROOT_CHILD] = at
        elif trie.node[parent, CHILD_COUNT] == 0:
            trie.node[parent, FIRST_CHILD] = at
        trie.node[parent, CHILD_COUNT] += 1
        trie.node[parent, CHILD_CAPACITY] += 1
        fill_node(trie, columns, ranked, number[first:last], at, depth)
        for i in range(first, last):
            if rank_count(ranked, number[i]) > depth:
                level.number[continuing], level.parent[continuing] = number[i], at
                continuing += 1
        first = last
    return continuing


@kernel
def fill_node(
    trie: Trie,
    columns: ClauseColumns,
    ranked: RankedClauses,
    number: NDArray[np.int64],
    at: Number,
    depth: Number,
) -> None:
    """Make the box and the list of a node from all clauses below it."""
    ending = np.int64(0)
    for i in range(len(number)):
        extend_box(trie.node, at, columns.box, ranked.clause[number[i]])
        ending += rank_count(ranked, number[i]) == depth
    update_outline(trie, at)
    trie.node[at, CLAUSES_BELOW] = len(number)
    trie.node[at, LIST_SIZE] = ending
    if ending > 1:
        capacity = round_capacity(ending)
        start = align_list(trie.state[ENTRIES], capacity)
        trie.node[at, LIST], trie.node[at, LIST_CAPACITY] = start, capacity
        trie.state[ENTRIES] = start + 5 * capacity
    done = np.int64(0)
    for i in range(len(number)):
        if rank_count(ranked, number[i]) == depth:
            clause = ranked.clause[number[i]]
            if ending == 1:
                trie.node[at, LIST] = clause
            else:
                write_entry(trie, at, done, clause, clause_box(columns, clause))
            done += 1


@kernel
def assign_all_labels(trie: Trie, stack: NDArray[np.int64]) -> None:
    """Assign a label to every token set."""
    write_clause_labels(trie, np.int64(0))
    for at in range(len(trie.slot)):
        if trie.slot[at, TOKEN] != 0 and trie.slot[at, ROOT_CHILD] != 0:
            assign_labels(trie, np.int64(trie.slot[at, ROOT_CHILD]), stack)


@kernel
def assign_labels(trie: Trie, child: Number, stack: NDArray[np.int64]) -> None:
    """Assign evenly spaced labels to all token sets below a child of the root.

    ``stack`` int64[depth + 1, 2].
    """
    step = (np.int64(1) << LABEL_BITS) // (count_labels(trie, child, stack) + 1)
    label, top = np.int64(trie.rank[child]) << LABEL_BITS, np.int64(0)
    stack[0, 0], stack[0, 1] = child, 0
    while top >= 0:
        at, done = stack[top, 0], stack[top, 1]
        if done == 0:
            # The next label is the lowest below this node: its own, or that of its first child.
            trie.label[at, LOW] = label + step
            label += step * np.int64(has_label(trie, at))
            write_clause_labels(trie, at)
        if done == trie.node[at, CHILD_COUNT]:
            trie.label[at, HIGH] = label
        top = next_in_preorder(trie, stack, top)


@kernel
def count_labels(trie: Trie, child: Number, stack: NDArray[np.int64]) -> Number:
    """Count the labels below a child of the root."""
    labels, top = np.int64(0), np.int64(0)
    stack[0, 0], stack[0, 1] = child, 0
    while top >= 0:
        if stack[top, 1] == 0:
            labels += np.int64(has_label(trie, stack[top, 0]))
        top = next_in_preorder(trie, stack, top)
    return labels


@kernel
def next_in_preorder(trie: Trie, stack: NDArray[np.int64], top: Number) -> Number:
    """Push the next child of the node on top of the stack, or pop the node; return the new top.

    A row of the stack is a node and how many of its children were pushed.
    """
    at, done = stack[top, 0], stack[top, 1]
    if done == trie.node[at, CHILD_COUNT]:
        return top - 1
    stack[top, 1] += 1
    stack[top + 1, 0], stack[top + 1, 1] = trie.node[at, FIRST_CHILD] + done, 0
    return top + 1


@kernel
def write_clause_labels(trie: Trie, at: Number) -> None:
    """Copy the label of a node's list to its clauses, if clauses have labels."""
    if len(trie.clause_label) == 0:
        return
    start, capacity = trie.node[at, LIST], trie.node[at, LIST_CAPACITY]
    for number in range(trie.node[at, LIST_SIZE]):
        clause = trie.entry[clause_position(start, capacity, number)] if capacity > 0 else start
        if clause >= 0:
            trie.clause_label[clause] = trie.label[at, LOW]
