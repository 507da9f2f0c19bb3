"""Pyramids of boxes, and what else the trie-pyramid is made of, against the plain way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.compiled.jit import JIT, kernel
from nearcast.compiled.simd_boxes import HALF_LANES, LANES, touching_boxes
from nearcast.indexes.trie_pyramid.arrays import BLOCK_SIZE
from nearcast.indexes.trie_pyramid.cut import cut_rows, select_rows
from nearcast.indexes.trie_pyramid.layout import CLAUSE, WIDTH, Layout, write_pyramid
from nearcast.indexes.trie_pyramid.places import COLUMNS, ROWS, touched_places
from nearcast.indexes.trie_pyramid.pyramid import (
    fill_words,
    head_words,
    part_row,
    parts_of,
    pyramid_words,
)
from nearcast.indexes.trie_pyramid.tokens import occurs, put_tokens, table_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXAMPLES = settings(max_examples=60 if JIT else 15, deadline=None)
BLOCKS = st.integers(2, 32)
SEEDS = st.integers(0, 2**32 - 1)


def shape_of(block: int) -> NDArray[np.int64]:
    step = block.bit_length() - 1
    shape = np.zeros((2, 27 // step + 1), np.int64)
    shape[0] = step * np.arange(1, shape.shape[1] + 1)
    fill_words(shape, block)
    return shape


def random_rows(seed: int, size: int) -> NDArray[np.int32]:
    """Draw boxes of all sizes, many of them alike, in the first columns of rows."""
    rng = np.random.default_rng(seed)
    spread = 10 ** rng.integers(0, 9)
    corner = rng.integers(-spread, spread + 1, (size, 2, 2))
    row = np.zeros((size, WIDTH), np.int32)
    row[:, :2], row[:, 2:4] = corner.min(axis=1), corner.max(axis=1)
    row[:, CLAUSE] = np.arange(size)
    return row


def layout_of(block: int, words: int) -> Layout:
    pool = np.zeros(words, np.uint64)
    none = np.zeros((0, 4), np.uint64)
    setting = np.zeros(4, np.int64)
    setting[BLOCK_SIZE] = block
    half = pool.view(np.int16)
    return Layout(none, pool, none, none[:, 0], shape_of(block), setting, half)


def read(layout: Layout, position: int, size: int, used: list[int]) -> NDArray[np.int64]:
    """Return the entries of a pyramid, and check the boxes around its parts."""
    block, shape = int(layout.setting[BLOCK_SIZE]), layout.shape
    if size <= block:
        used.extend(range(position, position + 2 * size))
        sides = layout.half[4 * position : 4 * (position + size)].reshape(4, size).T
        word = layout.pyramid[position + size : position + 2 * size]
        return np.column_stack([sides, (word & np.uint64(0xFFFFFFFF)).astype(np.int64)])
    row = part_row(shape, block, size)
    bits, parts = int(shape[0, row]), int(parts_of(size, shape[0, row]))
    assert 2 <= parts <= block
    used.extend(range(position, position + parts))
    around = layout.half[4 * position : 4 * (position + parts)].reshape(4, parts).T
    found = []
    for part in range(parts):
        at = position + head_words(parts) + part * int(shape[1, row])
        below = read(layout, at, min(1 << bits, size - (part << bits)), used)
        least, most = below[:, :2].min(axis=0), below[:, 2:4].max(axis=0)
        assert around[part].tolist() == [*least, *most]
        found.append(below)
    return np.concatenate(found)


@EXAMPLES
@given(BLOCKS, st.integers(1, 300), SEEDS)
def test_a_pyramid_holds_what_was_put_in(block: int, size: int, seed: int) -> None:
    row = random_rows(seed, size)
    words = int(pyramid_words(shape_of(block), block, size))
    layout = layout_of(block, words)
    cut = row.copy()
    cut_rows(cut, layout.shape, block)
    write_pyramid(cut, layout, 0)
    used: list[int] = []
    entries = read(layout, 0, size, used)
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


def test_near_boxes_stand_together() -> None:
    """A thousand points: the boxes around blocks cover hardly more than the points need."""
    rng = np.random.default_rng(0)
    row = np.zeros((1024, WIDTH), np.int32)
    row[:, :2] = row[:, 2:4] = rng.integers(0, 10**6, (1024, 2)) * (2, 1)
    cut_rows(row, shape_of(32), 32)
    blocks = row.reshape(32, 32, WIDTH)
    side = blocks[:, :, 2:4].max(axis=1) - blocks[:, :, :2].min(axis=1)
    assert side.prod(axis=1).sum() < 2 * 10**12


@EXAMPLES
@given(st.integers(3, 7), SEEDS)
def test_places_of_boxes_that_touch_have_a_bit_in_common(level: int, seed: int) -> None:
    row = random_rows(seed, 40)
    row = row[np.abs(row[:, [1, 3]]).max(axis=1) <= 9 * 10**8]
    places = [touched_places(w, s, e, n, level) for w, s, e, n in row[:, :4].tolist()]
    for a, (low, high) in zip(row, places, strict=True):
        for b, (other_low, other_high) in zip(row, places, strict=True):
            if (a[:2] <= b[2:4]).all() and (b[:2] <= a[2:4]).all():
                assert (low & other_low) | (high & other_high)


@pytest.mark.parametrize("level", [3, 5, 7])
def test_a_point_has_one_place_and_a_cell_aside_another(level: int) -> None:
    cell = 1 << (32 - level)
    seen = set()
    for column in range(COLUMNS):
        for line in range(ROWS):
            x, y = column * cell - 2**31 + 5, line * cell // 2 - 2**30 + 5
            low, high = (int(word) for word in touched_places(x, y, x, y, level))
            assert (low | high << 64).bit_count() == 1
            seen.add((low, high))
    assert len(seen) == COLUMNS * ROWS


@EXAMPLES
@given(st.sets(st.integers(0, 2**31 - 2), max_size=80), SEEDS)
def test_tokens_occur_or_not(tokens: set[int], seed: int) -> None:
    """In a table or, where they are few, without one."""
    ascending = np.array(sorted(tokens), np.int32)
    table = np.empty(1 << int(table_bits(len(tokens))), np.int32)
    bits = put_tokens(table, ascending)
    rng = np.random.default_rng(seed)
    for token in [*tokens, *rng.integers(0, 2**31 - 1, 50).tolist()]:
        assert bool(occurs(table, bits, ascending, np.int64(token))) == (token in tokens)


@pytest.mark.parametrize(("dtype", "lanes"), [(np.int32, LANES), (np.int16, HALF_LANES)])
@pytest.mark.parametrize("stride", [1, 7, 16, 32])
def test_boxes_of_both_widths_are_compared_at_once(
    dtype: type[np.signedinteger], lanes: int, stride: int
) -> None:
    rng = np.random.default_rng(stride)
    flat = rng.integers(-9, 10, 5 + 4 * stride + lanes).astype(dtype)
    window = np.array([-3, -2, 1, 4], dtype)
    touches = int(_touching(flat, 5, stride, window))
    for lane in range(min(lanes, stride)):
        west, south, east, north = (flat[5 + side * stride + lane] for side in range(4))
        expected = west <= 1 and south <= 4 and east >= -3 and north >= -2
        assert (touches >> lane) & 1 == expected
        if lanes == HALF_LANES:
            shares = west < 1 and south < 4 and east > -3 and north > -2
            assert (touches >> (HALF_LANES + lane)) & 1 == shares


def _touching(
    flat: NDArray[np.signedinteger], position: int, stride: int, window: NDArray[np.signedinteger]
) -> int:
    """Call the intrinsic, which only a kernel can."""
    return kernel(_ask)(flat, position, stride, window)


def _ask(
    flat: NDArray[np.signedinteger], position: int, stride: int, window: NDArray[np.signedinteger]
) -> int:
    return touching_boxes(flat, position, stride, window)  # type: ignore[no-any-return]
