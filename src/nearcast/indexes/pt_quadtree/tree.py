"""The arrays of a pivotal-token quadtree, and how one goes about in it.

Yu, Li and Feng, CIKM 2015, section 4.1. A node's region is a rectangle of whole units, borders
included; its four children (south-west, south-east, north-west, north-east) share none of them: a
point lies in one leaf.

- ``node`` int32[nodes, 8]: west, south, east and north of its region, the first of its children
  (-1 for a leaf), its parent (-1 for the root, which is node 0), the clauses in its own lists, and
  a rule: of a leaf, the size above which it is tried to split; of an inner node, whether clauses
  that lie across its children are pushed down to the leaves (1) or stand here (0).
- ``lists``: by pivotal token, the clauses of a node's own, as in `nearcast.indexes.rtree.token_lists`.
  In a list, labels ascend.
- ``sets``: of inner nodes, all pivotal tokens at and below them, each with a bit for every child
  that has it, and one (`OWN`) for the node's own lists. A token with the bits of all four children
  is in the node's cover set, others in its non-cover set. Children keep the tokens that their
  parent covers, which the paper takes out of them: a change needs them there, and a message that
  was let in by its parent's bits does not ask a child again.
- ``entry`` int32[m, 8], the pool of lists: the box of a clause, its number and three of its other
  tokens, the rarest first; `NO_TOKEN` where there are none, the last one inverted where there are
  more.
- ``entry_rank`` int32[m]: the upper half of the label of every entry's clause, where clauses have
  labels; it is empty otherwise.
- ``clause_label`` int64[clauses]: the labels of clauses, by which lists are ordered; where there
  are none, the number of a clause is its label.
- ``state`` int64[8]: nodes, entries of the pool given away and given back, the settings, and how
  many clauses there are and were removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.ordered_clauses import Ordered, length_of, token_at
from nearcast.compiled.token_table import (
    NO_TOKEN,
    Tables,
    claim_slot,
    find_slot,
    remove_slot,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEST, SOUTH, EAST, NORTH, CHILD, PARENT, SIZE, RULE = range(8)
"""In ``node``."""

CLAUSE, OTHERS, WIDTH = 4, 5, 8
"""In ``entry``: the number of the clause, the first other token, and how many columns there are."""

NODES, TOP, LEFT, LIST_SIZE, DEPTH, PUSH, HELD, REMOVED = range(8)
"""In ``state``: see above; the settings are the size and the depth at which leaves are not split,
and whether all inner nodes push what lies across their children down."""

NEVER = np.int64(0x7FFFFFFF)
"""The rule of a leaf that cannot be split."""

OWN = np.uint64(16)
CHILDREN = np.uint64(15)


class Quadtree(NamedTuple):
    """The arrays of the index."""

    node: NDArray[np.int32]
    sets: Tables
    lists: Tables
    entry: NDArray[np.int32]
    entry_rank: NDArray[np.int32]
    clause_label: NDArray[np.int64]
    state: NDArray[np.int64]


@kernel
def middle(node: NDArray[np.int32], at: Number, side: Number) -> Number:
    """Return the last unit of a node's western (side 0) or southern (side 1) children."""
    low = np.int64(node[at, side])
    return low + ((np.int64(node[at, side + 2]) - low - 1) >> 1)


@kernel
def touched_children(node: NDArray[np.int32], at: Number, box: NDArray[np.int32]) -> Number:
    """Return a bit for every child that a box touches, which touches the node."""
    x, y = middle(node, at, 0), middle(node, at, 1)
    across, touched = 0, 0
    if box[0] <= x:
        across |= 1
    if box[2] > x:
        across |= 2
    if box[1] <= y:
        touched |= across
    if box[3] > y:
        touched |= across << 2
    return np.int64(touched)


@kernel
def lies_across(touched: Number) -> Number:
    """Tell whether more than one child is touched."""
    return (touched & (touched - 1)) != 0


@kernel
def lies_within(node: NDArray[np.int32], at: Number, box: NDArray[np.int32]) -> Number:
    """Tell whether a box lies in a node's region."""
    west = box[0] >= node[at, WEST] and box[2] <= node[at, EAST]
    return west and box[1] >= node[at, SOUTH] and box[3] <= node[at, NORTH]


