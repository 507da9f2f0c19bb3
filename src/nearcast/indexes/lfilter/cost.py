"""What it costs to filter a message by the trie or by the quadtree, in nanoseconds.

Yu, Li and Feng, CIKM 2015, section 5.3. The costs of opening, comparing, looking up and verifying
were fitted to the times of each index alone, on tweets and places of two sizes; most fit within a
third. The costs of pruning and of deeper nodes are rough estimates.

- Trie: every token of a message costs the average of a sample of messages, which are made of the
  tokens of clauses. (Following the tokens of the message itself was tried: it cost more than better
  choices saved.)
- Quadtree: the nodes on the path to a point are known. A box is followed down to a level; below
  that, it opens a share of the nodes equal to its share of the region (the paper's estimate of
  candidate nodes). How many entries a message reads in the lists of a node follows from the
  frequency of the pivotal tokens in all clauses: messages are assumed to use the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.token_lists import list_count
from nearcast.compiled.token_table import LOW32 as TOKEN_BITS
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.compiled.token_table import SIZE as SLOTS
from nearcast.compiled.token_table import START as FIRST_SLOT
from nearcast.indexes.mbr_trie.layout import (
    CHILD_COUNT,
    CLAUSES_BELOW,
    FREQUENCY,
    LOW32,
    ROOT_CHILD,
    TOKEN,
    Trie,
    find_slot,
)
from nearcast.indexes.pt_quadtree.layout import (
    EAST,
    FIRST_CHILD,
    NODES,
    NORTH,
    PARENT,
    SOUTH,
    WEST,
    Quadtree,
    overlapped_children,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageView

PROBE_NS = 10.0
"""Look up a token in the trie's table."""

OPEN_NS = 250.0
"""Open a child of the trie's root, with everything this takes."""

COMPARE_NS = 0.3
"""Compare a box below it, sixteen at a time; some are not reached."""

DEEPER_NS = 150.0
"""Open a node below a child of the root."""

SCAN_NS = 2.0
"""Look up a child of a node in the message."""

SEARCH_NS = 4.0
"""One step of a binary search among children."""

ENTER_NS = 75.0
"""Open a node of the quadtree."""

LOOKUP_NS = 3.0
"""Look up a token in a table of the quadtree; scanning a slot costs a quarter."""

VERIFY_NS = 10.0
"""Verify an entry of the quadtree."""

SKIP_NS = 3.0
"""The same for pruned lists, on average: most entries are skipped."""

PRUNE_SHARE = 2
"""Lists are pruned if they have this many times more entries than the message has tokens."""

LEVELS = 6
"""How many levels down a box is followed."""

SHORT, LONG = 12, 512
"""The numbers of tokens for which costs are known; others are interpolated."""

SLOT_SUM, SHORT_ENTRIES, LONG_ENTRIES = range(3)
ALL_NODES, ALL_SLOTS, ALL_SHORT, ALL_LONG = range(3, 7)
"""Columns of ``weight``: the slots of a node's tables, and the entries that a short and a long
message are expected to read in its own lists; then the number of nodes at and below it, and the
sums of the first three columns over these."""

WEIGHTS = 7


class Model(NamedTuple):
    """The cost model: ``weight`` float64[nodes, 7] of the quadtree, ``token_cost`` float64[1]."""

    weight: NDArray[np.float64]
    token_cost: NDArray[np.float64]


@kernel
def weigh_nodes(tree: Quadtree, trie: Trie, weight: NDArray[np.float64]) -> None:
    """Fill ``weight``. Children have higher numbers than their parents."""
    total = count_tokens(trie)
    for at in range(tree.state[NODES]):
        weigh_node(tree, trie, at, total, weight)
        for column in range(ALL_NODES, WEIGHTS):
            weight[at, column] = 0.0
    for at in range(tree.state[NODES] - 1, -1, -1):
        weight[at, ALL_NODES] += 1.0
        weight[at, ALL_SLOTS] += weight[at, SLOT_SUM]
        weight[at, ALL_SHORT] += weight[at, SHORT_ENTRIES]
        weight[at, ALL_LONG] += weight[at, LONG_ENTRIES]
        above = tree.node[at, PARENT]
        if above >= 0:
            for column in range(ALL_NODES, WEIGHTS):
                weight[above, column] += weight[at, column]


@kernel
def weigh_node(
    tree: Quadtree, trie: Trie, at: Number, total: Number, weight: NDArray[np.float64]
) -> None:
    """Write the slots of a node's tables, and the entries that messages read in its lists."""
    first, slots = tree.lists.table[at, FIRST_SLOT], tree.lists.table[at, SLOTS]
    weight[at, SLOT_SUM] = np.float64(slots + tree.sets.table[at, SLOTS])
    weight[at, SHORT_ENTRIES], weight[at, LONG_ENTRIES] = 0.0, 0.0
    for slot in range(first, first + slots):
        key = tree.lists.slot[slot, 0] & TOKEN_BITS
        if key != np.uint64(0):
            share = token_share(trie, np.int64(key) - 1, total)
            size = np.float64(list_count(tree.lists, slot))
            weight[at, SHORT_ENTRIES] += size * (1.0 - np.exp(-SHORT * share))
            weight[at, LONG_ENTRIES] += size * (1.0 - np.exp(-LONG * share))


