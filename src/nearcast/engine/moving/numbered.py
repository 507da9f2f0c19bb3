"""Columns by number: values of things that have small numbers, which are used again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import GrowingArray, Ids, starts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NumberedIds", "NumberedLists", "NumberedValues"]

_MIN_VALUES = 1 << 16


class NumberedValues:
    """A value for every number; those that nobody set are ``missing``.

    Examples
    --------
    >>> values = NumberedValues(np.int64, -1)
    >>> values.put(np.array([2]), 7)
    >>> values.of(np.array([2, 0])).tolist()
    [7, -1]
    """

    def __init__(self, dtype: Any, missing: int) -> None:
        self._missing = missing
        self._values = GrowingArray(np.empty(0, dtype))

    @property
    def nbytes(self) -> int:
        """The bytes of the values."""
        return self._values.nbytes

    @property
    def all(self) -> NDArray[Any]:
        """The values of all numbers from 0 on."""
        return self._values.writable

    def put(self, numbers: NDArray[Any], values: Any) -> None:
        """Set the values of numbers."""
        end = int(numbers.max(initial=-1)) + 1
        if end > len(self._values):
            self._values.extend(end - len(self._values))[:] = self._missing
        self._values.writable[numbers] = values

    def of(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the values of numbers, each of which was set."""
        values: NDArray[Any] = self._values.writable[numbers]
        return values

    def at(self, number: int) -> Any:
        """Return the value of a number that was set."""
        return self._values.writable[number]


class NumberedLists:
    """A list of int32 values for every number that has one, end to end in one array.

    Lists that were dropped stay in the array until they are most of it.

    Examples
    --------
    >>> lists = NumberedLists()
    >>> lists.put(np.array([5, 0]), np.array([0, 2, 3]), np.array([7, 8, 9], np.int32))
    >>> start, values = lists.of(np.array([0, 5]))
    >>> start.tolist(), values.tolist()
    ([0, 1, 3], [9, 7, 8])
    """

    def __init__(self) -> None:
        self._begin = NumberedValues(np.int64, 0)
        self._length = NumberedValues(np.int32, 0)
        self._values = GrowingArray(np.empty(0, np.int32))
        self._dropped = 0

    @property
    def nbytes(self) -> int:
        """The bytes of all lists."""
        return self._begin.nbytes + self._length.nbytes + self._values.nbytes

    def put(
        self, numbers: NDArray[Any], start: NDArray[np.int64], values: NDArray[np.int32]
    ) -> None:
        """Set the lists of numbers that have none; list ``i`` begins at ``start[i]``."""
        self._begin.put(numbers, start[:-1] + len(self._values))
        self._length.put(numbers, np.diff(start))
        self._values.append(values)

    def drop(self, numbers: NDArray[Any]) -> None:
        """Forget the lists of numbers."""
        self._dropped += int(self._length.of(numbers).sum())
        self._length.put(numbers, 0)
        if self._dropped > _MIN_VALUES and 2 * self._dropped > len(self._values):
            kept = np.flatnonzero(self._length.all > 0)
            start, values = self.of(kept)
            self._values, self._dropped = GrowingArray(values), 0
            self._begin.put(kept, start[:-1])

    def of(self, numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the list of each number begins, and all lists end to end."""
        length = self._length.of(numbers).astype(np.int64)
        start = starts(length)
        at = np.repeat(self._begin.of(numbers) - start[:-1], length) + np.arange(start[-1])
        return start, self._values.writable[at]


class NumberedIds:
    """The id, a string or an integer, of every number.

    Examples
    --------
    >>> ids = NumberedIds()
    >>> ids.put(np.array([0, 1]), Ids.of(["a", 7]))
    >>> ids.of(np.array([1, 0])).tolist()
    [7, 'a']
    """

    def __init__(self) -> None:
        self._number = NumberedValues(np.int64, 0)
        self._text: dict[int, str] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of the ids, about."""
        return self._number.nbytes + sum(map(len, self._text.values()))

    def put(self, numbers: NDArray[Any], ids: Ids) -> None:
        """Set the ids of numbers, which have none."""
        if not ids.has_text:
            self._number.put(numbers, ids.number)
            return
        for number, value in zip(numbers.tolist(), ids.tolist(), strict=True):
            if isinstance(value, str):
                self._text[number] = value
        self._number.put(numbers, ids.number)

    def drop(self, numbers: NDArray[Any]) -> None:
        """Forget the ids of numbers."""
        if self._text:
            for number in numbers.tolist():
                self._text.pop(number, None)

    def of(self, numbers: NDArray[Any]) -> Ids:
        """Return the ids of numbers."""
        value = self._number.of(numbers)
        if not self._text:
            return Ids(value)
        pairs = zip(numbers.tolist(), value.tolist(), strict=True)
        return Ids.of([self._text.get(number, value) for number, value in pairs])
