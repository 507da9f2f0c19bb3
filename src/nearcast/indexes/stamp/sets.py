"""Kernels that match messages with further signature sets: the spatio-textual prefix.

Section V and algorithm 3 of the paper. A leaf region collects its candidates by the first set. One
that shares a single token, which is not enough where it is, stays *undecided*: it needs a token of
the second set, then perhaps of the third. Every leaf decides whether to read the next set or to
verify what is undecided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.indexes.stamp.layout import (
    DUMMY,
    FARTHEST,
    LAST_SHIFT,
    MARKED,
    MORE_ALONE,
    MORE_INFO,
    NEXT,
    OWN_SET,
    PARENT,
    POSTING_LAT,
    POSTING_LON,
    POSTING_REACH,
    POSTING_RECORD,
    REACH,
    REGION,
    REMAINING_SHIFT,
    SET_BITS,
    SETS,
    SLOT_COUNT,
    SLOT_START,
    find_token,
    reach_of,
)
from nearcast.indexes.stamp.match import (
    ACCESSED,
    AHEAD,
    CANDIDATES,
    EPOCH,
    EXAMINED,
    LEAVES,
    NO_ROOM,
    SETS_USED,
    SHORT,
    VISITED,
    Index,
    MatchScratch,
    Place,
    Trace,
    begin_message,
    clear_tokens,
    distance_from,
    is_beyond,
    place_of,
    score_candidates,
    token_weight,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedMessages, ScoredOutput

HIT_ENTRY, HIT_READ, HIT_NEXT = range(3)
"""Columns of ``hit``: the entry, how many of its postings were read, and the next hit of the
leaf."""

HEAD, TAIL, FIRST, LAST, WANTED, AT = range(6)
LEAF_COLUMNS = 6
"""Columns of ``leaf``: its first and last hit, its candidates, the epoch in which it has undecided
ones, and the next of its earlier hits."""

WHO, SHARED, INFO, STATUS = range(4)
"""Columns of ``chosen``: record, shared tokens, bits of its first posting, and one of these."""

UNDECIDED, TO_VERIFY, REFUSED = range(3)

HITS, CHOSEN, OPEN_LEAVES = range(3)
"""Positions in ``used``."""


class SetScratch(NamedTuple):
    """Scratch space for one message.

    - ``order`` int64[tokens + 1], ``weight`` float64[tokens]: its tokens, the heaviest first.
    - ``hit`` int64[any, 3]: lists of its tokens in leaf regions, chained by leaf.
    - ``leaf`` int64[regions, 6], ``open_leaf`` int64[regions]: leaves, and those that are open.
    - ``chosen`` int32[any, 4], ``distance`` float64[any]: candidates, those of a leaf together.
    - ``position`` int32[records]: where the candidate of a record would be in ``chosen``.
    - ``used`` int64[3].
    """

    order: NDArray[np.int64]
    weight: NDArray[np.float64]
    hit: NDArray[np.int64]
    leaf: NDArray[np.int64]
    open_leaf: NDArray[np.int64]
    chosen: NDArray[np.int32]
    distance: NDArray[np.float64]
    position: NDArray[np.int32]
    used: NDArray[np.int64]


@kernel
def match_by_sets(
    index: Index,
    messages: RankedMessages,
    part: tuple[Number, Number],
    scratch: MatchScratch,
    sets: SetScratch,
    trace: Trace,
    output: ScoredOutput,
) -> tuple[Number, Number, Number]:
    """Match a part of the messages with all signature sets.

    Return the message at which the output, or the scratch, was full, or the end; and what was
    examined and visited.
    """
    index, messages, scratch = borrow(index), borrow(messages), borrow(scratch)
    sets, output, trace = borrow(sets), borrow(output), borrow(trace)
    stamp, tally = index.stamp, scratch.tally
    examined, visited = 0, 0
    cost = np.zeros(2)
    for message in range(part[0], part[1]):
        known = begin_message(index, messages, message, scratch)
        begin = messages.token_start[message]
        tokens = messages.token[begin : begin + known]
        place = place_of(index.codes, messages, message, reach_of(stamp.state[FARTHEST]))
        order_slots(index, tokens, scratch, sets)
        cost[:] = 0.0
        sets.used[:] = 0
        count = np.int64(NO_ROOM)
        if open_leaves(index, known + 1, scratch, sets) and collect_all(
            index, messages, message, place, scratch, sets
        ):
            if use_further_sets(index, known, scratch, sets, cost):
                count = np.int64(output.start[message])
                count = score_chosen(index, messages, message, place, scratch, sets, output, count)
        clear_tokens(tokens, scratch.token_set)
        if count == NO_ROOM:
            return message, examined, visited
        output.start[message + 1] = count
        examined += tally[EXAMINED]
        visited += tally[VISITED]
        if len(trace.tally) > 0:
            trace.tally[message] = tally
            trace.cost[message] = cost
    return part[1], examined, visited


@kernel
def order_slots(
    index: Index, tokens: NDArray[np.int32], scratch: MatchScratch, sets: SetScratch
) -> None:
    """Write the slots of the tokens, the heaviest first, ties by number, and of the dummy.

    So a message meets the tokens of every subscription in the order in which it has them.
    """
    known = len(tokens)
    for i in range(known):
        sets.weight[i] = -token_weight(index.weights, tokens[i])
    by_weight = np.argsort(sets.weight[:known], kind="mergesort")
    for i in range(known):
        sets.order[i] = scratch.slots[by_weight[i]]
    sets.order[known] = find_token(index.stamp.slot, DUMMY)


@inlined_kernel
def add_hit(
    hit: NDArray[np.int64],
    leaves: NDArray[np.int64],
    used: NDArray[np.int64],
    at: Number,
    leaf: Number,
    read: Number,
) -> Number:
    """Append a list to those of a leaf; return whether there was room."""
    new = used[HITS]
    if new == len(hit):
        return False
    hit[new, HIT_ENTRY], hit[new, HIT_READ], hit[new, HIT_NEXT] = at, read, -1
    if leaves[leaf, HEAD] < 0:
        leaves[leaf, HEAD] = new
    else:
        hit[leaves[leaf, TAIL], HIT_NEXT] = new
    leaves[leaf, TAIL] = new
    used[HITS] = new + 1
    return True


@kernel
def open_leaves(index: Index, tokens: Number, scratch: MatchScratch, sets: SetScratch) -> Number:
    """Find the lists that the message has to read, leaf by leaf; return whether they fit."""
    stamp, gaps, opened = index.stamp, scratch.gap, scratch.opened
    entry, lists, leaves, tally = stamp.entry, stamp.list, sets.leaf, scratch.tally
    slots, order, open_leaf, used, hit = stamp.slot, sets.order, sets.open_leaf, sets.used, sets.hit
    epoch = tally[EPOCH]
    for t in range(tokens):
        slot = order[t]
        if slot < 0:
            continue
        i = np.int64(slots[slot, SLOT_START])
        end = i + slots[slot, SLOT_COUNT]
        while i < end:
            region = np.int64(entry[i, REGION])
            number = max(region, ~region)
            gap = gaps[number]
            if gap >= 0.0 and reach_of(entry[i, REACH]) < gap:
                i += lists[i, NEXT] if region < 0 else 1
                continue
            if opened[number] != epoch:
                opened[number] = epoch
                tally[VISITED] += 1
                if region >= 0:
                    leaves[number, HEAD] = -1
                    open_leaf[used[OPEN_LEAVES]] = number
                    used[OPEN_LEAVES] += 1
            if region >= 0 and not add_hit(hit, leaves, used, i, number, 0):
                tally[SHORT] = 1
                return False
            i += 1
    tally[LEAVES] = used[OPEN_LEAVES]
    return True


@kernel
def prefetch_postings(index: Index, sets: SetScratch, first: Number) -> None:
    """Prefetch what is read next of all lists, from hit ``first`` on."""
    hit, lists, posting, more = sets.hit, index.stamp.list, index.stamp.posting, index.stamp.more
    count = sets.used[HITS]
    for h in range(first, count):
        if h + AHEAD < count:
            prefetch(lists, hit[h + AHEAD, HIT_ENTRY])
        start = np.int64(lists[hit[h, HIT_ENTRY], NEXT]) + hit[h, HIT_READ]
        prefetch(posting, start)
        prefetch(more, start)


@kernel
def collect_all(
    index: Index,
    messages: RankedMessages,
    message: Number,
    place: Place,
    scratch: MatchScratch,
    sets: SetScratch,
) -> Number:
    """Collect the candidates of the first set in all open leaves; return whether they fit."""
    prefetch_postings(index, sets, 0)
    stamp, codes, gaps, tally = index.stamp, index.codes, scratch.gap, scratch.tally
    posting, more, lists, hit = stamp.posting, stamp.more, stamp.list, sets.hit
    chosen, distances, position = sets.chosen, sets.distance, sets.position
    leaves, open_leaf, epoch = sets.leaf, sets.open_leaf, tally[EPOCH]
    used, accessed = np.int64(0), np.int64(0)
    for i in range(sets.used[OPEN_LEAVES]):
        leaf = open_leaf[i]
        gap, undecided = gaps[leaf], 0
        leaves[leaf, FIRST] = used
        h = leaves[leaf, HEAD]
        while h >= 0:
            at = hit[h, HIT_ENTRY]
            first = np.int64(lists[at, NEXT])
            last = first + (lists[at, MARKED] if gap >= 0.0 else lists[at, OWN_SET])
            j = first
            while j < last and reach_of(posting[j, POSTING_REACH]) >= gap:
                record, reach = posting[j, POSTING_RECORD], reach_of(posting[j, POSTING_REACH])
                alone, distance, where = reach_of(more[j, MORE_ALONE]), -1.0, position[record]
                is_new = where >= used or chosen[where, WHO] != record
                if not is_new and chosen[where, STATUS] == UNDECIDED:
                    # The second token that is shared: bounds of one token hold no longer.
                    chosen[where, STATUS] = TO_VERIFY
                if is_new and (alone < np.inf or reach < np.inf):
                    lon = np.float64(posting[j, POSTING_LON])
                    lat = np.float64(posting[j, POSTING_LAT])
                    is_new = not is_beyond(place, lon, lat, reach)
                    if is_new:
                        distance = distance_from(codes, place, messages, message, lon, lat)
                if is_new and distance <= reach:
                    if used == len(chosen):
                        tally[SHORT] = 1
                        return False
                    status = TO_VERIFY if distance <= alone else UNDECIDED
                    chosen[used, WHO], chosen[used, SHARED] = record, 1
                    chosen[used, INFO], chosen[used, STATUS] = more[j, MORE_INFO], status
                    distances[used], position[record] = distance, used
                    used += 1
                j += 1
            accessed += j - first
            hit[h, HIT_READ] = j - first
            h = hit[h, HIT_NEXT]
        for k in range(leaves[leaf, FIRST], used):
            if chosen[k, STATUS] == UNDECIDED:
                # A message inside has read all tokens of who has the first set only.
                if gap < 0.0 and (chosen[k, INFO] >> LAST_SHIFT) & SET_BITS == 0:
                    chosen[k, STATUS] = REFUSED
                else:
                    undecided += 1
        leaves[leaf, LAST] = used
        leaves[leaf, WANTED] = epoch if undecided > 0 else -1
    sets.used[CHOSEN] = used
    tally[ACCESSED] += accessed
    return True


@kernel
def use_further_sets(
    index: Index,
    known: Number,
    scratch: MatchScratch,
    sets: SetScratch,
    cost: NDArray[np.float64],
) -> Number:
    """Decide about candidates by the further sets, leaf by leaf; return whether all fits."""
    region, epoch = index.stamp.region, scratch.tally[EPOCH]
    leaves, open_leaf, chosen = sets.leaf, sets.open_leaf, sets.chosen
    wanted = 0
    for i in range(sets.used[OPEN_LEAVES]):
        leaf = open_leaf[i]
        if leaves[leaf, WANTED] == epoch:
            wanted += 1
            leaves[leaf, AT], leaves[leaf, HEAD] = leaves[leaf, HEAD], -1
            above = region[leaf, PARENT]
            while above >= 0:
                leaves[above, WANTED] = epoch
                above = region[above, PARENT]
    if wanted == 0:
        return True
    first = sets.used[HITS]
    if not find_lists(index, known, scratch, sets):
        scratch.tally[SHORT] = 1
        return False
    if not index.filters.by_cost:
        prefetch_postings(index, sets, first)
    for i in range(sets.used[OPEN_LEAVES]):
        leaf = open_leaf[i]
        if leaves[leaf, WANTED] != epoch:
            continue
        for current in range(1, SETS):
            if not worth_reading(index, leaf, current, sets, cost):
                break
            scratch.tally[SETS_USED] += 1
            read_set(index, leaf, current, scratch, sets)
        for j in range(leaves[leaf, FIRST], leaves[leaf, LAST]):
            if chosen[j, STATUS] == UNDECIDED:
                chosen[j, STATUS] = TO_VERIFY
    return True


@kernel
def find_lists(index: Index, known: Number, scratch: MatchScratch, sets: SetScratch) -> Number:
    """Find all lists of the message's tokens in leaves with undecided candidates.

    Also those that were not opened: their postings count as shared tokens. Return whether they fit.
    """
    stamp, epoch = index.stamp, scratch.tally[EPOCH]
    entry, lists, leaves, hit = stamp.entry, stamp.list, sets.leaf, sets.hit
    slots, order, used, set_end = stamp.slot, sets.order, sets.used, stamp.set_end
    for t in range(known):
        slot = order[t]
        if slot < 0:
            continue
        i = np.int64(slots[slot, SLOT_START])
        end = i + slots[slot, SLOT_COUNT]
        while i < end:
            region = np.int64(entry[i, REGION])
            if leaves[max(region, ~region), WANTED] != epoch:
                i += lists[i, NEXT] if region < 0 else 1
                continue
            if region >= 0:
                read, before = np.int64(0), leaves[region, AT]
                if before >= 0 and hit[before, HIT_ENTRY] == i:
                    read = hit[before, HIT_READ]
                    leaves[region, AT] = hit[before, HIT_NEXT]
                prefetch(set_end, i)
                if not add_hit(hit, leaves, used, i, region, read):
                    return False
            i += 1
    return True


@inlined_kernel
def worth_reading(
    index: Index, leaf: Number, current: Number, sets: SetScratch, cost: NDArray[np.float64]
) -> Number:
    """Tell whether a leaf should read a signature set rather than verify its candidates.

    ``cost`` float64[2] adds up what both would cost for the second set.
    """
    chosen, hit, set_end = sets.chosen, sets.hit, index.stamp.set_end
    undecided, verifying = 0, 0
    for j in range(sets.leaf[leaf, FIRST], sets.leaf[leaf, LAST]):
        if chosen[j, STATUS] == UNDECIDED:
            undecided += 1
            verifying += chosen[j, INFO] >> REMAINING_SHIFT
    if undecided == 0:
        return False
    postings = 0
    h = sets.leaf[leaf, HEAD]
    while h >= 0:
        at = hit[h, HIT_ENTRY]
        postings += set_end[at, current] - hit[h, HIT_READ]
        h = hit[h, HIT_NEXT]
    total = index.stamp.set_total[leaf, current]
    share: Number = min(1.0, postings / total) if total > 0 else 1.0
    filtering = postings + (verifying - undecided) * share
    if current == 1:
        cost[0] += verifying
        cost[1] += filtering
    return not index.filters.by_cost or filtering < verifying


@inlined_kernel
def read_set(
    index: Index, leaf: Number, current: Number, scratch: MatchScratch, sets: SetScratch
) -> None:
    """Read the lists of a leaf up to the end of a set; refuse who shares too few tokens."""
    stamp, hit, chosen = index.stamp, sets.hit, sets.chosen
    posting, more, used, accessed = stamp.posting, stamp.more, sets.used[CHOSEN], 0
    lists, set_end, position, distance = stamp.list, stamp.set_end, sets.position, sets.distance
    h = sets.leaf[leaf, HEAD]
    while h >= 0:
        at = hit[h, HIT_ENTRY]
        first = np.int64(lists[at, NEXT])
        end = np.int64(set_end[at, current])
        for j in range(first + hit[h, HIT_READ], first + end):
            accessed += 1
            record = posting[j, POSTING_RECORD]
            where = position[record]
            if where >= used or chosen[where, WHO] != record:
                continue
            if chosen[where, STATUS] != UNDECIDED:
                continue
            # A bound of a set holds only while no more tokens were shared than it allows for.
            if chosen[where, SHARED] > more[j, MORE_INFO] & SET_BITS:
                chosen[where, STATUS] = TO_VERIFY
            elif distance[where] > reach_of(posting[j, POSTING_REACH]):
                chosen[where, STATUS] = REFUSED
            elif distance[where] <= reach_of(more[j, MORE_ALONE]):
                chosen[where, STATUS] = TO_VERIFY
            else:
                chosen[where, SHARED] += 1
        hit[h, HIT_READ] = max(end, hit[h, HIT_READ])
        h = hit[h, HIT_NEXT]
    for j in range(sets.leaf[leaf, FIRST], sets.leaf[leaf, LAST]):
        if chosen[j, STATUS] == UNDECIDED:
            last_set = (chosen[j, INFO] >> LAST_SHIFT) & SET_BITS
            if chosen[j, SHARED] <= current or last_set <= current:
                chosen[j, STATUS] = REFUSED
    scratch.tally[ACCESSED] += accessed


@kernel
def score_chosen(
    index: Index,
    messages: RankedMessages,
    message: Number,
    place: Place,
    scratch: MatchScratch,
    sets: SetScratch,
    output: ScoredOutput,
    count: Number,
) -> Number:
    """Score the candidates that are left; return as `score_candidates` does."""
    chosen, candidate, tally = sets.chosen, scratch.candidate, scratch.tally
    distances, known_distance = scratch.distance, sets.distance
    waiting = np.int64(0)
    for j in range(sets.used[CHOSEN]):
        if chosen[j, STATUS] != TO_VERIFY:
            continue
        candidate[waiting, 0], candidate[waiting, 1] = chosen[j, WHO], -1
        distances[waiting] = known_distance[j]
        waiting += 1
        if waiting == len(candidate):
            tally[CANDIDATES] = waiting
            count = score_candidates(index, messages, message, place, scratch, output, count)
            if count == NO_ROOM:
                return count
            waiting = np.int64(0)
    tally[CANDIDATES] = waiting
    return score_candidates(index, messages, message, place, scratch, output, count)
