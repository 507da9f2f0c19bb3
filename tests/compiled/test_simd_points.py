"""Sixteen points and signatures at a time, against comparisons one by one."""

from __future__ import annotations

import numpy as np

from nearcast.compiled.jit import Number, kernel
from nearcast.compiled.simd_boxes import LANES
from nearcast.compiled.simd_points import covered_signatures, crossing_points, equal_numbers

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
