"""Token tables (`token_table`) that grow, and lists of clauses by token.

`make_room` makes sure that a table can take more tokens. The other functions are for slots that
refer to a list: the size of the list is in the upper half of the slot's first word. Its second word
is the start of the list in a pool and, in the low 28 bits, the capacity of the list. The owner
keeps the pool itself.

Used by the R-trees (lists: ``rt++-tree``), by ``pt-quadtree``, and by ``lfilter``, which contains
the latter.
"""

from __future__ import annotations

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import BITS32, Tables, move_table, slots_needed

ROOM_BITS = np.uint64(28)
ROOM_MASK = np.uint64((1 << 28) - 1)

ONE = np.uint64(1) << BITS32
"""Added to the first word of a slot, makes its list one longer."""


@kernel
def make_room(tables: Tables, owner: Number, more: Number) -> Number:
    """Make sure that a table can take more tokens; return the slots that the pool lacks, or 0."""
    size = slots_needed(tables, owner, more)
    if size > 0:
        if tables.top[0] + size > len(tables.slot):
            return np.int64(size)
        move_table(tables, owner, size)
    return np.int64(0)


@kernel
def list_count(tables: Tables, at: Number) -> Number:
    """Return the number of clauses in the list of a slot."""
    return np.int64(tables.slot[at, 0] >> BITS32)


@kernel
def list_start(tables: Tables, at: Number) -> Number:
    """Return the start of the list of a slot."""
    return np.int64(tables.slot[at, 1] >> ROOM_BITS)


@kernel
def list_room(tables: Tables, at: Number) -> Number:
    """Return the capacity of the list of a slot: the number of clauses that fit where it is."""
    return np.int64(tables.slot[at, 1] & ROOM_MASK)


@kernel
def place_list(tables: Tables, at: Number, start: Number, capacity: Number) -> None:
    """Set the start and the capacity of the list of a slot."""
    tables.slot[at, 1] = (np.uint64(start) << ROOM_BITS) | np.uint64(capacity)
