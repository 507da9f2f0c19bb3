"""Labels of token sets: numbers in token-set order with gaps between them.

Yu et al. (CIKM 2015), section 3.1: clauses are numbered in token-set order, and numbers are
reserved for insertions to come. All labels of one first token lie between two multiples of 2**32,
so that a gap that is used up concerns the token sets below one child of the root and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.mbr_trie.trie import (
    CHILD,
    CHILDREN,
    COUNT,
    HIGH,
    LIST,
    LOW,
    ROOM,
    SIZE,
    TOKEN,
    Trie,
    clause_place,
    has_list,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS = 32
"""Of a label below the rank of the first token."""


@kernel
def first_label(trie: Trie, child: Number) -> Number:
    """Return the label below which none of this child of the root lies; it is not given away."""
    return np.int64(trie.rank[child]) << BITS


@kernel
def holds_label(trie: Trie, at: Number) -> Number:
    """Tell whether a node has a label of its own: nodes without anything keep theirs."""
    return has_list(trie.node, at) or trie.node[at, COUNT] == 0


@kernel
def count_labels(trie: Trie, child: Number, stack: NDArray[np.int64]) -> Number:
    """Count the labels below a child of the root; ``stack`` int64[depth + 1, 2]."""
    labels, top = np.int64(0), np.int64(0)
    stack[0, 0], stack[0, 1] = child, 0
    while top >= 0:
        at, done = stack[top, 0], stack[top, 1]
        if done == 0:
            labels += np.int64(holds_label(trie, at))
        if done == trie.node[at, COUNT]:
            top -= 1
            continue
        stack[top, 1] += 1
        top += 1
        stack[top, 0], stack[top, 1] = trie.node[at, CHILDREN] + done, 0
    return labels


@kernel
def tell_clauses(trie: Trie, at: Number) -> None:
    """Write the label of a node's list to those of its clauses, if they are wanted."""
    if len(trie.clause_label) == 0:
        return
    start, room = trie.node[at, LIST], trie.node[at, ROOM]
    for number in range(trie.node[at, SIZE]):
        clause = trie.entry[clause_place(start, room, number)] if room > 0 else start
        if clause >= 0:
            trie.clause_label[clause] = trie.label[at, LOW]


@kernel
def give_labels(trie: Trie, child: Number, stack: NDArray[np.int64]) -> None:
    """Give all token sets below a child of the root labels anew, as far apart as they can be."""
    step = (np.int64(1) << BITS) // (count_labels(trie, child, stack) + 1)
    label, top = first_label(trie, child), np.int64(0)
    stack[0, 0], stack[0, 1] = child, 0
    while top >= 0:
        at, done = stack[top, 0], stack[top, 1]
        if done == 0:
            # What comes next is the first below this node: its own list or that of a child.
            trie.label[at, LOW] = label + step
            label += step * np.int64(holds_label(trie, at))
            tell_clauses(trie, at)
        if done == trie.node[at, COUNT]:
            trie.label[at, HIGH] = label
            top -= 1
            continue
        stack[top, 1] += 1
        top += 1
        stack[top, 0], stack[top, 1] = trie.node[at, CHILDREN] + done, 0


@kernel
def give_all_labels(trie: Trie, stack: NDArray[np.int64]) -> None:
    """Give all token sets their labels."""
    tell_clauses(trie, np.int64(0))
    for at in range(len(trie.slot)):
        if trie.slot[at, TOKEN] != 0 and trie.slot[at, CHILD] != 0:
            give_labels(trie, np.int64(trie.slot[at, CHILD]), stack)
