"""Lists of clauses by token: slots of a token table (`token_table`) that refer to lists in a pool.

The size of the list is in the upper half of the slot's first word. Its second word is the start of
the list in the pool and, in the low 28 bits, the capacity of the list. The owner keeps the pool.

Used by ``rt++-tree`` and ``pt-quadtree``, and by ``lfilter``, which contains the latter.
"""

from __future__ import annotations

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_table import BITS32, Tables

CAPACITY_BITS = np.uint64(28)
CAPACITY_MASK = np.uint64((1 << 28) - 1)

ONE = np.uint64(1) << BITS32
"""Added to the first word of a slot, makes its list one longer."""


@kernel
def list_count(tables: Tables, at: Number) -> Number:
    """Return the number of clauses in the list of a slot."""
    return np.int64(tables.slot[at, 0] >> BITS32)


@kernel
def list_start(tables: Tables, at: Number) -> Number:
    """Return the start of the list of a slot."""
    return np.int64(tables.slot[at, 1] >> CAPACITY_BITS)


@kernel
def list_capacity(tables: Tables, at: Number) -> Number:
    """Return the capacity of the list of a slot: the number of clauses that fit where it is."""
    return np.int64(tables.slot[at, 1] & CAPACITY_MASK)


@kernel
def place_list(tables: Tables, at: Number, start: Number, capacity: Number) -> None:
    """Set the start and the capacity of the list of a slot."""
    tables.slot[at, 1] = (np.uint64(start) << CAPACITY_BITS) | np.uint64(capacity)
