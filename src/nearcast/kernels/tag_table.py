"""Hash tables of 8-byte slots: a 32-bit tag and a 32-bit value side by side, no key.

What is found under a tag is verified where the value points to, which is read next anyway. That
is enough because no two keys of one probe chain share a tag: `place_tag` refuses, and the
builder tries another seed. 0 is an empty slot, so values begin at 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast.kernels.compile import Number, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOW32 = np.uint64(0xFFFFFFFF)
BITS32 = np.uint64(32)


@kernel
def mix(key: Number, seed: Number) -> Number:
    """Return a 64-bit hash of a 64-bit key."""
    hashed = (key ^ seed) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    return hashed ^ (hashed >> BITS32)


@kernel
def token_position(token: Number, mask: Number) -> Number:
    """Return where the chain of a token begins in a table of ``mask + 1`` slots."""
    return ((token * np.uint64(0x9E3779B97F4A7C15)) >> BITS32) & mask


@kernel
def slot_position(slot: NDArray[np.uint64], hashed: Number) -> Number:
    """Return where the chain of a hash begins in a table of tags."""
    return ((hashed >> BITS32) * np.uint64(len(slot))) >> BITS32


@kernel
def find_tag(slot: NDArray[np.uint64], hashed: Number) -> Number:
    """Return the value under a hash, 0 where there is none; the caller verifies what it finds."""
    position = slot_position(slot, hashed)
    tag = hashed & LOW32
    while slot[position] != np.uint64(0):
        if (slot[position] >> BITS32) == tag:
            return slot[position] & LOW32
        position += np.uint64(1)
        if position == np.uint64(len(slot)):
            position = np.uint64(0)
    return np.uint64(0)


@kernel
def place_tag(slot: NDArray[np.uint64], hashed: Number, value: Number) -> Number:
    """Put a value under a hash; return False where another key of the chain has the same tag."""
    position = slot_position(slot, hashed)
    tag = hashed & LOW32
    while slot[position] != np.uint64(0):
        if (slot[position] >> BITS32) == tag:
            return False
        position += np.uint64(1)
        if position == np.uint64(len(slot)):
            position = np.uint64(0)
    slot[position] = (tag << BITS32) | np.uint64(value)
    return True
