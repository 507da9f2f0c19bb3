"""Where in an adaptive partition tree a clause stands: its leaves, and the nodes on its way.

Wang et al., VLDB Journal 2015, section 3.3.5: a new clause goes down to its leaves by its ranks and
its box, and so does one that leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.grow import (
    BEGIN,
    BOX,
    END,
    LEVEL,
    SKIP,
    SLOT,
    STEP_WIDTH,
    first_child,
)
from nearcast.indexes.ap_tree.tree import (
    BOUNDS,
    CHILD,
    CLAUSE,
    CORNER,
    DEAD,
    ENTRIES,
    HEADER,
    KEYWORDS,
    LEAF,
    OFFSET,
    PARTS,
    ROOM,
    RULE,
    SIZE,
    UNIT,
    Ranked,
    Tree,
    cell_region,
    leaf_units,
    length_of,
    move_entry,
    new_leaf,
    put_entry,
    rank_at,
    tail_place,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAVES, PASSED = 0, 1
"""In the numbers of `Ways`."""

FROM, AGAIN, COVERED, WAY_WIDTH = STEP_WIDTH, STEP_WIDTH + 1, STEP_WIDTH + 2, STEP_WIDTH + 3
"""Behind a step: see `Ways`."""


class Ways(NamedTuple):
    """Where a clause goes: the leaves it comes to, and the inner nodes on its way.

    - ``leaf``, ``stack`` and ``inner`` int64[many, 12], as steps: the latter is a row for every
      child of an inner node that the clause goes to, with the place of the node in ``BEGIN`` and
      of the child's name in ``END``. Behind a step: the row from which it was come to (-1: none),
      whether the row before has the same node, and whether this node or one above it is due.
    - ``due`` int64[many, 12]: as steps, nodes that are to be made anew. ``number`` int64[2]:
      how many leaves and rows there are.
    """

    leaf: NDArray[np.int64]
    stack: NDArray[np.int64]
    inner: NDArray[np.int64]
    due: NDArray[np.int64]
    number: NDArray[np.int64]


@kernel
def find_ways(tree: Tree, ranked: Ranked, clause: Number, ways: Ways) -> Number:
    """Write where a clause goes; return whether there was room."""
    arena, stack, top = tree.arena, ways.stack, np.int64(1)
    ways.number[:] = 0
    stack[0, :] = 0
    stack[0, FROM] = -1
    for side in range(4):
        stack[0, BOX + side] = tree.state[BOUNDS + side]
    while top > 0:
        top -= 1
        at = stack[top]
        base = UNIT * np.int64(arena[at[SLOT]])
        if base == 0 or arena[base] == LEAF:
            if ways.number[LEAVES] == len(ways.leaf):
                return False
            ways.leaf[ways.number[LEAVES]] = at
            ways.number[LEAVES] += 1
            continue
        slot, level, skip, way = at[SLOT], at[LEVEL], at[SKIP], at[FROM]
        parts, keywords = np.int64(arena[base + PARTS]), arena[base] == KEYWORDS
        names = base + np.int64(arena[base + CHILD])
        first, across, rows, apart = first_child(tree, base, ranked, clause, at[BOX : BOX + 4])
        passes = across * rows
        if ways.number[PASSED] + passes > len(ways.inner) or top + passes > len(stack):
            return False
        region = at[BOX : BOX + 4].copy()
        for row in range(rows):
            for child in range(first + row * apart, first + row * apart + across):
                passed = ways.inner[ways.number[PASSED]]
                passed[SLOT], passed[BEGIN], passed[END] = slot, base, names + child
                passed[LEVEL], passed[SKIP] = level, skip
                passed[BOX : BOX + 4] = region
                passed[FROM], passed[AGAIN] = way, np.int64(row > 0 or child > first)
                below = stack[top]
                below[SLOT], below[LEVEL] = names + child, level + 1
                below[FROM] = ways.number[PASSED]
                ways.number[PASSED] += 1
                below[SKIP] = skip + np.int64(keywords and child < parts)
                if keywords:
                    below[BOX : BOX + 4] = region
                else:
                    cell_region(arena, base, child, below[BOX : BOX + 4])
                top += 1
    return True


@kernel
def larger_room(size: Number) -> Number:
    """Return for how many entries a leaf gets room that has so many and no more room."""
    return size + (size >> 1) + 2


@kernel
def units_for(tree: Tree, ways: Ways) -> Number:
    """Return the units that leaves need which have no room, or are not there yet."""
    needed = np.int64(0)
    for i in range(ways.number[LEAVES]):
        base = UNIT * np.int64(tree.arena[ways.leaf[i, SLOT]])
        if base == 0:
            needed += leaf_units(larger_room(np.int64(0)))
        elif tree.arena[base + SIZE] == tree.arena[base + ROOM]:
            needed += leaf_units(larger_room(np.int64(tree.arena[base + SIZE])))
    return needed


@kernel
def move_leaf(tree: Tree, slot: Number, room: Number) -> None:
    """Move a leaf to where it has more room, which there is."""
    arena = tree.arena
    old = UNIT * np.int64(arena[slot])
    size, old_room = np.int64(arena[old + SIZE]), np.int64(arena[old + ROOM])
    region = np.empty(4, np.int64)
    for side in range(4):
        region[side] = arena[old + CORNER + side]
    node = new_leaf(tree, room, region)
    base = UNIT * node
    arena[base + SIZE], arena[base + RULE] = size, arena[old + RULE]
    for i in range(size):
        move_entry(arena, (old, old_room), i, (base, room), i)
    arena[slot] = node
    tree.state[DEAD] += leaf_units(old_room)


@kernel
def put_in_leaves(tree: Tree, ranked: Ranked, clause: Number, ways: Ways) -> None:
    """Put a clause into its leaves, for which there is room; leaves that are too large are due."""
    arena = tree.arena
    for i in range(ways.number[LEAVES]):
        slot = ways.leaf[i, SLOT]
        if arena[slot] == 0:
            region = ways.leaf[i, BOX : BOX + 4]
            arena[slot] = new_leaf(tree, larger_room(np.int64(0)), region)
        base = UNIT * np.int64(arena[slot])
        if arena[base + SIZE] == arena[base + ROOM]:
            move_leaf(tree, slot, larger_room(np.int64(arena[base + SIZE])))
            base = UNIT * np.int64(arena[slot])
        put_entry(tree, base, ranked, clause, ways.leaf[i, SKIP])


@kernel
def take_from_leaves(tree: Tree, clause: Number, ways: Ways) -> None:
    """Take a clause out of its leaves; the last entry takes its place."""
    arena = tree.arena
    for i in range(ways.number[LEAVES]):
        slot = ways.leaf[i, SLOT]
        base = UNIT * np.int64(arena[slot])
        room, size = np.int64(arena[base + ROOM]), np.int64(arena[base + SIZE]) - 1
        at = np.int64(0)
        while arena[tail_place(base, room, at) + CLAUSE] != clause:
            at += 1
        move_entry(arena, (base, room), size, (base, room), at)
        arena[base + SIZE] = size
        tree.state[ENTRIES] -= 1
        if size == 0:
            arena[slot] = 0
            tree.state[DEAD] += leaf_units(room)


@kernel
def widen_cut(tree: Tree, ranked: Ranked, clause: Number, base: Number, name: Number) -> None:
    """Let the cut of a keyword node have the rank of a clause that goes to it."""
    arena, parts = tree.arena, np.int64(tree.arena[base + PARTS])
    child = name - base - np.int64(arena[base + CHILD])
    offset = np.int64(arena[base + OFFSET])
    if child == parts or length_of(ranked, clause) <= offset:
        return
    rank, place = rank_at(ranked, clause, offset), base + HEADER + child
    arena[place] = max(np.int64(arena[place]), rank)
    arena[place + parts] = min(np.int64(arena[place + parts]), rank)
