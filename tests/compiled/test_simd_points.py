"""Sixteen points, or signatures, at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nearcast.compiled.jit import kernel
from nearcast.compiled.simd_points import LANES, points_inside, with_bits

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
