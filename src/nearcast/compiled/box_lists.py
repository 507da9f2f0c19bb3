"""Lists of clauses in one pool: boxes compared sixteen at a time, then the tokens left to check.

Used by `nearcast.indexes.keyword_first` (a list per token) and `nearcast.indexes.quadtrees` (a list
per token of a cell or of a trie node, and per quadtree node).

All lists of an index share a pool, ``entry`` int32[m, 6]. A *row* (int32) describes a list; its
first columns are `TOKEN`, `START`, `SIZE` and `CAPACITY`, the last three counted in entries. The
list owns the numbers from ``6 * START`` to ``6 * (START + CAPACITY)`` of the flat pool::

    | west x16 | south x16 | east x16 | north x16 | next block ... | clause, next | clause, next ...
    '---------- 4 * CAPACITY: boxes, sixteen to a block ----------' '--- 2 * CAPACITY: tails ------

A capacity of at most 16 is one block of that width; a larger one is a multiple of 16 and starts at
a cache line. Boxes are stored as `nearcast.compiled.simd_boxes` reads them. Tails are apart: few
boxes overlap a message, so few tails are read.

A tail is a clause and its *next token*, the first token that the list does not imply: `NO_TOKEN` if
there is none, and the complement of the token (negative) if the clause has more tokens after it. A
clause with more tokens is verified against its columns at the end.

A full list moves to the end of the pool. `pack_lists` reclaims what it leaves behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.compiled.clauses import ClauseTokens, Ordered, length_of, token_at
from nearcast.compiled.jit import Number, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.compiled.token_filter import FILTER_WORDS, occurs
from nearcast.compiled.token_table import NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageView

TOKEN, START, SIZE, CAPACITY = 0, 1, 2, 3
"""Columns of a row that describes a list."""

ENTRY_WIDTH = 6
"""Numbers per entry of the pool: four sides, a clause and its next token."""

PADDING = 3
"""Entries after the last list: a narrow block is read as if it had sixteen boxes."""

ALIGNMENT = 8
"""Blocks start at a multiple of this many entries, which is a cache line."""

_AHEAD = 128
_CANDIDATES = 1024
_ONE = np.uint64(1)


class Span(NamedTuple):
    """Where a list lies in the pool, counted in entries."""

    start: Number
    capacity: Number


class ScanScratch(NamedTuple):
    """Scratch space to scan the lists of one message.

    - ``token_filter`` uint64[512]: the filter of the message's tokens.
    - ``lists`` int64[n, 3]: start, size and capacity of each list to scan; int64[n, 5] with the
      corner of each list, before which its boxes are skipped (see `scan_list`).
    - ``candidate`` int64[many]: positions of the tails of entries whose boxes overlap the message.
    - ``undecided`` int32[many]: clauses whose other tokens are still to be verified.
    """

    token_filter: NDArray[np.uint64]
    lists: NDArray[np.int64]
    candidate: NDArray[np.int64]
    undecided: NDArray[np.int32]


def new_pool(entries: int) -> NDArray[np.int32]:
    """Return a pool for ``entries`` entries plus padding; it starts at a cache line."""
    return at_cache_line(ENTRY_WIDTH * (entries + PADDING), np.int32).reshape(-1, ENTRY_WIDTH)


def new_scan_scratch(lists: int, *, corners: bool = False) -> ScanScratch:
    """Return scratch space for messages with at most ``lists`` lists to scan at a time."""
    return ScanScratch(
        np.zeros(FILTER_WORDS, np.uint64),
        np.empty((lists, 5 if corners else 3), np.int64),
        np.empty(_CANDIDATES, np.int64),
        np.empty(_CANDIDATES, np.int32),
    )


# Positions in the pool.


@kernel
def box_position(start: Number, number: Number) -> Number:
    """Return the position of the west side of an entry in the flat pool."""
    block = number & ~np.int64(LANES - 1)
    return ENTRY_WIDTH * np.int64(start) + 4 * block + (number - block)


@kernel
def tail_position(start: Number, capacity: Number, number: Number) -> Number:
    """Return the position of the clause of an entry in the flat pool; its next token follows."""
    return ENTRY_WIDTH * np.int64(start) + 4 * np.int64(capacity) + 2 * number


@kernel
def side_stride(capacity: Number) -> Number:
    """Return the distance between two sides of a box."""
    return min(np.int64(capacity), np.int64(LANES))


@kernel
def capacity_for(size: Number) -> Number:
    """Return the smallest capacity of a list of ``size`` entries."""
    return size if size <= LANES else (size + LANES - 1) & ~np.int64(LANES - 1)


@kernel
def larger_capacity(capacity: Number) -> Number:
    """Return the next capacity of a full list: a quarter more, and at least two."""
    return capacity_for(np.int64(capacity) + max(np.int64(capacity) >> 2, np.int64(2)))


@kernel
def aligned_start(top: Number, capacity: Number) -> Number:
    """Return where a list of this capacity starts if the pool is in use up to ``top``."""
    if capacity <= LANES:
        return top
    return (top + ALIGNMENT - 1) & ~np.int64(ALIGNMENT - 1)


# Changing lists.


@kernel
def next_token(ordered: Ordered, at: Number, known: Number) -> Number:
    """Return the next token of a clause after its first ``known`` ones, as a tail stores it."""
    left = length_of(ordered, at) - known
    if left <= 0:
        return NO_TOKEN
    token = token_at(ordered, at, known)
    return token if left == 1 else ~token


@kernel
def append_entry(
    flat: NDArray[np.int32],
    row: NDArray[np.int32],
    ordered: Ordered,
    at: Number,
    clause: Number,
    known: Number,
) -> None:
    """Append a clause, which is number ``at`` of ``ordered``, to a list that is not full."""
    number = np.int64(row[SIZE])
    position, stride = box_position(row[START], number), side_stride(row[CAPACITY])
    for side in range(4):
        flat[position + side * stride] = ordered.box[at, side]
    position = tail_position(row[START], row[CAPACITY], number)
    flat[position], flat[position + 1] = clause, next_token(ordered, at, known)
    row[SIZE] += 1


@kernel
def clause_at(flat: NDArray[np.int32], row: NDArray[np.int32], number: Number) -> Number:
    """Return the clause of an entry."""
    return np.int64(flat[tail_position(row[START], row[CAPACITY], np.int64(number))])


@kernel
def drop_entry(flat: NDArray[np.int32], row: NDArray[np.int32], number: Number) -> None:
    """Remove an entry from a list; the last entry takes its place."""
    row[SIZE] -= 1
    last, stride = np.int64(row[SIZE]), side_stride(row[CAPACITY])
    if last == number:
        return
    here, there = box_position(row[START], np.int64(number)), box_position(row[START], last)
    for side in range(4):
        flat[here + side * stride] = flat[there + side * stride]
    here = tail_position(row[START], row[CAPACITY], np.int64(number))
    there = tail_position(row[START], row[CAPACITY], last)
    flat[here], flat[here + 1] = flat[there], flat[there + 1]


@kernel
def find_clause(flat: NDArray[np.int32], row: NDArray[np.int32], clause: Number) -> Number:
    """Return the number of a clause's entry, or -1."""
    position = tail_position(row[START], row[CAPACITY], np.int64(0))
    for number in range(row[SIZE]):
        if flat[position + 2 * number] == clause:
            return np.int64(number)
    return np.int64(-1)


