"""The arrays of an adaptive partition tree, and how one goes about in it.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: efficiently support location-aware Publish/Subscribe",
VLDB Journal 2015, section 3.2. All nodes lie in one pool, ``arena`` int32[m], each in one piece: a
node is named by where it begins, in units of eight numbers, and 0 is no node. The first unit has
the name of the root. Every node begins with its kind.

- A *leaf* has a header of eight numbers (its size, the entries it has room for, the size above
  which it is tried to part it, and its region), then the keys of all entries, the ranks of their
  clauses that few messages have; then their west sides, their south, east and north sides; and then
  for each entry another rank, and the clause. Keys and sides are compared sixteen at a time, and
  tell of most entries that they do not match.
- A *keyword node* parts clauses by their token at its offset: those that have one go to the cut
  that has its rank, others to the dummy. It has a header of 16 numbers; the highest rank of each
  cut, then the lowest; then, by child, its name, how many clauses it has and had when it was built.
  A cut is what lies from its lowest to its highest rank: others hit none.
- A *space node* parts its region: clauses go to all cells that they touch, but to the dummy where
  they contain the region. It has columns and rows of unequal width: the first units of all columns
  but the first, of all rows but the first, and children as above. The outermost cells have no end.

The dummy is the last child. Children that have no clauses are no nodes.

Ranks are in the place of tokens throughout (`nearcast.indexes.ap_tree.ranks`); those of a clause
ascend. ``state`` int64[17]: see below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF, KEYWORDS, SPACE = 0, 1, 2
"""The kinds of nodes."""

UNIT = 8
"""Nodes begin at multiples of so many numbers."""

SIZE, ROOM, RULE, CORNER = 1, 2, 3, 4
"""In the header of a leaf; its region has four numbers, from ``CORNER`` on."""

LEAF_HEADER = 8

PARTS, COLUMNS, OFFSET, COUNT, BUILT, CHANGED, CHILD, REGION, LENGTH = 1, 2, 3, 4, 5, 6, 7, 8, 12
"""In the header of an inner node: its cuts or cells; its columns (0: cuts); the offset of its
clauses' ranks; how many clauses it has and had when built, and how many came or left since it was
last looked at; where the names of children begin; its region, of four numbers; its whole length."""

HEADER = 16

ANOTHER, CLAUSE = 0, 1
"""Behind the sides: another rank of an entry, twice, plus 1 if there are more; the clause."""

WIDTH = 7
"""How many numbers an entry has."""

TOP, DEAD, HELD, ENTRIES, DEPTH, LOW, HIGH, WORN, BOUNDS, SETTINGS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 12
"""In ``state``: units given away and given back, clauses, entries of all leaves, the depth of the
deepest node, the lowest rank and the one above the highest, whether the root is to be built anew,
four sides of the whole region, and five settings."""

LEAF_SIZE, FANOUT, PREFER, OPTIMAL, RARE = range(SETTINGS, SETTINGS + 5)
STATES = 17

PADDING = 32
"""Numbers behind the last node: sixteen entries are read at a time."""

NOTHING = np.int64(0x7FFFFFFF)
"""The key of a clause without tokens."""

ENDLESS = np.int64(-0x80000000)
"""The west or south of a leaf at the border of the whole region."""

ROOT = 0
"""Where in the arena the name of the root stands."""


class Tree(NamedTuple):
    """The arrays of the index."""

    arena: NDArray[np.int32]
    state: NDArray[np.int64]


class Ranked(NamedTuple):
    """Clauses as the tree sees them: those of clause ``c`` are ``rank[start[c]:start[c + 1]]``."""

    start: NDArray[np.int64]
    rank: NDArray[np.int32]
    box: NDArray[np.int32]


@inlined_kernel
def length_of(ranked: Ranked, clause: Number) -> Number:
    """Return how many ranks a clause has."""
    return ranked.start[clause + 1] - ranked.start[clause]


@inlined_kernel
def rank_at(ranked: Ranked, clause: Number, offset: Number) -> Number:
    """Return the rank of a clause at an offset, which it has."""
    return np.int64(ranked.rank[ranked.start[clause] + offset])


@kernel
def units(numbers: Number) -> Number:
    """Return how many units so many numbers take."""
    return (np.int64(numbers) + UNIT - 1) // UNIT


@inlined_kernel
def leaf_units(room: Number) -> Number:
    """Return the units of a leaf for so many entries."""
    return units(LEAF_HEADER + WIDTH * room)


@inlined_kernel
def side_place(base: Number, room: Number, number: Number) -> Number:
    """Return where in the arena the west side of an entry stands; others are ``room`` apart."""
    return base + LEAF_HEADER + room + number


@inlined_kernel
def tail_place(base: Number, room: Number, number: Number) -> Number:
    """Return where in the arena the other rank of an entry and its clause stand."""
    return base + LEAF_HEADER + 5 * room + 2 * number


@kernel
def move_entry(
    arena: NDArray[np.int32],
    leaf: tuple[Number, Number],
    number: Number,
    other: tuple[Number, Number],
    place: Number,
) -> None:
    """Copy an entry of a leaf to a place in another; both are given with their room."""
    for column in range(5):
        value = arena[leaf[0] + LEAF_HEADER + column * leaf[1] + number]
        arena[other[0] + LEAF_HEADER + column * other[1] + place] = value
    here, there = tail_place(leaf[0], leaf[1], number), tail_place(other[0], other[1], place)
    arena[there], arena[there + 1] = arena[here], arena[here + 1]


@kernel
def has_room(tree: Tree, more: Number) -> Number:
    """Tell whether the arena has room for so many units."""
    return UNIT * (tree.state[TOP] + more) + PADDING <= len(tree.arena)


@kernel
def take_units(tree: Tree, more: Number) -> Number:
    """Give units away, for which there is room; return the first."""
    first = tree.state[TOP]
    tree.state[TOP] = first + more
    return first


@kernel
def new_leaf(tree: Tree, room: Number, region: NDArray[np.int64]) -> Number:
    """Return a leaf without entries, for which there is room."""
    node = take_units(tree, leaf_units(room))
    arena, base = tree.arena, UNIT * node
    arena[base], arena[base + SIZE], arena[base + ROOM] = LEAF, 0, room
    arena[base + RULE] = tree.state[LEAF_SIZE]
    for side in range(4):
        arena[base + CORNER + side] = region[side]
    for side in range(2):
        if region[side] == tree.state[BOUNDS + side]:
            arena[base + CORNER + side] = ENDLESS
    return node


@kernel
def node_units(arena: NDArray[np.int32], base: Number) -> Number:
    """Return the units that a node takes."""
    if arena[base] == LEAF:
        return leaf_units(np.int64(arena[base + ROOM]))
    return units(arena[base + LENGTH])


@kernel
def put_entry(tree: Tree, base: Number, ranked: Ranked, clause: Number, offset: Number) -> None:
    """Write a clause behind the last entry of a leaf that has room.

    ``offset`` is how many ranks the keyword nodes above the leaf have asked for.
    """
    arena, size = tree.arena, np.int64(tree.arena[base + SIZE])
    room = np.int64(arena[base + ROOM])
    for side in range(4):
        arena[side_place(base, room, size) + side * room] = ranked.box[clause, side]
    begin, end = ranked.start[clause], ranked.start[clause + 1]
    key, another = NOTHING, np.int64(0)
    if end > begin:
        # Where frequent tokens come first, the last is the rarest. Where rare ones do, messages
        # that come to the leaf have mostly got those before the offset.
        rarest = end - 1 if tree.state[RARE] == 0 else min(begin + offset, end - 1)
        key = np.int64(ranked.rank[rarest])
        beside = rarest - 1 if tree.state[RARE] == 0 or rarest == end - 1 else rarest + 1
        another = 2 * np.int64(ranked.rank[max(beside, begin)]) + np.int64(end - begin > 2)
    arena[base + LEAF_HEADER + size] = key
    place = tail_place(base, room, size)
    arena[place + ANOTHER], arena[place + CLAUSE] = another, clause
    arena[base + SIZE] = size + 1
    tree.state[ENTRIES] += 1


@inlined_kernel
def part_of(arena: NDArray[np.int32], place: Number, splits: Number, value: Number) -> Number:
    """Return how many of the splits at a place are not above a value: its column or row."""
    part = np.int64(0)
    for i in range(place, place + splits):
        part += np.int64(arena[i] <= value)
    return part


@kernel
def cut_of(arena: NDArray[np.int32], base: Number, first: Number, rank: Number) -> Number:
    """Return the first cut, from a first one on, whose highest rank is not below a rank."""
    low, high = np.int64(first), np.int64(arena[base + PARTS])
    place = base + HEADER
    while low < high:
        middle = (low + high) >> 1
        if arena[place + middle] < rank:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def contains_region(box: NDArray[np.int32], region: NDArray[np.int64]) -> Number:
    """Tell whether a box contains a region."""
    across = box[0] <= region[0] and box[2] >= region[2]
    return across and box[1] <= region[1] and box[3] >= region[3]


@kernel
def touched_cells(
    arena: NDArray[np.int32], base: Number, box: NDArray[np.int32]
) -> tuple[Number, Number, Number, Number]:
    """Return the first and last column, and the first and last row, that a box touches."""
    columns = np.int64(arena[base + COLUMNS])
    rows = np.int64(arena[base + PARTS]) // columns
    place = base + HEADER
    west = part_of(arena, place, columns - 1, box[0])
    east = part_of(arena, place, columns - 1, box[2])
    place += columns - 1
    south = part_of(arena, place, rows - 1, box[1])
    north = part_of(arena, place, rows - 1, box[3])
    return west, east, south, north


@kernel
def cell_region(
    arena: NDArray[np.int32], base: Number, cell: Number, region: NDArray[np.int64]
) -> None:
    """Write the region of a child of a space node; that of the dummy is the node's."""
    for side in range(4):
        region[side] = arena[base + REGION + side]
    parts, columns = np.int64(arena[base + PARTS]), np.int64(arena[base + COLUMNS])
    if cell == parts:
        return
    column, row = cell % columns, cell // columns
    rows = parts // columns
    splits = base + HEADER
    if column > 0:
        region[0] = arena[splits + column - 1]
    if column + 1 < columns:
        region[2] = np.int64(arena[splits + column]) - 1
    splits += columns - 1
    if row > 0:
        region[1] = arena[splits + row - 1]
    if row + 1 < rows:
        region[3] = np.int64(arena[splits + row]) - 1
