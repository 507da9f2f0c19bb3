"""The arrays of an ap-tree: where a node keeps what, and questions about a single node.

All nodes lie in one array, ``arena`` int32[m]. A node begins at a multiple of `UNIT` values; its
*number* is that multiple, its *base* the position itself, and number 0 means that there is no node.
A *link* is a position in the arena that holds the number of a node. The first unit of the arena is
not a node: it holds the link of the root. A node begins with its kind; what follows is fixed by the
constants below and drawn in `nearcast.indexes.ap_tree`.

Ranks stand for tokens everywhere in the tree (`nearcast.indexes.ap_tree.ranks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_table import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEAF, KEYWORDS, SPACE = 0, 1, 2
"""The kinds of nodes."""

UNIT = 8
"""Nodes begin at multiples of this many values."""

ROOT = 0
"""The link of the root."""

SIZE, CAPACITY, SPLIT_ABOVE, LEAF_REGION = 1, 2, 3, 4
"""Header of a leaf: its entries, the entries it has space for, the size above which it is split if
that pays, and its region (four sides)."""

LEAF_HEADER = 8

SECOND_RANK, CLAUSE = 0, 1
"""Tail of an entry: another rank of its clause, doubled, plus 1 if there are more; the clause."""

ENTRY_WIDTH = 7
"""Values per entry: key, four sides, tail."""

PARTS, COLUMNS, OFFSET, COUNT, BUILT_COUNT, CHANGES, CHILDREN, REGION = range(1, 9)
LENGTH = REGION + 4
"""Header of an inner node: its cuts or cells; its columns (0 for cuts); how many ranks of a clause
the keyword nodes above have used; its clauses, now and when it was built; clauses that came or left
since its divergence was last computed; where its links begin, relative to its base; its region
(four sides); its length in values."""

PARENT, PARENT_CHILD = LENGTH + 1, LENGTH + 2
"""Used only by trees with message lists: the base of the node above an inner node (0 for the root),
and which of its children the node is."""

HEADER = 16

(
    UNITS_USED,
    UNITS_FREED,
    TOTAL_CLAUSES,
    TOTAL_ENTRIES,
    MAX_LEVEL,
    FIRST_RANK,
    END_RANK,
    ROOT_STALE,
    BOUNDS,
) = range(9)
"""Fields of ``state`` int64[17]: units of the arena handed out, and of those the ones no longer in
use; clauses in the tree; entries of all leaves; a level that no node is below; the lowest rank, and
the one after the highest; 1 if the whole tree is to be rebuilt; the region of the root (four
sides). `OPTIONS` follow."""

OPTIONS = 12
LEAF_SIZE, FANOUT, PREFER, OPTIMAL, RARE = range(OPTIONS, OPTIONS + 5)
STATE_FIELDS = OPTIONS + 5

ROOT_LIST = 3
"""Where the message list of the root is named, in a tree with message lists."""

PADDING = 32
"""Values after the last node: leaves are read sixteen entries at a time."""

NO_RANK = NO_TOKEN
"""The key of a clause without tokens. Its bit is set in the filter of every message."""

UNBOUNDED = np.int64(-0x80000000)
"""The west or south side of a leaf at the border of the root's region."""


class Tree(NamedTuple):
    """The nodes and the state."""

    arena: NDArray[np.int32]
    state: NDArray[np.int64]


class RankedClauses(NamedTuple):
    """What the tree needs of clauses: ``rank[start[c]:end[c]]`` ascending, and boxes.

    Where clauses are numbered in the order of their ranks, ``end`` is ``start[1:]``. ``box`` may
    have more columns than the four sides.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    rank: NDArray[np.int32]
    box: NDArray[np.int32]


@inlined_kernel
def rank_count(ranked: RankedClauses, clause: Number) -> Number:
    """Return how many ranks a clause has."""
    return ranked.end[clause] - ranked.start[clause]


@inlined_kernel
def rank_at(ranked: RankedClauses, clause: Number, offset: Number) -> Number:
    """Return the rank of a clause at an offset below its `rank_count`."""
    return np.int64(ranked.rank[ranked.start[clause] + offset])


@kernel
def units_of(values: Number) -> Number:
    """Return how many units this many values take."""
    return (np.int64(values) + UNIT - 1) // UNIT


@inlined_kernel
def has_lists(state: NDArray[np.int64]) -> Number:
    """Tell whether the slots of a tree have message lists: its state has one field more."""
    return len(state) > STATE_FIELDS


@inlined_kernel
def child_columns(state: NDArray[np.int64]) -> Number:
    """Return how many values an inner node has for each child: link, counts, and the list."""
    return np.int64(3) + np.int64(has_lists(state))


@inlined_kernel
def leaf_units(capacity: Number) -> Number:
    """Return the units of a leaf with this capacity."""
    return units_of(LEAF_HEADER + ENTRY_WIDTH * capacity)


@kernel
def node_units(arena: NDArray[np.int32], base: Number) -> Number:
    """Return the units of a node."""
    if arena[base] == LEAF:
        return leaf_units(np.int64(arena[base + CAPACITY]))
    return units_of(arena[base + LENGTH])


@inlined_kernel
def west_position(base: Number, capacity: Number, entry: Number) -> Number:
    """Return the position of an entry's west side; its other sides are ``capacity`` apart."""
    return base + LEAF_HEADER + capacity + entry


