"""The order of the tokens of a clause, and the frequencies that decide it.

The orders of Yu et al., TKDE 2014, section 4.2: ``random``; ``df``, a greedy cover that leads to
few distinct first tokens; ``idf``, the rarest token first; ``local-df`` and ``local-idf``, the same
by the frequencies in one grid cell, the one of the center of the clause's box. New clauses are
ordered by the frequencies so far and then counted; existing clauses are not ordered again.

The order decides how much an index has to read, never what it finds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, read_only
from nearcast.compiled.clauses import clause_columns
from nearcast.errors import StorageError, UnknownName
from nearcast.indexes.damage import require
from nearcast.indexes.options import check_whole
from nearcast.indexes.statistics import Grid, Statistics
from nearcast.indexes.token_order import cover, kernels
from nearcast.indexes.token_order.cover import Cover, Pairs
from nearcast.indexes.token_order.kernels import CountedPairs, Frequencies, OrderedTokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["KINDS", "TokenOrder", "check_kind"]

KINDS = ("random", "df", "idf", "local-df", "local-idf")

_MIN_SLOTS = 64
_LOAD = 0.6
_MAX_CELLS = 1 << 30
_PART = 1 << 20
"""How many pairs of statistics are copied at a time."""


class TokenOrder:
    """An order of tokens and the frequencies that it follows.

    Examples
    --------
    >>> clauses = Clauses.of([[1, 2], [2, 3], [2]], [[0, 0, 9, 9]] * 3)
    >>> order, ordered = TokenOrder.count(clauses, "idf")
    >>> ordered.tolist()
    [1, 2, 3, 2, 2]
    >>> order.insert(Clauses.of([[1, 2, 3, 4]], [[0, 0, 9, 9]])).tolist()
    [4, 1, 3, 2]
    """

    def __init__(self, kind: str, grid: Grid, seed: int, tables: Frequencies | None) -> None:
        self.kind = check_kind(kind)
        self.grid = grid
        self.seed = seed
        self._tables = tables

    @classmethod
    def count(
        cls,
        clauses: Clauses,
        kind: str,
        *,
        cells: int = 10_000,
        statistics: str | Statistics = "",
        seed: int = 0,
    ) -> tuple[Self, NDArray[np.int32]]:
        """Count the tokens of clauses and order the tokens of every clause.

        Parameters
        ----------
        clauses
            The clauses to order.
        kind
            The kind of the order: one of `KINDS`.
        cells
            The number of grid cells of a local order.
        statistics
            A folder of statistics whose frequencies (and grid) are used instead of counting. It
            is read here and never again. Without clauses to cover, ``df`` then means the most
            frequent token first.
        seed
            The seed of the random order.

        Returns
        -------
        tuple
            The order, and the tokens of all clauses in it.
        """
        check_whole("cells", cells, 1, _MAX_CELLS)
        order = cls(kind, _square(cells), seed, None)
        if order.kind == "random":
            return order, order._shuffle(clauses, 0)
        if statistics:
            order._copy(Statistics.load(statistics))
        else:
            order._count(clauses)
        result = _result(clauses)
        if order._descending and not statistics:
            order._cover(clauses, result)
        else:
            columns, tables = clause_columns(clauses), order._writable()
            kernels.order_clauses(columns, tables, order._descending, result)
        return order, result.token

    def insert(self, clauses: Clauses, first: int = 0) -> NDArray[np.int32]:
        """Order each clause from number ``first`` on by the frequencies so far, then count it."""
        if self.kind == "random":
            return self._shuffle(clauses, first)
        columns, result = clause_columns(clauses), _result(clauses, first)
        done = first
        while done < len(clauses):
            tables = self._writable()
            done = kernels.insert_clauses(columns, done, tables, self._descending, result)
            self._grow_for(clauses, done)
        return result.token

    def delete(self, clauses: Clauses, gone: NDArray[np.int64]) -> None:
        """Subtract the clauses with these numbers from the frequencies."""
        if self.kind != "random":
            columns = clause_columns(clauses)
            kernels.uncount_clauses(columns, read_only(gone, np.int64), self._writable())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the frequencies as arrays, to be stored with the index."""
        if self._tables is None:
            return {}
        tables = self._tables._asdict()
        if not self._local:
            del tables["local"]
        return tables

    @classmethod
    def from_arrays(
        cls, kind: str, arrays: Mapping[str, NDArray[Any]], *, cells: int, seed: int
    ) -> Self:
        """Make the order from its arrays; read-only ones are copied before the first change.

        The arrays hold all frequencies, also those taken from statistics.
        """
        if kind == "random":
            return cls(kind, _square(cells), seed, None)
        tables = Frequencies(
            read_only(arrays["anywhere"], np.uint64),
            read_only(arrays["local"] if kind.startswith("local") else (), np.uint64),
            read_only(arrays["used"], np.int64),
            read_only(arrays["grid"], np.int64),
        )
        if tables.grid.shape == (2,):  # of an earlier version, whose grids covered the world
            tables = tables._replace(grid=read_only([*tables.grid, *WORLD], np.int64))
        if tables.used.shape != (2,) or tables.grid.shape != (6,):
            raise StorageError(
                "order.used or order.grid does not have two or six numbers; "
                "build the index again from its subscriptions"
            )
        across, up, *box = tables.grid.tolist()
        return cls(kind, Grid(across, up, tuple(box)), seed, tables)

    def check_structure(self, name: str) -> None:
        """Raise `StorageError` unless stored frequencies are sound; ``name`` is the index's.

        A table must have a free slot, where a search ends, and as many pairs as it says.
        """
        if self._tables is None:
            return
        sound = min(self.grid[:2]) >= 1 and self.grid.cells <= _MAX_CELLS
        west, south, east, north = self.grid.box
        sound = sound and WORLD[0] <= west <= east <= WORLD[2]
        sound = sound and WORLD[1] <= south <= north <= WORLD[3]
        for field, used in zip(self._names, self._tables.used.tolist(), strict=False):
            table = getattr(self._tables, field)
            # As a signed number, a slot in use is negative and a free one is 0.
            sound = sound and table.ndim == 1 and np.count_nonzero(table) == used < len(table)
            sound = sound and table.view(np.int64).max() <= 0
        require(name, sound, "order has wrong tables")

    @property
    def _local(self) -> bool:
        return self.kind.startswith("local")

    @property
    def _names(self) -> list[str]:
        return ["anywhere", "local"] if self._local else ["anywhere"]

    @property
    def _descending(self) -> bool:
        """Whether frequent tokens come first."""
        return self.kind.endswith("-df") or self.kind == "df"

    def _shuffle(self, clauses: Clauses, first: int) -> NDArray[np.int32]:
        result, seed = _result(clauses, first), np.uint64(self.seed % (1 << 64))
        kernels.shuffle_clauses(clause_columns(clauses), first, seed, result)
        return result.token

    def _count(self, clauses: Clauses) -> None:
        self._tables = self._empty(_MIN_SLOTS, _MIN_SLOTS)
        columns, done = clause_columns(clauses), 0
        while done < len(clauses):
            done = kernels.count_clauses(columns, done, self._writable())
            self._grow_for(clauses, done)
        tables = self._writable()
        for name, used in zip(self._names, tables.used.tolist(), strict=False):
            if len(getattr(tables, name)) > _slots(used):
                self._resize(name, _slots(used))

    def _copy(self, statistics: Statistics) -> None:
        """Copy the frequencies and the grid of statistics."""
        self.grid = statistics.grid
        frequency = statistics.vocabulary.frequency
        self._tables = self._empty(_slots(len(frequency)), _slots(len(statistics.cell_token)))
        tables = self._writable()
        anywhere = np.full(len(frequency), kernels.ANYWHERE)
        token = np.arange(len(frequency), dtype=np.int32)
        pairs = _pairs(anywhere, token, frequency)
        tables.used[0] = kernels.fill_table(tables.anywhere, pairs)
        if self._local:
            start, end = statistics.cell_start, len(statistics.cell_token)
            for first in range(0, end, _PART):
                part = slice(first, min(first + _PART, end))
                cell = np.searchsorted(start, np.arange(part.start, part.stop), side="right") - 1
                token, frequency = statistics.cell_token[part], statistics.cell_frequency[part]
                pairs = _pairs(cell, token, frequency)
                tables.used[1] += kernels.fill_table(tables.local, pairs)

    def _cover(self, clauses: Clauses, result: OrderedTokens) -> None:
        """Order clauses by the greedy cover."""
        tables, columns = self._writable(), clause_columns(clauses)
        table = tables.local if self._local else tables.anywhere
        pairs = Pairs(
            np.empty(len(clauses.token), np.int32),
            np.zeros(len(table) + 1, np.int64),
            np.empty(len(clauses.token), np.int32),
        )
        cover.number_pairs(columns, tables, pairs.pair)
        cover.list_clauses(columns, pairs)
        left = np.diff(pairs.clause_start).astype(np.int32)
        state = Cover(
            rank=np.full(len(table), -1, np.int32),
            left=left,
            below=np.empty(len(table), np.int32),
            top=np.full(int(left.max(initial=0)) + 1, -1, np.int32),
            covered=np.zeros(len(clauses), np.bool_),
        )
        cover.cover_clauses(columns, pairs, state)
        cover.order_by_cover(columns, pairs, state.rank, table, result)

    def _empty(self, anywhere: int, local: int) -> Frequencies:
        return Frequencies(
            np.zeros(anywhere, np.uint64),
            np.zeros(local if self._local else 0, np.uint64),
            np.zeros(2, np.int64),
            np.array([*self.grid[:2], *self.grid.box], np.int64),
        )

    def _writable(self) -> Frequencies:
        """Return the tables, copied first if they are read-only."""
        assert self._tables is not None
        if not all(table.flags.writeable for table in self._tables):
            anywhere, local, used, grid = self._tables
            self._tables = Frequencies(anywhere.copy(), local.copy(), used.copy(), grid.copy())
        return self._tables

    def _grow_for(self, clauses: Clauses, clause: int) -> None:
        """Enlarge the tables that are too full for a clause, if there is such a clause."""
        if clause == len(clauses):
            return
        tables = self._writable()
        need = int(clauses.token_start[clause + 1] - clauses.token_start[clause])
        for name, used in zip(self._names, tables.used.tolist(), strict=False):
            slots = len(getattr(tables, name))
            if 3 * (used + need) > 2 * slots:
                self._resize(name, max(2 * slots, _slots(used + need)))

    def _resize(self, name: str, slots: int) -> None:
        tables = self._writable()
        table = np.zeros(slots, np.uint64)
        tables.used[self._names.index(name)] = kernels.move_table(getattr(tables, name), table)
        if name == "local":
            self._tables = tables._replace(local=table)
        else:
            self._tables = tables._replace(anywhere=table)


def check_kind(kind: str) -> str:
    """Raise `UnknownName` unless there is such an order; return the kind."""
    if kind not in KINDS:
        raise UnknownName("tokens", kind, KINDS)
    return kind


def _square(cells: int) -> Grid:
    """Return a square grid of about this number of cells."""
    side = max(1, round(math.sqrt(cells)))
    return Grid(side, side)


def _slots(pairs: int) -> int:
    """Return the number of slots of a table for this number of pairs."""
    return max(_MIN_SLOTS, int(pairs / _LOAD))


def _result(clauses: Clauses, first: int = 0) -> OrderedTokens:
    """Return space for the ordered tokens of the clauses from number ``first`` on."""
    start = clauses.token_start[first:]
    token = np.empty(int(start[-1] - start[0]), np.int32)
    return OrderedTokens(token, np.empty(int(np.diff(start).max(initial=0)), np.uint64), start[0])


def _pairs(cell: NDArray[Any], token: NDArray[Any], frequency: NDArray[Any]) -> CountedPairs:
    """Return counted pairs as kernels take them."""
    return CountedPairs(
        read_only(cell, np.int64), read_only(token, np.int32), read_only(frequency, np.int64)
    )
