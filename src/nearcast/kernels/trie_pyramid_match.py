"""Match messages against a trie-pyramid.

The tokens of messages go through in chunks, a short message being one: while the pyramids of a
chunk are read, those of the next are on their way into the cache, and so are the slots of the
tokens after that.

What is done for every message is compiled into `match_messages` itself (`inlined_kernel`): only
where Numba sees that arrays are borrowed does it count no references to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.kernels.messages import MessageArrays
from nearcast.kernels.token_filter import clear_filter
from nearcast.kernels.token_table import EVERY
from nearcast.kernels.trie_pyramid import TOKENLESS, TriePyramidArrays, home
from nearcast.kernels.trie_pyramid_scan import Asked, Room, ask, scan_pyramids
from nearcast.kernels.trie_pyramid_walk import NODES, Queues, look_up, open_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray


CHUNK = 32
"""How many tokens go together."""


class Scratch(NamedTuple):
    """Room for matching: queues of the chunk that is looked up and of the one that is read."""

    even: Queues
    odd: Queues
    asked: Asked
    room: Room


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
    """Return where the tokens of a message end, without `EVERY`, which is asked for anyway."""
    end = messages.token_start[message + 1]
    if end > messages.token_start[message] and messages.token[end - 1] == EVERY:
        return end - 1
    return end


@inlined_kernel
def borrow_index(index: TriePyramidArrays) -> TriePyramidArrays:
    """Return the arrays without owners."""
    return TriePyramidArrays(
        borrow(index.slot),
        borrow(index.pool),
        borrow(index.node),
        borrow(index.child),
        borrow(index.shape),
        borrow(index.setting),
        borrow(index.half),
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
def borrow_asked(asked: Asked) -> Asked:
    """Return the arrays without owners."""
    return Asked(
        borrow(asked.box),
        borrow(asked.outer),
        borrow(asked.inner),
        borrow(asked.token_filter),
        borrow(asked.table),
        borrow(asked.bits),
    )


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
    index, asked = borrow_index(index), borrow_asked(scratch.asked)
    coming, reading = borrow_queues(scratch.even), borrow_queues(scratch.odd)
    room = Room(borrow(scratch.room.candidate), borrow(scratch.room.aside))
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    messages = MessageArrays(borrow(messages.token_start), token, box)
    examined, visited, seen, opened = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    found, ahead = match_start[first], messages.token_start[first]
    # A chunk of message `m` is looked up, then the one before, of message `before`, is read.
    m, chunk, before, before_chunk = np.int64(first), np.int64(0), np.int64(-1), np.int64(0)
    while True:
        size = np.int64(0)
        if m < last:
            begin, end = messages.token_start[m], tokens_end(messages, m)
            size = end - begin + index.setting[TOKENLESS]
            stop = min(chunk + CHUNK, size)
            ahead = max(ahead, begin + stop)
            ahead = prefetch_slots(index.slot, token, ahead, begin + stop + CHUNK)
            look_up(index, token[begin:end], chunk, stop, box[m], coming)
            if coming.counts[NODES] > 0:
                open_nodes(index, token[begin:end], coming)
        if before >= 0:
            begin, end = messages.token_start[before], tokens_end(messages, before)
            if before_chunk == 0:
                ask(token[begin:end], box[before], asked)
            more, entries = scan_pyramids(
                index, asked, token[begin:end], reading, room, match[found:]
            )
            seen += entries
            opened += reading.counts[NODES]
            if more < 0 or before < m:
                clear_filter(asked.token_filter, token[begin:end])
            if more < 0:
                return before, examined, visited
            found += more
            if before < m:
                match_start[m] = found
                examined += seen
                visited += opened
                seen, opened = np.int64(0), np.int64(0)
        if m == last:
            return last, examined, visited
        before, before_chunk = m, chunk
        chunk += CHUNK
        if chunk >= size:
            m, chunk = m + 1, np.int64(0)
        coming, reading = reading, coming
