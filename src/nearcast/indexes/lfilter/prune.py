"""List pruning: verify the lists of the quadtree by going down the trie with them.

Yu, Li and Feng, CIKM 2015, sections 5.2 and 5.3. Lists are ordered by label, and a node of the trie
knows the range of labels below it: only the part of a list within this range can match below the
node. At each node the cheaper way is taken: to go further down, or to verify the rest directly.

At the root, a list is a sequence of *runs* with the same first token, whose rank is stored next to
every entry. Runs whose token does not occur are skipped, short runs are verified. Long runs become
*spans* and go down the trie, those of all lists together, as far as the tokens of the message lead
and any of them has entries left. Clauses that end at a node have all their tokens in the message;
only their boxes remain to be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, prefetch
from nearcast.indexes.lfilter.cost import VERIFY_NS, binary_steps, probe_cost
from nearcast.indexes.mbr_trie.layout import (
    CHILD_COUNT,
    FIRST_CHILD,
    HIGH,
    LOW,
    LOW32,
    NO_TOKENS,
    Trie,
    has_list,
    lower_bound,
    may_overlap,
    overlaps,
)
from nearcast.indexes.mbr_trie.match import RankQuery, may_occur
from nearcast.indexes.pt_quadtree.layout import (
    CLAUSE,
    EAST,
    NORTH,
    SOUTH,
    WEST,
    Quadtree,
    entry_label,
)
from nearcast.indexes.pt_quadtree.match import verify_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import Ordered
    from nearcast.compiled.messages import MessageView

VERIFY_CHEAPER, VERIFY_DIRECTLY, VERIFY_BY_PRUNING = range(3)
"""Ways to verify lists: the cheaper one at each node, directly, or down the trie to its end."""

LONG_RUN = 512
"""Runs of this length go down the trie; verifying shorter ones costs less than getting there."""

LABEL_SEARCH_NS = 25.0
"""A step of a binary search among labels, most of which are not in the cache."""

NODE, NEXT_RANK, NEXT_CHILD, FIRST, LAST = range(5)
"""Columns of ``frame``: a node of the trie, where to continue among the ranks of the message and
among the node's children, and its spans."""

FOUND, RUNS, SPANS, EXAMINED, VISITED, LISTS, PRUNED = range(7)
"""Fields of ``tally``: matches (-1: the output was full), runs to verify, spans, entries examined
and nodes visited; how many lists there were, and how many of them were pruned."""

TALLY_WIDTH = 7


class PruneScratch(NamedTuple):
    """Scratch for list pruning.

    - ``run`` int64[n, 3]: runs to verify: a node of the quadtree, begin and length.
    - ``span`` int64[m, 3]: spans to go down with: a node of the quadtree, begin and end.
    - ``key`` int64[k]: the rank of the first token of a span, with its number in the lower half.
    - ``frame`` int64[depth + 2, 5], ``tally`` int64[7]: see above.
    """

    run: NDArray[np.int64]
    span: NDArray[np.int64]
    key: NDArray[np.int64]
    frame: NDArray[np.int64]
    tally: NDArray[np.int64]


class BothIndexes(NamedTuple):
    """The quadtree, the clauses as it sees them, and the trie."""

    tree: Quadtree
    ordered: Ordered
    trie: Trie


class Query(NamedTuple):
    """A message as both indexes see it; ``child`` int64[ranks]: ranks with children of the root."""

    tokens: MessageView
    ranks: RankQuery
    child: NDArray[np.int64]


@kernel
def verify_runs(
    both: BothIndexes,
    tokens: MessageView,
    scratch: PruneScratch,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
) -> None:
    """Write the matches of all collected runs, and clear these."""
    tally = scratch.tally
    found, runs = tally[FOUND], tally[RUNS]
    more = verify_lists(
        both.tree, both.ordered, tokens, scratch.run[:runs], candidate, match[found:]
    )
    tally[FOUND] = more if more < 0 else found + more
    tally[RUNS] = 0


@inlined_kernel
def add_run(scratch: PruneScratch, at: Number, begin: Number, end: Number) -> None:
    """Collect a run to verify; it extends the previous one if that ends where this one begins."""
    run, tally = scratch.run, scratch.tally
    count = tally[RUNS]
    tally[EXAMINED] += end - begin
    if count > 0 and run[count - 1, 0] == at and run[count - 1, 1] + run[count - 1, 2] == begin:
        run[count - 1, 2] += end - begin
        return
    run[count, 0], run[count, 1], run[count, 2] = at, begin, end - begin
    tally[RUNS] = count + 1


@inlined_kernel
def add_span(scratch: PruneScratch, at: Number, begin: Number, end: Number, rank: Number) -> None:
    """Collect a run as a span to go down the trie with."""
    count = scratch.tally[SPANS]
    span = scratch.span[count]
    span[0], span[1], span[2] = at, begin, end
    scratch.key[count] = np.int64(rank) << 32 | count
    scratch.tally[SPANS] = count + 1


