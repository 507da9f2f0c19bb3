"""Build a pt-quadtree: split regions, make the lists of nodes, push lists down to the leaves.

Yu, Li and Feng, CIKM 2015, section 4.1. Work is a stack of tasks: a node and the clauses to be
listed at or below it. A build starts with the root and all clauses; an update splits a leaf by
starting with that leaf and its own clauses. A kernel changes nothing before it has space for it: it
returns False with what is short in ``shortage``, and continues when it is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_lists import ONE, list_count, list_start, place_list
from nearcast.compiled.token_table import LOW32, claim_slot, new_region, region_size, reserve_tokens
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST_SLOT
from nearcast.indexes.pt_quadtree.layout import (
    CLAUSE,
    EAST,
    ENTRIES,
    FIRST_CHILD,
    LIST_SIZE,
    MAX_DEPTH,
    NODES,
    NORTH,
    PARENT,
    PUSH_ALL,
    PUSHES,
    SIZE,
    SOUTH,
    SPLIT_ABOVE,
    STACK,
    UNSPLITTABLE,
    WEST,
    Quadtree,
    add_to_sets,
    depth_of,
    lowest_set,
    next_list_node,
    overlapped_children,
    parent_set,
    push_children,
    split_position,
    stays_at_node,
    write_entry,
)
from nearcast.indexes.pt_quadtree.pivots import PivotScratch, choose_pivots, count_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.clauses import Ordered

MORE_NODES, MORE_ENTRIES, MORE_LIST_SLOTS, MORE_SET_SLOTS, MORE_CLAUSES, MORE_PAIRS = range(6)
"""Fields of ``shortage``: what an operation needs more of, 0 for what it does not."""

TASKS, NEXT, NEXT_PLACE = range(3)
"""Fields of ``progress``: tasks on the stack; the next clause (or node); how many of the nodes that
list the clause have it already."""

MAX_GROWTH = 2
"""A region is not split if its children would have this many times its entries."""


class Pushing(NamedTuple):
    """What pushing the lists of each node would add (entries) and save (area times entries)."""

    more: NDArray[np.int64]
    gain: NDArray[np.float64]


class NodeClauses(NamedTuple):
    """The clauses that nodes list: those of node ``n`` are ``clause[start[n]:start[n + 1]]``."""

    start: NDArray[np.int64]
    clause: NDArray[np.int32]


class BuildScratch(NamedTuple):
    """The work that is left, and scratch for it.

    - ``task`` int64[2 * STACK, 3]: a node, and where its clauses begin and end in ``clause``.
    - ``clause`` int32[m]: the clauses of all tasks.
    - ``progress`` int64[3], ``shortage`` int64[6]: see above.
    - ``stack`` int64[STACK]: nodes, for walking down the tree.
    """

    task: NDArray[np.int64]
    clause: NDArray[np.int32]
    progress: NDArray[np.int64]
    shortage: NDArray[np.int64]
    stack: NDArray[np.int64]


def build_scratch(clauses: int) -> BuildScratch:
    """Return scratch without work, with capacity for ``clauses`` clauses."""
    return BuildScratch(
        np.empty((2 * STACK, 3), np.int64),
        np.empty(clauses, np.int32),
        np.zeros(3, np.int64),
        np.zeros(6, np.int64),
        np.empty(STACK, np.int64),
    )


@kernel
def run_tasks(
    tree: Quadtree, ordered: Ordered, scratch: BuildScratch, pivots: PivotScratch
) -> Number:
    """Run all tasks on the stack; return whether there was enough space."""
    while scratch.progress[TASKS] > 0:
        if not run_task(tree, ordered, scratch, pivots):
            return False
    return True


@kernel
def run_task(
    tree: Quadtree, ordered: Ordered, scratch: BuildScratch, pivots: PivotScratch
) -> Number:
    """Run the task on top of the stack: split the leaf, or make its lists."""
    task = scratch.progress[TASKS] - 1
    at, begin, end = scratch.task[task, 0], scratch.task[task, 1], scratch.task[task, 2]
    clauses, shortage = scratch.clause[begin:end], scratch.shortage
    is_leaf = tree.node[at, FIRST_CHILD] < 0
    split, moved = worth_splitting(tree, ordered, at, clauses)
    if not split:
        if not make_lists(tree, ordered, at, clauses, pivots, shortage):
            return False
        if is_leaf:
            set_split_size(tree, at, end - begin)
        scratch.progress[TASKS] = task
        return True
    if tree.state[NODES] + 4 > len(tree.node):
        shortage[MORE_NODES] = 4
        return False
    if end + moved > len(scratch.clause):
        shortage[MORE_CLAUSES] = end + moved
        return False
    add_children(tree, at)
    stay = distribute_clauses(tree, ordered, at, begin, end, scratch)
    if stay > 0:
        # The node's own lists come last: their clauses are stored before those of the children.
        insert_task(scratch, task, at, begin, begin + stay)
    return True


@kernel
def insert_task(
    scratch: BuildScratch, task: Number, at: Number, begin: Number, end: Number
) -> None:
    """Insert a task below the topmost four."""
    for i in range(scratch.progress[TASKS], task, -1):
        for column in range(3):
            scratch.task[i, column] = scratch.task[i - 1, column]
    scratch.task[task, 0], scratch.task[task, 1], scratch.task[task, 2] = at, begin, end
    scratch.progress[TASKS] += 1


@kernel
def worth_splitting(
    tree: Quadtree, ordered: Ordered, at: Number, clauses: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Tell whether a node is a leaf worth splitting, and how many entries its children would get.

    It is not if no clause would leave it, or if its lists would double in total: otherwise regions
    that most boxes cover would be split again and again without gain.
    """
    if tree.node[at, FIRST_CHILD] >= 0 or len(clauses) <= tree.state[LIST_SIZE]:
        return False, np.int64(0)
    if depth_of(tree.node, at) >= tree.state[MAX_DEPTH]:
        return False, np.int64(0)
    stay, moved = count_split(tree, ordered, at, clauses)
    return stay < len(clauses) and stay + moved < MAX_GROWTH * len(clauses), moved


