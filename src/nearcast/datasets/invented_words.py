"""Invented words: any number of them, pronounceable, each once, always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.columns import starts
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_WORDS", "invented_words"]

_SYLLABLES = np.array([[ord(c), ord(v)] for c in "bcdfghjklmnprstvwxyz" for v in "aeiou"], np.uint8)
_BASE = len(_SYLLABLES)
_SHORTEST, _LONGEST = 2, 4
# Prime, so that words with neighbouring numbers have nothing in common.
_STEP = 61_803_399

MAX_WORDS = sum(_BASE**syllables for syllables in range(_SHORTEST, _LONGEST + 1))
"""How many words can be invented."""


def invented_words(count: int) -> pa.StringArray:
    """Return ``count`` words: the first 10,000 of two syllables, the next million of three.

    Examples
    --------
    >>> invented_words(10_002).to_pylist()[-4:]
    ['jibi', 'sebe', 'bababa', 'wajozu']
    """
    if not 0 <= count <= MAX_WORDS:
        raise InvalidInput("count", count, f"must be from 0 to {MAX_WORDS:,}")
    parts: list[NDArray[np.uint8]] = []
    lengths: list[NDArray[np.int64]] = []
    first = 0
    for syllables in range(_SHORTEST, _LONGEST + 1):
        size = _BASE**syllables
        own = max(0, min(count - first, size))
        parts.append(_spell(np.arange(own) * _STEP % size, syllables))
        lengths.append(np.full(own, 2 * syllables))
        first += size
    start = starts(np.concatenate(lengths)).astype(np.int32)
    buffers = [pa.py_buffer(start), pa.py_buffer(np.concatenate(parts))]
    return pa.StringArray.from_buffers(count, *buffers)


def _spell(number: NDArray[np.int64], syllables: int) -> NDArray[np.uint8]:
    """Write numbers with syllables as digits; return the letters end to end."""
    power = _BASE ** np.arange(syllables - 1, -1, -1)
    letters: NDArray[np.uint8] = _SYLLABLES[number[:, None] // power % _BASE].reshape(-1)
    return letters
