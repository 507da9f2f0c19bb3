"""Kernels that build ``stamp``: packed regions, records, and lists by token and region."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.indexes.stamp.bounds import Plan, border_distance_m, make_plan, plan_postings
from nearcast.indexes.stamp.layout import (
    CAPACITY,
    COUNT,
    DISTANCE,
    ELSEWHERE,
    ENTRIES,
    ENTRY_COLUMNS,
    FARTHEST,
    FIRST_CHILD,
    FIRST_MEMBER,
    LAST_CHILD,
    LAT,
    LON,
    LONG_TOKENS,
    MARKED,
    MEMBERS,
    MORE_ALONE,
    MORE_INFO,
    NEXT,
    NEXT_SIBLING,
    NO_MORE,
    OWN_SET,
    PARENT,
    POSTING_LAT,
    POSTING_LON,
    POSTING_REACH,
    POSTING_RECORD,
    POSTINGS,
    REACH,
    RECORD_TOKENS,
    RECORDS,
    REGION,
    REGION_COLUMNS,
    REGIONS,
    ROW,
    SET_BITS,
    SETS,
    SHARE,
    SLOT_CAPACITY,
    SLOT_COUNT,
    SLOT_START,
    SLOT_TOKEN,
    THRESHOLD,
    TOKEN,
    TOKENS,
    WEIGHT,
    Filters,
    StampArrays,
    aligned_records,
    as_float,
    claim_token,
    find_token,
    float_bits,
    move_slots,
    reach_of,
    table_size,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import RankedColumns, ScoringCodes

FANOUT = 16
"""Regions that lie in one region, as far as they are packed."""


class Packed(NamedTuple):
    """Regions as they were packed, and the rows in the order of their leaves."""

    box: NDArray[np.int32]
    region: NDArray[np.int32]
    order: NDArray[np.int64]


def pack_regions(place: NDArray[np.int32], rows: NDArray[np.int64], leaf: int) -> Packed:
    """Pack places into leaf regions of at most ``leaf`` of them, and those into larger regions.

    Every region is cut into slabs by longitude, and those by latitude (Leutenegger, Lopez,
    Edgington: STR, ICDE 1997), from the largest to the smallest. ``place`` int32[n, 2] is that of
    all rows, ``rows`` are those to pack. Regions are in preorder.
    """
    packing = _Packing(place, leaf)
    packing.add(rows, -1)
    order = np.concatenate(packing.order) if packing.order else np.empty(0, np.int64)
    box, region = np.array(packing.box, np.int32), np.array(packing.region, np.int32)
    return Packed(box.reshape(-1, 4), region.reshape(-1, REGION_COLUMNS), order)


class _Packing:
    """Regions, and the rows of every leaf, as they are added."""

    def __init__(self, place: NDArray[np.int32], leaf: int) -> None:
        self.place, self.leaf = place, leaf
        self.box: list[list[int]] = []
        self.region: list[list[int]] = []
        self.order: list[NDArray[np.int64]] = []
        self.records = 0

    def add(self, rows: NDArray[np.int64], parent: int) -> None:
        """Add the region of some rows, and all below it."""
        number = len(self.region)
        place = self.place[rows]
        extent = [*place.min(0).tolist(), *place.max(0).tolist()] if len(rows) else [0] * 4
        self.box.append(extent)
        self.region.append([parent, -1, -1, -1, 0, 0, -1])
        if parent >= 0:
            above = self.region[parent]
            if above[LAST_CHILD] < 0:
                above[FIRST_CHILD] = number
            else:
                self.region[above[LAST_CHILD]][NEXT_SIBLING] = number
            above[LAST_CHILD] = number
        if parent >= 0 and len(rows) <= self.leaf:
            self.order.append(rows)
            self.records += len(rows)
            if len(rows):
                self.region[number][MEMBERS] = len(rows)
                self.region[number][FIRST_MEMBER] = self.records - 1
            return
        size = self.leaf
        while size * FANOUT < len(rows):
            size *= FANOUT
        for part in _str_parts(self.place, rows, max(1, -(-len(rows) // size))):
            self.add(part, number)


def _str_parts(
    place: NDArray[np.int32], rows: NDArray[np.int64], parts: int
) -> list[NDArray[np.int64]]:
    """Cut rows into parts of nearly the same size: by longitude, then by latitude."""
    if parts == 1:
        return [rows]
    slabs = math.ceil(math.sqrt(parts))
    each = [parts // slabs + (i < parts % slabs) for i in range(slabs)]
    by_lon = rows[np.argsort(place[rows, 0], kind="stable")]
    ends = len(rows) * np.cumsum(each) // parts
    found = []
    for slab, count in zip(np.split(by_lon, ends[:-1]), each, strict=True):
        by_lat = slab[np.argsort(place[slab, 1], kind="stable")]
        found += np.array_split(by_lat, count)
    return found


def build_arrays(
    codes: ScoringCodes,
    rows: RankedColumns,
    live: NDArray[np.int64],
    filters: Filters,
    leaf: int,
) -> StampArrays:
    """Build the arrays of the index over some rows."""
    place = rows.box[rows.box_start[:-1], :2]
    packed = pack_regions(place, live, leaf if filters.regions else max(1, len(live)))
    order, regions = packed.order, len(packed.region)
    length = np.diff(rows.token_start)[order]
    long_tokens = int(length[length > RECORD_TOKENS].sum())
    state = np.zeros(8, np.int64)
    state[RECORDS], state[REGIONS] = len(order), regions
    records = StampArrays(
        record=aligned_records(len(order)),
        long_token=np.empty(long_tokens, np.int32),
        leaf=np.empty(len(order), np.int32),
        next_member=np.empty(len(order), np.int32),
        box=packed.box,
        region=packed.region,
        set_total=np.zeros((regions, SETS), np.int32),
        slot=np.full((table_size(1 << 10), 4), -1, np.int32),
        entry=np.empty((0, 2), np.int32),
        list=np.empty((0, ENTRY_COLUMNS), np.int32),
        set_end=np.empty((0, SETS), np.int32),
        posting=np.empty((0, 4), np.int32),
        more=np.empty((0, 2), np.int32),
        state=state,
    )
    fill_records(rows, order, 0, records)
    join_members(packed.region, records.leaf, records.next_member)
    return _with_lists(codes, rows, order, filters, records)


def _with_lists(
    codes: ScoringCodes,
    rows: RankedColumns,
    order: NDArray[np.int64],
    filters: Filters,
    stamp: StampArrays,
) -> StampArrays:
    """Return the arrays with the lists of all tokens."""
    length = np.diff(rows.token_start)[order]
    room = int(length.sum()) + len(order)
    plan = make_plan(int(length.max(initial=0)))
    flat = Flat(
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        np.empty((room if filters.sets else 0, 2), np.int32),
    )
    progress = np.zeros(2, np.int64)
    while not plan_all(codes, rows, order, filters, plan, stamp.slot, flat, progress):
        larger = np.full((2 * len(stamp.slot), 4), -1, np.int32)
        move_slots(stamp.slot, larger)
        stamp = stamp._replace(slot=larger)
    postings = int(progress[1])
    stamp.slot[:, SLOT_COUNT] = 0
    start = np.empty(len(stamp.slot) + 1, np.int64)
    stamp = stamp._replace(
        posting=np.empty((postings, 4), np.int32),
        more=np.empty((postings if filters.sets else 0, 2), np.int32),
    )
    runs = sort_by_token(flat, postings, stamp, start)
    end = np.empty(len(stamp.region), np.int32)
    levels = int(subtree_ends(stamp.region, end))
    entries = int(runs) + levels * (int(runs) // 2)
    stamp = stamp._replace(
        entry=np.empty((entries, 2), np.int32),
        list=np.empty((entries, ENTRY_COLUMNS), np.int32),
        set_end=np.empty((entries if filters.sets else 0, SETS), np.int32),
    )
    fill_lists(codes, filters, start, (end, levels), stamp)
    used = int(stamp.state[ENTRIES])
    stamp.state[POSTINGS] = postings
    set_end = stamp.set_end[:used] if filters.sets else stamp.set_end
    return stamp._replace(
        entry=stamp.entry[:used].copy(), list=stamp.list[:used].copy(), set_end=set_end.copy()
    )


class Flat(NamedTuple):
    """Postings as they come: token, record, bits of the reach, and the columns of ``more``."""

    token: NDArray[np.int32]
    record: NDArray[np.int32]
    reach: NDArray[np.int32]
    more: NDArray[np.int32]


class SortScratch(NamedTuple):
    """Scratch for sorting a list: keys int64[any], postings int32[any, 4], more int32[any, 2]."""

    key: NDArray[np.int64]
    posting: NDArray[np.int32]
    more: NDArray[np.int32]


@kernel
def fill_records(
    rows: RankedColumns, order: NDArray[np.int64], first: Number, stamp: StampArrays
) -> None:
    """Write the records of rows, from record ``first`` on."""
    rows, stamp = borrow(rows), borrow(stamp)
    record, state = stamp.record, stamp.state
    for i in range(len(order)):
        row, at = order[i], first + i
        place = rows.box_start[row]
        record[at, LON], record[at, LAT] = rows.box[place, 0], rows.box[place, 1]
        record[at, SHARE], record[at, THRESHOLD] = rows.text_share[row], rows.threshold[row]
        record[at, DISTANCE] = np.int32(np.uint32(rows.max_distance_cm[row]).view(np.int32))
        record[at, ROW] = row
        bits = np.float64(rows.text_weight[row]).view(np.int64)
        record[at, WEIGHT] = np.uint32(bits & np.int64(0xFFFFFFFF)).view(np.int32)
        record[at, WEIGHT + 1] = np.int32(bits >> np.int64(32))
        begin = rows.token_start[row]
        tokens = rows.token_start[row + 1] - begin
        for j in range(RECORD_TOKENS):
            record[at, TOKEN + j] = NO_MORE
        if tokens <= RECORD_TOKENS:
            for j in range(tokens):
                record[at, TOKEN + j] = rows.token[begin + j]
        else:
            start = state[LONG_TOKENS]
            for j in range(tokens):
                stamp.long_token[start + j] = rows.token[begin + j]
            state[LONG_TOKENS] = start + tokens
            record[at, TOKEN], record[at, TOKEN + 1] = start, tokens
            record[at, TOKEN + RECORD_TOKENS - 1] = ELSEWHERE


@kernel
def join_members(
    region: NDArray[np.int32], leaf: NDArray[np.int32], next_member: NDArray[np.int32]
) -> None:
    """Write the leaf of every record, and the chain of records of every leaf."""
    for r in range(len(region)):
        last = region[r, FIRST_MEMBER]
        first = last - region[r, MEMBERS] + 1
        if last >= 0:
            for i in range(first, last + 1):
                leaf[i], next_member[i] = r, i - 1
            next_member[first] = -1


@kernel
def plan_all(
    codes: ScoringCodes,
    rows: RankedColumns,
    order: NDArray[np.int64],
    filters: Filters,
    plan: Plan,
    slot: NDArray[np.int32],
    flat: Flat,
    progress: NDArray[np.int64],
) -> Number:
    """Write the postings of all records and give their tokens slots.

    ``progress`` int64[2] has the records and postings that are done. Return whether all are; if
    not, the table of slots is half full.
    """
    rows, plan, flat = borrow(rows), borrow(plan), borrow(flat)
    planned, reach, info, alone = plan.token, plan.reach, plan.info, plan.alone
    flat_token, flat_record, flat_reach, flat_more = flat
    tokens = 0
    for i in range(len(slot)):
        tokens += slot[i, SLOT_TOKEN] >= 0
    while progress[0] < len(order):
        at, record = progress[1], progress[0]
        count = plan_postings(codes, rows, order[record], filters.sets, plan)
        if 2 * (tokens + count) > len(slot):
            return False
        for i in range(count):
            token = planned[i]
            new = claim_token(slot, token)
            if slot[new, SLOT_CAPACITY] < 0:
                slot[new, SLOT_CAPACITY] = 0
                tokens += 1
            flat_token[at], flat_record[at] = token, record
            flat_reach[at] = float_bits(reach[i])
            if filters.sets:
                flat_more[at, MORE_INFO] = info[i]
                flat_more[at, MORE_ALONE] = float_bits(alone[i])
            at += 1
        progress[0], progress[1] = record + 1, at
    return True


@kernel
def sort_by_token(
    flat: Flat,
    postings: Number,
    stamp: StampArrays,
    start: NDArray[np.int64],
) -> Number:
    """Sort postings by the slots of their tokens; those of a token stay in order.

    ``start`` int64[slots + 1] is filled, and ``flat.token`` becomes slots. Return how often the
    token or the leaf changes.
    """
    flat, stamp = borrow(flat), borrow(stamp)
    slot, leaf, posting, more = stamp.slot, stamp.leaf, stamp.posting, stamp.more
    found, record, reach, flat_more = flat
    for i in range(postings):
        at = find_token(slot, found[i])
        found[i] = at
        slot[at, SLOT_COUNT] += 1
    start[0] = 0
    for i in range(len(slot)):
        start[i + 1] = start[i] + slot[i, SLOT_COUNT]
        slot[i, SLOT_COUNT] = 0
    for i in range(postings):
        at, who = found[i], record[i]
        target = start[at] + slot[at, SLOT_COUNT]
        slot[at, SLOT_COUNT] += 1
        posting[target, POSTING_RECORD], posting[target, POSTING_REACH] = who, reach[i]
        posting[target, POSTING_LON] = stamp.record[who, LON]
        posting[target, POSTING_LAT] = stamp.record[who, LAT]
        if len(more) > 0:
            more[target, MORE_INFO] = flat_more[i, MORE_INFO]
            more[target, MORE_ALONE] = flat_more[i, MORE_ALONE]
    runs = 0
    for at in range(len(slot)):
        before = -1
        for i in range(start[at], start[at + 1]):
            now = leaf[posting[i, POSTING_RECORD]]
            runs += now != before
            before = now
    return runs


@kernel
def subtree_ends(region: NDArray[np.int32], end: NDArray[np.int32]) -> Number:
    """Write the end of the regions below each one, which are in preorder; return the depth."""
    for r in range(len(region)):
        end[r] = r + 1
    for r in range(len(region) - 1, 0, -1):
        above = region[r, PARENT]
        end[above] = max(end[above], end[r])
    deepest = 0
    for r in range(len(region)):
        depth, above = 0, region[r, PARENT]
        while above >= 0:
            depth += 1
            above = region[above, PARENT]
        deepest = max(deepest, depth)
    return deepest


@kernel
def fill_lists(
    codes: ScoringCodes,
    filters: Filters,
    start: NDArray[np.int64],
    below: tuple[NDArray[np.int32], Number],
    stamp: StampArrays,
) -> None:
    """Write the entries of every token, in preorder of their regions, and sort their lists.

    ``start`` int64[slots + 1]: the postings of every slot. ``below``: the end of what is below each
    region, and the depth of the tree.
    """
    stamp = borrow(stamp)
    slot, entry, region, state = stamp.slot, stamp.entry, stamp.region, stamp.state
    posting, lists, leaf_of, box = stamp.posting, stamp.list, stamp.leaf, stamp.box
    end, depth = below
    open_entry, path = np.empty(depth + 1, np.int64), np.empty(depth + 1, np.int64)
    scratch = SortScratch(
        np.empty(len(posting) + 1, np.int64),
        np.empty((len(posting) + 1, 4), np.int32),
        np.empty((len(posting) + 1, 2), np.int32),
    )
    farthest, used = np.int32(0), 0
    for at in range(len(slot)):
        if slot[at, SLOT_TOKEN] < 0:
            continue
        slot[at, SLOT_START] = used
        opened, first, finish = 0, start[at], start[at + 1]
        while first < finish:
            leaf = leaf_of[posting[first, POSTING_RECORD]]
            last = first + 1
            while last < finish and leaf_of[posting[last, POSTING_RECORD]] == leaf:
                last += 1
            while opened > 0 and end[~entry[open_entry[opened - 1], REGION]] <= leaf:
                opened -= 1
                lists[open_entry[opened], NEXT] = used - open_entry[opened]
            # Open the regions around this leaf that the next one is in, too.
            top = 0 if opened == 0 else ~entry[open_entry[opened - 1], REGION]
            steps, above = 0, region[leaf, PARENT]
            while above > top:
                path[steps] = above
                steps += 1
                above = region[above, PARENT]
            after = len(region)
            if last < finish:
                after = leaf_of[posting[last, POSTING_RECORD]]
            while steps > 0 and after < end[path[steps - 1]]:
                steps -= 1
                new_entry(stamp, used, ~path[steps])
                open_entry[opened] = used
                opened += 1
                used += 1
            new_entry(stamp, used, leaf)
            sort_list(codes, filters, stamp, used, (first, last), scratch)
            for i in range(first, first + lists[used, OWN_SET]):
                bits = posting[i, POSTING_REACH]
                if bits > farthest and as_float(bits) < np.inf:
                    farthest = bits
                spot = posting[i, POSTING_LON], posting[i, POSTING_LAT]
                for j in range(opened):
                    over = open_entry[j]
                    if bits > entry[over, REACH] and is_marked(
                        codes, filters, box[~entry[over, REGION]], bits, spot
                    ):
                        entry[over, REACH] = bits
            used += 1
            first = last
        while opened > 0:
            opened -= 1
            lists[open_entry[opened], NEXT] = used - open_entry[opened]
        slot[at, SLOT_COUNT] = slot[at, SLOT_CAPACITY] = used - slot[at, SLOT_START]
    state[ENTRIES], state[FARTHEST] = used, farthest
    for at in range(len(slot)):
        state[TOKENS] += slot[at, SLOT_TOKEN] >= 0


@kernel
def new_entry(stamp: StampArrays, at: Number, region: Number) -> None:
    """Write an entry without postings."""
    for column in range(ENTRY_COLUMNS):
        stamp.list[at, column] = 0
    for c in range(SETS if len(stamp.set_end) else 0):
        stamp.set_end[at, c] = 0
    stamp.entry[at, REGION], stamp.entry[at, REACH] = region, float_bits(-1.0)


@kernel
def is_marked(
    codes: ScoringCodes,
    filters: Filters,
    box: NDArray[np.int32],
    bits: Number,
    place: tuple[Number, Number],
) -> Number:
    """Tell whether messages outside a region have to read a posting (region-aware prefix)."""
    reach = reach_of(bits)
    if not filters.marks or reach == np.inf:
        return True
    lon, lat = np.float64(place[0]), np.float64(place[1])
    return reach >= border_distance_m(codes, lon, lat, box)


@kernel
def sort_key(current: Number, marked: Number, bits: Number) -> Number:
    """Return what postings of a list are sorted by: set, unmarked last, largest reach first."""
    unmarked = np.int64(1) - np.int64(marked)
    key = (np.int64(current) << np.int64(33)) | (unmarked << np.int64(32))
    return key | (np.int64(0x7FFFFFFF) - np.int64(bits))


@kernel
def sort_list(
    codes: ScoringCodes,
    filters: Filters,
    stamp: StampArrays,
    at: Number,
    part: tuple[Number, Number],
    scratch: SortScratch,
) -> None:
    """Sort the postings of an entry, and write how many there are of each kind."""
    lists, posting, more, key = stamp.list, stamp.posting, stamp.more, scratch.key
    leaf, (first, last) = stamp.entry[at, REGION], part
    box = stamp.box[leaf]
    lists[at, NEXT] = first
    lists[at, COUNT] = lists[at, CAPACITY] = last - first
    marks, own, sorted_already = 0, 0, True
    for i in range(first, last):
        bits, spot = posting[i, POSTING_REACH], (posting[i, POSTING_LON], posting[i, POSTING_LAT])
        current = more[i, MORE_INFO] & SET_BITS if filters.sets else 0
        marked = current > 0 or is_marked(codes, filters, box, bits, spot)
        key[i - first] = sort_key(current, marked, bits)
        sorted_already = sorted_already and (i == first or key[i - first - 1] <= key[i - first])
        own += current == 0
        marks += current == 0 and marked
        if filters.sets:
            stamp.set_total[leaf, current] += 1
            for c in range(current, SETS):
                stamp.set_end[at, c] += 1
    if not sorted_already and filters.regions:
        order = np.argsort(key[: last - first])
        for i in range(last - first):
            for column in range(4):
                scratch.posting[i, column] = posting[first + i, column]
            if filters.sets:
                for column in range(2):
                    scratch.more[i, column] = more[first + i, column]
        for i in range(last - first):
            for column in range(4):
                posting[first + i, column] = scratch.posting[order[i], column]
            if filters.sets:
                for column in range(2):
                    more[first + i, column] = scratch.more[order[i], column]
    lists[at, OWN_SET], lists[at, MARKED] = own, marks
    if marks > 0:
        stamp.entry[at, REACH] = posting[first, POSTING_REACH]
