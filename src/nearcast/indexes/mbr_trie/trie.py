"""The arrays of an MBRTrie: a trie of token sets whose nodes know the box of what is below them.

Yu et al., "A cost-based method for location-aware publish/subscribe services" (CIKM 2015),
section 3.1. Tokens have ranks, one global order for all clauses and messages; on the way from the
root to the node of a clause ranks ascend. The paper's leaves, nodes with an empty token, are not
nodes here: the list of the clauses that end at a node belongs to the node.

- ``slot`` int32[slots, 4], open addressing by token: the token plus one (0: a free slot), its
  rank, the child of the root that it leads to (0: none), and how often it occurred when ranks were
  given. So the root is one probe a token, which gives its rank as well.
- ``rank`` int32[nodes]: the rank of a node's token. Apart from the rest, since children are
  searched by it: those of a node are neighbours, in ascending order, with room for more. Nodes move
  when there is none; nothing but their parent knows where they are. Node 0 is the root, and its
  children stand alone.
- ``outline`` uint64[nodes]: the box of a node, rounded to 15 bits a side, so that one subtraction
  compares all four. Beside the ranks: of the children whose token occurs, most are elsewhere, and
  to read their records would cost more than all the rest.
- ``node`` int32[nodes, 12]: the box of all clauses below; the first child, how many there are and
  for how many there is room; the list, its size, its room and the dead in it; the clauses below.
- ``label`` int64[nodes, 2]: the least and the greatest label below. A list is one token set and has
  one label, the least of its node; labels ascend in token-set order. The upper half of a label is
  the rank of the first token, the lower one has gaps for token sets to come. The range of the
  root is everything, and the label of the clauses without tokens is -1.
- ``entry`` int32[m]: the pool of lists. A list is its boxes, in blocks of 16
  (`nearcast.compiled.simd_boxes`; one block as long as its room where that is less), and then its
  clauses. A list of one clause has no place (room 0): the node names the clause. A dead entry has a
  box that touches nothing.
- ``clause_label`` int64[clauses]: the label of every clause; empty where nobody asks for it.
- ``state`` int64[8]: see below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import WORLD
from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.token_table import home

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOKEN, RANK, CHILD, TIMES = 0, 1, 2, 3
"""In ``slot``."""

CHILDREN, COUNT, CAPACITY, LIST, SIZE, ROOM, DEAD, BELOW = 4, 5, 6, 7, 8, 9, 10, 11
"""In ``node``, behind west, south, east and north."""

NODE_WIDTH = 12

LOW, HIGH = 0, 1
"""In ``label``."""

NO_TOKENS, ENDLESS = np.int64(-1), np.int64(2**63 - 1)
"""The label of the clauses without tokens, and one that no list has."""

NODES, ENTRIES, TOKENS, NEXT_RANK, DEPTH, BUILT, ADDED, DROPPED = 0, 1, 2, 3, 4, 5, 6, 7
"""In ``state``: the nodes and the pool that were given away, the slots in use, the rank of the next
new token (-1: its number, in alphabetical order), the most tokens of a clause; the clauses when the
trie was built, those that came since, and those that went."""

STATES = 8

FIRST_RANK = 1 << 30
"""Ranks by frequency begin here. New tokens are rare: they count down from it, to the front."""

PADDING = 4 * LANES
"""Behind the pool: a block of few boxes is read as if it had sixteen."""

NOWHERE = (np.int32(2**31 - 1), np.int32(2**31 - 1), np.int32(-(2**31)), np.int32(-(2**31)))
"""A box that touches nothing, and that any box can extend."""


GUARDS = np.uint64(0x8000_8000_8000_8000)
"""The bits above the sides of an outline."""

_WEST, _SOUTH = np.int64(WORLD[0]), np.int64(WORLD[1])
_BITS = np.int64(17)
_LANE = np.uint64(16)
_FULL = np.uint64(0x7FFF_7FFF)


class Trie(NamedTuple):
    """The arrays of the index."""

    slot: NDArray[np.int32]
    rank: NDArray[np.int32]
    outline: NDArray[np.uint64]
    node: NDArray[np.int32]
    label: NDArray[np.int64]
    entry: NDArray[np.int32]
    clause_label: NDArray[np.int64]
    state: NDArray[np.int64]


class Columns(NamedTuple):
    """What is seen of clauses."""

    token_start: NDArray[np.int64]
    token: NDArray[np.int32]
    box: NDArray[np.int32]


@kernel
def find_slot(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot of a token, or the free one where it belongs."""
    at = home(token, len(slot))
    while slot[at, TOKEN] != 0 and np.int64(slot[at, TOKEN]) != token + 1:
        at += 1
        if at == len(slot):
            at = np.int64(0)
    return at


