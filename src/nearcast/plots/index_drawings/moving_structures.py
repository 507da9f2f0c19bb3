"""What a moving index consists of: cells on the map, and lists of clauses and of messages.

As `structures`, for the example of the moving indexes, whose messages are published first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import UNITS
from nearcast.indexes import moving
from nearcast.indexes.ap_tree.layout import BOUNDS
from nearcast.indexes.moving.ap_plus.store import NO_LIST
from nearcast.indexes.moving.frequencies import TOKEN
from nearcast.indexes.moving.grids.layout import CLAUSE_TABLE, MESSAGE_TABLE
from nearcast.indexes.moving.twin_lists import layout as twin
from nearcast.indexes.moving.twin_lists.postings import stamp_at
from nearcast.indexes.quadtrees.layout import CHILD, LEVEL
from nearcast.plots.index_drawings.example import MOVING, MOVING_OPTIONS
from nearcast.plots.index_drawings.structures import (
    Area,
    Node,
    Structure,
    box_list,
    cell_box,
    cell_name,
    owned,
    read_partition_tree,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.indexes.moving.grids.layout import GridArrays
    from nearcast.indexes.moving.lists import ListArrays
    from nearcast.indexes.moving.tables import TableArrays

__all__ = ["read_moving_structure"]

_CLAUSE_COLUMN, _MESSAGE_COLUMN = 0, 2
"""The columns of lists that have the entry of a clause, and the stamp of a message."""


def read_moving_structure(name: str) -> Structure:
    """Build a moving index over its example, publish the messages, and read its structure."""
    index: Any = moving.create(name, **MOVING_OPTIONS[name]).build(MOVING.clauses())
    index.publish(MOVING.message_columns())
    if name in _READERS:
        return _READERS[name](index)
    return _read_cells(index) if index.by_cell else _read_tokens(index)


def _items(lists: ListArrays, value: int, column: int) -> list[int]:
    """Return what a value of a table stands for: one item, or those of a list."""
    if value < 0:
        return [~value]
    start, size = (int(number) for number in lists.head[value])
    first = start + column * (1 << (size & 255))
    return sorted(int(item) for item in lists.pool[first : first + (size >> 8)])


def _table(
    tables: TableArrays, header: Any, first: int, lists: ListArrays, column: int
) -> dict[int, list[int]]:
    """Return the items of each key of an owner."""
    start, count = int(header[first]), int(header[first + 1])
    slots = tables.slot[start : start + (1 << (count & 255))].tolist() if count else []
    return {key: _items(lists, value, column) for key, value in slots if key >= 0}


def _both(grid: GridArrays, header: Any) -> dict[int, tuple[list[int], list[int]]]:
    """Return the clauses and the messages of each key of an owner."""
    clauses = _table(grid.clauses, header, CLAUSE_TABLE, grid.clause_lists, _CLAUSE_COLUMN)
    messages = _table(grid.messages, header, MESSAGE_TABLE, grid.message_lists, _MESSAGE_COLUMN)
    return {
        key: (clauses.get(key, []), messages.get(key, [])) for key in sorted({*clauses, *messages})
    }


def _line(title: str, clauses: list[int], messages: list[int]) -> str:
    listed = [*map(str, clauses), *(f"m{message}" for message in messages)]
    return f"{title}: {' '.join(listed)}"


def _cell_areas(index: Any) -> list[Area]:
    frame = index._frame
    width, height = 1 / frame.x_scale / UNITS, 1 / frame.y_scale / UNITS
    west, south = frame.west / UNITS, frame.south / UNITS
    areas = []
    for cell in range(frame.columns * frame.rows):
        x, y = west + cell % frame.columns * width, south + cell // frame.columns * height
        areas.append(Area((x, y, x + width, y + height), _cell_name(index, cell), 1))
    return areas


def _cell_name(index: Any, cell: int) -> str:
    return f"{cell % index._frame.columns},{cell // index._frame.columns}"


def _read_cells(index: Any) -> Structure:
    grid = index._grid
    nodes = []
    for cell, header in enumerate(grid.header):
        lists = _both(grid, header)
        if lists:
            lines = [_line(MOVING.words[token], *both) for token, both in lists.items()]
            nodes.append(Node([_cell_name(index, cell), *lines], is_list=True))
    caption = "cells (column, row); in each, clauses and messages by token"
    return Structure(caption, _cell_areas(index), Node(["grid"], nodes), True, MOVING)


def _read_tokens(index: Any) -> Structure:
    grid = index._grid
    nodes = []
    for header in sorted(grid.header, key=lambda row: int(row[TOKEN])):
        if header[TOKEN] in range(len(MOVING.words)):
            lists = _both(grid, header)
            lines = [_line(_cell_name(index, cell), *both) for cell, both in lists.items()]
            nodes.append(Node([MOVING.words[int(header[TOKEN])], *lines], is_list=True))
    caption = "tokens; under each, clauses and messages by cell (column, row)"
    return Structure(caption, _cell_areas(index), Node(["table of tokens"], nodes), True, MOVING)


def _read_quadtree(index: Any) -> Structure:
    arrays, headers = index._quad._asdict(), index._header.view
    areas: list[Area] = []

    def visit(at: int) -> Node | None:
        row = arrays["node"][at]
        clauses = {int(r[TOKEN]): box_list(arrays["entry"], r) for r in owned(arrays, at + 1)}
        messages = _table(
            index._tables.arrays, headers[at], 0, index._lists.arrays, _MESSAGE_COLUMN
        )
        tokens = sorted({*clauses, *messages})
        lists = [
            _line(MOVING.words[token], clauses.get(token, []), messages.get(token, []))
            for token in tokens
        ]
        below = [visit(int(row[CHILD]) + i) for i in range(4)] if row[CHILD] > 0 else []
        children = [child for child in below if child is not None]
        if not lists and not children:
            return None
        areas.append(Area(cell_box(row), "", int(row[LEVEL])))
        return Node([cell_name(row), *lists], children, is_list=not children)

    tree = visit(0)
    assert tree is not None
    caption = "cells in use, with clauses and messages by token"
    return Structure(caption, areas, shortened(tree), True, MOVING)


def _read_twin_lists(index: Any) -> Structure:
    arrays = index._arrays
    nodes = []
    for header in sorted(arrays.header, key=lambda row: int(row[twin.TOKEN])):
        if header[twin.TOKEN] in range(len(MOVING.words)) and header[twin.WANTED] > 0:
            start, words = int(header[twin.CLAUSES]), int(twin.class_words(int(header[twin.CLASS])))
            first = start + words // 2  # after the boxes of the only leaf
            entries = arrays.clauses.word[first : first + 2 * int(header[twin.SIZE]) : 2]
            clauses = sorted(int(entry & twin.ENTRY_MASK) for entry in entries)
            place, size = int(header[twin.LIST]), int(header[twin.LIST_SIZE])
            kind = size & twin.CLASS_MASK
            stamps = [arrays.messages.word[stamp_at(place, kind, i)] for i in range(size >> 8)]
            lists = [
                Node([_line("clauses", clauses, [])], is_list=True),
                Node([_line("messages", [], [int(stamp) for stamp in stamps])], is_list=True),
            ]
            nodes.append(Node([MOVING.words[int(header[twin.TOKEN])]], lists))
    caption = "two lists under each token; a move changes neither"
    return Structure(caption, [], Node(["table of tokens"], nodes), False, MOVING)


def _read_partition_tree(index: Any) -> Structure:
    lists = index._lists.arrays

    def messages_of(number: int) -> list[int]:
        return [] if number == NO_LIST else _items(lists, number, _MESSAGE_COLUMN)

    arena, state = index._tree
    border = state[BOUNDS : BOUNDS + 4].tolist()
    boxes = np.array(MOVING.boxes) * UNITS
    sides = [*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0)]
    outer = dict(zip(border, (int(side) for side in sides), strict=True))
    slots = index._ranks.slot
    tree, areas = read_partition_tree(arena, slots, MOVING.words, messages_of, outer)
    caption = "splits by words or by space; messages in all slots where a clause may come"
    return Structure(caption, areas, tree, True, MOVING)


_READERS: dict[str, Callable[[Any], Structure]] = {
    "ap+-tree": _read_partition_tree,
    "iq+-tree": _read_quadtree,
    "twin-lists": _read_twin_lists,
}