@kernel
def count_split(
    tree: Quadtree, ordered: Ordered, at: Number, clauses: NDArray[np.int32]
) -> tuple[Number, Number]:
    """Return how many clauses would stay if a leaf were split, and the entries of its children."""
    stay, moved = np.int64(0), np.int64(0)
    for i in range(len(clauses)):
        children = children_for(tree, at, ordered.box[clauses[i]])
        stay += np.int64(children == 0)
        for child in range(4):
            moved += (children >> child) & 1
    return stay, moved


@kernel
def children_for(tree: Quadtree, at: Number, box: NDArray[np.int32]) -> Number:
    """Return a bit for each child that gets a clause if a leaf is split; 0 if it stays."""
    overlapped = overlapped_children(tree.node, at, box)
    if stays_at_node(tree.node, at, box, overlapped, tree.state[PUSH_ALL]):
        return np.int64(0)
    return overlapped


@kernel
def add_children(tree: Quadtree, at: Number) -> None:
    """Turn a leaf without lists into an inner node over four leaves."""
    node, first = tree.node, tree.state[NODES]
    x, y = split_position(node, at, 0), split_position(node, at, 1)
    for i in range(4):
        child = first + i
        west, south = (i & 1) == 0, (i & 2) == 0
        node[child, WEST] = node[at, WEST] if west else x + 1
        node[child, EAST] = x if west else node[at, EAST]
        node[child, SOUTH] = node[at, SOUTH] if south else y + 1
        node[child, NORTH] = y if south else node[at, NORTH]
        node[child, FIRST_CHILD], node[child, PARENT] = -1, at
        node[child, SIZE], node[child, SPLIT_ABOVE] = 0, tree.state[LIST_SIZE]
        for field in range(3):
            tree.sets.table[child, field] = 0
            tree.lists.table[child, field] = 0
    node[at, FIRST_CHILD], node[at, PUSHES] = first, tree.state[PUSH_ALL]
    tree.state[NODES] = first + 4