@kernel
def first_not_below(
    ascending: NDArray[np.int32], low: Number, high: Number, wanted: Number
) -> Number:
    """Return where in a part of ascending numbers the first stands that is not below the wanted."""
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def touches(node: NDArray[np.int32], at: Number, window: NDArray[np.int32]) -> Number:
    """Tell whether the box at the beginning of a row meets a window."""
    return (
        node[at, 0] <= window[2]
        and node[at, 1] <= window[3]
        and node[at, 2] >= window[0]
        and node[at, 3] >= window[1]
    )


@kernel
def rounded_side(side: Number, least: Number, bits: Number) -> Number:
    """Return a side in 15 bits; what is not greater than another is not greater afterwards."""
    return np.uint64(min(max((np.int64(side) - least) >> bits, np.int64(0)), np.int64(0x7FFF)))


@kernel
def four_sides(east: Number, north: Number, west: Number, south: Number) -> Number:
    """Return four sides as one word; where the last two stand, less is more."""
    word = rounded_side(east, _WEST, _BITS) | rounded_side(north, _SOUTH, _BITS - 1) << _LANE
    other = rounded_side(west, _WEST, _BITS) | rounded_side(south, _SOUTH, _BITS - 1) << _LANE
    return word | (other ^ _FULL) << (_LANE + _LANE)


@kernel
def draw_outline(trie: Trie, at: Number) -> None:
    """Round the box of a node."""
    node = trie.node
    if node[at, 0] > node[at, 2]:
        trie.outline[at] = GUARDS
    else:
        word = four_sides(node[at, 2], node[at, 3], node[at, 0], node[at, 1])
        trie.outline[at] = word | GUARDS


@kernel
def outlines_meet(outline: Number, window: Number) -> Number:
    """Tell whether a box may meet a window, which is `four_sides` of its other sides.

    In a lane where the box is less, the subtraction takes the guard away.
    """
    return (outline - window) & GUARDS == GUARDS


@kernel
def extend_box(node: NDArray[np.int32], at: Number, box: NDArray[np.int32], clause: Number) -> None:
    """Let the box of a node cover that of a clause."""
    node[at, 0] = min(node[at, 0], box[clause, 0])
    node[at, 1] = min(node[at, 1], box[clause, 1])
    node[at, 2] = max(node[at, 2], box[clause, 2])
    node[at, 3] = max(node[at, 3], box[clause, 3])


@kernel
def clear_box(node: NDArray[np.int32], at: Number) -> None:
    """Let a node cover nothing."""
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
    return node[at, SIZE] > 0 or node[at, ROOM] > 0


@kernel
def stride_of(room: Number) -> Number:
    """Return how far apart the sides of a box stand."""
    return min(np.int64(room), np.int64(LANES))


@kernel
def box_place(start: Number, number: Number) -> Number:
    """Return where in the pool the west side of an entry of a list stands."""
    block = number & ~np.int64(LANES - 1)
    return np.int64(start) + 4 * block + (number - block)


@kernel
def clause_place(start: Number, room: Number, number: Number) -> Number:
    """Return where in the pool the clause of an entry stands."""
    return np.int64(start) + 4 * np.int64(room) + number


@kernel
def rounded(size: Number) -> Number:
    """Return the room of a list for at least so many entries."""
    return size if size <= LANES else (size + LANES - 1) & ~np.int64(LANES - 1)


@kernel
def aligned(top: Number, room: Number) -> Number:
    """Return where a list with this room begins: blocks begin at cache lines."""
    return top if room < LANES else (top + LANES - 1) & ~np.int64(LANES - 1)


@kernel
def put_entry(trie: Trie, at: Number, number: Number, clause: Number, box: Number) -> None:
    """Write an entry of a node's list: its clause, and its box as a tuple of four sides."""
    start, room = trie.node[at, LIST], trie.node[at, ROOM]
    place, stride = box_place(start, np.int64(number)), stride_of(room)
    trie.entry[place] = box[0]
    trie.entry[place + stride] = box[1]
    trie.entry[place + 2 * stride] = box[2]
    trie.entry[place + 3 * stride] = box[3]
    trie.entry[clause_place(start, room, np.int64(number))] = clause


@kernel
def box_of(columns: Columns, clause: Number) -> tuple[Number, Number, Number, Number]:
    """Return the box of a clause."""
    box = columns.box
    return box[clause, 0], box[clause, 1], box[clause, 2], box[clause, 3]
