"""What the nodes of an R-tree know about tokens: five kinds of trees, their arrays, and building.

Every node may have a table of tokens (`nearcast.compiled.token_table`). What it holds depends on
the kind of the tree:

- `NO_TOKENS`: no tables.
- `TOKEN_SETS`: in inner nodes, the tokens of all clauses below, each with the set of entries (a bit
  per slot) below which it occurs: the token sets of all entries of a node in one table. A token
  that loses its last entry leaves the table, so the set of entries is its reference count.
- `FIRST_TOKENS`: the same with the first token of every clause only.
- `INVERTED_FILES`: as `TOKEN_SETS`, and leaves have the set of clauses of every token.
- `TOKEN_LISTS`: in an inner node at depth ``d >= 1``, for every token the list of the clauses below
  that have it as their ``d``-th token. The root (depth 0) has no lists. Leaves have inverted
  files of the remaining tokens, from the ``d``-th on.

In a token list, a clause is its number, inverted (``~clause``) if this is its last token.

This module builds the table of a node from the tree, see `update` for changes to it. Li et al., KDD
2013, sections 3 to 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.clauses import Ordered, length_of, token_at
from nearcast.compiled.jit import Number, kernel, lowest_bit
from nearcast.compiled.token_lists import ONE, list_capacity, list_count, list_start, place_list
from nearcast.compiled.token_table import (
    COUNT,
    LOW32,
    SIZE,
    START,
    Tables,
    claim_slot,
    drop_table,
    find_slot,
    move_tables,
    new_region,
    region_size,
)
from nearcast.indexes.rtree.nodes import RTree, bit, depth_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_TOKENS, TOKEN_SETS, FIRST_TOKENS, INVERTED_FILES, TOKEN_LISTS = 0, 1, 2, 3, 4
"""The kinds of trees."""


class Postings(NamedTuple):
    """The pool of token lists: ``posting`` int32[m]; ``top`` int64[1] is the end of the used part.

    A list that outgrows its capacity moves to the end of the pool.
    """

    posting: NDArray[np.int32]
    top: NDArray[np.int64]


class IndexArrays(NamedTuple):
    """A tree and what its nodes know about tokens."""

    tree: RTree
    tables: Tables
    postings: Postings
    ordered: Ordered


class GatherScratch(NamedTuple):
    """Scratch for gathering the tokens of one node: a single table, and a stack of nodes."""

    tables: Tables
    stack: NDArray[np.int64]


def make_pools(nodes: int, tokens: int, height: int) -> tuple[Tables, Postings]:
    """Return pools without tables and lists; large ones, since untouched memory costs nothing."""
    tables = _make_tables(1024 + 2 * tokens * (height + 1), nodes)
    return tables, Postings(np.zeros(1024 + tokens, np.int32), np.zeros(1, np.int64))


def make_gather_scratch(slots: int, height: int) -> GatherScratch:
    """Return scratch with a table of ``slots`` slots."""
    return GatherScratch(_make_tables(slots, 1), np.empty(64 * (height + 2), np.int64))


def _make_tables(slots: int, owners: int) -> Tables:
    return Tables(
        np.zeros((slots, 2), np.uint64), np.zeros((owners, 3), np.int64), np.zeros(1, np.int64)
    )


def grow_tables(tables: Tables, more: int) -> Tables:
    """Return the tables in a pool with space for ``more`` slots; unused regions are dropped."""
    used = int(tables.table[:, SIZE].sum())
    slot = np.zeros((more + used + used // 2, 2), np.uint64)
    move_tables(tables, slot)
    return tables._replace(slot=slot)


def grow_postings(tree: RTree, tables: Tables, postings: Postings, more: int) -> Postings:
    """Return the lists in a pool with space for ``more`` postings; unused parts are dropped."""
    used = int(postings.top[0])
    posting = np.zeros(more + used + used // 2, np.int32)
    move_postings(tree, tables, postings, posting)
    return postings._replace(posting=posting)


@kernel
def move_postings(
    tree: RTree, tables: Tables, postings: Postings, posting: NDArray[np.int32]
) -> None:
    """Copy all lists, one after the other, into another pool."""
    end = np.int64(0)
    for node in range(len(tables.table)):
        if tree.level[node] <= 0:
            continue
        start, size = tables.table[node, START], tables.table[node, SIZE]
        for at in range(start, start + size):
            if (tables.slot[at, 0] & LOW32) != np.uint64(0):
                first, capacity = list_start(tables, at), list_capacity(tables, at)
                for i in range(list_count(tables, at)):
                    posting[end + i] = postings.posting[first + i]
                place_list(tables, at, end, capacity)
                end += capacity
    postings.top[0] = end


@kernel
def first_leaf_token(depth: Number) -> Number:
    """Return the first token (from 0) of a clause that a leaf at this depth keeps.

    The nodes above, but for the root, have a token each. Only for `TOKEN_LISTS`.
    """
    return max(np.int64(0), depth - 1)


@kernel
def posting_of(ordered: Ordered, clause: Number, depth: Number) -> Number:
    """Return the form in which a clause stands in the lists at a depth."""
    return ~np.int64(clause) if length_of(ordered, clause) == depth else np.int64(clause)


# Tables of sets and files: tokens are gathered in scratch first, so that a table gets its final
# size at once.


@kernel
def clear_scratch(scratch: GatherScratch, tokens: Number) -> None:
    """Empty the scratch table; make it large enough for ``tokens`` tokens, if there is space."""
    scratch.tables.top[0] = 0
    new_region(scratch.tables, 0, min(np.int64(len(scratch.tables.slot)), region_size(tokens)))


@kernel
def has_space(scratch: GatherScratch, more: Number) -> Number:
    """Tell whether the scratch table can take more tokens."""
    return 3 * (scratch.tables.table[0, COUNT] + more) <= 2 * scratch.tables.table[0, SIZE]


@kernel
def gather_clause(
    ordered: Ordered,
    clause: Number,
    first: Number,
    last: Number,
    word: Number,
    scratch: GatherScratch,
) -> Number:
    """Add ``word`` to the tokens ``first`` to ``last`` of a clause; return whether they fit."""
    if not has_space(scratch, last - first):
        return False
    for i in range(first, last):
        at = claim_slot(scratch.tables, 0, token_at(ordered, clause, i))
        scratch.tables.slot[at, 1] |= word
    return True


@kernel
def gather_leaf(
    tree: RTree, ordered: Ordered, kind: Number, leaf: Number, word: Number, scratch: GatherScratch
) -> Number:
    """Gather the token set of a leaf, all tokens with the same word; return whether it fits."""
    left = tree.used[leaf]
    while left != np.uint64(0):
        clause = tree.entry[leaf, lowest_bit(left)]
        left &= left - np.uint64(1)
        last = np.int64(1) if kind == FIRST_TOKENS else length_of(ordered, clause)
        if not gather_clause(ordered, clause, 0, last, word, scratch):
            return False
    return True


@kernel
def gather_file(
    tree: RTree, ordered: Ordered, kind: Number, leaf: Number, scratch: GatherScratch
) -> Number:
    """Gather the inverted file of a leaf: the clauses of every token; return whether it fits."""
    skip = first_leaf_token(depth_of(tree, leaf)) if kind == TOKEN_LISTS else np.int64(0)
    left = tree.used[leaf]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        clause = tree.entry[leaf, slot]
        if not gather_clause(ordered, clause, skip, length_of(ordered, clause), bit(slot), scratch):
            return False
    return True


@kernel
def gather_table(tables: Tables, node: Number, word: Number, scratch: GatherScratch) -> Number:
    """Gather the tokens of a node's table, all with the same word; return whether they fit."""
    start, size = tables.table[node, START], tables.table[node, SIZE]
    if not has_space(scratch, tables.table[node, COUNT]):
        return False
    for at in range(start, start + size):
        token = tables.slot[at, 0] & LOW32
        if token != np.uint64(0):
            new = claim_slot(scratch.tables, 0, token - np.uint64(1))
            scratch.tables.slot[new, 1] |= word
    return True


