"""Compare lists of living messages with the boxes of clauses before and after they move.

A clause and a list of messages (or a single one) that it may gain or lose are an *item*. An index
collects items, whatever it is made of, and this module writes what changes: sixteen points at a
time, then life, then tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel, lowest_bit, prefetch
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.simd_points import crossing_points
from nearcast.indexes.moving.contract import BEGINS, ENDS
from nearcast.indexes.moving.entries import SIGNATURE, EntryArrays
from nearcast.indexes.moving.lists import ListArrays, capacity_of, size_of, start_of
from nearcast.indexes.moving.living import FIRST, LivingArrays, X, Y, is_alive
from nearcast.indexes.moving.living import SIGNATURE as MESSAGE_SIGNATURE
from nearcast.indexes.moving.ranges import Shifted, has_tokens
from nearcast.indexes.moving.tables import VALUE as SLOT_VALUE
from nearcast.indexes.moving.tables import find_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

POSITION, VALUE, SIGNS, ITEM_KEY, ITEM_WIDTH = range(5)
"""Columns of ``item``: which of the clauses; the number of a list, or the complement of a stamp; a
bit for each sign that is wanted (1: begins, 2: ends); and the key, if the item is not resolved."""

BOTH_SIGNS, ONLY_BEGINS, ONLY_ENDS = 3, 1, 2

UNRESOLVED = 4
"""A bit beside the signs: the value is the owner of a table that is still to be looked up."""

STAMP, SIGN = 1, 2
"""Columns of ``candidate`` after `POSITION`."""

FOUND, CURRENT, BEFORE_CURRENT, EXAMINED, VISITED = range(5)
"""Items of ``counters``: changes so far, the clause at hand, and the changes before it; candidates
and lists."""

_ITEMS = 512
_CANDIDATES = 512
_NONE, _ONE, _LOW = np.uint64(0), np.uint64(1), np.uint64((1 << LANES) - 1)
_LANES = np.uint64(LANES)


class ShiftScratch(NamedTuple):
    """Scratch space for clauses that move.

    - ``item`` int64[many, 4]: lists to compare, by clause.
    - ``candidate`` int64[many, 3]: messages to verify, by clause.
    - ``counters`` int64[5]: see `FOUND`.
    """

    item: NDArray[np.int64]
    candidate: NDArray[np.int64]
    counters: NDArray[np.int64]


class Moved(NamedTuple):
    """Entries, and their boxes before and after."""

    entry: NDArray[np.int32]
    before: NDArray[np.int32]
    after: NDArray[np.int32]


def new_shift_scratch() -> ShiftScratch:
    """Return scratch space for clauses that move."""
    return ShiftScratch(
        np.empty((_ITEMS, ITEM_WIDTH), np.int64),
        np.empty((_CANDIDATES, 3), np.int64),
        np.zeros(5, np.int64),
    )


def collect_changes(
    shift: Callable[[int, Shifted], int], count: int, scratch: ShiftScratch
) -> Shifted:
    """Return all changes that a kernel writes, which starts again where the output was full.

    ``shift`` takes the clause at which to begin and the output, and returns the first of ``count``
    clauses whose changes did not fit.
    """
    counters = scratch.counters
    counters[:] = 0
    output, begin = Shifted.with_capacity(1024 + 4 * count), 0
    while True:
        counters[CURRENT] = -1
        begin = int(shift(begin, output))
        if begin == count:
            return output.first(int(counters[FOUND]))
        output = output.doubled()
        counters[FOUND] = counters[BEFORE_CURRENT]


@kernel
def contains_point(box: NDArray[np.int32], x: Number, y: Number) -> Number:
    """Tell whether a box contains a point."""
    return (box[0] <= x) & (x <= box[2]) & (box[1] <= y) & (y <= box[3])


@kernel
def verify(
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    scratch: ShiftScratch,
    count: Number,
    output: Shifted,
) -> Number:
    """Write the candidates that have all tokens; return whether they fit."""
    candidate, counters = scratch.candidate, scratch.counters
    counters[EXAMINED] += count
    left = np.int64(0)
    for i in range(count):
        stamp = candidate[i, STAMP]
        wanted = entries.record[moved.entry[candidate[i, POSITION]], SIGNATURE]
        if (wanted & living.record[stamp, MESSAGE_SIGNATURE]) == wanted:
            prefetch(living.pool, np.int64(living.record[stamp, FIRST]))
            for column in range(3):
                candidate[left, column] = candidate[i, column]
            left += 1
    found = counters[FOUND]
    for i in range(left):
        position, stamp = candidate[i, POSITION], candidate[i, STAMP]
        if position != counters[CURRENT]:
            counters[CURRENT], counters[BEFORE_CURRENT] = position, found
        if not has_tokens(entries, moved.entry[position], living, stamp):
            continue
        if found == len(output.stamp):
            return False
        output.position[found], output.stamp[found] = position, stamp
        output.sign[found] = candidate[i, SIGN]
        found += 1
    counters[FOUND] = found
    return True


@kernel
def resolve_items(
    slot: NDArray[np.int32],
    header: NDArray[np.int32],
    column: Number,
    item: NDArray[np.int64],
    count: Number,
) -> Number:
    """Look up the items that are not resolved; return how many items are left."""
    kept = np.int64(0)
    for i in range(count):
        value, signs = item[i, VALUE], item[i, SIGNS]
        if signs & UNRESOLVED:
            at = find_key(slot, header, value, column, item[i, ITEM_KEY])
            if at < 0:
                continue
            value = np.int64(slot[at, SLOT_VALUE])
        item[kept, POSITION], item[kept, VALUE] = item[i, POSITION], value
        item[kept, SIGNS] = signs & BOTH_SIGNS
        kept += 1
    return kept


@inlined_kernel
def prefetch_items(
    lists: ListArrays, living: LivingArrays, item: NDArray[np.int64], count: Number
) -> None:
    """Prefetch the points of all items."""
    for i in range(count):
        value = item[i, VALUE]
        if value < 0:
            prefetch(living.record, ~value)
        else:
            prefetch(lists.head, value)
    for i in range(count):
        value = item[i, VALUE]
        if value >= 0:
            prefetch(lists.pool, start_of(lists, value))
            prefetch(lists.pool, start_of(lists, value) + capacity_of(lists, value))


@kernel
def compare_items(
    lists: ListArrays,
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    scratch: ShiftScratch,
    count: Number,
    output: Shifted,
) -> Number:
    """Write what changes in the lists of all items; return whether all fit.

    An item may also be a single message; both are prefetched here.
    """
    item, candidate = scratch.item, scratch.candidate
    prefetch_items(lists, living, item, count)
    scratch.counters[VISITED] += count
    candidates = np.int64(0)
    for i in range(count):
        position, value = item[i, POSITION], item[i, VALUE]
        before, after = moved.before[position], moved.after[position]
        first, last = np.int64(0), np.int64(1) if value < 0 else size_of(lists, value)
        while first < last:
            if candidates + LANES > len(candidate):
                if not verify(entries, living, moved, scratch, candidates, output):
                    return False
                candidates = np.int64(0)
            if value < 0:
                x, y = living.record[~value, X], living.record[~value, Y]
                sign = np.int64(contains_point(after, x, y)) - np.int64(
                    contains_point(before, x, y)
                )
                wanted = (sign > 0 and item[i, SIGNS] & 1) or (sign < 0 and item[i, SIGNS] & 2)
                candidate[candidates, POSITION] = position
                candidate[candidates, STAMP], candidate[candidates, SIGN] = ~value, sign
                candidates += np.int64(wanted and is_alive(living.alive, ~value))
                break
            capacity = capacity_of(lists, value)
            at = start_of(lists, value) + first
            crossing = crossing_points(lists.pool, at, capacity, before, after)
            begins = crossing & _LOW if item[i, SIGNS] & 1 else _NONE
            either = begins | (crossing >> _LANES if item[i, SIGNS] & 2 else _NONE)
            if last - first < LANES:
                either &= (_ONE << np.uint64(last - first)) - _ONE
            while either != _NONE:
                lane = lowest_bit(either)
                either &= either - _ONE
                stamp = np.int64(lists.pool[at + 2 * capacity + lane])
                if is_alive(living.alive, stamp):
                    prefetch(living.record, stamp)
                    candidate[candidates, POSITION] = position
                    candidate[candidates, STAMP] = stamp
                    new = (begins >> np.uint64(lane)) & _ONE
                    candidate[candidates, SIGN] = BEGINS if new else ENDS
                    candidates += 1
            first += LANES
    return verify(entries, living, moved, scratch, candidates, output)
