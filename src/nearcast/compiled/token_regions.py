"""nearcast.compiled.token_regions."""

from __future__ import annotations

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import (
    BITS32,
    Tables,
    move_table,
    slots_needed,
)


@kernel
def make_room(tables: Tables, node: Number, tokens: Number) -> Number:
    """Make room for more tokens in a table; return the slots that were missing in the pool."""
    size = slots_needed(tables, node, tokens)
    if size > 0:
        if tables.top[0] + size > len(tables.slot):
            return np.int64(size)
        move_table(tables, node, size)
    return np.int64(0)


ROOM_BITS = np.uint64(28)


ROOM_MASK = np.uint64((1 << 28) - 1)


ONE = np.uint64(1) << BITS32


@kernel
def list_count(tables: Tables, at: Number) -> Number:
    """Return how many clauses the list of a slot has."""
    return np.int64(tables.slot[at, 0] >> BITS32)


@kernel
def list_start(tables: Tables, at: Number) -> Number:
    """Return where the list of a slot begins."""
    return np.int64(tables.slot[at, 1] >> ROOM_BITS)


@kernel
def list_room(tables: Tables, at: Number) -> Number:
    """Return for how many clauses the list of a slot has room."""
    return np.int64(tables.slot[at, 1] & ROOM_MASK)


@kernel
def place_list(tables: Tables, at: Number, start: Number, room: Number) -> None:
    """Note where a list is, and its room."""
    tables.slot[at, 1] = (np.uint64(start) << ROOM_BITS) | np.uint64(room)
