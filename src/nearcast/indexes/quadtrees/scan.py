"""Scan the lists that a message reaches: boxes first, sixteen at once, then the tokens left.

A clause may stand in several cells. It is reported in the cell that has the south-west corner of
what its box shares with the message, so that nothing is remembered: since both touch the cell, it
is enough that neither the message nor the clause begins before the cell where the other does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.box_lists import (
    CAPACITY,
    SIZE,
    START,
    WIDTH,
    Seen,
    Tokens,
    stride_of,
    tail_place,
    take_candidates,
)
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.indexes.quadtrees.lists import home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.quadtrees.cells import Cell

AHEAD = 128
"""How many entries ahead boxes are asked for."""

ANYWHERE = np.int64(-(1 << 31))
"""The corner of a cell before which no clause begins."""

_ONE = np.uint64(1)


class Scratch(NamedTuple):
    """Room for one message.

    - ``token_filter`` uint64[512]: a bit for each of its tokens.
    - ``token`` int64[tokens + 1, 2]: its tokens that occur in the index, and at which levels;
      ``level`` int64[32]: how many of them occur at each level.
    - ``asked`` int64[many, 4]: an owner and a token, whose row is looked for next, and the corner
      of the cell.
    - ``queue`` int64[many], ``stack`` int64[many] and ``branch`` int64[many]: nodes to open.
    - ``lists`` int64[many, 5]: start, size and capacity of lists, and the corner of their cell.
    - ``candidate`` int64[many] and ``unsure`` int32[many]: entries whose boxes touch the message.
    - ``tally`` int64[4]: see `Output`.
    """

    token_filter: NDArray[np.uint64]
    token: NDArray[np.int64]
    level: NDArray[np.int64]
    asked: NDArray[np.int64]
    queue: NDArray[np.int64]
    stack: NDArray[np.int64]
    branch: NDArray[np.int64]
    lists: NDArray[np.int64]
    candidate: NDArray[np.int64]
    unsure: NDArray[np.int32]
    tally: NDArray[np.int64]


class Output(NamedTuple):
    """Where matches go, and what was counted: int64[4], see below."""

    match: NDArray[np.int32]
    tally: NDArray[np.int64]


FOUND, LISTS, EXAMINED, VISITED = 0, 1, 2, 3
"""In ``tally``: the matches of the message (-1: no room), lists that wait to be scanned, and the
candidates examined and nodes opened so far."""


@kernel
def borrow_scratch(scratch: Scratch) -> Scratch:
    """Return the same room without an owner, for the time of a call."""
    return Scratch(
        borrow(scratch.token_filter),
        borrow(scratch.token),
        borrow(scratch.level),
        borrow(scratch.asked),
        borrow(scratch.queue),
        borrow(scratch.stack),
        borrow(scratch.branch),
        borrow(scratch.lists),
        borrow(scratch.candidate),
        borrow(scratch.unsure),
        borrow(scratch.tally),
    )


@inlined_kernel
def ask_for(slot: NDArray[np.int32], owner: Number, token: Number, ask: NDArray[np.int64]) -> None:
    """Note a list to be looked up, and ask for its row."""
    ask[0], ask[1] = owner, token
    prefetch(slot, home(slot, owner, token))


@inlined_kernel
def corner_of(cell: Cell, box: NDArray[np.int32]) -> tuple[Number, Number]:
    """Return before which place the clauses of a cell do not begin that are reported there."""
    west = cell.west if cell.west > box[0] else ANYWHERE
    south = cell.south if cell.south > box[1] else ANYWHERE
    return west, south


@kernel
def scan_list(
    flat: NDArray[np.int32],
    place: NDArray[np.int64],
    box: NDArray[np.int32],
    candidate: NDArray[np.int64],
    first: Number,
    count: Number,
) -> tuple[Number, Number]:
    """Collect where the entries of a list stand whose boxes touch the message, and ask for them.

    Returns how far it came, as long as there is room, and how many candidates there are then.
    """
    size, stride = place[1], stride_of(place[2])
    west, south = place[3], place[4]
    base = WIDTH * place[0] + 4 * first
    tail = tail_place(place[0], place[2], first)
    while first < size and count + LANES <= len(candidate):
        if first + AHEAD < size:
            for line in range(4):
                prefetch(flat, base + 4 * AHEAD + LANES * line)
        touches = touching_boxes(flat, base, stride, box)
        if size - first < LANES:
            touches &= (_ONE << np.uint64(size - first)) - _ONE
        while touches != np.uint64(0):
            lane = lowest_bit(touches)
            touches &= touches - _ONE
            here = (flat[base + lane] >= west) & (flat[base + stride + lane] >= south)
            prefetch(flat, tail + 2 * lane)
            candidate[count] = tail + 2 * lane
            count += np.int64(here)
        base += 4 * LANES
        tail += 2 * LANES
        first += LANES
    return first, count


@kernel
def scan_lists(
    flat: NDArray[np.int32], clauses: Tokens, seen: Seen, scratch: Scratch, output: Output
) -> None:
    """Write the matches of all lists that wait; none waits any more then."""
    found, count, lists = output.tally[FOUND], np.int64(0), output.tally[LISTS]
    output.tally[LISTS] = 0
    if found < 0:
        return
    for i in range(lists):
        place = scratch.lists[i]
        if i + 1 < lists:
            ahead = WIDTH * scratch.lists[i + 1, 0]
            for line in range(0, 4 * min(scratch.lists[i + 1, 1], AHEAD), LANES):
                prefetch(flat, ahead + line)
        output.tally[EXAMINED] += place[1]
        first = np.int64(0)
        while True:
            first, count = scan_list(flat, place, seen.box, scratch.candidate, first, count)
            if first >= place[1] and i + 1 < lists:
                break
            if found + count > len(output.match):
                output.tally[FOUND] = -1
                return
            found += take_candidates(
                flat,
                clauses,
                seen,
                scratch.candidate[:count],
                scratch.unsure,
                output.match[found:],
            )
            count = np.int64(0)
            if first >= place[1]:
                break
    output.tally[FOUND] = found


@inlined_kernel
def put_aside(
    entry: NDArray[np.int32],
    row: NDArray[np.int32],
    corner: tuple[Number, Number],
    lists: NDArray[np.int64],
    tally: NDArray[np.int64],
) -> None:
    """Let a list wait, if it has any entries, and ask for its beginning; there is room for it."""
    start, size = np.int64(row[START]), np.int64(row[SIZE])
    at = tally[LISTS]
    lists[at, 0], lists[at, 1], lists[at, 2] = start, size, row[CAPACITY]
    lists[at, 3], lists[at, 4] = corner[0], corner[1]
    tally[LISTS] = at + np.int64(size > 0)
    # Boxes of the first block: four cache lines, each as long as not quite three entries.
    for line in range(0, min(size, np.int64(10)), 3):
        prefetch(entry, start + line)