@kernel
def distribute_clauses(
    tree: Quadtree, ordered: Ordered, at: Number, begin: Number, end: Number, scratch: BuildScratch
) -> Number:
    """Replace a task by those of the four children; return how many clauses stay, in front.

    The clauses of the children are written after those of the node, then moved to their place,
    behind those that stay.
    """
    clause, top = scratch.clause, end
    task = scratch.progress[TASKS] - 1
    for child in range(4):
        scratch.task[task + child, 0] = tree.node[at, FIRST_CHILD] + child
        scratch.task[task + child, 1] = top
        for i in range(begin, end):
            children = children_for(tree, at, ordered.box[clause[i]])
            if (children >> child) & 1:
                clause[top] = clause[i]
                top += 1
        scratch.task[task + child, 2] = top
    kept = begin
    for i in range(begin, end):
        if children_for(tree, at, ordered.box[clause[i]]) == 0:
            clause[kept] = clause[i]
            kept += 1
    for i in range(end, top):
        clause[kept + i - end] = clause[i]
    for child in range(4):
        scratch.task[task + child, 1] -= end - kept
        scratch.task[task + child, 2] -= end - kept
    scratch.progress[TASKS] = task + 4
    return kept - begin


@kernel
def set_split_size(tree: Quadtree, at: Number, size: Number) -> None:
    """Set the size above which to try splitting a leaf of ``size`` clauses again."""
    if depth_of(tree.node, at) >= tree.state[MAX_DEPTH]:
        tree.node[at, SPLIT_ABOVE] = UNSPLITTABLE
    elif size <= tree.state[LIST_SIZE]:
        tree.node[at, SPLIT_ABOVE] = tree.state[LIST_SIZE]
    else:
        tree.node[at, SPLIT_ABOVE] = min(UNSPLITTABLE, 2 * size)


@kernel
def make_lists(
    tree: Quadtree,
    ordered: Ordered,
    at: Number,
    clauses: NDArray[np.int32],
    pivots: PivotScratch,
    shortage: NDArray[np.int64],
) -> Number:
    """Make the lists of a node that has none; return whether there was enough space."""
    tree.node[at, SIZE] = len(clauses)
    if len(clauses) == 0:
        return True
    pairs = count_pairs(ordered, clauses)
    if pairs >= len(pivots.pivot):
        shortage[MORE_PAIRS] = pairs + 1
        return False
    numbers = choose_pivots(ordered, clauses, pairs, pivots)
    tokens = np.int64(0)
    for n in range(numbers):
        tokens += np.int64(pivots.size[n] > 0)
    if tree.lists.top[0] + region_size(tokens) > len(tree.lists.slot):
        shortage[MORE_LIST_SLOTS] = region_size(tokens)
        return False
    if tree.state[ENTRIES] + len(clauses) > len(tree.entry):
        shortage[MORE_ENTRIES] = len(clauses)
        return False
    if not reserve_in_sets(tree, at, tokens, shortage):
        return False
    new_region(tree.lists, at, region_size(tokens))
    for n in range(numbers):
        if pivots.size[n] > 0:
            slot = claim_slot(tree.lists, at, np.int64(pivots.token[n]))
            tree.lists.slot[slot, 1] = np.uint64(n)
            add_to_sets(tree, at, np.int64(pivots.token[n]))
    place_lists(tree, at, pivots)
    for i in range(len(clauses)):
        n = pivots.pivot[i]
        write_entry(tree, ordered, pivots.start[n], clauses[i], np.int64(pivots.token[n]))
        pivots.start[n] += 1
    return True


@kernel
def reserve_in_sets(
    tree: Quadtree, at: Number, tokens: Number, shortage: NDArray[np.int64]
) -> Number:
    """Reserve space for tokens in all sets that have the tokens of a node's own lists."""
    holder, _ = lowest_set(tree.node, at)
    while holder >= 0:
        shortage[MORE_SET_SLOTS] = reserve_tokens(tree.sets, holder, tokens)
        if shortage[MORE_SET_SLOTS] > 0:
            return False
        holder, _ = parent_set(tree.node, holder)
    return True


@kernel
def place_lists(tree: Quadtree, at: Number, pivots: PivotScratch) -> None:
    """Allocate the lists of a node, whose slots have the numbers of their tokens.

    Lists are stored in the order of their slots: scanning the table scans the pool in order.
    """
    first, slots = tree.lists.table[at, FIRST_SLOT], tree.lists.table[at, SLOTS]
    for slot in range(first, first + slots):
        if tree.lists.slot[slot, 0] != np.uint64(0):
            n = np.int64(tree.lists.slot[slot, 1])
            place_list(tree.lists, slot, tree.state[ENTRIES], pivots.size[n])
            tree.lists.slot[slot, 0] += ONE * np.uint64(pivots.size[n])
            pivots.start[n] = tree.state[ENTRIES]  # holders are no longer needed
            tree.state[ENTRIES] += np.int64(pivots.size[n])


