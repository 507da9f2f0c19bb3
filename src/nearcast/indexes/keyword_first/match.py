"""Match messages against keyword-first lists: find the lists of its tokens, scan each of them.

A box is checked first, for sixteen entries at once; then the next token of those that are left,
by a filter of the message's tokens and exactly. Clauses of more than two tokens are put aside,
what is needed to decide them is asked for, and they are verified at the end.
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
from nearcast.compiled.jit import Number, borrow, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.simd_boxes import LANES, touching_boxes
from nearcast.compiled.token_filter import clear_filter, set_filter
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.keyword_first.lists import Lists, find_list, home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays

AHEAD = 128
"""How many entries ahead boxes are asked for."""

_ONE = np.uint64(1)


class Scratch(NamedTuple):
    """Room for one message: a bit for each of its tokens, its lists, clauses put aside.

    ``lists`` int64[most tokens + 1, 3]: start, size and capacity. ``candidate`` int64[many] and
    ``unsure`` int32[many].
    """

    token_filter: NDArray[np.uint64]
    lists: NDArray[np.int64]
    candidate: NDArray[np.int64]
    unsure: NDArray[np.int32]


@kernel
def collect_lists(lists: Lists, tokens: NDArray[np.int32], found: NDArray[np.int64]) -> Number:
    """Look up the lists of a message's tokens and ask for their beginnings; return how many."""
    count = np.int64(0)
    known = known_tokens(tokens)
    for i in range(known + 1):
        at = find_list(lists.slot, np.int64(tokens[i]) if i < known else NO_TOKEN)
        start, size = np.int64(lists.slot[at, START]), np.int64(lists.slot[at, SIZE])
        if size == 0:
            continue
        found[count, 0], found[count, 1] = start, size
        found[count, 2] = lists.slot[at, CAPACITY]
        count += 1
        # Boxes of the first block: four cache lines, each as long as not quite three entries.
        for line in range(0, min(size, np.int64(10)), 3):
            prefetch(lists.entry, start + line)
    return count


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
            at = tail + 2 * lowest_bit(touches)
            touches &= touches - _ONE
            prefetch(flat, at)
            candidate[count] = at
            count += 1
        base += 4 * LANES
        tail += 2 * LANES
        first += LANES
    return first, count


@kernel
def scan_message(
    flat: NDArray[np.int32],
    clauses: Tokens,
    seen: Seen,
    scratch: Scratch,
    lists: Number,
    match: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Write the matches of all lists; return how many (-1: no room), and the examined."""
    examined, found, count = np.int64(0), np.int64(0), np.int64(0)
    for i in range(lists):
        place = scratch.lists[i]
        if i + 1 < lists:
            ahead = WIDTH * scratch.lists[i + 1, 0]
            for line in range(0, 4 * min(scratch.lists[i + 1, 1], AHEAD), LANES):
                prefetch(flat, ahead + line)
        examined += place[1]
        first = np.int64(0)
        while True:
            first, count = scan_list(flat, place, seen.box, scratch.candidate, first, count)
            if first >= place[1] and i + 1 < lists:
                break
            if found + count > len(match):
                return np.int64(-1), examined
            candidate = scratch.candidate[:count]
            found += take_candidates(flat, clauses, seen, candidate, scratch.unsure, match[found:])
            count = np.int64(0)
            if first >= place[1]:
                break
    return found, examined


@kernel
def match_messages(
    lists: Lists,
    clauses: Tokens,
    messages: MessageArrays,
    first: Number,
    last: Number,
    scratch: Scratch,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Match messages ``first`` to ``last``; return where the room ended, and the examined.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start[first]`` says where to begin.
    """
    lists = Lists(borrow(lists.slot), borrow(lists.entry), borrow(lists.first), borrow(lists.state))
    flat = borrow(lists.entry.reshape(-1))
    clauses = Tokens(borrow(clauses.token_start), borrow(clauses.token))
    scratch = Scratch(
        borrow(scratch.token_filter),
        borrow(scratch.lists),
        borrow(scratch.candidate),
        borrow(scratch.unsure),
    )
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    examined = np.int64(0)
    for m in range(first, last):
        begin, end = messages.token_start[m], messages.token_start[m + 1]
        if m + 1 < last:
            for i in range(end, messages.token_start[m + 2]):
                prefetch(lists.slot, home(lists.slot, np.int64(token[i])))
        seen = Seen(token[begin:end], box[m], scratch.token_filter)
        count = collect_lists(lists, seen.tokens, scratch.lists)
        set_filter(scratch.token_filter, seen.tokens)
        start = match_start[m]
        found, more = scan_message(flat, clauses, seen, scratch, count, match[start:])
        clear_filter(scratch.token_filter, seen.tokens)
        if found < 0:
            return m, examined
        examined += more
        match_start[m + 1] = start + found
    return last, examined