@kernel
def next_place(
    tree: Quadtree, box: NDArray[np.int32], stack: NDArray[np.int64], top: Number
) -> tuple[Number, Number]:
    """Go on to the next node in whose lists a box stands; return it (-1: none), and the top.

    A box across the children of a node that does not push stands there, unless it was pushed from
    above: then it does not lie in the node's region.
    """
    node = tree.node
    while top > 0:
        top -= 1
        at = stack[top]
        first = np.int64(node[at, CHILD])
        if first < 0:
            return at, top
        touched = touched_children(node, at, box)
        if lies_across(touched) and node[at, RULE] == 0 and lies_within(node, at, box):
            return at, top
        for child in range(4):
            if (touched >> child) & 1:
                stack[top] = first + child
                top += 1
    return np.int64(-1), np.int64(0)


@kernel
def depth_of(node: NDArray[np.int32], at: Number) -> Number:
    """Return how far below the root a node is."""
    depth, above = np.int64(0), np.int64(node[at, PARENT])
    while above >= 0:
        depth, above = depth + 1, np.int64(node[above, PARENT])
    return depth


@kernel
def holder_of(node: NDArray[np.int32], at: Number) -> tuple[Number, Number]:
    """Return the first node whose set knows of a node's own lists (-1: none), and the bit there."""
    if node[at, CHILD] >= 0:
        return np.int64(at), OWN
    above = np.int64(node[at, PARENT])
    if above < 0:
        return above, OWN
    return above, np.uint64(1) << np.uint64(at - node[above, CHILD])


@kernel
def next_holder(node: NDArray[np.int32], at: Number) -> tuple[Number, Number]:
    """Return the parent of an inner node (-1: none), and the node's bit there."""
    above = np.int64(node[at, PARENT])
    if above < 0:
        return above, OWN
    return above, np.uint64(1) << np.uint64(at - node[above, CHILD])


@kernel
def tell_above(tree: Quadtree, at: Number, token: Number) -> None:
    """Note in the sets that a node's own lists have a token; the sets have room."""
    holder, word = holder_of(tree.node, at)
    while holder >= 0:
        slot = find_slot(tree.sets, holder, token)
        if slot >= 0:
            tree.sets.slot[slot, 1] |= word
            return
        slot = claim_slot(tree.sets, holder, token)
        tree.sets.slot[slot, 1] = word
        holder, word = next_holder(tree.node, holder)


@kernel
def forget_above(tree: Quadtree, at: Number, token: Number) -> None:
    """Note in the sets that a node's own lists have a token no more."""
    holder, word = holder_of(tree.node, at)
    while holder >= 0:
        slot = find_slot(tree.sets, holder, token)
        tree.sets.slot[slot, 1] &= ~word
        if tree.sets.slot[slot, 1] != np.uint64(0):
            return
        remove_slot(tree.sets, holder, slot)
        holder, word = next_holder(tree.node, holder)


@inlined_kernel
def label_of(tree: Quadtree, place: Number) -> Number:
    """Return the label of the clause of an entry."""
    clause = np.int64(tree.entry[place, CLAUSE])
    return tree.clause_label[clause] if len(tree.clause_label) > 0 else clause


@kernel
def move_entry(tree: Quadtree, old: Number, new: Number) -> None:
    """Copy an entry to another place of the pool."""
    for part in range(WIDTH):
        tree.entry[new, part] = tree.entry[old, part]
    if len(tree.entry_rank) > 0:
        tree.entry_rank[new] = tree.entry_rank[old]


@kernel
def write_entry(tree: Quadtree, ordered: Ordered, at: Number, clause: Number, key: Number) -> None:
    """Write a clause, without its pivotal token, at a place of the pool."""
    entry = tree.entry
    if len(tree.entry_rank) > 0:
        tree.entry_rank[at] = tree.clause_label[clause] >> 32
    for side in range(4):
        entry[at, side] = ordered.box[clause, side]
    entry[at, CLAUSE] = clause
    for i in range(OTHERS, WIDTH):
        entry[at, i] = NO_TOKEN
    others = np.int64(0)
    for i in range(length_of(ordered, clause)):
        token = token_at(ordered, clause, i)
        if token != key:
            if OTHERS + others < WIDTH:
                entry[at, OTHERS + others] = token
            others += 1
    if OTHERS + others > WIDTH:
        entry[at, WIDTH - 1] = ~entry[at, WIDTH - 1]
