"""Count documents into a table of (cell, token) pairs that grows as needed.

A document that lies in several cells counts in each of them, and once over all. The tokens of a
subscription of several clauses are those of all clauses; forbidden tokens do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, Messages, read_only
from nearcast.errors import InvalidInput
from nearcast.indexes.statistics.counting import Pieces, count_pieces, move_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BINS", "Counts", "Grid", "Tally", "bounding_box"]

BINS = 33
"""Bins of widths and heights: bin 0 is for 0, bin ``b`` from ``2**(b - 1)`` to ``2**b - 1``."""

_MAX_CELLS = 1 << 30
_MIN_SLOTS = 1 << 12


class Grid(NamedTuple):
    """A grid of equal cells over a box, numbered from west to east, then from south to north.

    ``box`` is west, south, east, north in units of 1e-7 degree; by default the world. A cell
    includes its west and south border; the last cells include the border of the box. What lies
    outside of the box counts in the nearest cell.

    Examples
    --------
    >>> Grid(4, 2).cell_of([[-1_800_000_000, -900_000_000], [0, 0], [1_800_000_000, 900_000_000]])
    array([0, 6, 7])
    >>> Grid(4, 2, (0, 0, 40, 20)).cell_of([[0, 0], [25, 10], [40, 20], [99, -99]])
    array([0, 6, 7, 3])
    """

    across: int = 100
    up: int = 100
    box: tuple[int, int, int, int] = WORLD

    @classmethod
    def around(cls, columns: Clauses | Messages, across: int = 100, up: int = 100) -> Self:
        """Return a grid over the bounding box of documents; over the world if there are none."""
        return cls(across, up, bounding_box(columns) or WORLD)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.across * self.up

    def checked(self) -> Self:
        """Return the grid, or raise `InvalidInput` if it has no cells or too many."""
        for name in ("across", "up"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "must be at least 1")
        if self.cells > _MAX_CELLS:
            raise InvalidInput("across", self.across, f"times up must be at most {_MAX_CELLS:,}")
        west, south, east, north = self.box
        inside = WORLD[0] <= west <= east <= WORLD[2] and WORLD[1] <= south <= north <= WORLD[3]
        if not inside:
            problem = "must be west <= east and south <= north, inside the world"
            raise InvalidInput("box", self.box, problem)
        return self

    def cell_of(self, points: Any) -> NDArray[np.int64]:
        """Return the cell of every point (lon, lat in units)."""
        at = self._columns_and_rows(np.asarray(points, np.int64).reshape(-1, 2))
        cell: NDArray[np.int64] = at[:, 1] * self.across + at[:, 0]
        return cell

    def ranges(self, box: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the first column, first row, last column and last row of boxes (west <= east)."""
        corner = box.astype(np.int64).reshape(-1, 2)
        return read_only(self._columns_and_rows(corner), np.int32, 4)

    def _columns_and_rows(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        size = np.array([self.across, self.up], np.int64)
        corner = np.array(self.box, np.int64)
        extent = np.maximum(corner[2:] - corner[:2], 1)
        at: NDArray[np.int64] = np.clip((points - corner[:2]) * size // extent, 0, size - 1)
        return at


def bounding_box(columns: Clauses | Messages) -> tuple[int, int, int, int] | None:
    """Return the box around all documents in units; None if there are none.

    It has no side on the antimeridian: a document that lies across it makes it as wide as the
    world.

    Examples
    --------
    >>> bounding_box(Messages.of([[], []], [[5, 7], [1, 9]]))
    (1, 7, 5, 9)
    """
    box = columns.box
    if not len(box):
        return None
    west, south = box[:, :2].min(axis=0).tolist()
    east, north = box[:, 2:].max(axis=0).tolist()
    if bool((box[:, 0] > box[:, 2]).any()):
        west, east = WORLD[0], WORLD[2]
    return west, south, east, north


class Counts(NamedTuple):
    """The counts of a `Tally`.

    ``times[i]`` documents have the token ``token[i]`` (-1: any) in the cell ``cell[i]`` (-1:
    anywhere); each pair occurs once. ``width`` and ``height`` count extents in `BINS` bins.
    """

    documents: int
    width: NDArray[np.int64]
    height: NDArray[np.int64]
    cell: NDArray[np.int32]
    token: NDArray[np.int32]
    times: NDArray[np.int64]


class Tally:
    """Counts documents into a table that grows as needed.

    Parameters
    ----------
    grid
        The cells to count in.
    tokens, cells
        Whether to count tokens, and whether to count by cell.
    max_pairs
        The maximum number of pairs; a single document may need more. No limit by default.

    Examples
    --------
    >>> tally = Tally(Grid(2, 1), cells=False)
    >>> tally.add(Messages.of([[7, 3], [7]], [[0, 0], [5, 5]]))
    2
    >>> counts = tally.counts()
    >>> sorted(zip(counts.token.tolist(), counts.times.tolist())), counts.documents
    ([(3, 1), (7, 2)], 2)
    """

    def __init__(
        self, grid: Grid, *, tokens: bool = True, cells: bool = True, max_pairs: int | None = None
    ) -> None:
        self.grid = grid.checked()
        self._tokens, self._cells, self._max_pairs = tokens, cells, max_pairs
        self.clear()

    def clear(self) -> None:
        """Reset all counts."""
        self._slot = np.zeros((_MIN_SLOTS, 2), np.uint64)
        self._seen = 0
        self._used = 0
        self._documents = 0
        self._extents = np.zeros((2, BINS), np.int64)

    def add(self, columns: Clauses | Messages, first: int = 0) -> int:
        """Count documents from row ``first`` on; return the row at which the table was full.

        If that is not the end, take the `counts`, `clear`, and continue from there.
        """
        rows = len(columns) if isinstance(columns, Messages) else columns.subscriptions
        pieces = self._pieces(columns)
        begin = int(np.searchsorted(pieces.document, first))
        end = self._count(pieces, begin) if self._tokens or self._cells else len(pieces.document)
        done = rows if end == len(pieces.document) else int(pieces.document[end])
        for bins, extent in zip(self._extents, _extents(columns, first, done), strict=True):
            # The exponent of a float is the power of two, and 0 for 0.
            bins += np.bincount(np.frexp(extent)[1], minlength=BINS)
        self._documents += done - first
        return done

    def counts(self) -> Counts:
        """Return the counts, the pairs in no particular order."""
        key, counted = self._slot[self._slot[:, 1] != 0].T
        cell = (key >> np.uint64(32)).astype(np.int64) - 1
        token = (key & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1
        width, height = self._extents
        return Counts(
            self._documents,
            width,
            height,
            cell.astype(np.int32),
            token.astype(np.int32),
            (counted >> np.uint64(32)).astype(np.int64),
        )

    def _pieces(self, columns: Clauses | Messages) -> Pieces:
        if isinstance(columns, Messages):
            cut, document = (
                columns.cut() if columns.wraps.any() else (columns, np.arange(len(columns)))
            )
            box, start, token = cut.box, cut.token_start, cut.token
        else:
            box, start, token = columns.box, columns.token_start, columns.token
            document = columns.row.astype(np.int64)
        nowhere = np.tile(np.array([0, 0, -1, -1], np.int32), (len(box), 1))
        cell = self.grid.ranges(box) if self._cells else read_only(nowhere, np.int32)
        if not self._tokens:
            start, token = read_only(np.zeros(len(start)), np.int64), read_only([], np.int32)
        return Pieces(read_only(document, np.int64), cell, start, token)

    def _count(self, pieces: Pieces, first: int) -> int:
        # A slot remembers its last document, so rows of different batches get different numbers.
        numbered = pieces._replace(document=read_only(pieces.document + self._seen, np.int64))
        at = first
        while at < len(pieces.document):
            at, self._used, need = count_pieces(
                numbered, at, self.grid.across, self._slot, self._used
            )
            if at < len(pieces.document):
                if self._is_full(int(need)):
                    break
                self._grow(int(self._used + need))
        if len(pieces.document):
            self._seen += int(pieces.document[-1]) + 1
        return at

    def _is_full(self, more: int) -> bool:
        if self._max_pairs is None or not self._used:
            return False
        return self._used + more > self._max_pairs

    def _grow(self, pairs: int) -> None:
        slots = max(4 * len(self._slot), 1 << (2 * pairs - 1).bit_length())
        larger = np.zeros((slots, 2), np.uint64)
        move_pairs(self._slot, larger)
        self._slot = larger


def _extents(columns: Clauses | Messages, first: int, last: int) -> NDArray[np.float64]:
    """Return the widths and heights of all boxes of these rows."""
    if isinstance(columns, Messages):
        box = columns.box[first:last].astype(np.int64)
    else:
        chosen = slice(*np.searchsorted(columns.row, [first, last]))
        box = np.column_stack([columns.box[chosen].astype(np.int64), columns.row[chosen]])
        if (box[1:, 4] == box[:-1, 4]).any():
            box = np.unique(box, axis=0)
    extent = box[:, 2:4] - box[:, :2]
    extent[extent < 0] += WORLD[2] - WORLD[0]
    return extent.T.astype(np.float64)
