"""``ap+k-tree`` and ``ap+s-tree``: clauses in an ap-tree, messages apart from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nearcast.columns import WORLD
from nearcast.compiled.token_table import SIZE, Tables, move_tables
from nearcast.indexes.ap_tree.layout import RARE
from nearcast.indexes.ap_tree.ranks import enlarged_table
from nearcast.indexes.moving.ap_plus.grids import (
    GRID,
    SHORT_CLAIMED,
    SHORT_LISTS,
    SHORT_OWNERS,
    SHORT_TABLES,
    SHORT_TOKENS,
    SHORT_WORDS,
    GridArrays,
    choose_keys,
    post_messages,
    shift_in_grid,
)
from nearcast.indexes.moving.ap_plus.index import (
    TreeOfClauses,
    new_message_lists,
    shift_scratch,
)
from nearcast.indexes.moving.ap_plus.shift import (
    EXAMINED,
    FOUND,
    SHORT_CANDIDATES,
    SHORT_OUTPUT,
    VISITED,
    WAITING,
    Moves,
)
from nearcast.indexes.moving.ap_plus.store import PADDING
from nearcast.indexes.moving.lists import LISTS
from nearcast.indexes.moving.lists import SIZE as HEAD_SIZE
from nearcast.indexes.moving.living import MIN_STAMPS
from nearcast.indexes.moving.ranges import Shifted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import Clauses
    from nearcast.indexes.moving.ap_plus.options import ApPlusOptions

__all__ = ["ApPlusKeywordTree", "ApPlusSpaceTree"]

_MIN_EMPTY = 1024
_MIN_ENTRIES = 64
_GROWTH = 4


class SeparateMessages(TreeOfClauses):
    """Clauses in an ap-tree without lists, messages in a grid of lists."""

    lists_in_tree = False
    by_token: ClassVar[bool]

    def __init__(self, options: ApPlusOptions, *, min_stamps: int = MIN_STAMPS) -> None:
        super().__init__(options, min_stamps=min_stamps)
        self._extent = np.array(WORLD, np.int64)
        self._framed = 0
        self._reset_grid()

    def _prepare(self, clauses: Clauses) -> None:
        """Let the grid cover all subscriptions."""
        self._framed = len(clauses)
        if len(clauses):
            self._extent = _extent_of(clauses.box)
            self._reset_grid()

    def _look_at_extent(self) -> None:
        """Store all messages in a new grid if the extent of the clauses has changed by much."""
        record, row = self.entries.arrays.record, self.entries.row
        box = record[: len(row), :4][row >= 0]
        extent = _extent_of(box[box[:, 0] <= box[:, 2]])
        self._framed = self.entries.count
        if not _is_alike(extent, self._extent):
            self._extent = extent
            self._store_again()

    def _store_again(self) -> None:
        copies = self.copies
        self._reset_grid()
        self._post(0, self.living.used)
        self.copies = copies

    def _reset_grid(self) -> None:
        self._lists = new_message_lists()
        owners = 64 if self.by_token else GRID * GRID
        tables = Tables(
            np.empty((1024, 2), np.uint64), np.zeros((owners, 3), np.int64), np.zeros(1, np.int64)
        )
        self._grid = GridArrays(
            self._extent,
            tables,
            np.zeros(64, np.uint64),
            np.zeros(1, np.int64),
            self._lists.arrays,
            np.zeros(6, np.int64),
            np.empty(2 * GRID * GRID, np.int64),
            np.empty(256, np.int64),
        )

    # --- messages --------------------------------------------------------------------------------

    def _post(self, first: int, last: int) -> None:
        copies = np.zeros(1, np.int64)
        while True:
            first = post_messages(
                self._grid, self.living.arrays, self.by_token, (first, last), copies
            )
            if first == last:
                break
            self._enlarge_grid()
        self.copies += int(copies[0])

    def _enlarge_grid(self) -> None:
        """Enlarge what the grid ran short of."""
        short, tables = self._grid.shortage, self._grid.tables
        if short[SHORT_TABLES]:
            used = int(tables.table[:, SIZE].sum())
            slot = np.empty((2 * used + int(short[SHORT_TABLES]) + 1024, 2), np.uint64)
            move_tables(tables, slot)
            tables = tables._replace(slot=slot)
        if short[SHORT_OWNERS]:
            table = np.zeros((2 * len(tables.table), 3), np.int64)
            table[: len(tables.table)] = tables.table
            tables = tables._replace(table=table)
        token = self._grid.token
        if short[SHORT_TOKENS]:
            token = enlarged_table(token, 2 * len(token))
        if short[SHORT_LISTS] or short[SHORT_WORDS]:
            self._lists.reserve(
                16 * int(short[SHORT_LISTS]), int(short[SHORT_WORDS]) // 8 + PADDING
            )
        if short[SHORT_CLAIMED]:
            claimed = np.empty(2 * int(short[SHORT_CLAIMED]), np.int64)
            self._grid = self._grid._replace(claimed=claimed)
        short[:] = 0
        self._grid = self._grid._replace(tables=tables, token=token, lists=self._lists.arrays)

    def _store_all(self) -> None:
        """Leave messages where they are: they do not depend on the tree."""

    def _sweep(self, new_stamp: NDArray[np.int32]) -> None:
        self._lists.sweep(new_stamp)
        self._lists.reserve(0, PADDING)
        head, state = self._lists.arrays.head, self._lists.arrays.state
        lists = int(state[LISTS])
        full = int(np.count_nonzero(head[:lists, HEAD_SIZE] >> 8))
        self._grid = self._grid._replace(lists=self._lists.arrays)
        if lists > 2 * full + _MIN_EMPTY:  # most tokens have not come again
            self._store_again()

    # --- clauses ---------------------------------------------------------------------------------

    def _shift(
        self, entry: NDArray[np.int32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> Shifted:
        """Take clauses from one box to another in the tree; then ask the grid what that changes."""
        super()._shift(entry, before, after)
        inserted = entry[before[:, 0] > before[:, 2]]
        if len(inserted):
            rare = bool(self._tree.state[RARE])
            choose_keys(self.entries.arrays, inserted, self._ranks.slot, rare)
            if self.entries.count > _GROWTH * self._framed + _MIN_ENTRIES:
                self._look_at_extent()
        if not len(self.living) or not len(entry):
            return Shifted.none()
        columns = (np.ascontiguousarray(column, np.int32) for column in (entry, before, after))
        return self._changes_of(Moves(*columns))

    def _changes_of(self, moves: Moves) -> Shifted:
        self._shifting.counts[:] = 0
        output, begin = Shifted.with_capacity(1024), 0
        while True:
            begin = shift_in_grid(
                self._grid,
                self.entries.arrays,
                self.living.arrays,
                self.by_token,
                moves,
                begin,
                self._shifting,
                output,
            )
            count, short = self._shifting.counts, self._shifting.shortage
            if not short.any():
                break
            if short[SHORT_CANDIDATES]:
                self._shifting = shift_scratch(2 * int(short[SHORT_CANDIDATES]))
                self._shifting.counts[:] = count
            if short[SHORT_OUTPUT]:
                while len(output.stamp) < int(count[FOUND] + count[WAITING]):
                    output = output.doubled()
            short[:] = 0
        self.examined += int(count[EXAMINED])
        self.visited += int(count[VISITED])
        return output.first(int(count[FOUND]))

    @property
    def _own_nbytes(self) -> int:
        tables = self._grid.tables
        words = 16 * int(tables.top[0]) + tables.table.nbytes + self._grid.token.nbytes
        return super()._own_nbytes + words


class ApPlusKeywordTree(SeparateMessages):
    """An ap-tree of clauses; messages by token, then by cell.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes.moving.ap_plus import ApPlusOptions
    >>> index = ApPlusKeywordTree.build(Clauses.of([[1]], [[0, 0, 9, 9]]), ApPlusOptions())
    >>> index.publish(Messages.of([[1, 2]], [[20, 7]]))[1].triples()
    set()
    >>> index.move([0], np.array([[8, 0, 30, 9]], np.int32)).triples()
    {(0, 0, 1)}
    """

    name = "ap+k-tree"
    summary = "an ap-tree of subscriptions; messages by token, then by cell"
    by_token = True


class ApPlusSpaceTree(SeparateMessages):
    """An ap-tree of clauses; messages by cell, then by token.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes.moving.ap_plus import ApPlusOptions
    >>> index = ApPlusSpaceTree.build(Clauses.of([[1]], [[0, 0, 9, 9]]), ApPlusOptions())
    >>> index.publish(Messages.of([[1, 2]], [[20, 7]]))[1].triples()
    set()
    >>> index.move([0], np.array([[8, 0, 30, 9]], np.int32)).triples()
    {(0, 0, 1)}
    """

    name = "ap+s-tree"
    summary = "an ap-tree of subscriptions; messages by cell, then by token"
    by_token = False


def _extent_of(box: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the box around boxes."""
    sides = [box[:, :2].min(axis=0), box[:, 2:].max(axis=0)]
    return np.concatenate(sides).astype(np.int64)


def _is_alike(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Tell whether the cells of two grids have about the same size and place."""
    size, other_size = one[2:] - one[:2] + 1, other[2:] - other[:2] + 1
    ratio = size / other_size
    near = np.abs(one[:2] - other[:2]) * GRID < other_size
    return bool((near & (ratio > 0.75) & (ratio < 1.5)).all())
