"""List pruning: verify the lists of a quadtree's nodes by going down a trie of token sets.

Yu, Li and Feng, CIKM 2015, sections 5.2 and 5.3. Lists are in the order of labels, and a node of
the trie knows the range of labels below it: what a list has of that range is all of the list that
can match below the node. At each node the cheaper way is taken: further down, or to verify what
is left directly.

At the root, a list is a sequence of runs with the same first token, whose rank stands beside every
entry: runs whose token does not occur are passed over. Short runs that are left are verified. Long
ones go down the trie, those of all lists together, as far as the tokens of the message lead and
any of them has something left. Clauses that end at a node have all their tokens in the message;
only their boxes are left to verify.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, prefetch
from nearcast.indexes.lfilter.cost import VERIFY, binary_steps, probe_cost
from nearcast.indexes.mbr_trie.match import Asked, may_occur
from nearcast.indexes.mbr_trie.trie import (
    CHILDREN,
    COUNT,
    HIGH,
    LOW,
    NO_TOKENS,
    Trie,
    first_not_below,
    has_list,
    outlines_meet,
    touches,
)
from nearcast.indexes.pt_quadtree.tree import (
    CLAUSE,
    EAST,
    NORTH,
    SOUTH,
    WEST,
    Quadtree,
    label_of,
)
from nearcast.indexes.pt_quadtree.verify import Seen, verify_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.ordered_clauses import Ordered

COST, DIRECT, PRUNE = 0, 1, 2
"""Ways to verify lists: the cheaper one at each node, directly, or down the trie to its end."""

LONG_RUN = 512
"""A run goes down the trie if it is so long: before, the way there costs more than to verify it."""

STEP = 25.0
"""Nanoseconds for a step of a binary search among labels, most of which are not in the cache."""

NODE, NEXT_RANK, NEXT_CHILD, FIRST, LAST = range(5)
"""In a frame: a node of the trie, where to go on among the ranks of the message and among the
node's children, and its parts in the pool."""

FOUND, RUNS, PARTS, EXAMINED, VISITED, LISTS, PRUNED = range(7)
"""In the tally: matches (-1: no room), runs to be verified, parts in the pool, entries examined
and nodes visited; how many lists there were, and how many of them were pruned."""

_LOW32 = np.int64(0xFFFFFFFF)


class Pool(NamedTuple):
    """Room for list pruning.

    - ``run`` int64[many, 3]: runs to be verified: a node of the quadtree, begin and length.
    - ``part`` int64[many, 3]: runs to go down with: a node of the quadtree, begin and end.
    - ``key`` int64[many]: the rank of the first token of a part, and its number.
    - ``frame`` int64[depth + 2, 5], ``tally`` int64[7]: see above.
    """

    run: NDArray[np.int64]
    part: NDArray[np.int64]
    key: NDArray[np.int64]
    frame: NDArray[np.int64]
    tally: NDArray[np.int64]


class Both(NamedTuple):
    """The two indexes, and the clauses as the quadtree sees them."""

    tree: Quadtree
    ordered: Ordered
    trie: Trie


class Question(NamedTuple):
    """A message as both see it; ``child`` int64[ranks]: its ranks, with the root's children."""

    seen: Seen
    asked: Asked
    child: NDArray[np.int64]


@kernel
def verify_runs(
    both: Both, seen: Seen, pool: Pool, candidate: NDArray[np.int64], match: NDArray[np.int32]
) -> None:
    """Write the matches of the runs put aside, and forget these."""
    tally = pool.tally
    found, runs = tally[FOUND], tally[RUNS]
    more = verify_lists(both.tree, both.ordered, seen, pool.run[:runs], candidate, match[found:])
    tally[FOUND] = more if more < 0 else found + more
    tally[RUNS] = 0


@inlined_kernel
def add_run(pool: Pool, at: Number, begin: Number, end: Number) -> None:
    """Put a run aside to be verified; the one before is continued if it ends where this begins."""
    run, tally = pool.run, pool.tally
    count = tally[RUNS]
    tally[EXAMINED] += end - begin
    if count > 0 and run[count - 1, 0] == at and run[count - 1, 1] + run[count - 1, 2] == begin:
        run[count - 1, 2] += end - begin
        return
    run[count, 0], run[count, 1], run[count, 2] = at, begin, end - begin
    tally[RUNS] = count + 1


@inlined_kernel
def add_part(pool: Pool, at: Number, begin: Number, end: Number, rank: Number) -> None:
    """Put a run into the pool, to go down the trie with it."""
    count = pool.tally[PARTS]
    part = pool.part[count]
    part[0], part[1], part[2] = at, begin, end
    pool.key[count] = np.int64(rank) << 32 | count
    pool.tally[PARTS] = count + 1


