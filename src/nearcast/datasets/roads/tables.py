"""Moves and messages of a tick as Arrow tables, as files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast.datasets.tables import box_columns, message_table, row_ids, subscription_table

if TYPE_CHECKING:
    from nearcast.columns import Messages
    from nearcast.datasets.roads.workload import MovingWorkload, Tick

__all__ = ["arrival_table", "move_table", "mover_table"]

_SECOND_US = 1_000_000


def mover_table(workload: MovingWorkload, first: int = 0, last: int | None = None) -> pa.Table:
    """Return ``id``, ``keywords`` and the box of the subscriptions of these rows.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> from nearcast.datasets.roads import Movers, MovingWorkload, lattice
    >>> movers = Movers(lattice(lines=20, seed=1), 1000, seed=7)
    >>> workload = MovingWorkload(movers, Workload("tweets", seed=7), arrivals=50)
    >>> mover_table(workload, 998)["id"].to_pylist()
    ['s998', 's999']
    """
    table = subscription_table(workload.words, workload.subscriptions(first, last))
    return table.set_column(0, "id", row_ids("s", workload.movers.number[first:last]))


def move_table(workload: MovingWorkload, tick: Tick) -> pa.Table:
    """Return ``subscription_id``, ``time`` and the new box of each move.

    Examples
    --------
    >>> from nearcast.datasets import Workload
    >>> from nearcast.datasets.roads import Movers, MovingWorkload, lattice
    >>> movers = Movers(lattice(lines=20, seed=1), 1000, seed=7)
    >>> workload = MovingWorkload(movers, Workload("tweets", seed=7), arrivals=50)
    >>> move_table(workload, workload.tick()).column_names
    ['subscription_id', 'time', 'west', 'south', 'east', 'north']
    """
    return pa.table(
        {
            "subscription_id": row_ids("s", workload.movers.number[tick.mover]),
            "time": _times(np.full(len(tick.mover), tick.time_us)),
            **box_columns(tick.box),
        }
    )


def arrival_table(workload: MovingWorkload, messages: Messages, first: int) -> pa.Table:
    """Return ``id``, ``text``, ``lon``, ``lat``, ``time`` and ``ttl_s`` of messages.

    Ids count from ``first``.
    """
    table = message_table(workload.words, messages, first=first)
    at = table.column_names.index("time")
    table = table.set_column(at, "time", _times(messages.time_us))
    return table.append_column("ttl_s", pa.array(messages.ttl_us / _SECOND_US))


def _times(time_us: Any) -> pa.Array:
    return pa.array(time_us).cast(pa.timestamp("us", "UTC"))