@kernel
def split_list(
    both: BothIndexes,
    token_filter: NDArray[np.uint64],
    scratch: PruneScratch,
    row: tuple[Number, Number, Number],
    verify: Number,
) -> Number:
    """Collect the runs of a list whose first token may occur; return where the scratch was full.

    ``row``: a node of the quadtree, and begin and end of the list.
    """
    rank, tally = both.tree.entry_rank, scratch.tally
    at, begin, last = row
    while begin < last:
        if tally[RUNS] == len(scratch.run) or tally[SPANS] == len(scratch.key):
            return begin
        here = rank[begin]
        end = begin + 1
        while end < last and rank[end] == here:
            end += 1
        if here == NO_TOKENS:
            add_run(scratch, at, begin, end)
        elif may_occur(token_filter, here):
            if verify == VERIFY_BY_PRUNING or end - begin >= LONG_RUN:
                add_span(scratch, at, begin, end, here)
            else:
                prefetch(both.tree.entry, begin)
                add_run(scratch, at, begin, end)
        begin = end
    return begin


@kernel
def prune_spans(
    both: BothIndexes,
    query: Query,
    scratch: PruneScratch,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
    verify: Number,
) -> None:
    """Go down the trie with all collected spans, those of one first token together."""
    tally, ranks, span = scratch.tally, query.ranks, scratch.span
    spans = tally[SPANS]
    scratch.key[:spans].sort()
    tally[SPANS] = 0
    i = np.int64(0)
    while i < spans and tally[FOUND] >= 0:
        rank, count = scratch.key[i] >> 32, np.int64(0)
        while i + count < spans and scratch.key[i + count] >> 32 == rank:
            number = scratch.key[i + count] & LOW32
            for column in range(3):
                span[spans + count, column] = span[number, column]
            count += 1
        i += count
        position = lower_bound(ranks.rank, np.int64(0), len(ranks.rank), rank)
        if position == len(ranks.rank) or ranks.rank[position] != rank:
            continue  # the bit of the filter is that of another token
        child = query.child[position] & LOW32
        if not overlaps(both.trie.node, child, ranks.window):
            continue
        if not make_space(both, query, scratch, candidate, match, count):
            return
        step = np.int64(0), child, position + 1
        if enter_node(both, query, scratch, step, (spans, spans + count), match, verify):
            descend(both, query, scratch, candidate, match, verify)


@kernel
def descend(
    both: BothIndexes,
    query: Query,
    scratch: PruneScratch,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
    verify: Number,
) -> None:
    """Go down the trie from the first frame, and write matches."""
    trie, tally, depth = both.trie, scratch.tally, np.int64(0)
    while depth >= 0 and tally[FOUND] >= 0:
        first, last = scratch.frame[depth, FIRST], scratch.frame[depth, LAST]
        if not make_space(both, query, scratch, candidate, match, last - first):
            return
        child, position = next_child(trie, query.ranks, scratch.frame[depth])
        if child < 0:
            depth -= 1
            continue
        labels = trie.label[child, LOW], trie.label[child, HIGH]
        end, size = narrow_spans(both.tree, scratch, (first, last), labels)
        if size > 0:
            step = depth + 1, child, position
            if enter_node(both, query, scratch, step, (last, end), match, verify):
                depth += 1


@kernel
def make_space(
    both: BothIndexes,
    query: Query,
    scratch: PruneScratch,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
    runs: Number,
) -> Number:
    """Make space for more runs by verifying those collected; return False if the output is full."""
    if scratch.tally[RUNS] + runs > len(scratch.run):
        verify_runs(both, query.tokens, scratch, candidate, match)
    return scratch.tally[FOUND] >= 0


@kernel
def next_child(trie: Trie, ranks: RankQuery, frame: NDArray[np.int64]) -> tuple[Number, Number]:
    """Return the next child of a frame's node to visit (-1: none), and the position of its rank."""
    first = np.int64(trie.node[frame[NODE], FIRST_CHILD])
    last, count = first + trie.node[frame[NODE], CHILD_COUNT], len(ranks.rank)
    at, position = frame[NEXT_CHILD], frame[NEXT_RANK]
    by_tokens = (count - position) * binary_steps(last - at) < np.float64(last - at)
    while at < last and position < count:
        if by_tokens:
            at = lower_bound(trie.rank, at, last, ranks.rank[position])
            if at == last:
                break
        elif not may_occur(ranks.token_filter, trie.rank[at]):
            at += 1
            continue
        else:
            position = lower_bound(ranks.rank, position, count, trie.rank[at])
            if position == count:
                break
        if trie.rank[at] != ranks.rank[position]:
            if by_tokens:
                position += 1
            else:
                at += 1
            continue
        at, position = at + 1, position + 1
        if may_overlap(trie.outline[at - 1], ranks.outline) and overlaps(
            trie.node, at - 1, ranks.window
        ):
            frame[NEXT_CHILD], frame[NEXT_RANK] = at, position
            return at - 1, position
    return np.int64(-1), count