@kernel
def split_list(
    both: Both,
    token_filter: NDArray[np.uint64],
    pool: Pool,
    row: tuple[Number, Number, Number],
    way: Number,
) -> Number:
    """Take the runs of a list whose first token may occur; return where the room ended.

    ``row``: a node of the quadtree, and begin and end of the list.
    """
    rank, tally = both.tree.entry_rank, pool.tally
    at, begin, last = row
    while begin < last:
        if tally[RUNS] == len(pool.run) or tally[PARTS] == len(pool.key):
            return begin
        here = rank[begin]
        end = begin + 1
        while end < last and rank[end] == here:
            end += 1
        if here == NO_TOKENS:
            add_run(pool, at, begin, end)
        elif may_occur(token_filter, here):
            if way == PRUNE or end - begin >= LONG_RUN:
                add_part(pool, at, begin, end, here)
            else:
                prefetch(both.tree.entry, begin)
                add_run(pool, at, begin, end)
        begin = end
    return begin


@kernel
def first_of_label(tree: Quadtree, low: Number, high: Number, label: Number) -> Number:
    """Return the first place of a list's part whose label is not below the given one."""
    while low < high:
        middle = (low + high) >> 1
        if label_of(tree, middle) < label:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def narrow(
    tree: Quadtree, pool: Pool, parts: tuple[Number, Number], labels: tuple[Number, Number]
) -> tuple[Number, Number]:
    """Write what parts have of a range of labels behind them, and take it and all before away.

    Return where these new parts end, and how many entries they have.
    """
    part, top, total = pool.part, parts[1], np.int64(0)
    for i in range(parts[0], parts[1]):
        begin = first_of_label(tree, part[i, 1], part[i, 2], labels[0])
        end = begin
        if begin < part[i, 2] and label_of(tree, begin) <= labels[1]:
            end = first_of_label(tree, begin + 1, part[i, 2], labels[1] + 1)
            part[top, 0], part[top, 1], part[top, 2] = part[i, 0], begin, end
            total += end - begin
            top += 1
        part[i, 1] = end
    return top, total


@kernel
def take_touching(
    tree: Quadtree, seen: Seen, part: NDArray[np.int64], match: NDArray[np.int32]
) -> Number:
    """Write the clauses of a part whose boxes meet the message; there is room for all.

    Of the places of a clause, that with the south-west corner of what it has in common with the
    message counts, as in `nearcast.indexes.pt_quadtree.verify`.
    """
    box, entry, found = seen.box, tree.entry, np.int64(0)
    x, y = tree.node[part[0], WEST], tree.node[part[0], SOUTH]
    for place in range(part[1], part[2]):
        met = (entry[place, WEST] <= box[2]) & (entry[place, SOUTH] <= box[3])
        met &= (entry[place, EAST] >= box[0]) & (entry[place, NORTH] >= box[1])
        met &= (max(entry[place, WEST], box[0]) >= x) & (max(entry[place, SOUTH], box[1]) >= y)
        match[found] = entry[place, CLAUSE]
        found += np.int64(met)
    return found


@kernel
def take_own(
    tree: Quadtree, seen: Seen, pool: Pool, parts: tuple[Number, Number], match: NDArray[np.int32]
) -> None:
    """Write what of parts, whose clauses have all their tokens, meets the message."""
    tally = pool.tally
    for i in range(parts[0], parts[1]):
        part = pool.part[i]
        if tally[FOUND] + part[2] - part[1] > len(match):
            tally[FOUND] = -1
            return
        tally[FOUND] += take_touching(tree, seen, part, match[tally[FOUND] :])
        tally[EXAMINED] += part[2] - part[1]


@kernel
def next_child(trie: Trie, asked: Asked, frame: NDArray[np.int64]) -> tuple[Number, Number]:
    """Return the next child of a frame's node that the message leads to, and the rank behind.

    There is none if the child is -1.
    """
    first = np.int64(trie.node[frame[NODE], CHILDREN])
    last, ranks = first + trie.node[frame[NODE], COUNT], len(asked.rank)
    at, position = frame[NEXT_CHILD], frame[NEXT_RANK]
    by_tokens = (ranks - position) * binary_steps(last - at) < np.float64(last - at)
    while at < last and position < ranks:
        if by_tokens:
            at = first_not_below(trie.rank, at, last, asked.rank[position])
            if at == last:
                break
        elif not may_occur(asked.token_filter, trie.rank[at]):
            at += 1
            continue
        else:
            position = first_not_below(asked.rank, position, ranks, trie.rank[at])
            if position == ranks:
                break
        if trie.rank[at] != asked.rank[position]:
            if by_tokens:
                position += 1
            else:
                at += 1
            continue
        at, position = at + 1, position + 1
        if outlines_meet(trie.outline[at - 1], asked.outline) and touches(
            trie.node, at - 1, asked.window
        ):
            frame[NEXT_CHILD], frame[NEXT_RANK] = at, position
            return at - 1, position
    return np.int64(-1), ranks


