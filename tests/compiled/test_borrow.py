"""Borrowed arrays are the same arrays, in tuples and in tuples within these."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Inner(NamedTuple):
    """An array and a number."""

    values: NDArray[np.int64]
    factor: Number


class Outer(NamedTuple):
    """A named tuple, an array of another type, and a plain tuple."""

    inner: Inner
    flags: NDArray[np.bool_]
    pair: tuple[NDArray[np.int64], NDArray[np.int64]]


@kernel
def write_products(outer: Outer) -> None:
    """Write the values times the factor, where the flags are set, to both arrays of the pair."""
    borrowed = borrow(outer)
    first, second = borrowed.pair
    for i in range(len(borrowed.flags)):
        if borrowed.flags[i]:
            first[i] = second[i] = borrowed.inner.values[i] * borrowed.inner.factor


def test_a_borrowed_tuple_has_the_same_arrays() -> None:
    first, second = np.zeros(3, np.int64), np.zeros(3, np.int64)
    flags = np.array([True, False, True])
    owners = sys.getrefcount(first)
    write_products(Outer(Inner(np.array([1, 2, 3]), 10), flags, (first, second)))
    assert first.tolist() == second.tolist() == [10, 0, 30]
    assert sys.getrefcount(first) == owners
