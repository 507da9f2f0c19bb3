"""Sixteen points and signatures at a time, against comparisons one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.simd_points import (
    LANES,
    covered_signatures,
    crossing_points,
    equal_numbers,
    points_inside,
    with_bits,
)

ENDS = (-(2**31), -1, 0, 1, 5, 2**31 - 1)


@kernel
def _crossing(
    flat: np.ndarray, at: Number, stride: Number, before: np.ndarray, after: np.ndarray
) -> Number:
    return crossing_points(flat, at, stride, before, after)


@kernel
def _covered(flat: np.ndarray, at: Number, signature: Number) -> Number:
    return covered_signatures(flat, at, np.int32(signature))


@kernel
def _equal(flat: np.ndarray, at: Number, number: Number) -> Number:
    return equal_numbers(flat, at, np.int32(number))


def test_points_in_one_of_two_boxes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        flat = rng.choice(ENDS, 64).astype(np.int32)
        before, after = rng.choice(ENDS, (2, 4)).astype(np.int32)
        at, stride = int(rng.integers(0, 9)), int(rng.integers(1, 20))
        expected = 0
        for lane in range(LANES):
            x, y = flat[at + lane], flat[at + stride + lane]
            old, new = (b[0] <= x <= b[2] and b[1] <= y <= b[3] for b in (before, after))
            expected |= (new and not old) << lane | (old and not new) << (LANES + lane)
        assert int(_crossing(flat, at, stride, before, after)) == expected


def test_signatures_and_numbers() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        flat = rng.integers(0, 4, 40).astype(np.int32) | rng.choice([0, -(2**31)], 40).astype(
            np.int32
        )
        signature = int(rng.choice(flat))
        lanes = flat[3 : 3 + LANES].tolist()
        covered = sum((number & ~signature == 0) << i for i, number in enumerate(lanes))
        equal = sum((number == signature) << i for i, number in enumerate(lanes))
        assert int(_covered(flat, 3, signature)) == covered
        assert int(_equal(flat, 3, signature)) == equal


BOXES = [(-5, -5, 5, 5), (0, 0, 0, 0), (-9, 3, 2, 9), (2**31 - 1, 2**31 - 1, -(2**31), -(2**31))]


@kernel
def inside(flat: Any, position: Any, stride: Any, box: Any) -> Any:
    return points_inside(flat, position, stride, box)


@kernel
def having(flat: Any, position: Any, wanted: Any) -> Any:
    return with_bits(flat, position, np.int32(wanted))


@pytest.mark.parametrize("box", BOXES)
def test_points_inside(box: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(1)
    flat = rng.integers(-7, 8, 3 * LANES + 40).astype(np.int32)
    for position, stride in ((0, 16), (3, 20), (5, 1)):
        x, y = flat[position:][:LANES], flat[position + stride :][:LANES]
        mask = int(inside(flat, position, stride, np.array(box, np.int32)))
        expected = (x >= box[0]) & (x <= box[2]) & (y >= box[1]) & (y <= box[3])
        assert [bool(mask >> i & 1) for i in range(LANES)] == expected.tolist()
        assert mask < 1 << LANES


def test_with_bits() -> None:
    rng = np.random.default_rng(2)
    flat = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    for wanted in (0, 1, 6, -(2**31), int(flat[7]), -1):
        mask = int(having(flat, 4, wanted))
        expected = (flat[4:20] & np.int32(wanted)) == np.int32(wanted)
        assert [bool(mask >> i & 1) for i in range(LANES)] == expected.tolist()