@kernel
def enter_node(
    both: BothIndexes,
    query: Query,
    scratch: PruneScratch,
    step: tuple[Number, Number, Number],
    spans: tuple[Number, Number],
    match: NDArray[np.int32],
    verify: Number,
) -> Number:
    """Enter a node with all entries that spans have below it; tell whether to visit its children.

    ``step``: the depth, the node, and the position after its rank. If its children are to be
    visited, its frame is written.
    """
    tree, trie, tally = both.tree, both.trie, scratch.tally
    depth, at, position = step
    low = trie.label[at, LOW]
    tally[VISITED] += 1
    if has_list(trie.node, at):
        own, _ = narrow_spans(tree, scratch, spans, (low, low))
        take_own(tree, query.tokens, scratch, (spans[1], own), match)
    size = np.int64(0)
    for i in range(spans[0], spans[1]):
        size += scratch.span[i, 2] - scratch.span[i, 1]
    left = len(query.ranks.rank) - position
    if size == 0:
        return False
    if spans[1] + 2 * (spans[1] - spans[0]) > len(scratch.span) or not worth_descending(
        trie, at, size, left, verify
    ):
        leave_spans(scratch, spans)
        return False
    frame = scratch.frame[depth]
    frame[NODE], frame[NEXT_RANK], frame[NEXT_CHILD] = at, position, trie.node[at, FIRST_CHILD]
    frame[FIRST], frame[LAST] = spans
    return True


@kernel
def narrow_spans(
    tree: Quadtree,
    scratch: PruneScratch,
    spans: tuple[Number, Number],
    labels: tuple[Number, Number],
) -> tuple[Number, Number]:
    """Append the entries of spans within a range of labels as new spans.

    The old spans lose these entries and all before them. Return where the new spans end, and how
    many entries they have.
    """
    span, top, total = scratch.span, spans[1], np.int64(0)
    for i in range(spans[0], spans[1]):
        begin = label_lower_bound(tree, span[i, 1], span[i, 2], labels[0])
        end = begin
        if begin < span[i, 2] and entry_label(tree, begin) <= labels[1]:
            end = label_lower_bound(tree, begin + 1, span[i, 2], labels[1] + 1)
            span[top, 0], span[top, 1], span[top, 2] = span[i, 0], begin, end
            total += end - begin
            top += 1
        span[i, 1] = end
    return top, total


@kernel
def label_lower_bound(tree: Quadtree, low: Number, high: Number, label: Number) -> Number:
    """Return the first place in ``low:high`` of a list whose label is not below the given one."""
    while low < high:
        middle = (low + high) >> 1
        if entry_label(tree, middle) < label:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def worth_descending(trie: Trie, at: Number, size: Number, left: Number, verify: Number) -> Number:
    """Tell whether to prune ``size`` entries below a node, with ``left`` tokens left."""
    if verify == VERIFY_BY_PRUNING:
        return True
    children = np.int64(trie.node[at, CHILD_COUNT])
    visited = min(np.float64(children), np.float64(left))
    cost = probe_cost(children, left)
    cost += visited * binary_steps(np.int64(size)) * LABEL_SEARCH_NS
    return cost < np.float64(size) * VERIFY_NS


@kernel
def leave_spans(scratch: PruneScratch, spans: tuple[Number, Number]) -> None:
    """Collect what is left of spans as runs to verify."""
    for i in range(spans[0], spans[1]):
        if scratch.span[i, 1] < scratch.span[i, 2]:
            add_run(scratch, scratch.span[i, 0], scratch.span[i, 1], scratch.span[i, 2])


@kernel
def take_own(
    tree: Quadtree,
    tokens: MessageView,
    scratch: PruneScratch,
    spans: tuple[Number, Number],
    match: NDArray[np.int32],
) -> None:
    """Write the matches in spans whose clauses have all their tokens in the message."""
    tally = scratch.tally
    for i in range(spans[0], spans[1]):
        span = scratch.span[i]
        if tally[FOUND] + span[2] - span[1] > len(match):
            tally[FOUND] = -1
            return
        tally[FOUND] += take_overlapping(tree, tokens, span, match[tally[FOUND] :])
        tally[EXAMINED] += span[2] - span[1]


@kernel
def take_overlapping(
    tree: Quadtree, tokens: MessageView, span: NDArray[np.int64], match: NDArray[np.int32]
) -> Number:
    """Write the clauses of a span whose boxes overlap the message; the output has space.

    A clause that is listed in several nodes is reported by the one with the south-west corner of
    the overlap, as in `nearcast.indexes.pt_quadtree.match`.
    """
    box, entry, found = tokens.box, tree.entry, np.int64(0)
    x, y = tree.node[span[0], WEST], tree.node[span[0], SOUTH]
    for place in range(span[1], span[2]):
        touches = (entry[place, WEST] <= box[2]) & (entry[place, SOUTH] <= box[3])
        touches &= (entry[place, EAST] >= box[0]) & (entry[place, NORTH] >= box[1])
        touches &= (max(entry[place, WEST], box[0]) >= x) & (max(entry[place, SOUTH], box[1]) >= y)
        match[found] = entry[place, CLAUSE]
        found += np.int64(touches)
    return found
