"""Match messages against a ranked-pyramid.

For each message: its tokens go into a table; sole entries are written; entries without boxes and
entries of leaves whose boxes touch the message are sifted into candidates; the records of
candidates decide which are accepted, and what they share; accepted ones are scored. While a
message is matched, the lists of the next one are looked up and prefetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import CENTIMETERS
from nearcast.compiled.distances import METERS_PER_UNIT
from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.pyramid_build import align
from nearcast.compiled.pyramids import (
    BLOCK,
    BLOCK_SIZE,
    CELLS,
    GRID_LEVEL,
    INNER,
    LEAF_WORDS,
    LEAVES,
    ROUNDING,
    TARGET,
    cell_mask,
    find_slot,
    home,
    lane_mask,
    open_inner_blocks,
    pack_pyramid,
    position_of,
    prefetch_block,
    size_of,
)
from nearcast.compiled.scoring import (
    TOLERANCE,
    RankedColumns,
    RankedMessages,
    ScoredOutput,
    ScoringCodes,
    combined,
    share,
    space_score,
    text_score,
)
from nearcast.compiled.simd_boxes import touching_boxes
from nearcast.compiled.token_table import BITS32, LOW32, NO_TOKEN
from nearcast.indexes.ranked_pyramid.layout import (
    BY_AREA,
    BY_WEIGHT,
    COUNTS,
    DISTANCE,
    EVERYWHERE,
    FIRST_HASH,
    FLAGS_SHIFT,
    HAS_HEAD,
    HASH_MASK,
    HASHES,
    HEAD_CELLS,
    HEAD_WORDS,
    MARK,
    MAX_TOKENS,
    NO_TOKEN_BIT,
    POSITION_SHIFT,
    RECORD_BITS,
    ROW,
    SECOND_HASH,
    SHARE,
    SIZES,
    SPECIAL_FLAG,
    THRESHOLD,
    TOKENS,
    WEIGHT,
    RankedPyramidArrays,
    area_code,
    sift_mode,
    weight_code,
)
from nearcast.indexes.ranked_pyramid.score import (
    CANDIDATES,
    Pending,
    score_space,
    score_with_space,
    score_without_space,
)
from nearcast.indexes.ranked_pyramid.tokens import (
    MULTIPLIER,
    PROBES,
    SHIFT,
    TokenTable,
    Weighing,
    clear_table,
    fill_table,
    find_token,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOUCHED, SCANNED = 0, 1
"""Fields of ``Scratch.counts``: records marked as seen, and leaves scanned."""

RECORDS_AHEAD = 24
"""Records are prefetched this many candidates ahead."""

USUAL_TOKENS = 5
"""Tokens of a record that are looked up in any case; the others only where there are more."""

_UNITS_PER_CM = (1.0 + 1e-9) / (CENTIMETERS * METERS_PER_UNIT)
_ZERO, _ONE, _SIX = np.uint64(0), np.uint64(1), np.uint64(6)
_SEVEN, _FIFTEEN, _SIXTY_THREE = np.uint64(7), np.uint64(15), np.uint64(63)


class Matcher(NamedTuple):
    """All that stays the same from message to message."""

    codes: ScoringCodes
    arrays: RankedPyramidArrays
    weighing: Weighing


class Queues(NamedTuple):
    """Leaves and pyramids with inner blocks that are to be read."""

    leaf: NDArray[np.uint64]
    inner: NDArray[np.uint64]
    counts: NDArray[np.int64]


class Scratch(NamedTuple):
    """Scratch space of one thread.

    - ``targets``: two queues of lists, of this message and of the next one.
    - ``loose`` int64[lists + 1, 2]: position and end of entries without boxes; ``pyramids``
      uint64[lists]: those of all lists.
    - ``candidate`` uint64[CANDIDATES + 1]: words of entries. ``position`` uint64[CANDIDATES]: where
      the words of entries are whose boxes touch the message. ``special`` int64[CANDIDATES]: records
      of candidates that do not fit a record.
    - ``windows``: the rounded boxes of the one or two pieces of a message.
    - ``seen`` uint64[records / 64 + 1]: a bit for each accepted record of a message that may find
      one twice; ``touched`` int32[records]: which those are.
    - ``counts`` int64[2]: see `TOUCHED`.
    """

    targets: tuple[NDArray[np.uint64], NDArray[np.uint64]]
    loose: NDArray[np.int64]
    pyramids: NDArray[np.uint64]
    queues: Queues
    tokens: TokenTable
    candidate: NDArray[np.uint64]
    position: NDArray[np.uint64]
    special: NDArray[np.int64]
    pending: Pending
    windows: tuple[NDArray[np.int16], NDArray[np.int16]]
    seen: NDArray[np.uint64]
    touched: NDArray[np.int32]
    counts: NDArray[np.int64]


# --- lists ---------------------------------------------------------------------------------------


@inlined_kernel
def message_cells(
    index: RankedPyramidArrays, messages: RankedMessages, message: Number
) -> tuple[Number, Number]:
    """Return the cell mask of all pieces of a message."""
    box, at = messages.box, messages.piece_start[message]
    level = index.header[GRID_LEVEL]
    low, high = cell_mask(box[at, 0], box[at, 1], box[at, 2], box[at, 3], level)
    if messages.piece_start[message + 1] - at > 1:
        more = cell_mask(box[at + 1, 0], box[at + 1, 1], box[at + 1, 2], box[at + 1, 3], level)
        low |= more[0]
        high |= more[1]
    return low, high


@inlined_kernel
def look_up(
    index: RankedPyramidArrays,
    messages: RankedMessages,
    message: Number,
    targets: NDArray[np.uint64],
) -> Number:
    """Write the lists of a message's tokens that have a cell in common with it; return how many."""
    slot, pyramid, token = index.slot, index.pyramid, messages.token
    low, high = message_cells(index, messages, message)
    begin, end = messages.token_start[message], messages.token_start[message + 1]
    end = begin + known_tokens(token[begin:end])
    count = np.int64(0)
    for i in range(begin, end + index.header[EVERYWHERE]):
        key = np.uint64(token[i]) if i < end else np.uint64(NO_TOKEN)
        at = find_slot(slot, key)
        target = slot[at, TARGET]
        cells = (slot[at, CELLS] & low) | (slot[at, CELLS + 1] & high)
        if cells == np.uint64(0):
            continue
        targets[count] = target
        count += 1
        prefetch_block(pyramid, position_of(target))
    return count


