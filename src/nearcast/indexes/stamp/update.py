"""Kernels that change ``stamp`` in place: section VI-B of the paper.

A new subscription goes to the leaf region that has to grow least; regions around it grow, and its
postings raise reaches on the way. A region that only grows keeps its marks, which are then too
many. One that is split, or packed without its deleted members, gets all its lists again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.indexes.stamp.bounds import Plan, plan_postings
from nearcast.indexes.stamp.build import is_marked, new_entry
from nearcast.indexes.stamp.layout import (
    CAPACITY,
    COUNT,
    DELETED,
    ENTRIES,
    ENTRY_COLUMNS,
    FARTHEST,
    FIRST_CHILD,
    FIRST_MEMBER,
    LAT,
    LON,
    MARKED,
    MEMBERS,
    MORE_ALONE,
    MORE_INFO,
    NEXT,
    NEXT_SIBLING,
    OWN_SET,
    PARENT,
    POSTING_LAT,
    POSTING_LON,
    POSTING_REACH,
    POSTING_RECORD,
    POSTINGS,
    REACH,
    REGION,
    ROW,
    SET_BITS,
    SETS,
    SLOT_CAPACITY,
    SLOT_COUNT,
    SLOT_START,
    TOKENS,
    Filters,
    StampArrays,
    claim_token,
    find_token,
    float_bits,
    reach_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedColumns, ScoringCodes

DONE, NO_SLOTS, NO_ENTRIES, NO_POSTINGS, FULL_LEAF = range(5)
"""What a kernel that stopped before the end was short of."""

NEXT_RECORD, NEXT_POSTING, CHOSEN_LEAF, FULL = range(4)
"""Positions in ``progress``: what to go on with, and the leaf to split."""


@kernel
def choose_leaf(stamp: StampArrays, lon: Number, lat: Number) -> Number:
    """Return the leaf region that has to grow least to take a place; all around it grow."""
    region, box = stamp.region, stamp.box
    at = np.int64(0)
    while region[at, FIRST_CHILD] >= 0:
        grow_box(box[at], lon, lat)
        child, best = np.int64(region[at, FIRST_CHILD]), np.int64(-1)
        least, least_edge = np.inf, np.inf
        while child >= 0:
            west, south = np.float64(box[child, 0]), np.float64(box[child, 1])
            east, north = np.float64(box[child, 2]), np.float64(box[child, 3])
            wide = max(east, np.float64(lon)) - min(west, np.float64(lon))
            high = max(north, np.float64(lat)) - min(south, np.float64(lat))
            growth = wide * high - (east - west) * (north - south)
            edge = wide + high - (east - west) - (north - south)
            if growth < least or (growth == least and edge < least_edge):
                best, least, least_edge = child, growth, edge
            child = np.int64(region[child, NEXT_SIBLING])
        at = best
    if region[at, MEMBERS] == 0:
        box[at, 0], box[at, 1], box[at, 2], box[at, 3] = lon, lat, lon, lat
    grow_box(box[at], lon, lat)
    return at


@kernel
def grow_box(box: NDArray[np.int32], lon: Number, lat: Number) -> None:
    """Let a box contain a place."""
    box[0], box[1] = min(box[0], lon), min(box[1], lat)
    box[2], box[3] = max(box[2], lon), max(box[3], lat)


@kernel
def join_leaf(stamp: StampArrays, leaf: Number, record: Number) -> None:
    """Make a record, later than all others of the leaf, its first member."""
    stamp.leaf[record] = leaf
    stamp.next_member[record] = stamp.region[leaf, FIRST_MEMBER]
    stamp.region[leaf, FIRST_MEMBER] = record
    stamp.region[leaf, MEMBERS] += 1


@kernel
def insert_records(
    codes: ScoringCodes,
    filters: Filters,
    rows: RankedColumns,
    stamp: StampArrays,
    limits: tuple[Number, Number],
    plan: Plan,
    progress: NDArray[np.int64],
) -> Number:
    """Put new records into leaf regions and lists, from ``progress[NEXT_RECORD]`` on.

    ``limits``: the last record (excluded), and the most members of a leaf. Return `DONE`, or what
    has to be done before this is called again.
    """
    rows, stamp, plan = borrow(rows), borrow(stamp), borrow(plan)
    while progress[NEXT_RECORD] < limits[0]:
        record = progress[NEXT_RECORD]
        if progress[CHOSEN_LEAF] < 0:
            lon, lat = stamp.record[record, LON], stamp.record[record, LAT]
            progress[CHOSEN_LEAF] = choose_leaf(stamp, lon, lat)
            progress[NEXT_POSTING] = 0
            join_leaf(stamp, progress[CHOSEN_LEAF], record)
        status = add_postings(codes, filters, rows, stamp, record, plan, progress)
        if status != DONE:
            return status
        leaf = progress[CHOSEN_LEAF]
        progress[NEXT_RECORD], progress[CHOSEN_LEAF] = record + 1, -1
        if filters.regions and stamp.region[leaf, MEMBERS] > limits[1]:
            progress[FULL] = leaf
            return FULL_LEAF
    return DONE


@kernel
def add_records(
    codes: ScoringCodes,
    filters: Filters,
    rows: RankedColumns,
    stamp: StampArrays,
    records: NDArray[np.int64],
    plan: Plan,
    progress: NDArray[np.int64],
) -> Number:
    """Put records, whose leaves are known, into lists; return as `insert_records` does."""
    rows, stamp, plan = borrow(rows), borrow(stamp), borrow(plan)
    while progress[NEXT_RECORD] < len(records):
        record = records[progress[NEXT_RECORD]]
        status = add_postings(codes, filters, rows, stamp, record, plan, progress)
        if status != DONE:
            return status
        progress[NEXT_RECORD] += 1
        progress[NEXT_POSTING] = 0
    return DONE


@kernel
def add_postings(
    codes: ScoringCodes,
    filters: Filters,
    rows: RankedColumns,
    stamp: StampArrays,
    record: Number,
    plan: Plan,
    progress: NDArray[np.int64],
) -> Number:
    """Put the postings of a record into lists, from ``progress[NEXT_POSTING]`` on."""
    count = plan_postings(codes, rows, stamp.record[record, ROW], filters.sets, plan)
    while progress[NEXT_POSTING] < count:
        status = add_posting(codes, filters, stamp, record, plan, progress[NEXT_POSTING])
        if status != DONE:
            return status
        progress[NEXT_POSTING] += 1
    return DONE


@kernel
def is_around(region: NDArray[np.int32], inner: Number, leaf: Number) -> Number:
    """Tell whether a leaf lies below an inner region."""
    above = region[leaf, PARENT]
    while above > inner:
        above = region[above, PARENT]
    return above == inner


@kernel
def add_posting(
    codes: ScoringCodes,
    filters: Filters,
    stamp: StampArrays,
    record: Number,
    plan: Plan,
    which: Number,
) -> Number:
    """Put one posting of a record into the list of its token and its leaf.

    Nothing is put twice if this is called again after it was short of something.
    """
    slot, state, leaf = stamp.slot, stamp.state, stamp.leaf[record]
    token, bits, info = plan.token[which], float_bits(plan.reach[which]), plan.info[which]
    spot = stamp.record[record, LON], stamp.record[record, LAT]
    at = find_token(slot, token)
    if at < 0:
        if 2 * (state[TOKENS] + 1) > len(slot):
            return NO_SLOTS
        at = claim_token(slot, token)
        slot[at, SLOT_START] = slot[at, SLOT_COUNT] = slot[at, SLOT_CAPACITY] = 0
        state[TOKENS] += 1
    own = info & SET_BITS == 0
    if own:
        raise_entries(codes, filters, stamp, at, leaf, bits, spot)
        if reach_of(bits) < np.inf:
            state[FARTHEST] = max(state[FARTHEST], np.int64(bits))
    entry, lists = find_entry(stamp, at, leaf), stamp.list
    if entry < 0:
        full = slot[at, SLOT_COUNT] == slot[at, SLOT_CAPACITY]
        if full and not enlarge_directory(stamp, at):
            return NO_ENTRIES
        entry = claim_entry(stamp, at, leaf)
    if lists[entry, COUNT] == lists[entry, CAPACITY] and not enlarge_list(stamp, entry):
        return NO_POSTINGS
    marked = own and is_marked(codes, filters, stamp.box[leaf], bits, spot)
    target = open_gap(filters, stamp, entry, info & SET_BITS, marked, bits)
    posting = stamp.posting
    posting[target, POSTING_RECORD], posting[target, POSTING_REACH] = record, bits
    posting[target, POSTING_LON], posting[target, POSTING_LAT] = spot
    if len(stamp.more) > 0:
        stamp.more[target, MORE_INFO] = info
        stamp.more[target, MORE_ALONE] = float_bits(plan.alone[which])
        stamp.set_total[leaf, info & SET_BITS] += 1
    if marked:
        stamp.entry[entry, REACH] = max(stamp.entry[entry, REACH], bits)
    return DONE


@kernel
def raise_entries(
    codes: ScoringCodes,
    filters: Filters,
    stamp: StampArrays,
    at: Number,
    leaf: Number,
    bits: Number,
    spot: tuple[Number, Number],
) -> None:
    """Let the entries of the regions around a leaf reach as far as a new posting."""
    entry, lists = stamp.entry, stamp.list
    i = np.int64(stamp.slot[at, SLOT_START])
    end = i + stamp.slot[at, SLOT_COUNT]
    while i < end:
        region = np.int64(entry[i, REGION])
        if region >= 0:
            i += 1
        elif is_around(stamp.region, ~region, leaf):
            if bits > entry[i, REACH] and is_marked(codes, filters, stamp.box[~region], bits, spot):
                entry[i, REACH] = bits
            end = i + lists[i, NEXT]
            i += 1
        else:
            i += lists[i, NEXT]


@kernel
def find_entry(stamp: StampArrays, at: Number, leaf: Number) -> Number:
    """Return the entry of a leaf among those of a slot; if there is none, ``~`` of its place."""
    entry, lists = stamp.entry, stamp.list
    i = np.int64(stamp.slot[at, SLOT_START])
    end = i + stamp.slot[at, SLOT_COUNT]
    while i < end:
        region = np.int64(entry[i, REGION])
        if region == leaf:
            return i
        if region >= 0:
            i += 1
        elif is_around(stamp.region, ~region, leaf):
            end = i + lists[i, NEXT]
            i += 1
        else:
            i += lists[i, NEXT]
    return ~end


@kernel
def claim_entry(stamp: StampArrays, at: Number, leaf: Number) -> Number:
    """Return a new entry, without postings, of a leaf that has none; there must be room."""
    place, entry, lists = ~find_entry(stamp, at, leaf), stamp.entry, stamp.list
    start = np.int64(stamp.slot[at, SLOT_START])
    # The regions around the leaf get one entry more below them.
    i, end = start, start + np.int64(stamp.slot[at, SLOT_COUNT])
    while i < end and i < place:
        region = np.int64(entry[i, REGION])
        if region >= 0:
            i += 1
        elif is_around(stamp.region, ~region, leaf):
            end = i + lists[i, NEXT]
            lists[i, NEXT] += 1
            i += 1
        else:
            i += lists[i, NEXT]
    for j in range(start + stamp.slot[at, SLOT_COUNT], place, -1):
        copy_entry(stamp, j - 1, j)
    new_entry(stamp, place, leaf)
    stamp.slot[at, SLOT_COUNT] += 1
    return place


@kernel
def copy_entry(stamp: StampArrays, source: Number, target: Number) -> None:
    """Copy an entry."""
    for column in range(2):
        stamp.entry[target, column] = stamp.entry[source, column]
    for column in range(ENTRY_COLUMNS):
        stamp.list[target, column] = stamp.list[source, column]
    for c in range(SETS if len(stamp.set_end) else 0):
        stamp.set_end[target, c] = stamp.set_end[source, c]


@kernel
def enlarge_directory(stamp: StampArrays, at: Number) -> Number:
    """Move the entries of a slot to where there is room for more; return whether there is."""
    slot, state = stamp.slot, stamp.state
    count = slot[at, SLOT_COUNT]
    capacity, start = count + (count >> 1) + 2, state[ENTRIES]
    if start + capacity > len(stamp.entry):
        return False
    for i in range(count):
        copy_entry(stamp, slot[at, SLOT_START] + i, start + i)
    slot[at, SLOT_START], slot[at, SLOT_CAPACITY] = start, capacity
    state[ENTRIES] = start + capacity
    for i in range(start + count, start + capacity):
        new_entry(stamp, i, 0)
    return True


@kernel
def copy_posting(stamp: StampArrays, source: Number, target: Number) -> None:
    """Copy a posting."""
    for column in range(4):
        stamp.posting[target, column] = stamp.posting[source, column]
    if len(stamp.more) > 0:
        stamp.more[target, MORE_INFO] = stamp.more[source, MORE_INFO]
        stamp.more[target, MORE_ALONE] = stamp.more[source, MORE_ALONE]


@kernel
def enlarge_list(stamp: StampArrays, entry: Number) -> Number:
    """Move a list to where there is room for more; return whether there is."""
    lists, state = stamp.list, stamp.state
    count = lists[entry, COUNT]
    capacity, start = count + (count >> 1) + 2, state[POSTINGS]
    if start + capacity > len(stamp.posting):
        return False
    for i in range(count):
        copy_posting(stamp, lists[entry, NEXT] + i, start + i)
    for i in range(start + count, start + capacity):
        stamp.posting[i] = 0
    lists[entry, NEXT], lists[entry, CAPACITY] = start, capacity
    state[POSTINGS] = start + capacity
    return True


@kernel
def open_gap(
    filters: Filters,
    stamp: StampArrays,
    entry: Number,
    current: Number,
    marked: Number,
    bits: Number,
) -> Number:
    """Return where a posting of a set belongs in a list that has room; later ones move."""
    lists, posting = stamp.list, stamp.posting
    first = np.int64(lists[entry, NEXT])
    begin, end = np.int64(0), np.int64(lists[entry, MARKED])
    if current > 0:
        begin = np.int64(stamp.set_end[entry, current - 1])
        end = np.int64(stamp.set_end[entry, current])
    elif not marked:
        begin, end = end, np.int64(lists[entry, OWN_SET])
    if filters.regions:
        # The largest reach comes first; a message stops at one that is too short.
        while begin < end:
            middle = (begin + end) >> 1
            if posting[first + middle, POSTING_REACH] >= bits:
                begin = middle + 1
            else:
                end = middle
    target = first + end
    for i in range(first + lists[entry, COUNT], target, -1):
        copy_posting(stamp, i - 1, i)
    lists[entry, COUNT] += 1
    lists[entry, OWN_SET] += current == 0
    lists[entry, MARKED] += current == 0 and marked
    for c in range(current, SETS if len(stamp.set_end) else 0):
        stamp.set_end[entry, c] += 1
    return target


@kernel
def members_of(stamp: StampArrays, leaf: Number, found: NDArray[np.int64]) -> None:
    """Write the records of a leaf, deleted ones among them; the earliest first."""
    at, record = len(found), stamp.region[leaf, FIRST_MEMBER]
    while record >= 0 and at > 0:
        at -= 1
        found[at] = record
        record = stamp.next_member[record]


@kernel
def clear_leaf(
    codes: ScoringCodes,
    filters: Filters,
    rows: RankedColumns,
    stamp: StampArrays,
    leaf: Number,
    members: NDArray[np.int64],
    plan: Plan,
) -> None:
    """Empty all lists of a leaf, and drop its members."""
    rows, stamp, plan = borrow(rows), borrow(stamp), borrow(plan)
    for i in range(len(members)):
        record = members[i]
        stamp.leaf[record], stamp.next_member[record] = -1, -1
        count = plan_postings(codes, rows, stamp.record[record, ROW], filters.sets, plan)
        for j in range(count):
            at = find_token(stamp.slot, plan.token[j])
            if at < 0:
                continue
            entry = find_entry(stamp, at, leaf)
            if entry >= 0:
                stamp.entry[entry, REACH] = float_bits(-1.0)
                stamp.list[entry, MARKED] = stamp.list[entry, OWN_SET] = 0
                stamp.list[entry, COUNT] = 0
                for c in range(SETS if len(stamp.set_end) else 0):
                    stamp.set_end[entry, c] = 0
    stamp.region[leaf, MEMBERS] = stamp.region[leaf, DELETED] = 0
    stamp.region[leaf, FIRST_MEMBER] = -1
    for c in range(SETS):
        stamp.set_total[leaf, c] = 0


@kernel
def settle_leaf(stamp: StampArrays, leaf: Number, records: NDArray[np.int64]) -> None:
    """Give an empty leaf members, the earliest first, and the box around them."""
    for i in range(len(records)):
        record = records[i]
        lon, lat = stamp.record[record, LON], stamp.record[record, LAT]
        if i == 0:
            box = stamp.box[leaf]
            box[0], box[1], box[2], box[3] = lon, lat, lon, lat
        grow_box(stamp.box[leaf], lon, lat)
        join_leaf(stamp, leaf, record)
