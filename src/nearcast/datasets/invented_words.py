"""Invented words: pronounceable, distinct, and the same on every call."""

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
_MIN_SYLLABLES, _MAX_SYLLABLES = 2, 4
# A prime step, so that words with adjacent numbers do not look alike.
_STEP = 61_803_399

MAX_WORDS = sum(_BASE**syllables for syllables in range(_MIN_SYLLABLES, _MAX_SYLLABLES + 1))
"""The number of words that can be invented."""


def invented_words(count: int) -> pa.StringArray:
    """Return ``count`` words: the first 10,000 have two syllables, the next million three.

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
    for syllables in range(_MIN_SYLLABLES, _MAX_SYLLABLES + 1):
        size = _BASE**syllables
        used = max(0, min(count - first, size))
        parts.append(_spell(np.arange(used) * _STEP % size, syllables))
        lengths.append(np.full(used, 2 * syllables))
        first += size
    start = starts(np.concatenate(lengths)).astype(np.int32)
    buffers = [pa.py_buffer(start), pa.py_buffer(np.concatenate(parts))]
    return pa.StringArray.from_buffers(count, *buffers)


def _spell(number: NDArray[np.int64], syllables: int) -> NDArray[np.uint8]:
    """Write numbers with syllables as digits; return the letters, concatenated."""
    power = _BASE ** np.arange(syllables - 1, -1, -1)
    letters: NDArray[np.uint8] = _SYLLABLES[number[:, None] // power % _BASE].reshape(-1)
    return letters
