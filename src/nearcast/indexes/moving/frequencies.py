"""How many clauses and living messages have each token, and the key token of a clause.

A hash table with linear probing, ``slot`` int32[slots, width]: the token (-1 in a free slot), how
many clauses have it, how many living points have it, and columns that belong to the index. Tokens
that nobody has are dropped when everything is swept. Clauses without tokens are counted as those of
`NO_TOKEN`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.compiled.jit import Number, kernel, prefetch
from nearcast.compiled.token_table import NO_TOKEN, home
from nearcast.indexes.moving.entries import FIRST, KEY, EntryArrays
from nearcast.indexes.moving.living import LivingArrays, is_range, tokens_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CLAUSES",
    "MESSAGES",
    "NO_ROW",
    "OWN",
    "TOKEN",
    "TokenFrequencies",
    "choose_keys",
    "claim_token",
    "find_token",
]

TOKEN, CLAUSES, MESSAGES, OWN = range(4)
"""Columns of ``slot``; those of the index start at `OWN`."""

NO_ROW = np.int64(-1)
_FREE = np.int32(-1)
_MIN_SLOTS = 64
_AHEAD = 4


@kernel
def find_token(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the row of a token, or -1."""
    at = home(np.int64(token), len(slot))
    while True:
        there = slot[at, TOKEN]
        if there == token:
            return np.int64(at)
        if there == _FREE:
            return NO_ROW
        at += 1
        if at == len(slot):
            at = np.int64(0)


@kernel
def claim_token(slot: NDArray[np.int32], used: NDArray[np.int64], token: Number) -> Number:
    """Return the row of a token; a new one gets a row of zeros. There is room for it."""
    at = home(np.int64(token), len(slot))
    while True:
        there = slot[at, TOKEN]
        if there == token:
            return np.int64(at)
        if there == _FREE:
            slot[at, TOKEN] = token
            used[0] += 1
            return np.int64(at)
        at += 1
        if at == len(slot):
            at = np.int64(0)


@kernel
def _lacks_room(slot: NDArray[np.int32], used: NDArray[np.int64], tokens: Number) -> Number:
    """Tell whether a number of new tokens would fill more than three fifths of the table."""
    return 5 * (used[0] + tokens) > 3 * len(slot)


@kernel
def _count_clauses(
    slot: NDArray[np.int32],
    used: NDArray[np.int64],
    entries: EntryArrays,
    entry: NDArray[np.int32],
    begin: Number,
    more: Number,
) -> Number:
    """Count the tokens of entries; return the first entry for which there was no room."""
    record, pool = entries
    for i in range(begin, len(entry)):
        first = np.int64(record[entry[i], FIRST])
        if _lacks_room(slot, used, pool[first] + 1):
            return i
        if pool[first] == 0:
            slot[claim_token(slot, used, NO_TOKEN), CLAUSES] += more
        for j in range(first + 1, first + 1 + pool[first]):
            slot[claim_token(slot, used, pool[j]), CLAUSES] += more
    return len(entry)


@kernel
def _count_messages(
    slot: NDArray[np.int32],
    used: NDArray[np.int64],
    living: LivingArrays,
    stamps: NDArray[np.int32],
    begin: Number,
    more: Number,
) -> Number:
    """Count the tokens of points; return the first message for which there was no room."""
    for i in range(begin, len(stamps)):
        if i + _AHEAD < len(stamps):
            for token in tokens_of(living, stamps[i + _AHEAD]):
                prefetch(slot, home(np.int64(token), len(slot)))
        if is_range(living.record, stamps[i]):
            continue
        tokens = tokens_of(living, stamps[i])
        if _lacks_room(slot, used, len(tokens)):
            return i
        for token in tokens:
            slot[claim_token(slot, used, token), MESSAGES] += more
    return len(stamps)


@kernel
def choose_keys(slot: NDArray[np.int32], entries: EntryArrays, entry: NDArray[np.int32]) -> Number:
    """Give each entry its rarest token as key; return how many have no tokens.

    That is the token of the fewest living messages, and of those the one of the fewest clauses.
    """
    record, pool = entries
    without = np.int64(0)
    for i in range(len(entry)):
        first = np.int64(record[entry[i], FIRST])
        key, messages, clauses = NO_TOKEN, np.int64(0), np.int64(0)
        for j in range(first + 1, first + 1 + pool[first]):
            row = slot[find_token(slot, pool[j])]
            rarer = row[MESSAGES] < messages or (
                row[MESSAGES] == messages and row[CLAUSES] < clauses
            )
            if key == NO_TOKEN or rarer:
                key = np.int64(pool[j])
                messages, clauses = np.int64(row[MESSAGES]), np.int64(row[CLAUSES])
        record[entry[i], KEY] = key
        without += np.int64(key == NO_TOKEN)
    return without


@kernel
def _copy_rows(
    old: NDArray[np.int32],
    new: NDArray[np.int32],
    used: NDArray[np.int64],
    kept: NDArray[np.bool_],
) -> None:
    used[0] = 0
    for at in range(len(old)):
        if kept[at]:
            there = claim_token(new, used, old[at, TOKEN])
            for column in range(old.shape[1]):
                new[there, column] = old[at, column]


class TokenFrequencies:
    """The tokens of clauses and living messages.

    Parameters
    ----------
    own
        How many columns the index has for itself.
    """

    def __init__(self, own: int = 0) -> None:
        self._width = OWN + own
        self.slot = self._slots(_MIN_SLOTS)
        self.used = np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        return self.slot.nbytes

    def __len__(self) -> int:
        """Return how many tokens have rows."""
        return int(self.used[0])

    def count_clauses(self, entries: EntryArrays, entry: NDArray[np.int32], more: int) -> None:
        """Count the tokens of entries that come (``more`` is 1) or go (-1); rows may move."""
        done = 0
        while True:
            done = _count_clauses(self.slot, self.used, entries, entry, done, more)
            if done == len(entry):
                return
            self._enlarge()

    def count_messages(self, living: LivingArrays, stamps: NDArray[np.int32], more: int) -> None:
        """Count the tokens of messages that come (``more`` is 1) or go (-1); rows may move."""
        done = 0
        while True:
            done = _count_messages(self.slot, self.used, living, stamps, done, more)
            if done == len(stamps):
                return
            self._enlarge()

    def add(self, token: int) -> None:
        """Give a token a row, which counts nothing."""
        if _lacks_room(self.slot, self.used, 1):
            self._enlarge()
        claim_token(self.slot, self.used, token)

    def _enlarge(self) -> None:
        self._rebuild(2 * len(self.slot), self.slot[:, TOKEN] != _FREE)

    def drop_unused(self) -> None:
        """Drop the tokens whose counts and own columns are all 0; rows may move."""
        kept = (self.slot[:, TOKEN] != _FREE) & self.slot[:, CLAUSES:].any(axis=1)
        self._rebuild(2 * int(np.count_nonzero(kept)), kept)

    def _rebuild(self, slots: int, kept: NDArray[np.bool_]) -> None:
        larger = self._slots(max(_MIN_SLOTS, slots))
        _copy_rows(self.slot, larger, self.used, kept)
        self.slot = larger

    def _slots(self, count: int) -> NDArray[np.int32]:
        slot = at_cache_line(self._width * count, np.int32).reshape(-1, self._width)
        slot[:, TOKEN] = _FREE
        return slot
