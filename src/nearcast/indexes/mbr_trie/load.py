"""Build an MBRTrie of many clauses at once: count tokens, rank them, lay the trie out by levels.

Nodes are laid out level by level, so that the children of a node are neighbours. A level is given
the clauses that go on below the one above it, sorted by their node there and their next rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.token_table import home
from nearcast.indexes.mbr_trie.trie import (
    BELOW,
    CAPACITY,
    CHILD,
    CHILDREN,
    COUNT,
    DEPTH,
    ENDLESS,
    ENTRIES,
    HIGH,
    LIST,
    LOW,
    NO_TOKENS,
    NODES,
    RANK,
    ROOM,
    SIZE,
    TIMES,
    TOKEN,
    TOKENS,
    Columns,
    Trie,
    aligned,
    box_of,
    clear_node,
    draw_outline,
    extend_box,
    find_slot,
    put_entry,
    rounded,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

AHEAD = 32
"""How many tokens ahead slots are asked for."""


class Ranked(NamedTuple):
    """Clauses to be loaded, and the ranks of their tokens, ascending; both lie end to end.

    ``clause`` int32[n], ``rank_start`` int64[n + 1], ``rank`` int32[ranks], ``slot`` int32[n]:
    the slot of the first token of each, undefined where there is none.
    """

    clause: NDArray[np.int32]
    rank_start: NDArray[np.int64]
    rank: NDArray[np.int32]
    slot: NDArray[np.int32]


class Level(NamedTuple):
    """The clauses that have a node in a level, by their numbers in `Ranked`, and their parents."""

    number: NDArray[np.int32]
    parent: NDArray[np.int32]


@kernel
def count_tokens(
    slot: NDArray[np.int32], token: NDArray[np.int32], first: Number, state: NDArray[np.int64]
) -> Number:
    """Count tokens from a position on; return that for which the table has no room."""
    for i in range(first, len(token)):
        if i + AHEAD < len(token):
            prefetch(slot, home(np.int64(token[i + AHEAD]), len(slot)))
        at = find_slot(slot, np.int64(token[i]))
        if slot[at, TOKEN] == 0:
            if 3 * (state[TOKENS] + 1) > 2 * len(slot):
                return i
            slot[at, TOKEN] = token[i] + 1
            state[TOKENS] += 1
        slot[at, TIMES] += 1
    return len(token)


@kernel
def move_slots(old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    """Put all tokens of a table into another, which is empty and large enough."""
    for i in range(len(old)):
        if old[i, TOKEN] != 0:
            at = find_slot(new, np.int64(old[i, TOKEN]) - 1)
            for field in range(4):
                new[at, field] = old[i, field]


@kernel
def rank_clauses(trie: Trie, columns: Columns, ranked: Ranked, key: NDArray[np.int64]) -> None:
    """Write the ascending ranks of all clauses; ``key`` has room for the tokens of one of them."""
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
        sort_keys(key, size)
        for j in range(size):
            ranked.rank[ranked.rank_start[i] + j] = key[j] >> 32
        if size > 0:
            ranked.slot[i] = key[0] & 0xFFFFFFFF
        trie.state[DEPTH] = max(trie.state[DEPTH], size)


@kernel
def sort_keys(key: NDArray[np.int64], size: Number) -> None:
    """Sort the first keys."""
    if size > 32:
        key[:size].sort()
        return
    for i in range(1, size):
        wanted, at = key[i], i
        while at > 0 and key[at - 1] > wanted:
            key[at] = key[at - 1]
            at -= 1
        key[at] = wanted


@kernel
def level_keys(ranked: Ranked, level: Level, depth: Number, key: NDArray[np.int64]) -> None:
    """Write what a level is sorted by: the parent of every clause, and its rank at this depth."""
    for i in range(len(level.number)):
        rank = np.int64(ranked.rank[ranked.rank_start[level.number[i]] + depth])
        key[i] = np.int64(level.parent[i]) << 32 | rank


@kernel
def lay_root(trie: Trie, columns: Columns, ranked: Ranked, level: Level) -> Number:
    """Make the root and its list; return how many clauses go on, which are put into the level."""
    clear_node(trie, 0, np.int64(-1))
    trie.label[0, LOW], trie.label[0, HIGH] = NO_TOKENS, ENDLESS
    trie.state[NODES] = 1
    lay_clauses(trie, columns, ranked, np.arange(len(ranked.clause)), 0, 0)
    going_on = np.int64(0)
    for i in range(len(ranked.clause)):
        if ranked.rank_start[i] < ranked.rank_start[i + 1]:
            level.number[going_on], level.parent[going_on] = i, 0
            going_on += 1
    return going_on


@kernel
def lay_clauses(
    trie: Trie,
    columns: Columns,
    ranked: Ranked,
    number: NDArray[np.int64],
    at: Number,
    depth: Number,
) -> None:
    """Make the box and the list of a node from all clauses below it."""
    ending = np.int64(0)
    for i in range(len(number)):
        extend_box(trie.node, at, columns.box, ranked.clause[number[i]])
        ending += ranked.rank_start[number[i] + 1] - ranked.rank_start[number[i]] == depth
    draw_outline(trie, at)
    trie.node[at, BELOW] = len(number)
    trie.node[at, SIZE] = ending
    if ending > 1:
        room = rounded(ending)
        start = aligned(trie.state[ENTRIES], room)
        trie.node[at, LIST], trie.node[at, ROOM] = start, room
        trie.state[ENTRIES] = start + 5 * room
    done = np.int64(0)
    for i in range(len(number)):
        if ranked.rank_start[number[i] + 1] - ranked.rank_start[number[i]] == depth:
            clause = ranked.clause[number[i]]
            if ending == 1:
                trie.node[at, LIST] = clause
            else:
                put_entry(trie, at, done, clause, box_of(columns, clause))
            done += 1


@kernel
def lay_level(
    trie: Trie,
    columns: Columns,
    ranked: Ranked,
    ordered: tuple[NDArray[np.int64], NDArray[np.int64]],
    level: Level,
    depth: Number,
) -> Number:
    """Make the nodes of a level; return how many clauses go on, which are put into the level.

    ``ordered`` has the numbers of the level's clauses and their keys, sorted by the latter; clauses
    whose ranks are as many as ``depth`` end here.
    """
    number, key = ordered
    first, going_on = np.int64(0), np.int64(0)
    while first < len(number):
        last = first + 1
        while last < len(number) and key[last] == key[first]:
            last += 1
        at, parent = trie.state[NODES], key[first] >> 32
        trie.state[NODES] += 1
        clear_node(trie, at, key[first] & 0xFFFFFFFF)
        if parent == 0:
            trie.slot[ranked.slot[number[first]], CHILD] = at
        elif trie.node[parent, COUNT] == 0:
            trie.node[parent, CHILDREN] = at
        trie.node[parent, COUNT] += 1
        trie.node[parent, CAPACITY] += 1
        lay_clauses(trie, columns, ranked, number[first:last], at, depth)
        for i in range(first, last):
            if ranked.rank_start[number[i] + 1] - ranked.rank_start[number[i]] > depth:
                level.number[going_on], level.parent[going_on] = number[i], at
                going_on += 1
        first = last
    return going_on
