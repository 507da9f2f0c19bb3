"""Tuples of arrays as kernels take them; used by the R-trees, the quadtrees and ``pt-quadtree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from nearcast.columns import read_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["map_arrays", "read_only_views"]

T = TypeVar("T", bound="tuple[Any, ...]")


def map_arrays(arrays: T, change: Callable[[NDArray[Any]], NDArray[Any]]) -> T:
    """Return a named tuple with what a function makes of each array, also in tuples within."""
    members = [map_arrays(m, change) if isinstance(m, tuple) else change(m) for m in arrays]
    return type(arrays)(*members)


def read_only_views(arrays: T) -> T:
    """Return read-only views: one type for kernels, whether arrays are new or memory-mapped."""
    return map_arrays(arrays, lambda array: read_only(array, array.dtype))
