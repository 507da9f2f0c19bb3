"""The arrays of the quadtree indexes: made, enlarged, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import WORLD, at_cache_line, read_only
from nearcast.compiled.box_lists import PADDING, WIDTH
from nearcast.compiled.token_filter import FILTER_WORDS
from nearcast.indexes.quadtrees.cells import SOUTH_END, WEST_END, count_centres, sum_shares
from nearcast.indexes.quadtrees.lists import (
    LEFT,
    LISTED,
    M_WAYS,
    NODES,
    OWNERS,
    SLOT_WIDTH,
    SLOTS,
    STATES,
    TOP,
    Quad,
    Work,
    move_slots,
    pack_lists,
    pack_runs,
)
from nearcast.indexes.quadtrees.scan import Scratch
from nearcast.indexes.quadtrees.tree import NODE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.indexes.statistics import Statistics

LEVELS = 7
"""The last level of cells whose shares are counted: of 2.8 by 1.4 degrees."""

MAX_LEVELS = 20
"""How deep quadtrees may be: their smallest cells are about 30 m high."""

MAX_PARTS = 64

_CELLS = ((1 << (2 * LEVELS + 2)) - 1) // 3
_SPREAD = 4
_STACK = 4 * MAX_LEVELS
_ASKED = 1024
_QUEUE = 4096
_CANDIDATES = 1024
_LOAD = 0.5


def empty(clauses: int) -> Quad:
    """Return arrays with nothing in them. Room is ample: untouched, it costs nothing."""
    return Quad(
        _slots(clauses),
        _nodes(64 + clauses // 8),
        np.zeros((64 + clauses // 8, 3), np.int32),
        np.empty(64 + clauses, np.int32),
        _pool(64 + 4 * clauses),
        np.zeros(STATES, np.int64),
    )


def used(quad: Quad) -> Quad:
    """Return the parts that are in use."""
    state = quad.state
    return Quad(
        quad.slot,
        quad.node[: state[NODES]],
        quad.run[: state[OWNERS]],
        quad.listed[: state[LISTED]],
        quad.entry[: state[TOP] + PADDING],
        state,
    )


def each(quad: Quad, make: Callable[[NDArray[Any]], NDArray[Any]]) -> Quad:
    """Return what a function makes of each of the arrays."""
    return Quad(*(make(array) for array in quad))


def read_only_quad(quad: Quad) -> Quad:
    """Return read-only views: one type, whether the arrays were just made or memory-mapped."""
    return each(quad, lambda array: read_only(array, array.dtype))


def enlarged(quad: Quad, missing: list[int]) -> Quad:
    """Return the arrays with more room for what is missing."""
    slots, nodes, owners, listed, entries = missing[:M_WAYS]
    if slots:
        quad = with_slots(quad, 2 * (int(quad.state[SLOTS]) + slots))
    if nodes:
        node = _nodes(nodes + 2 * len(quad.node))
        node[: len(quad.node)] = quad.node
        quad = quad._replace(node=node)
    if owners:
        run = np.zeros((owners + 2 * len(quad.run), 3), np.int32)
        run[: len(quad.run)] = quad.run
        quad = quad._replace(run=run)
    if listed:
        room = np.empty(2 * int(quad.state[LISTED]) + listed, np.int32)
        quad.state[LISTED] = pack_runs(quad, False, room)
        quad = quad._replace(listed=room)
    if entries:
        quad = packed(quad, entries)
    return quad


def with_slots(quad: Quad, count: int) -> Quad:
    """Return the arrays with a table that has room for so many rows."""
    slot = _slots(count)
    move_slots(quad.slot, slot)
    return quad._replace(slot=slot)


def packed(quad: Quad, more: int) -> Quad:
    """Return the arrays with lists that follow each other, and room for more entries, if any.

    Without more room, each list has just the room that it needs.
    """
    tight, nodes, nowhere = (
        more == 0,
        quad.node[: quad.state[NODES]],
        np.empty((0, WIDTH), np.int32),
    )
    top = pack_lists(quad, nodes, tight, pack_lists(quad, quad.slot, tight, 0, nowhere), nowhere)
    entry = _pool(int(top) + (0 if tight else more + int(top) // 2))
    top = pack_lists(quad, nodes, tight, pack_lists(quad, quad.slot, tight, 0, entry), entry)
    quad.state[TOP], quad.state[LEFT] = top, 0
    return quad._replace(entry=entry)


def trimmed(quad: Quad) -> Quad:
    """Return the arrays with no more room than is in use."""
    quad = packed(with_slots(quad, int(quad.state[SLOTS])), 0)
    listed = np.empty(int(quad.state[LISTED]), np.int32)
    quad.state[LISTED] = pack_runs(quad, True, listed)
    return used(quad._replace(listed=listed))


def work(parts: int, ways: int = 1024) -> Work:
    """Return room for changes: for the cells of a box, and the entries of a list."""
    # A box has cells along its border, and those inside are larger the farther they are from it.
    return Work(
        np.empty(_STACK, np.int64),
        np.empty(64 + 16 * parts, np.int64),
        np.empty(ways, np.uint8),
        np.zeros(M_WAYS + 1, np.int64),
    )


def scratch(tokens: int, levels: int) -> Scratch:
    """Return room for messages of so many tokens, and a trie of so many levels."""
    asked = max(_ASKED, 2 * (tokens + 1))
    return Scratch(
        np.zeros(FILTER_WORDS, np.uint64),
        np.empty((tokens + 1, 2), np.int64),
        np.empty(32, np.int64),
        np.empty((asked, 4), np.int64),
        np.empty(max(_QUEUE, asked), np.int64),
        np.empty(_STACK, np.int64),
        np.empty((tokens + 1) * (levels + 1), np.int64),
        np.empty((asked, 5), np.int64),
        np.empty(_CANDIDATES, np.int64),
        np.empty(_CANDIDATES, np.int32),
        np.empty(4, np.int64),
    )


def shares_of(box: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the shares of cells if messages come from where the centres of clauses are."""
    share = np.zeros(_CELLS, np.float32)
    count_centres(read_only(box, np.int32, 4), LEVELS, share)
    sum_shares(share, LEVELS, len(box))
    return share


