"""The arrays of ``stamp``: records, the tree of regions, and lists by token and region.

The package's docstring draws them. All are integers; reaches (float32) and weights (float64) are
stored as their bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, inlined_kernel, kernel
from nearcast.compiled.token_table import MIXER, NO_TOKEN
from nearcast.indexes.array_tuples import map_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

DUMMY = NO_TOKEN
"""The token of the lists that every message reads: ``*`` in the paper."""

RECORD_TOKENS = 8
"""Tokens that fit into a record."""

LON, LAT, SHARE, THRESHOLD, DISTANCE, ROW, WEIGHT = 0, 1, 2, 3, 4, 5, 6
TOKEN = 8
"""Columns of ``record``. ``WEIGHT`` has the bits of W in two columns, ``TOKEN`` the first token;
unused ones are `NO_MORE`. If the last is `ELSEWHERE`, the first two say where tokens begin in
``long_token`` and how many there are."""

NO_MORE, ELSEWHERE = -1, -2

NEVER_MET = 2_000_000_000
"""The threshold (in units of 1e-9) of a deleted subscription: no score reaches 2."""

PARENT, FIRST_CHILD, LAST_CHILD, NEXT_SIBLING, MEMBERS, DELETED, FIRST_MEMBER = range(7)
REGION_COLUMNS = 7
"""Columns of ``region``; -1 for nothing. A leaf region has no child, and the root, region 0, is
never a leaf. Parents come before their children, and children before their next sibling."""

SLOT_TOKEN, SLOT_START, SLOT_COUNT, SLOT_CAPACITY = range(4)
"""Columns of ``slot``: the token, -1 in a free slot, and where its entries are."""

REGION, REACH = range(2)
"""Columns of ``entry``: the region, ``~region`` of an inner one, and the largest reach of a marked
posting."""

NEXT, MARKED, OWN_SET, COUNT, CAPACITY = range(5)
ENTRY_COLUMNS = 5
"""Columns of ``list``. For an inner region, ``NEXT`` is the number of entries up to the end of what
is below it; for a leaf, the first posting. ``MARKED`` postings of the first signature set are
read by messages outside the region, ``OWN_SET`` by those inside."""

POSTING_RECORD, POSTING_REACH, POSTING_LON, POSTING_LAT = range(4)

SETS = 5
"""Signature sets of a subscription: SIG and up to four more, the last of which takes the rest."""

MORE_INFO, MORE_ALONE = range(2)
"""Columns of ``more``: the bits below, and how far away a match can be if no later token is
shared."""

SET_BITS, LAST_SHIFT, REMAINING_SHIFT, MAX_REMAINING = 15, 4, 8, 0xFFFF

ENTRIES, POSTINGS, TOKENS, RECORDS, REGIONS, LONG_TOKENS, CHANGES, FARTHEST = range(8)
"""Positions in ``state``: how much of the arrays is in use, changes since the build, and the bits
of the largest finite reach."""


class StampArrays(NamedTuple):
    """The arrays of the index.

    - ``record`` int32[records, 16]: all that a score depends on, a cache line each.
    - ``long_token`` int32[...]: the tokens of subscriptions with more than fit into a record.
    - ``leaf`` int32[records]: the leaf region of every record; -1 once it has left it.
    - ``next_member`` int32[records]: the next record of the same leaf, always an earlier one.
    - ``box`` int32[regions, 4], ``region`` int32[regions, 7]: the tree of regions.
    - ``set_total`` int32[regions, SETS]: postings of each signature set in a leaf.
    - ``slot`` int32[a power of two, 4]: a hash table of tokens, at most half full.
    - ``entry`` int32[entries, 2]: the regions of every token, in preorder.
    - ``list`` int32[entries, 5]: where their postings are.
    - ``set_end`` int32[entries or 0, SETS]: where each signature set ends in a list.
    - ``posting`` int32[postings, 4]: record, bits of the reach, place.
    - ``more`` int32[postings or 0, 2]: what further signature sets need to know.
    - ``state`` int64[8].
    """

    record: NDArray[np.int32]
    long_token: NDArray[np.int32]
    leaf: NDArray[np.int32]
    next_member: NDArray[np.int32]
    box: NDArray[np.int32]
    region: NDArray[np.int32]
    set_total: NDArray[np.int32]
    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    list: NDArray[np.int32]
    set_end: NDArray[np.int32]
    posting: NDArray[np.int32]
    more: NDArray[np.int32]
    state: NDArray[np.int64]


class Filters(NamedTuple):
    """Which filters of the paper are in use, as numbers.

    ``regions`` (HI), ``marks`` (RP), ``sets`` (ST), and ``by_cost``: whether a leaf uses the next
    signature set only if that is expected to cost less than verifying.
    """

    regions: Number
    marks: Number
    sets: Number
    by_cost: Number


@inlined_kernel
def float_bits(value: Number) -> Number:
    """Return the bits of a float32; those of larger numbers, if not negative, are larger."""
    return np.float32(value).view(np.int32)


@inlined_kernel
def as_float(bits: Number) -> Number:
    """Return the float32 with these bits."""
    return np.int32(bits).view(np.float32)


@inlined_kernel
def token_home(token: Number, size: Number) -> Number:
    """Return the slot where the search for a token begins; the size is a power of two."""
    return np.int64(((np.uint64(token) * MIXER) >> np.uint64(32)) & np.uint64(size - 1))


@kernel
def find_token(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot of a token, or -1."""
    at = token_home(token, len(slot))
    while slot[at, SLOT_TOKEN] >= 0:
        if slot[at, SLOT_TOKEN] == token:
            return at
        at = (at + 1) & (len(slot) - 1)
    return np.int64(-1)