@kernel
def set_box(
    flat: NDArray[np.int32], row: NDArray[np.int32], number: Number, box: NDArray[np.int32]
) -> None:
    """Give an entry another box."""
    position, stride = box_position(row[START], np.int64(number)), side_stride(row[CAPACITY])
    for side in range(4):
        flat[position + side * stride] = box[side]


@kernel
def drop_clause(flat: NDArray[np.int32], row: NDArray[np.int32], clause: Number) -> Number:
    """Remove a clause from a list; return whether the list had it."""
    number = find_clause(flat, row, clause)
    if number < 0:
        return False
    drop_entry(flat, row, number)
    return True


@kernel
def copy_list(
    old: NDArray[np.int32], source: Span, new: NDArray[np.int32], target: Span, size: Number
) -> None:
    """Copy a list to a span of the same or another flat pool; the two do not overlap."""
    if source.capacity == target.capacity:
        here, there = ENTRY_WIDTH * target.start, ENTRY_WIDTH * source.start
        for i in range(ENTRY_WIDTH * source.capacity):
            new[here + i] = old[there + i]
        return
    for number in range(size):
        here, there = box_position(target.start, number), box_position(source.start, number)
        for side in range(4):
            value = old[there + side * side_stride(source.capacity)]
            new[here + side * side_stride(target.capacity)] = value
        here = tail_position(target.start, target.capacity, number)
        there = tail_position(source.start, source.capacity, number)
        new[here], new[here + 1] = old[there], old[there + 1]


