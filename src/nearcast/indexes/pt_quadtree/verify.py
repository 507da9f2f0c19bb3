"""Verify the lists of a pivotal-token quadtree that a message's filter has left.

Yu, Li and Feng, CIKM 2015, section 4.2, step 2. Boxes and a filter of the message's tokens are
asked first, for all entries of a list; the tokens of what is left are then looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_filter import LOW_BITS, occurs
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.pt_quadtree.tree import (
    CLAUSE,
    EAST,
    NORTH,
    OTHERS,
    SOUTH,
    WEST,
    WIDTH,
    Quadtree,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.ordered_clauses import Ordered


class Scratch(NamedTuple):
    """Room for one message: a bit for each of its tokens, nodes to open, and lists to verify.

    ``lists`` int64[many, 3]: a node, and start and size of one of its lists. ``candidate``
    int64[many]: places of entries.
    """

    token_filter: NDArray[np.uint64]
    stack: NDArray[np.int64]
    lists: NDArray[np.int64]
    candidate: NDArray[np.int64]


class Seen(NamedTuple):
    """A message: ascending tokens (without `NO_TOKEN`), its box, and the filter of its tokens."""

    tokens: NDArray[np.int32]
    box: NDArray[np.int32]
    token_filter: NDArray[np.uint64]


@inlined_kernel
def tokens_occur(entry: NDArray[np.int32], ordered: Ordered, seen: Seen, place: Number) -> Number:
    """Tell whether the other tokens of an entry occur."""
    for i in range(OTHERS, WIDTH):
        token = np.int64(entry[place, i])
        if token == NO_TOKEN:
            return True
        if token < 0:  # there are more than an entry has room for
            clause = np.int64(entry[place, CLAUSE])
            for at in range(ordered.start[clause], ordered.start[clause + 1]):
                if not occurs(seen.token_filter, seen.tokens, np.int64(ordered.token[at])):
                    return False
            return True
        if not occurs(seen.token_filter, seen.tokens, token):
            return False
    return True


@inlined_kernel
def may_occur(token_filter: NDArray[np.uint64], token: Number) -> Number:
    """Return the bit of the filter for a token, which may be inverted."""
    bit = np.uint64(token ^ (token >> 31)) & LOW_BITS
    return token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))


@kernel
def keep_candidates(
    entry: NDArray[np.int32],
    seen: Seen,
    corner: tuple[Number, Number],
    places: tuple[Number, Number],
    candidate: NDArray[np.int64],
    count: Number,
) -> Number:
    """Collect the places of entries that may match; return how many there are then.

    All is asked of every entry, without a branch: boxes in a leaf are as likely to touch the
    message as not, which no processor foresees. A clause is left to another leaf unless the corner
    of both boxes is not before this node's: its sides are the larger of two west and two south
    sides, and either box begins before the node's region ends, or it would not be here.
    """
    box, bits = seen.box, seen.token_filter
    west, south, east, north = box[0], box[1], box[2], box[3]
    on_west, on_south = west >= corner[0], south >= corner[1]
    for place in range(places[0], places[1]):
        may = may_occur(bits, entry[place, OTHERS]) & may_occur(bits, entry[place, OTHERS + 1])
        may &= may_occur(bits, entry[place, OTHERS + 2])
        touches = (entry[place, WEST] <= east) & (entry[place, SOUTH] <= north)
        touches &= (entry[place, EAST] >= west) & (entry[place, NORTH] >= south)
        touches &= on_west | (entry[place, WEST] >= corner[0])
        touches &= on_south | (entry[place, SOUTH] >= corner[1])
        candidate[count] = place
        count += np.int64(touches) & np.int64(may & np.uint64(1))
    return count


@kernel
def take_candidates(
    entry: NDArray[np.int32],
    ordered: Ordered,
    seen: Seen,
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
) -> Number:
    """Write those of the candidates whose tokens occur; there is room for all. Return how many."""
    found = np.int64(0)
    for i in range(len(candidate)):
        match[found] = entry[candidate[i], CLAUSE]
        found += np.int64(tokens_occur(entry, ordered, seen, candidate[i]))
    return found


@kernel
def verify_lists(
    tree: Quadtree,
    ordered: Ordered,
    seen: Seen,
    lists: NDArray[np.int64],
    candidate: NDArray[np.int64],
    match: NDArray[np.int32],
) -> Number:
    """Write the matches in the lists put aside; return how many, or -1 if there was no room."""
    found, count = np.int64(0), np.int64(0)
    for i in range(len(lists)):
        at, place = lists[i, 0], lists[i, 1]
        end = place + lists[i, 2]
        corner = tree.node[at, WEST], tree.node[at, SOUTH]
        while True:
            stop = min(end, place + len(candidate) - count)
            count = keep_candidates(tree.entry, seen, corner, (place, stop), candidate, count)
            place = stop
            if place == end and i + 1 < len(lists):
                break
            if found + count > len(match):
                return np.int64(-1)
            found += take_candidates(tree.entry, ordered, seen, candidate[:count], match[found:])
            count = np.int64(0)
            if place == end:
                break
    return found
