"""Lay out a trie-pyramid: its pyramids, the slots that lead to them, its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.trie_pyramid.arrays import (
    BITS32,
    BLOCK_SIZE,
    CHILDREN,
    FOUND,
    KEPT,
    KEY,
    LOW32,
    NODE,
    PLACE_LEVEL,
    PLACES,
    SIGNATURE,
    WAITING,
    find_slot,
    key_of,
    signature_bit,
)
from nearcast.indexes.trie_pyramid.cut import cut_rows
from nearcast.indexes.trie_pyramid.places import touched_places
from nearcast.indexes.trie_pyramid.pyramid import (
    HALF,
    LINE_WORDS,
    head_words,
    pack_pyramid,
    part_row,
    parts_of,
    pyramid_words,
)
from nearcast.indexes.trie_pyramid.trie import LISTS, Ranked, Trie

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLAUSE, NEXT, WIDTH = 4, 5, 6
"""A row to be laid out: the sides of its box, its clause, its next token."""

AHEAD = 16

PARTS = 1024
"""Room for parts that wait to be written: a block of them a level."""


class Layout(NamedTuple):
    """The arrays that are written, as in `nearcast.indexes.trie_pyramid.arrays`."""

    slot: NDArray[np.uint64]
    pyramid: NDArray[np.uint64]
    node: NDArray[np.uint64]
    child: NDArray[np.uint64]
    shape: NDArray[np.int64]
    setting: NDArray[np.int64]
    half: NDArray[np.int16]


@kernel
def aligned(position: Number, size: Number, block: Number) -> Number:
    """Return where a pyramid of this size begins: full blocks begin at cache lines."""
    if size < block:
        return position
    return (position + (LINE_WORDS - 1)) & ~np.int64(LINE_WORDS - 1)


@kernel
def count_words(trie: Trie, shape: NDArray[np.int64], block: Number) -> Number:
    """Return the words that the pyramids of all lists take."""
    words = np.int64(0)
    for at in range(trie.state[LISTS]):
        size = trie.kept[at] - trie.low[at]
        words = aligned(words, size, block) + pyramid_words(shape, block, size)
    return words


@kernel
def next_token(ranked: Ranked, clause: Number, depth: Number) -> Number:
    """Return what an entry says of the tokens that are left of its clause."""
    position, end = ranked.token_start[clause] + depth, ranked.token_start[clause + 1]
    if position >= end:
        return NO_TOKEN
    token = np.int64(ranked.token_of_rank[ranked.rank[position]])
    return token if position + 1 == end else ~token


@kernel
def gather_rows(
    ranked: Ranked, clauses: NDArray[np.int32], depth: Number, row: NDArray[np.int32]
) -> None:
    """Write the rows of clauses."""
    for i in range(len(clauses)):
        if i + AHEAD < len(clauses):
            prefetch(ranked.box, clauses[i + AHEAD])
            prefetch(ranked.token_start, clauses[i + AHEAD])
        clause = clauses[i]
        for side in range(4):
            row[i, side] = ranked.box[clause, side]
        row[i, CLAUSE] = clause
        row[i, NEXT] = next_token(ranked, clause, depth)


@kernel
def write_leaf(row: NDArray[np.int32], layout: Layout, position: Number) -> None:
    """Write rows as a leaf."""
    size = len(row)
    for i in range(size):
        for side in range(4):
            layout.half[4 * position + side * size + i] = row[i, side] >> HALF
        word = np.uint64(row[i, CLAUSE]) | (np.uint64(row[i, NEXT]) << BITS32)
        layout.pyramid[position + size + i] = word


@kernel
def bound_of(row: NDArray[np.int32], side: Number) -> Number:
    """Return where the box around all boxes has a side."""
    bound = row[0, side]
    for i in range(1, len(row)):
        bound = min(bound, row[i, side]) if side < 2 else max(bound, row[i, side])
    return bound


@kernel
def write_head(row: NDArray[np.int32], layout: Layout, position: Number, bits: Number) -> None:
    """Write the boxes around the parts of rows."""
    parts = parts_of(len(row), bits)
    for part in range(parts):
        some = row[part << bits : min(np.int64(len(row)), (part + 1) << bits)]
        for side in range(4):
            layout.half[4 * position + side * parts + part] = bound_of(some, side) >> HALF


@kernel
def write_pyramid(row: NDArray[np.int32], layout: Layout, position: Number) -> None:
    """Write rows, which are cut already, as a pyramid."""
    block, shape = layout.setting[BLOCK_SIZE], layout.shape
    waiting = np.empty((PARTS, 3), np.int64)
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = position, 0, len(row)
    count = 1
    while count > 0:
        count -= 1
        at, first, last = waiting[count, 0], waiting[count, 1], waiting[count, 2]
        if last - first <= block:
            write_leaf(row[first:last], layout, at)
            continue
        k = part_row(shape, block, last - first)
        bits = shape[0, k]
        write_head(row[first:last], layout, at, bits)
        parts = parts_of(last - first, bits)
        layout.setting[WAITING] += parts
        for part in range(parts):
            waiting[count, 0] = at + head_words(parts) + part * shape[1, k]
            waiting[count, 1] = first + (part << bits)
            waiting[count, 2] = min(last, first + ((part + 1) << bits))
            count += 1


@kernel
def note_places(row: NDArray[np.int32], layout: Layout, at: Number) -> None:
    """Add the places of rows to a slot."""
    level = layout.setting[PLACE_LEVEL]
    for i in range(len(row)):
        low, high = touched_places(row[i, 0], row[i, 1], row[i, 2], row[i, 3], level)
        layout.slot[at, PLACES] |= low
        layout.slot[at, PLACES + 1] |= high


@kernel
def list_token(ranked: Ranked, trie: Trie, at: Number) -> Number:
    """Return the token of a list."""
    if trie.rank[at] < 0:
        return NO_TOKEN
    return np.int64(ranked.token_of_rank[trie.rank[at]])


@kernel
def write_lists(ranked: Ranked, trie: Trie, layout: Layout) -> None:
    """Write the pyramid and the slot of every list, and the records of nodes."""
    largest = np.int64(0)
    for at in range(trie.state[LISTS]):
        largest = max(largest, trie.kept[at] - trie.low[at])
    rows = np.empty((largest, WIDTH), np.int32)
    block = layout.setting[BLOCK_SIZE]
    position = np.int64(0)
    for at in range(trie.state[LISTS]):
        clauses = trie.order[trie.low[at] : trie.kept[at]]
        row = rows[: len(clauses)]
        gather_rows(ranked, clauses, np.int64(trie.depth[at]), row)
        position = aligned(position, len(row), block)
        key = key_of(trie.parent[at], list_token(ranked, trie, at))
        place = find_slot(layout.slot, key)
        layout.slot[place, KEY] = key
        note_places(row, layout, place)
        pyramid = np.uint64(0)
        if len(row) > 0:
            cut_rows(row, layout.shape, block)
            write_pyramid(row, layout, position)
            pyramid = pack_pyramid(position, len(row))
            position += pyramid_words(layout.shape, block, len(row))
        if trie.node[at] > 0:
            layout.node[trie.node[at], KEPT] = pyramid
            pyramid = NODE | np.uint64(trie.node[at])
        layout.slot[place, FOUND] = pyramid


@kernel
def list_slot(ranked: Ranked, trie: Trie, layout: Layout, at: Number) -> Number:
    """Return the slot of a list."""
    return find_slot(layout.slot, key_of(trie.parent[at], list_token(ranked, trie, at)))


@kernel
def write_children(ranked: Ranked, trie: Trie, layout: Layout) -> None:
    """Write the children of nodes, and give their places to the slots above, children first."""
    count = np.int64(0)
    for at in range(trie.state[LISTS] - 1, -1, -1):
        if trie.node[at] == 0:
            continue
        place = list_slot(ranked, trie, layout, at)
        signature, first = np.uint64(0), count
        for below in range(trie.first_child[at], trie.first_child[at] + trie.children[at]):
            child = list_slot(ranked, trie, layout, below)
            token = layout.slot[child, KEY] & LOW32
            signature |= signature_bit(token)
            layout.child[count] = np.uint64(child) | (token << BITS32)
            layout.slot[place, PLACES] |= layout.slot[child, PLACES]
            layout.slot[place, PLACES + 1] |= layout.slot[child, PLACES + 1]
            count += 1
        layout.node[trie.node[at], SIGNATURE] = signature
        layout.node[trie.node[at], CHILDREN] = np.uint64(first) | (
            np.uint64(count - first) << BITS32
        )
    layout.setting[WAITING] += count
