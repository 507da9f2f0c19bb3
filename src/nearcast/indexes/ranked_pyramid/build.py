"""Build a ranked-pyramid: reduce subscriptions to entries, order them, write lists and records.

Entries are counted list by list, then put in their places (a counting sort). Those with boxes are
ordered by place. Records are numbered in the order in which they are visited most: first those that
need no token, by place; then those of entries without boxes, list by list; then the rest. So most
records that a message needs lie side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.compiled.jit import Number, borrow, inlined_kernel, kernel, prefetch
from nearcast.compiled.pyramid_build import HIGH, LOW, add_cells, align, order_rows, write_pyramid
from nearcast.compiled.pyramids import (
    BLOCK,
    BLOCK_SIZE,
    CELLS,
    KEY,
    LEAF_WORDS,
    ROUNDING,
    TARGET,
    find_slot,
    pack_pyramid,
    pyramid_words,
)
from nearcast.compiled.token_table import BITS32, LOW32
from nearcast.indexes.ranked_pyramid.entries import (
    Reduction,
    RowEntries,
    count_boxes,
    entry_boxes,
    is_sole,
    reduce_row,
    sole_box,
)
from nearcast.indexes.ranked_pyramid.layout import (
    COUNTS,
    DISTANCE,
    HAS_HEAD,
    HEAD_CELLS,
    HEAD_WORDS,
    MAX_TOKENS,
    PLACE,
    RECORD_FIELDS,
    ROW,
    SHARE,
    SIZES,
    THRESHOLD,
    TOKENS,
    WEIGHT,
    RankedPyramidArrays,
    pack_word,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOLES, LOOSE, BOXED = 0, 1, 2
"""Columns of ``Lists.start``: sole entries, entries without and with a box."""

PREFETCH_DISTANCE = 16

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Lists(NamedTuple):
    """The entries of all lists, one after the other.

    - ``list_of`` int32[tokens]: the list of every token of the subscriptions. The last list is that
      of entries that need no token.
    - ``key`` int64[lists]: the token of every list.
    - ``start`` int64[lists + 1, 3]: where the entries of each list begin, see `SOLES`.
    - ``sole`` int32[...]: rows. ``loose`` int32[..., 2]: row and upper half of the word. ``boxed``
      int32[..., 6]: as `nearcast.compiled.pyramid_build` writes them, with rows for records.
    """

    list_of: NDArray[np.int32]
    key: NDArray[np.int64]
    start: NDArray[np.int64]
    sole: NDArray[np.int32]
    loose: NDArray[np.int32]
    boxed: NDArray[np.int32]


class RowScratch(NamedTuple):
    """The entries of a row, and room for the boxes of one of them."""

    entries: RowEntries
    box: NDArray[np.int32]


@kernel
def sort_rarest_first(
    token_start: NDArray[np.int64], token: NDArray[np.int32], frequency: NDArray[np.int64]
) -> None:
    """Sort the tokens of every row by their frequency, ties by number."""
    for row in range(len(token_start) - 1):
        first, last = token_start[row], token_start[row + 1]
        for i in range(first + 1, last):
            moving, at = token[i], i
            while at > first and (
                (frequency[token[at - 1]], token[at - 1]) > (frequency[moving], moving)
            ):
                token[at] = token[at - 1]
                at -= 1
            token[at] = moving


@inlined_kernel
def list_number(
    reduction: Reduction, list_of: NDArray[np.int32], row: Number, position: Number, last: Number
) -> Number:
    """Return the list of an entry."""
    if position < 0:
        return last
    return np.int64(list_of[reduction.rows.token_start[row] + position])


@kernel
def count_entries(
    reduction: Reduction,
    list_of: NDArray[np.int32],
    scratch: RowScratch,
    count: NDArray[np.int64],
) -> None:
    """Add the entries of every list to ``count`` int64[lists, 3]."""
    reduction, scratch = borrow(reduction), borrow(scratch)
    entries, last = scratch.entries, np.int64(len(count) - 1)
    for row in range(len(reduction.special)):
        found = reduce_row(reduction, row, entries)
        if is_sole(reduction, row, found, entries):
            count[list_number(reduction, list_of, row, np.int64(0), last), SOLES] += 1
            continue
        for i in range(found):
            at = list_number(reduction, list_of, row, entries.position[i], last)
            boxes = count_boxes(reduction, row, entries.reach[i], scratch.box)
            count[at, LOOSE if boxes == 0 else BOXED] += max(boxes, 1)


@kernel
def place_entries(reduction: Reduction, lists: Lists, scratch: RowScratch) -> None:
    """Write the entries of all lists; moves ``lists.start`` on to where every list ends."""
    reduction, lists, scratch = borrow(reduction), borrow(lists), borrow(scratch)
    entries, last = scratch.entries, np.int64(len(lists.start) - 2)
    start, box = lists.start, scratch.box
    for row in range(len(reduction.special)):
        found = reduce_row(reduction, row, entries)
        if is_sole(reduction, row, found, entries):
            at = list_number(reduction, lists.list_of, row, np.int64(0), last)
            lists.sole[start[at, SOLES]] = row
            start[at, SOLES] += 1
            continue
        for i in range(found):
            at = list_number(reduction, lists.list_of, row, entries.position[i], last)
            upper = np.int32(np.uint32(entries.upper[i]))
            boxes = entry_boxes(reduction, row, entries.reach[i], box)
            if boxes == 0:
                lists.loose[start[at, LOOSE], 0] = row
                lists.loose[start[at, LOOSE], 1] = upper
                start[at, LOOSE] += 1
            for j in range(boxes):
                place = start[at, BOXED]
                for side in range(4):
                    lists.boxed[place, side] = box[j, side]
                lists.boxed[place, LOW], lists.boxed[place, HIGH] = row, upper
                start[at, BOXED] += 1


@kernel
def order_lists(lists: Lists, part_sizes: NDArray[np.int64], block: Number) -> None:
    """Order the entries of every list by place."""
    for at in range(len(lists.key)):
        boxed = lists.boxed[lists.start[at, BOXED] : lists.start[at + 1, BOXED]]
        order_rows(boxed, part_sizes, block)


@kernel
def number_some(
    rows: NDArray[np.int32], record_of: NDArray[np.int32], row_of: NDArray[np.int32], count: Number
) -> Number:
    """Give numbers to the records of rows that have none yet; return how many records there are."""
    for i in range(len(rows)):
        if record_of[rows[i]] < 0:
            record_of[rows[i]] = count
            row_of[count] = rows[i]
            count += 1
    return count


@kernel
def number_records(lists: Lists, record_of: NDArray[np.int32], row_of: NDArray[np.int32]) -> Number:
    """Give numbers to records in the order of their entries; return how many there are.

    ``record_of`` int32[rows] is -1 on entry; ``row_of`` int32[rows] gets the rows of records.
    """
    last = len(lists.key) - 1
    boxed, loose = lists.boxed[:, LOW], lists.loose[:, 0]
    count = number_some(boxed[lists.start[last, BOXED] :], record_of, row_of, np.int64(0))
    count = number_some(loose[lists.start[last, LOOSE] :], record_of, row_of, count)
    count = number_some(loose[: lists.start[last, LOOSE]], record_of, row_of, count)
    return number_some(boxed[: lists.start[last, BOXED]], record_of, row_of, count)


@kernel
def write_records(
    reduction: Reduction, row_of: NDArray[np.int32], index: RankedPyramidArrays
) -> None:
    """Write the record of every row of ``row_of``."""
    reduction, index = borrow(reduction), borrow(index)
    rows, record = reduction.rows, index.record.reshape(-1, RECORD_FIELDS)
    for i in range(len(row_of)):
        if i + PREFETCH_DISTANCE < len(row_of):
            ahead = row_of[i + PREFETCH_DISTANCE]
            prefetch(rows.token_start, ahead)
            prefetch(rows.box, rows.box_start[ahead])
            prefetch(rows.text_share, ahead)
            prefetch(rows.threshold, ahead)
            prefetch(rows.text_weight, ahead)
        row = row_of[i]
        write_place(reduction, row, record[i])
        record[i, SHARE], record[i, THRESHOLD] = rows.text_share[row], rows.threshold[row]
        record[i, ROW] = row
        index.own_weight[8 * i + np.int64(WEIGHT)] = rows.text_weight[row]
        begin, end = rows.token_start[row], rows.token_start[row + 1]
        for j in range(MAX_TOKENS):
            record[i, TOKENS + np.uint64(j)] = (
                rows.token[begin + j] if begin + j < end else np.int32(-1)
            )
        if reduction.special[row] >= 0:
            record[i, TOKENS] = reduction.special[row]


@inlined_kernel
def write_place(reduction: Reduction, row: Number, record: NDArray[np.int32]) -> None:
    """Write the place and the largest distance, or the first box of the region, of a row."""
    rows = reduction.rows
    begin = rows.box_start[row]
    for side in range(4):
        record[PLACE + np.uint64(side)] = rows.box[begin, side]
    if reduction.codes.proximity:
        record[DISTANCE] = np.int32(rows.max_distance_cm[row])
        record[DISTANCE + np.uint64(1)] = 0


@kernel
def count_words(start: NDArray[np.int64], part_sizes: NDArray[np.int64], block: Number) -> Number:
    """Return the words that all lists take."""
    words = np.int64(0)
    for at in range(len(start) - 1):
        soles = start[at + 1, SOLES] - start[at, SOLES]
        loose = start[at + 1, LOOSE] - start[at, LOOSE]
        boxed = start[at + 1, BOXED] - start[at, BOXED]
        if soles + loose > 0:
            words += HEAD_WORDS + LEAF_WORDS * soles + loose
        if boxed > 0:
            words = align(words, boxed, block) + pyramid_words(part_sizes, block, boxed)
    return words


@inlined_kernel
def write_soles(
    reduction: Reduction,
    rows: NDArray[np.int32],
    index: RankedPyramidArrays,
    position: Number,
    first: Number,
    box: NDArray[np.int32],
) -> Number:
    """Write blocks of sole entries: rounded boxes, then rows and text shares; return their end."""
    for begin in range(0, len(rows), BLOCK):
        size = min(len(rows) - begin, BLOCK)
        for i in range(size):
            row = rows[begin + i]
            sole_box(reduction, row, box)
            for side in range(4):
                index.rounded_boxes[4 * position + side * size + i] = box[0, side] >> ROUNDING
            share = np.uint64(reduction.rows.text_share[row])
            index.pyramid[position + size + i] = np.uint64(row) | (share << BITS32)
            at = 4 * (first + begin + i)
            write_place(reduction, row, index.sole[at : at + 4])
        position += LEAF_WORDS * size
    return position


@kernel
def write_lists(
    reduction: Reduction,
    lists: Lists,
    record_of: NDArray[np.int32],
    index: RankedPyramidArrays,
    scratch: RowScratch,
) -> None:
    """Write all lists and their slots; replaces rows by records in ``lists.boxed``."""
    reduction, lists, index = borrow(reduction), borrow(lists), borrow(index)
    block, start = index.header[BLOCK_SIZE], lists.start
    position = np.int64(0)
    for at in range(len(lists.key)):
        rows = lists.sole[start[at, SOLES] : start[at + 1, SOLES]]
        loose = lists.loose[start[at, LOOSE] : start[at + 1, LOOSE]]
        boxed = lists.boxed[start[at, BOXED] : start[at + 1, BOXED]]
        if len(rows) + len(loose) + len(boxed) == 0:
            continue
        key = np.uint64(lists.key[at])
        slot = find_slot(index.slot, key)
        index.slot[slot, KEY] = key
        for i in range(len(boxed)):
            boxed[i, LOW] = record_of[boxed[i, LOW]]
        add_cells(boxed, index, slot)
        head = position
        if len(rows) + len(loose) > 0:
            index.slot[slot, TARGET] = HAS_HEAD | np.uint64(head)
            counts = np.uint64(len(rows)) | (np.uint64(len(loose)) << BITS32)
            index.pyramid[head + COUNTS] = counts
            sizes = np.uint64(len(boxed)) | (np.uint64(start[at, SOLES]) << BITS32)
            index.pyramid[head + SIZES] = sizes
            for i in range(2):
                index.pyramid[head + HEAD_CELLS + i] = index.slot[slot, CELLS + i]
                index.slot[slot, CELLS + i] = _ALL
            position = write_soles(
                reduction, rows, index, head + HEAD_WORDS, start[at, SOLES], scratch.box
            )
            for i in range(len(loose)):
                record = record_of[loose[i, 0]]
                index.pyramid[position + i] = pack_word(record, np.uint64(loose[i, 1]) & LOW32)
            position += len(loose)
        if len(boxed) > 0:
            position = align(position, np.int64(len(boxed)), block)
            write_pyramid(boxed, index, position)
            if len(rows) + len(loose) == 0:
                index.slot[slot, TARGET] = pack_pyramid(position, len(boxed))
            position += pyramid_words(index.part_sizes, block, np.int64(len(boxed)))
