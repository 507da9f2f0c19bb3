"""The parts of a trie-pyramid against simple ways to do the same: pyramids, cells, tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nearcast.compiled.jit import JIT
from nearcast.compiled.pyramid_build import LOW, WIDTH, order_rows, select_rows, write_pyramid
from nearcast.compiled.pyramids import (
    BLOCK_SIZE,
    GRID_COLUMNS,
    GRID_ROWS,
    cell_mask,
    inner_words,
    make_part_sizes,
    part_count,
    part_level,
    pyramid_words,
)
from nearcast.indexes.trie_pyramid.layout import TriePyramidArrays
from nearcast.indexes.trie_pyramid.match import fill_table, occurs, table_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXAMPLES = settings(max_examples=examples(60 if JIT else 15), deadline=None)
BLOCKS = st.integers(2, 32)
SEEDS = st.integers(0, 2**32 - 1)


def random_rows(seed: int, size: int) -> NDArray[np.int32]:
    """Draw boxes of all sizes, many of them alike, in the first columns of rows."""
    rng = np.random.default_rng(seed)
    spread = 10 ** rng.integers(0, 9)
    corner = rng.integers(-spread, spread + 1, (size, 2, 2))
    row = np.zeros((size, WIDTH), np.int32)
    row[:, :2], row[:, 2:4] = corner.min(axis=1), corner.max(axis=1)
    row[:, LOW] = np.arange(size)
    return row


def arrays_of(block: int, words: int) -> TriePyramidArrays:
    """Return arrays with nothing but space for pyramids."""
    pyramid = np.zeros(words, np.uint64)
    empty = np.zeros((0, 4), np.uint64)
    header = np.zeros(4, np.int64)
    header[BLOCK_SIZE] = block
    return TriePyramidArrays(
        slot=empty,
        pyramid=pyramid,
        node=empty,
        child=empty[:, 0],
        part_sizes=make_part_sizes(block),
        header=header,
        rounded_boxes=pyramid.view(np.int16),
        box=np.empty((0, 4), np.int32),
        token_start=np.zeros(1, np.int64),
        token=np.empty(0, np.int32),
    )


def read(index: TriePyramidArrays, position: int, size: int, used: list[int]) -> NDArray[np.int64]:
    """Return the entries of a pyramid, and check the bounding boxes of its parts."""
    block, part_sizes = int(index.header[BLOCK_SIZE]), index.part_sizes
    if size <= block:
        used.extend(range(position, position + 2 * size))
        sides = index.rounded_boxes[4 * position : 4 * (position + size)].reshape(4, size).T
        word = index.pyramid[position + size : position + 2 * size]
        return np.column_stack([sides, (word & np.uint64(0xFFFFFFFF)).astype(np.int64)])
    level = part_level(part_sizes, block, size)
    bits, words = part_sizes[:, level].tolist()
    parts = int(part_count(size, bits))
    assert 2 <= parts <= block
    used.extend(range(position, position + parts))
    bounds = index.rounded_boxes[4 * position : 4 * (position + parts)].reshape(4, parts).T
    found = []
    for part in range(parts):
        at = position + inner_words(parts) + part * words
        below = read(index, at, min(1 << bits, size - (part << bits)), used)
        low, high = below[:, :2].min(axis=0), below[:, 2:4].max(axis=0)
        assert bounds[part].tolist() == [*low, *high]
        found.append(below)
    return np.concatenate(found)


@EXAMPLES
@given(BLOCKS, st.integers(1, 300), SEEDS)
def test_a_pyramid_holds_what_was_put_in(block: int, size: int, seed: int) -> None:
    row = random_rows(seed, size)
    words = int(pyramid_words(make_part_sizes(block), block, size))
    index = arrays_of(block, words)
    ordered = row.copy()
    order_rows(ordered, index.part_sizes, block)
    write_pyramid(ordered, index, 0)
    used: list[int] = []
    entries = read(index, 0, size, used)
    assert len(used) == len(set(used)), "two blocks share a word"
    assert max(used) < words
    row[:, :4] >>= 16
    assert entries[np.argsort(entries[:, 4])].tolist() == row[:, :5].tolist()


@EXAMPLES
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.data())
def test_rows_before_a_rank_are_not_greater(values: list[int], data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, len(values) - 1))
    row = np.zeros((len(values), WIDTH), np.int32)
    row[:, 2] = values
    select_rows(row, 0, len(row), rank, 2)
    assert sorted(row[:, 2].tolist()) == sorted(values)
    assert row[:rank, 2].max(initial=-9) <= row[rank, 2] <= row[rank:, 2].min()


def test_close_boxes_share_a_block() -> None:
    """A thousand points: the bounding boxes of blocks cover hardly more than the points need."""
    rng = np.random.default_rng(0)
    row = np.zeros((1024, WIDTH), np.int32)
    row[:, :2] = row[:, 2:4] = rng.integers(0, 10**6, (1024, 2)) * (2, 1)
    order_rows(row, make_part_sizes(32), 32)
    blocks = row.reshape(32, 32, WIDTH)
    side = blocks[:, :, 2:4].max(axis=1) - blocks[:, :, :2].min(axis=1)
    assert side.prod(axis=1).sum() < 2 * 10**12


@EXAMPLES
@given(st.integers(3, 7), SEEDS)
def test_cells_of_overlapping_boxes_have_a_bit_in_common(level: int, seed: int) -> None:
    row = random_rows(seed, 40)
    row = row[np.abs(row[:, [1, 3]]).max(axis=1) <= 9 * 10**8]
    cells = [cell_mask(w, s, e, n, level) for w, s, e, n in row[:, :4].tolist()]
    for a, (low, high) in zip(row, cells, strict=True):
        for b, (other_low, other_high) in zip(row, cells, strict=True):
            if (a[:2] <= b[2:4]).all() and (b[:2] <= a[2:4]).all():
                assert (low & other_low) | (high & other_high)


@pytest.mark.parametrize("level", [3, 5, 7])
def test_a_point_has_one_cell_and_its_neighbors_have_others(level: int) -> None:
    cell = 1 << (32 - level)
    seen = set()
    for column in range(GRID_COLUMNS):
        for line in range(GRID_ROWS):
            x, y = column * cell - 2**31 + 5, line * cell // 2 - 2**30 + 5
            low, high = (int(word) for word in cell_mask(x, y, x, y, level))
            assert (low | high << 64).bit_count() == 1
            seen.add((low, high))
    assert len(seen) == GRID_COLUMNS * GRID_ROWS


@EXAMPLES
@given(st.sets(st.integers(0, 2**31 - 2), max_size=80), SEEDS)
def test_tokens_occur_or_not(tokens: set[int], seed: int) -> None:
    """In a table or, if there are few, without one."""
    ascending = np.array(sorted(tokens), np.int32)
    table = np.empty(1 << int(table_bits(len(tokens))), np.int32)
    bits = fill_table(table, ascending)
    rng = np.random.default_rng(seed)
    for token in [*tokens, *rng.integers(0, 2**31 - 1, 50).tolist()]:
        assert bool(occurs(table, bits, ascending, np.int64(token))) == (token in tokens)
