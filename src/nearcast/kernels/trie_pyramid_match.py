"""Match messages against a trie-pyramid: walk a group of them down the trie, scan their lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.kernels.compile import Number, borrow, kernel, prefetch
from nearcast.kernels.messages import MessageArrays
from nearcast.kernels.pyramid import grid_x, grid_y
from nearcast.kernels.tag_table import token_position
from nearcast.kernels.token_filter import clear_filter, set_filter
from nearcast.kernels.trie_pyramid import TriePyramidArrays
from nearcast.kernels.trie_pyramid_scan import (
    ScanScratch,
    Window,
    scan_lists,
)
from nearcast.kernels.trie_pyramid_walk import GROUP, WalkScratch, start_walk, walk_group

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONG = 64
"""A message of more tokens than this is walked alone."""


@kernel
def start_group(
    index: TriePyramidArrays,
    messages: MessageArrays,
    first: Number,
    last: Number,
    scratch: WalkScratch,
) -> Number:
    """Begin with the messages of a group; return the top of the stack."""
    mask = np.uint64(len(index.token_slot) - 1)
    ahead = min(len(messages.box), last + GROUP)
    for i in range(messages.token_start[last], messages.token_start[ahead]):
        prefetch(index.token_slot, token_position(np.uint64(messages.token[i]), mask))
    top = np.int64(0)
    for m in range(first, last):
        g = m - first
        box = messages.box[m]
        scratch.window[g, 0], scratch.window[g, 1] = grid_x(box[0]), grid_y(box[1])
        scratch.window[g, 2], scratch.window[g, 3] = grid_x(box[2]), grid_y(box[3])
        tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
        top = start_walk(index, tokens, scratch, g, top)
    return top


@kernel
def scan_message(
    index: TriePyramidArrays,
    tokens: NDArray[np.int32],
    walk: WalkScratch,
    scan: ScanScratch,
    g: Number,
    match: NDArray[np.int32],
    found: Number,
) -> tuple[Number, Number]:
    """Append the matches of a message's lists, and forget the lists."""
    box = walk.window[g]
    window = Window(box[0], box[1], box[2], box[3])
    ordered = walk.token[g, : walk.token_count[g]]
    set_filter(scan.token_filter, ordered)
    lists = walk.lists[g, : walk.list_count[g]]
    found, examined = scan_lists(index, window, tokens, scan, lists, match, found)
    clear_filter(scan.token_filter, ordered)
    walk.list_count[g] = 0
    return found, examined


@kernel
def group_size(token_start: NDArray[np.int64], first: Number, last: Number) -> Number:
    """Return how many messages go together: several short ones, or one."""
    size = np.int64(0)
    while size < GROUP and first + size < last:
        if token_start[first + size + 1] - token_start[first + size] > LONG:
            break
        size += 1
    return max(np.int64(1), size)


@kernel
def match_messages(
    index: TriePyramidArrays,
    messages: MessageArrays,
    first: Number,
    last: Number,
    walk: WalkScratch,
    scan: ScanScratch,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Match messages ``first`` to ``last``; return where the room ended, and the examined.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start[first]`` says where to begin.
    """
    index = TriePyramidArrays(
        borrow(index.token_slot),
        borrow(index.node),
        borrow(index.child_slot),
        borrow(index.cell_slot),
        borrow(index.entry),
        borrow(index.setting),
        borrow(index.token_start),
        borrow(index.token),
        borrow(index.box),
    )
    messages = MessageArrays(
        borrow(messages.token_start), borrow(messages.token), borrow(messages.box)
    )
    walk = WalkScratch(
        borrow(walk.token_key),
        borrow(walk.token),
        borrow(walk.token_count),
        borrow(walk.signature),
        borrow(walk.window),
        borrow(walk.stack),
        borrow(walk.child),
        borrow(walk.cell),
        borrow(walk.lists),
        borrow(walk.list_count),
    )
    scan = ScanScratch(borrow(scan.token_filter), borrow(scan.candidate), borrow(scan.unsure))
    match = borrow(match)
    examined = np.int64(0)
    m = np.int64(first)
    while m < last:
        size = group_size(messages.token_start, m, last)
        top = walk_group(index, walk, start_group(index, messages, m, m + size, walk), size)
        if top > 0 and size > 1:
            size = np.int64(1)
            top = walk_group(index, walk, start_group(index, messages, m, m + 1, walk), size)
        for g in range(size):
            tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
            found = match_start[m]
            while True:
                found, more = scan_message(index, tokens, walk, scan, g, match, found)
                if found < 0:
                    return m, examined
                examined += more
                if top == 0:
                    break
                top = walk_group(index, walk, top, size)
            match_start[m + 1] = found
            m += 1
    return last, examined
