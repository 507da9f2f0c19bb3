"""Statistics of a set of documents (subscriptions or messages): how often tokens occur, and where.

Indexes use document frequencies, over all and by grid cell, to order tokens and to split space.
Ranked subscriptions use them as weights of tokens. `Statistics` holds them as arrays that can be
stored; `nearcast.indexes.statistics.tally` counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import WORLD, Clauses, Messages, read_only
from nearcast.columns.arrays import Arrays, freeze
from nearcast.errors import InvalidInput, StorageError
from nearcast.indexes.statistics.tally import BINS, Counts, Grid, Tally
from nearcast.storage import nested, prefixed, read_arrays, write_arrays
from nearcast.text import Vocabulary
from nearcast.text.keys import keys_of, string_buffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Statistics"]

KIND = "statistics"

_ARRAYS = {"cell_start": np.int64, "cell_token": np.int32, "cell_frequency": np.int64}
_NUMBERS = ("documents", "rejected", "across", "up")
_BOX = ("west", "south", "east", "north")
_COUNTS = {"density": np.int64, "width": np.int64, "height": np.int64}


@dataclass(frozen=True, eq=False)
class Statistics(Arrays):
    """How often tokens occur in a set of documents, over all and by grid cell.

    ``vocabulary`` holds every token that occurs with its document frequency, the most frequent
    first, equally frequent ones in the order of their bytes. The tokens of cell ``c`` are
    ``cell_token[cell_start[c]:cell_start[c + 1]]``, ascending, and ``cell_frequency`` holds their
    document frequencies in the cell. ``density`` counts the documents of each cell. ``width`` and
    ``height`` count the extents of boxes in `BINS` bins of powers of two (units of 1e-7 degree);
    each distinct box of a subscription counts. ``rejected`` is the number of invalid rows.

    Examples
    --------
    >>> words = Vocabulary(["tea", "cake"])
    >>> places = [[0, 0], [0, 0], [500_000_000, 0]]
    >>> statistics = Statistics.count(Messages.of([[0, 1], [1], [1]], places), words)
    >>> statistics.vocabulary.tokens().to_pylist(), statistics.vocabulary.frequency.tolist()
    (['cake', 'tea'], [3, 1])
    >>> statistics.idf().round(2).tolist()
    [0.69, 1.39]
    >>> statistics.frequency_in(int(statistics.grid.cell_of([0, 0])[0]))[1].tolist()
    [2, 1]
    """

    documents: int
    rejected: int
    vocabulary: Vocabulary
    grid: Grid
    cell_start: NDArray[np.int64]
    cell_token: NDArray[np.int32]
    cell_frequency: NDArray[np.int64]
    density: NDArray[np.int64]
    width: NDArray[np.int64]
    height: NDArray[np.int64]

    def __post_init__(self) -> None:
        freeze(self, _ARRAYS | _COUNTS)

    @classmethod
    def count(
        cls,
        columns: Clauses | Messages,
        vocabulary: Vocabulary,
        *,
        across: int = 100,
        up: int = 100,
        box: tuple[int, int, int, int] | None = None,
    ) -> Self:
        """Count the documents of columns; their token ids are those of the vocabulary.

        The grid covers ``box`` (units of 1e-7 degree), by default that of the documents.
        """
        grid = Grid.around(columns, across, up) if box is None else Grid(across, up, box)
        tally = Tally(grid)
        tally.add(columns)
        return cls.of(tally.grid, tally.counts(), vocabulary.tokens())

    @classmethod
    def of(
        cls, grid: Grid, counts: Counts, tokens: pa.LargeStringArray, *, rejected: int = 0
    ) -> Self:
        """Make statistics from counts and the tokens that their ids stand for.

        The result does not depend on the order of the pairs or on the numbering of the tokens.
        """
        anywhere = counts.cell < 0
        frequency = np.zeros(len(tokens), np.int64)
        frequency[counts.token[anywhere]] = counts.times[anywhere]
        order = _by_frequency(tokens, frequency)
        rank = np.full(len(tokens), -1, np.int32)
        rank[order] = np.arange(len(order))
        density = np.zeros(grid.cells, np.int64)
        whole = ~anywhere & (counts.token < 0)
        density[counts.cell[whole]] = counts.times[whole]
        inside = ~anywhere & (counts.token >= 0)
        cell, token = counts.cell[inside], rank[counts.token[inside]]
        ordered = np.argsort((cell.astype(np.int64) << 32) | token)
        return cls(
            counts.documents,
            rejected,
            _vocabulary(tokens.take(pa.array(order)), frequency[order]),
            grid,
            np.searchsorted(cell[ordered], np.arange(grid.cells + 1)),
            token[ordered],
            counts.times[inside][ordered],
            density,
            counts.width,
            counts.height,
        )

    def idf(self) -> NDArray[np.float64]:
        """Return the weight of every token, ``ln(1 + N / df)``."""
        return np.log1p(self.documents / self.vocabulary.frequency)

    def cell_of(self, points: Any) -> NDArray[np.int64]:
        """Return the cell of every point (lon, lat in units)."""
        return self.grid.cell_of(points)

    def frequency_in(self, cell: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the tokens of a cell, most frequent over all first, and their counts in it."""
        if not 0 <= cell < self.grid.cells:
            raise InvalidInput("cell", cell, f"must be at least 0 and below {self.grid.cells}")
        inside = slice(self.cell_start[cell], self.cell_start[cell + 1])
        return self.cell_token[inside], self.cell_frequency[inside]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the statistics into a folder; equal statistics give equal bytes."""
        write_arrays(folder, KIND, self.arrays(), self.numbers())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store; `from_arrays` takes them back, with `numbers`."""
        arrays = {name: getattr(self, name) for name in (*_ARRAYS, *_COUNTS)}
        return arrays | prefixed("vocabulary", self.vocabulary.arrays())

    def numbers(self) -> dict[str, int]:
        """Return the numbers to store beside the arrays."""
        return {
            "documents": self.documents,
            "rejected": self.rejected,
            "across": self.grid.across,
            "up": self.grid.up,
            **dict(zip(_BOX, self.grid.box, strict=True)),
        }

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | Self) -> Self:
        """Open the statistics that `save` wrote, memory-mapped; loaded ones are returned."""
        if isinstance(folder, cls):
            return folder
        assert not isinstance(folder, Statistics)
        return cls.from_arrays(*read_arrays(folder, KIND), os.fspath(folder))

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], folder: str
    ) -> Self:
        """Make statistics from what `arrays` and `numbers` gave; ``folder`` is for errors."""
        try:
            documents, rejected, across, up = (int(meta[name]) for name in _NUMBERS)
            # Earlier versions counted over the world.
            west, south, east, north = (
                int(meta.get(name, side)) for name, side in zip(_BOX, WORLD, strict=True)
            )
            own = {name: arrays[name] for name in (*_ARRAYS, *_COUNTS)}
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{folder}: {error} is missing or wrong; count the statistics again"
            ) from None
        vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
        grid = Grid(across, up, (west, south, east, north))
        loaded = cls(documents, rejected, vocabulary, grid, **own)
        if not loaded._sound():
            raise StorageError(
                f"{folder}: the arrays do not fit together; count the statistics again"
            )
        return loaded

    def _sound(self) -> bool:
        start, token = self.cell_start, self.cell_token
        return (
            self.grid.box[0] <= self.grid.box[2]
            and self.grid.box[1] <= self.grid.box[3]
            and len(start) == self.grid.cells + 1
            and len(self.density) == self.grid.cells
            and len(self.width) == len(self.height) == BINS
            and len(token) == len(self.cell_frequency) == start[-1]
            and start[0] == 0
            and bool((start[1:] >= start[:-1]).all())
            and (not len(token) or (token.min() >= 0 and token.max() < len(self.vocabulary)))
        )


def _by_frequency(tokens: pa.LargeStringArray, frequency: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ids of the tokens that occur, most frequent first, then by their bytes."""
    used = np.flatnonzero(frequency)
    table = pa.table({"frequency": frequency[used], "token": tokens.take(pa.array(used))})
    keys = [("frequency", "descending"), ("token", "ascending")]
    order: NDArray[np.int64] = used[pc.sort_indices(table, sort_keys=keys).to_numpy()]
    return order


def _vocabulary(tokens: pa.LargeStringArray, frequency: NDArray[np.int64]) -> Vocabulary:
    vocabulary = Vocabulary()
    vocabulary.add_keys(keys_of(*string_buffers(tokens)))
    return Vocabulary.from_arrays(
        {**vocabulary.arrays(), "frequency": read_only(frequency, np.int64)}
    )
