"""How a pivotal-token quadtree grows: regions are split, and nodes get their lists.

Yu, Li and Feng, CIKM 2015, section 4.1. What is to be done stands on a stack of nodes, each with
the clauses that are to stand at or below it; a tree is built by putting its root there with all
clauses, and a leaf that has become too large is split by putting it there with its own. Nothing
is changed before there is room for it: where there is none, a kernel says what is missing, and
goes on when it is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_regions import ONE, make_room, place_list
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST
from nearcast.compiled.token_table import (
    claim_slot,
    new_region,
    region_size,
)
from nearcast.indexes.pt_quadtree.cover import Cover, count_pairs, cover_list
from nearcast.indexes.pt_quadtree.tree import (
    CHILD,
    DEPTH,
    EAST,
    LIST_SIZE,
    NEVER,
    NODES,
    NORTH,
    PARENT,
    PUSH,
    RULE,
    SIZE,
    SOUTH,
    TOP,
    WEST,
    Quadtree,
    depth_of,
    holder_of,
    lies_across,
    lies_within,
    middle,
    next_holder,
    tell_above,
    touched_children,
    write_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.ordered_clauses import Ordered

M_NODES, M_ENTRIES, M_LISTS, M_SETS, M_CLAUSES, M_PAIRS = range(6)
"""In ``missing`` int64[6]: nodes, entries, slots of either pool, clauses of the work, pairs."""

STEPS, NEXT, PLACE = range(3)
"""In the state of the work: steps on the stack; the clause to be inserted, and its next place."""


SPREAD = 2
"""A region is not split if its children would have so many times its entries."""


class Work(NamedTuple):
    """What is still to be done.

    - ``step`` int64[many, 3]: a node, and where its clauses begin and end in ``clause`` int32[m].
    - ``state`` int64[3], ``missing`` int64[6].
    - ``stack`` int64[many]: room for going down the tree.
    """

    step: NDArray[np.int64]
    clause: NDArray[np.int32]
    state: NDArray[np.int64]
    missing: NDArray[np.int64]
    stack: NDArray[np.int64]


@kernel
def room_above(tree: Quadtree, at: Number, tokens: Number, missing: NDArray[np.int64]) -> Number:
    """Make room for tokens in all sets that know of a node's own lists."""
    holder, _ = holder_of(tree.node, at)
    while holder >= 0:
        missing[M_SETS] = make_room(tree.sets, holder, tokens)
        if missing[M_SETS] > 0:
            return False
        holder, _ = next_holder(tree.node, holder)
    return True


@kernel
def lay_out(tree: Quadtree, at: Number, cover: Cover) -> None:
    """Give the lists of a node, whose slots have the numbers of their tokens, their places.

    They follow one another as their slots do: who goes through the table goes through the pool.
    """
    first, slots = tree.lists.table[at, FIRST], tree.lists.table[at, SLOTS]
    for slot in range(first, first + slots):
        if tree.lists.slot[slot, 0] != np.uint64(0):
            n = np.int64(tree.lists.slot[slot, 1])
            place_list(tree.lists, slot, tree.state[TOP], cover.size[n])
            tree.lists.slot[slot, 0] += ONE * np.uint64(cover.size[n])
            cover.start[n] = tree.state[TOP]  # of its holders before, who all are covered now
            tree.state[TOP] += np.int64(cover.size[n])


@kernel
def make_lists(
    tree: Quadtree,
    ordered: Ordered,
    at: Number,
    clauses: NDArray[np.int32],
    cover: Cover,
    missing: NDArray[np.int64],
) -> Number:
    """Give a node that has no lists those of the clauses; return whether there was room."""
    tree.node[at, SIZE] = len(clauses)
    if len(clauses) == 0:
        return True
    pairs = count_pairs(ordered, clauses)
    if pairs >= len(cover.pivot):
        missing[M_PAIRS] = pairs + 1
        return False
    numbers = cover_list(ordered, clauses, pairs, cover)
    tokens = np.int64(0)
    for n in range(numbers):
        tokens += np.int64(cover.size[n] > 0)
    if tree.lists.top[0] + region_size(tokens) > len(tree.lists.slot):
        missing[M_LISTS] = region_size(tokens)
        return False
    if tree.state[TOP] + len(clauses) > len(tree.entry):
        missing[M_ENTRIES] = len(clauses)
        return False
    if not room_above(tree, at, tokens, missing):
        return False
    new_region(tree.lists, at, region_size(tokens))
    for n in range(numbers):
        if cover.size[n] > 0:
            slot = claim_slot(tree.lists, at, np.int64(cover.token[n]))
            tree.lists.slot[slot, 1] = np.uint64(n)
            tell_above(tree, at, np.int64(cover.token[n]))
    lay_out(tree, at, cover)
    for i in range(len(clauses)):
        n = cover.pivot[i]
        write_entry(tree, ordered, cover.start[n], clauses[i], np.int64(cover.token[n]))
        cover.start[n] += 1
    return True


@kernel
def children_for(tree: Quadtree, at: Number, box: NDArray[np.int32], pushes: Number) -> Number:
    """Return a bit for each child that gets a clause if a leaf is split; 0: it stays."""
    touched = touched_children(tree.node, at, box)
    if lies_across(touched) and pushes == 0 and lies_within(tree.node, at, box):
        return np.int64(0)
    return touched


