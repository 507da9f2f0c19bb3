"""Check the arrays of a ranked-pyramid that were read from disk.

Kernels do not check bounds. What they rely on: every list lies inside its array, words lead to
records, records and sole entries have rows of the index, and the queues have capacity for all that
the lists of a message can contain. Boxes, tokens, hashes, shares and cell masks may be anything:
they only decide what is read, never where.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.pyramid_build import align
from nearcast.compiled.pyramids import (
    BLOCK,
    BLOCK_SIZE,
    KEY,
    LEAF_WORDS,
    MAX_GRID_LEVEL,
    MAX_QUEUED,
    MIN_GRID_LEVEL,
    PADDING,
    STACK,
    TARGET,
    make_part_sizes,
    position_of,
    push_parts,
    pyramid_words,
    size_of,
)
from nearcast.compiled.token_table import BITS32, LOW32
from nearcast.indexes.damage import require
from nearcast.indexes.ranked_pyramid.layout import (
    COUNTS,
    FLAGS_SHIFT,
    HAS_HEAD,
    HEAD_WORDS,
    HEADER_FIELDS,
    MAX_LIST,
    RECORD_FIELDS,
    ROW,
    SIZES,
    SPECIAL_FLAG,
    TOKENS,
    RankedPyramidArrays,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_require = partial(require, "ranked-pyramid")


def check_arrays(index: RankedPyramidArrays, rows: int, special: int) -> None:
    """Raise `StorageError` unless no kernel can read or write out of bounds, or loop forever.

    ``rows`` subscriptions, of which ``special`` do not fit a record.
    """
    _check_header(index)
    slot = index.slot
    free = slot[:, TARGET] == 0
    _require(bool(free.any()), "slot", "has no free slot")
    _require(not slot[free].any(), "slot", "has values in a free slot")
    key, times = np.unique(slot[~free, KEY], return_counts=True)
    _require(not len(key) or int(times.max()) == 1, "slot", "has a token twice")
    seen = np.zeros(rows, np.bool_)
    row = index.record.reshape(-1, RECORD_FIELDS)[:, int(ROW)]
    within = bool(((row >= 0) & (row < rows)).all())
    _require(within, "record", f"has a row outside of {rows:,} subscriptions")
    seen[row] = True
    _require(int(seen.sum()) == len(row), "record", "has a row twice")
    parts = check_lists(
        index, slot[~free, TARGET], seen, special, np.zeros(len(index.sole) // 4, np.bool_)
    )
    _require(parts >= 0, "pyramid", f"must hold each of {rows:,} subscriptions")
    _require(bool(seen.all()), "pyramid", f"must hold each of {rows:,} subscriptions")
    queued = f"must have a queue size of {parts:,}"
    _require(index.header[MAX_QUEUED] == parts, "header", queued)


def _check_header(index: RankedPyramidArrays) -> None:
    _require(index.slot.shape == (len(index.slot), 4), "slot", "must have 4 words per slot")
    for name, width in {"record": RECORD_FIELDS, "sole": 4, "pyramid": 1}.items():
        shape = getattr(index, name).shape
        flat = len(shape) == 1 and shape[0] % width == 0
        _require(flat, name, f"has the shape {shape}, expected a multiple of {width}")
    _require(index.header.shape == (HEADER_FIELDS,), "header", f"must have {HEADER_FIELDS} fields")
    block, level, everywhere, _ = index.header.tolist()
    _require(2 <= block <= BLOCK, "header", f"has {block:,} boxes per block")
    _require(MIN_GRID_LEVEL <= level <= MAX_GRID_LEVEL, "header", f"has grid level {level:,}")
    _require(everywhere in (0, 1), "header", f"has {everywhere:,} for entries without tokens")
    expected = make_part_sizes(block)
    _require(np.array_equal(index.part_sizes, expected), "part_sizes", "do not fit the block size")


@kernel
def word_is_sound(index: RankedPyramidArrays, word: Number, special: Number) -> Number:
    """Tell whether a word leads to a record and, if that is special, to one of those."""
    record = np.int64(word & LOW32)
    if RECORD_FIELDS * record >= len(index.record):
        return False
    if (word >> FLAGS_SHIFT) & SPECIAL_FLAG:
        return 0 <= index.record[RECORD_FIELDS * record + np.int64(TOKENS)] < special
    return True


@kernel
def check_pyramid(
    index: RankedPyramidArrays, position: Number, size: Number, special: Number
) -> Number:
    """Return the parts of a pyramid within its array, -1 if one of its words is not sound."""
    block, part_sizes = index.header[BLOCK_SIZE], index.part_sizes
    stack = np.empty((STACK, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = position, 0, size
    count, parts = np.int64(1), np.int64(0)
    while count > 0:
        count -= 1
        at, first, last = stack[count, 0], stack[count, 1], stack[count, 2]
        if last - first > block:
            before = count
            count = push_parts(stack, count, part_sizes, block, (at, first, last))
            parts += count - before
            continue
        for word in index.pyramid[at + last - first : at + 2 * (last - first)]:
            if not word_is_sound(index, word, special):
                return np.int64(-1)
    return parts


@kernel
def check_lists(
    index: RankedPyramidArrays,
    target: NDArray[np.uint64],
    seen: NDArray[np.bool_],
    special: Number,
    taken: NDArray[np.bool_],
) -> Number:
    """Return the parts of all pyramids, -1 if a list is not sound.

    ``seen`` bool[rows] tells which rows have a record; rows of sole entries are added, and
    ``taken`` bool[soles] is set for those.
    """
    pyramid, block = index.pyramid, index.header[BLOCK_SIZE]
    end, parts = np.int64(len(pyramid) - PADDING), np.int64(0)
    for i in range(len(target)):
        if target[i] & HAS_HEAD:
            position = position_of(target[i])
            if size_of(target[i] ^ HAS_HEAD) > 0 or position + HEAD_WORDS > end:
                return np.int64(-1)
            counts, sizes = pyramid[position + COUNTS], pyramid[position + SIZES]
            soles, loose = np.int64(counts & LOW32), np.int64(counts >> BITS32)
            size, first = np.int64(sizes & LOW32), np.int64(sizes >> BITS32)
            position += HEAD_WORDS
            if position + LEAF_WORDS * soles + loose > end or first + soles > len(taken):
                return np.int64(-1)
            for j in range(soles):
                block_start = j - j % BLOCK
                width = min(soles - block_start, np.int64(BLOCK))
                word = pyramid[position + LEAF_WORDS * block_start + width + j % BLOCK]
                row = np.int64(word & LOW32)
                if row >= len(seen) or seen[row] or taken[first + j]:
                    return np.int64(-1)
                seen[row] = taken[first + j] = True
            position += LEAF_WORDS * soles
            for j in range(loose):
                if not word_is_sound(index, pyramid[position + j], special):
                    return np.int64(-1)
            position += loose
            if size > 0:
                position = align(position, size, block)
        else:
            position, size = position_of(target[i]), size_of(target[i])
        if size > MAX_LIST or position + pyramid_words(index.part_sizes, block, size) > end:
            return np.int64(-1)
        if size > 0:
            more = check_pyramid(index, position, size, special)
            if more < 0:
                return np.int64(-1)
            parts += more
    return parts
