"""Match messages against a trie-pyramid.

The tokens of messages go through in chunks, a short message being one. Three are under way at a
time: one is looked up, the one before is read and sifted, what it left open of the one before that
is verified. So whatever is read was asked for a while ago, and is in the cache by then.

What is done for every message is compiled into `match_messages` itself (`inlined_kernel`): only
where Numba sees that arrays are borrowed does it count no references to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import MessageArrays
from nearcast.compiled.token_filter import clear_filter
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.trie_pyramid.arrays import TOKENLESS, TriePyramidArrays, home
from nearcast.indexes.trie_pyramid.pyramid import HALF
from nearcast.indexes.trie_pyramid.scan import open_heads, scan_leaves
from nearcast.indexes.trie_pyramid.verify import (
    ASIDE,
    SURE,
    Asked,
    Sifted,
    ask,
    finish,
    prefetch_tokens,
    sift,
)
from nearcast.indexes.trie_pyramid.walk import DONE, LEAVES, NODES, Queues, look_up, open_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray


CHUNK = 32
"""How many tokens go together."""


class Scratch(NamedTuple):
    """Room for matching; queues and what is left of them for two chunks by turns."""

    queues: tuple[Queues, Queues]
    sifted: tuple[Sifted, Sifted]
    candidate: NDArray[np.int64]
    window: NDArray[np.int16]
    asked: Asked


@inlined_kernel
def prefetch_slots(
    slot: NDArray[np.uint64], token: NDArray[np.int32], first: Number, last: Number
) -> Number:
    """Ask for the slots of tokens, whichever messages have them; return where that ended."""
    last = min(last, np.int64(len(token)))
    for i in range(first, last):
        prefetch(slot, home(slot, np.uint64(token[i])))
    return max(first, last)


@inlined_kernel
def tokens_end(messages: MessageArrays, message: Number) -> Number:
    """Return where the tokens of a message end, without `NO_TOKEN`, which is asked for anyway."""
    end = messages.token_start[message + 1]
    if end > messages.token_start[message] and messages.token[end - 1] == NO_TOKEN:
        return end - 1
    return end


@inlined_kernel
def borrow_index(index: TriePyramidArrays) -> TriePyramidArrays:
    """Return the arrays without owners."""
    return TriePyramidArrays(
        borrow(index.slot),
        borrow(index.pyramid),
        borrow(index.node),
        borrow(index.child),
        borrow(index.shape),
        borrow(index.setting),
        borrow(index.half),
        borrow(index.box),
        borrow(index.token_start),
        borrow(index.token),
    )


@inlined_kernel
def borrow_queues(queues: Queues) -> Queues:
    """Return the arrays without owners."""
    return Queues(
        borrow(queues.leaf), borrow(queues.head), borrow(queues.node), borrow(queues.counts)
    )


@inlined_kernel
def borrow_sifted(sifted: Sifted) -> Sifted:
    """Return the arrays without owners."""
    return Sifted(borrow(sifted.sure), borrow(sifted.aside), borrow(sifted.counts))


@inlined_kernel
def fits(sifted: Sifted, match: NDArray[np.int32], found: Number) -> Number:
    """Tell whether there is room for all that may match of a chunk."""
    return found + sifted.counts[SURE] + sifted.counts[ASIDE] <= len(match)


@kernel
def match_messages(
    index: TriePyramidArrays,
    messages: MessageArrays,
    first: Number,
    last: Number,
    scratch: Scratch,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match messages ``first`` to ``last``; return where the room ended, examined and visited.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start[first]`` says where to begin. Examined are the entries of all leaves that were
    compared, visited the nodes of the trie that have children.
    """
    index, asked = borrow_index(index), scratch.asked
    asked = Asked(borrow(asked.token_filter), borrow(asked.table), borrow(asked.bits))
    coming, reading = borrow_queues(scratch.queues[0]), borrow_queues(scratch.queues[1])
    sifting, sifted = borrow_sifted(scratch.sifted[0]), borrow_sifted(scratch.sifted[1])
    candidate, window = borrow(scratch.candidate), borrow(scratch.window)
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    messages = MessageArrays(borrow(messages.token_start), token, box)
    examined, visited, seen, opened = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    found, ahead = match_start[first], messages.token_start[first]
    # The message of the chunk that is looked up, of the one that is read, and of the one that is
    # verified; -1 where there is none.
    m, chunk = np.int64(first), np.int64(0)
    read, read_chunk, done = np.int64(-1), np.int64(0), np.int64(-1)
    while m < last or read >= 0 or done >= 0:
        if done >= 0:
            prefetch_tokens(index, sifted)
        if read >= 0:
            for side in range(4):
                window[side] = box[read, side] >> HALF
            open_heads(index, window, reading)
        stop = size = np.int64(0)
        if m < last:
            begin, end = messages.token_start[m], tokens_end(messages, m)
            size = end - begin + index.setting[TOKENLESS]
            stop = min(chunk + CHUNK, size)
            ahead = max(ahead, begin + stop)
            ahead = prefetch_slots(index.slot, token, ahead, begin + stop + CHUNK)
            look_up(index, token[begin:end], chunk, stop, box[m], coming)
            if coming.counts[NODES] > 0:
                open_nodes(index, token[begin:end], coming)
        count, more = np.int64(0), np.int64(0)
        if read >= 0:
            count, more = scan_leaves(index, window, reading, candidate)
        if done >= 0:
            begin, end = messages.token_start[done], tokens_end(messages, done)
            if not fits(sifted, match, found):
                clear_filter(asked.token_filter, token[begin:end])
                return done, examined, visited
            found += finish(index, asked, token[begin:end], box[done], sifted, match[found:])
            if done != read:
                match_start[done + 1] = found
                examined += seen
                visited += opened
                seen, opened = np.int64(0), np.int64(0)
        if read >= 0:
            begin, end = messages.token_start[read], tokens_end(messages, read)
            if read_chunk == 0:
                ask(token[begin:end], asked)
            sift(index, asked.token_filter, candidate, count, sifting)
            while reading.counts[DONE] < reading.counts[LEAVES]:
                if not fits(sifting, match, found):
                    clear_filter(asked.token_filter, token[begin:end])
                    return read, examined, visited
                found += finish(index, asked, token[begin:end], box[read], sifting, match[found:])
                count, next_more = scan_leaves(index, window, reading, candidate)
                more += next_more
                sift(index, asked.token_filter, candidate, count, sifting)
            seen += more
            opened += reading.counts[NODES]
            if read != m:
                clear_filter(asked.token_filter, token[begin:end])
        done = read
        read, read_chunk = (m, chunk) if m < last else (np.int64(-1), np.int64(0))
        chunk += CHUNK
        if stop == size and m < last:
            m, chunk = m + 1, np.int64(0)
        coming, reading = reading, coming
        sifting, sifted = sifted, sifting
    return last, examined, visited
