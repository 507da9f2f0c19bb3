"""Match messages against a trie-pyramid.

The tokens of messages are processed in chunks of 32; a short message is one chunk. Three chunks are
in flight: while one is looked up, the leaves of the one before are scanned, and the undecided
candidates of the one before that are verified. So memory is prefetched well before it is
read. Prefetches go into L2: the machine allows twice as many of them at a time as into L1, which
made matching against 10 million tweets a third faster. Five chunks in flight were not faster.

Everything that runs for every message is compiled into `match_messages` itself (`inlined_kernel`),
with borrowed arrays: Numba counts references to every array that a function takes or picks from a
tuple, and only in one function does it see that borrowed arrays need no counting. With the
same loops in separate functions a short message takes 50 % longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.messages import MessageArrays, Output, contains, known_tokens
from nearcast.compiled.pyramids import LEAVES, ROUNDING, home, open_inner_blocks
from nearcast.compiled.token_filter import LOW_BITS, clear_filter, set_filter
from nearcast.compiled.token_table import MIXER, NO_TOKEN
from nearcast.indexes.trie_pyramid.layout import TOKENLESS, TriePyramidArrays
from nearcast.indexes.trie_pyramid.search import (
    CHECK_BOX,
    NODES,
    SCANNED,
    Queues,
    look_up,
    open_nodes,
    scan_leaves,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 32
"""Tokens that are processed together."""

MAX_SEARCHED_TOKENS = 32
"""Longer messages get a hash table of their tokens; for shorter ones filling it costs more."""

CERTAIN, UNDECIDED = 0, 1
"""The fields of ``Candidates.counts``."""

_EMPTY = np.int32(-1)
_ONE = np.uint64(1)
_CLAUSE = np.uint64((1 << 31) - 1)

_CHECK_BOX = np.uint64(1 << 31)
"""`CHECK_BOX` in the word of an undecided entry, above the bits of its clause."""

_CHECK_BOX_SHIFT = np.int64(31)


class MessageTokens(NamedTuple):
    """The tokens of one message, prepared for lookups.

    ``token_filter`` uint64[512] has a bit for each. ``table`` int32[any] is a hash table of
    ``2**table_bits[0]`` slots, if ``table_bits`` int64[1] is not 0.
    """

    token_filter: NDArray[np.uint64]
    table: NDArray[np.int32]
    table_bits: NDArray[np.int64]


class Candidates(NamedTuple):
    """The candidates of a chunk that are left after the token filter.

    ``certain`` int32[MAX_CANDIDATES]: clauses that match. ``undecided`` uint64[MAX_CANDIDATES]: the
    words of entries that may match. ``counts`` int64[2]: their numbers.
    """

    certain: NDArray[np.int32]
    undecided: NDArray[np.uint64]
    counts: NDArray[np.int64]


class Scratch(NamedTuple):
    """Scratch space of one thread; two chunks in flight take turns with queues and candidates."""

    queues: tuple[Queues, Queues]
    candidates: tuple[Candidates, Candidates]
    candidate: NDArray[np.int64]
    window: NDArray[np.int16]
    tokens: MessageTokens


# --- the tokens of a message ---------------------------------------------------------------------


@kernel
def table_bits(tokens: Number) -> Number:
    """Return the base-2 logarithm of the slots of a table that is at most half full."""
    bits = np.int64(4)
    while (np.int64(1) << bits) < 2 * tokens:
        bits += 1
    return bits


@inlined_kernel
def find_in_table(table: NDArray[np.int32], bits: Number, token: Number) -> Number:
    """Return the slot of a token, or the empty slot where it belongs."""
    mask = (np.int64(1) << bits) - 1
    at = np.int64((np.uint64(token) * MIXER) >> np.uint64(64 - bits))
    while table[at] != token and table[at] != _EMPTY:
        at = (at + 1) & mask
    return at


@inlined_kernel
def fill_table(table: NDArray[np.int32], tokens: NDArray[np.int32]) -> Number:
    """Fill the table with the tokens of a message; return its `table_bits`, 0 for no table."""
    if len(tokens) <= MAX_SEARCHED_TOKENS:
        return np.int64(0)
    bits = table_bits(np.int64(len(tokens)))
    table[: np.int64(1) << bits] = _EMPTY
    for i in range(len(tokens)):
        token = np.int64(tokens[i])
        table[find_in_table(table, bits, token)] = token
    return bits


@inlined_kernel
def occurs(
    table: NDArray[np.int32], bits: Number, tokens: NDArray[np.int32], token: Number
) -> Number:
    """Tell whether a message has a token; its tokens ascend and may be in a table."""
    if bits == 0:
        return contains(tokens, token)
    return table[find_in_table(table, bits, token)] == token


@inlined_kernel
def prepare_tokens(tokens: NDArray[np.int32], prepared: MessageTokens) -> None:
    """Fill the table and the filter with the tokens of a message."""
    prepared.table_bits[0] = fill_table(prepared.table, tokens)
    set_filter(prepared.token_filter, tokens)


# --- candidates ----------------------------------------------------------------------------------


@inlined_kernel
def classify(
    index: TriePyramidArrays,
    token_filter: NDArray[np.uint64],
    candidate: NDArray[np.int64],
    count: Number,
    candidates: Candidates,
) -> None:
    """Sort candidates into certain and undecided ones, and drop those whose next token is absent.

    Undecided are clauses with tokens left to look up, and boxes that only the exact coordinates
    decide (one candidate of a point in a thousand on tweets, one in five on places). The loop has
    no branches that depend on tokens: half of them would be mispredicted.
    """
    pyramid, certain, undecided = index.pyramid, candidates.certain, candidates.undecided
    certains, undecideds = np.int64(0), np.int64(0)
    for i in range(count):
        check_box = np.uint64(candidate[i] >> _CHECK_BOX_SHIFT) & _CHECK_BOX
        word = pyramid[candidate[i] & ~CHECK_BOX]
        token = np.int64(word) >> np.int64(32)
        bit = np.uint64(token ^ (token >> np.int64(63))) & LOW_BITS
        may_occur = (token_filter[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE
        is_certain = np.int64(token == NO_TOKEN) & np.int64(check_box == np.uint64(0))
        certain[certains] = np.int32(word & _CLAUSE)
        certains += is_certain
        undecided[undecideds] = word | check_box
        undecideds += np.int64(may_occur) & ~is_certain
    for i in range(undecideds):
        clause = np.int64(undecided[i] & _CLAUSE)
        if undecided[i] & _CHECK_BOX:
            prefetch(index.box, clause)
        if np.int64(undecided[i]) < 0:
            prefetch(index.token_start, clause)
    candidates.counts[CERTAIN], candidates.counts[UNDECIDED] = certains, undecideds


@inlined_kernel
def prefetch_tokens(index: TriePyramidArrays, candidates: Candidates) -> None:
    """Prefetch the tokens of undecided clauses."""
    for i in range(candidates.counts[UNDECIDED]):
        if np.int64(candidates.undecided[i]) < 0:
            prefetch(index.token, index.token_start[candidates.undecided[i] & _CLAUSE])


@inlined_kernel
def box_overlaps(boxes: NDArray[np.int32], clause: Number, box: NDArray[np.int32]) -> Number:
    """Tell whether the box of a clause overlaps that of the message."""
    overlaps = (boxes[clause, 0] <= box[2]) & (boxes[clause, 1] <= box[3])
    return overlaps & (boxes[clause, 2] >= box[0]) & (boxes[clause, 3] >= box[1])


@inlined_kernel
def has_tokens(
    index: TriePyramidArrays,
    table: NDArray[np.int32],
    bits: Number,
    tokens: NDArray[np.int32],
    clause: Number,
) -> Number:
    """Tell whether all tokens of a clause occur."""
    for i in range(index.token_start[clause], index.token_start[clause + 1]):
        if not occurs(table, bits, tokens, np.int64(index.token[i])):
            return False
    return True


@inlined_kernel
def write_matches(
    index: TriePyramidArrays,
    prepared: MessageTokens,
    tokens: NDArray[np.int32],
    box: NDArray[np.int32],
    candidates: Candidates,
    match: NDArray[np.int32],
) -> Number:
    """Write the matches among the candidates, all of which must fit; return their number."""
    table, bits = prepared.table, prepared.table_bits[0]
    found, undecided = candidates.counts[CERTAIN], candidates.undecided
    for i in range(found):
        match[i] = candidates.certain[i]
    for i in range(candidates.counts[UNDECIDED]):
        clause, token = np.int64(undecided[i] & _CLAUSE), np.int64(undecided[i]) >> np.int64(32)
        if token < 0:
            if not has_tokens(index, table, bits, tokens, clause):
                continue
        elif token != NO_TOKEN and not occurs(table, bits, tokens, token):
            continue
        if undecided[i] & _CHECK_BOX and not box_overlaps(index.box, clause, box):
            continue
        match[found] = clause
        found += 1
    return found


@inlined_kernel
def fits(candidates: Candidates, match: NDArray[np.int32], found: Number) -> Number:
    """Tell whether the output has space for all candidates."""
    return found + candidates.counts[CERTAIN] + candidates.counts[UNDECIDED] <= len(match)


# --- messages ------------------------------------------------------------------------------------


@inlined_kernel
def prefetch_slots(
    slot: NDArray[np.uint64], token: NDArray[np.int32], first: Number, last: Number
) -> Number:
    """Prefetch the slots of tokens, of whichever messages; return where that ended."""
    last = min(last, np.int64(len(token)))
    for i in range(first, last):
        prefetch(slot, home(slot, np.uint64(token[i])))
    return max(first, last)


@inlined_kernel
def token_range(messages: MessageArrays, message: Number) -> tuple[Number, Number]:
    """Return where the tokens of a message begin and end, without `NO_TOKEN`."""
    begin, end = messages.token_start[message], messages.token_start[message + 1]
    return begin, begin + known_tokens(messages.token[begin:end])


@kernel
def match_messages(
    index: TriePyramidArrays,
    messages: MessageArrays,
    part: tuple[Number, Number],
    scratch: Scratch,
    output: Output,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part.

    Return the message at which the output was full (or the end), examined and visited. Examined are
    the entries of all leaves that were compared, visited the nodes.
    """
    first, last = part
    index, messages, scratch = borrow(index), borrow(messages), borrow(scratch)
    token, box, (match_start, match) = messages.token, messages.box, borrow(output)
    tokens, candidate, window = scratch.tokens, scratch.candidate, scratch.window
    lookup_queues, scan_queues = scratch.queues
    scan_candidates, verify_candidates = scratch.candidates
    examined, visited, compared, opened = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    found, prefetched = match_start[first], messages.token_start[first]
    # The messages whose chunks are looked up, scanned and verified; -1 for none.
    lookup, lookup_chunk = np.int64(first), np.int64(0)
    scan, scan_chunk, verify = np.int64(-1), np.int64(0), np.int64(-1)
    while lookup < last or scan >= 0 or verify >= 0:
        if verify >= 0:
            prefetch_tokens(index, verify_candidates)
        if scan >= 0:
            for side in range(4):
                window[side] = box[scan, side] >> ROUNDING
            open_inner_blocks(index, window, scan_queues)
        stop = size = np.int64(0)
        if lookup < last:
            begin, end = token_range(messages, lookup)
            size = end - begin + index.header[TOKENLESS]
            stop = min(lookup_chunk + CHUNK, size)
            prefetched = max(prefetched, begin + stop)
            prefetched = prefetch_slots(index.slot, token, prefetched, begin + stop + CHUNK)
            look_up(index, token[begin:end], lookup_chunk, stop, box[lookup], lookup_queues)
            if lookup_queues.counts[NODES] > 0:
                open_nodes(index, token[begin:end], lookup_queues)
        count, more = np.int64(0), np.int64(0)
        if scan >= 0:
            count, more = scan_leaves(index, window, scan_queues, candidate)
        if verify >= 0:
            begin, end = token_range(messages, verify)
            if not fits(verify_candidates, match, found):
                clear_filter(tokens.token_filter, token[begin:end])
                return verify, examined, visited
            found += write_matches(
                index, tokens, token[begin:end], box[verify], verify_candidates, match[found:]
            )
            if verify != scan:
                match_start[verify + 1] = found
                examined += compared
                visited += opened
                compared, opened = np.int64(0), np.int64(0)
        if scan >= 0:
            begin, end = token_range(messages, scan)
            if scan_chunk == 0:
                prepare_tokens(token[begin:end], tokens)
            classify(index, tokens.token_filter, candidate, count, scan_candidates)
            while scan_queues.counts[SCANNED] < scan_queues.counts[LEAVES]:
                if not fits(scan_candidates, match, found):
                    clear_filter(tokens.token_filter, token[begin:end])
                    return scan, examined, visited
                found += write_matches(
                    index, tokens, token[begin:end], box[scan], scan_candidates, match[found:]
                )
                count, next_more = scan_leaves(index, window, scan_queues, candidate)
                more += next_more
                classify(index, tokens.token_filter, candidate, count, scan_candidates)
            compared += more
            opened += scan_queues.counts[NODES]
            if scan != lookup:
                clear_filter(tokens.token_filter, token[begin:end])
        verify = scan
        scan, scan_chunk = (lookup, lookup_chunk) if lookup < last else (np.int64(-1), np.int64(0))
        lookup_chunk += CHUNK
        if stop == size and lookup < last:
            lookup, lookup_chunk = lookup + 1, np.int64(0)
        lookup_queues, scan_queues = scan_queues, lookup_queues
        scan_candidates, verify_candidates = verify_candidates, scan_candidates
    return last, examined, visited
