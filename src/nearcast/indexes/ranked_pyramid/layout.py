"""The arrays of a ranked-pyramid. Slots, pyramids and cell masks: see `nearcast.compiled.pyramids`.

- ``slot`` uint64[s, 4] is a hash table from tokens to lists; `NO_TOKEN` leads to the entries that
  need no token. The target is a pyramid or, where `HAS_HEAD` is set, the position of a *head*.
- ``pyramid`` uint64[w] holds all lists. A head is `HEAD_WORDS` words: the number of sole entries
  and, in the upper 32 bits, of entries without a box; the size of the pyramid and, above it, the
  first sole entry; the cell mask of the pyramid. Blocks of sole entries follow, then the words of
  entries without a box, then the pyramid.
- ``record`` int32[16 n] has one cache line per subscription: all that its score depends on. See
  `PLACE` to `TOKENS`. ``own_weight`` float64[8 n] is the same seen as numbers.
- ``sole`` int32[4 m] has the places of subscriptions that are sole entries and have no record:
  longitude, latitude and largest distance, or the region.
- ``part_sizes`` int64[2, levels] and ``header`` int64[4]: see `nearcast.compiled.pyramids`, and
  `EVERYWHERE`.
- ``weight`` float64[tokens]: the weight of every token, which belongs to the subscriptions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.scoring import COSINE, DICE, JACCARD
from nearcast.compiled.token_table import BITS32, MIXER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.compiled.scoring import ScoringCodes

EVERYWHERE, HEADER_FIELDS = 2, 4
"""A field of ``header``: whether there are entries that need no token."""

HAS_HEAD = np.uint64(1 << 63)
"""In the target of a slot: it is the position of a head, not a pyramid."""

HEAD_WORDS = 4

COUNTS, SIZES, HEAD_CELLS = 0, 1, 2
"""The words of a head."""

PLACE, DISTANCE, SHARE, THRESHOLD, ROW, TOKENS = (np.uint64(n) for n in (0, 2, 4, 5, 8, 9))
"""Columns of a record: longitude, latitude and largest distance in centimeters (a uint32), or the
four sides of the region; text share and threshold; row and tokens, -1 where there are no more.
W is in columns 6 and 7: column `WEIGHT` of ``own_weight``."""

WEIGHT = np.uint64(3)

MAX_TOKENS = 7
"""Tokens of a record."""

RECORD_FIELDS = 16

RECORD_BITS = np.uint64(4)
"""The logarithm of `RECORD_FIELDS`."""

MAX_LIST = (1 << 27) - 1
"""The most entries of a list."""

# --- words ---------------------------------------------------------------------------------------
#
# The word of an entry: record (32 bits), position of its token (3), `MARK` (1), flags (4), two
# hashes (12 each). An entry is accepted if its token is the first one of the record that the
# message has, and the flags allow what follows. `NO_POSITION` is that of entries that need no
# token: those are accepted if no token is shared. The hashes are bits of the filter of a message,
# one of which must be set. Bit 0 always is. The second hash may be a code instead, which is
# compared with that of the message: see `sift_mode`.

NO_POSITION = 7

NO_TOKEN_BIT = np.uint64(1 << NO_POSITION)

WITH_OTHERS, ALONE, ALWAYS, SPECIAL = 1, 2, 4, 8
"""Flags: accepted if more tokens are shared, if no other is, in any case; and subscriptions whose
record does not hold all that is needed."""

SPECIAL_FLAG = np.uint64(SPECIAL)

POSITION_SHIFT, FLAGS_SHIFT, FIRST_HASH, SECOND_HASH = (np.uint64(n) for n in (32, 36, 40, 52))

MARK = np.uint64(35)
"""The position of a bit that is set where, of regions, the second hash is a hash."""

HASHES = 4096

FILTER_WORDS = HASHES // 64

HASH_MASK = np.uint64(HASHES - 1)


class RankedPyramidArrays(NamedTuple):
    """The arrays of a ranked-pyramid; ``rounded_boxes`` is ``pyramid`` seen as int16."""

    slot: NDArray[np.uint64]
    pyramid: NDArray[np.uint64]
    rounded_boxes: NDArray[np.int16]
    record: NDArray[np.int32]
    own_weight: NDArray[np.float64]
    sole: NDArray[np.int32]
    part_sizes: NDArray[np.int64]
    header: NDArray[np.int64]
    weight: NDArray[np.float64]


@inlined_kernel
def token_hash(token: Number) -> Number:
    """Return the bit of a token in the filter of a message: from 1 to 4095."""
    return max((np.uint64(token) * MIXER) >> np.uint64(52), np.uint64(1))


@kernel
def pack_flags(
    position: Number, mark: Number, flags: Number, first: Number, second: Number
) -> Number:
    """Return the upper half of the word of an entry."""
    position += mark << 3
    upper = (np.uint64(position) | (np.uint64(flags) << np.uint64(4))) | (
        np.uint64(first) << (FIRST_HASH - BITS32)
    )
    return upper | (np.uint64(second) << (SECOND_HASH - BITS32))


@kernel
def pack_word(record: Number, upper: Number) -> Number:
    """Return the word of an entry from its record and upper half."""
    return np.uint64(record) | (np.uint64(upper) << BITS32)


@kernel
def weight_code(weight: Number) -> Number:
    """Return a code from 0 to 4095 that never falls as the weight of a text grows.

    It has 128 steps for every doubling, from 1/256 to 16 million.
    """
    if weight <= 0.0:
        return np.int64(0)
    fraction, exponent = math.frexp(min(weight, 1e300))
    code = (np.int64(exponent) + 7) * 128 + np.int64((fraction - 0.5) * 256.0)
    return min(max(code, np.int64(0)), np.int64(HASHES - 1))


BY_HASHES, BY_WEIGHT, BY_AREA = 0, 1, 2
"""What the second hash of a word is; see `sift_mode`."""


@kernel
def sift_mode(codes: ScoringCodes) -> Number:
    """Return what the second hash of every word is.

    - `BY_HASHES`: a hash.
    - `BY_WEIGHT`, for similarities that depend on the weight of all words of a message: a
      `weight_code`. The message's must not be greater.
    - `BY_AREA`, for regions: an `area_code`. The message's must not be less. Or it is a hash, if
      `MARK` is set.
    """
    similarity = codes.similarity
    if (similarity == JACCARD) | (similarity == DICE) | (similarity == COSINE):
        return np.int64(BY_WEIGHT)
    return np.int64(BY_HASHES if codes.proximity else BY_AREA)


@kernel
def area_code(area: Number) -> Number:
    """Return a code from 0 to 4095 that never falls as an area grows, 64 steps a doubling."""
    if area < 1.0:
        return np.int64(0)
    fraction, exponent = math.frexp(area)
    code = np.int64(exponent) * 64 + np.int64((fraction - 0.5) * 128.0)
    return min(code, np.int64(HASHES - 1))
