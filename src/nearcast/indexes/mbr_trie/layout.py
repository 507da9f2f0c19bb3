"""The arrays of an mbr-trie, and the questions asked of one slot, node or list."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import WORLD
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.token_table import home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import ClauseColumns

TOKEN, RANK, ROOT_CHILD, FREQUENCY = range(4)
"""Columns of ``slot``."""

FIRST_CHILD, CHILD_COUNT, CHILD_CAPACITY = 4, 5, 6
LIST, LIST_SIZE, LIST_CAPACITY, LIST_DEAD, CLAUSES_BELOW = 7, 8, 9, 10, 11
"""Columns of ``node``, after west, south, east and north."""

SLOT_WIDTH, NODE_WIDTH, STATE_WIDTH = 4, 12, 8

LOW, HIGH = 0, 1
"""Columns of ``label``."""

NODES, ENTRIES, TOKENS, NEXT_RANK, DEPTH, BUILT, ADDED, DROPPED = range(8)
"""Fields of ``state``: nodes and pool entries in use, slots in use, the rank of the next new token
(-1: its id, in alphabetical order), the most tokens of a clause; clauses when the trie was built,
added since, and dropped since."""

NO_TOKENS, MAX_LABEL = np.int64(-1), np.int64(2**63 - 1)
"""The label of clauses without tokens, and the upper end of the root's range."""

LABEL_BITS = 32
"""The bits of a label below the rank of the first token."""

FIRST_RANK = 1 << 30
"""Ranks by frequency start here. New tokens are rare: they count down from it, to the front."""

PADDING = 4 * LANES
"""Entries after the pool: a block of fewer than 16 boxes is read as if it had 16."""

NOWHERE = (np.int32(2**31 - 1), np.int32(2**31 - 1), np.int32(-(2**31)), np.int32(-(2**31)))
"""A box that overlaps nothing and that any box extends."""

DEAD_CLAUSE = np.int32(-1)
"""The clause number of a dead entry."""

GUARDS = np.uint64(0x8000_8000_8000_8000)
"""The bit above each side of an outline."""

LOW32 = np.int64(0xFFFFFFFF)

_WEST, _SOUTH = np.int64(WORLD[0]), np.int64(WORLD[1])
_ROUNDED_BITS = np.int64(17)
_SIDE_BITS = np.uint64(16)
_BOTH_SIDES = np.uint64(0x7FFF_7FFF)


class Trie(NamedTuple):
    """The arrays of the index. Node 0 is the root.

    - ``slot`` int32[slots, 4]: open addressing by token: the token plus one (0 for a free slot),
      its rank, the child of the root it leads to (0 for none), and its frequency when ranks were
      assigned.
    - ``rank`` int32[nodes]: the rank of a node's token. The children of a node are adjacent, in
      ascending order, with capacity for more. They move when it is used up; only their parent
      knows where they are. The children of the root are stored one by one.
    - ``outline`` uint64[nodes]: the box of a node, rounded to 15 bits a side, so that one
      subtraction compares all four sides.
    - ``node`` int32[nodes, 12]: the box of all clauses below; first child, count and capacity;
      the list with its size, capacity and dead entries; the clauses below.
    - ``label`` int64[nodes, 2]: the lowest and highest label below. The label of a node's own list
      is the lowest one.
    - ``entry`` int32[m]: the pool of lists. A list is its boxes in blocks of 16
      (`nearcast.compiled.simd_boxes`; a capacity below 16 is one shorter block), then its clause
      numbers. A list of one clause takes no space (capacity 0): the node has the clause number.
    - ``clause_label`` int64[clauses]: the label of every clause, or empty if not needed.
    - ``state`` int64[8]: see `NODES` and the following.
    """

    slot: NDArray[np.int32]
    rank: NDArray[np.int32]
    outline: NDArray[np.uint64]
    node: NDArray[np.int32]
    label: NDArray[np.int64]
    entry: NDArray[np.int32]
    clause_label: NDArray[np.int64]
    state: NDArray[np.int64]


class ListPlace(NamedTuple):
    """Where a list is in the pool."""

    start: Number
    capacity: Number