@kernel
def gather_children(
    index: IndexArrays, kind: Number, node: Number, scratch: GatherScratch
) -> Number:
    """Gather the token sets of all children of an inner node; return whether they fit."""
    tree = index.tree
    left = tree.used[node]
    while left != np.uint64(0):
        slot = lowest_bit(left)
        left &= left - np.uint64(1)
        child = tree.entry[node, slot]
        if tree.level[child] == 0 and kind != INVERTED_FILES:
            fits = gather_leaf(tree, index.ordered, kind, child, bit(slot), scratch)
        else:
            fits = gather_table(index.tables, child, bit(slot), scratch)
        if not fits:
            return False
    return True


@kernel
def leaf_tokens(tree: RTree, ordered: Ordered, leaf: Number) -> Number:
    """Return the number of tokens of all clauses of a leaf, repeated ones included."""
    total, left = np.int64(0), tree.used[leaf]
    while left != np.uint64(0):
        total += length_of(ordered, tree.entry[leaf, lowest_bit(left)])
        left &= left - np.uint64(1)
    return total


@kernel
def max_tokens(index: IndexArrays, kind: Number, node: Number) -> Number:
    """Return an upper bound of the number of tokens in the table of a node."""
    tree = index.tree
    if tree.level[node] == 0:
        return leaf_tokens(tree, index.ordered, node)
    total, left = np.int64(0), tree.used[node]
    while left != np.uint64(0):
        child = tree.entry[node, lowest_bit(left)]
        left &= left - np.uint64(1)
        if tree.level[child] > 0 or kind == INVERTED_FILES:
            total += index.tables.table[child, COUNT]
        else:
            total += leaf_tokens(tree, index.ordered, child)
    return total


