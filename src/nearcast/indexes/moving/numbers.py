"""Numbers that are given out, and given out again once they are free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import GrowingArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Numbers"]


class Numbers:
    """Gives out numbers from 0 on; those that were given back come first.

    ``end`` is above all numbers that were ever given out.

    Examples
    --------
    >>> numbers = Numbers()
    >>> numbers.take(3).tolist()
    [0, 1, 2]
    >>> numbers.give_back([1])
    >>> numbers.take(2).tolist(), len(numbers)
    ([1, 3], 4)
    """

    def __init__(self) -> None:
        self.end = 0
        self._free = GrowingArray(np.empty(0, np.int32))

    def __len__(self) -> int:
        """Return how many numbers are in use."""
        return self.end - len(self._free)

    @property
    def nbytes(self) -> int:
        """The bytes of the numbers that are free."""
        return self._free.nbytes

    def take(self, count: int) -> NDArray[np.int32]:
        """Return numbers that nobody has."""
        again = min(count, len(self._free))
        fresh = count - again
        numbers = np.empty(count, np.int32)
        if again:
            numbers[:again] = self._free.view[len(self._free) - again :]
            self._free.truncate(len(self._free) - again)
        if fresh:
            numbers[again:] = np.arange(self.end, self.end + fresh)
            self.end += fresh
        return numbers

    def give_back(self, numbers: NDArray[Any] | list[int]) -> None:
        """Take numbers back."""
        self._free.append(np.asarray(numbers, np.int32))
