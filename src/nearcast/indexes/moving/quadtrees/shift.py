"""Which living messages a clause gains and loses when it goes from one box to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.token_table import home
from nearcast.indexes.moving.comparing import (
    BOTH_SIGNS,
    CURRENT,
    ITEM_KEY,
    ONLY_BEGINS,
    ONLY_ENDS,
    POSITION,
    SIGNS,
    UNRESOLVED,
    VALUE,
    Moved,
    ShiftScratch,
    compare_items,
    resolve_items,
)
from nearcast.indexes.moving.entries import KEY as ENTRY_KEY
from nearcast.indexes.moving.entries import EntryArrays
from nearcast.indexes.moving.frequencies import find_token
from nearcast.indexes.moving.quadtrees.clauses import is_among
from nearcast.indexes.moving.quadtrees.messages import (
    LIST,
    NO_LIST,
    ROOT,
    TABLE,
    NodeMessages,
)
from nearcast.indexes.moving.tables import first_slot
from nearcast.indexes.quadtrees.cells import Costs, is_within, placement_in, sides_of
from nearcast.indexes.quadtrees.layout import BY_TOKEN, QuadArrays, cell_of
from nearcast.indexes.quadtrees.split import UpdateScratch, find_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.moving.living import LivingArrays
    from nearcast.indexes.moving.ranges import Shifted

_FAR, _NEAR = 12, 6


@kernel
def note_item(
    quad: QuadArrays,
    messages: NodeMessages,
    item: NDArray[np.int64],
    position: Number,
    place: tuple[Number, Number],
    signs: Number,
) -> Number:
    """Note that the messages of a key in a node are to be compared; return 1, 0 if none are."""
    node, key = place
    item[POSITION], item[VALUE], item[SIGNS] = position, node, signs | UNRESOLVED
    item[ITEM_KEY] = key
    if quad.state[BY_TOKEN]:
        prefetch(messages.tables.slot, first_slot(messages.header, node, TABLE, key))
        return np.int64(1)
    number = np.int64(messages.list_of[node])
    item[VALUE], item[SIGNS] = number, signs
    if number == NO_LIST:
        return np.int64(0)
    prefetch(messages.lists.head, number)
    return np.int64(1)


@kernel
def note_nodes(
    quad: QuadArrays,
    costs: Costs,
    messages: NodeMessages,
    place: tuple[Number, Number, Number],
    boxes: tuple[NDArray[np.int32], NDArray[np.int32]],
    position: Number,
    scratch: UpdateScratch,
    target: NDArray[np.int64],
    item: NDArray[np.int64],
) -> Number:
    """Note the nodes of a clause's two boxes; return how many items there are.

    ``place``: the root of the tree, the key, and the clause. ``boxes`` int32[1, 4] each; one may be
    empty.
    """
    root, key, clause = place
    before, after = sides_of(boxes[0], 0), sides_of(boxes[1], 0)
    new, count = target[:0], np.int64(0)
    if after.west <= after.east:
        found = find_nodes(quad, costs, root, placement_in(costs, after, clause), scratch)
        new = target[:found]
        new[:] = scratch.node[:found]
    old = scratch.node[:0]
    if before.west <= before.east:
        found = find_nodes(quad, costs, root, placement_in(costs, before, clause), scratch)
        old = scratch.node[:found]
    for i in range(len(old)):
        node, signs = old[i], np.int64(ONLY_ENDS)
        if is_among(new, node):
            cell = cell_of(quad, node)
            if is_within(cell, before) and is_within(cell, after):
                continue
            signs = np.int64(BOTH_SIGNS)
        count += note_item(quad, messages, item[count], position, (node, key), signs)
    for i in range(len(new)):
        if not is_among(old, new[i]):
            signs = np.int64(ONLY_BEGINS)
            count += note_item(quad, messages, item[count], position, (new[i], key), signs)
    return count


@kernel
def shift_entries(
    quad: QuadArrays,
    costs: Costs,
    messages: NodeMessages,
    entries: EntryArrays,
    living: LivingArrays,
    moved: Moved,
    begin: Number,
    update: UpdateScratch,
    target: NDArray[np.int64],
    scratch: ShiftScratch,
    output: Shifted,
) -> Number:
    """Write what changes for entries from ``begin`` on; return the first whose changes did not fit.

    See `nearcast.indexes.moving.comparing.collect_changes`.
    """
    quad, messages, entries = borrow(quad), borrow(messages), borrow(entries)
    living, moved, scratch, output = borrow(living), borrow(moved), borrow(scratch), borrow(output)
    item, record, slot = scratch.item, entries.record, messages.token
    tables, header, lists = messages.tables, messages.header, messages.lists
    count, longest = np.int64(0), len(item) - 2 * len(target)
    for i in range(begin, len(moved.entry)):
        if i + _FAR < len(moved.entry):
            prefetch(record, np.int64(moved.entry[i + _FAR]))
        if i + _NEAR < len(moved.entry):
            prefetch(slot, home(np.int64(record[moved.entry[i + _NEAR], ENTRY_KEY]), len(slot)))
        if count > longest:
            kept = resolve_items(tables.slot, header, TABLE, item, count)
            count = np.int64(0)
            if not compare_items(lists, entries, living, moved, scratch, kept, output):
                return scratch.counters[CURRENT]
        clause = np.int64(moved.entry[i])
        key, root = np.int64(record[clause, ENTRY_KEY]), np.int64(0)
        if not quad.state[BY_TOKEN]:
            row = slot[find_token(slot, key)]
            root = np.int64(row[ROOT]) - 1
            if root < 0:
                item[count, POSITION], item[count, VALUE] = i, np.int64(row[LIST]) - 1
                item[count, SIGNS] = BOTH_SIGNS
                count += np.int64(row[LIST] > 0)
                continue
        boxes = (moved.before[i : i + 1], moved.after[i : i + 1])
        place = (root, key, clause)
        here = item[count:]
        count += note_nodes(quad, costs, messages, place, boxes, i, update, target, here)
    kept = resolve_items(tables.slot, header, TABLE, item, count)
    if not compare_items(lists, entries, living, moved, scratch, kept, output):
        return scratch.counters[CURRENT]
    return len(moved.entry)
