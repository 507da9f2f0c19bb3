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

CHUNK = 32
"""Messages that are staged together."""

QUEUE = 1024
"""Length of a queue at first."""

MAX_LISTS_TO_SORT = 64
_CERTAIN = SINGLE << 1
"""Of a candidate: its exact box need not be looked at."""

_GROUP = 0
"""In the place of a stride: the position is that of a group of bounds."""


@kernel
def longer(queue: NDArray[np.int64], count: Number) -> NDArray[np.int64]:
    """Return a queue with the same values and room for at least ``count``."""
    larger = np.empty((2 * count + QUEUE, queue.shape[1]), np.int64)
    larger[: len(queue)] = queue
    return larger


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
    """Prefetch the sides of a leaf, and in a small one all of it."""
    prefetch(word, position)
    if stride > 4:
        prefetch(word, position + LINE)
    if stride > 8:
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

    ``prepared`` int64[CHUNK, 3] gets the end of a message's known tokens, their signature, and the
    window.
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
        prepared[own, 0], prepared[own, 1] = end, signature
        prepared[own, 2] = window_of(arrays.state, messages.box[message])
    return count


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
    output = borrow(output)
    header, pool, state = arrays.header, arrays.clauses, arrays.state
    word, half, leaf_bits = pool.word, pool.half, arrays.option[LEAF_BITS]
    record, table = entries.record, arrays.table
    found_start, found = output.start, output.clause
    prepared = np.empty((CHUNK, 3), np.int64)
    headers = np.empty((CHUNK * (longest + 1), 2), np.int64)
    blocks, leaves = np.empty((QUEUE, 4), np.int64), np.empty((QUEUE, 4), np.int64)
    hits, candidates = np.empty((QUEUE, 4), np.int64), np.empty((QUEUE, 2), np.int64)
    to_sort, sorts = np.empty(MAX_LISTS_TO_SORT, np.int64), 0
    begin, total = np.int64(part[0]), found_start[part[0]]
    while begin < part[1]:
        end = min(begin + CHUNK, np.int64(part[1]))
        ahead = messages.token_start[min(end + CHUNK, np.int64(part[1]))]
        for i in range(messages.token_start[end], ahead):
            prefetch(table, home_of(table, messages.token[i]))
        count = look_up(arrays, messages, (begin, end), headers, prepared)

        # Headers: queue (message, position, stride, header).
        block_count = np.int64(0)
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
            if block_count + groups > len(blocks):
                blocks = longer(blocks, block_count + groups)
            for group in range(groups):
                position = start + group * GROUP_WORDS
                if stride == _GROUP:
                    prefetch_leaf(word, position, LANES)
                blocks[block_count, 0], blocks[block_count, 1] = message, position
                blocks[block_count, 2], blocks[block_count, 3] = stride, number
                block_count += 1

        # Bounds: queue the same for leaves only.
        leaf_count = np.int64(0)
        for i in range(block_count):
            message, position = blocks[i, 0], blocks[i, 1]
            stride, number = blocks[i, 2], blocks[i, 3]
            if leaf_count + LANES > len(leaves):
                leaves = longer(leaves, leaf_count + LANES)
            if stride != _GROUP:
                for j in range(4):
                    leaves[leaf_count, j] = blocks[i, j]
                leaf_count += 1
                continue
            window = prepared[message - begin, 2]
            mask = touching_boxes(half, 2 * position, LANES, window) & np.uint64(0xFFFFFFFF)
            start, groups = (
                np.int64(header[number, CLAUSES]),
                groups_of(np.int64(header[number, CLASS])),
            )
            first = (position - start) // GROUP_WORDS * LANES
            while mask != np.uint64(0):
                leaf = leaf_at(start, groups, first + lowest_bit(mask))
                mask &= mask - np.uint64(1)
                prefetch_leaf(word, leaf, LANES)
                leaves[leaf_count, 0], leaves[leaf_count, 1] = message, leaf
                leaves[leaf_count, 2], leaves[leaf_count, 3] = _GROUP, number
                leaf_count += 1
        state[VISITED] += block_count + leaf_count

        # Leaves: queue (message, position of the first pair, bits of lanes).
        hit_count = np.int64(0)
        for i in range(leaf_count):
            message, position = leaves[i, 0], leaves[i, 1]
            stride, number = leaves[i, 2], leaves[i, 3]
            window = prepared[message - begin, 2]
            in_list = stride == _GROUP
            if in_list:
                stride = np.int64(LANES)
            if stride <= 8:
                mask = touching_boxes_8(half, 2 * position, stride, window)
                if stride == 4:
                    mask &= np.uint64(0x0000000F0000000F)
            else:
                mask = touching_boxes(half, 2 * position, stride, window)
                if stride == 16:
                    mask &= np.uint64(0x0000FFFF0000FFFF)
            if mask & np.uint64(0xFFFFFFFF) == np.uint64(0):
                if in_list:
                    header[number, DEBT] += 1
                    over = np.int64(header[number, DEBT]) - arrays.option[REGRET] * header[number, SIZE]
                    if over == 1 and sorts < MAX_LISTS_TO_SORT:
                        to_sort[sorts] = number
                        sorts += 1
                    elif over == 1:
                        header[number, DEBT] -= 1
                continue
            if hit_count == len(hits):
                hits = longer(hits, hit_count)
            pairs = position + 2 * stride
            if stride > 8:
                lanes = mask & np.uint64(0xFFFFFFFF)
                line = np.int64(NOTHING)
                while lanes != np.uint64(0):
                    lane = lowest_bit(lanes)
                    lanes &= lanes - np.uint64(1)
                    if lane >> 3 != line:
                        line = lane >> 3
                        prefetch(word, pairs + line * LINE)
            hits[hit_count, 0], hits[hit_count, 1] = message, pairs
            hits[hit_count, 2] = np.int64(mask)
            hit_count += 1

        # Hits: queue (message, entry and flags) of those with a fitting signature.
        candidate_count = np.int64(0)
        for i in range(hit_count):
            message, pairs, mask = hits[i, 0], hits[i, 1], np.uint64(hits[i, 2])
            missing = ~np.int32(prepared[message - begin, 1])
            if candidate_count + LANES > len(candidates):
                candidates = longer(candidates, candidate_count + LANES)
            certain = mask >> np.uint64(32)
            lanes = mask & np.uint64(0xFFFFFFFF)
            while lanes != np.uint64(0):
                lane = lowest_bit(lanes)
                lanes &= lanes - np.uint64(1)
                state[EXAMINED] += 1
                if word[pairs + 2 * lane + 1] & missing:
                    continue
                entry = np.int64(word[pairs + 2 * lane])
                if (certain >> np.uint64(lane)) & np.uint64(1):
                    entry |= _CERTAIN
                if entry < (SINGLE | _CERTAIN):
                    prefetch(record, entry & ENTRY_MASK)
                candidates[candidate_count, 0], candidates[candidate_count, 1] = message, entry
                candidate_count += 1

        # Exact boxes; what is left is queued in the same place.
        left = np.int64(0)
        for i in range(candidate_count):
            message, entry = candidates[i, 0], candidates[i, 1]
            own = entry & ENTRY_MASK
            if not entry & _CERTAIN:
                box = messages.box[message]
                if (
                    record[own, 0] > box[2]
                    or record[own, 1] > box[3]
                    or record[own, 2] < box[0]
                    or record[own, 3] < box[1]
                ):
                    continue
            if not entry & SINGLE:
                prefetch(entries.pool, record[own, FIRST])
            candidates[left, 0], candidates[left, 1] = message, entry
            left += 1

        # Tokens.
        current = begin
        for i in range(left):
            message, entry = candidates[i, 0], candidates[i, 1]
            while current < message:
                current += 1
                found_start[current] = total
            own = entry & ENTRY_MASK
            if not entry & SINGLE and not has_all(
                entries.pool,
                np.int64(record[own, FIRST]),
                messages.token,
                messages.token_start[message],
                prepared[message - begin, 0],
            ):
                continue
            if total == len(found):
                sort_lists(arrays, entries, to_sort[:sorts])
                return message
            found[total] = own
            total += 1
        while current < end:
            current += 1
            found_start[current] = total
        if sorts > 0:
            sort_lists(arrays, entries, to_sort[:sorts])
            sorts = 0
        begin = end
    return begin


@kernel
def sort_lists(arrays: TwinArrays, entries: EntryArrays, numbers: NDArray[np.int64]) -> None:
    """Sort the clauses of headers."""
    for number in numbers:
        sort_list(arrays, entries, number)