@kernel
def goes_down(trie: Trie, at: Number, size: Number, left: Number, way: Number) -> Number:
    """Tell whether so many entries are to be pruned below a node, with so many tokens left."""
    if way == PRUNE:
        return True
    children = np.int64(trie.node[at, COUNT])
    met = min(np.float64(children), np.float64(left))
    cost = probe_cost(children, left) + met * binary_steps(np.int64(size)) * STEP
    return cost < np.float64(size) * VERIFY


@kernel
def leave_parts(pool: Pool, parts: tuple[Number, Number]) -> None:
    """Put what is left of parts aside, to be verified."""
    for i in range(parts[0], parts[1]):
        if pool.part[i, 1] < pool.part[i, 2]:
            add_run(pool, pool.part[i, 0], pool.part[i, 1], pool.part[i, 2])


@kernel
def enter(
    both: Both,
    question: Question,
    pool: Pool,
    step: tuple[Number, Number, Number],
    parts: tuple[Number, Number],
    match: NDArray[np.int32],
    way: Number,
) -> Number:
    """Enter a node with all that parts have below it; return whether its children are to follow.

    ``step``: the depth, the node and the rank behind its token. Its frame is made then.
    """
    tree, trie, tally = both.tree, both.trie, pool.tally
    depth, at, position = step
    low = trie.label[at, LOW]
    tally[VISITED] += 1
    if has_list(trie.node, at):
        own, _ = narrow(tree, pool, parts, (low, low))
        take_own(tree, question.seen, pool, (parts[1], own), match)
    size = np.int64(0)
    for i in range(parts[0], parts[1]):
        size += pool.part[i, 2] - pool.part[i, 1]
    left = len(question.asked.rank) - position
    if size == 0:
        return False
    if parts[1] + 2 * (parts[1] - parts[0]) > len(pool.part) or not goes_down(
        trie, at, size, left, way
    ):
        leave_parts(pool, parts)
        return False
    frame = pool.frame[depth]
    frame[NODE], frame[NEXT_RANK], frame[NEXT_CHILD] = at, position, trie.node[at, CHILDREN]
    frame[FIRST], frame[LAST] = parts
    return True


@kernel
def descend(
    both: Both,
    question: Question,
    pool: Pool,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
    way: Number,
) -> None:
    """Go down the trie from the first frame, and write matches."""
    trie, tally, depth = both.trie, pool.tally, np.int64(0)
    while depth >= 0 and tally[FOUND] >= 0:
        first, last = pool.frame[depth, FIRST], pool.frame[depth, LAST]
        if tally[RUNS] + last - first > len(pool.run):
            verify_runs(both, question.seen, pool, candidate, match)
            if tally[FOUND] < 0:
                return
        child, position = next_child(trie, question.asked, pool.frame[depth])
        if child < 0:
            depth -= 1
            continue
        labels = trie.label[child, LOW], trie.label[child, HIGH]
        end, size = narrow(both.tree, pool, (first, last), labels)
        if size > 0:
            step = depth + 1, child, position
            if enter(both, question, pool, step, (last, end), match, way):
                depth += 1


@kernel
def prune_parts(
    both: Both,
    question: Question,
    pool: Pool,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
    way: Number,
) -> None:
    """Go down the trie with all parts in the pool, those of one first token together."""
    tally, asked, part = pool.tally, question.asked, pool.part
    parts = tally[PARTS]
    pool.key[:parts].sort()
    tally[PARTS] = 0
    i = np.int64(0)
    while i < parts and tally[FOUND] >= 0:
        rank, count = pool.key[i] >> 32, np.int64(0)
        while i + count < parts and pool.key[i + count] >> 32 == rank:
            number = pool.key[i + count] & _LOW32
            for side in range(3):
                part[parts + count, side] = part[number, side]
            count += 1
        i += count
        position = first_not_below(asked.rank, np.int64(0), len(asked.rank), rank)
        if position == len(asked.rank) or asked.rank[position] != rank:
            continue  # the filter has the bit of another
        child = question.child[position] & _LOW32
        if not touches(both.trie.node, child, asked.window):
            continue
        if tally[RUNS] + count > len(pool.run):
            verify_runs(both, question.seen, pool, candidate, match)
            if tally[FOUND] < 0:
                return
        step = np.int64(0), child, position + 1
        if enter(both, question, pool, step, (parts, parts + count), match, way):
            descend(both, question, pool, candidate, match, way)
