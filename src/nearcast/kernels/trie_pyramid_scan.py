"""Scan lists of a trie-pyramid for the entries that match a message.

`scan_entries` does the bulk without a branch: it collects the entries whose packed box may touch
the message and whose next token may occur in it. Most of those are decided by the entry alone. The
others are put aside, what is needed to decide them is asked for, and they are verified at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, inlined_kernel, kernel, prefetch
from nearcast.kernels.messages import contains
from nearcast.kernels.pyramid import (
    LEVELS,
    ONES,
    QUANTA_BITS,
    TOP,
    cell_code,
    cell_key,
    grid_x,
    grid_y,
    pack_probe,
)
from nearcast.kernels.tag_table import (
    BITS32,
    LOW32,
    find_tag,
    mix,
)
from nearcast.kernels.token_filter import FILTER_BITS
from nearcast.kernels.trie_pyramid import ANY, TriePyramidArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLAT = np.uint64(1 << 63)
"""Marks a list that is not a cell."""

PYRAMID = np.uint64(1 << 62)
"""Marks a node whose cells a range message opens."""


class Window(NamedTuple):
    """The box of a message in grid coordinates."""

    x0: Number
    y0: Number
    x1: Number
    y1: Number


class ScanScratch(NamedTuple):
    """Room for scanning: a bit for each token of the message, candidates, clauses put aside."""

    token_filter: NDArray[np.uint64]
    candidate: NDArray[np.int64]
    unsure: NDArray[np.int32]


@kernel
def verify(
    index: TriePyramidArrays, window: Window, tokens: NDArray[np.int32], clause: Number
) -> Number:
    """Check a clause against the message, side by side and token by token."""
    box = index.box[clause]
    if (
        grid_x(box[0]) > window.x1
        or grid_x(box[2]) < window.x0
        or grid_y(box[1]) > window.y1
        or grid_y(box[3]) < window.y0
    ):
        return False
    for i in range(index.token_start[clause], index.token_start[clause + 1]):
        if not contains(tokens, index.token[i]):
            return False
    return True


@kernel
def verify_unsure(
    index: TriePyramidArrays,
    window: Window,
    tokens: NDArray[np.int32],
    unsure: NDArray[np.int32],
    match: NDArray[np.int32],
    found: Number,
) -> Number:
    """Append those of the unsure clauses that do match; there is room for all of them."""
    for i in range(len(unsure)):
        prefetch(index.token, index.token_start[unsure[i]])
    for i in range(len(unsure)):
        if verify(index, window, tokens, np.int64(unsure[i])):
            match[found] = unsure[i]
            found += 1
    return found


@inlined_kernel
def scan_entries(
    entry: NDArray[np.uint64],
    first: Number,
    last: Number,
    probe: Number,
    token_filter: NDArray[np.uint64],
    candidate: NDArray[np.int64],
) -> Number:
    """Collect the entries whose box may touch the probe and whose next token may occur."""
    count = np.int64(0)
    for i in range(first, last):
        bit = (entry[i, 1] >> BITS32) & np.uint64((1 << FILTER_BITS) - 1)
        occurs = (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1)
        touches = ((probe - entry[i, 0]) & TOP) == TOP
        candidate[count] = i
        count += np.int64(occurs) & np.int64(touches)
    return count


@inlined_kernel
def scan_list(
    index: TriePyramidArrays,
    window: Window,
    tokens: NDArray[np.int32],
    scratch: ScanScratch,
    position: Number,
    in_cell: Number,
    match: NDArray[np.int32],
    found: Number,
    unsures: Number,
) -> tuple[Number, Number]:
    """Append the matches of one list; return how many there are then, -1 where there is no room.

    A range message meets an entry in several cells: it counts in the one that holds the west
    and south corner of what they share.
    """
    entry = index.entry
    origin_x = np.int64(entry[position, 0] & LOW32)
    origin_y = np.int64(entry[position, 0] >> BITS32)
    size = np.int64(entry[position, 1] & LOW32)
    shift = np.int64(entry[position, 1] >> BITS32)
    probe = pack_probe(window.x0, window.y0, window.x1, window.y1, origin_x, origin_y, shift)
    left = in_cell and window.x0 < origin_x
    below = in_cell and window.y0 < origin_y
    first = np.int64(position) + 1
    last = first + size
    if ((probe - ONES) & TOP) != TOP:
        last = first
    elif found + unsures + size > len(match):
        last = first
        found = np.int64(-1)
    while first < last:
        stop = min(first + len(scratch.candidate), last)
        count = scan_entries(entry, first, stop, probe, scratch.token_filter, scratch.candidate)
        first = stop
        if unsures + count > len(scratch.unsure):
            found = verify_unsure(index, window, tokens, scratch.unsure[:unsures], match, found)
            unsures = np.int64(0)
        for i in range(count):
            box, word = entry[scratch.candidate[i], 0], entry[scratch.candidate[i], 1]
            if left and (box & np.uint64(0x7FFF)) == np.uint64(0):
                continue
            if below and (box & np.uint64(0x7FFF0000)) == np.uint64(0):
                continue
            clause = np.int64(word & LOW32)
            surely = ((probe - box - ONES) & TOP) == TOP
            token = np.int64(word >> BITS32)
            if surely and token == ANY:
                match[found] = clause
                found += 1
            elif surely and token < ANY:
                if contains(tokens, token):
                    match[found] = clause
                    found += 1
            else:
                prefetch(index.token_start, clause)
                prefetch(index.box, clause)
                scratch.unsure[unsures] = clause
                unsures += 1
    return found, unsures


@kernel
def prefetch_list(entry: NDArray[np.uint64], position: Number) -> None:
    """Ask for the lines of a list after the first one, which is here or on its way."""
    size = entry[position, 1] & LOW32
    line = np.uint64(4)
    while line <= size and line < np.uint64(64):
        prefetch(entry, position + line)
        line += np.uint64(4)


@kernel
def is_cell(
    entry: NDArray[np.uint64], position: Number, level: Number, column: Number, row: Number
) -> Number:
    """Tell whether the list at a position is this cell."""
    side = np.int64(32) - level
    origin = np.uint64(column << side) | (np.uint64(row << side) << BITS32)
    shift = np.uint64(np.int64(32 - QUANTA_BITS) - level)
    return entry[position, 0] == origin and (entry[position, 1] >> BITS32) == shift


@kernel
def touched_cells(mask: Number, window: Window) -> Number:
    """Count the cells of the mask's levels that a window touches."""
    touched = np.int64(0)
    for level in range(LEVELS):
        if (mask >> level) & 1:
            side = np.int64(32) - level
            columns = (window.x1 >> side) - (window.x0 >> side) + 1
            touched += columns * ((window.y1 >> side) - (window.y0 >> side) + 1)
    return touched