@inlined_kernel
def prefetch_slots(
    index: RankedPyramidArrays, weighing: Weighing, messages: RankedMessages, message: Number
) -> None:
    """Prefetch the slots and the weights of a message's tokens."""
    slot, weight, token = index.slot, weighing.weight, messages.token
    for i in range(messages.token_start[message], messages.token_start[message + 1]):
        prefetch(slot, home(slot, np.uint64(token[i])))
        prefetch(weight, token[i])


@inlined_kernel
def open_lists(
    index: RankedPyramidArrays,
    cells: tuple[Number, Number],
    scratch: Scratch,
    targets: NDArray[np.uint64],
    lists: Number,
) -> tuple[Number, Number, Number]:
    """Note what lists have: sole entries, entries without boxes, and pyramids.

    Return the number of heads, of pyramids and of sole entries. Heads are the first words of
    ``targets`` afterwards.
    """
    pyramid, loose, pyramids = index.pyramid, scratch.loose, scratch.pyramids
    block = index.header[BLOCK_SIZE]
    heads, found, soles = np.int64(0), np.int64(0), np.int64(0)
    for i in range(lists):
        target = targets[i]
        if (target & HAS_HEAD) == np.uint64(0):
            pyramids[found] = target
            found += 1
            continue
        head = position_of(target)
        counts, sizes = pyramid[head + COUNTS], pyramid[head + SIZES]
        targets[heads] = target
        sole, without = np.int64(counts & LOW32), np.int64(counts >> BITS32)
        soles += sole
        position = head + HEAD_WORDS + LEAF_WORDS * sole
        loose[heads, 0], loose[heads, 1] = position, position + without
        heads += 1
        size = np.int64(sizes & LOW32)
        common = (pyramid[head + HEAD_CELLS] & cells[0]) | (
            pyramid[head + HEAD_CELLS + 1] & cells[1]
        )
        if size > 0 and common != np.uint64(0):
            position = align(position + without, size, block)
            prefetch_block(pyramid, position)
            pyramids[found] = pack_pyramid(position, size)
            found += 1
    return heads, found, soles


