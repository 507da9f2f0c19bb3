"""What indexes of all kinds share when they match a batch: parts, threads and scratch space."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from nearcast.errors import InvalidInput
from nearcast.indexes.contract import Index

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.columns import Messages

__all__ = ["BatchIndex", "Progress"]

Progress: TypeAlias = tuple[int, int, int]
"""The message at which the output was full (or the end), candidates examined, nodes visited."""

_T = TypeVar("_T")


class BatchIndex(Index):
    """An index that matches a batch part by part, each part on a thread with scratch of its own."""

    def __init__(self) -> None:
        self._idle: list[tuple[int, Any]] = []

    def make_scratch(self, tokens: int) -> Any:
        """Return scratch space for messages of at most ``tokens`` tokens; it is used again."""
        return None

    def _in_parts(
        self, messages: Messages, threads: int, run: Callable[[int, int], _T]
    ) -> list[_T]:
        """Call a function with the first message and the end of each part, on several threads."""
        if threads < 1:
            raise InvalidInput("threads", threads, "must be at least 1")
        threads = min(threads, len(messages))
        if threads <= 1:
            return [run(0, len(messages))]
        borders = np.linspace(0, len(messages), threads + 1).astype(np.int64)
        parts = list(pairwise(borders.tolist()))
        with ThreadPoolExecutor(len(parts)) as pool:
            return list(pool.map(lambda part: run(*part), parts))

    def _take_scratch(self, messages: Messages, first: int, last: int) -> tuple[int, Any]:
        """Return scratch that nobody uses, and for how many tokens it is.

        Scratch is kept from call to call: making it may take longer than matching a message.
        """
        tokens = messages.max_tokens(first, last)
        try:
            idle = self._idle.pop()
            if idle[0] >= tokens:
                return idle
        except IndexError:
            pass
        tokens = 1 << max(4, (tokens - 1).bit_length())
        return tokens, self.make_scratch(tokens)

    def _drop_scratch(self) -> None:
        """Forget idle scratch: its size depends on arrays that have changed."""
        self._idle.clear()