@inlined_kernel
def tail_position(base: Number, capacity: Number, entry: Number) -> Number:
    """Return the position of an entry's tail."""
    return base + LEAF_HEADER + 5 * capacity + 2 * entry


@kernel
def has_units(tree: Tree, units: Number) -> Number:
    """Tell whether the arena has space for more units."""
    return UNIT * (tree.state[UNITS_USED] + units) + PADDING <= len(tree.arena)


@kernel
def take_units(tree: Tree, units: Number) -> Number:
    """Reserve units at the end of the arena, which has space for them; return the first."""
    first = tree.state[UNITS_USED]
    tree.state[UNITS_USED] = first + units
    return first


@kernel
def new_leaf(tree: Tree, capacity: Number, region: NDArray[np.int64]) -> Number:
    """Return the number of a new leaf without entries; the arena has space for it."""
    node = take_units(tree, leaf_units(capacity))
    arena, base = tree.arena, UNIT * node
    arena[base], arena[base + SIZE], arena[base + CAPACITY] = LEAF, 0, capacity
    arena[base + SPLIT_ABOVE] = tree.state[LEAF_SIZE]
    for side in range(4):
        arena[base + LEAF_REGION + side] = region[side]
    for side in range(2):
        if region[side] == tree.state[BOUNDS + side]:
            arena[base + LEAF_REGION + side] = UNBOUNDED
    return node


@kernel
def append_entry(
    tree: Tree, base: Number, ranked: RankedClauses, clause: Number, offset: Number
) -> None:
    """Append a clause to a leaf that has space; ``offset`` ranks were used by nodes above it."""
    arena, size = tree.arena, np.int64(tree.arena[base + SIZE])
    capacity = np.int64(arena[base + CAPACITY])
    for side in range(4):
        arena[west_position(base, capacity, size) + side * capacity] = ranked.box[clause, side]
    begin, end = ranked.start[clause], ranked.end[clause]
    key, second = NO_RANK, np.int64(0)
    if end > begin:
        # The key is the rarest rank that tells messages apart here. If frequent tokens come first,
        # that is the last one. If rare ones do, most messages in this leaf have those before the
        # offset, and it is the one at the offset.
        rarest = end - 1 if tree.state[RARE] == 0 else min(begin + offset, end - 1)
        key = np.int64(ranked.rank[rarest])
        beside = rarest - 1 if tree.state[RARE] == 0 or rarest == end - 1 else rarest + 1
        second = 2 * np.int64(ranked.rank[max(beside, begin)]) + np.int64(end - begin > 2)
    arena[base + LEAF_HEADER + size] = key
    tail = tail_position(base, capacity, size)
    arena[tail + SECOND_RANK], arena[tail + CLAUSE] = second, clause
    arena[base + SIZE] = size + 1
    tree.state[TOTAL_ENTRIES] += 1


@kernel
def copy_entry(
    arena: NDArray[np.int32],
    source: tuple[Number, Number],
    entry: Number,
    target: tuple[Number, Number],
    place: Number,
) -> None:
    """Copy an entry to a place in the same or another leaf; both are given as base and capacity."""
    for column in range(5):
        value = arena[source[0] + LEAF_HEADER + column * source[1] + entry]
        arena[target[0] + LEAF_HEADER + column * target[1] + place] = value
    here = tail_position(source[0], source[1], entry)
    there = tail_position(target[0], target[1], place)
    arena[there], arena[there + 1] = arena[here], arena[here + 1]


@kernel
def find_cut(arena: NDArray[np.int32], base: Number, rank: Number) -> Number:
    """Return the first cut of a keyword node whose highest rank is at least ``rank``."""
    low, high = np.int64(0), np.int64(arena[base + PARTS])
    highest = base + HEADER
    while low < high:
        middle = (low + high) >> 1
        if arena[highest + middle] < rank:
            low = middle + 1
        else:
            high = middle
    return low


@inlined_kernel
def splits_passed(split: NDArray[Any], begin: Number, splits: Number, value: Number) -> Number:
    """Return how many of the splits from ``begin`` on are at most ``value``: its column or row."""
    passed = np.int64(0)
    for i in range(begin, begin + splits):
        passed += np.int64(split[i] <= value)
    return passed


@kernel
def touched_cells(
    arena: NDArray[np.int32], base: Number, box: NDArray[np.int32]
) -> tuple[Number, Number, Number, Number]:
    """Return the first and last column, and the first and last row, that a box touches."""
    columns = np.int64(arena[base + COLUMNS])
    rows = np.int64(arena[base + PARTS]) // columns
    split = base + HEADER
    west = splits_passed(arena, split, columns - 1, box[0])
    east = splits_passed(arena, split, columns - 1, box[2])
    split += columns - 1
    south = splits_passed(arena, split, rows - 1, box[1])
    north = splits_passed(arena, split, rows - 1, box[3])
    return west, east, south, north