@kernel
def walk_cells(
    index: TriePyramidArrays,
    window: Window,
    tokens: NDArray[np.int32],
    scratch: ScanScratch,
    node: Number,
    match: NDArray[np.int32],
    found: Number,
    unsures: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a node's cells, going through all of them; count the entries."""
    position = np.int64(index.node[node, 5] & LOW32)
    end = np.int64(index.node[node, 5] >> BITS32)
    examined = np.int64(0)
    while position < end and found >= 0:
        size = np.int64(index.entry[position, 1] & LOW32)
        side = np.int64(1) << (np.int64(index.entry[position, 1] >> BITS32) + QUANTA_BITS)
        x0 = np.int64(index.entry[position, 0] & LOW32)
        y0 = np.int64(index.entry[position, 0] >> BITS32)
        across = window.x0 < x0 + side and window.x1 >= x0
        if across and window.y0 < y0 + side and window.y1 >= y0:
            examined += size
            found, unsures = scan_list(
                index, window, tokens, scratch, position, True, match, found, unsures
            )
        position += 1 + size
    return found, unsures, examined


@kernel
def open_cells(
    index: TriePyramidArrays,
    window: Window,
    tokens: NDArray[np.int32],
    scratch: ScanScratch,
    node: Number,
    match: NDArray[np.int32],
    found: Number,
    unsures: Number,
) -> tuple[Number, Number, Number]:
    """Append the matches of a node's cells, looking up those that the window touches."""
    mask = np.int64(index.node[node, 6] >> BITS32)
    start = np.int64(index.node[node, 5] & LOW32)
    end = np.int64(index.node[node, 5] >> BITS32)
    examined = np.int64(0)
    for level in range(LEVELS):
        if (mask >> level) & 1 == 0:
            continue
        side = np.int64(32) - level
        for row in range(window.y0 >> side, (window.y1 >> side) + 1):
            for column in range(window.x0 >> side, (window.x1 >> side) + 1):
                hashed = mix(cell_key(node, cell_code(level, column, row)), index.setting[1])
                position = np.int64(find_tag(index.cell_slot, hashed))
                if position < start or position >= end or found < 0:
                    continue
                if is_cell(index.entry, position, level, column, row):
                    examined += np.int64(index.entry[position, 1] & LOW32)
                    found, unsures = scan_list(
                        index, window, tokens, scratch, position, True, match, found, unsures
                    )
    return found, unsures, examined


@kernel
def scan_lists(
    index: TriePyramidArrays,
    window: Window,
    tokens: NDArray[np.int32],
    scratch: ScanScratch,
    lists: NDArray[np.uint64],
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number]:
    """Append the matches of all lists of a message and verify what was put aside.

    Return how many there are then (-1: no room), and how many entries were examined.
    """
    entry = index.entry
    examined = np.int64(0)
    unsures = np.int64(0)
    for i in range(len(lists)):
        if i + 2 < len(lists) and not lists[i + 2, 0] & PYRAMID:
            prefetch_list(entry, lists[i + 2, 0] & ~FLAT)
        position = lists[i, 0]
        in_cell = False
        if position & PYRAMID:
            node = np.int64(position ^ PYRAMID)
            mask = np.int64(index.node[node, 6] >> BITS32)
            cells = np.int64(index.node[node, 6] & LOW32)
            if touched_cells(mask, window) > cells:
                found, unsures, more = walk_cells(
                    index, window, tokens, scratch, node, match, found, unsures
                )
            else:
                found, unsures, more = open_cells(
                    index, window, tokens, scratch, node, match, found, unsures
                )
            examined += more
            if found < 0:
                break
            continue
        if position & FLAT:
            position ^= FLAT
        else:
            in_cell = True
            level = np.int64(lists[i, 1])
            side = np.int64(32) - level
            if not is_cell(entry, position, level, window.x0 >> side, window.y0 >> side):
                continue
        examined += np.int64(entry[position, 1] & LOW32)
        found, unsures = scan_list(
            index, window, tokens, scratch, position, in_cell, match, found, unsures
        )
        if found < 0:
            break
    if found >= 0:
        found = verify_unsure(index, window, tokens, scratch.unsure[:unsures], match, found)
    return found, examined
