"""Units and limits, and what all sets of arrays have in common."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "EARTH_RADIUS_M",
    "NEVER",
    "TOLERANCE_M",
    "UNITS",
    "WORLD",
    "Arrays",
    "at_cache_line",
    "chain",
    "distinct",
    "freeze",
    "frozen",
    "gather",
    "read_only",
    "starts",
]

UNITS = 10_000_000
"""Units per degree: coordinates are int32 in units of 1e-7 degree."""

WORLD = (-180 * UNITS, -90 * UNITS, 180 * UNITS, 90 * UNITS)
"""West, south, east and north of the whole world, in units."""

NEVER = np.iinfo(np.int64).max
"""The time (in microseconds) of what never happens: a subscription that does not expire."""

EARTH_RADIUS_M = 6_371_008.8
"""The radius of the sphere on which distances are measured."""

TOLERANCE_M = 1e-3
"""A place within this distance of a circle counts as inside."""

_NATIVE = {
    kind: np.dtype(kind)
    for kind in (np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.float64)
}


def read_only(values: Any, dtype: Any, width: int | None = None) -> NDArray[Any]:
    """Return the values as a contiguous read-only array of the type, copied only where needed."""
    # Most arrays need no change: every step here is paid several times by each single message.
    if type(values) is np.ndarray and values.dtype is _NATIVE.get(dtype):
        array, flags = values, values.flags
        if not flags.c_contiguous:
            array = np.ascontiguousarray(values)
        elif not flags.writeable and (width is None or array.shape[1:] == (width,)):
            return array
    else:
        array = np.ascontiguousarray(values, dtype=dtype)
    if width is not None and (array.ndim != 2 or array.shape[1] != width):
        array = array.reshape(-1, width)
    array = array.view(np.ndarray)
    array.setflags(write=False)
    return array


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make a new array, which nobody else has yet, read-only, and return it."""
    array.setflags(write=False)
    return array


def starts(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the start array (one longer) of pieces with these lengths laid end to end."""
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


def gather(start: NDArray[np.int64], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the start array of the chosen pieces and the positions of their content."""
    length = (start[1:] - start[:-1])[rows]
    new_start = starts(length)
    position = np.arange(new_start[-1]) + np.repeat(start[:-1][rows] - new_start[:-1], length)
    return new_start, position


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values, ascending.

    `numpy.unique` puts integers into a hash table, which takes up to a hundred times as long.

    Examples
    --------
    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ascending = np.sort(values)
    first = np.empty(len(ascending), np.bool_)
    first[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first]


def at_cache_line(count: int, dtype: Any) -> NDArray[Any]:
    """Return zeros that begin at a cache line.

    Examples
    --------
    >>> at_cache_line(3, np.int32).ctypes.data % 64
    0
    """
    each = np.dtype(dtype).itemsize
    raw = np.zeros(count + 64 // each, dtype)
    skip = (-raw.ctypes.data // each) % (64 // each)
    return raw[skip : skip + count]


class Arrays:
    """What all sets of arrays have in common: their size, and that they pickle read-only."""

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return _rebuilt, (type(self), values)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays together."""
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return sum(value.nbytes for value in values if hasattr(value, "nbytes"))


def _rebuilt(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)


def freeze(arrays: Any, types: Mapping[str, Any]) -> None:
    """Make the named arrays of a frozen dataclass read-only arrays of these types."""
    values = vars(arrays)
    for name, dtype in types.items():
        values[name] = read_only(values[name], dtype)


def chain(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the start array of pieces whose start arrays these are."""
    if len(parts) == 1:
        return parts[0]
    bases = np.cumsum([0, *(int(p[-1]) for p in parts)])
    moved = [p[1:] + base for p, base in zip(parts, bases, strict=False)]
    return np.concatenate([np.zeros(1, np.int64), *moved])
