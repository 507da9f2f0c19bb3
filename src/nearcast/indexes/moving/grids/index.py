"""The classes and options of ``ss-index`` and ``kk-index``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nearcast.columns import at_cache_line
from nearcast.compiled.token_table import NO_TOKEN
from nearcast.indexes.moving import comparing
from nearcast.indexes.moving.clause_lists import CLAUSE_COLUMNS
from nearcast.indexes.moving.comparing import Moved, collect_changes, new_shift_scratch
from nearcast.indexes.moving.entries import EMPTY, PLACE
from nearcast.indexes.moving.frequencies import OWN, TokenFrequencies, choose_keys
from nearcast.indexes.moving.grids import match
from nearcast.indexes.moving.grids.cells import count_entered, frame_of
from nearcast.indexes.moving.grids.layout import (
    HEADER_WIDTH,
    ITEM_WIDTH,
    ITEMS,
    MESSAGE_TABLE,
    GridArrays,
    post_messages,
    shift_clauses,
)
from nearcast.indexes.moving.grids.shift import shift_entries
from nearcast.indexes.moving.listed import ListedIndex
from nearcast.indexes.moving.lists import MessageLists
from nearcast.indexes.moving.living import LENGTH, LENGTH_MASK, MIN_STAMPS
from nearcast.indexes.moving.message_tables import sweep_tables
from nearcast.indexes.moving.tables import Tables
from nearcast.indexes.options import check_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses
    from nearcast.compiled.messages import MessageArrays, Output
    from nearcast.indexes.moving.grids.cells import Frame
    from nearcast.indexes.moving.ranges import Shifted

__all__ = ["GridIndex", "GridOptions", "KkIndex", "SsIndex"]

_MAX_SIZE = 4096
_MIN_ENTRIES = 64
_GROWTH = 4


@dataclass(frozen=True)
class GridOptions:
    """The options of a grid.

    Parameters
    ----------
    size
        The number of columns, and of rows.
    """

    size: int = 40

    def __post_init__(self) -> None:
        check_whole("size", self.size, 1, _MAX_SIZE)


class GridIndex(ListedIndex):
    """A grid of clauses and messages; a subclass says whether tables belong to cells or tokens."""

    Options = GridOptions

    by_cell: ClassVar[bool]

    def __init__(self, options: GridOptions, *, min_stamps: int = MIN_STAMPS) -> None:
        super().__init__(options, min_stamps=min_stamps)
        self._frame = frame_of(np.empty((0, 4), np.int32), options.size)
        self._framed = 0
        self._under_all = False
        self._match_scratch = match.new_match_scratch()
        self._shift_scratch = new_shift_scratch()
        self._items = np.empty((ITEMS, ITEM_WIDTH), np.int64)
        self._frequencies = TokenFrequencies(0 if self.by_cell else HEADER_WIDTH - OWN)
        self._clear()

    def _clear(self) -> None:
        """Make empty tables and lists."""
        cells = self.options.size**2 if self.by_cell else 0
        self._cell_header = at_cache_line(HEADER_WIDTH * cells, np.int32).reshape(-1, HEADER_WIDTH)
        if not self.by_cell:
            self._frequencies.slot[:, OWN:] = 0
        self._clauses, self._clause_lists = Tables(), MessageLists(CLAUSE_COLUMNS)
        self._messages, self._message_lists = Tables(), MessageLists()

    @property
    def _grid(self) -> GridArrays:
        """What kernels see."""
        token = self._frequencies.slot
        return GridArrays(
            token,
            self._cell_header if self.by_cell else token,
            self._clauses.arrays,
            self._clause_lists.arrays,
            self._messages.arrays,
            self._message_lists.arrays,
            self.by_cell,
        )

    @property
    def _own_nbytes(self) -> int:
        parts = (
            self._frequencies,
            self._cell_header,
            self._clauses,
            self._clause_lists,
            self._messages,
            self._message_lists,
        )
        return sum(part.nbytes for part in parts)

    def _prepare(self, clauses: Clauses) -> None:
        self._frame = frame_of(clauses.box, self.options.size)
        self._framed = len(clauses)

    # --- messages --------------------------------------------------------------------------------

    def _match_part(self, messages: MessageArrays, part: tuple[int, int], output: Output) -> int:
        scratch = self._match_scratch
        scratch.counters[:] = 0
        done = match.match_messages(
            self._grid, self._frame, self.entries.arrays, messages, part, scratch, output
        )
        self.examined += int(scratch.counters[match.EXAMINED])
        self.visited += int(scratch.counters[match.VISITED])
        return int(done)

    def _post(self, first: int, last: int) -> None:
        stamps = np.arange(first, last, dtype=np.int32)
        self._frequencies.count_messages(self.living.arrays, stamps, 1)
        self._store(first, last, by_token=True)

    def _store(self, first: int, last: int, *, by_token: bool) -> None:
        """Store messages, whose tokens are counted already, under their tokens and under all."""
        living = self.living.arrays
        postings = (last - first) * int(self._under_all)
        if by_token:
            postings += int((living.record[first:last, LENGTH] & LENGTH_MASK).sum(dtype=np.int64))
        self._messages.reserve(postings)
        # A message that was alone under a key goes into a list together with the next one.
        self._message_lists.reserve(postings, 2 * postings)
        self.copies += post_messages(
            self._grid,
            self._frame,
            living,
            (first, last),
            (by_token, self._under_all),
            self._items,
        )

    def _drop(self, stamps: NDArray[np.int32]) -> None:
        self._frequencies.count_messages(self.living.arrays, stamps, -1)

    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        self._message_lists.sweep(new_stamp)
        old, self._messages = self._messages, Tables()
        self._messages.reserve(len(old))
        grid = self._grid
        sweep_tables(
            old.arrays, grid.messages, grid.header, MESSAGE_TABLE, grid.message_lists, new_stamp
        )
        self._frequencies.drop_unused()
        if self._under_all:
            self._frequencies.add(int(NO_TOKEN))

    # --- clauses ---------------------------------------------------------------------------------

    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        entry, before, after = (np.ascontiguousarray(part) for part in (entry, before, after))
        inserted = entry[before[:, 0] > before[:, 2]]
        if len(inserted):
            self._admit(inserted)
        changes = self._changes(Moved(entry, before, after))
        self._go(entry, before, after)
        removed = entry[after[:, 0] > after[:, 2]]
        if len(removed):
            self._frequencies.count_clauses(self.entries.arrays, removed, -1)
            self.entries.arrays.record[removed, PLACE] = -1
        return changes

    def _admit(self, inserted: NDArray[np.int32]) -> None:
        """Give entries that come their keys; everything may get a new grid first."""
        if self.entries.count > _GROWTH * self._framed + _MIN_ENTRIES:
            self._look_at_extent()
        entries = self.entries.arrays
        self._frequencies.count_clauses(entries, inserted, 1)
        without = choose_keys(self._frequencies.slot, entries, inserted)
        if without and not self._under_all:
            self._under_all = True
            self._store(0, self.living.used, by_token=False)
        entries.record[inserted, PLACE] = 1

    def _go(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> None:
        """Take entries to the cells of their new boxes."""
        entered = int(count_entered(self._frame, before, after))
        self._clauses.reserve(entered)
        self._clause_lists.reserve(entered, 2 * entered)
        shift_clauses(
            self._grid, self._frame, self.entries.arrays, entry, before, after, self._items
        )

    def _changes(self, moved: Moved) -> Shifted:
        """Return the messages that clauses gain and lose."""
        scratch = self._shift_scratch
        arrays = self._grid, self._frame, self.entries.arrays, self.living.arrays

        def write(begin: int, output: Shifted) -> int:
            return int(shift_entries(*arrays, moved, begin, scratch, output))

        changes = collect_changes(write, len(moved.entry), scratch)
        self.examined += int(scratch.counters[comparing.EXAMINED])
        self.visited += int(scratch.counters[comparing.VISITED])
        return changes

    def _look_at_extent(self) -> None:
        """Put everything into a new grid if the extent has changed by much."""
        record, row = self.entries.arrays.record, self.entries.row
        self._framed = self.entries.count
        frame = frame_of(record[row >= 0, :4], self.options.size)
        if _is_alike(frame, self._frame):
            return
        self._frame = frame
        standing = np.flatnonzero((row >= 0) & (record[: len(row), PLACE] == 1)).astype(np.int32)
        self._clear()
        box = record[standing, :4]
        self._go(standing, np.full_like(box, EMPTY), box)
        self._store(0, self.living.used, by_token=True)


class SsIndex(GridIndex):
    """A grid of cells, each with tables from tokens to clauses and messages.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import moving
    >>> index = moving.create("ss-index").build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> numbers, changes = index.publish(Messages.of([[1, 5]], [[20, 20]]))
    >>> index.move([0], np.array([[10, 10, 30, 30]], np.int32)).triples()
    {(0, 0, 1)}
    """

    name = "ss-index"
    summary = "grid, then tokens, for clauses and messages alike"
    by_cell = True


class KkIndex(GridIndex):
    """Tokens, each with tables from cells of a grid to clauses and messages.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import moving
    >>> index = moving.create("kk-index").build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> numbers, changes = index.publish(Messages.of([[1, 5]], [[20, 20]]))
    >>> index.move([0], np.array([[10, 10, 30, 30]], np.int32)).triples()
    {(0, 0, 1)}
    """

    name = "kk-index"
    summary = "tokens, then a grid, for clauses and messages alike"
    by_cell = False


def _is_alike(one: Frame, other: Frame) -> bool:
    """Tell whether the cells of two grids have about the same size and place."""
    across = abs(one.west - other.west) * other.x_scale < 1
    up = abs(one.south - other.south) * other.y_scale < 1
    ratios = one.x_scale / other.x_scale, one.y_scale / other.y_scale
    return across and up and all(0.75 < ratio < 1.5 for ratio in ratios)
