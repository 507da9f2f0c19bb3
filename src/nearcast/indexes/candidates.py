"""The kernels of `nearcast.indexes.ranked`: candidates in order, and the areas of exact shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.compiled.areas import Outlines, outline_area
from nearcast.compiled.jit import kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearcast.compiled.messages import Output

__all__ = ["outline_areas", "sort_candidates"]


@kernel
def sort_candidates(found: Output, part: tuple[int, int]) -> None:
    """Sort the candidates of every message."""
    for message in range(part[0], part[1]):
        found.clause[found.start[message] : found.start[message + 1]].sort()


@kernel
def outline_areas(
    outlines: Outlines,
    shape: NDArray[np.int32],
    world: NDArray[np.int32],
    area: NDArray[np.float64],
) -> None:
    """Replace the area of every row that has an exact shape by that of its outline."""
    for row in range(len(shape)):
        if shape[row] >= 0:
            area[row] = outline_area(outlines, shape[row], world)
