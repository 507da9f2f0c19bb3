"""Keep the first distinct tokens of every text that was drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.compiled.jit import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def keep_first_distinct(
    drawn_start: NDArray[np.int64],
    drawn: NDArray[np.int32],
    most: NDArray[np.int64],
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
) -> Number:
    """Write the first ``most[i]`` distinct tokens of every row ``i``, ascending; return the end.

    ``token_start`` (one longer than ``most``) is filled; ``token`` is as long as ``drawn``.
    """
    end = np.int64(0)
    token_start[0] = 0
    for row in range(len(most)):
        begin = end
        for i in range(drawn_start[row], drawn_start[row + 1]):
            if end - begin == most[row]:
                break
            place = begin + np.searchsorted(token[begin:end], drawn[i])
            if place < end and token[place] == drawn[i]:
                continue
            for j in range(end, place, -1):
                token[j] = token[j - 1]
            token[place] = drawn[i]
            end += 1
        token_start[row + 1] = end
    return end
