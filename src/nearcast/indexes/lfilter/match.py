"""Match messages by the trie or by the quadtree, whichever costs less.

Yu, Li and Feng, CIKM 2015, section 5.4. If the trie costs less, it does everything. Otherwise the
quadtree filters, and its lists are verified directly or by list pruning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.messages import MessageView, known_tokens
from nearcast.compiled.token_filter import clear_filter, set_filter
from nearcast.compiled.token_table import home
from nearcast.indexes.lfilter.cost import PRUNE_SHARE, Model, quadtree_cost
from nearcast.indexes.lfilter.prune import (
    EXAMINED,
    FOUND,
    LISTS,
    PRUNED,
    RUNS,
    SPANS,
    VERIFY_BY_PRUNING,
    VERIFY_CHEAPER,
    VERIFY_DIRECTLY,
    VISITED,
    BothIndexes,
    PruneScratch,
    Query,
    add_run,
    prune_spans,
    split_list,
    verify_runs,
)
from nearcast.indexes.mbr_trie.match import MatchScratch as TrieScratch
from nearcast.indexes.mbr_trie.match import (
    find_ranks,
    match_message,
    sort_ranks,
    start_query,
)
from nearcast.indexes.pt_quadtree.match import MatchScratch as QuadtreeScratch
from nearcast.indexes.pt_quadtree.match import (
    count_entries,
    filter_nodes,
    overlaps_root,
    start_filter,
    verify_lists,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays, Output

FILTER_CHEAPER, FILTER_BY_TRIE, FILTER_BY_QUADTREE = range(3)
"""Which index filters."""

TRIE_MARGIN = 0.4
"""The trie filters if it costs less than this share of the quadtree: estimates are no better than
that, and the quadtree examines less."""

MIN_PRUNED = 8
"""Shorter lists are verified directly."""

CHOSEN = FOUND
"""In the tally of a trace: which index filtered."""


class MatchScratch(NamedTuple):
    """Scratch for one message: of the quadtree, of the trie, and for list pruning."""

    quadtree: QuadtreeScratch
    trie: TrieScratch
    prune: PruneScratch


class Strategy(NamedTuple):
    """Which index filters, how lists are verified, and how the trie is probed."""

    filter: Number
    verify: Number
    probe: Number


class Trace(NamedTuple):
    """What was chosen for every message; empty if not asked for.

    ``cost`` float64[messages, 2]: of the trie and of the quadtree; ``tally`` int64[messages, 7]:
    the tally of each message, with the index that filtered in place of the matches.
    """

    cost: NDArray[np.float64]
    tally: NDArray[np.int64]


@kernel
def match_messages(
    both: BothIndexes,
    model: Model,
    messages: MessageArrays,
    strategy: Strategy,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    trace: Trace,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part.

    Return the message at which the output was full (or the end), how many entries were examined
    and how many nodes were visited.
    """
    both, model, scratch = borrow(both), borrow(model), borrow(scratch)
    token, box = borrow(messages.token), borrow(messages.box)
    match_start, match = borrow(output)
    examined, visited, tally = np.int64(0), np.int64(0), scratch.prune.tally
    for m in range(part[0], part[1]):
        end = messages.token_start[m + 1]
        tokens = token[messages.token_start[m] : end]
        tokens = tokens[: known_tokens(tokens)]
        if m + 1 < part[1] and strategy.verify != VERIFY_DIRECTLY:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(both.trie.slot, home(np.int64(token[i]), len(both.trie.slot)))
        query, start = MessageView(tokens, box[m], scratch.quadtree.token_filter), match_start[m]
        by_trie, by_quadtree, chosen = 0.0, 0.0, strategy.filter
        traced = len(trace.cost) > 0
        if (chosen == FILTER_CHEAPER or traced) and overlaps_root(both.tree, query.box):
            by_quadtree = quadtree_cost(both.tree, model, query, scratch.quadtree.stack)
            by_trie = model.token_cost[0] * len(tokens)
        if chosen == FILTER_CHEAPER:
            chosen = FILTER_BY_TRIE if by_trie < TRIE_MARGIN * by_quadtree else FILTER_BY_QUADTREE
        tally[:] = 0
        if chosen == FILTER_BY_TRIE:
            match_by_trie(both, query, strategy, scratch, match[start:])
        else:
            match_by_quadtree(both, query, strategy, scratch, match[start:])
        if tally[FOUND] < 0:
            return m, examined, visited
        match_start[m + 1] = start + tally[FOUND]
        examined += tally[EXAMINED]
        visited += tally[VISITED]
        if traced:
            trace.cost[m, 0], trace.cost[m, 1] = by_trie, by_quadtree
            trace.tally[m, :] = tally
            trace.tally[m, CHOSEN] = chosen
    return part[1], examined, visited


