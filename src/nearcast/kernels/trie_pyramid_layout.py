"""Lay out a trie-pyramid: its lists and cells, the records of its nodes, its hash tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.kernels.compile import Number, kernel
from nearcast.kernels.pyramid import (
    LEVELS,
    QUANTA_BITS,
    cell_code,
    cell_key,
    frame_shift,
    grid_x,
    grid_y,
    level_of,
    pack_box,
)
from nearcast.kernels.tag_table import (
    BITS32,
    LOW32,
    mix,
    place_tag,
    token_position,
)
from nearcast.kernels.trie_pyramid import ANY, FREE, LIST, MORE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.kernels.trie_pyramid_trie import Ranked, Trie

LOCAL_BITS = 27
"""Bits for the number of a clause inside its node, beside 37 bits of a cell code."""


@kernel
def next_token(ranked: Ranked, clause: Number, depth: Number) -> Number:
    """Return the second word of an entry: clause, next token, whether more follow."""
    position = ranked.token_start[clause] + depth
    end = ranked.token_start[clause + 1]
    token = ANY
    if position < end:
        token = np.int64(ranked.token_of_rank[ranked.rank[position]])
    word = np.uint64(clause) | (np.uint64(token) << BITS32)
    if position + 1 < end:
        word |= MORE
    return word


@kernel
def write_list(
    ranked: Ranked,
    clauses: NDArray[np.int32],
    depth: Number,
    entry: NDArray[np.uint64],
    position: Number,
) -> Number:
    """Write clauses as one list whose frame is their bounds; return the position after it."""
    x0, y0 = np.int64(1) << 33, np.int64(1) << 33
    x1, y1 = np.int64(0), np.int64(0)
    for i in range(len(clauses)):
        box = ranked.box[clauses[i]]
        x0, y0 = min(x0, grid_x(box[0])), min(y0, grid_y(box[1]))
        x1, y1 = max(x1, grid_x(box[2])), max(y1, grid_y(box[3]))
    shift = frame_shift(max(x1 - x0, y1 - y0))
    write_header(entry, position, x0, y0, shift, len(clauses))
    for i in range(len(clauses)):
        position += 1
        write_entry(ranked, clauses[i], depth, x0, y0, shift, entry, position)
    return position + 1


@kernel
def write_header(
    entry: NDArray[np.uint64],
    position: Number,
    x0: Number,
    y0: Number,
    shift: Number,
    count: Number,
) -> None:
    """Write the header of a list."""
    entry[position, 0] = np.uint64(x0) | (np.uint64(y0) << BITS32)
    entry[position, 1] = np.uint64(count) | (np.uint64(shift) << BITS32)


@kernel
def write_entry(
    ranked: Ranked,
    clause: Number,
    depth: Number,
    x0: Number,
    y0: Number,
    shift: Number,
    entry: NDArray[np.uint64],
    position: Number,
) -> None:
    """Write one entry in the frame of its list."""
    box = ranked.box[clause]
    entry[position, 0] = pack_box(
        grid_x(box[0]), grid_y(box[1]), grid_x(box[2]), grid_y(box[3]), x0, y0, shift
    )
    entry[position, 1] = next_token(ranked, clause, depth)


@kernel
def box_level(box: NDArray[np.int32]) -> Number:
    """Return the level of a box in units."""
    return level_of(grid_x(box[2]) - grid_x(box[0]), grid_y(box[3]) - grid_y(box[1]))


@kernel
def key_cells(
    ranked: Ranked,
    clauses: NDArray[np.int32],
    target: NDArray[np.int64],
    key: NDArray[np.uint64],
    flat: NDArray[np.int32],
) -> tuple[Number, Number]:
    """Write a key (cell, clause) for every cell of every clause at its target level.

    Clauses with none go to ``flat``. Return the numbers of keys and of flat clauses.
    """
    keys = 0
    flats = 0
    for i in range(len(clauses)):
        box = ranked.box[clauses[i]]
        level = target[box_level(box)]
        if level == 0:
            flat[flats] = clauses[i]
            flats += 1
            continue
        shift = 32 - level
        for row in range(grid_y(box[1]) >> shift, (grid_y(box[3]) >> shift) + 1):
            for column in range(grid_x(box[0]) >> shift, (grid_x(box[2]) >> shift) + 1):
                code = np.uint64(cell_code(level, column, row))
                key[keys] = (code << np.uint64(LOCAL_BITS)) | np.uint64(i)
                keys += 1
    return keys, flats


@kernel
def write_cells(
    ranked: Ranked,
    clauses: NDArray[np.int32],
    depth: Number,
    key: NDArray[np.uint64],
    entry: NDArray[np.uint64],
    position: Number,
) -> tuple[Number, Number]:
    """Write a list for every cell of the sorted keys; return the position after and the cells."""
    cells = 0
    start = 0
    while start < len(key):
        code = key[start] >> np.uint64(LOCAL_BITS)
        level = np.int64(0)
        while (np.int64(code) >> (2 * level)) != 1:
            level += 1
        row = (np.int64(code) >> level) & ((1 << level) - 1)
        column = np.int64(code) & ((1 << level) - 1)
        x0, y0 = column << (32 - level), row << (32 - level)
        shift = np.int64(32 - QUANTA_BITS) - level
        header = position
        end = start
        while end < len(key) and (key[end] >> np.uint64(LOCAL_BITS)) == code:
            local = np.int64(key[end] & np.uint64((1 << LOCAL_BITS) - 1))
            position += 1
            write_entry(ranked, clauses[local], depth, x0, y0, shift, entry, position)
            end += 1
        write_header(entry, header, x0, y0, shift, end - start)
        position += 1
        cells += 1
        start = end
    return position, cells


@kernel
def choose_levels(
    ranked: Ranked, clauses: NDArray[np.int32], least: Number, target: NDArray[np.int64]
) -> Number:
    """Choose the levels of a node so that each has ``least`` clauses or more; return their mask.

    A level with fewer gives them to the next coarser one. ``target[l]`` becomes the level at which
    boxes of level ``l`` are kept, 0 for the flat list.
    """
    count = np.zeros(LEVELS, np.int64)
    for i in range(len(clauses)):
        count[box_level(ranked.box[clauses[i]])] += 1
    target[:] = 0
    mask = np.int64(0)
    waiting = np.int64(0)
    finest = LEVELS - 1
    for level in range(LEVELS - 1, 0, -1):
        waiting += count[level]
        if waiting >= least:
            mask |= np.int64(1) << level
            target[level : finest + 1] = level
            finest = level - 1
            waiting = np.int64(0)
    return mask


@kernel
def write_nodes(
    ranked: Ranked,
    trie: Trie,
    least: Number,
    node: NDArray[np.uint64],
    entry: NDArray[np.uint64],
    position: Number,
) -> Number:
    """Lay out the lists and cells of every node and fill its record; return the position after."""
    largest = np.int64(1)
    for k in range(len(node)):
        largest = max(largest, trie.kept[k] - trie.low[k])
    key = np.empty(4 * largest, np.uint64)
    flat = np.empty(largest, np.int32)
    target = np.empty(LEVELS, np.int64)
    for k in range(len(node)):
        clauses = trie.order[trie.low[k] : trie.kept[k]]
        mask = choose_levels(ranked, clauses, least, target)
        keys, flats = key_cells(ranked, clauses, target, key, flat)
        node[k, 4] = np.uint64(0)
        if flats > 0:
            node[k, 4] = np.uint64(position)
            position = write_list(ranked, flat[:flats], trie.depth[k], entry, position)
        key[:keys].sort()
        start = position
        position, cells = write_cells(ranked, clauses, trie.depth[k], key[:keys], entry, position)
        node[k, 5] = np.uint64(start) | (np.uint64(position) << BITS32)
        node[k, 6] = np.uint64(cells) | (np.uint64(mask) << BITS32)
        node[k, 3] = np.uint64(trie.first_child[k]) | (np.uint64(trie.children[k]) << BITS32)
        if trie.rank[k] >= 0:
            token = np.uint64(ranked.token_of_rank[trie.rank[k]])
            node[k, 7] = token | (np.uint64(trie.rank[k]) << BITS32)
    return position


@kernel
def bound_nodes(ranked: Ranked, trie: Trie, node: NDArray[np.uint64]) -> None:
    """Fill the bounds of every node and the signature of its children, children before parents."""
    for k in range(len(node) - 1, -1, -1):
        x0, y0 = LOW32, LOW32
        x1, y1 = np.uint64(0), np.uint64(0)
        for i in range(trie.low[k], trie.kept[k]):
            box = ranked.box[trie.order[i]]
            x0, y0 = min(x0, np.uint64(grid_x(box[0]))), min(y0, np.uint64(grid_y(box[1])))
            x1, y1 = max(x1, np.uint64(grid_x(box[2]))), max(y1, np.uint64(grid_y(box[3])))
        signature = np.uint64(0)
        for child in range(trie.first_child[k], trie.first_child[k] + trie.children[k]):
            x0, y0 = min(x0, node[child, 1] & LOW32), min(y0, node[child, 2] & LOW32)
            x1, y1 = max(x1, node[child, 1] >> BITS32), max(y1, node[child, 2] >> BITS32)
            signature |= np.uint64(1) << (node[child, 7] & np.uint64(63))
        node[k, 0] = signature
        node[k, 1] = x0 | (x1 << BITS32)
        node[k, 2] = y0 | (y1 << BITS32)


@kernel
def write_short_lists(
    ranked: Ranked,
    group_start: NDArray[np.int64],
    order: NDArray[np.int32],
    most: Number,
    reference: NDArray[np.uint64],
    entry: NDArray[np.uint64],
    position: Number,
) -> Number:
    """Lay out the clauses of every first token that has at most ``most`` of them as one list."""
    for rank in range(len(reference)):
        low, high = group_start[rank + 1], group_start[rank + 2]
        if 0 < high - low <= most:
            reference[rank] = LIST | np.uint64(position)
            position = write_list(ranked, order[low:high], 1, entry, position)
    return position


@kernel
def fill_cell_slots(
    node: NDArray[np.uint64], entry: NDArray[np.uint64], slot: NDArray[np.uint64], seed: Number
) -> Number:
    """Enter every cell of every node; return False where the seed must be another."""
    for k in range(len(node)):
        position = node[k, 5] & LOW32
        end = node[k, 5] >> BITS32
        while position < end:
            level = np.int64(32 - QUANTA_BITS) - np.int64(entry[position, 1] >> BITS32)
            column = np.int64(entry[position, 0] & LOW32) >> (32 - level)
            row = np.int64(entry[position, 0] >> BITS32) >> (32 - level)
            hashed = mix(cell_key(k, cell_code(level, column, row)), seed)
            if not place_tag(slot, hashed, position):
                return False
            position += np.uint64(1) + (entry[position, 1] & LOW32)
    return True


@kernel
def fill_child_slots(node: NDArray[np.uint64], slot: NDArray[np.uint64], seed: Number) -> Number:
    """Enter every child of every node; return False where the seed must be another."""
    for k in range(len(node)):
        first = node[k, 3] & LOW32
        for child in range(first, first + (node[k, 3] >> BITS32)):
            hashed = mix((np.uint64(k) << BITS32) | (node[child, 7] & LOW32), seed)
            if not place_tag(slot, hashed, child):
                return False
    return True


@kernel
def fill_token_slots(
    token_of_rank: NDArray[np.int32], reference: NDArray[np.uint64], slot: NDArray[np.uint64]
) -> None:
    """Enter every token with its rank and what the trie has for it."""
    mask = np.uint64(len(slot) - 1)
    for rank in range(len(token_of_rank)):
        position = token_position(np.uint64(token_of_rank[rank]), mask)
        while slot[position, 0] != FREE:
            position = (position + np.uint64(1)) & mask
        slot[position, 0] = np.uint64(token_of_rank[rank]) | (np.uint64(rank) << BITS32)
        slot[position, 1] = reference[rank]