@kernel
def weigh_nodes(
    tree: Quadtree, box: NDArray[np.int32], stack: NDArray[np.int64], pushing: Pushing
) -> None:
    """Write what pushing the lists of each node would add and save.

    Messages in a node's region read its lists, messages in a leaf's region those of the leaf. So
    pushing a clause down saves the area of the node, less the areas of the leaves that its box
    overlaps, and costs the entries in these leaves beyond the first (section 4.1 of the paper).
    """
    more, gain = pushing
    for at in range(tree.state[NODES]):
        more[at], gain[at] = 0, 0.0
        if tree.node[at, FIRST_CHILD] < 0:
            continue
        first, slots = tree.lists.table[at, FIRST_SLOT], tree.lists.table[at, SLOTS]
        for slot in range(first, first + slots):
            if (tree.lists.slot[slot, 0] & LOW32) == np.uint64(0):
                continue
            start = list_start(tree.lists, slot)
            for i in range(start, start + list_count(tree.lists, slot)):
                clause = np.int64(tree.entry[i, CLAUSE])
                leaves, area = overlapped_leaves(tree, at, box[clause], stack)
                more[at] += leaves - 1
                gain[at] += region_area(tree.node, at) - area


@kernel
def overlapped_leaves(
    tree: Quadtree, at: Number, box: NDArray[np.int32], stack: NDArray[np.int64]
) -> tuple[Number, Number]:
    """Return how many leaves below a node a box overlaps, and their total area."""
    leaves, area, top = np.int64(0), 0.0, np.int64(1)
    stack[0] = at
    while top > 0:
        top -= 1
        here = stack[top]
        first = np.int64(tree.node[here, FIRST_CHILD])
        if first < 0:
            leaves += 1
            area += region_area(tree.node, here)
        else:
            top = push_children(stack, top, first, overlapped_children(tree.node, here, box))
    return leaves, area


@kernel
def region_area(node: NDArray[np.int32], at: Number) -> Number:
    """Return the area of a node's region in square units."""
    width = np.float64(node[at, EAST]) - np.float64(node[at, WEST]) + 1.0
    return width * (np.float64(node[at, NORTH]) - np.float64(node[at, SOUTH]) + 1.0)


@kernel
def choose_pushing(
    nodes: NDArray[np.int64], more: NDArray[np.int64], budget: Number, node: NDArray[np.int32]
) -> None:
    """Let nodes push, best first, as long as the budget of entries allows what they add."""
    for i in range(len(nodes)):
        if more[nodes[i]] <= budget:
            budget -= more[nodes[i]]
            node[nodes[i], PUSHES] = 1


@kernel
def place_clauses(
    tree: Quadtree,
    box: NDArray[np.int32],
    clauses: NDArray[np.int32],
    stack: NDArray[np.int64],
    output: NodeClauses,
) -> None:
    """Write the clauses that each node lists, from the node's start on.

    Starts move to the end of what was written. Without space for clauses they are only counted.
    """
    position, placed = output
    for i in range(len(clauses)):
        stack[0] = 0
        at, top = next_list_node(tree, box[clauses[i]], stack, np.int64(1))
        while at >= 0:
            if len(placed) > 0:
                placed[position[at]] = clauses[i]
            position[at] += 1
            at, top = next_list_node(tree, box[clauses[i]], stack, top)


@kernel
def make_all_lists(
    tree: Quadtree,
    ordered: Ordered,
    listed: NodeClauses,
    scratch: BuildScratch,
    pivots: PivotScratch,
) -> Number:
    """Make the lists of all nodes, which have none; return whether there was enough space."""
    start, placed = listed
    while scratch.progress[NEXT] < tree.state[NODES]:
        at = scratch.progress[NEXT]
        own = placed[start[at] : start[at + 1]]
        if not make_lists(tree, ordered, at, own, pivots, scratch.shortage):
            return False
        if tree.node[at, FIRST_CHILD] < 0 and len(own) > tree.node[at, SPLIT_ABOVE]:
            tree.node[at, SPLIT_ABOVE] = 2 * len(own)
        scratch.progress[NEXT] += 1
    return True