@inlined_kernel
def queue_pyramids(index: RankedPyramidArrays, scratch: Scratch, pyramids: Number) -> None:
    """Queue pyramids: as leaves, or as pyramids with inner blocks."""
    leaf, inner, block = scratch.queues.leaf, scratch.queues.inner, index.header[BLOCK_SIZE]
    leaves, inners = np.int64(0), np.int64(0)
    for i in range(pyramids):
        target = scratch.pyramids[i]
        leaf[leaves] = target
        inner[inners] = target
        leaves += np.int64(size_of(target) <= block)
        inners += np.int64(size_of(target) > block)
    scratch.queues.counts[LEAVES], scratch.queues.counts[INNER] = leaves, inners
    scratch.counts[SCANNED] = 0


# --- sole entries --------------------------------------------------------------------------------


@kernel
def score_soles(
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    pending: Pending,
    count: Number,
    score: NDArray[np.float64],
) -> None:
    """Write the scores of sole entries that may be near the message."""
    score_space(codes, messages, message, pending, count)
    score_with_space(codes.similarity, 0.0, pending, count)
    for i in range(count):
        score[pending.target[i]] = pending.score[i]


@inlined_kernel
def write_soles(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    head: Number,
    scratch: Scratch,
    near: Number,
    output: ScoredOutput,
    total: Number,
) -> Number:
    """Write sole entries of one list, all of which match, with their scores if they are far away.

    Those that may be near go to ``scratch.pending``, which has ``near`` entries already; return
    how many it has then.
    """
    index = matcher.arrays
    pyramid, rounded_boxes, sole = index.pyramid, index.rounded_boxes, index.sole
    pending, window = scratch.pending, scratch.windows[0]
    row, score = output.row, output.score
    count = np.int64(pyramid[head + COUNTS] & LOW32)
    number = np.int64(pyramid[head + SIZES] >> BITS32)
    position, done = head + HEAD_WORDS, np.int64(0)
    wraps = messages.piece_start[message + 1] - messages.piece_start[message] > 1
    while done < count:
        size = min(count - done, np.int64(BLOCK))
        touching = touching_boxes(rounded_boxes, 4 * position, size, window)
        if wraps:
            touching |= touching_boxes(rounded_boxes, 4 * position, size, scratch.windows[1])
        touching &= lane_mask(size)
        position += size
        # Unsigned positions: others might count from the end, and the loop would not be vectorized.
        source, goal = np.uint64(position), np.uint64(total)
        for i in range(np.uint64(size)):
            word = pyramid[source + i]
            row[goal + i] = np.int32(word)
            score[goal + i] = share(np.int64(word >> BITS32))
        while touching != np.uint64(0):
            lane = lowest_bit(touching)
            touching &= touching - _ONE
            at = 4 * (number + done + lane)
            pending.west[near], pending.south[near] = sole[at], sole[at + 1]
            pending.east[near], pending.north[near] = sole[at + 2], sole[at + 3]
            pending.share[near] = np.int32(pyramid[position + lane] >> BITS32)
            pending.shared[near], pending.own[near] = 1.0, 1.0
            pending.target[near] = total + lane
            near += 1
        if near >= CANDIDATES:
            score_soles(matcher.codes, messages, message, pending, near, score)
            near = np.int64(0)
        position += size
        total += size
        done += size
    return near


# --- candidates ----------------------------------------------------------------------------------


@inlined_kernel
def message_code(messages: RankedMessages, message: Number, mode: Number) -> Number:
    """Return what the second hashes of words are compared with, if that depends on the message."""
    code = np.int64(HASHES - 1)
    if mode == BY_WEIGHT:
        code = weight_code(messages.text_weight[message])
    elif mode == BY_AREA and messages.area[message] > 0.0:
        code = area_code(messages.area[message])
    return np.uint64(code)