@kernel
def find_slot(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot of a token, or the free slot where it belongs."""
    at = home(token, len(slot))
    while slot[at, TOKEN] != 0 and np.int64(slot[at, TOKEN]) != token + 1:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def table_is_full(slot: NDArray[np.int32], state: NDArray[np.int64]) -> Number:
    """Tell whether one more token would fill the table by more than two thirds."""
    return 3 * (state[TOKENS] + 1) > 2 * len(slot)


@kernel
def lower_bound(ascending: NDArray[np.int32], low: Number, high: Number, wanted: Number) -> Number:
    """Return the first position in ``low:high`` whose number is not below the wanted one."""
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def overlaps(node: NDArray[np.int32], at: Number, window: NDArray[np.int32]) -> Number:
    """Tell whether the box in the first four columns of a row overlaps a window."""
    return (
        node[at, 0] <= window[2]
        and node[at, 1] <= window[3]
        and node[at, 2] >= window[0]
        and node[at, 3] >= window[1]
    )


@kernel
def round_side(side: Number, minimum: Number, bits: Number) -> Number:
    """Round a side to 15 bits; rounding keeps the order of sides, though not strictly."""
    return np.uint64(min(max((np.int64(side) - minimum) >> bits, np.int64(0)), np.int64(0x7FFF)))


@kernel
def pack_sides(east: Number, north: Number, west: Number, south: Number) -> Number:
    """Pack four rounded sides into one word; west and south are inverted."""
    word = round_side(east, _WEST, _ROUNDED_BITS)
    word |= round_side(north, _SOUTH, _ROUNDED_BITS - 1) << _SIDE_BITS
    other = round_side(west, _WEST, _ROUNDED_BITS)
    other |= round_side(south, _SOUTH, _ROUNDED_BITS - 1) << _SIDE_BITS
    return word | (other ^ _BOTH_SIDES) << (_SIDE_BITS + _SIDE_BITS)


@kernel
def update_outline(trie: Trie, at: Number) -> None:
    """Round the box of a node."""
    node = trie.node
    if node[at, 0] > node[at, 2]:
        trie.outline[at] = GUARDS
    else:
        word = pack_sides(node[at, 2], node[at, 3], node[at, 0], node[at, 1])
        trie.outline[at] = word | GUARDS


@kernel
def may_overlap(outline: Number, window: Number) -> Number:
    """Tell whether a box may overlap a window, given as `pack_sides` of its opposite sides.

    The subtraction clears the guard bit of every side in which the box is less.
    """
    return (outline - window) & GUARDS == GUARDS


@kernel
def extend_box(node: NDArray[np.int32], at: Number, box: NDArray[np.int32], clause: Number) -> None:
    """Extend the box of a node to cover that of a clause."""
    node[at, 0] = min(node[at, 0], box[clause, 0])
    node[at, 1] = min(node[at, 1], box[clause, 1])
    node[at, 2] = max(node[at, 2], box[clause, 2])
    node[at, 3] = max(node[at, 3], box[clause, 3])


@kernel
def clear_box(node: NDArray[np.int32], at: Number) -> None:
    """Make the box of a node empty."""
    node[at, 0], node[at, 1], node[at, 2], node[at, 3] = NOWHERE


@kernel
def clear_node(trie: Trie, at: Number, rank: Number) -> None:
    """Make a node of this rank with nothing below it."""
    trie.rank[at], trie.outline[at] = rank, GUARDS
    clear_box(trie.node, at)
    for field in range(4, NODE_WIDTH):
        trie.node[at, field] = 0
    trie.label[at, LOW], trie.label[at, HIGH] = 0, 0


@kernel
def has_list(node: NDArray[np.int32], at: Number) -> Number:
    """Tell whether a node has a list, which may have become empty."""
    return node[at, LIST_SIZE] > 0 or node[at, LIST_CAPACITY] > 0


@kernel
def has_label(trie: Trie, at: Number) -> Number:
    """Tell whether a node has a label of its own: one that has become empty keeps its label."""
    return has_list(trie.node, at) or trie.node[at, CHILD_COUNT] == 0


@kernel
def side_stride(capacity: Number) -> Number:
    """Return how far apart the sides of a box are in a list of this capacity."""
    return min(np.int64(capacity), np.int64(LANES))


@kernel
def box_position(start: Number, number: Number) -> Number:
    """Return the position in the pool of the west side of an entry."""
    block = number & ~np.int64(LANES - 1)
    return np.int64(start) + 4 * block + (number - block)


@kernel
def clause_position(start: Number, capacity: Number, number: Number) -> Number:
    """Return the position in the pool of the clause number of an entry."""
    return np.int64(start) + 4 * np.int64(capacity) + number


@kernel
def round_capacity(size: Number) -> Number:
    """Return the capacity of a list for at least ``size`` entries."""
    return size if size <= LANES else (size + LANES - 1) & ~np.int64(LANES - 1)


@kernel
def align_list(top: Number, capacity: Number) -> Number:
    """Return where a list of this capacity starts: full blocks start at cache lines."""
    return top if capacity < LANES else (top + LANES - 1) & ~np.int64(LANES - 1)


@kernel
def list_place(trie: Trie, at: Number) -> ListPlace:
    """Return where the list of a node is."""
    return ListPlace(np.int64(trie.node[at, LIST]), np.int64(trie.node[at, LIST_CAPACITY]))


@kernel
def clause_at(trie: Trie, place: ListPlace, number: Number) -> Number:
    """Return the clause of an entry."""
    return trie.entry[clause_position(place.start, place.capacity, number)]


@kernel
def box_at(trie: Trie, place: ListPlace, number: Number) -> tuple[Number, Number, Number, Number]:
    """Return the box of an entry."""
    first, stride = box_position(place.start, number), side_stride(place.capacity)
    entry = trie.entry
    return (
        entry[first],
        entry[first + stride],
        entry[first + 2 * stride],
        entry[first + 3 * stride],
    )


@kernel
def write_entry(trie: Trie, at: Number, number: Number, clause: Number, box: Number) -> None:
    """Write an entry of a node's list: its clause, and its box as a tuple of four sides."""
    start, capacity = trie.node[at, LIST], trie.node[at, LIST_CAPACITY]
    position, stride = box_position(start, np.int64(number)), side_stride(capacity)
    trie.entry[position] = box[0]
    trie.entry[position + stride] = box[1]
    trie.entry[position + 2 * stride] = box[2]
    trie.entry[position + 3 * stride] = box[3]
    trie.entry[clause_position(start, capacity, np.int64(number))] = clause


@kernel
def clause_box(columns: ClauseColumns, clause: Number) -> tuple[Number, Number, Number, Number]:
    """Return the box of a clause."""
    box = columns.box
    return box[clause, 0], box[clause, 1], box[clause, 2], box[clause, 3]