@kernel
def count_tokens(trie: Trie) -> Number:
    """Return how many tokens all clauses had when ranks were assigned."""
    total = 1.0
    for at in range(len(trie.slot)):
        total += np.float64(trie.slot[at, FREQUENCY])
    return total


@kernel
def token_share(trie: Trie, token: Number, total: Number) -> Number:
    """Return the share of a token among all tokens of clauses; every message has `NO_TOKEN`."""
    if token == NO_TOKEN:
        return 1.0
    at = find_slot(trie.slot, token)
    if trie.slot[at, TOKEN] == 0:
        return 0.0
    return max(1.0, np.float64(trie.slot[at, FREQUENCY])) / total


@kernel
def trie_cost(trie: Trie, tokens: NDArray[np.int32], length: Number, opened: Number) -> Number:
    """Return the cost of a sample of messages as large as the world with the trie.

    ``tokens`` are those of all messages, ``length`` how many each has, and ``opened`` the nodes
    below the root that they opened.
    """
    cost, first_level = PROBE_NS * len(tokens), np.int64(0)
    for i in range(len(tokens)):
        slot = find_slot(trie.slot, np.int64(tokens[i]))
        at = np.int64(trie.slot[slot, ROOT_CHILD])
        if trie.slot[slot, TOKEN] != 0 and at != 0:
            first_level += 1
            cost += OPEN_NS + probe_cost(np.int64(trie.node[at, CHILD_COUNT]), length)
            cost += COMPARE_NS * np.float64(trie.node[at, CLAUSES_BELOW])
    return cost + DEEPER_NS * np.float64(opened - first_level)


@kernel
def probe_cost(children: Number, tokens: Number) -> Number:
    """Return the cost of the cheaper way to probe a node: by its children, or by tokens."""
    by_tokens = np.float64(tokens) * binary_steps(np.int64(children)) * SEARCH_NS
    return min(np.float64(children) * SCAN_NS, by_tokens)


@kernel
def binary_steps(size: Number) -> Number:
    """Return the steps of a binary search."""
    steps = 1.0
    while size > 1:
        size >>= 1
        steps += 1.0
    return steps


@kernel
def quadtree_cost(
    tree: Quadtree, model: Model, query: MessageView, stack: NDArray[np.int64]
) -> Number:
    """Return the cost of a message that overlaps the root with the quadtree."""
    node, weight, box, tokens = tree.node, model.weight, query.box, len(query.tokens)
    point = box[0] == box[2] and box[1] == box[3]
    cost, top = 0.0, np.int64(1)
    stack[0] = 0
    while top > 0:
        top -= 1
        at, level = stack[top] & LOW32, stack[top] >> 32
        first, nodes = np.int64(node[at, FIRST_CHILD]), weight[at, ALL_NODES]
        if first >= 0 and not point and (level == LEVELS or covers(box, node, at)):
            opened = max(1.0, nodes * overlap_share(node, at, box))
            entries = interpolate(tokens, weight[at, ALL_SHORT], weight[at, ALL_LONG]) / nodes
            cost += opened * node_cost(weight[at, ALL_SLOTS] / nodes, entries, tokens)
            continue
        entries = interpolate(tokens, weight[at, SHORT_ENTRIES], weight[at, LONG_ENTRIES])
        cost += node_cost(weight[at, SLOT_SUM], entries, tokens)
        if first < 0:
            continue
        overlapped = overlapped_children(node, at, box)
        for child in range(4):
            if (overlapped >> child) & 1:
                stack[top] = (level + 1) << 32 | (first + child)
                top += 1
    return cost


@kernel
def interpolate(tokens: Number, short: Number, long: Number) -> Number:
    """Interpolate between the values of a short and a long message."""
    if tokens <= SHORT:
        return short * tokens / SHORT
    share = (tokens - np.float64(SHORT)) / (LONG - SHORT)
    return short + share * (long - short)


@kernel
def node_cost(slots: Number, entries: Number, tokens: Number) -> Number:
    """Return the cost of a node: scan its tables or look tokens up, then verify or skip entries."""
    verified = min(entries, PRUNE_SHARE * tokens)
    tables = min(slots * LOOKUP_NS / 4.0, (tokens + 1.0) * LOOKUP_NS)
    return ENTER_NS + tables + verified * VERIFY_NS + (entries - verified) * SKIP_NS


@kernel
def overlap_share(node: NDArray[np.int32], at: Number, box: NDArray[np.int32]) -> Number:
    """Return the share of a node's region that a box covers; the two overlap."""
    share = 1.0
    for side in range(2):
        low = np.int64(node[at, WEST + side])
        high = np.int64(node[at, EAST + side])
        common = min(high, np.int64(box[2 + side])) - max(low, np.int64(box[side])) + 1
        share *= np.float64(common) / np.float64(high - low + 1)
    return share


@kernel
def covers(box: NDArray[np.int32], node: NDArray[np.int32], at: Number) -> Number:
    """Tell whether a box contains a node's region."""
    across = box[0] <= node[at, WEST] and box[2] >= node[at, EAST]
    return across and box[1] <= node[at, SOUTH] and box[3] >= node[at, NORTH]