@inlined_kernel
def passes(token_filter: NDArray[np.uint64], mode: Number, code: Number, word: Number) -> Number:
    """Return 1 if an entry may be accepted, as far as its hashes tell, else 0."""
    first, second = (word >> FIRST_HASH) & HASH_MASK, word >> SECOND_HASH
    bit = token_filter[first >> _SIX] >> (first & _SIXTY_THREE)
    if mode == BY_WEIGHT:
        return bit & np.uint64(code <= second)
    other = token_filter[second >> _SIX] >> (second & _SIXTY_THREE)
    if mode == BY_AREA:
        marked = word >> MARK
        return ((bit & (np.uint64(code >= second) | marked)) | (other & marked)) & _ONE
    return (bit | other) & _ONE


@inlined_kernel
def sift_loose(
    pyramid: NDArray[np.uint64],
    scratch: Scratch,
    stretches: Number,
    mode: Number,
    code: Number,
    stretch: Number,
) -> tuple[Number, Number]:
    """Collect candidates among entries without boxes, from a stretch on, until there is no room.

    Return the stretch to go on with, whose begin has moved, and the number of candidates.
    """
    loose, candidate, token_filter = scratch.loose, scratch.candidate, scratch.tokens.token_filter
    count = np.uint64(0)
    while stretch < stretches and np.int64(count) < CANDIDATES:
        at, end = loose[stretch, 0], loose[stretch, 1]
        stop = min(end, at + CANDIDATES - np.int64(count))
        loose[stretch, 0] = stop
        for i in range(np.uint64(at), np.uint64(stop)):
            word = pyramid[i]
            candidate[count] = word
            count += passes(token_filter, mode, code, word)
        stretch += np.int64(stop == end)
    return stretch, np.int64(count)


@inlined_kernel
def scan_leaves(
    index: RankedPyramidArrays, window: NDArray[np.int16], scratch: Scratch, room: Number
) -> Number:
    """Write the positions of words of leaves whose boxes touch the window; return how many.

    It stops when a leaf may have more than there is room for.
    """
    pyramid, rounded_boxes = index.pyramid, index.rounded_boxes
    leaf, position = scratch.queues.leaf, scratch.position
    at, last = scratch.counts[SCANNED], scratch.queues.counts[LEAVES]
    count = np.int64(0)
    while at < last and count + BLOCK <= room:
        place, size = position_of(leaf[at]), size_of(leaf[at])
        at += 1
        touching = touching_boxes(rounded_boxes, 4 * place, size, window) & lane_mask(size)
        place += size
        while touching != np.uint64(0):
            lane = lowest_bit(touching)
            touching &= touching - _ONE
            prefetch(pyramid, place + lane)
            position[count] = np.uint64(place + lane)
            count += 1
    scratch.counts[SCANNED] = at
    return count


@inlined_kernel
def sift_leaves(
    pyramid: NDArray[np.uint64],
    scratch: Scratch,
    touching: Number,
    mode: Number,
    code: Number,
    count: Number,
) -> Number:
    """Collect candidates among entries whose boxes touch; return how many there are then."""
    position, candidate = scratch.position, scratch.candidate
    token_filter, end = scratch.tokens.token_filter, np.uint64(count)
    for i in range(touching):
        word = pyramid[position[i]]
        candidate[end] = word
        end += passes(token_filter, mode, code, word)
    return np.int64(end)


@kernel
def mark_seen(
    seen: NDArray[np.uint64],
    touched: NDArray[np.int32],
    counts: NDArray[np.int64],
    record: Number,
) -> Number:
    """Mark a record as seen; return whether it was not."""
    word, bit = record >> 6, _ONE << np.uint64(record & 63)
    if seen[word] & bit:
        return False
    seen[word] |= bit
    touched[counts[TOUCHED]] = record
    counts[TOUCHED] += 1
    return True


@kernel
def forget_seen(
    seen: NDArray[np.uint64], touched: NDArray[np.int32], counts: NDArray[np.int64]
) -> None:
    """Forget which records were seen."""
    for i in range(counts[TOUCHED]):
        seen[touched[i] >> 6] = np.uint64(0)
    counts[TOUCHED] = 0


