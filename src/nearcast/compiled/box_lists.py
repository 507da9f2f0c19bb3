"""nearcast.compiled.box_lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.token_filter import occurs

if TYPE_CHECKING:
    from numpy.typing import NDArray


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOKEN, START, SIZE, CAPACITY = 0, 1, 2, 3


WIDTH = 6


PADDING = 3
"""Entries behind the last list: a block of few boxes is read as if it had sixteen."""


@kernel
def box_place(start: Number, number: Number) -> Number:
    """Return where in the flat pool the west side of an entry of a list stands."""
    block = number & ~np.int64(LANES - 1)
    return WIDTH * np.int64(start) + 4 * block + (number - block)


@kernel
def tail_place(start: Number, capacity: Number, number: Number) -> Number:
    """Return where in the flat pool the clause of an entry stands; its next token follows."""
    return WIDTH * np.int64(start) + 4 * np.int64(capacity) + 2 * number


@kernel
def stride_of(capacity: Number) -> Number:
    """Return how far apart the sides of a box stand."""
    return min(np.int64(capacity), np.int64(LANES))


@kernel
def copy_entry(
    flat: NDArray[np.int32],
    old: NDArray[np.int32],
    number: Number,
    new: NDArray[np.int32],
    new_number: Number,
) -> None:
    """Copy an entry from a list to another, or to another place; a list is given by its slot."""
    here = box_place(new[START], np.int64(new_number))
    there = box_place(old[START], np.int64(number))
    for side in range(4):
        flat[here + side * stride_of(new[CAPACITY])] = flat[there + side * stride_of(old[CAPACITY])]
    here = tail_place(new[START], new[CAPACITY], np.int64(new_number))
    there = tail_place(old[START], old[CAPACITY], np.int64(number))
    flat[here], flat[here + 1] = flat[there], flat[there + 1]


@kernel
def rounded(size: Number) -> Number:
    """Return the capacity of a list for at least so many entries."""
    return size if size <= LANES else (size + LANES - 1) & ~np.int64(LANES - 1)


@kernel
def aligned(top: Number, capacity: Number) -> Number:
    """Return where a list of this capacity begins: blocks begin at cache lines."""
    return top if capacity <= LANES else (top + 7) & ~np.int64(7)


class Tokens(NamedTuple):
    """The tokens of all clauses."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]


class Seen(NamedTuple):
    """A message: ascending tokens, its box as int32[4], and the filter of its tokens."""

    tokens: NDArray[np.int32]
    box: NDArray[np.int32]
    token_filter: NDArray[np.uint64]


@kernel
def verify_unsure(
    clauses: Tokens, seen: Seen, unsure: NDArray[np.int32], match: NDArray[np.int32]
) -> Number:
    """Write those of the unsure clauses all of whose tokens occur; return how many."""
    for i in range(len(unsure)):
        prefetch(clauses.token, clauses.token_start[unsure[i]])
    found = np.int64(0)
    for i in range(len(unsure)):
        clause = np.int64(unsure[i])
        begin, end = clauses.token_start[clause], clauses.token_start[clause + 1]
        while begin < end and occurs(
            seen.token_filter, seen.tokens, np.int64(clauses.token[begin])
        ):
            begin += 1
        match[found] = clause
        found += np.int64(begin == end)
    return found


@kernel
def take_candidates(
    flat: NDArray[np.int32],
    clauses: Tokens,
    seen: Seen,
    candidate: NDArray[np.int64],
    unsure: NDArray[np.int32],
    match: NDArray[np.int32],
) -> Number:
    """Write those of the candidates whose tokens occur; there is room for all. Return how many."""
    found, unsures = np.int64(0), np.int64(0)
    for i in range(len(candidate)):
        clause, token = np.int64(flat[candidate[i]]), np.int64(flat[candidate[i] + 1])
        if token >= 0:
            match[found] = clause
            found += np.int64(occurs(seen.token_filter, seen.tokens, token))
        elif occurs(seen.token_filter, seen.tokens, ~token):
            prefetch(clauses.token_start, clause)
            unsure[unsures] = clause
            unsures += 1
    return found + verify_unsure(clauses, seen, unsure[:unsures], match[found:])
