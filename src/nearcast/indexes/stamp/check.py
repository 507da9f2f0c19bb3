"""Whether arrays that come from disk are sound: kernels do not check bounds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.damage import require
from nearcast.indexes.stamp.layout import (
    CAPACITY,
    CHANGES,
    COUNT,
    DELETED,
    ELSEWHERE,
    ENTRIES,
    ENTRY_COLUMNS,
    FARTHEST,
    FIRST_CHILD,
    FIRST_MEMBER,
    GROUPS,
    LAST_CHILD,
    LONG_TOKENS,
    MARKED,
    MEMBERS,
    NEXT,
    NEXT_SIBLING,
    OWN_SET,
    PARENT,
    POSTING_RECORD,
    POSTINGS,
    RECORD_TOKENS,
    RECORDS,
    REGION,
    REGION_COLUMNS,
    ROW,
    SETS,
    SLOT_CAPACITY,
    SLOT_COUNT,
    SLOT_START,
    SLOT_TOKEN,
    TOKEN,
    TOKENS,
    USED,
    Filters,
    StampArrays,
    find_token,
    trimmed,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_require = partial(require, "stamp")

_COLUMNS = {
    "record": (16,),
    "long_token": (),
    "leaf": (),
    "next_member": (),
    "box": (4,),
    "region": (REGION_COLUMNS,),
    "set_total": (SETS,),
    "slot": (4,),
    "entry": (2,),
    "list": (ENTRY_COLUMNS,),
    "set_end": (SETS,),
    "posting": (4,),
    "more": (2,),
    "state": (),
}


def check_arrays(stamp: StampArrays, filters: Filters, alive: NDArray[np.bool_], rows: int) -> None:
    """Raise `StorageError` unless kernels can follow the arrays of an index safely."""
    for name, array in stamp._asdict().items():
        shape = _COLUMNS[name]
        _require(array.shape[1:] == shape, f"{name} has the shape {array.shape}")
    _require(len(stamp.state) == 8, f"state has {len(stamp.state)} values, expected 8")
    _require((stamp.state >= 0).all(), "state has a negative value")
    _require(
        stamp.state[[FARTHEST, CHANGES]].max() < 1 << 31, "state has a value that is too large"
    )
    for name, members in GROUPS.items():
        used = int(stamp.state[USED[name]])
        for member in members:
            if filters.sets or member not in ("set_end", "more"):
                length = len(getattr(stamp, member))
                _require(length >= used, f"{member} has {length} rows, expected {used}")
    stamp = trimmed(stamp)
    _check_records(stamp, alive, rows)
    _check_regions(stamp)
    _check_slots(stamp)
    _check_lists(stamp, filters)


def _check_records(stamp: StampArrays, alive: NDArray[np.bool_], rows: int) -> None:
    """Every record has a row of its own, every live row a record, and tokens are in range."""
    _require(alive.shape == (rows,), f"alive has the shape {alive.shape}, expected ({rows},)")
    row = stamp.record[:, ROW]
    _require(_within(row, 0, rows), "record has a row that does not exist")
    count = np.bincount(row, minlength=rows)
    _require((count <= 1).all() and count[alive].all(), "record has a row twice, or lacks one")
    outside = np.flatnonzero(stamp.leaf < 0)
    _require(not alive[row[outside]].any(), "leaf has none for a row that is alive")
    distant = stamp.record[:, TOKEN + RECORD_TOKENS - 1] == ELSEWHERE
    start = stamp.record[distant, TOKEN].astype(np.int64)
    length = stamp.record[distant, TOKEN + 1].astype(np.int64)
    end = int(stamp.state[LONG_TOKENS])
    sound = (start >= 0) & (length >= 0) & (start + length <= end)
    _require(sound.all(), "record has tokens beyond the end of long_token")


def _check_regions(stamp: StampArrays) -> None:
    """Regions are a tree, and the members of leaves are chained as their records say."""
    region = stamp.region.astype(np.int64)
    count = len(region)
    _require(count >= 2 and region[0, PARENT] == -1, "region has no root with a leaf below it")
    parent = region[1:, PARENT]
    _require(
        ((parent >= 0) & (parent < np.arange(1, count))).all(), "region has no tree of regions"
    )
    below = _chains(parent, count)
    for column, expected in zip((FIRST_CHILD, LAST_CHILD), below[:2], strict=True):
        # Positions are those of regions without the root.
        found = np.where(expected >= 0, expected + 1, -1)
        _require((region[:, column] == found).all(), "region has children that are not its own")
    after = np.where(below[2] >= 0, below[2] + 1, -1)
    _require((region[1:, NEXT_SIBLING] == after).all(), "region has siblings that are not its own")
    leaf = stamp.leaf.astype(np.int64)
    is_leaf = region[:, FIRST_CHILD] < 0
    _require(_within(leaf, -1, count) and is_leaf[leaf[leaf >= 0]].all(), "leaf has no leaf region")
    members = np.bincount(leaf[leaf >= 0], minlength=count)
    _require((region[:, MEMBERS] == members).all(), "region has a wrong number of members")
    deleted = region[:, DELETED]
    _require(((deleted >= 0) & (deleted <= members)).all(), "region has too many deleted members")
    joined = np.flatnonzero(leaf >= 0)
    _first, last, after = _chains(leaf[joined], count)
    newest = np.where(last >= 0, joined[last] if len(joined) else -1, -1)
    _require((region[:, FIRST_MEMBER] == newest).all(), "region has a wrong first member")
    expected = np.full(len(leaf), -1)
    has_next = after >= 0
    expected[joined[after[has_next]]] = joined[has_next]
    _require((stamp.next_member == expected).all(), "next_member leads to another leaf")


def _chains(owner: NDArray[np.int64], owners: int) -> tuple[NDArray[Any], ...]:
    """Return the first and last position of every owner, and the next of the same owner."""
    order = np.argsort(owner, kind="stable")
    ordered = owner[order]
    after = np.full(len(owner), -1)
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    after[order[same]] = order[same + 1]
    first, last = np.full(owners, -1), np.full(owners, -1)
    last[ordered] = order
    first[ordered[::-1]] = order[::-1]
    return first, last, after


def _check_slots(stamp: StampArrays) -> None:
    """Every token is where a search finds it, and its entries belong to no other."""
    slot, size = stamp.slot.astype(np.int64), len(stamp.slot)
    _require(size >= 8 and size & (size - 1) == 0, f"slot has {size} rows, no power of two")
    used = np.flatnonzero(slot[:, SLOT_TOKEN] >= 0)
    _require((slot[:, SLOT_TOKEN] >= -1).all(), "slot has a token below -1")
    tokens = int(stamp.state[TOKENS])
    _require(len(used) == tokens and 2 * tokens <= size, f"slot has {len(used)} tokens")
    _require(tokens_are_found(stamp.slot), "slot has a token that is not found")
    start, count, capacity = slot[used][:, [SLOT_START, SLOT_COUNT, SLOT_CAPACITY]].T
    sound = (start >= 0) & (count >= 0) & (count <= capacity)
    _require(sound.all(), "slot has no valid range of entries")
    _require_apart(start, capacity, int(stamp.state[ENTRIES]), "slot", "entry")


def _require_apart(
    start: NDArray[np.int64], capacity: NDArray[np.int64], end: int, name: str, content: str
) -> None:
    """Raise unless ranges lie in an array and do not overlap."""
    start, capacity = start[capacity > 0], capacity[capacity > 0]
    order = np.argsort(start)
    begin, finish = start[order], (start + capacity)[order]
    apart = (finish[:-1] <= begin[1:]).all() and (not len(finish) or finish[-1] <= end)
    _require(apart, f"{name} has ranges of {content} that overlap or are beyond its end")


def _check_lists(stamp: StampArrays, filters: Filters) -> None:
    """Entries are nested as their regions are, and lists are ranges of postings."""
    is_leaf = stamp.region[:, FIRST_CHILD] < 0
    kind = np.zeros(len(stamp.entry), np.int8)
    _require(entries_are_nested(stamp, is_leaf, kind), "entry has regions that are not nested")
    lists = stamp.list[kind == 1].astype(np.int64)
    start, marked, own, count, capacity = lists[:, [NEXT, MARKED, OWN_SET, COUNT, CAPACITY]].T
    ordered = (start >= 0) & (marked >= 0) & (marked <= own) & (own <= count) & (count <= capacity)
    _require(ordered.all(), "list has counts that do not fit")
    _require_apart(start, capacity, int(stamp.state[POSTINGS]), "list", "posting")
    if filters.sets:
        ends = stamp.set_end[kind == 1]
        rising = (ends[:, 1:] >= ends[:, :-1]).all()
        fits = (ends[:, 0] == own).all() and (ends[:, -1] == count).all()
        _require(rising and fits, "set_end does not follow the counts of lists")
    else:
        _require((own == count).all(), "list has postings of further signature sets")
    records = int(stamp.state[RECORDS])
    sound = _within(stamp.posting[:, POSTING_RECORD], 0, max(records, 1))
    _require(sound and (records > 0 or not count.any()), "posting has no record")


def _within(values: NDArray[Any], low: int, high: int) -> bool:
    return bool(((values >= low) & (values < high)).all())


@kernel
def tokens_are_found(slot: NDArray[np.int32]) -> Number:
    """Tell whether a search for every token of the slots ends at its slot."""
    free = 0
    for i in range(len(slot)):
        free += slot[i, SLOT_TOKEN] < 0
    if free == 0:
        return False
    for i in range(len(slot)):
        if slot[i, SLOT_TOKEN] >= 0 and find_token(slot, slot[i, SLOT_TOKEN]) != i:
            return False
    return True


@kernel
def entries_are_nested(
    stamp: StampArrays, is_leaf: NDArray[np.bool_], kind: NDArray[np.int8]
) -> Number:
    """Tell whether the entries of every token are a forest of regions in preorder.

    ``kind`` int8[entries] becomes 1 for leaves and 2 for inner regions that belong to a token.
    """
    entry, region = stamp.entry, stamp.region
    for at in range(len(stamp.slot)):
        if stamp.slot[at, SLOT_TOKEN] < 0:
            continue
        first = np.int64(stamp.slot[at, SLOT_START])
        last = first + stamp.slot[at, SLOT_COUNT]
        for i in range(first, last):
            number = np.int64(entry[i, REGION])
            inner = number < 0
            number = max(number, ~number)
            if number == 0 or number >= len(region) or is_leaf[number] == inner:
                return False
            kind[i] = 2 if inner else 1
            if inner:
                end = i + np.int64(stamp.list[i, NEXT])
                if end <= i or end > last:
                    return False
                for j in range(i + 1, end):
                    below = np.int64(entry[j, REGION])
                    below = max(below, ~below)
                    if below >= len(region):
                        return False
                    while below > number:
                        below = np.int64(region[below, PARENT])
                    if below != number:
                        return False
                    if entry[j, REGION] < 0 and j + np.int64(stamp.list[j, NEXT]) > end:
                        return False
    return True
