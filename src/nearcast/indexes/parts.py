"""How an index goes through a batch: in parts, one a thread, with room for what it finds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast.indexes.contract import Found

if TYPE_CHECKING:
    from nearcast.columns import Messages

__all__ = ["Prepare", "Run", "find_in_parts"]

Run: TypeAlias = Callable[[int, NDArray[np.int64], NDArray[np.int32]], tuple[int, int, int]]
"""Matches messages from the given one on: takes ``start`` and ``clause`` to write to, and returns
the message at which there was no more room, the candidates examined and the nodes visited."""

Prepare: TypeAlias = "Callable[[Messages, int, int], Run]"
"""Makes a `Run` for the messages from a first to a last one, with scratch space of its own."""


def find_in_parts(messages: Messages, threads: int, prepare: Prepare) -> Found:
    """Find the clauses of all messages; several threads take a part of the batch each."""
    borders = np.linspace(0, len(messages), min(threads, len(messages)) + 1).astype(np.int64)
    parts = list(pairwise(borders.tolist()))
    if len(parts) == 1:
        return _find_part(prepare, messages, *parts[0])
    with ThreadPoolExecutor(len(parts)) as pool:
        found = list(pool.map(lambda part: _find_part(prepare, messages, *part), parts))
    bases = np.cumsum([0, *(len(f.clause) for f in found)])
    start = [f.start[1:] + base for f, base in zip(found, bases, strict=False)]
    return Found(
        np.concatenate([np.zeros(1, np.int64), *start]),
        np.concatenate([f.clause for f in found]),
        sum(f.examined for f in found),
        sum(f.visited for f in found),
    )


def _find_part(prepare: Prepare, messages: Messages, first: int, last: int) -> Found:
    """Run, with more room whenever there was not enough."""
    run = prepare(messages, first, last)
    start = np.zeros(len(messages) + 1, np.int64)
    clause = np.empty(1024 + 16 * (last - first), np.int32)
    done, examined, visited = first, 0, 0
    while True:
        done, more_examined, more_visited = run(done, start, clause)
        examined += more_examined
        visited += more_visited
        if done == last:
            return Found(start[first : last + 1], clause[: start[last]], examined, visited)
        rate = start[done] / max(1, done - first)
        room = max(2 * len(clause), int(1.1 * rate * (last - first)))
        clause = np.concatenate([clause[: start[done]], np.empty(room, np.int32)])
