"""Find the clauses that match messages, and sort the lists whose bounds have become loose.

Messages are taken in chunks. Each stage goes over a queue of the chunk, writes the next queue and
prefetches what the next stage reads::

    tokens -> headers -> bounds -> leaves -> entries -> exact boxes -> tokens of clauses

All queues are in the order of the messages. A leaf that is opened in vain adds to the debt of its
list. A list whose debt is too high is sorted when the chunk is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import (
    Number,
    borrow,
    inlined_kernel,
    kernel,
    lowest_bit,
    prefetch,
)
from nearcast.compiled.messages import MessageArrays, Output, known_tokens
from nearcast.indexes.moving.entries import FIRST, EntryArrays, signature_bit
from nearcast.indexes.moving.twin_lists.lanes import LANES, touching_boxes, touching_boxes_8
from nearcast.indexes.moving.twin_lists.layout import (
    CLASS,
    CLAUSES,
    DEBT,
    ENTRY_MASK,
    EVERY,
    EXAMINED,
    LEAF_BITS,
    LINE,
    NOTHING,
    REGRET,
    SINGLE,
    SIZE,
    VISITED,
    TwinArrays,
    find_header,
    home_of,
    window_of,
)
from nearcast.indexes.moving.twin_lists.leaves import (
    GROUP_WORDS,
    groups_of,
    is_one_leaf,
    leaf_at,
    sort_list,
    stride_of,
    used_leaves,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 16
"""Messages that are staged together."""

QUEUE = 1024
"""Length of a queue at first."""

TOO_SHORT = -1
"""A stage has found no space in its queue. The chunk is done again with a longer one: a queue that
is replaced within a loop would be counted there."""

MAX_LISTS_TO_SORT = 64
_CERTAIN = SINGLE << 1
"""Of a candidate: its exact box need not be looked at."""

TOKEN_END, TOKEN_BITS, WINDOW = 0, 1, 2
"""Of a message: the end of its known tokens, their signature, and its rounded box."""

_NONE, _ONE, _LOW, _UPPER = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF), np.uint64(32)
_BITS_4, _BITS_16 = np.uint64(0xF0000000F), np.uint64(0xFFFF0000FFFF)

_GROUP = 0
"""In the place of a stride: the position is that of a group of bounds."""


@kernel
def longer(queue: NDArray[np.int64], count: Number) -> NDArray[np.int64]:
    """Return a queue with room for more than ``count`` items, without those of the old one."""
    return np.empty((2 * count + QUEUE, queue.shape[1]), np.int64)


@kernel
def has_all(
    wanted: NDArray[np.int32],
    first: Number,
    token: NDArray[np.int32],
    begin: Number,
    end: Number,
) -> Number:
    """Tell whether ascending tokens contain all of a clause: ``wanted[first]`` is their number."""
    at = np.int64(begin)
    for i in range(first + 1, first + 1 + wanted[first]):
        while at < end and token[at] < wanted[i]:
            at += 1
        if at == end or token[at] != wanted[i]:
            return False
    return True


@inlined_kernel
def prefetch_leaf(word: NDArray[np.int32], position: Number, stride: Number) -> None:
    """Prefetch the sides of a leaf, and all of one with four clauses."""
    prefetch(word, position)
    if stride > 8:
        prefetch(word, position + LINE)
    if stride > 16:
        prefetch(word, position + 2 * LINE)
        prefetch(word, position + 3 * LINE)


@inlined_kernel
def look_up(
    arrays: TwinArrays,
    messages: MessageArrays,
    part: tuple[Number, Number],
    queue: NDArray[np.int64],
    prepared: NDArray[np.int64],
) -> Number:
    """Queue (message, header) for all tokens of messages; return how many.

    ``prepared`` int64[CHUNK, 3]: see `TOKEN_END`.
    """
    table, header, count = arrays.table, arrays.header, np.int64(0)
    has_every = header[EVERY, SIZE] > 0
    for message in range(part[0], part[1]):
        begin, end = messages.token_start[message], messages.token_start[message + 1]
        end = begin + known_tokens(messages.token[begin:end])
        signature = np.int32(0)
        for i in range(begin, end):
            token = messages.token[i]
            signature |= signature_bit(np.int64(token))
            number = find_header(table, token)
            if number != NOTHING:
                queue[count, 0], queue[count, 1] = message, number
                prefetch(header, number)
                count += 1
        if has_every:
            queue[count, 0], queue[count, 1] = message, EVERY
            count += 1
        own = message - part[0]
        prepared[own, TOKEN_END], prepared[own, TOKEN_BITS] = end, signature
        prepared[own, WINDOW] = window_of(arrays.state, messages.box[message])
    return count


@inlined_kernel
def open_headers(
    arrays: TwinArrays, headers: NDArray[np.int64], count: Number, blocks: NDArray[np.int64]
) -> Number:
    """Queue (message, position, stride, header) of single leaves and of groups of bounds."""
    header, word, leaf_bits = arrays.header, arrays.clauses.word, arrays.option[LEAF_BITS]
    queued = np.int64(0)
    for i in range(count):
        message, number = headers[i, 0], headers[i, 1]
        size = np.int64(header[number, SIZE])
        if size == 0:
            continue
        start, kind = np.int64(header[number, CLAUSES]), np.int64(header[number, CLASS])
        groups, stride = np.int64(1), np.int64(_GROUP)
        if is_one_leaf(kind):
            stride = stride_of(kind)
            prefetch_leaf(word, start, stride)
        else:
            groups = (used_leaves(size, leaf_bits) + LANES - 1) // LANES
        if queued + groups > len(blocks):
            queued = np.int64(TOO_SHORT)
            break
        for group in range(groups):
            position = start + group * GROUP_WORDS
            if stride == _GROUP:
                prefetch_leaf(word, position, LANES)
            blocks[queued, 0], blocks[queued, 1] = message, position
            blocks[queued, 2], blocks[queued, 3] = stride, number
            queued += 1
    return queued


@inlined_kernel
def open_bounds(
    arrays: TwinArrays,
    prepared: NDArray[np.int64],
    begin: Number,
    blocks: NDArray[np.int64],
    count: Number,
    leaves: NDArray[np.int64],
) -> Number:
    """Queue the single leaves, and the leaves that groups of bounds lead to."""
    header, word, half = arrays.header, arrays.clauses.word, arrays.clauses.half
    queued = np.int64(0)
    for i in range(count):
        message, position, stride, number = blocks[i, 0], blocks[i, 1], blocks[i, 2], blocks[i, 3]
        if queued + LANES > len(leaves):
            queued = np.int64(TOO_SHORT)
            break
        if stride != _GROUP:
            leaves[queued, 0], leaves[queued, 1] = message, position
            leaves[queued, 2], leaves[queued, 3] = stride, number
            queued += 1
            continue
        window = prepared[message - begin, WINDOW]
        mask = touching_boxes(half, 2 * position, LANES, window) & _LOW
        start = np.int64(header[number, CLAUSES])
        groups = groups_of(np.int64(header[number, CLASS]))
        first = (position - start) // GROUP_WORDS * LANES
        while mask != _NONE:
            leaf = leaf_at(start, groups, first + lowest_bit(mask))
            mask &= mask - _ONE
            prefetch_leaf(word, leaf, LANES)
            leaves[queued, 0], leaves[queued, 1] = message, leaf
            leaves[queued, 2], leaves[queued, 3] = _GROUP, number
            queued += 1
    return queued


@inlined_kernel
def compare_leaf(
    half: NDArray[np.int16], position: Number, stride: Number, window: Number
) -> Number:
    """Return the bits of boxes that touch a window, and those that certainly do above them."""
    if stride <= 8:
        mask = touching_boxes_8(half, 2 * position, stride, window)
        if stride == 4:
            mask &= _BITS_4
    else:
        mask = touching_boxes(half, 2 * position, stride, window)
        if stride == 16:
            mask &= _BITS_16
    return mask


@inlined_kernel
def regret(arrays: TwinArrays, number: Number, to_sort: NDArray[np.int64]) -> None:
    """Add a leaf in vain to the debt of a list; ``to_sort`` has their number, then the lists."""
    header = arrays.header
    limit = arrays.option[REGRET] * header[number, SIZE]
    if header[number, DEBT] < limit:
        header[number, DEBT] += 1
    elif header[number, DEBT] == limit and to_sort[0] + 1 < len(to_sort):
        header[number, DEBT] += 1
        to_sort[0] += 1
        to_sort[to_sort[0]] = number


@inlined_kernel
def scan_leaves(
    arrays: TwinArrays,
    prepared: NDArray[np.int64],
    begin: Number,
    leaves: NDArray[np.int64],
    count: Number,
    hits: NDArray[np.int64],
    to_sort: NDArray[np.int64],
) -> Number:
    """Queue (message, where the entries of a leaf are, bits of those that touch)."""
    word, half = arrays.clauses.word, arrays.clauses.half
    queued = np.int64(0)
    for i in range(count):
        message, position, stride, number = leaves[i, 0], leaves[i, 1], leaves[i, 2], leaves[i, 3]
        width = np.int64(LANES) if stride == _GROUP else stride
        mask = compare_leaf(half, position, width, prepared[message - begin, WINDOW])
        lanes = mask & _LOW
        if lanes == _NONE:
            if stride == _GROUP:
                regret(arrays, number, to_sort)
            continue
        pairs = position + 2 * width
        if width > 4:
            line = np.int64(NOTHING)
            while lanes != _NONE:
                lane = lowest_bit(lanes)
                lanes &= lanes - _ONE
                if lane >> 3 != line:
                    line = lane >> 3
                    prefetch(word, pairs + line * LINE)
        hits[queued, 0], hits[queued, 1], hits[queued, 2] = message, pairs, np.int64(mask)
        queued += 1
    return queued


@inlined_kernel
def read_entries(
    arrays: TwinArrays,
    record: NDArray[np.int32],
    prepared: NDArray[np.int64],
    begin: Number,
    hits: NDArray[np.int64],
    count: Number,
    candidates: NDArray[np.int64],
) -> Number:
    """Queue (message, entry and flags) of those whose signatures fit."""
    word, queued, examined = arrays.clauses.word, np.int64(0), np.int64(0)
    for i in range(count):
        message, pairs, mask = hits[i, 0], hits[i, 1], np.uint64(hits[i, 2])
        missing = ~prepared[message - begin, TOKEN_BITS]
        if queued + LANES > len(candidates):
            queued = np.int64(TOO_SHORT)
            examined = np.int64(0)
            break
        certain, lanes = mask >> _UPPER, mask & _LOW
        while lanes != _NONE:
            lane = lowest_bit(lanes)
            lanes &= lanes - _ONE
            examined += 1
            if np.int64(word[pairs + 2 * lane + 1]) & missing:
                continue
            entry = np.int64(word[pairs + 2 * lane])
            if (certain >> np.uint64(lane)) & _ONE:
                entry |= _CERTAIN
            if entry < (SINGLE | _CERTAIN):
                prefetch(record, entry & ENTRY_MASK)
            candidates[queued, 0], candidates[queued, 1] = message, entry
            queued += 1
    arrays.state[EXAMINED] += examined
    return queued


@inlined_kernel
def compare_boxes(
    entries: EntryArrays,
    box: NDArray[np.int32],
    candidates: NDArray[np.int64],
    count: Number,
) -> Number:
    """Keep the candidates whose exact boxes meet the message; return how many are left."""
    record, left = entries.record, np.int64(0)
    for i in range(count):
        message, entry = candidates[i, 0], candidates[i, 1]
        own = entry & ENTRY_MASK
        meets = entry & _CERTAIN != 0
        if not meets:
            meets = (record[own, 0] <= box[message, 2]) & (record[own, 2] >= box[message, 0])
            meets &= (record[own, 1] <= box[message, 3]) & (record[own, 3] >= box[message, 1])
        if not meets:
            continue
        if not entry & SINGLE:
            prefetch(entries.pool, record[own, FIRST])
        candidates[left, 0], candidates[left, 1] = message, entry
        left += 1
    return left


@inlined_kernel
def compare_tokens(
    entries: EntryArrays,
    messages: MessageArrays,
    prepared: NDArray[np.int64],
    part: tuple[Number, Number],
    candidates: NDArray[np.int64],
    count: Number,
    output: Output,
) -> Number:
    """Write the candidates that have all tokens; return the first message that did not fit."""
    begin, end = part
    total, current = output.start[begin], np.int64(begin)
    stopped = np.int64(end)
    for i in range(count):
        message, entry = candidates[i, 0], candidates[i, 1]
        while current < message:
            current += 1
            output.start[current] = total
        own = entry & ENTRY_MASK
        if not entry & SINGLE and not has_all(
            entries.pool,
            np.int64(entries.record[own, FIRST]),
            messages.token,
            messages.token_start[message],
            prepared[message - begin, TOKEN_END],
        ):
            continue
        if total == len(output.clause):
            stopped = message
            break
        output.clause[total] = own
        total += 1
    while current < stopped:
        current += 1
        output.start[current] = total
    return stopped


@kernel
def match_messages(
    arrays: TwinArrays,
    entries: EntryArrays,
    messages: MessageArrays,
    part: tuple[Number, Number],
    output: Output,
    longest: Number,
) -> Number:
    """Match the messages of a part; return the message at which the output was full, or the end.

    ``longest`` is the largest number of tokens of a message.
    """
    arrays, entries, messages = borrow(arrays), borrow(entries), borrow(messages)
    output, table = borrow(output), arrays.table
    prepared = np.empty((CHUNK, 3), np.int64)
    headers = np.empty((CHUNK * (longest + 1), 2), np.int64)
    blocks, leaves = np.empty((QUEUE, 4), np.int64), np.empty((QUEUE, 4), np.int64)
    hits, candidates = np.empty((QUEUE, 3), np.int64), np.empty((QUEUE, 2), np.int64)
    to_sort = np.zeros(1 + MAX_LISTS_TO_SORT, np.int64)
    begin, last = np.int64(part[0]), np.int64(part[1])
    while begin < last:
        end = min(begin + CHUNK, last)
        ahead = messages.token_start[min(end + CHUNK, last)]
        for i in range(messages.token_start[end], ahead):
            prefetch(table, home_of(table, messages.token[i]))
        header_count = look_up(arrays, messages, (begin, end), headers, prepared)
        block_count = open_headers(arrays, headers, header_count, blocks)
        if block_count == TOO_SHORT:
            blocks = longer(blocks, len(blocks))
            continue
        leaf_count = open_bounds(arrays, prepared, begin, blocks, block_count, leaves)
        if leaf_count == TOO_SHORT:
            leaves, hits = longer(leaves, len(leaves)), longer(hits, len(leaves))
            continue
        count = scan_leaves(arrays, prepared, begin, leaves, leaf_count, hits, to_sort)
        count = read_entries(arrays, entries.record, prepared, begin, hits, count, candidates)
        if count == TOO_SHORT:
            candidates = longer(candidates, len(candidates))
            continue
        arrays.state[VISITED] += block_count + leaf_count
        count = compare_boxes(entries, messages.box, candidates, count)
        stopped = compare_tokens(
            entries, messages, prepared, (begin, end), candidates, count, output
        )
        if to_sort[0] > 0:
            sort_lists(arrays, entries, to_sort)
        if stopped < end:
            return stopped
        begin = end
    return begin


@kernel
def sort_lists(arrays: TwinArrays, entries: EntryArrays, to_sort: NDArray[np.int64]) -> None:
    """Sort the clauses of headers: ``to_sort`` has their number, which becomes 0, then headers."""
    for i in range(1, to_sort[0] + 1):
        sort_list(arrays, entries, to_sort[i])
    to_sort[0] = 0
