"""What a message sees of a tree on its way down: the tree's arrays, and room of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel
from nearcast.compiled.messages import known_tokens
from nearcast.compiled.ordered_clauses import Ordered
from nearcast.compiled.token_filter import set_filter
from nearcast.compiled.token_table import NO_TOKEN, Tables
from nearcast.indexes.rtree.nodes import ROOT, Box, RTree
from nearcast.indexes.rtree.token_tree import Postings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.messages import MessageArrays


class TreeArrays(NamedTuple):
    """A tree and what it knows of tokens."""

    tree: RTree
    tables: Tables
    postings: Postings
    ordered: Ordered


class TreeScratch(NamedTuple):
    """Room for walking one message.

    - ``stack`` int64[k]: nodes to be opened, and their slots in their parents.
    - ``token`` and ``entries`` uint64[levels + 2, t]: the frames, by level; ``size`` their tokens.
    - ``token_filter`` uint64: a bit for each token of the message.
    - ``hits`` int64[64]: the tokens met of each clause of a leaf; ``candidate`` int64[64]: clauses
      whose first token occurs.
    - ``lists`` int64[t, 2]: where lists begin, and their clauses; ``posting`` int32: their content.
    - ``stamp`` uint32[clauses]: how deep each clause was met; ``epoch`` int64[1] tells by whom.
    """

    stack: NDArray[np.int64]
    token: NDArray[np.uint64]
    entries: NDArray[np.uint64]
    size: NDArray[np.int64]
    token_filter: NDArray[np.uint64]
    hits: NDArray[np.int64]
    candidate: NDArray[np.int64]
    lists: NDArray[np.int64]
    posting: NDArray[np.int32]
    stamp: NDArray[np.uint32]
    epoch: NDArray[np.int64]


class Asked(NamedTuple):
    """A message: its box, its ascending tokens, and the frame above the root, with all of them."""

    window: Box
    tokens: NDArray[np.int32]
    frame: Number


@kernel
def start_message(
    index: TreeArrays, messages: MessageArrays, m: Number, scratch: TreeScratch
) -> Asked:
    """Fill the frame above the root with all tokens of a message, and the filter."""
    box = messages.box[m]
    tokens = messages.token[messages.token_start[m] : messages.token_start[m + 1]]
    frame = np.int64(index.tree.level[index.tree.state[ROOT]]) + 1
    count = known_tokens(tokens)
    for i in range(count):
        scratch.token[frame, i] = np.uint64(tokens[i])
        scratch.entries[frame, i] = np.uint64(1)
    scratch.token[frame, count] = np.uint64(NO_TOKEN)
    scratch.entries[frame, count] = np.uint64(1)
    scratch.size[frame] = count + 1
    set_filter(scratch.token_filter, tokens)
    return Asked(Box(box[0], box[1], box[2], box[3]), tokens, frame)


@kernel
def borrow_tree(index: TreeArrays) -> TreeArrays:
    """Return the same arrays without their owners."""
    tree, tables, postings, ordered = index
    return TreeArrays(
        RTree(
            borrow(tree.box),
            borrow(tree.entry),
            borrow(tree.key),
            borrow(tree.used),
            borrow(tree.level),
            borrow(tree.parent),
            borrow(tree.place),
            borrow(tree.leaf_of),
            borrow(tree.mark),
            borrow(tree.marked),
            borrow(tree.state),
        ),
        Tables(borrow(tables.slot), borrow(tables.table), borrow(tables.top)),
        Postings(borrow(postings.posting), borrow(postings.top)),
        Ordered(borrow(ordered.start), borrow(ordered.token), borrow(ordered.box)),
    )