@kernel
def count_split(
    tree: Quadtree, ordered: Ordered, at: Number, clauses: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Return how many clauses would stay if a leaf were split, and the entries its children get."""
    stay, moved = np.int64(0), np.int64(0)
    for i in range(len(clauses)):
        touched = children_for(tree, at, ordered.box[clauses[i]], tree.state[PUSH])
        stay += np.int64(touched == 0)
        for child in range(4):
            moved += (touched >> child) & 1
    return stay, moved


@kernel
def add_children(tree: Quadtree, at: Number) -> None:
    """Make a leaf without lists an inner node over four leaves."""
    node, first = tree.node, tree.state[NODES]
    x, y = middle(node, at, 0), middle(node, at, 1)
    for i in range(4):
        child = first + i
        west, south = (i & 1) == 0, (i & 2) == 0
        node[child, WEST] = node[at, WEST] if west else x + 1
        node[child, EAST] = x if west else node[at, EAST]
        node[child, SOUTH] = node[at, SOUTH] if south else y + 1
        node[child, NORTH] = y if south else node[at, NORTH]
        node[child, CHILD], node[child, PARENT] = -1, at
        node[child, SIZE], node[child, RULE] = 0, tree.state[LIST_SIZE]
        for side in range(3):
            tree.sets.table[child, side] = 0
            tree.lists.table[child, side] = 0
    node[at, CHILD], node[at, RULE] = first, tree.state[PUSH]
    tree.state[NODES] = first + 4


@kernel
def share_out(
    tree: Quadtree, ordered: Ordered, at: Number, begin: Number, end: Number, work: Work
) -> Number:
    """Replace a step by those of the four children; return how many clauses stay, in the front.

    The clauses of the children are written behind those of the node, and then moved to the place
    of these, but for those that stay.
    """
    clause, top = work.clause, end
    step = work.state[STEPS] - 1
    for child in range(4):
        work.step[step + child, 0] = tree.node[at, CHILD] + child
        work.step[step + child, 1] = top
        for i in range(begin, end):
            touched = children_for(tree, at, ordered.box[clause[i]], tree.state[PUSH])
            if (touched >> child) & 1:
                clause[top] = clause[i]
                top += 1
        work.step[step + child, 2] = top
    kept = begin
    for i in range(begin, end):
        if children_for(tree, at, ordered.box[clause[i]], tree.state[PUSH]) == 0:
            clause[kept] = clause[i]
            kept += 1
    for i in range(end, top):
        clause[kept + i - end] = clause[i]
    for child in range(4):
        work.step[step + child, 1] -= end - kept
        work.step[step + child, 2] -= end - kept
    work.state[STEPS] = step + 4
    return kept - begin


@kernel
def worth_splitting(
    tree: Quadtree, ordered: Ordered, at: Number, clauses: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Tell whether a node is a leaf to be split, and how many entries its children would get.

    Not where nothing would leave it, or where the lists together would become twice as long:
    regions that most boxes cover would be split again and again for nothing.
    """
    if tree.node[at, CHILD] >= 0 or len(clauses) <= tree.state[LIST_SIZE]:
        return False, np.int64(0)
    if depth_of(tree.node, at) >= tree.state[DEPTH]:
        return False, np.int64(0)
    stay, moved = count_split(tree, ordered, at, clauses)
    return stay < len(clauses) and stay + moved < SPREAD * len(clauses), moved


@kernel
def set_rule(tree: Quadtree, at: Number, size: Number) -> None:
    """Say when it is to be tried again to split a leaf."""
    if depth_of(tree.node, at) >= tree.state[DEPTH]:
        tree.node[at, RULE] = NEVER
    elif size <= tree.state[LIST_SIZE]:
        tree.node[at, RULE] = tree.state[LIST_SIZE]
    else:
        tree.node[at, RULE] = min(NEVER, 2 * size)


@kernel
def grow_node(tree: Quadtree, ordered: Ordered, work: Work, cover: Cover) -> Number:
    """Do the step on top of the stack: split the leaf, or give it its lists."""
    step = work.state[STEPS] - 1
    at, begin, end = work.step[step, 0], work.step[step, 1], work.step[step, 2]
    clauses, missing = work.clause[begin:end], work.missing
    leaf = tree.node[at, CHILD] < 0
    split, moved = worth_splitting(tree, ordered, at, clauses)
    if not split:
        if not make_lists(tree, ordered, at, clauses, cover, missing):
            return False
        if leaf:
            set_rule(tree, at, end - begin)
        work.state[STEPS] = step
        return True
    if tree.state[NODES] + 4 > len(tree.node):
        missing[M_NODES] = 4
        return False
    if end + moved > len(work.clause):
        missing[M_CLAUSES] = end + moved
        return False
    add_children(tree, at)
    stay = share_out(tree, ordered, at, begin, end, work)
    if stay > 0:
        # The node's own lists come first, below the steps of its children, whose clauses stay.
        insert_step(work, step, at, begin, begin + stay)
    return True


@kernel
def insert_step(work: Work, step: Number, at: Number, begin: Number, end: Number) -> None:
    """Put a step below the topmost four."""
    for i in range(work.state[STEPS], step, -1):
        for part in range(3):
            work.step[i, part] = work.step[i - 1, part]
    work.step[step, 0], work.step[step, 1], work.step[step, 2] = at, begin, end
    work.state[STEPS] += 1


@kernel
def grow_nodes(tree: Quadtree, ordered: Ordered, work: Work, cover: Cover) -> Number:
    """Do all steps on the stack; return whether there was room."""
    while work.state[STEPS] > 0:
        if not grow_node(tree, ordered, work, cover):
            return False
    return True
