"""The order of tokens in a tree whose clauses come and go.

A clause's ranks lie in one pool, in any order of clauses; what leaves is garbage until the pool is
compacted. Messages that are stored in the tree have ranks for all their tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import GrowingArray, read_only
from nearcast.compiled.jit import Number, kernel
from nearcast.indexes.ap_tree.layout import RankedClauses
from nearcast.indexes.ap_tree.ranks import enlarged_table, ordered_slots
from nearcast.indexes.moving.ap_plus.store import rank_tokens
from nearcast.indexes.moving.entries import FIRST, EntryArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Ranks"]

_MIN_SLOTS = 64
_MIN_GARBAGE = 1024


@kernel
def _rank_entries(
    entries: EntryArrays,
    chosen: NDArray[np.int32],
    begin: Number,
    columns: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]],
    top: Number,
    table: tuple[NDArray[np.uint64], NDArray[np.int64]],
    state: NDArray[np.int64],
) -> tuple[Number, Number]:
    """Write the ranks of clauses from ``begin`` on, and from ``top`` on in the pool.

    Return the first clause for whose tokens the table may lack slots, and the new top.
    """
    start, end, rank = columns
    slot, used = table
    for i in range(begin, len(chosen)):
        entry = chosen[i]
        first = entries.record[entry, FIRST]
        count = np.int64(entries.pool[first])
        if 3 * (used[0] + count) >= 2 * len(slot):
            return np.int64(i), top
        tokens = entries.pool[first + 1 : first + 1 + count]
        rank_tokens(slot, state, tokens, used, rank[top : top + count])
        start[entry], end[entry] = top, top + count
        top += count
    return np.int64(len(chosen)), top


@kernel
def _copy_tokens(
    entries: EntryArrays, chosen: NDArray[np.int32], token: NDArray[np.int32]
) -> Number:
    """Write the tokens of clauses one after another while they fit; return how many there are."""
    top = np.int64(0)
    for i in range(len(chosen)):
        first = entries.record[chosen[i], FIRST]
        count = np.int64(entries.pool[first])
        if top + count <= len(token):
            for j in range(count):
                token[top + j] = entries.pool[first + 1 + j]
        top += count
    return top


@kernel
def _compact_ranks(
    present: NDArray[np.int32],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    rank: NDArray[np.int32],
    compacted: NDArray[np.int32],
) -> Number:
    """Copy the ranks of clauses that are in use; return how many there are."""
    top = np.int64(0)
    for entry in present:
        count = end[entry] - start[entry]
        for i in range(count):
            compacted[top + i] = rank[start[entry] + i]
        start[entry], end[entry] = top, top + count
        top += count
    return top


class Ranks:
    """The ranks of tokens and of clauses."""

    def __init__(self) -> None:
        self.slot: NDArray[np.uint64] = np.zeros(_MIN_SLOTS, np.uint64)
        self.used = np.zeros(1, np.int64)
        self._start = GrowingArray(np.empty(0, np.int64))
        self._end = GrowingArray(np.empty(0, np.int64))
        self._rank = GrowingArray(np.empty(0, np.int32))
        self._garbage = 0

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        arrays: tuple[Any, ...] = (self.slot, self._start, self._end, self._rank)
        return sum(array.nbytes for array in arrays)

    def ranked(self, record: NDArray[np.int32]) -> RankedClauses:
        """Return what kernels see; void after the next change."""
        return RankedClauses(
            read_only(self._start.view, np.int64),
            read_only(self._end.view, np.int64),
            read_only(self._rank.view, np.int32),
            record,
        )

    def order(self, entries: EntryArrays, present: NDArray[np.int32], end: int, order: str) -> None:
        """Order the tokens of clauses; those of messages are ranked when they are stored again."""
        token = np.empty(int(_copy_tokens(entries, present, np.empty(0, np.int32))), np.int32)
        _copy_tokens(entries, present, token)
        self.slot = ordered_slots(token, order)
        self.used[0] = np.count_nonzero(self.slot)
        self._rank = GrowingArray(np.empty(0, np.int32))
        self._garbage = 0
        self.fit(end)

    def fit(self, end: int) -> None:
        """Reserve space for clauses below a number."""
        for column in (self._start, self._end):
            if len(column) < end:
                column.extend(end - len(column))[:] = 0

    def add(
        self, entries: EntryArrays, chosen: NDArray[np.int32], state: NDArray[np.int64]
    ) -> None:
        """Rank the tokens of clauses; new tokens get ranks before or after all others."""
        tokens = int(_copy_tokens(entries, chosen, np.empty(0, np.int32)))
        top, done = len(self._rank), 0
        self._rank.extend(tokens)
        columns = self._start.writable, self._end.writable, self._rank.writable
        while True:
            table = self.slot, self.used
            done, top = _rank_entries(entries, chosen, done, columns, top, table, state)
            if done == len(chosen):
                return
            self.enlarge(0)

    def enlarge(self, tokens: int) -> None:
        """Give the table more slots."""
        self.slot = enlarged_table(self.slot, 2 * (len(self.slot) + tokens) + _MIN_SLOTS)

    def drop(self, gone: NDArray[np.int32], present: NDArray[np.bool_]) -> None:
        """Forget the ranks of clauses that left; ``present`` says which are there."""
        self._garbage += int((self._end.view[gone] - self._start.view[gone]).sum())
        if self._garbage > _MIN_GARBAGE and 2 * self._garbage > len(self._rank):
            compacted = np.empty(len(self._rank), np.int32)
            left = np.flatnonzero(present).astype(np.int32)
            start, end = self._start.writable, self._end.writable
            top = _compact_ranks(left, start, end, self._rank.writable, compacted)
            self._rank = GrowingArray(compacted[:top])
            self._garbage = 0
