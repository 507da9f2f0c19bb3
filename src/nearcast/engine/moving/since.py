"""Subscriptions that only want messages from some moment on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["Since"]


class Since:
    """From which message on subscriptions want them, by handle; others want all.

    Messages count in the order of publication.

    Examples
    --------
    >>> since = Since()
    >>> since.put(np.array([3], np.int32), 7)
    >>> since.wanted(np.array([3, 3, 4]), np.array([6, 7, 6])).tolist()
    [False, True, True]
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    @property
    def by_handle(self) -> Mapping[int, int]:
        """The first message that each of them wants."""
        return self._first

    def put(self, handle: NDArray[np.int32], first: int | NDArray[np.int64]) -> None:
        """Let subscriptions want messages from one on: the same for all, or one for each."""
        each = np.broadcast_to(first, len(handle)).tolist()
        self._first.update(zip(handle.tolist(), each, strict=True))

    def wanted(self, handle: NDArray[np.int32], order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which messages are wanted, given the subscription of each."""
        if not self._first:
            return np.ones(len(handle), np.bool_)
        first = np.array([self._first.get(one, 0) for one in handle.tolist()], np.int64)
        return order >= first

    def forget(self, handle: NDArray[np.int32]) -> None:
        """Forget subscriptions."""
        for one in handle.tolist() if self._first else ():
            self._first.pop(one, None)

    def forget_before(self, oldest: Callable[[], int]) -> None:
        """Forget those who want the oldest message that lives, and so all that live."""
        if self._first:
            first = oldest()
            self._first = {one: order for one, order in self._first.items() if order > first}
