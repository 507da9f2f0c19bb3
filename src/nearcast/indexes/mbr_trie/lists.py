"""Lists of an MBRTrie's nodes: how they grow, and how clauses leave them.

A clause that leaves is marked (Yu et al., CIKM 2015, section 3.1): its box touches nothing any
more. A list half of which is dead closes up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.indexes.mbr_trie.trie import (
    COUNT,
    DEAD,
    ENTRIES,
    LIST,
    NOWHERE,
    ROOM,
    SIZE,
    Columns,
    Trie,
    aligned,
    box_of,
    box_place,
    clause_place,
    clear_box,
    draw_outline,
    put_entry,
    rounded,
    stride_of,
)

MIN_ROOM = 4
"""For so many clauses there is room once a node has more than one."""

GONE = np.int32(-1)
"""The clause of a dead entry."""


class Place(NamedTuple):
    """Where a list stands."""

    start: Number
    room: Number


@kernel
def larger_room(room: Number) -> Number:
    """Return the room of a list that has none left."""
    return rounded(np.int64(max(room + (room >> 1), MIN_ROOM)))


@kernel
def pool_needed(trie: Trie, at: Number) -> Number:
    """Return how much of the pool a node's list needs to take one more clause; 0 if none."""
    size, room = np.int64(trie.node[at, SIZE]), np.int64(trie.node[at, ROOM])
    if size == 0 or size < room:
        return np.int64(0)
    return LANES + 5 * larger_room(room)


@kernel
def clause_at(trie: Trie, place: Place, number: Number) -> Number:
    """Return the clause of an entry."""
    return trie.entry[clause_place(place.start, place.room, number)]


@kernel
def box_at(trie: Trie, place: Place, number: Number) -> tuple[Number, Number, Number, Number]:
    """Return the box of an entry."""
    first, stride = box_place(place.start, number), stride_of(place.room)
    entry = trie.entry
    return (
        entry[first],
        entry[first + stride],
        entry[first + 2 * stride],
        entry[first + 3 * stride],
    )


@kernel
def place_of(trie: Trie, at: Number) -> Place:
    """Return where the list of a node stands."""
    return Place(np.int64(trie.node[at, LIST]), np.int64(trie.node[at, ROOM]))


@kernel
def close_up(trie: Trie, at: Number, old: Place) -> None:
    """Copy what is alive of a list, which stood at the old place, to the front of the node's."""
    alive = np.int64(0)
    for number in range(trie.node[at, SIZE]):
        clause = clause_at(trie, old, np.int64(number))
        if clause != GONE:
            put_entry(trie, at, alive, clause, box_at(trie, old, np.int64(number)))
            alive += 1
    trie.node[at, SIZE], trie.node[at, DEAD] = alive, 0


@kernel
def append_clause(trie: Trie, at: Number, columns: Columns, clause: Number) -> None:
    """Put a clause into the list of a node; the pool must have room (`pool_needed`)."""
    size, old = np.int64(trie.node[at, SIZE]), place_of(trie, at)
    if size == 0 and old.room == 0:
        trie.node[at, LIST], trie.node[at, SIZE] = clause, 1
        return
    if size >= old.room:
        room = larger_room(old.room)
        start = aligned(trie.state[ENTRIES], room)
        trie.state[ENTRIES] = start + 5 * room
        trie.node[at, LIST], trie.node[at, ROOM] = start, room
        if old.room == 0:
            put_entry(trie, at, 0, old.start, box_of(columns, old.start))
        else:
            close_up(trie, at, old)
    put_entry(trie, at, trie.node[at, SIZE], clause, box_of(columns, clause))
    trie.node[at, SIZE] += 1


@kernel
def fit_box(trie: Trie, at: Number) -> None:
    """Let the box of a node without children cover its list, which has no dead, and no more."""
    node, place = trie.node, place_of(trie, at)
    clear_box(node, at)
    for number in range(node[at, SIZE]):
        west, south, east, north = box_at(trie, place, np.int64(number))
        node[at, 0], node[at, 1] = min(node[at, 0], west), min(node[at, 1], south)
        node[at, 2], node[at, 3] = max(node[at, 2], east), max(node[at, 3], north)
    draw_outline(trie, at)


@kernel
def drop_clause(trie: Trie, at: Number, clause: Number) -> None:
    """Take a clause out of the list of a node, in which it stands."""
    place = place_of(trie, at)
    if place.room == 0:
        trie.node[at, LIST], trie.node[at, SIZE] = 0, 0
        return
    number = np.int64(0)
    while clause_at(trie, place, number) != clause:
        number += 1
    put_entry(trie, at, number, GONE, NOWHERE)
    trie.node[at, DEAD] += 1
    if 2 * trie.node[at, DEAD] >= trie.node[at, SIZE]:
        close_up(trie, at, place)
        if trie.node[at, COUNT] == 0:
            fit_box(trie, at)