@kernel
def store_gathered(tables: Tables, node: Number, scratch: GatherScratch) -> Number:
    """Write the gathered tokens as the table of a node; return the slots that the pool lacks."""
    count = scratch.tables.table[0, COUNT]
    drop_table(tables, node)
    if count == 0:
        return np.int64(0)
    size = region_size(count)
    if tables.top[0] + size > len(tables.slot):
        return np.int64(size)
    new_region(tables, node, size)
    for at in range(scratch.tables.table[0, SIZE]):
        token = scratch.tables.slot[at, 0]
        if token != np.uint64(0):
            new = claim_slot(tables, node, token - np.uint64(1))
            tables.slot[new, 1] = scratch.tables.slot[at, 1]
    return np.int64(0)


@kernel
def rebuild_table(
    index: IndexArrays, kind: Number, node: Number, scratch: GatherScratch
) -> tuple[Number, Number]:
    """Build the token sets or the inverted file of a node; its children's are up to date.

    Return the slots that the pool lacks, and the slots that the scratch should have.
    """
    clear_scratch(scratch, max_tokens(index, kind, node))
    if index.tree.level[node] > 0:
        fits = gather_children(index, kind, node, scratch)
    else:
        fits = gather_file(index.tree, index.ordered, kind, node, scratch)
    if not fits:
        return np.int64(0), np.int64(2 * len(scratch.tables.slot))
    return store_gathered(index.tables, node, scratch), np.int64(0)


# Token lists: counted in scratch first, then written one after the other.


@kernel
def next_leaf(tree: RTree, stack: NDArray[np.int64], top: Number) -> tuple[Number, Number]:
    """Return the next leaf below the nodes on the stack, or -1, and the new top of the stack."""
    while top > 0:
        top -= 1
        node = stack[top]
        if tree.level[node] == 0:
            return node, top
        left = tree.used[node]
        while left != np.uint64(0):
            stack[top] = tree.entry[node, lowest_bit(left)]
            top += 1
            left &= left - np.uint64(1)
    return np.int64(-1), np.int64(0)


