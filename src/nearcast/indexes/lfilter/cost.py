"""What it costs to filter a message by a trie of token sets or by a quadtree of pivotal tokens.

Yu, Li and Feng, CIKM 2015, section 5.3, in nanoseconds. What it costs to open, compare, look up and
verify was fitted to the times of either index alone, over tweets and places of two sizes, most of
which it fits within a third; what pruning and deeper nodes cost is a rough estimate.

- A token costs with the trie what those of a sample do on average, whose messages are made of the
  tokens of clauses. (To look at the message itself, at what its tokens lead to, was tried: it cost
  more than better choices won.)
- Of the quadtree, the nodes on the way to a point are known. A box is followed down to a level, and
  opens of what is below as many nodes as is its share of the region (the paper's estimate of
  candidate nodes). What a message meets in the lists of a node follows from how frequent the
  pivotal tokens are in all clauses: messages are taken to have the same words.

The paper compares what filtering costs and leaves verification out; here it is in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_regions import list_count
from nearcast.compiled.token_table import LOW32, NO_TOKEN
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST
from nearcast.indexes.mbr_trie.trie import BELOW, COUNT, TIMES, TOKEN, Trie, find_slot
from nearcast.indexes.mbr_trie.trie import CHILD as TRIE_CHILD
from nearcast.indexes.pt_quadtree.tree import (
    CHILD,
    EAST,
    NODES,
    NORTH,
    PARENT,
    SOUTH,
    WEST,
    Quadtree,
    touched_children,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBE = 10.0
"""To look a token up."""

OPEN = 250.0
"""To open a child of the trie's root, all told."""

COMPARE = 0.3
"""To compare a box below it, sixteen at once; some are not reached."""

DEEPER = 150.0
"""To open a node below it."""

WALK = 2.0
"""To look for a child of a node in the message."""

SEARCH = 4.0
"""One step of a binary search among children."""

ENTER = 75.0
"""To open a node of the quadtree."""

LOOKUP = 3.0
"""To look a token up in a table of the quadtree; to go through a slot costs a quarter."""

VERIFY = 10.0
"""To verify an entry of the quadtree."""

PASS = 3.0
"""The same where lists are pruned, all told: most entries are passed over."""

PRUNE_SHARE = 2
"""Lists are pruned if they have so many times more entries than the message has tokens."""

_LOW32 = np.int64(0xFFFFFFFF)

LEVELS = 6
"""A box is followed so far down."""

SHORT, LONG = 12, 512
"""What depends on the tokens of a message is known for so many, and reckoned in between."""

PASSED, MET_SHORT, MET_LONG, ALL, ALL_PASSED, ALL_SHORT, ALL_LONG = range(7)
"""In ``weight``: the slots of a node's tables, and the entries that a short and a long message are
expected to meet in its own lists; how many nodes there are at and below it, and the sums of all
three over these."""


class Model(NamedTuple):
    """What messages are expected to meet.

    ``weight`` float64[nodes, 7], ``token_cost`` float64[1]: what a token costs with the trie.
    """

    weight: NDArray[np.float64]
    token_cost: NDArray[np.float64]


@kernel
def reckon(tokens: Number, short: Number, long: Number) -> Number:
    """Return what a message of so many tokens meets if a short and a long one meet so much."""
    if tokens <= SHORT:
        return short * tokens / SHORT
    share = (tokens - np.float64(SHORT)) / (LONG - SHORT)
    return short + share * (long - short)


@kernel
def share_of(trie: Trie, token: Number, total: Number) -> Number:
    """Return the share of a token in all tokens of clauses; a message has all the empty ones."""
    if token == NO_TOKEN:
        return 1.0
    at = find_slot(trie.slot, token)
    if trie.slot[at, TOKEN] == 0:
        return 0.0
    return max(1.0, np.float64(trie.slot[at, TIMES])) / total


@kernel
def count_tokens(trie: Trie) -> Number:
    """Return how many tokens all clauses had when ranks were given."""
    total = 1.0
    for at in range(len(trie.slot)):
        total += np.float64(trie.slot[at, TIMES])
    return total


@kernel
def weigh_node(
    tree: Quadtree, trie: Trie, at: Number, total: Number, weight: NDArray[np.float64]
) -> None:
    """Write the slots of a node's tables, and what short and long messages meet in its lists."""
    first, slots = tree.lists.table[at, FIRST], tree.lists.table[at, SLOTS]
    weight[at, PASSED] = np.float64(slots + tree.sets.table[at, SLOTS])
    weight[at, MET_SHORT], weight[at, MET_LONG] = 0.0, 0.0
    for slot in range(first, first + slots):
        key = tree.lists.slot[slot, 0] & LOW32
        if key != np.uint64(0):
            share = share_of(trie, np.int64(key) - 1, total)
            size = np.float64(list_count(tree.lists, slot))
            weight[at, MET_SHORT] += size * (1.0 - np.exp(-SHORT * share))
            weight[at, MET_LONG] += size * (1.0 - np.exp(-LONG * share))


