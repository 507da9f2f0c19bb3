"""Many boxes compared at once, against one comparison after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nearcast.compiled.jit import kernel
from nearcast.compiled.simd_boxes import INT16_LANES, LANES, touching_boxes

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.mark.parametrize(("dtype", "lanes"), [(np.int32, LANES), (np.int16, INT16_LANES)])
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
        if lanes == INT16_LANES:
            shares = west < 1 and south < 4 and east > -3 and north > -2
            assert (touches >> (INT16_LANES + lane)) & 1 == shares


def _touching(
    flat: NDArray[np.signedinteger], position: int, stride: int, window: NDArray[np.signedinteger]
) -> int:
    """Call the intrinsic from a kernel: Python cannot call it."""
    return kernel(_compare)(flat, position, stride, window)


def _compare(
    flat: NDArray[np.signedinteger], position: int, stride: int, window: NDArray[np.signedinteger]
) -> int:
    return touching_boxes(flat, position, stride, window)  # type: ignore[no-any-return]
