"""Take a clause from its old slots to its new ones.

Wang et al., VLDB Journal 2015, algorithm 6, has four cases: a slot where both boxes have the same
points (only the stored box changes), one that only the old box reaches (the clause leaves its
leaf), one that both reach (its box is overwritten), one that only the new box reaches (it enters
the leaf). Counts follow, and say which nodes are *stale*: to be rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.layout import (
    BUILT_COUNT,
    CAPACITY,
    CHANGES,
    COUNT,
    KEYWORDS,
    LEAF,
    LEAF_SIZE,
    PARTS,
    ROOT,
    ROOT_STALE,
    SIZE,
    SPLIT_ABOVE,
    TOTAL_CLAUSES,
    UNIT,
    RankedClauses,
    Tree,
    leaf_units,
    west_position,
)
from nearcast.indexes.ap_tree.update import (
    CHECK_SHARE,
    delete_from_leaf,
    divergence,
    find_entry,
    grown_capacity,
    insert_into_leaf,
    widen_cut,
)
from nearcast.indexes.moving.ap_plus.places import Places, add_place, drop_place, keeps_places
from nearcast.indexes.moving.ap_plus.ways import (
    ABOVE,
    AFTER,
    BASE,
    BEFORE,
    BOTH,
    CHANGED,
    CHILD,
    COVERED,
    FLAGS,
    LINK,
    OFFSET_BELOW,
    is_end,
    way_region,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.indexes.ap_tree.update import RebuildLimits


class Ways(NamedTuple):
    """The ways of the clause that moves.

    ``row`` int64[m, 8]: see `nearcast.indexes.moving.ap_plus.ways`; ``stale`` int64[m]: which of
    them are to be rebuilt; ``chain`` int64[levels, 2]: scratch.
    """

    row: NDArray[np.int64]
    stale: NDArray[np.int64]
    chain: NDArray[np.int64]


def make_ways(rows: int) -> Ways:
    """Return space for ways."""
    return Ways(
        np.empty((rows, 8), np.int64), np.empty(rows, np.int64), np.empty((128, 2), np.int64)
    )


@kernel
def units_for_ways(tree: Tree, ways: NDArray[np.int64], count: Number) -> Number:
    """Return the units of the arena that leaves need for one more clause."""
    needed = np.int64(0)
    for i in range(count):
        link = ways[i, LINK]
        if (ways[i, FLAGS] & BOTH) != AFTER or not is_end(tree.arena, link):
            continue
        leaf = UNIT * np.int64(tree.arena[link])
        if leaf == 0:
            needed += leaf_units(grown_capacity(np.int64(0)))
        elif tree.arena[leaf + SIZE] == tree.arena[leaf + CAPACITY]:
            needed += leaf_units(grown_capacity(np.int64(tree.arena[leaf + SIZE])))
    return needed


@kernel
def _overwrite_box(
    arena: NDArray[np.int32], link: Number, clause: Number, box: NDArray[np.int32]
) -> None:
    """Write the new box of a clause into its leaf."""
    leaf = UNIT * np.int64(arena[link])
    capacity = np.int64(arena[leaf + CAPACITY])
    west = west_position(leaf, capacity, find_entry(arena, leaf, clause))
    for side in range(4):
        arena[west + side * capacity] = box[side]


@kernel
def change_leaves(
    tree: Tree,
    ranked: RankedClauses,
    places: Places,
    clause: Number,
    ways: NDArray[np.int64],
    count: Number,
) -> Number:
    """Write a clause, whose record has the new box, to its leaves, and count it in the nodes.

    Return whether it left or entered a slot.
    """
    arena, region, changed = tree.arena, np.empty(4, np.int64), False
    for i in range(count):
        way = ways[i]
        link, base, child, reached = way[LINK], way[BASE], way[CHILD], way[FLAGS] & BOTH
        at_end = is_end(arena, link)
        if reached == BOTH:
            if at_end:
                _overwrite_box(arena, link, clause, ranked.box[clause])
            elif way[FLAGS] & CHANGED:
                arena[UNIT * np.int64(arena[link]) + CHANGES] += 1
            continue
        if reached == 0:
            continue
        changed = True
        sign = np.int64(1) if reached == AFTER else np.int64(-1)
        if base != 0:
            arena[link + np.int64(arena[base + PARTS]) + 1] += sign
            if sign > 0 and arena[base] == KEYWORDS:
                widen_cut(tree, ranked, clause, base, link)
        if not at_end:
            node = UNIT * np.int64(arena[link])
            arena[node + COUNT] += sign
            arena[node + CHANGES] += 1
            continue
        if sign > 0:
            way_region(tree, way, region)
            insert_into_leaf(tree, ranked, clause, link, way[OFFSET_BELOW], region)
            if keeps_places(places):
                add_place(places, ranked.box, clause, base, child)
        else:
            delete_from_leaf(tree, clause, link)
            if keeps_places(places):
                drop_place(places, ranked.box, clause, base, child)
    return changed


@kernel
def _has_diverged(tree: Tree, base: Number, limits: RebuildLimits) -> Number:
    """Tell whether a node has doubled, or its clauses have another distribution than when built.

    What chance does to a distribution of this many clauses over this many children is no reason.
    """
    arena = tree.arena
    count, built = np.int64(arena[base + COUNT]), np.int64(arena[base + BUILT_COUNT])
    if count > 2 * built:
        return True
    if CHECK_SHARE * np.int64(arena[base + CHANGES]) <= built:
        return False
    if count < limits.share * tree.state[TOTAL_CLAUSES]:
        return False
    arena[base + CHANGES] = 0
    chance = np.float64(arena[base + PARTS]) / max(min(count, built), np.int64(1))
    return divergence(arena, base) - chance > limits.divergence


@kernel
def find_stale(
    tree: Tree,
    ways: NDArray[np.int64],
    count: Number,
    stale: NDArray[np.int64],
    limits: RebuildLimits,
) -> Number:
    """Write the ways whose nodes are stale, none below another; return how many there are.

    These are leaves that are too large, and nodes that have too few clauses or have diverged. If
    that is the root, the whole tree is to be rebuilt: the order of tokens may have changed too.
    """
    arena, found = tree.arena, np.int64(0)
    for i in range(count):
        way = ways[i]
        reached = way[FLAGS] & BOTH
        way[COVERED] = ways[way[ABOVE], COVERED] if way[ABOVE] >= 0 else 0
        node = UNIT * np.int64(arena[way[LINK]])
        if way[COVERED] == 1 or node == 0 or reached == 0:
            continue
        if arena[node] == LEAF:
            is_stale = reached == AFTER and arena[node + SIZE] > arena[node + SPLIT_ABOVE]
        else:
            is_stale = reached == BEFORE and arena[node + COUNT] < tree.state[LEAF_SIZE]
            if not is_stale and _has_diverged(tree, node, limits):
                is_stale = True
                if way[LINK] == ROOT:
                    tree.state[ROOT_STALE] = 1
                    return np.int64(0)
        if is_stale:
            way[COVERED] = 1
            stale[found] = i
            found += 1
    return found