def shares_in(statistics: Statistics) -> NDArray[np.float32]:
    """Return the shares of cells if messages come from where those of the statistics did.

    A cell of the statistics counts as points spread over it, since the cells differ.
    """
    across, up = (_SPREAD * size for size in statistics.grid)
    lon = WORLD[0] + (np.arange(across) + 0.5) * ((WORLD[2] - WORLD[0]) / across)
    lat = WORLD[1] + (np.arange(up) + 0.5) * ((WORLD[3] - WORLD[1]) / up)
    column = (lon.astype(np.int64) - int(WEST_END)) >> (32 - LEVELS)
    row = (lat.astype(np.int64) - int(SOUTH_END)) >> (31 - LEVELS)
    density = statistics.density.reshape(statistics.grid.up, -1) / _SPREAD**2
    weight = density.repeat(_SPREAD, axis=0).repeat(_SPREAD, axis=1)
    share = np.zeros(_CELLS, np.float32)
    cell = np.add.outer(row << LEVELS, column).ravel()
    share[-(1 << (2 * LEVELS)) :] = np.bincount(cell, weight.ravel(), 1 << (2 * LEVELS))
    sum_shares(share, LEVELS, weight.sum())
    return share


def _slots(rows: int) -> NDArray[np.int32]:
    return np.zeros((16 + int(rows / _LOAD), SLOT_WIDTH), np.int32)


def _nodes(count: int) -> NDArray[np.int32]:
    return at_cache_line(NODE_WIDTH * count, np.int32).reshape(-1, NODE_WIDTH)


def _pool(entries: int) -> NDArray[np.int32]:
    """Return room for so many entries, and to spare, beginning at a cache line."""
    return at_cache_line(WIDTH * (entries + PADDING), np.int32).reshape(-1, WIDTH)
