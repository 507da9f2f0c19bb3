"""Match messages against a trie-pyramid: find the pyramids of a chunk of tokens, read those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels.compile import Number, borrow, kernel, prefetch
from nearcast.kernels.messages import MessageArrays
from nearcast.kernels.trie_pyramid import TOKENLESS, TriePyramidArrays, home
from nearcast.kernels.trie_pyramid_scan import Room, scan_pyramids
from nearcast.kernels.trie_pyramid_walk import CHUNK, Asked, Queues, ask, collect_pyramids

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Scratch(NamedTuple):
    """Room for two messages, the one that is read and the one that is looked up.

    As in `Asked` and `Queues`, with one more axis for the two; ``stack`` int64[...] of nodes.
    """

    box: NDArray[np.int32]
    outer: NDArray[np.int16]
    inner: NDArray[np.int16]
    table: NDArray[np.int32]
    word: NDArray[np.uint64]
    bits: NDArray[np.int64]
    item: NDArray[np.uint64]
    count: NDArray[np.int64]
    stack: NDArray[np.int64]


@kernel
def asked_of(scratch: Scratch, turn: Number) -> Asked:
    """Return the room for one of the two messages."""
    return Asked(
        scratch.box[turn],
        scratch.outer[turn],
        scratch.inner[turn],
        scratch.table[turn],
        scratch.word[turn],
        scratch.bits[turn],
    )


@kernel
def queues_of(scratch: Scratch, turn: Number) -> Queues:
    """Return the queues of one of the two chunks."""
    return Queues(scratch.item[turn], scratch.count[turn])


@kernel
def prefetch_slots(
    index: TriePyramidArrays, token: NDArray[np.int32], first: Number, last: Number
) -> Number:
    """Ask for the slots of tokens, whichever messages have them; return where that ended."""
    last = min(last, np.int64(len(token)))
    for i in range(first, last):
        prefetch(index.slot, home(index.slot, np.uint64(token[i])))
    return max(first, last)


@kernel
def match_messages(
    index: TriePyramidArrays,
    messages: MessageArrays,
    first: Number,
    last: Number,
    scratch: Scratch,
    room: Room,
    match_start: NDArray[np.int64],
    match: NDArray[np.int32],
) -> tuple[Number, Number, Number]:
    """Match messages ``first`` to ``last``; return where the room ended, examined and visited.

    The clauses of message ``m`` stand in ``match[match_start[m]:match_start[m + 1]]``;
    ``match_start[first]`` says where to begin.
    """
    index = TriePyramidArrays(
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
    scratch = Scratch(
        borrow(scratch.box),
        borrow(scratch.outer),
        borrow(scratch.inner),
        borrow(scratch.table),
        borrow(scratch.word),
        borrow(scratch.bits),
        borrow(scratch.item),
        borrow(scratch.count),
        borrow(scratch.stack),
    )
    room = Room(borrow(room.candidate), borrow(room.aside))
    token, box, match = borrow(messages.token), borrow(messages.box), borrow(match)
    examined, visited, seen, opened = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    found, reading, turn = match_start[first], np.int64(-1), np.int64(0)
    ahead = messages.token_start[first]
    for m in range(first, last + 1):
        begin = end = chunk = np.int64(0)
        if m < last:
            begin, end = messages.token_start[m], messages.token_start[m + 1]
            ask(index, token[begin:end], box[m], asked_of(scratch, m & 1))
        while True:
            if m < last:
                stop = min(chunk + CHUNK, end - begin + index.setting[TOKENLESS])
                ahead = prefetch_slots(index, token, max(ahead, begin + stop), begin + stop + CHUNK)
                opened += collect_pyramids(
                    index,
                    token[begin:end],
                    chunk,
                    stop,
                    asked_of(scratch, m & 1),
                    queues_of(scratch, turn),
                    scratch.stack,
                )
            if reading >= 0:
                more, read = scan_pyramids(
                    index,
                    asked_of(scratch, reading & 1),
                    queues_of(scratch, 1 - turn),
                    room,
                    match[found:],
                )
                if more < 0:
                    return reading, examined, visited
                found += more
                seen += read
                if reading < m:
                    match_start[m] = found
                    examined += seen
                    visited += opened
                    seen = opened = np.int64(0)
            reading = np.int64(m)
            turn = 1 - turn
            chunk += CHUNK
            if chunk >= end - begin + index.setting[TOKENLESS]:
                break
    return last, examined, visited
