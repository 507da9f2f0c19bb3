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
from nearcast.compiled.areas import boxes_meet
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
from nearcast.indexes.ranked_pyramid.entries import limits_weight
from nearcast.indexes.ranked_pyramid.layout import (
    ALONE,
    ALWAYS,
    COUNTS,
    DISTANCE,
    EVERYWHERE,
    FIRST_HASH,
    FLAGS_SHIFT,
    HAS_HEAD,
    HASH_MASK,
    HEAD_CELLS,
    HEAD_WORDS,
    MAX_TOKENS,
    NO_POSITION,
    POSITION_SHIFT,
    ROW,
    SECOND_HASH,
    SHARE,
    SIZES,
    SPECIAL,
    THRESHOLD,
    TOKENS,
    WEIGHT,
    WITH_OTHERS,
    RankedPyramidArrays,
    weight_code,
)
from nearcast.indexes.ranked_pyramid.score import (
    CANDIDATES,
    CENTIMETER_MASK,
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

FOUND, TOUCHED, SCANNED_LEAVES = 0, 1, 2
"""Fields of ``Scratch.counts``: matches in the output, records marked as seen, leaves scanned."""

RECORDS_AHEAD = 24
"""Records are prefetched this many candidates ahead."""

USUAL_TOKENS = 5
"""Tokens of a record that are looked up in any case; the others only where there are more."""

_UNITS_PER_CM = (1.0 + 1e-9) / (CENTIMETERS * METERS_PER_UNIT)
_ONE = np.uint64(1)
_POSITION = np.uint64(0x7FFFFFFFFFFFFFFF)


class Matcher(NamedTuple):
    """All that stays the same from message to message."""

    codes: ScoringCodes
    arrays: RankedPyramidArrays
    weighing: Weighing
    special: RankedColumns


class Queues(NamedTuple):
    """Leaves and pyramids with inner blocks that are to be read."""

    leaf: NDArray[np.uint64]
    inner: NDArray[np.uint64]
    counts: NDArray[np.int64]


class Scratch(NamedTuple):
    """Scratch space of one thread.

    - ``targets``: two queues of lists, of this message and of the next one.
    - ``loose`` int64[lists, 2]: position and end of entries without boxes; ``pyramids``
      uint64[lists]: those of all lists.
    - ``candidate`` uint64[CANDIDATES]: words of entries. ``position`` int64[CANDIDATES]: where the
      words of entries are whose boxes touch the message. ``special`` int64[CANDIDATES]: records of
      candidates that do not fit a record.
    - ``seen`` uint64[records / 64 + 1]: a bit for each accepted record of a message that may find
      one twice; ``touched`` int32[records]: which those are.
    - ``counts`` int64[3]: see `FOUND`.
    """

    targets: tuple[NDArray[np.uint64], NDArray[np.uint64]]
    loose: NDArray[np.int64]
    pyramids: NDArray[np.uint64]
    queues: Queues
    tokens: TokenTable
    candidate: NDArray[np.uint64]
    position: NDArray[np.int64]
    special: NDArray[np.int64]
    pending: Pending
    window: NDArray[np.int16]
    seen: NDArray[np.uint64]
    touched: NDArray[np.int32]
    counts: NDArray[np.int64]


# --- lists ---------------------------------------------------------------------------------------


@inlined_kernel
def message_cells(
    index: RankedPyramidArrays, messages: RankedMessages, message: Number
) -> tuple[Number, Number]:
    """Return the cell mask of all pieces of a message."""
    low, high = np.uint64(0), np.uint64(0)
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        box = messages.box[piece]
        more = cell_mask(box[0], box[1], box[2], box[3], index.header[GRID_LEVEL])
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
    slot, pyramid = index.slot, index.pyramid
    low, high = message_cells(index, messages, message)
    begin, end = messages.token_start[message], messages.token_start[message + 1]
    end = begin + known_tokens(messages.token[begin:end])
    count = np.int64(0)
    for i in range(begin, end + index.header[EVERYWHERE]):
        key = np.uint64(messages.token[i]) if i < end else np.uint64(NO_TOKEN)
        at = find_slot(slot, key)
        if ((slot[at, CELLS] & low) | (slot[at, CELLS + 1] & high)) == np.uint64(0):
            continue
        target = slot[at, TARGET]
        targets[count] = target
        count += 1
        place = np.int64(target & _POSITION) if target & HAS_HEAD else position_of(target)
        prefetch_block(pyramid, place)
    return count


@inlined_kernel
def prefetch_slots(
    index: RankedPyramidArrays, weighing: Weighing, messages: RankedMessages, message: Number
) -> None:
    """Prefetch the slots and the weights of a message's tokens."""
    for i in range(messages.token_start[message], messages.token_start[message + 1]):
        token = messages.token[i]
        prefetch(index.slot, home(index.slot, np.uint64(token)))
        prefetch(weighing.weight, token)


# --- candidates ----------------------------------------------------------------------------------


@inlined_kernel
def passes(token_filter: NDArray[np.uint64], limited: Number, code: Number, word: Number) -> Number:
    """Return 1 if an entry may be accepted, as far as its hashes tell."""
    first, second = (word >> np.uint64(FIRST_HASH)) & HASH_MASK, word >> np.uint64(SECOND_HASH)
    bit = (token_filter[first >> np.uint64(6)] >> (first & np.uint64(63))) & _ONE
    if limited:
        return np.int64(bit) & np.int64(second >= code)
    other = (token_filter[second >> np.uint64(6)] >> (second & np.uint64(63))) & _ONE
    return np.int64(bit | other)


@kernel
def score_special(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    tokens: TokenTable,
    row: Number,
) -> Number:
    """Return the score of a subscription that does not fit a record."""
    codes, rows = matcher.codes, matcher.special
    shared = 0.0
    for i in range(rows.token_start[row], rows.token_start[row + 1]):
        token = np.int64(rows.token[i])
        at = find_token(tokens, token)
        if tokens.token[at] == token:
            shared += rows.token_weight[i]
    weight = messages.text_weight[message]
    text = text_score(codes.similarity, shared, rows.text_weight[row], weight)
    space = space_score(codes, rows, row, messages, message)
    return combined(share(rows.text_share[row]), text, space)


@kernel
def mark_seen(scratch: Scratch, record: Number) -> Number:
    """Mark a record as seen; return whether it was not."""
    word, bit = record >> 6, _ONE << np.uint64(record & 63)
    if scratch.seen[word] & bit:
        return False
    scratch.seen[word] |= bit
    scratch.touched[scratch.counts[TOUCHED]] = record
    scratch.counts[TOUCHED] += 1
    return True


@kernel
def forget_seen(scratch: Scratch) -> None:
    """Forget which records were seen."""
    for i in range(scratch.counts[TOUCHED]):
        scratch.seen[scratch.touched[i] >> 6] = np.uint64(0)
    scratch.counts[TOUCHED] = 0


@inlined_kernel
def is_far(
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    record: NDArray[np.int32],
) -> Number:
    """Tell whether S is certainly 0, by latitudes or by the box of a region."""
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    if codes.proximity:
        lat = np.int64(record[1])
        gap = max(messages.box[begin, 1] - lat, lat - messages.box[begin, 3])
        centimeters = np.int64(record[DISTANCE]) & CENTIMETER_MASK
        return np.float64(gap) > np.float64(centimeters) * _UNITS_PER_CM + 2.0
    meets = False
    for piece in range(begin, end):
        meets |= boxes_meet(record[:4], messages.box[piece])
    return not meets


@kernel
def verify_candidates(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    scratch: Scratch,
    count: Number,
    output: ScoredOutput,
) -> Number:
    """Write the matches among the candidates; return whether all fit."""
    matcher, messages, scratch = borrow(matcher), borrow(messages), borrow(scratch)
    output = borrow(output)
    codes, index, candidate = matcher.codes, matcher.arrays, scratch.candidate
    record, own_weight, pending = index.record, index.own_weight, scratch.pending
    tokens, found, scores = scratch.tokens, output.row, output.score
    if scratch.counts[FOUND] + count > len(found):
        return False
    multiplier, shift = tokens.setting[MULTIPLIER], tokens.setting[SHIFT]
    probes = tokens.setting[PROBES] != np.uint64(0)
    repeats = may_repeat(codes, messages, message)
    near, far, specials = np.int64(0), np.int64(CANDIDATES), np.int64(0)
    for i in range(count):
        if i + RECORDS_AHEAD < count:
            prefetch(record, np.int64(candidate[i + RECORDS_AHEAD] & LOW32))
        word = candidate[i]
        at = np.int64(word & LOW32)
        mask: Number = np.int64(0)
        shared: Number = 0.0
        for j in range(MAX_TOKENS):
            token = record[at, TOKENS + j]
            if j >= USUAL_TOKENS and token < 0:
                break
            if probes:
                slot = find_token(tokens, np.int64(token))
            else:
                slot = np.int64((np.uint64(token) * multiplier) >> shift)
            hit = tokens.token[slot] == token
            mask |= np.int64(hit) << np.int64(j)
            shared += tokens.weight[slot] if hit else 0.0
        flags = np.int64(word >> np.uint64(FLAGS_SHIFT)) & 15
        if flags & SPECIAL:
            scratch.special[specials] = at
            specials += 1
            continue
        first = np.int64(word >> np.uint64(POSITION_SHIFT)) & 15
        others = (mask >> (first + 1)) != 0
        seen = mask | (1 << NO_POSITION)
        is_first = (seen & ((2 << first) - 1)) == (1 << first)
        allowed = (flags & (WITH_OTHERS if others else ALONE)) != 0
        accepted = (is_first & allowed) | ((flags & ALWAYS) != 0)
        if repeats and accepted:
            accepted = mark_seen(scratch, at)
        is_near = not is_far(codes, messages, message, record[at])
        place = near if is_near else far
        for k in range(4):
            pending.place[k, place] = record[at, k]
        pending.share[place] = record[at, SHARE]
        pending.threshold[place] = record[at, THRESHOLD]
        pending.row[place] = record[at, ROW]
        pending.shared[place], pending.own[place] = shared, own_weight[at, WEIGHT]
        near += np.int64(accepted & is_near)
        far += np.int64(accepted & (not is_near))
    weight = messages.text_weight[message]
    score_space(codes, messages, message, pending, near)
    score_with_space(codes.similarity, weight, pending, near)
    score_without_space(codes.similarity, weight, pending, np.int64(CANDIDATES), far)
    total = scratch.counts[FOUND]
    for i in range(far - CANDIDATES + near):
        at = np.int64(i) if i < near else i - near + CANDIDATES
        found[total], scores[total] = pending.row[at], pending.score[at]
        total += np.int64(pending.score[at] >= share(pending.threshold[at]) - TOLERANCE)
    for i in range(specials):
        at = scratch.special[i]
        if mark_seen(scratch, at):
            row = np.int64(record[at, TOKENS])
            score = score_special(matcher, messages, message, tokens, row)
            found[total], scores[total] = record[at, ROW], score
            total += np.int64(score >= share(record[at, THRESHOLD]) - TOLERANCE)
    scratch.counts[FOUND] = total
    return True


@inlined_kernel
def may_repeat(codes: ScoringCodes, messages: RankedMessages, message: Number) -> Number:
    """Tell whether a message may find an entry twice.

    Both pieces of a message may; so may a box, if what an entry reaches is two boxes at the
    antimeridian. Those are half a world apart: a point cannot be in both.
    """
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    box = messages.box[begin]
    point = box[0] == box[2] and box[1] == box[3]
    return end - begin > 1 or (codes.proximity and not point)


# --- sole entries --------------------------------------------------------------------------------


@kernel
def score_soles(
    codes: ScoringCodes,
    messages: RankedMessages,
    message: Number,
    pending: Pending,
    count: Number,
    scores: NDArray[np.float64],
) -> None:
    """Write the scores of sole entries that are near the message."""
    score_space(codes, messages, message, pending, count)
    score_with_space(codes.similarity, 0.0, pending, count)
    for i in range(count):
        scores[pending.target[i]] = pending.score[i]


@kernel
def write_soles(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    scratch: Scratch,
    block: tuple[Number, Number, Number],
    output: ScoredOutput,
) -> Number:
    """Write the sole entries of a list, all of which match; return whether they fit.

    ``block``: the position of their blocks, how many there are, and the number of the first.
    """
    matcher, messages, scratch = borrow(matcher), borrow(messages), borrow(scratch)
    index, pending, window = matcher.arrays, scratch.pending, scratch.window
    pyramid, found, scores = index.pyramid, output.row, output.score
    position, count, first = block
    total, near = scratch.counts[FOUND], np.int64(0)
    if total + count > len(found):
        return False
    scratch.counts[FOUND] = total + count
    begin, end = messages.piece_start[message], messages.piece_start[message + 1]
    done = np.int64(0)
    while done < count:
        size = min(count - done, np.int64(BLOCK))
        touching = np.uint64(0)
        for piece in range(begin, end):
            for side in range(4):
                window[side] = messages.box[piece, side] >> ROUNDING
            touching |= touching_boxes(index.rounded_boxes, 4 * position, size, window)
        touching &= lane_mask(size)
        for i in range(size):
            word = pyramid[position + size + i]
            found[total + i] = np.int32(word & LOW32)
            scores[total + i] = share(np.int64(word >> BITS32))
        while touching != np.uint64(0):
            lane = lowest_bit(touching)
            touching &= touching - _ONE
            for k in range(4):
                pending.place[k, near] = index.sole[first + done + lane, k]
            pending.share[near] = np.int32(pyramid[position + size + lane] >> BITS32)
            pending.shared[near] = pending.own[near] = 1.0
            pending.target[near] = total + lane
            near += 1
        if near > CANDIDATES:
            score_soles(matcher.codes, messages, message, pending, near, scores)
            near = np.int64(0)
        position += LEAF_WORDS * size
        total += size
        done += size
    score_soles(matcher.codes, messages, message, pending, near, scores)
    return True


# --- messages ------------------------------------------------------------------------------------


@inlined_kernel
def open_lists(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    scratch: Scratch,
    targets: NDArray[np.uint64],
    lists: Number,
    output: ScoredOutput,
) -> tuple[Number, Number, Number]:
    """Write the sole entries of lists, and note what else they have.

    Return the number of stretches without boxes and of pyramids, and of sole entries: -1 if those
    did not fit.
    """
    index, pyramid = matcher.arrays, matcher.arrays.pyramid
    low, high = message_cells(index, messages, message)
    loose, pyramids, soles = np.int64(0), np.int64(0), np.int64(0)
    for i in range(lists):
        target = targets[i]
        if not target & HAS_HEAD:
            scratch.pyramids[pyramids] = target
            pyramids += 1
            continue
        head = np.int64(target & _POSITION)
        counts, sizes = pyramid[head + COUNTS], pyramid[head + SIZES]
        sole = np.int64(counts & LOW32)
        position = head + HEAD_WORDS
        if sole > 0:
            block = (position, sole, np.int64(sizes >> BITS32))
            if not write_soles(matcher, messages, message, scratch, block, output):
                return loose, pyramids, np.int64(-1)
            soles += sole
            position += LEAF_WORDS * sole
        scratch.loose[loose, 0] = position
        position += np.int64(counts >> BITS32)
        scratch.loose[loose, 1] = position
        loose += 1
        size = np.int64(sizes & LOW32)
        cells = (pyramid[head + HEAD_CELLS] & low) | (pyramid[head + HEAD_CELLS + 1] & high)
        if size > 0 and cells != np.uint64(0):
            position = align(position, size, index.header[BLOCK_SIZE])
            prefetch_block(pyramid, position)
            scratch.pyramids[pyramids] = pack_pyramid(position, size)
            pyramids += 1
    return loose, pyramids, soles


@inlined_kernel
def open_pyramids(
    matcher: Matcher,
    box: NDArray[np.int32],
    scratch: Scratch,
    pyramids: Number,
) -> None:
    """Queue the leaves of pyramids whose bounding boxes touch a box."""
    index, queues, window = matcher.arrays, scratch.queues, scratch.window
    block = index.header[BLOCK_SIZE]
    leaves, inner = np.int64(0), np.int64(0)
    for i in range(pyramids):
        target = scratch.pyramids[i]
        size = size_of(target)
        queues.leaf[leaves], queues.inner[inner] = target, target
        leaves += np.int64(size <= block)
        inner += np.int64(size > block)
    queues.counts[LEAVES], queues.counts[INNER] = leaves, inner
    for side in range(4):
        window[side] = box[side] >> ROUNDING
    open_inner_blocks(index, window, queues)


@inlined_kernel
def scan_leaves(matcher: Matcher, scratch: Scratch) -> Number:
    """Write the positions of words whose boxes touch the window, until all leaves are scanned.

    Stops when there may be no room for a whole leaf. Returns how many there are.
    """
    index, leaf, position = matcher.arrays, scratch.queues.leaf, scratch.position
    at, last = scratch.counts[SCANNED_LEAVES], scratch.queues.counts[LEAVES]
    count = np.int64(0)
    while at < last and count + BLOCK <= CANDIDATES:
        place, size = position_of(leaf[at]), size_of(leaf[at])
        at += 1
        touching = touching_boxes(index.rounded_boxes, 4 * place, size, scratch.window)
        touching &= lane_mask(size)
        place += size
        while touching != np.uint64(0):
            lane = lowest_bit(touching)
            touching &= touching - _ONE
            prefetch(index.pyramid, place + lane)
            position[count] = place + lane
            count += 1
    scratch.counts[SCANNED_LEAVES] = at
    return count


@kernel
def match_one(
    matcher: Matcher,
    messages: RankedMessages,
    message: Number,
    scratch: Scratch,
    lists: tuple[Number, Number],
    output: ScoredOutput,
) -> Number:
    """Match a message whose lists were looked up; return what was examined, -1 if it did not fit.

    ``lists``: which of the two queues has the lists, and how many there are.
    """
    matcher, messages, scratch = borrow(matcher), borrow(messages), borrow(scratch)
    output = borrow(output)
    pyramid, candidate = matcher.arrays.pyramid, scratch.candidate
    token_filter = scratch.tokens.token_filter
    limited = limits_weight(matcher.codes)
    code = np.uint64(weight_code(messages.text_weight[message])) if limited else np.uint64(0)
    targets = scratch.targets[0] if lists[0] == 0 else scratch.targets[1]
    stretches, pyramids, examined = open_lists(
        matcher, messages, message, scratch, targets, lists[1], output
    )
    if examined < 0:
        return np.int64(-1)
    count = np.int64(0)
    for stretch in range(stretches):
        at, end = scratch.loose[stretch, 0], scratch.loose[stretch, 1]
        while at < end:
            stop = min(end, at + CANDIDATES - count)
            while at < stop:
                word = pyramid[at]
                candidate[count] = word
                count += passes(token_filter, limited, code, word)
                at += 1
            if count == CANDIDATES:
                if not verify_candidates(matcher, messages, message, scratch, count, output):
                    return np.int64(-1)
                examined += count
                count = np.int64(0)
    for piece in range(messages.piece_start[message], messages.piece_start[message + 1]):
        open_pyramids(matcher, messages.box[piece], scratch, pyramids)
        scratch.counts[SCANNED_LEAVES] = 0
        while scratch.counts[SCANNED_LEAVES] < scratch.queues.counts[LEAVES]:
            touching = scan_leaves(matcher, scratch)
            if count + touching > CANDIDATES:
                if not verify_candidates(matcher, messages, message, scratch, count, output):
                    return np.int64(-1)
                examined += count
                count = np.int64(0)
            for i in range(touching):
                word = pyramid[scratch.position[i]]
                candidate[count] = word
                count += passes(token_filter, limited, code, word)
    if not verify_candidates(matcher, messages, message, scratch, count, output):
        return np.int64(-1)
    return examined + count


@kernel
def match_messages(
    matcher: Matcher,
    messages: RankedMessages,
    part: tuple[Number, Number],
    scratch: Scratch,
    output: ScoredOutput,
) -> tuple[Number, Number, Number]:
    """Match the messages of a part.

    Return the message at which the output was full (or the end), examined and visited. Examined are
    sole entries and candidates, visited the lists that were opened.
    """
    matcher, messages, scratch = borrow(matcher), borrow(messages), borrow(scratch)
    output = borrow(output)
    first, last = part
    examined, visited = np.int64(0), np.int64(0)
    scratch.counts[FOUND] = output.start[first]
    lists = look_up(matcher.arrays, messages, first, scratch.targets[0])
    queue = np.int64(0)
    for message in range(first, last):
        more = np.int64(0)
        if message + 2 < last:
            prefetch_slots(matcher.arrays, matcher.weighing, messages, message + 2)
        if message + 1 < last:
            targets = scratch.targets[1] if queue == 0 else scratch.targets[0]
            more = look_up(matcher.arrays, messages, message + 1, targets)
        begin, end = messages.token_start[message], messages.token_start[message + 1]
        tokens = messages.token[begin : begin + known_tokens(messages.token[begin:end])]
        fill_table(scratch.tokens, tokens, matcher.weighing)
        count = match_one(matcher, messages, message, scratch, (queue, lists), output)
        clear_table(scratch.tokens, tokens)
        forget_seen(scratch)
        if count < 0:
            return message, examined, visited
        examined += count
        visited += lists
        output.start[message + 1] = scratch.counts[FOUND]
        lists, queue = more, 1 - queue
    return last, examined, visited
