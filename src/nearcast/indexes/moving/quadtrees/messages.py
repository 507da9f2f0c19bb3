"""Living messages in the cells of quadtrees: stored, dealt out when cells split, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel, prefetch
from nearcast.compiled.token_table import NO_TOKEN, home
from nearcast.indexes.moving.frequencies import OWN, find_token
from nearcast.indexes.moving.lists import (
    ListArrays,
    append,
    capacity_of,
    drop_list,
    new_list,
    size_of,
    start_of,
)
from nearcast.indexes.moving.living import LivingArrays, X, Y, is_alive, is_range, tokens_of
from nearcast.indexes.moving.message_tables import put_message, store_items
from nearcast.indexes.moving.tables import KEY, NO_KEY, TableArrays, first_slot, region_end
from nearcast.indexes.moving.tables import VALUE as SLOT_VALUE
from nearcast.indexes.quadtrees.layout import (
    BY_TOKEN,
    CHILD,
    LEVEL,
    NODES,
    QuadArrays,
    cell_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


LIST, ROOT = OWN, OWN + 1
"""Columns of the tokens of an rq+-tree: the list of a token plus one, and the root of its quadtree
plus one; 0 if there is none."""

NO_LIST = -1
POST_ITEMS = 256
TABLE = np.int64(0)
"""The column of the table in ``header``."""


class NodeMessages(NamedTuple):
    """The messages of a quadtree index.

    - ``tables``, ``header`` int32[nodes, 2]: of an iq+-tree, a table from tokens to messages for
      each node.
    - ``list_of`` int32[nodes]: of an rq+-tree, the list of each node.
    - ``is_open`` bool[nodes]: which nodes have messages.
    - ``token``: see `nearcast.indexes.moving.frequencies`; in an rq+-tree also `LIST` and `ROOT`.
    """

    tables: TableArrays
    header: NDArray[np.int32]
    list_of: NDArray[np.int32]
    is_open: NDArray[np.bool_]
    token: NDArray[np.int32]
    lists: ListArrays


@kernel
def child_of(quad: QuadArrays, node: Number, x: Number, y: Number) -> Number:
    """Return the child of a node that a point is in, or -1 if it has none."""
    first = np.int64(quad.node[node, CHILD])
    if first < 0:
        return np.int64(-1)
    cell = cell_of(quad, node)
    east = x >= cell.west + (np.int64(1) << (31 - cell.level))
    north = y >= cell.south + (np.int64(1) << (30 - cell.level))
    return first + np.int64(east) + 2 * np.int64(north)


# Storing messages.


@kernel
def post_in_cells(
    quad: QuadArrays,
    messages: NodeMessages,
    living: LivingArrays,
    stamps: tuple[Number, Number],
    kinds: tuple[bool, bool],
    item: NDArray[np.int64],
) -> Number:
    """Store messages in an iq+-tree: in all cells around them; return how many postings there are.

    ``kinds``: whether they are stored under their tokens, and whether under `NO_TOKEN`. ``item``
    int64[POST_ITEMS, 4] is scratch space: stamp, node, token, and what is there.
    """
    quad, messages, living = borrow(quad), borrow(messages), borrow(living)
    tables, header, lists = messages.tables, messages.header, messages.lists
    by_token, under_all = kinds
    count, total = np.int64(0), np.int64(0)
    for stamp in range(stamps[0], stamps[1]):
        if is_range(living.record, stamp):
            continue
        x, y = np.int64(living.record[stamp, X]), np.int64(living.record[stamp, Y])
        tokens = tokens_of(living, stamp)
        known = np.int64(len(tokens)) if by_token else np.int64(0)
        node = np.int64(0)
        while node >= 0:
            for i in range(known + np.int64(under_all) if messages.is_open[node] else 0):
                if count == len(item):
                    store_items(tables, header, TABLE, lists, living, item, count)
                    count = np.int64(0)
                token = np.int64(tokens[i]) if i < known else NO_TOKEN
                item[count, 0], item[count, 1], item[count, 2] = stamp, node, token
                prefetch(tables.slot, first_slot(header, node, TABLE, token))
                count += 1
                total += 1
            node = child_of(quad, node, x, y)
    store_items(tables, header, TABLE, lists, living, item, count)
    return total


@kernel
def post_in_trees(
    quad: QuadArrays,
    messages: NodeMessages,
    living: LivingArrays,
    stamps: tuple[Number, Number],
    kinds: tuple[bool, bool],
    item: NDArray[np.int64],
) -> Number:
    """Store messages in an rq+-tree: with each token, in all cells of its quadtree around them."""
    quad, messages, living = borrow(quad), borrow(messages), borrow(living)
    slot, lists, list_of = messages.token, messages.lists, messages.list_of
    by_token, under_all = kinds
    total = np.int64(0)
    for stamp in range(stamps[0], stamps[1]):
        if by_token and stamp + 4 < stamps[1]:
            for token in tokens_of(living, stamp + 4):
                prefetch(slot, home(np.int64(token), len(slot)))
        if by_token and stamp + 2 < stamps[1]:
            for token in tokens_of(living, stamp + 2):
                prefetch(lists.head, np.int64(max(slot[find_token(slot, token), LIST], 1)) - 1)
        if is_range(living.record, stamp):
            continue
        x, y = np.int64(living.record[stamp, X]), np.int64(living.record[stamp, Y])
        tokens = tokens_of(living, stamp)
        known = np.int64(len(tokens)) if by_token else np.int64(0)
        for i in range(known + np.int64(under_all)):
            wanted = np.int64(tokens[i]) if i < known else NO_TOKEN
            row = slot[find_token(slot, wanted)]
            if row[LIST] == 0:
                row[LIST] = new_list(lists) + 1
            append(lists, living.alive, np.int64(row[LIST]) - 1, x, y, stamp, 0)
            total += 1
            node = np.int64(row[ROOT]) - 1
            while node >= 0:
                node = child_of(quad, node, x, y)
                if node >= 0 and messages.is_open[node]:
                    if list_of[node] == NO_LIST:
                        list_of[node] = new_list(lists)
                    append(lists, living.alive, np.int64(list_of[node]), x, y, stamp, 0)
                    total += 1
    return total


@kernel
def has_point(quad: QuadArrays, node: Number, x: Number, y: Number) -> Number:
    """Tell whether a point is in the cell of a node."""
    cell = cell_of(quad, node)
    across = cell.west <= x < cell.west + (np.int64(1) << (32 - cell.level))
    return across and cell.south <= y < cell.south + (np.int64(1) << (31 - cell.level))


@kernel
def count_around(
    quad: QuadArrays, messages: NodeMessages, living: LivingArrays, node: Number, used: Number
) -> Number:
    """Return how many postings a node of an iq+-tree needs that is opened."""
    total = np.int64(0)
    for stamp in range(used):
        x, y = np.int64(living.record[stamp, X]), np.int64(living.record[stamp, Y])
        if is_alive(living.alive, stamp) and has_point(quad, node, x, y):
            total += len(tokens_of(living, stamp)) + 1
    return total


@kernel
def open_cell(
    quad: QuadArrays,
    messages: NodeMessages,
    living: LivingArrays,
    node: Number,
    used: Number,
    under_all: bool,
) -> Number:
    """Store all living messages in the cell of a node of an iq+-tree; return the postings."""
    total = np.int64(0)
    for stamp in range(used):
        if is_range(living.record, stamp) or not is_alive(living.alive, stamp):
            continue
        x, y = np.int64(living.record[stamp, X]), np.int64(living.record[stamp, Y])
        if not has_point(quad, node, x, y):
            continue
        tokens = tokens_of(living, stamp)
        for i in range(len(tokens) + np.int64(under_all)):
            token = np.int64(tokens[i]) if i < len(tokens) else NO_TOKEN
            place = (np.int64(node), TABLE, token)
            put_message(messages.tables, messages.header, place, messages.lists, living, stamp)
            total += 1
    return total


@kernel
def open_list(
    quad: QuadArrays, messages: NodeMessages, living: LivingArrays, node: Number, token: Number
) -> Number:
    """Store the messages of a token in the cell of a node of its quadtree; return how many."""
    lists, slot = messages.lists, messages.token
    number = np.int64(slot[find_token(slot, token), LIST]) - 1
    target, total = new_list(lists), np.int64(0)
    messages.list_of[node] = target
    for i in range(size_of(lists, number)):
        stamp = np.int64(lists.pool[start_of(lists, number) + 2 * capacity_of(lists, number) + i])
        x, y = np.int64(living.record[stamp, X]), np.int64(living.record[stamp, Y])
        if is_alive(living.alive, stamp) and has_point(quad, node, x, y):
            append(lists, living.alive, target, x, y, stamp, 0)
            total += 1
    return total


# Splitting cells.


@kernel
def count_in_node(quad: QuadArrays, messages: NodeMessages, node: Number) -> Number:
    """Return how many postings a node has, dead ones included."""
    lists, slot = messages.lists, messages.tables.slot
    if not quad.state[BY_TOKEN]:
        number = np.int64(messages.list_of[node])
        return size_of(lists, number) if number != NO_LIST else np.int64(0)
    total = np.int64(0)
    first, end = np.int64(messages.header[node, 0]), region_end(messages.header, node, TABLE)
    for at in range(first, end):
        if slot[at, KEY] != NO_KEY:
            value = np.int64(slot[at, SLOT_VALUE])
            total += np.int64(1) if value < 0 else size_of(lists, value)
    return total


@kernel
def deal_list(
    quad: QuadArrays,
    messages: NodeMessages,
    living: LivingArrays,
    node: Number,
    number: Number,
    token: Number,
) -> Number:
    """Copy the living messages of a list of a node to its children; return how many there are."""
    lists, record = messages.lists, living.record
    dealt = np.int64(0)
    for i in range(size_of(lists, number)):
        stamp = np.int64(lists.pool[start_of(lists, number) + 2 * capacity_of(lists, number) + i])
        if not is_alive(living.alive, stamp):
            continue
        x, y = np.int64(record[stamp, X]), np.int64(record[stamp, Y])
        child = child_of(quad, node, x, y)
        dealt += 1
        if quad.state[BY_TOKEN]:
            place = (child, TABLE, token)
            put_message(messages.tables, messages.header, place, lists, living, stamp)
            continue
        if messages.list_of[child] == NO_LIST:
            messages.list_of[child] = new_list(lists)
        append(lists, living.alive, np.int64(messages.list_of[child]), x, y, stamp, 0)
    return dealt


@kernel
def deal_node(
    quad: QuadArrays, messages: NodeMessages, living: LivingArrays, node: Number
) -> Number:
    """Copy the messages of a node to its new children; return how many there are."""
    if not quad.state[BY_TOKEN]:
        number = np.int64(messages.list_of[node])
        if number == NO_LIST:
            return np.int64(0)
        return deal_list(quad, messages, living, node, number, NO_TOKEN)
    slot, header, dealt = messages.tables.slot, messages.header, np.int64(0)
    # The tables of the children do not move that of the node.
    for at in range(np.int64(header[node, 0]), region_end(header, node, TABLE)):
        token = np.int64(slot[at, KEY])
        if token == NO_KEY:
            continue
        value = np.int64(slot[at, SLOT_VALUE])
        if value >= 0:
            dealt += deal_list(quad, messages, living, node, value, token)
        elif is_alive(living.alive, ~value):
            x, y = np.int64(living.record[~value, X]), np.int64(living.record[~value, Y])
            place = (child_of(quad, node, x, y), TABLE, token)
            put_message(messages.tables, header, place, messages.lists, living, ~value)
            dealt += 1
    return dealt


@kernel
def drop_empty_lists(quad: QuadArrays, messages: NodeMessages) -> None:
    """Drop the lists of an rq+-tree that have no messages, but for those of roots."""
    lists, slot, list_of = messages.lists, messages.token, messages.list_of
    for at in range(len(slot)):
        number = np.int64(slot[at, LIST]) - 1
        if number >= 0 and size_of(lists, number) == 0:
            if slot[at, ROOT] == 0:
                drop_list(lists, number)
                slot[at, LIST] = 0
    for node in range(quad.state[NODES]):
        number = np.int64(list_of[node])
        if number != NO_LIST and quad.node[node, LEVEL] > 0 and size_of(lists, number) == 0:
            drop_list(lists, number)
            list_of[node] = NO_LIST