@kernel
def covers_region(box: NDArray[np.int32], region: NDArray[Any], begin: Number) -> Number:
    """Tell whether a box contains the region whose sides are ``region[begin:begin + 4]``."""
    across = box[0] <= region[begin] and box[2] >= region[begin + 2]
    return across and box[1] <= region[begin + 1] and box[3] >= region[begin + 3]


@inlined_kernel
def find_children(
    arena: NDArray[np.int32], base: Number, ranked: RankedClauses, clause: Number
) -> tuple[Number, Number, Number, Number]:
    """Return the children of an inner node that a clause goes to.

    They form a block: its first child, its columns, its rows, and how far its rows are apart. A
    rank between two cuts belongs to the second, a rank above all of them to the last.
    """
    parts = np.int64(arena[base + PARTS])
    one = np.int64(1)
    if arena[base] == KEYWORDS:
        offset = np.int64(arena[base + OFFSET])
        if rank_count(ranked, clause) <= offset:
            return parts, one, one, one
        cut = find_cut(arena, base, rank_at(ranked, clause, offset))
        return min(cut, parts - 1), one, one, one
    box = ranked.box[clause]
    if covers_region(box, arena, base + REGION):
        return parts, one, one, one
    columns = np.int64(arena[base + COLUMNS])
    west, east, south, north = touched_cells(arena, base, box)
    return south * columns + west, east - west + 1, north - south + 1, columns


@kernel
def child_region(
    arena: NDArray[np.int32], base: Number, child: Number, region: NDArray[np.int64]
) -> None:
    """Write the region of a child: that of a cell, or for cuts and the dummy that of the node."""
    for side in range(4):
        region[side] = arena[base + REGION + side]
    parts = np.int64(arena[base + PARTS])
    if arena[base] == KEYWORDS or child == parts:
        return
    columns = np.int64(arena[base + COLUMNS])
    column, row, rows = child % columns, child // columns, parts // columns
    split = base + HEADER
    if column > 0:
        region[0] = arena[split + column - 1]
    if column + 1 < columns:
        region[2] = np.int64(arena[split + column]) - 1
    split += columns - 1
    if row > 0:
        region[1] = arena[split + row - 1]
    if row + 1 < rows:
        region[3] = np.int64(arena[split + row]) - 1


@kernel
def move_nodes(tree: Tree, arena: NDArray[np.int32], stack: NDArray[np.int64]) -> None:
    """Copy all nodes into another arena with space for them, each before those below it.

    The stack gets links of the new arena that hold numbers of the old one.
    """
    old, end, top = tree.arena, np.int64(1), np.int64(1)
    arena[ROOT], arena[ROOT_LIST] = old[ROOT], old[ROOT_LIST]
    stack[0, 0] = ROOT
    while top > 0:
        top -= 1
        link = stack[top, 0]
        base = UNIT * np.int64(arena[link])
        if base == 0:
            continue
        units = node_units(old, base)
        here = UNIT * end
        for i in range(UNIT * units):
            arena[here + i] = old[base + i]
        arena[link] = end
        end += units
        if arena[here] == LEAF:
            continue
        links = here + np.int64(arena[here + CHILDREN])
        for child in range(np.int64(arena[here + PARTS]), -1, -1):
            stack[top, 0] = links + child
            top += np.int64(arena[links + child] != 0)
    tree.state[UNITS_USED], tree.state[UNITS_FREED] = end, 0


def empty_tree(options: Sequence[int], ranks: int, entries: int, *, lists: bool = False) -> Tree:
    """Return a tree without nodes; the arena is ample, since memory not touched costs nothing.

    With ``lists``, every slot (the root's, and every child of an inner node) has a message list.
    """
    state = np.zeros(STATE_FIELDS + int(lists), np.int64)
    state[UNITS_USED], state[END_RANK] = 1, ranks
    state[OPTIONS:STATE_FIELDS] = options
    return Tree(at_cache_line(24 * entries + 1024, np.int32), state)


def enlarged_tree(tree: Tree, units: int) -> Tree:
    """Return the tree in an arena with space for more units."""
    used = UNIT * int(tree.state[UNITS_USED])
    arena = at_cache_line(used + used // 2 + UNIT * units + 1024, np.int32)
    arena[:used] = tree.arena[:used]
    return tree._replace(arena=arena)


def compacted_tree(tree: Tree, spare: int) -> Tree:
    """Return the tree in an arena without gaps, with ``spare`` values after the last node."""
    used = UNIT * int(tree.state[UNITS_USED] - tree.state[UNITS_FREED])
    arena = at_cache_line(used + spare + PADDING, np.int32)
    move_nodes(tree, arena, np.empty((max_pending(tree), 1), np.int64))
    return tree._replace(arena=arena)


def max_pending(tree: Tree) -> int:
    """Return a bound on the nodes that wait on a stack when a tree is walked, and some more."""
    return int(tree.state[MAX_LEVEL] + 8) * int(tree.state[FANOUT] + 2)