@kernel
def claim_token(slot: NDArray[np.int32], token: Number) -> Number:
    """Return the slot of a token; a new token gets one, without entries."""
    at = token_home(token, len(slot))
    while slot[at, SLOT_TOKEN] >= 0 and slot[at, SLOT_TOKEN] != token:
        at = (at + 1) & (len(slot) - 1)
    slot[at, SLOT_TOKEN] = token
    return at


@kernel
def move_slots(slot: NDArray[np.int32], larger: NDArray[np.int32]) -> None:
    """Copy all tokens into another table, which is empty."""
    for i in range(len(slot)):
        if slot[i, SLOT_TOKEN] >= 0:
            at = claim_token(larger, slot[i, SLOT_TOKEN])
            for column in range(1, 4):
                larger[at, column] = slot[i, column]


@inlined_kernel
def own_weight(record: NDArray[np.int32], at: Number) -> Number:
    """Return W of a record."""
    low = np.int64(record[at, WEIGHT]) & np.int64(0xFFFFFFFF)
    bits = low | (np.int64(record[at, WEIGHT + 1]) << np.int64(32))
    return np.int64(bits).view(np.float64)


@inlined_kernel
def reach_of(word: Number) -> Number:
    """Return a reach as float64, from its bits."""
    return np.float64(np.int32(word).view(np.float32))


def table_size(tokens: int) -> int:
    """Return the size of a table of slots for this number of tokens."""
    return 1 << max(3, (2 * tokens).bit_length())


GROUPS = {
    "record": ("record", "leaf", "next_member"),
    "long_token": ("long_token",),
    "region": ("box", "region", "set_total"),
    "entry": ("entry", "list", "set_end"),
    "posting": ("posting", "more"),
}
"""Arrays that grow together, by the first of them."""

USED = {
    "record": RECORDS,
    "long_token": LONG_TOKENS,
    "region": REGIONS,
    "entry": ENTRIES,
    "posting": POSTINGS,
}
"""Where ``state`` says how much of them is in use."""


def trimmed(stamp: StampArrays) -> StampArrays:
    """Return the arrays without spare room."""
    cut: dict[str, Any] = {}
    for name, members in GROUPS.items():
        used = int(stamp.state[USED[name]])
        cut |= {member: getattr(stamp, member)[:used] for member in members}
    return stamp._replace(**cut)


def with_room(stamp: StampArrays, name: str, count: int, sets: bool) -> StampArrays:
    """Return the arrays with room for ``count`` rows in one of the groups.

    Only an index with further signature sets has ``set_end`` and ``more``.
    """
    if count <= len(getattr(stamp, name)):
        return stamp
    grown: dict[str, Any] = {}
    for member in GROUPS[name]:
        old = getattr(stamp, member)
        if sets or member not in ("set_end", "more"):
            grown[member] = _enlarged(old, count + (count >> 1), member == "record")
    return stamp._replace(**grown)


def _enlarged(old: NDArray[np.int32], count: int, aligned: bool) -> NDArray[np.int32]:
    new = aligned_records(count) if aligned else np.zeros((count, *old.shape[1:]), np.int32)
    new[: len(old)] = old
    return new


def aligned_records(records: int) -> NDArray[np.int32]:
    """Return records that begin at cache lines."""
    raw = np.zeros(16 * records + 16, np.int32)
    skipped = (-raw.ctypes.data % 64) // 4
    return raw[skipped : skipped + 16 * records].reshape(-1, 16)


def writable_copy(stamp: StampArrays) -> StampArrays:
    """Return a copy of the arrays that can be changed."""
    copies = map_arrays(stamp, np.copy)
    record = aligned_records(len(stamp.record))
    record[:] = stamp.record
    return copies._replace(record=record)
