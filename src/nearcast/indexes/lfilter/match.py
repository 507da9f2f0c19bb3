"""Match messages by a trie of token sets and a quadtree of pivotal tokens, whichever costs less.

Yu, Li and Feng, CIKM 2015, section 5.4. If the trie costs less, it does all. Otherwise the quadtree
filters, and its lists are verified directly or by list pruning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.ordered_clauses import Ordered
from nearcast.compiled.token_filter import clear_filter, set_filter
from nearcast.compiled.token_table import home
from nearcast.indexes.lfilter.cost import PRUNE_SHARE, Model, quadtree_cost
from nearcast.indexes.lfilter.prune import (
    COST,
    DIRECT,
    EXAMINED,
    FOUND,
    LISTS,
    PARTS,
    PRUNE,
    PRUNED,
    RUNS,
    VISITED,
    Both,
    Pool,
    Question,
    add_run,
    prune_parts,
    split_list,
    verify_runs,
)
from nearcast.indexes.mbr_trie.match import Scratch as TrieScratch
from nearcast.indexes.mbr_trie.match import (
    asked_for,
    borrowed_trie,
    find_ranks,
    match_message,
    sort_ranks,
)
from nearcast.indexes.mbr_trie.match import borrowed_scratch as borrowed_trie_scratch
from nearcast.indexes.pt_quadtree.match import (
    begin_filter,
    borrowed_scratch,
    borrowed_tree,
    count_entries,
    filter_nodes,
    meets_root,
)
from nearcast.indexes.pt_quadtree.verify import Scratch, Seen, verify_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays

BY_COST, BY_TRIE, BY_QUADTREE = 0, 1, 2
"""Which index filters."""

CLEARLY = 0.4
"""The trie is taken if it costs less than this share: estimates are no better, and the quadtree
examines less."""

MIN_PRUNED = 8
"""Shorter lists are verified as they are."""


CHOSEN = FOUND
"""In a note: which index filtered."""


class Rooms(NamedTuple):
    """Room for one message: for the quadtree, for the trie, and for list pruning."""

    quadtree: Scratch
    trie: TrieScratch
    pool: Pool


class Ways(NamedTuple):
    """Which index filters, how lists are verified, and how the trie is probed."""

    filters: Number
    verifies: Number
    probe: Number


class Notes(NamedTuple):
    """What was chosen for every message; empty where nobody asks.

    ``cost`` float64[messages, 2]: by the trie, by the quadtree; ``tally`` int64[messages, 7]: the
    tally of each, with the index that filtered in the place of what was found.
    """

    cost: NDArray[np.float64]
    tally: NDArray[np.int64]


@kernel
def wants_pruning(lists: NDArray[np.int64], tokens: Number, way: Number) -> Number:
    """Tell whether it pays to look up a message's ranks, to pass runs over."""
    if way != COST:
        return way == PRUNE
    entries = np.int64(0)
    for i in range(len(lists)):
        if lists[i, 2] >= MIN_PRUNED:
            entries += lists[i, 2]
    return entries > PRUNE_SHARE * tokens


@kernel
def verify_all(
    both: Both, seen: Seen, ways: Ways, rooms: Rooms, lists: Number, match: NDArray[np.int32]
) -> None:
    """Write the matches of all lists put aside, with pruning if it pays."""
    pool, rows, tally = rooms.pool, rooms.quadtree.lists[:lists], rooms.pool.tally
    candidate = rooms.quadtree.candidate
    if not wants_pruning(rows, len(seen.tokens), ways.verifies):
        tally[EXAMINED] += count_entries(rows)
        found = tally[FOUND]
        more = verify_lists(both.tree, both.ordered, seen, rows, candidate, match[found:])
        tally[FOUND] = more if more < 0 else found + more
        return
    ranks = find_ranks(both.trie, seen.tokens, rooms.trie)
    asked = asked_for(ranks, seen.box, ways.probe, rooms.trie)
    question = Question(seen, asked, rooms.trie.key)
    tally[PRUNED] += lists
    for i in range(lists):
        at, begin, end = rows[i, 0], rows[i, 1], rows[i, 1] + rows[i, 2]
        while begin < end and tally[FOUND] >= 0:
            if tally[RUNS] == len(pool.run):
                verify_runs(both, seen, pool, candidate, match)
            elif tally[PARTS] == len(pool.key):
                sort_ranks(rooms.trie, ranks)
                prune_parts(both, question, pool, candidate, match, ways.verifies)
            elif end - begin < MIN_PRUNED and ways.verifies == COST:
                add_run(pool, at, begin, end)
                begin = end
            else:
                row = at, begin, end
                begin = split_list(both, asked.token_filter, pool, row, ways.verifies)
    if tally[PARTS] > 0 and tally[FOUND] >= 0:
        sort_ranks(rooms.trie, ranks)
        prune_parts(both, question, pool, candidate, match, ways.verifies)
    if tally[RUNS] > 0 and tally[FOUND] >= 0:
        verify_runs(both, seen, pool, candidate, match)
    clear_filter(rooms.trie.token_filter, asked.rank)