@inlined_kernel
def may_repeat(codes: ScoringCodes, messages: RankedMessages, message: Number) -> Number:
    """Tell whether a message may find an entry twice.

    Both pieces of a message may; so may a box, if what an entry reaches is two boxes at the
    antimeridian. Those are half a world apart: a point cannot be in both.
    """
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    box = messages.box
    point = (box[begin, 0] == box[begin, 2]) & (box[begin, 1] == box[begin, 3])
    return (end - begin > 1) | ((codes.proximity != 0) & (not point))


@kernel
def probe_tokens(table: TokenTable, record: NDArray[np.int32], at: Number) -> tuple[Number, Number]:
    """Return a bit for each token of a record that the message has, and their weight."""
    mask: Number = _ZERO
    shared: Number = 0.0
    for j in range(MAX_TOKENS):
        token = np.int64(record[at + np.uint64(j)])
        slot = find_token(table, token)
        if table.token[slot] == token:
            mask |= _ONE << np.uint64(j)
            shared += table.weight[slot]
    return mask, shared


@inlined_kernel
def is_apart(
    record: NDArray[np.int32], at: Number, box: NDArray[np.int32], begin: Number, end: Number
) -> Number:
    """Tell whether the region of a record has no place in common with the pieces of a message."""
    apart = True
    for piece in range(begin, end):
        apart &= (
            (record[at] > box[piece, 2])
            | (record[at + _ONE] > box[piece, 3])
            | (record[at + np.uint64(2)] < box[piece, 0])
            | (record[at + np.uint64(3)] < box[piece, 1])
        )
    return apart


@inlined_kernel
def accept_candidates(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    scratch: Scratch,
    count: Number,
) -> tuple[Number, Number, Number]:
    """Put accepted candidates side by side: what may be near first, from `CANDIDATES` on the rest.

    Return the ends of both, and the number of candidates that do not fit a record. Nothing here
    branches by what a record says: half of such branches would be mispredicted. Positions are
    unsigned: signed ones might count from the end, and Numba would check that each time.
    """
    record, own_weight = matcher.arrays.record, matcher.arrays.own_weight
    candidate, pending, box = scratch.candidate, scratch.pending, messages.box
    table, table_weight = scratch.tokens.token, scratch.tokens.weight
    setting = scratch.tokens.setting
    multiplier, shift = setting[MULTIPLIER], setting[SHIFT]
    probes = setting[PROBES] != _ZERO
    proximity, repeats = matcher.codes.proximity != 0, may_repeat(matcher.codes, messages, message)
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    south, north = np.int64(box[begin, 1]), np.int64(box[begin, 3])
    near, far, specials = _ZERO, np.uint64(CANDIDATES), np.int64(0)
    for i in range(min(count, RECORDS_AHEAD)):
        prefetch(record, (candidate[i] & LOW32) << RECORD_BITS)
    for i in range(count):
        if i + RECORDS_AHEAD < count:
            prefetch(record, (candidate[i + RECORDS_AHEAD] & LOW32) << RECORD_BITS)
        word = candidate[i]
        at = (word & LOW32) << RECORD_BITS
        mask: Number = _ZERO
        shared: Number = 0.0
        if probes:
            mask, shared = probe_tokens(scratch.tokens, record, at + TOKENS)
        else:
            for j in range(USUAL_TOKENS):
                token = record[at + TOKENS + np.uint64(j)]
                slot = ((np.uint64(token) * multiplier) >> shift) + _ONE
                hit = np.uint64(table[slot] == token)
                mask |= hit << np.uint64(j)
                shared += table_weight[slot * hit]
            if record[at + TOKENS + np.uint64(USUAL_TOKENS)] >= 0:
                for j in range(USUAL_TOKENS, MAX_TOKENS):
                    token = record[at + TOKENS + np.uint64(j)]
                    slot = ((np.uint64(token) * multiplier) >> shift) + _ONE
                    hit = np.uint64(table[slot] == token)
                    mask |= hit << np.uint64(j)
                    shared += table_weight[slot * hit]
        flags = (word >> FLAGS_SHIFT) & _FIFTEEN
        if flags & SPECIAL_FLAG:
            scratch.special[specials] = np.int64(word & LOW32)
            specials += 1
            continue
        first = (word >> POSITION_SHIFT) & _SEVEN
        alone = np.uint64((mask >> (first + _ONE)) == _ZERO)
        with_none = mask | NO_TOKEN_BIT
        is_first = np.uint64((with_none & ((np.uint64(2) << first) - _ONE)) == (_ONE << first))
        # The flags are WITH_OTHERS, ALONE and ALWAYS, in this order.
        accepted = ((is_first & (flags >> alone)) | (flags >> np.uint64(2))) & _ONE
        if repeats and accepted:
            number = np.int64(word & LOW32)
            accepted = np.uint64(mark_seen(scratch.seen, scratch.touched, scratch.counts, number))
        if proximity:
            lat = np.int64(record[at + _ONE])
            gap = max(south - lat, lat - north)
            centimeters = np.uint32(record[at + DISTANCE])
            is_far = np.uint64(np.float64(gap) > np.float64(centimeters) * _UNITS_PER_CM + 2.0)
        else:
            is_far = np.uint64(is_apart(record, at, box, begin, end))
        place = near + (far - near) * is_far
        pending.west[place] = record[at]
        pending.south[place] = record[at + _ONE]
        pending.east[place] = record[at + np.uint64(2)]
        pending.north[place] = record[at + np.uint64(3)]
        pending.share[place] = record[at + SHARE]
        pending.threshold[place] = record[at + THRESHOLD]
        pending.row[place] = record[at + ROW]
        pending.shared[place] = shared
        pending.own[place] = own_weight[(at >> _ONE) + WEIGHT]
        near += accepted & ~is_far
        far += accepted & is_far
    return np.int64(near), np.int64(far), specials


