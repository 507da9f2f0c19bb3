"""Sort short arrays, such as the tokens of one clause or message.

Used by ``ap-tree``, ``mbr-trie`` and the router of shards (`nearcast.spark.shards`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.compiled.jit import kernel

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

MAX_INSERTIONS = 32
"""Longer arrays are sorted by NumPy's sort, which is slower for a few values."""


@kernel
def sort_short(values: NDArray[Any]) -> None:
    """Sort values in place, ascending."""
    if len(values) > MAX_INSERTIONS:
        values.sort()
        return
    for i in range(1, len(values)):
        wanted, at = values[i], i
        while at > 0 and values[at - 1] > wanted:
            values[at] = values[at - 1]
            at -= 1
        values[at] = wanted