@kernel
def count_postings(
    tree: RTree, ordered: Ordered, node: Number, scratch: GatherScratch
) -> tuple[Number, Number]:
    """Count the clauses below a node by their token of its depth.

    Return the number of clauses, and whether all tokens fit.
    """
    depth, total = depth_of(tree, node), np.int64(0)
    scratch.stack[0] = node
    leaf, top = next_leaf(tree, scratch.stack, np.int64(1))
    while leaf >= 0:
        if not has_space(scratch, tree.entry.shape[1]):
            return total, False
        left = tree.used[leaf]
        while left != np.uint64(0):
            clause = tree.entry[leaf, lowest_bit(left)]
            left &= left - np.uint64(1)
            if length_of(ordered, clause) >= depth:
                at = claim_slot(scratch.tables, 0, token_at(ordered, clause, depth - 1))
                scratch.tables.slot[at, 1] += np.uint64(1)
                total += 1
        leaf, top = next_leaf(tree, scratch.stack, top)
    return total, True


@kernel
def append_posting(index: IndexArrays, node: Number, clause: Number, depth: Number) -> None:
    """Append a clause to its list in a node, which has space for it."""
    tables, postings, ordered = index.tables, index.postings, index.ordered
    at = find_slot(tables, node, token_at(ordered, clause, depth - 1))
    end = list_start(tables, at) + list_count(tables, at)
    postings.posting[end] = posting_of(ordered, clause, depth)
    tables.slot[at, 0] += ONE


@kernel
def write_postings(index: IndexArrays, node: Number, scratch: GatherScratch) -> None:
    """Append the clauses below a node to its lists."""
    tree, ordered = index.tree, index.ordered
    depth = depth_of(tree, node)
    scratch.stack[0] = node
    leaf, top = next_leaf(tree, scratch.stack, np.int64(1))
    while leaf >= 0:
        left = tree.used[leaf]
        while left != np.uint64(0):
            clause = tree.entry[leaf, lowest_bit(left)]
            left &= left - np.uint64(1)
            if length_of(ordered, clause) >= depth:
                append_posting(index, node, clause, depth)
        leaf, top = next_leaf(tree, scratch.stack, top)


@kernel
def rebuild_lists(
    index: IndexArrays, node: Number, scratch: GatherScratch
) -> tuple[Number, Number, Number]:
    """Build the token lists of an inner node.

    Return the slots that the pool lacks, the slots that the scratch should have, and the postings
    that the pool lacks.
    """
    tree, tables, postings, ordered = index
    # A node of level l has at most most ** (l + 1) clauses below it.
    below = np.int64(tree.entry.shape[1])
    for _ in range(tree.level[node]):
        below = min(below * tree.entry.shape[1], np.int64(len(ordered.start)))
    clear_scratch(scratch, below + tree.entry.shape[1])
    total, fits = count_postings(tree, ordered, node, scratch)
    if not fits:
        return np.int64(0), np.int64(2 * len(scratch.tables.slot)), np.int64(0)
    drop_table(tables, node)
    count = scratch.tables.table[0, COUNT]
    size = region_size(count)
    if tables.top[0] + size > len(tables.slot):
        return np.int64(size), np.int64(0), np.int64(0)
    if postings.top[0] + total > len(postings.posting):
        return np.int64(0), np.int64(0), np.int64(total)
    if count == 0:
        return np.int64(0), np.int64(0), np.int64(0)
    new_region(tables, node, size)
    for at in range(scratch.tables.table[0, SIZE]):
        token = scratch.tables.slot[at, 0]
        if token != np.uint64(0):
            new = claim_slot(tables, node, token - np.uint64(1))
            place_list(tables, new, postings.top[0], scratch.tables.slot[at, 1])
            postings.top[0] += np.int64(scratch.tables.slot[at, 1])
    write_postings(index, node, scratch)
    return np.int64(0), np.int64(0), np.int64(0)