@inlined_kernel
def write_matches(
    pending: Pending, first: Number, last: Number, output: ScoredOutput, total: Number
) -> Number:
    """Write the matches among scored candidates; return the number of matches then."""
    row, score, count = output.row, output.score, np.uint64(total)
    for i in range(np.uint64(first), np.uint64(last)):
        row[count] = pending.row[i]
        score[count] = pending.score[i]
        count += np.uint64(pending.score[i] >= share(pending.threshold[i]) - TOLERANCE)
    return np.int64(count)


@kernel
def score_special(
    codes: ScoringCodes,
    rows: RankedColumns,
    messages: RankedMessages,
    message: Number,
    tokens: TokenTable,
    row: Number,
) -> Number:
    """Return the score of a subscription that does not fit a record."""
    shared = 0.0
    for i in range(rows.token_start[row], rows.token_start[row + 1]):
        token = np.int64(rows.token[i])
        if tokens.token[find_token(tokens, token)] == token:
            shared += rows.token_weight[i]
    weight = messages.text_weight[message]
    text = text_score(codes.similarity, shared, rows.text_weight[row], weight)
    space = space_score(codes, rows, row, messages, message)
    return combined(share(rows.text_share[row]), text, space)


@kernel
def write_specials(
    matcher: Matcher,
    special: RankedColumns,
    messages: RankedMessages,
    message: Number,
    scratch: Scratch,
    count: Number,
    output: ScoredOutput,
    total: Number,
) -> Number:
    """Write the matches among candidates that do not fit a record, each once."""
    record = matcher.arrays.record
    for i in range(count):
        at = scratch.special[i]
        if mark_seen(scratch.seen, scratch.touched, scratch.counts, at):
            base = np.uint64(at) << RECORD_BITS
            row = np.int64(record[base + TOKENS])
            score = score_special(matcher.codes, special, messages, message, scratch.tokens, row)
            output.row[total], output.score[total] = record[base + ROW], score
            total += np.int64(score >= share(record[base + THRESHOLD]) - TOLERANCE)
    return total


# --- messages ------------------------------------------------------------------------------------


@inlined_kernel
def set_windows(messages: RankedMessages, message: Number, scratch: Scratch) -> None:
    """Write the rounded boxes of the pieces of a message."""
    box, at = messages.box, messages.piece_start[message]
    window, other = scratch.windows
    for side in range(4):
        window[side] = box[at, side] >> ROUNDING
    if messages.piece_start[message + 1] - at > 1:
        for side in range(4):
            other[side] = box[at + 1, side] >> ROUNDING