@kernel
def match_by_trie(
    both: BothIndexes,
    query: MessageView,
    strategy: Strategy,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Write the matches of a message that the trie filters; the tally tells how many."""
    tally, trie_scratch = scratch.prune.tally, scratch.trie
    count = find_ranks(both.trie, query.tokens, trie_scratch)
    sort_ranks(trie_scratch, count)
    ranks = start_query(count, query.box, strategy.probe, trie_scratch)
    tally[FOUND], tally[EXAMINED], tally[VISITED] = match_message(
        both.trie, both.ordered.box, ranks, trie_scratch, match, np.int64(0)
    )
    clear_filter(trie_scratch.token_filter, ranks.rank)


@kernel
def match_by_quadtree(
    both: BothIndexes,
    query: MessageView,
    strategy: Strategy,
    scratch: MatchScratch,
    match: NDArray[np.int32],
) -> None:
    """Write the matches of a message that the quadtree filters; the tally tells how many."""
    tally = scratch.prune.tally
    set_filter(query.token_filter, query.tokens)
    top = start_filter(both.tree, query, scratch.quadtree)
    while top > 0 and tally[FOUND] >= 0:
        top, lists, opened = filter_nodes(both.tree, query, scratch.quadtree, top)
        tally[VISITED] += opened
        tally[LISTS] += lists
        verify_all(both, query, strategy, scratch, lists, match)
    clear_filter(query.token_filter, query.tokens)


@kernel
def verify_all(
    both: BothIndexes,
    query: MessageView,
    strategy: Strategy,
    scratch: MatchScratch,
    lists: Number,
    match: NDArray[np.int32],
) -> None:
    """Write the matches of all collected lists, with pruning if it pays."""
    prune, rows, tally = scratch.prune, scratch.quadtree.lists[:lists], scratch.prune.tally
    candidate = scratch.quadtree.candidate
    if not pruning_pays(rows, len(query.tokens), strategy.verify):
        tally[EXAMINED] += count_entries(rows)
        found = tally[FOUND]
        more = verify_lists(both.tree, both.ordered, query, rows, candidate, match[found:])
        tally[FOUND] = more if more < 0 else found + more
        return
    count = find_ranks(both.trie, query.tokens, scratch.trie)
    ranks = start_query(count, query.box, strategy.probe, scratch.trie)
    both_queries = Query(query, ranks, scratch.trie.key)
    tally[PRUNED] += lists
    for i in range(lists):
        at, begin, end = rows[i, 0], rows[i, 1], rows[i, 1] + rows[i, 2]
        while begin < end and tally[FOUND] >= 0:
            if tally[RUNS] == len(prune.run):
                verify_runs(both, query, prune, candidate, match)
            elif tally[SPANS] == len(prune.key):
                sort_ranks(scratch.trie, count)
                prune_spans(both, both_queries, prune, candidate, match, strategy.verify)
            elif end - begin < MIN_PRUNED and strategy.verify == VERIFY_CHEAPER:
                add_run(prune, at, begin, end)
                begin = end
            else:
                row = at, begin, end
                begin = split_list(both, ranks.token_filter, prune, row, strategy.verify)
    if tally[SPANS] > 0 and tally[FOUND] >= 0:
        sort_ranks(scratch.trie, count)
        prune_spans(both, both_queries, prune, candidate, match, strategy.verify)
    if tally[RUNS] > 0 and tally[FOUND] >= 0:
        verify_runs(both, query, prune, candidate, match)
    clear_filter(scratch.trie.token_filter, ranks.rank)


@kernel
def pruning_pays(lists: NDArray[np.int64], tokens: Number, verify: Number) -> Number:
    """Tell whether it pays to look up the ranks of a message in order to skip runs."""
    if verify != VERIFY_CHEAPER:
        return verify == VERIFY_BY_PRUNING
    entries = np.int64(0)
    for i in range(len(lists)):
        if lists[i, 2] >= MIN_PRUNED:
            entries += lists[i, 2]
    return entries > PRUNE_SHARE * tokens