@kernel
def move_list(
    flat: NDArray[np.int32], row: NDArray[np.int32], start: Number, capacity: Number
) -> None:
    """Move a list to another span of its pool."""
    source = Span(np.int64(row[START]), np.int64(row[CAPACITY]))
    copy_list(flat, source, flat, Span(np.int64(start), np.int64(capacity)), np.int64(row[SIZE]))
    row[START], row[CAPACITY] = start, capacity


@kernel
def pack_lists(
    rows: NDArray[np.int32],
    entry: NDArray[np.int32],
    tight: Number,
    top: Number,
    packed: NDArray[np.int32],
) -> Number:
    """Copy the lists of rows, one after the other, to another pool from ``top`` on; return its end.

    Tight lists get the smallest capacity that holds them. ``packed`` may have no entries: then
    nothing changes, and the answer tells how many entries there must be.
    """
    old, new = entry.reshape(-1), packed.reshape(-1)
    for at in range(len(rows)):
        row = rows[at]
        capacity = np.int64(row[CAPACITY])
        if capacity <= 0:
            continue
        source, size = Span(np.int64(row[START]), capacity), np.int64(row[SIZE])
        if tight:
            capacity = capacity_for(size)
        start = aligned_start(top, capacity)
        top = start + capacity
        if len(new):
            copy_list(old, source, new, Span(start, capacity), size)
            row[START], row[CAPACITY] = start, capacity
    return top


@kernel
def find_damaged_list(
    rows: NDArray[np.int32],
    used: NDArray[np.bool_],
    entry: NDArray[np.int32],
    clauses: Number,
    taken: NDArray[np.bool_],
) -> Number:
    """Return the first used row whose list is not well-formed, or -1.

    A list must lie within the pool, overlap no other and hold clauses below ``clauses``. ``taken``
    has an item for each entry of the pool, true where a list was seen already. Rows with a
    negative capacity are no lists, and are not checked.
    """
    flat = entry.reshape(-1)
    for at in range(len(rows)):
        start, size = np.int64(rows[at, START]), np.int64(rows[at, SIZE])
        capacity = np.int64(rows[at, CAPACITY])
        if not used[at] or capacity < 0:
            continue
        if size < 0 or size > capacity or (capacity > LANES and capacity % LANES != 0):
            return at
        if capacity > 0 and (start < 0 or start + capacity > len(taken)):
            return at
        for i in range(start, start + capacity):
            if taken[i]:
                return at
            taken[i] = True
        for number in range(size):
            clause = flat[tail_position(start, capacity, number)]
            if clause < 0 or clause >= clauses:
                return at
    return np.int64(-1)


# Scanning lists.