@kernel
def match_messages(
    matcher: Matcher,
    special: RankedColumns | None,
    messages: RankedMessages,
    part: tuple[Number, Number],
    scratch: Scratch,
    output: ScoredOutput,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part.

    ``special`` has the columns of subscriptions that do not fit a record. If there are none, as is
    usual, the kernel is compiled without them: passing so many arrays takes microseconds.

    Return the message at which the output was full (or the end), examined and visited. Examined are
    sole entries and candidates, visited the lists that were opened.
    """
    matcher, messages, scratch = borrow(matcher), borrow(messages), borrow(scratch)
    output = borrow(output)
    index, codes, pending, table = matcher.arrays, matcher.codes, scratch.pending, scratch.tokens
    pyramid, token_start, piece_start = index.pyramid, messages.token_start, messages.piece_start
    (first, last), room = part, np.int64(len(output.row))
    mode = sift_mode(codes)
    examined, visited, total = np.int64(0), np.int64(0), output.start[first]
    targets, next_targets = scratch.targets
    next_lists = look_up(index, messages, first, next_targets)
    for message in range(first, last):
        targets, next_targets = next_targets, targets
        lists = next_lists
        if message + 2 < last:
            prefetch_slots(index, matcher.weighing, messages, message + 2)
        if message + 1 < last:
            next_lists = look_up(index, messages, message + 1, next_targets)
        begin, end = token_start[message], token_start[message + 1]
        tokens = messages.token[begin : begin + known_tokens(messages.token[begin:end])]
        fill_table(table, tokens, matcher.weighing)
        code = message_code(messages, message, mode)
        set_windows(messages, message, scratch)
        cells = message_cells(index, messages, message)
        heads, pyramids, soles = open_lists(index, cells, scratch, targets, lists)
        fits = total + soles <= room
        near = done = np.int64(0)
        for i in range(heads if fits else 0):
            head = position_of(targets[i])
            near = write_soles(matcher, messages, message, head, scratch, near, output, total)
            total += np.int64(pyramid[head + COUNTS] & LOW32)
        if near > 0:
            score_soles(codes, messages, message, pending, near, output.score)
        done += soles
        stretch, piece = np.int64(0), np.int64(0)
        pieces = piece_start[message + 1] - piece_start[message]
        scratch.queues.counts[LEAVES] = 0
        scratch.counts[SCANNED] = 0
        while fits:
            stretch, count = sift_loose(pyramid, scratch, heads, mode, code, stretch)
            window = scratch.windows[0]
            while count + BLOCK <= CANDIDATES:
                if scratch.counts[SCANNED] == scratch.queues.counts[LEAVES]:
                    if piece == pieces:
                        break
                    piece += 1
                    queue_pyramids(index, scratch, pyramids)
                    if piece > 1:
                        window = scratch.windows[1]
                    open_inner_blocks(index, window, scratch.queues)
                elif piece > 1:
                    window = scratch.windows[1]
                touching = scan_leaves(index, window, scratch, CANDIDATES - count)
                count = sift_leaves(pyramid, scratch, touching, mode, code, count)
            if total + count > room:
                fits = False
                break
            near, far, specials = accept_candidates(matcher, messages, message, scratch, count)
            weight = messages.text_weight[message]
            if near > 0:
                score_space(codes, messages, message, pending, near)
                score_with_space(codes.similarity, weight, pending, near)
                total = write_matches(pending, np.int64(0), near, output, total)
            if far > CANDIDATES:
                score_without_space(codes.similarity, weight, pending, far)
                total = write_matches(pending, np.int64(CANDIDATES), far, output, total)
            if special is not None:
                if specials > 0:
                    total = write_specials(
                        matcher, special, messages, message, scratch, specials, output, total
                    )
            done += count
            if (
                stretch == heads
                and piece == pieces
                and scratch.counts[SCANNED] == scratch.queues.counts[LEAVES]
            ):
                break
        clear_table(table, tokens)
        if scratch.counts[TOUCHED] > 0:
            forget_seen(scratch.seen, scratch.touched, scratch.counts)
        if not fits:
            return message, examined, visited
        examined += done
        visited += lists
        output.start[message + 1] = total
    return last, examined, visited
