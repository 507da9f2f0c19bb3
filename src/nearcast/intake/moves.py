"""Moves: which subscription goes where, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.columns import NEVER, Regions, gather
from nearcast.intake.frames import table_from
from nearcast.intake.ids import read_ids
from nearcast.intake.places import read_regions
from nearcast.intake.rejects import RowErrors
from nearcast.intake.times import read_times

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.columns import Ids
    from nearcast.intake.batches import Batch
    from nearcast.intake.rejects import Rejects

__all__ = ["MoveBatch", "read_moves"]


class MoveBatch(NamedTuple):
    """Moves as they were read.

    Attributes
    ----------
    ids
        The ids of the subscriptions.
    time_us
        The times, in microseconds since 1970; `NEVER` where no time is given.
    regions
        Where they move.
    row
        The position of each move in the table.
    """

    ids: Ids
    time_us: NDArray[np.int64]
    regions: Regions
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    def regions_of(self, rows: NDArray[np.int64]) -> Regions:
        """Return the regions of some of the moves."""
        box_start, box, shape, shapes = self.regions
        start, chosen = gather(box_start, rows)
        return Regions(start, box[chosen], shape[rows], shapes)


def read_moves(
    table: pa.Table,
    kinds: Callable[[Ids], NDArray[np.uint8]] | None = None,
    *,
    source: Batch | None = None,
) -> tuple[MoveBatch, Rejects]:
    """Return the moves of a table in their order, and the rows that were rejected.

    Parameters
    ----------
    table
        ``subscription_id``; a place as for subscriptions; optionally ``time``.
    kinds
        Tells the kinds of subscriptions, by their positions in `nearcast.columns.KINDS`: those that
        are ranked by distance move to a point, and boolean ones may not.
    source
        What the table was read from: rejects then have its file, row numbers and records.

    Examples
    --------
    >>> import pyarrow as pa
    >>> columns = {"subscription_id": [7, 8], "lon": [0.0, 99.0], "lat": [0.0, 99.0]}
    >>> moves, rejects = read_moves(pa.table({**columns, "radius_m": [5.0, 5.0]}))
    >>> moves.ids.tolist(), rejects.row.tolist()
    ([7], [1])
    """
    table = table_from(table)
    errors = RowErrors(table.num_rows)
    ids = read_ids(table, "subscription_id", errors)
    time = read_times(table, "time", errors)
    regions = read_regions(table, errors, None if kinds is None else kinds(ids))
    rows = np.flatnonzero(errors.valid)
    every = MoveBatch(ids, np.where(time.given, time.us, NEVER), regions, rows)
    batch = MoveBatch(ids.take(rows), every.time_us[rows], every.regions_of(rows), rows)
    return batch, errors.rejects(table, source)