@kernel
def match_by_quadtree(
    both: Both, seen: Seen, ways: Ways, rooms: Rooms, match: NDArray[np.int32]
) -> None:
    """Write the matches of a message that the quadtree filters; the tally says how many."""
    tally = rooms.pool.tally
    set_filter(seen.token_filter, seen.tokens)
    top = begin_filter(both.tree, seen, rooms.quadtree)
    while top > 0 and tally[FOUND] >= 0:
        top, lists, opened = filter_nodes(both.tree, seen, rooms.quadtree, top)
        tally[VISITED] += opened
        tally[LISTS] += lists
        verify_all(both, seen, ways, rooms, lists, match)
    clear_filter(seen.token_filter, seen.tokens)


@kernel
def match_by_trie(
    both: Both, seen: Seen, ways: Ways, rooms: Rooms, match: NDArray[np.int32]
) -> None:
    """Write the matches of a message that the trie filters; the tally says how many."""
    tally, scratch = rooms.pool.tally, rooms.trie
    count = find_ranks(both.trie, seen.tokens, scratch)
    sort_ranks(scratch, count)
    asked = asked_for(count, seen.box, ways.probe, scratch)
    tally[FOUND], tally[EXAMINED], tally[VISITED] = match_message(
        both.trie, both.ordered.box, asked, scratch, match, np.int64(0)
    )
    clear_filter(scratch.token_filter, asked.rank)


@kernel
def match_messages(
    both: Both,
    model: Model,
    messages: MessageArrays,
    ways: Ways,
    part: tuple[Number, Number],
    rooms: Rooms,
    notes: Notes,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match the messages of a part; return where the room ended, the examined and the visited.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start`` of the first says where to begin.
    """
    ordered = both.ordered
    ordered = Ordered(borrow(ordered.start), borrow(ordered.token), borrow(ordered.box))
    both = Both(borrowed_tree(both.tree), ordered, borrowed_trie(both.trie))
    pool = rooms.pool
    pool = Pool(
        borrow(pool.run),
        borrow(pool.part),
        borrow(pool.key),
        borrow(pool.frame),
        borrow(pool.tally),
    )
    rooms = Rooms(borrowed_scratch(rooms.quadtree), borrowed_trie_scratch(rooms.trie), pool)
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    model = Model(borrow(model.weight), borrow(model.token_cost))
    examined, visited, tally = np.int64(0), np.int64(0), rooms.pool.tally
    for m in range(part[0], part[1]):
        end = messages.token_start[m + 1]
        tokens = token[messages.token_start[m] : end]
        tokens = tokens[: known_tokens(tokens)]
        if m + 1 < part[1] and ways.verifies != DIRECT:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(both.trie.slot, home(np.int64(token[i]), len(both.trie.slot)))
        seen, start = Seen(tokens, box[m], rooms.quadtree.token_filter), match_start[m]
        by_trie, by_quadtree, chosen = 0.0, 0.0, ways.filters
        noted = len(notes.cost) > 0
        if (chosen == BY_COST or noted) and meets_root(both.tree, seen.box):
            stack = rooms.quadtree.stack
            by_quadtree = quadtree_cost(both.tree, model, seen.box, len(tokens), stack)
            by_trie = model.token_cost[0] * len(tokens)
        if chosen == BY_COST:
            chosen = BY_TRIE if by_trie < CLEARLY * by_quadtree else BY_QUADTREE
        tally[:] = 0
        if chosen == BY_TRIE:
            match_by_trie(both, seen, ways, rooms, match[start:])
        else:
            match_by_quadtree(both, seen, ways, rooms, match[start:])
        if tally[FOUND] < 0:
            return m, examined, visited
        match_start[m + 1] = start + tally[FOUND]
        examined += tally[EXAMINED]
        visited += tally[VISITED]
        if noted:
            notes.cost[m, 0], notes.cost[m, 1] = by_trie, by_quadtree
            notes.tally[m, :] = tally
            notes.tally[m, CHOSEN] = chosen
    return part[1], examined, visited