@kernel
def weigh(tree: Quadtree, trie: Trie, weight: NDArray[np.float64]) -> None:
    """Fill ``weight``. Children have higher numbers than their parents."""
    total = count_tokens(trie)
    for at in range(tree.state[NODES]):
        weigh_node(tree, trie, at, total, weight)
        for field in range(ALL, ALL_LONG + 1):
            weight[at, field] = 0.0
    for at in range(tree.state[NODES] - 1, -1, -1):
        weight[at, ALL] += 1.0
        weight[at, ALL_PASSED] += weight[at, PASSED]
        weight[at, ALL_SHORT] += weight[at, MET_SHORT]
        weight[at, ALL_LONG] += weight[at, MET_LONG]
        above = tree.node[at, PARENT]
        if above >= 0:
            for field in range(ALL, ALL_LONG + 1):
                weight[above, field] += weight[at, field]


@kernel
def binary_steps(size: Number) -> Number:
    """Return the steps of a binary search."""
    steps = 1.0
    while size > 1:
        size >>= 1
        steps += 1.0
    return steps


@kernel
def probe_cost(children: Number, tokens: Number) -> Number:
    """Return what the cheaper way to probe a node costs: from its children, or from tokens."""
    by_tokens = np.float64(tokens) * binary_steps(np.int64(children)) * SEARCH
    return min(np.float64(children) * WALK, by_tokens)


@kernel
def trie_cost(trie: Trie, tokens: NDArray[np.int32], length: Number, opened: Number) -> Number:
    """Return what messages that are anywhere cost with the trie.

    ``tokens`` are those of all of them, ``length`` of each, and ``opened`` the nodes that they
    opened below the root.
    """
    cost, first_level = PROBE * len(tokens), np.int64(0)
    for i in range(len(tokens)):
        slot = find_slot(trie.slot, np.int64(tokens[i]))
        at = np.int64(trie.slot[slot, TRIE_CHILD])
        if trie.slot[slot, TOKEN] != 0 and at != 0:
            first_level += 1
            cost += OPEN + probe_cost(np.int64(trie.node[at, COUNT]), length)
            cost += COMPARE * np.float64(trie.node[at, BELOW])
    return cost + DEEPER * np.float64(opened - first_level)


@kernel
def node_cost(passed: Number, met: Number, tokens: Number) -> Number:
    """Return what a node costs: its tables are gone through or looked up in, its lists verified."""
    verified = min(met, PRUNE_SHARE * tokens)
    tables = min(passed * LOOKUP / 4.0, (tokens + 1.0) * LOOKUP)
    return ENTER + tables + verified * VERIFY + (met - verified) * PASS


@kernel
def overlap_share(node: NDArray[np.int32], at: Number, box: NDArray[np.int32]) -> Number:
    """Return the share of a node's region that a box covers; it meets the region."""
    share = 1.0
    for side in range(2):
        low = np.int64(node[at, WEST + side])
        high = np.int64(node[at, EAST + side])
        common = min(high, np.int64(box[2 + side])) - max(low, np.int64(box[side])) + 1
        share *= np.float64(common) / np.float64(high - low + 1)
    return share


@kernel
def covers(box: NDArray[np.int32], node: NDArray[np.int32], at: Number) -> Number:
    """Tell whether a node's region lies in a box."""
    across = box[0] <= node[at, WEST] and box[2] >= node[at, EAST]
    return across and box[1] <= node[at, SOUTH] and box[3] >= node[at, NORTH]


@kernel
def quadtree_cost(
    tree: Quadtree,
    model: Model,
    box: NDArray[np.int32],
    tokens: Number,
    stack: NDArray[np.int64],
) -> Number:
    """Return what a message that meets the root costs with the quadtree."""
    node, weight = tree.node, model.weight
    point = box[0] == box[2] and box[1] == box[3]
    cost, top = 0.0, np.int64(1)
    stack[0] = 0
    while top > 0:
        top -= 1
        at, level = stack[top] & _LOW32, stack[top] >> 32
        first, nodes = np.int64(node[at, CHILD]), weight[at, ALL]
        if first >= 0 and not point and (level == LEVELS or covers(box, node, at)):
            opened = max(1.0, nodes * overlap_share(node, at, box))
            met = reckon(tokens, weight[at, ALL_SHORT], weight[at, ALL_LONG]) / nodes
            cost += opened * node_cost(weight[at, ALL_PASSED] / nodes, met, tokens)
            continue
        met = reckon(tokens, weight[at, MET_SHORT], weight[at, MET_LONG])
        cost += node_cost(weight[at, PASSED], met, tokens)
        if first < 0:
            continue
        touched = touched_children(node, at, box)
        for child in range(4):
            if (touched >> child) & 1:
                stack[top] = (level + 1) << 32 | (first + child)
                top += 1
    return cost