@kernel
def scan_list(
    flat: NDArray[np.int32],
    which: NDArray[np.int64],
    corner: Number | None,
    box: NDArray[np.int32],
    candidate: NDArray[np.int64],
    first: Number,
    count: Number,
) -> tuple[Number, Number]:
    """Collect, and prefetch, the tails of a list's entries whose boxes overlap the message.

    Starts at entry ``first``, with ``count`` candidates collected. Returns the same two for the
    next call: it stops early when ``candidate`` is nearly full. Boxes that start west or south of
    the corner in columns 3 and 4 of the list are skipped; if ``corner`` is None there is no such
    corner, and the loop is compiled without that comparison.
    """
    size, stride = which[1], side_stride(which[2])
    if corner is not None:
        west, south = which[3], which[4]
    base = ENTRY_WIDTH * which[0] + 4 * first
    tail = tail_position(which[0], which[2], first)
    while first < size and count + LANES <= len(candidate):
        if first + _AHEAD < size:
            for line in range(4):
                prefetch(flat, base + 4 * _AHEAD + LANES * line)
        touches = touching_boxes(flat, base, stride, box)
        if size - first < LANES:
            touches &= (_ONE << np.uint64(size - first)) - _ONE
        while touches != np.uint64(0):
            lane = lowest_bit(touches)
            touches &= touches - _ONE
            prefetch(flat, tail + 2 * lane)
            candidate[count] = tail + 2 * lane
            if corner is None:
                count += 1
            else:
                here = (flat[base + lane] >= west) & (flat[base + stride + lane] >= south)
                count += np.int64(here)
        base += 4 * LANES
        tail += 2 * LANES
        first += LANES
    return first, count


@kernel
def verify_undecided(
    clauses: ClauseTokens,
    message: MessageView,
    undecided: NDArray[np.int32],
    match: NDArray[np.int32],
) -> Number:
    """Write the undecided clauses all of whose tokens occur; return how many there are."""
    for i in range(len(undecided)):
        prefetch(clauses.token, clauses.token_start[undecided[i]])
    found = np.int64(0)
    for i in range(len(undecided)):
        clause = np.int64(undecided[i])
        begin, end = clauses.token_start[clause], clauses.token_start[clause + 1]
        while begin < end and occurs(
            message.token_filter, message.tokens, np.int64(clauses.token[begin])
        ):
            begin += 1
        match[found] = clause
        found += np.int64(begin == end)
    return found


@kernel
def verify_candidates(
    flat: NDArray[np.int32],
    clauses: ClauseTokens,
    message: MessageView,
    candidate: NDArray[np.int64],
    undecided: NDArray[np.int32],
    match: NDArray[np.int32],
) -> Number:
    """Write the candidates whose tokens occur, all of which fit; return how many there are."""
    found, left = np.int64(0), np.int64(0)
    for i in range(len(candidate)):
        clause, token = np.int64(flat[candidate[i]]), np.int64(flat[candidate[i] + 1])
        if token >= 0:
            match[found] = clause
            found += np.int64(occurs(message.token_filter, message.tokens, token))
        elif occurs(message.token_filter, message.tokens, ~token):
            prefetch(clauses.token_start, clause)
            undecided[left] = clause
            left += 1
    return found + verify_undecided(clauses, message, undecided[:left], match[found:])


@kernel
def scan_lists(
    flat: NDArray[np.int32],
    clauses: ClauseTokens,
    message: MessageView,
    scratch: ScanScratch,
    corner: Number | None,
    count: Number,
    match: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Write the matches in the first ``count`` lists of the scratch space.

    ``corner`` as for `scan_list`. Returns how many matches there are, -1 if they do not fit, and
    how many entries were examined.
    """
    examined, found, candidates = np.int64(0), np.int64(0), np.int64(0)
    for i in range(count):
        which = scratch.lists[i]
        if i + 1 < count:
            ahead = ENTRY_WIDTH * scratch.lists[i + 1, 0]
            for line in range(0, 4 * min(scratch.lists[i + 1, 1], _AHEAD), LANES):
                prefetch(flat, ahead + line)
        examined += which[1]
        first = np.int64(0)
        while True:
            first, candidates = scan_list(
                flat, which, corner, message.box, scratch.candidate, first, candidates
            )
            if first >= which[1] and i + 1 < count:
                break
            if found + candidates > len(match):
                return np.int64(-1), examined
            candidate = scratch.candidate[:candidates]
            found += verify_candidates(
                flat, clauses, message, candidate, scratch.undecided, match[found:]
            )
            candidates = np.int64(0)
            if first >= which[1]:
                break
    return found, examined
